//! What clients are told when something cannot be done: `Status` objects, as Kubernetes words them.

use serde_json::{Value, json};
use thiserror::Error;

use crate::objects::kind::Kind;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{message}")]
pub(crate) struct StatusError {
    /// The HTTP status.
    pub(crate) code: u16,
    /// `NotFound`, `Conflict`, …
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    /// What it is about, and causes by field.
    pub(crate) details: Option<Value>,
    /// Where a list can be continued all the same.
    pub(crate) resume: Option<String>,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldManagerConflict`, …
    pub(crate) reason: &'static str,
    /// Such as `spec.ports[0].port`.
    pub(crate) field: String,
    /// For people, without the field.
    pub(crate) message: String,
}

impl FieldError {
    /// A value that may not be: `Invalid value: 0: must be between 1 and 65535, inclusive`.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { reason: "FieldValueInvalid", field: field.into(), message }
    }

    /// A value that is missing.
    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".into() } else { format!("Required value: {why}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    /// A value that is none of the known ones.
    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|one| format!("{one:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", known.join(", "));
        Self { reason: "FieldValueNotSupported", field: field.into(), message }
    }

    /// A field that may not be set, or not be changed.
    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        let message = format!("Forbidden: {why}");
        Self { reason: "FieldValueForbidden", field: field.into(), message }
    }

    /// A value that is there twice.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {value}");
        Self { reason: "FieldValueDuplicate", field: field.into(), message }
    }

    /// A name that leads nowhere.
    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Not found: {value}");
        Self { reason: "FieldValueNotFound", field: field.into(), message }
    }

    /// A list with more items than there may be.
    pub(crate) fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {most} items");
        Self { reason: "FieldValueTooMany", field: field.into(), message }
    }

    /// More bytes than there may be.
    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self { reason: "FieldValueTooLong", field: field.into(), message }
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "field": self.field, "message": self.message})
    }
}

/// Conflicts with one manager.
fn told(group: &[FieldError]) -> String {
    let manager = group[0].message.replacen("conflict", "conflicts", 1);
    let fields: String = group.iter().map(|cause| format!("\n- {}", cause.field)).collect();
    format!("{manager}:{fields}")
}

impl StatusError {
    fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, resume: None }
    }

    pub(crate) fn about_nothing(mut self) -> Self {
        self.details = Some(json!({}));
        self
    }

    fn about(mut self, kind: &Kind, name: &str, causes: &[FieldError]) -> Self {
        let mut details = json!({"kind": kind.plural});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !kind.group.is_empty() {
            details["group"] = kind.group.into();
        }
        if !causes.is_empty() {
            details["causes"] = causes.iter().map(FieldError::json).collect();
        }
        self.details = Some(details);
        self
    }

    /// No such object.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::plain(404, "NotFound", message).about(kind, name, &[])
    }

    /// No such path.
    pub(crate) fn no_such_page() -> Self {
        Self::plain(404, "NotFound", "the server could not find the requested resource")
            .about_nothing()
    }

    /// Created twice.
    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::plain(409, "AlreadyExists", message).about(kind, name, &[])
    }

    /// Somebody else was faster.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::plain(409, "Conflict", message).about(kind, name, &[])
    }

    /// Fields that other managers own. Causes come ordered by manager: each is told once.
    pub(crate) fn apply_conflict(causes: &[FieldError]) -> Self {
        let groups: Vec<String> = match causes {
            [one] => vec![format!("{}: {}", one.message, one.field)],
            many => many.chunk_by(|one, next| one.message == next.message).map(told).collect(),
        };
        let plural = if causes.len() == 1 { "conflict" } else { "conflicts" };
        let message = format!("Apply failed with {} {plural}: {}", causes.len(), groups.join("\n"));
        let mut error = Self::plain(409, "Conflict", message);
        let causes: Vec<Value> = causes.iter().map(FieldError::json).collect();
        error.details = Some(json!({"causes": causes}));
        error
    }

    /// Values that may not be.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[FieldError]) -> Self {
        let texts: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let texts = match &texts[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let full = if kind.group.is_empty() {
            kind.kind.to_owned()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!("{full} {name:?} is invalid: {texts}");
        let mut error = Self::plain(422, "Invalid", message).about(kind, name, causes);
        if let Some(details) = &mut error.details {
            details["kind"] = kind.kind.into();
        }
        error
    }

    /// A request that makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// A patch that does not fit the object.
    pub(crate) fn patch_rejected() -> Self {
        Self::patch_refused("the server rejected our request due to an error in our request")
    }

    /// A patch that would do harm.
    pub(crate) fn patch_refused(message: impl Into<String>) -> Self {
        let mut error = Self::plain(422, "Invalid", message);
        error.details = Some(json!({}));
        error
    }

    /// Something that went wrong on the server's side, or that Kubernetes reports as such.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::without_reason(message)
    }

    /// Nobody we know.
    pub(crate) fn unauthorized() -> Self {
        Self::plain(401, "Unauthorized", "Unauthorized")
    }

    /// Something that may not be done.
    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
        Self::plain(403, "Forbidden", message).about(kind, name, &[])
    }

    /// Something new in a namespace that is going away.
    pub(crate) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = FieldError {
            reason: "NamespaceTerminating",
            field: "metadata.namespace".into(),
            message: format!("namespace {namespace} is being terminated"),
        };
        Self::forbidden(kind, name, &why).about(kind, name, &[cause])
    }

    /// A precondition of a deletion that does not hold: there the kind is named, not its plural.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let full = if kind.group.is_empty() {
            kind.kind.to_owned()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!("Operation cannot be fulfilled on {full} {name:?}: {why}");
        let mut error = Self::plain(409, "Conflict", message).about(kind, name, &[]);
        if let Some(details) = &mut error.details {
            details["kind"] = kind.kind.into();
        }
        error
    }

    /// A Pod that has a node already.
    pub(crate) fn bound(pod: &str, node: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on pods/binding {pod:?}: pod {pod} is already assigned to node {node:?}"
        );
        let mut error = Self::plain(409, "Conflict", message);
        error.details = Some(json!({"name": pod, "kind": "pods/binding"}));
        error
    }

    /// A mistake that has no reason of its own in Kubernetes.
    pub(crate) fn without_reason(message: impl Into<String>) -> Self {
        Self::plain(500, "", message)
    }

    /// A body that is larger than any object may be.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::plain(413, "RequestEntityTooLarge", message)
    }

    /// A JSON patch of more operations than there may be.
    pub(crate) fn too_many_operations(count: usize, most: usize) -> Self {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {most}, got {count}"
        );
        Self::plain(413, "RequestEntityTooLarge", message)
    }

    /// Nothing that the client would understand.
    pub(crate) fn not_acceptable(known: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {known}");
        Self::plain(406, "NotAcceptable", message).about_nothing()
    }

    /// A list that cannot be continued as it was begun; the token goes on with what is there now.
    pub(crate) fn expired_continue(message: impl Into<String>, resume: String) -> Self {
        Self { resume: Some(resume), ..Self::expired(message) }
    }

    /// A method that the path does not know.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::plain(405, "MethodNotAllowed", message).about_nothing()
    }

    /// A version that is no longer remembered.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// A body in a form that is not understood.
    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// A version of the future.
    pub(crate) fn too_large_version(message: impl Into<String>) -> Self {
        let mut error = Self::plain(504, "Timeout", message);
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        error.details = Some(json!({"retryAfterSeconds": 1, "causes": [cause]}));
        error
    }

    /// An error that was asked for.
    pub(crate) fn injected(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self::plain(code, reason, message)
    }

    /// The document.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(resume) = &self.resume {
            status["metadata"]["continue"] = resume.as_str().into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
