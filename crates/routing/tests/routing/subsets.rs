//! Slices that are labelled for a zone or a region (requirements C1 to C9).

use serde_json::{Value, json};
use zonewise_routing::{
    Family, FeatureGates, Mode, NodeLocation, ObjectReader, RouteQuery, RoutedService, RoutedSlice,
    consumed_slices, is_for_node, needs_other_subsets, route, serving_targets,
};

use crate::common::{ask, labelled, line, policies, read, reader, service, short, simple, slice};

fn is_wanted(slice: &Value, gates: &FeatureGates) -> bool {
    let reader = reader("a");
    let slice = reader.read_slice(&slice.to_string()).unwrap();
    is_for_node(&slice, reader.location(), gates)
}

#[test]
fn c1_c2_c3_c4_the_five_unit_tests_of_the_document() {
    let (on, off) =
        (FeatureGates::default(), FeatureGates { subsetting: false, ..FeatureGates::default() });
    let of = |key: &str, value: &str| labelled("s", key, value, "1[R]");
    let all = [of("for-zone", "a"), of("for-zone", "b"), of("for-region", "q"), slice("s", "1[R]")];
    assert!(all.iter().all(|slice| is_wanted(slice, &off)), "disabled: consume all");
    assert!(is_wanted(&of("for-zone", "a"), &on), "same zone: consumed");
    assert!(!is_wanted(&of("for-zone", "b"), &on), "different zone: not consumed");
    assert!(is_wanted(&of("for-region", "r"), &on), "same region: consumed");
    assert!(!is_wanted(&of("for-region", "q"), &on), "different region: not consumed");
    assert!(is_wanted(&slice("s", "1[R]"), &on), "no label: consumed");
}

fn zones() -> [Value; 3] {
    [
        labelled("s1", "for-zone", "a", "1[R]"),
        labelled("s2", "for-zone", "b", "2[R] 3[R]"),
        labelled("s3", "for-zone", "c", "4[U]"),
    ]
}

#[test]
fn c2_each_zone_uses_its_own_slices() {
    assert_eq!(line(&simple("a", &zones())), "same-zone ZoneSubset 1");
    assert_eq!(line(&simple("b", &zones())), "same-zone ZoneSubset 2,3");
    let regions =
        [labelled("s1", "for-region", "r", "1[R]"), labelled("s2", "for-region", "q", "2[R]")];
    assert_eq!(line(&simple("a", &regions)), "same-region RegionSubset 1");
}

#[test]
fn c3_a27_with_the_gate_off_everything_is_used() {
    let off = FeatureGates { subsetting: false, ..FeatureGates::default() };
    let route = ask(&reader("a"), &off, &service(&json!({})), &zones());
    assert_eq!(line(&route), "any NoHints 1,2,3");
    let old_controller = [slice("s1", "1[R @a] 2[R @b]")];
    assert_eq!(line(&simple("a", &old_controller)), "any NoHints 1,2");
}

#[test]
fn c8_never_a_black_hole() {
    assert_eq!(line(&simple("c", &zones())), "any SubsetEmpty 1,2,3", "nothing usable");
    assert_eq!(line(&simple("d", &zones())), "any SubsetEmpty 1,2,3", "no slice");
    assert_eq!(line(&simple("", &zones())), "any NodeWithoutZone 1,2,3", "a node without a zone");
    let nowhere = ObjectReader::new(NodeLocation::new("n", Some("a"), None));
    let regions =
        [labelled("s1", "for-region", "r", "1[R]"), labelled("s2", "for-region", "q", "2[R]")];
    let route = ask(&nowhere, &FeatureGates::default(), &service(&json!({})), &regions);
    assert_eq!(line(&route), "any NodeWithoutZone 1,2", "a node without a region");
    let last = [labelled("s1", "for-zone", "a", "1[T]"), labelled("s2", "for-zone", "b", "2[R]")];
    assert_eq!(line(&simple("a", &last)), "any SubsetEmpty 2", "ready elsewhere is better");
    let last = [labelled("s1", "for-zone", "a", "1[T]"), labelled("s2", "for-zone", "b", "2[T]")];
    assert_eq!(line(&simple("a", &last)), "terminating OnlyTerminating 1,2", "none is ready");
}

