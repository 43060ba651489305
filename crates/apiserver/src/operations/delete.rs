//! Delete: an object is removed at once, or marked with a deletionTimestamp and removed later.
//!
//! ```text
//!  finalizers ────────────────► marked; removed with the last finalizer
//!  Pod on a node, grace > 0 ──► marked; removed when it is deleted with grace 0 (by its kubelet)
//!  Namespace ─────────────────► marked; removed when it is empty
//!  otherwise ─────────────────► removed
//! ```

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{ApiRequest, ApiState, NAMESPACES, Outcome, kind_of, metadata, read};
use crate::http::request::{Propagation, propagation, refuse_options};
use crate::objects::json::text;
use crate::objects::kind::Kind;
use crate::objects::protobuf;
use crate::status::{FieldError, StatusError};
use crate::store::Object;

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Namespaces that cannot be deleted: `immortalNamespaces` of the admission plugin
/// NamespaceLifecycle
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go>).
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];
/// For Pods that name none: `DefaultTerminationGracePeriodSeconds` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/api/core/v1/types.go>.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// The body of a deletion, in the version of the deleted objects or in this one.
static OPTIONS: Kind = Kind { group: "meta.k8s.io", kind: "DeleteOptions", ..Kind::DEFAULTS };

/// `metav1.DeleteOptions`, from the body and the query.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    pub(super) grace: Option<i64>,
    pub(super) propagation: Option<Propagation>,
    /// Precondition.
    pub(super) uid: Option<String>,
    /// Precondition.
    pub(super) resource_version: Option<String>,
    pub(super) dry_run: bool,
}

/// What a deletion does to an object.
#[derive(Debug, PartialEq)]
enum Effect {
    /// Nothing: it is being deleted already.
    Unchanged,
    /// The new state has a deletionTimestamp.
    Mark(Value),
    /// It is removed; watches first see this last state, if there is one.
    Remove(Option<Value>),
}

/// The result of a deletion.
pub(super) enum Deleted {
    /// The object is still stored.
    Marked(Arc<Object>),
    Removed(Arc<Object>),
}

pub(super) fn delete(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
) -> Result<Outcome, StatusError> {
    let options = delete_options(request)?;
    let kind = request.kind();
    let deleted = remove(state, kind, &request.resource.key(), &options, request.now)?;
    Ok(match deleted {
        Deleted::Marked(object) => Outcome::Object(200, object),
        Deleted::Removed(object) if ["pods", "services"].contains(&kind.plural) => {
            Outcome::Object(200, object)
        }
        Deleted::Removed(object) => Outcome::Status(200, success(kind, &object)),
    })
}

pub(super) fn delete_collection(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
) -> Result<Outcome, StatusError> {
    let options = delete_options(request)?;
    let page = read::list(state, request)?;
    for object in &page.objects {
        let key =
            crate::store::key(object.value["metadata"]["namespace"].as_str(), object.meta("name"));
        remove(state, request.kind(), &key, &options, request.now)?;
    }
    Ok(Outcome::List(page))
}

fn success(kind: &Kind, object: &Object) -> Value {
    let mut details =
        json!({"name": object.meta("name"), "kind": kind.plural, "uid": object.meta("uid")});
    if !kind.group.is_empty() {
        details["group"] = kind.group.into();
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    })
}

