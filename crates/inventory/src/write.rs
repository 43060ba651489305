//! The controller's writes: EndpointSlices, and conditions on Services.
//!
//! Slices are created, replaced and deleted as a whole, and only those that this controller manages.
//! Names come from the API server, where they are valid; they are checked all the same before they
//! become part of a request path.

use std::fmt::Display;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use http::Method;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use zonewise_cluster::watch::ContentType;
use zonewise_common::api_group::DISCOVERY_V1;
use zonewise_common::encoded::Encoded;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{CONTROLLER_NAME, Uid};
use zonewise_common::protobuf::MEDIA_TYPE;
use zonewise_common::protobuf::encode::encode;
use zonewise_common::protobuf::envelope::Envelope;
use zonewise_common::protobuf::kinds::ENDPOINT_SLICE;
use zonewise_slices::plan::SliceName;
use zonewise_slices::service::{Condition, Service};
use zonewise_slices::slice::Slice;

use zonewise_cluster::api::{self, ApiError};

/// The field manager of conditions, which are written with server-side apply.
const FIELD_MANAGER: &str = CONTROLLER_NAME;

/// Creates and replaces slices, in protobuf as long as the server takes that: a slice of 100 endpoints costs it a seventh
/// less than in JSON (docs/benchmarks.md).
pub struct SliceWriter {
    client: Client,
    protobuf: AtomicBool,
}

impl SliceWriter {
    /// Writes by way of this client.
    pub fn new(client: Client, content_type: ContentType) -> Self {
        Self { client, protobuf: AtomicBool::new(content_type == ContentType::Protobuf) }
    }

    /// Creates a slice and returns it as stored.
    pub async fn create(&self, slice: &Slice) -> Result<Slice, ApiError> {
        let path = slices_path(&slice.namespace)?;
        self.send(Method::POST, &path, slice).await
    }

    /// Replaces a slice and returns it as stored.
    pub async fn replace(&self, slice: &Slice) -> Result<Slice, ApiError> {
        let path = format!("{}/{}", slices_path(&slice.namespace)?, segment(slice.name())?);
        self.send(Method::PUT, &path, slice).await
    }

    async fn send(&self, method: Method, path: &str, slice: &Slice) -> Result<Slice, ApiError> {
        if let Some(body) = self.protobuf_of(slice) {
            let answer = api::call(&self.client, method.clone(), path, MEDIA_TYPE, body).await;
            match answer {
                Err(ApiError::Format(error)) => self.fall_back(&error),
                answer => return stored(slice, &answer?),
            }
        }
        let refused = |error: serde_json::Error| ApiError::Refused(error.to_string());
        let body = serde_json::to_vec(slice).map_err(refused)?;
        stored(slice, &api::call(&self.client, method, path, api::JSON, body).await?)
    }

    /// The slice in protobuf, if it is written so. One that cannot be is written as JSON.
    fn protobuf_of(&self, slice: &Slice) -> Option<Vec<u8>> {
        if !self.protobuf.load(Relaxed) {
            return None;
        }
        encode(DISCOVERY_V1, &ENDPOINT_SLICE, slice)
            .inspect_err(|error| tracing::debug!(%error, "a slice is written as JSON"))
            .ok()
    }

    fn fall_back(&self, error: &str) {
        if self.protobuf.swap(false, Relaxed) {
            tracing::warn!(
                error,
                "the API server does not take EndpointSlices in protobuf; they are written as JSON from now on"
            );
        }
    }
}

/// A slice as the server has stored it, by its answer. Only what the server adds is read; the rest is what was sent.
fn stored(slice: &Slice, answer: &[u8]) -> Result<Slice, ApiError> {
    let unreadable = |error: &dyn Display| {
        ApiError::Unavailable(format!("the answer to a write cannot be read: {error}"))
    };
    let metadata: StoredMeta = match Envelope::open(answer) {
        Ok(envelope) => Encoded::Protobuf(&ENDPOINT_SLICE, envelope.object).metadata(),
        Err(_) => {
            let json = std::str::from_utf8(answer).map_err(|error| unreadable(&error))?;
            Encoded::Json(json).metadata()
        }
    }
    .map_err(|error| unreadable(&error))?;
    Ok(Slice {
        name: Some(metadata.name),
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        ..slice.clone()
    })
}

/// Deletes a slice, if it still has the same uid. A slice that does not exist any more is no error.
pub async fn delete(client: &Client, namespace: &str, slice: &SliceName) -> Result<(), ApiError> {
    let path = format!("{}/{}", slices_path(namespace)?, segment(&slice.name)?);
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": { "uid": slice.uid },
    });
    let body = options.to_string().into_bytes();
    match api::call(client, Method::DELETE, &path, api::JSON, body).await {
        Err(ApiError::NotFound(_)) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The fields that the server adds to a slice.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMeta {
    name: Box<str>,
    uid: Uid,
    resource_version: Box<str>,
    #[serde(default, deserialize_with = "lenient")]
    generation: i64,
}

/// Sets our conditions on a Service to exactly these; others of ours are removed. With none, the request
/// names no field at all, so that the API server forgets us as a writer of the Service.
pub async fn conditions(
    client: &Client,
    service: &Service,
    conditions: &[Condition],
) -> Result<(), ApiError> {
    let list: Vec<_> = conditions
        .iter()
        .map(|condition| {
            json!({
                "type": condition.r#type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": condition.since,
            })
        })
        .collect();
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": service.name, "namespace": service.namespace },
    });
    if !list.is_empty() {
        body["status"] = json!({ "conditions": list });
    }
    let path = format!(
        "/api/v1/namespaces/{}/services/{}/status?fieldManager={FIELD_MANAGER}&force=true",
        segment(&service.namespace)?,
        segment(&service.name)?
    );
    let body = body.to_string().into_bytes();
    api::call(client, Method::PATCH, &path, api::APPLY, body).await.map(|_| ())
}

pub(crate) fn slices_path(namespace: &str) -> Result<String, ApiError> {
    Ok(format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", segment(namespace)?))
}

/// Checks that a name consists of characters that Kubernetes allows in names, so that it can be part
/// of a request path.
pub(crate) fn segment(name: &str) -> Result<&str, ApiError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if !name.is_empty() && name.bytes().all(allowed) && !name.starts_with('.') {
        Ok(name)
    } else {
        Err(ApiError::Refused(format!("{name:?} is not a valid object name")))
    }
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn names_cannot_leave_their_place_in_a_path() {
        for name in ["web-abc12", "kube-system", "10-0-0-1", "a.b"] {
            assert_eq!(segment(name).ok(), Some(name));
        }
        for name in ["", "..", "a/b", "a?b", "a b", "ä", "a%2fb", "a\n"] {
            assert!(segment(name).is_err(), "{name:?}");
        }
    }
}
