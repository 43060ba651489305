//! Create, update, patch and apply.
//!
//! ```text
//!  body ─► parse ─► new state of the object
//!                   create, update: the body
//!                   patch: the patch on the stored object
//!                   apply: the applied fields merged into it
//!                     └─► commit: strategy ─► managed fields ─► allocation ─► store
//!                                                                   └ unchanged: not stored
//! ```

use std::sync::Arc;

use serde_json::{Value, json};
use zonewise_common::keys::METADATA_NAME;
use zonewise_common::media_type::{APPLY, JSON, JSON_PATCH, MERGE_PATCH};

use super::{ApiRequest, ApiState, NAMESPACES, Outcome, metadata};
use crate::http::request::{Subresource, refuse_options};
use crate::objects::apply::{self, Writer};
use crate::objects::conversion;
use crate::objects::kind::{KINDS, Kind};
use crate::objects::patch::{self, PatchType};
use crate::objects::protobuf;
use crate::objects::strategy::{self, ResourcePart};
use crate::objects::types;
use crate::random;
use crate::status::{FieldError, StatusError};
use crate::store::Object;

/// What kube-apiserver answers
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/negotiation/errors.go>).
const MEDIA_TYPES: &str = "the body of the request was in an unknown format - accepted media types \
                           include: application/json, application/yaml, \
                           application/vnd.kubernetes.protobuf";
/// Attempts to find a free name for `generateName`: `maxNameGenerationCreateAttempts` of
/// kube-apiserver
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/registry/generic/registry/store.go>).
const NAME_ATTEMPTS: usize = 8;
/// Characters of `generateName` that are kept, so that the name has at most 63:
/// `MaxGeneratedNameLength` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/storage/names/generate.go>.
const MAX_NAME_PREFIX: usize = 58;

/// The body of `/binding`, which is not stored.
static BINDING: Kind = Kind { kind: "Binding", ..Kind::DEFAULTS };

pub(super) fn create(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
) -> Result<Outcome, StatusError> {
    let object = parse_typed(request)?;
    insert(state, request, object)
}

/// Stores a new object.
pub(super) fn insert(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
    mut object: Value,
) -> Result<Outcome, StatusError> {
    // In kube-apiserver the store refuses this, and a dry run does not reach the store.
    if !request.options.dry_run && !metadata::text(&object, "resourceVersion").is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(StatusError::internal(why));
    }
    metadata::set(&mut object, "managedFields", None);
    metadata::set_namespace(request.resource, &mut object)?;
    generate_name(state, request, &mut object);
    let object = insert_new(state, request, object, ManagedFields::Track)?;
    Ok(Outcome::Object(201, object))
}

/// Sets the name of an object that has only `generateName`.
fn generate_name(state: &ApiState, request: &ApiRequest<'_>, object: &mut Value) {
    let prefix = metadata::text(object, "generateName").to_owned();
    if !metadata::text(object, "name").is_empty() || prefix.is_empty() {
        return;
    }
    let taken = |name: &String| {
        let key = crate::store::key(request.resource.namespace.as_deref(), name);
        state.store.get(request.kind().storage_resource(), &key).is_some()
    };
    let prefix: String = prefix.chars().take(MAX_NAME_PREFIX).collect();
    let mut names = (0..NAME_ATTEMPTS).map(|_| format!("{prefix}{}", random::name_suffix()));
    if let Some(name) = names.find(|name| !taken(name)) {
        metadata::set(object, "name", Some(name.into()));
    }
}

/// Whether `metadata.managedFields` is still to be updated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ManagedFields {
    /// The writer becomes the manager of the fields that it changes.
    Track,
    /// Server-side apply has already written them.
    Done,
}

/// Checks that the object can be new in its namespace, and stores it.
fn insert_new(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
    mut object: Value,
    managed_fields: ManagedFields,
) -> Result<Arc<Object>, StatusError> {
    let kind = request.kind();
    let name = metadata::text(&object, "name").to_owned();
    check_namespace(state, request, &name)?;
    if !name.is_empty() {
        let key = crate::store::key(request.resource.namespace.as_deref(), &name);
        if let Some(found) = state.store.get(kind.storage_resource(), &key) {
            return Err(already_exists(kind, &name, &found.value));
        }
    }
    metadata::set_created(kind, &mut object, random::uid(), &request.time());
    commit(state, request, None, object, managed_fields)
}

