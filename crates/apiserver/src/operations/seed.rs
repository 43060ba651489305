//! What every cluster has from its start: four namespaces, the Service of the API itself, the range of its addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Ask, World, metadata, write};
use crate::http::request::{Options, Resource};
use crate::objects::kind::Kind;
use crate::status::StatusError;

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "default", "kube-node-lease"];

/// Fills an empty world; `port` is where the API is served.
pub(crate) fn seed(world: &mut World, port: u16, now: Timestamp) -> Result<(), StatusError> {
    for name in NAMESPACES {
        insert(world, ("", "namespaces"), json!({"metadata": {"name": name}}), now)?;
    }
    let ranges = world.allocator.ranges().to_vec();
    let cidrs: Vec<String> =
        ranges.iter().map(|(address, bits)| format!("{address}/{bits}")).collect();
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": metadata::time(now),
        "message": "Kubernetes default Service CIDR is ready",
    });
    let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
    insert(world, ("networking.k8s.io", "servicecidrs"), range, now)?;
    ready(world, &condition);
    let Some((network, _)) = ranges.first() else { return Ok(()) };
    let service = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": first(*network).to_string(), "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    insert(world, ("", "services"), service, now)
}

/// The status has a door of its own, which is not open yet.
fn ready(world: &mut World, condition: &Value) {
    let room = ("networking.k8s.io", "servicecidrs");
    if let Some(object) = world.store.get(room, "kubernetes") {
        let mut value = object.value.clone();
        value["status"] = json!({"conditions": [condition]});
        world.put(room, "kubernetes", value);
    }
}

fn insert(
    world: &mut World,
    (group, plural): (&str, &str),
    mut object: Value,
    now: Timestamp,
) -> Result<(), StatusError> {
    let kind = Kind::find(group, "v1", plural).ok_or_else(StatusError::no_such_page)?;
    object["kind"] = kind.kind.into();
    object["apiVersion"] = kind.api_version().into();
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let resource = Resource { kind, namespace, name: None, subresource: None };
    let ask = Ask {
        resource: &resource,
        options: &Options::default(),
        content_type: "",
        body: &[],
        agent: "kube-apiserver",
        now,
        past: None,
    };
    write::insert(world, &ask, object).map(drop)
}

/// The first address of a network that a Service can have.
fn first(network: IpAddr) -> IpAddr {
    match network {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() | 1).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() | 1).into(),
    }
}
