//! 2,000 decisions of the reference implementation's `Auto` heuristic.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

use crate::common::{away, decide, sizes};
use serde::Deserialize;
use zonewise_topology::capacity::{Capacity, MissingCpu, NodeCapacity};
use zonewise_topology::reason::{Code, Outcome};
use zonewise_topology::region::Situation;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    allocatable_milli_cpu_by_zone: BTreeMap<String, u64>,
    ready_endpoints_by_zone: BTreeMap<Box<str>, u64>,
    hints_enabled: bool,
    event: String,
    acceptable_hints_per_zone: Vec<BTreeMap<Box<str>, u64>>,
    min_endpoints_hinted_away_from_their_zone: u64,
    max_endpoints_hinted_away_from_their_zone: u64,
}

fn recorded() -> Vec<Recorded> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/upstream/auto-hints.jsonl.gz");
    let file = std::fs::File::open(path).unwrap();
    BufReader::new(flate2::read::GzDecoder::new(file))
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

fn situation(case: &Recorded) -> Situation {
    let nodes: Vec<NodeCapacity<'_>> = case
        .allocatable_milli_cpu_by_zone
        .iter()
        .map(|(zone, &cpu)| NodeCapacity {
            name: zone,
            zone: Some(zone),
            cpu_milli: Some(cpu),
            ready: true,
            control_plane: false,
        })
        .collect();
    let capacity = Capacity::of(&nodes, MissingCpu::Refuse);
    Situation::new(&capacity, &case.ready_endpoints_by_zone, 0)
}

/// The text of the reference's event for a reason.
fn event(code: Code) -> &'static str {
    match code {
        // It reports a single zone as missing information.
        Code::NodeInformationMissing | Code::OneZoneOnly => "Insufficient Node information",
        Code::NoEndpoints | Code::TooFewEndpoints => "Insufficient number of endpoints",
        Code::TooFewForBalance => "Unable to allocate minimum required endpoints",
        _ => "Topology Aware Hints has been enabled",
    }
}

#[test]
fn b2_b3_recorded_decisions_of_the_reference() {
    let cases = recorded();
    assert_eq!(cases.len(), 2000);
    for (index, case) in cases.iter().enumerate() {
        let situation = situation(case);
        let (reason, allocation) = decide("auto:upstream=1", &situation.region(), None);
        let enabled = reason.outcome() == Outcome::InForce;
        assert_eq!(enabled, case.hints_enabled, "case {index}: {reason}");
        assert!(case.event.contains(event(reason.code())), "case {index}: {} {reason}", case.event);
        if !enabled {
            continue;
        }
        let hints: BTreeMap<Box<str>, u64> = situation
            .names
            .iter()
            .cloned()
            .zip(sizes(&allocation))
            .filter(|(_, count)| *count > 0)
            .collect();
        let acceptable = &case.acceptable_hints_per_zone;
        assert!(acceptable.contains(&hints), "case {index}: {hints:?} not in {acceptable:?}");
        let range = case.min_endpoints_hinted_away_from_their_zone
            ..=case.max_endpoints_hinted_away_from_their_zone;
        assert!(range.contains(&away(&allocation)), "case {index}: {} away", away(&allocation));
    }
}

#[test]
fn b4_without_the_reference_s_quirks_every_zone_gets_its_minimum() {
    let mut lifted = 0;
    for case in recorded() {
        let situation = situation(&case);
        let region = situation.region();
        let (reason, allocation) = decide("auto", &region, None);
        assert_eq!(reason.outcome() == Outcome::InForce, case.hints_enabled);
        if !case.hints_enabled {
            continue;
        }
        let bounds = zonewise_topology::heuristics::auto::Auto::KEP_2433.bounds(&region);
        let upstream = sizes(&decide("auto:upstream=1", &region, None).1);
        lifted +=
            usize::from(upstream.iter().zip(&bounds).any(|(size, zone)| *size < zone.minimum));
        for (size, zone) in sizes(&allocation).iter().zip(&bounds) {
            assert!(*size >= zone.minimum, "{:?} {:?}", situation.zones, sizes(&allocation));
        }
    }
    assert!(lifted > 0, "the recorded cases contain none that needs lifting");
}
