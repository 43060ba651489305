//! Reads what `zonewise check` judges. Whatever cannot be read is hidden, and no error.

use std::collections::BTreeMap;

use http::header::DATE;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::review;
use zonewise_cluster::watch::{
    NODES, PODS, SERVICES, SLICES, list_each, namespaced, query_parameter,
};
use zonewise_common::api_group::{COORDINATION, DISCOVERY};
use zonewise_common::keys::{COMPONENT, PROXY, ROUTING_PREFERENCE, SUBSETTING};
use zonewise_common::name::{CONTROLLER_NAME, GUARD_NAME, PROXY_NAME, SYSTEM_NAMESPACE};
use zonewise_common::proxy_report::LEASES;
use zonewise_inventory::evacuation::{EVACUATIONS, StoredEvacuation};
use zonewise_inventory::guard::{ALLOCATIONS, POLICIES, POLICY};
use zonewise_slices::requested::{EndpointWeight, requested_routing};
use zonewise_slices::service::Service;
use zonewise_slices::settings::Settings;

use super::facts::{self, hidden};
use crate::check::{
    GuardSight, NodeSight, PodSight, Right, Sights, SliceWrite, Stage, WebhookSight, WorkloadKind,
    WorkloadSight,
};
use crate::environment::Sight;

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
const DAEMON_SETS: &str = "/apis/apps/v1/daemonsets";

/// Some slices are enough to see who writes them.
const SLICES_LOOKED_AT: usize = 500;

/// Reads what is to be judged.
///
/// # Errors
/// If the API server cannot be reached, or does not accept the credentials.
pub async fn sights(client: &Client, stage: Stage) -> Result<Sights, ApiError> {
    let clocks = clocks(client).await?;
    let leases = objects(client, LEASES, "", "Leases of zonewise-system").await;
    let nodes = objects(client, NODES.path, "", "nodes").await;
    let daemon_sets = objects(client, DAEMON_SETS, "", "DaemonSets").await;
    let of_ours = |path| namespaced(SYSTEM_NAMESPACE, path);
    let what = "Deployments of zonewise-system";
    let deployments = objects(client, &of_ours(DEPLOYMENTS), "", what).await;
    let own_pods = objects(client, &of_ours(PODS.path), "", "Pods of zonewise-system").await;
    let services = objects(client, SERVICES.path, "", "Services").await;
    let workload = |kind| move |value: &Value| WorkloadSight::of(kind, value);
    Ok(Sights {
        facts: facts::facts(client).await,
        clocks,
        nodes: every(&nodes, |value| NodeSight::of(value).into_iter().collect()),
        daemon_sets: map(&daemon_sets, workload(WorkloadKind::DaemonSet)),
        deployments: map(&deployments, workload(WorkloadKind::Deployment)),
        own_pods: map(&own_pods, PodSight::of),
        system_pods: system_pods(client).await,
        namespace: namespace(client).await,
        leading_since: leases.seen().and_then(|leases| leading_since(leases)),
        reports: every(&leases, |value| {
            let is_proxy = value["metadata"]["labels"][COMPONENT] == PROXY;
            serde_json::from_value(value.clone()).ok().filter(|_| is_proxy).into_iter().collect()
        }),
        writes: writes(client).await,
        asking: asking(&services, |service| {
            let annotations = &service["metadata"]["annotations"];
            [ROUTING_PREFERENCE, SUBSETTING].iter().any(|key| annotations[*key].is_string())
        }),
        asking_by_use: asking(&services, counts_by_use),
        guard: guard(client).await,
        evacuations: evacuations(client).await,
        bindings: bindings(client).await,
        rights: rights(client, stage).await,
    })
}

/// Zones that are being emptied. Most clusters do not know the kind, and not everybody may read it.
async fn evacuations(client: &Client) -> Vec<StoredEvacuation> {
    let found = objects(client, EVACUATIONS.path, "", "ZoneEvacuations").await;
    let read = |value: &Value| serde_json::from_value(value.clone()).ok().into_iter().collect();
    every(&found, read).seen().cloned().unwrap_or_default()
}

/// This machine's time and the API server's. The server's has whole seconds.
async fn clocks(client: &Client) -> Result<Option<(Timestamp, Timestamp)>, ApiError> {
    let (headers, _) = match api::get_with_headers(client, "/version").await {
        Ok(answer) => answer,
        // Some API servers do not tell their version to everybody.
        Err(error) if !error.is_general() => return Ok(None),
        Err(error) => return Err(error),
    };
    let here = Timestamp::now();
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
    Ok(date.map(|date| (here, date.timestamp())))
}