/// The options of the body and of the query; those of the query win.
fn delete_options(request: &ApiRequest<'_>) -> Result<DeleteOptions, StatusError> {
    let body: Value = match request.body {
        [] => json!({}),
        body if request.content_type == protobuf::MEDIA_TYPE => protobuf::decode(body, &OPTIONS)?,
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
    Ok(DeleteOptions {
        grace: request.options.grace_period_seconds.or(body["gracePeriodSeconds"].as_i64()),
        propagation: request.options.propagation.or(policy).or(orphan),
        uid: text(&body["preconditions"]["uid"]),
        resource_version: text(&body["preconditions"]["resourceVersion"]),
        dry_run: request.options.dry_run
            || body["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
    })
}

fn check_body(body: &Value) -> Result<(), StatusError> {
    let (version, kind) = (text(body, "/apiVersion"), text(body, "/kind"));
    if !["", "DeleteOptions"].contains(&kind) {
        return Err(StatusError::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \
             \"pkg/runtime/scheme.go:111\""
        )));
    }
    let grace = &body["gracePeriodSeconds"];
    if grace.is_string() {
        let why = "json: cannot unmarshal string into Go struct field \
                   DeleteOptions.gracePeriodSeconds of type int64";
        return Err(StatusError::bad_request(why));
    }
    if body["orphanDependents"].is_boolean() && body["propagationPolicy"].is_string() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        let cause = FieldError::invalid("propagationPolicy", &body["propagationPolicy"], why);
        return refuse_options("DeleteOptions", &[cause]);
    }
    Ok(())
}

/// Deletes one object.
pub(super) fn remove(
    state: &mut ApiState,
    kind: &Kind,
    key: &str,
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<Deleted, StatusError> {
    let name = key.rsplit('/').next().unwrap_or(key);
    if kind.storage_resource() == NAMESPACES && PROTECTED_NAMESPACES.contains(&name) {
        return Err(StatusError::forbidden(kind, name, "this namespace may not be deleted"));
    }
    let stored = state.store.get(kind.storage_resource(), key).cloned();
    let stored = stored.ok_or_else(|| StatusError::not_found(kind, name))?;
    check_preconditions(kind, &stored, options)?;
    let effect = effect(kind, &stored.value, options, now);
    Ok(match effect {
        Effect::Unchanged => Deleted::Marked(stored),
        Effect::Mark(object) if options.dry_run => Deleted::Marked(Arc::new(Object::new(object))),
        Effect::Remove(last) if options.dry_run => {
            Deleted::Removed(last.map_or(stored, |last| Arc::new(Object::new(last))))
        }
        Effect::Mark(object) => Deleted::Marked(state.put(kind.storage_resource(), key, object)),
        Effect::Remove(last) => {
            if let Some(last) = last {
                state.put(kind.storage_resource(), key, last);
            }
            Deleted::Removed(state.remove(kind.storage_resource(), key).unwrap_or(stored))
        }
    })
}

fn check_preconditions(
    kind: &Kind,
    stored: &Object,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    let (uid, version) = (stored.meta("uid"), stored.meta("resourceVersion"));
    let name = stored.meta("name");
    // For events, kube-apiserver names the kind that is stored, whichever group was asked.
    let kind = kind_of(kind.storage_resource()).unwrap_or(kind);
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). \
             The object might have been deleted and then recreated"
        );
        return Err(StatusError::precondition(kind, name, &why));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the \
             ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(StatusError::precondition(kind, name, &why));
    }
    Ok(())
}

