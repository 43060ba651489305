//! Which Service a flow was made to, and in which zone its endpoint is.
//!
//! ```text
//!  flow 10.96.0.1:80 ─► 10.244.2.7:8080
//!       │                └─ the endpoint, of that Service: zone b
//!       └─ who has the address and port: Service shop/web
//! ```
//!
//! The first destination of a flow is the Service's address, and who answers is the endpoint.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use zonewise_common::name::{Key, Name};
use zonewise_nft::conntrack::Flow;
use zonewise_routing::{Family, Frontend, Protocol, ZoneId};

use crate::kernel::ZoneNames;
use crate::published::{Published, PublishedService};

/// A number for a flow, by which it is remembered: 8 bytes instead of 80.
pub(super) fn hash(flow: &Flow) -> u64 {
    let mut hasher = DefaultHasher::new();
    (flow.id, flow.zone, flow.protocol, flow.original).hash(&mut hasher);
    hasher.finish()
}

/// What flows to one endpoint of one Service have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowEnds {
    protocol: u8,
    /// The address and port that the flow was made to.
    to: SocketAddr,
    endpoint: IpAddr,
}

impl FlowEnds {
    pub(super) fn of(flow: &Flow) -> Self {
        let to = SocketAddr::new(flow.original.dst, flow.original.dport);
        Self { protocol: flow.protocol, to, endpoint: flow.reply.src }
    }

    /// The Service that has the address and port.
    fn service(&self, published: &Published) -> Option<Key> {
        let (family, protocol) = (Family::of(&self.to.ip()), Protocol::of_number(self.protocol)?);
        let at = |address| Frontend { address, family, protocol, port: self.to.port() };
        published.owner(&[at(Some(self.to.ip())), at(None)])
    }
}

/// The zones of the endpoints of the Services that flows have led to.
#[derive(Debug, Default)]
pub(super) struct EndpointZones(BTreeMap<Key, ServiceZones>);

#[derive(Debug)]
struct ServiceZones {
    service: Arc<PublishedService>,
    /// Endpoints that were there before are kept for a while: flows end when their endpoint does. By name, because
    /// another zone gets the number of a zone that is gone.
    zones: BTreeMap<IpAddr, Name>,
}

/// How many endpoints that are gone are kept of each Service.
const MAX_GONE_ENDPOINTS: usize = 1000;

/// A Service, and the zone of one of its endpoints.
type Place = (Key, Name);

impl EndpointZones {
    /// Where flows have led, with what was found of them; `None` where no Service has the address, or no endpoint is
    /// known. It needs no ledger, so nobody waits for it.
    pub(super) fn place<T: Copy>(
        &mut self,
        found: &BTreeMap<FlowEnds, T>,
        published: &Published,
        names: &ZoneNames,
    ) -> Vec<(Option<Place>, T)> {
        found.iter().map(|(ends, what)| (self.of(ends, published, names), *what)).collect()
    }

    /// The Service that a flow was made to, and the zone of its endpoint.
    fn of(&mut self, ends: &FlowEnds, published: &Published, names: &ZoneNames) -> Option<Place> {
        let key = ends.service(published)?;
        let service = published.service(&key)?;
        let known = self.0.get(&key).filter(|known| Arc::ptr_eq(&known.service, &service));
        if known.is_none() {
            let before = self.0.remove(&key).map(|known| known.zones).unwrap_or_default();
            self.0.insert(key.clone(), ServiceZones::new(service, before, names));
        }
        let zone = self.0.get(&key)?.zones.get(&ends.endpoint).cloned()?;
        Some((key, zone))
    }

    /// Forgets Services that are gone.
    pub(super) fn forget(&mut self, published: &Published) {
        self.0.retain(|key, _| published.service(key).is_some());
    }
}

impl ServiceZones {
    fn new(
        service: Arc<PublishedService>,
        before: BTreeMap<IpAddr, Name>,
        names: &ZoneNames,
    ) -> Self {
        let mut known: BTreeMap<ZoneId, Name> = BTreeMap::new();
        let routes = service.programmed.ports.iter().flatten().flatten();
        let targets = routes.flat_map(|route| route.cluster.iter().chain(route.local.iter()));
        let now: BTreeMap<IpAddr, Name> = targets
            .map(|target| {
                let name = known.entry(target.zone).or_insert_with(|| names(target.zone).into());
                (target.address, Name::clone(name))
            })
            .collect();
        let mut zones =
            if before.len() > now.len() + MAX_GONE_ENDPOINTS { BTreeMap::new() } else { before };
        zones.extend(now);
        Self { service, zones }
    }
}
