//! The objects of a lab, as JSON. Pure.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use zonewise_common::keys::{HOSTNAME, LAB, ZONE};
use zonewise_common::name::SYSTEM_NAMESPACE;

use crate::ground::Node;
use crate::scenario::{GRACE, Service};

/// The port that Pods listen on.
pub(crate) const PORT: u16 = 8080;
/// The port of the Services.
pub(crate) const SERVICE_PORT: u16 = 80;

/// The Node object of a node.
pub(crate) fn node(node: &Node, cores: u32, now: &str) -> Value {
    let resources = json!({"cpu": cores.to_string(), "memory": "16Gi", "pods": "250"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node.name, "labels": {
            LAB: "node", HOSTNAME: node.name, ZONE: node.zone,
        }},
        "spec": {
            "podCIDR": node.pods_v4.to_string(),
            "podCIDRs": [node.pods_v4.to_string(), node.pods_v6.to_string()],
        },
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": node.v4},
                {"type": "InternalIP", "address": node.v6},
                {"type": "Hostname", "address": node.name},
            ],
            "conditions": [condition("Ready", true, now)],
            "nodeInfo": {
                "kubeletVersion": concat!("zonewise-lab-", env!("CARGO_PKG_VERSION")),
                "kubeProxyVersion": "", "architecture": std::env::consts::ARCH, "bootID": "",
                "containerRuntimeVersion": node.runtime().0, "kernelVersion": "", "machineID": "",
                "operatingSystem": "linux", "osImage": node.runtime().1, "systemUUID": "",
            },
        },
    })
}

/// A patch of a Node's status: ready or not.
pub(crate) fn node_ready(ready: bool, now: &str) -> Value {
    json!({"status": {"conditions": [condition("Ready", ready, now)]}})
}

/// A Pod of a Service, on a node.
pub(crate) fn pod(service: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {LAB: "pod", "app": service}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": GRACE.as_secs(),
            "containers": [{
                "name": "server", "image": "zonewise.dev/lab:1",
                "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
            }],
        },
    })
}

/// A patch of a Pod's status: running and ready.
pub(crate) fn pod_running(address: Ipv4Addr, containers: &[(String, String)], now: &str) -> Value {
    let container = |(name, image): &(String, String)| {
        json!({
            "name": name, "image": image, "imageID": "", "ready": true,
            "restartCount": 0, "started": true, "state": {"running": {"startedAt": now}},
        })
    };
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": now,
        "conditions": conditions.map(|kind| condition(kind, true, now)),
        "containerStatuses": containers.iter().map(container).collect::<Vec<_>>(),
    }})
}

/// A patch of a Pod's status: ready or not, because its node can or cannot be reached.
pub(crate) fn pod_ready(ready: bool, now: &str) -> Value {
    json!({"status": {"conditions": [
        condition("PodScheduled", true, now), condition("Initialized", true, now),
        condition("ContainersReady", ready, now), condition("Ready", ready, now),
    ]}})
}

/// A Service.
pub(crate) fn service(service: &Service) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": service.name, "labels": {LAB: "service"}, "annotations": service.annotations,
        },
        "spec": {
            "selector": {"app": service.name},
            "ports": [{"name": "http", "port": SERVICE_PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    });
    if let Some(value) = &service.traffic_distribution {
        object["spec"]["trafficDistribution"] = json!(value);
    }
    object
}

/// The namespace of the proxies' Leases.
pub(crate) fn system_namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})
}

fn condition(kind: &str, holds: bool, now: &str) -> Value {
    json!({
        "type": kind, "status": if holds { "True" } else { "False" },
        "reason": if holds { "LabReady" } else { "LabUnreachable" }, "message": "",
        "lastTransitionTime": now,
    })
}
