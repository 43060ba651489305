//! A plan keeps what is stored as it should be, and compares it by address where it can. Neither may change
//! what comes out.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::TestCluster;
use proptest::prelude::*;
use serde_json::json;
use zonewise_slices::plan::Plan;
use zonewise_slices::slice::{Endpoint, Slice};

const ZONES: [&str; 3] = ["a", "b", "c"];

/// What of the hints must be as a plan from nothing gives them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hints {
    /// Those of every endpoint: they depend on nothing else.
    All,
    /// How many endpoints of each zone have which: an endpoint keeps its own while their number is right.
    Numbers,
    /// None, because what is in force is kept while it is good enough.
    None,
}

/// The keys that request routing.
const REQUESTS: [(&str, &str, Hints); 10] = [
    ("service.kubernetes.io/topology-mode", "Auto", Hints::None),
    ("service.kubernetes.io/topology-mode", "Auto", Hints::None),
    ("zonewise.dev/routing-preference", "Zone", Hints::All),
    ("zonewise.dev/routing-preference", "zonewise.dev/local", Hints::Numbers),
    ("zonewise.dev/routing-preference", "zonewise.dev/local-shared", Hints::Numbers),
    ("zonewise.dev/routing-preference", "zonewise.dev/shared-global", Hints::Numbers),
    ("zonewise.dev/routing-preference", "zonewise.dev/balanced", Hints::None),
    ("endpointslice.kubernetes.io/subsetting", "Auto", Hints::All),
    ("endpointslice.kubernetes.io/subsetting", "Require", Hints::All),
    ("none", "", Hints::All),
];

/// What happens before a plan.
#[derive(Clone, Debug)]
enum Change {
    /// So many Pods in each zone.
    Scale([usize; 3]),
    /// One Pod is replaced by another in its zone.
    Replace(usize),
    /// One Pod becomes unready, or ready again.
    Flip(usize),
    /// One Pod moves to another node, and keeps its name and address.
    Move(usize, usize),
    /// A node has another number of cores.
    Cores(usize, u32),
    /// Another writer stores an endpoint of a slice twice.
    Repeat(usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let one = prop_oneof![
        2 => [0usize..30, 0usize..30, 0usize..30].prop_map(Change::Scale),
        6 => (0usize..90).prop_map(Change::Replace),
        2 => (0usize..90).prop_map(Change::Flip),
        2 => (0usize..90, 0usize..3).prop_map(|(pod, zone)| Change::Move(pod, zone)),
        1 => (0usize..3, 1u32..12).prop_map(|(zone, cores)| Change::Cores(zone, cores)),
        1 => (0usize..90).prop_map(Change::Repeat),
    ];
    prop::collection::vec(one, 1..12)
}

fn apply(cluster: &mut TestCluster, change: &Change) {
    let pod = |cluster: &TestCluster, place: usize| -> Option<String> {
        cluster.pods.keys().nth(place % cluster.pods.len().max(1)).cloned()
    };
    match change {
        Change::Scale(counts) => {
            for (zone, count) in ZONES.into_iter().zip(counts) {
                cluster.pods(zone, *count);
            }
        }
        Change::Replace(place) => {
            let Some(name) = pod(cluster, *place) else { return };
            let old = cluster.pods.remove(&name).unwrap();
            cluster.pod(old["spec"]["nodeName"].as_str().unwrap());
        }
        Change::Flip(place) => {
            let Some(name) = pod(cluster, *place) else { return };
            let ready =
                &mut cluster.pods.get_mut(&name).unwrap()["status"]["conditions"][0]["status"];
            *ready = if *ready == "True" { "False".into() } else { "True".into() };
        }
        Change::Move(place, zone) => {
            let Some(name) = pod(cluster, *place) else { return };
            let node = format!("node-{}", ZONES[*zone]);
            cluster.pods.get_mut(&name).unwrap()["spec"]["nodeName"] = json!(node);
        }
        Change::Cores(zone, cores) => {
            let zone = ZONES[*zone];
            cluster.node(&format!("node-{zone}"), zone, &cores.to_string());
        }
        Change::Repeat(place) => cluster.store.repeat_endpoint(*place),
    }
}

/// The stored endpoints, with their hints if these must be the same; and how many endpoints have which hints
/// if that must be.
fn endpoints(
    cluster: &TestCluster,
    compared: Hints,
) -> (BTreeSet<String>, BTreeMap<String, usize>) {
    let (mut texts, mut numbers) = (BTreeSet::new(), BTreeMap::new());
    for endpoint in cluster.store.slices.values().flat_map(|slice| &slice.endpoints) {
        let hints = endpoint.hints.clone().filter(|_| compared == Hints::All);
        texts.insert(format!("{:?}", Endpoint { hints, ..endpoint.clone() }));
        if compared == Hints::Numbers {
            *numbers.entry(format!("{:?} {:?}", endpoint.zone, endpoint.hints)).or_default() += 1;
        }
    }
    (texts, numbers)
}

/// The updates that leave a slice as it is stored.
fn needless(plan: &Plan, before: &BTreeMap<Box<str>, std::sync::Arc<Slice>>) -> usize {
    let updates = plan.families.iter().flat_map(|family| &family.updates);
    updates
        .filter(|slice| before.get(slice.name()).is_some_and(|stored| **stored == **slice))
        .count()
}

proptest! {
    /// After any changes, what was kept together with what was written is what a plan from nothing gives,
    /// and nothing was written that was stored like that. It makes no difference whether equal strings are
    /// one string in memory.
    #[test]
    fn what_is_kept_and_written_is_what_a_plan_from_nothing_gives(
        changes in changes(),
        max in 2usize..20,
        request in 0..REQUESTS.len(),
        quiet: bool,
    ) {
        let (key, value, compared) = REQUESTS[request];
        let mut cluster = TestCluster::three_zones();
        cluster.settings.max_endpoints = max;
        cluster.annotate(key, value).pods("a", 20).pods("b", 5).pods("c", 5);
        cluster.sync();
        for change in &changes {
            apply(&mut cluster, change);
            let shared = cluster.plan_with_shared_values(quiet);
            let before = cluster.store.slices.clone();
            let plan = if quiet { cluster.settle() } else { cluster.sync() };
            prop_assert_eq!(format!("{:?}", shared), format!("{:?}", plan));
            prop_assert_eq!(needless(&plan, &before), 0, "{:?}", plan);
            let mut nothing = cluster.without_slices();
            nothing.sync();
            prop_assert_eq!(endpoints(&cluster, compared), endpoints(&nothing, compared));
        }
    }
}
