//! Zones whose endpoints fail: they count for less, and more of what is sent there spills over to other zones.

use serde_json::json;
use zonewise_slices::requested::FailingZones;
use zonewise_topology::reason::Code;
use zonewise_topology::zone_shares::ZoneShares;

use crate::common::{TestCluster, map};

const PREFERENCE: &str = "zonewise.dev/routing-preference";
const FAILING: &str = "zonewise.dev/failing-zones";

/// Three zones of the same size with four Pods each, and `balanced` with shares that spill over.
fn cluster() -> TestCluster {
    let mut cluster = TestCluster::three_zones();
    cluster.annotate(PREFERENCE, "zonewise.dev/balanced").annotate(FAILING, "spill");
    cluster.pods("a", 4).pods("b", 4).pods("c", 4);
    cluster
}

/// Parts in millionths of what zones a, b and c send to a, b and c.
fn parts(cluster: &TestCluster) -> [[u32; 3]; 3] {
    let shares = ZoneShares::decode(&cluster.shares().unwrap()).unwrap();
    let part = |from: &str, to: &str| shares.from[from].get(to).copied().unwrap_or(0);
    ["a", "b", "c"].map(|from| ["a", "b", "c"].map(|to| part(from, to)))
}

const EVEN: [[u32; 3]; 3] = [[1_000_000, 0, 0], [0, 1_000_000, 0], [0, 0, 1_000_000]];
/// Zone a counts for 40 %, so that it takes a sixth of everything: half of what its clients send.
const HALF_OF_A: [[u32; 3]; 3] =
    [[500_000, 250_000, 250_000], [0, 1_000_000, 0], [0, 0, 1_000_000]];

#[test]
fn a_zone_that_counts_for_less_spills_over_earlier_and_takes_all_again() {
    let mut cluster = cluster();
    cluster.sync();
    assert_eq!(parts(&cluster), EVEN);
    cluster.percents = map([("a", 40)]);
    cluster.sync();
    assert_eq!(parts(&cluster), HALF_OF_A);
    assert_eq!(cluster.sync().writes(), 0, "a second look changes nothing");
    // Counts are counts: proxies compare them with the ready endpoints that they see.
    let counts = ZoneShares::decode(&cluster.shares().unwrap()).unwrap().endpoints;
    assert_eq!(counts, map([("a", 4), ("b", 4), ("c", 4)]));
    cluster.percents.clear();
    cluster.sync();
    assert_eq!(parts(&cluster), EVEN);
}

#[test]
fn percentages_go_together_with_what_pods_request_and_with_measured_demand() {
    let mut requesting = cluster();
    requesting.annotate("zonewise.dev/endpoint-weight", "cpu-request");
    for pod in requesting.pods.values_mut() {
        let cpu = if pod["spec"]["nodeName"] == "node-a" { "4" } else { "1" };
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    }
    // A quarter of four times as much: all zones count the same.
    requesting.percents = map([("a", 25)]);
    requesting.sync();
    assert_eq!(parts(&requesting), EVEN);

    let mut measured = cluster();
    measured.measured = map([("a", 0.2), ("b", 0.4), ("c", 0.4)]);
    // Zone a sends a fifth, and takes 50 % of a third: a fifth of all.
    measured.percents = map([("a", 50)]);
    measured.sync();
    assert_eq!(parts(&measured), EVEN);
}

/// By use, endpoints count for more as well, and both go together.
#[test]
fn zones_count_for_more_than_others_and_percentages_multiply() {
    let mut cluster = cluster();
    // Zone a takes a sixth of all, as if it counted for 40 %.
    cluster.percents = map([("a", 80), ("b", 200), ("c", 200)]);
    cluster.sync();
    assert_eq!(parts(&cluster), HALF_OF_A);
    let nodes = cluster.topology();
    let zones = nodes.measured(|_| None);
    let both = zones
        .counting([("a".into(), 40), ("b".into(), 100), ("c".into(), 50)].into_iter())
        .counting([("a".into(), 50), ("b".into(), 130), ("c".into(), 200)].into_iter());
    assert_eq!(*both.percents(), [("a".into(), 20), ("b".into(), 130)].into());
    let least =
        both.counting([("a".into(), 1)].into_iter()).counting([("a".into(), 1)].into_iter());
    assert_eq!(least.percents()["a"], 1, "a zone counts for something always");
}

/// Where no zone shares are written, what zones count for changes nothing.
#[test]
fn hints_and_subsets_go_by_endpoints_alone() {
    for preference in ["zonewise.dev/auto", "zonewise.dev/local-subset", "zonewise.dev/same-zone"] {
        let mut cluster = cluster();
        cluster.annotate(PREFERENCE, preference);
        cluster.sync();
        let before = cluster.hints();
        cluster.percents = map([("a", 10)]);
        assert_eq!((cluster.sync().writes(), cluster.hints()), (0, before), "{preference}");
    }
}

