//! Validation of Leases.

use serde_json::{Value, json};

use crate::objects::json::number;
use crate::status::FieldError;

pub(super) fn check(lease: &Value) -> Vec<FieldError> {
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
