//! A cluster in which Pods use CPU by the traffic that they get, and a metrics API that tells it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use zonewise_controller::config::{Config, DemandConfig};
use zonewise_demand::cpu_use::{Pace, UseState};
use zonewise_testbed::objects::{namespace, node, pod, service};
use zonewise_testbed::{Cluster, eventually};
use zonewise_topology::zone_shares::ZoneShares;

use super::demand::zone_shares;
use super::{apply_roles, condition, config, zonal_pods};

pub(crate) const ZONES: [&str; 3] = ["a", "b", "c"];
/// What a part of the Service's traffic costs an endpoint of each zone, in thousandths of a core: those of zone a are half as fast.
pub(crate) const COSTS: [f64; 3] = [6000.0, 3000.0, 3000.0];

/// A cluster of three equal zones, and two Services whose endpoints count by use.
pub(crate) async fn cluster() -> Cluster {
    // It gets a resource of its own.
    let cluster = Cluster::start().await.unwrap();
    apply_roles(&cluster).await;
    cluster.create(&ZONES.map(|zone| node(&format!("{zone}1"), zone, "4"))).await.unwrap();
    cluster.create(&[namespace("shop"), namespace("other")]).await.unwrap();
    for (space, name) in [("shop", "web"), ("shop", "odd"), ("other", "web")] {
        let mut service = service(space, name, name);
        service["metadata"]["annotations"] = json!({
            "zonewise.dev/routing-preference": "zonewise.dev/balanced",
            "zonewise.dev/endpoint-weight": "cpu-use",
        });
        cluster.create(&[service]).await.unwrap();
    }
    cluster.create(&zonal_pods("shop", "web", 2)).await.unwrap();
    cluster.create(&zonal_pods("shop", "odd", 1)).await.unwrap();
    let far = ["a1", "b1", "c1"].into_iter().enumerate();
    let far = far.map(|(n, node)| {
        pod("other", &format!("web-{n}"), "web", node, &format!("10.9.9.{}", n + 1))
    });
    cluster.create(&far.collect::<Vec<_>>()).await.unwrap();
    cluster
}

/// The resource of the metrics API, as objects that are stored.
pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "pods.metrics.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "metrics.k8s.io", "scope": "Namespaced",
            "names": {"plural": "pods", "kind": "PodMetrics", "listKind": "PodMetricsList"},
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// The registration of a metrics API, as metrics-server makes it.
pub(crate) fn registration() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1",
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "kube-system", "name": "metrics-server"},
        },
    })
}

pub(crate) fn metrics(name: &str, cpu: &Value) -> Value {
    json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
        "metadata": {"name": name, "namespace": "shop"},
        "timestamp": Timestamp::from_second(Timestamp::now().as_second()).unwrap().to_string(),
        "window": "1s",
        "containers": [{"name": "c", "usage": {"cpu": cpu, "memory": "1Mi"}}],
    })
}

/// What the endpoints of each zone get of all traffic, by the slices of a Service: each of them.
pub(crate) async fn parts(cluster: &Cluster) -> Result<[f64; 3], String> {
    let texts = zone_shares(cluster).await;
    let first = texts.first().and_then(Value::as_str).ok_or("no shares")?;
    let shares = ZoneShares::decode(first).map_err(|error| error.to_string())?;
    let part = |to: &str| -> f64 {
        let from = ZONES.map(|from| shares.from[from].get(to).copied().unwrap_or(0));
        from.into_iter().map(|part| f64::from(part) / 1e6 / 3.0 / 2.0).sum()
    };
    Ok(ZONES.map(part))
}

/// Tells in each period what Pods use by the traffic that they get; those of the other Service are nonsense.
pub(crate) async fn feed(cluster: Arc<Cluster>, last: Arc<Mutex<[f64; 3]>>, period: Duration) {
    let objects = cluster.objects().unwrap();
    let nonsense = [json!("-3"), json!("9e99"), json!({"n": 1})];
    loop {
        if let Ok(parts) = parts(&cluster).await {
            let mut all = Vec::new();
            let uses = [0, 1, 2].map(|zone| parts[zone] * COSTS[zone]);
            *last.lock() = uses;
            for n in 0..6 {
                let cpu = format!("{}u", (uses[n % 3] * 1000.0) as u64);
                all.push(metrics(&format!("web-{n}"), &cpu.into()));
            }
            let odd = nonsense.iter().enumerate();
            all.extend(odd.map(|(n, cpu)| metrics(&format!("odd-{n}"), cpu)));
            // Of no Pod.
            all.push(metrics("web-99", &json!("3")));
            let stored = objects.list("PodMetrics", Some("shop")).await.unwrap_or_default();
            objects.delete(&stored).await.ok();
            objects.create(&all).await.ok();
        }
        tokio::time::sleep(period).await;
    }
}

pub(crate) fn weighing() -> Config {
    let usual = config("demand: { podMetrics: true }");
    let (period, pace) =
        (Duration::from_millis(250), Pace { step: 1000, hold: 6000, settle: 500, old: 6000 });
    let demand =
        DemandConfig { period, write_period: period, use_pace: pace, ..usual.demand.clone() };
    Config { demand, ..usual }
}

/// Waits until the condition says this of endpoints that count by use.
pub(crate) async fn told(
    cluster: &Cluster,
    (space, name): (&str, &str),
    status: &str,
    reason: &str,
) {
    eventually(|| async {
        let found = condition(cluster, space, name, "Weighted").await;
        let expected = Some((status.to_owned(), reason.to_owned()));
        if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
    })
    .await;
}

/// What is stored that the zones of a Service count for.
pub(crate) async fn stored(cluster: &Cluster, service: &str) -> Result<[u16; 3], String> {
    let objects = cluster.objects().unwrap();
    let stored = objects.get("ConfigMap", Some("zonewise-system"), "zonewise-demand").await;
    let stored = stored.unwrap().ok_or("no ConfigMap")?;
    let text = stored["data"]["use"].as_str().ok_or("nothing of use")?;
    let state = UseState::decode(text).map_err(|error| error.to_string())?;
    let in_force = state.of(service).ok_or("not this Service")?;
    Ok(ZONES.map(|zone| in_force.zones[zone].percent))
}

/// Waits until all endpoints use the same, but for a tenth.
pub(crate) async fn balanced(cluster: &Cluster) -> [f64; 3] {
    eventually(|| async {
        let parts = parts(cluster).await?;
        let uses = [0, 1, 2].map(|zone| parts[zone] * COSTS[zone]);
        let mean = uses.iter().sum::<f64>() / 3.0;
        if uses.iter().all(|one| (one / mean - 1.0).abs() < 0.1) {
            Ok(parts)
        } else {
            Err(format!("{uses:?}"))
        }
    })
    .await
}

pub(crate) fn percents(found: &BTreeMap<String, f64>, name: &str) -> [f64; 3] {
    ZONES.map(|zone| {
        let labels = format!("namespace=\"shop\",service=\"{name}\",zone=\"{zone}\"");
        found.get(&labels).copied().unwrap_or_default()
    })
}