/// All objects at a path.
async fn objects(client: &Client, path: &str, selector: &str, what: &str) -> Sight<Vec<Value>> {
    let mut found = Vec::new();
    let mut take = |json: &str| found.extend(serde_json::from_str::<Value>(json).ok());
    match list_each(client, path, selector, &mut take).await {
        Ok(_) => Sight::Seen(found),
        Err(error) => hidden(what, &error),
    }
}

/// The same, each object turned into any number of others.
fn every<T>(objects: &Sight<Vec<Value>>, of: impl Fn(&Value) -> Vec<T>) -> Sight<Vec<T>> {
    match objects {
        Sight::Seen(objects) => Sight::Seen(objects.iter().flat_map(of).collect()),
        Sight::Hidden(why) => Sight::Hidden(why.clone()),
    }
}

fn map<T>(objects: &Sight<Vec<Value>>, of: impl Fn(&Value) -> T) -> Sight<Vec<T>> {
    every(objects, |value| vec![of(value)])
}

/// The Pods of kube-proxy, Cilium and kube-controller-manager.
async fn system_pods(client: &Client) -> Sight<Vec<PodSight>> {
    let mut pods = Vec::new();
    for selector in
        ["k8s-app in (kube-proxy,cilium)", "component in (kube-proxy,kube-controller-manager)"]
    {
        let selector = query_parameter("labelSelector", selector);
        match objects(client, PODS.path, &selector, "Pods of kube-system").await {
            Sight::Seen(found) => pods.extend(found.iter().map(PodSight::of)),
            Sight::Hidden(why) => return Sight::Hidden(why),
        }
    }
    Sight::Seen(pods)
}

async fn namespace(client: &Client) -> Sight<Option<BTreeMap<String, String>>> {
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}");
    match api::get(client, &path).await {
        Ok(body) => {
            let value: Value = serde_json::from_slice(&body).unwrap_or_default();
            let labels = serde_json::from_value(value["metadata"]["labels"].clone());
            Sight::Seen(Some(labels.unwrap_or_default()))
        }
        Err(ApiError::NotFound(_)) => Sight::Seen(None),
        Err(error) => hidden("the namespace zonewise-system", &error),
    }
}

/// The ClusterRoleBindings of zonewise's programs that exist.
async fn bindings(client: &Client) -> Sight<Vec<&'static str>> {
    let mut found = Vec::new();
    for name in [CONTROLLER_NAME, GUARD_NAME, PROXY_NAME] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}");
        match api::get(client, &path).await {
            Ok(_) => found.push(name),
            Err(ApiError::NotFound(_)) => {}
            Err(error) => return hidden("ClusterRoleBindings of zonewise", &error),
        }
    }
    Sight::Seen(found)
}

/// Since when the controller leads.
fn leading_since(leases: &[Value]) -> Option<Timestamp> {
    let lease = leases.iter().find(|one| one["metadata"]["name"] == CONTROLLER_NAME)?;
    lease["spec"]["acquireTime"].as_str()?.parse().ok()
}

async fn writes(client: &Client) -> Sight<Vec<SliceWrite>> {
    let path = format!("{}?limit={SLICES_LOOKED_AT}", SLICES.path);
    match api::get(client, &path).await {
        Ok(body) => {
            let list: Value = serde_json::from_slice(&body).unwrap_or_default();
            let slices = list["items"].as_array().into_iter().flatten();
            Sight::Seen(slices.flat_map(SliceWrite::of).collect())
        }
        Err(error) => hidden("EndpointSlices", &error),
    }
}

/// Whether the controller counts the endpoints of a Service by the CPU that they use, if it reads that: where it writes shares
/// of zones, and not for the annotation alone.
fn counts_by_use(service: &Value) -> bool {
    Service::deserialize(service).is_ok_and(|service| {
        let asked = requested_routing(&service, &Settings::default());
        asked.endpoint_weight == EndpointWeight::CpuUse
    })
}

/// The Services that ask for something.
fn asking(services: &Sight<Vec<Value>>, asks: impl Fn(&Value) -> bool) -> Sight<Vec<String>> {
    every(services, |value| {
        let metadata = &value["metadata"];
        let name = |field: &str| metadata[field].as_str().unwrap_or_default();
        asks(value).then(|| format!("{}/{}", name("namespace"), name("name"))).into_iter().collect()
    })
}

