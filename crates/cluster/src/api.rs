//! Single requests to the API server, with the few kinds of failure that callers tell apart.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use thiserror::Error;
use tokio::time::timeout;

/// Longer than any list takes on a healthy server; a hung connection ends here.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Writes end before a lease that is not renewed can be taken by somebody else (15 s after the
/// last renewal, 10 s of which its holder may write).
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// Why a request failed.
#[derive(Clone, Debug, Error)]
pub enum ApiError {
    /// The server cannot be reached, is overloaded or is not ready: try again later, everybody.
    #[error("the API server is not available: {0}")]
    Unavailable(String),
    /// Somebody else was faster.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The object is not there.
    #[error("not found: {0}")]
    NotFound(String),
    /// The namespace is going away, nothing can be created in it.
    #[error("the namespace is being deleted: {0}")]
    NamespaceTerminating(String),
    /// We may not.
    #[error("not allowed: {0}; apply zonewise's RBAC manifest (deploy/) to the cluster")]
    Forbidden(String),
    /// What we asked is too old or unknown.
    #[error("too old: {0}")]
    Gone(String),
    /// The server does not take it.
    #[error("refused: {0}")]
    Refused(String),
}

impl ApiError {
    /// Whether every other request would fail as well now.
    pub fn is_general(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// The part of a Status that says why.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    reason: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
}

/// A failed answer as an error.
pub(crate) fn error(code: StatusCode, body: &[u8]) -> ApiError {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let message = match status.message.as_str() {
        "" => format!("{code} {}", String::from_utf8_lossy(&body[..body.len().min(200)])),
        message => message.to_owned(),
    };
    let terminating =
        status.details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
    match code {
        _ if terminating => ApiError::NamespaceTerminating(message),
        StatusCode::CONFLICT if status.reason != "AlreadyExists" => ApiError::Conflict(message),
        StatusCode::NOT_FOUND => ApiError::NotFound(message),
        StatusCode::GONE => ApiError::Gone(message),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ApiError::Forbidden(message),
        StatusCode::TOO_MANY_REQUESTS => ApiError::Unavailable(message),
        code if code.is_server_error() => ApiError::Unavailable(message),
        _ => ApiError::Refused(message),
    }
}

/// Sends a request and returns the answer once its head is there.
pub(crate) async fn open(
    client: &Client,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let limit = if request.method() == Method::GET { READ_TIMEOUT } else { WRITE_TIMEOUT };
    let unavailable = |error: kube::Error| ApiError::Unavailable(chain(&error));
    let answer = timeout(limit, client.send(request)).await;
    let response = answer
        .map_err(|_| ApiError::Unavailable(format!("no answer in {} s", limit.as_secs())))?
        .map_err(unavailable)?;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status();
    let body = read(response).await?;
    Err(error(code, &body))
}

async fn read(response: Response<Body>) -> Result<bytes::Bytes, ApiError> {
    let body = timeout(READ_TIMEOUT, response.into_body().collect()).await;
    body.map_err(|_| ApiError::Unavailable("the answer stopped half-way".into()))?
        .map(|body| body.to_bytes())
        .map_err(|error| ApiError::Unavailable(error.to_string()))
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Reads what is at a path and returns the whole answer.
pub async fn get(client: &Client, path: &str) -> Result<bytes::Bytes, ApiError> {
    call(client, Method::GET, path, JSON, Vec::new()).await
}

/// Sends a request and returns the whole answer.
pub async fn call(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<bytes::Bytes, ApiError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(Body::from(body))
        .map_err(|error| ApiError::Refused(format!("`{path}` is no path: {error}")))?;
    read(open(client, request).await?).await
}

/// Content type of whole objects.
pub const JSON: &str = "application/json";
/// Content type of server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";
/// Content type of patches that replace fields.
pub const MERGE: &str = "application/merge-patch+json";
