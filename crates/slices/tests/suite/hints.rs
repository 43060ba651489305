//! Hints and zone shares. The names of tests begin with the requirement that they prove
//! (docs/requirements.md).

use crate::common::{TestCluster, code, map};
use serde_json::json;
use zonewise_slices::settings::FeatureGates;
use zonewise_topology::capacity::MissingCpu;
use zonewise_topology::reason::Code;

const MODE: &str = "service.kubernetes.io/topology-mode";
const PREFERENCE: &str = "zonewise.dev/routing-preference";

fn auto(zones: &[(&str, &str)], pods: &[(&str, usize)]) -> TestCluster {
    let mut cluster = TestCluster::new(zones);
    cluster.annotate(MODE, "Auto");
    for (zone, count) in pods {
        cluster.pods(zone, *count);
    }
    cluster
}

/// The table of cases that KEP-2433 lists for the controller.
#[test]
fn b8_unit_test_table() {
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, usize)], bool);
    let three = &[("a", "4"), ("b", "4"), ("c", "4")];
    let two = &[("a", "4"), ("b", "4")];
    let rows: [Row<'_>; 9] = [
        ("one zone", &[("a", "4")], &[("a", 6)], false),
        ("2 endpoints, 3 zones", three, &[("a", 1), ("b", 1)], false),
        ("3 endpoints, 3 zones", three, &[("a", 1), ("b", 1), ("c", 1)], true),
        ("4 endpoints, 3 zones", three, &[("a", 2), ("b", 1), ("c", 1)], false),
        ("4 endpoints, 2 zones", two, &[("a", 2), ("b", 2)], true),
        ("4 endpoints of one zone, 2 zones", two, &[("a", 4)], true),
        (
            "4 endpoints, one zone of double cores",
            &[("a", "8"), ("b", "4"), ("c", "4")],
            &[("a", 2), ("b", 1), ("c", 1)],
            true,
        ),
        (
            "400 endpoints, slightly different cores",
            &[("a", "40"), ("b", "41"), ("c", "39"), ("d", "42")],
            &[("a", 100), ("b", 100), ("c", 100), ("d", 100)],
            true,
        ),
        (
            "two zones 2:1, 2 endpoints (B14)",
            &[("a", "8"), ("b", "4")],
            &[("a", 1), ("b", 1)],
            false,
        ),
    ];
    for (name, zones, pods, hinted) in rows {
        let mut cluster = auto(zones, pods);
        cluster.sync();
        let all: usize = pods.iter().map(|(_, count)| count).sum();
        assert_eq!(cluster.hints().values().sum::<usize>(), if hinted { all } else { 0 }, "{name}");
        assert_eq!(cluster.sync().writes(), 0, "{name}: a second look changes nothing");
    }
}

#[test]
fn b7_b8_unset_or_gate_off_means_no_hints() {
    let mut cluster = auto(&[("a", "4"), ("b", "4")], &[("a", 2), ("b", 2)]);
    cluster.sync();
    assert_eq!(cluster.hints(), map([("a", 2), ("b", 2)]));
    cluster.settings.gates = FeatureGates { hints: false, ..FeatureGates::default() };
    assert_eq!(code(&cluster.sync()), Code::ClusterWide);
    assert_eq!(cluster.hints(), map([]), "the gate leaves no trace");
    cluster.settings.gates = FeatureGates::default();
    cluster.sync();
    cluster.remove_annotation(MODE).sync();
    assert_eq!(cluster.hints(), map([]));
}

#[test]
fn b14_2_to_1_cores_are_2_to_1_endpoints() {
    let mut cluster = auto(&[("a", "8"), ("b", "4")], &[("a", 3), ("b", 3)]);
    cluster.sync();
    assert_eq!(cluster.hints(), map([("a", 4), ("b", 2)]));
}

/// The reference leaves the zones with 1, 1 and 4 endpoints; the KEP demands less than 20 % overload
/// in every zone.
#[test]
fn b4_no_zone_is_left_below_its_minimum() {
    let mut cluster = auto(&[("a", "1"), ("b", "5"), ("c", "9")], &[("c", 6)]);
    cluster.sync();
    assert_eq!(cluster.hints(), map([("a", 1), ("b", 2), ("c", 3)]));
}

