//! Keeps the admission policy as it should be, and a binding for each name of a Service that is guarded.
//!
//! ```text
//!  slice of Service web ─► binding zonewise-guard-web ─► ZoneAllocation web of the slice's namespace ─► policy
//! ```
//!
//! A binding that selects all ZoneAllocations of a namespace would do with one object, but the API server would run the
//! policy once for each of them: about 10 ms each for a slice of a hundred endpoints. A binding whose label does not
//! match costs some hundredths of a millisecond.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::Client;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::query_parameter;
use zonewise_common::keys::{COMPONENT, SERVICE_NAME};
use zonewise_common::name::Name;
use zonewise_inventory::guard::{FIELD_MANAGER, POLICIES, POLICY};

use super::{Allocations, IN_FORCE_AFTER};

/// The policy.
const DOCUMENT: &str = include_str!("policy.yaml");
/// The value of the label [`COMPONENT`] on bindings.
const GUARD: &str = "guard";
/// How often they are looked at: routing is back within 10 s after somebody has removed them.
const PERIOD: Duration = Duration::from_secs(3);

/// The bindings that are stored, by the name of their Service.
#[derive(Debug, Default)]
pub(crate) struct Bindings(Mutex<BTreeMap<Name, Version>>);

/// What tells one version of an object from another.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    uid: String,
    resource_version: String,
}

#[derive(Deserialize)]
struct Stored {
    metadata: Version,
}

#[derive(Deserialize)]
struct BindingList {
    items: Vec<Binding>,
}

#[derive(Deserialize)]
struct Binding {
    metadata: Version,
    spec: BindingSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BindingSpec {
    param_ref: ParamRef,
}

#[derive(Deserialize)]
struct ParamRef {
    name: Name,
}

impl Bindings {
    /// Writes the binding of a Service's name, unless it is known to be there. Returns whether it was written.
    pub(crate) async fn ensure(&self, client: &Client, service: &Name) -> Result<bool, ApiError> {
        if self.0.lock().contains_key(service) {
            return Ok(false);
        }
        self.write(client, service).await?;
        Ok(true)
    }

    async fn write(&self, client: &Client, service: &Name) -> Result<(), ApiError> {
        let stored = apply(client, &binding_path(service), &binding(service)).await?;
        self.0.lock().insert(Name::clone(service), stored);
        Ok(())
    }

    /// Writes the bindings of these names that are missing or were changed, and deletes all others. Returns whether
    /// one was written.
    async fn keep(&self, client: &Client, services: &BTreeSet<Name>) -> Result<bool, ApiError> {
        let stored = stored_bindings(client).await?;
        let mut written = false;
        for service in services {
            let known = self.0.lock().get(service).cloned();
            if known.is_none() || known.as_ref() != stored.get(service) {
                self.write(client, service).await?;
                written = true;
            }
        }
        for service in stored.keys().filter(|service| !services.contains(*service)) {
            self.0.lock().remove(service);
            delete(client, &binding_path(service)).await?;
        }
        Ok(written)
    }
}

/// Writes the policy and the bindings, and again when they are gone or changed.
pub(crate) struct Keeper {
    pub(crate) client: Client,
    pub(crate) allocations: Arc<Allocations>,
    pub(crate) bindings: Arc<Bindings>,
}

impl Keeper {
    /// Keeps everything in place. After something was written, and the API server acts by it, `changed` is called:
    /// slices that were written before need to be touched then. Never ends.
    pub(crate) async fn keep(self, changed: impl Fn()) {
        let mut policy = None;
        loop {
            match self.look(&mut policy).await {
                Ok(true) => {
                    sleep(IN_FORCE_AFTER).await;
                    changed();
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "the admission policy cannot be kept in place; it is tried again");
                }
            }
            sleep(PERIOD).await;
        }
    }

    /// Puts everything in place. Returns whether something was written.
    async fn look(&self, policy: &mut Option<Version>) -> Result<bool, ApiError> {
        let stored = apply(&self.client, &policy_path(), &policy_document()).await?;
        let is_new = policy.as_ref() != Some(&stored);
        if is_new {
            tracing::info!("the admission policy is in place");
        }
        *policy = Some(stored);
        let bound = self.bindings.keep(&self.client, &self.allocations.names()).await?;
        Ok(is_new || bound)
    }
}

/// Removes the bindings and the policy; that they are gone is no error.
pub(super) async fn remove(client: &Client) -> Result<(), ApiError> {
    for service in stored_bindings(client).await?.keys() {
        delete(client, &binding_path(service)).await?;
    }
    delete(client, &policy_path()).await
}

/// The binding of the ZoneAllocations that are called like a Service, to that Service's slices in all namespaces.
fn binding(service: &str) -> Value {
    json!({
        "apiVersion": POLICIES,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": { "name": format!("{POLICY}-{service}"), "labels": { COMPONENT: GUARD } },
        "spec": {
            "policyName": POLICY,
            "paramRef": { "name": service, "parameterNotFoundAction": "Allow" },
            "matchResources": { "objectSelector": { "matchLabels": { SERVICE_NAME: service } } },
        },
    })
}

async fn stored_bindings(client: &Client) -> Result<BTreeMap<Name, Version>, ApiError> {
    let path = format!("/apis/{POLICIES}/mutatingadmissionpolicybindings");
    let selector = query_parameter("labelSelector", &format!("{COMPONENT}={GUARD}"));
    let answer = api::get(client, &format!("{path}?limit=0{selector}")).await?;
    let list: BindingList =
        serde_json::from_slice(&answer).map_err(|error| ApiError::Format(error.to_string()))?;
    Ok(list.items.into_iter().map(|item| (item.spec.param_ref.name, item.metadata)).collect())
}

async fn apply(client: &Client, path: &str, document: &Value) -> Result<Version, ApiError> {
    let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
    let body = document.to_string().into_bytes();
    let answer = api::call(client, Method::PATCH, &path, api::APPLY, body).await?;
    let stored: Stored =
        serde_json::from_slice(&answer).map_err(|error| ApiError::Format(error.to_string()))?;
    Ok(stored.metadata)
}

async fn delete(client: &Client, path: &str) -> Result<(), ApiError> {
    match api::call(client, Method::DELETE, path, api::JSON, Vec::new()).await {
        Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn policy_document() -> Value {
    serde_saphyr::from_str(DOCUMENT).unwrap_or_default()
}

fn policy_path() -> String {
    format!("/apis/{POLICIES}/mutatingadmissionpolicies/{POLICY}")
}

fn binding_path(service: &str) -> String {
    format!("/apis/{POLICIES}/mutatingadmissionpolicybindings/{POLICY}-{service}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_never_keeps_a_slice_from_being_written() {
        let (policy, binding) = (policy_document(), binding("web"));
        assert_eq!(policy["spec"]["failurePolicy"], "Ignore");
        assert_eq!(binding["spec"]["paramRef"]["parameterNotFoundAction"], "Allow");
        assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        assert_eq!(policy["metadata"]["name"], POLICY);
    }
}
