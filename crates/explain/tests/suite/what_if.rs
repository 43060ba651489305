//! What if: the answer is what the same functions say of objects that are so.

use std::sync::Arc;

use serde_json::{Value, json};
use zonewise_explain::what_if::{WhatIf, WhatIfAnswer, WhatIfError, options, what_if};
use zonewise_explain::{Prices, Snapshot, SnapshotBuilder, Tariff};
use zonewise_slices::service::Service;
use zonewise_topology::capacity::MissingCpu;

use crate::common::{planner, read};

/// Nodes, cores of each, and Pods.
pub(crate) type Zone = (usize, u64, usize);

/// Zones `a`, `b`, `c` with so many nodes of so many cores, and so many Pods of `shop/web`, which asks for this.
pub(crate) fn objects(annotations: &Value, zones: &[Zone]) -> Vec<Value> {
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "web", "annotations": annotations},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })];
    let mut number = 0;
    for (zone, (nodes, cores, pods)) in ["a", "b", "c"].iter().zip(zones) {
        for node in 0..*nodes {
            objects.push(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": format!("{zone}{node}"), "labels": {"topology.kubernetes.io/zone": zone}},
                "status": {"allocatable": {"cpu": cores.to_string()}, "conditions": [{"type": "Ready", "status": "True"}]},
            }));
        }
        for pod in 0..*pods {
            number += 1;
            objects.push(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("web-{number:03}"), "namespace": "shop", "uid": format!("p{number}"), "labels": {"app": "web"}},
                "spec": {"nodeName": format!("{zone}{}", pod % nodes.max(&1))},
                "status": {"phase": "Running", "podIPs": [{"ip": format!("10.244.0.{number}")}], "conditions": [{"type": "Ready", "status": "True"}]},
            }));
        }
    }
    objects
}

pub(crate) fn snapshot(objects: &[Value]) -> Snapshot {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let mut builder = SnapshotBuilder::default();
    read(&mut builder, list.as_bytes());
    builder.finish(MissingCpu::Refuse).0
}

fn ask(objects: &[Value], question: &Value) -> Result<WhatIfAnswer, WhatIfError> {
    let snapshot = snapshot(objects);
    let service: Arc<Service> = snapshot.service(&("shop".into(), "web".into())).unwrap();
    let prices = Prices { gb: Some(500.0), ..Prices::new(Tariff::flat(0.02)) };
    let question: WhatIf = serde_json::from_value(question.clone()).unwrap();
    what_if(&snapshot, &service, &planner(), Some(&prices), &question)
}

/// What matters of one side of an answer.
fn figures(side: &Value) -> Value {
    let explanation = &side["plan"]["explanation"];
    let from = side["matrices"][0]["from"].as_array().cloned().unwrap_or_default();
    let rows: Vec<Value> =
        from.iter().map(|row| json!([row["zone"], row["share"], row["to"], row["mode"]])).collect();
    json!({
        "asked": explanation["asked"], "reason": explanation["reason"], "zones": explanation["zones"], "rows": rows,
        "inZone": side["inZone"], "maxOverload": side["maxOverload"], "best": side["best"], "cost": side["cost"],
    })
}

const AUTO: &str = "service.kubernetes.io/topology-mode";

/// Every question is compared with a cluster that really is so.
#[test]
fn the_answer_is_that_of_objects_that_are_so() {
    let start = [(2, 4, 4), (2, 4, 4), (2, 2, 2)];
    let auto = json!({AUTO: "Auto"});
    let balanced = json!({"zonewise.dev/routing-preference": "zonewise.dev/balanced"});
    let subsets = json!({"endpointslice.kubernetes.io/subsetting": "Auto", "zonewise.dev/starting-threshold": "3", "zonewise.dev/padding": "1"});
    let rows: [(Value, &Value, [Zone; 3]); 10] = [
        (json!({}), &auto, start),
        (json!({"endpoints": {"a": 7}}), &auto, [(2, 4, 7), start[1], start[2]]),
        (json!({"endpoints": {"a": 1, "b": 0}}), &auto, [(2, 4, 1), (2, 4, 0), start[2]]),
        (json!({"nodes": {"c": 5}}), &auto, [start[0], start[1], (5, 2, 2)]),
        (json!({"nodes": {"a": 1}}), &auto, [(1, 4, 4), start[1], start[2]]),
        (json!({"cores": {"b": 16}}), &auto, [start[0], (2, 8, 4), start[2]]),
        (json!({"lost": ["c"]}), &auto, [start[0], start[1], (0, 0, 0)]),
        (
            json!({"ask": {"key": "zonewise.dev/routing-preference", "value": "zonewise.dev/balanced"}}),
            &balanced,
            start,
        ),
        (json!({"ask": {"key": ""}}), &json!({}), start),
        (
            json!({"ask": {"key": "endpointslice.kubernetes.io/subsetting", "value": "Auto", "startingThreshold": 3, "padding": 1}, "endpoints": {"c": 4}}),
            &subsets,
            [start[0], start[1], (2, 2, 4)],
        ),
    ];
    for (question, annotations, zones) in rows {
        let answer = ask(&objects(&auto, &start), &question).unwrap();
        let answer = serde_json::to_value(answer.document()).unwrap();
        let so = ask(&objects(annotations, &zones), &json!({})).unwrap();
        let so = serde_json::to_value(so.document()).unwrap();
        assert_eq!(figures(&answer["then"]), figures(&so["now"]), "{question}");
        let asis =
            serde_json::to_value(ask(&objects(&auto, &start), &json!({})).unwrap().document())
                .unwrap();
        assert_eq!(
            figures(&answer["now"]),
            figures(&asis["now"]),
            "{question}: now does not depend on it"
        );
    }
}

