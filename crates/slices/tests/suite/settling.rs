//! B20: once a Service is quiet, its routing is as good as a fresh decision would make it.
//!
//! The figures are computed by `zonewise_testbed::traffic` from the written slices and the nodes.

use std::collections::BTreeMap;

use crate::common::{TestCluster, code, map};
use proptest::prelude::*;
use serde_json::{Value, json};
use zonewise_slices::upstream::{HintsPerZone, is_overloaded};
use zonewise_testbed::traffic::{Figures, TopologyKey, figures};
use zonewise_topology::allocation::Allocation;
use zonewise_topology::heuristic::{Case, Heuristic};
use zonewise_topology::heuristics::auto::Auto;
use zonewise_topology::reason::{Code, Outcome};
use zonewise_topology::threshold::Hysteresis;

const MODE: &str = "service.kubernetes.io/topology-mode";
const PREFERENCE: &str = "zonewise.dev/routing-preference";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const ZONES: [&str; 4] = ["eu-1", "eu-2", "us-1", "us-2"];
/// The smallest gain that a quiet Service is written for, with room for rounding.
const NOTICEABLE: f64 = 0.02 + 1e-9;
const ROUNDING: f64 = 1e-9;

/// The keys that request topology, each with its value.
const REQUESTS: [(&str, &str); 14] = [
    (MODE, "Auto"),
    (PREFERENCE, "zonewise.dev/auto"),
    (SUBSETTING, "Auto"),
    (SUBSETTING, "Require"),
    (SUBSETTING, "Region"),
    (PREFERENCE, "zonewise.dev/local-subset"),
    (PREFERENCE, "zonewise.dev/require-zone"),
    (PREFERENCE, "zonewise.dev/local"),
    (PREFERENCE, "zonewise.dev/local-shared"),
    (PREFERENCE, "zonewise.dev/local-weighted"),
    (PREFERENCE, "zonewise.dev/local-opt"),
    (PREFERENCE, "zonewise.dev/shared-global"),
    (PREFERENCE, "zonewise.dev/shared-multizone"),
    (PREFERENCE, "zonewise.dev/balanced"),
];

/// What happens to a cluster.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// Pods come up one by one.
    Add { zone: usize, pods: usize },
    /// Pods go, one by one: those at this place among the Pods of their zone.
    Remove { zone: usize, pods: usize, place: usize },
    /// A rollout replaces a Pod: the new one first.
    Replace { zone: usize, old: usize, place: usize },
    /// The node of a zone is replaced by one of another size.
    Cores { zone: usize, cores: u32 },
    /// A zone gets another node, or loses it again.
    ExtraNode { zone: usize },
    /// A Pod becomes unready, or ready again.
    Flip { zone: usize, place: usize },
    /// Nothing, for long enough.
    Quiet,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let zone = || 0..ZONES.len();
    let one = prop_oneof![
        4 => (zone(), 1usize..6).prop_map(|(zone, pods)| Happening::Add { zone, pods }),
        2 => (zone(), 1usize..4, 0usize..20)
            .prop_map(|(zone, pods, place)| Happening::Remove { zone, pods, place }),
        3 => (zone(), zone(), 0usize..20)
            .prop_map(|(zone, old, place)| Happening::Replace { zone, old, place }),
        2 => (zone(), 1u32..12).prop_map(|(zone, cores)| Happening::Cores { zone, cores }),
        1 => zone().prop_map(|zone| Happening::ExtraNode { zone }),
        1 => (zone(), 0usize..20).prop_map(|(zone, place)| Happening::Flip { zone, place }),
        1 => Just(Happening::Quiet),
    ];
    prop::collection::vec(one, 1..30)
}

/// A cluster with one Service, and how often its slices were written.
struct Contestant {
    cluster: TestCluster,
    zones: Vec<&'static str>,
    writes: usize,
}

impl Contestant {
    fn new(zones: usize, key: &str, value: &str, max_endpoints: usize) -> Self {
        let zones = ZONES[..zones].to_vec();
        let nodes: Vec<(&str, &str)> = zones.iter().map(|zone| (*zone, "4")).collect();
        let mut cluster = TestCluster::new(&nodes);
        cluster.annotate(key, value);
        cluster.settings.max_endpoints = max_endpoints;
        Self { cluster, zones, writes: 0 }
    }

