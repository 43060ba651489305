//! The requests, by topic.

mod applying;
mod basics;
mod core;
mod discovery;
mod forms;
mod pods;
mod reading;
mod services;
mod slices;
mod tables;
mod workloads;
mod writing;
mod wrong;

use serde_json::{Value, json};

use crate::requests::{Group, Step, post};

/// All groups.
pub(crate) fn all() -> Vec<Group> {
    [
        discovery::groups(),
        forms::groups(),
        basics::groups(),
        core::groups(),
        services::groups(),
        slices::groups(),
        pods::groups(),
        reading::groups(),
        writing::groups(),
        applying::groups(),
        tables::groups(),
        workloads::groups(),
        wrong::groups(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

pub(crate) fn labelled(mut object: Value, labels: Value) -> Value {
    object["metadata"]["labels"] = labels;
    object
}

pub(crate) fn service(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// A Service with one port.
pub(crate) fn web(name: &str) -> Value {
    service(name, json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}))
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
    })
}

pub(crate) fn slice(name: &str, endpoints: Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "http", "port": 8080}],
    })
}

pub(crate) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"group": "{ns}"}}})
}

pub(crate) fn lease(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": spec})
}

pub(crate) fn event(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": "Service", "name": "web",
            "namespace": "{ns}"},
        "reason": "Seen", "message": "seen by a test", "type": "Normal", "count": 3,
        "source": {"component": "suite"},
        "firstTimestamp": "2025-01-01T00:00:00Z", "lastTimestamp": "2025-01-02T00:00:00Z",
    })
}

pub(crate) fn new_event(name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name},
        "eventTime": "2025-01-01T00:00:00.000000Z",
        "regarding": {"apiVersion": "v1", "kind": "Service", "name": "web", "namespace": "{ns}"},
        "reason": "Seen", "note": "seen by a test", "type": "Normal", "action": "Look",
        "reportingController": "zonewise.dev/suite", "reportingInstance": "suite-1",
    })
}

/// Creates objects one after the other; the name of each step says what is special about its
/// object.
pub(crate) fn each(path: &str, objects: Vec<(&str, Value)>) -> Vec<Step> {
    objects.into_iter().map(|(name, object)| post(name, path, object)).collect()
}
