//! Own arithmetic: what nodes send, where endpoints are, which way traffic goes, and what comes of it.
//! Everything is read from the JSON of the objects; no function of the product is used.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::documents::Cluster;

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) zone: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) milli: u64,
    pub(crate) ready: bool,
    pub(crate) control: bool,
}

/// A ready endpoint in one address family.
pub(crate) struct Endpoint {
    pub(crate) zone: Option<String>,
    pub(crate) region: Option<String>,
}

/// Whether places are zones or regions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Zones,
    Regions,
}

/// What a zone or region sends.
pub(crate) struct Place {
    pub(crate) nodes: u64,
    pub(crate) milli: u64,
    pub(crate) share: f64,
}

/// A cluster as the model reads it.
pub(crate) struct World<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) nodes: Vec<Node>,
    pub(crate) service: &'a Value,
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

impl<'a> World<'a> {
    pub(crate) fn of(cluster: &'a Cluster) -> Self {
        let nodes = cluster.objects.iter().filter(|object| object["kind"] == "Node").map(|node| {
            let labels = &node["metadata"]["labels"];
            let cpu = node["status"]["allocatable"]["cpu"].as_str();
            let milli = cpu.map_or(0, |cpu| match cpu.strip_suffix('m') {
                Some(milli) => milli.parse().unwrap(),
                None => cpu.parse::<f64>().unwrap() as u64 * 1000,
            });
            Node {
                name: text(&node["metadata"]["name"]).unwrap(),
                zone: text(&labels["topology.kubernetes.io/zone"]),
                region: text(&labels["topology.kubernetes.io/region"]),
                milli,
                ready: node["status"]["conditions"][0]["status"] == "True",
                control: !labels["node-role.kubernetes.io/control-plane"].is_null(),
            }
        });
        let service = cluster.objects.iter().find(|object| object["kind"] == "Service").unwrap();
        Self { cluster, nodes: nodes.collect(), service }
    }

    pub(crate) fn families(&self) -> Vec<String> {
        let families = self.service["spec"]["ipFamilies"].as_array().unwrap();
        families.iter().map(|family| text(family).unwrap()).collect()
    }

    pub(crate) fn node(&self, name: &Value) -> Option<&Node> {
        self.nodes.iter().find(|node| *name == *node.name)
    }

    fn at(node: &Node, by: By) -> Option<&str> {
        if by == By::Zones { node.zone.as_deref() } else { node.region.as_deref() }
    }

    /// The nodes that count.
    pub(crate) fn counted(&self, by: By) -> Vec<&Node> {
        let counts = |node: &&Node| node.ready && !node.control && Self::at(node, by).is_some();
        self.nodes.iter().filter(counts).collect()
    }

    /// Whether nodes are counted, because the CPU of one is not known.
    pub(crate) fn counts_nodes(&self, by: By) -> bool {
        self.counted(by).iter().any(|node| node.milli == 0)
    }

    /// The part of all traffic that a node sends.
    fn weight(&self, node: &Node, by: By) -> f64 {
        if self.counts_nodes(by) { 1.0 } else { node.milli as f64 }
    }

    /// What each zone or region sends.
    pub(crate) fn places(&self, by: By) -> BTreeMap<String, Place> {
        let counted = self.counted(by);
        let all: f64 = counted.iter().map(|node| self.weight(node, by)).sum();
        let mut places: BTreeMap<String, (Place, f64)> = BTreeMap::new();
        for node in counted {
            let name = Self::at(node, by).unwrap().to_owned();
            let none = (Place { nodes: 0, milli: 0, share: 0.0 }, 0.0);
            let (place, sum) = places.entry(name).or_insert(none);
            place.nodes += 1;
            place.milli += node.milli;
            *sum += self.weight(node, by);
        }
        let share = |(place, sum): (Place, f64)| Place { share: sum / all, ..place };
        places.into_iter().map(|(name, place)| (name, share(place))).collect()
    }

    pub(crate) fn pods(&self) -> Vec<&Value> {
        self.cluster.objects.iter().filter(|object| object["kind"] == "Pod").collect()
    }

    pub(crate) fn is_ready(pod: &Value) -> bool {
        pod["status"]["conditions"][0]["status"] == "True"
            && pod["metadata"]["deletionTimestamp"].is_null()
    }

    /// The ready endpoints of an address family.
    pub(crate) fn endpoints(&self, family: &str) -> Vec<Endpoint> {
        let pods = self.pods().into_iter().filter(|pod| Self::is_ready(pod));
        pods.filter_map(|pod| {
            let node = self.node(&pod["spec"]["nodeName"])?;
            let ips = pod["status"]["podIPs"].as_array().unwrap().iter();
            let mut ips = ips.map(|ip| ip["ip"].as_str().unwrap());
            ips.find(|ip| ip.contains(':') == (family == "IPv6"))?;
            Some(Endpoint { zone: node.zone.clone(), region: node.region.clone() })
        })
        .collect()
    }