    /// The reference, for the topology annotation.
    fn reference(zones: usize, max_endpoints: usize) -> Self {
        let mut reference = Self::new(zones, MODE, "Auto", max_endpoints);
        reference.cluster.settings.upstream = true;
        reference
    }

    fn zone(&self, zone: usize) -> &'static str {
        self.zones[zone % self.zones.len()]
    }

    /// The Pods of a zone, by name.
    fn pods_in(&self, zone: usize) -> Vec<String> {
        let node = format!("node-{}", self.zone(zone));
        let here = |(_, pod): &(&String, &Value)| pod["spec"]["nodeName"] == node.as_str();
        self.cluster.pods.iter().filter(here).map(|(name, _)| name.clone()).collect()
    }

    fn pod_at(&self, zone: usize, place: usize) -> Option<String> {
        let pods = self.pods_in(zone);
        pods.get(place % pods.len().max(1)).cloned()
    }

    fn sync(&mut self) {
        self.writes += self.cluster.sync().writes();
    }

    /// The reference looks at a Service after a change of nodes only if a zone has too few endpoints.
    fn sync_after_nodes(&mut self) {
        let upstream = self.cluster.settings.upstream;
        let hints: HintsPerZone = self
            .cluster
            .hints()
            .into_iter()
            .map(|(zone, count)| (zone.as_str().into(), count as u64))
            .collect();
        if !upstream || is_overloaded(&hints, &self.cluster.topology()) {
            self.sync();
        }
    }

    fn add_pod(&mut self, zone: usize) {
        let node = format!("node-{}", self.zone(zone));
        self.cluster.pod(&node);
        self.sync();
    }

    fn remove_pod(&mut self, zone: usize, place: usize) {
        if let Some(name) = self.pod_at(zone, place) {
            self.cluster.pods.remove(&name);
            self.sync();
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Add { zone, pods } => (0..pods).for_each(|_| self.add_pod(zone)),
            Happening::Remove { zone, pods, place } => {
                (0..pods).for_each(|_| self.remove_pod(zone, place));
            }
            Happening::Replace { zone, old, place } => {
                self.add_pod(zone);
                self.remove_pod(old, place);
            }
            Happening::Cores { zone, cores } => {
                let zone = self.zone(zone);
                self.cluster.node(&format!("node-{zone}"), zone, &cores.to_string());
                self.sync_after_nodes();
            }
            Happening::ExtraNode { zone } => {
                let zone = self.zone(zone);
                let name = format!("extra-{zone}");
                if self.cluster.nodes.remove(&name).is_none() {
                    self.cluster.node(&name, zone, "3");
                }
                self.sync_after_nodes();
            }
            Happening::Flip { zone, place } => {
                if let Some(name) = self.pod_at(zone, place) {
                    let status = &mut self.cluster.pods.get_mut(&name).unwrap()["status"];
                    let ready = &mut status["conditions"][0]["status"];
                    *ready = if *ready == "True" { "False".into() } else { "True".into() };
                    self.sync();
                }
            }
            Happening::Quiet => {}
        }
    }

    fn topology_key(&self) -> TopologyKey {
        let region = self.cluster.service["metadata"]["annotations"][SUBSETTING] == "Region";
        if region { TopologyKey::Region } else { TopologyKey::Zone }
    }

    fn figures(&self) -> Option<Figures> {
        figures(&self.nodes(), &slices(&self.cluster), self.topology_key())
    }

    /// The same after a decision for the nodes that there are: the reference keeps hints that it assigned
    /// for other nodes, and those can be better by chance.
    fn figures_for_these_nodes(&self) -> Option<Figures> {
        figures(&self.nodes(), &slices(&self.fresh(&[])), self.topology_key())
    }

    fn nodes(&self) -> Vec<Value> {
        self.cluster.nodes.values().cloned().collect()
    }

    /// The same objects without slices, and what is decided for them.
    fn fresh(&self, annotations: &[(&str, &str)]) -> TestCluster {
        let mut fresh = self.cluster.without_slices();
        for (key, value) in annotations {
            fresh.annotate(key, value);
        }
        fresh.sync();
        fresh
    }

    /// Whether slices carry hints, subsets or shares.
    fn is_on(cluster: &TestCluster) -> bool {
        !cluster.hints().is_empty()
            || !cluster.subsets().contains_key("")
            || cluster.shares().is_some()
    }

    /// What a fresh decision gives: from nothing, but on if it is on now.
    fn fresh_figures(&self) -> Option<Figures> {
        let fresh = self.fresh(&[]);
        if Self::is_on(&fresh) == Self::is_on(&self.cluster) {
            return figures(&self.nodes(), &slices(&fresh), self.topology_key());
        }
        assert!(Self::is_on(&self.cluster), "off, although a fresh decision would turn it on");
        let annotations = &self.cluster.service["metadata"]["annotations"];
        if annotations[MODE] == "Auto" || annotations[PREFERENCE] == "zonewise.dev/auto" {
            return self.hints_that_may_stay();
        }
        let always_on = "zonewise.dev/local-subset:threshold=1,padding=0";
        let fresh = self.fresh(&match annotations[PREFERENCE].as_str() {
            Some(_) => vec![(PREFERENCE, always_on)],
            None => {
                vec![("zonewise.dev/starting-threshold", "1"), ("zonewise.dev/padding", "0")]
            }
        });
        assert!(Self::is_on(&fresh), "subsets are on that no zone could bear");
        figures(&self.nodes(), &slices(&fresh), self.topology_key())
    }

    /// What `auto` assigns from nothing if hints may come with as much overload as lets them stay.
    fn hints_that_may_stay(&self) -> Option<Figures> {
        let ready: Vec<Value> = slices(&self.cluster)
            .iter()
            .flat_map(|slice| slice["endpoints"].as_array().unwrap().clone())
            .filter(|endpoint| endpoint["conditions"]["ready"] != false)
            .collect();
        let mut counts: BTreeMap<Box<str>, u64> = BTreeMap::new();
        for endpoint in &ready {
            *counts.entry(endpoint["zone"].as_str().unwrap().into()).or_default() += 1;
        }
        let situation =
            zonewise_topology::region::Situation::new(&self.cluster.topology().zones, &counts, 0);
        let hysteresis = Hysteresis { enter: 0.3, leave: 0.3 };
        let mut allocation = Allocation::new();
        let auto = Auto { hysteresis, upstream: false };
        let reason = auto.allocate(&Case::fresh(situation.region()), &mut allocation);
        assert_eq!(reason.outcome(), Outcome::InForce, "hints are on that no zone could bear");
        let mut left = ready;
        let mut hinted = Vec::new();
        for (zone, name) in situation.names.iter().enumerate() {
            for (source, from) in situation.names.iter().enumerate() {
                for _ in 0..allocation.content(zone, source) {
                    let at = left.iter().position(|one| one["zone"] == **from).unwrap();
                    let mut endpoint = left.swap_remove(at);
                    endpoint["hints"] = json!({"forZones": [{"name": name}]});
                    hinted.push(endpoint);
                }
            }
        }
        figures(&self.nodes(), &[json!({"endpoints": hinted})], TopologyKey::Zone)
    }

    /// Nothing happens for long enough: at most every slice is written, and only once. A slice of one subset cannot become
    /// one of another, so where a subset loses its last slice and another gets one, one is deleted and one created.
    fn settle(&mut self) {
        let before = self.cluster.store.slices.len();
        let plan = self.cluster.settle();
        self.writes += plan.writes();
        let creates: usize = plan.families.iter().map(|family| family.creates.len()).sum();
        let (changed, after) = (plan.writes() - creates, self.cluster.store.slices.len());
        assert!(changed <= before, "{changed} of {before} slices are changed or deleted");
        assert!(creates <= after, "{creates} of {after} slices are created");
        assert_eq!(plan.improvement(), None, "nothing is left to gain");
        assert_eq!(self.cluster.settle().writes(), 0, "a settled Service stays as it is");
        assert_eq!(self.cluster.sync().writes(), 0, "a settled Service stays as it is");
    }

    /// Both figures are as good as a fresh decision's, or hardly worse.
    fn check_settled(&self, name: &str) {
        let (Some(now), Some(fresh)) = (self.figures(), self.fresh_figures()) else { return };
        let good = now.in_zone >= fresh.in_zone - NOTICEABLE
            && now.max_overload <= fresh.max_overload + NOTICEABLE;
        assert!(good, "{name}: {now:?} settled, {fresh:?} fresh");
    }
}