#[test]
fn demand_changes_where_traffic_goes_and_not_the_decision() {
    let objects = objects(&json!({AUTO: "Auto"}), &[(2, 4, 4), (2, 4, 4), (2, 4, 4)]);
    let answer = ask(&objects, &json!({"demand": {"a": 60, "b": 20, "c": 20}})).unwrap();
    let answer = serde_json::to_value(answer.document()).unwrap();
    let shares: Vec<&Value> = answer["then"]["matrices"][0]["from"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["share"])
        .collect();
    assert_eq!(shares, [&json!(0.6), &json!(0.2), &json!(0.2)]);
    assert_eq!(answer["then"]["maxOverload"], json!(0.8), "a's four endpoints carry 60 %");
    assert_eq!(
        answer["then"]["plan"]["explanation"]["zones"],
        answer["now"]["plan"]["explanation"]["zones"]
            .clone()
            .as_array()
            .map(|zones| {
                let overloads = [0.8, -0.4, -0.4];
                Value::from(
                    zones
                        .iter()
                        .zip(overloads)
                        .map(|(zone, overload)| {
                            let mut zone = zone.clone();
                            zone["overload"] = json!(overload);
                            zone
                        })
                        .collect::<Vec<_>>(),
                )
            })
            .unwrap()
    );
}

#[test]
fn the_change_is_told_in_words_and_as_yaml() {
    let objects = objects(&json!({AUTO: "Auto"}), &[(2, 4, 4), (2, 4, 4), (2, 2, 2)]);
    let question = json!({
        "endpoints": {"a": 5}, "nodes": {"b": 3}, "lost": ["c"],
        "ask": {"key": "zonewise.dev/routing-preference", "value": "zonewise.dev/balanced"},
    });
    let answer = ask(&objects, &question).unwrap();
    assert_eq!(
        answer.changes,
        [
            "asks for zonewise.dev/balanced (zonewise.dev/routing-preference) instead of Auto (service.kubernetes.io/topology-mode)",
            "zone c is lost",
            "3 nodes in b instead of 2",
            "5 endpoints in a instead of 4",
        ]
    );
    let told: String = answer.changes.iter().map(|change| format!("# {change}\n")).collect();
    let expected = told
        + "\
# kubectl -n shop annotate service web service.kubernetes.io/topology-mode-
apiVersion: v1
kind: Service
metadata:
  annotations:
    zonewise.dev/routing-preference: zonewise.dev/balanced
  name: web
  namespace: shop
";
    assert_eq!(answer.yaml, expected);
}

