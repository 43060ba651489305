//! Delete: an object goes at once, or is marked and goes when nothing keeps it any more.
//!
//! ```text
//!  finalizers ────────────────► marked; goes with the last of them
//!  Pod on a node, grace > 0 ──► marked; goes when deleted with grace 0 (the node has stopped it)
//!  Namespace ─────────────────► marked; goes when it is empty
//!  otherwise ─────────────────► gone
//! ```

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Ask, NAMESPACES, Outcome, World, kind_of, metadata, read};
use crate::http::request::{Propagation, propagation, refuse};
use crate::objects::kind::Kind;
use crate::status::{FieldError, StatusError};
use crate::store::{Object, room};

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
const GRACE: i64 = 30;

/// How to delete.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub(super) grace: Option<i64>,
    pub(super) propagation: Option<Propagation>,
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    pub(super) dry_run: bool,
}

/// What becomes of an object.
#[derive(Debug, PartialEq)]
enum Fate {
    /// It stays as it is: it is on its way already.
    Waits,
    /// It is marked.
    Marked(Value),
    /// It goes, after this last state, if there is one.
    Goes(Option<Value>),
}

/// What came of a deletion.
pub(super) enum Deleted {
    Stays(Arc<Object>),
    Gone(Arc<Object>),
}

pub(super) fn delete(world: &mut World, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    let terms = terms(ask)?;
    let kind = ask.kind();
    let deleted = remove(world, kind, &ask.resource.key(), &terms, ask.now)?;
    Ok(match deleted {
        Deleted::Stays(object) => Outcome::Object(200, object),
        Deleted::Gone(object) if ["pods", "services"].contains(&kind.plural) => {
            Outcome::Object(200, object)
        }
        Deleted::Gone(object) => Outcome::Status(200, success(kind, &object)),
    })
}

pub(super) fn delete_collection(world: &mut World, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    let terms = terms(ask)?;
    let part = read::list(world, ask)?;
    for object in &part.objects {
        let key =
            crate::store::key(object.value["metadata"]["namespace"].as_str(), object.meta("name"));
        remove(world, ask.kind(), &key, &terms, ask.now)?;
    }
    Ok(Outcome::List(part))
}

fn success(kind: &Kind, object: &Object) -> Value {
    let mut details =
        json!({"name": object.meta("name"), "kind": kind.plural, "uid": object.meta("uid")});
    if !kind.group.is_empty() {
        details["group"] = kind.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// The body and the query; the query wins.
fn terms(ask: &Ask<'_>) -> Result<Terms, StatusError> {
    let body: Value = match ask.body {
        [] => json!({}),
        body => serde_json::from_slice(body).map_err(|error| {
            StatusError::bad_request(format!("couldn't read DeleteOptions: {error}"))
        })?,
    };
    check_body(&body)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let policy = propagation(body["propagationPolicy"].as_str().unwrap_or_default())?;
    let orphan = match body["orphanDependents"].as_bool() {
        Some(true) => Some(Propagation::Orphan),
        Some(false) => Some(Propagation::Background),
        None => None,
    };
    Ok(Terms {
        grace: ask.options.grace.or(body["gracePeriodSeconds"].as_i64()),
        propagation: ask.options.propagation.or(policy).or(orphan),
        uid: text(&body["preconditions"]["uid"]),
        version: text(&body["preconditions"]["resourceVersion"]),
        dry_run: ask.options.dry_run
            || body["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
    })
}

fn check_body(body: &Value) -> Result<(), StatusError> {
    let grace = &body["gracePeriodSeconds"];
    if grace.is_string() {
        let why = "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64";
        return Err(StatusError::bad_request(why));
    }
    if body["orphanDependents"].is_boolean() && body["propagationPolicy"].is_string() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        let cause = FieldError::invalid("propagationPolicy", &body["propagationPolicy"], why);
        return refuse("DeleteOptions", &[cause]);
    }
    Ok(())
}

/// Deletes one object.
pub(super) fn remove(
    world: &mut World,
    kind: &Kind,
    key: &str,
    terms: &Terms,
    now: Timestamp,
) -> Result<Deleted, StatusError> {
    let name = key.rsplit('/').next().unwrap_or(key);
    if room(kind) == NAMESPACES && IMMORTAL.contains(&name) {
        return Err(StatusError::forbidden(kind, name, "this namespace may not be deleted"));
    }
    let stored = world.store.get(room(kind), key).cloned();
    let stored = stored.ok_or_else(|| StatusError::not_found(kind, name))?;
    check(kind, &stored, terms)?;
    let fate = fate(kind, &stored.value, terms, now);
    Ok(match fate {
        Fate::Waits => Deleted::Stays(stored),
        Fate::Marked(object) if terms.dry_run => Deleted::Stays(Arc::new(Object::new(object))),
        Fate::Goes(last) if terms.dry_run => {
            Deleted::Gone(last.map_or(stored, |last| Arc::new(Object::new(last))))
        }
        Fate::Marked(object) => Deleted::Stays(world.put(room(kind), key, object)),
        Fate::Goes(last) => {
            if let Some(last) = last {
                world.put(room(kind), key, last);
            }
            Deleted::Gone(world.remove(room(kind), key).unwrap_or(stored))
        }
    })
}

fn check(kind: &Kind, stored: &Object, terms: &Terms) -> Result<(), StatusError> {
    let (uid, version) = (stored.meta("uid"), stored.meta("resourceVersion"));
    let name = stored.meta("name");
    // Where there are two doors, this is told as of the one that is stored.
    let kind = kind_of(room(kind)).unwrap_or(kind);
    if let Some(wanted) = terms.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        );
        return Err(StatusError::precondition(kind, name, &why));
    }
    if let Some(wanted) = terms.version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        );
        return Err(StatusError::precondition(kind, name, &why));
    }
    Ok(())
}

