//! Cluster addresses and node ports of Services. Pure but for its memory of what is taken.
//!
//! ```text
//!  Service ─► families: which addresses it should have ─► pool per family ─► clusterIPs
//!                                                         pool of ports ───► nodePort, healthCheckNodePort
//! ```
//!
//! Each pool goes round: an address that was given back is handed out again when all others have had their turn. The
//! lower part of a pool is left to those who ask for a certain number, as the reference does.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::objects::json::{items, list, map, number, text, texts};
use crate::objects::kind::Kind;
use crate::objects::strategy::{has_address, has_health_port, has_node_ports};
use crate::status::{FieldError, StatusError};

mod families;
mod pool;

use pool::{Pool, Refusal};

/// A network: an address and the length of its prefix.
pub type Cidr = (IpAddr, u8);

/// What is taken.
#[derive(Debug)]
pub(crate) struct Allocator {
    ranges: Vec<Cidr>,
    addresses: Vec<Pool>,
    ports: Pool,
}

/// Addresses and ports of one Service.
#[derive(Debug, Default)]
struct Holding {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<i64>,
}

impl Holding {
    fn of(service: &Value) -> Self {
        let ports =
            list(service, "/spec/ports").iter().filter_map(|port| number(port, "/nodePort"));
        let health = number(service, "/spec/healthCheckNodePort");
        Self {
            addresses: texts(service, "/spec/clusterIPs")
                .filter_map(|ip| ip.parse().ok())
                .collect(),
            ports: ports.chain(health).filter(|port| *port != 0).collect(),
        }
    }
}

/// One request: what the Service had, and what it was given until now.
#[derive(Default)]
struct Request {
    had: Holding,
    fresh: Holding,
}

impl Allocator {
    /// From these ranges, one per family, the first family first.
    pub(crate) fn new(ranges: Vec<Cidr>) -> Self {
        let addresses = ranges.iter().map(|range| Pool::of_network(*range)).collect();
        Self { ranges, addresses, ports: Pool::of_node_ports() }
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> &[Cidr] {
        &self.ranges
    }

    /// Gives a Service what it asks for or lacks: `clusterIP(s)`, `ipFamilies`, `ipFamilyPolicy`, `nodePort`s,
    /// `healthCheckNodePort`. Takes back what its stored version had and it no longer has.
    /// Nothing is changed if it fails.
    pub(crate) fn assign(
        &mut self,
        stored: Option<&Value>,
        service: &mut Value,
    ) -> Result<(), StatusError> {
        let mut draft = service.clone();
        let mut request =
            Request { had: stored.map(Holding::of).unwrap_or_default(), ..Request::default() };
        if let Err(error) = self.fill(&mut draft, &mut request) {
            self.give_back(&request.fresh, &Holding::default());
            return Err(error);
        }
        self.give_back(&request.had, &Holding::of(&draft));
        *service = draft;
        Ok(())
    }

    /// Takes back everything a deleted Service had.
    pub(crate) fn release(&mut self, service: &Value) {
        self.give_back(&Holding::of(service), &Holding::default());
    }

    fn give_back(&mut self, what: &Holding, but: &Holding) {
        for address in what.addresses.difference(&but.addresses) {
            if let Some(at) = self.pool(*address) {
                self.addresses[at].give_back(bits(*address));
            }
        }
        for port in what.ports.difference(&but.ports) {
            self.ports.give_back(u128::try_from(*port).unwrap_or(0));
        }
    }

    fn pool(&self, address: IpAddr) -> Option<usize> {
        self.ranges.iter().position(|(range, _)| range.is_ipv4() == address.is_ipv4())
    }

    fn fill(&mut self, service: &mut Value, request: &mut Request) -> Result<(), StatusError> {
        if has_address(service) {
            let families =
                families::settle(&self.ranges, service).map_err(|cause| refuse(service, cause))?;
            if text(service, "/spec/clusterIP") != "None" {
                self.addresses(service, &families, request)?;
            }
        }
        if has_node_ports(service) {
            self.node_ports(service, request)?;
        }
        if has_health_port(service) {
            self.health_port(service, request)?;
        }
        Ok(())
    }

    fn addresses(
        &mut self,
        service: &mut Value,
        families: &[bool],
        request: &mut Request,
    ) -> Result<(), StatusError> {
        let wanted: Vec<String> = texts(service, "/spec/clusterIPs").map(str::to_owned).collect();
        let mut given = Vec::new();
        for (at, four) in families.iter().enumerate() {
            let pool = self.ranges.iter().position(|(range, _)| range.is_ipv4() == *four);
            let Some(pool) = pool else { continue };
            let address = match wanted.get(at).and_then(|text| text.parse::<IpAddr>().ok()) {
                Some(address) => {
                    self.take_address(service, pool, address, request)?;
                    address
                }
                None => {
                    let bits = self.addresses[pool]
                        .next()
                        .ok_or_else(|| full("failed to allocate a serviceIP: range is full"))?;
                    let address = address(bits, *four);
                    request.fresh.addresses.insert(address);
                    address
                }
            };
            given.push(address.to_string());
        }
        let spec = map(service, "spec");
        if let Some(first) = given.first() {
            spec.insert("clusterIP".into(), json!(first));
            spec.insert("clusterIPs".into(), json!(given));
        }
        Ok(())
    }

    fn take_address(
        &mut self,
        service: &Value,
        pool: usize,
        address: IpAddr,
        request: &mut Request,
    ) -> Result<(), StatusError> {
        if request.had.addresses.contains(&address) {
            return Ok(());
        }
        let why = match self.addresses[pool].take(bits(address)) {
            Ok(()) => {
                request.fresh.addresses.insert(address);
                return Ok(());
            }
            Err(Refusal::Taken) => "provided IP is already allocated".to_owned(),
            Err(Refusal::Outside) if !within(self.ranges[pool], address) => {
                "the provided network does not match the current range".to_owned()
            }
            Err(Refusal::Outside) => {
                let (range, length) = self.ranges[pool];
                format!(
                    "the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}/{length}"
                )
            }
        };
        let why = format!("failed to allocate IP {address}: {why}");
        let value = &service["spec"]["clusterIPs"];
        Err(refuse(service, FieldError::invalid("spec.clusterIPs", value, &why)))
    }

    fn node_ports(
        &mut self,
        service: &mut Value,
        request: &mut Request,
    ) -> Result<(), StatusError> {
        let unasked = service.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&json!(false));
        let mut given: Vec<(i64, i64, String)> = Vec::new();
        for (at, port) in list(service, "/spec/ports").iter().enumerate() {
            let number = number(port, "/port").unwrap_or(0);
            let protocol = text(port, "/protocol");
            let wanted = crate::objects::json::number(port, "/nodePort").unwrap_or(0);
            let node = match wanted {
                0 if !unasked => 0,
                0 => self.next_node_port(number, protocol, &given, request)?,
                wanted => {
                    let twin = given.iter().find(|(_, node, _)| *node == wanted);
                    let beside = twin.is_some_and(|(_, _, other)| other != protocol);
                    if !beside {
                        let again = twin.is_some();
                        self.take_port(wanted, again, request).map_err(|why| {
                            let field = format!("spec.ports[{at}].nodePort");
                            refuse(service, FieldError::invalid(field, &json!(wanted), why))
                        })?;
                    }
                    wanted
                }
            };
            given.push((number, node, protocol.to_owned()));
        }
        for (port, (_, node, _)) in items(service, "/spec/ports").zip(given) {
            if node != 0 {
                port["nodePort"] = node.into();
            }
        }
        Ok(())
    }

