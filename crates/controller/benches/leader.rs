//! What measured demand costs the leading controller: a whole controller that asks 200 servers of counts, beside one that
//! asks nobody.
//!
//! ```text
//!  200 servers of counts, over TLS ◄── zonewise controller ──► kube-apiserver, etcd
//!                                              └──► CPU, memory
//! ```
//!
//! ```text
//!  cargo build --release --package zonewise
//!  ZONEWISE_REFERENCE=$(scripts/reference bench) cargo test --workspace --bench leader
//! ```
//!
//! `ZONEWISE_BINARY` names the program to measure; without it that is `target/release/zonewise`. The servers are in a
//! process of their own, whose speed makes no difference.
#![allow(clippy::print_stdout, reason = "the table is the product")]
#![allow(clippy::print_stderr, reason = "a run takes minutes and must show that it moves")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use zonewise_common::proxy_report::{DemandServer, ProxyReport};
use zonewise_demand::report::{Counts, Report, VERSION};
use zonewise_telemetry::server::{self, AccessControl, Page, PageRequest, Protection, Server};
use zonewise_telemetry::tls::{Certificate, Tls};
use zonewise_testbed::objects::{namespace, node, service};
use zonewise_testbed::{Cluster, Process, User, table};

const PROXIES: usize = 200;
const SERVICES: usize = 1_000;
/// Services that a node uses.
const USED: usize = 200;
const ZONES: [&str; 3] = ["a", "b", "c"];
/// Until connections are made, and shares are decided for the first time.
const SETTLING: Duration = Duration::from_secs(45);
const MEASURED: Duration = Duration::from_secs(90);

/// Who may ask is not what is measured here.
struct Everybody;

impl AccessControl for Everybody {
    fn admit<'a>(
        &'a self,
        _: PageRequest<'a>,
        _: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Page>> + Send + 'a>> {
        Box::pin(async { Ok(()) })
    }
}

/// What all servers have answered.
#[derive(Default)]
struct Answered {
    answers: AtomicU64,
    bytes: AtomicU64,
}