fn slices(cluster: &TestCluster) -> Vec<Value> {
    let slices = cluster.store.slices.values();
    slices.map(|slice| serde_json::to_value(&**slice).unwrap()).collect()
}

/// One slice of 100, as usual, or many small ones.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(100usize), 1 => 3usize..12]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    #[test]
    fn b20_what_is_settled_is_as_good_as_fresh(
        zones in 2..=ZONES.len(), size in sizes(), happenings in happenings(),
    ) {
        for (key, value) in REQUESTS {
            let name = format!("{key}: {value}");
            let mut contestant = Contestant::new(zones, key, value, size);
            for what in happenings.iter().copied().chain([Happening::Quiet]) {
                contestant.happen(what);
                if matches!(what, Happening::Quiet) {
                    contestant.settle();
                    contestant.check_settled(&name);
                }
            }
        }
    }

    /// Besides the reference's writes, every slice may be written once for each settling, and once for each
    /// change of nodes: hints that become possible are given at once, which the reference does not notice.
    #[test]
    fn b20_auto_is_never_worse_than_the_reference_and_writes_no_more(
        zones in 2..=ZONES.len(), size in sizes(), happenings in happenings(),
    ) {
        let mut ours = Contestant::new(zones, MODE, "Auto", size);
        let mut reference = Contestant::reference(zones, size);
        ours.sync();
        reference.sync();
        let (mut allowed, mut nodes_changed) = (0, false);
        for what in happenings.iter().copied().chain([Happening::Quiet]) {
            ours.happen(what);
            reference.happen(what);
            let of_nodes = matches!(what, Happening::Cores { .. } | Happening::ExtraNode { .. });
            nodes_changed |= of_nodes;
            if of_nodes || matches!(what, Happening::Quiet) {
                allowed += ours.cluster.store.slices.len();
            }
            if matches!(what, Happening::Quiet) {
                ours.settle();
                let then = if nodes_changed {
                    reference.figures_for_these_nodes()
                } else {
                    reference.figures()
                };
                let (Some(now), Some(then)) = (ours.figures(), then) else { continue };
                // Every write of a single slice is a fresh decision. Otherwise what is left to gain may
                // be too little for a write.
                let fresh = !nodes_changed && ours.cluster.store.slices.len() == 1;
                let tolerance = if fresh { ROUNDING } else { NOTICEABLE };
                let worse = now.in_zone < then.in_zone - tolerance
                    && now.max_overload >= then.max_overload - ROUNDING;
                // At exactly 20 % rounding decides whether a zone is below the limit.
                let at_the_limit = (now.max_overload - 0.2).abs() < ROUNDING;
                prop_assert!(!worse || at_the_limit, "{now:?}, the reference {then:?}");
            }
        }
        prop_assert!(
            ours.writes <= reference.writes + allowed,
            "{} writes, the reference {}, and {allowed} may come besides",
            ours.writes, reference.writes
        );
    }
}

