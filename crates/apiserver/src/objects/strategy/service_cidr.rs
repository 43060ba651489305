//! Validation of ServiceCIDRs.

use serde_json::{Value, json};

use crate::objects::json::{list, texts};
use crate::objects::syntax;
use crate::status::FieldError;

pub(super) fn check(stored: Option<&Value>, object: &Value) -> Vec<FieldError> {
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
    if let [Ok(one), Ok(two)] = parsed[..]
        && one.is_ipv4() == two.is_ipv4()
    {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and \
                   2001:db8::/64";
        return vec![FieldError::invalid(FIELD, &json!(all), why)];
    }
    let bad = parsed.iter().zip(all).enumerate();
    bad.filter_map(|(at, (parsed, value))| {
        let why = parsed.as_ref().err()?;
        Some(FieldError::invalid(format!("{FIELD}[{at}]"), value, why))
    })
    .collect()
}
