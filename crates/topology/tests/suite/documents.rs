//! The documents others read: zone shares on slices, explanations; and heuristics that are data.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{decide, zones};
use zonewise_topology::allocation::{Allocation, Carrier, Label};
use zonewise_topology::capacity::{Capacity, MissingCpu, NodeCapacity};
use zonewise_topology::explanation::{Asked, arithmetic};
use zonewise_topology::heuristic::{Case, Heuristic};
use zonewise_topology::heuristics::{self, ParseError};
use zonewise_topology::reason::Reason;
use zonewise_topology::region::{Region, Situation};
use zonewise_topology::traffic::TrafficModel;
use zonewise_topology::zone_shares::{DecodeError, ZoneShares};

fn situation(cells: &[(u64, u64)]) -> Situation {
    let names = ["a", "b", "c"].iter().take(cells.len()).map(|name| (*name).into()).collect();
    Situation { names, zones: zones(cells), unplaced: 0, unknown_nodes: 0 }
}

#[test]
fn zone_shares_have_one_spelling() {
    // Zone b sends 60 % and has a third of the endpoints: it keeps what they can take.
    let situation = situation(&[(2, 4), (3, 2)]);
    let (_, allocation) = decide("balanced", &situation.region(), None);
    let text = ZoneShares::of(&situation, &allocation).unwrap().encode().unwrap();
    assert_eq!(
        text,
        r#"{"v":1,"endpoints":{"a":4,"b":2},"from":{"a":{"a":1},"b":{"a":0.444444,"b":0.555556}}}"#
    );
}

#[test]
fn zone_shares_are_decimals_and_leave_names_alone() {
    let shares = ZoneShares {
        endpoints: BTreeMap::from([(String::from("x:1.0,\"y"), 3), (String::from("z"), 1)]),
        from: BTreeMap::from([(
            String::from("x:1.0,\"y"),
            BTreeMap::from([(String::from("x:1.0,\"y"), 999_999), (String::from("z"), 1)]),
        )]),
    };
    let text = shares.encode().unwrap();
    assert_eq!(
        text,
        r#"{"v":1,"endpoints":{"x:1.0,\"y":3,"z":1},"from":{"x:1.0,\"y":{"x:1.0,\"y":0.999999,"z":0.000001}}}"#
    );
    assert_eq!(ZoneShares::decode(&text), Ok(shares));
}

