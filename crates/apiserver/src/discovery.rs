//! What is served, in the forms in which clients ask for it. Pure.

use serde_json::Value;

/// `/api`.
pub fn core_versions() -> Value {
    Value::Null
}

/// `/apis`.
pub fn groups() -> Value {
    Value::Null
}

/// `/apis/GROUP`.
pub fn group(name: &str) -> Option<Value> {
    let _ = name;
    None
}

/// `/api/v1` and `/apis/GROUP/VERSION`; the core's group is empty.
pub fn resources(group: &str, version: &str) -> Option<Value> {
    let _ = (group, version);
    None
}

/// `/api` or `/apis` as one document (`apidiscovery.k8s.io/v2`, `APIGroupDiscoveryList`).
pub fn aggregated(core: bool) -> Value {
    let _ = core;
    Value::Null
}

/// `/version`.
pub fn version() -> Value {
    Value::Null
}
