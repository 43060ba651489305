//! Validation of Pods, and which fields may change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::CONTAINERS;
use crate::objects::json::{items, list, number, text};
use crate::objects::strategy::{invalid, labels, one_of, put};
use crate::objects::syntax;
use crate::status::FieldError;

pub(in crate::objects::strategy) fn check(stored: Option<&Value>, pod: &Value) -> Vec<FieldError> {
    let mut causes = containers(pod);
    causes.extend(spec(pod));
    if let Some(stored) = stored {
        causes.extend(changes(stored, pod));
    }
    causes
}

fn containers(pod: &Value) -> Vec<FieldError> {
    let containers = list(pod, "/spec/containers");
    if containers.is_empty() {
        return vec![FieldError::required("spec.containers", "")];
    }
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, one) in containers.iter().enumerate() {
        let field = format!("spec.containers[{at}]");
        let name = text(one, "/name");
        if name.is_empty() {
            causes.push(FieldError::required(format!("{field}.name"), ""));
        } else {
            causes.extend(invalid(&format!("{field}.name"), name, &syntax::label(name)));
            if !names.insert(name) {
                causes.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
            }
        }
        if text(one, "/image").is_empty() {
            causes.push(FieldError::required(format!("{field}.image"), ""));
        }
        causes.extend(ports(&field, one));
        causes.extend(environment(&field, one));
        causes.extend(mounts(&field, pod, one));
        let known = ["Always", "IfNotPresent", "Never"];
        causes.extend(one_of(&format!("{field}.imagePullPolicy"), one, "/imagePullPolicy", &known));
    }
    causes
}

fn ports(container: &str, of: &Value) -> Vec<FieldError> {
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, port) in list(of, "/ports").iter().enumerate() {
        let field = format!("{container}.ports[{at}]");
        let name = text(port, "/name");
        if !name.is_empty() {
            causes.extend(invalid(&format!("{field}.name"), name, &syntax::port_name(name)));
            if !names.insert(name) {
                causes.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
            }
        }
        match number(port, "/containerPort").unwrap_or(0) {
            0 => causes.push(FieldError::required(format!("{field}.containerPort"), "")),
            1..=65535 => {}
            other => {
                let why = "must be between 1 and 65535, inclusive";
                causes.push(FieldError::invalid(
                    format!("{field}.containerPort"),
                    &json!(other),
                    why,
                ));
            }
        }
        let known = ["SCTP", "TCP", "UDP"];
        causes.extend(one_of(&format!("{field}.protocol"), port, "/protocol", &known));
    }
    causes
}

fn environment(container: &str, of: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    for (at, variable) in list(of, "/env").iter().enumerate() {
        let (field, name) = (format!("{container}.env[{at}].name"), text(variable, "/name"));
        if name.is_empty() {
            causes.push(FieldError::required(field, ""));
        } else if !name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
            let why = "a valid environment variable name must consist only of printable ASCII \
                       characters other than '='";
            causes.push(FieldError::invalid(field, &json!(name), why));
        }
    }
    causes
}

fn tolerations(pod: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    for (at, one) in list(pod, "/spec/tolerations").iter().enumerate() {
        let field = format!("spec.tolerations[{at}].operator");
        let [key, operator, value] =
            ["/key", "/operator", "/value"].map(|pointer| text(one, pointer));
        if key.is_empty() && operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \
                       \"match all values and all keys\"";
            causes.push(FieldError::invalid(&field, &json!(operator), why));
        }
        causes.extend(one_of(&field, one, "/operator", &["Equal", "Exists"]));
        if operator == "Exists" && !value.is_empty() {
            let why = "value must be empty when `operator` is 'Exists'";
            causes.push(FieldError::invalid(&field, &json!(value), why));
        }
    }
    causes
}

