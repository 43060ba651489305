//! Queries to a real Prometheus: those that are ready, and what can go wrong.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use zonewise_cluster::prometheus::{Prometheus, PrometheusError, Series, Server};
use zonewise_demand::queries::Preset;
use zonewise_telemetry::server::{self, Page, PageRequest};
use zonewise_telemetry::tls::Pem;
use zonewise_testbed::{Job, Prometheus as TestPrometheus, PrometheusOptions, eventually};

/// Connections per second from the node of each zone.
const RATES: [(&str, &str, f64); 3] = [("n1", "a", 70.0), ("n2", "b", 20.0), ("n3", "c", 10.0)];

/// Serves a page of metrics, which is made anew with the seconds since the start.
async fn page(
    make: impl Fn(f64) -> String + Send + Sync + 'static,
) -> (server::Server, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let begun = Instant::now();
    let handler = move |_: PageRequest<'_>| {
        Page::new(200, "text/plain; version=0.0.4", make(begun.elapsed().as_secs_f64()))
    };
    let server = server::serve(listener, handler).unwrap();
    let address = server.address();
    (server, address)
}

fn at(url: &str) -> Server {
    Server {
        url: url.to_owned(),
        bearer_token_file: None,
        ca_file: None,
        tenant: None,
        limit: Duration::from_secs(10),
    }
}

async fn ask(server: Server, query: &str) -> Result<Vec<Series>, PrometheusError> {
    Prometheus::new(server)?.query(query).await
}

/// The whole part of each value, by the labels with these names.
fn rounded(series: &[Series], labels: &[&str]) -> BTreeMap<String, i64> {
    let key = |series: &Series| {
        let values =
            labels.iter().map(|label| series.labels.get(*label).map_or("", |value| &**value));
        values.collect::<Vec<_>>().join("/")
    };
    series.iter().map(|series| (key(series), series.value.round() as i64)).collect()
}

/// Waits until a query gives these values, but for what a scrape at another moment makes.
async fn gives(url: &str, query: &str, labels: &[&str], expected: &[(&str, i64)]) {
    eventually(|| async {
        let series = ask(at(url), query).await.map_err(|error| error.to_string())?;
        let found = rounded(&series, labels);
        let near = |(key, value): &(&str, i64)| {
            found.get(*key).is_some_and(|found| (found - value).abs() <= 1 + value / 20)
        };
        if found.len() == expected.len() && expected.iter().all(near) {
            Ok(())
        } else {
            Err(format!("{found:?}, expected {expected:?}: {query}"))
        }
    })
    .await;
}

const LABELS: [&str; 3] = ["namespace", "service", "zone"];
const EXPECTED: [(&str, i64); 3] = [("shop/web/a", 70), ("shop/web/b", 20), ("shop/web/c", 10)];

