//! Endpoints that count for the CPU that their Pods request: figures compare with that.

use serde_json::{Value, json};
use zonewise_explain::{SnapshotBuilder, documents};
use zonewise_topology::capacity::MissingCpu;

use crate::common::{planner, read};

/// Three zones of the same size with two Pods each. Those in zone a request 2 cores, the others 1.
fn explained(weight: &str) -> Value {
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "web", "annotations": {
            "zonewise.dev/routing-preference": "zonewise.dev/balanced", "zonewise.dev/endpoint-weight": weight}},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    })];
    for (number, zone) in ["a", "b", "c", "a", "b", "c"].into_iter().enumerate() {
        let requests = json!({"requests": {"cpu": if zone == "a" { "2" } else { "1" }}});
        objects.push(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("n{number}"), "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        objects.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("web-{number}"), "namespace": "shop", "uid": format!("p{number}"), "labels": {"app": "web"}},
            "spec": {"nodeName": format!("n{number}"), "containers": [{"name": "c", "resources": requests}]},
            "status": {"phase": "Running", "podIPs": [{"ip": format!("10.244.0.{}", number + 1)}],
                "conditions": [{"type": "Ready", "status": "True"}]},
        }));
    }
    let mut builder = SnapshotBuilder::default();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    read(&mut builder, list.as_bytes());
    let snapshot = builder.finish(MissingCpu::Refuse).0;
    let service = snapshot.service(&("shop".into(), "web".into())).unwrap();
    let explained = documents::explained(&snapshot, &service, &planner(), None).unwrap();
    serde_json::to_value(explained.explanation().unwrap()).unwrap()
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
