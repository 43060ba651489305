//! Zone shares.

use serde_json::{Value, json};
use zonewise_routing::{Choice, FeatureGates, Mode, Route};
use zonewise_topology::reason::{Code, Reason};

use crate::common::{ask, line, policies, reader, service, short, simple, slice, with_shares};

/// Four endpoints in a, two in b: b sends a quarter to a.
const SHARES: &str =
    r#"{"v":1,"endpoints":{"a":4,"b":2},"from":{"a":{"a":1},"b":{"a":0.25,"b":0.75}}}"#;
const SIX: &str = "1[R @a] 2[R @a] 3[R @a] 4[R @a] 5[R @b] 6[R @b]";

fn six() -> Value {
    with_shares(slice("s", SIX), SHARES)
}

fn codes(route: &Route) -> (Mode, Code, Vec<Code>) {
    (route.mode, route.reason.code(), route.notes.iter().map(Reason::code).collect())
}

#[test]
fn shares_become_weights() {
    let route = simple("b", &[six()]);
    assert_eq!(line(&route), "shares SharesApplied 1,2,3,4,5,6");
    assert_eq!(route.reason, Reason::SharesApplied { in_zone: 0.75, endpoints: 6 });
    let weights = route.weights.unwrap();
    assert_eq!(*weights, [62_500, 62_500, 62_500, 62_500, 375_000, 375_000]);
    let zones = ["a", "a", "a", "a", "b", "b"];
    assert_eq!(Choice::weighted(&zones, &weights).elements(), 6 + 2, "a quarter is 2 parts of 8");
    let route = simple("a", &[six()]);
    assert_eq!(
        line(&route),
        "shares SharesApplied 1,2,3,4",
        "only endpoints of zones with a share"
    );
    assert_eq!(*route.weights.unwrap(), [250_000; 4]);
}

#[test]
fn weights_add_up_to_a_million() {
    let shares = r#"{"v":1,"endpoints":{"a":3,"b":4},"from":{"a":{"a":0.5,"b":0.5}}}"#;
    let text = "1[R @a] 2[R @a] 3[R @a] 4[R @b] 5[R @b] 6[R @b] 7[R @b]";
    let weights = simple("a", &[with_shares(slice("s", text), shares)]).weights.unwrap();
    assert_eq!(*weights, [166_667, 166_667, 166_666, 125_000, 125_000, 125_000, 125_000]);
}

/// From b: load then is 0.75 · 6 / 2 = 2.25 in b and 0.25 · 6 / 4 = 0.375 in a.
#[test]
fn shares_are_used_until_an_endpoint_would_get_a_fifth_more() {
    let rows = [
        (SIX, Mode::Shares, "as computed"),
        ("1[R @a] 2[R @a] 5[R @b]", Mode::Shares, "half of each: the same load"),
        ("1[R @a] 2[R @a] 3[R @a] 5[R @b] 6[R @b]", Mode::Shares, "0.42 in a, limit 0.45"),
        ("1[R @a] 2[R @a] 5[R @b] 6[R @b]", Mode::Any, "0.5 in a, limit 0.45"),
        ("1[R @a] 2[R @a] 3[R @a] 4[R @a] 5[R @b]", Mode::Any, "3.75 in b, limit 2.7"),
        ("1[R @a] 2[R @a] 3[R @a] 4[R @a] 5[R @b] 6[U @b]", Mode::Any, "unready does not count"),
        ("5[R @b] 6[R @b]", Mode::Shares, "a drops out: fair for b"),
        ("1[R @a] 2[R @a] 3[R @a] 4[R @a]", Mode::Any, "b drops out: 1 in a, limit 0.45"),
        ("1[R @c]", Mode::Any, "no zone with a share has endpoints"),
        (
            "1[R @a] 2[R @a] 3[R @a] 4[R @a] 5[R @b] 6[R @b] 7[R @c]",
            Mode::Shares,
            "a seventh: 2.63 in b, limit 2.7",
        ),
        (
            "1[R @a] 2[R @a] 3[R @a] 4[R @a] 5[R @b] 6[R @b] 7[R @c] 8[R @c]",
            Mode::Any,
            "two more: 3 in b, limit 2.7",
        ),
    ];
    for (text, mode, why) in rows {
        let route = simple("b", &[with_shares(slice("s", text), SHARES)]);
        assert_eq!(route.mode, mode, "{why}: {}", route.reason);
        assert_eq!(mode == Mode::Any, route.reason.code() == Code::SharesStale, "{why}");
    }
}

