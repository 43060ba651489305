//! The requests about the webhook of guard mode, which takes the place of the admission policy on API servers that do not
//! have the kind: its configuration, and the Secret with its certificate.
//!
//! ```text
//!  slice of Service web ─► namespaceSelector: one of these ─► objectSelector: of the built-in controller, and
//!                          one of these names ─► webhook
//! ```

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use zonewise_cluster::api::{self, ApiError};
use zonewise_common::api_group::DISCOVERY;
use zonewise_common::keys::{COMPONENT, MANAGED_BY, METADATA_NAME, SERVICE_NAME};
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Name, SYSTEM_NAMESPACE};
use zonewise_slices::settings::REFERENCE_MANAGED_BY;

use crate::guard::{POLICIES, POLICY, apply, decoded};
use crate::policy::{GUARD, Stored, Version};

/// The name of the Service through which the API server reaches the webhook, and of the Secret with its certificate.
pub const WEBHOOK: &str = "zonewise-guard-webhook";
/// The name by which the API server finds that Service: NAME.NAMESPACE.svc.
const WEBHOOK_HOST: &str = "zonewise-guard-webhook.zonewise-system.svc";
/// The path at which it answers.
pub const PATH: &str = "/hints";
/// How long the API server waits for an answer, in seconds, before it writes a slice without.
const TIMEOUT: u8 = 1;

/// Where the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookTarget {
    /// Behind the Service [`WEBHOOK`] in [`SYSTEM_NAMESPACE`].
    Service,
    /// At this address, `https://` and a host, without a path.
    Url(String),
}

