//! Zones that are being emptied: which endpoints are taken out of use, what the others get then, and what is left alone.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use zonewise_common::name::Name;
use zonewise_slices::evacuation::{Evacuations, Kept, STEPS, Survey};
use zonewise_slices::service::Service;
use zonewise_slices::slice::Endpoint;
use zonewise_topology::zone_shares::ZoneShares;

use crate::common::{TestCluster, map};

const MODE: &str = "service.kubernetes.io/topology-mode";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";

/// Ways to ask for routing, all of which leave a zone step by step.
const IN_STEPS: [(&str, &str); 8] = [
    ("", ""),
    ("trafficDistribution", "PreferClose"),
    ("trafficDistribution", "PreferSameNode"),
    (MODE, "Auto"),
    (SUBSETTING, "Auto"),
    (PREFERENCE, "zonewise.dev/balanced"),
    (PREFERENCE, "zonewise.dev/balanced-hints"),
    (PREFERENCE, "Spread"),
];

/// A Service that asks for this, with so many Pods in each of three zones of the same size.
fn cluster((key, value): (&str, &str), pods: [usize; 3]) -> TestCluster {
    let mut cluster = TestCluster::three_zones();
    match key {
        "" => {}
        "trafficDistribution" => cluster.service["spec"][key] = value.into(),
        _ => {
            cluster.annotate(key, value);
        }
    }
    for (zone, count) in ["a", "b", "c"].into_iter().zip(pods) {
        cluster.pods(zone, count);
    }
    cluster.sync();
    cluster
}

fn at(cluster: &mut TestCluster, percent: u8) {
    cluster.evacuations = Evacuations::default().with("a", percent);
    cluster.settle();
}

fn endpoints(cluster: &TestCluster) -> Vec<Endpoint> {
    cluster.store.list().iter().flat_map(|slice| slice.endpoints.clone()).collect()
}

/// Endpoints by address: their zone, conditions and hints.
fn by_address(endpoints: &[Endpoint]) -> BTreeMap<String, String> {
    let text = |one: &Endpoint| format!("{:?} {:?} {:?}", one.zone, one.conditions, one.hints);
    endpoints.iter().map(|one| (format!("{:?}", one.addresses), text(one))).collect()
}

/// Ready endpoints by zone.
fn ready(cluster: &TestCluster) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for endpoint in endpoints(cluster).iter().filter(|endpoint| endpoint.is_ready()) {
        let zone = endpoint.zone.as_deref().unwrap_or("");
        *counts.entry(zone.to_owned()).or_default() += 1;
    }
    counts
}

/// The addresses of endpoints that are taken out of use.
fn out_of_use(cluster: &TestCluster) -> BTreeSet<String> {
    let aside = |one: &Endpoint| {
        let conditions = &one.conditions;
        (conditions.ready, conditions.serving, conditions.terminating)
            == (Some(false), Some(true), Some(true))
    };
    let all = endpoints(cluster);
    all.iter().filter(|one| aside(one)).map(|one| format!("{:?}", one.addresses)).collect()
}

/// What each zone sends to each ready endpoint by the rules that proxies follow, for zones that all send the same.
fn loads(cluster: &TestCluster) -> Vec<(Name, f64)> {
    let slices = cluster.store.list();
    let of = |label: Option<&str>| -> Vec<Endpoint> {
        let is_it = |slice: &&std::sync::Arc<zonewise_slices::slice::Slice>| match label {
            Some(zone) => slice.subset().is_none_or(|subset| &**subset.label().1 == zone),
            None => true,
        };
        let all = slices.iter().filter(is_it).flat_map(|slice| slice.endpoints.clone());
        all.filter(Endpoint::is_ready).collect()
    };
    let shares = cluster.shares().map(|text| ZoneShares::decode(&text).unwrap());
    let mut loads: BTreeMap<String, (Name, f64)> = BTreeMap::new();
    for zone in ["a", "b", "c"] {
        let labelled = of(Some(zone));
        let usable = if labelled.is_empty() { of(None) } else { labelled };
        let hinted: Vec<&Endpoint> = usable
            .iter()
            .filter(|one| one.zone_hints().iter().any(|hint| &**hint == zone))
            .collect();
        let all_hinted = usable.iter().all(|one| !one.zone_hints().is_empty());
        let weight = |one: &Endpoint| match &shares {
            Some(shares) => {
                let there = |other: &&Endpoint| other.zone == one.zone;
                let to = &**one.zone.as_ref().unwrap();
                let part = shares.from[zone].get(to).copied().unwrap_or(0);
                f64::from(part) / usable.iter().filter(there).count() as f64
            }
            None if all_hinted && !hinted.is_empty() => {
                f64::from(u8::from(hinted.iter().any(|other| std::ptr::eq(*other, one))))
            }
            None => 1.0,
        };
        let total: f64 = usable.iter().map(weight).sum();
        for one in &usable {
            let entry = loads
                .entry(format!("{:?}", one.addresses))
                .or_insert((Name::clone(one.zone.as_ref().unwrap()), 0.0));
            entry.1 += weight(one) / total / 3.0;
        }
    }
    loads.into_values().collect()
}

