//! Validation of ConfigMaps.

use serde_json::{Value, json};

use super::invalid;
use crate::objects::json::entries;
use crate::objects::syntax;
use crate::status::FieldError;

/// Bytes of all values: `MaxSecretSize` of k8s.io/api, which holds for ConfigMaps too.
const MAX_BYTES: usize = 1024 * 1024;

pub(super) fn check(stored: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let mut bytes = 0;
    for kind in ["data", "binaryData"] {
        for (key, value) in entries(object, &format!("/{kind}")) {
            let field = format!("{kind}[{key}]");
            causes.extend(invalid(&field, key, &syntax::config_key(key)));
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
    if bytes > MAX_BYTES {
        causes.push(FieldError::too_long("[]", MAX_BYTES));
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
