//! Defaults of Services; validation and updates are below.

use serde_json::{Value, json};

use crate::objects::json::{default, items, map, text};

mod check;
mod inherit;

pub(super) use check::{check, check_status};
pub(super) use inherit::inherit;

/// Whether Services of this type have a cluster IP.
pub(crate) fn has_address(service: &Value) -> bool {
    text(service, "/spec/type") != "ExternalName"
}

/// Whether Services of this type may have node ports.
pub(crate) fn has_node_ports(service: &Value) -> bool {
    matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer")
}

/// Whether the Service has a `healthCheckNodePort`.
pub(crate) fn has_health_port(service: &Value) -> bool {
    text(service, "/spec/type") == "LoadBalancer"
        && text(service, "/spec/externalTrafficPolicy") == "Local"
}

pub(super) fn defaults(service: &mut Value) {
    let spec = map(service, "spec");
    if spec.get("selector").is_some_and(|selector| *selector == json!({})) {
        spec.remove("selector");
    }
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    match spec["sessionAffinity"].as_str() {
        Some("None") => {
            spec.remove("sessionAffinityConfig");
        }
        Some("ClientIP") if spec.get("sessionAffinityConfig").is_none() => {
            let config = json!({"clientIP": {"timeoutSeconds": 10800}});
            spec.insert("sessionAffinityConfig".into(), config);
        }
        _ => {}
    }
    let of = spec["type"].as_str().unwrap_or_default().to_owned();
    if of != "ExternalName" {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    let outside =
        spec.get("externalIPs").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    if of == "NodePort" || of == "LoadBalancer" || (of == "ClusterIP" && outside) {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if of == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
    if let (Some(address), false) =
        (spec.get("clusterIP").cloned(), spec.contains_key("clusterIPs"))
        && address != ""
    {
        spec.insert("clusterIPs".into(), json!([address]));
    }
    items(service, "/spec/ports").for_each(port_defaults);
    status_defaults(service);
}

fn port_defaults(port: &mut Value) {
    let number = port.get("port").cloned().unwrap_or(json!(0));
    if let Some(port) = port.as_object_mut() {
        default(port, "protocol", "TCP");
        if port.get("targetPort").is_none_or(|target| *target == 0 || *target == "") {
            port.insert("targetPort".into(), number);
        }
    }
}

fn status_defaults(service: &mut Value) {
    default(map(service, "status"), "loadBalancer", json!({}));
    for ingress in items(service, "/status/loadBalancer/ingress") {
        if let Some(ingress) = ingress.as_object_mut()
            && ingress.contains_key("ip")
        {
            default(ingress, "ipMode", "VIP");
        }
    }
}