    /// The same number for TCP and UDP of one port.
    fn next_node_port(
        &mut self,
        number: i64,
        protocol: &str,
        given: &[(i64, i64, String)],
        request: &mut Request,
    ) -> Result<i64, StatusError> {
        let twin = given
            .iter()
            .find(|(port, node, other)| *port == number && *node != 0 && other != protocol);
        match twin {
            Some((_, node, _)) => Ok(*node),
            None => self.next_port(request, "failed to allocate a nodePort: range is full"),
        }
    }

    fn next_port(&mut self, request: &mut Request, why: &str) -> Result<i64, StatusError> {
        let port = self.ports.next().and_then(|port| i64::try_from(port).ok());
        let port = port.ok_or_else(|| full(why))?;
        request.fresh.ports.insert(port);
        Ok(port)
    }

    fn take_port(
        &mut self,
        port: i64,
        again: bool,
        request: &mut Request,
    ) -> Result<(), &'static str> {
        if request.had.ports.contains(&port) && !again {
            return Ok(());
        }
        match self.ports.take(u128::try_from(port).unwrap_or(0)) {
            Ok(()) => {
                request.fresh.ports.insert(port);
                Ok(())
            }
            Err(Refusal::Taken) => Err("provided port is already allocated"),
            Err(Refusal::Outside) => Err(
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            ),
        }
    }

    fn health_port(
        &mut self,
        service: &mut Value,
        request: &mut Request,
    ) -> Result<(), StatusError> {
        let wanted = number(service, "/spec/healthCheckNodePort").unwrap_or(0);
        let port = if wanted == 0 {
            self.next_port(request, "failed to allocate a HealthCheck NodePort: range is full")?
        } else {
            self.take_port(wanted, false, request).map_err(|why| {
                full(&format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}"))
            })?;
            wanted
        };
        map(service, "spec").insert("healthCheckNodePort".into(), port.into());
        Ok(())
    }
}

fn full(why: &str) -> StatusError {
    StatusError::internal(format!("Internal error occurred: {why}"))
}

fn refuse(service: &Value, cause: FieldError) -> StatusError {
    match Kind::find("", "v1", "services") {
        Some(kind) => StatusError::invalid(kind, text(service, "/metadata/name"), &[cause]),
        None => StatusError::internal(cause.message),
    }
}

/// Whether an address is in a network.
fn within((network, length): Cidr, address: IpAddr) -> bool {
    let width = if network.is_ipv4() { 32 } else { 128 };
    let host = width - u32::from(length);
    network.is_ipv4() == address.is_ipv4()
        && bits(network).checked_shr(host) == bits(address).checked_shr(host)
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()),
        IpAddr::V6(six) => six.to_bits(),
    }
}

fn address(bits: u128, four: bool) -> IpAddr {
    if four {
        IpAddr::V4(u32::try_from(bits).unwrap_or(u32::MAX).into())
    } else {
        IpAddr::V6(bits.into())
    }
}

#[cfg(test)]
mod tests;
