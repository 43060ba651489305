//! Hints and traffic policies: the table of kube-proxy's own test, and that of KEP-4444.

use serde_json::json;
use zonewise_routing::{FeatureGates, Mode, NodeLocation, ObjectReader, Route, RoutedService};
use zonewise_topology::reason::Reason;

use crate::common::{ask, policies, reader, service, short, slice};

fn lists(route: &Route) -> (String, String, String, bool) {
    // The reference's test takes no list and an empty one for the same; the recorded cases do not.
    let text = |list: &Option<_>| {
        let text = short(list.as_deref());
        if text.is_empty() { "-".to_owned() } else { text }
    };
    (text(&route.cluster), text(&route.local), text(&route.reachable), route.has_any)
}

/// Number, service, zone, endpoints, and cluster, local, reachable, any.
type Row = (u8, &'static str, &'static str, &'static str, [&'static str; 3], bool);

const FOUR: &str = "3[R z:a] 4[R z:b] 5[R z:c] 6[R z:a]";
const TWO_LOCAL: &str = "3[R L z:a] 4[R L z:b] 5[R z:c] 6[R z:a]";
const NODES: &str = "3[R z:a n:node-1] 4[R z:b n:node-2] 5[R z:c n:node-3] 6[R z:a n:node-4]";

#[rustfmt::skip]
const ROWS: [Row; 32] = [
    (1, "C", "a", FOUR, ["3,6", "-", "3,6"], true),
    (2, "eL", "a", TWO_LOCAL, ["3,6", "3,4", "3,4,6"], true),
    (3, "iL np", "a", TWO_LOCAL, ["3,6", "3,4", "3,4,6"], true),
    (4, "C", "none", "3[R z:a]", ["3", "-", "3"], true),
    (5, "C", "", "3[R z:a]", ["3", "-", "3"], true),
    (6, "C", "b", "3[R z:a]", ["3", "-", "3"], true),
    (7, "C", "a", "3[R z:a] 4[R z:b] 5[R z:c] 6[U z:a]", ["3", "-", "3"], true),
    (8, "C", "a", "3[U z:a] 4[R z:b] 5[R z:c] 6[U z:a]", ["4,5", "-", "4,5"], true),
    (9, "C", "a", "3[R z:a] 4[R z:b] 5[R] 6[R z:a]", ["3,4,5,6", "-", "3,4,5,6"], true),
    (10, "C", "c", "3[R z:a,b,c] 4[R z:b,c] 5[R z:b,d] 6[R z:c]", ["3,4,6", "-", "3,4,6"], true),
    (11, "C off", "a", NODES, ["3,6", "-", "3,6"], true),
    (12, "C", "a", NODES, ["3", "-", "3"], true),
    (13, "C", "a", "3[R z:a n:node-1] 4[R] 5[R z:c n:node-3] 6[R z:a n:node-4]",
        ["3,4,5,6", "-", "3,4,5,6"], true),
    (14, "C node-0", "a", NODES, ["3,6", "-", "3,6"], true),
    (15, "eL", "a", "0[R L z:a] 1[R L z:b] 2[R z:a] 3[R z:b]", ["0,2", "0,1", "0,1,2"], true),
    (16, "iL", "", "", ["-", "-", "-"], false),
    (17, "iL", "", "0[R] 1[R]", ["-", "-", "-"], true),
    (18, "iL", "", "0[R L] 1[R L]", ["-", "0,1", "0,1"], true),
    (19, "iL", "", "0[R L] 1[R]", ["-", "0", "0"], true),
    (20, "C", "", "0[U] 1[U]", ["-", "-", "-"], false),
    (21, "C", "", "0[U] 1[R]", ["1", "-", "1"], true),
    (22, "C", "", "0[T L] 1[T]", ["0,1", "-", "0,1"], true),
    (23, "iL np", "", "0[R L] 1[R]", ["0,1", "0", "0,1"], true),
    (24, "eL", "", "0[R L] 1[R]", ["0,1", "0", "0,1"], true),
    (25, "iL eL", "", "0[R L] 1[R]", ["0,1", "0", "0,1"], true),
    (26, "iL eL", "", "0[R] 1[R]", ["0,1", "-", "0,1"], true),
    (27, "iL eL", "", "0[T] 1[T]", ["0,1", "-", "0,1"], true),
    (28, "eL", "", "0[R] 1[U L] 2[T L] 3[T]", ["0", "2", "0,2"], true),
    (29, "eL closed", "", "0[R] 1[R L]", ["0,1", "-", "0,1"], true),
    (30, "iL", "", "0[R] 1[R L]", ["-", "1", "1"], true),
    (31, "C", "", "", ["-", "-", "-"], false),
    (32, "C", "a", "0[U]", ["-", "-", "-"], false),
];

