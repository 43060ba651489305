//! Reads what flows: from the metrics of the proxies, by way of the API server, or from a Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::prometheus::{Prometheus, PrometheusError, Series};
use zonewise_cluster::watch::{NODES, PODS, SLICES, list_each, namespaced, query_parameter};
use zonewise_common::name::SYSTEM_NAMESPACE;
use zonewise_common::proxy_pages::{METRICS_PORT, SERVICE_BYTES, SERVICE_CONNECTIONS};
use zonewise_slices::node::Node;
use zonewise_slices::ready::ReadyEndpoints;
use zonewise_slices::slice::Slice;

use super::exposition::{Sample, samples};
use super::{Endpoints, Flow, Flows};

/// How many proxies are read at once.
const AT_ONCE: usize = 16;

/// A Service, the zone of clients and the zone of endpoints.
type Key = (Box<str>, Box<str>, Box<str>);

/// Connections and bytes since the counters began, or per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    connections: f64,
    bytes: Option<f64>,
}

impl Counted {
    fn add(&mut self, other: Self) {
        self.connections += other.connections;
        if let Some(bytes) = other.bytes {
            *self.bytes.get_or_insert_default() += bytes;
        }
    }

    /// What was counted since; nothing where a counter began anew.
    fn since(self, before: Self) -> Self {
        let grown = |now: f64, before: f64| if now >= before { now - before } else { 0.0 };
        Self {
            connections: grown(self.connections, before.connections),
            bytes: self.bytes.map(|now| grown(now, before.bytes.unwrap_or_default())),
        }
    }
}

type Counts = BTreeMap<Key, Counted>;

fn flows(counts: Counts) -> Vec<Flow> {
    let flow = |((service, from, to), counted): (Key, Counted)| Flow {
        service,
        from,
        to,
        connections: counted.connections,
        bytes: counted.bytes,
    };
    counts.into_iter().map(flow).collect()
}

fn add<'a>(counts: &mut Counts, label: impl Fn(&str) -> &'a str, counted: Counted) {
    let service = format!("{}/{}", label("namespace"), label("service")).into();
    let key = (service, label("from_zone").into(), label("to_zone").into());
    counts.entry(key).or_default().add(counted);
}

/// What a page of a proxy has counted.
fn of_page(page: &str) -> Counts {
    let mut counts = Counts::new();
    let mut take = |metric: &str, counted: fn(f64) -> Counted| {
        for Sample { labels, value } in samples(page, metric) {
            add(&mut counts, |name| labels.get(name).map_or("", String::as_str), counted(value));
        }
    };
    take(SERVICE_CONNECTIONS, |connections| Counted { connections, bytes: None });
    take(SERVICE_BYTES, |bytes| Counted { connections: 0.0, bytes: Some(bytes) });
    counts
}

/// Why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum FlowsError {
    /// The API server.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Prometheus.
    #[error(transparent)]
    Prometheus(#[from] PrometheusError),
    /// There are no proxies of ours.
    #[error(
        "no Pod in {SYSTEM_NAMESPACE} has the label {PROXY_LABEL}: `top` needs the proxies of zonewise, or --prometheus URL \
         of a Prometheus that has their metrics"
    )]
    NoProxy,
    /// None of the proxies can be read.
    #[error(
        "the metrics of none of the {count} proxies can be read; {first}. They are on loopback alone unless the chart has \
         proxy.exposeMetrics=true, and reading them needs the right to get pods/proxy in {SYSTEM_NAMESPACE}; or pass \
         --prometheus URL"
    )]
    Unreadable {
        /// How many proxies.
        count: usize,
        /// Why the first of them cannot.
        first: String,
    },
    /// They do not count by Service.
    #[error(
        "the proxies do not count by Service: give them `count: services`, and `countBytes: true` for bytes \
         (docs/proxy.md#demand)"
    )]
    NotCounted,
}

const PROXY_LABEL: &str = "app.kubernetes.io/name=zonewise-proxy";

/// The paths of the metrics of all proxies, by the name of the Pod.
async fn proxies(client: &Client) -> Result<Vec<(String, String)>, ApiError> {
    let mut found = Vec::new();
    let mut take = |json: &str| {
        let pod: Value = serde_json::from_str(json).unwrap_or_default();
        let Some(name) = pod["metadata"]["name"].as_str() else { return };
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
        let mut named = ports.filter(|port| port["name"] == "metrics");
        let port = named
            .find_map(|port| port["containerPort"].as_u64())
            .unwrap_or_else(|| METRICS_PORT.into());
        let path =
            format!("{}/{name}:{port}/proxy/metrics", namespaced(SYSTEM_NAMESPACE, PODS.path));
        found.push((name.to_owned(), path));
    };
    let selector = query_parameter("labelSelector", PROXY_LABEL);
    list_each(client, &namespaced(SYSTEM_NAMESPACE, PODS.path), &selector, &mut take).await?;
    Ok(found)
}