fn busiest(cluster: &TestCluster) -> f64 {
    loads(cluster).into_iter().map(|(_, load)| load).fold(0.0, f64::max)
}

fn load_of(cluster: &TestCluster, zone: &str) -> f64 {
    loads(cluster).into_iter().filter(|(at, _)| **at == *zone).map(|(_, load)| load).sum()
}

#[test]
fn a_zone_is_emptied_step_by_step_and_no_endpoint_gets_more_than_in_the_end() {
    for routing in IN_STEPS {
        let mut cluster = cluster(routing, [4, 4, 4]);
        let (before, mut last) = (endpoints(&cluster), (BTreeSet::new(), load_of(&cluster, "a")));
        for percent in STEPS {
            at(&mut cluster, percent);
            let left = usize::from(percent) * 4 / 100;
            let counts = ready(&cluster);
            let context = format!("{routing:?} at {percent} %");
            assert_eq!(counts.get("a").copied().unwrap_or(0), left, "{context}");
            assert_eq!((counts["b"], counts["c"]), (4, 4), "{context}");
            let now = (out_of_use(&cluster), load_of(&cluster, "a"));
            assert_eq!(now.0.len(), 4 - left, "{context}");
            assert!(last.0.is_subset(&now.0), "{context}: each step sets more of the same aside");
            assert!(now.1 <= last.1 + 1e-9, "{context}: {} after {}", now.1, last.1);
            // An eighth of the traffic is what each gets in the end. Subsets of three zones cannot be even then.
            let most = if routing.0 == SUBSETTING { 1.0 / 6.0 } else { 1.0 / 8.0 };
            assert!(busiest(&cluster) <= most + 1e-6, "{context}: {}", busiest(&cluster));
            assert_eq!(cluster.plan().writes(), 0, "{context}: a second look changes nothing");
            last = now;
        }
        assert!(load_of(&cluster, "a") == 0.0, "{routing:?}: clients of the zone go elsewhere");
        at(&mut cluster, 100);
        assert_eq!(by_address(&endpoints(&cluster)), by_address(&before), "{routing:?}: restored");
    }
}

#[test]
fn with_routing_by_location_the_other_zones_serve_the_clients_of_the_zone_as_well() {
    let mut cluster = cluster(("trafficDistribution", "PreferClose"), [2, 2, 2]);
    assert_eq!(cluster.hints(), map([("a", 2), ("b", 2), ("c", 2)]));
    at(&mut cluster, 50);
    // The endpoint of zone a that is taken out of use has no hint.
    assert_eq!(cluster.hints(), map([("a", 1), ("b+a", 2), ("c+a", 2)]));
    at(&mut cluster, 0);
    assert_eq!(cluster.hints(), map([("b+a", 2), ("c+a", 2)]));
    at(&mut cluster, 100);
    assert_eq!(cluster.hints(), map([("a", 2), ("b", 2), ("c", 2)]));
}

#[test]
fn what_cannot_or_must_not_be_moved_stays_as_it_is_and_is_named() {
    let spec = |pairs: &[(&str, Value)]| -> TestCluster {
        let mut cluster = cluster(("", ""), [2, 2, 2]);
        for (key, value) in pairs {
            cluster.service["spec"][*key] = value.clone();
        }
        cluster.sync();
        cluster
    };
    let rows = [
        ("headless", spec(&[("clusterIP", json!("None"))]), Kept::Headless),
        ("publishes", spec(&[("publishNotReadyAddresses", json!(true))]), Kept::PublishesNotReady),
        ("own node", spec(&[("internalTrafficPolicy", json!("Local"))]), Kept::OwnNodeOnly),
        ("nowhere else", cluster(("", ""), [2, 0, 0]), Kept::OnlyThere),
    ];
    for (name, mut cluster, kept) in rows {
        let prospect = cluster.prospect("a").unwrap();
        assert_eq!((prospect.kept, prospect.growth()), (Some(kept), 1.0), "{name}");
        assert_eq!(prospect.staying, 2, "{name}");
        for percent in STEPS {
            cluster.evacuations = Evacuations::default().with("a", percent);
            assert_eq!(cluster.plan().writes(), 0, "{name} at {percent} %");
        }
    }
    let mut elsewhere = cluster(("", ""), [0, 2, 2]);
    assert_eq!(elsewhere.prospect("a"), None, "no endpoint there: nothing to say");
    elsewhere.evacuations = Evacuations::default().with("a", 0);
    assert_eq!(elsewhere.plan().writes(), 0);
}

