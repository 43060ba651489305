//! The requests about the webhook of guard mode, which takes the place of the admission policy on API servers that do not
//! have the kind: its configuration, and the Secret with its certificate.
//!
//! ```text
//!  slice of Service web ─► objectSelector: of the built-in controller, and one of these names ─► webhook
//! ```

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use zonewise_cluster::api::{self, ApiError};
use zonewise_common::keys::{COMPONENT, MANAGED_BY, SERVICE_NAME};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Name, SYSTEM_NAMESPACE};
use zonewise_slices::settings::REFERENCE_MANAGED_BY;

use crate::guard::{POLICIES, POLICY, apply, decoded, delete};
use crate::policy::{GUARD, Stored, Version};

/// The name of the Service through which the API server reaches the webhook, and of the Secret with its certificate.
pub const WEBHOOK: &str = "zonewise-guard-webhook";
/// The path at which it answers.
pub const PATH: &str = "/hints";
/// How long the API server waits for an answer, in seconds, before it writes a slice without.
const TIMEOUT: u8 = 1;

/// Where the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind the Service [`WEBHOOK`] in [`SYSTEM_NAMESPACE`].
    Service,
    /// At this address, `https://` and a host, without a path.
    Url(String),
}

impl Place {
    /// The name or address that the certificate has to be for.
    pub fn host(&self) -> &str {
        match self {
            Self::Service => "zonewise-guard-webhook.zonewise-system.svc",
            Self::Url(url) => {
                let authority = url.trim_start_matches("https://");
                match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                    Some((address, _)) => address,
                    None => authority.split(':').next().unwrap_or_default(),
                }
            }
        }
    }

    fn client_config(&self, bundle: &str) -> Value {
        let mut config = match self {
            Self::Service => {
                json!({ "service": { "namespace": SYSTEM_NAMESPACE, "name": WEBHOOK, "path": PATH } })
            }
            Self::Url(url) => json!({ "url": format!("{url}{PATH}") }),
        };
        config["caBundle"] = STANDARD.encode(bundle).into();
        config
    }
}

/// Writes the configuration of the webhook for Services of these names. `bundle` has the certificates that the API server
/// accepts, in PEM.
pub async fn install(
    client: &Client,
    place: &Place,
    bundle: &str,
    names: &BTreeSet<Name>,
) -> Result<Version, ApiError> {
    let document = configuration(place, bundle, names);
    let stored: Stored = apply(client, &path(), &document).await?;
    Ok(stored.metadata)
}

/// Deletes the configuration; that there is none is no error.
pub async fn uninstall(client: &Client) -> Result<(), ApiError> {
    delete(client, &path()).await
}

fn path() -> String {
    format!("/apis/{POLICIES}/mutatingwebhookconfigurations/{POLICY}")
}

/// A webhook that sees nothing but slices of the built-in controller, of Services of these names, and never keeps one from
/// being written. It leaves out its own namespace: no write there waits for it.
fn configuration(place: &Place, bundle: &str, names: &BTreeSet<Name>) -> Value {
    let webhook = json!({
        "name": "hints.guard.zonewise.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": TIMEOUT,
        "reinvocationPolicy": "IfNeeded",
        "clientConfig": place.client_config(bundle),
        "rules": [{
            "apiGroups": ["discovery.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["endpointslices"],
            "scope": "Namespaced",
        }],
        "namespaceSelector": { "matchExpressions": [
            { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SYSTEM_NAMESPACE] },
        ] },
        "objectSelector": {
            "matchLabels": { MANAGED_BY: REFERENCE_MANAGED_BY },
            "matchExpressions": [{ "key": SERVICE_NAME, "operator": "In", "values": names }],
        },
    });
    // Without a name there is nothing to select, and an empty list of values is not allowed.
    let webhooks: Vec<Value> = if names.is_empty() { Vec::new() } else { vec![webhook] };
    json!({
        "apiVersion": POLICIES,
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": POLICY, "labels": { COMPONENT: GUARD } },
        "webhooks": webhooks,
    })
}

// === the Secret ===

/// The Secret, with texts as values. Those that are not texts are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secret {
    /// Its resource version.
    pub version: Box<str>,
    /// What it holds.
    pub data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct StoredSecret {
    metadata: SecretMeta,
    #[serde(default, deserialize_with = "lenient")]
    data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretMeta {
    resource_version: Box<str>,
}

fn secret_path() -> String {
    format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{WEBHOOK}")
}

/// Reads the Secret.
pub async fn secret(client: &Client) -> Result<Secret, ApiError> {
    read(&api::get(client, &secret_path()).await?)
}

/// Writes what the Secret holds, if it is still of this version.
pub async fn write_secret(client: &Client, secret: &Secret) -> Result<Secret, ApiError> {
    let data: BTreeMap<&String, String> =
        secret.data.iter().map(|(key, value)| (key, STANDARD.encode(value))).collect();
    let body = json!({ "metadata": { "resourceVersion": secret.version }, "data": data });
    let body = body.to_string().into_bytes();
    read(&api::call(client, Method::PATCH, &secret_path(), api::MERGE, body).await?)
}

fn read(answer: &[u8]) -> Result<Secret, ApiError> {
    let StoredSecret { metadata, data } = decoded(answer)?;
    let text = |(key, value): (String, String)| {
        let value = STANDARD.decode(value).ok()?;
        Some((key, String::from_utf8(value).ok()?))
    };
    let data = data.into_iter().filter_map(text).collect();
    Ok(Secret { version: metadata.resource_version, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_webhook_never_keeps_a_slice_from_being_written_and_sees_no_other_object() {
        let names = BTreeSet::from(["web".into(), "api".into()]);
        let document = configuration(&Place::Service, "CA", &names);
        let webhook = &document["webhooks"][0];
        assert_eq!(webhook["failurePolicy"], "Ignore");
        assert_eq!(webhook["timeoutSeconds"], 1);
        assert_eq!(webhook["rules"][0]["resources"], json!(["endpointslices"]));
        assert_eq!(document["webhooks"].as_array().map(Vec::len), Some(1));
        let selected = json!({
            "matchLabels": { MANAGED_BY: REFERENCE_MANAGED_BY },
            "matchExpressions": [{ "key": SERVICE_NAME, "operator": "In", "values": ["api", "web"] }],
        });
        assert_eq!(webhook["objectSelector"], selected);
        assert_eq!(configuration(&Place::Service, "CA", &BTreeSet::new())["webhooks"], json!([]));
    }

    #[test]
    fn the_certificate_is_for_where_the_api_server_finds_the_webhook() {
        let rows = [
            (Place::Service, format!("{WEBHOOK}.{SYSTEM_NAMESPACE}.svc")),
            (Place::Url("https://127.0.0.1:10273".into()), "127.0.0.1".into()),
            (Place::Url("https://[::1]:10273".into()), "::1".into()),
            (Place::Url("https://guard.example.com".into()), "guard.example.com".into()),
        ];
        for (place, host) in rows {
            assert_eq!(place.host(), host);
        }
        let config = Place::Url("https://[::1]:1".into()).client_config("CA");
        assert_eq!(config, json!({ "url": "https://[::1]:1/hints", "caBundle": "Q0E=" }));
    }
}
