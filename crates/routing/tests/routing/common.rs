//! Short ways to say what a cluster looks like.
//!
//! `3[R z:a,b n:node-1 @a L]` is the endpoint 10.0.0.3: ready, hinted to zones a and b and to
//! node-1, in zone a, on this node. `T`: not ready, serves while terminating. `U`: none of these.

use serde_json::{Value, json};
use zonewise_routing::{
    Family, FeatureGates, NodeLocation, ObjectReader, Route, RouteQuery, RoutedService,
    RoutedSlice, Target,
};

pub(crate) const NODE: &str = "node-1";

pub(crate) fn reader(zone: &str) -> ObjectReader {
    ObjectReader::new(NodeLocation::new(NODE, Some(zone), Some("r")))
}

pub(crate) fn endpoint(text: &str) -> Value {
    let (number, flags) = text.split_once('[').unwrap();
    let names =
        |list: &str| list.split(',').map(|name| json!({ "name": name })).collect::<Vec<Value>>();
    let mut value = json!({
        "addresses": [format!("10.0.0.{number}")],
        "nodeName": "elsewhere",
        "hints": {},
    });
    for flag in flags.split_whitespace() {
        match flag.split_once(':') {
            Some(("z", zones)) => value["hints"]["forZones"] = names(zones).into(),
            Some(("n", nodes)) => value["hints"]["forNodes"] = names(nodes).into(),
            _ if flag == "L" => value["nodeName"] = NODE.into(),
            _ if flag.starts_with('@') => value["zone"] = flag[1..].into(),
            _ => value["conditions"] = conditions(flag),
        }
    }
    value
}

fn conditions(flag: &str) -> Value {
    let (ready, serving, terminating) = match flag {
        "R" => (true, true, false),
        "T" => (false, true, true),
        "U" => (false, false, false),
        _ => panic!("unknown flag {flag}"),
    };
    json!({ "ready": ready, "serving": serving, "terminating": terminating })
}

pub(crate) fn endpoints(text: &str) -> Value {
    let parts = text.split(']').map(str::trim).filter(|part| !part.is_empty());
    parts.map(endpoint).collect::<Vec<Value>>().into()
}

/// A slice of the Service `ns/svc` with one port.
pub(crate) fn slice(name: &str, text: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "ns",
            "name": name,
            "labels": { "kubernetes.io/service-name": "svc" },
            "annotations": {},
        },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "protocol": "TCP", "port": 80 }],
        "endpoints": endpoints(text),
    })
}

pub(crate) fn labelled(name: &str, key: &str, value: &str, text: &str) -> Value {
    let mut slice = slice(name, text);
    slice["metadata"]["labels"][format!("endpointslice.kubernetes.io/{key}")] = value.into();
    slice
}

pub(crate) fn with_shares(mut slice: Value, shares: &str) -> Value {
    slice["metadata"]["annotations"]["zonewise.dev/zone-shares"] = shares.into();
    slice
}

/// A Service with one port; `extra` goes into its spec.
pub(crate) fn service_json(extra: &Value) -> Value {
    let mut service = json!({
        "metadata": { "namespace": "ns", "name": "svc" },
        "spec": {
            "clusterIP": "10.96.0.1",
            "ports": [{ "name": "http", "protocol": "TCP", "port": 80 }],
        },
    });
    for (key, value) in extra.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

pub(crate) fn service(extra: &Value) -> RoutedService {
    reader("a").read_service(&service_json(extra).to_string()).unwrap()
}

/// Policies and a node port, in short.
pub(crate) fn policies(internal: &str, external: &str, node_port: u16) -> RoutedService {
    service(&json!({
        "type": if node_port == 0 { "ClusterIP" } else { "NodePort" },
        "internalTrafficPolicy": internal,
        "externalTrafficPolicy": external,
        "ports": [{ "name": "http", "port": 80, "nodePort": node_port }],
    }))
}

pub(crate) fn read(reader: &ObjectReader, slices: &[Value]) -> Vec<RoutedSlice> {
    slices.iter().map(|slice| reader.read_slice(&slice.to_string()).unwrap()).collect()
}

pub(crate) fn ask(
    reader: &ObjectReader,
    gates: &FeatureGates,
    service: &RoutedService,
    slices: &[Value],
) -> Route {
    let slices = read(reader, slices);
    let slices: Vec<&RoutedSlice> = slices.iter().collect();
    let port = &service.ports[0];
    let family = Family::V4;
    zonewise_routing::route(&RouteQuery { reader, gates, service, port, family, slices: &slices })
}

/// A plain Service, everything on.
pub(crate) fn simple(zone: &str, slices: &[Value]) -> Route {
    ask(&reader(zone), &FeatureGates::default(), &service(&json!({})), slices)
}

/// The last numbers of addresses, `-` for no list.
pub(crate) fn short(targets: Option<&[Target]>) -> String {
    let last = |target: &Target| target.address.to_string().rsplit('.').next().unwrap().to_owned();
    targets
        .map_or_else(|| "-".to_owned(), |list| list.iter().map(last).collect::<Vec<_>>().join(","))
}

/// Mode, reason and endpoints on one line.
pub(crate) fn line(route: &Route) -> String {
    format!("{} {} {}", route.mode, route.reason.code(), short(route.cluster.as_deref()))
}