fn fate(kind: &Kind, stored: &Value, terms: &Terms, now: Timestamp) -> Fate {
    if room(kind) == NAMESPACES {
        return fate_of_namespace(stored, now);
    }
    let finalizers = finalizers(stored, terms.propagation);
    let grace = if kind.plural == "pods" { grace(stored, terms) } else { 0 };
    let going = metadata::is_going(stored);
    let granted = stored["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let shorter = going && terms.grace.is_some() && grace < granted;
    let same_tasks = metadata::finalizers(stored) == finalizers;
    if going && same_tasks && !shorter && (granted > 0 || !finalizers.is_empty()) {
        return Fate::Waits;
    }
    let mut object = stored.clone();
    let list = (!finalizers.is_empty()).then(|| finalizers.clone().into());
    metadata::set(&mut object, "finalizers", list);
    if !going || shorter {
        mark(&mut object, grace, now);
    }
    if !going {
        metadata::grow_generation(&mut object);
    }
    match (finalizers.is_empty(), grace) {
        (true, 0) => Fate::Goes((kind.plural == "pods").then_some(object)),
        _ => Fate::Marked(object),
    }
}

fn fate_of_namespace(stored: &Value, now: Timestamp) -> Fate {
    if metadata::is_going(stored) {
        return Fate::Waits;
    }
    let mut object = stored.clone();
    metadata::set(&mut object, "deletionTimestamp", Some(metadata::time(now).into()));
    object["status"]["phase"] = "Terminating".into();
    Fate::Marked(object)
}

fn mark(object: &mut Value, grace: i64, now: Timestamp) {
    let end = now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    metadata::set(object, "deletionTimestamp", Some(metadata::time(end).into()));
    metadata::set(object, "deletionGracePeriodSeconds", Some(grace.into()));
}

/// How long a Pod may take. Nobody stops what runs nowhere or has ended.
fn grace(pod: &Value, terms: &Terms) -> i64 {
    let nowhere = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if nowhere || ended {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    // A negative period means the shortest there is.
    match terms.grace.or(own).unwrap_or(GRACE) {
        negative if negative < 0 => 1,
        grace => grace,
    }
}

/// The finalizers that keep an object which is deleted in this way.
fn finalizers(stored: &Value, policy: Option<Propagation>) -> Vec<&str> {
    let known = metadata::finalizers(stored);
    let Some(policy) = policy else { return known };
    let ours = match policy {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    known.into_iter().filter(|one| ![ORPHAN, FOREGROUND].contains(one)).chain(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(extra: &Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p", "generation": 1}, "spec": {}, "status": {}});
        json_patch::merge(&mut pod, extra);
        pod
    }

    fn told(pod: &Value, terms: &Terms) -> String {
        let kind = Kind::find("", "v1", "pods").unwrap();
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let state = |object: &Value| {
            let metadata = &object["metadata"];
            format!(
                "{} grace {} generation {}",
                metadata::text(object, "deletionTimestamp"),
                metadata["deletionGracePeriodSeconds"],
                metadata["generation"]
            )
        };
        match fate(kind, pod, terms, now) {
            Fate::Waits => "waits".into(),
            Fate::Marked(object) => format!("marked {}", state(&object)),
            Fate::Goes(last) => format!("goes {}", state(&last.unwrap())),
        }
    }

    #[test]
    fn pods_go_when_their_node_lets_them_go() {
        let on_node = json!({"spec": {"nodeName": "n"}});
        let going = json!({
            "spec": {"nodeName": "n"},
            "metadata": {"deletionTimestamp": "2026-01-02T03:04:30Z", "deletionGracePeriodSeconds": 30},
        });
        let held = json!({
            "metadata": {"finalizers": ["a/b"], "deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 0},
        });
        let default = Terms::default();
        let with = |grace| Terms { grace: Some(grace), ..Terms::default() };
        let rows = [
            (json!({}), &default, "goes 2026-01-02T03:04:05Z grace 0 generation 2"),
            (on_node.clone(), &default, "marked 2026-01-02T03:04:35Z grace 30 generation 2"),
            (on_node.clone(), &with(5), "marked 2026-01-02T03:04:10Z grace 5 generation 2"),
            (on_node.clone(), &with(0), "goes 2026-01-02T03:04:05Z grace 0 generation 2"),
            (
                json!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}}),
                &default,
                "goes 2026-01-02T03:04:05Z grace 0 generation 2",
            ),
            (going.clone(), &default, "waits"),
            (going.clone(), &with(60), "waits"),
            (going.clone(), &with(3), "marked 2026-01-02T03:04:08Z grace 3 generation 1"),
            (going, &with(0), "goes 2026-01-02T03:04:05Z grace 0 generation 1"),
            (
                json!({"metadata": {"finalizers": ["a/b"]}}),
                &default,
                "marked 2026-01-02T03:04:05Z grace 0 generation 2",
            ),
            (held, &default, "waits"),
        ];
        for (extra, terms, expected) in rows {
            assert_eq!(told(&pod(&extra), terms), expected, "{extra} {terms:?}");
        }
    }

    #[test]
    fn policies_leave_their_finalizer() {
        let stored = json!({"metadata": {"finalizers": ["a/b", "orphan"]}});
        assert_eq!(finalizers(&stored, None), ["a/b", "orphan"]);
        assert_eq!(finalizers(&stored, Some(Propagation::Background)), ["a/b"]);
        assert_eq!(
            finalizers(&stored, Some(Propagation::Foreground)),
            ["a/b", "foregroundDeletion"]
        );
        assert_eq!(finalizers(&stored, Some(Propagation::Orphan)), ["a/b", "orphan"]);
    }
}