    /// The largest part of the traffic that can stay at home without overload.
    pub(crate) fn best(&self, family: &str, by: By) -> Option<f64> {
        let (places, endpoints) = (self.places(by), self.endpoints(family));
        let here = |name: &str| {
            let at = |one: &&Endpoint| {
                let place = if by == By::Zones { &one.zone } else { &one.region };
                place.as_deref() == Some(name)
            };
            endpoints.iter().filter(at).count() as f64 / endpoints.len() as f64
        };
        let sum = places.iter().map(|(name, place)| place.share.min(here(name))).sum();
        (!places.is_empty() && !endpoints.is_empty()).then_some(sum)
    }
}

/// What a proxy understands.
#[derive(Clone, Copy)]
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) shares_and_subsets: bool,
    /// Uses hints only where the Service asks for them in a way that Kubernetes knows.
    pub(crate) only_asked: bool,
}

pub(crate) const PROXIES: [Proxy; 3] = [
    Proxy { name: "zonewise proxy", shares_and_subsets: true, only_asked: false },
    Proxy { name: "kube-proxy", shares_and_subsets: false, only_asked: false },
    Proxy { name: "Cilium", shares_and_subsets: false, only_asked: true },
];

/// Which way the traffic of a node goes.
pub(crate) struct Way {
    pub(crate) mode: &'static str,
    pub(crate) reason: &'static str,
    /// Addresses with their part of the node's traffic.
    pub(crate) to: Vec<(String, f64)>,
}

/// An endpoint in a slice.
struct Listed<'a> {
    json: &'a Value,
    address: String,
}

impl Listed<'_> {
    fn flag(&self, name: &str, default: bool) -> bool {
        self.json["conditions"][name].as_bool().unwrap_or(default)
    }

    fn hints(&self, kind: &str) -> Vec<&str> {
        let list = self.json["hints"][kind].as_array();
        list.into_iter().flatten().filter_map(|hint| hint["name"].as_str()).collect()
    }

    fn zone(&self) -> &str {
        self.json["zone"].as_str().unwrap_or("")
    }
}

fn listed<'a>(slices: &[&'a Value]) -> Vec<Listed<'a>> {
    let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().unwrap());
    let address = |json: &Value| json["addresses"][0].as_str().unwrap().to_owned();
    endpoints.map(|json| Listed { json, address: address(json) }).collect()
}

/// The slices of the Service in an address family.
fn slices<'a>(cluster: &'a Cluster, family: &str) -> Vec<&'a Value> {
    let of_family =
        |object: &&Value| object["kind"] == "EndpointSlice" && object["addressType"] == family;
    cluster.objects.iter().filter(of_family).collect()
}

const FOR_ZONE: &str = "endpointslice.kubernetes.io/for-zone";
const FOR_REGION: &str = "endpointslice.kubernetes.io/for-region";

/// The slices that a node uses, and what the labels decide: a mode and a reason.
fn chosen<'a>(
    all: Vec<&'a Value>,
    node: &Node,
    proxy: Proxy,
) -> (Vec<&'a Value>, Option<(&'static str, &'static str)>) {
    if !proxy.shares_and_subsets {
        return (all, None);
    }
    let label = |slice: &Value, key: &str| text(&slice["metadata"]["labels"][key]);
    let is_mine = |slice: &&Value| match (label(slice, FOR_ZONE), label(slice, FOR_REGION)) {
        (Some(zone), _) => node.zone.as_ref().is_none_or(|mine| *mine == zone),
        (None, Some(region)) => node.region.as_ref().is_none_or(|mine| *mine == region),
        (None, None) => true,
    };
    let mine: Vec<&Value> = all.iter().copied().filter(is_mine).collect();
    let has_ready = listed(&mine).iter().any(|one| one.flag("ready", true));
    if mine.len() < all.len() && !has_ready {
        return (all, Some(("any", "SubsetEmpty")));
    }
    let kind = |slice: &&Value| match (label(slice, FOR_ZONE), label(slice, FOR_REGION)) {
        (Some(_), _) if node.zone.is_some() => Some(("same-zone", "ZoneSubset")),
        (None, Some(_)) if node.region.is_some() => Some(("same-region", "RegionSubset")),
        (None, None) => None,
        _ => Some(("any", "NodeWithoutZone")),
    };
    let kinds: BTreeSet<_> = mine.iter().map(kind).collect();
    let scope = match kinds.len() {
        0 => None,
        1 => kinds.into_iter().next().flatten(),
        _ => Some(("any", "SubsetsMixed")),
    };
    (mine, scope)
}