/// What each proxy has counted, or why it cannot be read.
async fn read_all(
    client: &Client,
    proxies: &[(String, String)],
) -> BTreeMap<String, Result<(Instant, Counts), String>> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (name, path) in proxies.iter().cloned() {
        let (client, turns) = (client.clone(), Arc::clone(&turns));
        tasks.spawn(async move {
            let _turn = turns.acquire().await;
            let read = api::get(&client, &path).await.map_err(|error| format!("{name}: {error}"));
            let counts =
                read.map(|page| (Instant::now(), of_page(&String::from_utf8_lossy(&page))));
            (name, counts)
        });
    }
    let mut all = BTreeMap::new();
    while let Some(read) = tasks.join_next().await {
        all.extend(read.ok());
    }
    all
}

/// Adds what a proxy has counted in so many seconds, per second.
fn add_rates(sums: &mut Counts, now: Counts, before: &Counts, seconds: f64) {
    for (key, counted) in now {
        let grown = counted.since(before.get(&key).copied().unwrap_or_default());
        let rate = Counted {
            connections: grown.connections / seconds,
            bytes: grown.bytes.map(|bytes| bytes / seconds),
        };
        sums.entry(key).or_default().add(rate);
    }
}

/// What flows by the metrics of the proxies, which are read twice, so much time apart.
pub async fn of_proxies(client: &Client, apart: Duration) -> Result<Flows, FlowsError> {
    let proxies = proxies(client).await?;
    if proxies.is_empty() {
        return Err(FlowsError::NoProxy);
    }
    let before = read_all(client, &proxies).await;
    let first = before.values().find_map(|read| read.as_ref().err().cloned());
    if before.values().all(Result::is_err) {
        let first = first.unwrap_or_default();
        return Err(FlowsError::Unreadable { count: proxies.len(), first });
    }
    sleep(apart).await;
    let after = read_all(client, &proxies).await;
    let mut sums = Counts::new();
    let mut failed = Vec::new();
    for (name, now) in after {
        match (now, before.get(&name)) {
            (Ok((at, now)), Some(Ok((since, before)))) => {
                add_rates(&mut sums, now, before, (at - *since).as_secs_f64());
            }
            (Err(why), _) => failed.push(why),
            (_, Some(Err(why))) => failed.push(why.clone()),
            (Ok(_), None) => failed.push(name),
        }
    }
    if sums.is_empty() {
        return Err(FlowsError::NotCounted);
    }
    let source = format!("{} proxies", proxies.len() - failed.len());
    let warnings = failed.first().map(|why| {
        format!("{} of {} proxies are missing in the figures; {why}", failed.len(), proxies.len())
    });
    let warnings = warnings.into_iter().collect();
    Ok(Flows { flows: flows(sums), source, seconds: apart.as_secs_f64(), warnings })
}

/// What flows by the metrics that a Prometheus has, as the mean of so much time.
pub async fn of_prometheus(
    prometheus: &Prometheus,
    url: &str,
    window: Duration,
) -> Result<Flows, FlowsError> {
    let mut counts = Counts::new();
    let seconds = window.as_secs().max(1);
    let mut take = |series: Vec<Series>, counted: fn(f64) -> Counted| {
        for Series { labels, value } in series.into_iter().filter(|series| series.value.is_finite())
        {
            add(&mut counts, |name| labels.get(name).map_or("", |value| &**value), counted(value));
        }
    };
    take(prometheus.query(&by_zones(SERVICE_CONNECTIONS, seconds)).await?, |connections| Counted {
        connections,
        bytes: None,
    });
    take(prometheus.query(&by_zones(SERVICE_BYTES, seconds)).await?, |bytes| Counted {
        connections: 0.0,
        bytes: Some(bytes),
    });
    if counts.is_empty() {
        let mut others = Vec::new();
        for other in OTHERS {
            let known = prometheus.query(&format!("count({})", other.metric)).await?;
            others.extend((!known.is_empty()).then_some(other));
        }
        return Err(FlowsError::Prometheus(PrometheusError::Query {
            url: url.to_owned(),
            cause: why_nothing(&others),
            query: by_zones(SERVICE_CONNECTIONS, seconds),
        }));
    }
    let source = format!("Prometheus at {url}");
    Ok(Flows { flows: flows(counts), source, seconds: seconds as f64, warnings: Vec::new() })
}

/// Figures of others that demand can be measured by, and that do not say what crosses zones.
struct Other {
    whose: &'static str,
    metric: &'static str,
}

