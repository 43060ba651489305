//! The writes of guard mode: ZoneAllocations, the floor of a Service, and requests that make the API server look at a
//! slice again.
//!
//! ```text
//!  allocate ─► ZoneAllocation ─► read by the admission policy on every write of a slice
//!  touch    ─► a patch that changes nothing: what the policy makes of the slice is stored, and returned
//!  release  ─► a label that the built-in controller does not know: it removes it, and writes its own hints
//! ```

use http::Method;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::Resource;
use zonewise_common::keys::RELEASED;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_slices::guard::ZoneAllocation;
use zonewise_slices::service::Service;
use zonewise_slices::slice::Slice;

use crate::write::{segment, slices_path};

/// The field manager of everything that guard mode writes.
pub const FIELD_MANAGER: &str = "zonewise-guard";
/// The API version of ZoneAllocations.
pub const API_VERSION: &str = "zonewise.dev/v1alpha1";
/// The API group of admission policies.
pub const POLICIES: &str = "admissionregistration.k8s.io/v1";
/// The name of the admission policy, and what the names of its bindings begin with.
pub const POLICY: &str = "zonewise-guard";
/// All ZoneAllocations, which are custom resources and therefore JSON.
pub const ALLOCATIONS: Resource = Resource {
    name: "zoneallocations",
    path: "/apis/zonewise.dev/v1alpha1/zoneallocations",
    selector: std::borrow::Cow::Borrowed(""),
    kind: None,
};

/// A ZoneAllocation as it is stored.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredAllocation {
    metadata: Metadata,
    /// What it says.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: ZoneAllocation,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    #[serde(deserialize_with = "lenient")]
    namespace: Name,
    #[serde(deserialize_with = "lenient")]
    name: Name,
    #[serde(deserialize_with = "lenient")]
    resource_version: Box<str>,
}

impl StoredAllocation {
    /// Its resource version.
    pub fn version(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Keyed for StoredAllocation {
    fn key(&self) -> Key {
        (Name::clone(&self.metadata.namespace), Name::clone(&self.metadata.name))
    }
}

/// The ZoneAllocation of a Service, as it is written. The Service owns it, so that it goes with the Service.
pub fn allocation_object(service: &Service, allocation: &ZoneAllocation) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ZoneAllocation",
        "metadata": {
            "namespace": service.namespace,
            "name": service.name,
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Service",
                "name": service.name,
                "uid": service.uid,
            }],
        },
        "spec": allocation,
    })
}

/// Creates or replaces the allocation of a Service.
pub async fn allocate(
    client: &Client,
    service: &Service,
    allocation: &ZoneAllocation,
) -> Result<StoredAllocation, ApiError> {
    let path = allocation_path(&service.namespace, &service.name)?;
    let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
    let body = allocation_object(service, allocation);
    patch(client, &path, api::APPLY, &body).await
}

/// Deletes the allocation of a Service; that there is none is no error.
pub async fn delete_allocation(client: &Client, (namespace, name): &Key) -> Result<(), ApiError> {
    let path = allocation_path(namespace, name)?;
    match api::call(client, Method::DELETE, &path, api::JSON, Vec::new()).await {
        Err(ApiError::NotFound(_)) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Sets `spec.trafficDistribution` of a Service, or gives it up, and returns the Service as it is stored then. A value that another manager has set is a conflict, and
/// stays; what another manager has set as well stays when it is given up.
pub async fn set_floor(
    client: &Client,
    (namespace, name): &Key,
    value: Option<&str>,
) -> Result<Service, ApiError> {
    let path = format!(
        "/api/v1/namespaces/{}/services/{}?fieldManager={FIELD_MANAGER}",
        segment(namespace)?,
        segment(name)?
    );
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "namespace": namespace, "name": name },
    });
    if let Some(value) = value {
        body["spec"] = json!({ "trafficDistribution": value });
    }
    patch(client, &path, api::APPLY, &body).await
}

/// Makes the API server run its admission policies on a slice, and returns what it stores then. Nothing is written if
/// they change nothing.
pub async fn touch(client: &Client, slice: &Slice) -> Result<Slice, ApiError> {
    patch(client, &slice_path(slice)?, api::MERGE, &json!({})).await
}

/// Makes the built-in controller write the hints of a slice itself. The label raises the slice's generation, which that
/// controller answers to; it removes all labels that it does not know.
pub async fn release(client: &Client, slice: &Slice) -> Result<Slice, ApiError> {
    let body = json!({ "metadata": { "labels": { RELEASED: "true" } } });
    patch(client, &slice_path(slice)?, api::MERGE, &body).await
}

fn slice_path(slice: &Slice) -> Result<String, ApiError> {
    Ok(format!("{}/{}", slices_path(&slice.namespace)?, segment(slice.name())?))
}

fn allocation_path(namespace: &str, name: &str) -> Result<String, ApiError> {
    let (namespace, name) = (segment(namespace)?, segment(name)?);
    Ok(format!("/apis/{API_VERSION}/namespaces/{namespace}/zoneallocations/{name}"))
}

/// Sends a patch and returns what is stored then.
async fn patch<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<T, ApiError> {
    let body = body.to_string().into_bytes();
    let answer = api::call(client, Method::PATCH, path, content_type, body).await?;
    serde_json::from_slice(&answer).map_err(|error| {
        ApiError::Unavailable(format!("the answer to a write cannot be read: {error}"))
    })
}
