//! Create, update, patch and apply.
//!
//! ```text
//!  body ─► read ─► what is meant ─► admit ─► commit: strategy ─► managers ─► allocation ─► store
//!                  update: the body                                                  └ nothing changed: nothing stored
//!                  patch: the patch on what is stored
//!                  apply: fields by manager
//! ```

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Ask, NAMESPACES, Outcome, World, metadata};
use crate::http::protobuf;
use crate::http::request::{Subresource, refuse};
use crate::objects::apply::{self, Writer};
use crate::objects::conversion;
use crate::objects::kind::{KINDS, Kind};
use crate::objects::patch::{self, Form};
use crate::objects::strategy::{self, Door};
use crate::random;
use crate::status::{FieldError, StatusError};
use crate::store::{Object, room};

const FORMS: &str = "the body of the request was in an unknown format - accepted media types include: \
                     application/json, application/yaml, application/vnd.kubernetes.protobuf";
const GENERATED: usize = 8;

pub(super) fn create(world: &mut World, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    let object = read(ask)?;
    insert(world, ask, object)
}

/// Stores a new object.
pub(super) fn insert(
    world: &mut World,
    ask: &Ask<'_>,
    mut object: Value,
) -> Result<Outcome, StatusError> {
    // A rehearsal does not get as far as the store, which refuses this.
    if !ask.options.dry_run && !metadata::text(&object, "resourceVersion").is_empty() {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(StatusError::without_reason(why));
    }
    metadata::set(&mut object, "managedFields", None);
    metadata::settle_namespace(ask.resource, &mut object)?;
    name(world, ask, &mut object);
    let object = give_birth(world, ask, object, true)?;
    Ok(Outcome::Object(201, object))
}

/// Gives an object a name, if it asks for that.
fn name(world: &World, ask: &Ask<'_>, object: &mut Value) {
    let prefix = metadata::text(object, "generateName").to_owned();
    if !metadata::text(object, "name").is_empty() || prefix.is_empty() {
        return;
    }
    let taken = |name: &String| {
        let key = crate::store::key(ask.resource.namespace.as_deref(), name);
        world.store.get(room(ask.kind()), &key).is_some()
    };
    // Kubernetes cuts the prefix so that the whole has 63 characters.
    let prefix: String = prefix.chars().take(58).collect();
    let mut names = (0..GENERATED).map(|_| format!("{prefix}{}", random::suffix()));
    if let Some(name) = names.find(|name| !taken(name)) {
        metadata::set(object, "name", Some(name.into()));
    }
}

fn give_birth(
    world: &mut World,
    ask: &Ask<'_>,
    mut object: Value,
    noted: bool,
) -> Result<Arc<Object>, StatusError> {
    let kind = ask.kind();
    let name = metadata::text(&object, "name").to_owned();
    admit(world, ask, &name)?;
    if !name.is_empty() {
        let key = crate::store::key(ask.resource.namespace.as_deref(), &name);
        if let Some(found) = world.store.get(room(kind), &key) {
            return Err(taken(kind, &name, &found.value));
        }
    }
    metadata::born(kind, &mut object, random::uid(), &ask.time());
    commit(world, ask, None, object, noted)
}

fn taken(kind: &Kind, name: &str, found: &Value) -> StatusError {
    let mut error = StatusError::already_exists(kind, name);
    if metadata::is_going(found) {
        error.message = format!("object is being deleted: {}", error.message);
    }
    error
}

/// Whether there is a namespace for something new.
fn admit(world: &World, ask: &Ask<'_>, name: &str) -> Result<(), StatusError> {
    let Some(namespace) = &ask.resource.namespace else { return Ok(()) };
    match world.store.get(NAMESPACES, namespace) {
        Some(found) if metadata::is_going(&found.value) => {
            Err(StatusError::terminating(ask.kind(), name, namespace))
        }
        Some(_) => Ok(()),
        None => Err(missing_namespace(namespace)),
    }
}

