//! The requests about the admission policy of guard mode, and about its bindings: one for each name of a Service.
//!
//! ```text
//!  slice of Service web ─► binding zonewise-guard-web ─► ZoneAllocation web of the slice's namespace ─► policy
//! ```
//!
//! A binding that selects all ZoneAllocations of a namespace would do with one object, but the API server would run the
//! policy once for each of them: about 10 ms each for a slice of a hundred endpoints. A binding whose label does not
//! match costs some hundredths of a millisecond.

use std::collections::BTreeMap;

use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::query_parameter;
use zonewise_common::keys::{COMPONENT, SERVICE_NAME};
use zonewise_common::name::Name;

use crate::guard::{POLICIES, POLICY, apply, decoded};
use crate::write::segment;

/// The value of the label [`COMPONENT`] on bindings.
pub(crate) const GUARD: &str = "guard";

/// What distinguishes one version of the policy, or of a binding, from another.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    uid: Box<str>,
    resource_version: Box<str>,
}

#[derive(Deserialize)]
pub(crate) struct Stored {
    pub(crate) metadata: Version,
}

#[derive(Deserialize)]
struct BindingList {
    items: Vec<Binding>,
}

#[derive(Deserialize)]
struct Binding {
    metadata: BindingMeta,
}

#[derive(Deserialize)]
struct BindingMeta {
    name: Box<str>,
    #[serde(flatten)]
    version: Version,
}

/// Writes the policy.
pub async fn install(client: &Client, policy: &Value) -> Result<Version, ApiError> {
    let stored: Stored = apply(client, &policy_path(), policy).await?;
    Ok(stored.metadata)
}

/// Deletes the policy; that there is none is no error.
pub async fn uninstall(client: &Client) -> Result<(), ApiError> {
    api::delete(client, &policy_path()).await
}

/// Writes the binding of a Service's name. The API server refuses it while there is no policy.
pub async fn bind(client: &Client, service: &str) -> Result<Version, ApiError> {
    let stored: Stored = apply(client, &binding_path(service)?, &binding(service)).await?;
    Ok(stored.metadata)
}

/// Deletes the binding of a Service's name; that there is none is no error.
pub async fn unbind(client: &Client, service: &str) -> Result<(), ApiError> {
    api::delete(client, &binding_path(service)?).await
}

/// The bindings that are stored, by the name of their Service. An API server that does not know the kind has none.
pub async fn bindings(client: &Client) -> Result<BTreeMap<Name, Version>, ApiError> {
    let path = format!("/apis/{POLICIES}/mutatingadmissionpolicybindings");
    let selector = query_parameter("labelSelector", &format!("{COMPONENT}={GUARD}"));
    let list = match api::get(client, &format!("{path}?limit=0{selector}")).await {
        Ok(list) => decoded(&list)?,
        Err(ApiError::NotFound(_)) => BindingList { items: Vec::new() },
        Err(error) => return Err(error),
    };
    let named = |Binding { metadata }: Binding| {
        let service = metadata.name.strip_prefix(POLICY)?.strip_prefix('-')?;
        Some((Name::from(service), metadata.version))
    };
    Ok(list.items.into_iter().filter_map(named).collect())
}

/// The binding of the ZoneAllocations with the name of a Service, to the slices of Services with this name in all namespaces.
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

fn policy_path() -> String {
    format!("/apis/{POLICIES}/mutatingadmissionpolicies/{POLICY}")
}

fn binding_path(service: &str) -> Result<String, ApiError> {
    let name = segment(service)?;
    Ok(format!("/apis/{POLICIES}/mutatingadmissionpolicybindings/{POLICY}-{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_never_keeps_a_slice_from_being_written() {
        let binding = binding("web");
        assert_eq!(binding["spec"]["paramRef"]["parameterNotFoundAction"], "Allow");
        assert_eq!(binding["spec"]["policyName"], POLICY);
    }
}
