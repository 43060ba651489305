//! What several of these tests begin with.

use serde_json::{Value, json};
use zonewise_explain::input::{self, Options};
use zonewise_explain::{Depth, Environment, Planner, ProxyKind, SnapshotBuilder, documents};
use zonewise_slices::settings::Settings;
use zonewise_topology::capacity::MissingCpu;

/// The controller's default settings, with our proxy on every node.
pub(crate) fn planner() -> Planner {
    Planner {
        settings: Settings::default(),
        missing_cpu: MissingCpu::Refuse,
        depth: Depth::Full,
        proxy_kind: ProxyKind::Zonewise,
        environment: Environment::assumed(ProxyKind::Zonewise),
    }
}

/// Reads manifests, with the text that proxies read.
pub(crate) fn read(builder: &mut SnapshotBuilder, text: &[u8]) {
    let kept = Options { keep_json: true };
    input::read("f", text, &kept, &mut |item| builder.add(item), &|_| ()).unwrap();
}

/// The explanation of `shop/web` with three zones of the same size and two Pods in each. The annotations are the
/// Service's, and the containers of a Pod depend on its zone.
pub(crate) fn explained_web(
    annotations: &Value,
    containers: impl Fn(&str) -> Value,
    mut objects: Vec<Value>,
) -> Value {
    objects.push(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "web", "annotations": annotations},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }));
    for (number, zone) in ["a", "b", "c", "a", "b", "c"].into_iter().enumerate() {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("n{number}"), "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        objects.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("web-{number}"), "namespace": "shop", "uid": format!("p{number}"), "labels": {"app": "web"}},
            "spec": {"nodeName": format!("n{number}"), "containers": containers(zone)},
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
