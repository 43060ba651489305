//! Every reason this crate can give is reached, and says something.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zonewise_routing::{FeatureGates, Route};
use zonewise_topology::reason::{Code, Reason, TABLE};

use crate::common::{ask, labelled, policies, reader, service, simple, slice, with_shares};

/// All that are about the way of traffic, and these.
const GIVEN_TOO: [Code; 3] = [Code::NoEndpoints, Code::SharesMalformed, Code::SharesTooLarge];

/// These come from the proxy's budget of kernel elements, after the route was decided.
const OF_THE_BUDGET: [Code; 2] = [Code::WeightsOverBudget, Code::AddressesOverBudget];

const SHARES: &str = r#"{"v":1,"endpoints":{"a":1,"b":1},"from":{"a":{"a":1},"b":{"b":1}}}"#;

/// One more endpoint, with an address that means another machine on every node.
fn with_loopback(mut slice: Value) -> Value {
    let mut endpoint = slice["endpoints"][0].clone();
    endpoint["addresses"] = json!(["127.0.0.1"]);
    slice["endpoints"].as_array_mut().unwrap().push(endpoint);
    slice
}

fn routes() -> Vec<Route> {
    let all = FeatureGates::default();
    let plain = |text: &str| vec![slice("s", text)];
    let shares = |text: &str, shares: &str| vec![with_shares(slice("s", text), shares)];
    let zone = |zone: &str| labelled("s", "for-zone", zone, "1[R]");
    let with = |gates: FeatureGates, slices: &[Value]| {
        ask(&reader("a"), &gates, &service(&json!({})), slices)
    };
    let local =
        |text: &str| ask(&reader("a"), &all, &policies("Local", "Cluster", 0), &plain(text));
    vec![
        simple("a", &[]),
        simple("a", &plain("1[R]")),
        simple("a", &plain("1[T]")),
        simple("a", &plain("1[R z:a n:node-1] 2[R z:b n:node-2]")),
        simple("a", &plain("1[R n:node-2]")),
        simple("a", &plain("1[R z:a] 2[R z:b]")),
        simple("a", &plain("1[R z:a] 2[R]")),
        simple("a", &plain("1[R z:b]")),
        simple("", &plain("1[R z:b]")),
        simple("a", &shares("1[R @a] 2[R @b]", SHARES)),
        simple("a", &shares("1[R @a] 2[R @b] 3[R @b]", SHARES)),
        simple("c", &shares("1[R @a]", SHARES)),
        simple("a", &shares("1[R @a]", "{")),
        simple("a", &shares("1[R @a]", &" ".repeat(300_000))),
        simple("a", &[with_shares(slice("s", "1[R @a]"), SHARES), slice("t", "2[R @b]")]),
        simple("a", &[zone("a")]),
        simple("a", &[zone("b")]),
        simple("a", &[zone("a"), slice("t", "2[R]")]),
        simple("a", &[labelled("s", "for-region", "r", "1[R]")]),
        with(FeatureGates { hints: false, ..all }, &plain("1[R z:a]")),
        with(FeatureGates { routing_preference: false, ..all }, &plain("1[R z:a]")),
        local("1[R L]"),
        local("1[R]"),
        simple("a", &[with_loopback(slice("s", "1[R]"))]),
    ]
}

#[test]
fn every_code_of_a_route_is_reached() {
    let mut reasons: Vec<Reason> = routes().iter().map(|route| route.reason).collect();
    // This one never says why the others are used.
    reasons.extend(routes().iter().filter_map(Route::special_addresses));
    let reached: BTreeSet<Code> = reasons.iter().map(Reason::code).collect();
    let of_routes = TABLE
        .iter()
        .map(|entry| entry.code)
        .filter(|code| *code >= Code::SameNodeHints && !OF_THE_BUDGET.contains(code));
    assert_eq!(reached, of_routes.chain(GIVEN_TOO).collect());
    for reason in reasons {
        assert!(reason.to_string().starts_with(reason.code().entry().sentence));
    }
}

/// Endpoints that are left out are counted, and the others are used; without others there is no endpoint.
#[test]
fn special_addresses_are_left_out_with_a_reason() {
    let route = simple("a", &[with_loopback(slice("s", "1[R]"))]);
    let told = route.special_addresses().unwrap();
    assert_eq!((told, &*route.notes), (Reason::SpecialAddresses { endpoints: 1 }, &[told][..]));
    assert_eq!((route.reason.code(), route.cluster.unwrap().len()), (Code::NoHints, 1));
    let mut alone = with_loopback(slice("s", "1[R]"));
    alone["endpoints"].as_array_mut().unwrap().remove(0);
    let route = simple("a", &[alone]);
    assert_eq!((route.reason, &*route.notes), (Reason::NoEndpoints, &[told][..]));
    assert_eq!(simple("a", &[slice("s", "1[R]")]).special_addresses(), None);
}

/// People compare what they read with what they count.
#[test]
fn reasons_show_their_figures() {
    let text =
        |zone: &str, endpoints: &str| simple(zone, &[slice("s", endpoints)]).reason.to_string();
    assert_eq!(
        text("a", "1[R z:a] 2[R z:b] 3[R z:a]"),
        "this node uses the endpoints hinted to its zone (2 of 3 endpoints)"
    );
    assert_eq!(
        text("a", "1[R z:a] 2[R] 3[R]"),
        "a ready endpoint carries no hint, so all hints are ignored (2 endpoints)"
    );
    let stale = with_shares(slice("s", "1[R @a] 2[R @b] 3[R @b]"), SHARES);
    assert_eq!(
        simple("a", &[stale]).reason.to_string(),
        "the zone shares were computed for other endpoints and would overload one \
         (now 3.00 times the fair share of an endpoint, 2.00 when they were computed)"
    );
}
