//! What only the embedded server does, or does by itself: tokens, garbage collection, ending
//! namespaces. In a real cluster controllers do that, which do not run here.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use zonewise_common::testing::{
    NullField, full_lease, full_node, full_pod, full_service, full_slice, null_fields,
};

use crate::groups::{config_map, web};
use crate::requests::{Step, Words, delete, delete_with, get, merge_patch, post};
use crate::servers::Scratch;

/// Everything happens in `default` unless a test says otherwise.
async fn ask(scratch: &Scratch, step: Step) -> (u16, Value) {
    let words = Words::from([("ns", "default".to_owned())]);
    let answer = scratch.side.send(step.request(&words)).await;
    let body = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
    (answer.status().as_u16(), body)
}

async fn made(scratch: &Scratch, path: &str, object: Value) -> Value {
    let (status, body) = ask(scratch, post("make", path, object)).await;
    assert_eq!(status, 201, "{body}");
    body
}

/// Asks until the answer has this status.
async fn until(scratch: &Scratch, path: &str, wanted: u16) -> Value {
    for _ in 0..600 {
        let (status, body) = ask(scratch, get("wait", path)).await;
        if status == wanted {
            return body;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} never gave {wanted}");
}

fn owned(mut object: Value, owner: &Value) -> Value {
    let reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    });
    let owners = &mut object["metadata"]["ownerReferences"];
    if owners.is_null() {
        *owners = json!([]);
    }
    owners.as_array_mut().unwrap().push(reference);
    object
}

fn held(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!(["zonewise.dev/hold"]);
    object
}

fn released() -> Value {
    json!({"metadata": {"finalizers": null}})
}

#[tokio::test]
async fn dependents_are_deleted_with_their_owner() {
    let scratch = Scratch::start().await;
    let owner = made(&scratch, "configmaps", config_map("owner", json!({}))).await;
    let other = made(&scratch, "configmaps", config_map("other", json!({}))).await;
    let child = made(&scratch, "services", owned(web("child"), &owner)).await;
    made(&scratch, "leases", owned(crate::groups::lease("grandchild", json!({})), &child)).await;
    made(&scratch, "configmaps", owned(owned(config_map("shared", json!({})), &owner), &other))
        .await;
    assert_eq!(ask(&scratch, delete("end", "configmaps/owner")).await.0, 200);
    until(&scratch, "services/child", 404).await;
    until(&scratch, "leases/grandchild", 404).await;
    let shared = until(&scratch, "configmaps/shared", 200).await;
    assert_eq!(
        shared["metadata"]["ownerReferences"].as_array().unwrap().last().unwrap()["name"],
        "other"
    );
    scratch.server.stop().await;
}

#[tokio::test]
async fn an_object_of_a_missing_owner_is_deleted() {
    let scratch = Scratch::start().await;
    let owner = made(&scratch, "configmaps", config_map("owner", json!({}))).await;
    ask(&scratch, delete("end", "configmaps/owner")).await;
    made(&scratch, "services", owned(web("late"), &owner)).await;
    until(&scratch, "services/late", 404).await;
    scratch.server.stop().await;
}

#[tokio::test]
async fn foreground_deletion_waits_for_dependents() {
    let scratch = Scratch::start().await;
    let owner = made(&scratch, "configmaps", config_map("owner", json!({}))).await;
    made(&scratch, "services", owned(held(web("child")), &owner)).await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    ask(&scratch, delete_with("end", "configmaps/owner", foreground)).await;
    let waiting = until(&scratch, "configmaps/owner", 200).await;
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    ask(&scratch, merge_patch("release", "services/child", released())).await;
    until(&scratch, "services/child", 404).await;
    until(&scratch, "configmaps/owner", 404).await;
    scratch.server.stop().await;
}

#[tokio::test]
async fn orphans_stay_without_their_owner() {
    let scratch = Scratch::start().await;
    let owner = made(&scratch, "configmaps", config_map("owner", json!({}))).await;
    made(&scratch, "services", owned(web("child"), &owner)).await;
    let orphan = json!({"propagationPolicy": "Orphan"});
    ask(&scratch, delete_with("end", "configmaps/owner", orphan)).await;
    until(&scratch, "configmaps/owner", 404).await;
    let child = until(&scratch, "services/child", 200).await;
    assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
    scratch.server.stop().await;
}

#[tokio::test]
async fn a_namespace_is_deleted_with_its_objects() {
    let scratch = Scratch::start().await;
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    made(&scratch, "namespaces", space).await;
    let maps = "/api/v1/namespaces/shop/configmaps";
    made(&scratch, maps, config_map("free", json!({}))).await;
    made(&scratch, maps, held(config_map("held", json!({})))).await;
    made(&scratch, "/api/v1/namespaces/shop/services", web("web")).await;
    made(&scratch, "configmaps", config_map("elsewhere", json!({}))).await;
    assert_eq!(ask(&scratch, delete("end", "namespaces/shop")).await.0, 200);
    until(&scratch, &format!("{maps}/free"), 404).await;
    until(&scratch, "/api/v1/namespaces/shop/services/web", 404).await;
    let ending = until(&scratch, "namespaces/shop", 200).await;
    assert_eq!(ending["status"]["phase"], "Terminating");
    assert_eq!(ask(&scratch, post("too late", maps, config_map("late", json!({})))).await.0, 403);
    ask(&scratch, merge_patch("release", &format!("{maps}/held"), released())).await;
    until(&scratch, "namespaces/shop", 404).await;
    assert_eq!(ask(&scratch, get("elsewhere", "configmaps/elsewhere")).await.0, 200);
    scratch.server.stop().await;
}

#[tokio::test]
async fn requests_need_the_token() {
    let scratch = Scratch::start().await;
    let right = format!("Bearer {}", scratch.server.token());
    for (token, wanted) in
        [(None, 401), (Some("Bearer wrong"), 401), (Some("Basic YTpi"), 401), (Some(&*right), 200)]
    {
        let mut request = Request::get("/api/v1/namespaces");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let answer = scratch.without_token().await.send(request.body(Vec::new()).unwrap()).await;
        assert_eq!(answer.status(), wanted, "{token:?}");
    }
    scratch.server.stop().await;
}

/// What differs from one request to the next.
fn lasting((status, mut body): (u16, Value)) -> (u16, Value) {
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        for changing in ["uid", "creationTimestamp", "managedFields", "resourceVersion"] {
            metadata.remove(changing);
        }
    }
    // Addresses and ports that the server has chosen.
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        for allocated in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            spec.remove(allocated);
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port["nodePort"] = Value::Null;
        }
    }
    (status, body)
}

/// A field that is `null` is stored as if it were absent, in every kind that the controller and the proxies
/// read. Dry runs, so that each object can have the same name and addresses.
#[tokio::test]
async fn null_in_any_field_is_stored_as_absent() {
    let scratch = Scratch::start().await;
    let kinds = [
        ("nodes", full_node()),
        ("pods", full_pod()),
        ("services", full_service()),
        ("endpointslices", full_slice()),
        ("leases", full_lease()),
    ];
    for (resource, mut object) in kinds {
        let metadata = object["metadata"].as_object_mut().unwrap();
        for set_by_the_server in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
            metadata.remove(set_by_the_server);
        }
        let path = format!("{resource}?dryRun=All");
        for NullField { path: field, null, absent } in null_fields(&object) {
            let stored = |object| ask(&scratch, post("dry", &path, object));
            let (null, absent) = (lasting(stored(null).await), lasting(stored(absent).await));
            assert_eq!(null, absent, "{resource} {field}");
        }
    }
}
