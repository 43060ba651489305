//! Subsets. The names of tests begin with the requirement that they prove (docs/requirements.md).

use crate::common::{TestCluster, code, map};
use zonewise_slices::settings::FeatureGates;
use zonewise_topology::reason::Code;

const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";

fn equal(approach: &str, each: usize) -> TestCluster {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(SUBSETTING, approach);
    for zone in ["a", "b", "c"] {
        cluster.pods(zone, each);
    }
    cluster
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
        let cluster = equal(value, 1);
        assert_eq!(cluster.requested_routing().choice.name(), heuristic, "{value}");
        let unknown = cluster
            .requested_routing()
            .notes
            .iter()
            .any(|note| note.reason.code() == Code::SubsettingUnknown);
        assert_eq!(unknown, value == "whatever");
    }
}

#[test]
fn a2_the_default_of_the_controller_holds_for_services_that_say_nothing() {
    let mut cluster = equal("", 10);
    cluster.remove_annotation(SUBSETTING).sync();
    assert_eq!(cluster.subsets(), map([("", (30, 1))]), "shipped: Random");
    cluster.settings.default_subsetting = "Auto".into();
    cluster.sync();
    assert_eq!(
        cluster.subsets(),
        map([("for-zone=a", (10, 1)), ("for-zone=b", (10, 1)), ("for-zone=c", (10, 1))])
    );
}

#[test]
fn a2_the_default_respects_the_gate_and_local_policies() {
    let mut cluster = equal("", 10);
    cluster.remove_annotation(SUBSETTING);
    cluster.settings.default_subsetting = "Auto".into();
    cluster.service["spec"]["internalTrafficPolicy"] = "Local".into();
    assert_eq!(cluster.requested_routing().choice.name(), "random", "C9");
    cluster.service["spec"]["internalTrafficPolicy"] = "Cluster".into();
    assert_eq!(cluster.requested_routing().choice.name(), "local-subset");
    cluster.settings.gates = FeatureGates { subsetting: false, ..FeatureGates::default() };
    assert_eq!(cluster.requested_routing().choice.name(), "random", "A3");
}

#[test]
fn a3_the_gate_leaves_no_trace() {
    let mut cluster = equal("Auto", 10);
    cluster.sync();
    assert_eq!(cluster.subsets().len(), 3);
    cluster.settings.gates = FeatureGates { subsetting: false, ..FeatureGates::default() };
    cluster.sync();
    assert_eq!(cluster.subsets(), map([("", (30, 1))]));
}

#[test]
fn a7_a8_a11_padding_keeps_the_state() {
    // Three zones: threshold 9, padding 3: on at 12, off at 6.
    let mut cluster = equal("Auto", 0);
    let mut at = |total: usize| {
        cluster.pods("a", total.div_ceil(3)).pods("b", (total + 1) / 3).pods("c", total / 3).sync();
        cluster.subsets().len()
    };
    assert_eq!([9, 11, 12, 9, 7, 6, 9, 12].map(&mut at), [1, 1, 3, 3, 3, 1, 1, 3]);
}

#[test]
fn a8_a_service_can_set_both_and_a_wrong_value_is_said() {
    let mut cluster = equal("Auto", 3);
    cluster.sync();
    assert_eq!(cluster.subsets().len(), 1, "9 of 12");
    cluster
        .annotate("zonewise.dev/starting-threshold", "6")
        .annotate("zonewise.dev/padding", "3")
        .sync();
    assert_eq!(cluster.subsets().len(), 3, "6 + 3 = 9");
    cluster.annotate("zonewise.dev/padding", "-1");
    let notes: Vec<Code> =
        cluster.requested_routing().notes.iter().map(|note| note.reason.code()).collect();
    assert_eq!(notes, [Code::PaddingInvalid]);
}

#[test]
fn a9_a_change_that_breaks_no_threshold_writes_one_slice() {
    let mut cluster = equal("Auto", 20);
    cluster.sync();
    cluster.pods("b", 21);
    assert_eq!(cluster.sync().writes(), 1);
    assert_eq!(cluster.subsets()["for-zone=b"], (21, 1));
}

#[test]
fn a10_endpoints_without_topology_go_where_they_are_needed() {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(SUBSETTING, "Auto").pods("a", 6).pods("b", 6).pods("c", 1);
    cluster.nodes.insert("lost".into(), serde_json::json!({
        "metadata": {"name": "lost"},
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }));
    for _ in 0..5 {
        cluster.pod("lost");
    }
    cluster.sync();
    assert_eq!(cluster.subsets()["for-zone=c"].0, 6);
}

/// Slices for each approach in three zones.
#[test]
fn a11_a12_slice_counts() {
    let rows = [(2, [1, 1, 3]), (30, [1, 3, 3]), (90, [3, 3, 3])];
    for (each, slices) in rows {
        for (approach, expected) in
            ["Original", "PreferZone", "RequireZone"].into_iter().zip(slices)
        {
            let mut cluster = equal(approach, each);
            cluster.sync();
            let found: usize = cluster.subsets().values().map(|(_, slices)| slices).sum();
            assert_eq!(found, expected, "{} endpoints, {approach}", 3 * each);
        }
    }
}

