//! Zero values as Go encodes them. kube-apiserver decodes every object into Go structs: fields
//! without `omitempty` then appear in JSON even if the client left them out, and empty ones with
//! `omitempty` disappear. This module does the same to JSON values.

use serde_json::{Value, json};

use crate::objects::json::{default, items, map};
use crate::objects::kind::Kind;

/// Adds the zero values that Go writes, and removes those that it leaves out.
pub(super) fn normalize(kind: &Kind, object: &mut Value) {
    match kind.kind {
        "ConfigMap" => drop_empty(object, &["data", "binaryData"]),
        "Event" if kind.group.is_empty() => add_missing(object, &core_event()),
        "Event" => add_missing(object, &events_v1()),
        "Node" => node(object),
        "Pod" => {
            pod_ips(object);
            conditions(object, &[("lastProbeTime", Value::Null), TIME]);
            items(object, "/status/containerStatuses").for_each(container_status);
        }
        "Service" => conditions(object, &[TIME, ("reason", json!("")), ("message", json!(""))]),
        _ => {}
    }
}

fn container_status(status: &mut Value) {
    add_missing(status, &[("lastState", json!({})), ("state", json!({}))]);
    for state in ["/state/running", "/state/terminated", "/lastState/terminated"] {
        if let Some(state) = status.pointer_mut(state) {
            add_missing(state, &[("startedAt", Value::Null)]);
        }
    }
    for state in ["/state/terminated", "/lastState/terminated"] {
        if let Some(state) = status.pointer_mut(state) {
            add_missing(state, &[("finishedAt", Value::Null)]);
        }
    }
}

/// `podIP` is the first of `podIPs`; where they differ, `podIP` wins.
fn pod_ips(pod: &mut Value) {
    let one = pod["status"]["podIP"].as_str().unwrap_or_default().to_owned();
    let first = pod["status"]["podIPs"][0]["ip"].as_str().unwrap_or_default().to_owned();
    if !one.is_empty() && one != first {
        pod["status"]["podIPs"] = json!([{"ip": one}]);
    } else if one.is_empty() && !first.is_empty() {
        pod["status"]["podIP"] = first.into();
    }
}

const TIME: (&str, Value) = ("lastTransitionTime", Value::Null);

fn drop_empty(object: &mut Value, keys: &[&str]) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|key, value| !keys.contains(&key.as_str()) || *value != json!({}));
    }
}

fn add_missing(object: &mut Value, zeros: &[(&str, Value)]) {
    if let Some(fields) = object.as_object_mut() {
        zeros.iter().for_each(|(key, value)| default(fields, key, value.clone()));
    }
}

fn core_event() -> [(&'static str, Value); 7] {
    [
        ("eventTime", Value::Null),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("involvedObject", json!({})),
        ("source", json!({})),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
    ]
}

fn events_v1() -> [(&'static str, Value); 5] {
    [
        ("eventTime", Value::Null),
        ("deprecatedFirstTimestamp", Value::Null),
        ("deprecatedLastTimestamp", Value::Null),
        ("deprecatedSource", json!({})),
        ("regarding", json!({})),
    ]
}

const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

/// `allocatable` defaults to `capacity`; the rest are zero values.
fn node(node: &mut Value) {
    conditions(node, &[("lastHeartbeatTime", Value::Null), TIME]);
    let status = map(node, "status");
    default(status, "daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}}));
    if let Some(capacity) = status.get("capacity").cloned() {
        default(status, "allocatable", capacity);
    }
    let info = map(&mut node["status"], "nodeInfo");
    NODE_INFO.iter().for_each(|key| default(info, key, ""));
}

fn conditions(object: &mut Value, zeros: &[(&str, Value)]) {
    items(object, "/status/conditions").for_each(|condition| add_missing(condition, zeros));
}
