//! Half an hour of churn with faults on the real kernel: does anything grow?
//!
//! ```text
//!  ┌ a network namespace ──────────────────────────────────────────────────────────────┐
//!  │ embedded API server ◄── this program: Pods come and go, zones change, faults      │
//!  │       ▲   ▲                                                                       │
//!  │       │   └── zonewise controller                                                 │
//!  │       └────── zonewise proxy ──► the kernel's tables ◄── another writer's tables  │
//!  └───────────────────────────────────────────────────────────────────────────────────┘
//!  every minute: memory, descriptors and threads of both, memory of the kernel, what the tables hold
//! ```
//!
//! ```text
//!  ZONEWISE_BINARY=target/release/zonewise cargo bench --package zonewise-robustness --bench soak -- \
//!    [--minutes 30] [--services 1000]
//! ```
//!
//! It needs root and the `nft` program. It fails if a figure of the last quarter is above that of the second one by
//! more than a tenth: until then buffers grow to the size that they need.
#![allow(clippy::print_stdout, reason = "the table is the product")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use fastrand::Rng;
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use thiserror::Error;
use zonewise_apiserver::{Config, Faults, Server};
use zonewise_netns::Namespace;

#[derive(Parser)]
struct Arguments {
    /// How long it runs.
    #[arg(long, default_value_t = 30)]
    minutes: usize,
    /// How many Services there are, each with three Pods.
    #[arg(long, default_value_t = 1000)]
    services: usize,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Error)]
