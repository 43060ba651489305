//! Deployments and ReplicaSets are kept: what kube-controller-manager does in a whole cluster.

use std::time::Duration;

use serde_json::{Value, json};

use crate::requests::{Step, Words, delete, get, merge_patch, post, strategic};
use crate::servers::Scratch;

async fn ask(scratch: &Scratch, step: Step) -> Value {
    let words = Words::from([("ns", "default".to_owned())]);
    let answer = scratch.side.send(step.request(&words)).await;
    serde_json::from_slice(answer.body()).unwrap()
}

/// Asks until the answer is as it should be.
async fn until(scratch: &Scratch, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut answer = Value::Null;
    for _ in 0..1200 {
        answer = ask(scratch, get("wait", path)).await;
        if fits(&answer) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} stays {answer:#}");
}

fn items(list: &Value) -> &Vec<Value> {
    list["items"].as_array().unwrap()
}

fn names(list: &Value) -> Vec<String> {
    items(list).iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn web(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
            },
        },
    })
}

/// Makes Pods ready, as a kubelet does.
async fn run_pods(scratch: &Scratch) {
    let pods = ask(scratch, get("pods", "pods")).await;
    for name in names(&pods) {
        let status = json!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        }});
        ask(scratch, merge_patch("ready", &format!("pods/{name}/status"), status)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_makes_a_replica_set_and_that_makes_pods() {
    let scratch = Scratch::start().await;
    let made = ask(&scratch, post("web", "deployments", web(3))).await;
    let pods = until(&scratch, "pods", |pods| items(pods).len() == 3).await;
    let sets = ask(&scratch, get("sets", "replicasets")).await;
    assert_eq!(items(&sets).len(), 1);
    let set = &items(&sets)[0];
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    for pod in items(&pods) {
        let owner = &pod["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["uid"]),
            (&json!("ReplicaSet"), &set["metadata"]["uid"])
        );
        let name = pod["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with(&format!("web-{hash}-")), "{name}");
    }
    run_pods(&scratch).await;
    let available = |deployment: &Value| deployment["status"]["availableReplicas"] == 3;
    let deployment = until(&scratch, "deployments/web", available).await;
    let conditions = &deployment["status"]["conditions"];
    assert_eq!(conditions[0]["reason"], "MinimumReplicasAvailable", "{conditions}");

    // A Pod that is deleted comes back under another name; fewer are wanted; none are.
    let gone = names(&pods)[0].clone();
    ask(&scratch, delete("one", &format!("pods/{gone}"))).await;
    until(&scratch, "pods", |pods| items(pods).len() == 3 && !names(pods).contains(&gone)).await;
    let one = json!({"spec": {"replicas": 1}});
    ask(&scratch, merge_patch("scaled", "deployments/web/scale", one)).await;
    until(&scratch, "pods", |pods| items(pods).len() == 1).await;
    ask(&scratch, delete("all", "deployments/web")).await;
    until(&scratch, "pods", |pods| items(pods).is_empty()).await;
    until(&scratch, "replicasets", |sets| items(sets).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_template_replaces_the_pods_step_by_step() {
    let scratch = Scratch::start().await;
    ask(&scratch, post("web", "deployments", web(4))).await;
    let before = until(&scratch, "pods", |pods| items(pods).len() == 4).await;
    run_pods(&scratch).await;
    until(&scratch, "deployments/web", |one| one["status"]["availableReplicas"] == 4).await;
    let image = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "image": "example.com/web:2"},
    ]}}}});
    ask(&scratch, strategic("image", "deployments/web", image)).await;
    // One more than wanted at first, and no more go than may be unavailable until new ones are ready.
    let pods = until(&scratch, "pods", |pods| {
        items(pods).iter().any(|pod| pod["spec"]["containers"][0]["image"] == "example.com/web:2")
    })
    .await;
    assert!(items(&pods).len() <= 5, "{:?}", names(&pods));
    let complete = |deployment: &Value| {
        let status = &deployment["status"];
        status["updatedReplicas"] == 4
            && status["replicas"] == 4
            && status["availableReplicas"] == 4
    };
    for _ in 0..1200 {
        run_pods(&scratch).await;
        if complete(&ask(&scratch, get("web", "deployments/web")).await) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let deployment = until(&scratch, "deployments/web", complete).await;
    let revision = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
    assert_eq!(revision, "2");
    let after = ask(&scratch, get("pods", "pods")).await;
    assert!(names(&after).iter().all(|name| !names(&before).contains(name)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_a_deployment_can_be_deleted() {
    let scratch = Scratch::start().await;
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    ask(&scratch, post("space", "namespaces", space)).await;
    ask(&scratch, post("web", "/apis/apps/v1/namespaces/shop/deployments", web(2))).await;
    until(&scratch, "/api/v1/namespaces/shop/pods", |pods| items(pods).len() == 2).await;
    ask(&scratch, delete("gone", "namespaces/shop")).await;
    until(&scratch, "namespaces/shop", |answer| answer["reason"] == "NotFound").await;
}
