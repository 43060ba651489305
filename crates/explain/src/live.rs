//! Reads the objects of a running cluster: one list per kind, and only what a command needs.

mod facts;
mod follow;
mod sights;

pub use facts::facts;
pub use follow::{Cause, Change, Followed, SnapshotListener};
pub use sights::sights;

use kube::Client;
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::{
    NODES, PODS, SERVICE_CIDRS, SERVICES, SLICES, list_each, namespaced, query_parameter,
};
use zonewise_common::keys::SERVICE_NAME;
use zonewise_inventory::evacuation::{EVACUATIONS, KIND};
use zonewise_slices::labels::Labels;
use zonewise_slices::service::Service;

use crate::input::{Item, Options, item};

/// Which objects of a cluster are read. Nodes are always read.
pub enum Scope<'a> {
    /// All namespaces.
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

/// Reads a cluster and passes every object to `take`. Pods are left out if `pods` is false: there are
/// many, and `zonewise route` does not need them.
///
/// # Errors
/// If the API server cannot be reached, or does not allow reading.
pub async fn read(
    client: &Client,
    scope: &Scope<'_>,
    pods: bool,
    take: &mut (dyn FnMut(Item) + Send),
) -> Result<(), ApiError> {
    let mut reader = Reader { client, pods, take };
    reader.list("Node", NODES.path, "").await?;
    reader.list_if_known("ServiceCIDR", SERVICE_CIDRS.path).await?;
    reader.list_if_known(KIND, EVACUATIONS.path).await?;
    match scope {
        Scope::All => {
            reader.list("Service", SERVICES.path, "").await?;
            reader.list("Pod", PODS.path, "").await?;
            reader.list("EndpointSlice", SLICES.path, "").await
        }
        Scope::Namespace(namespace) => {
            reader.list("Service", &namespaced(namespace, SERVICES.path), "").await?;
            reader.list("Pod", &namespaced(namespace, PODS.path), "").await?;
            reader.list("EndpointSlice", &namespaced(namespace, SLICES.path), "").await
        }
        Scope::Service { namespace, name } => reader.service(namespace, name).await,
    }
}

/// Reads the Services of one namespace, or of all.
///
/// # Errors
/// If the API server cannot be reached, or does not allow reading.
pub async fn services(
    client: &Client,
    namespace: Option<&str>,
    take: &mut (dyn FnMut(Item) + Send),
) -> Result<(), ApiError> {
    let path = namespace.map_or_else(|| SERVICES.path.into(), |one| namespaced(one, SERVICES.path));
    Reader { client, pods: false, take }.list("Service", &path, "").await
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
            take(item(SOURCE, kind, json, &OPTIONS));
        })
        .await?;
        Ok(())
    }

    /// API servers before 1.33 have no ServiceCIDRs, few have ZoneEvacuations, and not everybody may read them. The
    /// ranges of ClusterIPs are not known then, and no zone is being emptied.
    async fn list_if_known(&mut self, kind: &str, path: &str) -> Result<(), ApiError> {
        match self.list(kind, path, "").await {
            Err(ApiError::NotFound(_) | ApiError::Forbidden(_)) => Ok(()),
            answer => answer,
        }
    }

    /// Reads one Service with its Pods and slices. A Service that does not exist is not an error
    /// here; the command reports it, with the Services that do exist.
    async fn service(&mut self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let path = format!("{}/{name}", namespaced(namespace, SERVICES.path));
        let answer = api::get(self.client, &path).await;
        let body = match answer {
            Err(ApiError::NotFound(_)) => return self.list("Service", SERVICES.path, "").await,
            answer => answer?,
        };
        let text = String::from_utf8_lossy(&body);
        (self.take)(item(SOURCE, "Service", &text, &OPTIONS));
        let selector = serde_json::from_str::<Service>(&text).ok().and_then(|one| one.selector);
        if let Some(selector) = selector {
            let selector = query_parameter("labelSelector", &equals(&selector));
            self.list("Pod", &namespaced(namespace, PODS.path), &selector).await?;
        }
        let of_service = query_parameter("labelSelector", &format!("{SERVICE_NAME}={name}"));
        self.list("EndpointSlice", &namespaced(namespace, SLICES.path), &of_service).await
    }
}

const OPTIONS: Options = Options { keep_json: true };

fn equals(selector: &Labels) -> String {
    let pairs: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}
