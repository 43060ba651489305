//! Which IP families a Service gets: from its addresses, `ipFamilies`, `ipFamilyPolicy`, and the
//! ranges of the cluster.

use std::net::IpAddr;

use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;

use crate::objects::json::{map, text, texts};
use crate::status::FieldError;

fn name(four: bool) -> &'static str {
    if four { "IPv4" } else { "IPv6" }
}

/// Sets `ipFamilies` and `ipFamilyPolicy`, and returns the families: true for IPv4.
pub(super) fn resolve(ranges: &[Cidr], service: &mut Value) -> Result<Vec<bool>, FieldError> {
    let mut families: Vec<bool> =
        texts(service, "/spec/ipFamilies").map(|family| family == "IPv4").collect();
    let addresses: Vec<IpAddr> =
        texts(service, "/spec/clusterIPs").filter_map(|ip| ip.parse().ok()).collect();
    follow_addresses(&addresses, &mut families)?;
    let policy = policy(service, &families);
    check_policy(&policy, families.len(), addresses.len())?;
    let available: Vec<bool> = ranges.iter().map(Cidr::is_ipv4).collect();
    let headless = text(service, "/spec/clusterIP") == "None";
    if policy == "RequireDualStack" && available.len() < 2 && !headless {
        let why = "this cluster is not configured for dual-stack services";
        return Err(FieldError::invalid("spec.ipFamilyPolicy", &json!(policy), why));
    }
    if families.is_empty() {
        families.extend(available.first());
    }
    if policy != "SingleStack" && families.len() == 1 {
        let other = !families[0];
        let selected = service.pointer("/spec/selector").is_some();
        if available.contains(&other) || headless && !selected {
            families.push(other);
        }
    }
    for (at, family) in families.iter().enumerate() {
        if !available.contains(family) && !headless {
            let field = format!("spec.ipFamilies[{at}]");
            let why = "not configured on this cluster";
            return Err(FieldError::invalid(field, &json!(name(*family)), why));
        }
    }
    let spec = map(service, "spec");
    let names: Vec<&str> = families.iter().map(|family| name(*family)).collect();
    spec.insert("ipFamilies".into(), json!(names));
    spec.insert("ipFamilyPolicy".into(), json!(policy));
    Ok(families)
}

fn follow_addresses(addresses: &[IpAddr], families: &mut Vec<bool>) -> Result<(), FieldError> {
    for (at, address) in addresses.iter().enumerate() {
        match families.get(at) {
            None => families.push(address.is_ipv4()),
            Some(family) if *family == address.is_ipv4() => {}
            Some(family) => {
                let why = format!(
                    "expected an {} value as indicated by `ipFamilies[{at}]`",
                    name(*family)
                );
                let field = format!("spec.clusterIPs[{at}]");
                return Err(FieldError::invalid(field, &json!(address.to_string()), &why));
            }
        }
    }
    Ok(())
}

/// The policy of the Service. Without one it is SingleStack, but RequireDualStack for a headless
/// Service without a selector.
fn policy(service: &Value, families: &[bool]) -> String {
    let given = text(service, "/spec/ipFamilyPolicy");
    let headless = text(service, "/spec/clusterIP") == "None";
    let selected = service.pointer("/spec/selector").is_some();
    match given {
        "" if headless && !selected && families.is_empty() => "RequireDualStack".into(),
        "" => "SingleStack".into(),
        given => given.into(),
    }
}

fn check_policy(policy: &str, families: usize, addresses: usize) -> Result<(), FieldError> {
    let prefix = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
    let what = match policy {
        "SingleStack" if addresses > 1 => "cluster IPs",
        "SingleStack" if families > 1 => "IP families",
        _ => return Ok(()),
    };
    let why = format!("{prefix} {what} are specified");
    Err(FieldError::invalid("spec.ipFamilyPolicy", &json!(policy), &why))
}
