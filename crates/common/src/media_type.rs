//! The media types of requests to the API server and of its answers.
//!
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>

/// Objects and other documents in JSON.
pub const JSON: &str = "application/json";
/// Objects in protobuf.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";
/// JSON merge patches (RFC 7396).
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// JSON patches (RFC 6902).
pub const JSON_PATCH: &str = "application/json-patch+json";