fn missing_namespace(namespace: &str) -> StatusError {
    match Kind::find("", "v1", "namespaces") {
        Some(kind) => StatusError::not_found(kind, namespace),
        None => StatusError::no_such_page(),
    }
}

pub(super) fn update(world: &mut World, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    let mut object = read(ask)?;
    let kind = ask.kind();
    metadata::same_name(ask.resource, &object)?;
    metadata::settle_namespace(ask.resource, &mut object)?;
    let Some(stored) = world.store.get(room(kind), &ask.resource.key()).cloned() else {
        if !["leases", "events", "services"].contains(&kind.plural) {
            return Err(StatusError::not_found(kind, ask.resource.name()));
        }
        metadata::set(&mut object, "resourceVersion", None);
        return insert(world, ask, object);
    };
    replace(world, ask, &stored, object, true)
}

/// Puts a new state in the place of what is stored.
fn replace(
    world: &mut World,
    ask: &Ask<'_>,
    stored: &Arc<Object>,
    mut object: Value,
    noted: bool,
) -> Result<Outcome, StatusError> {
    let kind = ask.kind();
    let shown = conversion::from_storage(kind, &stored.value);
    metadata::same_version(kind, &shown, &object)?;
    metadata::check_owned(kind, &shown, &object, &["deletionTimestamp"])?;
    metadata::carried(&shown, &mut object);
    metadata::check_finalizers(kind, &shown, &object)?;
    commit(world, ask, Some(stored), object, noted).map(|object| Outcome::Object(200, object))
}

pub(super) fn patch(world: &mut World, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    let form = match ask.content_type {
        "application/json-patch+json" => Form::Json,
        "application/merge-patch+json" => Form::Merge,
        "application/strategic-merge-patch+json" => Form::Strategic,
        "application/apply-patch+yaml" => return apply(world, ask),
        _ => {
            let error = StatusError::unsupported_media_type("415: Unsupported Media Type");
            return Err(error.about_nothing());
        }
    };
    if ask.options.force.is_some() {
        let why = "may not be specified for non-apply patch";
        return refuse("PatchOptions", &[FieldError::forbidden("force", why)])
            .and(Err(StatusError::no_such_page()));
    }
    let kind = ask.kind();
    let change: Value = serde_json::from_slice(ask.body)
        .map_err(|error| StatusError::bad_request(format!("error decoding patch: {error}")))?;
    let stored = world.store.get(room(kind), &ask.resource.key()).cloned();
    let stored = stored.ok_or_else(|| StatusError::not_found(kind, ask.resource.name()))?;
    let mut object =
        patch::patch(kind, form, &conversion::from_storage(kind, &stored.value), &change)?;
    typed(kind, &mut object)?;
    metadata::same_name(ask.resource, &object)?;
    metadata::settle_namespace(ask.resource, &mut object)?;
    metadata::check_owned(kind, &conversion::from_storage(kind, &stored.value), &object, &["uid"])?;
    replace(world, ask, &stored, object, true)
}

fn apply(world: &mut World, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    if ask.options.manager.is_empty() {
        let cause = FieldError::required("fieldManager", "is required for apply patch");
        refuse("PatchOptions", &[cause])?;
    }
    let kind = ask.kind();
    let applied = yaml(ask.body)
        .map_err(|error| StatusError::bad_request(format!("error decoding YAML: {error}")))?;
    check_applied(ask, &applied)?;
    let key = ask.resource.key();
    let stored = world.store.get(room(kind), &key).cloned();
    let time = ask.time();
    let writer = writer(ask, &time);
    let force = ask.options.force.unwrap_or(false);
    let Some(stored) = stored else {
        nobody(kind, &applied)?;
        let mut object = apply::apply(kind, None, &applied, &writer, force)?;
        metadata::settle_namespace(ask.resource, &mut object)?;
        let object = give_birth(world, ask, object, false)?;
        return Ok(Outcome::Object(201, object));
    };
    let shown = conversion::from_storage(kind, &stored.value);
    if !metadata::text(&applied, "resourceVersion").is_empty() {
        metadata::same_version(kind, &shown, &applied)?;
    }
    let mut object = apply::apply(kind, Some(&shown), &applied, &writer, force)?;
    // Which version was meant has been asked above.
    metadata::set(
        &mut object,
        "resourceVersion",
        shown["metadata"].get("resourceVersion").cloned(),
    );
    replace(world, ask, &stored, object, false)
}

