//! After a compaction old versions get 410, with a token to continue a list.

use serde_json::{Value, json};
use zonewise_testbed::{Cluster, Options, User};

use crate::groups::config_map;
use crate::protobuf;
use crate::requests::{Words, get, merge_patch, post};
use crate::servers::{Scratch, Side};
use crate::stream::Stream;

#[tokio::test(flavor = "multi_thread")]
async fn old_versions_are_refused_after_a_compaction() {
    // With its watch cache, kube-apiserver would remember more than its store.
    let options = Options::default().apiserver("--watch-cache=false");
    let cluster = Cluster::start_with(options).await.unwrap();
    let real = Side::new("real", cluster.kubeconfig(User::Admin).unwrap()).await;
    let expected = scenario(&real, async || cluster.compact_etcd().await.unwrap()).await;
    let scratch = Scratch::start().await;
    let found = scenario(&scratch.side, async || scratch.server.compact()).await;
    assert_eq!(found, expected);
}

/// What clients see before and after `compact`.
async fn scenario(side: &Side, compact: impl AsyncFn()) -> Value {
    let mut words = Words::from([("ns", "default".to_owned())]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for n in 0..5 {
        let made =
            ask(side, &words, post("make", "configmaps", config_map(&format!("m{n}"), json!({}))))
                .await
                .1;
        words.entry("first").or_insert_with(|| text(&made["metadata"]["resourceVersion"]));
    }
    let (_, page) = ask(side, &words, get("page", "configmaps?limit=2")).await;
    words.insert("next", text(&page["metadata"]["continue"]));
    ask(side, &words, merge_patch("touch", "configmaps/m4", json!({"data": {"a": "1"}}))).await;
    compact().await;
    let (status, mut expired) =
        ask(side, &words, get("go on", "configmaps?limit=2&continue={next}")).await;
    words.insert("again", text(&expired["metadata"]["continue"]));
    expired["metadata"] = json!({});
    let (_, rest) =
        ask(side, &words, get("go on anyway", "configmaps?limit=2&continue={again}")).await;
    let names: Vec<&Value> =
        rest["items"].as_array().unwrap().iter().map(|one| &one["metadata"]["name"]).collect();
    let exact = get("exactly", "configmaps?resourceVersion={first}&resourceVersionMatch=Exact");
    let (code, exact) = ask(side, &words, exact).await;
    json!({
        "continue": [status, expired], "after": names,
        "exact": [code, exact["reason"]], "watch": watch(side, &words["first"], "application/json").await,
        "watch in protobuf": watch(side, &words["first"], protobuf::MEDIA_TYPE).await,
    })
}

async fn ask(side: &Side, words: &Words, step: crate::requests::Step) -> (u16, Value) {
    let answer = side.send(step.request(words)).await;
    (answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap())
}

/// A server may refuse a watch with a status, or with an ERROR event: clients handle both.
async fn watch(side: &Side, version: &str, form: &str) -> Value {
    let path =
        format!("/api/v1/namespaces/default/configmaps?watch=true&resourceVersion={version}");
    let request = http::Request::get(&path).body(kube::client::Body::empty()).unwrap();
    let answer = side.client.send(request).await.unwrap();
    if answer.status() == 410 {
        return json!([410, "Expired"]);
    }
    let event = Stream::open(side, &path, form).await.next().await.unwrap();
    json!([event["object"]["code"], event["object"]["reason"]])
}