fn effect(kind: &Kind, stored: &Value, options: &DeleteOptions, now: Timestamp) -> Effect {
    if kind.storage_resource() == NAMESPACES {
        return namespace_effect(stored, now);
    }
    let finalizers = finalizers(stored, options.propagation);
    let grace = if kind.plural == "pods" { grace(stored, options) } else { 0 };
    let terminating = metadata::is_terminating(stored);
    let granted = stored["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let shorter = terminating && options.grace.is_some() && grace < granted;
    let same_finalizers = metadata::finalizers(stored) == finalizers;
    if terminating && same_finalizers && !shorter && (granted > 0 || !finalizers.is_empty()) {
        return Effect::Unchanged;
    }
    let mut object = stored.clone();
    let list = (!finalizers.is_empty()).then(|| finalizers.clone().into());
    metadata::set(&mut object, "finalizers", list);
    if !terminating || shorter {
        mark(&mut object, grace, now);
    }
    if !terminating {
        metadata::increment_generation(&mut object);
    }
    match (finalizers.is_empty(), grace) {
        (true, 0) => Effect::Remove((kind.plural == "pods").then_some(object)),
        _ => Effect::Mark(object),
    }
}

fn namespace_effect(stored: &Value, now: Timestamp) -> Effect {
    if metadata::is_terminating(stored) {
        return Effect::Unchanged;
    }
    let mut object = stored.clone();
    metadata::set(&mut object, "deletionTimestamp", Some(metadata::time(now).into()));
    object["status"]["phase"] = "Terminating".into();
    Effect::Mark(object)
}

fn mark(object: &mut Value, grace: i64, now: Timestamp) {
    let end = now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    metadata::set(object, "deletionTimestamp", Some(metadata::time(end).into()));
    metadata::set(object, "deletionGracePeriodSeconds", Some(grace.into()));
}

/// How long a Pod may take to end. One that has no node or has ended is removed at once, because no
/// kubelet would remove it.
fn grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let unscheduled = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unscheduled || ended {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    // A negative period means one second, as in kube-apiserver.
    match options.grace.or(own).unwrap_or(DEFAULT_GRACE_SECONDS) {
        negative if negative < 0 => 1,
        grace => grace,
    }
}

/// The finalizers of an object that is deleted with this policy.
fn finalizers(stored: &Value, policy: Option<Propagation>) -> Vec<&str> {
    let known = metadata::finalizers(stored);
    let Some(policy) = policy else { return known };
    let own = match policy {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    known.into_iter().filter(|one| ![ORPHAN, FOREGROUND].contains(one)).chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(extra: &Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p", "generation": 1}, "spec": {}, "status": {}});
        json_patch::merge(&mut pod, extra);
        pod
    }

    fn described(pod: &Value, options: &DeleteOptions) -> String {
        let kind = Kind::find("", "v1", "pods").unwrap();
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let shown = |object: &Value| {
            let metadata = &object["metadata"];
            format!(
                "{} grace {} generation {}",
                metadata::text(object, "deletionTimestamp"),
                metadata["deletionGracePeriodSeconds"],
                metadata["generation"]
            )
        };
        match effect(kind, pod, options, now) {
            Effect::Unchanged => "unchanged".into(),
            Effect::Mark(object) => format!("marked {}", shown(&object)),
            Effect::Remove(last) => format!("goes {}", shown(&last.unwrap())),
        }
    }

    #[test]
    fn pods_are_removed_when_their_node_deletes_them() {
        let on_node = json!({"spec": {"nodeName": "n"}});
        let going = json!({
            "spec": {"nodeName": "n"},
            "metadata": {
                "deletionTimestamp": "2026-01-02T03:04:30Z", "deletionGracePeriodSeconds": 30,
            },
        });
        let held = json!({
            "metadata": {
                "finalizers": ["a/b"], "deletionTimestamp": "2026-01-02T03:04:05Z",
                "deletionGracePeriodSeconds": 0,
            },
        });
        let default = DeleteOptions::default();
        let with = |grace| DeleteOptions { grace: Some(grace), ..DeleteOptions::default() };
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
            (going.clone(), &default, "unchanged"),
            (going.clone(), &with(60), "unchanged"),
            (going.clone(), &with(3), "marked 2026-01-02T03:04:08Z grace 3 generation 1"),
            (going, &with(0), "goes 2026-01-02T03:04:05Z grace 0 generation 1"),
            (
                json!({"metadata": {"finalizers": ["a/b"]}}),
                &default,
                "marked 2026-01-02T03:04:05Z grace 0 generation 2",
            ),
            (held, &default, "unchanged"),
        ];
        for (extra, options, expected) in rows {
            assert_eq!(described(&pod(&extra), options), expected, "{extra} {options:?}");
        }
    }

    #[test]
    fn each_policy_sets_its_finalizer() {
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
