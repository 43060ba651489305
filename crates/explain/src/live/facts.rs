//! Reads what shows which programs run. Whatever cannot be read is hidden, and no error.

use http::header::DATE;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::{PODS, list_each, query_parameter};
use zonewise_common::proxy_report::LEASES;
use zonewise_inventory::demand::{self, StoredDemandError};
use zonewise_slices::pod::Pod;

use crate::environment::{Facts, Lease, MANAGER, ProxyConfig, ProxyPod, Sight, StoredDemand};

/// Reads what shows which programs run in a cluster.
pub async fn facts(client: &Client) -> Facts {
    let (version, now) = version(client).await;
    Facts {
        now: now.or_else(|| Some(Timestamp::now())),
        version,
        own_leases: own_leases(client).await,
        manager_lease: manager_lease(client).await,
        proxy_pods: proxy_pods(client).await,
        configs: configs(client).await,
        demand: stored_demand(client).await,
        ..Facts::of_cluster()
    }
}

/// The version of the API server, and the time by its clock. Leases are compared with that clock, because
/// the clock of the machine that this runs on may differ.
async fn version(client: &Client) -> (Option<String>, Option<Timestamp>) {
    let Ok((headers, body)) = api::get_with_headers(client, "/version").await else {
        return (None, None);
    };
    let version: Value = serde_json::from_slice(&body).unwrap_or_default();
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    (version["gitVersion"].as_str().map(str::to_owned), date.map(|date| date.timestamp()))
}

async fn own_leases(client: &Client) -> Sight<Vec<Lease>> {
    let mut leases = Vec::new();
    let mut take = |json: &str| leases.extend(serde_json::from_str::<Lease>(json).ok());
    match list_each(client, LEASES, "", &mut take).await {
        Ok(_) => Sight::Seen(leases),
        Err(error) => hidden("Leases of zonewise-system", &error),
    }
}

async fn manager_lease(client: &Client) -> Sight<Option<Lease>> {
    let (namespace, name) = MANAGER;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    match api::get(client, &path).await {
        Ok(body) => Sight::Seen(serde_json::from_slice(&body).ok()),
        Err(ApiError::NotFound(_)) => Sight::Seen(None),
        Err(error) => hidden("the Lease of kube-controller-manager", &error),
    }
}

async fn proxy_pods(client: &Client) -> Sight<Vec<ProxyPod>> {
    let mut pods = Vec::new();
    for selector in ProxyPod::selectors() {
        let selector = query_parameter("labelSelector", &selector);
        let mut take = |json: &str| {
            let pod = serde_json::from_str::<Pod>(json).ok();
            pods.extend(pod.and_then(|pod| ProxyPod::of(&pod)));
        };
        if let Err(error) = list_each(client, PODS.path, &selector, &mut take).await {
            return hidden("Pods of kube-proxy and Cilium", &error);
        }
    }
    Sight::Seen(pods)
}

/// What the leading controller has stored of measured demand.
async fn stored_demand(client: &Client) -> StoredDemand {
    match demand::read(client).await {
        Ok(stored) => stored.map(Into::into).unwrap_or_default(),
        Err(StoredDemandError::Api(_)) => StoredDemand::hidden(),
        Err(StoredDemandError::State(error)) => StoredDemand::damaged(error.to_string()),
    }
}

/// The settings of proxies. Where Cilium's cannot be read, its Pods alone do not say what it does.
async fn configs(client: &Client) -> Vec<ProxyConfig> {
    let mut configs = Vec::new();
    for name in ProxyConfig::NAMES {
        let path = format!("/api/v1/namespaces/kube-system/configmaps/{name}");
        let Ok(body) = api::get(client, &path).await else { continue };
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        configs.extend(ProxyConfig::of(&value));
    }
    configs
}

/// What could not be read, and why.
pub(super) fn hidden<T>(what: &str, error: &ApiError) -> Sight<T> {
    let why = match error {
        ApiError::Forbidden(_) => "not allowed".to_owned(),
        error => error.to_string(),
    };
    Sight::Hidden(format!("{what} cannot be read: {why}"))
}