/// Pods come up one by one in the order in which a scheduler that spreads them starts them, and become
/// ready in another. The reference ends with every endpoint hinted to its own zone.
#[test]
fn b20_pods_that_come_up_one_by_one_end_in_their_own_zones() {
    let orders = ["aaaaabbbbbccccc", "abcabcabcabcabc", "aabbccccbbaabca", "cbabcccabababca"];
    for order in orders {
        let mut cluster = TestCluster::three_zones();
        cluster.annotate(MODE, "Auto").sync();
        let mut writes = 0;
        for zone in order.chars() {
            cluster.pod(&format!("node-{zone}"));
            writes += cluster.sync().writes();
        }
        assert_eq!(cluster.hints(), map([("a", 5), ("b", 5), ("c", 5)]), "{order}");
        let slice = cluster.store.slices.values().next().unwrap();
        assert!(
            slice.endpoints.iter().all(|one| one.zone_hints()[0] == *one.zone.as_ref().unwrap())
        );
        assert_eq!(writes, 15, "{order}: one write for each Pod");
    }
}

/// 12 Pods start subsets with 4, 4 and 4; three more in zone a stay there until the Service is quiet.
#[test]
fn a9_b20_an_update_is_lazy_and_a_quiet_service_settles() {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(SUBSETTING, "Auto").pods("a", 4).pods("b", 4).pods("c", 4).sync();
    cluster.pods("a", 9);
    let plan = cluster.sync();
    assert_eq!((code(&plan), plan.writes()), (Code::SubsetsKept, 1), "only the slice of zone a");
    let improvement = plan.improvement().unwrap();
    assert!(improvement.gain() > 0.25, "{improvement:?}");
    assert_eq!(plan.settles(), None);
    let plan = cluster.settle();
    assert_eq!((code(&plan), plan.writes()), (Code::SubsetsAssigned, 3));
    assert_eq!((plan.improvement(), plan.settles()), (None, Some(improvement)));
    let sizes: Vec<usize> = cluster.subsets().values().map(|(endpoints, _)| *endpoints).collect();
    assert_eq!(sizes, [7, 5, 5]);
}

