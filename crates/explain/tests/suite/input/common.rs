//! Objects to write, ways to write them, and what was read in a form to compare.

use std::sync::Mutex;

use serde_json::{Value, json};
use zonewise_explain::input::{self, Fault, Item, LocatedObject, Object, Options};

/// Everything that is read from a text, and the error it ends with.
pub(crate) fn read(text: impl AsRef<[u8]>) -> (Vec<Item>, Option<String>) {
    let mut items = Vec::new();
    let options = Options { keep_json: true };
    let end = input::read("f", text.as_ref(), &options, &mut |item| items.push(item), &|_| ());
    (items, end.err().map(|error| error.to_string()))
}

/// The same, a line for each item and the error last.
pub(crate) fn told(text: impl AsRef<[u8]>) -> Vec<String> {
    let (items, end) = read(text);
    let line = |item| match item {
        Item::Found(LocatedObject { location, object }) => format!("{location}: {}", name(&object)),
        Item::Fault(Fault { location, subject, message }) => {
            format!("{location}: {subject}: {message}")
        }
        Item::Ignored { kind, .. } => format!("ignored: {kind}"),
        Item::Clue { kind, .. } => format!("clue: {kind}"),
    };
    items.into_iter().map(line).chain(end.map(|error| format!("error: {error}"))).collect()
}

fn name(object: &Object) -> String {
    match object {
        Object::Node(node) => format!("Node {}", node.name),
        Object::Pod(pod) => format!("Pod {}/{}", pod.namespace, pod.name),
        Object::Service { small, .. } => format!("Service {}", small.key()),
        Object::Slice { small, .. } => format!("Slice {}/{}", small.namespace, small.name()),
        Object::ServiceCidr(service_cidr) => format!("ServiceCIDR {}", service_cidr.name),
        Object::Evacuation(evacuation) => format!("ZoneEvacuation {}", evacuation.name()),
    }
}

/// The objects, their JSON apart and independent of the order of its keys.
pub(crate) fn objects(text: impl AsRef<[u8]>) -> Vec<(Object, Option<Value>)> {
    let (items, end) = read(text);
    assert_eq!(end, None);
    let object = |item| match item {
        Item::Found(LocatedObject { object, .. }) => apart(object),
        other => panic!("{other:?}"),
    };
    items.into_iter().map(object).collect()
}

pub(crate) fn apart(mut object: Object) -> (Object, Option<Value>) {
    let text = match &mut object {
        Object::Service { json, .. } | Object::Slice { json, .. } => json.take(),
        Object::Node(_) | Object::Pod(_) | Object::ServiceCidr(_) | Object::Evacuation(_) => None,
    };
    let value = text.map(|text| serde_json::from_str(&text).unwrap());
    (object, value)
}

/// What `progress` was told.
pub(crate) fn progress(text: &str) -> Vec<u64> {
    let told = Mutex::new(Vec::new());
    let note = |read| told.lock().unwrap().push(read);
    input::read("f", text.as_bytes(), &Options::default(), &mut |_| (), &note).unwrap();
    told.into_inner().unwrap()
}

pub(crate) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "a"}},
        "status": {
            "allocatable": {"cpu": "3920m"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

pub(crate) fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": namespace, "name": name,
            "labels": {"app": "web", "odd": "1.10", "on": "yes"},
            "annotations": {"text": "one\n  two: \"3\"\n- items:\n---\n", "empty": ""},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"args": ["- x", "# y", "a: b"], "ports": [{"name": "http", "containerPort": 8080}]},
            ],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    })
}

pub(crate) fn service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "clusterIP": "10.96.0.1", "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
        },
    })
}

pub(crate) fn slice(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{
            "addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1", "zone": "a",
            "targetRef": {"kind": "Pod", "namespace": namespace, "name": "web-1", "uid": "u1"},
        }],
    })
}

/// One of each kind.
pub(crate) fn cluster() -> Vec<Value> {
    vec![node("n1"), pod("shop", "web-1"), service("shop", "web"), slice("shop", "web-abc")]
}

pub(crate) fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}})
}

/// Block style, as kubectl writes it.
pub(crate) fn yaml(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, indent: usize, text: &mut String) {
    let margin = " ".repeat(indent);
    match value {
        Value::Object(map) if map.is_empty() => *text += "{}\n",
        Value::Object(map) => {
            for (location, (key, value)) in map.iter().enumerate() {
                let margin = if location == 0 { "" } else { &margin };
                *text += &format!("{margin}{key}:");
                inner(value, indent, text);
            }
        }
        Value::Array(items) => {
            for (location, item) in items.iter().enumerate() {
                let margin = if location == 0 { "" } else { &margin };
                *text += &format!("{margin}- ");
                block(item, indent + 2, text);
            }
        }
        Value::String(lines) if lines.contains('\n') => {
            let lines: Vec<String> =
                lines.lines().map(|line| format!("{margin}{line}\n")).collect();
            *text += &format!("|\n{}", lines.concat());
        }
        other => *text += &format!("{other}\n"),
    }
}

fn inner(value: &Value, indent: usize, text: &mut String) {
    let deeper = match value {
        Value::Object(map) if !map.is_empty() => indent + 2,
        Value::Array(items) if !items.is_empty() => indent,
        Value::Object(_) | Value::Array(_) => return *text += &format!(" {value}\n"),
        other => {
            *text += " ";
            return block(other, indent + 2, text);
        }
    };
    *text += &format!("\n{}", " ".repeat(deeper));
    block(value, deeper, text);
}
