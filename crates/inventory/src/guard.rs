//! The writes of guard mode: ZoneAllocations, the floor of a Service, and requests that make the API server look at a
//! slice again. Those of its admission policy are in [`crate::policy`].
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
use zonewise_common::api_group::ZONEWISE_V1ALPHA1;
use zonewise_common::keys::RELEASED;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{GUARD_NAME, Key, Keyed, Name};
use zonewise_slices::guard::ZoneAllocation;
use zonewise_slices::service::Service;
use zonewise_slices::slice::{Owner, Slice};

use crate::write::{segment, slices_path};

/// The field manager of everything that guard mode writes.
pub const FIELD_MANAGER: &str = GUARD_NAME;
/// The API group of admission policies.
pub const POLICIES: &str = "admissionregistration.k8s.io/v1";
/// The name of the admission policy, and what the names of its bindings begin with.
pub const POLICY: &str = GUARD_NAME;
/// All ZoneAllocations, which are custom resources and therefore JSON.
pub const ALLOCATIONS: Resource = Resource {
    name: "zoneallocations",
    path: "/apis/zonewise.dev/v1alpha1/zoneallocations",
    namespace: None,
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
    #[serde(deserialize_with = "lenient")]
    creation_timestamp: Box<str>,
    #[serde(deserialize_with = "lenient")]
    owner_references: Vec<Owner>,
}

impl StoredAllocation {
    /// What it says about a Service. If it belongs to an earlier Service of the same name, which the garbage collector
    /// has not noticed yet, its hints are in force all the same, but the floor was another Service's.
    pub fn of(&self, service: &Service) -> ZoneAllocation {
        let owners = &self.metadata.owner_references;
        let is_its_own = owners.iter().any(|owner| owner.uid == service.uid);
        ZoneAllocation { floor: self.spec.floor.filter(|_| is_its_own), ..self.spec.clone() }
    }

