//! Single requests to the API server. Failures are sorted into the few kinds that callers react to
//! differently ([`ApiError`]).

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use thiserror::Error;
use tokio::time::timeout;
use zonewise_common::encoded::Encoded;
use zonewise_common::lenient::lenient;
pub use zonewise_common::media_type::{APPLY, JSON, JSON_PATCH, MERGE_PATCH as MERGE};
use zonewise_common::protobuf::MEDIA_TYPE;
use zonewise_common::protobuf::decode::decode;
use zonewise_common::protobuf::envelope::Envelope;
use zonewise_common::protobuf::kinds::STATUS;

/// Limit for reads. A healthy server answers any list faster; a connection that hangs is given up.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for writes. A leader starts its last write at most 10 s after its last lease renewal, and
/// another candidate takes over 15 s after that renewal at the earliest (see [`crate::lease`]). A
/// write must therefore end within the 5 s in between.
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// Why a request failed.
#[derive(Clone, Debug, Error)]
pub enum ApiError {
    /// The server cannot be reached, is overloaded or is not ready. Any other request would fail now
    /// as well, so all callers should wait.
    #[error("the API server is not available: {0}")]
    Unavailable(String),
    /// The server failed at this request, or took too long for this write. A webhook of the object's namespace may
    /// be the cause, so that requests about other objects may succeed.
    #[error("the API server failed at this request: {0}")]
    Failed(String),
    /// The object has changed since the version that the write was based on.
    #[error("conflict: {0}")]
    Conflict(String),
    /// The object does not exist.
    #[error("not found: {0}")]
    NotFound(String),
    /// The namespace is being deleted, and nothing can be created in it.
    #[error("the namespace is being deleted: {0}")]
    NamespaceTerminating(String),
    /// The server does not accept the credentials: it does not know who asks.
    #[error(
        "the API server does not accept the credentials (401): {0}; check user, token and certificate in the \
         kubeconfig, and log in again if they have expired"
    )]
    Unauthorized(String),
    /// The server knows who asks, and that user or service account lacks the permission.
    #[error(
        "not allowed (403): {0}; the credentials are valid but lack this permission: apply zonewise's RBAC manifest \
         (deploy/) to the cluster, and bind its role to this user or service account"
    )]
    Forbidden(String),
    /// The resource version is too old: the server no longer has the history that the watch asked for.
    #[error("the resource version is too old: {0}")]
    Gone(String),
    /// The server does not offer a form that was asked for, or its answer is not what it says it is.
    #[error("the API server's answer is in a form that cannot be used: {0}")]
    Format(String),
    /// The server rejects the request, for instance because an object is not valid.
    #[error("rejected by the API server: {0}")]
    Refused(String),
}

impl ApiError {
    /// Whether any other request would fail now as well.
    pub fn is_general(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Unauthorized(_))
    }
}

/// The fields of a `metav1.Status` that say why a request failed.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "lenient")]
    message: String,
    #[serde(deserialize_with = "lenient")]
    reason: String,
    #[serde(deserialize_with = "lenient")]
    details: Details,
    #[serde(deserialize_with = "lenient")]
    code: u16,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(deserialize_with = "lenient")]
    causes: Vec<Cause>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    #[serde(deserialize_with = "lenient")]
    reason: String,
}

/// Turns the answer to a failed request into an error.
pub(crate) fn error(code: StatusCode, body: &[u8]) -> ApiError {
    let status = match Envelope::open(body) {
        Ok(Envelope { kind: "Status", object, .. }) => decode(STATUS.fields, object).ok(),
        _ => serde_json::from_slice(body).ok(),
    };
    let text = || format!("{code} {}", String::from_utf8_lossy(&body[..body.len().min(200)]));
    sorted(code, &status.unwrap_or_default(), text)
}

/// Turns the Status in an `ERROR` event of a watch into an error.
pub(crate) fn watch_error(status: Encoded<'_>) -> ApiError {
    let status: Status = status.decode().unwrap_or_default();
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    sorted(code, &status, || format!("{code} without a message"))
}

