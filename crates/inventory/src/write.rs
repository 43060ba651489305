//! Writes: slices, and conditions on Services.
//!
//! Only whole slices that we own are written (create, replace, delete), never a patch of somebody
//! else's. Names come from the API server and are valid there; they are still checked before they
//! become part of a path.

use http::Method;
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use zonewise_common::name::Uid;
use zonewise_slices::plan::SliceName;
use zonewise_slices::service::{Condition, Service};
use zonewise_slices::slice::Slice;

use zonewise_cluster::api::{self, ApiError};

/// Field manager of what we apply.
pub const FIELD_MANAGER: &str = "zonewise-controller";

/// Creates a slice; returns it as stored.
pub async fn create(client: &Client, slice: &Slice) -> Result<Slice, ApiError> {
    let path = slices_path(&slice.namespace)?;
    send(client, Method::POST, &path, slice).await
}

/// Replaces a slice; returns it as stored.
pub async fn replace(client: &Client, slice: &Slice) -> Result<Slice, ApiError> {
    let path = format!("{}/{}", slices_path(&slice.namespace)?, segment(slice.name())?);
    send(client, Method::PUT, &path, slice).await
}

/// Deletes a slice, if it is still the one that was meant. One that is gone already is fine.
pub async fn delete(client: &Client, namespace: &str, slice: &SliceName) -> Result<(), ApiError> {
    let path = format!("{}/{}", slices_path(namespace)?, segment(&slice.name)?);
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": { "uid": slice.uid },
    });
    let body = options.to_string().into_bytes();
    match api::call(client, Method::DELETE, &path, (api::JSON, body)).await {
        Err(ApiError::NotFound(_)) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// What the server adds to a slice. The rest is what we sent, so it is not read again.
#[derive(Deserialize)]
struct Stored {
    metadata: StoredMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMeta {
    name: Box<str>,
    uid: Uid,
    resource_version: Box<str>,
    #[serde(default)]
    generation: i64,
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    slice: &Slice,
) -> Result<Slice, ApiError> {
    let refused = |error: serde_json::Error| ApiError::Refused(error.to_string());
    let body = serde_json::to_vec(slice).map_err(refused)?;
    let answer = api::call(client, method, path, (api::JSON, body)).await?;
    let Stored { metadata } = serde_json::from_slice(&answer)
        .map_err(|error| ApiError::Unavailable(format!("the answer cannot be read: {error}")))?;
    Ok(Slice {
        name: Some(metadata.name),
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        ..slice.clone()
    })
}

/// Makes our conditions on a Service these ones, and no others.
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
    let body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": service.name, "namespace": service.namespace },
        "status": { "conditions": list },
    });
    let path = format!(
        "/api/v1/namespaces/{}/services/{}/status?fieldManager={FIELD_MANAGER}&force=true",
        segment(&service.namespace)?,
        segment(&service.name)?
    );
    let body = body.to_string().into_bytes();
    api::call(client, Method::PATCH, &path, (api::APPLY, body)).await.map(|_| ())
}

fn slices_path(namespace: &str) -> Result<String, ApiError> {
    Ok(format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", segment(namespace)?))
}

/// A name as part of a path: nothing but what Kubernetes allows in names.
fn segment(name: &str) -> Result<&str, ApiError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if !name.is_empty() && name.bytes().all(allowed) && !name.starts_with('.') {
        Ok(name)
    } else {
        Err(ApiError::Refused(format!("{name:?} is not a name")))
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