/// What the proxy of a node shows: half of the connections go to zone a.
fn of_zonewise(zone: &str, seconds: f64, per_second: f64) -> String {
    let half = seconds * per_second / 2.0;
    let mut text = String::new();
    for to in ["a", "b"] {
        let labels = format!(r#"namespace="shop",service="web",from_zone="{zone}",to_zone="{to}""#);
        writeln!(text, "zonewise_service_connections_total{{{labels}}} {half}").unwrap();
        writeln!(
            text,
            r#"zonewise_proxy_connections_total{{from_zone="{zone}",to_zone="{to}"}} {half}"#
        )
        .unwrap();
    }
    text
}

/// What Hubble shows on a node: connections where they start and where they end, and other packets.
fn of_hubble(node: &str, seconds: f64, per_second: f64) -> String {
    let count = seconds * per_second;
    let mut text = String::new();
    for (flag, direction) in
        [("SYN", "egress"), ("SYN", "ingress"), ("FIN", "egress"), ("SYN-ACK", "egress")]
    {
        let labels = format!(
            r#"flag="{flag}",traffic_direction="{direction}",destination_namespace="shop",destination_workload="web",node="{node}",family="IPv4""#
        );
        writeln!(text, "hubble_tcp_flags_total{{{labels}}} {count}").unwrap();
    }
    text
}

/// What the proxy of a Pod shows with Istio: requests that it sends, and those that it gets.
fn of_istio(node: &str, seconds: f64, per_second: f64) -> String {
    let count = seconds * per_second / 2.0;
    let mut text = String::new();
    // Pods of one name in two namespaces, and requests that are counted where they arrive.
    let rows =
        [("source", "200", "front"), ("source", "503", "back"), ("destination", "200", "front")];
    for (reporter, code, namespace) in rows {
        let labels = format!(
            r#"reporter="{reporter}",response_code="{code}",destination_service_namespace="shop",destination_service_name="web",namespace="{namespace}",pod="client-{node}""#
        );
        writeln!(text, "istio_requests_total{{{labels}}} {count}").unwrap();
    }
    text
}

/// What kube-state-metrics shows.
fn of_kube_state_metrics() -> String {
    let mut text = String::new();
    for (node, zone, _) in RATES {
        let labels = format!(r#"node="{node}",label_topology_kubernetes_io_zone="{zone}""#);
        writeln!(text, "kube_node_labels{{{labels}}} 1").unwrap();
        for namespace in ["front", "back"] {
            let labels = format!(r#"namespace="{namespace}",pod="client-{node}",node="{node}""#);
            writeln!(text, "kube_pod_info{{{labels}}} 1").unwrap();
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_queries_give_rates_by_service_and_zone() {
    let directory = TempDir::new().unwrap();
    let (mut servers, mut jobs) = (Vec::new(), Vec::new());
    let mut zonewise = Vec::new();
    for (node, zone, per_second) in RATES {
        let (server, address) = page(move |seconds| of_zonewise(zone, seconds, per_second)).await;
        servers.push(server);
        zonewise.push(address);
        let others = move |seconds| {
            of_hubble(node, seconds, per_second) + &of_istio(node, seconds, per_second)
        };
        let (server, address) = page(others).await;
        servers.push(server);
        jobs.push(Job { name: node, targets: vec![address], labels: json!({}) });
    }
    // A second node of zone a, from which nobody calls.
    let (server, address) = page(|seconds| of_zonewise("a", seconds, 0.0)).await;
    servers.push(server);
    zonewise.push(address);
    // As the operator of Prometheus labels targets: the metric's own label is then called exported_namespace.
    let labels = json!({"namespace": "zonewise-system"});
    jobs.push(Job { name: "zonewise-proxy", targets: zonewise, labels });
    let (server, address) = page(|_| of_kube_state_metrics()).await;
    servers.push(server);
    jobs.push(Job { name: "kube-state-metrics", targets: vec![address], labels: json!({}) });
    let options = PrometheusOptions::default();
    let prometheus = TestPrometheus::start(directory.path(), &jobs, &options).unwrap();
    for preset in Preset::ALL {
        let queries = preset.queries().over("10s");
        gives(&prometheus.url(), &queries.rates, &LABELS, &EXPECTED).await;
        gives(&prometheus.url(), &queries.largest.unwrap(), &LABELS, &EXPECTED).await;
        if let Some(reporting) = queries.reporting {
            gives(&prometheus.url(), &reporting, &["zone"], &[("a", 2), ("b", 1), ("c", 1)]).await;
        }
    }
}

/// What a failure says: its kind, and words that tell what to do.
type Failure<'a> = (&'a str, Server, &'a str, &'a str, &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_told_apart() {
    let directory = TempDir::new().unwrap();
    let options = PrometheusOptions::default();
    let prometheus = TestPrometheus::start(directory.path(), &[], &options).unwrap();
    let url = prometheus.url();
    gives(&url, "vector(7)", &[], &[("", 7)]).await;
    let (_server, other) = page(|_| "hello".to_owned()).await;
    let (_refusing, refusing) = refusing().await;
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    let no_token = Server { bearer_token_file: Some("/nowhere/token".into()), ..at(&url) };
    let rows: [Failure<'_>; 8] = [
        ("a wrong query", at(&url), "rate(up[1m]", "query", "unclosed left parenthesis"),
        ("no instant vector", at(&url), "up[1m]", "nonsense", "an instant vector is needed"),
        ("a number", at(&url), "7", "nonsense", "the query gives a scalar"),
        (
            "nothing there",
            at(&format!("http://{closed}")),
            "up",
            "unreachable",
            "onnection refused",
        ),
        ("no Prometheus", at(&format!("http://{other}")), "up", "nonsense", "\"hello\""),
        ("another path", at(&format!("{url}/prefix")), "up", "nonsense", "status 404"),
        ("no right", at(&format!("http://{refusing}")), "up", "refused", "status 403"),
        ("no token", no_token, "up", "settings", "check bearerTokenFile"),
    ];
    for (what, server, query, name, words) in rows {
        let error = ask(server, query).await.unwrap_err();
        assert_eq!(error.name(), name, "{what}: {error}");
        assert!(error.to_string().contains(words), "{what}: {error}");
        assert!(PrometheusError::NAMES.contains(&name), "{what}");
    }
}

/// Something that refuses whoever asks.
async fn refusing() -> (server::Server, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server = server::serve(listener, |_: PageRequest<'_>| Page::text(403, "no")).unwrap();
    let address = server.address();
    (server, address)
}

/// A certificate for 127.0.0.1, in files.
fn certificate(directory: &TempDir, name: &str) -> (PathBuf, PathBuf) {
    let pair = Pem::self_signed("127.0.0.1", (2020, 1, 1), (2999, 1, 1)).unwrap();
    let file = |end: &str, text: &str| {
        let path = directory.path().join(format!("{name}.{end}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    (file("crt", &pair.certificate), file("key", &pair.key))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_with_tls_is_asked_only_with_a_certificate_that_the_file_names() {
    let directory = TempDir::new().unwrap();
    let (own, other) = (certificate(&directory, "own"), certificate(&directory, "other"));
    let options =
        PrometheusOptions { certificate: Some(own.clone()), ..PrometheusOptions::default() };
    let prometheus = TestPrometheus::start(directory.path(), &[], &options).unwrap();
    let with = |ca_file: Option<PathBuf>| Server { ca_file, ..at(&prometheus.url()) };
    let series = eventually(|| async {
        ask(with(Some(own.0.clone())), "vector(7)").await.map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(rounded(&series, &[]), BTreeMap::from([(String::new(), 7)]));
    let error = ask(with(Some(other.0)), "vector(7)").await.unwrap_err();
    assert_eq!(error.name(), "unreachable", "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}