#[test]
fn b4_b5_hints_stay_below_30_percent_and_are_redistributed_at_it() {
    let mut cluster = auto(&[("a", "10"), ("b", "10")], &[("a", 5), ("b", 5)]);
    cluster.sync();
    // 12.5 against 7.5 cores: zone a expects 6.25 of 10 endpoints and has 5, 25 % too few.
    cluster.node("node-a", "a", "12500m");
    cluster.node("node-b", "b", "7500m");
    assert_eq!(cluster.sync().writes(), 0, "25 %: kept");
    // 14 against 6: 7 expected, 5 present, 40 %.
    cluster.node("node-a", "a", "14");
    cluster.node("node-b", "b", "6");
    assert!(cluster.sync().writes() > 0);
    assert_eq!(cluster.hints(), map([("a", 7), ("b", 3)]));
}

#[test]
fn b5_hints_come_back_by_themselves() {
    let mut cluster = auto(&[("a", "4"), ("b", "4")], &[("a", 2), ("b", 2)]);
    cluster.sync();
    let node = cluster.nodes.get_mut("node-b").unwrap();
    node["metadata"]["labels"].as_object_mut().unwrap().remove("topology.kubernetes.io/zone");
    assert_eq!(code(&cluster.sync()), Code::NodeInformationMissing);
    assert_eq!(cluster.hints(), map([]));
    cluster.node("node-b", "b", "4");
    assert_eq!(code(&cluster.sync()), Code::HintsAssigned);
    assert_eq!(cluster.hints(), map([("a", 2), ("b", 2)]));
}

#[test]
fn b8_additions_and_removals_redistribute() {
    let mut cluster = auto(&[("a", "4"), ("b", "4"), ("c", "4")], &[("a", 3), ("b", 3), ("c", 3)]);
    cluster.sync();
    cluster.pods("a", 9).sync();
    assert_eq!(cluster.hints(), map([("a", 5), ("b", 5), ("c", 5)]));
    cluster.pods("b", 0).sync();
    assert_eq!(cluster.hints(), map([("a", 4), ("b", 4), ("c", 4)]));
}

#[test]
fn b6_nodes_count_as_equal_where_configured() {
    let mut cluster = auto(&[("a", "40"), ("b", "4")], &[("a", 2), ("b", 2)]);
    cluster.nodes.get_mut("node-b").unwrap()["status"]["allocatable"] = json!({});
    assert_eq!(code(&cluster.sync()), Code::NodeInformationMissing);
    cluster.missing_cpu = MissingCpu::CountNodes;
    cluster.sync();
    assert_eq!(cluster.hints(), map([("a", 2), ("b", 2)]));
}

