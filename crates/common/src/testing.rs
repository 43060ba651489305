//! What the tests of several crates use. No part of the interface of this crate.

use serde_json::{Value, json};

pub mod arbitrary;
pub mod protobuf;

/// An object in which one field is `null`, and the same object without that field.
#[derive(Clone, Debug, PartialEq)]
pub struct NullField {
    /// Where the field is, as a JSON pointer.
    pub path: String,
    /// The object with `null` in the field.
    pub null: Value,
    /// The object without the field.
    pub absent: Value,
}

/// One case for each field of an object, at any depth. The API server writes some zero values as `null`
/// (a time of zero, for example), and the API treats `null` as an absent field.
pub fn null_fields(object: &Value) -> Vec<NullField> {
    let mut paths = Vec::new();
    collect_paths(object, "", &mut paths);
    let case = |(parent, field): (String, String)| {
        let mut null = object.clone();
        let mut absent = object.clone();
        if let Some(Value::Object(fields)) = null.pointer_mut(&parent) {
            fields.insert(field.clone(), Value::Null);
        }
        if let Some(Value::Object(fields)) = absent.pointer_mut(&parent) {
            fields.remove(&field);
        }
        NullField { path: format!("{parent}/{}", escaped(&field)), null, absent }
    };
    paths.into_iter().map(case).collect()
}

/// The object that holds each field, as a JSON pointer, and the name of the field.
fn collect_paths(value: &Value, here: &str, paths: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                paths.push((here.to_owned(), name.clone()));
                collect_paths(value, &format!("{here}/{}", escaped(name)), paths);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_paths(item, &format!("{here}/{index}"), paths);
            }
        }
        _ => {}
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A Node with every field that any of our readers uses.
pub fn full_node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n1",
            "uid": "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0001",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "topology.kubernetes.io/zone": "a",
                "topology.kubernetes.io/region": "r",
                "kubernetes.io/hostname": "n1",
            },
        },
        "spec": {
            "podCIDR": "10.244.1.0/24",
            "podCIDRs": ["10.244.1.0/24", "fd00:10:244:1::/64"],
            "taints": [{"key": "example.com/spot", "value": "yes", "effect": "PreferNoSchedule"}],
        },
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "addresses": [{"type": "InternalIP", "address": "192.168.0.1"}],
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "kubelet is posting ready status",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// A Pod with every field that any of our readers uses.
pub fn full_pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-1",
            "namespace": "shop",
            "uid": "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0002",
            "resourceVersion": "8",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web"},
        },
        "spec": {
            "nodeName": "n1",
            "hostname": "web-1",
            "subdomain": "web",
            "containers": [{
                "name": "web",
                "image": "web",
                "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "250m"}},
            }],
            "initContainers": [{
                "name": "sidecar",
                "image": "sidecar",
                "restartPolicy": "Always",
                "ports": [{"name": "admin", "containerPort": 9090, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m"}},
            }],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.244.1.2",
            "podIPs": [{"ip": "10.244.1.2"}],
            "conditions": [{
                "type": "Ready",
                "status": "True",
                "lastProbeTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// A Service with every field that any of our readers uses.
pub fn full_service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0003",
            "resourceVersion": "9",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web"},
            "annotations": {"service.kubernetes.io/topology-mode": "Auto"},
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.20",
            "clusterIPs": ["10.96.0.20"],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "externalIPs": ["203.0.113.9"],
            "loadBalancerSourceRanges": ["198.51.100.0/24"],
            "selector": {"app": "web"},
            "ports": [{
                "name": "http",
                "protocol": "TCP",
                "appProtocol": "http",
                "port": 80,
                "targetPort": "http",
                "nodePort": 30080,
            }],
            "publishNotReadyAddresses": false,
            "internalTrafficPolicy": "Cluster",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000,
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}},
            "trafficDistribution": "PreferSameZone",
        },
        "status": {
            "loadBalancer": {"ingress": [{"ip": "203.0.113.10", "ipMode": "VIP"}]},
            "conditions": [{
                "type": "zonewise.dev/RoutingPreferenceReady",
                "status": "True",
                "reason": "ProxiesReady",
                "message": "All proxies have it.",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// An EndpointSlice with every field that any of our readers uses.
pub fn full_slice() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "web-abcde",
            "namespace": "shop",
            "uid": "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0004",
            "resourceVersion": "10",
            "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"},
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Service",
                "name": "web",
                "uid": "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0003",
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080, "appProtocol": "http"}],
        "endpoints": [{
            "addresses": ["10.244.1.2"],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "hostname": "web-1",
            "nodeName": "n1",
            "zone": "a",
            "targetRef": {
                "kind": "Pod",
                "namespace": "shop",
                "name": "web-1",
                "uid": "6a1ce7f7-21cf-4f3a-9a6a-0c9b1d2c0002",
            },
            "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "n1"}]},
        }],
    })
}

/// A Lease with every field that any of our readers uses.
pub fn full_lease() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "zonewise-proxy-n1",
            "namespace": "zonewise-system",
            "resourceVersion": "11",
            "labels": {"zonewise.dev/component": "proxy"},
            "annotations": {"zonewise.dev/applied": "10", "zonewise.dev/refused": "shop/web"},
        },
        "spec": {
            "holderIdentity": "n1",
            "leaseDurationSeconds": 60,
            "leaseTransitions": 1,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    })
}

/// Reads every case of an object both ways. A field that is `null` must be read as if it were absent, and no
/// field but those in `required` may be needed to read the object.
///
/// # Panics
/// If a case is read differently; the message names the field.
pub fn assert_null_is_absent<T, E>(
    object: &Value,
    required: &[&str],
    read: impl Fn(&str) -> Result<T, E>,
) where
    T: PartialEq + std::fmt::Debug,
    E: std::fmt::Display,
{
    for NullField { path, null, absent } in null_fields(object) {
        let [null, absent] = [null, absent].map(|object| read(&object.to_string()));
        match (null, absent) {
            (Ok(null), Ok(absent)) => assert_eq!(null, absent, "{path}"),
            (Err(_), Err(_)) if required.contains(&&*path) => {}
            (null, absent) => panic!(
                "{path}: null is read as {:?}, an absent field as {:?}",
                null.map_err(|error| error.to_string()),
                absent.map_err(|error| error.to_string())
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_becomes_null_once() {
        let object = json!({"a/b": {"c": 1}, "d": [{"e": 2}]});
        let paths: Vec<String> = null_fields(&object).into_iter().map(|case| case.path).collect();
        assert_eq!(paths, ["/a~1b", "/a~1b/c", "/d", "/d/0/e"]);
        let last = null_fields(&object).pop().unwrap();
        let (null, absent) = (json!({"e": null}), json!({}));
        assert_eq!((&last.null["d"][0], &last.absent["d"][0]), (&null, &absent));
    }
}
