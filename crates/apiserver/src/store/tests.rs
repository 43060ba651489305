use serde_json::json;

use super::*;

const PODS: GroupResource = ("", "pods");
const NODES: GroupResource = ("", "nodes");

fn object(name: &str, label: &str) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"l": label}}})
}

/// Versions 2 to 6: a and b are added, a is changed, b is deleted, c is added.
fn store(limit: usize) -> Store {
    let mut store = Store::new(limit, 1);
    let now = Instant::now();
    store.put(PODS, "x/a", object("a", "1"), now);
    store.put(PODS, "x/b", object("b", "1"), now);
    store.put(PODS, "x/a", object("a", "2"), now);
    store.remove(PODS, "x/b", now);
    store.put(PODS, "y/c", object("c", "1"), now);
    store
}

fn described(objects: &Objects) -> Vec<String> {
    let tell = |(key, object): (&Arc<str>, &Arc<Object>)| {
        format!(
            "{key}={}@{}",
            object.value["metadata"]["labels"]["l"],
            object.meta("resourceVersion")
        )
        .replace('"', "")
    };
    objects.iter().map(tell).collect()
}

#[test]
fn every_remembered_version_can_be_read() {
    let store = store(100);
    let at = |version| described(&store.snapshot(PODS, version).unwrap());
    let nothing: [&str; 0] = [];
    assert_eq!(at(1), nothing);
    assert_eq!(at(2), ["x/a=1@2"]);
    assert_eq!(at(3), ["x/a=1@2", "x/b=1@3"]);
    assert_eq!(at(4), ["x/a=2@4", "x/b=1@3"]);
    assert_eq!(at(5), ["x/a=2@4"]);
    assert_eq!(at(6), ["x/a=2@4", "y/c=1@6"]);
    assert_eq!(store.version(), 6);
}

#[test]
fn events_tell_what_was_and_what_is() {
    let tell = |event: &Arc<WatchEvent>| {
        let label =
            |object: &Object| object.value["metadata"]["labels"]["l"].as_str().unwrap().to_owned();
        (
            event.version,
            event.change,
            event.key.to_string(),
            label(&event.object),
            event.before.as_deref().map(label),
        )
    };
    let events: Vec<_> = store(100).events_since(PODS, 3).unwrap().iter().map(tell).collect();
    let text = String::from;
    assert_eq!(
        events,
        [
            (4, Change::Modified, text("x/a"), text("2"), Some(text("1"))),
            (5, Change::Deleted, text("x/b"), text("1"), Some(text("1"))),
            (6, Change::Added, text("y/c"), text("1"), None),
        ]
    );
}

#[test]
fn the_history_of_each_resource_is_limited() {
    let mut store = store(2);
    assert_eq!(store.events_since(PODS, 3).unwrap_err(), Compacted(4));
    assert_eq!(store.snapshot(PODS, 3).unwrap_err(), Compacted(4));
    assert_eq!(store.events_since(PODS, 4).unwrap().len(), 2);
    assert_eq!(store.events_since(NODES, 1).unwrap().len(), 0, "nothing happened to nodes");
    store.compact();
    assert_eq!(store.events_since(PODS, 5).unwrap_err(), Compacted(6));
    assert_eq!(store.events_since(NODES, 5).unwrap_err(), Compacted(6));
    assert_eq!(store.events_since(PODS, 6).unwrap().len(), 0);
    assert_eq!(store.events_after(NODES, 3).unwrap().len(), 0, "nothing was missed");
    assert_eq!(store.events_after(PODS, 5).unwrap_err(), Compacted(6));
}

#[test]
fn large_objects_are_remembered_for_a_shorter_time() {
    let mut store = Store::new(10_000, 1);
    for _ in 0..100 {
        store.put(PODS, "x/a", object("a", &"x".repeat(1024 * 1024)), Instant::now());
    }
    // 63, not 64: the rest of each object counts as well.
    assert_eq!(store.events_since(PODS, 101 - 63).unwrap().len(), 63);
    assert_eq!(store.events_since(PODS, 101 - 64).unwrap_err(), Compacted(101 - 63));
    store.compact();
    for _ in 0..5 {
        store.put(PODS, "x/a", object("a", ""), Instant::now());
    }
    assert_eq!(store.events_since(PODS, 101).unwrap().len(), 5);
}

/// Clients outlive a server. One that could watch from a version of an earlier server would miss
/// everything that the new one has done up to that number.
#[test]
fn versions_of_an_earlier_server_are_compacted() {
    let mut store = Store::new(9, 1000);
    store.put(PODS, "x/a", object("a", ""), Instant::now());
    assert_eq!(store.events_since(PODS, 999).unwrap_err(), Compacted(1000));
    assert_eq!(store.snapshot(PODS, 999).unwrap_err(), Compacted(1000));
    assert_eq!(store.events_since(PODS, 1000).unwrap().len(), 1);
    assert_eq!(store.version(), 1001);
}

#[test]
fn a_namespace_is_not_a_prefix_of_another() {
    let mut store = Store::new(9, 1);
    for key in ["a/x", "a-b/x", "a/y", "ab/x"] {
        store.put(PODS, key, object(key, ""), Instant::now());
    }
    let objects = store.snapshot(PODS, store.version()).unwrap();
    let keys = |prefix, from| -> Vec<String> {
        range(&objects, prefix, from).map(|(key, _)| key.to_string()).collect()
    };
    assert_eq!(keys("", None), ["a-b/x", "a/x", "a/y", "ab/x"]);
    assert_eq!(keys("a/", None), ["a/x", "a/y"]);
    assert_eq!(keys("a/", Some("a/x\0")), ["a/y"]);
    assert_eq!(store.in_namespace("a").len(), 2);
}

#[test]
fn dependents_are_found_by_the_uid_of_their_owner() {
    let mut store = Store::new(9, 1);
    let mut child = object("child", "");
    child["metadata"]["ownerReferences"] = json!([{"uid": "uid-parent"}]);
    store.put(PODS, "x/child", child, Instant::now());
    assert_eq!(store.dependents("uid-parent"), [ObjectRef::new(PODS, "x/child")]);
    assert_eq!(store.find_by_uid("uid-child"), Some(&ObjectRef::new(PODS, "x/child")));
    store.put(PODS, "x/child", object("child", ""), Instant::now());
    assert_eq!(store.dependents("uid-parent"), []);
    store.remove(PODS, "x/child", Instant::now());
    assert_eq!(store.find_by_uid("uid-child"), None);
}

#[test]
fn items_of_lists_have_no_kind_and_version() {
    let object = Object::new(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}));
    assert_eq!(&object.json_without_type()[..], br#"{"metadata":{"name":"a"}}"#);
}
