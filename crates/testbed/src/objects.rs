//! Objects that the real API server accepts. Tests edit them before they create them.

use std::net::IpAddr;

use serde_json::{Value, json};

/// The start and transition time of all objects.
const BEGIN: &str = "2025-01-01T00:00:00Z";

/// A ready Node of a zone with an amount of CPU, such as `"4"` or `"3500m"`.
#[must_use]
pub fn node(name: &str, zone: &str, cpu: &str) -> Value {
    let resources = json!({ "cpu": cpu, "memory": "16Gi", "pods": "1000" });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone },
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [condition("Ready", true)],
        },
    })
}

/// A Pod that runs on a Node, has an address and is ready.
#[must_use]
pub fn pod(namespace: &str, name: &str, app: &str, node: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": { "app": app } },
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "main",
                "image": "example.com/main:1",
                "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
            }],
        },
        "status": {
            "phase": "Running",
            "startTime": BEGIN,
            "podIP": ip,
            "podIPs": [{ "ip": ip }],
            "conditions": [condition("ContainersReady", true), condition("Ready", true)],
        },
    })
}

/// A Service that selects the Pods of an app.
#[must_use]
pub fn service(namespace: &str, name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "namespace": namespace, "name": name },
        "spec": {
            "selector": { "app": app },
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" }],
        },
    })
}

/// An EndpointSlice of a Service, with one TCP port 8080 named `http`. Its address family is that of its first
/// endpoint, else IPv4.
#[must_use]
pub fn endpoint_slice(namespace: &str, service: &str, name: &str, endpoints: &[Value]) -> Value {
    let first = endpoints.first().and_then(|endpoint| endpoint["addresses"][0].as_str());
    let family = if first.is_some_and(|ip| ip.contains(':')) { "IPv6" } else { "IPv4" };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": family,
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
        "endpoints": endpoints,
    })
}

/// A ready endpoint of an [`endpoint_slice`].
#[must_use]
pub fn endpoint(address: IpAddr, node: &str, zone: &str) -> Value {
    json!({
        "addresses": [address],
        "conditions": { "ready": true, "serving": true, "terminating": false },
        "nodeName": node,
        "zone": zone,
    })
}

/// A Namespace.
#[must_use]
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Sets whether a Pod or a Node is ready.
pub fn set_ready(object: &mut Value, ready: bool) {
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return };
    for found in conditions.iter_mut().filter(|condition| condition["type"] == "Ready") {
        *found = condition("Ready", ready);
    }
}

fn condition(kind: &str, is_true: bool) -> Value {
    let status = if is_true { "True" } else { "False" };
    json!({ "type": kind, "status": status, "lastTransitionTime": BEGIN })
}
