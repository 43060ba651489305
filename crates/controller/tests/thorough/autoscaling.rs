//! The example of docs/demand.md: a hot zone scales a Deployment although the average is calm.
//!
//! ```text
//!  proxies ─► controller ─► Prometheus ─► adapter ─► API server ─► kube-controller-manager ─► Deployment
//! ```
//!
//! All but the adapter are the real programs. The adapter here does what the documented rule tells prometheus-adapter to
//! do: it puts the labels that are asked for into the query, and answers with what Prometheus has.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use zonewise_cluster::prometheus::{Prometheus, Server as PrometheusServer};
use zonewise_telemetry::server::{self, Page, PageRequest, Protection, Server};
use zonewise_telemetry::tls::{Certificate, Tls};
use zonewise_testbed::{
    Cluster, Job, Prometheus as TestPrometheus, PrometheusOptions, User, eventually,
};

use crate::common::ROOT;
use crate::common::demand::{
    AUDIENCE, Everybody, add_service, cluster, counts, measuring, proxy, start, token_file,
};

const GROUP: &str = "external.metrics.k8s.io";
const METRIC: &str = "zonewise_zone_load_max";

/// The example: the values of prometheus-adapter, and the autoscaler.
fn example() -> [Value; 2] {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/demand.md")).unwrap();
    let (_, block) = page.split_once("# values of prometheus-adapter\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    serde_saphyr::from_multiple::<Value>(block).unwrap().try_into().unwrap()
}

/// The labels that a request asks for, as Prometheus wants them.
fn label_matchers(request: PageRequest<'_>) -> Option<String> {
    let (_, path) = request.path.split_once("/namespaces/")?;
    let (namespace, metric) = path.split_once('/')?;
    let selector = request.query.split('&').find_map(|part| part.strip_prefix("labelSelector="))?;
    let (label, value) = selector.split_once("%3D")?;
    (metric == METRIC).then(|| format!(r#"{label}="{value}",namespace="{namespace}""#))
}

/// Answers as prometheus-adapter does with this query.
fn answer(request: PageRequest<'_>, prometheus: &Prometheus, query: &str) -> Page {
    let version = format!("{GROUP}/v1beta1");
    let resource = json!({
        "name": METRIC, "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList",
        "verbs": ["get"],
    });
    let body = match label_matchers(request) {
        Some(matchers) => {
            let query = query.replace("<<.LabelMatchers>>", &matchers);
            let asked = prometheus.query(&query);
            let series = tokio::task::block_in_place(|| Handle::current().block_on(asked)).unwrap();
            let item = |value: f64| {
                let milli = format!("{}m", (1000.0 * value).round());
                json!({"metricName": METRIC, "metricLabels": {}, "timestamp": Timestamp::now().to_string(), "value": milli})
            };
            let items: Vec<Value> = series.iter().map(|one| item(one.value)).collect();
            json!({"kind": "ExternalMetricValueList", "apiVersion": version, "metadata": {}, "items": items})
        }
        None if request.path == format!("/apis/{version}") => {
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [resource]})
        }
        None => return Page::not_found(),
    };
    Page::new(200, "application/json", body.to_string())
}

/// Serves the adapter, and has the API server pass requests for its group on to it.
async fn adapter(cluster: &Cluster, prometheus: &str, query: String) -> Server {
    let prometheus = Prometheus::new(PrometheusServer {
        url: prometheus.to_owned(),
        bearer_token_file: None,
        ca_file: None,
        tenant: None,
        limit: Duration::from_secs(10),
    })
    .unwrap();
    let tls = Arc::new(Tls::new(Certificate::SelfSigned).unwrap());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let handler = move |request: PageRequest<'_>| answer(request, &prometheus, &query);
    let server =
        server::serve_kept(listener, handler, Protection { tls, access: Arc::new(Everybody) })
            .unwrap();
    let port = server.address().port();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter", "namespace": "shop"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    });
    let api_service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1beta1.{GROUP}")},
        "spec": {
            "group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "shop", "name": "adapter", "port": port},
        },
    });
    cluster.create(&[service]).await.unwrap();
    cluster.create(&[api_service]).await.unwrap();
    server
}

/// A Deployment whose six Pods are there.
fn deployment() -> Value {
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 6, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            },
        },
        "status": {"replicas": 6, "readyReplicas": 6, "availableReplicas": 6, "updatedReplicas": 6},
    })
}

/// Zone a sends 175 connections per second to its two endpoints, all zones together 250 to six: 87.5 and 42 for each.
/// The example allows 50, so six replicas are not enough. Nothing here makes Pods, so it is asked for more and more.
#[tokio::test(flavor = "multi_thread")]
async fn a_hot_zone_scales_although_the_average_is_calm() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let mut servers = Vec::new();
    for (zone, per_second) in [("a", 175), ("b", 50), ("c", 25)] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, per_second)).await);
    }
    let token = token_file(&cluster, User::Controller, AUDIENCE).await;
    let running = start(&cluster, measuring(token)).await;

    let [values, autoscaler] = example();
    let rule = &values["rules"]["external"][0];
    assert_eq!(rule["seriesQuery"], METRIC);
    let query = rule["metricsQuery"].as_str().unwrap().to_owned();
    let job = Job { name: "controller", targets: vec![running.metrics], labels: json!({}) };
    let prometheus =
        TestPrometheus::start(cluster.directory(), &[job], &PrometheusOptions::default()).unwrap();
    servers.push(adapter(&cluster, &prometheus.url(), query).await);
    cluster.create(&[deployment(), autoscaler]).await.unwrap();
    let _manager = cluster
        .controller_manager_of(
            "horizontal-pod-autoscaler-controller",
            &["--horizontal-pod-autoscaler-sync-period=1s"],
        )
        .unwrap();
    eventually(|| async {
        let objects = cluster.objects().unwrap();
        let web = objects.get("Deployment", Some("shop"), "web").await.unwrap().unwrap();
        let scaler = objects.get("HorizontalPodAutoscaler", Some("shop"), "web").await.unwrap();
        let status = scaler.unwrap()["status"].clone();
        let replicas = web["spec"]["replicas"].as_u64();
        if replicas > Some(6) { Ok(()) } else { Err(format!("{replicas:?}: {status}")) }
    })
    .await;
    let mean = running.metric("zonewise_zone_load_mean").await;
    assert!(mean.len() == 1 && mean.values().all(|mean| *mean < 50.0), "{mean:?}");
    running.stop().await.unwrap();
}
