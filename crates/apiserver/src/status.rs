//! Errors as clients get them: `metav1.Status` objects, with the reasons and messages of
//! kube-apiserver.

use serde_json::{Value, json};
use thiserror::Error;

use crate::objects::kind::Kind;

/// Why a request failed; the `StatusError` of client-go.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{message}")]
pub(crate) struct StatusError {
    /// The HTTP status.
    pub(crate) code: u16,
    /// `NotFound`, `Conflict`, …
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    /// Kind and name of the object, and the causes by field.
    pub(crate) details: Option<Value>,
    /// A token to continue the list with, although its version is compacted.
    pub(crate) continue_token: Option<String>,
}

/// What is wrong with one field: `field.Error` of apimachinery, and a cause in a Status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldManagerConflict`, …
    pub(crate) reason: &'static str,
    /// The path of the field, such as `spec.ports[0].port`.
    pub(crate) field: String,
    /// For people, without the path.
    pub(crate) message: String,
}

impl FieldError {
    /// A value that is not allowed: `Invalid value: 0: must be between 1 and 65535, inclusive`.
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

    /// A value that is not one of the known ones.
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

    /// A value that occurs twice.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {value}");
        Self { reason: "FieldValueDuplicate", field: field.into(), message }
    }

    /// A reference to something that does not exist.
    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Not found: {value}");
        Self { reason: "FieldValueNotFound", field: field.into(), message }
    }

    /// A list with too many items.
    pub(crate) fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {most} items");
        Self { reason: "FieldValueTooMany", field: field.into(), message }
    }

    /// A value with too many bytes.
    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self { reason: "FieldValueTooLong", field: field.into(), message }
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "field": self.field, "message": self.message})
    }
}

/// The message for all conflicts with one manager.
fn conflicts_with_manager(group: &[FieldError]) -> String {
    let manager = group[0].message.replacen("conflict", "conflicts", 1);
    let fields: String = group.iter().map(|cause| format!("\n- {}", cause.field)).collect();
    format!("{manager}:{fields}")
}