#[test]
fn sessions_and_shares_that_do_not_follow_endpoints_move_in_one_step() {
    let mut affinity = cluster(("", ""), [4, 4, 4]);
    affinity.service["spec"]["sessionAffinity"] = "ClientIP".into();
    let required = cluster((SUBSETTING, "Require"), [4, 4, 4]);
    for mut cluster in [affinity, required] {
        for (percent, left) in [(75, 4), (25, 4), (0, 0)] {
            at(&mut cluster, percent);
            let there = ready(&cluster).get("a").copied().unwrap_or(0);
            assert_eq!(there, left, "{percent} %: {}", cluster.service);
        }
    }
}

#[test]
fn an_endpoint_with_a_port_that_nobody_else_serves_stays() {
    let mut cluster = cluster(("", ""), [2, 2, 0]);
    cluster.service["spec"]["ports"] = json!([
        {"name": "http", "port": 80, "targetPort": 8080},
        {"name": "metrics", "port": 81, "targetPort": "metrics"},
    ]);
    let ports = json!([{"name": "c", "ports": [{"name": "metrics", "containerPort": 9100, "protocol": "TCP"}]}]);
    let only = cluster.pods.values_mut().find(|pod| pod["spec"]["nodeName"] == "node-a").unwrap();
    only["spec"]["containers"] = ports.clone();
    cluster.sync();
    at(&mut cluster, 0);
    assert_eq!(ready(&cluster), map([("a", 1), ("b", 2)]), "it alone serves the port");
    assert_eq!(cluster.prospect("a").unwrap().kept, Some(Kept::OnlyThere));
    let other = cluster.pods.values_mut().find(|pod| pod["spec"]["nodeName"] == "node-b").unwrap();
    other["spec"]["containers"] = ports;
    cluster.sync();
    assert_eq!(ready(&cluster), map([("b", 2)]));
}

#[test]
fn a_pod_that_comes_meanwhile_is_counted_and_one_that_is_not_ready_is_not() {
    let mut cluster = cluster(("", ""), [2, 2, 2]);
    at(&mut cluster, 50);
    cluster.pods("a", 4);
    cluster.sync();
    assert_eq!(ready(&cluster)["a"], 2, "half of four");
    let one = cluster.pods.values_mut().find(|pod| pod["spec"]["nodeName"] == "node-a").unwrap();
    one["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
    cluster.sync();
    assert_eq!((ready(&cluster)["a"], out_of_use(&cluster).len()), (2, 1), "half of three, up");
}

#[test]
fn several_zones_are_emptied_while_one_is_left() {
    let mut cluster = cluster((PREFERENCE, "zonewise.dev/balanced"), [3, 3, 3]);
    cluster.evacuations = Evacuations::default().with("a", 0);
    cluster.settle();
    let growth = cluster.prospect("b").unwrap().growth();
    assert!((growth - 2.0).abs() < 1e-9, "from a sixth to a third: {growth}");
    cluster.evacuations = cluster.evacuations.clone().with("b", 0);
    cluster.settle();
    assert_eq!(ready(&cluster), map([("c", 3)]));
    cluster.evacuations = cluster.evacuations.clone().with("c", 0);
    cluster.settle();
    assert_eq!(ready(&cluster), map([("a", 3), ("b", 3), ("c", 3)]), "somebody has to serve");
}

#[test]
fn the_prospect_is_the_busiest_endpoint_by_capacity_or_as_measured() {
    let near = ("trafficDistribution", "PreferClose");
    /// What it shows; what is asked for, Pods per zone, measured shares; the busiest endpoint before and after.
    type Row<'a> = (&'a str, (&'a str, &'a str), [usize; 3], &'a [(&'static str, f64)], f64, f64);
    let rows: [Row<'_>; 6] = [
        ("three even zones", ("", ""), [4, 4, 4], &[], 1.0 / 12.0, 1.0 / 8.0),
        ("most of them there", ("", ""), [6, 2, 1], &[], 1.0 / 9.0, 1.0 / 3.0),
        ("few there", ("", ""), [1, 6, 5], &[], 1.0 / 12.0, 1.0 / 11.0),
        ("by location", near, [4, 4, 4], &[], 1.0 / 12.0, 1.0 / 8.0),
        ("by location, uneven", near, [4, 4, 2], &[], 1.0 / 6.0, 1.0 / 6.0 + 1.0 / 18.0),
        (
            "by location, as measured",
            near,
            [4, 4, 4],
            &[("a", 0.7), ("b", 0.2), ("c", 0.1)],
            0.7 / 4.0,
            0.2 / 4.0 + 0.7 / 8.0,
        ),
    ];
    for (name, routing, pods, measured, before, after) in rows {
        let mut cluster = cluster(routing, pods);
        cluster.measured = map(measured.iter().copied());
        let prospect = cluster.prospect("a").unwrap();
        assert!((prospect.before - before).abs() < 1e-6, "{name}: {prospect:?}");
        assert!((prospect.after - after).abs() < 1e-6, "{name}: {prospect:?}");
        assert_eq!((prospect.staying, prospect.kept), (0, None), "{name}");
        assert_eq!(prospect.in_zone, pods[0] as u64, "{name}");
        assert_eq!(prospect.elsewhere, (pods[1] + pods[2]) as u64, "{name}");
    }
}