#[test]
fn what_cannot_be_tried_is_refused_with_the_cause() {
    let objects = objects(&json!({}), &[(1, 4, 1), (1, 4, 1), (1, 4, 1)]);
    let rows = [
        (
            json!({"endpoints": {"a": 1999, "b": 2}, "lost": ["c"]}),
            "2001 endpoints is more than the 2000 that can be tried at once",
        ),
        (json!({"endpoints": {"a": u64::MAX, "b": u64::MAX}}), "is more than the 2000"),
        (
            json!({"endpoints": {"a": 1999}}),
            "2001 endpoints is more than the 2000 that can be tried at once",
        ),
        (json!({"nodes": {"a": 1000, "b": 1000}}), "2001 nodes is more than the 2000"),
        (json!({"demand": {"moon": 1}}), "no node is in zone `moon`"),
        (json!({"cores": {"a": -0.5}}), "the figure of zone `a` must be a number of at least 0"),
        (json!({"cores": {"a": 1e300}}), "is more than the 1000000"),
        (json!({"lost": ["moon"]}), "no node is in zone `moon`"),
        (
            json!({"ask": {"key": "app"}}),
            "`app` is not a key that asks for routing; use one of service.kubernetes.io/topology-mode, ",
        ),
        (
            json!({"ask": {"key": AUTO, "value": "x".repeat(257)}}),
            "a value of 257 bytes is more than the 256",
        ),
    ];
    for (question, expected) in rows {
        let error = ask(&objects, &question).map(|answer| answer.changes).unwrap_err().to_string();
        assert!(error.contains(expected), "{question}: {error}");
    }
}

#[test]
fn a_zone_can_be_lost_only_once_and_does_not_count_then() {
    let objects = objects(&json!({}), &[(1, 4, 1), (1, 4, 1), (1, 4, 1)]);
    let lost = vec!["a"; 10_000];
    let answer = ask(&objects, &json!({"lost": lost, "endpoints": {"a": 9, "b": 1999}})).unwrap();
    assert_eq!(answer.changes, ["zone a is lost", "1999 endpoints in b instead of 1"]);
}

/// What the leading controller has stored of measured demand: `a` sends 70 %.
fn measured() -> Value {
    let state = json!({"v": 1, "at": 1_763_430_000_000_u64, "zones": ["a", "b", "c"], "services": {
        "shop/web": {"s": [700_000, 200_000, 100_000], "n": [700, 200, 100], "r": 6.5, "a": 3},
    }});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "zonewise-demand", "namespace": "zonewise-system"},
        "data": {"state": state.to_string()},
    })
}

/// The share of each zone: by which the controller decides, and which the matrix has.
fn shares(side: &Value) -> (Vec<f64>, Vec<f64>) {
    let of = |rows: &Value| {
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| (row["share"].as_f64().unwrap() * 1000.0).round() / 1000.0).collect()
    };
    (of(&side["plan"]["explanation"]["zones"]), of(&side["matrices"][0]["from"]))
}

#[test]
fn measured_demand_is_what_zones_send_and_the_slider_changes_it() {
    let thirds = vec![0.333, 0.333, 0.333];
    let (stored, tried) = (vec![0.7, 0.2, 0.1], vec![0.1, 0.1, 0.8]);
    let rows = [("measured", stored.clone(), tried.clone()), ("model", thirds.clone(), thirds)];
    for (asked, decided_now, decided_then) in rows {
        let annotations = json!({
            "zonewise.dev/routing-preference": "zonewise.dev/balanced", "zonewise.dev/demand": asked,
        });
        let mut objects = objects(&annotations, &[(2, 4, 4), (2, 4, 4), (2, 4, 4)]);
        objects.push(measured());
        let question = json!({"demand": {"a": 10, "b": 10, "c": 80}});
        let answer = ask(&objects, &question).unwrap();
        let told = [
            "a sends 10 % instead of 70 %",
            "b sends 10 % instead of 20 %",
            "c sends 80 % instead of 10 %",
        ];
        assert_eq!(answer.changes, told);
        let answer = serde_json::to_value(answer.document()).unwrap();
        assert_eq!(shares(&answer["now"]), (decided_now, stored.clone()), "{asked}");
        assert_eq!(shares(&answer["then"]), (decided_then, tried.clone()), "{asked}");
        // The stored figures stay with the side that they are about.
        let figures = |side: &str| !answer[side]["plan"]["explanation"]["demand"].is_null();
        assert_eq!((figures("now"), figures("then")), (true, false), "{asked}");
        let other = ask(&objects, &json!({"endpoints": {"a": 5}})).unwrap();
        assert!(other.then.plan.explanation.demand.is_some(), "{asked}: demand stays as it is");
    }
}

/// Every option that is offered is one that the controller understands.
#[test]
fn the_controller_understands_every_option() {
    let objects = objects(&json!({}), &[(2, 4, 6), (2, 4, 6), (2, 4, 6)]);
    for option in options() {
        let question = json!({"ask": {"key": option.key, "value": option.value}});
        let answer = ask(&objects, &question).unwrap();
        let explanation = &answer.then.plan.explanation;
        assert!(explanation.notes.is_empty(), "{question}: {:?}", explanation.notes);
        if !option.key.is_empty() {
            assert_eq!(explanation.numbers.asked.value, option.value);
        }
    }
}
