//! kube-proxy and ours on the same random Services and slices: what each has in the kernel does the
//! same with every packet, and `/routes` says so.
//!
//! ```text
//!  random writes ─► API server ─┬─► kube-proxy ─► nft -j list table ─┐
//!                               │                                    ├─ packets ─► same outcomes
//!                               └─► ours ───────► nft -j list table ─┘
//!                                     └─────────► /routes ───────────── same endpoints
//! ```
//!
//! Outcomes are: rejected, dropped, untouched, or an endpoint, with its share of the connections,
//! whether the client's address is replaced, and for how long the client stays with the endpoint.
//! `differential.rs` sends real packets, to a few Services that do not change.

mod churn;
mod ruleset;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::process::Command;

use churn::Churn;
use ruleset::{Packet, Ruleset};
use serde_json::{Value, json};
use zonewise_testbed::{Lent, eventually};

use crate::nodes::{TestNodes, cluster};

/// How often both come to rest in one sequence, and how many changes come before.
const RESTS: usize = 4;
const WRITES: usize = 10;
const FAMILIES: [(&str, bool); 2] = [("ip", false), ("ip6", true)];

/// How many sequences run: 3, or 100 of the 20,000 cases that `make test-long` asks for.
fn sequences() -> u64 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse::<u64>().ok());
    asked.map_or(3, |cases| (cases / 200).max(1))
}

/// Who sends packets, in each family. The second client is not in the source ranges of Services.
const SOURCES: [(&str, [&str; 2]); 4] = [
    ("pod", ["10.244.77.7", "fd00:10:244::77:7"]),
    ("client", ["192.0.2.5", "2001:db8:5::5"]),
    ("stranger", ["192.0.3.5", "2001:db8:6::5"]),
    ("node", ["192.168.0.1", "fd00:192:168::1"]),
];

/// The tables of a node by family, once there are some.
fn tables(nodes: &TestNodes, table: &str) -> Result<BTreeMap<bool, Ruleset>, String> {
    let read = |family: &str| {
        let list = || Command::new("nft").args(["-j", "list", "table", family, table]).output();
        let output = nodes.node("n1").namespace.enter(list);
        let output = output.expect("the nft program is needed: apt-get install nftables");
        let listing = serde_json::from_slice(&output.stdout);
        listing.map_err(|_| format!("{table}: {}", String::from_utf8_lossy(&output.stderr)))
    };
    FAMILIES.iter().map(|(family, v6)| Ok((*v6, Ruleset::new(&read(family)?)))).collect()
}

/// Where a Service is found: what, address, protocol, port.
type Frontend = (String, IpAddr, String, u64);

/// All places where the Services are found, and some where none is.
fn frontends(services: &[Value], node: [IpAddr; 2]) -> Vec<Frontend> {
    let mut all = Vec::new();
    for service in services {
        let name = service["metadata"]["name"].as_str().unwrap();
        let spec = &service["spec"];
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let ingress = list(&service["status"]["loadBalancer"]["ingress"]);
        let outside = ingress.iter().map(|one| one["ip"].clone()).chain(list(&spec["externalIPs"]));
        let addresses: Vec<IpAddr> = list(&spec["clusterIPs"])
            .into_iter()
            .chain(outside)
            .map(|ip| ip.as_str().unwrap().parse().unwrap())
            .collect();
        for port in list(&spec["ports"]) {
            let protocol = port["protocol"].as_str().unwrap().to_lowercase();
            let what = format!("{name} {}", port["name"].as_str().unwrap());
            let number = port["port"].as_u64().unwrap();
            let at = addresses.iter().map(|ip| (*ip, number));
            let node_port = port["nodePort"].as_u64();
            let at = at.chain(node_port.into_iter().flat_map(|port| node.map(|ip| (ip, port))));
            all.extend(at.map(|(ip, port)| (what.clone(), ip, protocol.clone(), port)));
        }
        all.extend(addresses.iter().map(|ip| (format!("{name}, no port"), *ip, "tcp".into(), 999)));
    }
    for ip in ["10.96.255.254", "fd00:96::ffff"] {
        all.push(("no Service".into(), ip.parse().unwrap(), "tcp".into(), 80));
    }
    all
}

/// What happens to packets of all sources to all frontends.
fn outcomes(
    tables: &BTreeMap<bool, Ruleset>,
    frontends: &[Frontend],
    node: [IpAddr; 2],
) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    for (what, destination, protocol, port) in frontends {
        for (who, addresses) in SOURCES {
            let v6 = destination.is_ipv6();
            let packet = Packet {
                source: addresses[usize::from(v6)].parse().unwrap(),
                destination: *destination,
                protocol: protocol.clone(),
                port: *port,
                from_node: who == "node",
                to_node: node.contains(destination),
            };
            let key = format!("{who} to {what} at {destination} {protocol} {port}");
            all.insert(key, tables[&v6].outcomes(&packet));
        }
    }
    all
}

fn difference(
    theirs: &BTreeMap<String, BTreeMap<String, u64>>,
    ours: &BTreeMap<String, BTreeMap<String, u64>>,
) -> Result<(), String> {
    let wrong: Vec<String> = theirs
        .iter()
        .filter(|(what, outcome)| ours.get(*what) != Some(outcome))
        .map(|(what, outcome)| format!("{what}:\n theirs {outcome:?}\n ours   {:?}", ours[what]))
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Kinds of outcomes: all of them have to be seen, or else the test would compare nothing.
const KINDS: [&str; 6] =
    ["rejected", "dropped", "untouched", "masqueraded", " for ", " of several"];

fn kinds(outcomes: &BTreeMap<String, u64>) -> Vec<&'static str> {
    let of = |kind: &&'static str| {
        outcomes.keys().any(|outcome| outcome.contains(*kind))
            || *kind == " of several" && outcomes.len() > 1
    };
    KINDS.into_iter().filter(of).collect()
}

