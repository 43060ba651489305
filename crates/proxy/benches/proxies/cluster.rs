//! One API server for all programs, and what it holds.
//!
//! ```text
//!  s-0 … s-N    10 endpoints each, at addresses that nothing listens on
//!  z-marker     one endpoint: the pod left, or the pod right
//!  z-path       one endpoint: the pod path
//! ```
//!
//! The Services that are measured have names that sort last, so that no program serves them early. Services have no
//! selector and the benchmark writes their slices: no controller runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::interval;
use zonewise_testbed::{Cluster, Objects, Options, objects};

use crate::proxy::{LEFT, NODE, PATH, RIGHT, ZONE};

pub(crate) const MARKER: &str = "z-marker";
const PATH_SERVICE: &str = "z-path";
pub(crate) const PORT: u16 = 8080;
const ENDPOINTS: u32 = 10;
/// First addresses of endpoints that nothing listens on: those that stay, and those that changes bring.
const UNUSED: u32 = 0x0A80_0000;
const SPARE: u32 = 0xAC10_0000;
const SPARES: u32 = 1 << 20;
/// Services created by one call: bounds the memory of this process.
const BATCH: u32 = 500;
/// Changes in flight at once.
const IN_FLIGHT: usize = 8;

/// The API server and its objects.
pub(crate) struct BenchCluster {
    pub(crate) api_server: Cluster,
    objects: Objects,
    /// Where the two Services that are looked at are found.
    pub(crate) marker: SocketAddr,
    pub(crate) path: SocketAddr,
    left: bool,
    filled: u32,
    changes: u32,
    begin: Instant,
}

impl BenchCluster {
    pub(crate) async fn open() -> Result<Self> {
        let api_server = Cluster::start_with(Options::default().production_memory()).await?;
        let objects = api_server.objects()?;
        let services = [MARKER, PATH_SERVICE].map(service);
        let slices = [
            slice(MARKER, &[endpoint(MARKER, 0, LEFT, NODE)]),
            slice(PATH_SERVICE, &[endpoint(PATH_SERVICE, 0, PATH, NODE)]),
        ];
        // Where our proxy says what it has applied.
        objects.create(&[node(), objects::namespace("zonewise-system")]).await?;
        objects.create(&services).await?;
        objects.create(&slices).await?;
        let marker = cluster_ip(&objects, MARKER).await?;
        let path = cluster_ip(&objects, PATH_SERVICE).await?;
        let begin = Instant::now();
        Ok(Self { api_server, objects, marker, path, left: true, filled: 0, changes: 0, begin })
    }

    /// Adds what is missing for so many Services.
    pub(crate) async fn fill(&mut self, scale: u32) -> Result<()> {
        while self.filled < scale {
            let numbers = self.filled..scale.min(self.filled + BATCH);
            let services: Vec<Value> = numbers.clone().map(|n| service(&name(n))).collect();
            let slices: Vec<Value> = numbers.clone().map(|n| filler(n, None)).collect();
            self.objects.create(&services).await?;
            self.objects.create(&slices).await?;
            self.filled = numbers.end;
            self.say(&format!("{} of {scale} Services are there", self.filled));
        }
        Ok(())
    }

    /// The server that the marker leads to.
    pub(crate) fn side(&self) -> &'static str {
        if self.left { "left" } else { "right" }
    }

    /// Leads the marker to the other server; returns when the API server was asked to.
    pub(crate) async fn swap(&mut self) -> Result<Instant> {
        self.left = !self.left;
        let to = if self.left { LEFT } else { RIGHT };
        let slice = slice(MARKER, &[endpoint(MARKER, 0, to, NODE)]);
        let sent = Instant::now();
        self.objects.update(&[slice]).await?;
        Ok(sent)
    }

    /// Replaces one endpoint of so many Services, one Service after the other, and round and round.
    pub(crate) async fn change(&mut self, count: u32, every: Option<Duration>) -> Result<()> {
        let slots = Arc::new(Semaphore::new(IN_FLIGHT));
        let mut pace = every.map(interval);
        let mut tasks = JoinSet::new();
        for number in 0..count {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            let slot = Arc::clone(&slots).acquire_owned().await?;
            let objects = self.objects.clone();
            let spare = Ipv4Addr::from(SPARE + self.changes % SPARES);
            let slice = filler(number % self.filled, Some(spare));
            self.changes += 1;
            tasks.spawn(async move {
                let _slot = slot;
                objects.update(&[slice]).await
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    pub(crate) fn say(&self, text: &str) {
        eprintln!("{:7.1} s  {text}", self.begin.elapsed().as_secs_f64());
    }
}

async fn cluster_ip(objects: &Objects, name: &str) -> Result<SocketAddr> {
    let service = objects.get("Service", Some("default"), name).await?;
    let service = service.with_context(|| format!("no Service {name}"))?;
    let ip = service["spec"]["clusterIP"].as_str().context("a Service without an address")?;
    Ok(SocketAddr::new(ip.parse()?, 80))
}

/// The Node object of the node under test, with the addresses that every `ClusterNetwork` gives its first node.
fn node() -> Value {
    let mut node = objects::node(NODE, ZONE, "4");
    node["status"]["addresses"] = json!([
        { "type": "InternalIP", "address": "192.168.0.1" },
        { "type": "InternalIP", "address": "fd00:192:168::1" },
    ]);
    node["spec"]["podCIDR"] = "10.244.1.0/24".into();
    node["spec"]["podCIDRs"] = json!(["10.244.1.0/24", "fd00:10:244:1::/64"]);
    node
}

fn name(number: u32) -> String {
    format!("s-{number}")
}

fn service(name: &str) -> Value {
    let mut service = objects::service("default", name, name);
    service["spec"]["selector"].take();
    service
}

/// The slice of a Service that is never called; its first endpoint is `other`, if given.
fn filler(number: u32, other: Option<Ipv4Addr>) -> Value {
    let name = name(number);
    let at = |place: u32| Ipv4Addr::from(UNUSED + number * 16 + place);
    let address = |place| other.filter(|_| place == 0).unwrap_or(at(place));
    let elsewhere = |place: u32| format!("node-{}", (number + place) % 500);
    let endpoints: Vec<Value> = (0..ENDPOINTS)
        .map(|place| endpoint(&name, place, address(place), &elsewhere(place)))
        .collect();
    slice(&name, &endpoints)
}

/// An endpoint with everything that a controller writes.
fn endpoint(app: &str, index: u32, address: Ipv4Addr, node: &str) -> Value {
    let mut endpoint = objects::endpoint(address.into(), node, ZONE);
    endpoint["targetRef"] = json!({
        "kind": "Pod",
        "namespace": "default",
        "name": format!("{app}-{index}"),
        "uid": format!("00000000-0000-4000-8000-{:012x}", u32::from(address)),
    });
    endpoint
}

fn slice(service: &str, endpoints: &[Value]) -> Value {
    objects::endpoint_slice("default", service, service, endpoints)
}
