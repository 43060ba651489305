//! Endpoints that count by the CPU that they use: what the leading controller has stored decides here, too, and is told.

use serde_json::{Value, json};

use crate::common::explained_web;

fn config_map(by_use: Option<Value>) -> Value {
    let state = json!({"v": 1, "at": 0, "zones": [], "services": {}});
    let mut stored = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "zonewise-demand", "namespace": "zonewise-system"},
        "data": {"state": state.to_string()},
    });
    if let Some(by_use) = by_use {
        stored["data"]["use"] = by_use.to_string().into();
    }
    stored
}

/// What is stored of these zones.
fn of_zones(zones: &Value, fault: Option<&str>) -> Option<Value> {
    let mut stored = json!({"v": 1, "at": 1_763_430_000_000_u64, "services": {"shop/web": {"z": zones, "r": 9}}});
    if let Some(fault) = fault {
        stored["f"] = fault.into();
    }
    Some(stored)
}

fn explained(weight: &str, by_use: Option<Value>) -> Value {
    let annotations = json!({
        "zonewise.dev/routing-preference": "zonewise.dev/balanced", "zonewise.dev/endpoint-weight": weight,
    });
    explained_web(&annotations, |_| json!([{"name": "c"}]), vec![config_map(by_use)])
}

/// The notes as reason, source and value, and the part of the traffic that stays in its zone as planned.
fn told(weight: &str, by_use: Option<Value>) -> (Vec<[String; 3]>, f64) {
    let explanation = explained(weight, by_use);
    let notes = explanation["notes"].as_array().unwrap().iter();
    let text = |note: &Value| {
        ["reason", "source", "value"].map(|key| note[key].as_str().unwrap().to_owned())
    };
    let planned = explanation["inZone"]["planned"].as_f64().unwrap();
    (notes.map(text).collect(), (planned * 1000.0).round() / 1000.0)
}

#[test]
fn what_zones_use_and_count_for_decides_where_the_service_asks_for_it_and_is_told() {
    // Zone a takes a sixth of all traffic, as if it counted for 40 %.
    let zones = json!({
        "a": [80, "u", 4, 3, 812, 20, 0], "b": [200, "l", 4, 4, 95, 35, 0], "c": [200, "w", 4, 0, 0, 35, 0],
    });
    let (notes, planned) = told("cpu-use", of_zones(&zones, None));
    let notes: Vec<String> = notes.iter().map(|note| note.join(" | ")).collect();
    let begins = [
        "UseWeighted | zone a | its endpoints count for 80 %; they use 812 m of CPU on average, 3 of 4 measured, ",
        "UseLimited | zone b | its endpoints count for 200 %; they use 95 m of CPU on average, 4 of 4 measured, ",
        "UseWeighted | zone c | its endpoints count for 200 %; what they use is not known",
    ];
    assert_eq!(notes.len(), 3, "{notes:?}");
    for (note, begin) in notes.iter().zip(begins) {
        assert!(note.starts_with(begin), "{note}");
    }
    assert!(notes[0].ends_with(" s ago"), "{notes:?}");
    assert!((planned - 0.833).abs() < 1e-9, "{planned}");
    assert_eq!(told("equal", of_zones(&zones, None)), (Vec::new(), 1.0));
}

#[test]
fn overload_and_what_is_best_are_compared_with_what_endpoints_count_for() {
    let zones = json!({
        "a": [80, "u", 4, 4, 812, 20, 0], "b": [200, "u", 4, 4, 95, 35, 0], "c": [200, "u", 4, 4, 95, 35, 0],
    });
    // What stays in its zone at best, in thousandths, and the overload of each zone.
    let figures = |weight: &str| {
        let explanation = explained(weight, of_zones(&zones, None));
        let best = explanation["inZone"]["best"].as_f64().unwrap();
        let zones = explanation["zones"].as_array().unwrap().iter();
        let overloads: Vec<i64> = zones
            .map(|zone| (zone["overload"].as_f64().unwrap() * 1000.0).round() as i64)
            .collect();
        ((best * 1000.0).round() as i64, overloads)
    };
    assert_eq!(figures("cpu-use"), (833, vec![0, 0, 0]));
    assert_eq!(figures("equal"), (1000, vec![0, 0, 0]));
}

#[test]
fn why_endpoints_do_not_count_by_use_is_told() {
    let zones = json!({"a": [100, "m", 2, 0, 0, 0, 0]});
    let empty = || Some(json!({"v": 1, "at": 0, "f": "forbidden", "services": {}}));
    let rows = [
        (None, vec!["UseNotCollected"]),
        (Some(json!("{]")), vec!["DemandUnreadable"]),
        (Some(json!({"v": 1, "at": 0, "services": {}})), vec!["UseNotMeasured"]),
        (empty(), vec!["PodMetricsForbidden"]),
        (of_zones(&zones, Some("missing")), vec!["PodMetricsMissing", "UseNotMeasured"]),
    ];
    for (by_use, expected) in rows {
        let (notes, planned) = told("cpu-use", by_use.clone());
        let reasons: Vec<&str> = notes.iter().map(|[reason, ..]| &**reason).collect();
        assert_eq!((reasons, planned), (expected, 1.0), "{by_use:?}");
    }
}
