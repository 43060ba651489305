//! Guard mode beside the real built-in controller, with nothing but the permissions of `deploy/guard/rbac.yaml`.

mod demand;
mod life;
mod policy;
mod webhook;
mod writes;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_slices::guard::ZoneAllocation;
use zonewise_testbed::objects::{node, service};
use zonewise_testbed::table::markdown;
use zonewise_testbed::{Cluster, Options, Process, User, eventually, manifests, minor_version};

use crate::common::{ROOT, Running, slices};

/// Asks for the hints of KEP-2433.
const AUTO: (&str, &str) = ("zonewise.dev/routing-preference", "zonewise.dev/auto");

/// A cluster of three zones with the built-in controller and what guard mode needs, but not the rights to write slices.
async fn cluster(flags: &[&str]) -> (Cluster, Process) {
    cluster_with(Options::default(), flags).await
}

/// The same with an API server of these options.
async fn cluster_with(options: Options, flags: &[&str]) -> (Cluster, Process) {
    let cluster = Cluster::start_with(options).await.unwrap();
    let roles = manifests(format!("{ROOT}/deploy/controller/rbac.yaml")).unwrap();
    let (first, rest) = roles.split_at(1);
    let of_the_controller = |object: &&Value| {
        object["kind"].as_str().is_some_and(|kind| kind.starts_with("ClusterRole"))
    };
    let rest: Vec<Value> = rest.iter().filter(|role| !of_the_controller(role)).cloned().collect();
    cluster.create(first).await.unwrap();
    cluster.create(&rest).await.unwrap();
    for file in ["crd.yaml", "rbac.yaml", "webhook.yaml"] {
        let objects = manifests(format!("{ROOT}/deploy/guard/{file}")).unwrap();
        cluster.create(&objects).await.unwrap();
    }
    eventually(|| async {
        let answer = cluster.list("ZoneAllocation", None).await;
        answer.map(drop).map_err(|error| format!("{error:#}"))
    })
    .await;
    cluster.create(&["a", "b", "c"].map(|zone| node(zone, zone, "4"))).await.unwrap();
    let built_in = cluster.controller_manager(flags).unwrap();
    (cluster, built_in)
}

/// Installs the policy for Services of these names, as the controller does, and waits until it is in force.
async fn install(cluster: &Cluster, services: &[String]) {
    let policy = manifests(format!("{ROOT}/crates/controller/src/guard/policy.yaml")).unwrap();
    cluster.create(&policy).await.unwrap();
    let binding = |service: &String| {
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
    cluster.create(&services.iter().map(binding).collect::<Vec<_>>()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// An API server as before Kubernetes 1.36, without MutatingAdmissionPolicy; an older one where the programs are older.
fn without_policies() -> Options {
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
fn floor() -> &'static str {
    if minor_version().unwrap() < 34 { "PreferClose" } else { "PreferSameZone" }
}

async fn guard(cluster: &Cluster) -> Running {
    Running::start_as(cluster, User::Controller, "mode: guard").await
}

/// A ready Pod of an app; Pods are numbered.
fn pod(app: &str, number: usize, zone: &str) -> Value {
    let ip = format!("10.5.{}.{}", number / 250, number % 250 + 1);
    zonewise_testbed::objects::pod("default", &format!("{app}-{number}"), app, zone, &ip)
}

/// So many Pods in each zone.
fn pods(app: &str, first: usize, per_zone: [usize; 3]) -> Vec<Value> {
    let zones = ["a", "b", "c"].into_iter().zip(per_zone);
    let zones = zones.flat_map(|(zone, count)| std::iter::repeat_n(zone, count));
    zones.enumerate().map(|(number, zone)| pod(app, first + number, zone)).collect()
}

fn annotated(name: &str, (key, value): (&str, &str)) -> Value {
    let mut service = service("default", name, name);
    service["metadata"]["annotations"] = json!({ key: value });
    service
}

/// A ZoneAllocation as the controller writes it.
fn allocation(name: &str, spec: &ZoneAllocation) -> Value {
    json!({
        "apiVersion": "zonewise.dev/v1alpha1", "kind": "ZoneAllocation",
        "metadata": { "namespace": "default", "name": name }, "spec": spec,
    })
}

/// The zones that each endpoint of a Service is hinted to, by address; `-` for none.
async fn hints(cluster: &Cluster, service: &str) -> BTreeMap<String, String> {
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
async fn counts(cluster: &Cluster, service: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for zones in hints(cluster, service).await.into_values() {
        *counts.entry(zones).or_default() += 1;
    }
    counts
}

fn counted(rows: &[(&str, usize)]) -> BTreeMap<String, usize> {
    rows.iter().map(|(zones, count)| ((*zones).to_owned(), *count)).collect()
}

async fn eventually_counts(cluster: &Cluster, service: &str, rows: &[(&str, usize)]) {
    eventually(|| async {
        let found = counts(cluster, service).await;
        if found == counted(rows) { Ok(()) } else { Err(format!("{service}: {found:?}")) }
    })
    .await;
}

/// The resource versions of a Service's slices.
async fn versions(cluster: &Cluster, service: &str) -> Vec<String> {
    let slices = slices(cluster, "default", service).await;
    slices.iter().map(|slice| slice["metadata"]["resourceVersion"].to_string()).collect()
}

/// How long a cluster is watched at rest; a minute where `ZONEWISE_GUARD_SECONDS=60` says so.
fn rest() -> Duration {
    let seconds = std::env::var("ZONEWISE_GUARD_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(8))
}

/// Shows a table of what was measured, where a minute at rest was asked for.
fn tell(lines: &[Vec<String>]) {
    if std::env::var_os("ZONEWISE_GUARD_SECONDS").is_some() {
        let _ = std::io::stderr().write_all(markdown(lines).as_bytes());
    }
}

async fn get(cluster: &Cluster, kind: &str, name: &str) -> Option<Value> {
    cluster.objects().unwrap().get(kind, Some("default"), name).await.unwrap()
}

/// The stored object, changed and written as another program would.
async fn edit(cluster: &Cluster, kind: &str, name: &str, change: impl Fn(&mut Value)) {
    eventually(|| async {
        let mut object = get(cluster, kind, name).await.ok_or("it does not exist")?;
        object["status"].take();
        change(&mut object);
        cluster.update(&[object]).await.map_err(|error| format!("{error:#}"))
    })
    .await;
}

/// Status and reason of one of our conditions on a Service.
async fn condition(cluster: &Cluster, service: &str, kind: &str) -> Option<(String, String)> {
    let service = get(cluster, "Service", service).await?;
    let conditions = service["status"]["conditions"].as_array()?.clone();
    let kind = format!("zonewise.dev/RoutingPreference{kind}");
    let found = conditions.into_iter().find(|condition| condition["type"] == kind.as_str())?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

async fn eventually_condition(cluster: &Cluster, service: &str, status: &str, reason: &str) {
    eventually(|| async {
        let found = condition(cluster, service, "Enforced").await;
        let expected = Some((status.to_owned(), reason.to_owned()));
        if found == expected { Ok(()) } else { Err(format!("{service}: Enforced is {found:?}")) }
    })
    .await;
}
