//! Watches: each test does the same on both servers, and the events must be equal.

use serde_json::{Value, json};

use crate::groups::{config_map, event, labelled, lease, new_event, node, pod, service, slice};
use crate::normal::Normal;
use crate::protobuf;
use crate::requests::{Step, Words, delete, get, merge_patch, post};
use crate::servers::{Pair, Side};
use crate::stream::Stream;

const JSON: &str = "application/json";
const FORMS: [&str; 2] = [JSON, protobuf::MEDIA_TYPE];

/// One server, one namespace.
struct Scene<'a> {
    side: &'a Side,
    words: Words,
}

impl<'a> Scene<'a> {
    async fn new(side: &'a Side, namespace: &str) -> Self {
        let scene = Self { side, words: Words::from([("ns", namespace.to_owned())]) };
        let space =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        scene.send(post("namespace", "namespaces", space)).await;
        scene
    }

    /// The answer to a request that must succeed.
    async fn send(&self, step: Step) -> Value {
        let answer = self.side.send(step.request(&self.words)).await;
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        assert!(answer.status().is_success(), "{} on {}: {text}", step.name, self.side.name);
        if answer.headers()["content-type"] == protobuf::MEDIA_TYPE {
            return protobuf::read(answer.body()).object;
        }
        serde_json::from_str(&text).unwrap()
    }

    /// The version of the whole server, by a list.
    async fn version(&self) -> String {
        let list = self.send(get("version", "configmaps?limit=1")).await;
        list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    }

    async fn watch(&self, query: &str) -> Stream {
        self.watch_kind("configmaps", query, JSON).await
    }

    async fn watch_kind(&self, plural: &str, query: &str, accept: &str) -> Stream {
        let step = get("watch", &format!("{plural}?watch=true&{query}"));
        let path = step.request(&self.words).uri().to_string();
        Stream::open(self.side, &path, accept).await
    }

    async fn make(&self, name: &str, app: &str) -> Value {
        let object = labelled(config_map(name, json!({})), json!({"app": app}));
        self.send(post("make", "configmaps", object)).await
    }

    async fn label(&self, name: &str, app: &str) -> Value {
        let patch = json!({"metadata": {"labels": {"app": app}}});
        self.send(merge_patch("label", &format!("configmaps/{name}"), patch)).await
    }

    async fn remove(&self, name: &str) -> Value {
        self.send(delete("remove", &format!("configmaps/{name}"))).await
    }
}

/// Runs a scenario on both servers; the results must be equal.
macro_rules! on_both {
    ($namespace:expr, $scene:ident => $story:expr) => {{
        let pair = Pair::get();
        let mut tellings = Vec::new();
        for side in pair.sides() {
            let events: Vec<Value> = pair.run(async {
                let $scene = Scene::new(side, $namespace).await;
                $story
            });
            tellings.push((side.name, normal(events)));
        }
        let (_, real) = &tellings[0];
        for (name, telling) in &tellings {
            assert_eq!(telling, real, "the {name} server");
        }
    }};
}

/// Events without versions, uids and times.
fn normal(mut events: Vec<Value>) -> Vec<Value> {
    let mut normal = Normal::default();
    events.iter_mut().for_each(|event| normal.body(event));
    events
}

/// Names and types alone.
fn brief(events: &[Value]) -> Vec<Value> {
    let brief = |event: &Value| {
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        json!(format!("{} {name}", event["type"].as_str().unwrap()))
    };
    events.iter().map(brief).collect()
}

#[test]
fn a_watch_from_now_shows_changes() {
    on_both!("w-now", scene => {
        scene.make("before", "web").await;
        let version = scene.version().await;
        let mut watch = scene.watch(&format!("resourceVersion={version}")).await;
        scene.make("one", "web").await;
        scene.label("one", "shop").await;
        scene.label("one", "shop").await;
        scene.remove("one").await;
        scene.make("last", "web").await;
        watch.take(4).await
    });
}

#[test]
fn a_watch_without_a_version_begins_with_existing_objects() {
    for (namespace, query) in [("w-zero", "resourceVersion=0"), ("w-unset", "")] {
        on_both!(namespace, scene => {
            scene.make("a", "web").await;
            scene.make("b", "web").await;
            let mut watch = scene.watch(query).await;
            let mut events = watch.take(2).await;
            events.sort_by_key(|event| event["object"]["metadata"]["name"].to_string());
            scene.remove("a").await;
            events.extend(watch.take(1).await);
            events
        });
    }
}

#[test]
fn a_watch_from_an_old_version_repeats_the_changes() {
    on_both!("w-past", scene => {
        let first = scene.make("a", "web").await;
        scene.label("a", "shop").await;
        scene.make("b", "web").await;
        scene.remove("a").await;
        let version = first["metadata"]["resourceVersion"].as_str().unwrap();
        let mut watch = scene.watch(&format!("resourceVersion={version}")).await;
        watch.take(3).await
    });
}

