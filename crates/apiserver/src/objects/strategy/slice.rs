//! Defaults and validation of EndpointSlices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::{invalid, one_of};
use crate::objects::json::{default, items, list, text, texts};
use crate::objects::syntax;
use crate::status::FieldError;

/// Limits of kube-apiserver
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/apis/discovery/validation/validation.go>).
const MAX_ENDPOINTS: usize = 1000;
const MAX_PORTS: usize = 20_000;
const MAX_ADDRESSES: usize = 100;
const MAX_HINTS: usize = 8;
const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];

/// Lists that are null if they are missing or empty, as kube-apiserver shows them.
pub(super) const LISTS: [&str; 2] = ["endpoints", "ports"];

pub(super) fn defaults(slice: &mut Value) {
    for key in LISTS {
        if list(slice, &format!("/{key}")).is_empty()
            && let Some(slice) = slice.as_object_mut()
        {
            slice.insert(key.into(), Value::Null);
        }
    }
    for endpoint in items(slice, "/endpoints").filter_map(Value::as_object_mut) {
        default(endpoint, "conditions", json!({}));
        // A field of an older version, which kube-apiserver drops too.
        endpoint.remove("deprecatedTopology");
    }
    for port in items(slice, "/ports").filter_map(Value::as_object_mut) {
        default(port, "name", "");
        default(port, "protocol", "TCP");
    }
}

pub(super) fn check(stored: Option<&Value>, slice: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let of = text(slice, "/addressType");
    if of.is_empty() {
        causes.push(FieldError::required("addressType", ""));
    } else {
        causes.extend(one_of("addressType", slice, "/addressType", &TYPES));
    }
    if let Some(stored) = stored
        && text(stored, "/addressType") != of
    {
        causes.push(FieldError::invalid("addressType", &json!(of), "field is immutable"));
    }
    let endpoints = list(slice, "/endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        causes.push(FieldError::too_many("endpoints", endpoints.len(), MAX_ENDPOINTS));
        return causes;
    }
    for (at, one) in endpoints.iter().enumerate() {
        causes.extend(endpoint(&format!("endpoints[{at}]"), of, one));
    }
    causes.extend(ports(slice));
    causes
}

fn endpoint(field: &str, of: &str, endpoint: &Value) -> Vec<FieldError> {
    let mut causes = addresses(&format!("{field}.addresses"), of, endpoint);
    let node = text(endpoint, "/nodeName");
    if !node.is_empty() {
        causes.extend(invalid(&format!("{field}.nodeName"), node, &syntax::subdomain(node)));
    }
    let host = text(endpoint, "/hostname");
    if !host.is_empty() {
        causes.extend(invalid(&format!("{field}.hostname"), host, &syntax::label(host)));
    }
    causes.extend(hints(&format!("{field}.hints.forZones"), endpoint, "/hints/forZones"));
    causes.extend(hints(&format!("{field}.hints.forNodes"), endpoint, "/hints/forNodes"));
    causes
}

fn addresses(field: &str, of: &str, endpoint: &Value) -> Vec<FieldError> {
    let count = list(endpoint, "/addresses").len();
    if count == 0 {
        return vec![FieldError::required(field, "must contain at least 1 address")];
    }
    if count > MAX_ADDRESSES {
        return vec![FieldError::too_many(field, count, MAX_ADDRESSES)];
    }
    let all = texts(endpoint, "/addresses").enumerate();
    all.flat_map(|(at, one)| address(field, at, of, one)).collect()
}

fn address(field: &str, at: usize, of: &str, address: &str) -> Vec<FieldError> {
    let item = format!("{field}[{at}]");
    if of == "FQDN" {
        return invalid(&item, address, &syntax::subdomain(address));
    }
    let Ok(parsed) = address.parse::<IpAddr>() else {
        let why = syntax::address_fault(address).unwrap_or_default();
        return vec![FieldError::invalid(item, &json!(address), why)];
    };
    let of_type = match of {
        "IPv4" => parsed.is_ipv4(),
        "IPv6" => parsed.is_ipv6(),
        _ => true,
    };
    if !of_type {
        let why = format!("must be an {of} address");
        return vec![FieldError::invalid(field, &json!(address), &why)];
    }
    let why = syntax::special_address_fault(parsed);
    why.map(|why| FieldError::invalid(item, &json!(address), why)).into_iter().collect()
}

fn hints(field: &str, endpoint: &Value, pointer: &str) -> Vec<FieldError> {
    let hints = list(endpoint, pointer);
    if hints.len() > MAX_HINTS {
        return vec![FieldError::too_many(field, hints.len(), MAX_HINTS)];
    }
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, hint) in hints.iter().enumerate() {
        let (field, name) = (format!("{field}[{at}].name"), text(hint, "/name"));
        if !seen.insert(name) {
            causes.push(FieldError::duplicate(&field, &json!(name)));
        }
        let messages = if pointer.ends_with("forNodes") {
            syntax::subdomain(name)
        } else {
            syntax::label_value(name)
        };
        causes.extend(invalid(&field, name, &messages));
    }
    causes
}

fn ports(slice: &Value) -> Vec<FieldError> {
    let ports = list(slice, "/ports");
    if ports.len() > MAX_PORTS {
        return vec![FieldError::too_many("ports", ports.len(), MAX_PORTS)];
    }
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (at, port) in ports.iter().enumerate() {
        let (field, name) = (format!("ports[{at}].name"), text(port, "/name"));
        if !name.is_empty() {
            causes.extend(invalid(&field, name, &syntax::label(name)));
        }
        if !seen.insert(name) {
            causes.push(FieldError::duplicate(&field, &json!(name)));
        }
        let known = ["SCTP", "TCP", "UDP"];
        causes.extend(one_of(&format!("ports[{at}].protocol"), port, "/protocol", &known));
        let protocol = text(port, "/appProtocol");
        if !protocol.is_empty() {
            let messages = syntax::qualified(protocol);
            causes.extend(invalid(&format!("ports[{at}].appProtocol"), protocol, &messages));
        }
    }
    causes
}
