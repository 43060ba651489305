//! The page `/routes`: every Service port with its endpoints on this node, and why these.

use std::fmt::Display;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use zonewise_nft::Family;
use zonewise_routing::{Exposure, Frontend, NodeLocation, Protocol, ServicePort};
use zonewise_topology::reason::{Code, Reason};

use crate::published::{Published, PublishedService};
use crate::rules::entries::{Targets, routing_family};
use crate::rules::layout::{FAMILIES, family_name};
use crate::watches::ClusterView;

/// The page. It may have tens of thousands of lines, so that each is made when it is written.
#[derive(Serialize)]
struct Document<'a> {
    node: &'a str,
    region: Option<&'a str>,
    routes: Lines<'a>,
    zone: Option<&'a str>,
}

struct Lines<'a>(&'a [Arc<PublishedService>]);

impl Serialize for Lines<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().flat_map(|known| lines(known)))
    }
}

/// One Service port in one family; `zonewise route` shows the same.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    cluster: Endpoints<'a>,
    family: &'static str,
    has_any_endpoints: bool,
    /// Why endpoints of the slices are not among those above, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<LeftOut>,
    local: Endpoints<'a>,
    mode: &'static str,
    /// Why some addresses and ports of the Service are not served, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_budget: Option<OverBudget>,
    port: &'a str,
    protocol: Text<Protocol>,
    reason: Code,
    /// Addresses and ports that the Service asks for and does not get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedFrontend>,
    sentence: Text<Reason>,
    service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<&'a [u32]>,
}

/// Endpoints that are left out because of their address.
#[derive(Serialize)]
struct LeftOut {
    reason: Code,
    sentence: Text<Reason>,
}

/// Addresses and ports that are not served, because the Service asks for too much.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OverBudget {
    reason: Code,
    sentence: Text<Reason>,
    /// How many of this Service port are not served.
    addresses: usize,
}

#[derive(Serialize)]
struct RefusedFrontend {
    /// Address, port and protocol.
    at: String,
    reason: Code,
    why: String,
}

/// As text.
struct Text<T>(T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// As a list of texts.
struct Endpoints<'a>(&'a Targets);

impl Serialize for Endpoints<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Text))
    }
}

/// The page, as JSON.
pub(crate) fn routes(published: &Published, cluster: &ClusterView) -> String {
    let reader = cluster.reader();
    let NodeLocation { node, zone, region } = reader.location();
    let (zone, region) = (zone.as_deref(), region.as_deref());
    let services = published.services();
    // A document of texts and numbers can always be written.
    serde_json::to_string(&Document { node, region, routes: Lines(&services), zone })
        .unwrap_or_default()
}

/// The lines of one Service.
fn lines(known: &PublishedService) -> impl Iterator<Item = Line<'_>> {
    let service = &known.programmed.service;
    let ports = service.ports.iter().zip(&*known.programmed.ports);
    let families = ports.flat_map(|(port, routes)| {
        let routes = FAMILIES.iter().zip(routes);
        routes.filter_map(move |(family, route)| Some((port, family, route.as_ref()?)))
    });
    families.map(move |(port, family, route)| Line {
        cluster: Endpoints(&route.cluster),
        family: family_name(*family),
        has_any_endpoints: route.has_any,
        left_out: route
            .special_addresses
            .map(|reason| LeftOut { reason: reason.code(), sentence: Text(reason) }),
        local: Endpoints(&route.local),
        mode: route.mode.as_str(),
        over_budget: over_budget(known, port, *family),
        port: &port.name,
        protocol: Text(port.protocol),
        reason: known.reason(route).code(),
        refused: refused(known, port, *family),
        sentence: Text(known.reason(route)),
        service: format!("{}/{}", service.namespace, service.name),
        weights: route.weights.as_deref().filter(|_| !known.loses_weights(route)),
    })
}

fn over_budget(known: &PublishedService, port: &ServicePort, family: Family) -> Option<OverBudget> {
    let (grant, reason) = (known.grant?, known.lost_frontends()?);
    let claimed = known.programmed.service.frontends(port, routing_family(family));
    let lost = claimed.iter().filter(|(at, exposure)| !grant.extent.includes(at, *exposure));
    let addresses = lost.count();
    (addresses > 0).then(|| OverBudget { reason: reason.code(), sentence: Text(reason), addresses })
}

fn refused(known: &PublishedService, port: &ServicePort, family: Family) -> Vec<RefusedFrontend> {
    if known.refused.is_empty() {
        return Vec::new();
    }
    let refusal = |(frontend, _): (Frontend, Exposure)| {
        let why = known.refusal(&frontend)?.to_string();
        Some(RefusedFrontend { at: frontend.to_string(), reason: Code::AddressRefused, why })
    };
    let claimed = known.programmed.service.frontends(port, routing_family(family));
    claimed.into_iter().filter_map(refusal).collect()
}
