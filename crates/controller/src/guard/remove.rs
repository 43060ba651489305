//! Takes guard mode out of a cluster: what it has written goes, and the built-in controller's hints return.
//!
//! ```text
//!  binding, policy ─► gone ─► a moment ─► for every ZoneAllocation: floor, slices, conditions ─► itself
//! ```

use kube::Client;
use serde::Deserialize;
use tokio::time::sleep;
use zonewise_cluster::api::{self, ApiError};
use zonewise_common::keys::{MANAGED_BY, SERVICE_NAME};
use zonewise_common::name::{Key, Keyed};
use zonewise_inventory::guard::{ALLOCATIONS, StoredAllocation};
use zonewise_inventory::{guard, write};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::Slice;

use super::{IN_FORCE_AFTER, keeper};

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Services whose hints are the built-in controller's again.
    pub services: usize,
    /// Services whose `spec.trafficDistribution` was given back.
    pub floors: usize,
}

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

/// Removes everything that guard mode has written. No controller may run in guard mode meanwhile; it would write it again.
///
/// # Errors
/// If something cannot be removed. What was removed stays so, and the rest can be removed by another attempt.
pub async fn remove(client: &Client) -> Result<Removed, ApiError> {
    keeper::remove(client).await?;
    sleep(IN_FORCE_AFTER).await;
    let allocations: Vec<StoredAllocation> = match list(client, ALLOCATIONS.path).await {
        Err(ApiError::NotFound(_)) => Vec::new(),
        other => other?,
    };
    let mut removed = Removed::default();
    for allocation in allocations {
        let key = allocation.key();
        removed.floors += usize::from(release(client, &key).await?);
        removed.services += 1;
        guard::delete_allocation(client, &key).await?;
    }
    Ok(removed)
}

/// Gives back the Service and its slices. A Service that is gone takes its slices with it. Returns whether that has
/// changed `spec.trafficDistribution`.
async fn release(client: &Client, key: &Key) -> Result<bool, ApiError> {
    let (namespace, name) = key;
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
    let service: Service = match read(client, &path).await {
        Err(ApiError::NotFound(_)) => return Ok(false),
        other => other?,
    };
    let stored = guard::set_floor(client, key, None).await?;
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={SERVICE_NAME}%3D{name}"
    );
    let settings = Settings::default();
    for slice in list::<Slice>(client, &path).await? {
        if settings.manages(slice.labels.get(MANAGED_BY)) {
            guard::release(client, &service, &slice).await?;
        }
    }
    if !service.conditions.is_empty() {
        write::conditions(client, &service, &[]).await?;
    }
    Ok(stored.traffic_distribution != service.traffic_distribution)
}

async fn list<T: for<'a> Deserialize<'a>>(client: &Client, path: &str) -> Result<Vec<T>, ApiError> {
    read::<List<T>>(client, path).await.map(|list| list.items)
}

async fn read<T: for<'a> Deserialize<'a>>(client: &Client, path: &str) -> Result<T, ApiError> {
    let answer = api::get(client, path).await?;
    serde_json::from_slice(&answer).map_err(|error| ApiError::Format(error.to_string()))
}