#[test]
fn b11_b18_unready_and_control_plane_nodes_do_not_count() {
    let mut cluster =
        auto(&[("a", "4"), ("b", "4"), ("c", "40"), ("d", "40")], &[("a", 2), ("b", 2)]);
    cluster.nodes.get_mut("node-c").unwrap()["status"]["conditions"][0]["status"] = "False".into();
    cluster.nodes.get_mut("node-d").unwrap()["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] =
        "".into();
    cluster.sync();
    assert_eq!(cluster.hints(), map([("a", 2), ("b", 2)]));
}

/// The traffic policy is for proxies; the controller assigns hints whatever it says.
#[test]
fn b10_a_local_policy_does_not_keep_hints_away() {
    let mut cluster = auto(&[("a", "4"), ("b", "4")], &[("a", 2), ("b", 2)]);
    cluster.service["spec"]["internalTrafficPolicy"] = "Local".into();
    cluster.sync();
    assert_eq!(cluster.hints(), map([("a", 2), ("b", 2)]));
}

#[test]
fn d11_zone_hints_every_endpoint_to_its_own_zone() {
    let mut cluster = TestCluster::three_zones();
    cluster.pods("a", 5).pods("b", 1).annotate(PREFERENCE, "Zone");
    assert_eq!(code(&cluster.sync()), Code::OwnZone);
    assert_eq!(cluster.hints(), map([("a", 5), ("b", 1)]));
    for value in ["Default", "Spread"] {
        cluster.annotate(PREFERENCE, value);
        assert_eq!(code(&cluster.sync()), Code::ClusterWide, "{value}");
        assert_eq!(cluster.hints(), map([]), "{value}");
    }
}

#[test]
fn traffic_distribution_is_the_references() {
    let mut cluster = TestCluster::three_zones();
    cluster.pods("a", 2).pods("b", 1);
    cluster.service["spec"]["trafficDistribution"] = "PreferSameNode".into();
    cluster.sync();
    let slice = cluster.store.list().remove(0);
    let hints = slice.endpoints[0].hints.as_ref().unwrap();
    assert_eq!((&*hints.for_zones[0], &*hints.for_nodes[0]), ("a", "node-a"));
    cluster.service["spec"]["trafficDistribution"] = "PreferClose".into();
    cluster.sync();
    assert_eq!(cluster.hints(), map([("a", 2), ("b", 1)]));
    assert!(
        cluster.store.list()[0].endpoints[0].hints.as_ref().unwrap().for_nodes.is_empty(),
        "hints to nodes are removed, unlike in the reference"
    );
}

/// Which key wins, and which notes the others get.
#[test]
fn a23_d10_d13_d18_the_first_key_that_means_something_wins() {
    const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
    type Row<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str, &'a [Code]);
    let rows: [Row<'_>; 12] = [
        (&[], "PreferClose", "same-zone", &[]),
        (&[(MODE, "Auto")], "PreferClose", "auto", &[Code::ChoiceOverridden]),
        (&[(MODE, "Disabled")], "PreferClose", "same-zone", &[]),
        (&[(MODE, "aUto")], "PreferClose", "same-zone", &[Code::TopologyModeUnknown]),
        (&[(MODE, "Auto"), (PREFERENCE, "Spread")], "", "auto", &[Code::ChoiceOverridden]),
        (
            &[(SUBSETTING, "Prefer"), (PREFERENCE, "Zone")],
            "",
            "local-subset",
            &[Code::ChoiceOverridden],
        ),
        (
            &[(SUBSETTING, "nonsense"), (PREFERENCE, "Zone")],
            "",
            "same-zone",
            &[Code::SubsettingUnknown],
        ),
        (
            &[(PREFERENCE, "zonewise.dev/balanced")],
            "PreferClose",
            "balanced",
            &[Code::ChoiceOverridden],
        ),
        (&[(PREFERENCE, "zonewise.dev/auto")], "", "auto", &[]),
        (&[(PREFERENCE, "Nearest")], "PreferClose", "same-zone", &[Code::PreferenceReserved]),
        (&[(PREFERENCE, "example.com/none")], "", "random", &[Code::PreferenceUnknown]),
        (&[(PREFERENCE, "Default")], "PreferSameNode", "random", &[Code::ChoiceOverridden]),
    ];
    for (annotations, distribution, heuristic, notes) in rows {
        let mut cluster = TestCluster::three_zones();
        for (key, value) in annotations {
            cluster.annotate(key, value);
        }
        if !distribution.is_empty() {
            cluster.service["spec"]["trafficDistribution"] = distribution.into();
        }
        let requested = cluster.requested_routing();
        let codes: Vec<Code> = requested.notes.iter().map(|note| note.reason.code()).collect();
        assert_eq!(
            (requested.choice.name(), &*codes),
            (heuristic, notes),
            "{annotations:?} {distribution}"
        );
    }
}

/// Every reason code that only this crate can give.
#[test]
fn every_code_about_requests_is_reached() {
    use std::collections::BTreeSet;
    let notes = |annotations: &[(&str, &str)], change: fn(&mut TestCluster)| -> Vec<Code> {
        let mut cluster = TestCluster::three_zones();
        for (key, value) in annotations {
            cluster.annotate(key, value);
        }
        change(&mut cluster);
        cluster.requested_routing().notes.iter().map(|note| note.reason.code()).collect()
    };
    let subsetting = "endpointslice.kubernetes.io/subsetting";
    let mut reached: BTreeSet<Code> = BTreeSet::new();
    reached.extend(notes(&[(MODE, "Auto"), (PREFERENCE, "Zone")], |_| {}));
    reached.extend(notes(&[(MODE, "Auto")], |cluster| cluster.settings.gates.hints = false));
    reached.extend(notes(&[(subsetting, "Auto")], |cluster| {
        cluster.service["spec"]["externalTrafficPolicy"] = "Local".into();
    }));
    reached.extend(notes(&[(PREFERENCE, "Near"), (MODE, "on"), (subsetting, "on")], |_| {}));
    reached.extend(notes(&[(PREFERENCE, "zonewise.dev/none")], |_| {}));
    reached.extend(notes(&[("zonewise.dev/routing-prefrence", "Zone")], |_| {}));
    reached.extend(notes(&[("zonewise.dev/demand", "guessed")], |_| {}));
    reached.extend(notes(&[("zonewise.dev/endpoint-weight", "guessed")], |_| {}));
    reached.extend(notes(&[("zonewise.dev/endpoint-weight", "cpu-request")], |_| {}));
    reached.extend(notes(&[("zonewise.dev/failing-zones", "guessed")], |_| {}));
    reached.extend(notes(&[("zonewise.dev/failing-zones", "spill")], |_| {}));
    let spilling = [(PREFERENCE, "zonewise.dev/balanced"), ("zonewise.dev/failing-zones", "spill")];
    reached.extend(notes(&spilling, |cluster| cluster.settings.failures_are_watched = false));
    reached.extend(notes(&[("zonewise.dev/padding", "1")], |cluster| {
        cluster.service["metadata"]["labels"][MODE] = "Auto".into();
    }));
    reached.insert(code(&crowded().sync()));
    let expected = BTreeSet::from([
        Code::ChoiceOverridden,
        Code::GateOff,
        Code::LocalPolicy,
        Code::PreferenceReserved,
        Code::PreferenceUnknown,
        Code::SubsettingUnknown,
        Code::TopologyModeUnknown,
        Code::DemandUnknown,
        Code::EndpointWeightUnknown,
        Code::EndpointWeightUnused,
        Code::FailingZonesUnknown,
        Code::FailingZonesUnused,
        Code::FailingZonesNotWatched,
        Code::KeyUnknown,
        Code::KeyIsLabel,
        Code::ThresholdUnused,
        Code::TooManyZonesForHints,
    ]);
    assert_eq!(reached, expected);
}

/// A cluster in which one group of endpoints is used by more zones than hints can name.
fn crowded() -> TestCluster {
    let names: Vec<String> = (0..20).map(|zone| format!("z{zone:02}")).collect();
    let zones: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "4")).collect();
    let mut cluster = TestCluster::new(&zones);
    // One zone has all endpoints; the others, without any, share a group (local-shared).
    cluster.pods("z00", 60).annotate(PREFERENCE, "zonewise.dev/local-shared");
    cluster
}

