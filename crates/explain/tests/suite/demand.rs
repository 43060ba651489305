//! What the leading controller has stored of measured demand, as `explain`, `plan` and `route` tell it, from a dump.

use serde_json::{Value, json};
use zonewise_explain::documents::explained;
use zonewise_explain::screens::{self, Width};
use zonewise_explain::{Depth, Explanation, Planner, SnapshotBuilder, name_demand, route_lines};
use zonewise_routing::{FeatureGates, NodeLocation};
use zonewise_topology::capacity::MissingCpu;

use crate::common::{planner, read};
use crate::what_if::{objects, snapshot};

/// The ConfigMap with these shares in force (millionths), this memory, and these notes.
fn stored(shares: [u32; 3], memory: [u32; 3], moving: bool, notes: &Value) -> Value {
    let mut web = json!({"s": shares, "n": memory, "r": 6.5, "a": 3});
    if moving {
        web["m"] = json!(true);
    }
    let at = 1_763_430_000_000_u64;
    let state = json!({"v": 1, "at": at, "zones": ["a", "b", "c"], "services": {"shop/web": web}});
    config_map(&state, notes)
}

fn config_map(state: &Value, notes: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "zonewise-demand", "namespace": "zonewise-system"},
        "data": {"state": state.to_string(), "notes": notes.to_string()},
    })
}

fn dump(asked: &str, config_map: Option<&Value>) -> Vec<Value> {
    let annotations = json!({
        "zonewise.dev/routing-preference": "zonewise.dev/balanced", "zonewise.dev/demand": asked,
    });
    let mut objects = objects(&annotations, &[(2, 4, 4), (2, 4, 4), (2, 4, 4)]);
    objects.extend(config_map.cloned());
    objects
}

fn explanation(dump: &[Value], planner: &Planner) -> Explanation {
    let snapshot = snapshot(dump);
    let service = snapshot.service(&("shop".into(), "web".into())).unwrap();
    let explained = explained(&snapshot, &service, planner, None).unwrap();
    explained.explanation().unwrap().clone()
}

const THIRDS: [u32; 3] = [333_334, 333_333, 333_333];
const HOT: [u32; 3] = [700_000, 200_000, 100_000];

/// A text that cannot be read is not the same as none: nobody may be told that no controller measures.
#[test]
fn a_damaged_config_map_is_a_fault_and_has_a_reason_of_its_own() {
    let state = json!({"v": 1, "at": 0, "zones": [], "services": {}}).to_string();
    let cut = &stored(HOT, [7000, 2000, 1000], false, &json!({}))["data"]["state"];
    let cut = &cut.as_str().unwrap()[..40];
    let rows = [
        ("cut off", json!({"state": cut}), Some("not the expected JSON"), "DemandUnreadable"),
        (
            "later",
            json!({"state": state.replace("\"v\":1", "\"v\":9")}),
            Some("version 9"),
            "DemandUnreadable",
        ),
        (
            "failing",
            json!({"state": state, "failing": "{]"}),
            Some("failing zones"),
            "TooFewConnections",
        ),
        ("whole", json!({"state": state}), None, "TooFewConnections"),
    ];
    for (name, data, cause, reason) in rows {
        let config_map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "zonewise-demand", "namespace": "zonewise-system"}, "data": data,
        });
        let mut dump = dump("measured", Some(&config_map));
        dump[0]["metadata"]["annotations"]["zonewise.dev/failing-zones"] = json!("spill");
        let mut builder = SnapshotBuilder::default();
        let text = json!({"kind": "List", "apiVersion": "v1", "items": dump}).to_string();
        read(&mut builder, text.as_bytes());
        let (snapshot, remarks) = builder.finish(MissingCpu::Refuse);
        let faults: Vec<_> =
            remarks.faults.iter().map(|fault| (&*fault.subject, &*fault.message)).collect();
        match (cause, &faults[..]) {
            (None, []) => {}
            (Some(cause), [(subject, message)]) => {
                assert_eq!(*subject, "ConfigMap zonewise-system/zonewise-demand", "{name}");
                assert!(
                    message.contains(cause) && message.contains("delete the object"),
                    "{name}: {message}"
                );
            }
            _ => panic!("{name}: {faults:?}"),
        }
        let service = snapshot.service(&("shop".into(), "web".into())).unwrap();
        let explained = explained(&snapshot, &service, &planner(), None).unwrap();
        let explanation = explained.explanation().unwrap();
        assert_eq!(explanation.demand.as_ref().unwrap().reason.to_string(), reason, "{name}");
        let noted: Vec<_> = explanation.notes.iter().map(|note| note.reason.to_string()).collect();
        let expected = if cause.is_some() { vec!["DemandUnreadable"] } else { Vec::new() };
        assert_eq!(noted, expected, "{name}");
    }
}

