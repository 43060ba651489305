//! Subsets, by requirement (documents A and C).

use crate::common::{Bed, code, map};
use zonewise_slices::settings::Gates;
use zonewise_topology::reason::Code;

const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";

fn equal(approach: &str, each: usize) -> Bed {
    let mut bed = Bed::three();
    bed.annotate(SUBSETTING, approach);
    for zone in ["a", "b", "c"] {
        bed.pods(zone, each);
    }
    bed
}

#[test]
fn a1_every_spelling_of_an_approach() {
    let rows = [
        ("Auto", "local-subset"),
        ("Prefer", "local-subset"),
        ("preferzone", "local-subset"),
        ("REQUIRE", "require-zone"),
        ("RequireZone", "require-zone"),
        ("Region", "local-subset"),
        ("Random", "random"),
        ("original", "random"),
        ("Disabled", "random"),
        ("", "random"),
        ("whatever", "random"),
    ];
    for (value, heuristic) in rows {
        let bed = equal(value, 1);
        assert_eq!(bed.asked().choice.name(), heuristic, "{value}");
        let unknown =
            bed.asked().notes.iter().any(|note| note.reason.code() == Code::SubsettingUnknown);
        assert_eq!(unknown, value == "whatever");
    }
}

#[test]
fn a2_the_default_of_the_controller_holds_for_services_that_say_nothing() {
    let mut bed = equal("", 10);
    bed.forget(SUBSETTING).sync();
    assert_eq!(bed.subsets(), map([("", (30, 1))]), "shipped: Random");
    bed.settings.default_subsetting = "Auto".into();
    bed.sync();
    assert_eq!(
        bed.subsets(),
        map([("for-zone=a", (10, 1)), ("for-zone=b", (10, 1)), ("for-zone=c", (10, 1))])
    );
}

#[test]
fn a2_the_default_respects_the_gate_and_local_policies() {
    let mut bed = equal("", 10);
    bed.forget(SUBSETTING);
    bed.settings.default_subsetting = "Auto".into();
    bed.service["spec"]["internalTrafficPolicy"] = "Local".into();
    assert_eq!(bed.asked().choice.name(), "random", "C9");
    bed.service["spec"]["internalTrafficPolicy"] = "Cluster".into();
    assert_eq!(bed.asked().choice.name(), "local-subset");
    bed.settings.gates = Gates { subsetting: false, ..Gates::default() };
    assert_eq!(bed.asked().choice.name(), "random", "A3");
}

#[test]
fn a3_the_gate_leaves_no_trace() {
    let mut bed = equal("Auto", 10);
    bed.sync();
    assert_eq!(bed.subsets().len(), 3);
    bed.settings.gates = Gates { subsetting: false, ..Gates::default() };
    bed.sync();
    assert_eq!(bed.subsets(), map([("", (30, 1))]));
}

#[test]
fn a7_a8_a11_padding_keeps_the_state() {
    // Three zones: threshold 9, padding 3: on at 12, off at 6.
    let mut bed = equal("Auto", 0);
    let mut at = |total: usize| {
        bed.pods("a", total.div_ceil(3)).pods("b", (total + 1) / 3).pods("c", total / 3).sync();
        bed.subsets().len()
    };
    assert_eq!([9, 11, 12, 9, 7, 6, 9, 12].map(&mut at), [1, 1, 3, 3, 3, 1, 1, 3]);
}

#[test]
fn a8_a_service_can_set_both_and_a_wrong_value_is_said() {
    let mut bed = equal("Auto", 3);
    bed.sync();
    assert_eq!(bed.subsets().len(), 1, "9 of 12");
    bed.annotate("zonewise.dev/starting-threshold", "6")
        .annotate("zonewise.dev/padding", "3")
        .sync();
    assert_eq!(bed.subsets().len(), 3, "6 + 3 = 9");
    bed.annotate("zonewise.dev/padding", "-1");
    let notes: Vec<Code> = bed.asked().notes.iter().map(|note| note.reason.code()).collect();
    assert_eq!(notes, [Code::PaddingInvalid]);
}

#[test]
fn a9_a_change_that_breaks_no_threshold_writes_one_slice() {
    let mut bed = equal("Auto", 20);
    bed.sync();
    bed.pods("b", 21);
    assert_eq!(bed.sync().writes(), 1);
    assert_eq!(bed.subsets()["for-zone=b"], (21, 1));
}

#[test]
fn a10_endpoints_without_topology_go_where_they_are_needed() {
    let mut bed = Bed::three();
    bed.annotate(SUBSETTING, "Auto").pods("a", 6).pods("b", 6).pods("c", 1);
    bed.nodes.insert("lost".into(), serde_json::json!({
        "metadata": {"name": "lost"},
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }));
    for _ in 0..5 {
        bed.pod("lost");
    }
    bed.sync();
    assert_eq!(bed.subsets()["for-zone=c"].0, 6);
}

/// Document C's table for three zones: endpoints, then slices per approach.
#[test]
fn a11_a12_slice_counts() {
    let rows = [(2, [1, 1, 3]), (30, [1, 3, 3]), (90, [3, 3, 3])];
    for (each, slices) in rows {
        for (approach, expected) in
            ["Original", "PreferZone", "RequireZone"].into_iter().zip(slices)
        {
            let mut bed = equal(approach, each);
            bed.sync();
            let found: usize = bed.subsets().values().map(|(_, slices)| slices).sum();
            assert_eq!(found, expected, "{} endpoints, {approach}", 3 * each);
        }
    }
}

