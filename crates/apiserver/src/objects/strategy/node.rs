//! Defaults and validation of Nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::invalid;
use crate::objects::json::{list, map, text, texts};
use crate::objects::syntax;
use crate::status::FieldError;

/// `podCIDR` and `podCIDRs` are filled from each other: the one is the first of the others.
pub(super) fn defaults(node: &mut Value) {
    map(node, "status");
    let spec = map(node, "spec");
    let first = spec.get("podCIDRs").and_then(|all| all.get(0)).cloned();
    match (spec.get("podCIDR").cloned(), first) {
        (Some(one), None) if one != "" => {
            spec.insert("podCIDRs".into(), json!([one]));
        }
        (None, Some(first)) => {
            spec.insert("podCIDR".into(), first);
        }
        _ => {}
    }
}

pub(super) fn check(stored: Option<&Value>, node: &Value) -> Vec<FieldError> {
    let mut causes = taints(node);
    causes.extend(networks(node));
    if let Some(stored) = stored {
        causes.extend(changes(stored, node));
    }
    causes
}

fn taints(node: &Value) -> Vec<FieldError> {
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, taint) in list(node, "/spec/taints").iter().enumerate() {
        let field = format!("metadata.taints[{at}]");
        let [key, value, effect] =
            ["/key", "/value", "/effect"].map(|pointer| text(taint, pointer));
        causes.extend(invalid(&format!("{field}.key"), key, &syntax::qualified(key)));
        causes.extend(invalid(&format!("{field}.value"), value, &syntax::label_value(value)));
        if effect.is_empty() {
            causes.push(FieldError::required(format!("{field}.effect"), ""));
        } else if !known.contains(&effect) {
            causes.push(FieldError::unsupported(format!("{field}.effect"), &json!(effect), &known));
        }
        if !seen.insert((key, effect)) {
            let mut cause = FieldError::duplicate(&field, &Value::Null);
            cause.message = format!(
                "Duplicate value: \
                 {{\"Key\":\"{key}\",\"Value\":\"{value}\",\"Effect\":\"{effect}\",\
                 \"TimeAdded\":null}}: taints must be unique by key and effect pair"
            );
            causes.push(cause);
        }
    }
    causes
}

fn networks(node: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let mut families = Vec::new();
    for (at, one) in texts(node, "/spec/podCIDRs").enumerate() {
        match syntax::network(one) {
            Ok(network) => families.push(network.is_ipv4()),
            Err(why) => {
                causes.push(FieldError::invalid(format!("spec.podCIDRs[{at}]"), &json!(one), why));
            }
        }
    }
    let once = |family: bool| families.iter().filter(|one| **one == family).count() < 2;
    if !(once(true) && once(false)) {
        let why = "may specify no more than one CIDR for each IP family";
        causes.push(FieldError::invalid("spec.podCIDRs", &node["spec"]["podCIDRs"], why));
    }
    causes
}

fn changes(stored: &Value, node: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let old = list(stored, "/spec/podCIDRs");
    let moved = text(stored, "/spec/podCIDR") != text(node, "/spec/podCIDR");
    if !old.is_empty() && (moved || old != list(node, "/spec/podCIDRs")) {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        causes.push(FieldError::forbidden("spec.podCIDRs", why));
    }
    let provider = text(stored, "/spec/providerID");
    if !provider.is_empty() && provider != text(node, "/spec/providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        causes.push(FieldError::forbidden("spec.providerID", why));
    }
    causes
}