#[test]
fn the_annotation_counts_where_zone_shares_are_written_and_is_noted_elsewhere() {
    use FailingZones::{Ignore, Spill};
    type Faults<'a> = &'a [(Code, Option<&'a str>)];
    let balanced = "zonewise.dev/balanced";
    let rows: [(&str, Option<&str>, [FailingZones; 2], Faults<'_>); 9] = [
        (balanced, None, [Ignore, Spill], &[]),
        (balanced, Some(""), [Ignore, Spill], &[]),
        (balanced, Some("spill"), [Spill, Spill], &[]),
        (balanced, Some("ignore"), [Ignore, Ignore], &[]),
        (balanced, Some("spil"), [Ignore, Spill], &[(Code::FailingZonesUnknown, Some("spill"))]),
        (balanced, Some("yes"), [Ignore, Spill], &[(Code::FailingZonesUnknown, None)]),
        ("zonewise.dev/auto", Some("spill"), [Ignore, Ignore], &[(Code::FailingZonesUnused, None)]),
        ("zonewise.dev/auto", Some("ignore"), [Ignore, Ignore], &[]),
        ("zonewise.dev/auto", None, [Ignore, Ignore], &[]),
    ];
    for (preference, value, expected, notes) in rows {
        for (default, expected) in [Ignore, Spill].into_iter().zip(expected) {
            let mut cluster = TestCluster::three_zones();
            cluster.annotate(PREFERENCE, preference);
            cluster.settings.default_failing_zones = default;
            if let Some(value) = value {
                cluster.annotate(FAILING, value);
            }
            let requested = cluster.requested_routing();
            let noted =
                requested.notes.iter().map(|note| (note.reason.code(), note.meant.as_deref()));
            assert_eq!(noted.collect::<Vec<_>>(), notes, "{preference} {value:?}");
            assert_eq!(requested.failing_zones, expected, "{preference} {value:?} {default:?}");
        }
    }
}

/// Only a Service that asks for it itself is told that others have taken all places.
#[test]
fn a_service_beyond_those_that_can_be_watched_is_told() {
    let rows = [(Some("spill"), true), (Some("ignore"), false), (None, false)];
    for (value, is_told) in rows {
        let mut cluster = TestCluster::three_zones();
        cluster.annotate(PREFERENCE, "zonewise.dev/balanced");
        cluster.settings.default_failing_zones = FailingZones::Spill;
        if let Some(value) = value {
            cluster.annotate(FAILING, value);
        }
        let mut requested = cluster.requested_routing();
        let service = serde_json::from_value(cluster.service.clone()).unwrap();
        requested.note_unwatched_failures(&service, 7);
        let noted: Vec<_> = requested.notes.iter().map(|note| note.reason.to_string()).collect();
        assert_eq!(noted.len(), usize::from(is_told), "{value:?}: {noted:?}");
        assert!(noted.iter().all(|text| text.contains("7 Services at most")), "{noted:?}");
    }
}

/// Where nobody tells which connections fail, the annotation is noted, and a default is not.
#[test]
fn without_anybody_who_watches_no_zone_counts_for_less() {
    use FailingZones::{Ignore, Spill};
    let rows: [(Option<&str>, &[Code]); 4] = [
        (Some("spill"), &[Code::FailingZonesNotWatched]),
        (Some("ignore"), &[]),
        (Some("yes"), &[Code::FailingZonesUnknown]),
        (None, &[]),
    ];
    for (value, notes) in rows {
        for default in [Ignore, Spill] {
            let mut cluster = TestCluster::three_zones();
            cluster.annotate(PREFERENCE, "zonewise.dev/balanced");
            cluster.settings.default_failing_zones = default;
            cluster.settings.failures_are_watched = false;
            if let Some(value) = value {
                cluster.annotate(FAILING, value);
            }
            let requested = cluster.requested_routing();
            let noted: Vec<_> = requested.notes.iter().map(|note| note.reason.code()).collect();
            assert_eq!((requested.failing_zones, &*noted), (Ignore, notes), "{value:?}");
        }
    }
}

#[test]
fn the_reference_and_guard_mode_write_no_zone_shares() {
    let mut reference = cluster();
    reference.settings.upstream = true;
    assert_eq!(reference.requested_routing().failing_zones, FailingZones::Ignore);
    let mut guard = cluster();
    guard.settings.guard = true;
    let requested = guard.requested_routing();
    let codes: Vec<Code> = requested.notes.iter().map(|note| note.reason.code()).collect();
    assert_eq!(
        (requested.failing_zones, &*codes),
        (FailingZones::Ignore, &[Code::FailingZonesUnused][..])
    );
}