impl WebhookTarget {
    /// The name or address that the certificate has to be for.
    pub fn host(&self) -> &str {
        match self {
            Self::Service => WEBHOOK_HOST,
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

/// The most namespaces that the configuration lists. Beyond, slices of all namespaces are selected: an object of Kubernetes
/// has at most 1.5 MiB, of which names of Services can take half.
const MOST_NAMESPACES: usize = 1000;

/// The Services whose slices the webhook is sent. A slice has to be of one of the names and in one of the namespaces, so
/// that namespaces in which no Service is guarded pay nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The names of Services.
    pub names: BTreeSet<Name>,
    /// The namespaces.
    pub namespaces: BTreeSet<Name>,
}

impl Selection {
    /// Selects a Service as well.
    pub fn add(&mut self, (namespace, name): &Key) {
        self.names.insert(Name::clone(name));
        self.namespaces.insert(Name::clone(namespace));
    }

    /// Whether a Service is selected.
    pub fn has(&self, (namespace, name): &Key) -> bool {
        self.names.contains(name) && self.namespaces.contains(namespace)
    }

    /// It leaves out its own namespace, also where there are too many to list: no write there waits for the webhook.
    fn of_namespaces(&self) -> Value {
        let (operator, values) = if self.namespaces.len() <= MOST_NAMESPACES {
            ("In", json!(self.namespaces))
        } else {
            ("NotIn", json!([SYSTEM_NAMESPACE]))
        };
        json!({ "matchExpressions": [
            { "key": METADATA_NAME, "operator": operator, "values": values },
        ] })
    }

    fn of_objects(&self) -> Value {
        json!({
            "matchLabels": { MANAGED_BY: REFERENCE_MANAGED_BY },
            "matchExpressions": [{ "key": SERVICE_NAME, "operator": "In", "values": self.names }],
        })
    }
}

/// Writes the configuration of the webhook for these Services. `bundle` has the certificates that the API server accepts,
/// in PEM.
pub async fn install(
    client: &Client,
    target: &WebhookTarget,
    bundle: &str,
    selection: &Selection,
) -> Result<Version, ApiError> {
    let document = configuration(target, bundle, selection);
    let stored: Stored = apply(client, &path(), &document).await?;
    Ok(stored.metadata)
}

/// The version of the configuration that is stored; `None` if there is none.
pub async fn installed(client: &Client) -> Result<Option<Version>, ApiError> {
    match api::get(client, &path()).await {
        Ok(stored) => decoded(&stored).map(|Stored { metadata }| Some(metadata)),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Deletes the configuration; that there is none is no error.
pub async fn uninstall(client: &Client) -> Result<(), ApiError> {
    api::delete(client, &path()).await
}

fn path() -> String {
    format!("/apis/{POLICIES}/mutatingwebhookconfigurations/{POLICY}")
}

/// A webhook that sees nothing but slices of the built-in controller, of these Services, and never keeps one from being
/// written.
fn configuration(target: &WebhookTarget, bundle: &str, selection: &Selection) -> Value {
    let webhook = json!({
        "name": "hints.guard.zonewise.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": TIMEOUT,
        "reinvocationPolicy": "IfNeeded",
        "clientConfig": target.client_config(bundle),
        "rules": [{
            "apiGroups": [DISCOVERY],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["endpointslices"],
            "scope": "Namespaced",
        }],
        "namespaceSelector": selection.of_namespaces(),
        "objectSelector": selection.of_objects(),
    });
    // Without a name there is nothing to select, and an empty list of values is not allowed.
    let webhooks: Vec<Value> = if selection.names.is_empty() { Vec::new() } else { vec![webhook] };
    json!({
        "apiVersion": POLICIES,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": POLICY,
            "labels": { COMPONENT: GUARD },
            // AKS would write selectors of its own, which leave out kube-system, and we would write ours again.
            "annotations": { "admissions.enforcer/disabled": "true" },
        },
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

/// Writes entries of the Secret, if it is still of this version. `None` removes an entry.
pub async fn write_secret(
    client: &Client,
    version: &str,
    data: &BTreeMap<String, Option<String>>,
) -> Result<Secret, ApiError> {
    let encoded = |text: &String| STANDARD.encode(text);
    let data: BTreeMap<&String, Option<String>> =
        data.iter().map(|(key, value)| (key, value.as_ref().map(encoded))).collect();
    let body = json!({ "metadata": { "resourceVersion": version }, "data": data });
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

    fn selection(services: &[(&str, &str)]) -> Selection {
        let mut selection = Selection::default();
        for (namespace, name) in services {
            selection.add(&((*namespace).into(), (*name).into()));
        }
        selection
    }

    #[test]
    fn the_webhook_never_keeps_a_slice_from_being_written_and_sees_no_other_object() {
        let document = configuration(
            &WebhookTarget::Service,
            "CA",
            &selection(&[("shop", "web"), ("shop", "api"), ("bank", "web")]),
        );
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
        assert_eq!(
            configuration(&WebhookTarget::Service, "CA", &Selection::default())["webhooks"],
            json!([])
        );
        assert_eq!(document["metadata"]["annotations"]["admissions.enforcer/disabled"], "true");
    }

    /// A name in one namespace must not make writes dearer in namespaces where nothing is guarded.
    #[test]
    fn namespaces_without_a_guarded_service_are_not_selected_as_long_as_they_can_be_listed() {
        let of = |selection: &Selection| {
            let document = configuration(&WebhookTarget::Service, "CA", selection);
            let one = &document["webhooks"][0]["namespaceSelector"]["matchExpressions"][0];
            assert_eq!(one["key"], "kubernetes.io/metadata.name");
            (one["operator"].clone(), one["values"].clone())
        };
        let mut some = selection(&[("shop", "web"), ("bank", "api")]);
        assert_eq!(of(&some), (json!("In"), json!(["bank", "shop"])));
        assert!(some.has(&("shop".into(), "web".into())));
        assert!(!some.has(&("garden".into(), "web".into())));
        for number in 0..MOST_NAMESPACES {
            some.add(&(format!("n{number}").into(), "web".into()));
        }
        assert_eq!(of(&some), (json!("NotIn"), json!([SYSTEM_NAMESPACE])));
    }

    #[test]
    fn the_certificate_is_for_where_the_api_server_finds_the_webhook() {
        let rows = [
            (WebhookTarget::Service, format!("{WEBHOOK}.{SYSTEM_NAMESPACE}.svc")),
            (WebhookTarget::Url("https://127.0.0.1:10273".into()), "127.0.0.1".into()),
            (WebhookTarget::Url("https://[::1]:10273".into()), "::1".into()),
            (WebhookTarget::Url("https://guard.example.com".into()), "guard.example.com".into()),
        ];
        for (target, host) in rows {
            assert_eq!(target.host(), host);
        }
        let config = WebhookTarget::Url("https://[::1]:1".into()).client_config("CA");
        assert_eq!(config, json!({ "url": "https://[::1]:1/hints", "caBundle": "Q0E=" }));
    }
}
