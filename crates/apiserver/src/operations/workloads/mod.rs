//! What keeps Deployments: the work of the deployment and the replicaset controller in a whole cluster.
//!
//! ```text
//!  Deployment ─► deployment (pure) ─► ReplicaSets: created, scaled, deleted; status
//!  ReplicaSet ─► replica_set (pure) ─► Pods: created, deleted; status
//! ```
//!
//! A change of a Deployment, a ReplicaSet or a Pod makes all of them due. They are looked at again until nothing is left
//! to do.

mod deployment;
mod replica_set;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::delete::{self, DeleteOptions};
use super::{ApiRequest, ApiState, metadata, write};
use crate::http::request::{Options, Propagation, ResourcePath};
use crate::objects::kind::{GroupResource, Kind};
use crate::status::StatusError;
use crate::store::Object;

pub(super) const DEPLOYMENTS: GroupResource = ("apps", "deployments");
pub(super) const REPLICA_SETS: GroupResource = ("apps", "replicasets");
pub(super) const PODS: GroupResource = ("", "pods");
/// The field manager of what is written here.
const MANAGER: &str = "kube-controller-manager";
/// So many rounds bring any change to its end: each ends earlier if there is nothing to do. What is left then is done
/// when the next change comes.
const ROUNDS: usize = 50;
/// How often Pods are looked at that count as available only after some seconds.
const AVAILABILITY_CHECK: Duration = Duration::from_secs(1);

/// Whether a change of this resource may make a Deployment or a ReplicaSet due.
pub(super) fn concerns(resource: GroupResource) -> bool {
    [DEPLOYMENTS, REPLICA_SETS, PODS].contains(&resource)
}

/// Brings ReplicaSets and Pods to what Deployments and ReplicaSets ask for. Returns when to look again, if that depends
/// on time.
pub(crate) fn reconcile(state: &mut ApiState, now: Timestamp) -> Option<Duration> {
    for _ in 0..ROUNDS {
        if !std::mem::take(&mut state.workloads_due) {
            break;
        }
        for object in all(state, DEPLOYMENTS) {
            keep_deployment(state, &object, now);
        }
        for object in all(state, REPLICA_SETS) {
            keep_replica_set(state, &object, now);
        }
    }
    let waits = |object: &Arc<Object>| {
        object.value["spec"]["minReadySeconds"].as_i64().is_some_and(|seconds| seconds > 0)
    };
    all(state, REPLICA_SETS).iter().any(waits).then(|| {
        state.workloads_due = true;
        AVAILABILITY_CHECK
    })
}

/// All objects of a resource that are not being deleted.
fn all(state: &ApiState, resource: GroupResource) -> Vec<Arc<Object>> {
    let objects = state.store.objects(resource);
    objects.filter(|object| !metadata::is_terminating(&object.value)).cloned().collect()
}

/// The objects of a resource that an object controls.
fn controlled(state: &ApiState, owner: &Object, resource: GroupResource) -> Vec<Arc<Object>> {
    let uid = owner.meta("uid");
    let dependents = state.store.dependents(uid).into_iter();
    let of_resource = dependents.filter(|dependent| dependent.resource == resource);
    let objects = of_resource.filter_map(|one| state.store.get(resource, &one.key).cloned());
    let controls = |object: &Arc<Object>| {
        object.owners().any(|one| one["uid"] == uid && one["controller"] == true)
    };
    objects.filter(controls).collect()
}

fn keep_deployment(state: &mut ApiState, object: &Arc<Object>, now: Timestamp) {
    let sets = controlled(state, object, REPLICA_SETS);
    let sets: Vec<&Value> = sets.iter().map(|set| &set.value).collect();
    let plan = deployment::plan(&object.value, &sets, &metadata::time(now));
    let namespace = object.meta("namespace").to_owned();
    if let Some(set) = plan.create {
        create(state, REPLICA_SETS, &namespace, set, now);
    }
    for set in plan.update {
        let key = key_of(&set);
        change(state, REPLICA_SETS, &key, set);
    }
    for name in plan.delete {
        remove(state, REPLICA_SETS, &format!("{namespace}/{name}"), now);
    }
    change(state, DEPLOYMENTS, &key_of(&object.value), plan.deployment);
}

fn keep_replica_set(state: &mut ApiState, object: &Arc<Object>, now: Timestamp) {
    let pods = controlled(state, object, PODS);
    let pods: Vec<&Value> = pods.iter().map(|pod| &pod.value).collect();
    let plan = replica_set::plan(&object.value, &pods, now);
    let namespace = object.meta("namespace").to_owned();
    for _ in 0..plan.create {
        if !create(state, PODS, &namespace, replica_set::pod(&object.value), now) {
            break;
        }
    }
    for name in plan.delete {
        remove(state, PODS, &format!("{namespace}/{name}"), now);
    }
    change(state, REPLICA_SETS, &key_of(&object.value), plan.replica_set);
}

fn key_of(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str();
    crate::store::key(namespace, metadata::text(object, "name"))
}

/// Stores a new state of an object, unless it is the one that is stored.
fn change(state: &mut ApiState, resource: GroupResource, key: &str, mut object: Value) {
    let Some(stored) = state.store.get(resource, key) else { return };
    if let Some(kind) = super::kind_of(resource) {
        metadata::count_generation(kind, &stored.value, &mut object);
    }
    if stored.value != object {
        state.put(resource, key, object);
    }
}

fn remove(state: &mut ApiState, resource: GroupResource, key: &str, now: Timestamp) {
    let Some(kind) = super::kind_of(resource) else { return };
    let options =
        DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    // It may have gone in the meantime.
    let _ = delete::remove(state, kind, key, &options, now);
}

/// Creates an object as any client does. Says whether that was possible: a namespace that is being deleted takes none.
fn create(
    state: &mut ApiState,
    resource: GroupResource,
    namespace: &str,
    object: Value,
    now: Timestamp,
) -> bool {
    let made = insert(state, resource, namespace, object, now);
    if let Err(error) = &made {
        tracing::warn!(namespace, resource = resource.1, "not created: {}", error.message);
    }
    made.is_ok()
}

fn insert(
    state: &mut ApiState,
    (group, plural): GroupResource,
    namespace: &str,
    mut object: Value,
    now: Timestamp,
) -> Result<(), StatusError> {
    let kind = Kind::find(group, "v1", plural).ok_or_else(StatusError::no_such_path)?;
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
    let resource =
        ResourcePath { kind, namespace: Some(namespace.to_owned()), name: None, subresource: None };
    let request = ApiRequest {
        resource: &resource,
        options: &Options::default(),
        content_type: "",
        body: &[],
        agent: MANAGER,
        now,
        stale_version: None,
    };
    write::insert(state, &request, object).map(drop)
}

/// The reference by which an object controls what it has made.
fn controller_reference(owner: &Value) -> Value {
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// The number at a pointer; 0 if there is none.
fn count(object: &Value, pointer: &str) -> i64 {
    crate::objects::json::number(object, pointer).unwrap_or(0)
}
