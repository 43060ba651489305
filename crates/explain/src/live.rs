//! The objects of a running cluster, listed once: no more than a question needs.

use kube::Client;
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::{NODES, PODS, SERVICES, SLICES, list_each, query_parameter};
use zonewise_common::keys::SERVICE_NAME;
use zonewise_slices::labels::Labels;
use zonewise_slices::service::Service;

use crate::input::{Item, Options, item};

/// How much of a cluster is read. Nodes are always read.
pub enum Scope<'a> {
    /// Everything.
    All,
    /// One namespace.
    Namespace(&'a str),
    /// One Service with its Pods and slices.
    Service {
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
}

const SOURCE: &str = "the API server";

/// Reads a cluster and hands over every object. Pods are many, and routing does without them.
///
/// # Errors
/// If the API server does not answer, or does not let us read.
pub async fn read(
    client: &Client,
    scope: &Scope<'_>,
    pods: bool,
    take: &mut (dyn FnMut(Item) + Send),
) -> Result<(), ApiError> {
    let mut reader = Reader { client, pods, take };
    reader.list("Node", NODES.path, "").await?;
    match scope {
        Scope::All => {
            reader.list("Service", SERVICES.path, "").await?;
            reader.list("Pod", PODS.path, "").await?;
            reader.list("EndpointSlice", SLICES.path, "").await
        }
        Scope::Namespace(namespace) => {
            reader.list("Service", &within(namespace, SERVICES.path), "").await?;
            reader.list("Pod", &within(namespace, PODS.path), "").await?;
            reader.list("EndpointSlice", &within(namespace, SLICES.path), "").await
        }
        Scope::Service { namespace, name } => reader.service(namespace, name).await,
    }
}

/// A path for all namespaces, for one: `/api/v1/pods` is `/api/v1/namespaces/NAME/pods`.
fn within(namespace: &str, path: &str) -> String {
    let (group, kind) = path.rsplit_once('/').unwrap_or(("", path));
    format!("{group}/namespaces/{namespace}/{kind}")
}

struct Reader<'a> {
    client: &'a Client,
    pods: bool,
    take: &'a mut (dyn FnMut(Item) + Send),
}

impl Reader<'_> {
    async fn list(&mut self, kind: &str, path: &str, selector: &str) -> Result<(), ApiError> {
        if kind == "Pod" && !self.pods {
            return Ok(());
        }
        let take = &mut *self.take;
        list_each(self.client, path, selector, &mut |json| {
            take(item(SOURCE, kind, json, &OPTIONS))
        })
        .await?;
        Ok(())
    }

    /// A Service that is not there is no error here: whoever asked for it says so.
    async fn service(&mut self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let path = format!("{}/{name}", within(namespace, SERVICES.path));
        let answer = api::get(self.client, &path).await;
        let body = match answer {
            Err(ApiError::NotFound(_)) => return Ok(()),
            answer => answer?,
        };
        let text = String::from_utf8_lossy(&body);
        (self.take)(item(SOURCE, "Service", &text, &OPTIONS));
        let selector = serde_json::from_str::<Service>(&text).ok().and_then(|one| one.selector);
        if let Some(selector) = selector {
            let selector = query_parameter("labelSelector", &equals(&selector));
            self.list("Pod", &within(namespace, PODS.path), &selector).await?;
        }
        let of_service = query_parameter("labelSelector", &format!("{SERVICE_NAME}={name}"));
        self.list("EndpointSlice", &within(namespace, SLICES.path), &of_service).await
    }
}

const OPTIONS: Options = Options { keep_json: true };

fn equals(selector: &Labels) -> String {
    let pairs: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}