    /// Its resource version.
    pub fn version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// When it was created, as the API server writes it.
    pub fn created(&self) -> &str {
        &self.metadata.creation_timestamp
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
        "apiVersion": ZONEWISE_V1ALPHA1,
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
    apply(client, &path, &allocation_object(service, allocation)).await
}

/// Deletes the allocation of a Service; that there is none is no error.
pub async fn delete_allocation(client: &Client, (namespace, name): &Key) -> Result<(), ApiError> {
    api::delete(client, &allocation_path(namespace, name)?).await
}

/// A Service as it is stored now, which the watch may not have reported yet; `None` if it does not exist.
pub async fn stored_service(client: &Client, service: &Key) -> Result<Option<Service>, ApiError> {
    match api::get(client, &service_path(service)?).await {
        Ok(answer) => decoded(&answer).map(Some),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets `spec.trafficDistribution` of a Service, or gives it up, and returns the Service as it is stored then. A value
/// that another manager has set is a conflict, and stays; what another manager has set as well stays when it is given up.
pub async fn set_floor(
    client: &Client,
    service: &Key,
    value: Option<&str>,
) -> Result<Service, ApiError> {
    let path = format!("{}?fieldManager={FIELD_MANAGER}", service_path(service)?);
    let (namespace, name) = service;
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

/// Gives the hints of a slice back, and returns the slice as it is stored then; `None` if there is nothing to give back.
pub async fn release(
    client: &Client,
    service: &Service,
    slice: &Slice,
) -> Result<Option<Slice>, ApiError> {
    let Some((content_type, body)) = release_patch(service, slice) else { return Ok(None) };
    patch(client, &slice_path(slice)?, content_type, &body).await.map(Some)
}

/// The patch that gives the hints of a slice back, and its content type.
///
/// The built-in controller writes them itself once the slice has a label: that raises the slice's generation, which the
/// controller answers to, and it removes all labels that it does not know. Slices of Services without a selector it
/// leaves as they are. There, the hints are removed.
fn release_patch(service: &Service, slice: &Slice) -> Option<(&'static str, Value)> {
    if service.is_ours() {
        return Some((api::MERGE, json!({ "metadata": { "labels": { RELEASED: "true" } } })));
    }
    let remove = |path: String| json!({ "op": "remove", "path": path });
    let hinted = slice.endpoints.iter().enumerate().filter(|(_, one)| one.hints.is_some());
    let hints = hinted.map(|(number, _)| remove(format!("/endpoints/{number}/hints")));
    let label = slice.labels.get(RELEASED).map(|_| {
        // RFC 6901 writes the slash of a key so.
        remove(format!("/metadata/labels/{}", RELEASED.replace('/', "~1")))
    });
    let steps: Vec<Value> = hints.chain(label).collect();
    // The numbers are those of this version.
    let version = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": slice.resource_version });
    let patch = std::iter::once(version).chain(steps.iter().cloned()).collect();
    (!steps.is_empty()).then_some((api::JSON_PATCH, Value::Array(patch)))
}

fn service_path((namespace, name): &Key) -> Result<String, ApiError> {
    Ok(format!("/api/v1/namespaces/{}/services/{}", segment(namespace)?, segment(name)?))
}

fn slice_path(slice: &Slice) -> Result<String, ApiError> {
    Ok(format!("{}/{}", slices_path(&slice.namespace)?, segment(slice.name())?))
}

fn allocation_path(namespace: &str, name: &str) -> Result<String, ApiError> {
    let (namespace, name) = (segment(namespace)?, segment(name)?);
    Ok(format!("/apis/{ZONEWISE_V1ALPHA1}/namespaces/{namespace}/zoneallocations/{name}"))
}

/// Writes an object with server-side apply, and takes from others what they have changed about it. Returns what is
/// stored then.
pub(crate) async fn apply<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    object: &Value,
) -> Result<T, ApiError> {
    let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
    patch(client, &path, api::APPLY, object).await
}

/// Sends a patch and returns what is stored then.
async fn patch<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    content_type: &str,
    body: &Value,
) -> Result<T, ApiError> {
    let body = body.to_string().into_bytes();
    decoded(&api::call(client, Method::PATCH, path, content_type, body).await?)
}

/// What an answer in JSON says.
///
/// # Errors
/// If it is something else.
pub fn decoded<T: DeserializeOwned>(answer: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(answer).map_err(|error| ApiError::Format(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonewise_slices::guard::{Floor, Others};

    fn service(selector: &Value) -> Service {
        serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": "second" },
            "spec": { "selector": selector },
        }))
        .unwrap()
    }

    #[test]
    fn the_floor_of_an_earlier_service_of_the_same_name_is_not_that_of_the_new_one() {
        let stored = |owner: &str| -> StoredAllocation {
            serde_json::from_value(json!({
                "metadata": { "name": "web", "ownerReferences": [{ "kind": "Service", "uid": owner }] },
                "spec": { "others": "OwnZone", "floor": "PreferSameZone" },
            }))
            .unwrap()
        };
        let service = service(&json!({ "app": "web" }));
        let of = |owner: &str| stored(owner).of(&service);
        assert_eq!(of("second").floor, Some(Floor::PreferSameZone));
        assert_eq!((of("first").floor, of("first").others), (None, Others::OwnZone));
    }

    #[test]
    fn slices_that_the_built_in_controller_leaves_alone_lose_their_hints_and_get_no_label() {
        let slice = |labels: &Value| -> Slice {
            let endpoint = |hints: Value| json!({ "addresses": ["10.0.0.1"], "hints": hints });
            serde_json::from_value(json!({
                "metadata": { "namespace": "shop", "name": "web-1", "resourceVersion": "7", "labels": labels },
                "addressType": "IPv4",
                "endpoints": [endpoint(Value::Null), endpoint(json!({ "forZones": [{ "name": "a" }] }))],
            }))
            .unwrap()
        };
        let label = json!({ "metadata": { "labels": { RELEASED: "true" } } });
        let test = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" });
        let hints = json!({ "op": "remove", "path": "/endpoints/1/hints" });
        let labelled = json!({ "op": "remove", "path": "/metadata/labels/zonewise.dev~1released" });
        let (ours, bare) = (service(&json!({ "app": "web" })), service(&Value::Null));
        let (plain, released) = (slice(&json!({})), slice(&json!({ RELEASED: "true" })));
        assert_eq!(release_patch(&ours, &plain), Some((api::MERGE, label)));
        assert_eq!(release_patch(&bare, &plain), Some((api::JSON_PATCH, json!([test, hints]))));
        let both = json!([test, hints, labelled]);
        assert_eq!(release_patch(&bare, &released), Some((api::JSON_PATCH, both)));
        let nothing = Slice { endpoints: Vec::new(), ..plain };
        assert_eq!(release_patch(&bare, &nothing), None);
    }
}
