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

    /// The Pods of the Service. Those of kube-proxy and Cilium have other labels.
    pub(crate) fn pods(&self) -> Vec<&Value> {
        let of_service =
            |one: &&Value| one["kind"] == "Pod" && one["metadata"]["labels"]["app"] == "web";
        self.cluster.objects.iter().filter(of_service).collect()
    }

    /// Whether traffic to the cluster IP stays on its node.
    pub(crate) fn is_local(&self) -> bool {
        self.service["spec"]["internalTrafficPolicy"] == "Local"
    }

    /// Whether traffic from outside stays on the node that it arrives at.
    pub(crate) fn is_local_outside(&self) -> bool {
        self.service["spec"]["externalTrafficPolicy"] == "Local"
    }

    /// Whether it can be reached from outside.
    pub(crate) fn has_node_port(&self) -> bool {
        !self.service["spec"]["ports"][0]["nodePort"].is_null()
    }

    /// What it is to proxies.
    pub(crate) fn kind(&self) -> &'static str {
        let spec = &self.service["spec"];
        match (&spec["type"], &spec["clusterIP"], &spec["selector"]) {
            (kind, _, _) if kind == "ExternalName" => "externalName",
            (_, address, _) if address == "None" => "headless",
            (_, _, selector) if selector.is_null() => "withoutSelector",
            _ if self.is_local() => "localPolicy",
            _ => "routed",
        }
    }

    /// The address families that proxies route.
    pub(crate) fn routed_families(&self) -> Vec<String> {
        let routed = !["headless", "externalName"].contains(&self.kind());
        if routed { self.families() } else { Vec::new() }
    }

    /// Whether an EndpointSlice is stored.
    pub(crate) fn has_slices(&self) -> bool {
        self.cluster.objects.iter().any(|one| one["kind"] == "EndpointSlice")
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) hints: bool,
    pub(crate) node_hints: bool,
    pub(crate) shares: bool,
    pub(crate) subsets: bool,
    pub(crate) asked: Asked,
}

/// Where a proxy uses hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Wherever there are some.
    Anyway,
    /// Only where the Service asks for them in a way that Kubernetes knows.
    ByAnyKey,
    /// Only where the topology annotation asks for them.
    ByAuto,
}

const ZONEWISE: Proxy = Proxy {
    name: "zonewise proxy",
    hints: true,
    node_hints: true,
    shares: true,
    subsets: true,
    asked: Asked::Anyway,
};
const KUBE_PROXY: Proxy = Proxy { name: "kube-proxy", shares: false, subsets: false, ..ZONEWISE };

/// The proxies that can run on a node.
pub(crate) const PROXIES: [Proxy; 4] = [
    ZONEWISE,
    KUBE_PROXY,
    Proxy { name: "Cilium", asked: Asked::ByAnyKey, ..KUBE_PROXY },
    Proxy { name: "Cilium without serviceTopology", hints: false, node_hints: false, ..KUBE_PROXY },
];

/// zonewise's proxy with some of its feature gates off.
pub(crate) fn gated(off: &[&str]) -> Proxy {
    let on = |gate: &str| !off.contains(&gate);
    Proxy {
        name: ZONEWISE.name,
        hints: on("hints"),
        node_hints: on("nodeHints"),
        shares: on("shares") && on("preference"),
        subsets: on("subsetting"),
        asked: if on("preference") { Asked::Anyway } else { Asked::ByAuto },
    }
}