/// A node that grows leaves the hints as they are, because 25 % overload may stay; a quiet Service gets
/// what a fresh decision gives.
#[test]
fn b4_b5_b20_hints_that_may_stay_are_improved_once_it_is_quiet() {
    let mut cluster = TestCluster::new(&[("a", "10"), ("b", "10")]);
    cluster.annotate(MODE, "Auto").pods("a", 5).pods("b", 5).sync();
    cluster.node("node-a", "a", "12500m");
    cluster.node("node-b", "b", "7500m");
    assert_eq!(cluster.sync().writes(), 0, "25 %: kept");
    assert_eq!(cluster.settle().writes(), 1);
    assert_eq!(cluster.hints(), map([("a", 6), ("b", 4)]));
}

/// A gain below the least one is not worth a write.
#[test]
fn b20_the_least_gain_is_a_setting() {
    for (least_gain, writes) in [(0.02, 1), (0.2, 1), (0.25, 0)] {
        let mut cluster = TestCluster::new(&[("a", "10"), ("b", "10")]);
        cluster.settings.settling.least_gain = least_gain;
        cluster.annotate(MODE, "Auto").pods("a", 5).pods("b", 5).sync();
        cluster.node("node-a", "a", "12500m");
        cluster.node("node-b", "b", "7500m");
        let plan = cluster.settle();
        assert_eq!((plan.writes(), plan.settles().is_some()), (writes, writes > 0), "{least_gain}");
    }
}

/// The reference has no such rule.
#[test]
fn b20_compat_upstream_does_not_settle() {
    let mut cluster = TestCluster::new(&[("a", "10"), ("b", "10")]);
    cluster.settings.upstream = true;
    cluster.annotate(MODE, "Auto").pods("a", 5).pods("b", 5).sync();
    cluster.node("node-a", "a", "11");
    cluster.node("node-b", "b", "9");
    let plan = cluster.settle();
    assert_eq!((plan.writes(), plan.improvement()), (0, None));
    assert_eq!(cluster.settings.settles_after(), None);
}

/// Slices that are written anyway are decided afresh, the others stay as they are.
#[test]
fn b20_only_slices_that_are_written_anyway_are_decided_afresh() {
    let mut cluster = TestCluster::three_zones();
    cluster.settings.max_endpoints = 10;
    cluster.annotate(MODE, "Auto").pods("a", 10).pods("b", 10).pods("c", 10).sync();
    cluster.node("node-a", "a", "5");
    assert_eq!(cluster.sync().writes(), 0);
    assert_eq!(cluster.hints(), map([("a", 10), ("b", 10), ("c", 10)]));
    let name = cluster.pods.keys().nth(15).unwrap().clone();
    cluster.pods.remove(&name);
    cluster.pod("node-b");
    assert_eq!(cluster.sync().writes(), 1, "the slice that has lost a Pod");
    assert_eq!(
        cluster.hints(),
        map([("a", 11), ("b", 9), ("c", 10)]),
        "one of its endpoints moves"
    );
}
