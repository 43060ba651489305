//! Deployments and ReplicaSets as objects, and their number of replicas. No controller runs on either side.

use serde_json::{Value, json};

use super::each;
use crate::requests::{
    Group, Step, delete, get, group, json_patch, merge_patch, post, put, strategic,
};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("deployments", forms("deployments", "Deployment")),
        group("replicasets", forms("replicasets", "ReplicaSet")),
        group("deployments-changes", changes()),
        group("scale", scale()),
    ]
}

fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "labels": {"group": "{ns}"}},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
            },
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

fn forms(path: &'static str, kind: &str) -> Vec<Step> {
    let other_labels = json!({
        "metadata": {"labels": {"app": "other"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
    });
    let no_image = json!({
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]},
    });
    let once = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "main", "image": "example.com/web:1"}],
        },
    });
    let mut steps = each(
        path,
        vec![
            ("plain", workload(kind, "plain", json!({}))),
            ("three", workload(kind, "three", json!({"replicas": 3, "minReadySeconds": 5}))),
            ("none", workload(kind, "none", json!({"replicas": 0}))),
            ("fewer than none", workload(kind, "negative", json!({"replicas": -1}))),
            ("without a selector", workload(kind, "all", json!({"selector": null}))),
            ("other labels", workload(kind, "other", json!({"template": other_labels}))),
            ("no image", workload(kind, "no-image", json!({"template": no_image}))),
            ("runs once", workload(kind, "once", json!({"template": once}))),
        ],
    );
    steps.extend([
        get("table", path).table(),
        get("list", path),
        delete("deleted", &format!("{path}/plain")),
        get("gone", &format!("{path}/plain")),
    ]);
    steps
}

fn changes() -> Vec<Step> {
    let two = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "image": "example.com/web:2"},
    ]}}}});
    let restarted = json!({"spec": {"template": {"metadata": {"annotations": {
        "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z",
    }}}}});
    let selector = json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}});
    let recreate = workload("Deployment", "recreate", json!({"strategy": {"type": "Recreate"}}));
    vec![
        post("made", "deployments", workload("Deployment", "web", json!({}))),
        post("recreated", "deployments", recreate),
        strategic("another image", "deployments/web", two),
        strategic("restarted", "deployments/web", restarted),
        merge_patch("paused", "deployments/web", json!({"spec": {"paused": true}})),
        merge_patch("another selector", "deployments/web", selector),
        put(
            "status",
            "deployments/web/status",
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "status": {"replicas": 1, "observedGeneration": 1},
            }),
        ),
    ]
}

fn scale() -> Vec<Step> {
    let wanted = |replicas: i64| {
        json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "web", "namespace": "{ns}"}, "spec": {"replicas": replicas},
        })
    };
    vec![
        post("made", "deployments", workload("Deployment", "web", json!({}))),
        get("read", "deployments/web/scale"),
        put("to three", "deployments/web/scale", wanted(3)),
        merge_patch("to two", "deployments/web/scale", json!({"spec": {"replicas": 2}})),
        json_patch(
            "to four",
            "deployments/web/scale",
            json!([{"op": "replace", "path": "/spec/replicas", "value": 4}]),
        ),
        put("to none", "deployments/web/scale", wanted(0)),
        get("none", "deployments/web/scale"),
        put("fewer than none", "deployments/web/scale", wanted(-1)),
        put("to one", "deployments/web/scale", wanted(1)),
        get("after", "deployments/web"),
        get("of nothing", "deployments/nothing/scale"),
        get("of a service", "services/nothing/scale"),
    ]
}