const OTHERS: [Other; 2] = [
    Other { whose: "Cilium's Hubble", metric: "hubble_tcp_flags_total" },
    Other { whose: "Istio", metric: "istio_requests_total" },
];

/// Why a Prometheus with nothing but the figures of these has nothing that can be shown.
fn why_nothing(others: &[Other]) -> String {
    let scraped = format!(
        "it has no {SERVICE_CONNECTIONS}: does it scrape the proxies of zonewise, and do they have `count: services`?"
    );
    if others.is_empty() {
        return scraped;
    }
    let named: Vec<String> =
        others.iter().map(|other| format!("{} ({})", other.whose, other.metric)).collect();
    format!(
        "{scraped} It has the figures of {}, which name no zone of the endpoint, so that nobody can tell from them what crosses \
         zones; shares can follow them all the same (docs/demand.md#from-prometheus)",
        named.join(" and ")
    )
}

/// The query of a metric of proxies: per second, by Service and zones.
fn by_zones(metric: &str, seconds: u64) -> String {
    let rate = format!("rate({metric}[{seconds}s])");
    let renamed = |vector: String, label: &str| {
        format!(r#"label_replace({vector}, "{label}", "$1", "exported_{label}", "(.+)")"#)
    };
    let vector = renamed(renamed(rate, "namespace"), "service");
    format!("sum by (namespace, service, from_zone, to_zone) ({vector})")
}

/// The region of each zone.
pub async fn regions(client: &Client) -> Result<BTreeMap<Box<str>, Box<str>>, ApiError> {
    let mut regions = BTreeMap::new();
    let mut take = |json: &str| {
        let Ok(node) = serde_json::from_str::<Node>(json) else { return };
        if let (Some(zone), Some(region)) = (&node.zone, &node.region) {
            regions.insert((&**zone).into(), (&**region).into());
        }
    };
    list_each(client, NODES.path, "", &mut take).await?;
    Ok(regions)
}

/// The ready endpoints of Services, by zone.
pub async fn endpoints(client: &Client) -> Result<Endpoints, ApiError> {
    let mut services: BTreeMap<Box<str>, ReadyEndpoints> = BTreeMap::new();
    let mut take = |json: &str| {
        let Ok(slice) = serde_json::from_str::<Slice>(json) else { return };
        let Some(service) = slice.service() else { return };
        services.entry(format!("{}/{service}", slice.namespace).into()).or_default().add(&slice);
    };
    list_each(client, SLICES.path, "", &mut take).await?;
    let zones = |ready: ReadyEndpoints| {
        ready.by_zone().into_iter().map(|(zone, count)| ((&*zone).into(), count)).collect()
    };
    Ok(services.into_iter().map(|(service, ready)| (service, zones(ready))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_begin_anew_count_nothing() {
        let counted = |connections, bytes| Counted { connections, bytes };
        let rows = [
            (counted(10.0, Some(100.0)), counted(4.0, Some(40.0)), counted(6.0, Some(60.0))),
            (counted(1.0, Some(10.0)), counted(4.0, Some(40.0)), counted(0.0, Some(0.0))),
            (counted(5.0, Some(7.0)), counted(5.0, None), counted(0.0, Some(7.0))),
            (counted(5.0, None), counted(0.0, None), counted(5.0, None)),
        ];
        for (now, before, expected) in rows {
            assert_eq!(now.since(before), expected, "{now:?} {before:?}");
        }
    }

    #[test]
    fn a_prometheus_with_the_figures_of_others_is_told_what_they_lack() {
        let none = why_nothing(&[]);
        assert!(none.contains("count: services") && !none.contains("name no zone"), "{none}");
        let both = why_nothing(&OTHERS);
        for part in
            ["count: services", "Hubble (hubble_tcp", "Istio (istio_requests", "name no zone"]
        {
            assert!(both.contains(part), "{part}: {both}");
        }
    }

    #[test]
    fn both_directions_of_a_page_are_bytes() {
        let labels = "namespace=\"shop\",service=\"web\",from_zone=\"a\",to_zone=\"b\"";
        let page = format!(
            "{SERVICE_CONNECTIONS}{{{labels}}} 3\n{SERVICE_BYTES}{{{labels},direction=\"to_endpoint\"}} 5\n\
             {SERVICE_BYTES}{{{labels},direction=\"from_endpoint\"}} 7\nother{{{labels}}} 9\n"
        );
        let key: Key = ("shop/web".into(), "a".into(), "b".into());
        let expected = Counted { connections: 3.0, bytes: Some(12.0) };
        assert_eq!(of_page(&page), Counts::from([(key, expected)]));
    }
}
