//! Proxies that count connections, as the leading controller asks them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;
use zonewise_cluster::access::{Protected, Reviewer};
use zonewise_common::proxy_report::{DemandServer, ProxyReport};
use zonewise_controller::config::{Config, DemandConfig, Source};
use zonewise_demand::report::{Counts, Report, VERSION};
use zonewise_demand::state::State;
use zonewise_telemetry::server::{self, AccessControl, Page, PageRequest, Protection, Server};
use zonewise_telemetry::tls::{Certificate, Tls};
use zonewise_testbed::objects::{namespace, node, service};
use zonewise_testbed::{Cluster, Lent, User, eventually, manifests};

use super::{ROOT, Running, condition, config, lent, slices, zonal_pods};

pub(crate) const AUDIENCE: &str = "zonewise-demand";
pub(crate) const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Shares change by 1 % in a second, and a rewrite is allowed twelve times in a row: with a shorter period the rewrites are
/// spent before the shares have arrived.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// The page of a proxy, with the guard that proxies have.
const PAGE: Protected = Protected {
    path: "/demand",
    what: "the counts",
    role: "zonewise-demand-reader",
    audience: Some(AUDIENCE),
    admitted_for: PERIOD,
};

/// A cluster of three equal zones, with the roles of controller and proxies. Every node is this machine.
pub(crate) async fn cluster() -> Lent {
    let cluster = lent().await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "zonewise-proxy", "namespace": "zonewise-system"},
    });
    cluster.create(&[account]).await.unwrap();
    cluster.create(&manifests(format!("{ROOT}/deploy/demand/rbac.yaml")).unwrap()).await.unwrap();
    let nodes = ["a", "b", "c"].map(|zone| {
        let mut node = node(&format!("{zone}1"), zone, "4");
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": LOOPBACK}]);
        node
    });
    cluster.create(&nodes).await.unwrap();
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster
}

/// Writes the Lease of the proxy on a node.
pub(crate) async fn report_in_lease(cluster: &Cluster, node: &str, demand: DemandServer) {
    let report = ProxyReport {
        lease: ProxyReport::lease(node),
        applied: Some(1),
        refused: std::collections::BTreeSet::new(),
        renewed: Some(Timestamp::now()),
        duration: Some(Duration::from_secs(3600)),
        demand: Some(demand),
    };
    cluster.create(&[report.encode(node, "")]).await.unwrap();
}

/// A proxy that counts so many connections per second to shop/web.
pub(crate) fn counts(
    node: &str,
    zone: &str,
    per_second: u32,
) -> impl Fn() -> String + Send + Sync + 'static {
    let (node, zone, began) = (Box::from(node), Box::<str>::from(zone), Instant::now());
    let sequence = std::sync::atomic::AtomicU64::new(1);
    move || {
        let connections = (f64::from(per_second) * began.elapsed().as_secs_f64()) as u64;
        let counted = Counts { connections, bytes_to: 0, bytes_from: 0 };
        let zones = BTreeMap::from([(zone.clone(), counted)]);
        let report = Report {
            version: VERSION,
            node: Box::clone(&node),
            zone: zone.clone(),
            started: 1,
            sequence: sequence.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            services: BTreeMap::from([("shop/web".into(), zones)]),
            failed: BTreeMap::new(),
            unassigned: 0,
        };
        report.write().unwrap()
    }
}

/// Serves pages as a proxy does, and says so in its Lease.
pub(crate) async fn proxy(
    cluster: &Cluster,
    node: &str,
    page: impl Fn() -> String + Send + Sync + 'static,
) -> Server {
    let tls = Arc::new(Tls::new(Certificate::SelfSigned).unwrap());
    let fingerprint = tls.fingerprint();
    let guard = Arc::new(Reviewer::new(cluster.client(User::Proxy).unwrap(), PAGE));
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let handler = move |_: PageRequest<'_>| Page::new(200, "application/json", page());
    let server = server::serve_kept(listener, handler, Protection { tls, access: guard }).unwrap();
    let port = server.address().port();
    report_in_lease(cluster, node, DemandServer { port, fingerprint }).await;
    server
}

/// A file with the token of this user.
pub(crate) async fn token_file(cluster: &Cluster, user: User, audience: &str) -> PathBuf {
    let path = cluster.directory().join(format!("{user}-{audience}"));
    let token = cluster.account_token(user, audience).await.unwrap();
    std::fs::write(&path, format!("{token}\n")).unwrap();
    path
}

pub(crate) fn measuring(token_file: PathBuf) -> Config {
    let usual = DemandConfig::default();
    let demand = DemandConfig {
        source: Source::Proxies,
        token_file,
        period: PERIOD,
        write_period: PERIOD,
        ..usual
    };
    Config { demand, ..config("demand: { source: proxies }\n") }
}

pub(crate) async fn start(cluster: &Cluster, config: Config) -> Running {
    Running::run(&cluster.kubeconfig(User::Controller).unwrap(), config).await
}