/// Which way a node sends the traffic of the Service.
pub(crate) fn way(world: &World<'_>, family: &str, node: &Node, proxy: Proxy) -> Way {
    let (slices, scope) = chosen(slices(world.cluster, family), node, proxy);
    let all = listed(&slices);
    let even = |list: Vec<&Listed<'_>>| {
        let part = 1.0 / list.len() as f64;
        list.into_iter().map(|one| (one.address.clone(), part)).collect()
    };
    let ready: Vec<&Listed<'_>> = all.iter().filter(|one| one.flag("ready", true)).collect();
    if ready.is_empty() {
        let last: Vec<&Listed<'_>> = all
            .iter()
            .filter(|one| one.flag("serving", true) && one.flag("terminating", false))
            .collect();
        return match last.is_empty() {
            true => Way { mode: "any", reason: "NoEndpoints", to: Vec::new() },
            false => Way { mode: "terminating", reason: "OnlyTerminating", to: even(last) },
        };
    }
    let way = match closest(world, node, proxy, &slices, &ready) {
        Ok((mode, reason, to)) => Way { mode, reason, to },
        Err(reason) => Way { mode: "any", reason, to: even(ready) },
    };
    match scope {
        Some((mode, reason)) if way.mode == "any" => Way { mode, reason, ..way },
        _ => way,
    }
}

type Closest = (&'static str, &'static str, Vec<(String, f64)>);

fn closest(
    world: &World<'_>,
    node: &Node,
    proxy: Proxy,
    slices: &[&Value],
    ready: &[&Listed<'_>],
) -> Result<Closest, &'static str> {
    let auto =
        world.service["metadata"]["annotations"]["service.kubernetes.io/topology-mode"] == "Auto";
    let asked = auto || !world.service["spec"]["trafficDistribution"].is_null();
    if proxy.only_asked && !asked {
        return Err("HintsNotAsked");
    }
    let node_hints = hinted(ready, "forNodes", Some(&node.name), "NoHintForNode");
    if let Ok(to) = node_hints {
        return Ok(("same-node", "SameNodeHints", to));
    }
    let mut first = None;
    if proxy.shares_and_subsets {
        match shares(node, slices, ready) {
            Some(Ok(to)) => return Ok(("shares", "SharesApplied", to)),
            Some(Err(reason)) => first = Some(reason),
            None => {}
        }
    }
    match hinted(ready, "forZones", node.zone.as_deref(), "NoHintForZone") {
        Ok(to) => Ok(("same-zone", "SameZoneHints", to)),
        Err(zone) => {
            let by_node = node_hints.err().filter(|reason| *reason != "NoHints");
            let hints = if zone == "NoHints" { by_node.unwrap_or(zone) } else { zone };
            Err(first.unwrap_or(hints))
        }
    }
}

fn hinted(
    ready: &[&Listed<'_>],
    kind: &str,
    mine: Option<&str>,
    none: &'static str,
) -> Result<Vec<(String, f64)>, &'static str> {
    let without = ready.iter().filter(|one| one.hints(kind).is_empty()).count();
    if without > 0 {
        return Err(if without == ready.len() { "NoHints" } else { "HintMissing" });
    }
    let mine = mine.ok_or("NodeWithoutZone")?;
    let to: Vec<&&Listed<'_>> =
        ready.iter().filter(|one| one.hints(kind).contains(&mine)).collect();
    match to.len() {
        0 => Err(none),
        count => Ok(to.iter().map(|one| (one.address.clone(), 1.0 / count as f64)).collect()),
    }
}

/// The endpoints by zone shares; `None` if no slice carries any.
fn shares(
    node: &Node,
    slices: &[&Value],
    ready: &[&Listed<'_>],
) -> Option<Result<Vec<(String, f64)>, &'static str>> {
    let texts: Vec<Option<&str>> = slices
        .iter()
        .map(|slice| slice["metadata"]["annotations"]["zonewise.dev/zone-shares"].as_str())
        .collect();
    texts.iter().any(Option::is_some).then(|| {
        if texts.iter().any(|text| *text != texts[0]) {
            return Err("SharesDisagree");
        }
        let shares: Value = serde_json::from_str(texts[0].unwrap()).unwrap();
        let zone = node.zone.as_deref().ok_or("NodeWithoutZone")?;
        let from = shares["from"][zone].as_object().ok_or("SharesWithoutZone")?;
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        for one in ready {
            *counts.entry(one.zone()).or_default() += 1.0;
        }
        let wanted = |zone: &str| from.get(zone).and_then(Value::as_f64).unwrap_or(0.0);
        let sum: f64 = counts.keys().map(|zone| wanted(zone)).sum();
        if sum == 0.0 {
            return Err("SharesStale");
        }
        let then = |zone: &str| shares["endpoints"][zone].as_f64().unwrap_or(0.0);
        let all_then: f64 =
            shares["endpoints"].as_object().unwrap().keys().map(|zone| then(zone)).sum();
        for (zone, count) in &counts {
            let now = wanted(zone) / sum * ready.len() as f64 / count;
            if wanted(zone) > 0.0 && now > 1.2 * wanted(zone) * all_then / then(zone) {
                return Err("SharesStale");
            }
        }
        let part = |one: &Listed<'_>| wanted(one.zone()) / sum / counts[one.zone()];
        let to = ready.iter().map(|one| (one.address.clone(), part(one)));
        Ok(to.filter(|(_, part)| *part > 0.0).collect())
    })
}

