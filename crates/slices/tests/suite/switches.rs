//! What turns topology on and off, for one Service or for all, and that nothing stays behind.

use crate::common::{TestCluster, code, map};
use zonewise_slices::settings::FeatureGates;
use zonewise_topology::reason::Code;

const MODE: &str = "service.kubernetes.io/topology-mode";
const OLDER_MODE: &str = "service.kubernetes.io/topology-aware-hints";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";

/// Every key that changes slices, and the gate that switches it off.
const SWITCHES: [(&str, &str, FeatureGates); 7] = [
    (MODE, "Auto", FeatureGates { hints: false, subsetting: true, preference: true }),
    (OLDER_MODE, "auto", FeatureGates { hints: false, subsetting: true, preference: true }),
    (SUBSETTING, "Auto", FeatureGates { hints: true, subsetting: false, preference: true }),
    (SUBSETTING, "Require", FeatureGates { hints: true, subsetting: false, preference: true }),
    (PREFERENCE, "Zone", FeatureGates { hints: true, subsetting: true, preference: false }),
    (
        PREFERENCE,
        "zonewise.dev/auto",
        FeatureGates { hints: true, subsetting: true, preference: false },
    ),
    (
        PREFERENCE,
        "zonewise.dev/balanced",
        FeatureGates { hints: true, subsetting: true, preference: false },
    ),
];

/// Three equal zones with 14, 12 and 10 Pods.
fn three_zones() -> TestCluster {
    let mut cluster = TestCluster::three_zones();
    cluster.pods("a", 14).pods("b", 12).pods("c", 10);
    cluster
}

/// Whether slices hold any hint, share or subset label.
fn has_topology(cluster: &TestCluster) -> bool {
    !cluster.hints().is_empty()
        || cluster.shares().is_some()
        || cluster.subsets().keys().any(|key| !key.is_empty())
}

#[test]
fn b1_both_annotations_and_the_preference_auto_give_the_same_hints() {
    let keys =
        [(MODE, "Auto"), (MODE, "auto"), (OLDER_MODE, "Auto"), (PREFERENCE, "zonewise.dev/auto")];
    for (key, value) in keys {
        let mut cluster = three_zones();
        cluster.annotate(key, value);
        assert_eq!(code(&cluster.sync()), Code::HintsAssigned, "{key}: {value}");
        assert_eq!(cluster.hints(), map([("a", 12), ("b", 12), ("c", 12)]), "{key}: {value}");
    }
    let mut cluster = three_zones();
    cluster.annotate(PREFERENCE, "Zone").sync();
    assert_eq!(
        cluster.hints(),
        map([("a", 14), ("b", 12), ("c", 10)]),
        "Zone does not look at capacity"
    );
}

#[test]
fn e1_a_key_that_is_set_removed_and_set_again_leaves_no_trace() {
    for (key, value, _) in SWITCHES {
        let mut cluster = three_zones();
        for round in ["first", "second"] {
            cluster.annotate(key, value).sync();
            assert!(has_topology(&cluster), "{key}: {value}, {round} time");
            cluster.remove_annotation(key).sync();
            assert!(!has_topology(&cluster), "{key}: {value}, {round} time");
        }
    }
}

#[test]
fn b7_d16_e1_a_gate_that_goes_off_on_and_off_leaves_no_trace() {
    for (key, value, off) in SWITCHES {
        let mut cluster = three_zones();
        cluster.annotate(key, value);
        for round in ["first", "second"] {
            cluster.settings.gates = FeatureGates::default();
            cluster.sync();
            assert!(has_topology(&cluster), "{key}: {value}, {round} time");
            cluster.settings.gates = off;
            assert_eq!(code(&cluster.sync()), Code::ClusterWide, "{key}: {value}, {round} time");
            assert!(!has_topology(&cluster), "{key}: {value}, {round} time");
            let notes = cluster.requested_routing().notes;
            assert_eq!(notes[0].reason.code(), Code::GateOff, "{key}: {value}, {round} time");
        }
    }
}

/// A controller that does not know the preference finds slices of one that did: gate off, and the
/// other keys of the Service are in force again.
#[test]
fn d20_without_the_preference_the_next_key_is_in_force() {
    let mut cluster = three_zones();
    cluster.annotate(PREFERENCE, "zonewise.dev/balanced");
    cluster.service["spec"]["trafficDistribution"] = "PreferSameZone".into();
    cluster.sync();
    assert!(cluster.shares().is_some());
    cluster.settings.gates.preference = false;
    assert_eq!(code(&cluster.sync()), Code::OwnZone);
    assert_eq!((cluster.shares(), cluster.hints()), (None, map([("a", 14), ("b", 12), ("c", 10)])));
    cluster.service["spec"].as_object_mut().unwrap().remove("trafficDistribution");
    cluster.sync();
    assert!(!has_topology(&cluster), "the annotation alone means Default");
}

#[test]
fn a17_every_slice_is_found_by_the_name_of_its_service() {
    for approach in ["Random", "Auto", "Require", "Region"] {
        let mut cluster = three_zones();
        cluster.settings.max_endpoints = 5;
        cluster.annotate(SUBSETTING, approach).sync();
        let slices = cluster.store.list();
        let found = slices
            .iter()
            .filter(|slice| slice.labels.get("kubernetes.io/service-name") == Some("web"))
            .flat_map(|slice| &slice.endpoints);
        assert_eq!(found.count(), 36, "{approach}");
    }
}

/// The bytes that hints and shares add, as docs/benchmarks.md has them.
#[test]
fn b19_topology_costs_the_bytes_that_the_page_says() {
    let mut cluster = TestCluster::new(&[("a", "4"), ("b", "5"), ("c", "6")]);
    cluster.pods("a", 67).pods("b", 17).pods("c", 16).sync();
    let bytes =
        |cluster: &TestCluster| serde_json::to_string(&*cluster.store.list()[0]).unwrap().len();
    let plain = bytes(&cluster);
    cluster.annotate(MODE, "Auto").sync();
    assert_eq!(bytes(&cluster) - plain, 100 * figure("hints, per endpoint"));
    cluster.remove_annotation(MODE).annotate(PREFERENCE, "zonewise.dev/balanced").sync();
    assert_eq!(cluster.shares().unwrap().len(), figure("zone shares, per slice"));
}

/// The number at the start of a row's second cell.
fn figure(row: &str) -> usize {
    let page = include_str!("../../../../docs/benchmarks.md");
    let (_, cell) = page.split_once(&format!("| {row} | ")).unwrap();
    cell.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}
