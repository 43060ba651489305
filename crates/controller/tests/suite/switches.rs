//! Feature gates on a real API server: what a feature wrote is gone when it is off, and back when it is
//! on again.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, service};
use zonewise_testbed::{Cluster, Lent, eventually};

use crate::common::{
    Running, addresses, all_slices, cluster, condition_in, hints, of_service, turn, zonal_pods,
};

const MODE: &str = "service.kubernetes.io/topology-mode";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";

/// A Service for each way to ask for topology; its name is the value, without what a name cannot have.
const ASKED: [(&str, &str, &str); 10] = [
    ("auto", MODE, "Auto"),
    ("subsets", SUBSETTING, "Auto"),
    ("required", SUBSETTING, "Require"),
    ("zone", PREFERENCE, "Zone"),
    ("preferred-auto", PREFERENCE, "zonewise.dev/auto"),
    ("local-shared", PREFERENCE, "zonewise.dev/local-shared"),
    ("own-zone", PREFERENCE, "example.com/own-zone"),
    ("local-subset", PREFERENCE, "zonewise.dev/local-subset"),
    ("require-zone", PREFERENCE, "zonewise.dev/require-zone"),
    ("balanced", PREFERENCE, "zonewise.dev/balanced"),
];
/// Besides them a Service with `trafficDistribution` alone.
const FIELD: &str = "field";
/// Five Pods in each zone: enough for subsets.
const PODS: usize = 15;

const OWN_HEURISTIC: &str =
    "heuristics: [ { name: example.com/own-zone, endpointZones: '[endpoint.zone]' } ]\n";
const HINTS_OFF: &str = "featureGates: { TopologyAwareHints: false }\n";
const SUBSETTING_OFF: &str = "featureGates: { TopologyAwareSubsetting: false }\n";
const PREFERENCE_OFF: &str = "featureGates: { ServiceRoutingPreference: false }\n";
const ALL_OFF: &str = "featureGates: { TopologyAwareHints: false, TopologyAwareSubsetting: false, \
                       ServiceRoutingPreference: false }\n";
const UPSTREAM: &str = "compat: upstream\n";

async fn shop() -> Lent {
    let cluster = cluster().await;
    cluster.create(&[namespace("shop")]).await.unwrap();
    cluster.create(&zonal_pods("shop", "web", PODS / 3)).await.unwrap();
    let asked = ASKED.map(|(name, key, value)| {
        let mut asked = service("shop", name, "web");
        asked["metadata"]["annotations"] = json!({ key: value });
        asked
    });
    let mut field = service("shop", FIELD, "web");
    field["spec"]["trafficDistribution"] = "PreferSameZone".into();
    cluster.create(&[&asked[..], &[field]].concat()).await.unwrap();
    cluster
}

/// What slices carry: hints, shares, subset labels.
fn topology(slices: &[Value]) -> String {
    let shares =
        |slice: &Value| slice["metadata"]["annotations"]["zonewise.dev/zone-shares"].is_string();
    let subset = |slice: &Value| {
        slice["metadata"]["labels"]["endpointslice.kubernetes.io/for-zone"].is_string()
    };
    let kinds = [
        ("hints", !hints(slices).is_empty()),
        ("shares", slices.iter().any(shares)),
        ("subsets", slices.iter().all(subset)),
    ];
    let found: Vec<&str> =
        kinds.iter().filter(|(_, found)| *found).map(|(kind, _)| *kind).collect();
    found.join("+")
}

/// What every Service of [`ASKED`] and [`FIELD`] has, in this order; every endpoint is there once.
async fn found(cluster: &Cluster) -> Result<Vec<String>, String> {
    let (all, mut found) = (all_slices(cluster, "shop").await, Vec::new());
    for name in ASKED.iter().map(|(name, ..)| *name).chain([FIELD]) {
        let slices = of_service(&all, name);
        let mut there = addresses(&slices);
        let all = there.len();
        there.dedup();
        if (all, there.len()) != (PODS, PODS) {
            return Err(format!("{name}: {all} endpoints, {} different", there.len()));
        }
        found.push(topology(&slices));
    }
    Ok(found)
}

