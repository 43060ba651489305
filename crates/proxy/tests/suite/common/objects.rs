//! Builders of Services and EndpointSlices as the proxy reads them.
#![allow(clippy::needless_pass_by_value, reason = "`json!` makes values, and builders take them")]

use std::net::IpAddr;

use serde_json::{Value, json};
use zonewise_testbed::objects;

/// A Service with a TCP port 80 named `http` at these ClusterIPs, in namespace `ns`.
pub(crate) fn service(name: &str, cluster_ips: &[&str]) -> Value {
    let families: Vec<&str> =
        cluster_ips.iter().map(|ip| if ip.contains(':') { "IPv6" } else { "IPv4" }).collect();
    json!({
        "metadata": {"namespace": "ns", "name": name, "resourceVersion": "1"},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ips.first(),
            "clusterIPs": cluster_ips,
            "ipFamilies": families,
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    })
}

/// Changes parts of a `spec`.
pub(crate) fn with(mut service: Value, changes: Value) -> Value {
    merge(&mut service["spec"], &changes);
    service
}

/// Changes parts of a `status`.
pub(crate) fn with_status(mut service: Value, changes: Value) -> Value {
    merge(&mut service["status"], &changes);
    service
}

fn merge(into: &mut Value, changes: &Value) {
    if into.is_null() {
        *into = json!({});
    }
    for (key, value) in changes.as_object().unwrap() {
        into[key] = value.clone();
    }
}

/// An endpoint on a node, ready.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint(Value);

pub(crate) fn endpoint(address: impl Into<IpAddr>, node: &str, zone: &str) -> Endpoint {
    Endpoint(objects::endpoint(address.into(), node, zone))
}

impl Endpoint {
    pub(crate) fn hinted(mut self, zones: &[&str]) -> Self {
        let zones: Vec<Value> = zones.iter().map(|zone| json!({"name": zone})).collect();
        self.0["hints"]["forZones"] = json!(zones);
        self
    }

    pub(crate) fn for_nodes(mut self, nodes: &[&str]) -> Self {
        let nodes: Vec<Value> = nodes.iter().map(|node| json!({"name": node})).collect();
        self.0["hints"]["forNodes"] = json!(nodes);
        self
    }

    pub(crate) fn terminating(mut self) -> Self {
        self.0["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
        self
    }

    /// With conditions of its own: ready, serving, terminating.
    pub(crate) fn conditions(mut self, [ready, serving, terminating]: [bool; 3]) -> Self {
        self.0["conditions"] =
            json!({"ready": ready, "serving": serving, "terminating": terminating});
        self
    }

    pub(crate) fn unready(mut self) -> Self {
        self.0["conditions"] = json!({"ready": false, "serving": false, "terminating": false});
        self
    }
}

/// A slice of a Service in namespace `ns`; its family is its first endpoint's, else IPv4.
pub(crate) fn slice(service: &str, name: &str, endpoints: &[Endpoint]) -> Value {
    let endpoints: Vec<Value> = endpoints.iter().map(|endpoint| endpoint.0.clone()).collect();
    let mut slice = objects::endpoint_slice("ns", service, name, &endpoints);
    slice["metadata"]["resourceVersion"] = json!("1");
    slice
}

/// With other ports, each as name, number and protocol.
pub(crate) fn ports(mut slice: Value, ports: &[(&str, u16, &str)]) -> Value {
    let ports: Vec<Value> = ports
        .iter()
        .map(|(name, port, protocol)| json!({"name": name, "port": port, "protocol": protocol}))
        .collect();
    slice["ports"] = json!(ports);
    slice
}

/// With another label.
pub(crate) fn labelled(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["labels"][key] = json!(value);
    object
}

/// With another annotation.
pub(crate) fn annotated(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["annotations"][key] = json!(value);
    object
}