#[test]
fn a23_the_removed_field_is_named() {
    let mut cluster = TestCluster::three_zones();
    cluster.service["spec"]["topologyKeys"] = json!(["topology.kubernetes.io/zone"]);
    let notes = cluster.requested_routing().notes;
    assert_eq!(
        (&*notes[0].source, notes[0].reason.code()),
        ("spec.topologyKeys", Code::ChoiceOverridden)
    );
}

#[test]
fn balanced_writes_the_same_shares_on_every_slice_and_hints_beside_them() {
    let mut cluster = TestCluster::three_zones();
    cluster.settings.max_endpoints = 4;
    cluster.pods("a", 6).pods("b", 3).pods("c", 3).annotate(PREFERENCE, "zonewise.dev/balanced");
    assert_eq!(code(&cluster.sync()), Code::SharesBalanced);
    assert_eq!(
        cluster.shares().unwrap(),
        r#"{"v":1,"endpoints":{"a":6,"b":3,"c":3},"from":{"a":{"a":1},"b":{"a":0.25,"b":0.75},"c":{"a":0.25,"c":0.75}}}"#
    );
    assert_eq!(cluster.hints(), map([("a", 4), ("b", 4), ("c", 4)]));
    assert_eq!(cluster.sync().writes(), 0);
    cluster.remove_annotation(PREFERENCE).sync();
    assert_eq!((cluster.shares(), cluster.hints()), (None, map([])), "no trace is left");
}

