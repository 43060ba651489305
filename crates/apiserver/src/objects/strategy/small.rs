//! Kinds with few rules: ConfigMaps, Leases, Namespaces, ServiceCIDRs.

use serde_json::{Value, json};

use super::{default_in, put, wrong};
use crate::objects::json::{entries, list, map, number, text, texts};
use crate::objects::syntax;
use crate::status::FieldError;

const CONFIG_BYTES: usize = 1024 * 1024;

/// A namespace carries its name as a label; its finalizers are not for clients.
pub(super) fn namespace(stored: Option<&Value>, namespace: &mut Value) {
    let name = text(namespace, "/metadata/name").to_owned();
    if let Some(metadata) = namespace.get_mut("metadata") {
        map(metadata, "labels").insert("kubernetes.io/metadata.name".into(), name.into());
    }
    match stored {
        Some(stored) => put(namespace, "spec", stored.get("spec")),
        None => {
            map(namespace, "spec").insert("finalizers".into(), json!(["kubernetes"]));
        }
    }
    default_in(namespace, "status", &[("phase", json!("Active"))]);
}

pub(super) fn check_namespace(namespace: &Value) -> Vec<FieldError> {
    let phase = text(namespace, "/status/phase");
    let leaving = namespace.pointer("/metadata/deletionTimestamp").is_some();
    let (wanted, when) = if leaving { ("Terminating", "not empty") } else { ("Active", "empty") };
    if phase == wanted {
        return Vec::new();
    }
    let why = format!("may only be '{wanted}' if `deletionTimestamp` is {when}");
    vec![FieldError::invalid("status.Phase", &json!(phase), &why)]
}

pub(super) fn check_config_map(stored: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let mut bytes = 0;
    for kind in ["data", "binaryData"] {
        for (key, value) in entries(object, &format!("/{kind}")) {
            let field = format!("{kind}[{key}]");
            causes.extend(wrong(&field, key, &syntax::config_key(key)));
            if kind == "data" && object["binaryData"].get(key).is_some() {
                causes.push(FieldError::invalid(
                    field,
                    &json!(key),
                    "duplicate of key present in binaryData",
                ));
            }
            bytes += value.as_str().map_or(0, str::len);
        }
    }
    if bytes > CONFIG_BYTES {
        causes.push(FieldError::too_long("[]", CONFIG_BYTES));
    }
    if let Some(stored) = stored.filter(|stored| stored["immutable"] == true) {
        let why = "field is immutable when `immutable` is set";
        for key in ["immutable", "data", "binaryData"] {
            if stored.get(key) != object.get(key) {
                causes.push(FieldError::forbidden(key, why));
            }
        }
    }
    causes
}

pub(super) fn check_lease(lease: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    for (key, least, why) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if let Some(value) = number(lease, &format!("/spec/{key}")).filter(|value| *value < least) {
            causes.push(FieldError::invalid(format!("spec.{key}"), &json!(value), why));
        }
    }
    causes
}

pub(super) fn check_range(stored: Option<&Value>, object: &Value) -> Vec<FieldError> {
    const FIELD: &str = "spec.cidrs";
    let all = list(object, "/spec/cidrs");
    if let Some(stored) = stored {
        let old = list(stored, "/spec/cidrs");
        let pairs = all.iter().zip(old).enumerate();
        let mut causes: Vec<FieldError> = pairs
            .filter(|(_, (new, old))| new != old)
            .map(|(at, (new, _))| {
                FieldError::invalid(format!("{FIELD}[{at}]"), new, "field is immutable")
            })
            .collect();
        if all.len() < old.len() {
            causes.push(FieldError::invalid(FIELD, &json!(all), "field is immutable"));
        }
        return causes;
    }
    if all.is_empty() {
        return vec![FieldError::required(FIELD, "at least one CIDR required")];
    }
    if all.len() > 2 {
        let value = json!({"CIDRs": all});
        return vec![FieldError::invalid(FIELD, &value, "may only hold up to 2 values")];
    }
    let parsed: Vec<_> = texts(object, "/spec/cidrs").map(syntax::network).collect();
    if let [Ok((one, _)), Ok((two, _))] = parsed[..]
        && one.is_ipv4() == two.is_ipv4()
    {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        return vec![FieldError::invalid(FIELD, &json!(all), why)];
    }
    let bad = parsed.iter().zip(all).enumerate();
    bad.filter_map(|(at, (parsed, value))| {
        let why = parsed.as_ref().err()?;
        Some(FieldError::invalid(format!("{FIELD}[{at}]"), value, why))
    })
    .collect()
}
