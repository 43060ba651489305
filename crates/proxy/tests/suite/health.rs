//! Health over real sockets on loopback, by hand-written HTTP.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use zonewise_proxy::config::Config;
use zonewise_proxy::testing::{
    Health, HealthPages, HealthPort, HealthPorts, MetricsPages, Moment, NodePorts, PortError, serve,
};
use zonewise_routing::Family;
use zonewise_telemetry::metrics::Registry;

const PERIOD: Duration = Duration::from_secs(30);
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Head and body, or `None` if nobody listens.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: zonewise\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    Some((head.to_owned(), body.to_owned()))
}

async fn get(address: SocketAddr, path: &str) -> (String, String) {
    ask(address, "GET", path).await.unwrap()
}

async fn code(address: SocketAddr, path: &str) -> u16 {
    get(address, path).await.0.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn healthz_and_livez_with_headers_and_counters() {
    let (health, registry) = (Health::new(PERIOD), Registry::default());
    let pages = HealthPages::new(health.clone(), &registry).unwrap();
    let served = serve("health", ANY, true, pages).await.unwrap();
    let address = served.address().unwrap();

    // The Node was not seen yet.
    assert_eq!((code(address, "/healthz").await, code(address, "/livez").await), (503, 200));
    health.node_seen(true);
    health.updated(Family::V4, Moment::now());
    let (head, body) = get(address, "/healthz").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
    assert!(head.contains("\r\nx-content-type-options: nosniff\r\n"), "{head}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&body["nodeEligible"], &body["healthy"]), (&true.into(), &true.into()));
    assert!(body["lastUpdated"].as_str().unwrap().parse::<Timestamp>().is_ok(), "{body}");

    let long_ago = Moment { instant: Instant::now() - 2 * PERIOD, wall: Timestamp::now() };
    health.queued(Family::V4, long_ago);
    assert_eq!((code(address, "/healthz").await, code(address, "/livez").await), (503, 503));
    assert_eq!(code(address, "/metrics").await, 404);

    let text = registry.text();
    for line in [
        "kubeproxy_proxy_healthz_total{code=\"200\"} 1\n",
        "kubeproxy_proxy_healthz_total{code=\"503\"} 2\n",
        "kubeproxy_proxy_livez_total{code=\"200\"} 1\n",
        "kubeproxy_proxy_livez_total{code=\"503\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} not in {text}");
    }
    served.stop().await;
    assert!(ask(address, "GET", "/livez").await.is_none());
}

#[tokio::test]
async fn metrics_and_the_pages_beside_them() {
    let registry = Registry::default();
    registry.counter("syncs", "Syncs.", []).unwrap().with([]).add(3);
    let pages = MetricsPages::new(registry, Config::new("node-1").configz())
        .with("/routes", || "[]".to_owned());
    let served = serve("metrics", ANY, true, pages).await.unwrap();
    let address = served.address().unwrap();
    for (path, body) in [
        ("/healthz", "ok"),
        ("/healthz/ping", "ok"),
        ("/proxyMode", "nftables"),
        ("/routes", "[]"),
        ("/metrics", "# HELP syncs Syncs.\n# TYPE syncs counter\nsyncs 3\n"),
    ] {
        let (head, found) = get(address, path).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert!(head.contains("\r\nx-content-type-options: nosniff\r\n"), "{path}: {head}");
        assert_eq!(found, body, "{path}");
    }
    let (head, _) = get(address, "/proxyMode").await;
    assert!(head.contains("\r\ncontent-type: text/plain; charset=utf-8\r\n"), "{head}");
    let (head, body) = get(address, "/configz").await;
    assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
    assert!(body.contains("\"hostnameOverride\":\"node-1\""), "{body}");
    assert_eq!(code(address, "/nowhere").await, 404);
    for path in ["/routes", "/metrics"] {
        let (head, _) = ask(address, "POST", path).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 405 "), "{path}: {head}");
    }
    served.stop().await;
}

fn text_page(text: &'static str) -> MetricsPages {
    MetricsPages::new(Registry::default(), text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_taken_address_is_tried_again_or_ends_it() {
    let taken = TcpListener::bind(ANY).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = serve("metrics", address, true, text_page("a")).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {address} for metrics: ")), "{error}");
    assert!(error.ends_with("; free the address or choose another"), "{error}");

    let served = serve("metrics", address, false, text_page("b")).await.unwrap();
    assert_eq!(served.address(), None);
    drop(taken);
    assert_eq!(served.listening().await, Some(address));
    assert_eq!(get(address, "/configz").await.1, "b");
    served.stop().await;

    let taken = TcpListener::bind(address).await.unwrap();
    let waiting = serve("metrics", address, false, text_page("c")).await.unwrap();
    waiting.stop().await;
    drop(taken);
}

/// Quirk of a wildcard: whoever asks over the other family is answered too.
#[tokio::test]
async fn a_wildcard_is_both_families() {
    let any = SocketAddr::from(([0, 0, 0, 0], 0));
    let served = serve("metrics", any, true, text_page("a")).await.unwrap();
    let port = served.address().unwrap().port();
    for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        let (_, body) = get(address.parse().unwrap(), "/configz").await;
        assert_eq!(body, "a", "{address}; this test needs IPv6 on lo");
    }
    served.stop().await;
}

/// Name, port, and ready endpoints by family.
type Check<'a> = (&'a str, u16, &'a [(Family, usize)]);

/// Loopback addresses of its own for each test: nobody else listens there.
struct Node {
    addresses: BTreeMap<Family, NodePorts>,
    ports: HealthPorts,
    health: Health,
}

impl Node {
    fn new(addresses: &[(Family, &[&str])]) -> Self {
        let health = Health::new(PERIOD);
        let ports = HealthPorts::new(health.clone());
        let addresses = addresses.iter().map(|(family, list)| (*family, listed(list))).collect();
        Self { addresses, ports, health }
    }

    async fn reconcile(&mut self, wanted: &[Check<'_>]) -> Vec<PortError> {
        let wanted = wanted.iter().map(|(name, port, ready)| {
            let ready = ready.iter().copied().collect();
            (("ns".to_owned(), (*name).to_owned()), HealthPort { port: *port, ready })
        });
        self.ports.reconcile(&wanted.collect(), &self.addresses).await
    }
}

fn listed(list: &[&str]) -> NodePorts {
    NodePorts::Listed(list.iter().map(|text| text.parse().unwrap()).collect())
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

const V4: Family = Family::V4;
const V6: Family = Family::V6;

#[tokio::test]
async fn a_service_health_check_answers_as_the_reference_does() {
    let mut node = Node::new(&[(V4, &["127.9.1.1"])]);
    let address = at("127.9.1.1", 31000);
    assert!(node.reconcile(&[("web", 31000, &[(V4, 2)])]).await.is_empty());
    let (head, body) = get(address, "/any/path?at=all").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for header in [
        "\r\ncontent-type: application/json\r\n",
        "\r\nx-content-type-options: nosniff\r\n",
        "\r\nx-load-balancing-endpoint-weight: 2\r\n",
    ] {
        assert!(head.contains(header), "{header} not in {head}");
    }
    let expected = "{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": \"web\"\n\t},\n\
                    \t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(body, expected);

    // No ready endpoint here; then a proxy that is behind.
    assert!(node.reconcile(&[("web", 31000, &[(V4, 0)])]).await.is_empty());
    let (head, body) = get(address, "/").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(head.contains("\r\nx-load-balancing-endpoint-weight: 0\r\n"), "{head}");
    assert!(body.contains("\"localEndpoints\": 0,"), "{body}");
    assert!(node.reconcile(&[("web", 31000, &[(V4, 1)])]).await.is_empty());
    node.health.updated(V4, Moment::now());
    let long_ago = Moment { instant: Instant::now() - 2 * PERIOD, wall: Timestamp::now() };
    node.health.queued(V4, long_ago);
    let (head, body) = get(address, "/").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(body.contains("\"serviceProxyHealthy\": false"), "{body}");
    node.ports.stop().await;
    assert!(ask(address, "GET", "/").await.is_none());
}

#[tokio::test]
async fn ports_come_go_and_change_hands() {
    let mut node = Node::new(&[(V4, &["127.9.2.1"])]);
    let weight = async |port| {
        let (head, _) = ask(at("127.9.2.1", port), "GET", "/").await?;
        let (_, rest) = head.split_once("x-load-balancing-endpoint-weight: ")?;
        rest.lines().next().map(str::to_owned)
    };
    assert!(node.reconcile(&[("a", 31001, &[(V4, 1)]), ("b", 31002, &[(V4, 2)])]).await.is_empty());
    assert_eq!((weight(31001).await, weight(31002).await), (Some("1".into()), Some("2".into())));
    // They swap, without a moment in which one fails.
    assert!(node.reconcile(&[("a", 31002, &[(V4, 1)]), ("b", 31001, &[(V4, 2)])]).await.is_empty());
    assert_eq!((weight(31001).await, weight(31002).await), (Some("2".into()), Some("1".into())));
    assert!(node.reconcile(&[("b", 31001, &[(V4, 2)])]).await.is_empty());
    assert_eq!((weight(31001).await, weight(31002).await), (Some("2".into()), None));
    node.ports.stop().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_rolled_back_and_tried_again() {
    let mut node = Node::new(&[(V4, &["127.9.3.1", "127.9.3.2"])]);
    let (first, second) = (at("127.9.3.1", 31003), at("127.9.3.2", 31003));
    let taken = TcpListener::bind(second).await.unwrap();
    let service: &[Check<'_>] = &[("web", 31003, &[(V4, 1)])];
    for again in [false, true] {
        let errors = node.reconcile(service).await;
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert_eq!((error.address, error.again), (second, again));
        let text = error.to_string();
        let start = "cannot listen on 127.9.3.2:31003 for the health checks of ns/web: ";
        assert!(text.starts_with(start), "{text}");
        assert!(ask(first, "GET", "/").await.is_none(), "half a health check");
    }
    drop(taken);
    assert!(node.reconcile(service).await.is_empty());
    assert_eq!((code(first, "/").await, code(second, "/").await), (200, 200));
    node.ports.stop().await;
}

/// Quirk 9 of the reference: its listeners stay where they were.
#[tokio::test]
async fn listeners_follow_the_nodes_addresses() {
    let mut node = Node::new(&[(V4, &["127.9.4.1", "127.9.4.2"])]);
    let service: &[Check<'_>] = &[("web", 31004, &[(V4, 1)])];
    assert!(node.reconcile(service).await.is_empty());
    let kept = TcpStream::connect(at("127.9.4.2", 31004)).await.unwrap();
    node.addresses.insert(V4, listed(&["127.9.4.2", "127.9.4.3"]));
    assert!(node.reconcile(service).await.is_empty());
    let mut open = Vec::new();
    for ip in ["127.9.4.1", "127.9.4.2", "127.9.4.3"] {
        open.push(ask(at(ip, 31004), "GET", "/").await.is_some());
    }
    assert_eq!(open, [false, true, true]);
    drop(kept);
    node.ports.stop().await;
}

#[tokio::test]
async fn each_family_has_its_own_count_and_listener() {
    let probe = TcpListener::bind("[::1]:0").await.unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let mut node = Node::new(&[]);
    node.addresses = BTreeMap::from([(V4, NodePorts::All), (V6, NodePorts::All)]);
    assert!(node.reconcile(&[("web", port, &[(V4, 0), (V6, 3)])]).await.is_empty());
    let (v4, v6) = (at("127.0.0.1", port), at("::1", port));
    assert_eq!((code(v4, "/").await, code(v6, "/").await), (503, 200));
    // A Service of one family is not listened for in the other.
    assert!(node.reconcile(&[("web", port, &[(V6, 3)])]).await.is_empty());
    assert!(ask(v4, "GET", "/").await.is_none());
    assert_eq!(code(v6, "/").await, 200);
    node.ports.stop().await;
}
