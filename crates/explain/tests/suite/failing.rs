//! Zones that count for less because they fail: what the leading controller has stored decides here, too.

use serde_json::{Value, json};

use crate::common::explained_web;

/// The Pods in zone a count for 40 %.
fn explained(annotations: &Value) -> Value {
    let failing = json!({"v": 1, "at": 1_763_430_000_000_u64, "services": {
        "shop/web": {"z": {"a": [40, 200, 60, 300], "b": [100, 900, 0, 0]}, "r": 9},
    }});
    let state = json!({"v": 1, "at": 0, "zones": [], "services": {}});
    let stored = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "zonewise-demand", "namespace": "zonewise-system"},
        "data": {"state": state.to_string(), "failing": failing.to_string()},
    });
    explained_web(annotations, |_| json!([{"name": "c"}]), vec![stored])
}

/// The notes, and the parts of the traffic that stay in their zone as planned and at best.
fn figures(annotations: &Value) -> (Vec<String>, [f64; 2]) {
    let explanation = explained(annotations);
    let notes = explanation["notes"].as_array().unwrap().iter();
    let text = |note: &Value| {
        let text = |key: &str| note[key].as_str().unwrap().to_owned();
        format!("{}: {} = {}", text("reason"), text("source"), text("value"))
    };
    let part = |key: &str| {
        let part = explanation["inZone"][key].as_f64().unwrap();
        (part * 1000.0).round() / 1000.0
    };
    (notes.map(text).collect(), [part("planned"), part("best")])
}

#[test]
fn what_is_stored_decides_where_the_service_asks_for_it_and_is_told() {
    let annotations = |preference: &str, failing: &str| json!({"zonewise.dev/routing-preference": preference, "zonewise.dev/failing-zones": failing});
    let told = "ZoneFailing: zone a = its endpoints count for 40 %; 30 % of the connections to them have failed lately";
    // Zone a keeps a sixth of all traffic in place of a third.
    let spilled = (vec![told.to_owned()], [0.833, 1.0]);
    assert_eq!(figures(&annotations("zonewise.dev/balanced", "spill")), spilled);
    let all = (Vec::new(), [1.0, 1.0]);
    assert_eq!(figures(&annotations("zonewise.dev/balanced", "ignore")), all);
    let (notes, in_zone) = figures(&annotations("zonewise.dev/auto", "spill"));
    assert_eq!((notes.len(), in_zone), (1, [1.0, 1.0]), "{notes:?}");
    assert!(notes[0].starts_with("FailingZonesUnused: "), "{notes:?}");
}
