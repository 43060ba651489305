//! Measured demand: hints, shares and subsets follow it instead of the capacity of nodes.

use crate::common::{TestCluster, code, map};
use zonewise_slices::requested::Demand;
use zonewise_topology::reason::Code;
use zonewise_topology::zone_shares::ZoneShares;

const MODE: &str = "service.kubernetes.io/topology-mode";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";
const DEMAND: &str = "zonewise.dev/demand";

/// Three zones of the same size with four Pods each.
fn cluster(key: &str, value: &str) -> TestCluster {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(key, value).pods("a", 4).pods("b", 4).pods("c", 4);
    cluster
}

/// Half of the connections come from zone a.
fn half_from_a(cluster: &mut TestCluster) {
    cluster.measured = map([("a", 0.5), ("b", 0.25), ("c", 0.25)]);
}

#[test]
fn hints_follow_measured_demand() {
    for (key, value) in [(MODE, "Auto"), (PREFERENCE, "zonewise.dev/balanced-hints")] {
        let mut cluster = cluster(key, value);
        cluster.sync();
        assert_eq!(cluster.hints(), map([("a", 4), ("b", 4), ("c", 4)]), "{value}: by CPU");
        half_from_a(&mut cluster);
        cluster.sync();
        assert_eq!(cluster.hints(), map([("a", 6), ("b", 3), ("c", 3)]), "{value}: as measured");
        cluster.measured.clear();
        cluster.sync();
        cluster.settle();
        assert_eq!(cluster.hints(), map([("a", 4), ("b", 4), ("c", 4)]), "{value}: by CPU again");
    }
}

#[test]
fn zone_shares_follow_measured_demand() {
    let mut cluster = cluster(PREFERENCE, "zonewise.dev/balanced");
    cluster.sync();
    let own = |cluster: &TestCluster| -> Vec<u32> {
        let shares = ZoneShares::decode(&cluster.shares().unwrap()).unwrap();
        ["a", "b", "c"].map(|zone| shares.from[zone][zone]).to_vec()
    };
    assert_eq!(own(&cluster), [1_000_000; 3], "by CPU, every zone keeps its traffic");
    half_from_a(&mut cluster);
    assert_eq!(code(&cluster.sync()), Code::SharesBalanced);
    // A third of all endpoints is two thirds of what zone a sends; the others have room for the rest.
    assert_eq!(own(&cluster), [666_666, 1_000_000, 1_000_000]);
    assert_eq!(cluster.sync().writes(), 0, "a second look changes nothing");
}

#[test]
fn subsets_of_zones_follow_measured_demand_and_those_of_regions_do_not() {
    let mut zones = cluster(SUBSETTING, "Auto");
    half_from_a(&mut zones);
    zones.sync();
    let expected = [("for-zone=a", (6, 1)), ("for-zone=b", (3, 1)), ("for-zone=c", (3, 1))];
    assert_eq!(zones.subsets(), map(expected));
    let mut regions = cluster(SUBSETTING, "Region");
    regions.sync();
    let by_cpu = regions.subsets();
    half_from_a(&mut regions);
    assert_eq!((regions.sync().writes(), regions.subsets()), (0, by_cpu));
}

#[test]
fn measured_shares_that_equal_the_capacity_change_nothing() {
    for (key, value) in [
        (MODE, "Auto"),
        (SUBSETTING, "Auto"),
        (PREFERENCE, "zonewise.dev/balanced"),
        (PREFERENCE, "zonewise.dev/balanced-hints"),
        (PREFERENCE, "Zone"),
    ] {
        let mut cluster = cluster(key, value);
        cluster.sync();
        cluster.measured = map([("a", 1.0), ("b", 1.0), ("c", 1.0)]);
        assert_eq!(cluster.sync().writes(), 0, "{value}");
    }
}

/// A zone that has come since demand was measured.
#[test]
fn a_zone_without_a_measured_share_counts_by_its_capacity() {
    let mut cluster = cluster(MODE, "Auto");
    cluster.node("node-d", "d", "12");
    // Half of the cores are in zone d, so the others divide the other half as measured.
    half_from_a(&mut cluster);
    cluster.pods("d", 4).sync();
    assert_eq!(cluster.hints(), map([("a", 4), ("b", 2), ("c", 2), ("d", 8)]));
}

#[test]
fn the_annotation_says_where_shares_come_from_and_unknown_values_are_noted() {
    type Faults<'a> = &'a [(Code, Option<&'a str>)];
    let rows: [(Option<&str>, Demand, Faults<'_>); 6] = [
        (None, Demand::Model, &[]),
        (Some("measured"), Demand::Measured, &[]),
        (Some("model"), Demand::Model, &[]),
        (Some(""), Demand::Model, &[]),
        (Some("Measured"), Demand::Model, &[(Code::DemandUnknown, Some("measured"))]),
        (Some("guessed"), Demand::Model, &[(Code::DemandUnknown, None)]),
    ];
    for (value, demand, notes) in rows {
        let mut cluster = cluster(PREFERENCE, "zonewise.dev/balanced");
        if let Some(value) = value {
            cluster.annotate(DEMAND, value);
        }
        let requested = cluster.requested_routing();
        let noted = requested.notes.iter().map(|note| (note.reason.code(), note.meant.as_deref()));
        let found = (requested.demand, noted.collect::<Vec<_>>(), requested.choice.name());
        assert_eq!(found, (demand, notes.to_vec(), "balanced"), "{value:?}");
    }
}

#[test]
fn the_reference_knows_nothing_of_measured_demand() {
    let mut cluster = cluster(MODE, "Auto");
    cluster.settings.upstream = true;
    cluster.annotate(DEMAND, "measured");
    half_from_a(&mut cluster);
    assert_eq!(cluster.requested_routing().demand, Demand::Model);
    cluster.sync();
    assert_eq!(cluster.hints(), map([("a", 4), ("b", 4), ("c", 4)]));
}
