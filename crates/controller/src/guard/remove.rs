//! Takes guard mode out of a cluster: what it has written goes, and the built-in controller's hints return.
//!
//! ```text
//!  bindings, policy ─► gone ─► a moment ─► every Service ─► what is left (pure) ─► floor, slices, conditions
//!                                                                               └─► its ZoneAllocation, last
//! ```
//!
//! ZoneAllocations alone do not show what there is to remove: somebody may have deleted them all with their definition,
//! and Services that ask for what guard mode does not do have conditions and no ZoneAllocation.

use std::collections::BTreeSet;

use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::query_parameter;
use zonewise_common::keys::{MANAGED_BY, SERVICE_NAME};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed};
use zonewise_inventory::guard::{ALLOCATIONS, FIELD_MANAGER, StoredAllocation, decoded};
use zonewise_inventory::{guard, write};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;
use zonewise_slices::slice::Slice;

use super::{IN_FORCE_AFTER, keeper};
use crate::status;

/// Services that are read at once.
const PAGE: usize = 500;

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
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(default, deserialize_with = "lenient")]
    r#continue: String,
}

/// A Service, and who writes its fields.
#[derive(Clone, Debug)]
struct Found {
    service: Service,
    managers: BTreeSet<Box<str>>,
}

#[derive(Deserialize)]
struct Managed {
    metadata: ManagedMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedMeta {
    #[serde(default, deserialize_with = "lenient")]
    managed_fields: Vec<Manager>,
}

#[derive(Deserialize)]
struct Manager {
    #[serde(default, deserialize_with = "lenient")]
    manager: Box<str>,
}

/// What guard mode has left at a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    /// `spec.trafficDistribution`.
    floor: bool,
    /// Hints in its slices.
    hints: bool,
    /// Conditions.
    conditions: bool,
}

impl Left {
    const NOTHING: Self = Self { floor: false, hints: false, conditions: false };

    /// `allocated` says whether it has a ZoneAllocation.
    fn at(Found { service, managers }: &Found, allocated: bool) -> Self {
        let floor = managers.contains(FIELD_MANAGER);
        let conditions = !service.conditions.is_empty();
        Self { floor, hints: allocated || floor || status::is_guarded(service), conditions }
    }
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
    let mut allocated: BTreeSet<Key> = allocations.iter().map(Keyed::key).collect();
    let mut removed = Removed::default();
    for (found, left) in traces(client, &allocated).await? {
        let key = Keyed::key(&found.service);
        removed.floors += usize::from(release(client, &found.service, left).await?);
        removed.services += usize::from(left.hints);
        if allocated.remove(&key) {
            guard::delete_allocation(client, &key).await?;
        }
    }
    // Those of Services that are gone, as their slices are.
    for key in allocated {
        guard::delete_allocation(client, &key).await?;
    }
    Ok(removed)
}

/// The Services at which something is left.
async fn traces(
    client: &Client,
    allocated: &BTreeSet<Key>,
) -> Result<Vec<(Found, Left)>, ApiError> {
    let (mut traces, mut next) = (Vec::new(), String::new());
    loop {
        let token = query_parameter("continue", &next);
        let path = format!("/api/v1/services?limit={PAGE}{token}");
        let page: List<Box<RawValue>> = read(client, &path).await?;
        for item in page.items {
            let found = found(&item)?;
            let left = Left::at(&found, allocated.contains(&Keyed::key(&found.service)));
            if left != Left::NOTHING {
                traces.push((found, left));
            }
        }
        next = page.metadata.r#continue;
        if next.is_empty() {
            return Ok(traces);
        }
    }
}

fn found(item: &RawValue) -> Result<Found, ApiError> {
    let Managed { metadata } = decoded(item.get().as_bytes())?;
    let managers = metadata.managed_fields.into_iter().map(|one| one.manager).collect();
    Ok(Found { service: decoded(item.get().as_bytes())?, managers })
}

/// Gives back the Service and its slices. Returns whether that has changed `spec.trafficDistribution`.
async fn release(client: &Client, service: &Service, left: Left) -> Result<bool, ApiError> {
    let key = Keyed::key(service);
    let mut changed = false;
    if left.floor {
        let stored = guard::set_floor(client, &key, None).await?;
        changed = stored.traffic_distribution != service.traffic_distribution;
    }
    if left.hints {
        let (namespace, name) = &key;
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={SERVICE_NAME}%3D{name}"
        );
        let settings = Settings::default();
        for slice in list::<Slice>(client, &path).await? {
            if settings.manages(slice.labels.get(MANAGED_BY)) {
                guard::release(client, service, &slice).await?;
            }
        }
    }
    if left.conditions {
        write::conditions(client, service, &[]).await?;
    }
    Ok(changed)
}

async fn list<T: for<'a> Deserialize<'a>>(client: &Client, path: &str) -> Result<Vec<T>, ApiError> {
    read::<List<T>>(client, path).await.map(|list| list.items)
}

async fn read<T: for<'a> Deserialize<'a>>(client: &Client, path: &str) -> Result<T, ApiError> {
    decoded(&api::get(client, path).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_tell_what_is_left_at_them_without_a_zone_allocation() {
        let condition =
            |kind: &str| json!({ "type": format!("zonewise.dev/RoutingPreference{kind}") });
        let rows = [
            ("nothing of ours", json!([]), "kubectl", false, [false, false, false]),
            ("a floor", json!([]), FIELD_MANAGER, false, [true, true, false]),
            ("an allocation alone", json!([]), "kubectl", true, [false, true, false]),
            (
                "a request that guard mode does not serve",
                json!([condition("Accepted")]),
                "kubectl",
                false,
                [false, false, true],
            ),
            (
                "a floor that was refused",
                json!([condition("Enforced")]),
                "kubectl",
                false,
                [false, true, true],
            ),
            (
                "conditions of others",
                json!([{ "type": "Ready" }]),
                "kubectl",
                false,
                [false, false, false],
            ),
        ];
        for (what, conditions, manager, allocated, [floor, hints, conditions_left]) in rows {
            let item = json!({
                "metadata": { "name": "web", "managedFields": [{ "manager": "kube" }, { "manager": manager }] },
                "status": { "conditions": conditions },
            });
            let item: Box<RawValue> = serde_json::from_value(item).unwrap();
            let expected = Left { floor, hints, conditions: conditions_left };
            assert_eq!(Left::at(&found(&item).unwrap(), allocated), expected, "{what}");
        }
    }
}
