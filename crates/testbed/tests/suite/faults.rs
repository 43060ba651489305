//! What can be broken: the server, its store, its history, the network before it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;
use zonewise_testbed::objects::{node, service};
use zonewise_testbed::{Cluster, Gate, Objects, User};

/// Long enough for a healthy answer, short enough to wait for one that does not come.
const MOMENT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn faults_begin_and_end() {
    let cluster = Cluster::start().await.unwrap();
    a_cut_gate_is_silent_and_a_healed_one_resets(&cluster).await;
    a_paused_store_gives_no_answer(&cluster).await;
    a_killed_server_comes_back_with_its_data_and_no_history(&cluster).await;
}

async fn a_cut_gate_is_silent_and_a_healed_one_resets(cluster: &Cluster) {
    let gate = Gate::open(cluster).await.unwrap();
    let objects = Objects::new(cluster.client_through(User::Admin, &gate).unwrap());
    let mut watch = objects.watch::<Value>("Node", None).await.unwrap();
    assert_eq!(gate.accepted(), 1);
    assert!(gate.bytes_up() > 0 && gate.bytes_down() > 0);

    gate.cut();
    let relayed = (gate.bytes_up(), gate.bytes_down());
    cluster.create(&[node("behind-the-gate", "a", "4")]).await.unwrap();
    let get = objects.get("Node", None, "behind-the-gate");
    let (old, new) = tokio::join!(timeout(MOMENT, watch.next()), timeout(MOMENT, get));
    assert!(old.is_err(), "a cut watch ends with neither an event nor an error");
    assert!(new.is_err(), "a new connection hangs");
    assert_eq!((gate.bytes_up(), gate.bytes_down()), relayed);

    gate.heal();
    assert!(watch.next().await.is_err(), "the watch of before is reset");
    let found = objects.get("Node", None, "behind-the-gate").await.unwrap();
    assert!(found.is_some(), "new connections work");

    let mut watch = objects.watch::<Value>("Node", None).await.unwrap();
    assert!(watch.next().await.unwrap().is_some());
    gate.reset_all();
    assert!(watch.next().await.is_err());
}

async fn a_paused_store_gives_no_answer(cluster: &Cluster) {
    cluster.pause_etcd().unwrap();
    let pending = [service("default", "late", "late")];
    assert!(timeout(MOMENT, cluster.create(&pending)).await.is_err());
    cluster.resume_etcd().unwrap();
    let objects = cluster.objects().unwrap();
    let services = objects.list("Service", Some("default"));
    assert!(timeout(MOMENT * 10, services).await.unwrap().is_ok());
}

async fn a_killed_server_comes_back_with_its_data_and_no_history(cluster: &Cluster) {
    let before = cluster.objects().unwrap().get("Node", None, "behind-the-gate").await.unwrap();
    let version = before.unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    cluster.create(&[node("later", "b", "4")]).await.unwrap();

    cluster.compact_etcd().await.unwrap();
    cluster.kill_apiserver().unwrap();
    assert!(cluster.list("Node", None).await.is_err());
    cluster.start_apiserver().await.unwrap();
    assert_eq!(cluster.list("Node", None).await.unwrap().len(), 2);

    let old = format!("/api/v1/nodes?watch=true&timeoutSeconds=5&resourceVersion={version}");
    let request = http::Request::get(old).body(Vec::new()).unwrap();
    let answer = cluster.admin().unwrap().request_text(request).await.unwrap();
    let event: Value = serde_json::from_str(answer.lines().next().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()));
}
