//! What follows from deletions, a moment later: the work of the garbage collector and of the
//! namespace controller in a whole cluster.
//!
//! ```text
//!  owner deleted             ─► dependents without another owner: deleted
//!  owner, foreground policy  ─► dependents: deleted; the owner when those that block it are gone
//!  owner, orphan policy      ─► dependents: no longer name it as owner; then the owner
//!  namespace deleted         ─► its objects: deleted; the namespace when it is empty
//! ```

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::delete::{self, DeleteOptions, FOREGROUND, ORPHAN};
use super::{ApiState, NAMESPACES, kind_of, metadata};
use crate::http::request::Propagation;
use crate::objects::kind::KINDS;
use crate::store::{Object, ObjectRef};

/// Works through the queue, which grows while objects are deleted.
pub(crate) fn collect(state: &mut ApiState, now: Timestamp) {
    while let Some(target) = state.to_collect.pop_first() {
        collect_one(state, &target, now);
    }
}

fn collect_one(state: &mut ApiState, target: &ObjectRef, now: Timestamp) {
    let Some(object) = state.store.get(target.resource, &target.key).cloned() else { return };
    if !metadata::is_terminating(&object.value) {
        if object.owners().next().is_some() {
            delete_if_unowned(state, target, &object, now);
        }
        return;
    }
    if target.resource == NAMESPACES {
        return empty_namespace(state, &target.key, now);
    }
    let finalizers = metadata::finalizers(&object.value);
    if finalizers.contains(&ORPHAN) {
        orphan_dependents(state, object.meta("uid"));
        remove_finalizer(state, target, ORPHAN);
    } else if finalizers.contains(&FOREGROUND) {
        delete_dependents(state, target, object.meta("uid"), now);
    }
}

/// Deletes an object with owners if none of them is there to stay.
fn delete_if_unowned(state: &mut ApiState, target: &ObjectRef, object: &Object, now: Timestamp) {
    let owners: Vec<OwnerState> = object.owners().map(|owner| owner_state(state, owner)).collect();
    if owners.contains(&OwnerState::Present) {
        return;
    }
    let has_dependents = !state.store.dependents(object.meta("uid")).is_empty();
    let policy = if owners.contains(&OwnerState::WaitsForDependents) && has_dependents {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    delete_with(state, target, policy, now);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    Present,
    Gone,
    /// It is being deleted in the foreground.
    WaitsForDependents,
}

fn owner_state(state: &ApiState, reference: &Value) -> OwnerState {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let served =
        KINDS.iter().any(|k| k.kind == text("kind") && k.api_version() == text("apiVersion"));
    if !served {
        // An owner of a kind that is not served cannot be looked up: it counts as present.
        return OwnerState::Present;
    }
    let owner = state.store.find_by_uid(text("uid"));
    match owner.and_then(|owner| state.store.get(owner.resource, &owner.key)) {
        None => OwnerState::Gone,
        Some(owner)
            if metadata::finalizers(&owner.value).contains(&FOREGROUND)
                && metadata::is_terminating(&owner.value) =>
        {
            OwnerState::WaitsForDependents
        }
        Some(_) => OwnerState::Present,
    }
}

fn delete_with(state: &mut ApiState, target: &ObjectRef, policy: Propagation, now: Timestamp) {
    let Some(kind) = kind_of(target.resource) else { return };
    let options = DeleteOptions { propagation: Some(policy), ..DeleteOptions::default() };
    // An object that may not be deleted, such as the namespace `default`, stays.
    let _ = delete::remove(state, kind, &target.key, &options, now);
}

/// Foreground deletion of an owner.
fn delete_dependents(state: &mut ApiState, owner: &ObjectRef, uid: &str, now: Timestamp) {
    for dependent in state.store.dependents(uid) {
        if let Some(object) = state.store.get(dependent.resource, &dependent.key).cloned()
            && !metadata::is_terminating(&object.value)
        {
            delete_if_unowned(state, &dependent, &object, now);
        }
    }
    let blocks = |dependent: &ObjectRef| {
        let object = state.store.get(dependent.resource, &dependent.key);
        object.is_some_and(|object| {
            object.owners().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
        })
    };
    if !state.store.dependents(uid).iter().any(blocks) {
        remove_finalizer(state, owner, FOREGROUND);
    }
}

fn orphan_dependents(state: &mut ApiState, uid: &str) {
    for ObjectRef { resource, key } in state.store.dependents(uid) {
        let Some(object) = state.store.get(resource, &key) else { continue };
        let mut value = object.value.clone();
        let others: Vec<Value> =
            object.owners().filter(|owner| owner["uid"] != uid).cloned().collect();
        metadata::set(&mut value, "ownerReferences", (!others.is_empty()).then(|| others.into()));
        state.put(resource, &key, value);
    }
}

/// Removes a finalizer, and with the last one the object.
fn remove_finalizer(state: &mut ApiState, target: &ObjectRef, finalizer: &str) {
    let Some(object) = state.store.get(target.resource, &target.key) else { return };
    let left: Vec<&str> =
        metadata::finalizers(&object.value).into_iter().filter(|one| *one != finalizer).collect();
    let grace = object.value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if left.is_empty() && grace == 0 {
        state.remove(target.resource, &target.key);
        return;
    }
    let mut value = object.value.clone();
    metadata::set(&mut value, "finalizers", (!left.is_empty()).then(|| left.into()));
    state.put(target.resource, &target.key, value);
}

fn empty_namespace(state: &mut ApiState, namespace: &Arc<str>, now: Timestamp) {
    for target in state.store.in_namespace(namespace) {
        let object = state.store.get(target.resource, &target.key);
        if !object.is_none_or(|object| metadata::is_terminating(&object.value)) {
            delete_with(state, &target, Propagation::Background, now);
        }
    }
    let held = state
        .store
        .get(NAMESPACES, namespace)
        .is_none_or(|object| !metadata::finalizers(&object.value).is_empty());
    if !held && state.store.in_namespace(namespace).is_empty() {
        state.remove(NAMESPACES, namespace);
    }
}
