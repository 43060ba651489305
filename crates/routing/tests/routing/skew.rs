//! Feature gates, and version skew between controllers and proxies.

use serde_json::{Value, json};
use zonewise_routing::{FeatureGates, RoutedService};

use crate::common::{
    ask, line, policies, reader, service, service_json, simple, slice, with_shares,
};

const HINTED: &str = "1[R @a z:a] 2[R @b z:b]";
const PLAIN: &str = "1[R @a] 2[R @b]";

fn auto() -> RoutedService {
    let mut json = service_json(&json!({}));
    json["metadata"]["annotations"] = json!({ "service.kubernetes.io/topology-mode": "Auto" });
    reader("a").read_service(&json.to_string()).unwrap()
}

#[test]
fn b15_the_four_rows_of_document_b() {
    let (on, off) =
        (FeatureGates::default(), FeatureGates { hints: false, ..FeatureGates::default() });
    let slices = [slice("s", HINTED)];
    let prefer =
        |gates: &FeatureGates, zone: &str| line(&ask(&reader(zone), gates, &auto(), &slices));
    assert_eq!(prefer(&on, "a"), "same-zone SameZoneHints 1", "filtered");
    let local = policies("Local", "Cluster", 0);
    let text = "1[R L z:a] 2[R L z:b]";
    let route = ask(&reader("a"), &on, &local, &[slice("s", text)]);
    assert_eq!(route.local.unwrap().len(), 2, "policy Local: not filtered");
    assert_eq!(prefer(&off, "a"), "any HintsGateOff 1,2", "gate off: not filtered");
    assert_eq!(prefer(&on, "c"), "any NoHintForZone 1,2", "no hint for the zone: not filtered");
}

#[test]
fn b15_the_gate_covers_node_hints_and_shares_too() {
    let off = FeatureGates { hints: false, ..FeatureGates::default() };
    let shares = r#"{"v":1,"endpoints":{"a":1,"b":1},"from":{"a":{"a":1}}}"#;
    let text = "1[R @a z:a n:node-1] 2[R @b z:b n:node-2]";
    let route = ask(&reader("a"), &off, &auto(), &[with_shares(slice("s", text), shares)]);
    assert_eq!(line(&route), "any HintsGateOff 1,2");
}

#[test]
fn b16_a27_an_old_controller_or_an_old_proxy_behaves_as_disabled() {
    assert_eq!(line(&simple("a", &[slice("s", PLAIN)])), "any NoHints 1,2");
    let old =
        FeatureGates { hints: false, shares: false, subsetting: false, ..FeatureGates::default() };
    let route = ask(&reader("a"), &old, &auto(), &[slice("s", HINTED)]);
    assert_eq!(line(&route), "any HintsGateOff 1,2");
}

#[test]
fn d1_hints_count_only_if_all_ready_endpoints_have_one() {
    let rows = [
        ("1[R z:a] 2[R]", "a", "any HintMissing 1,2"),
        ("1[R z:a] 2[U]", "a", "same-zone SameZoneHints 1"),
        ("1[R z:a] 2[T]", "a", "same-zone SameZoneHints 1"),
        ("1[R z:a] 2[R z:b]", "", "any NodeWithoutZone 1,2"),
        ("1[R z:a] 2[R z:b]", "c", "any NoHintForZone 1,2"),
        ("1[U z:a] 2[R z:b]", "a", "any NoHintForZone 2"),
        ("1[T z:a] 2[T z:b]", "a", "terminating OnlyTerminating 1,2"),
    ];
    for (text, zone, expected) in rows {
        assert_eq!(line(&simple(zone, &[slice("s", text)])), expected, "{text} in {zone}");
    }
}

#[test]
fn d3_node_hints_first_then_zone_hints() {
    let rows = [
        ("1[R z:a n:node-1] 2[R z:a n:node-2]", "same-node SameNodeHints 1"),
        ("1[R z:a n:node-2] 2[R z:b n:node-2]", "same-zone SameZoneHints 1"),
        ("1[R z:a n:node-1] 2[R z:a]", "same-zone SameZoneHints 1,2"),
        ("1[R n:node-2] 2[R n:node-3]", "any NoHintForNode 1,2"),
        ("1[R z:b n:node-2] 2[R z:b n:node-3]", "any NoHintForZone 1,2"),
        ("1[R n:node-1] 2[R]", "any HintMissing 1,2"),
    ];
    for (text, expected) in rows {
        assert_eq!(line(&simple("a", &[slice("s", text)])), expected, "{text}");
    }
}

/// The version-skew table of KEP-4444: controller, proxy, which of annotation and preference are set, and what a node in
/// zone a does. Controllers write hints for what they know; an old proxy (gate off) honours hints
/// only with the annotation, a new one always.
#[test]
fn d2_d14_every_combination_of_old_and_new() {
    let new = FeatureGates::default();
    let old = FeatureGates { routing_preference: false, ..new };
    let (filtered, all) = ("same-zone SameZoneHints 1", "any NoHints 1,2");
    let ignored = "any HintsNotAsked 1,2";
    let (annotated, plain) = (auto(), service(&json!({})));
    let rows = [
        ("new/old: both", &old, &annotated, HINTED, filtered),
        ("new/old: preference", &old, &plain, HINTED, ignored),
        ("new/old: annotation", &old, &annotated, HINTED, filtered),
        ("old/new: both", &new, &annotated, HINTED, filtered),
        ("old/new: preference", &new, &plain, PLAIN, all),
        ("old/new: annotation", &new, &annotated, HINTED, filtered),
        ("new/new: both", &new, &annotated, HINTED, filtered),
        ("new/new: preference", &new, &plain, HINTED, filtered),
        ("new/new: annotation", &new, &annotated, HINTED, filtered),
        ("old/old: both", &old, &annotated, HINTED, filtered),
        ("old/old: preference", &old, &plain, PLAIN, ignored),
        ("old/old: annotation", &old, &annotated, HINTED, filtered),
    ];
    for (name, gates, service, endpoints, expected) in rows {
        let route = ask(&reader("a"), gates, service, &[slice("s", endpoints)]);
        assert_eq!(line(&route), expected, "{name}");
    }
}

/// Zone shares came with routing preferences: an older proxy ignores them, with the annotation or
/// without it.
#[test]
fn d14_an_old_proxy_uses_the_hints_beside_shares() {
    let shares = r#"{"v":1,"endpoints":{"a":1,"b":1},"from":{"a":{"a":0.5,"b":0.5}}}"#;
    let slices: [Value; 1] = [with_shares(slice("s", HINTED), shares)];
    let old = FeatureGates { routing_preference: false, ..FeatureGates::default() };
    assert_eq!(line(&ask(&reader("a"), &old, &auto(), &slices)), "same-zone SameZoneHints 1");
    assert_eq!(line(&simple("a", &slices)), "shares SharesApplied 1,2");
}
