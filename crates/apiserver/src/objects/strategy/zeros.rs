//! What the reference shows although nobody wrote it, and hides although somebody did: the zeros of its types.

use serde_json::{Value, json};

use crate::objects::json::{default, items, map};
use crate::objects::kind::Kind;

pub(super) fn fill(kind: &Kind, object: &mut Value) {
    match kind.kind {
        "ConfigMap" => hide(object, &["data", "binaryData"]),
        "Event" if kind.group.is_empty() => show(object, &event()),
        "Event" => show(object, &new_event()),
        "Node" => node(object),
        "Pod" => {
            addresses(object);
            conditions(object, &[("lastProbeTime", Value::Null), TIME]);
            items(object, "/status/containerStatuses").for_each(container);
        }
        "Service" => conditions(object, &[TIME, ("reason", json!("")), ("message", json!(""))]),
        _ => {}
    }
}

fn container(status: &mut Value) {
    show(status, &[("lastState", json!({})), ("state", json!({}))]);
    for state in ["/state/running", "/state/terminated", "/lastState/terminated"] {
        if let Some(state) = status.pointer_mut(state) {
            show(state, &[("startedAt", Value::Null)]);
        }
    }
    for state in ["/state/terminated", "/lastState/terminated"] {
        if let Some(state) = status.pointer_mut(state) {
            show(state, &[("finishedAt", Value::Null)]);
        }
    }
}

/// The one address of a Pod is the first of all.
fn addresses(pod: &mut Value) {
    let one = pod["status"]["podIP"].as_str().unwrap_or_default().to_owned();
    let first = pod["status"]["podIPs"][0]["ip"].as_str().unwrap_or_default().to_owned();
    if !one.is_empty() && one != first {
        pod["status"]["podIPs"] = json!([{"ip": one}]);
    } else if one.is_empty() && !first.is_empty() {
        pod["status"]["podIP"] = first.into();
    }
}

const TIME: (&str, Value) = ("lastTransitionTime", Value::Null);

fn hide(object: &mut Value, keys: &[&str]) {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|key, value| !keys.contains(&key.as_str()) || *value != json!({}));
    }
}

fn show(object: &mut Value, zeros: &[(&str, Value)]) {
    if let Some(fields) = object.as_object_mut() {
        zeros.iter().for_each(|(key, value)| default(fields, key, value.clone()));
    }
}

fn event() -> [(&'static str, Value); 7] {
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

fn new_event() -> [(&'static str, Value); 5] {
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

/// What can be used is what is there, unless somebody knows better.
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
    items(object, "/status/conditions").for_each(|condition| show(condition, zeros));
}
