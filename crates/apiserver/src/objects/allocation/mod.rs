//! Cluster IPs and node ports of Services. No I/O; the allocator remembers what is taken.
//!
//! ```text
//!  Service ─► families: which IP families it gets ─► pool per family ─► clusterIPs
//!             pool of ports ───────────────────────────────► nodePort, healthCheckNodePort
//! ```
//!
//! Each pool is used in turn: a released address is allocated again only after all others. As in
//! kube-apiserver, the lower part of a range is left for Services that ask for a certain address or
//! port.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;

use crate::objects::json::{items, list, map, number, text, texts};
use crate::objects::kind::Kind;
use crate::objects::strategy::{has_address, has_health_port, has_node_ports};
use crate::status::{FieldError, StatusError};

mod families;
mod pool;

use pool::{Pool, Unavailable};

/// Allocates cluster IPs and node ports.
#[derive(Debug)]
pub(crate) struct Allocator {
    ranges: Vec<Cidr>,
    addresses: Vec<Pool>,
    ports: Pool,
}

/// The addresses and ports that one Service holds.
#[derive(Debug, Default)]
struct Holdings {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<i64>,
}

impl Holdings {
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

/// One call of [`Allocator::assign`].
#[derive(Default)]
struct Assignment {
    /// What the stored Service holds.
    had: Holdings,
    /// What has been allocated so far in this call.
    fresh: Holdings,
}

/// A port of a Service and its node port; 0 is none.
struct AssignedPort {
    port: i64,
    node_port: i64,
    protocol: String,
}

impl Allocator {
    /// An allocator for these ranges of cluster IPs, one per family. The first one is the default
    /// family.
    pub(crate) fn new(ranges: Vec<Cidr>) -> Self {
        let addresses = ranges.iter().map(|range| Pool::of_network(*range)).collect();
        Self { ranges, addresses, ports: Pool::of_node_ports() }
    }

    /// The ranges of cluster IPs.
    pub(crate) fn ranges(&self) -> &[Cidr] {
        &self.ranges
    }

    /// Allocates what a Service asks for or lacks: `clusterIP(s)`, `ipFamilies`, `ipFamilyPolicy`,
    /// `nodePort`s and `healthCheckNodePort`. Releases what its stored version held and it no
    /// longer has. Nothing changes if it fails.
    pub(crate) fn assign(
        &mut self,
        stored: Option<&Value>,
        service: &mut Value,
    ) -> Result<(), StatusError> {
        let mut draft = service.clone();
        let mut assignment = Assignment {
            had: stored.map(Holdings::of).unwrap_or_default(),
            ..Assignment::default()
        };
        if let Err(error) = self.fill(&mut draft, &mut assignment) {
            self.release_except(&assignment.fresh, &Holdings::default());
            return Err(error);
        }
        self.release_except(&assignment.had, &Holdings::of(&draft));
        *service = draft;
        Ok(())
    }

    /// Releases everything that a deleted Service held.
    pub(crate) fn release(&mut self, service: &Value) {
        self.release_except(&Holdings::of(service), &Holdings::default());
    }

    /// Releases `held`, except what is in `kept`.
    fn release_except(&mut self, held: &Holdings, kept: &Holdings) {
        for address in held.addresses.difference(&kept.addresses) {
            if let Some(at) = self.pool(*address) {
                self.addresses[at].release(bits(*address));
            }
        }
        for port in held.ports.difference(&kept.ports) {
            self.ports.release(u128::try_from(*port).unwrap_or(0));
        }
    }

    fn pool(&self, address: IpAddr) -> Option<usize> {
        self.ranges.iter().position(|range| range.is_ipv4() == address.is_ipv4())
    }

    fn fill(
        &mut self,
        service: &mut Value,
        assignment: &mut Assignment,
    ) -> Result<(), StatusError> {
        if has_address(service) {
            let families = families::resolve(&self.ranges, service)
                .map_err(|cause| invalid(service, cause))?;
            if text(service, "/spec/clusterIP") != "None" {
                self.addresses(service, &families, assignment)?;
            }
        }
        if has_node_ports(service) {
            self.node_ports(service, assignment)?;
        }
        if has_health_port(service) {
            self.health_port(service, assignment)?;
        }
        Ok(())
    }

