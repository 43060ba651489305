//! As much of an OpenAPI description as kubectl needs before it applies anything. Pure.

use serde_json::Value;

/// `/openapi/v2`.
pub fn v2() -> Value {
    Value::Null
}

/// `/openapi/v3`: where the documents are.
pub fn v3_index() -> Value {
    Value::Null
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`.
pub fn v3(group: &str, version: &str) -> Option<Value> {
    let _ = (group, version);
    None
}