/// The kind of failure that a status stands for. `text` is shown if it has no message.
fn sorted(code: StatusCode, status: &Status, text: impl Fn() -> String) -> ApiError {
    let message = match status.message.as_str() {
        "" => text(),
        message => message.to_owned(),
    };
    let terminating =
        status.details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
    match code {
        _ if terminating => ApiError::NamespaceTerminating(message),
        StatusCode::CONFLICT if status.reason != "AlreadyExists" => ApiError::Conflict(message),
        StatusCode::NOT_FOUND => ApiError::NotFound(message),
        StatusCode::GONE => ApiError::Gone(message),
        StatusCode::UNAUTHORIZED => ApiError::Unauthorized(message),
        StatusCode::FORBIDDEN => ApiError::Forbidden(message),
        StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            ApiError::Format(message)
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            ApiError::Unavailable(message)
        }
        code if code.is_server_error() => ApiError::Failed(message),
        _ => ApiError::Refused(message),
    }
}

/// Sends a request. Returns as soon as the head of the answer has arrived; the body follows.
pub(crate) async fn send(
    client: &Client,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let (limit, late): (_, fn(String) -> ApiError) = match *request.method() {
        Method::GET => (READ_TIMEOUT, ApiError::Unavailable),
        _ => (WRITE_TIMEOUT, ApiError::Failed),
    };
    let answer = timeout(limit, client.send(request)).await;
    let answer = answer.map_err(|_| late(format!("no answer within {} s", limit.as_secs())))?;
    let response = answer.map_err(|error| ApiError::Unavailable(with_causes(&error)))?;
    uncompressed(&response)?;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status();
    let body = read(response).await?;
    Err(error(code, &body))
}

/// Refuses an answer that is compressed, which was not asked for: in a cluster, it costs the server more time than
/// the shorter answer saves.
fn uncompressed(response: &Response<Body>) -> Result<(), ApiError> {
    match response.headers().get(http::header::CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(ApiError::Refused(format!(
            "the answer is compressed ({encoding:?}), which was not asked for; a proxy between this program and the \
             API server does that, and must be told not to"
        ))),
        _ => Ok(()),
    }
}

async fn read(response: Response<Body>) -> Result<bytes::Bytes, ApiError> {
    let body = timeout(READ_TIMEOUT, response.into_body().collect()).await;
    body.map_err(|_| ApiError::Unavailable("the answer stopped before its end".into()))?
        .map(|body| body.to_bytes())
        .map_err(|error| ApiError::Unavailable(error.to_string()))
}

/// An error and its causes in one line. The error of an HTTP client alone ("client error
/// (Connect)") does not help; the refused connection is named further down the chain.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
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

/// Deletes an object; that there is none is no error.
pub async fn delete(client: &Client, path: &str) -> Result<(), ApiError> {
    match call(client, Method::DELETE, path, JSON, Vec::new()).await {
        Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads what is at a path and returns the whole answer with its headers.
pub async fn get_with_headers(
    client: &Client,
    path: &str,
) -> Result<(HeaderMap, bytes::Bytes), ApiError> {
    let request = Request::get(path).body(Body::empty());
    let response = send(client, request.map_err(|error| invalid_path(path, &error))?).await?;
    let headers = response.headers().clone();
    Ok((headers, read(response).await?))
}

/// Sends a request and returns the whole answer. That is JSON, unless what is sent is protobuf: then it may be that.
pub async fn call(
    client: &Client,
    method: Method,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<bytes::Bytes, ApiError> {
    let mut request =
        Request::builder().method(method).uri(path).header(CONTENT_TYPE, content_type);
    if content_type == MEDIA_TYPE {
        request = request.header(ACCEPT, protobuf_or_json());
    }
    let request = request.body(Body::from(body)).map_err(|error| invalid_path(path, &error))?;
    read(send(client, request).await?).await
}

/// What is accepted where protobuf is asked for: a server that does not speak it answers in JSON.
pub(crate) fn protobuf_or_json() -> String {
    format!("{MEDIA_TYPE},{JSON}")
}

/// A path that cannot be part of a request.
pub(crate) fn invalid_path(path: &str, error: &http::Error) -> ApiError {
    ApiError::Refused(format!("`{path}` is not a valid request path: {error}"))
}
