//! Guard mode: the built-in controller writes the slices, and an admission policy puts our hints into them.
//!
//! ```text
//!  watches ─► index ─► queue ─► sync ─┬─► plan (pure) ─► ZoneAllocation ──────────┐ read by the policy
//!                 ▲                   ├─► floor: spec.trafficDistribution          ▼
//!                 │                   └─► touch slices ───────────────────► API server ◄── built-in controller
//!                 └── slices as the policy left them ◄──────────────────────────┘
//!  keeper ─► policy and bindings, again when somebody has removed or changed them
//!  name_quota ─► for which names of Services that is done, where there are too many
//! ```
//!
//! On API servers without such policies a webhook takes the policy's place (webhook.rs), and does the same.
//!
//! Nothing here is needed for endpoints to flow: without this process the policy goes on with the allocations that are
//! stored, and without the policy the slices have the hints of the floor.

mod allocations;
mod certificate;
mod keeper;
mod name_quota;
mod remove;
mod review;
mod sync;
mod webhook;

use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use tokio::time::sleep;
use zonewise_cluster::api::{self, ApiError};
use zonewise_common::api_group::ZONEWISE_V1ALPHA1;
use zonewise_inventory::guard::POLICIES;

use crate::config::Admission;

pub(crate) use self::allocations::{AllocationFollower, Allocations};
pub(crate) use self::certificate::Certificates;
pub(crate) use self::keeper::{AdmissionKind, Keeper, Policy};
pub(crate) use self::name_quota::QuotaHolder;
pub use self::remove::{Removed, remove};
pub use self::review::{Outcome, answer};
pub(crate) use self::sync::Guard;
pub(crate) use self::webhook::{Reviews, Webhook, serve};

/// How long the API server may take to act by a policy or an allocation that was written: it looks for changed policies
/// once a second, and follows allocations by a watch.
const IN_FORCE_AFTER: Duration = Duration::from_millis(1500);

/// Checks that the API server has what guard mode needs, and waits for an API server that does not answer. Returns whether
/// the webhook takes the place of the admission policy. The error says what is missing.
pub(crate) async fn check(client: &Client, admission: Admission) -> Result<bool, String> {
    let by_webhook = match admission {
        Admission::Webhook => true,
        Admission::Auto => !has(client, POLICIES, "mutatingadmissionpolicies").await?,
        Admission::Policy => {
            if !has(client, POLICIES, "mutatingadmissionpolicies").await? {
                return Err(format!(
                    "the API server has no MutatingAdmissionPolicy in {POLICIES}, which Kubernetes has since version 1.36; \
                     use guard.admission: webhook here, or auto"
                ));
            }
            false
        }
    };
    if !has(client, ZONEWISE_V1ALPHA1, "zoneallocations").await? {
        return Err(format!(
            "the CustomResourceDefinition of ZoneAllocations ({ZONEWISE_V1ALPHA1}) is not installed; apply deploy/guard/crd.yaml first"
        ));
    }
    Ok(by_webhook)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceList {
    resources: Vec<NamedResource>,
}

#[derive(Deserialize)]
struct NamedResource {
    name: String,
}

/// Whether an API group has a resource. A server that cannot be reached is asked again; one that does not allow the
/// question would answer the same.
async fn has(client: &Client, group: &str, resource: &str) -> Result<bool, String> {
    const PAUSE: Duration = Duration::from_secs(1);
    loop {
        match api::get(client, &format!("/apis/{group}")).await {
            Ok(list) => {
                let list: ResourceList = serde_json::from_slice(&list).unwrap_or_default();
                return Ok(list.resources.iter().any(|one| one.name == resource));
            }
            Err(ApiError::NotFound(_)) => return Ok(false),
            Err(error @ ApiError::Forbidden(_)) => {
                return Err(format!("cannot find out whether the API server has {group}: {error}"));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot find out what the API server offers; it is asked again");
                sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;

    #[tokio::test]
    async fn a_server_that_does_not_allow_the_question_is_not_asked_for_ever() {
        let answer = |_: Request<Body>| async {
            let mut response = Response::new(Body::from(b"{}".to_vec()));
            *response.status_mut() = StatusCode::FORBIDDEN;
            Ok::<_, Infallible>(response)
        };
        let error = check(&Client::new(tower::service_fn(answer), "default"), Admission::Auto)
            .await
            .unwrap_err();
        assert!(error.contains(POLICIES) && error.contains("not allowed (403)"), "{error}");
    }
}