/// Who means a certain object does not want another.
fn nobody(kind: &Kind, applied: &Value) -> Result<(), StatusError> {
    let uid = metadata::text(applied, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let why = format!(
        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    );
    Err(StatusError::conflict(kind, metadata::text(applied, "name"), &why))
}

fn check_applied(ask: &Ask<'_>, applied: &Value) -> Result<(), StatusError> {
    let kind = ask.kind();
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
    metadata::same_name(ask.resource, applied)?;
    metadata::settle_namespace(ask.resource, &mut applied.clone())
}

fn writer<'a>(ask: &Ask<'a>, time: &'a str) -> Writer<'a> {
    let subresource = (ask.resource.subresource == Some(Subresource::Status)).then_some("status");
    Writer { manager: ask.manager(), subresource, time }
}

/// The last steps of every write. `noted`: who wrote what is yet to be noted.
fn commit(
    world: &mut World,
    ask: &Ask<'_>,
    stored: Option<&Arc<Object>>,
    mut object: Value,
    noted: bool,
) -> Result<Arc<Object>, StatusError> {
    let kind = ask.kind();
    let before = stored.map(|stored| conversion::from_storage(kind, &stored.value));
    let before = before.as_deref();
    let door = match ask.resource.subresource {
        // What is not there yet has no status of its own.
        Some(Subresource::Status) if stored.is_some() => Door::Status,
        _ => Door::Main,
    };
    let sent = object["spec"].clone();
    strategy::prepare(kind, door, before, &mut object)?;
    furnish(kind, &mut object);
    if let (Some(before), Door::Main) = (before, door) {
        metadata::count_generation(kind, before, &mut object);
    }
    // What the server gives out by itself is nobody's.
    if noted {
        let time = ask.time();
        let mut seen = strategy::without_gifts(kind, &sent, &object);
        apply::note(kind, before, &mut seen, &writer(ask, &time));
        metadata::set(&mut object, "managedFields", seen["metadata"].get("managedFields").cloned());
    }
    if kind.plural == "services" {
        world.allocator.assign(before, &mut object)?;
    }
    if let (Some(stored), Some(before)) = (stored, before)
        && metadata::same(before, &object)
    {
        return Ok(Arc::clone(stored));
    }
    if ask.options.dry_run {
        take_back(world, kind, before, &object);
        return Ok(Arc::new(Object::new(conversion::to_storage(kind, object))));
    }
    let key = crate::store::key(
        object["metadata"]["namespace"].as_str(),
        metadata::text(&object, "name"),
    );
    Ok(settle(world, kind, &key, object))
}

/// Stores the object, unless nothing has kept it here any more.
fn settle(world: &mut World, kind: &Kind, key: &str, object: Value) -> Arc<Object> {
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let kept = kind.plural == "namespaces"
        && !object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    let free = metadata::finalizers(&object).is_empty() && grace == 0 && !kept;
    let object = conversion::to_storage(kind, object);
    if metadata::is_going(&object) && free {
        if kind.plural == "services" {
            // It may have been given more than what is stored had.
            world.allocator.release(&object);
        }
        world.remove(room(kind), key);
        return Arc::new(Object::new(object));
    }
    world.put(room(kind), key, object)
}

/// Gives back what a rehearsal has taken.
fn take_back(world: &mut World, kind: &Kind, before: Option<&Value>, object: &Value) {
    if kind.plural != "services" {
        return;
    }
    match before {
        None => world.allocator.release(object),
        // It had all this a moment ago, so it can have it again.
        Some(before) => drop(world.allocator.assign(Some(object), &mut before.clone())),
    }
}

/// What namespaces have by themselves.
fn furnish(kind: &Kind, object: &mut Value) {
    if kind.plural != "namespaces" {
        return;
    }
    let name = metadata::text(object, "name").to_owned();
    if !object["metadata"]["labels"].is_object() {
        metadata::set(object, "labels", Some(json!({})));
    }
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    if object["spec"]["finalizers"].is_null() {
        object["spec"]["finalizers"] = json!(["kubernetes"]);
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let phase = if metadata::is_going(object) { "Terminating" } else { "Active" };
    object["status"]["phase"] = phase.into();
}

/// `pods/NAME/binding`: gives a Pod its node.
pub(super) fn bind(world: &mut World, ask: &Ask<'_>) -> Result<Outcome, StatusError> {
    let binding = parse(ask)?;
    if metadata::text(&binding, "name") != ask.resource.name() {
        return Err(StatusError::bad_request("name in URL does not match name in Binding object"));
    }
    if binding["target"]["name"].as_str().is_none_or(str::is_empty) {
        return Err(StatusError::without_reason("target.name: Required value"));
    }
    let key = ask.resource.key();
    let stored = world.store.get(room(ask.kind()), &key).cloned();
    let stored = stored.ok_or_else(|| StatusError::not_found(ask.kind(), ask.resource.name()))?;
    let node = stored.value["spec"]["nodeName"].as_str().unwrap_or_default();
    if !node.is_empty() {
        return Err(StatusError::bound(ask.resource.name(), node));
    }
    let mut pod = stored.value.clone();
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    scheduled(&mut pod, &ask.time());
    if !ask.options.dry_run {
        world.put(room(ask.kind()), &key, pod);
    }
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Outcome::Status(201, done))
}

fn scheduled(pod: &mut Value, time: &str) {
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
fn read(ask: &Ask<'_>) -> Result<Value, StatusError> {
    let mut object = parse(ask)?;
    typed(ask.kind(), &mut object)?;
    Ok(object)
}

fn parse(ask: &Ask<'_>) -> Result<Value, StatusError> {
    let unreadable = |error: String| {
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {error}",
            ask.kind().kind
        ))
    };
    let object = match ask.content_type {
        "" | "application/json" => serde_json::from_slice(ask.body).map_err(|e| e.to_string()),
        "application/yaml" => yaml(ask.body),
        protobuf::MEDIA_TYPE => return protobuf::decode(ask.body),
        _ => return Err(StatusError::unsupported_media_type(FORMS)),
    };
    let mut object: Value = object.map_err(unreadable)?;
    if object.is_null() {
        object = json!({});
    }
    if object.is_object() { Ok(object) } else { Err(unreadable("this is no object".into())) }
}

fn yaml(body: &[u8]) -> Result<Value, String> {
    // JSON is YAML, but its own parser is faster and takes every JSON.
    if let Ok(object) = serde_json::from_slice(body) {
        return Ok(object);
    }
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
}

/// Whether the object says that it is of this kind; if it says nothing, it is.
fn typed(kind: &Kind, object: &mut Value) -> Result<(), StatusError> {
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
    let wrong = |what: &str| {
        StatusError::bad_request(format!(
            "{name} in version {version:?} cannot be handled as a {name}: json: cannot unmarshal {what}"
        ))
    };
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    if metadata::metadata(object).is_none() {
        return Err(wrong("metadata into Go struct field of type ObjectMeta"));
    }
    for field in ["name", "namespace", "generateName", "uid", "resourceVersion"] {
        let value = &object["metadata"][field];
        if !value.is_null() && !value.is_string() {
            return Err(wrong(&format!(
                "{value} into Go struct field ObjectMeta.metadata.{field} of type string"
            )));
        }
    }
    object["apiVersion"] = version.into();
    object["kind"] = name.into();
    Ok(())
}