/// One endpoint more or less in fifty changes every share a little: not worth writing every slice.
#[test]
fn balanced_shares_are_rewritten_only_when_it_matters() {
    let mut cluster = TestCluster::three_zones();
    cluster.settings.max_endpoints = 20;
    cluster
        .pods("a", 60)
        .pods("b", 50)
        .pods("c", 40)
        .annotate(PREFERENCE, "zonewise.dev/balanced")
        .sync();
    let before = cluster.shares();
    cluster.pods("a", 61);
    assert_eq!(cluster.sync().writes(), 1, "only the slice that gains the endpoint");
    assert_eq!(cluster.shares(), before);
    cluster.pods("a", 90).sync();
    assert_ne!(cluster.shares(), before, "half as many again is another matter");
}

#[test]
fn a18_shared_endpoints_are_hinted_to_several_zones_and_weights_become_shares() {
    let mut cluster = TestCluster::three_zones();
    cluster.pods("a", 7).pods("b", 7).pods("c", 6);
    cluster.annotate(PREFERENCE, "zonewise.dev/local-weighted").sync();
    assert!(cluster.shares().is_some(), "weights need shares");
    let shared =
        [(9, 0, 0), (2, 0, 0), (4, 4, 1), (4, 0, 0), (3, 1, 0)].into_iter().any(|(a, b, c)| {
            cluster
                .pods("a", a)
                .pods("b", b)
                .pods("c", c)
                .annotate(PREFERENCE, "zonewise.dev/local-shared")
                .sync();
            cluster.shares().is_none() && cluster.hints().keys().any(|zones| zones.contains('+'))
        });
    assert!(shared, "an endpoint that several zones share is hinted to each of them");
}

/// A zone without endpoints shares those of the zone that has two. The lists are read back. With one endpoint more, that
/// zone is named by all, and every endpoint gets its fair share.
#[test]
fn balanced_hints_name_several_zones_and_stay() {
    let mut cluster = TestCluster::new(&[("a", "8"), ("b", "8"), ("c", "4")]);
    cluster.pods("a", 2).pods("b", 1).annotate(PREFERENCE, "zonewise.dev/balanced-hints");
    assert_eq!(code(&cluster.sync()), Code::HintsBalanced);
    assert_eq!(cluster.hints(), map([("a+c", 2), ("b", 1)]));
    assert_eq!((cluster.sync().writes(), cluster.settle().writes()), (0, 0));
    cluster.pods("b", 2).sync();
    assert_eq!(cluster.hints(), map([("a+c", 2), ("b+c", 2)]));
    cluster.annotate(PREFERENCE, "zonewise.dev/auto").sync();
    assert!(cluster.hints().keys().all(|zones| !zones.contains('+')), "{:?}", cluster.hints());
    cluster.remove_annotation(PREFERENCE).sync();
    assert_eq!(cluster.hints(), map([]), "no trace is left");
}

#[test]
fn an_endpoint_is_never_hinted_to_more_zones_than_the_api_allows() {
    let mut cluster = crowded();
    assert_eq!(code(&cluster.sync()), Code::TooManyZonesForHints);
    assert_eq!(cluster.hints(), map([]), "everywhere instead");
}

#[test]
fn hostile_names_are_only_text() {
    let mut cluster = TestCluster::new(&[("a\"}],\"x\":[{", "4"), ("b'; rm -rf /", "4")]);
    let zone = "a\"}],\"x\":[{";
    cluster.pods(zone, 2).pods("b'; rm -rf /", 2).annotate(MODE, "Auto").sync();
    assert_eq!(cluster.hints().get(zone), Some(&2));
}
