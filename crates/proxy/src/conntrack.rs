//! Stale UDP flows. conntrack sends the packets of a flow that it knows to the same endpoint for as
//! long as packets come, even if the endpoint is gone. Such flows are removed, so that the next packet
//! is sent to another endpoint.
//!
//! Only flows to Services that have changed are removed, at frontends that these Services have, and to NodePorts only on this node's own
//! addresses: flows through this node to the same port of another machine stay.
//!
//! An endpoint that is in no slice which this node watches may have moved to a slice for another zone. It
//! still serves its flows then. So flows of Services that are divided into subsets are removed only by all
//! slices of the Service (`proxy::stale_flows`).
//!
//! At the start, connections of any protocol that began before there were rules are removed, too.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};

use zonewise_common::name::{Key, Name};
use zonewise_nft::conntrack::Flow;
use zonewise_nft::{Family, Network};
use zonewise_routing::{self as routing, Frontend, Protocol, RoutedService, Target};

/// The protocol number of UDP.
const UDP: u8 = 17;
/// How often the table of flows is read again when it changes meanwhile.
const ATTEMPTS: u32 = 5;

/// Whether the slices that this node knows of a Service are all that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// They are.
    All,
    /// There may be slices for other zones or regions.
    Own,
}

/// The endpoints that flows to one address and port may lead to.
#[derive(Debug, Default)]
struct Endpoints {
    serving: BTreeSet<SocketAddr>,
    /// Services that may have further endpoints, in slices that this node does not know.
    partly_known: BTreeSet<Key>,
}

/// What a flow is.
#[derive(Debug, PartialEq, Eq)]
pub enum FlowVerdict<'a> {
    /// It leads to an endpoint that serves, or is not about these Services.
    Valid,
    /// It leads to an endpoint that no longer serves.
    Stale,
    /// It leads to an endpoint that may be in slices of these Services that are not known.
    Unsure(&'a BTreeSet<Key>),
}

/// Addresses and ports of Services, with the endpoints that their flows may lead to.
#[derive(Debug, Default)]
pub struct Frontends {
    addresses: BTreeMap<SocketAddr, Endpoints>,
    nodeports: BTreeMap<(routing::Family, u16), Endpoints>,
}

impl Endpoints {
    fn extend(&mut self, service: &RoutedService, serving: &[Target], known: Known) {
        self.serving
            .extend(serving.iter().map(|target| SocketAddr::new(target.address, target.port)));
        if known == Known::Own {
            self.partly_known.insert((Name::clone(&service.namespace), Name::clone(&service.name)));
        }
    }
}

impl Frontends {
    /// Adds the frontends of a UDP port that its Service has, with the endpoints that serve it. Without endpoints
    /// its flows stay: there is no better endpoint for them.
    pub fn add(
        &mut self,
        service: &RoutedService,
        frontends: impl Iterator<Item = Frontend>,
        serving: &[Target],
        known: Known,
    ) {
        if serving.is_empty() {
            return;
        }
        for frontend in frontends {
            let endpoints = match frontend.socket() {
                Some(socket) => self.addresses.entry(socket).or_default(),
                None => self.nodeports.entry((frontend.family, frontend.port)).or_default(),
            };
            endpoints.extend(service, serving, known);
        }
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.nodeports.is_empty()
    }

    /// Whether a flow leads to an endpoint that no longer serves. In flows that began while the Service
    /// had no endpoint, the Service's own address answers, which is not an endpoint either. `own` are
    /// this node's addresses.
    pub fn judge(&self, flow: &Flow, own: &BTreeSet<IpAddr>) -> FlowVerdict<'_> {
        let to = SocketAddr::new(flow.original.dst, flow.original.dport);
        let answers = SocketAddr::new(flow.reply.src, flow.reply.sport);
        let nodeport = || {
            let key = (routing::Family::of(&to.ip()), to.port());
            self.nodeports.get(&key).filter(|_| own.contains(&to.ip()))
        };
        let endpoints = self.addresses.get(&to).or_else(nodeport).filter(|_| flow.protocol == UDP);
        match endpoints {
            Some(endpoints) if !endpoints.serving.contains(&answers) => {
                // The Service's own address answers: no slice contains it.
                let sure = answers == to || endpoints.partly_known.is_empty();
                if sure { FlowVerdict::Stale } else { FlowVerdict::Unsure(&endpoints.partly_known) }
            }
            Some(_) | None => FlowVerdict::Valid,
        }
    }
}

/// Flows that are stale, or may be.
#[derive(Debug, Default)]
pub struct SuspectFlows {
    /// They lead to endpoints that no longer serve.
    pub stale: Vec<Flow>,
    /// Services with flows to endpoints that may be in slices that are not known.
    pub unsure: BTreeSet<Key>,
}

/// Looks for stale flows of a family.
pub fn find(
    network: &Network,
    family: Family,
    frontends: &Frontends,
    own: &BTreeSet<IpAddr>,
) -> io::Result<SuspectFlows> {
    let mut conntrack = network.conntrack()?;
    listed(|found: &mut SuspectFlows| {
        conntrack.flows(family, Some(UDP), &mut |flow| match frontends.judge(flow, own) {
            FlowVerdict::Valid => {}
            FlowVerdict::Stale => found.stale.push(*flow),
            FlowVerdict::Unsure(services) => found.unsure.extend(services.iter().cloned()),
        })
    })
}

