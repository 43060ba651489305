//! The law of subset watches: whatever the slices, their labels and the node's place are, a proxy that
//! watches the slices of its zone alone programs what `route` says for all slices.
//!
//! ```text
//!  random writes ─► API server ─┬─ relay ─► a proxy with subset watches ─► rules ─┐
//!                               ├─ relay ─► a proxy that watches all ────► rules ─┼─ all equal
//!                               └─ list ──► --dry-run of all objects ────► rules ─┘
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use zonewise_proxy::config::Config;
use zonewise_proxy::dry_run;
use zonewise_proxy::testing::Follower;
use zonewise_testbed::{Cluster, Gate, Objects, User, eventually, objects};

use crate::common::live::Api;
use crate::common::proxy_config;

const NAMESPACES: [&str; 2] = ["default", "other"];
const SERVICES: [&str; 3] = ["web", "api", "dns"];
const ZONES: [&str; 3] = ["a", "b", "c"];
const REGIONS: [&str; 2] = ["r", "q"];
const PORTS: [(&str, u16, &str); 3] =
    [("http", 80, "TCP"), ("admin", 81, "TCP"), ("dns", 53, "UDP")];
/// How often the two proxies come to rest in one sequence, and how many writes come before.
const RESTS: usize = 3;
const WRITES: usize = 8;
/// How many sequences run at the same time.
const AT_ONCE: usize = 25;

/// How many sequences run: 12, or a twentieth of what `PROPTEST_CASES` asks for, which is 50 in `make test-all`.
fn sequences() -> u64 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse::<u64>().ok());
    asked.map_or(12, |cases| (cases / 20).max(1))
}

fn chance(rng: &mut Rng, one_in: u32) -> bool {
    rng.u32(..one_in) == 0
}

fn pick<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    all[rng.usize(..all.len())]
}

fn some_ports(rng: &mut Rng) -> Vec<Value> {
    let chosen = PORTS.iter().filter(|_| rng.bool());
    chosen
        .map(|(name, port, protocol)| json!({"name": name, "port": port, "protocol": protocol}))
        .collect()
}

fn service(rng: &mut Rng, namespace: &str, name: &str) -> Value {
    let mut object = objects::service(namespace, name, name);
    object["spec"].as_object_mut().unwrap().remove("selector");
    let families = match rng.u8(..3) {
        0 => json!(["IPv4"]),
        1 => json!(["IPv6"]),
        _ => json!(["IPv4", "IPv6"]),
    };
    let dual = families.as_array().unwrap().len() == 2;
    object["spec"]["ipFamilies"] = families;
    object["spec"]["ipFamilyPolicy"] = json!(if dual { "RequireDualStack" } else { "SingleStack" });
    let mut ports = some_ports(rng);
    if ports.is_empty() {
        ports.push(json!({"name": "http", "port": 80, "protocol": "TCP"}));
    }
    object["spec"]["ports"] = json!(ports);
    if chance(rng, 6) {
        object["spec"]["internalTrafficPolicy"] = json!("Local");
    }
    object
}

fn endpoint(rng: &mut Rng, v6: bool) -> Value {
    let number = rng.u8(1..30);
    let address = if v6 { format!("fd00::{number}") } else { format!("10.0.0.{number}") };
    let zone = pick(rng, &ZONES);
    let node = if chance(rng, 4) { "n1" } else { "n2" };
    let mut endpoint = objects::endpoint(address.parse().unwrap(), node, zone);
    let [ready, serving, terminating] =
        [[true, true, false], [true, true, false], [false, true, true], [false, false, false]]
            [rng.usize(..4)];
    endpoint["conditions"] =
        json!({"ready": ready, "serving": serving, "terminating": terminating});
    if rng.bool() {
        endpoint["hints"] = json!({"forZones": [{"name": pick(rng, &ZONES)}]});
    }
    endpoint
}