/// Runs the controller with these lines until every Service has what is expected.
async fn reaches(cluster: &Cluster, lines: &str, expected: [&str; 11]) -> Running {
    let running = Running::start(cluster, &format!("{lines}{OWN_HEURISTIC}")).await;
    eventually(|| async {
        match found(cluster).await? {
            found if found == expected => Ok(()),
            found => Err(format!("{lines}: {found:?} instead of {expected:?}")),
        }
    })
    .await;
    running
}

/// The status and reason of the condition `Accepted` of every Service that has it.
async fn accepted(cluster: &Cluster) -> BTreeMap<&'static str, (String, String)> {
    let (all, mut found) = (cluster.list("Service", Some("shop")).await.unwrap(), BTreeMap::new());
    for name in ASKED.iter().map(|(name, ..)| *name).chain([FIELD]) {
        if let Some(condition) = condition_in(&all, name, "Accepted") {
            found.insert(name, condition);
        }
    }
    found
}

/// Waits until exactly these Services have a condition `Accepted` that is false because a gate is off,
/// and all others of [`ASKED`] one that is true.
async fn refused(cluster: &Cluster, names: &[&'static str]) {
    let expected: BTreeMap<&str, (String, String)> = ASKED
        .iter()
        .map(|(name, ..)| match names.contains(name) {
            true => (*name, ("False".to_owned(), "GateOff".to_owned())),
            false => (*name, ("True".to_owned(), "Accepted".to_owned())),
        })
        .collect();
    eventually(|| async {
        let found = accepted(cluster).await;
        if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_b7_d16_d20_e1_every_gate_off_on_and_off_again() {
    let _turn = turn().await;
    let cluster = shop().await;
    let (h, s, w) = ("hints", "subsets", "hints+shares");
    let on = [h, s, s, h, h, h, h, s, s, w, h];
    let rows: [(&str, [&str; 11], &[&str]); 3] = [
        (
            HINTS_OFF,
            ["", s, s, "", "", "", "", s, s, "shares", h],
            &["auto", "zone", "preferred-auto", "local-shared", "own-zone"],
        ),
        (
            SUBSETTING_OFF,
            [h, "", "", h, h, h, h, "", "", w, h],
            &["subsets", "required", "local-subset", "require-zone"],
        ),
        (
            PREFERENCE_OFF,
            [h, s, s, "", "", "", "", "", "", "", h],
            &[
                "zone",
                "preferred-auto",
                "local-shared",
                "own-zone",
                "local-subset",
                "require-zone",
                "balanced",
            ],
        ),
    ];
    for (off, expected, names) in rows {
        let running = reaches(&cluster, "", on).await;
        refused(&cluster, &[]).await;
        running.stop().await.unwrap();
        let running = reaches(&cluster, off, expected).await;
        refused(&cluster, names).await;
        running.stop().await.unwrap();
    }
    let nothing = ["", "", "", "", "", "", "", "", "", "", h];
    let running = reaches(&cluster, ALL_OFF, nothing).await;
    eventually(|| async {
        let found = accepted(&cluster).await;
        if found.is_empty() { Ok(()) } else { Err(format!("conditions that stayed: {found:?}")) }
    })
    .await;
    running.stop().await.unwrap();
    let running = reaches(&cluster, "", on).await;
    refused(&cluster, &[]).await;
    running.stop().await.unwrap();
}

/// The reference knows two of the keys, and has a gate for one of them here.
#[tokio::test(flavor = "multi_thread")]
async fn b7_e1_the_gate_of_hints_holds_with_compat_upstream() {
    let _turn = turn().await;
    let cluster = shop().await;
    let h = "hints";
    let on = [h, "", "", "", "", "", "", "", "", "", h];
    let off = ["", "", "", "", "", "", "", "", "", "", h];
    for (lines, expected) in [
        (UPSTREAM.to_owned(), on),
        (format!("{UPSTREAM}{HINTS_OFF}"), off),
        (UPSTREAM.to_owned(), on),
    ] {
        reaches(&cluster, &lines, expected).await.stop().await.unwrap();
    }
}