impl Answered {
    fn now(&self) -> (u64, u64) {
        (self.answers.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

fn name(number: usize) -> String {
    format!("service-with-a-name-{number:05}")
}

/// The report of a node: ten connections per second to each Service that it uses.
fn report(number: usize, begun: Instant, sequence: u64) -> Result<String> {
    let connections = begun.elapsed().as_millis() as u64 / 100;
    let counted =
        Counts { connections, bytes_to: 400 * connections, bytes_from: 8_000 * connections };
    let zones: BTreeMap<Box<str>, Counts> = ZONES.map(|zone| (zone.into(), counted)).into();
    let services = (0..USED).map(|n| {
        let used = (number + n * (SERVICES / USED)) % SERVICES;
        (format!("bench/{}", name(used)).into(), zones.clone())
    });
    let report = Report {
        version: VERSION,
        node: node_name(number).into(),
        zone: ZONES[number % ZONES.len()].into(),
        started: 1,
        sequence,
        services: services.collect(),
        failed: BTreeMap::new(),
        unassigned: 0,
    };
    Ok(report.write()?)
}

fn node_name(number: usize) -> String {
    format!("node-{number:03}")
}

/// Serves the counts of a node, and says so in its Lease.
async fn serve(number: usize, answered: &Arc<Answered>) -> Result<(Server, Value)> {
    let tls = Arc::new(Tls::new(Certificate::SelfSigned)?);
    let fingerprint = tls.fingerprint();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (begun, sequence, answered) = (Instant::now(), AtomicU64::new(1), Arc::clone(answered));
    let handler = move |_: PageRequest<'_>| match report(
        number,
        begun,
        sequence.fetch_add(1, Ordering::Relaxed),
    ) {
        Ok(text) => {
            answered.answers.fetch_add(1, Ordering::Relaxed);
            answered.bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
            Page::new(200, "application/json", text)
        }
        Err(error) => Page::text(500, error.to_string()),
    };
    let protection = Protection { tls, access: Arc::new(Everybody) };
    let server = server::serve_kept(listener, handler, protection)?;
    let report = ProxyReport {
        lease: ProxyReport::lease(&node_name(number)),
        applied: Some(1),
        refused: std::collections::BTreeSet::new(),
        renewed: Some(Timestamp::now()),
        duration: Some(Duration::from_secs(3600)),
        demand: Some(DemandServer { port: server.address().port(), fingerprint }),
    };
    let lease = report.encode(&node_name(number), "");
    Ok((server, lease))
}

fn objects() -> Vec<Value> {
    let nodes = (0..PROXIES).map(|number| {
        let mut node = node(&node_name(number), ZONES[number % ZONES.len()], "16");
        node["status"]["addresses"] =
            json!([{"type": "InternalIP", "address": Ipv4Addr::LOCALHOST}]);
        node
    });
    let services = (0..SERVICES).map(|number| {
        let mut service = service("bench", &name(number), "web");
        service["metadata"]["annotations"] = json!({
            "zonewise.dev/routing-preference": "zonewise.dev/balanced",
            "zonewise.dev/demand": "measured",
        });
        service
    });
    let system = namespace("zonewise-system");
    [system, namespace("bench")].into_iter().chain(nodes).chain(services).collect()
}

fn binary() -> PathBuf {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/zonewise");
    std::env::var_os("ZONEWISE_BINARY").map_or_else(|| usual.into(), PathBuf::from)
}

fn start(cluster: &Cluster, source: &str, token: &Path) -> Result<Process> {
    let kubeconfig = cluster.kubeconfig(User::Admin)?.display().to_string();
    let token = token.display().to_string();
    let arguments = [
        "controller",
        "--leader-elect=false",
        "--metrics-address=127.0.0.1:0",
        "--health-address=127.0.0.1:0",
        "--kubeconfig",
        &kubeconfig,
        "--demand-source",
        source,
        "--demand-token-file",
        &token,
    ];
    Process::spawn(&binary(), &arguments, &[], &cluster.log(source))
}

/// What the controller uses.
struct Used {
    /// Of one core.
    cpu: f64,
    peak: u64,
    /// Per second.
    answers: f64,
    bytes: f64,
}

async fn run(cluster: &Cluster, source: &str, token: &Path, answered: &Answered) -> Result<Used> {
    eprintln!("controller with --demand-source {source}");
    let mut process = start(cluster, source, token)?;
    tokio::time::sleep(SETTLING).await;
    let (cpu, before, begun) = (process.cpu_seconds()?, answered.now(), Instant::now());
    tokio::time::sleep(MEASURED).await;
    process.check()?;
    let (cpu, after, seconds) =
        (process.cpu_seconds()? - cpu, answered.now(), begun.elapsed().as_secs_f64());
    let peak = process.peak_rss_bytes()?;
    process.stop().await?;
    Ok(Used {
        cpu: cpu / seconds,
        peak,
        answers: (after.0 - before.0) as f64 / seconds,
        bytes: (after.1 - before.1) as f64 / seconds,
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    ensure!(
        binary().is_file(),
        "no program at {}: build it, or set ZONEWISE_BINARY",
        binary().display()
    );
    let cluster = Cluster::start().await?;
    cluster.create(&objects()).await?;
    let answered = Arc::new(Answered::default());
    let (mut servers, mut leases) = (Vec::new(), Vec::new());
    for number in 0..PROXIES {
        let (server, lease) = serve(number, &answered).await?;
        servers.push(server);
        leases.push(lease);
    }
    cluster.create(&leases).await?;
    let token = cluster.directory().join("token");
    std::fs::write(&token, "token")?;
    let without = run(&cluster, "none", &token, &answered).await?;
    let with = run(&cluster, "proxies", &token, &answered).await?;
    ensure!(
        with.answers > 0.0,
        "no server was asked; the log: {}",
        cluster.log("proxies").display()
    );
    let stored =
        cluster.objects()?.get("ConfigMap", Some("zonewise-system"), "zonewise-demand").await?;
    let text =
        stored.context("nothing was stored")?["data"]["state"].as_str().unwrap_or_default().len();
    for server in servers {
        server.stop().await;
    }
    println!("{}", render(&without, &with, text));
    Ok(())
}

fn render(without: &Used, with: &Used, text: usize) -> String {
    let heading = format!(
        "{PROXIES} servers of counts over TLS, {SERVICES} measured Services, {USED} on each node, {} zones",
        ZONES.len()
    );
    let row = |what: &str, figure: &dyn Fn(&Used) -> String| {
        vec![what.to_owned(), figure(without), figure(with)]
    };
    table::markdown(&[
        vec![heading, "source none".to_owned(), "source proxies".to_owned()],
        row("CPU of one core", &|used| format!("{:.2} %", 100.0 * used.cpu)),
        row("CPU of an answer", &|used| match used.answers > 0.0 {
            true => format!("{:.2} ms", 1000.0 * (with.cpu - without.cpu) / used.answers),
            false => "–".to_owned(),
        }),
        row("peak memory", &|used| format!("{:.1} MiB", used.peak as f64 / f64::from(1 << 20))),
        row("answers per second", &|used| format!("{:.1}", used.answers)),
        row("bytes per second", &|used| format!("{:.0} kB", used.bytes / 1000.0)),
        vec!["stored text".to_owned(), "–".to_owned(), format!("{:.1} kB", text as f64 / 1000.0)],
    ])
}