/// The labels that say who consumes a slice: none, one, both, or that of headless Services.
fn subset_labels(rng: &mut Rng, labels: &mut Value) {
    const FOR_ZONE: &str = "endpointslice.kubernetes.io/for-zone";
    const FOR_REGION: &str = "endpointslice.kubernetes.io/for-region";
    match rng.u8(..10) {
        0..3 => {}
        3..7 => labels[FOR_ZONE] = json!(pick(rng, &ZONES)),
        7 => labels[FOR_REGION] = json!(pick(rng, &REGIONS)),
        8 => {
            labels[FOR_ZONE] = json!(pick(rng, &ZONES));
            labels[FOR_REGION] = json!(pick(rng, &REGIONS));
        }
        _ => labels["service.kubernetes.io/headless"] = json!(""),
    }
}

/// A slice; its number decides its family, which cannot change.
fn slice(rng: &mut Rng, namespace: &str, number: usize) -> Value {
    let v6 = number % 2 == 1;
    let endpoints: Vec<Value> = (0..rng.usize(..4)).map(|_| endpoint(rng, v6)).collect();
    let service = pick(rng, &SERVICES);
    let name = format!("slice-{number}");
    let mut object = objects::endpoint_slice(namespace, service, &name, &endpoints);
    object["addressType"] = json!(if v6 { "IPv6" } else { "IPv4" });
    object["ports"] = json!(some_ports(rng));
    subset_labels(rng, &mut object["metadata"]["labels"]);
    if chance(rng, 6) {
        let shares = r#"{"v":1,"endpoints":{"a":1,"b":1},"from":{"a":{"a":0.75,"b":0.25},"b":{"a":0.25,"b":0.75}}}"#;
        object["metadata"]["annotations"] = json!({"zonewise.dev/zone-shares": shares});
    }
    object
}

fn node(rng: &mut Rng) -> Value {
    let mut object = objects::node("n1", pick(rng, &ZONES), "4");
    let labels = &mut object["metadata"]["labels"];
    if chance(rng, 6) {
        labels.as_object_mut().unwrap().remove("topology.kubernetes.io/zone");
    }
    if !chance(rng, 4) {
        labels["topology.kubernetes.io/region"] = json!(pick(rng, &REGIONS));
    }
    object["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": "192.168.0.1"},
        {"type": "InternalIP", "address": "fd00:192:168::1"},
    ]);
    object
}

/// The API server, what was written to it, and how to disturb it.
struct Churn<'a> {
    rng: Rng,
    objects: Objects,
    written: BTreeMap<(String, String, String), Value>,
    relays: &'a [Gate],
    /// Makes the API server forget its history, if it can.
    compact: &'a (dyn Fn() + Sync),
    log: Vec<String>,
}

impl Churn<'_> {
    async fn put(&mut self, object: Value) {
        let key = key(&object);
        self.log.push(format!("put {object}"));
        match self.written.insert(key, object.clone()) {
            Some(_) => self.objects.update(&[object]).await.unwrap(),
            None => self.objects.create(&[object]).await.unwrap(),
        }
    }

    async fn delete(&mut self, kind: &str, namespace: &str, name: &str) {
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        if let Some(object) = self.written.remove(&key) {
            self.log.push(format!("delete {key:?}"));
            self.objects.delete(&[object]).await.unwrap();
        }
    }

    /// One random change of the cluster, and now and then a broken connection after it.
    async fn step(&mut self) {
        let namespace = pick(&mut self.rng, &NAMESPACES);
        let (name, number) = (pick(&mut self.rng, &SERVICES), self.rng.usize(..6));
        match self.rng.u8(..20) {
            0..2 => {
                self.delete("Service", namespace, name).await;
                let object = service(&mut self.rng, namespace, name);
                self.put(object).await;
            }
            2 => self.delete("Service", namespace, name).await,
            3..13 => {
                let object = slice(&mut self.rng, namespace, number);
                self.put(object).await;
            }
            13..16 => {
                self.delete("EndpointSlice", namespace, &format!("slice-{number}")).await;
            }
            16..19 => {
                let object = node(&mut self.rng);
                self.put(object).await;
            }
            _ => (self.compact)(),
        }
        if chance(&mut self.rng, 6) {
            self.log.push("cut".into());
            self.relays.iter().for_each(Gate::reset_all);
        }
    }

    /// The rules for all objects, as `--dry-run` prints them.
    async fn expected(&self, config: &Config) -> String {
        let mut files = Vec::new();
        for kind in ["Node", "Service", "EndpointSlice"] {
            for mut object in self.objects.list(kind, None).await.unwrap() {
                object["kind"] = json!(kind);
                files.push((kind.to_owned(), object.to_string()));
            }
        }
        dry_run::tables(config, &files).unwrap()
    }
}

