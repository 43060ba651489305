//! Guard mode beside the built-in controller, with nothing but the permissions of `deploy/guard/rbac.yaml`.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_slices::guard::{Others, ZoneAllocation};
use zonewise_testbed::objects::{endpoint_slice, node, service};
use zonewise_testbed::table::markdown;
use zonewise_testbed::{Cluster, Lent, Options, Pool, User, eventually, manifests, minor_version};

use super::{ROOT, Running, eventually_served, slices};
use crate::built_in::{self, BuiltIn};

pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Asks for the hints of KEP-2433.
pub(crate) const AUTO: (&str, &str) = ("zonewise.dev/routing-preference", "zonewise.dev/auto");

/// A cluster of three zones with the built-in controller and what guard mode needs, but not the rights to write slices.
pub(crate) async fn cluster(flags: &[&str]) -> (Lent, BuiltIn) {
    static POOL: Pool = Pool::new();
    let cluster = POOL.lend(Options::default(), set_up).await.unwrap();
    let built_in = built_in::start(&cluster, flags).await;
    (cluster, built_in)
}

/// The same with an API server as before Kubernetes 1.36, without MutatingAdmissionPolicy.
pub(crate) async fn cluster_without_policies(flags: &[&str]) -> (Lent, BuiltIn) {
    let cluster = lent_without_policies().await;
    let built_in = built_in::start(&cluster, flags).await;
    (cluster, built_in)
}

pub(crate) async fn lent_without_policies() -> Lent {
    static POOL: Pool = Pool::new();
    POOL.lend(without_policies(), set_up).await.unwrap()
}

pub(crate) async fn set_up(cluster: &Cluster) -> anyhow::Result<()> {
    let roles = manifests(format!("{ROOT}/deploy/controller/rbac.yaml"))?;
    let (first, rest) = roles.split_at(1);
    let of_the_controller = |object: &&Value| {
        object["kind"].as_str().is_some_and(|kind| kind.starts_with("ClusterRole"))
    };
    let rest: Vec<Value> = rest.iter().filter(|role| !of_the_controller(role)).cloned().collect();
    cluster.create(first).await?;
    cluster.create(&rest).await?;
    for file in ["crd.yaml", "rbac.yaml", "webhook.yaml"] {
        cluster.create(&manifests(format!("{ROOT}/deploy/guard/{file}"))?).await?;
    }
    eventually_served(cluster, "ZoneAllocation").await;
    cluster.create(&["a", "b", "c"].map(|zone| node(zone, zone, "4"))).await
}

/// Installs the policy for Services of these names, as the controller does, and waits until it is in force.
pub(crate) async fn install(cluster: &Cluster, services: &[String]) {
    let policy = manifests(format!("{ROOT}/crates/controller/src/guard/policy.yaml")).unwrap();
    cluster.create(&policy).await.unwrap();
    let binding = |service: &str| {
        json!({
            "kind": "MutatingAdmissionPolicyBinding",
            "apiVersion": "admissionregistration.k8s.io/v1",
            "metadata": { "name": format!("zonewise-guard-{service}") },
            "spec": {
                "policyName": "zonewise-guard",
                "paramRef": { "name": service, "parameterNotFoundAction": "Allow" },
                "matchResources": {
                    "objectSelector": { "matchLabels": { "kubernetes.io/service-name": service } },
                },
            },
        })
    };
    let bindings: Vec<Value> = services.iter().map(|service| binding(service)).collect();
    cluster.create(&bindings).await.unwrap();
    // The API server takes over all bindings at once, so those of before are in force when this one is.
    let last = [binding("probe"), allocation("probe", &own_zone())];
    cluster.create(&last).await.unwrap();
    eventually_admits(cluster, "probe", true).await;
    cluster.delete(&last).await.unwrap();
}

pub(crate) fn listed(others: Others, endpoints: &[(&str, &str)]) -> ZoneAllocation {
    let entry = |(address, zones): &(&str, &str)| ((*address).into(), (*zones).into());
    ZoneAllocation { others, endpoints: endpoints.iter().map(entry).collect(), floor: None }
}

/// An allocation by which all endpoints serve their own zone.
pub(crate) fn own_zone() -> ZoneAllocation {
    ZoneAllocation { others: Others::OwnZone, endpoints: BTreeMap::new(), floor: None }
}

/// Waits until a slice of this Service, which has an allocation, gets hints when it is written, or gets none. Nothing is stored.
pub(crate) async fn eventually_admits(cluster: &Cluster, service: &str, has_hints: bool) {
    let endpoint = json!({
        "addresses": ["10.0.0.1"], "zone": "a", "conditions": { "ready": true },
    });
    let mut slice = endpoint_slice("default", service, "probe", &[endpoint]);
    slice["metadata"]["labels"][MANAGED_BY] = "endpointslice-controller.k8s.io".into();
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?dryRun=All";
    let client = cluster.admin().unwrap();
    eventually(|| async {
        let request = http::Request::post(path).header("Content-Type", "application/json");
        let request = request.body(slice.to_string().into_bytes()).unwrap();
        let admitted: Value = client.request(request).await.map_err(|error| error.to_string())?;
        let found = admitted["endpoints"][0]["hints"].is_object();
        if found == has_hints { Ok(()) } else { Err(format!("{service}: hints {found}")) }
    })
    .await;
}

/// An API server as before Kubernetes 1.36, without MutatingAdmissionPolicy; an older one where the programs are older.
pub(crate) fn without_policies() -> Options {
    if minor_version().unwrap() < 36 {
        return Options::default();
    }
    Options::default()
        .apiserver(
            "--runtime-config=admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false",
        )
        .apiserver("--disable-admission-plugins=ServiceAccount,MutatingAdmissionPolicy")
}

