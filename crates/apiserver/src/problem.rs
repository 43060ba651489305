//! What clients are told when something cannot be done: `Status` objects, as Kubernetes words them.

use serde_json::{Value, json};
use thiserror::Error;

use crate::objects::kind::Kind;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{message}")]
pub struct Problem {
    /// The HTTP status.
    pub code: u16,
    /// `NotFound`, `Conflict`, …
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// What it is about, and causes by field.
    pub details: Option<Value>,
    /// Where a list can be continued all the same.
    pub resume: Option<String>,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldManagerConflict`, …
    pub reason: &'static str,
    /// Such as `spec.ports[0].port`.
    pub field: String,
    /// For people, without the field.
    pub message: String,
}

impl Cause {
    /// A value that may not be: `Invalid value: 0: must be between 1 and 65535, inclusive`.
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { reason: "FieldValueInvalid", field: field.into(), message }
    }

    /// A value that is missing.
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".into() } else { format!("Required value: {why}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    /// A value that is none of the known ones.
    pub fn unsupported(field: impl Into<String>, value: &Value, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|one| format!("{one:?}")).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", known.join(", "));
        Self { reason: "FieldValueNotSupported", field: field.into(), message }
    }

    /// A field that may not be set, or not be changed.
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        let message = format!("Forbidden: {why}");
        Self { reason: "FieldValueForbidden", field: field.into(), message }
    }

    /// A value that is there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {value}");
        Self { reason: "FieldValueDuplicate", field: field.into(), message }
    }

    /// A name that leads nowhere.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Not found: {value}");
        Self { reason: "FieldValueNotFound", field: field.into(), message }
    }

    /// A list with more items than there may be.
    pub fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {most} items");
        Self { reason: "FieldValueTooMany", field: field.into(), message }
    }

    /// More bytes than there may be.
    pub fn too_long(field: impl Into<String>, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self { reason: "FieldValueTooLong", field: field.into(), message }
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "field": self.field, "message": self.message})
    }
}

/// Conflicts with one manager.
fn told(group: &[Cause]) -> String {
    let manager = group[0].message.replacen("conflict", "conflicts", 1);
    let fields: String = group.iter().map(|cause| format!("\n- {}", cause.field)).collect();
    format!("{manager}:{fields}")
}

impl Problem {
    fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, resume: None }
    }

    pub(crate) fn about_nothing(mut self) -> Self {
        self.details = Some(json!({}));
        self
    }

    fn about(mut self, kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let mut details = json!({"kind": kind.plural});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !kind.group.is_empty() {
            details["group"] = kind.group.into();
        }
        if !causes.is_empty() {
            details["causes"] = causes.iter().map(Cause::json).collect();
        }
        self.details = Some(details);
        self
    }

    /// No such object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::plain(404, "NotFound", message).about(kind, name, &[])
    }

    /// No such path.
    pub fn no_such_page() -> Self {
        Self::plain(404, "NotFound", "the server could not find the requested resource")
            .about_nothing()
    }

    /// Created twice.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::plain(409, "AlreadyExists", message).about(kind, name, &[])
    }

    /// Somebody else was faster.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::plain(409, "Conflict", message).about(kind, name, &[])
    }

    /// Fields that other managers own. Causes come ordered by manager: each is told once.
    pub fn apply_conflict(causes: &[Cause]) -> Self {
        let groups: Vec<String> = match causes {
            [one] => vec![format!("{}: {}", one.message, one.field)],
            many => many.chunk_by(|one, next| one.message == next.message).map(told).collect(),
        };
        let plural = if causes.len() == 1 { "conflict" } else { "conflicts" };
        let message = format!("Apply failed with {} {plural}: {}", causes.len(), groups.join("\n"));
        let mut problem = Self::plain(409, "Conflict", message);
        let causes: Vec<Value> = causes.iter().map(Cause::json).collect();
        problem.details = Some(json!({"causes": causes}));
        problem
    }

    /// Values that may not be.
    pub fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
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
        let mut problem = Self::plain(422, "Invalid", message).about(kind, name, causes);
        if let Some(details) = &mut problem.details {
            details["kind"] = kind.kind.into();
        }
        problem
    }

    /// A request that makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// A patch that does not fit the object.
    pub fn patch_rejected() -> Self {
        Self::patch_refused("the server rejected our request due to an error in our request")
    }

    /// A patch that would do harm.
    pub fn patch_refused(message: impl Into<String>) -> Self {
        let mut problem = Self::plain(422, "Invalid", message);
        problem.details = Some(json!({}));
        problem
    }

    /// Something that went wrong on the server's side, or that Kubernetes reports as such.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::without_reason(message)
    }

    /// Nobody we know.
    pub fn unauthorized() -> Self {
        Self::plain(401, "Unauthorized", "Unauthorized")
    }

    /// Something that may not be done.
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
        Self::plain(403, "Forbidden", message).about(kind, name, &[])
    }

    /// Something new in a namespace that is going away.
    pub fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = Cause {
            reason: "NamespaceTerminating",
            field: "metadata.namespace".into(),
            message: format!("namespace {namespace} is being terminated"),
        };
        Self::forbidden(kind, name, &why).about(kind, name, &[cause])
    }

    /// A precondition of a deletion that does not hold: there the kind is named, not its plural.
    pub fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let full = if kind.group.is_empty() {
            kind.kind.to_owned()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!("Operation cannot be fulfilled on {full} {name:?}: {why}");
        let mut problem = Self::plain(409, "Conflict", message).about(kind, name, &[]);
        if let Some(details) = &mut problem.details {
            details["kind"] = kind.kind.into();
        }
        problem
    }

    /// A Pod that has a node already.
    pub fn bound(pod: &str, node: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on pods/binding {pod:?}: pod {pod} is already assigned to node {node:?}"
        );
        let mut problem = Self::plain(409, "Conflict", message);
        problem.details = Some(json!({"name": pod, "kind": "pods/binding"}));
        problem
    }

    /// A mistake that has no reason of its own in Kubernetes.
    pub fn without_reason(message: impl Into<String>) -> Self {
        Self::plain(500, "", message)
    }

    /// A body that is larger than any object may be.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::plain(413, "RequestEntityTooLarge", message)
    }

    /// A JSON patch of more operations than there may be.
    pub fn too_many_operations(count: usize, most: usize) -> Self {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {most}, got {count}"
        );
        Self::plain(413, "RequestEntityTooLarge", message)
    }

    /// Nothing that the client would understand.
    pub fn not_acceptable(known: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {known}");
        Self::plain(406, "NotAcceptable", message).about_nothing()
    }

    /// A list that cannot be continued as it was begun; the token goes on with what is there now.
    pub fn expired_continue(message: impl Into<String>, resume: String) -> Self {
        Self { resume: Some(resume), ..Self::expired(message) }
    }

    /// A method that the path does not know.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::plain(405, "MethodNotAllowed", message).about_nothing()
    }

    /// A version that is no longer remembered.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// A body in a form that is not understood.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// A version of the future.
    pub fn too_large_version(message: impl Into<String>) -> Self {
        let mut problem = Self::plain(504, "Timeout", message);
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        problem.details = Some(json!({"retryAfterSeconds": 1, "causes": [cause]}));
        problem
    }

    /// An error that was asked for.
    pub fn injected(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self::plain(code, reason, message)
    }

    /// The document.
    pub fn status(&self) -> Value {
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