fn mounts(container: &str, pod: &Value, of: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let known = |name: &str| list(pod, "/spec/volumes").iter().any(|volume| volume["name"] == name);
    for (at, mount) in list(of, "/volumeMounts").iter().enumerate() {
        let field = format!("{container}.volumeMounts[{at}]");
        let name = text(mount, "/name");
        if name.is_empty() {
            causes.push(FieldError::required(format!("{field}.name"), ""));
        }
        if !known(name) {
            causes.push(FieldError::not_found(format!("{field}.name"), &json!(name)));
        }
        if text(mount, "/mountPath").is_empty() {
            causes.push(FieldError::required(format!("{field}.mountPath"), ""));
        }
    }
    causes
}

fn spec(pod: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let restart = ["Always", "OnFailure", "Never"];
    let names = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    causes.extend(one_of("spec.restartPolicy", pod, "/spec/restartPolicy", &restart));
    causes.extend(one_of("spec.dnsPolicy", pod, "/spec/dnsPolicy", &names));
    if let Some(seconds) = number(pod, "/spec/activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let why = "must be between 1 and 2147483647, inclusive";
        causes.push(FieldError::invalid("spec.activeDeadlineSeconds", &json!(seconds), why));
    }
    causes.extend(tolerations(pod));
    causes.extend(labels("spec.nodeSelector", pod, "/spec/nodeSelector"));
    let node = text(pod, "/spec/nodeName");
    if !node.is_empty() {
        causes.extend(invalid("spec.nodeName", node, &syntax::subdomain(node)));
    }
    for key in ["hostname", "subdomain"] {
        let name = text(pod, &format!("/spec/{key}"));
        if !name.is_empty() {
            causes.extend(invalid(&format!("spec.{key}"), name, &syntax::label(name)));
        }
    }
    causes
}

/// Checks the addresses in the status.
pub(in crate::objects::strategy) fn check_status(pod: &Value) -> Vec<FieldError> {
    let fault = |(at, one): (usize, &Value)| {
        let address = text(one, "/ip");
        let why = syntax::address_fault(address)?;
        Some(FieldError::invalid(format!("status.podIPs[{at}]"), &json!(address), why))
    };
    list(pod, "/status/podIPs").iter().enumerate().filter_map(fault).collect()
}

const IMMUTABLE_SPEC: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn changes(stored: &Value, pod: &Value) -> Vec<FieldError> {
    for pointer in CONTAINERS {
        if list(stored, pointer).len() != list(pod, pointer).len() {
            let field = pointer[1..].replace('/', ".");
            let why = "pod updates may not add or remove containers";
            return vec![FieldError::forbidden(field, why)];
        }
    }
    let mut causes = Vec::new();
    const DEADLINE: &str = "/spec/activeDeadlineSeconds";
    const FIELD: &str = "spec.activeDeadlineSeconds";
    match (number(stored, DEADLINE), number(pod, DEADLINE)) {
        (Some(old), Some(new)) if new > old => {
            let why = "must be less than or equal to previous value";
            causes.push(FieldError::invalid(FIELD, &json!(new), why));
        }
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            causes.push(FieldError::invalid(FIELD, &Value::Null, why));
        }
        _ => {}
    }
    if immutable_spec(stored) != immutable_spec(pod) || !keeps_tolerations(stored, pod) {
        causes.push(FieldError::forbidden("spec", IMMUTABLE_SPEC));
    }
    causes
}

fn keeps_tolerations(stored: &Value, pod: &Value) -> bool {
    let new = list(pod, "/spec/tolerations");
    list(stored, "/spec/tolerations").iter().all(|one| new.contains(one))
}

/// The spec without the fields that may change.
fn immutable_spec(pod: &Value) -> Value {
    let mut fixed = json!({"spec": pod["spec"]});
    for pointer in CONTAINERS {
        items(&mut fixed, pointer).for_each(|container| put(container, "image", None));
    }
    for key in ["activeDeadlineSeconds", "tolerations"] {
        put(&mut fixed["spec"], key, None);
    }
    fixed
}
