//! The faults of the embedded server, and that the watches of `inventory` survive them.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tokio::time::Instant;
use zonewise_apiserver::{Config, Faults, InProcess};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::ContentType;
use zonewise_common::name::{Key, Name};
use zonewise_inventory::follow::{Cause, IndexListener, WatchedIndex};
use zonewise_inventory::index::NodeChange;

use crate::groups::{config_map, web};
use crate::protobuf;
use crate::requests::{Step, Words, delete, get, post};
use crate::servers::Scratch;
use crate::stream::Stream;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn faults(text: &str) -> Faults {
    text.parse().unwrap()
}

/// The status, or none if the server closed the connection instead of answering.
async fn status(scratch: &Scratch, step: Step) -> Option<u16> {
    let words = Words::from([("ns", "default".to_owned())]);
    let request = step.request(&words).map(kube::client::Body::from);
    Some(scratch.side.client.send(request).await.ok()?.status().as_u16())
}

/// On a paused clock, so that exactly the latency passes.
#[tokio::test(start_paused = true)]
async fn latency_makes_every_request_wait() {
    let server = InProcess::start(Config::default()).unwrap();
    for (text, seconds) in [("latency=1h", 3600), ("latency=0s", 0)] {
        server.set_faults(faults(text));
        let begin = Instant::now();
        let request = Request::get(MAPS).body(Bytes::new()).unwrap();
        assert_eq!(server.respond(request).await.unwrap().status(), 200);
        assert_eq!(begin.elapsed().as_secs(), seconds, "{text}");
    }
}

#[tokio::test]
async fn errors_are_of_all_kinds_and_can_be_switched_off() {
    let scratch = Scratch::start().await;
    scratch.server.set_faults(faults("errors=100%"));
    let mut seen = BTreeSet::new();
    while seen.len() < 4 {
        seen.insert(status(&scratch, get("unlucky", "configmaps")).await);
    }
    assert_eq!(seen, BTreeSet::from([None, Some(429), Some(500), Some(503)]));
    scratch.server.set_faults(Faults::default());
    assert_eq!(status(&scratch, get("lucky", "configmaps")).await, Some(200));
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_break_off_in_the_middle_of_an_event() {
    let scratch = Scratch::start().await;
    scratch.server.set_faults(faults("drop-watches=50ms"));
    let path = format!("{MAPS}?watch=true&resourceVersion=0");
    for form in ["application/json", protobuf::MEDIA_TYPE] {
        // The connection may break before the half of the event has left it.
        let mut cut = false;
        for _ in 0..100 {
            let mut watch = Stream::open(&scratch.side, &path, form).await;
            assert_eq!(watch.next().await, None);
            cut |= watch.is_cut();
            if cut {
                break;
            }
        }
        assert!(cut, "{form}");
    }
}

/// Reads with resourceVersion=0 are stale; others are not.
#[tokio::test]
async fn stale_reads_show_an_old_state() {
    let scratch = Scratch::start().await;
    scratch.server.set_faults(faults("stale=1h"));
    assert_eq!(
        status(&scratch, post("make", "configmaps", config_map("new", json!({})))).await,
        Some(201)
    );
    let count = async |query: &str| {
        let request = Request::get(format!("{MAPS}?{query}")).body(Vec::new()).unwrap();
        let answer = scratch.side.send(request).await;
        let list: Value = serde_json::from_slice(answer.body()).unwrap();
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["metadata"]["name"] == "new")
            .count()
    };
    assert_eq!((count("resourceVersion=0").await, count("").await), (0, 1));
}

#[tokio::test]
async fn faults_can_be_changed_over_http() {
    let scratch = Scratch::start().await;
    let put = |body: &str| {
        let request = Request::put("/zonewise/faults").header("content-type", "application/json");
        request.body(body.as_bytes().to_vec()).unwrap()
    };
    let answer = scratch.side.send(put(r#"{"latency": "1ms..5ms", "stale": "2s"}"#)).await;
    assert_eq!(answer.status(), 200);
    let wrong = scratch.side.send(put(r#"{"latency": "soon"}"#)).await;
    assert_eq!(wrong.status(), 400);
    let shown = scratch.side.send(Request::get("/zonewise/faults").body(Vec::new()).unwrap()).await;
    let shown: Value = serde_json::from_slice(shown.body()).unwrap();
    assert_eq!(shown, json!({"latency": "1ms..5ms", "stale": "2s"}));
}

/// Listens to nothing: the index is what is looked at.
struct Deaf;

impl IndexListener for Deaf {
    fn changed(&self, _: Cause, _: Vec<Key>) {}
    fn service_gone(&self, _: &Key) {}
    fn node_changed(&self, _: &Name, _: NodeChange) {}
    fn listed(&self, _: &'static str) {}
    fn health(&self, _: &'static str, _: Result<(), &ApiError>) {}
    fn rewound(&self) {}
    fn unreadable(&self, _: &'static str, key: &Key, error: &str) {
        panic!("{key:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_survive_all_faults() {
    let scratch = Scratch::start().await;
    let followed = WatchedIndex::new(Deaf);
    let _watches = followed.start(&scratch.side.client, ContentType::default());
    scratch.server.set_faults(faults("errors=20%,latency=0ms..3ms,drop-watches=50ms"));
    for n in 0..60 {
        let name = format!("web-{n}");
        // A request that failed may have been performed all the same.
        while !matches!(
            status(&scratch, post("make", "services", web(&name))).await,
            Some(201 | 409)
        ) {}
        let path = format!("services/{name}");
        while n % 3 == 0 && !matches!(status(&scratch, delete("end", &path)).await, Some(200 | 404))
        {
        }
        if n % 20 == 0 {
            scratch.server.compact();
        }
    }
    scratch.server.set_faults(Faults::default());
    let wanted: BTreeSet<String> =
        (0..60).filter(|n| n % 3 != 0).map(|n| format!("web-{n}")).collect();
    let known = || -> BTreeSet<String> {
        let index = followed.index();
        let here = index.services().filter(|service| &*service.namespace == "default");
        here.map(|service| service.name.to_string())
            .filter(|name| name.starts_with("web-"))
            .collect()
    };
    for _ in 0..600 {
        if known() == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(known(), wanted);
}
