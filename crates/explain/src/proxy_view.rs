//! A Service as proxies read it: its JSON and that of its slices, routed as any node would.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use zonewise_common::keys::{ENDPOINT_WEIGHT, ZONE_SHARES};
use zonewise_common::name::Name;
use zonewise_demand::cpu_use::FULL_PERCENT;
use zonewise_routing::{
    Family, FeatureGates, Frontend, NodeLocation, ObjectReader, ParsedSlice, Refusal, Route,
    RouteQuery, RoutedService, RoutedSlice, ServicePort, Target, TrafficPolicy, merge, route,
};
use zonewise_slices::pod::Pod;
use zonewise_slices::service::Service;
use zonewise_slices::weights::{CPU_USE, EndpointWeights};
use zonewise_topology::reason::Reason;

/// What proxies read of one Service.
#[derive(Clone, Debug)]
pub struct ProxyView<'a> {
    /// The Service, as JSON.
    pub service: Cow<'a, str>,
    /// Its slices, as JSON.
    pub slices: Vec<Cow<'a, str>>,
    /// The addresses and ports that it asks for and that zonewise's proxy does not give it, as far as the
    /// Services that are known here tell.
    pub refused: Vec<(Frontend, Refusal)>,
    /// What endpoints count for, where zone shares are in force that follow it.
    pub weights: Option<Weights>,
}

/// What endpoints count for where they do not all count the same.
#[derive(Clone, Debug)]
pub enum Weights {
    /// By the CPU that their Pods request.
    ByRequest(EndpointWeights),
    /// By the CPU that they use: so many percent in these zones, and 100 in others.
    ByUse(BTreeMap<Name, u16>),
}

impl Weights {
    /// What an endpoint counts for.
    pub(crate) fn at(&self, address: &IpAddr, zone: &str) -> f64 {
        match self {
            Self::ByRequest(weights) => weights.at(address) as f64,
            Self::ByUse(percents) => percents.get(zone).copied().unwrap_or(FULL_PERCENT).into(),
        }
    }
}

/// What endpoints count for by slices that are stored or planned: shares in them follow it, hints do not. `by_use` is what
/// zones count for by the CPU that their endpoints use.
pub(crate) fn weights(
    service: &Service,
    pods: &[Arc<Pod>],
    slices: &[Cow<'_, str>],
    by_use: impl FnOnce() -> Vec<(Name, u16)>,
) -> Option<Weights> {
    if !slices.iter().any(|json| json.contains(ZONE_SHARES)) {
        return None;
    }
    match service.annotations.get(ENDPOINT_WEIGHT) {
        Some(CPU_USE) => Some(Weights::ByUse(by_use().into_iter().collect())),
        _ => EndpointWeights::of(service, pods).map(Weights::ByRequest),
    }
}

/// A Service as the proxy of one node sees it.
pub struct NodeView {
    reader: ObjectReader,
    /// The Service.
    pub service: RoutedService,
    slices: Vec<RoutedSlice>,
}

/// The route of one port of a Service in one address family.
pub struct PortRoute<'a> {
    /// The port.
    pub port: &'a ServicePort,
    /// The family.
    pub family: Family,
    /// The endpoints that the node uses.
    pub route: Route,
}