#[test]
fn what_is_stored_is_told_with_its_reason() {
    let empty = json!({"v": 1, "at": 0, "zones": [], "services": {}});
    let notes = |services: Value, full: u32, left: u32| json!({"v": 1, "at": 1_763_430_000_000_u64, "full": full, "left": left, "services": services});
    let none = notes(json!({}), 0, 0);
    let lately = notes(json!({"shop/web": {"w": [12, 600, 4000]}}), 0, 0);
    let one_node = notes(json!({"shop/web": {"p": 0.9}}), 0, 0);
    let left_out = notes(json!({"shop/web": {"f": true}}), 1, 0);
    let rows: [(&str, Option<Value>, &str, f64, u64); 9] = [
        ("no ConfigMap", None, "DemandNotCollected", 0.0, 0),
        (
            "in force",
            Some(stored(HOT, [7000, 2000, 1000], false, &lately)),
            "DemandMeasured",
            0.995,
            2,
        ),
        (
            "on the way",
            Some(stored(THIRDS, [7000, 2000, 1000], true, &none)),
            "DemandChangeLimited",
            0.995,
            0,
        ),
        ("a few", Some(stored(THIRDS, [7, 2, 1], false, &none)), "TooFewConnections", 0.167, 0),
        (
            "one node",
            Some(stored(HOT, [7000, 2000, 1000], false, &one_node)),
            "DemandOfOneNode",
            0.995,
            0,
        ),
        ("too many ask", Some(config_map(&empty, &left_out)), "DemandTableFull", 0.0, 0),
        ("nothing counted", Some(config_map(&empty, &none)), "TooFewConnections", 0.0, 0),
        (
            "it does not fit",
            Some(config_map(&empty, &notes(json!({}), 0, 4))),
            "DemandNotStored",
            0.0,
            0,
        ),
        (
            "by a controller of an earlier release",
            Some(stored(HOT, [7000, 2000, 1000], false, &json!("nothing"))),
            "DemandMeasured",
            0.995,
            0,
        ),
    ];
    for (name, config_map, reason, weight, rewrites) in rows {
        let dump = dump("measured", config_map.as_ref());
        let demand = explanation(&dump, &planner()).demand.unwrap();
        assert_eq!(demand.reason.to_string(), reason, "{name}");
        assert!((demand.weight - weight).abs() < 1e-3, "{name}: {demand:?}");
        assert_eq!(demand.rewrites_in_last_hour as u64, rewrites, "{name}");
        assert_eq!(demand.zones.len(), 3, "{name}");
        let document = serde_json::to_value(&demand).unwrap();
        let is_measured = weight > 0.0;
        assert_eq!(document.get("ifMeasured").is_some(), is_measured, "{name}: {document}");
        assert_eq!(
            document.get("age").and_then(Value::as_f64),
            is_measured.then_some(3.0),
            "{name}"
        );
        let arithmetic = Planner { depth: Depth::Arithmetic, ..planner() };
        let quick = explanation(&dump, &arithmetic).demand.unwrap();
        assert_eq!((quick.reason, quick.if_measured), (demand.reason, None), "{name}");
        let here = planner().environment;
        let screen = screens::explanation(&explanation(&dump, &planner()), &here, Width::Usual);
        assert!(screen.contains("Measured demand") && screen.contains(reason), "{name}: {screen}");
    }
    assert_eq!(explanation(&dump("model", None), &planner()).demand, None, "nobody asks for it");
}

/// Thirds are in force, and 70 % come from zone a: its endpoints get 2.1 times what is fair, and would get what is fair.
#[test]
fn what_would_change_is_told_by_zone_and_endpoint() {
    let config_map = stored(THIRDS, [7000, 2000, 1000], true, &json!({}));
    let demand = explanation(&dump("measured", Some(&config_map)), &planner()).demand.unwrap();
    let change = demand.if_measured.unwrap();
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    let zones: Vec<_> = change
        .zones
        .iter()
        .map(|zone| {
            let load = zone.overload;
            (zone.zone.as_str(), zone.endpoints, rounded(load.in_force), rounded(load.if_measured))
        })
        .collect();
    assert_eq!(zones, [("a", 4, 1.1, 0.0), ("b", 4, -0.4, 0.0), ("c", 4, -0.7, 0.0)]);
    assert_eq!((change.endpoints.len(), change.endpoints_in_all), (12, 12));
    assert!(change.endpoints[..4].iter().all(|load| load.zone == "a"), "{:?}", change.endpoints);
    let in_zone = |part: Option<f64>, expected: f64| (part.unwrap() - expected).abs() < 1e-2;
    assert!(in_zone(change.in_zone.in_force, 1.0), "{change:?}");
    assert!(in_zone(change.in_zone.if_measured, 0.633), "{change:?}");
}

#[test]
fn routes_that_follow_measured_shares_say_so() {
    let config_map = stored(HOT, [7000, 2000, 1000], false, &json!({}));
    for (map, expected) in [(Some(&config_map), Some("DemandMeasured")), (None, None)] {
        let mut dump = dump("measured", map);
        let slices = plan_slices(&dump);
        dump.extend(slices);
        let snapshot = snapshot(&dump);
        let service = snapshot.service(&("shop".into(), "web".into())).unwrap();
        let location = NodeLocation::new("a0", Some("a"), None);
        let view = snapshot.proxy_view(&service);
        let mut lines = route_lines(&view, &location, &FeatureGates::default()).unwrap();
        name_demand(&snapshot.service_snapshot(&service), &mut lines);
        let line = &lines[0];
        assert_eq!(line.reason.to_string(), "SharesApplied");
        assert_eq!(line.demand.map(|code| code.to_string()).as_deref(), expected);
        let words = "what zones send is measured: DemandMeasured";
        assert_eq!(line.sentence.contains(words), expected.is_some(), "{}", line.sentence);
    }
}

/// The slices that the controller would write.
fn plan_slices(dump: &[Value]) -> Vec<Value> {
    let snapshot = snapshot(dump);
    let service = snapshot.service(&("shop".into(), "web".into())).unwrap();
    let plan = planner().plan(&snapshot, &service).unwrap();
    plan.creates.iter().map(|slice| serde_json::to_value(slice).unwrap()).collect()
}
