//! Demand that proxies measure: the leading controller asks them, decides, and stores what it used.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use zonewise_cluster::access::{Protected, Reviewer};
use zonewise_common::proxy_report::{DemandServer, ProxyReport};
use zonewise_controller::config::{Config, DemandConfig, Source};
use zonewise_demand::report::{Counts, Report, VERSION};
use zonewise_demand::state::{self, State};
use zonewise_demand::{cpu_use, health, notes};
use zonewise_inventory::demand::{self as stored, StoredTexts};
use zonewise_telemetry::server::{self, Page, PageRequest, Protection, Server};
use zonewise_telemetry::tls::{Certificate, Tls};
use zonewise_testbed::objects::{namespace, node, service};
use zonewise_testbed::{Cluster, User, eventually, manifests};

use crate::common::{ROOT, Running, apply_roles, condition, config, slices, writes, zonal_pods};

pub(crate) const AUDIENCE: &str = "zonewise-demand";
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Shares change by 1 % in a second, and a rewrite is allowed twelve times in a row: with a shorter period the rewrites are
/// spent before the shares have arrived.
const PERIOD: Duration = Duration::from_secs(10);

/// The page of a proxy, with the guard that proxies have.
const PAGE: Protected = Protected {
    path: "/demand",
    what: "the counts",
    role: "zonewise-demand-reader",
    audience: Some(AUDIENCE),
    admitted_for: PERIOD,
};

/// A cluster of three equal zones, with the roles of controller and proxies. Every node is this machine.
pub(crate) async fn cluster() -> Cluster {
    let cluster = Cluster::start().await.unwrap();
    apply_roles(&cluster).await;
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
async fn report_in_lease(cluster: &Cluster, node: &str, demand: DemandServer) {
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

/// Waits until neither what is stored nor the slices change for some decisions.
async fn settled(cluster: &Cluster) {
    eventually(|| async {
        let before = (stored_shares(cluster).await?, zone_shares(cluster).await);
        tokio::time::sleep(4 * PERIOD).await;
        let now = (stored_shares(cluster).await?, zone_shares(cluster).await);
        if now == before { Ok(()) } else { Err(format!("{before:?} became {now:?}")) }
    })
    .await;
}

/// Most connections come from one zone. The shares of the Service follow, and the next leader goes on with them although
/// no proxy answers it.
#[tokio::test(flavor = "multi_thread")]
async fn shares_follow_what_proxies_count_and_a_new_leader_goes_on() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let token = token_file(&cluster, User::Controller, AUDIENCE).await;
    let mut servers = Vec::new();
    for (zone, per_second) in [("a", 700), ("b", 200), ("c", 100)] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, per_second)).await);
    }
    let running = start(&cluster, measuring(token.clone())).await;
    let by_model = eventually(|| async {
        let shares = zone_shares(&cluster).await;
        if shares.is_empty() { Err("no slices".to_owned()) } else { Ok(shares) }
    })
    .await;
    eventually(|| async {
        let shares = stored_shares(&cluster).await?;
        let near = |zone: &str, percent: f64| (shares[zone] - percent).abs() < 3.0;
        let all = near("a", 70.0) && near("b", 20.0) && near("c", 10.0);
        if all { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
    settled(&cluster).await;
    assert_ne!(zone_shares(&cluster).await, by_model);
    let results = running.metric("zonewise_demand_proxies").await;
    assert_eq!(results, BTreeMap::from([("result=\"success\"".to_owned(), 3.0)]));
    let requests = running.metric("zonewise_demand_requests_total").await;
    assert_eq!(requests["result=\"nonsense\""], 0.0, "the first answers count, too: {requests:?}");
    let measured = running.metric("zonewise_demand_services").await;
    assert_eq!(measured.values().sum::<f64>(), 1.0, "{measured:?}");
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }

    let (before, written) = (zone_shares(&cluster).await, writes(&cluster).await);
    let running = start(&cluster, measuring(token)).await;
    eventually(|| async {
        let synced = running.metric("endpoint_slice_controller_syncs").await;
        let failed = running.metric("zonewise_demand_proxies").await;
        let failed = failed.get("result=\"unreachable\"").copied().unwrap_or_default();
        if synced.values().sum::<f64>() > 0.0 && failed == 3.0 {
            Ok(())
        } else {
            Err(format!("{synced:?} {failed}"))
        }
    })
    .await;
    assert_eq!((zone_shares(&cluster).await, writes(&cluster).await), (before, written));
    running.stop().await.unwrap();
}

/// Something that listens and does with each connection what it is told to.
async fn listening<F>(
    serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static,
) -> (SocketAddr, JoinHandle<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream));
        }
    });
    (address, task)
}

