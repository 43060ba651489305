//! The measurement: a real API server, and the watches of a proxy for each of 100 nodes, each through a
//! relay of its own that counts bytes.

use serde_json::{Value, json};
use zonewise_proxy::config::Config;
use zonewise_proxy::testing::Follower;
use zonewise_slices::slice::Slice;
use zonewise_testbed::{Cluster, Gate, Options, User, eventually, objects};

use crate::model::{CHANGES, Model, ServiceState, is_for, service_name, zone_name};
use crate::{Costs, Received, Row};

pub(crate) const NODES: usize = 100;

/// What was measured with one number of zones.
pub(crate) struct Live {
    pub(crate) row: Row,
    /// Bytes that the API server adds to each slice.
    pub(crate) added_by_the_server: f64,
}

/// The watches of one node.
struct Watcher {
    zone: String,
    gate: Gate,
    follower: Follower,
}

impl Watcher {
    /// Bytes and slices so far, once everything is listed.
    async fn received(&mut self, objects: impl Fn(u64) -> bool) -> Received {
        let Self { gate, follower, .. } = self;
        eventually(|| {
            let found = follower.slices_received().filter(|found| objects(*found));
            let received = found.map(|objects| Received {
                objects: objects as f64,
                bytes: gate.bytes_down() as f64,
            });
            std::future::ready(received.ok_or_else(|| "not everything has come".to_owned()))
        })
        .await
    }
}

async fn watchers(cluster: &Cluster, zones: usize) -> Vec<Watcher> {
    let mut all = Vec::new();
    for number in 0..NODES {
        let gate = Gate::open(cluster).await.unwrap();
        let client = cluster.client_through(User::Admin, &gate).unwrap();
        let config = Config::new(format!("worker-{number}"));
        let follower = Follower::start(&client, config, true).unwrap();
        all.push(Watcher { zone: zone_name(number % zones), gate, follower });
    }
    all
}

/// The average of what the nodes have received.
async fn average(watchers: &mut [Watcher], objects: impl Fn(&str, u64) -> bool) -> Received {
    let (mut sum, count) = (Received::default(), watchers.len() as f64);
    for watcher in watchers {
        let zone = watcher.zone.clone();
        let received = watcher.received(|found| objects(&zone, found)).await;
        sum.objects += received.objects / count;
        sum.bytes += received.bytes / count;
    }
    sum
}

impl Received {
    fn since(self, before: Self) -> Self {
        Self { objects: self.objects - before.objects, bytes: self.bytes - before.bytes }
    }
}

impl Live {
    pub(crate) async fn measure(zones: usize) -> Self {
        let cluster = Cluster::start_with(Options::default().production_memory()).await.unwrap();
        let model = Model::small(zones);
        cluster.create(&surroundings(&model)).await.unwrap();
        // What Services and the node itself cost, and the connection.
        let nothing = average(&mut watchers(&cluster, zones).await, |_, _| true).await;
        let (without, _) = costs(&cluster, &model, false, nothing).await;
        let (with, added_by_the_server) = costs(&cluster, &model, true, nothing).await;
        Self { row: Row { zones, without, with }, added_by_the_server }
    }
}

/// Nodes and Services. The Service `kubernetes` gets an endpoint: without one, proxies would watch all its
/// slices.
fn surroundings(model: &Model) -> Vec<Value> {
    let node = |number: usize| {
        let zone = zone_name(number % model.zones);
        let mut node = objects::node(&format!("worker-{number}"), &zone, "16");
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "192.168.0.1"}]);
        node
    };
    let service = |number: usize| {
        let name = service_name(number);
        objects::service("default", &name, &name)
    };
    let endpoint = objects::endpoint("192.168.0.1".parse().unwrap(), "worker-0", &zone_name(0));
    let mut kubernetes =
        objects::endpoint_slice("default", "kubernetes", "kubernetes", &[endpoint]);
    kubernetes["ports"] = json!([{"name": "https", "port": 6443, "protocol": "TCP"}]);
    (0..NODES).map(node).chain((0..model.services).map(service)).chain([kubernetes]).collect()
}

/// Writes the slices of all Services, starts the watches, and replaces one Pod of each of 100 Services.
async fn costs(cluster: &Cluster, model: &Model, divided: bool, nothing: Received) -> (Costs, f64) {
    let mut services: Vec<ServiceState> =
        (0..model.services).map(|number| ServiceState::new(model, number, divided)).collect();
    services.iter_mut().for_each(ServiceState::first);
    let all = |services: &[ServiceState]| -> Vec<Value> {
        services.iter().flat_map(|service| service.slices.iter()).map(|slice| json(slice)).collect()
    };
    let written = all(&services);
    cluster.create(&written).await.unwrap();
    let added = added(cluster, &written).await;

    let mut watchers = watchers(cluster, model.zones).await;
    let started = average(&mut watchers, |_, _| true).await;
    let mut changes: Vec<Slice> = Vec::new();
    for number in 0..CHANGES {
        let service = &mut services[number % model.services];
        changes.extend(service.replace_a_pod(number));
    }
    // What each node has received so far differs from zone to zone by at most a slice of `kubernetes`.
    let before: Vec<u64> = received(&mut watchers);
    let documents: Vec<Value> = changes.iter().map(json).collect();
    cluster.update(&documents).await.unwrap();
    let mut sum = Received::default();
    for (watcher, before) in watchers.iter_mut().zip(before) {
        let mine = changes.iter().filter(|slice| is_for(slice, &watcher.zone)).count() as u64;
        let now = watcher.received(|found| found >= before + mine).await;
        sum.objects += now.objects / NODES as f64;
        sum.bytes += now.bytes / NODES as f64;
    }
    drop(watchers);
    cluster.delete(&all(&services)).await.unwrap();
    (Costs { start: started.since(nothing), changes: sum.since(started) }, added)
}

fn received(watchers: &mut [Watcher]) -> Vec<u64> {
    watchers.iter_mut().map(|watcher| watcher.follower.slices_received().unwrap()).collect()
}

fn json(slice: &Slice) -> Value {
    let mut document = serde_json::to_value(slice).unwrap();
    document["kind"] = json!("EndpointSlice");
    document
}

/// How many bytes the API server adds to a slice that was written.
async fn added(cluster: &Cluster, written: &[Value]) -> f64 {
    let stored = cluster.list("EndpointSlice", Some("default")).await.unwrap();
    let sizes = |all: &[Value]| all.iter().map(|one| one.to_string().len() as f64).sum::<f64>();
    let kubernetes = |slice: &&Value| slice["metadata"]["name"] == "kubernetes";
    let other = stored.iter().find(kubernetes).map_or(0, |slice| slice.to_string().len()) as f64;
    (sizes(&stored) - other - sizes(written)) / written.len() as f64
}