#[test]
fn c8_a_port_that_only_another_zone_offers() {
    let mut other = labelled("s2", "for-zone", "b", "2[R]");
    other["ports"][0]["name"] = "admin".into();
    let slices = [labelled("s1", "for-zone", "a", "1[R]"), other];
    let service = service(&json!({ "ports": [{ "name": "admin", "port": 81 }] }));
    let route = ask(&reader("a"), &FeatureGates::default(), &service, &slices);
    assert_eq!(line(&route), "any SubsetEmpty 2");
}

#[test]
fn c8_families_are_judged_apart() {
    let reader = reader("a");
    let mut v6 = labelled("s2", "for-zone", "b", "");
    v6["addressType"] = "IPv6".into();
    v6["endpoints"] = json!([{ "addresses": ["fd00::1"] }]);
    let slices = read(&reader, &[labelled("s1", "for-zone", "a", "1[R]"), v6, zones()[1].clone()]);
    let slices: Vec<&RoutedSlice> = slices.iter().collect();
    let (service, gates) = (service(&json!({})), FeatureGates::default());
    let kept = consumed_slices(&service, &slices, reader.location(), &gates);
    assert_eq!(kept.iter().map(|slice| &*slice.name).collect::<Vec<_>>(), ["s1", "s2"]);
    let port = &service.ports[0];
    let query = RouteQuery {
        reader: &reader,
        gates: &gates,
        service: &service,
        port,
        family: Family::V6,
        slices: &slices,
    };
    let answer = route(&query);
    assert_eq!(answer.cluster.unwrap().len(), 1);
}

/// Unlabelled to labelled and back: controllers add new slices before they remove old ones.
#[test]
fn c7_a_change_loses_no_endpoint() {
    let before = slice("s0", "1[R] 2[R] 3[R]");
    let steps: [(&[&Value], &str); 4] = [
        (&[&before], "any NoHints 1,2,3"),
        (&[&before, &zones()[0]], "any SubsetsMixed 1,2,3"),
        (&[&before, &zones()[0], &zones()[1]], "any SubsetsMixed 1,2,3"),
        (&[&zones()[0], &zones()[1]], "same-zone ZoneSubset 1"),
    ];
    for (slices, expected) in steps.iter().chain(steps.iter().rev()) {
        let slices: Vec<Value> = slices.iter().map(|slice| (*slice).clone()).collect();
        assert_eq!(line(&simple("a", &slices)), *expected);
    }
    let from_region = [labelled("s0", "for-region", "r", "1[R] 2[R]"), zones()[0].clone()];
    assert_eq!(line(&simple("a", &from_region)), "any SubsetsMixed 1,2");
}

/// The slices that label selectors deliver to a node (C2) give the same route as all slices.
#[test]
fn c2_c7_the_answer_does_not_depend_on_what_else_was_delivered() {
    let all = [slice("s0", "5[R]"), zones()[0].clone(), zones()[1].clone()];
    let delivered = [all[0].clone(), all[1].clone()];
    assert_eq!(simple("a", &all), simple("a", &delivered));
}

#[test]
fn c9_a_policy_of_local_uses_all_slices() {
    let slices =
        [labelled("s1", "for-zone", "a", "1[R]"), labelled("s2", "for-zone", "b", "2[R L]")];
    let gates = FeatureGates::default();
    let internal = policies("Local", "Cluster", 0);
    let route = ask(&reader("a"), &gates, &internal, &slices);
    assert_eq!(short(route.local.as_deref()), "2");
    let external = policies("Cluster", "Local", 30080);
    let route = ask(&reader("a"), &gates, &external, &slices);
    assert_eq!(
        (short(route.local.as_deref()), line(&route)),
        ("2".into(), "any NoHints 1,2".into())
    );
}