#[test]
fn a_survey_names_the_services_that_could_not_take_it_and_those_that_stay() {
    let mut survey = Survey::new(150);
    for (name, pods) in [("even", [4, 4, 4]), ("large", [4, 2, 2]), ("lonely", [2, 0, 0])] {
        let mut cluster = cluster(("", ""), pods);
        cluster.service["metadata"]["name"] = name.into();
        let service: Service = serde_json::from_value(cluster.service.clone()).unwrap();
        survey.add(&service, cluster.prospect("a").unwrap());
    }
    let names = |list: &[(String, zonewise_slices::evacuation::Prospect)]| -> Vec<String> {
        list.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&survey.over), ["shop/large"], "1.5 times is not more than 150 %");
    assert_eq!(survey.kept, [("shop/lonely".to_owned(), Kept::OnlyThere)]);
    assert_eq!((survey.services, survey.moved, survey.elsewhere), (3, 8, 12));
    assert_eq!(survey.highest.unwrap().0, "shop/large");
}

proptest! {
    #[test]
    fn nobody_is_left_without_an_endpoint_and_nothing_else_changes(
        routing in 0..IN_STEPS.len(),
        pods in [0usize..6, 0usize..6, 0usize..6],
        unready in proptest::collection::vec(any::<bool>(), 15),
        percent in proptest::sample::select(vec![75u8, 50, 25, 0]),
        affinity in any::<bool>(),
    ) {
        let mut cluster = cluster(IN_STEPS[routing], [0; 3]);
        for (zone, count) in ["a", "b", "c"].into_iter().zip(pods) {
            cluster.pods(zone, count);
        }
        for (pod, unready) in cluster.pods.values_mut().zip(&unready) {
            let status = if *unready { "False" } else { "True" };
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
        }
        if affinity {
            cluster.service["spec"]["sessionAffinity"] = "ClientIP".into();
        }
        cluster.settle();
        let before = ready(&cluster);
        let there = |counts: &BTreeMap<String, usize>| counts.get("a").copied().unwrap_or(0);
        let elsewhere = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>() - there(counts);
        at(&mut cluster, percent);
        let now = ready(&cluster);
        let moves = elsewhere(&before) > 0 && (!affinity || percent == 0);
        let expected = if moves { (there(&before) * usize::from(percent)).div_ceil(100) } else { there(&before) };
        prop_assert_eq!(there(&now), expected);
        prop_assert_eq!(elsewhere(&now), elsewhere(&before));
        prop_assert_eq!(out_of_use(&cluster).len(), there(&before) - expected);
        prop_assert_eq!(now.values().sum::<usize>() == 0, before.values().sum::<usize>() == 0);
        if let Some(prospect) = cluster.prospect("a") {
            prop_assert!(prospect.growth().is_finite() && prospect.after > 0.0);
            if percent == 0 && !now.is_empty() {
                // What was promised is what the rules of proxies give; hints beside shares are for others.
                prop_assert!(busiest(&cluster) <= prospect.after + 0.025 * prospect.after + 1e-6,
                    "{} of {:?}", busiest(&cluster), prospect);
            }
        }
        at(&mut cluster, 100);
        prop_assert_eq!(ready(&cluster), before);
        prop_assert!(out_of_use(&cluster).is_empty());
    }
}