    fn addresses(
        &mut self,
        service: &mut Value,
        families: &[bool],
        assignment: &mut Assignment,
    ) -> Result<(), StatusError> {
        let wanted: Vec<String> = texts(service, "/spec/clusterIPs").map(str::to_owned).collect();
        let mut given = Vec::new();
        for (at, four) in families.iter().enumerate() {
            let pool = self.ranges.iter().position(|range| range.is_ipv4() == *four);
            let Some(pool) = pool else { continue };
            let address = match wanted.get(at).and_then(|text| text.parse::<IpAddr>().ok()) {
                Some(address) => {
                    self.take_address(service, pool, address, assignment)?;
                    address
                }
                None => {
                    let bits = self.addresses[pool]
                        .next()
                        .ok_or_else(|| full("failed to allocate a serviceIP: range is full"))?;
                    let address = address(bits, *four);
                    assignment.fresh.addresses.insert(address);
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
        assignment: &mut Assignment,
    ) -> Result<(), StatusError> {
        if assignment.had.addresses.contains(&address) {
            return Ok(());
        }
        let why = match self.addresses[pool].take(bits(address)) {
            Ok(()) => {
                assignment.fresh.addresses.insert(address);
                return Ok(());
            }
            Err(Unavailable::Taken) => "provided IP is already allocated".to_owned(),
            Err(Unavailable::Outside) if !self.ranges[pool].contains(address) => {
                "the provided network does not match the current range".to_owned()
            }
            Err(Unavailable::Outside) => {
                let range = self.ranges[pool];
                format!(
                    "the provided IP ({address}) is not in the valid range. \
                     The range of valid IPs is {range}"
                )
            }
        };
        let why = format!("failed to allocate IP {address}: {why}");
        let value = &service["spec"]["clusterIPs"];
        Err(invalid(service, FieldError::invalid("spec.clusterIPs", value, &why)))
    }

    fn node_ports(
        &mut self,
        service: &mut Value,
        assignment: &mut Assignment,
    ) -> Result<(), StatusError> {
        let allocates =
            service.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&json!(false));
        let mut given: Vec<AssignedPort> = Vec::new();
        for (at, port) in list(service, "/spec/ports").iter().enumerate() {
            let number = number(port, "/port").unwrap_or(0);
            let protocol = text(port, "/protocol");
            let wanted = crate::objects::json::number(port, "/nodePort").unwrap_or(0);
            let node_port = match wanted {
                0 if !allocates => 0,
                0 => self.next_node_port(number, protocol, &given, assignment)?,
                wanted => {
                    // Ports of different protocols may share a node port.
                    let same_node_port = given.iter().find(|other| other.node_port == wanted);
                    let shares = same_node_port.is_some_and(|other| other.protocol != protocol);
                    if !shares {
                        let again = same_node_port.is_some();
                        self.take_port(wanted, again, assignment).map_err(|why| {
                            let field = format!("spec.ports[{at}].nodePort");
                            invalid(service, FieldError::invalid(field, &json!(wanted), why))
                        })?;
                    }
                    wanted
                }
            };
            given.push(AssignedPort { port: number, node_port, protocol: protocol.to_owned() });
        }
        for (port, assigned) in items(service, "/spec/ports").zip(given) {
            if assigned.node_port != 0 {
                port["nodePort"] = assigned.node_port.into();
            }
        }
        Ok(())
    }

    /// A free node port; the same one for the TCP and UDP ports of one number.
    fn next_node_port(
        &mut self,
        number: i64,
        protocol: &str,
        given: &[AssignedPort],
        assignment: &mut Assignment,
    ) -> Result<i64, StatusError> {
        let twin = given.iter().find(|other| {
            other.port == number && other.node_port != 0 && other.protocol != protocol
        });
        match twin {
            Some(twin) => Ok(twin.node_port),
            None => self.next_port(assignment, "failed to allocate a nodePort: range is full"),
        }
    }

    fn next_port(&mut self, assignment: &mut Assignment, why: &str) -> Result<i64, StatusError> {
        let port = self.ports.next().and_then(|port| i64::try_from(port).ok());
        let port = port.ok_or_else(|| full(why))?;
        assignment.fresh.ports.insert(port);
        Ok(port)
    }

    fn take_port(
        &mut self,
        port: i64,
        again: bool,
        assignment: &mut Assignment,
    ) -> Result<(), &'static str> {
        if assignment.had.ports.contains(&port) && !again {
            return Ok(());
        }
        match self.ports.take(u128::try_from(port).unwrap_or(0)) {
            Ok(()) => {
                assignment.fresh.ports.insert(port);
                Ok(())
            }
            Err(Unavailable::Taken) => Err("provided port is already allocated"),
            Err(Unavailable::Outside) => Err(
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            ),
        }
    }

    fn health_port(
        &mut self,
        service: &mut Value,
        assignment: &mut Assignment,
    ) -> Result<(), StatusError> {
        let wanted = number(service, "/spec/healthCheckNodePort").unwrap_or(0);
        let port = if wanted == 0 {
            self.next_port(assignment, "failed to allocate a HealthCheck NodePort: range is full")?
        } else {
            self.take_port(wanted, false, assignment).map_err(|why| {
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

fn invalid(service: &Value, cause: FieldError) -> StatusError {
    match Kind::find("", "v1", "services") {
        Some(kind) => StatusError::invalid(kind, text(service, "/metadata/name"), &[cause]),
        None => StatusError::internal(cause.message),
    }
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