/// The proxy of each node.
pub(crate) type ProxyOf<'a> = &'a dyn Fn(&Node) -> Proxy;

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
    is_local: bool,
) -> (Vec<&'a Value>, Option<(&'static str, &'static str)>) {
    if !proxy.subsets || is_local {
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

fn even(list: Vec<&Listed<'_>>) -> Vec<(String, f64)> {
    let part = 1.0 / list.len() as f64;
    list.into_iter().map(|one| (one.address.clone(), part)).collect()
}

/// Which way a node sends traffic to the cluster IP.
pub(crate) fn way(world: &World<'_>, family: &str, node: &Node, proxy: Proxy) -> Way {
    if world.is_local() {
        return on_node(world, family, node);
    }
    anywhere(world, family, node, proxy)
}

/// Which way traffic goes that must stay on its node.
pub(crate) fn on_node(world: &World<'_>, family: &str, node: &Node) -> Way {
    let all = listed(&slices(world.cluster, family));
    let here: Vec<&Listed<'_>> =
        all.iter().filter(|one| one.json["nodeName"] == *node.name).collect();
    let pick = |good: &dyn Fn(&Listed<'_>) -> bool| -> Vec<&Listed<'_>> {
        here.iter().copied().filter(|one| good(one)).collect()
    };
    let ready = pick(&|one| one.flag("ready", true));
    let last = pick(&|one| one.flag("serving", true) && one.flag("terminating", false));
    let (reason, to) = match (ready.is_empty(), last.is_empty()) {
        (false, _) => ("LocalOnly", even(ready)),
        (true, false) => ("OnlyTerminating", even(last)),
        (true, true) => ("NoLocalEndpoint", Vec::new()),
    };
    Way { mode: "local", reason, to }
}

/// The addresses of all endpoints that could serve, and whether there is any endpoint.
pub(crate) fn usable(world: &World<'_>, family: &str) -> (bool, bool) {
    let all = listed(&slices(world.cluster, family));
    let serves = |one: &Listed<'_>| {
        one.flag("ready", true) || one.flag("serving", true) && one.flag("terminating", false)
    };
    (all.iter().any(serves), !all.is_empty())
}

/// The number of ready endpoints in the stored slices.
pub(crate) fn ready_in_slices(world: &World<'_>, family: &str) -> usize {
    let all = listed(&slices(world.cluster, family));
    all.iter().filter(|one| one.flag("ready", true)).count()
}

/// Which way traffic goes that may use endpoints on all nodes.
pub(crate) fn anywhere(world: &World<'_>, family: &str, node: &Node, proxy: Proxy) -> Way {
    let is_local = world.is_local() || world.is_local_outside();
    let (slices, scope) = chosen(slices(world.cluster, family), node, proxy, is_local);
    let all = listed(&slices);
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
    let asked = match proxy.asked {
        Asked::Anyway => true,
        Asked::ByAnyKey => auto || !world.service["spec"]["trafficDistribution"].is_null(),
        Asked::ByAuto => auto,
    };
    if !proxy.hints {
        return Err("HintsGateOff");
    }
    if !asked {
        return Err("HintsNotAsked");
    }
    let node_hints = if proxy.node_hints {
        hinted(ready, "forNodes", Some(&node.name), "NoHintForNode")
    } else {
        Err("NoHints")
    };
    if let Ok(to) = node_hints {
        return Ok(("same-node", "SameNodeHints", to));
    }
    let mut first = None;
    if proxy.shares {
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
    /// The part of the zone's traffic that is dropped.
    pub(crate) dropped: f64,
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
        self.ways.keys().any(|(rank, _)| NEAR.contains(rank))
    }

    /// Whether all of them do.
    pub(crate) fn is_near_everywhere(&self) -> bool {
        self.ways.keys().all(|(rank, _)| NEAR.contains(rank))
    }
}

const MODES: [&str; 7] =
    ["local", "same-node", "same-zone", "shares", "same-region", "terminating", "any"];
/// The modes that keep traffic closer than without zone routing.
const NEAR: std::ops::Range<usize> = 1..5;

/// Traffic from every zone or region to every other.
pub(crate) struct Matrix {
    pub(crate) rows: BTreeMap<String, Row>,
    pub(crate) in_zone: Option<f64>,
    /// The overload of each endpoint, by address.
    pub(crate) overload: BTreeMap<String, f64>,
    /// The zone or region of each endpoint; empty if it has none.
    pub(crate) homes: BTreeMap<String, String>,
    /// The part of all traffic that is dropped.
    pub(crate) dropped: f64,
    /// The nodes that drop it.
    pub(crate) dropping: BTreeSet<String>,
}

impl Matrix {
    /// Whether traffic goes the same ways.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let ways = |one: &Self| -> Vec<_> {
            one.rows.values().map(|row| (row.mode(), rounded(&row.to))).collect()
        };
        ways(self) == ways(other) && rounded(&self.overload) == rounded(&other.overload)
    }

    /// The modes that occur, each once.
    pub(crate) fn modes(&self) -> BTreeSet<String> {
        let modes = self.rows.values().map(Row::mode);
        modes.flat_map(|mode| mode.split(',').map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// The overload of the most loaded endpoint.
    pub(crate) fn most(&self) -> Option<f64> {
        self.overload.values().copied().reduce(f64::max)
    }
}

/// Parts with six digits.
pub(crate) fn rounded(parts: &BTreeMap<String, f64>) -> Vec<(String, i64)> {
    parts.iter().map(|(name, part)| (name.clone(), (part * 1e6).round() as i64)).collect()
}

/// Sends the traffic of every node that counts, with the same proxy on every node.
pub(crate) fn matrix(world: &World<'_>, family: &str, proxy: Proxy, by: By) -> Matrix {
    mixed_matrix(world, family, &|_| proxy, by)
}

/// The same with several proxies.
pub(crate) fn mixed_matrix(
    world: &World<'_>,
    family: &str,
    proxy_of: ProxyOf<'_>,
    by: By,
) -> Matrix {
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
    let is_routed = world.routed_families().iter().any(|one| one == family);
    let counted = if is_routed { world.counted(by) } else { Vec::new() };
    let total: f64 = counted.iter().map(|node| world.weight(node, by)).sum();
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let (mut stays, mut lost) = (0.0, counted.is_empty());
    let (mut dropped, mut dropping) = (0.0, BTreeSet::new());
    for node in counted {
        let share = world.weight(node, by) / total;
        let way = way(world, family, node, proxy_of(node));
        let name = World::at(node, by).unwrap();
        let row = rows.entry(name.to_owned()).or_default();
        row.share += share;
        let rank = MODES.iter().position(|mode| *mode == way.mode).unwrap();
        *row.ways.entry((rank, way.reason)).or_default() += share;
        if way.to.is_empty() {
            lost = true;
            dropped += share;
            row.dropped += share;
            dropping.insert(node.name.clone());
        }
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
        row.dropped /= share;
    }
    let fair = 1.0 / loads.len() as f64;
    let overload = loads.into_iter().map(|(one, load)| (one, load / fair - 1.0)).collect();
    let in_zone = (!lost).then_some(stays);
    Matrix { rows, in_zone, overload, homes, dropped, dropping }
}