#[test]
fn an_object_starts_and_stops_matching_a_selector() {
    on_both!("w-labels", scene => {
        let version = scene.version().await;
        let mut watch =
            scene.watch(&format!("resourceVersion={version}&labelSelector=app%3Dweb")).await;
        scene.make("one", "shop").await;
        scene.label("one", "web").await;
        scene.send(merge_patch("data", "configmaps/one", json!({"data": {"a": "1"}}))).await;
        scene.label("one", "shop").await;
        scene.label("one", "web").await;
        scene.remove("one").await;
        scene.make("end", "web").await;
        watch.take(6).await
    });
}

#[test]
fn selectors_apply_to_old_changes_too() {
    on_both!("w-past-labels", scene => {
        let version = scene.version().await;
        scene.make("one", "web").await;
        scene.label("one", "shop").await;
        scene.make("two", "shop").await;
        scene.remove("two").await;
        scene.label("one", "web").await;
        let query = format!("resourceVersion={version}&labelSelector=app%3Dweb");
        scene.watch(&query).await.take(3).await
    });
}

#[test]
fn pods_are_watched_by_their_node() {
    on_both!("w-fields", scene => {
        let version = scene.version().await;
        let query = format!("resourceVersion={version}&fieldSelector=spec.nodeName%3Da1");
        let mut watch = scene.watch_kind("pods", &query, JSON).await;
        scene.send(post("pod", "pods", pod("one"))).await;
        let bound = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"},
            "target": {"kind": "Node", "name": "a1"},
        });
        scene.send(post("bind", "pods/one/binding", bound)).await;
        scene.send(delete("end", "pods/one?gracePeriodSeconds=0")).await;
        brief(&watch.take(2).await)
    });
}

#[test]
fn one_object_is_watched_by_its_name() {
    on_both!("w-name", scene => {
        let version = scene.version().await;
        let query = format!("resourceVersion={version}&fieldSelector=metadata.name%3Done");
        let mut watch = scene.watch(&query).await;
        scene.make("other", "web").await;
        scene.make("one", "web").await;
        scene.remove("other").await;
        scene.remove("one").await;
        watch.take(2).await
    });
}

#[test]
fn a_watch_ends_after_its_timeout() {
    for (namespace, form) in [("w-timeout", JSON), ("w-timeout-protobuf", protobuf::MEDIA_TYPE)] {
        on_both!(namespace, scene => {
            scene.make("one", "web").await;
            let query = "resourceVersion=0&timeoutSeconds=1";
            scene.watch_kind("configmaps", query, form).await.rest().await
        });
    }
}

#[test]
fn bookmarks_have_the_version_of_the_watch() {
    on_both!("w-bookmarks", scene => {
        scene.make("one", "web").await;
        let query = "resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=10";
        // The real server sends one two seconds before the end of the watch, unless it is too busy then.
        let mut events = Vec::new();
        for _ in 0..5 {
            events = scene.watch(query).await.rest().await;
            if events.iter().any(|event| event["type"] == "BOOKMARK") {
                break;
            }
        }
        // The real server may send a bookmark after the initial events unasked, and others at times
        // of its own choice.
        events.retain(|event| event["object"]["metadata"]["annotations"].is_null());
        events.dedup_by_key(|event| event["type"].to_string());
        for event in &mut events {
            event["object"]["metadata"]["resourceVersion"] = json!("some");
        }
        events
    });
}

#[test]
fn initial_events_end_with_a_bookmark() {
    for (namespace, form) in [("w-initial", JSON), ("w-initial-protobuf", protobuf::MEDIA_TYPE)] {
        on_both!(namespace, scene => {
            scene.make("a", "web").await;
            scene.make("b", "web").await;
            let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                         allowWatchBookmarks=true";
            let mut watch = scene.watch_kind("configmaps", query, form).await;
            let mut events = watch.take(2).await;
            events.sort_by_key(|event| event["object"]["metadata"]["name"].to_string());
            let mut end = watch.take(1).await;
            end[0]["object"]["metadata"]["resourceVersion"] = json!("some");
            events.extend(end);
            scene.make("c", "web").await;
            // Another bookmark may come between.
            let mut next = watch.take(1).await;
            while next[0]["type"] == "BOOKMARK" {
                next = watch.take(1).await;
            }
            events.extend(next);
            events
        });
    }
}

/// Objects of each kind that informers follow in a lab.
fn followed() -> Vec<(&'static str, Value)> {
    vec![
        ("pods", pod("one")),
        ("services", service("one", json!({"clusterIP": "None", "ports": [{"port": 80}]}))),
        ("endpointslices", slice("one", json!([{"addresses": ["10.1.2.3"]}]))),
        ("leases", lease("one", json!({"holderIdentity": "me"}))),
        ("events", event("one")),
        ("newevents", new_event("two")),
        ("nodes", node("{ns}-one")),
        ("namespaces", labelled(space("{ns}-more"), json!({"group": "{ns}"}))),
    ]
}