fn named(text: &str) -> RoutedService {
    match text {
        "eL" => policies("Cluster", "Local", 8080),
        "iL np" => policies("Local", "Cluster", 8080),
        "iL eL" => policies("Local", "Local", 8080),
        "iL" => policies("Local", "Cluster", 0),
        "eL closed" => {
            service(&json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local" }))
        }
        _ => policies("Cluster", "Cluster", 0),
    }
}

#[test]
fn d1_d3_b10_the_table_of_the_reference() {
    for (number, service, zone, endpoints, expected, any) in ROWS {
        let node = if service == "C node-0" { "node-0" } else { "node-1" };
        let zone = (zone != "none").then_some(zone);
        let reader = ObjectReader::new(NodeLocation::new(node, zone, None));
        let gates = FeatureGates { node_hints: service != "C off", ..FeatureGates::default() };
        let slices = if endpoints.is_empty() { vec![] } else { vec![slice("s", endpoints)] };
        let route = ask(&reader, &gates, &named(service), &slices);
        let [cluster, local, all] = expected.map(str::to_owned);
        assert_eq!(lists(&route), (cluster, local, all, any), "case {number}");
    }
}

/// Hinted to zone a: 1 and 2; on this node: 2 and 3.
const MIXED: &str = "1[R z:a] 2[R z:a L] 3[R z:b L] 4[R z:b]";

#[test]
fn d4_b10_the_table_of_document_d_and_the_row_it_lacks() {
    let rows = [
        ("Cluster", "Cluster", "1,2", "1,2"),
        ("Local", "Cluster", "2,3", "1,2"),
        ("Local", "Local", "2,3", "2,3"),
        ("Cluster", "Local", "1,2", "2,3"),
    ];
    for (external, internal, outside, inside) in rows {
        let service = policies(internal, external, 30080);
        let route = ask(&reader("a"), &FeatureGates::default(), &service, &[slice("s", MIXED)]);
        assert_eq!(
            (&*short(Some(route.external(&service))), &*short(Some(route.internal(&service)))),
            (outside, inside),
            "external {external}, internal {internal}"
        );
        assert_eq!(route.mode, Mode::SameZone);
    }
}

#[test]
fn b10_local_traffic_looks_at_no_hint_and_says_so() {
    let gates = FeatureGates::default();
    let local = policies("Local", "Cluster", 0);
    let route = ask(&reader("a"), &gates, &local, &[slice("s", MIXED)]);
    assert_eq!(short(route.local.as_deref()), "2,3");
    assert_eq!((route.mode, route.reason), (Mode::Any, Reason::LocalOnly { endpoints: 2 }));

    let route = ask(&reader("a"), &gates, &local, &[slice("s", "1[R z:a]")]);
    assert_eq!((route.reason, route.has_any), (Reason::NoLocalEndpoint, true));

    let route = ask(&reader("a"), &gates, &local, &[slice("s", "1[R] 2[T L]")]);
    assert_eq!(short(route.local.as_deref()), "2");
    assert_eq!(route.mode, Mode::Terminating);

    let both = policies("Cluster", "Local", 30080);
    let route = ask(&reader("a"), &gates, &both, &[slice("s", "1[R z:a]")]);
    assert_eq!(route.reason, Reason::SameZoneHints { endpoints: 1, of: 1 });
    assert_eq!(route.notes, [Reason::NoLocalEndpoint]);
}

/// Rules and pages compare routes: hints that chose an endpoint are not part of it.
#[test]
fn targets_of_a_route_carry_no_hints() {
    let both = policies("Cluster", "Local", 30_080);
    let of = |text: &str| ask(&reader("a"), &FeatureGates::default(), &both, &[slice("s", text)]);
    let (hinted, plain) = (of("1[R L @a z:a n:node-1]"), of("1[R L @a]"));
    assert_eq!((hinted.mode, plain.mode), (Mode::SameNode, Mode::Any));
    assert_eq!(
        format!("{:?}", hinted.cluster.as_ref().unwrap()[0].flags),
        r#"{"ready", "serving", "local"}"#
    );
    let lists = |route: Route| (route.cluster, route.local, route.reachable);
    // The zone is a number that each reader gives.
    assert_eq!(lists(hinted), lists(plain));
}