/// A Service that asks for balanced shares by measured demand, with two Pods in each zone.
pub(crate) async fn add_service(cluster: &Cluster) {
    let mut web = service("shop", "web", "web");
    web["metadata"]["annotations"] = json!({
        "zonewise.dev/routing-preference": "zonewise.dev/balanced",
        "zonewise.dev/demand": "measured",
    });
    cluster.create(&[web]).await.unwrap();
    cluster.create(&zonal_pods("shop", "web", 2)).await.unwrap();
}

/// The shares that are stored for the Service, in percent by zone.
pub(crate) async fn stored_shares(cluster: &Cluster) -> Result<BTreeMap<String, f64>, String> {
    let objects = cluster.objects().unwrap();
    let stored =
        objects.get("ConfigMap", Some("zonewise-system"), "zonewise-demand").await.unwrap();
    let stored = stored.ok_or("no ConfigMap")?;
    let state = State::decode(stored["data"]["state"].as_str().unwrap_or_default())
        .map_err(|error| error.to_string())?;
    let shares = state.shares("shop/web").ok_or("no shares of shop/web")?;
    Ok(shares.map(|(zone, share)| (zone.to_string(), 100.0 * share)).collect())
}

pub(crate) async fn zone_shares(cluster: &Cluster) -> Vec<Value> {
    let slices = slices(cluster, "shop", "web").await;
    slices
        .iter()
        .map(|slice| slice["metadata"]["annotations"]["zonewise.dev/zone-shares"].clone())
        .collect()
}

/// Rates are not computed over less than a second: what proxies count in less would make their rates differ by chance.
pub(crate) const HASTE: Duration = Duration::from_secs(1);

/// As [`measuring`], with decisions in such quick succession that what lasts for two minutes lasts for seconds.
pub(crate) async fn hasty(cluster: &Cluster) -> Config {
    let token = token_file(cluster, User::Controller, AUDIENCE).await;
    let usual = measuring(token);
    Config { demand: DemandConfig { period: HASTE, write_period: HASTE, ..usual.demand }, ..usual }
}

/// Waits until the condition says this of measured demand.
pub(crate) async fn told(cluster: &Cluster, status: &str, reason: &str) {
    eventually(|| async {
        let found = condition(cluster, "shop", "web", "Measured").await;
        let expected = Some((status.to_owned(), reason.to_owned()));
        if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
    })
    .await;
}

/// Writes of slices because of measured demand so far. Nothing else is measured in these tests.
pub(crate) async fn measured_writes(running: &Running) -> f64 {
    let mut writes = running.metric("zonewise_demand_slice_writes_total").await;
    let demand = writes.remove("because=\"demand\"").unwrap();
    let others =
        ["cpu-use", "failing-zones", "several"].map(|other| (format!("because=\"{other}\""), 0.0));
    assert_eq!(writes, BTreeMap::from(others));
    demand
}

/// Writes of conditions so far.
pub(crate) async fn condition_writes(running: &Running) -> f64 {
    running.metric("zonewise_condition_writes_total").await.values().sum()
}

/// Admits everybody, where who is admitted is not what is tested.
pub(crate) struct Everybody;

impl AccessControl for Everybody {
    fn admit<'a>(
        &'a self,
        _: PageRequest<'a>,
        _: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Page>> + Send + 'a>> {
        Box::pin(async { Ok(()) })
    }
}

pub(crate) const ZONES: [&str; 3] = ["a", "b", "c"];
/// Of each node to each zone.
const PER_SECOND: f64 = 50.0;

/// The part of the connections to zone a that fails.
const FAILING: f64 = 0.6;

/// A proxy that counts connections to shop/web in all zones; part of those to zone a fails while that is set.
pub(crate) fn failing_counts(
    node: &str,
    zone: &str,
    failing: Arc<AtomicBool>,
) -> impl Fn() -> String + Send + Sync + 'static {
    let (node, zone) = (Box::<str>::from(node), Box::<str>::from(zone));
    let counted = Mutex::new((Instant::now(), 0, 0.0, 0.0));
    move || {
        let mut counted = counted.lock();
        let (last, sequence, connections, failed) = &mut *counted;
        let new = PER_SECOND * last.elapsed().as_secs_f64();
        *last = Instant::now();
        *sequence += 1;
        *connections += new;
        *failed += if failing.load(Ordering::Relaxed) { FAILING * new } else { 0.0 };
        let counts = Counts { connections: *connections as u64, bytes_to: 0, bytes_from: 0 };
        let to_zones = ZONES.map(|zone| (zone.into(), counts));
        let report = Report {
            version: VERSION,
            node: node.clone(),
            zone: zone.clone(),
            started: 1,
            sequence: *sequence,
            services: BTreeMap::from([("shop/web".into(), to_zones.into())]),
            failed: BTreeMap::from([("shop/web".into(), [("a".into(), *failed as u64)].into())]),
            unassigned: 0,
        };
        report.write().unwrap()
    }
}