/// Looks for connections that began before there were rules for them: nobody has answered, and their destination was not
/// translated. conntrack decides so once for a connection, so that the packets which their clients send again would find no
/// endpoint either.
pub(crate) fn find_early(
    network: &Network,
    family: Family,
    is_for_services: impl Fn(&Frontend) -> bool,
) -> io::Result<Vec<Flow>> {
    let is_early = |flow: &Flow| {
        let to = Protocol::of_number(flow.protocol)
            .map(|protocol| Frontend::at(flow.original.dst, protocol, flow.original.dport));
        to.is_some_and(|frontend| is_for_services(&frontend))
    };
    let mut conntrack = network.conntrack()?;
    listed(|found: &mut Vec<Flow>| {
        conntrack.unanswered(family, &mut |flow| found.extend(is_early(flow).then_some(*flow)))
    })
}

/// What `list` finds. If the table has changed while it was read, it is read again; after some attempts, what was read
/// has to do.
fn listed<T: Default>(mut list: impl FnMut(&mut T) -> io::Result<()>) -> io::Result<T> {
    let mut attempt = 1;
    loop {
        let mut found = T::default();
        match list(&mut found) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && attempt < ATTEMPTS => {
                attempt += 1;
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Err(_) | Ok(()) => return Ok(found),
        }
    }
}

/// Removes flows, and returns how many.
pub fn remove(network: &Network, flows: &[Flow]) -> io::Result<usize> {
    if !flows.is_empty() {
        let mut conntrack = network.conntrack()?;
        for flow in flows {
            conntrack.delete(flow)?;
        }
    }
    Ok(flows.len())
}

#[cfg(test)]
mod tests {
    use zonewise_nft::conntrack::Tuple;
    use zonewise_routing::{NodeLocation, ObjectReader, RouteQuery, serving_targets};

    use super::*;

    const TCP: u8 = 6;
    const SERVICE: &str = "10.96.0.1:53";

    /// A Service with a ClusterIP and a NodePort, whose slice has the endpoint 10.0.0.1:53.
    fn frontends(known: Known) -> Frontends {
        let reader = ObjectReader::new(NodeLocation::new("n1", Some("a"), None));
        let service = r#"{"metadata": {"namespace": "shop", "name": "dns"}, "spec": {"type": "NodePort",
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
            "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}]}}"#;
        let slice = r#"{"metadata": {"namespace": "shop", "name": "dns-1",
            "labels": {"kubernetes.io/service-name": "dns"}}, "addressType": "IPv4",
            "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]}"#;
        let (service, slice) =
            (reader.read_service(service).unwrap(), reader.read_slice(slice).unwrap());
        let query = RouteQuery {
            reader: &reader,
            gates: &routing::FeatureGates::default(),
            service: &service,
            port: &service.ports[0],
            family: routing::Family::V4,
            slices: &[&slice],
        };
        let mut frontends = Frontends::default();
        let claimed = service.frontends(&service.ports[0], routing::Family::V4).into_iter();
        let claimed = claimed.map(|(frontend, _)| frontend);
        frontends.add(&service, claimed, &serving_targets(&query), known);
        frontends
    }

    fn flow(protocol: u8, to: &str, answers: &str) -> Flow {
        let (to, answers): (SocketAddr, SocketAddr) =
            (to.parse().unwrap(), answers.parse().unwrap());
        let client: SocketAddr = "10.0.9.9:4711".parse().unwrap();
        let tuple = |from: SocketAddr, to: SocketAddr| Tuple {
            src: from.ip(),
            dst: to.ip(),
            sport: from.port(),
            dport: to.port(),
        };
        Flow {
            protocol,
            original: tuple(client, to),
            reply: tuple(answers, client),
            destination_translated: true,
            id: None,
            zone: 0,
        }
    }

    #[test]
    fn c5_a_flow_is_stale_only_if_no_slice_can_have_its_endpoint() {
        let own = BTreeSet::from(["192.168.0.1".parse().unwrap()]);
        let dns = BTreeSet::from([("shop".into(), "dns".into())]);
        let (serves, gone) = ("10.0.0.1:53", "10.0.0.2:53");
        let rows = [
            (flow(UDP, SERVICE, serves), FlowVerdict::Valid, FlowVerdict::Valid),
            (flow(UDP, SERVICE, gone), FlowVerdict::Stale, FlowVerdict::Unsure(&dns)),
            (flow(UDP, SERVICE, "10.0.0.1:54"), FlowVerdict::Stale, FlowVerdict::Unsure(&dns)),
            // There was no endpoint when it began.
            (flow(UDP, SERVICE, SERVICE), FlowVerdict::Stale, FlowVerdict::Stale),
            (flow(UDP, "192.168.0.1:30053", gone), FlowVerdict::Stale, FlowVerdict::Unsure(&dns)),
            // The NodePort of another machine, another Service, another protocol.
            (flow(UDP, "192.168.0.2:30053", gone), FlowVerdict::Valid, FlowVerdict::Valid),
            (flow(UDP, "10.96.0.2:53", gone), FlowVerdict::Valid, FlowVerdict::Valid),
            (flow(TCP, SERVICE, gone), FlowVerdict::Valid, FlowVerdict::Valid),
        ];
        let (all, mine) = (frontends(Known::All), frontends(Known::Own));
        for (flow, by_all, by_own) in rows {
            assert_eq!(all.judge(&flow, &own), by_all, "all slices are known: {flow:?}");
            assert_eq!(mine.judge(&flow, &own), by_own, "only this node's are: {flow:?}");
        }
    }
}
