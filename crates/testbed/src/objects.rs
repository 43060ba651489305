//! Objects that the real API server admits, to be edited by tests before they are created.

use serde_json::{Value, json};

/// When everything built here began.
const BEGIN: &str = "2025-01-01T00:00:00Z";

/// A ready Node of a zone with so much CPU, such as `"4"` or `"3500m"`.
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

fn condition(kind: &str, holds: bool) -> Value {
    let status = if holds { "True" } else { "False" };
    json!({ "type": kind, "status": status, "lastTransitionTime": BEGIN })
}