#[test]
fn shares_must_agree_be_valid_and_name_the_zone() {
    let other = SHARES.replace("0.25", "0.2").replace("0.75", "0.8");
    let more = |shares: Option<&str>| {
        let slice = slice("t", "7[R @a]");
        shares.map_or(slice.clone(), |shares| with_shares(slice, shares))
    };
    let rows = [
        ("b", vec![six(), more(None)], Code::SharesDisagree),
        ("b", vec![more(None), six()], Code::SharesDisagree),
        ("b", vec![six(), more(Some(&other))], Code::SharesDisagree),
        ("b", vec![with_shares(slice("s", SIX), "{")], Code::SharesMalformed),
        ("b", vec![with_shares(slice("s", SIX), &" ".repeat(300_000))], Code::SharesTooLarge),
        ("c", vec![six()], Code::SharesWithoutZone),
        ("", vec![six()], Code::NodeWithoutZone),
    ];
    for (zone, slices, code) in rows {
        let route = simple(zone, &slices);
        assert_eq!(codes(&route), (Mode::Any, code, vec![Code::NoHints]), "{code}");
        assert_eq!(route.weights, None);
    }
    let agreed = simple("b", &[six(), more(Some(SHARES))]);
    assert_eq!(agreed.mode, Mode::Shares);
    let mut v6 = with_shares(slice("v6", ""), "{");
    v6["addressType"] = "IPv6".into();
    assert_eq!(simple("b", &[six(), v6]).mode, Mode::Shares, "families are judged apart");
}

#[test]
fn d3_node_hints_then_shares_then_zone_hints() {
    let hinted = |node: &str| {
        let text = format!("1[R @a z:a n:{node}] 2[R @b z:b n:other]");
        let shares = r#"{"v":1,"endpoints":{"a":1,"b":1},"from":{"a":{"a":0.5,"b":0.5}}}"#;
        with_shares(slice("s", &text), shares)
    };
    assert_eq!(line(&simple("a", &[hinted("node-1")])), "same-node SameNodeHints 1");
    assert_eq!(line(&simple("a", &[hinted("node-2")])), "shares SharesApplied 1,2");
    let route = simple("b", &[hinted("node-2")]);
    assert_eq!(codes(&route), (Mode::SameZone, Code::SameZoneHints, vec![Code::SharesWithoutZone]));
    let off = FeatureGates { shares: false, ..FeatureGates::default() };
    let route = ask(&reader("a"), &off, &service(&json!({})), &[hinted("node-2")]);
    assert_eq!(line(&route), "same-zone SameZoneHints 1");
    assert_eq!(route.notes, []);
}

#[test]
fn d4_shares_and_policies_live_side_by_side() {
    let text = "1[R @a] 2[R @a] 3[R @a] 4[R @a] 5[R @b L] 6[R @b]";
    let slices = [with_shares(slice("s", text), SHARES)];
    let service = policies("Cluster", "Local", 30080);
    let route = ask(&reader("a"), &FeatureGates::default(), &service, &slices);
    assert_eq!(short(route.cluster.as_deref()), "1,2,3,4");
    assert_eq!(short(route.local.as_deref()), "5");
    assert_eq!(short(route.reachable.as_deref()), "1,2,3,4,5");
    assert_eq!(route.weights.unwrap().len(), 4);
}
