//! Endpoints that count for the CPU that their Pods request: figures compare with that.

use serde_json::{Value, json};

use crate::common::explained_web;

/// Pods in zone a request 2 cores, the others 1.
fn explained(weight: &str) -> Value {
    let annotations = json!({
        "zonewise.dev/routing-preference": "zonewise.dev/balanced", "zonewise.dev/endpoint-weight": weight,
    });
    let containers = |zone: &str| {
        let cpu = if zone == "a" { "2" } else { "1" };
        json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
    };
    explained_web(&annotations, containers, Vec::new())
}

/// Of each zone: the cores that its endpoints request, and the overload of the busiest; then what stays in its zone
/// as planned, and at best.
fn figures(explanation: &Value) -> Value {
    // The sum turns -0 into 0.
    let rounded =
        |value: &Value| value.as_f64().map(|value| (value * 1000.0).round() / 1000.0 + 0.0);
    let zones = explanation["zones"].as_array().unwrap().iter();
    let zones: Vec<Value> =
        zones.map(|zone| json!([zone["requestedCpu"], rounded(&zone["overload"])])).collect();
    let in_zone = &explanation["inZone"];
    json!({"zones": zones, "planned": rounded(&in_zone["planned"]), "best": rounded(&in_zone["best"])})
}

#[test]
fn overload_is_compared_with_what_an_endpoint_requests() {
    // Zone a has half of what endpoints can take and sends a third; b and c keep three quarters of a third.
    let weighted =
        json!({"zones": [[4.0, 0.0], [2.0, 0.0], [2.0, 0.0]], "planned": 0.833, "best": 0.833});
    assert_eq!(figures(&explained("cpu-request")), weighted);
    let equal =
        json!({"zones": [[null, 0.0], [null, 0.0], [null, 0.0]], "planned": 1.0, "best": 1.0});
    assert_eq!(figures(&explained("equal")), equal);
}
