//! The index: apply, delete, and what each change concerns.

use serde_json::{Value, json};
use zonewise_common::name::{Key, Name};
use zonewise_inventory::index::{DeletedSlice, Index, NodeChange, SliceChange};

fn service(name: &str, app: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": {"app": app}}})
}

fn pod(name: &str, app: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": app}},
        "spec": {"nodeName": node},
        "status": {"podIPs": [{"ip": "10.0.0.1"}]},
    })
}

fn slice(name: &str, uid: &str, version: u64, service: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": uid, "resourceVersion": version.to_string(),
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
    })
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn key(name: &str) -> Key {
    ("shop".into(), name.into())
}

fn names(list: &[Name]) -> Vec<&str> {
    list.iter().map(|name| &**name).collect()
}

fn with_services() -> Index {
    let mut index = Index::default();
    for (name, app) in [("web", "web"), ("all-web", "web"), ("db", "db")] {
        assert!(index.apply_service(read(&service(name, app))));
        assert!(!index.apply_service(read(&service(name, app))), "nothing new");
    }
    index
}

#[test]
fn a_pod_concerns_the_services_that_select_it() {
    let mut index = with_services();
    assert_eq!(names(&index.apply_pod(read(&pod("p", "web", "n1")))), ["all-web", "web"]);
    assert_eq!(index.apply_pod(read(&pod("p", "web", "n1"))), [], "nothing new");
    let pods = index.pods_of(&index.service(&key("web")).unwrap());
    assert_eq!(pods.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["p"]);
    assert_eq!(names(&index.delete_pod(&key("p"))), ["all-web", "web"]);
    assert_eq!(index.delete_pod(&key("p")), []);
    assert!(index.pods_of(&index.service(&key("web")).unwrap()).is_empty());
}

#[test]
fn a_pod_that_changes_its_labels_concerns_both_sides() {
    let mut index = with_services();
    index.apply_pod(read(&pod("p", "web", "n1")));
    assert_eq!(names(&index.apply_pod(read(&pod("p", "db", "n1")))), ["all-web", "db", "web"]);
    let mut more = pod("p", "db", "n1");
    more["metadata"]["labels"]["extra"] = "x".into();
    assert_eq!(
        index.apply_pod(read(&more)),
        [],
        "Services that select it before and after are not concerned"
    );
}

#[test]
fn own_writes_are_known_at_once_and_older_events_are_ignored() {
    let mut index = with_services();
    index.record_written_slice(read(&slice("web-1", "u1", 7, "web")));
    assert_eq!(index.slices_of(&key("web")).len(), 1);
    assert_eq!(index.apply_slice(read(&slice("web-1", "u1", 7, "web"))), SliceChange::Known);
    assert_eq!(index.apply_slice(read(&slice("web-1", "u1", 5, "web"))), SliceChange::Known);
    let foreign = index.apply_slice(read(&slice("web-1", "u1", 9, "web")));
    assert_eq!(foreign, SliceChange::Changed(vec!["web".into()]));
    let moved = index.apply_slice(read(&slice("web-1", "u1", 10, "db")));
    assert_eq!(moved, SliceChange::Changed(vec!["web".into(), "db".into()]), "both owners");
}

#[test]
fn a_slice_we_deleted_does_not_come_back_by_an_old_event() {
    let mut index = with_services();
    index.record_written_slice(read(&slice("web-1", "u1", 7, "web")));
    index.record_deleted_slice(&key("web-1"), &"u1".into());
    assert_eq!(index.apply_slice(read(&slice("web-1", "u1", 8, "web"))), SliceChange::Known);
    assert_eq!(index.delete_slice(9, &key("web-1")), None, "expected");
    index.record_written_slice(read(&slice("web-2", "u2", 10, "web")));
    assert_eq!(
        index.delete_slice(11, &key("web-2")),
        Some(DeletedSlice { service: "web".into(), written_here: true }),
        "deleted by another writer"
    );
}

#[test]
fn a_slice_counts_as_written_here_once_this_process_has_written_it() {
    let mut index = with_services();
    index.apply_slice(read(&slice("web-1", "u1", 7, "web")));
    let deleted = index.delete_slice(8, &key("web-1"));
    assert_eq!(deleted, Some(DeletedSlice { service: "web".into(), written_here: false }));
    index.record_written_slice(read(&slice("web-1", "u2", 9, "web")));
    index.apply_slice(read(&slice("web-1", "u2", 10, "web")));
    let deleted = index.delete_slice(11, &key("web-1"));
    assert_eq!(deleted, Some(DeletedSlice { service: "web".into(), written_here: true }));
    index.apply_slice(read(&slice("web-1", "u3", 12, "web")));
    let deleted = index.delete_slice(13, &key("web-1"));
    assert_eq!(deleted, Some(DeletedSlice { service: "web".into(), written_here: false }));
}

#[test]
fn a_list_tells_what_is_gone_but_not_what_is_newer() {
    let mut index = with_services();
    index.record_written_slice(read(&slice("web-1", "u1", 7, "web")));
    index.record_written_slice(read(&slice("web-2", "u2", 20, "web")));
    let listed = std::collections::BTreeSet::new();
    assert_eq!(index.slices_missing_from(&listed, 10), [key("web-1")]);
    assert_eq!(index.services_missing_from(&listed).len(), 3);
}

#[test]
fn a_node_says_what_changed_and_which_services_it_concerns() {
    let node = |zone: &str, ready: &str, cpu: &str| {
        json!({
            "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": zone}},
            "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": ready}]},
        })
    };
    let mut index = with_services();
    index.apply_pod(read(&pod("p", "web", "n1")));
    let change = |capacity, location, reference| NodeChange { capacity, location, reference };
    assert_eq!(index.apply_node(read(&node("a", "True", "4"))), change(true, true, true));
    assert_eq!(index.apply_node(read(&node("a", "True", "4"))), change(false, false, false));
    assert_eq!(index.apply_node(read(&node("a", "True", "8"))), change(true, false, false), "CPU");
    assert_eq!(index.apply_node(read(&node("a", "False", "8"))), change(true, false, true));
    assert_eq!(index.apply_node(read(&node("b", "False", "8"))), change(true, true, true));
    let concerned: Vec<Key> = index.services_on("n1").into_iter().collect();
    assert_eq!(concerned, [key("all-web"), key("web")]);
    assert!(index.delete_node("n1") && !index.delete_node("n1"));
}