/// Proxies that lie, hang, or send anything: each is told by its cause, and the one that answers is counted.
#[tokio::test(flavor = "multi_thread")]
async fn what_proxies_do_wrong_is_told_apart_and_harms_nothing_else() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let others = ["garbage", "liar", "huge", "hangs", "other", "gone"];
    let nodes = others.map(|name| {
        let mut node = node(name, "b", "4");
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": LOOPBACK}]);
        node
    });
    cluster.create(&nodes).await.unwrap();
    let _good = proxy(&cluster, "a1", counts("a1", "a", 500)).await;
    let _garbage = proxy(&cluster, "garbage", || "{]".to_owned()).await;
    let _liar = proxy(&cluster, "liar", counts("a1", "a", 500)).await;
    let _huge = proxy(&cluster, "huge", || " ".repeat(5 << 20)).await;
    let fingerprint = [7; 32];
    let (silent, _silent) = listening(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    report_in_lease(&cluster, "hangs", DemandServer { port: silent.port(), fingerprint }).await;
    let (plain, _plain) = listening(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{}").await;
    })
    .await;
    report_in_lease(&cluster, "gone", DemandServer { port: plain.port(), fingerprint }).await;
    let other = proxy(&cluster, "c1", counts("c1", "c", 1)).await;
    let port = other.address().port();
    report_in_lease(&cluster, "other", DemandServer { port, fingerprint }).await;

    let token = token_file(&cluster, User::Controller, AUDIENCE).await;
    let running = start(&cluster, measuring(token)).await;
    let expected = [
        ("result=\"certificate\"", 1.0),
        ("result=\"late\"", 1.0),
        ("result=\"nonsense\"", 2.0),
        ("result=\"success\"", 2.0),
        ("result=\"too_large\"", 1.0),
        ("result=\"unreachable\"", 1.0),
    ];
    let expected = BTreeMap::from(expected.map(|(labels, count)| (labels.to_owned(), count)));
    eventually(|| async {
        let found = running.metric("zonewise_demand_proxies").await;
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    eventually(|| async {
        let shares = stored_shares(&cluster).await?;
        // By CPU it is a ninth. One node counts for three quarters at most, and those that say nothing count by their CPU.
        if shares["a"] > 14.0 { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
    running.stop().await.unwrap();
}

/// A token for somebody else, or of somebody else, opens nothing.
#[tokio::test(flavor = "multi_thread")]
async fn proxies_answer_only_those_whom_the_api_server_allows_to_read_demand() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    let observer = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "zonewise-observer", "namespace": "zonewise-system"},
    });
    cluster.create(&[observer]).await.unwrap();
    let server = proxy(&cluster, "a1", counts("a1", "a", 1)).await;
    let own = "https://kubernetes.default.svc";
    let rows = [
        ("for the API server", cluster.account_token(User::Controller, own).await.unwrap(), 401),
        ("nobody's", "nonsense".to_owned(), 401),
        ("another user's", cluster.account_token(User::Observer, AUDIENCE).await.unwrap(), 403),
        ("the controller's", cluster.account_token(User::Controller, AUDIENCE).await.unwrap(), 200),
    ];
    for (whose, token, expected) in rows {
        let (status, body) = crate::access::ask(server.address(), "/demand", Some(&token)).await;
        assert_eq!(status, expected, "{whose}: {body}");
    }
    assert_eq!(crate::access::ask(server.address(), "/demand", None).await.0, 401);
}