fn space(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// What an informer of client-go asks for: a watch that begins with all objects; or, where a server does
/// not know that, a list from the cache and a watch from its version.
#[test]
fn informers_are_served_for_every_kind() {
    let all = FORMS.into_iter().flat_map(|form| followed().into_iter().map(move |one| (form, one)));
    for (number, (form, (plural, object))) in all.enumerate() {
        on_both!(&format!("w-informer-{number}"), scene => {
            let narrow = match plural {
                "nodes" | "namespaces" => format!("&labelSelector=group%3D{}", scene.words["ns"]),
                _ => String::new(),
            };
            let made = scene.send(post("make", plural, object.clone())).await;
            let name = made["metadata"]["name"].as_str().unwrap();
            let listing = format!("allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&\
                sendInitialEvents=true&timeoutSeconds=300{narrow}");
            let mut listed = scene.watch_kind(plural, &listing, form).await;
            let mut events = listed.take(2).await;
            let list = format!("{plural}?limit=500&resourceVersion=0{narrow}");
            let list = scene.send(get("list", &list).header("accept", form)).await;
            let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let following = format!("allowWatchBookmarks=true&resourceVersion={version}&\
                timeoutSeconds=300{narrow}");
            let mut watch = scene.watch_kind(plural, &following, form).await;
            let patch = json!({"metadata": {"annotations": {"zonewise.dev/seen": "1"}}});
            scene.send(merge_patch("change", &format!("{plural}/{name}"), patch)).await;
            for stream in [&mut listed, &mut watch] {
                let mut next = stream.take(1).await;
                while next[0]["type"] == "BOOKMARK" {
                    next = stream.take(1).await;
                }
                events.extend(next);
            }
            // The version of the whole server, and no empty fields, as docs/apiserver.md says.
            let bookmark = events[1]["object"].as_object_mut().unwrap();
            bookmark.retain(|key, _| ["apiVersion", "kind", "metadata"].contains(&key.as_str()));
            bookmark["metadata"]["resourceVersion"] = json!("some");
            events.push(list);
            events
        });
    }
}

#[test]
fn a_watch_without_initial_events_begins_with_changes() {
    on_both!("w-no-initial", scene => {
        scene.make("a", "web").await;
        let query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&\
                     allowWatchBookmarks=true";
        let mut watch = scene.watch(query).await;
        // The watch begins at the latest with the next change.
        scene.make("b", "web").await;
        let mut next = watch.take(1).await;
        while next[0]["type"] == "BOOKMARK" {
            next = watch.take(1).await;
        }
        next
    });
}

#[test]
fn a_watch_can_be_a_table_or_metadata_alone() {
    for (namespace, accept) in [
        ("w-table", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        ("w-metadata", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
        (
            "w-metadata-protobuf",
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ),
    ] {
        on_both!(namespace, scene => {
            scene.make("a", "web").await;
            let mut watch = scene.watch_kind("configmaps", "resourceVersion=0", accept).await;
            let mut events = watch.take(1).await;
            scene.label("a", "shop").await;
            scene.remove("a").await;
            events.extend(watch.take(2).await);
            // Descriptions of columns differ, as docs/apiserver.md says.
            for event in &mut events {
                let columns = event["object"]["columnDefinitions"].as_array_mut();
                columns.into_iter().flatten().for_each(|column| column["description"] = json!(""));
                event["object"]["metadata"]["resourceVersion"] = json!("some");
            }
            events
        });
    }
}

#[test]
fn a_watch_of_a_missing_namespace_is_empty() {
    on_both!("w-empty", scene => {
        scene.watch("resourceVersion=0&timeoutSeconds=1&labelSelector=none").await.rest().await
    });
}

/// The number of writers, and of the objects of each.
const WRITERS: usize = 4;
const EACH: usize = 25;

#[test]
fn no_event_is_lost_or_out_of_order() {
    on_both!("w-order", scene => {
        let version = scene.version().await;
        let mut watch = scene.watch(&format!("resourceVersion={version}")).await;
        let write = async |writer: usize| {
            for n in 0..EACH {
                let name = format!("w{writer}-{n}");
                scene.make(&name, "web").await;
                scene.label(&name, "shop").await;
                if n % 2 == 0 {
                    scene.remove(&name).await;
                }
            }
        };
        tokio::join!(write(0), write(1), write(2), write(3));
        let gone = EACH.div_ceil(2);
        let events = watch.take(WRITERS * (2 * EACH + gone)).await;
        let versions: Vec<u64> = events.iter().map(version_of).collect();
        assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
        let list = scene.send(get("list", "configmaps")).await;
        assert_eq!(left(&events), names(&list));
        vec![json!(names(&list))]
    });
}

fn version_of(event: &Value) -> u64 {
    event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The names of the objects that exist after these events.
fn left(events: &[Value]) -> Vec<String> {
    let mut left = std::collections::BTreeSet::new();
    for event in events {
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "ADDED" => assert!(left.insert(name), "added twice"),
            "MODIFIED" => assert!(left.contains(&name), "changed before it was there"),
            _ => assert!(left.remove(&name), "gone before it was there"),
        }
    }
    left.into_iter().collect()
}

fn names(list: &Value) -> Vec<String> {
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}