fn already_exists(kind: &Kind, name: &str, found: &Value) -> StatusError {
    let mut error = StatusError::already_exists(kind, name);
    if metadata::is_terminating(found) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// The namespace of a new object must exist, and must not be terminating.
fn check_namespace(
    state: &ApiState,
    request: &ApiRequest<'_>,
    name: &str,
) -> Result<(), StatusError> {
    let Some(namespace) = &request.resource.namespace else { return Ok(()) };
    match state.store.get(NAMESPACES, namespace) {
        Some(found) if metadata::is_terminating(&found.value) => {
            Err(StatusError::terminating(request.kind(), name, namespace))
        }
        Some(_) => Ok(()),
        None => Err(missing_namespace(namespace)),
    }
}

fn missing_namespace(namespace: &str) -> StatusError {
    match Kind::find("", "v1", "namespaces") {
        Some(kind) => StatusError::not_found(kind, namespace),
        None => StatusError::no_such_path(),
    }
}

pub(super) fn update(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
) -> Result<Outcome, StatusError> {
    let mut object = parse_typed(request)?;
    let kind = request.kind();
    metadata::check_name(request.resource, &object)?;
    metadata::set_namespace(request.resource, &mut object)?;
    let Some(stored) = state.store.get(kind.storage_resource(), &request.resource.key()).cloned()
    else {
        // Kinds with `AllowCreateOnUpdate` in kube-apiserver.
        if !["leases", "events", "services"].contains(&kind.plural) {
            return Err(StatusError::not_found(kind, request.resource.name()));
        }
        metadata::set(&mut object, "resourceVersion", None);
        return insert(state, request, object);
    };
    replace(state, request, &stored, object, ManagedFields::Track)
}

/// Replaces the stored object by a new state of it.
fn replace(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
    stored: &Arc<Object>,
    mut object: Value,
    managed_fields: ManagedFields,
) -> Result<Outcome, StatusError> {
    let kind = request.kind();
    let shown = conversion::from_storage(kind, &stored.value);
    metadata::check_preconditions(kind, &shown, &object)?;
    metadata::check_immutable(kind, &shown, &object, &["deletionTimestamp"])?;
    metadata::keep_server_fields(&shown, &mut object);
    metadata::check_finalizers(kind, &shown, &object)?;
    commit(state, request, Some(stored), object, managed_fields)
        .map(|object| Outcome::Object(200, object))
}

/// Replaces the stored object; the writer becomes the manager of what it changes.
pub(super) fn replace_tracked(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
    stored: &Arc<Object>,
    object: Value,
) -> Result<Outcome, StatusError> {
    replace(state, request, stored, object, ManagedFields::Track)
}

/// The type of the patch in the body, other than an apply.
fn patch_type(request: &ApiRequest<'_>) -> Result<PatchType, StatusError> {
    match request.content_type {
        JSON_PATCH => Ok(PatchType::Json),
        MERGE_PATCH => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
        _ => {
            let error = StatusError::unsupported_media_type("415: Unsupported Media Type");
            Err(error.with_empty_details())
        }
    }
}

/// A document with the patch of the body.
pub(super) fn patched(request: &ApiRequest<'_>, before: &Value) -> Result<Value, StatusError> {
    let change: Value = serde_json::from_slice(request.body)
        .map_err(|error| StatusError::bad_request(format!("error decoding patch: {error}")))?;
    patch::patch(request.kind(), patch_type(request)?, before, &change)
}

pub(super) fn patch(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
) -> Result<Outcome, StatusError> {
    if request.content_type == APPLY {
        return apply(state, request);
    }
    let patch_type = patch_type(request)?;
    if request.options.force.is_some() {
        let why = "may not be specified for non-apply patch";
        return refuse_options("PatchOptions", &[FieldError::forbidden("force", why)])
            .and(Err(StatusError::no_such_path()));
    }
    let kind = request.kind();
    let change: Value = serde_json::from_slice(request.body)
        .map_err(|error| StatusError::bad_request(format!("error decoding patch: {error}")))?;
    let stored = state.store.get(kind.storage_resource(), &request.resource.key()).cloned();
    let stored = stored.ok_or_else(|| StatusError::not_found(kind, request.resource.name()))?;
    let mut object =
        patch::patch(kind, patch_type, &conversion::from_storage(kind, &stored.value), &change)?;
    check_type(kind, &mut object)?;
    metadata::check_name(request.resource, &object)?;
    metadata::set_namespace(request.resource, &mut object)?;
    metadata::check_immutable(
        kind,
        &conversion::from_storage(kind, &stored.value),
        &object,
        &["uid"],
    )?;
    replace(state, request, &stored, object, ManagedFields::Track)
}

fn apply(state: &mut ApiState, request: &ApiRequest<'_>) -> Result<Outcome, StatusError> {
    if request.options.field_manager.is_empty() {
        let cause = FieldError::required("fieldManager", "is required for apply patch");
        refuse_options("PatchOptions", &[cause])?;
    }
    let kind = request.kind();
    let applied = yaml(request.body)
        .map_err(|error| StatusError::bad_request(format!("error decoding YAML: {error}")))?;
    check_applied(request, &applied)?;
    let key = request.resource.key();
    let stored = state.store.get(kind.storage_resource(), &key).cloned();
    let time = request.time();
    let writer = writer(request, &time);
    let force = request.options.force.unwrap_or(false);
    let Some(stored) = stored else {
        check_uid_precondition(kind, &applied)?;
        let mut object = apply::apply(kind, None, &applied, &writer, force)?;
        metadata::set_namespace(request.resource, &mut object)?;
        let object = insert_new(state, request, object, ManagedFields::Done)?;
        return Ok(Outcome::Object(201, object));
    };
    let shown = conversion::from_storage(kind, &stored.value);
    if !metadata::text(&applied, "resourceVersion").is_empty() {
        metadata::check_preconditions(kind, &shown, &applied)?;
    }
    let mut object = apply::apply(kind, Some(&shown), &applied, &writer, force)?;
    // The version that the client named has been compared above.
    metadata::set(
        &mut object,
        "resourceVersion",
        shown["metadata"].get("resourceVersion").cloned(),
    );
    replace(state, request, &stored, object, ManagedFields::Done)
}

/// An apply that names a uid must not create another object.
fn check_uid_precondition(kind: &Kind, applied: &Value) -> Result<(), StatusError> {
    let uid = metadata::text(applied, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let why = format!(
        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    );
    Err(StatusError::conflict(kind, metadata::text(applied, "name"), &why))
}

fn check_applied(request: &ApiRequest<'_>, applied: &Value) -> Result<(), StatusError> {
    let kind = request.kind();
    let text = |field: &str| applied[field].as_str().unwrap_or_default();
    if text("kind") != kind.kind || text("apiVersion") != kind.api_version() {
        let (group, version) = match text("apiVersion").split_once('/') {
            Some(parts) => parts,
            None => ("", text("apiVersion")),
        };
        let why = format!("invalid object type: {group}/{version}, Kind={}", text("kind"));
        return Err(StatusError::bad_request(why));
    }
    if applied["metadata"].get("managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    metadata::check_name(request.resource, applied)?;
    metadata::set_namespace(request.resource, &mut applied.clone())
}

fn writer<'a>(request: &ApiRequest<'a>, time: &'a str) -> Writer<'a> {
    let subresource = match request.resource.subresource {
        Some(Subresource::Status) => Some("status"),
        Some(Subresource::Scale) => Some("scale"),
        Some(Subresource::Binding) | None => None,
    };
    Writer { manager: request.manager(), subresource, time }
}

/// The last steps of every write.
fn commit(
    state: &mut ApiState,
    request: &ApiRequest<'_>,
    stored: Option<&Arc<Object>>,
    mut object: Value,
    managed_fields: ManagedFields,
) -> Result<Arc<Object>, StatusError> {
    let kind = request.kind();
    let before = stored.map(|stored| conversion::from_storage(kind, &stored.value));
    let before = before.as_deref();
    let part = match request.resource.subresource {
        // An apply to `/status` may create the object, which then counts as a whole.
        Some(Subresource::Status) if stored.is_some() => ResourcePart::Status,
        _ => ResourcePart::Main,
    };
    let sent = strategy::sent_parts(kind, &object);
    strategy::prepare(kind, part, before, &mut object)?;
    set_namespace_fields(kind, &mut object);
    if let (Some(before), ResourcePart::Main) = (before, part) {
        metadata::count_generation(kind, before, &mut object);
    }
    if managed_fields == ManagedFields::Track {
        let time = request.time();
        // Fields that the server has added by itself have no manager.
        let mut written = strategy::without_server_defaults(kind, &sent, &object);
        apply::track_update(kind, before, &mut written, &writer(request, &time));
        let entries = written["metadata"].get("managedFields").cloned();
        metadata::set(&mut object, "managedFields", entries);
    }
    if kind.plural == "services" {
        state.allocator.assign(before, &mut object)?;
    }
    if let (Some(stored), Some(before)) = (stored, before)
        && metadata::is_unchanged(before, &object)
    {
        return Ok(Arc::clone(stored));
    }
    if request.options.dry_run {
        undo_allocation(state, kind, before, &object);
        return Ok(Arc::new(Object::new(conversion::to_storage(kind, object))));
    }
    let key = crate::store::key(
        object["metadata"]["namespace"].as_str(),
        metadata::text(&object, "name"),
    );
    Ok(store_or_remove(state, kind, &key, object))
}

/// Stores the object, or removes it: an object that is being deleted goes with its last finalizer.
fn store_or_remove(state: &mut ApiState, kind: &Kind, key: &str, object: Value) -> Arc<Object> {
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let spec_finalizers = kind.plural == "namespaces"
        && !object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    let free = metadata::finalizers(&object).is_empty() && grace == 0 && !spec_finalizers;
    let object = conversion::to_storage(kind, object);
    if metadata::is_terminating(&object) && free {
        if kind.plural == "services" {
            // The new state may hold ports that the stored one, which `remove` releases, does not.
            state.allocator.release(&object);
        }
        state.remove(kind.storage_resource(), key);
        return Arc::new(Object::new(object));
    }
    state.put(kind.storage_resource(), key, object)
}

/// Releases what a dry run has allocated.
fn undo_allocation(state: &mut ApiState, kind: &Kind, before: Option<&Value>, object: &Value) {
    if kind.plural != "services" {
        return;
    }
    match before {
        None => state.allocator.release(object),
        // Cannot fail: the stored state held all of this a moment ago.
        Some(before) => drop(state.allocator.assign(Some(object), &mut before.clone())),
    }
}

/// Sets what the server writes into every namespace: the name as a label, a finalizer, the phase.
fn set_namespace_fields(kind: &Kind, object: &mut Value) {
    if kind.plural != "namespaces" {
        return;
    }
    let name = metadata::text(object, "name").to_owned();
    if !object["metadata"]["labels"].is_object() {
        metadata::set(object, "labels", Some(json!({})));
    }
    object["metadata"]["labels"][METADATA_NAME] = name.into();
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    if object["spec"]["finalizers"].is_null() {
        object["spec"]["finalizers"] = json!(["kubernetes"]);
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let phase = if metadata::is_terminating(object) { "Terminating" } else { "Active" };
    object["status"]["phase"] = phase.into();
}

/// `pods/NAME/binding`: assigns a Pod to a node.
pub(super) fn bind(state: &mut ApiState, request: &ApiRequest<'_>) -> Result<Outcome, StatusError> {
    let binding = parse(request, &BINDING)?;
    if metadata::text(&binding, "name") != request.resource.name() {
        return Err(StatusError::bad_request("name in URL does not match name in Binding object"));
    }
    if binding["target"]["name"].as_str().is_none_or(str::is_empty) {
        return Err(StatusError::internal("target.name: Required value"));
    }
    let key = request.resource.key();
    let stored = state.store.get(request.kind().storage_resource(), &key).cloned();
    let stored =
        stored.ok_or_else(|| StatusError::not_found(request.kind(), request.resource.name()))?;
    let node = stored.value["spec"]["nodeName"].as_str().unwrap_or_default();
    if !node.is_empty() {
        return Err(StatusError::already_bound(request.resource.name(), node));
    }
    let mut pod = stored.value.clone();
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    set_scheduled(&mut pod, &request.time());
    if !request.options.dry_run {
        state.put(request.kind().storage_resource(), &key, pod);
    }
    let done = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(Outcome::Status(201, done))
}

fn set_scheduled(pod: &mut Value, time: &str) {
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    let known = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions: Vec<Value> =
        known.into_iter().filter(|condition| condition["type"] != "PodScheduled").collect();
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time,
    }));
    pod["status"]["conditions"] = conditions.into();
}

/// The body as an object of the kind that the path names.
fn parse_typed(request: &ApiRequest<'_>) -> Result<Value, StatusError> {
    let mut object = parse(request, request.kind())?;
    check_type(request.kind(), &mut object)?;
    Ok(object)
}

/// The body as an object; in protobuf it is one of `kind` if it names no other.
pub(super) fn parse(request: &ApiRequest<'_>, kind: &Kind) -> Result<Value, StatusError> {
    let unreadable = |error: String| {
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; \
             json parse error: {error}",
            request.kind().kind
        ))
    };
    let object = match request.content_type {
        "" | JSON => serde_json::from_slice(request.body).map_err(|e| e.to_string()),
        "application/yaml" => yaml(request.body),
        protobuf::MEDIA_TYPE => return protobuf::decode(request.body, kind),
        _ => return Err(StatusError::unsupported_media_type(MEDIA_TYPES)),
    };
    let mut object: Value = object.map_err(unreadable)?;
    if object.is_null() {
        object = json!({});
    }
    if !object.is_object() {
        return Err(unreadable("this is not an object".into()));
    }
    check_identity(request.body, &object).map_err(unreadable)?;
    Ok(object)
}

