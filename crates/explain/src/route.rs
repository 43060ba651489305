//! `zonewise route`: which endpoints a node uses for each port.

use serde::Serialize;
use zonewise_routing::{FeatureGates, Frontend, NodeLocation, Target};
use zonewise_topology::reason::{Code, Reason};

use crate::demand::reason_of_route;
use crate::matrix::mode_name;
use crate::proxy_view::{NodeView, PortRoute, ProxyView};
use crate::service_snapshot::ServiceSnapshot;

/// One port of a Service in one address family.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteLine {
    /// The Service.
    pub service: String,
    /// The port's name.
    pub port: String,
    /// Its protocol.
    pub protocol: String,
    /// The address family.
    pub family: String,
    /// How close traffic is kept.
    pub mode: String,
    /// Why that mode.
    pub reason: Code,
    /// The reason as a sentence, with figures.
    pub sentence: String,
    /// Further reasons why traffic is not kept closer.
    pub notes: Vec<Code>,
    /// Endpoints for the traffic policy Cluster; absent if the port never uses them.
    pub cluster: Option<Vec<String>>,
    /// Endpoints for the traffic policy Local; absent if the port never uses them.
    pub local: Option<Vec<String>>,
    /// `cluster` and `local` together.
    pub all_reachable: Option<Vec<String>>,
    /// Whether any node has an endpoint that can serve the port.
    pub has_any_endpoints: bool,
    /// The weight of each endpoint of `cluster`, in millionths; absent if all are equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Box<[u32]>>,
    /// Why measured demand is in force, or is not fully, where the route follows what the zones send by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Code>,
    /// Addresses and ports that the Service asks for and that zonewise's proxy does not give it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedFrontend>,
}

/// An address and port that a Service asks for and does not get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedFrontend {
    /// Address, port and protocol.
    pub at: String,
    /// Always `AddressRefused`.
    pub reason: Code,
    /// Why.
    pub why: String,
}

/// The routes of a Service, as a node at a location uses them.
///
/// # Errors
/// If a proxy could not read one of the objects.
pub fn route_lines(
    proxy_view: &ProxyView<'_>,
    location: &NodeLocation,
    gates: &FeatureGates,
) -> Result<Vec<RouteLine>, serde_json::Error> {
    let node_view = proxy_view.parsed()?.from(location.clone(), None)?;
    if node_view.service.skipped {
        return Ok(Vec::new());
    }
    let routes = node_view.routes(gates);
    let line = |routed| RouteLine {
        refused: refused(proxy_view, &node_view, routed),
        ..line(&node_view, routed)
    };
    Ok(routes.iter().map(line).collect())
}

/// The refused frontends of one port in one address family.
fn refused(
    proxy_view: &ProxyView<'_>,
    node_view: &NodeView,
    PortRoute { port, family, .. }: &PortRoute<'_>,
) -> Vec<RefusedFrontend> {
    let claimed = node_view.service.frontends(port, *family);
    let of_port = |frontend: &Frontend| claimed.iter().any(|(known, _)| known == frontend);
    let refused = proxy_view.refused.iter().filter(|(frontend, _)| of_port(frontend));
    let told = refused.map(|(at, why)| RefusedFrontend {
        at: at.to_string(),
        reason: Code::AddressRefused,
        why: why.to_string(),
    });
    told.collect()
}

fn line(node_view: &NodeView, PortRoute { port, family, route }: &PortRoute<'_>) -> RouteLine {
    let texts = |targets: &Option<Box<[Target]>>| {
        targets.as_ref().map(|targets| targets.iter().map(ToString::to_string).collect())
    };
    RouteLine {
        service: format!("{}/{}", node_view.service.namespace, node_view.service.name),
        port: port.name.to_string(),
        protocol: port.protocol.to_string(),
        family: family.to_string(),
        mode: mode_name(route).to_owned(),
        reason: route.reason.code(),
        sentence: route.reason.to_string(),
        notes: route.notes.iter().map(|note| note.code()).collect(),
        cluster: texts(&route.cluster),
        local: texts(&route.local),
        all_reachable: texts(&route.reachable),
        has_any_endpoints: route.has_any,
        weights: route.weights.clone(),
        demand: None,
        refused: Vec::new(),
    }
}

impl RouteLine {
    /// Says that the route follows measured demand, if it follows what zones send at all.
    fn name_demand(&mut self, reason: Reason) {
        if matches!(self.reason, Code::SharesApplied | Code::SameZoneHints) {
            self.demand = Some(reason.code());
            self.sentence
                .push_str(&format!("; what zones send is measured: {}, {reason}", reason.code()));
        }
    }
}

/// Names measured demand in the routes that it decides.
pub fn name_demand(objects: &ServiceSnapshot, lines: &mut [RouteLine]) {
    if let Some(reason) = reason_of_route(objects) {
        lines.iter_mut().for_each(|line| line.name_demand(reason));
    }
}
