//! What follows from deletions, a moment later: what controllers do in a whole cluster.
//!
//! ```text
//!  owner gone        ─► dependents without another owner: deleted
//!  owner foreground  ─► dependents: deleted; the owner when those that block it are gone
//!  owner orphans     ─► dependents: no longer name it; then the owner
//!  namespace goes    ─► its contents: deleted; the namespace when it is empty
//! ```

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::delete::{self, FOREGROUND, ORPHAN, Terms};
use super::{NAMESPACES, World, kind_of, metadata};
use crate::http::request::Propagation;
use crate::objects::kind::KINDS;
use crate::store::{Object, Place};

/// Looks at everything that has to be looked at.
pub(crate) fn collect(world: &mut World, now: Timestamp) {
    while let Some(place) = world.chores.pop_first() {
        look(world, &place, now);
    }
}

fn look(world: &mut World, place: &Place, now: Timestamp) {
    let Some(object) = world.store.get(place.0, &place.1).cloned() else { return };
    if !metadata::is_going(&object.value) {
        if object.owners().next().is_some() {
            delete_if_unowned(world, place, &object, now);
        }
        return;
    }
    if place.0 == NAMESPACES {
        return empty(world, &place.1, now);
    }
    let tasks = metadata::finalizers(&object.value);
    if tasks.contains(&ORPHAN) {
        orphan(world, object.meta("uid"));
        finish(world, place, ORPHAN);
    } else if tasks.contains(&FOREGROUND) {
        foreground(world, place, object.meta("uid"), now);
    }
}

/// Deletes what has owners, none of which is there or will stay.
fn delete_if_unowned(world: &mut World, place: &Place, object: &Object, now: Timestamp) {
    let states: Vec<Owner> = object.owners().map(|owner| state(world, owner)).collect();
    if states.contains(&Owner::There) {
        return;
    }
    let has_own = !world.store.dependents(object.meta("uid")).is_empty();
    let policy = if states.contains(&Owner::Waiting) && has_own {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    discard(world, place, policy, now);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    There,
    Gone,
    /// It waits for its dependents to go.
    Waiting,
}

fn state(world: &World, reference: &Value) -> Owner {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let served =
        KINDS.iter().any(|k| k.kind == text("kind") && k.api_version() == text("apiVersion"));
    if !served {
        // Nobody can know whether it is there.
        return Owner::There;
    }
    let object = world.store.place(text("uid")).and_then(|(room, key)| world.store.get(*room, key));
    match object {
        None => Owner::Gone,
        Some(owner)
            if metadata::finalizers(&owner.value).contains(&FOREGROUND)
                && metadata::is_going(&owner.value) =>
        {
            Owner::Waiting
        }
        Some(_) => Owner::There,
    }
}

fn discard(world: &mut World, (room, key): &Place, policy: Propagation, now: Timestamp) {
    let Some(kind) = kind_of(*room) else { return };
    let terms = Terms { propagation: Some(policy), ..Terms::default() };
    // What cannot be deleted stays: a namespace that is immortal, for one.
    let _ = delete::remove(world, kind, key, &terms, now);
}

fn foreground(world: &mut World, place: &Place, uid: &str, now: Timestamp) {
    for dependent in world.store.dependents(uid) {
        if let Some(object) = world.store.get(dependent.0, &dependent.1).cloned()
            && !metadata::is_going(&object.value)
        {
            delete_if_unowned(world, &dependent, &object, now);
        }
    }
    let blocks = |(room, key): &Place| {
        let object = world.store.get(*room, key);
        object.is_some_and(|object| {
            object.owners().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
        })
    };
    if !world.store.dependents(uid).iter().any(blocks) {
        finish(world, place, FOREGROUND);
    }
}

fn orphan(world: &mut World, uid: &str) {
    for (room, key) in world.store.dependents(uid) {
        let Some(object) = world.store.get(room, &key) else { continue };
        let mut value = object.value.clone();
        let others: Vec<Value> =
            object.owners().filter(|owner| owner["uid"] != uid).cloned().collect();
        metadata::set(&mut value, "ownerReferences", (!others.is_empty()).then(|| others.into()));
        world.put(room, &key, value);
    }
}

/// Takes away a finalizer; with the last one the object goes.
fn finish(world: &mut World, (room, key): &Place, finalizer: &str) {
    let Some(object) = world.store.get(*room, key) else { return };
    let left: Vec<&str> =
        metadata::finalizers(&object.value).into_iter().filter(|one| *one != finalizer).collect();
    let grace = object.value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if left.is_empty() && grace == 0 {
        world.remove(*room, key);
        return;
    }
    let mut value = object.value.clone();
    metadata::set(&mut value, "finalizers", (!left.is_empty()).then(|| left.into()));
    world.put(*room, key, value);
}

fn empty(world: &mut World, namespace: &Arc<str>, now: Timestamp) {
    for place in world.store.contents(namespace) {
        let going = world
            .store
            .get(place.0, &place.1)
            .is_none_or(|object| metadata::is_going(&object.value));
        if !going {
            discard(world, &place, Propagation::Background, now);
        }
    }
    let held = world
        .store
        .get(NAMESPACES, namespace)
        .is_none_or(|object| !metadata::finalizers(&object.value).is_empty());
    if !held && world.store.contents(namespace).is_empty() {
        world.remove(NAMESPACES, namespace);
    }
}
