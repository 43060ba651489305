//! The objects that every cluster has from its start: four namespaces, the Service `kubernetes` of
//! the API itself, and the ServiceCIDR of its addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use serde_json::{Value, json};
use zonewise_common::api_group::NETWORKING;
use zonewise_common::cidr::Cidr;

use super::{ApiRequest, ApiState, metadata, write};
use crate::http::request::{Options, ResourcePath};
use crate::objects::kind::{GroupResource, Kind};
use crate::status::StatusError;

/// Where ServiceCIDRs are stored.
const SERVICE_CIDRS: GroupResource = (NETWORKING, "servicecidrs");
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "default", "kube-node-lease"];

/// Creates them; `port` is the port on which the API is served.
pub(crate) fn seed(state: &mut ApiState, port: u16, now: Timestamp) -> Result<(), StatusError> {
    for name in NAMESPACES {
        insert(state, ("", "namespaces"), json!({"metadata": {"name": name}}), now)?;
    }
    let ranges = state.allocator.ranges().to_vec();
    let cidrs: Vec<String> = ranges.iter().map(Cidr::to_string).collect();
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": metadata::time(now),
        "message": "Kubernetes default Service CIDR is ready",
    });
    let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
    insert(state, SERVICE_CIDRS, range, now)?;
    set_range_condition(state, &condition);
    let Some(network) = ranges.first() else { return Ok(()) };
    let service = json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": first(network.address()).to_string(),
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    insert(state, ("", "services"), service, now)
}

/// Stores the status directly: a create request leaves out the status, as for every kind with a
/// `/status` subresource.
fn set_range_condition(state: &mut ApiState, condition: &Value) {
    let resource = SERVICE_CIDRS;
    if let Some(object) = state.store.get(resource, "kubernetes") {
        let mut value = object.value.clone();
        value["status"] = json!({"conditions": [condition]});
        state.put(resource, "kubernetes", value);
    }
}

fn insert(
    state: &mut ApiState,
    (group, plural): GroupResource,
    mut object: Value,
    now: Timestamp,
) -> Result<(), StatusError> {
    let kind = Kind::find(group, "v1", plural).ok_or_else(StatusError::no_such_path)?;
    object["kind"] = kind.kind.into();
    object["apiVersion"] = kind.api_version().into();
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let resource = ResourcePath { kind, namespace, name: None, subresource: None };
    let request = ApiRequest {
        resource: &resource,
        options: &Options::default(),
        content_type: "",
        body: &[],
        agent: "kube-apiserver",
        now,
        stale_version: None,
    };
    write::insert(state, &request, object).map(drop)
}

/// The first address of a network that a Service can have.
fn first(network: IpAddr) -> IpAddr {
    match network {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() | 1).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() | 1).into(),
    }
}
