//! The objects that the driver writes, as JSON.

use std::net::{IpAddr, Ipv4Addr};

use crate::model::ipv6_of;
use serde_json::{Value, json};
use zonewise_common::keys::{HOSTNAME, ROUTING_PREFERENCE, SUBSETTING, TOPOLOGY_MODE, ZONE};

/// The port of every Service.
pub(crate) const PORT: u16 = 80;
/// The port of every Pod.
pub(crate) const TARGET_PORT: u16 = 8080;

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A Node of a zone, ready.
pub(crate) fn node(name: &str, zone: &str, address: IpAddr) -> Value {
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}},
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A patch that moves a Node to a zone.
pub(crate) fn node_in(zone: &str) -> Value {
    json!({"metadata": {"labels": {ZONE: zone}}})
}

/// A patch of a Node's status.
pub(crate) fn node_status(ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})
}

/// How a Service asks for routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    None,
    PreferClose,
    Auto,
    Balanced,
    Subsets,
    LocalSubset,
}

impl Routing {
    pub(crate) const ALL: [Self; 6] = [
        Self::None,
        Self::PreferClose,
        Self::Auto,
        Self::Balanced,
        Self::Subsets,
        Self::LocalSubset,
    ];

    /// The annotations of a Service; null takes one away.
    pub(crate) fn annotations(self) -> Value {
        let mut all = json!({TOPOLOGY_MODE: null, ROUTING_PREFERENCE: null, SUBSETTING: null});
        match self {
            Self::None | Self::PreferClose => {}
            Self::Auto => all[TOPOLOGY_MODE] = json!("Auto"),
            Self::Balanced => all[ROUTING_PREFERENCE] = json!("zonewise.dev/balanced"),
            Self::Subsets => all[SUBSETTING] = json!("Auto"),
            Self::LocalSubset => all[ROUTING_PREFERENCE] = json!("zonewise.dev/local-subset"),
        }
        all
    }

    pub(crate) fn distribution(self) -> Value {
        match self {
            Self::PreferClose => json!("PreferClose"),
            _ => Value::Null,
        }
    }
}

/// What a Service is apart from its routing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// UDP, or TCP.
    pub(crate) udp: bool,
    /// A client stays with its endpoint.
    pub(crate) affinity: bool,
    /// It has addresses of both families.
    pub(crate) dual_stack: bool,
}

impl Shape {
    fn protocol(self) -> &'static str {
        if self.udp { "UDP" } else { "TCP" }
    }

    /// The protocol's number.
    pub(crate) fn number(self) -> u8 {
        if self.udp { 17 } else { 6 }
    }
}

/// A Service whose Pods have the label `app` with its name.
pub(crate) fn service(name: &str, routing: Routing, shape: Shape) -> Value {
    let mut annotations = routing.annotations();
    if let Some(map) = annotations.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    let ports = json!([{
        "name": "main", "protocol": shape.protocol(), "port": PORT, "targetPort": TARGET_PORT,
    }]);
    let affinity = if shape.affinity { "ClientIP" } else { "None" };
    let mut spec = json!({"selector": {"app": name}, "ports": ports, "sessionAffinity": affinity});
    if shape.dual_stack {
        spec["ipFamilyPolicy"] = json!("RequireDualStack");
    }
    if routing == Routing::PreferClose {
        spec["trafficDistribution"] = routing.distribution();
    }
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec,
    })
}

/// A Service that claims an address of another one.
pub(crate) fn thief(name: &str, address: IpAddr) -> Value {
    let mut service = service(name, Routing::None, Shape::default());
    service["spec"]["externalIPs"] = json!([address]);
    service
}

/// A Pod of a Service, on a node.
pub(crate) fn pod(name: &str, app: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"name": "server", "image": "server:1"}]},
    })
}

/// A patch of a Pod's status.
pub(crate) fn pod_status(address: Ipv4Addr, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    json!({"status": {
        "phase": "Running", "podIP": address,
        "podIPs": [{"ip": address}, {"ip": ipv6_of(address)}],
        "conditions": [{"type": "Ready", "status": status}],
    }})
}

#[cfg(test)]
mod tests {
    use zonewise_slices::requested::requested_routing;
    use zonewise_slices::service::Service;
    use zonewise_slices::settings::Settings;

    use super::*;

    /// A value that the controller does not know would be simulated as no value at all.
    #[test]
    fn what_services_ask_for_is_understood() {
        for routing in Routing::ALL {
            let object = service("shop/api", routing, Shape::default());
            let read: Service = serde_json::from_value(object).unwrap();
            let requested = requested_routing(&read, &Settings::default());
            assert_eq!(requested.notes, vec![], "{routing:?}");
        }
    }
}