#[test]
fn zone_shares_that_cannot_be_trusted_are_refused() {
    let with = |from: &str| format!(r#"{{"v":1,"endpoints":{{"a":4,"b":2}},"from":{from}}}"#);
    let name = |zone: &str| zone.to_owned();
    let rows = [
        (with(r#"{"a":{"a":0.5}}"#), DecodeError::Sum { from: name("a"), sum: name("0.5") }),
        (with(r#"{"a":{"a":1.5}}"#), DecodeError::Range { from: name("a"), to: name("a") }),
        (with(r#"{"a":{"a":-1,"b":2}}"#), DecodeError::Range { from: name("a"), to: name("a") }),
        (with(r#"{"a":{"x":1}}"#), DecodeError::NoEndpoints { from: name("a"), to: name("x") }),
        (String::from(r#"{"v":2,"endpoints":{},"from":{}}"#), DecodeError::Version(2)),
    ];
    for (text, expected) in rows {
        assert_eq!(ZoneShares::decode(&text), Err(expected), "{text}");
    }
    for text in
        ["", "null", "[]", r#"{"v":1}"#, &with(r#"{"a":{"a":"1"}}"#), &with(r#"{"a":{"a":1e999}}"#)]
    {
        assert!(matches!(ZoneShares::decode(text), Err(DecodeError::Shape(_))), "{text}");
    }
}

/// 4,295 zones that get everything each, and one that gets the rest up to 2^32 + 1,000,000 millionths.
#[test]
fn shares_that_add_up_to_more_than_everything_are_refused_however_many() {
    let zones = (0..4296).map(|zone| format!("\"z{zone}\":1")).collect::<Vec<_>>().join(",");
    let parts = zones.replace("\"z4295\":1", "\"z4295\":0.967296");
    let text = format!("{{\"v\":1,\"endpoints\":{{{zones}}},\"from\":{{\"a\":{{{parts}}}}}}}");
    let refused = DecodeError::Sum { from: "a".to_owned(), sum: "4295.967296".to_owned() };
    assert_eq!(ZoneShares::decode(&text), Err(refused));
}

#[test]
fn an_explanation_shows_the_arithmetic() {
    let node = |name: &'static str, zone: &'static str, cores: u64| NodeCapacity {
        name,
        zone: Some(zone),
        cpu_milli: Some(cores * 1000),
        ready: true,
        control_plane: false,
    };
    let nodes = [
        node("n1", "a", 2),
        node("n2", "b", 1),
        NodeCapacity { ready: false, ..node("n3", "b", 4) },
    ];
    let capacity = Capacity::of(&nodes, MissingCpu::Refuse);
    let endpoints = BTreeMap::from([("a".into(), 1), ("b".into(), 1)]);
    let situation = Situation::new(&capacity, &endpoints, 0);
    let asked =
        Asked { value: "Auto".into(), source: "service.kubernetes.io/topology-mode".into() };
    let reason = Reason::TooFewForBalance { endpoints: 2, minimums: 3, limit: 0.2 };
    let explanation = arithmetic(asked, "auto", &capacity, &situation, None, reason);
    let zone = |zone: &str, cpu: f64, share: f64, expected: f64, min: u64| {
        serde_json::json!({
            "zone": zone, "cpu": cpu, "nodes": 1, "share": share, "endpoints": 1, "expected": expected,
            "min": min, "max": 0, "assigned": null, "overload": null,
        })
    };
    let expected = serde_json::json!({
        "asked": {"value": "Auto", "source": "service.kubernetes.io/topology-mode"},
        "heuristic": "auto",
        "endpoints": 2,
        "reason": "TooFewForBalance",
        "arithmetic": {"code": "TooFewForBalance", "endpoints": 2, "minimums": 3, "limit": 0.2},
        "sentence": "no division of the endpoints keeps every zone's expected overload below the limit (2 endpoints; the minimums for 20 % add up to 3)",
        "remedy": "add endpoints where `zonewise explain` says, or use balanced",
        "outcome": "fallback",
        "capacityBy": "cpu",
        "zones": [
            zone("a", 2.0, 2.0 / 3.0, 4.0 / 3.0, 2),
            zone("b", 1.0, 1.0 / 3.0, 2.0 / 3.0, 1),
        ],
        "nodesLeftOut": [{"node": "n3", "why": "not-ready"}],
        "nodesWithoutCpu": [],
        "inZone": {"now": null, "planned": null, "best": 0.5 + 1.0 / 3.0},
    });
    assert_eq!(serde_json::to_value(&explanation).unwrap(), expected);
}

/// A heuristic made of numbers: so much of every zone's traffic stays, the rest goes everywhere.
struct KeepPart {
    name: String,
    part: f64,
}

impl Heuristic for KeepPart {
    fn name(&self) -> &str {
        &self.name
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        let region = &case.region;
        out.begin(region, Carrier::Shares);
        for zone in 0..region.zones.len() {
            let group = out.add_group(Label::Zone(zone as u32));
            out.put(group, zone, region.zones[zone].endpoints);
        }
        for consumer in 0..region.zones.len() {
            let own = region.zones[consumer].endpoints as f64;
            let keep = if own > 0.0 { self.part } else { 0.0 };
            for (zone, input) in region.zones.iter().enumerate() {
                let everywhere = (1.0 - keep) * input.endpoints as f64 / region.total as f64;
                let share = everywhere + if zone == consumer { keep } else { 0.0 };
                out.set_weight(zone, consumer, share / input.endpoints.max(1) as f64);
            }
        }
        Reason::SharesBalanced { in_zone: self.part, max_overload: f64::INFINITY }
    }
}

#[test]
fn d17_a_heuristic_can_be_data() {
    let configured: Vec<Box<dyn Heuristic>> = [0.0, 0.5, 1.0]
        .map(|part| Box::new(KeepPart { name: format!("keep-{part}"), part }) as Box<dyn Heuristic>)
        .into();
    let zones = zones(&[(1, 4), (1, 2)]);
    let in_zone: Vec<f64> = configured
        .iter()
        .map(|heuristic| {
            let mut allocation = Allocation::new();
            heuristic.allocate(&Case::fresh(Region::of(&zones)), &mut allocation);
            TrafficModel::new().run(&Region::of(&zones), &allocation).unwrap().in_zone
        })
        .collect();
    assert_eq!(in_zone, [0.5, 0.75, 1.0]);
    assert_eq!(configured[1].name(), "keep-0.5");
}

#[test]
fn heuristics_are_found_by_name_and_wrong_names_are_explained() {
    let names = BTreeSet::from_iter(heuristics::names());
    assert_eq!(names.len(), heuristics::TABLE.len(), "every name stands for one heuristic");
    for entry in &heuristics::TABLE {
        assert_eq!(heuristics::parse(entry.name).unwrap().name(), entry.name);
    }
    let error = |text: &str| heuristics::parse(text).err().unwrap().to_string();
    assert!(error("lokal").starts_with("unknown heuristic `lokal`; known are random, local,"));
    assert_eq!(error("local:stop=1"), "heuristic `local` has no parameter `stop`; it has start");
    assert_eq!(error("random:x=1"), "heuristic `random` has no parameter `x`; it has none");
    assert_eq!(
        error("local:start=1.5"),
        "`local:start=1.5`: expected a whole number from 0 to 1000000000"
    );
    assert_eq!(
        error("balanced:max-overload=-1"),
        "`balanced:max-overload=-1`: expected a number from 0 to 1000000"
    );
    for wrong in ["balanced:max-overload=NaN", "balanced:max-overload=inf", "local:start="] {
        assert!(matches!(heuristics::parse(wrong), Err(ParseError::Value { .. })), "{wrong}");
    }
}