/// Whether `/routes` names the endpoints to which our own rules lead a pod that calls ClusterIPs.
fn routes_agree(
    page: &str,
    services: &[Value],
    ours: &BTreeMap<String, BTreeMap<String, u64>>,
) -> Result<(), String> {
    let page: Value = serde_json::from_str(page).map_err(|error| error.to_string())?;
    for route in page["routes"].as_array().unwrap() {
        let text = |key: &str| route[key].as_str().unwrap();
        let of = |service: &&Value| {
            format!("default/{}", service["metadata"]["name"].as_str().unwrap()) == text("service")
        };
        let Some(service) = services.iter().find(of) else { continue };
        let is_local = service["spec"]["internalTrafficPolicy"] == "Local";
        let v6 = text("family") == "IPv6";
        let ips = service["spec"]["clusterIPs"].as_array().unwrap();
        let ip = ips.iter().find(|ip| ip.as_str().unwrap().contains(':') == v6).unwrap();
        let prefix = format!(
            "pod to {} {} at {} ",
            service["metadata"]["name"].as_str().unwrap(),
            text("port"),
            ip.as_str().unwrap()
        );
        let (key, found) =
            ours.iter().find(|(key, _)| key.starts_with(&prefix)).ok_or_else(|| prefix.clone())?;
        let expected: BTreeSet<String> = route[if is_local { "local" } else { "cluster" }]
            .as_array()
            .unwrap()
            .iter()
            .map(|endpoint| {
                let at: std::net::SocketAddr = endpoint.as_str().unwrap().parse().unwrap();
                format!("{} port {}", json!(at.ip()), at.port())
            })
            .collect();
        let found: BTreeSet<String> = found
            .keys()
            .filter(|outcome| outcome.contains(" port "))
            .map(|outcome| outcome.split(" for ").next().unwrap().to_owned())
            .collect();
        if found != expected {
            return Err(format!("{key}: {found:?}, and /routes says {expected:?}"));
        }
    }
    Ok(())
}

/// Both proxies, each in a network of its own, as the same node.
struct Twins {
    theirs: TestNodes,
    ours: TestNodes,
    /// Dropped last, when nothing uses it any more.
    cluster: Lent,
}

impl Twins {
    async fn start() -> Self {
        let cluster = cluster().await;
        let (mut theirs, mut ours) = (TestNodes::new(), TestNodes::new());
        let node = theirs.add(&cluster, "n1", "a");
        assert_eq!(node, ours.add(&cluster, "n1", "a"));
        cluster.create(&[node]).await.unwrap();
        theirs.start_kube_proxy(&cluster, "n1", &[]);
        ours.start_proxy(&cluster, "n1", &[]);
        Self { cluster, theirs, ours }
    }

    /// Compares all there is at this moment. Returns the kinds of outcomes.
    async fn compare(&self, barrier: &str) -> Result<BTreeSet<&'static str>, String> {
        let objects = self.cluster.objects().map_err(|error| error.to_string())?;
        let services =
            objects.list("Service", Some("default")).await.map_err(|error| error.to_string())?;
        let node = self.ours.node("n1");
        let node = [node.address(false), node.address(true)];
        let frontends = frontends(&services, node);
        let (theirs, ours) = (tables(&self.theirs, "kube-proxy")?, tables(&self.ours, "zonewise")?);
        let theirs = outcomes(&theirs, &frontends, node);
        let ours = outcomes(&ours, &frontends, node);
        for (who, all) in [("kube-proxy", &theirs), ("ours", &ours)] {
            if !all.values().flat_map(BTreeMap::keys).any(|outcome| outcome.contains(barrier)) {
                return Err(format!("{who} has not noticed {barrier}"));
            }
        }
        difference(&theirs, &ours)?;
        let page = self.ours.page("n1", 10249, "/routes").ok_or("no page /routes")?;
        routes_agree(&page, &services, &ours)?;
        Ok(ours.values().flat_map(kinds).collect())
    }
}

/// One sequence of changes. At each rest, a last change tells when both have noticed the others.
async fn sequence(seed: u64, twins: &Twins) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    let mut churn = Churn::new(seed, twins.cluster.objects().unwrap());
    for rest in 0..RESTS {
        for _ in 0..WRITES {
            churn.step().await;
        }
        let barrier = churn.barrier(seed, rest).await;
        let kinds = eventually(async || {
            let outcome = twins.compare(&barrier).await;
            outcome.map_err(|wrong| format!("seed {seed}:\n{}\n{wrong}", churn.log.join("\n")))
        })
        .await;
        seen.extend(kinds);
    }
    churn.end().await;
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_becomes_of_every_packet_as_with_kube_proxy() {
    let mut twins = Twins::start().await;
    let mut seen = BTreeSet::new();
    for seed in 0..sequences() {
        seen.extend(sequence(seed, &twins).await);
    }
    assert_eq!(seen, BTreeSet::from(KINDS));
    twins.theirs.proxy("n1").check().unwrap();
    twins.ours.proxy("n1").check().unwrap();
}