/// Rates are not computed over less than a second: what proxies count in less would make their rates differ by chance.
const HASTE: Duration = Duration::from_secs(1);

/// As [`measuring`], with decisions in such quick succession that what lasts for two minutes lasts for seconds.
pub(crate) async fn hasty(cluster: &Cluster) -> Config {
    let token = token_file(cluster, User::Controller, AUDIENCE).await;
    let usual = measuring(token);
    Config { demand: DemandConfig { period: HASTE, write_period: HASTE, ..usual.demand }, ..usual }
}

/// Waits until the condition says this of measured demand.
async fn told(cluster: &Cluster, status: &str, reason: &str) {
    eventually(|| async {
        let found = condition(cluster, "shop", "web", "Measured").await;
        let expected = Some((status.to_owned(), reason.to_owned()));
        if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
    })
    .await;
}

/// Writes of slices because of measured demand so far. Nothing else is measured in these tests.
async fn measured_writes(running: &Running) -> f64 {
    let mut writes = running.metric("zonewise_demand_slice_writes_total").await;
    let demand = writes.remove("because=\"demand\"").unwrap();
    let others =
        ["cpu-use", "failing-zones", "several"].map(|other| (format!("because=\"{other}\""), 0.0));
    assert_eq!(writes, BTreeMap::from(others));
    demand
}

/// Writes of conditions so far.
async fn condition_writes(running: &Running) -> f64 {
    running.metric("zonewise_condition_writes_total").await.values().sum()
}

/// The condition and one event say that measured demand is asked for and not in force, and then that it is. In between,
/// however many decisions there are, nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn the_condition_says_whether_measured_demand_is_in_force_and_changes_rarely() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    // No source at all: that is known at once.
    let running = start(&cluster, config("")).await;
    told(&cluster, "False", "DemandNotCollected").await;
    running.stop().await.unwrap();

    let running = start(&cluster, hasty(&cluster).await).await;
    told(&cluster, "False", "TooFewConnections").await;
    let written = condition_writes(&running).await;
    let requests = || async {
        let counts = running.metric("zonewise_demand_services").await;
        counts.get("reason=\"TooFewConnections\"").copied()
    };
    let (before, until) = (written, Instant::now() + 10 * HASTE);
    while Instant::now() < until {
        assert_eq!(requests().await, Some(1.0));
        tokio::time::sleep(HASTE).await;
    }
    assert_eq!(condition_writes(&running).await, before, "the same code again is no write");
    let written = writes(&cluster).await;

    // As many from each zone as its CPU makes expect: the shares need not change.
    let mut servers = Vec::new();
    for zone in ["a", "b", "c"] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, 900)).await);
    }
    told(&cluster, "True", "DemandMeasured").await;
    let reasons = eventually(|| async {
        let events = cluster.list("Event", Some("shop")).await.unwrap();
        let of_demand = events.iter().filter(|event| {
            let reason = event["reason"].as_str().unwrap_or_default();
            reason.starts_with("Demand") || reason == "TooFewConnections"
        });
        let found: BTreeMap<String, u64> = of_demand
            .map(|event| {
                (event["reason"].as_str().unwrap().to_owned(), event["count"].as_u64().unwrap())
            })
            .collect();
        if found.contains_key("DemandMeasured") { Ok(found) } else { Err(format!("{found:?}")) }
    })
    .await;
    let once = ["DemandMeasured", "DemandNotCollected", "TooFewConnections"];
    assert_eq!(reasons, once.map(|reason| (reason.to_owned(), 1)).into());
    let others = condition(&cluster, "shop", "web", "Programmed").await.unwrap();
    assert_eq!(others, ("True".to_owned(), "SharesBalanced".to_owned()));
    // The zones send as the model says, but for what the moments of the answers make of it.
    assert_eq!(measured_writes(&running).await, 0.0, "nothing is worth a write");
    assert_eq!(writes(&cluster).await, written, "the metric has all writes");
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }
}

