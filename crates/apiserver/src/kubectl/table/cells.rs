//! The cells of one row, for each kind.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::age::since;
use super::pods;
use crate::objects::json::{list, text, text_or};
use crate::objects::kind::Kind;
use crate::objects::strategy::selector_text;

fn joined_or_none(values: impl IntoIterator<Item = String>) -> String {
    let joined = values.into_iter().collect::<Vec<_>>().join(",");
    if joined.is_empty() { "<none>".into() } else { joined }
}

fn strings(values: &[Value]) -> impl Iterator<Item = String> {
    values.iter().filter_map(Value::as_str).map(str::to_owned)
}

pub(super) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = text(object, "/metadata/name").to_owned();
    let age = since(object.pointer("/metadata/creationTimestamp"), now);
    let plain = |middle: Vec<String>, wide: Vec<String>| {
        let all = [name.clone()].into_iter().chain(middle).chain([age.clone()]).chain(wide);
        all.map(Value::from).collect()
    };
    match kind.kind {
        "Pod" => {
            let (middle, wide) = pods::cells(object, now);
            plain(middle, wide)
        }
        "Service" => plain(service(object), vec![pairs(object, "/spec/selector")]),
        "Node" => node(object, &name, &age),
        "EndpointSlice" => plain(slice(object), vec![]),
        "Deployment" => {
            let ready = number(object, "/status/readyReplicas");
            let wanted = number(object, "/spec/replicas");
            let numbers = ["updatedReplicas", "availableReplicas"]
                .map(|key| number(object, &format!("/status/{key}")).into());
            let middle = [Value::from(format!("{ready}/{wanted}"))].into_iter().chain(numbers);
            workload(object, &name, middle.collect(), &age)
        }
        "ReplicaSet" => {
            let pointers = ["/spec/replicas", "/status/replicas", "/status/readyReplicas"];
            let middle = pointers.map(|pointer| number(object, pointer).into());
            workload(object, &name, middle.into(), &age)
        }
        "Lease" => plain(vec![text(object, "/spec/holderIdentity").into()], vec![]),
        "Namespace" => plain(vec![text(object, "/status/phase").into()], vec![]),
        "ServiceCIDR" => plain(vec![joined_or_none(strings(list(object, "/spec/cidrs")))], vec![]),
        "ConfigMap" => {
            let size = |pointer| object.get(pointer).and_then(Value::as_object).map_or(0, Map::len);
            vec![name.into(), (size("data") + size("binaryData")).into(), age.into()]
        }
        "Event" => event(object, name, now),
        _ => plain(vec![], vec![]),
    }
}

fn number(object: &Value, pointer: &str) -> i64 {
    crate::objects::json::number(object, pointer).unwrap_or(0)
}

/// The cells of a Deployment or a ReplicaSet.
fn workload(object: &Value, name: &str, middle: Vec<Value>, age: &str) -> Vec<Value> {
    let containers = list(object, "/spec/template/spec/containers");
    let all = |pointer: &str| {
        let values: Vec<&str> = containers.iter().map(|one| text(one, pointer)).collect();
        values.join(",")
    };
    let selector = selector_text(&object["spec"]["selector"]);
    let wide = [all("/name"), all("/image"), selector].map(Value::from);
    [name.into()].into_iter().chain(middle).chain([age.into()]).chain(wide).collect()
}

fn pairs(object: &Value, pointer: &str) -> String {
    let map = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    joined_or_none(map.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())))
}

fn service(service: &Value) -> Vec<String> {
    let of = text(service, "/spec/type");
    let address = match list(service, "/spec/clusterIPs") {
        [first, ..] => first.as_str().unwrap_or_default(),
        [] => text_or(service, "/spec/clusterIP", "<none>"),
    };
    let ports = list(service, "/spec/ports").iter().map(|port| {
        let protocol = text(port, "/protocol");
        match port.get("nodePort").and_then(Value::as_u64) {
            Some(node) if node > 0 => format!("{}:{node}/{protocol}", port["port"]),
            _ => format!("{}/{protocol}", port["port"]),
        }
    });
    vec![of.into(), address.into(), external(service, of), joined_or_none(ports)]
}