impl StatusError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    /// With empty details, which some errors of kube-apiserver have.
    pub(crate) fn with_empty_details(mut self) -> Self {
        self.details = Some(json!({}));
        self
    }

    fn with_details(mut self, kind: &Kind, name: &str, causes: &[FieldError]) -> Self {
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

    /// The object does not exist.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::new(404, "NotFound", message).with_details(kind, name, &[])
    }

    /// The path does not exist.
    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_empty_details()
    }

    /// A part of a Pod or Node that only its kubelet knows.
    pub(crate) fn no_kubelet(subresource: &str) -> Self {
        let message = format!(
            "{subresource:?} needs a kubelet, and this API server has none: the Pods of a lab are network \
             namespaces without containers"
        );
        Self::new(501, "NotImplemented", message)
    }

    /// An object of this name exists.
    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message).with_details(kind, name, &[])
    }

    /// The object has changed since the client read it, or is not the one that it means.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::new(409, "Conflict", message).with_details(kind, name, &[])
    }

    /// Fields that other managers own. The causes are ordered by manager; the message names each
    /// manager once.
    pub(crate) fn apply_conflict(causes: &[FieldError]) -> Self {
        let groups: Vec<String> = match causes {
            [one] => vec![format!("{}: {}", one.message, one.field)],
            many => many
                .chunk_by(|one, next| one.message == next.message)
                .map(conflicts_with_manager)
                .collect(),
        };
        let plural = if causes.len() == 1 { "conflict" } else { "conflicts" };
        let message = format!("Apply failed with {} {plural}: {}", causes.len(), groups.join("\n"));
        let mut error = Self::new(409, "Conflict", message);
        let causes: Vec<Value> = causes.iter().map(FieldError::json).collect();
        error.details = Some(json!({"causes": causes}));
        error
    }

    /// Fields with values that are not allowed.
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
        let mut error = Self::new(422, "Invalid", message).with_details(kind, name, causes);
        if let Some(details) = &mut error.details {
            details["kind"] = kind.kind.into();
        }
        error
    }

    /// A request that cannot be understood.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// A JSON patch that cannot be applied to the object.
    pub(crate) fn patch_rejected() -> Self {
        Self::patch_refused("the server rejected our request due to an error in our request")
    }

    /// A patch that is refused for its size or depth.
    pub(crate) fn patch_refused(message: impl Into<String>) -> Self {
        let mut error = Self::new(422, "Invalid", message);
        error.details = Some(json!({}));
        error
    }

    /// 500 without a reason, as kube-apiserver answers when its own code returns a plain error.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// No token, or an unknown one.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// An operation that is never allowed.
    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", kind.qualified());
        Self::new(403, "Forbidden", message).with_details(kind, name, &[])
    }

    /// A new object in a namespace that is being deleted.
    pub(crate) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = FieldError {
            reason: "NamespaceTerminating",
            field: "metadata.namespace".into(),
            message: format!("namespace {namespace} is being terminated"),
        };
        Self::forbidden(kind, name, &why).with_details(kind, name, &[cause])
    }

    /// A precondition of a deletion does not hold. In this error kube-apiserver names the kind, not
    /// the resource.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let full = if kind.group.is_empty() {
            kind.kind.to_owned()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!("Operation cannot be fulfilled on {full} {name:?}: {why}");
        let mut error = Self::new(409, "Conflict", message).with_details(kind, name, &[]);
        if let Some(details) = &mut error.details {
            details["kind"] = kind.kind.into();
        }
        error
    }

    /// A binding of a Pod that already has a node.
    pub(crate) fn already_bound(pod: &str, node: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on pods/binding {pod:?}: pod {pod} is already assigned \
             to node {node:?}"
        );
        let mut error = Self::new(409, "Conflict", message);
        error.details = Some(json!({"name": pod, "kind": "pods/binding"}));
        error
    }

    /// A body that is too large.
    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// A JSON patch with too many operations.
    pub(crate) fn too_many_operations(count: usize, most: usize) -> Self {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {most}, \
             got {count}"
        );
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// No representation that the client accepts.
    pub(crate) fn not_acceptable(known: &str) -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {known}");
        Self::new(406, "NotAcceptable", message).with_empty_details()
    }

    /// A representation that is not served for this path, although its media type is.
    pub(crate) fn not_accepted(known: &str) -> Self {
        let message = format!("only the following media types are accepted: {known}");
        Self::new(406, "NotAcceptable", message)
    }

    /// Metadata of a list that is asked for as that of an object, or the other way round.
    pub(crate) fn not_convertible(kind: &Kind, asked_for_list: bool) -> Self {
        let package = match kind.group {
            "" | "events.k8s.io" => "core",
            group => group.split('.').next().unwrap_or_default(),
        };
        let name = kind.kind;
        Self::new(
            406,
            "NotAcceptable",
            if asked_for_list {
                format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list \
                     (*{package}.{name})"
                )
            } else {
                format!(
                    "you requested PartialObjectMetadata, but the requested object is a list \
                     (*{package}.{name}List)"
                )
            },
        )
    }

    /// The version of a list is compacted; the token continues with the present objects.
    pub(crate) fn expired_continue(message: impl Into<String>, token: String) -> Self {
        Self { continue_token: Some(token), ..Self::expired(message) }
    }

    /// A method that the path does not support.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_empty_details()
    }

    /// A resourceVersion that is compacted.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A body of a media type that is not read.
    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// A resourceVersion that does not exist yet.
    pub(crate) fn too_large_version(message: impl Into<String>) -> Self {
        let mut error = Self::new(504, "Timeout", message);
        let cause =
            json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        error.details = Some(json!({"retryAfterSeconds": 1, "causes": [cause]}));
        error
    }

    /// An error of a fault that is switched on.
    pub(crate) fn injected(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, reason, message)
    }

    /// The `metav1.Status`.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = token.as_str().into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