/// One node claims a billion connections per second: the reason says so, and its zone gets no more than one node counts for.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_lies_is_bounded_and_named() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let token = token_file(&cluster, User::Controller, AUDIENCE).await;
    let mut servers = Vec::new();
    for (zone, per_second) in [("a", 1_000_000_000), ("b", 100), ("c", 100)] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, per_second)).await);
    }
    let running = start(&cluster, measuring(token)).await;
    eventually(|| async {
        let reasons = running.metric("zonewise_demand_services").await;
        let shares = stored_shares(&cluster).await?;
        // Three quarters, and a third of the rest by the model.
        let is_bounded = reasons.get("reason=\"DemandOfOneNode\"") == Some(&1.0);
        let arrived = (shares["a"] - 83.3).abs() < 1.0;
        if is_bounded && arrived { Ok(()) } else { Err(format!("{reasons:?} {shares:?}")) }
    })
    .await;
    for _ in 0..3 {
        assert!(stored_shares(&cluster).await.unwrap()["a"] < 84.0);
        tokio::time::sleep(PERIOD).await;
    }
    let writes = measured_writes(&running).await;
    assert!((1.0..=12.0).contains(&writes), "{writes} slices were written because of it");
    let slices = slices(&cluster, "shop", "web").await;
    assert_eq!(crate::common::addresses(&slices).len(), 6, "every endpoint is there: {slices:?}");
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }
}

/// A query that Prometheus refuses: the metric has the cause, the condition the consequence, and shares follow CPU.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_query_leaves_routing_as_it_is_by_cpu() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let running = start(&cluster, config("")).await;
    let by_cpu = eventually(|| async {
        let shares = zone_shares(&cluster).await;
        if shares.is_empty() { Err("no slices".to_owned()) } else { Ok(shares) }
    })
    .await;
    running.stop().await.unwrap();
    // As Prometheus refuses a query; the suite of Prometheus compares with the real one.
    let refusal = r#"{"status":"error","errorType":"bad_data","error":"1:12: parse error: unclosed left parenthesis"}"#;
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let handler = move |_: PageRequest<'_>| Page::new(400, "application/json", refusal.to_owned());
    let prometheus = server::serve(listener, handler).unwrap();
    let lines = format!(
        "demand: {{ source: prometheus, prometheus: {{ url: 'http://{}', query: 'rate(up[1m]' }} }}\n",
        prometheus.address()
    );
    let usual = config(&lines);
    let period = Duration::from_millis(500);
    let demand = DemandConfig { period, write_period: period, ..usual.demand };
    let running = start(&cluster, Config { demand, ..usual }).await;
    eventually(|| async {
        let requests = running.metric("zonewise_demand_requests_total").await;
        let refused = requests.get("result=\"query\"").copied().unwrap_or_default();
        if refused > 1.0 { Ok(()) } else { Err(format!("{requests:?}")) }
    })
    .await;
    told(&cluster, "False", "TooFewConnections").await;
    assert_eq!(zone_shares(&cluster).await, by_cpu);
    assert_eq!(measured_writes(&running).await, 0.0);
    running.stop().await.unwrap();
    prometheus.stop().await;
}

/// All texts together at their largest are what an API server takes, and not much more would be.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_fits_into_a_config_map_however_much_it_is() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    let client = cluster.client(User::Controller).unwrap();
    let texts = |more: usize| StoredTexts {
        state: "s".repeat(state::MAX_BYTES),
        failing: Some("f".repeat(health::MAX_BYTES)),
        by_use: Some("u".repeat(cpu_use::MIN_BYTES)),
        notes: "n".repeat(notes::MAX_BYTES + more),
    };
    stored::write(&client, &texts(0)).await.unwrap();
    let error = stored::write(&client, &texts(16 << 10)).await.unwrap_err();
    assert!(error.to_string().contains("1048576"), "{error}");
}