/// Traffic from one zone or region.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) share: f64,
    /// What its nodes do (the rank of the mode, the reason), and their part of all traffic.
    pub(crate) ways: BTreeMap<(usize, &'static str), f64>,
    /// The part of the zone's traffic that goes to each zone.
    pub(crate) to: BTreeMap<String, f64>,
    pub(crate) used: BTreeSet<String>,
}

impl Row {
    pub(crate) fn mode(&self) -> String {
        let ranks: BTreeSet<usize> = self.ways.keys().map(|(rank, _)| *rank).collect();
        ranks.into_iter().map(|rank| MODES[rank]).collect::<Vec<_>>().join(",")
    }

    /// The reasons of the closest mode.
    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        let first = self.ways.keys().next().map(|(rank, _)| *rank);
        let same = self.ways.keys().filter(|(rank, _)| Some(*rank) == first);
        same.map(|(_, reason)| *reason).collect()
    }

    /// Mode, reason and part of the zone's traffic of its nodes, if they differ.
    pub(crate) fn parts(&self) -> Vec<(&'static str, &'static str, f64)> {
        let part =
            |(way, part): (&(usize, &'static str), &f64)| (MODES[way.0], way.1, part / self.share);
        self.ways.iter().filter(|_| self.ways.len() > 1).map(part).collect()
    }

    /// Whether some of its nodes keep traffic near.
    pub(crate) fn is_near(&self) -> bool {
        self.ways.keys().any(|(rank, _)| *rank < 4)
    }

    /// Whether all of them do.
    pub(crate) fn is_near_everywhere(&self) -> bool {
        self.ways.keys().all(|(rank, _)| *rank < 4)
    }
}

const MODES: [&str; 6] = ["same-node", "same-zone", "shares", "same-region", "terminating", "any"];

/// Traffic from every zone or region to every other.
pub(crate) struct Matrix {
    pub(crate) rows: BTreeMap<String, Row>,
    pub(crate) in_zone: Option<f64>,
    /// The overload of each endpoint, by address.
    pub(crate) overload: BTreeMap<String, f64>,
    /// The zone or region of each endpoint; empty if it has none.
    pub(crate) homes: BTreeMap<String, String>,
}

/// Sends the traffic of every node that counts.
pub(crate) fn matrix(world: &World<'_>, family: &str, proxy: Proxy, by: By) -> Matrix {
    let all = listed(&slices(world.cluster, family));
    let home = |one: &Listed<'_>| match by {
        By::Zones => one.zone().to_owned(),
        By::Regions => {
            let node = world.node(&one.json["nodeName"]);
            node.and_then(|node| node.region.clone()).unwrap_or_default()
        }
    };
    let homes: BTreeMap<String, String> =
        all.iter().map(|one| (one.address.clone(), home(one))).collect();
    let ready = all.iter().filter(|one| one.flag("ready", true));
    let mut loads: BTreeMap<String, f64> = ready.map(|one| (one.address.clone(), 0.0)).collect();
    let counted = world.counted(by);
    let total: f64 = counted.iter().map(|node| world.weight(node, by)).sum();
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let (mut stays, mut lost) = (0.0, counted.is_empty());
    for node in counted {
        let share = world.weight(node, by) / total;
        let way = way(world, family, node, proxy);
        let name = World::at(node, by).unwrap();
        let row = rows.entry(name.to_owned()).or_default();
        row.share += share;
        let rank = MODES.iter().position(|mode| *mode == way.mode).unwrap();
        *row.ways.entry((rank, way.reason)).or_default() += share;
        lost |= way.to.is_empty();
        for (address, part) in way.to {
            *row.to.entry(homes[&address].clone()).or_default() += part * share;
            if homes[&address] == name {
                stays += part * share;
            }
            *loads.entry(address.clone()).or_default() += part * share;
            row.used.insert(address);
        }
    }
    for row in rows.values_mut() {
        let share = row.share;
        row.to.values_mut().for_each(|part| *part /= share);
    }
    let fair = 1.0 / loads.len() as f64;
    let overload = loads.into_iter().map(|(one, load)| (one, load / fair - 1.0)).collect();
    Matrix { rows, in_zone: (!lost).then_some(stays), overload, homes }
}