fn external(service: &Value, of: &str) -> String {
    let fixed = strings(list(service, "/spec/externalIPs"));
    match of {
        "ExternalName" => text(service, "/spec/externalName").into(),
        "LoadBalancer" => {
            let given = list(service, "/status/loadBalancer/ingress")
                .iter()
                .map(|one| text_or(one, "/ip", text(one, "/hostname")).to_owned());
            match joined_or_none(given.chain(fixed)) {
                none if none == "<none>" => "<pending>".into(),
                some => some,
            }
        }
        _ => joined_or_none(fixed),
    }
}

fn node(node: &Value, name: &str, age: &str) -> Vec<Value> {
    let ready = list(node, "/status/conditions").iter().find(|one| one["type"] == "Ready");
    let ready = match ready {
        None => "Unknown",
        Some(one) if one["status"] == "True" => "Ready",
        Some(_) => "NotReady",
    };
    let unschedulable = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    let status =
        if unschedulable { format!("{ready},SchedulingDisabled") } else { ready.to_owned() };
    let address = |of: &str| {
        let mut all = list(node, "/status/addresses").iter();
        let found = all.find(|one| one["type"] == of);
        found.map_or("<none>", |one| text(one, "/address")).to_owned()
    };
    let system = |pointer: &str| text_or(node, pointer, "<unknown>").to_owned();
    [
        name.to_owned(),
        status,
        roles(node),
        age.to_owned(),
        text(node, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        system("/status/nodeInfo/osImage"),
        system("/status/nodeInfo/kernelVersion"),
        system("/status/nodeInfo/containerRuntimeVersion"),
    ]
    .map(Value::from)
    .into()
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let mut roles: Vec<String> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort();
    roles.dedup();
    joined_or_none(roles)
}

/// The first three, and the number of the others.
fn first_three(all: &[String]) -> String {
    match all {
        [] => "<unset>".into(),
        few if few.len() <= 3 => few.join(","),
        many => format!("{} + {} more...", many[..3].join(","), many.len() - 3),
    }
}

fn slice(slice: &Value) -> Vec<String> {
    let ports: Vec<String> = list(slice, "/ports")
        .iter()
        .map(|port| match port.get("port").and_then(Value::as_u64) {
            Some(number) => number.to_string(),
            None => text(port, "/name").to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(slice, "/endpoints")
        .iter()
        .flat_map(|endpoint| strings(list(endpoint, "/addresses")))
        .collect();
    vec![text(slice, "/addressType").into(), first_three(&ports), first_three(&addresses)]
}

/// Both API versions of events, each with an old and a new way to count occurrences.
fn event(event: &Value, name: String, now: Timestamp) -> Vec<Value> {
    let first_of = |pointers: &[&str]| {
        let mut found = pointers.iter().filter_map(|pointer| event.pointer(pointer));
        found.find(|value| !value.is_null())
    };
    let first_text = |pointers: &[&str]| {
        let mut found = pointers.iter().map(|pointer| text(event, pointer));
        found.find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    };
    let first = first_of(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let last =
        first_of(&["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"]);
    let count = first_of(&["/series/count", "/count", "/deprecatedCount"]);
    let object = [
        first_text(&["/involvedObject/kind", "/regarding/kind"]).to_lowercase(),
        first_text(&["/involvedObject/name", "/regarding/name"]),
    ];
    let source = [
        first_text(&[
            "/source/component",
            "/deprecatedSource/component",
            "/reportingComponent",
            "/reportingController",
        ]),
        first_text(&["/source/host", "/deprecatedSource/host", "/reportingInstance"]),
    ];
    let parts = |parts: [String; 2], between: &str| {
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(between)
    };
    vec![
        since(last.or(first), now).into(),
        first_text(&["/type"]).into(),
        first_text(&["/reason"]).into(),
        parts(object, "/").into(),
        first_text(&["/involvedObject/fieldPath", "/regarding/fieldPath"]).into(),
        parts(source, ", ").into(),
        first_text(&["/message", "/note"]).trim().into(),
        since(first, now).into(),
        count.and_then(Value::as_u64).filter(|count| *count > 0).unwrap_or(1).into(),
        name.into(),
    ]
}