/// The floor, as the API server knows it.
pub(crate) fn floor() -> &'static str {
    if minor_version().unwrap() < 34 { "PreferClose" } else { "PreferSameZone" }
}

pub(crate) async fn guard(cluster: &Cluster) -> Running {
    Running::start_as(cluster, User::Controller, "mode: guard").await
}

/// A ready Pod of an app; Pods are numbered.
pub(crate) fn pod(app: &str, number: usize, zone: &str) -> Value {
    let ip = format!("10.5.{}.{}", number / 250, number % 250 + 1);
    zonewise_testbed::objects::pod("default", &format!("{app}-{number}"), app, zone, &ip)
}

/// So many Pods in each zone.
pub(crate) fn pods(app: &str, first: usize, per_zone: [usize; 3]) -> Vec<Value> {
    let zones = ["a", "b", "c"].into_iter().zip(per_zone);
    let zones = zones.flat_map(|(zone, count)| std::iter::repeat_n(zone, count));
    zones.enumerate().map(|(number, zone)| pod(app, first + number, zone)).collect()
}

pub(crate) fn annotated(name: &str, (key, value): (&str, &str)) -> Value {
    let mut service = service("default", name, name);
    service["metadata"]["annotations"] = json!({ key: value });
    service
}

/// A ZoneAllocation as the controller writes it.
pub(crate) fn allocation(name: &str, spec: &ZoneAllocation) -> Value {
    json!({
        "apiVersion": "zonewise.dev/v1alpha1", "kind": "ZoneAllocation",
        "metadata": { "namespace": "default", "name": name }, "spec": spec,
    })
}

/// The zones that each endpoint of a Service is hinted to, by address; `-` for none.
pub(crate) async fn hints(cluster: &Cluster, service: &str) -> BTreeMap<String, String> {
    let slices = slices(cluster, "default", service).await;
    let endpoints =
        slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    endpoints
        .map(|endpoint| {
            let zones = endpoint["hints"]["forZones"].as_array().into_iter().flatten();
            let zones: Vec<&str> = zones.filter_map(|zone| zone["name"].as_str()).collect();
            let zones = if zones.is_empty() { "-".to_owned() } else { zones.join(",") };
            (endpoint["addresses"][0].as_str().unwrap().to_owned(), zones)
        })
        .collect()
}

/// The number of endpoints hinted to each list of zones.
pub(crate) async fn counts(cluster: &Cluster, service: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for zones in hints(cluster, service).await.into_values() {
        *counts.entry(zones).or_default() += 1;
    }
    counts
}

pub(crate) fn counted(rows: &[(&str, usize)]) -> BTreeMap<String, usize> {
    rows.iter().map(|(zones, count)| ((*zones).to_owned(), *count)).collect()
}

pub(crate) async fn eventually_counts(cluster: &Cluster, service: &str, rows: &[(&str, usize)]) {
    eventually(|| async {
        let found = counts(cluster, service).await;
        if found == counted(rows) { Ok(()) } else { Err(format!("{service}: {found:?}")) }
    })
    .await;
}

/// The resource versions of a Service's slices.
pub(crate) async fn versions(cluster: &Cluster, service: &str) -> Vec<String> {
    let slices = slices(cluster, "default", service).await;
    slices.iter().map(|slice| slice["metadata"]["resourceVersion"].to_string()).collect()
}

/// How long a cluster is watched at rest: a minute where `ZONEWISE_GUARD_SECONDS=60` says so.
pub(crate) fn rest() -> Duration {
    let seconds = std::env::var("ZONEWISE_GUARD_SECONDS").ok();
    Duration::from_secs(
        seconds.and_then(|text| text.parse().ok()).unwrap_or(built_in::REST_SECONDS),
    )
}

/// True if measurements are asked for.
pub(crate) fn tells() -> bool {
    std::env::var_os("ZONEWISE_GUARD_SECONDS").is_some()
}

/// Shows a table of what was measured, where a minute at rest was asked for.
pub(crate) fn tell(lines: &[Vec<String>]) {
    if tells() {
        let _ = std::io::stderr().write_all(markdown(lines).as_bytes());
    }
}

pub(crate) async fn get(cluster: &Cluster, kind: &str, name: &str) -> Option<Value> {
    cluster.objects().unwrap().get(kind, Some("default"), name).await.unwrap()
}

/// The stored object, changed and written as another program would.
pub(crate) async fn edit(cluster: &Cluster, kind: &str, name: &str, change: impl Fn(&mut Value)) {
    eventually(|| async {
        let mut object = get(cluster, kind, name).await.ok_or("it does not exist")?;
        object["status"].take();
        change(&mut object);
        cluster.update(&[object]).await.map_err(|error| format!("{error:#}"))
    })
    .await;
}

/// Status and reason of one of our conditions on a Service.
pub(crate) async fn condition(
    cluster: &Cluster,
    service: &str,
    kind: &str,
) -> Option<(String, String)> {
    let service = get(cluster, "Service", service).await?;
    let conditions = service["status"]["conditions"].as_array()?.clone();
    let kind = format!("zonewise.dev/RoutingPreference{kind}");
    let found = conditions.into_iter().find(|condition| condition["type"] == kind.as_str())?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

pub(crate) async fn eventually_condition(
    cluster: &Cluster,
    service: &str,
    status: &str,
    reason: &str,
) {
    eventually(|| async {
        let found = condition(cluster, service, "Enforced").await;
        let expected = Some((status.to_owned(), reason.to_owned()));
        if found == expected { Ok(()) } else { Err(format!("{service}: Enforced is {found:?}")) }
    })
    .await;
}