/// Kind and version are read before all else.
fn check_identity(body: &[u8], object: &Value) -> Result<(), String> {
    /// How much of a body kube-apiserver shows in this message.
    const SHOWN: usize = 30;
    let is_wrong = |field: &&str| !object[*field].is_null() && !object[*field].is_string();
    let Some(field) = ["apiVersion", "kind"].into_iter().find(is_wrong) else { return Ok(()) };
    let start = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]);
    let more = if body.len() > SHOWN { " ..." } else { "" };
    Err(format!(
        "json: cannot unmarshal {} into Go struct field .{field} of type string ({start}{more})",
        types::type_name(&object[field])
    ))
}

fn yaml(body: &[u8]) -> Result<Value, String> {
    // JSON is YAML, but the JSON parser is faster, and accepts every JSON document.
    if let Ok(object) = serde_json::from_slice(body) {
        return Ok(object);
    }
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
}

/// Refuses an object of another kind, and sets kind and version if they are missing. The metadata
/// that the server reads must be of the right types.
fn check_type(kind: &Kind, object: &mut Value) -> Result<(), StatusError> {
    let (version, name) = (kind.api_version(), kind.kind);
    let given = |field: &str, own: &str| match object[field].as_str() {
        None | Some("") => own.to_owned(),
        Some(given) => given.to_owned(),
    };
    let (given_version, given_kind) = (given("apiVersion", &version), given("kind", name));
    if given_version != version || given_kind != name {
        let known = KINDS.iter().any(|k| k.kind == given_kind && k.api_version() == given_version);
        let why = if known {
            "unknown conversion".to_owned()
        } else {
            format!(
                "no kind {given_kind:?} is registered for version {given_version:?} in scheme \
                 \"pkg/runtime/scheme.go:111\""
            )
        };
        return Err(StatusError::bad_request(format!(
            "{given_kind} in version {:?} cannot be handled as a {name}: {why}",
            given_version.rsplit('/').next().unwrap_or_default()
        )));
    }
    let wrong = |why: &str| {
        StatusError::bad_request(format!(
            "{name} in version {:?} cannot be handled as a {name}: {why}",
            kind.version
        ))
    };
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    if metadata::metadata(object).is_none() {
        let found = types::type_name(&object["metadata"]);
        return Err(wrong(&format!(
            "json: cannot unmarshal {found} into Go struct field {name}.metadata of type v1.ObjectMeta"
        )));
    }
    types::check(kind, object).map_err(|why| wrong(&why))?;
    object["apiVersion"] = version.into();
    object["kind"] = name.into();
    Ok(())
}