/// What guard mode has in the API server. An API server that does not know a kind has none of it.
async fn guard(client: &Client) -> Sight<GuardSight> {
    let mut allocations = Vec::new();
    let mut take = |json: &str| {
        let allocation = serde_json::from_str::<Value>(json).ok();
        allocations.extend(allocation.as_ref().and_then(GuardSight::allocation));
    };
    let known = match list_each(client, ALLOCATIONS.path, "", &mut take).await {
        Ok(_) => true,
        Err(ApiError::NotFound(_)) => false,
        Err(error) => return hidden("ZoneAllocations", &error),
    };
    let admission = match admission(client).await {
        Ok(admission) => admission,
        Err((what, error)) => return hidden(what, &error),
    };
    Sight::Seen(GuardSight { allocations: known.then_some(allocations), ..admission })
}

/// What puts hints into slices in guard mode: the admission policy, and the webhook that takes its place. The error names
/// what cannot be read.
async fn admission(client: &Client) -> Result<GuardSight, (&'static str, ApiError)> {
    let path = |kind: &str| format!("/apis/{POLICIES}/{kind}");
    let named = async |kind: &str, what: &'static str| match api::get(
        client,
        &path(&format!("{kind}/{POLICY}")),
    )
    .await
    {
        Ok(body) => Ok(Some(serde_json::from_slice::<Value>(&body).unwrap_or_default())),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(error) => Err((what, error)),
    };
    let policy = named("mutatingadmissionpolicies", "the admission policy of guard mode").await?;
    let webhook = named("mutatingwebhookconfigurations", "the webhook of guard mode").await?;
    let mut bound = Vec::new();
    let mut take = |json: &str| {
        let binding = serde_json::from_str::<Value>(json).ok();
        bound.extend(binding.as_ref().and_then(GuardSight::bound));
    };
    match list_each(client, &path("mutatingadmissionpolicybindings"), "", &mut take).await {
        Ok(_) | Err(ApiError::NotFound(_)) => {}
        Err(error) => return Err(("bindings of the admission policy of guard mode", error)),
    }
    let policy = policy.as_ref().map(GuardSight::failure_policy);
    let webhook = webhook.as_ref().map(WebhookSight::of);
    Ok(GuardSight { allocations: None, policy, bound, webhook })
}

/// Verb, API group, resource, namespace, and what it is for.
type Wanted = (&'static str, &'static str, &'static str, &'static str, &'static str);

const TO_LOOK: [Wanted; 7] = [
    ("list", "", "nodes", "", "zones and CPU"),
    ("list", "", "pods", "", "endpoints, and which proxies run"),
    ("list", "", "services", "", "what they ask for"),
    ("list", DISCOVERY, "endpointslices", "", "where traffic goes"),
    ("list", "apps", "daemonsets", "", "network plugin and proxies"),
    ("list", "apps", "deployments", SYSTEM_NAMESPACE, "the controller"),
    ("list", COORDINATION, "leases", SYSTEM_NAMESPACE, "what runs"),
];

const TO_INSTALL: [Wanted; 10] = [
    ("create", "", "namespaces", "", SYSTEM_NAMESPACE),
    ("create", "", "serviceaccounts", SYSTEM_NAMESPACE, "the chart"),
    ("create", "", "configmaps", SYSTEM_NAMESPACE, "the chart"),
    ("create", "", "secrets", SYSTEM_NAMESPACE, "Helm's record of the release"),
    ("create", "apps", "deployments", SYSTEM_NAMESPACE, "the controller"),
    ("create", "apps", "daemonsets", SYSTEM_NAMESPACE, "the proxy"),
    (
        "create",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "",
        "zones to empty, and guard mode",
    ),
    ("create", "rbac.authorization.k8s.io", "clusterroles", "", "rights of controller and proxy"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", "", "the same"),
    (
        "create",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        "",
        "the proxies' Leases",
    ),
];

async fn rights(client: &Client, stage: Stage) -> Vec<Right> {
    let wanted: Vec<Wanted> = match stage {
        Stage::Before => TO_LOOK[..5].iter().chain(&TO_INSTALL).copied().collect(),
        Stage::After => TO_LOOK.to_vec(),
    };
    let mut rights = Vec::new();
    for (verb, group, resource, namespace, purpose) in wanted {
        let allowed = review::may_i(client, verb, group, resource, namespace).await.ok();
        rights.push(Right { verb, group, resource, namespace, purpose, allowed });
    }
    rights
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_count_by_use_where_shares_are_written() {
        for (preference, expected) in [("zonewise.dev/balanced", true), ("Auto", false)] {
            let service = json!({
                "metadata": {"namespace": "shop", "name": "web", "annotations": {
                    "zonewise.dev/endpoint-weight": "cpu-use", "zonewise.dev/routing-preference": preference,
                }},
                "spec": {"type": "ClusterIP", "selector": {"app": "web"}},
            });
            assert_eq!(counts_by_use(&service), expected, "{preference}");
        }
    }
}