fn key(object: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

/// Lines that differ, for the message.
fn difference(found: &str, expected: &str) -> String {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (found, expected) = (lines(found), lines(expected));
    let only = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
        one.difference(other).cloned().collect::<Vec<_>>().join("\n")
    };
    format!("has\n{}\nand misses\n{}", only(&found, &expected), only(&expected, &found))
}

/// Runs one sequence of changes against a server. Ends with what was written deleted.
async fn sequence(
    seed: u64,
    objects: Objects,
    access: [(Client, Gate); 2],
    compact: &(dyn Fn() + Sync),
) {
    let config = proxy_config("n1");
    let [(one, first), (other, second)] = access;
    let mut with_subsets = Follower::start(&one, config.clone(), true).unwrap();
    let mut without = Follower::start(&other, config.clone(), false).unwrap();
    let relays = [first, second];
    let (rng, written, log) = (Rng::with_seed(seed), BTreeMap::new(), Vec::new());
    let mut churn = Churn { rng, objects, written, relays: &relays, compact, log };
    let object = node(&mut churn.rng);
    churn.put(object).await;
    for _ in 0..RESTS {
        for _ in 0..WRITES {
            churn.step().await;
        }
        let expected = churn.expected(&config).await;
        eventually(|| {
            let found = [with_subsets.rules(), without.rules()].map(Option::unwrap_or_default);
            let wrong = found.iter().find(|found| **found != expected);
            let explain = |found: &String| {
                let log = churn.log.join("\n");
                format!("seed {seed}:\n{log}\n{}", difference(found, &expected))
            };
            std::future::ready(wrong.map_or(Ok(()), |found| Err(explain(found))))
        })
        .await;
    }
    let written: Vec<Value> = churn.written.into_values().collect();
    churn.objects.delete(&written).await.unwrap();
}

async fn embedded_sequence(seed: u64) {
    let api = Api::start().await;
    api.objects.create(&[objects::namespace("other")]).await.unwrap();
    let relay = || Gate::open_to(api.server.address().port()).unwrap();
    let (one, other) = (relay(), relay());
    let clients = [api.client_at(one.port()).await, api.client_at(other.port()).await];
    let [first, second] = clients;
    let access = [(first, one), (second, other)];
    sequence(seed, api.objects.clone(), access, &|| api.server.compact()).await;
}

/// On the embedded API server, whose history is dropped now and then: watches have to list again.
#[tokio::test(flavor = "multi_thread")]
async fn c5_c7_c8_subset_watches_program_what_route_says_for_all_slices() {
    let seeds: Vec<u64> = (0..sequences()).collect();
    for chunk in seeds.chunks(AT_ONCE) {
        let mut running = JoinSet::new();
        for seed in chunk {
            running.spawn(embedded_sequence(*seed));
        }
        while let Some(done) = running.join_next().await {
            done.unwrap();
        }
    }
}

/// The same on kube-apiserver, a few times.
#[tokio::test(flavor = "multi_thread")]
async fn c5_c7_c8_subset_watches_program_what_route_says_on_kube_apiserver() {
    let cluster = Cluster::start().await.unwrap();
    cluster.create(&[objects::namespace("other")]).await.unwrap();
    for seed in 1_000..1_000 + sequences().div_ceil(17) {
        let relay = async || {
            let gate = Gate::open(&cluster).await.unwrap();
            (cluster.client_through(User::Admin, &gate).unwrap(), gate)
        };
        let access = [relay().await, relay().await];
        sequence(seed, cluster.objects().unwrap(), access, &|| ()).await;
    }
}
