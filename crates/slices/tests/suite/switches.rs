//! What turns topology on and off, for one Service or for all, and that nothing stays behind.

use crate::common::{Bed, code, map};
use zonewise_slices::settings::Gates;
use zonewise_topology::reason::Code;

const MODE: &str = "service.kubernetes.io/topology-mode";
const OLDER_MODE: &str = "service.kubernetes.io/topology-aware-hints";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";

/// Every key that changes slices, and the gate that switches it off.
const SWITCHES: [(&str, &str, Gates); 7] = [
    (MODE, "Auto", Gates { hints: false, subsetting: true, preference: true }),
    (OLDER_MODE, "auto", Gates { hints: false, subsetting: true, preference: true }),
    (SUBSETTING, "Auto", Gates { hints: true, subsetting: false, preference: true }),
    (SUBSETTING, "Require", Gates { hints: true, subsetting: false, preference: true }),
    (PREFERENCE, "Zone", Gates { hints: true, subsetting: true, preference: false }),
    (PREFERENCE, "zonewise.dev/auto", Gates { hints: true, subsetting: true, preference: false }),
    (
        PREFERENCE,
        "zonewise.dev/balanced",
        Gates { hints: true, subsetting: true, preference: false },
    ),
];

/// Three equal zones with twelve Pods each, more in one than in the others.
fn cluster() -> Bed {
    let mut bed = Bed::three();
    bed.pods("a", 14).pods("b", 12).pods("c", 10);
    bed
}

/// Whether slices hold any hint, share or subset label.
fn has_topology(bed: &Bed) -> bool {
    !bed.hints().is_empty()
        || bed.shares().is_some()
        || bed.subsets().keys().any(|key| !key.is_empty())
}

#[test]
fn b1_both_annotations_and_the_preference_auto_give_the_same_hints() {
    let keys =
        [(MODE, "Auto"), (MODE, "auto"), (OLDER_MODE, "Auto"), (PREFERENCE, "zonewise.dev/auto")];
    for (key, value) in keys {
        let mut bed = cluster();
        bed.annotate(key, value);
        assert_eq!(code(&bed.sync()), Code::HintsAssigned, "{key}: {value}");
        assert_eq!(bed.hints(), map([("a", 12), ("b", 12), ("c", 12)]), "{key}: {value}");
    }
    let mut bed = cluster();
    bed.annotate(PREFERENCE, "Zone").sync();
    assert_eq!(
        bed.hints(),
        map([("a", 14), ("b", 12), ("c", 10)]),
        "Zone does not look at capacity"
    );
}

#[test]
fn e1_a_key_that_is_set_removed_and_set_again_leaves_no_trace() {
    for (key, value, _) in SWITCHES {
        let mut bed = cluster();
        for round in ["first", "second"] {
            bed.annotate(key, value).sync();
            assert!(has_topology(&bed), "{key}: {value}, {round} time");
            bed.forget(key).sync();
            assert!(!has_topology(&bed), "{key}: {value}, {round} time");
        }
    }
}

#[test]
fn b7_d16_e1_a_gate_that_goes_off_on_and_off_leaves_no_trace() {
    for (key, value, off) in SWITCHES {
        let mut bed = cluster();
        bed.annotate(key, value);
        for round in ["first", "second"] {
            bed.settings.gates = Gates::default();
            bed.sync();
            assert!(has_topology(&bed), "{key}: {value}, {round} time");
            bed.settings.gates = off;
            assert_eq!(code(&bed.sync()), Code::ClusterWide, "{key}: {value}, {round} time");
            assert!(!has_topology(&bed), "{key}: {value}, {round} time");
            let notes = bed.asked().notes;
            assert_eq!(notes[0].reason.code(), Code::GateOff, "{key}: {value}, {round} time");
        }
    }
}

/// A controller that does not know the preference finds slices of one that did: gate off, and the
/// other keys of the Service are in force again.
#[test]
fn d20_without_the_preference_the_next_key_is_in_force() {
    let mut bed = cluster();
    bed.annotate(PREFERENCE, "zonewise.dev/balanced");
    bed.service["spec"]["trafficDistribution"] = "PreferSameZone".into();
    bed.sync();
    assert!(bed.shares().is_some());
    bed.settings.gates.preference = false;
    assert_eq!(code(&bed.sync()), Code::OwnZone);
    assert_eq!((bed.shares(), bed.hints()), (None, map([("a", 14), ("b", 12), ("c", 10)])));
    bed.service["spec"].as_object_mut().unwrap().remove("trafficDistribution");
    bed.sync();
    assert!(!has_topology(&bed), "the annotation alone means Default");
}

#[test]
fn a17_every_slice_is_found_by_the_name_of_its_service() {
    for approach in ["Random", "Auto", "Require", "Region"] {
        let mut bed = cluster();
        bed.settings.max_endpoints = 5;
        bed.annotate(SUBSETTING, approach).sync();
        let slices = bed.store.list();
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
    let mut bed = Bed::new(&[("a", "4"), ("b", "5"), ("c", "6")]);
    bed.pods("a", 67).pods("b", 17).pods("c", 16).sync();
    let bytes = |bed: &Bed| serde_json::to_string(&*bed.store.list()[0]).unwrap().len();
    let plain = bytes(&bed);
    bed.annotate(MODE, "Auto").sync();
    assert_eq!(bytes(&bed) - plain, 100 * figure("hints, per endpoint"));
    bed.forget(MODE).annotate(PREFERENCE, "zonewise.dev/balanced").sync();
    assert_eq!(bed.shares().unwrap().len(), figure("zone shares, per slice"));
}

/// The number at the start of a row's second cell.
fn figure(row: &str) -> usize {
    let page = include_str!("../../../../docs/benchmarks.md");
    let (_, cell) = page.split_once(&format!("| {row} | ")).unwrap();
    cell.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}
