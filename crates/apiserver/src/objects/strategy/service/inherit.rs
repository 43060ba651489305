//! What an update of a Service keeps of the stored one.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{has_address, has_health_port, has_node_ports};
use crate::objects::json::{items, list, map, number, text};
use crate::objects::strategy::put;

/// Keeps allocated addresses and ports that the update leaves out, and drops fields that the new
/// type does not have, unless the update has changed them too.
pub(in crate::objects::strategy) fn inherit(stored: &Value, service: &mut Value) {
    follow_first_address(stored, service);
    if has_address(stored) && has_address(service) {
        inherit_addresses(stored, service);
    }
    if has_node_ports(stored) && has_node_ports(service) {
        inherit_node_ports(stored, service);
    }
    if has_health_port(stored) && has_health_port(service) {
        inherit_field(stored, service, "healthCheckNodePort");
    }
    drop_by_type(stored, service);
    if text(service, "/spec/ipFamilyPolicy") == "SingleStack"
        && text(stored, "/spec/ipFamilyPolicy") != "SingleStack"
    {
        for key in ["clusterIPs", "ipFamilies"] {
            shorten(stored, service, key);
        }
    }
    if text(service, "/spec/type") != "LoadBalancer" {
        map(service, "status").insert("loadBalancer".into(), json!({}));
    }
}

/// If the update changes `clusterIP` but not `clusterIPs`, the list follows.
fn follow_first_address(stored: &Value, service: &mut Value) {
    let (old, new) = (text(stored, "/spec/clusterIP"), text(service, "/spec/clusterIP").to_owned());
    if old != new && stored.pointer("/spec/clusterIPs") == service.pointer("/spec/clusterIPs") {
        let spec = map(service, "spec");
        if new.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec.insert("clusterIPs".into(), json!([new]));
        }
    }
}

fn inherit_field(stored: &Value, service: &mut Value, key: &str) {
    let empty = match service.pointer(&format!("/spec/{key}")) {
        None => true,
        Some(value) => *value == "" || *value == 0 || *value == json!([]),
    };
    if empty {
        put(&mut service["spec"], key, stored.pointer(&format!("/spec/{key}")));
    }
}

fn inherit_addresses(stored: &Value, service: &mut Value) {
    inherit_field(stored, service, "clusterIP");
    if text(stored, "/spec/clusterIP") == text(service, "/spec/clusterIP") {
        inherit_field(stored, service, "clusterIPs");
    }
    // Missing families stay as they were.
    if list(service, "/spec/ipFamilies").is_empty() {
        inherit_field(stored, service, "ipFamilies");
    }
    inherit_field(stored, service, "ipFamilyPolicy");
}

fn inherit_node_ports(stored: &Value, service: &mut Value) {
    let key = |port: &Value| (text(port, "/protocol").to_owned(), number(port, "/port"));
    let mut taken: BTreeSet<i64> =
        list(service, "/spec/ports").iter().filter_map(|port| number(port, "/nodePort")).collect();
    for port in items(service, "/spec/ports") {
        if number(port, "/nodePort").unwrap_or(0) != 0 {
            continue;
        }
        let before = list(stored, "/spec/ports").iter().find(|old| key(old) == key(port));
        if let Some(node) = before.and_then(|old| number(old, "/nodePort"))
            && taken.insert(node)
        {
            port["nodePort"] = node.into();
        }
    }
}

/// Drops fields that the new type does not have and the update has not changed.
fn drop_by_type(stored: &Value, service: &mut Value) {
    let balanced = |service: &Value| text(service, "/spec/type") == "LoadBalancer";
    type Needs = fn(&Value) -> bool;
    let fields: [(&[&str], Needs); 4] = [
        (
            &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"],
            has_address,
        ),
        (&["externalTrafficPolicy"], has_node_ports),
        (&["healthCheckNodePort"], has_health_port),
        (&["allocateLoadBalancerNodePorts", "loadBalancerClass"], balanced),
    ];
    for (keys, needs) in fields {
        if !needs(stored) || needs(service) {
            continue;
        }
        for key in keys {
            if stored["spec"].get(key) == service["spec"].get(key) {
                put(&mut service["spec"], key, None);
            }
        }
    }
    let nodes = |service: &Value| -> Vec<Option<i64>> {
        list(service, "/spec/ports").iter().map(|port| number(port, "/nodePort")).collect()
    };
    if has_node_ports(stored) && !has_node_ports(service) && nodes(stored) == nodes(service) {
        items(service, "/spec/ports").for_each(|port| put(port, "nodePort", None));
    }
}

fn shorten(stored: &Value, service: &mut Value, key: &str) {
    let same = stored["spec"].get(key) == service["spec"].get(key);
    if let Some(values) = service["spec"].get_mut(key).and_then(Value::as_array_mut)
        && same
    {
        values.truncate(1);
    }
}