#[test]
fn a13_every_zone_with_nodes_has_a_slice_under_require() {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(SUBSETTING, "Require").pods("a", 2);
    cluster.sync();
    assert_eq!(
        cluster.subsets(),
        map([("for-zone=a", (2, 1)), ("for-zone=b", (0, 1)), ("for-zone=c", (0, 1))])
    );
    assert_eq!(cluster.sync().writes(), 0);
    cluster.pods("a", 1).pods("b", 1).sync();
    assert_eq!(
        cluster.subsets(),
        map([("for-zone=a", (1, 1)), ("for-zone=b", (1, 1)), ("for-zone=c", (0, 1))])
    );
    cluster.pods("b", 0).sync();
    assert_eq!(cluster.subsets()["for-zone=b"], (0, 1));
}

/// Switching from any approach to any other ends in the right subsets, and endpoints are added before
/// others are removed (C7).
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
            let mut cluster = TestCluster::new(&[("eu-1", "4"), ("us-1", "4")]);
            cluster.pods("eu-1", 18).pods("us-1", 18).annotate(SUBSETTING, from).sync();
            assert_eq!(cluster.subsets(), expected(from));
            cluster.annotate(SUBSETTING, to);
            let plan = cluster.plan();
            let family = &plan.families[0];
            let emptied = family.updates.iter().filter(|slice| {
                let before = &cluster.store.slices[slice.name()];
                slice.subset() != before.subset() && !before.endpoints.is_empty()
            });
            assert_eq!(
                emptied.count(),
                0,
                "{from} to {to}: no slice changes its consumers in place"
            );
            cluster.sync();
            assert_eq!(cluster.subsets(), expected(to), "{from} to {to}");
            assert_eq!(cluster.sync().writes(), 0, "{from} to {to}");
        }
    }
}

/// A rolling update that replaces every Pod, one by one.
#[test]
fn a15_rolling_update() {
    let mut cluster = equal("Auto", 10);
    cluster.sync();
    let old: Vec<String> = cluster.pods.keys().cloned().collect();
    let mut writes = 0;
    for (index, name) in old.iter().enumerate() {
        cluster.pod(&format!("node-{}", ["a", "b", "c"][index % 3]));
        writes += cluster.sync().writes();
        cluster.pods.remove(name);
        writes += cluster.sync().writes();
        assert_eq!(cluster.subsets().len(), 3, "never back to one");
    }
    let sizes: Vec<usize> = cluster.subsets().values().map(|(endpoints, _)| *endpoints).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 30);
    assert!(sizes.iter().all(|size| (8..=12).contains(size)), "{sizes:?}");
    // 60 changes of one endpoint each: at best 60 writes.
    assert!(writes <= 90, "{writes} slices written for 60 changes");
}

#[test]
fn a19_worked_examples() {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(SUBSETTING, "Auto").annotate("zonewise.dev/starting-threshold", "1");
    cluster.annotate("zonewise.dev/padding", "0").pods("a", 5).pods("b", 3).pods("c", 2).sync();
    assert_eq!(
        cluster.subsets(),
        map([("for-zone=a", (4, 1)), ("for-zone=b", (3, 1)), ("for-zone=c", (3, 1))])
    );
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(SUBSETTING, "Auto").annotate("zonewise.dev/starting-threshold", "1");
    cluster.annotate("zonewise.dev/padding", "0").pods("a", 2).pods("b", 2).pods("c", 1);
    assert_eq!(code(&cluster.sync()), Code::OverloadTooHigh);
    assert_eq!(cluster.subsets(), map([("", (5, 1))]));
}

#[test]
fn a25_zones_without_endpoints_are_served_by_others() {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(SUBSETTING, "Auto").pods("a", 30).sync();
    assert_eq!(
        cluster.subsets(),
        map([("for-zone=a", (10, 1)), ("for-zone=b", (10, 1)), ("for-zone=c", (10, 1))])
    );
}

#[test]
fn c9_a_local_policy_is_never_subset() {
    for field in ["internalTrafficPolicy", "externalTrafficPolicy"] {
        let mut cluster = equal("Auto", 10);
        cluster.service["spec"][field] = "Local".into();
        cluster.sync();
        assert_eq!(cluster.subsets(), map([("", (30, 1))]), "{field}");
        assert_eq!(cluster.requested_routing().notes[0].reason.code(), Code::LocalPolicy);
    }
}

#[test]
fn e4_a_zone_that_is_lost_and_a_node_that_moves() {
    let mut cluster = equal("Auto", 10);
    cluster.sync();
    cluster.nodes.remove("node-c");
    cluster.pods("c", 0).pods("a", 15).pods("b", 15).sync();
    assert_eq!(cluster.subsets(), map([("for-zone=a", (15, 1)), ("for-zone=b", (15, 1))]));
    cluster.node("node-b", "d", "4");
    cluster.sync();
    assert_eq!(cluster.subsets(), map([("for-zone=a", (15, 1)), ("for-zone=d", (15, 1))]));
}

#[test]
fn an_endpoint_that_is_not_ready_stays_in_its_subset() {
    let mut cluster = equal("Auto", 10);
    cluster.sync();
    let name = cluster.pods.keys().next().unwrap().clone();
    cluster.pods.get_mut(&name).unwrap()["status"]["conditions"][0]["status"] = "False".into();
    assert_eq!(cluster.sync().writes(), 1);
    assert_eq!(cluster.subsets()["for-zone=a"], (10, 1));
}