enum Failure {
    #[error("{0}: {1}")]
    Read(PathBuf, std::io::Error),
    #[error("{0} cannot be run: {1}; install it, or build it with `cargo build --release`")]
    Program(String, std::io::Error),
    #[error("the {0} has ended; its log is {1}")]
    Ended(&'static str, PathBuf),
    #[error("{0}: {1}")]
    Request(String, kube::Error),
    #[error("{0}")]
    Other(String),
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().collect::<Vec<_>>();
    arguments.retain(|argument| argument != "--test");
    match soak(&Arguments::parse_from(arguments)) {
        Ok(grown) if grown.is_empty() => {
            println!("nothing grows");
            ExitCode::SUCCESS
        }
        Ok(grown) => {
            println!("grown: {}", grown.join(", "));
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs it; the figures that have grown.
fn soak(arguments: &Arguments) -> Result<Vec<&'static str>, Failure> {
    let namespace = Namespace::new("soak").map_err(other)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .on_thread_start({
            let namespace = namespace.clone();
            move || namespace.join().unwrap_or_else(|error| println!("soak: {error}"))
        })
        .enable_all()
        .build();
    let runtime = runtime.map_err(other)?;
    let running = runtime.spawn(run(namespace, arguments.minutes, arguments.services));
    runtime.block_on(running).map_err(other)?
}

async fn run(
    namespace: Namespace,
    minutes: usize,
    services: usize,
) -> Result<Vec<&'static str>, Failure> {
    let server = Server::start(Config { workloads: false, ..Config::default() });
    let server = server.await.map_err(other)?;
    let folder = std::env::temp_dir().join(format!("zonewise-soak-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| Failure::Read(folder.clone(), error))?;
    let kubeconfig = folder.join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig())
        .map_err(|error| Failure::Read(kubeconfig.clone(), error))?;
    let client = zonewise_cluster::connect::connect(Some(&kubeconfig)).await.map_err(other)?;
    let mut churn = Churn { client, rng: Rng::with_seed(1), next: 0, pods: Vec::new() };
    churn.begin(services).await?;
    let mut programs = [
        Program::start(&namespace, &folder, &kubeconfig, "controller", &CONTROLLER)?,
        Program::start(&namespace, &folder, &kubeconfig, "proxy", &PROXY)?,
    ];
    println!("{}", header());
    let mut samples: Vec<Sample> = Vec::new();
    let begin = Instant::now();
    for minute in 1..=minutes {
        fault(&server, &mut churn, minute).await?;
        while begin.elapsed() < Duration::from_secs(60) * u32::try_from(minute).unwrap_or(u32::MAX)
        {
            churn.some(20).await;
            other_writer(&namespace);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let sample = Sample::take(&namespace, &mut programs)?;
        println!("{}", sample.row(minute));
        samples.push(sample);
    }
    drop(fs::remove_dir_all(&folder));
    Ok(grown(&samples))
}

/// A machine that others use may stand still for longer than the usual lease lasts.
const CONTROLLER: [&str; 6] = [
    "controller",
    "--create-namespace",
    "--health-address=127.0.0.1:0",
    "--metrics-address=127.0.0.1:0",
    "--leader-elect-lease-duration=120s",
    "--leader-elect-renew-deadline=100s",
];
const PROXY: [&str; 5] = [
    "proxy",
    "--node-name=node-a",
    "--cluster-cidr=10.244.0.0/16",
    "--healthz-bind-address=127.0.0.1:0",
    "--metrics-bind-address=127.0.0.1:0",
];

/// What is wrong in this minute: everything in turn.
async fn fault(server: &Server, churn: &mut Churn, minute: usize) -> Result<(), Failure> {
    let none = Faults::default;
    server.set_faults(match minute % 5 {
        1 => Faults { errors: 0.1, ..none() },
        2 => Faults { drop_watches: Some(Duration::from_secs(2)), ..none() },
        3 => Faults { stale: Some(Duration::from_secs(2)), ..none() },
        _ => none(),
    });
    if minute.is_multiple_of(5) {
        server.compact();
    }
    // A zone that nobody had before.
    let zone =
        json!({"metadata": {"labels": {"topology.kubernetes.io/zone": format!("zone-{minute}")}}});
    let moved = churn.ask(Method::PATCH, "/api/v1/nodes/node-c", &zone).await;
    moved.or_else(|error| if minute % 5 == 1 { Ok(Value::Null) } else { Err(error) }).map(drop)
}

/// Another program changes its own tables, which everybody who reads tables notices.
fn other_writer(namespace: &Namespace) {
    for what in ["add", "delete"] {
        let mut command = Command::new("nft");
        command.args([what, "table", "ip", "another"]).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(mut child) = namespace.spawn(command) {
            drop(child.wait());
        }
    }
}

/// Pods that come and go.
struct Churn {
    client: Client,
    rng: Rng,
    next: u32,
    /// The Pods, by number, and their Services.
    pods: Vec<(u32, usize)>,
}

impl Churn {
    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value, Failure> {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(body.to_string().into_bytes()).map_err(other)?;
        let answer = self.client.request(request).await;
        answer.map_err(|error| Failure::Request(path.to_owned(), error))
    }

    async fn begin(&mut self, services: usize) -> Result<(), Failure> {
        for zone in ["a", "b", "c"] {
            let name = format!("node-{zone}");
            self.ask(Method::POST, "/api/v1/nodes", &node(&name, zone)).await?;
        }
        for service in 0..services {
            self.ask(Method::POST, "/api/v1/namespaces/default/services", &object(service)).await?;
            for _ in 0..3 {
                self.add(service).await?;
            }
        }
        Ok(())
    }

    async fn add(&mut self, service: usize) -> Result<(), Failure> {
        let number = self.next;
        self.next += 1;
        let node = ["node-a", "node-b", "node-c"][self.rng.usize(0..3)];
        let path = "/api/v1/namespaces/default/pods";
        self.ask(Method::POST, path, &pod(number, service, node)).await?;
        self.pods.push((number, service));
        let path = format!("{path}/pod-{number}/status");
        self.ask(Method::PATCH, &path, &status(number)).await.map(drop)
    }

    /// So many Pods are replaced. What fails because of a fault fails.
    async fn some(&mut self, count: usize) {
        for _ in 0..count {
            let at = self.rng.usize(0..self.pods.len());
            let (number, service) = self.pods[at];
            let path = format!("/api/v1/namespaces/default/pods/pod-{number}");
            let now = json!({"gracePeriodSeconds": 0});
            if self.ask(Method::DELETE, &path, &now).await.is_ok() {
                self.pods.swap_remove(at);
                drop(self.add(service).await);
            }
        }
    }
}

fn node(name: &str, zone: &str) -> Value {
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let address = if zone == "a" { "127.0.0.1" } else { "192.0.2.1" };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone,
        }},
        "status": {
            "capacity": resources, "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A Service; some have weights, some session affinity, some hints.
fn object(number: usize) -> Value {
    let name = format!("service-{number}");
    let preference = ["zonewise.dev/balanced", "zonewise.dev/local-subset"].get(number % 4);
    let annotations = preference.map(|value| json!({"zonewise.dev/routing-preference": value}));
    let affinity = if number.is_multiple_of(10) { "ClientIP" } else { "None" };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "selector": {"app": name}, "sessionAffinity": affinity,
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    })
}

fn pod(number: u32, service: usize, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number}"), "labels": {"app": format!("service-{service}")},
        },
        "spec": {"nodeName": node, "containers": [{"name": "server", "image": "server:1"}]},
    })
}

fn status(number: u32) -> Value {
    // Addresses come back long after their Pod is gone.
    let address = format!("10.244.{}.{}", number / 250 % 250, 1 + number % 250);
    json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }})
}