#[test]
fn hints_work_inside_a_subset_and_the_rest_is_noted() {
    let hinted = [labelled("s1", "for-zone", "a", "1[R z:a] 2[R z:b]"), zones()[1].clone()];
    assert_eq!(line(&simple("a", &hinted)), "same-zone SameZoneHints 1");
    let partly = [labelled("s1", "for-zone", "a", "1[R z:a] 2[R]")];
    let route = simple("a", &partly);
    assert_eq!((line(&route), route.notes.len()), ("same-zone ZoneSubset 1,2".into(), 1));
    let elsewhere = [labelled("s1", "for-zone", "b", "1[R z:a] 2[R z:b]")];
    let route = simple("a", &elsewhere);
    assert_eq!((route.mode, route.notes.len()), (Mode::SameZone, 1));
}

/// Connections to endpoints of another subset are not stale.
#[test]
fn d5_serving_looks_at_all_slices() {
    let reader = reader("a");
    let slices = read(&reader, &zones());
    let slices: Vec<&RoutedSlice> = slices.iter().collect();
    let (service, gates) = (service(&json!({})), FeatureGates::default());
    let query = RouteQuery {
        reader: &reader,
        gates: &gates,
        service: &service,
        port: &service.ports[0],
        family: Family::V4,
        slices: &slices,
    };
    assert_eq!(short(Some(&serving_targets(&query))), "1,2,3");
}

/// A watch for all slices is opened only where the slices for this node leave something without a ready endpoint.
#[test]
fn c8_c9_when_the_slices_of_other_zones_are_needed() {
    let dual = json!({
        "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"],
    });
    let two_ports = json!({"ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]});
    let v4 = slice("v4", "1[R]");
    let (unready, partly) = (slice("s", "1[U] 2[T]"), slice("s", "1[U] 2[R]"));
    let mut v6 = slice("v6", "");
    v6["addressType"] = "IPv6".into();
    v6["endpoints"] = json!([{"addresses": ["fd00::2"]}]);
    let mut dns = slice("dns", "1[R]");
    dns["ports"] = json!([{"name": "dns", "protocol": "UDP", "port": 53}]);
    let mut dns_by_tcp = dns.clone();
    dns_by_tcp["ports"][0]["protocol"] = "TCP".into();
    let rows: [(&str, Value, Vec<&Value>, bool); 11] = [
        ("a ready endpoint", json!({}), vec![&v4], false),
        ("no slice", json!({}), vec![], true),
        ("none is ready", json!({}), vec![&unready], true),
        ("one of two is ready", json!({}), vec![&partly], false),
        ("no IPv6", dual.clone(), vec![&v4], true),
        ("no IPv4", dual.clone(), vec![&v6], true),
        ("both families", dual, vec![&v4, &v6], false),
        ("a family that the Service does not have", json!({}), vec![&v6], true),
        ("one of two ports", two_ports.clone(), vec![&v4], true),
        (
            "a port of that name with another protocol",
            two_ports.clone(),
            vec![&v4, &dns_by_tcp],
            true,
        ),
        ("both ports", two_ports, vec![&v4, &dns], false),
    ];
    let needs = |service: &RoutedService, slices: &[&Value]| {
        let slices: Vec<Value> = slices.iter().map(|slice| (*slice).clone()).collect();
        let slices = read(&reader("a"), &slices);
        needs_other_subsets(service, &slices.iter().collect::<Vec<_>>())
    };
    for (name, spec, slices, expected) in rows {
        assert_eq!(needs(&service(&spec), &slices), expected, "{name}");
    }
    assert!(needs(&policies("Local", "Cluster", 0), &[&v4]), "internal traffic stays on the node");
    assert!(
        needs(&policies("Cluster", "Local", 30_080), &[&v4]),
        "external traffic stays on the node"
    );
}
