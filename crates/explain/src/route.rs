//! `route`: which endpoints a node uses, port by port.

use serde::Serialize;
use zonewise_routing::{FeatureGates, NodeLocation, Target};
use zonewise_topology::reason::Code;

use crate::view::{PortRoute, Seen, View};

/// One port of a Service in one family.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The Service.
    pub service: String,
    /// The port's name.
    pub port: String,
    /// Its protocol.
    pub protocol: String,
    /// The address family.
    pub family: String,
    /// How far traffic goes.
    pub mode: String,
    /// Why.
    pub reason: Code,
    /// The same for people, with figures.
    pub sentence: String,
    /// What else kept traffic from staying closer.
    pub notes: Vec<Code>,
    /// Endpoints for traffic that may go anywhere; absent if the port never uses them.
    pub cluster: Option<Vec<String>>,
    /// Endpoints on the node; absent if the port never uses them.
    pub local: Option<Vec<String>>,
    /// Both together.
    pub all_reachable: Option<Vec<String>>,
    /// Some node can serve the port.
    pub has_any_endpoints: bool,
    /// Weights of `cluster`, in millionths, where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Box<[u32]>>,
}

/// The lines of a Service, seen from a place.
///
/// # Errors
/// If an object is not what it should be.
pub fn lines(
    view: &View<'_>,
    location: &NodeLocation,
    gates: &FeatureGates,
) -> Result<Vec<Line>, serde_json::Error> {
    let seen = view.from(location.clone())?;
    if seen.service.skipped {
        return Ok(Vec::new());
    }
    Ok(seen.routes(gates).iter().map(|routed| line(&seen, routed)).collect())
}

fn line(seen: &Seen, PortRoute { port, family, route }: &PortRoute<'_>) -> Line {
    let texts = |targets: &Option<Box<[Target]>>| {
        targets.as_ref().map(|targets| targets.iter().map(ToString::to_string).collect())
    };
    Line {
        service: format!("{}/{}", seen.service.namespace, seen.service.name),
        port: port.name.to_string(),
        protocol: port.protocol.to_string(),
        family: family.to_string(),
        mode: route.mode.to_string(),
        reason: route.reason.code(),
        sentence: route.reason.to_string(),
        notes: route.notes.iter().map(|note| note.code()).collect(),
        cluster: texts(&route.cluster),
        local: texts(&route.local),
        all_reachable: texts(&route.reachable),
        has_any_endpoints: route.has_any,
        weights: route.weights.clone(),
    }
}
