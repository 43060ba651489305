//! The page `/routes`: every Service port with its endpoints on this node, and why these.

use serde::Serialize;
use zonewise_common::name::Key;
use zonewise_routing::{Exposure, Frontend};

use crate::kernel::KernelHandle;
use crate::rules::desired::Desired;
use crate::rules::entries::{ProgrammedService, Targets, routing_family};
use crate::rules::layout::{FAMILIES, family_name};
use crate::watches::ClusterView;

/// One Service port in one family; `zonewise route` shows the same.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    service: String,
    port: String,
    protocol: String,
    family: &'static str,
    mode: &'static str,
    reason: String,
    sentence: String,
    cluster: Vec<String>,
    local: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<Box<[u32]>>,
    has_any_endpoints: bool,
    /// Addresses and ports that the Service asks for and does not get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedFrontend>,
}

#[derive(Debug, Serialize)]
struct RefusedFrontend {
    /// Address and port, or the NodePort alone.
    at: String,
    why: String,
}

/// The page, as JSON.
pub(crate) fn routes(kernel: &KernelHandle, cluster: &ClusterView) -> String {
    let lines: Option<Vec<Line>> = kernel.with(|kernel| {
        let desired = kernel.desired();
        desired.services().iter().flat_map(|(key, known)| lines(desired, key, known)).collect()
    });
    let reader = cluster.reader();
    let location = reader.location();
    let document = serde_json::json!({
        "node": location.node, "zone": location.zone, "region": location.region,
        "routes": lines.unwrap_or_default(),
    });
    document.to_string()
}

/// The lines of one Service.
fn lines(desired: &Desired, key: &Key, programmed: &ProgrammedService) -> Vec<Line> {
    let service = &programmed.service;
    let ports = service.ports.iter().zip(&programmed.ports);
    let families = ports.flat_map(|(port, routes)| {
        let routes = FAMILIES.iter().zip(routes);
        routes.filter_map(move |(family, route)| Some((port, family, route.as_ref()?)))
    });
    families
        .map(|(port, family, route)| Line {
            service: format!("{}/{}", service.namespace, service.name),
            port: port.name.to_string(),
            protocol: port.protocol.to_string(),
            family: family_name(*family),
            mode: route.mode.as_str(),
            reason: route.reason.code().to_string(),
            sentence: route.reason.to_string(),
            cluster: texts(&route.cluster),
            local: texts(&route.local),
            weights: route.weights.clone(),
            has_any_endpoints: route.has_any,
            refused: refused(desired, key, &service.frontends(port, routing_family(*family))),
        })
        .collect()
}

fn refused(desired: &Desired, key: &Key, claimed: &[(Frontend, Exposure)]) -> Vec<RefusedFrontend> {
    let refusal = |(frontend, _): &(Frontend, Exposure)| {
        let why = desired.ownership().refusal(key, frontend)?.to_string();
        let at = frontend.socket().map_or_else(|| frontend.port.to_string(), |at| at.to_string());
        Some(RefusedFrontend { at, why })
    };
    claimed.iter().filter_map(refusal).collect()
}

fn texts(targets: &Targets) -> Vec<String> {
    targets.iter().map(|target| target.to_string()).collect()
}
