//! Demand that proxies measure: the leading controller asks them, decides, and stores what it used.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use zonewise_common::proxy_report::DemandServer;
use zonewise_controller::config::{Config, DemandConfig};
use zonewise_demand::state;
use zonewise_demand::{cpu_use, health, notes};
use zonewise_inventory::demand::{self as stored, StoredTexts};
use zonewise_telemetry::server::{self, Page, PageRequest};
use zonewise_testbed::objects::node;
use zonewise_testbed::{User, eventually};

use crate::common::demand::{
    AUDIENCE, LOOPBACK, add_service, cluster, counts, hasty, measured_writes, proxy,
    report_in_lease, start, stored_shares, told, zone_shares,
};
use crate::common::{condition, config};

/// Most connections come from one zone: the shares of the Service begin to follow, in what is stored and in the slices.
/// How they arrive, rest and outlive their leader is tested on a paused clock.
#[tokio::test(flavor = "multi_thread")]
async fn shares_begin_to_follow_what_proxies_count() {
    let _turn = crate::common::turn().await;
    let cluster = cluster().await;
    add_service(&cluster).await;
    let mut servers = Vec::new();
    for (zone, per_second) in [("a", 700), ("b", 200), ("c", 100)] {
        let node = format!("{zone}1");
        servers.push(proxy(&cluster, &node, counts(&node, zone, per_second)).await);
    }
    let running = start(&cluster, hasty(&cluster).await).await;
    eventually(|| async {
        let shares = stored_shares(&cluster).await?;
        let has_begun = shares["a"] > 34.0 && shares["c"] < 33.0;
        let written = measured_writes(&running).await;
        if has_begun && written > 0.0 { Ok(()) } else { Err(format!("{written}: {shares:?}")) }
    })
    .await;
    eventually(|| async {
        let told = condition(&cluster, "shop", "web", "Measured").await;
        // In force, but for what limits how fast it changes.
        if told.as_ref().is_some_and(|(status, _)| status == "True") {
            Ok(())
        } else {
            Err(format!("{told:?}"))
        }
    })
    .await;
    let results = running.metric("zonewise_demand_proxies").await;
    assert_eq!(results, BTreeMap::from([("result=\"success\"".to_owned(), 3.0)]));
    running.stop().await.unwrap();
    for server in servers {
        server.stop().await;
    }
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

    let running = start(&cluster, hasty(&cluster).await).await;
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