/// One of our programs.
struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Program {
    fn start(
        namespace: &Namespace,
        folder: &Path,
        kubeconfig: &Path,
        name: &'static str,
        arguments: &[&str],
    ) -> Result<Self, Failure> {
        let binary =
            std::env::var("ZONEWISE_BINARY").unwrap_or_else(|_| "target/release/zonewise".into());
        let log = folder.join(format!("{name}.log"));
        let file = fs::File::create(&log).map_err(|error| Failure::Read(log.clone(), error))?;
        let mut command = Command::new(&binary);
        command.args(arguments).arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = namespace.spawn(command).map_err(|error| Failure::Program(binary, error))?;
        Ok(Self { name, child, log })
    }

    /// A number from a line of a file in `/proc`.
    fn field(&self, file: &str, name: &str) -> Result<f64, Failure> {
        field(&PathBuf::from(format!("/proc/{}/{file}", self.child.id())), name)
    }

    fn descriptors(&self) -> Result<f64, Failure> {
        let path = PathBuf::from(format!("/proc/{}/fd", self.child.id()));
        let entries = fs::read_dir(&path).map_err(|error| Failure::Read(path, error))?;
        Ok(f64::from(u32::try_from(entries.count()).unwrap_or(u32::MAX)))
    }

    fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(Failure::Ended(self.name, self.log.clone())),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The number after a name at the beginning of a line.
fn field(path: &Path, name: &str) -> Result<f64, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::Read(path.to_owned(), error))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| Failure::Other(format!("{} has no number {name}", path.display())))
}

/// What is measured, and by how much it may differ whatever its size: the kernel's memory is that of the whole machine.
const COLUMNS: [(&str, f64); 11] = [
    ("controller MiB", 4.0),
    ("descriptors", 4.0),
    ("threads", 2.0),
    ("proxy MiB", 4.0),
    ("descriptors", 4.0),
    ("threads", 2.0),
    ("kernel MiB", 64.0),
    ("chains", 20.0),
    ("sets", 2.0),
    ("counters", 3.0),
    ("elements", 200.0),
];

/// The figures of one moment, in the order of [`COLUMNS`].
struct Sample([f64; COLUMNS.len()]);

impl Sample {
    fn take(namespace: &Namespace, programs: &mut [Program; 2]) -> Result<Self, Failure> {
        let mut figures = Vec::new();
        for program in programs {
            program.check()?;
            figures.push(program.field("status", "VmRSS")? / 1024.0);
            figures.push(program.descriptors()?);
            figures.push(program.field("status", "Threads")?);
        }
        let memory = Path::new("/proc/meminfo");
        figures.push((field(memory, "SUnreclaim")? + field(memory, "Percpu")?) / 1024.0);
        figures.extend(tables(namespace)?);
        let figures: Result<[f64; COLUMNS.len()], _> = figures.try_into();
        figures.map(Self).map_err(|_| other("a figure is missing"))
    }

    fn row(&self, minute: usize) -> String {
        let mut row = format!("{minute:>6}");
        for ((name, _), figure) in COLUMNS.iter().zip(self.0) {
            let width = name.len() + 2;
            // A String can always be written to.
            let _ = write!(row, "{figure:>width$.0}");
        }
        row
    }
}

fn header() -> String {
    let mut row = "minute".to_owned();
    for (name, _) in COLUMNS {
        let width = name.len() + 2;
        let _ = write!(row, "{name:>width$}");
    }
    row
}

/// How many chains, sets, counters and elements our table has.
fn tables(namespace: &Namespace) -> Result<[f64; 4], Failure> {
    let mut command = Command::new("nft");
    command.args(["--json", "list", "table", "ip", "zonewise"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let nft = |error| Failure::Program("nft".into(), error);
    let output = namespace.spawn(command).map_err(nft)?.wait_with_output().map_err(nft)?;
    let listed: Value = serde_json::from_slice(&output.stdout).map_err(other)?;
    let mut counts = [0.0; 4];
    for item in listed["nftables"].as_array().into_iter().flatten() {
        for (index, kind) in ["chain", "set", "counter"].into_iter().enumerate() {
            counts[index] += f64::from(u8::from(item.get(kind).is_some()));
        }
        let set = item.get("set").or_else(|| item.get("map"));
        counts[1] += f64::from(u8::from(item.get("map").is_some()));
        let elements = set.and_then(|set| set["elem"].as_array()).map_or(0, Vec::len);
        counts[3] += f64::from(u32::try_from(elements).unwrap_or(u32::MAX));
    }
    Ok(counts)
}

/// Figures whose median in the last quarter is above that in the second one.
fn grown(samples: &[Sample]) -> Vec<&'static str> {
    let quarter = samples.len() / 4;
    let median = |samples: &[Sample], column: usize| {
        let mut figures: Vec<f64> = samples.iter().map(|sample| sample.0[column]).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or_default()
    };
    let (early, late) = (&samples[quarter..2 * quarter], &samples[samples.len() - quarter..]);
    let grows = |(column, (_, tolerance)): &(usize, (&str, f64))| {
        median(late, *column) > median(early, *column) * 1.1 + tolerance
    };
    COLUMNS.into_iter().enumerate().filter(grows).map(|(_, (name, _))| name).collect()
}