impl ProxyView<'_> {
    /// Whether `internalTrafficPolicy` is Local: traffic stays on its node, whatever hints say.
    ///
    /// # Errors
    /// If a proxy could not read the Service.
    pub fn is_local(&self) -> Result<bool, serde_json::Error> {
        Ok(ObjectReader::new(NodeLocation::default()).read_service(&self.service)?.internal_policy
            == TrafficPolicy::Local)
    }

    /// Whether proxies route an address family of the Service.
    ///
    /// # Errors
    /// If a proxy could not read the Service.
    pub(crate) fn routes_family(&self, family: &str) -> Result<bool, serde_json::Error> {
        let service = ObjectReader::new(NodeLocation::default()).read_service(&self.service)?;
        let mut families = Family::BOTH.into_iter().filter(|one| one.to_string() == family);
        Ok(!service.skipped && families.any(|family| service.cluster_ip(family).is_some()))
    }

    /// The number of ready endpoints of the first port, in an address family.
    ///
    /// # Errors
    /// If a proxy could not read one of the objects.
    pub(crate) fn ready_endpoints(&self, family: &str) -> Result<u64, serde_json::Error> {
        let node_view = self.parsed()?.from(NodeLocation::default(), None)?;
        let families = Family::BOTH.into_iter().filter(|one| one.to_string() == family);
        let ports = node_view.service.ports.first().into_iter();
        let both = ports.flat_map(|port| families.clone().map(move |family| (port, family)));
        Ok(both.map(|(port, family)| node_view.ready(port, family).len() as u64).sum())
    }

    /// Why proxies leave endpoints of its slices out because of their address, if so.
    ///
    /// # Errors
    /// If a proxy could not read one of the objects.
    pub(crate) fn special_addresses(&self) -> Result<Option<Reason>, serde_json::Error> {
        let node_view = self.parsed()?.from(NodeLocation::default(), None)?;
        let endpoints =
            node_view.slices.iter().map(|slice| u64::from(slice.special_addresses)).sum();
        Ok((endpoints > 0).then_some(Reason::SpecialAddresses { endpoints }))
    }

    /// The same with its slices parsed, for many nodes to see it.
    ///
    /// # Errors
    /// If a proxy could not read one of the objects.
    pub fn parsed(&self) -> Result<ParsedView<'_>, serde_json::Error> {
        let slices = self.slices.iter().map(|json| ParsedSlice::parse(json));
        Ok(ParsedView { service: &self.service, slices: slices.collect::<Result<_, _>>()? })
    }
}

/// What proxies read of one Service, parsed.
pub struct ParsedView<'a> {
    service: &'a str,
    slices: Vec<ParsedSlice<'a>>,
}

impl ParsedView<'_> {
    /// The Service as a node at a location sees it. The view of another node saves work.
    ///
    /// # Errors
    /// If a proxy could not read the Service.
    pub fn from(
        &self,
        location: NodeLocation,
        other: Option<&NodeView>,
    ) -> Result<NodeView, serde_json::Error> {
        let reader = match other {
            Some(other) => other.reader.relocated(location),
            None => ObjectReader::new(location),
        };
        let service = reader.read_service(self.service)?;
        // Proxies do not watch the slices of headless Services.
        let slices = self.slices.iter().map(|slice| reader.read_parsed(slice));
        let slices = slices.filter(|slice| !slice.headless).collect();
        Ok(NodeView { reader, service, slices })
    }
}

impl NodeView {
    /// All ready endpoints of a port.
    pub fn ready(&self, port: &ServicePort, family: Family) -> Vec<Target> {
        let slices: Vec<&RoutedSlice> = self.slices.iter().collect();
        let all = merge(&slices, family, &port.name, port.protocol).into_iter();
        all.filter(|target| target.flags.ready()).collect()
    }

    /// The name of an endpoint's zone; empty if it has none.
    pub fn zone_of(&self, target: &Target) -> String {
        self.reader.zone_name(target.zone).map_or_else(String::new, |zone| zone.to_string())
    }

    /// The routes of each port, in every address family of the Service.
    pub fn routes(&self, gates: &FeatureGates) -> Vec<PortRoute<'_>> {
        let slices: Vec<&RoutedSlice> = self.slices.iter().collect();
        let families =
            Family::BOTH.into_iter().filter(|family| self.service.cluster_ip(*family).is_some());
        let ports = |family| self.service.ports.iter().map(move |port| (port, family));
        families
            .flat_map(ports)
            .map(|(port, family)| {
                let query = RouteQuery {
                    reader: &self.reader,
                    gates,
                    service: &self.service,
                    port,
                    family,
                    slices: &slices,
                };
                PortRoute { port, family, route: route(&query) }
            })
            .collect()
    }
}