#[test]
fn a13_every_zone_with_nodes_has_a_slice_under_require() {
    let mut bed = Bed::three();
    bed.annotate(SUBSETTING, "Require").pods("a", 2);
    bed.sync();
    assert_eq!(
        bed.subsets(),
        map([("for-zone=a", (2, 1)), ("for-zone=b", (0, 1)), ("for-zone=c", (0, 1))])
    );
    assert_eq!(bed.sync().writes(), 0);
    bed.pods("a", 1).pods("b", 1).sync();
    assert_eq!(
        bed.subsets(),
        map([("for-zone=a", (1, 1)), ("for-zone=b", (1, 1)), ("for-zone=c", (0, 1))])
    );
    bed.pods("b", 0).sync();
    assert_eq!(bed.subsets()["for-zone=b"], (0, 1));
}

/// Every way round ends in the right distribution, and what is added is written before what is
/// taken away (C7).
#[test]
fn a14_c7_switching_approaches() {
    let approaches = ["Random", "Auto", "Require", "Region"];
    let expected = |approach: &str| match approach {
        "Random" => map([("", (36, 1))]),
        "Region" => map([("for-region=eu", (18, 1)), ("for-region=us", (18, 1))]),
        _ => map([("for-zone=eu-1", (18, 1)), ("for-zone=us-1", (18, 1))]),
    };
    for from in approaches {
        for to in approaches {
            let mut bed = Bed::new(&[("eu-1", "4"), ("us-1", "4")]);
            bed.pods("eu-1", 18).pods("us-1", 18).annotate(SUBSETTING, from).sync();
            assert_eq!(bed.subsets(), expected(from));
            bed.annotate(SUBSETTING, to);
            let plan = bed.plan();
            let family = &plan.families[0];
            let emptied = family.updates.iter().filter(|slice| {
                let before = &bed.store.slices[slice.name()];
                slice.subset() != before.subset() && !before.endpoints.is_empty()
            });
            assert_eq!(
                emptied.count(),
                0,
                "{from} to {to}: no slice changes its consumers in place"
            );
            bed.sync();
            assert_eq!(bed.subsets(), expected(to), "{from} to {to}");
            assert_eq!(bed.sync().writes(), 0, "{from} to {to}");
        }
    }
}

/// A15: a rolling update at the worst surge. Everybody is replaced, one in, one out.
#[test]
fn a15_rolling_update() {
    let mut bed = equal("Auto", 10);
    bed.sync();
    let old: Vec<String> = bed.pods.keys().cloned().collect();
    let mut writes = 0;
    for (index, name) in old.iter().enumerate() {
        bed.pod(&format!("node-{}", ["a", "b", "c"][index % 3]));
        writes += bed.sync().writes();
        bed.pods.remove(name);
        writes += bed.sync().writes();
        assert_eq!(bed.subsets().len(), 3, "never back to one");
    }
    let sizes: Vec<usize> = bed.subsets().values().map(|(endpoints, _)| *endpoints).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 30);
    assert!(sizes.iter().all(|size| (8..=12).contains(size)), "{sizes:?}");
    // 60 changes of one endpoint each: at best 60 writes.
    assert!(writes <= 90, "{writes} slices written for 60 changes");
}

#[test]
fn a19_worked_examples() {
    let mut bed = Bed::three();
    bed.annotate(SUBSETTING, "Auto").annotate("zonewise.dev/starting-threshold", "1");
    bed.annotate("zonewise.dev/padding", "0").pods("a", 5).pods("b", 3).pods("c", 2).sync();
    assert_eq!(
        bed.subsets(),
        map([("for-zone=a", (4, 1)), ("for-zone=b", (3, 1)), ("for-zone=c", (3, 1))])
    );
    let mut bed = Bed::three();
    bed.annotate(SUBSETTING, "Auto").annotate("zonewise.dev/starting-threshold", "1");
    bed.annotate("zonewise.dev/padding", "0").pods("a", 2).pods("b", 2).pods("c", 1);
    assert_eq!(code(&bed.sync()), Code::OverloadTooHigh);
    assert_eq!(bed.subsets(), map([("", (5, 1))]));
}

#[test]
fn a25_zones_without_endpoints_are_served_by_others() {
    let mut bed = Bed::three();
    bed.annotate(SUBSETTING, "Auto").pods("a", 30).sync();
    assert_eq!(
        bed.subsets(),
        map([("for-zone=a", (10, 1)), ("for-zone=b", (10, 1)), ("for-zone=c", (10, 1))])
    );
}

#[test]
fn c9_a_local_policy_is_never_subset() {
    for field in ["internalTrafficPolicy", "externalTrafficPolicy"] {
        let mut bed = equal("Auto", 10);
        bed.service["spec"][field] = "Local".into();
        bed.sync();
        assert_eq!(bed.subsets(), map([("", (30, 1))]), "{field}");
        assert_eq!(bed.asked().notes[0].reason.code(), Code::LocalPolicy);
    }
}

#[test]
fn e4_a_zone_that_is_lost_and_a_node_that_moves() {
    let mut bed = equal("Auto", 10);
    bed.sync();
    bed.nodes.remove("node-c");
    bed.pods("c", 0).pods("a", 15).pods("b", 15).sync();
    assert_eq!(bed.subsets(), map([("for-zone=a", (15, 1)), ("for-zone=b", (15, 1))]));
    bed.node("node-b", "d", "4");
    bed.sync();
    assert_eq!(bed.subsets(), map([("for-zone=a", (15, 1)), ("for-zone=d", (15, 1))]));
}

#[test]
fn an_endpoint_that_is_not_ready_stays_in_its_subset() {
    let mut bed = equal("Auto", 10);
    bed.sync();
    let name = bed.pods.keys().next().unwrap().clone();
    bed.pods.get_mut(&name).unwrap()["status"]["conditions"][0]["status"] = "False".into();
    assert_eq!(bed.sync().writes(), 1);
    assert_eq!(bed.subsets()["for-zone=a"], (10, 1));
}
