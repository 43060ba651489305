//! What turns topology on and off, for one Service or for all, and that nothing stays behind.

use crate::common::{TestCluster, code, map};
use zonewise_slices::settings::{FeatureGates, Gate};
use zonewise_topology::expression::{Definition, Library};
use zonewise_topology::reason::Code;

const MODE: &str = "service.kubernetes.io/topology-mode";
const OLDER_MODE: &str = "service.kubernetes.io/topology-aware-hints";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";

/// Every key that changes slices, and the gates that switch it off, each by itself.
const SWITCHES: [(&str, &str, &[Gate]); 15] = [
    (MODE, "Auto", &[Gate::Hints]),
    (OLDER_MODE, "auto", &[Gate::Hints]),
    (SUBSETTING, "Auto", &[Gate::Subsetting]),
    (SUBSETTING, "Require", &[Gate::Subsetting]),
    (SUBSETTING, "Region", &[Gate::Subsetting]),
    (PREFERENCE, "Zone", &[Gate::Preference, Gate::Hints]),
    (PREFERENCE, "zonewise.dev/same-zone", &[Gate::Preference, Gate::Hints]),
    (PREFERENCE, "zonewise.dev/same-node", &[Gate::Preference, Gate::Hints]),
    (PREFERENCE, "zonewise.dev/auto", &[Gate::Preference, Gate::Hints]),
    (PREFERENCE, "zonewise.dev/local", &[Gate::Preference, Gate::Hints]),
    (PREFERENCE, "zonewise.dev/local-shared", &[Gate::Preference, Gate::Hints]),
    (PREFERENCE, "example.com/own-zone", &[Gate::Preference, Gate::Hints]),
    (PREFERENCE, "zonewise.dev/local-subset", &[Gate::Preference, Gate::Subsetting]),
    (PREFERENCE, "zonewise.dev/require-zone", &[Gate::Preference, Gate::Subsetting]),
    (PREFERENCE, "zonewise.dev/balanced", &[Gate::Preference]),
];

fn without(gate: Gate) -> FeatureGates {
    let mut gates = FeatureGates::default();
    gates.set(gate, false);
    gates
}

/// Three equal zones with 14, 12 and 10 Pods.
fn three_zones() -> TestCluster {
    let mut cluster = TestCluster::three_zones();
    cluster.pods("a", 14).pods("b", 12).pods("c", 10);
    let own_zone = Definition {
        name: "example.com/own-zone".into(),
        endpoint_zones: Some("[endpoint.zone]".into()),
        zone_shares: None,
    };
    let half = Definition {
        name: "example.com/shares".into(),
        endpoint_zones: None,
        zone_shares: Some("zones.map(z, z.endpoints)".into()),
    };
    cluster.settings.library = Library::new(&[own_zone, half]).unwrap();
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
fn a3_b7_d16_e1_a_gate_that_goes_off_on_and_off_leaves_no_trace() {
    for (key, value, gates) in SWITCHES {
        for &gate in gates {
            let mut cluster = three_zones();
            cluster.annotate(key, value);
            for round in ["first", "second"] {
                let row = format!("{key}: {value}, {} off for the {round} time", gate.name());
                cluster.settings.gates = FeatureGates::default();
                cluster.sync();
                assert!(has_topology(&cluster), "{row}");
                cluster.settings.gates = without(gate);
                assert_eq!(code(&cluster.sync()), Code::ClusterWide, "{row}");
                assert!(!has_topology(&cluster), "{row}");
                let notes = cluster.requested_routing().notes;
                assert_eq!(notes[0].reason.code(), Code::GateOff, "{row}");
                assert_eq!(notes[0].closed_gates, [gate], "{row}");
            }
        }
    }
}

/// The defaults of the controller are requests like any other.
#[test]
fn a3_b7_d16_gates_hold_for_the_defaults_of_the_controller_too() {
    for (key, value, gates) in
        SWITCHES.into_iter().filter(|(key, ..)| *key != MODE && *key != OLDER_MODE)
    {
        for &gate in gates {
            let mut cluster = three_zones();
            match key {
                SUBSETTING => cluster.settings.default_subsetting = value.into(),
                _ => cluster.settings.default_preference = value.into(),
            }
            cluster.sync();
            assert!(has_topology(&cluster), "{key}: {value}");
            cluster.settings.gates = without(gate);
            assert_eq!(code(&cluster.sync()), Code::ClusterWide, "{key}: {value}, {}", gate.name());
            assert!(!has_topology(&cluster), "{key}: {value}, {}", gate.name());
        }
    }
}

/// C9: subsets that the default preference asks for are subsets all the same.
#[test]
fn c9_the_default_preference_makes_no_subsets_of_a_local_service() {
    let mut cluster = three_zones();
    cluster.settings.default_preference = "zonewise.dev/local-subset".into();
    cluster.service["spec"]["internalTrafficPolicy"] = "Local".into();
    cluster.sync();
    assert!(!has_topology(&cluster));
}

#[test]
fn b7_hints_of_the_field_stay_and_come_into_force() {
    for (key, value, gates) in
        SWITCHES.into_iter().filter(|(.., gates)| gates.contains(&Gate::Hints))
    {
        for upstream in [false, true] {
            if upstream && key == PREFERENCE {
                continue;
            }
            let mut cluster = three_zones();
            cluster.settings.upstream = upstream;
            cluster.service["spec"]["trafficDistribution"] = "PreferSameZone".into();
            cluster.annotate(key, value).sync();
            cluster.settings.gates = without(Gate::Hints);
            assert_eq!(code(&cluster.sync()), Code::OwnZone, "{key}: {value}, {gates:?}");
            assert_eq!(cluster.hints(), map([("a", 14), ("b", 12), ("c", 10)]), "{key}: {value}");
        }
    }
}

/// Shares need no hints: they stay in force, and the hints beside them, which `auto` adds, go.
#[test]
fn b7_shares_stay_without_hints_beside_them() {
    for value in ["zonewise.dev/balanced", "example.com/shares"] {
        let mut cluster = three_zones();
        cluster.annotate(PREFERENCE, value).sync();
        let shares = cluster.shares();
        assert!(shares.is_some() && !cluster.hints().is_empty(), "{value}");
        cluster.settings.gates = without(Gate::Hints);
        cluster.sync();
        assert_eq!((cluster.shares(), cluster.hints()), (shares, map([])), "{value}");
    }
}

/// With `--compat upstream` the annotation is the only key with a gate.
#[test]
fn b7_the_gate_holds_as_the_reference_too() {
    let mut cluster = three_zones();
    cluster.settings.upstream = true;
    cluster.annotate(MODE, "Auto");
    for round in ["first", "second"] {
        cluster.settings.gates = FeatureGates::default();
        assert_eq!(code(&cluster.sync()), Code::HintsAssigned, "{round}");
        cluster.settings.gates = without(Gate::Hints);
        assert_eq!(code(&cluster.sync()), Code::ClusterWide, "{round}");
        assert!(!has_topology(&cluster), "{round}");
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
