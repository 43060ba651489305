//! Reading slices, and merging them.

use std::net::Ipv6Addr;
use std::sync::Arc;

use serde_json::{Value, json};
use zonewise_common::testing::{assert_null_is_absent, full_service, full_slice};
use zonewise_routing::{
    AddressList, EndpointFlags, Family, NodeLocation, ObjectReader, Protocol, RoutedSlice,
    SlicePort, Subset, Target, ZoneId, count_local_ready, merge,
};

use crate::common::{NODE, endpoint, policies, read, reader, slice, with_shares};

fn numbers(targets: &[Target]) -> Vec<String> {
    targets.iter().map(|target| target.to_string().replace("10.0.0.", "")).collect()
}

fn merged(slices: &[Value]) -> Vec<Target> {
    let slices = read(&reader("a"), slices);
    let slices: Vec<&RoutedSlice> = slices.iter().collect();
    merge(&slices, Family::V4, "http", Protocol::Tcp)
}

fn flags(text: &str) -> EndpointFlags {
    merged(&[slice("s", text)])[0].flags
}

const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

#[test]
fn a_slice_is_read_whole() {
    let reader = ObjectReader::new(NodeLocation::new(NODE, Some("a"), None));
    let json = json!({
        "kind": "EndpointSlice",
        "metadata": {
            "name": "svc-x", "namespace": "ns", "resourceVersion": "77", "uid": "u",
            "labels": {
                "kubernetes.io/service-name": "svc",
                "service.kubernetes.io/headless": "",
                "endpointslice.kubernetes.io/for-zone": "a",
                "other": "ignored",
            },
            "annotations": {
                "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05.000006Z",
                "zonewise.dev/zone-shares": "{\"v\":1}",
            },
        },
        "addressType": "IPv6",
        "ports": [
            { "name": "http", "protocol": "TCP", "port": 80, "appProtocol": "h2c" },
            { "name": "", "port": 81 },
            { "name": "dns", "protocol": "UDP", "port": 53 },
            { "name": "sctp", "protocol": "SCTP", "port": 54 },
            { "port": 82 },
            { "name": "all", "protocol": "TCP" },
            { "name": "zero", "port": 0 },
            { "name": "huge", "port": 70000 },
            { "name": "odd", "protocol": "DCCP", "port": 83 },
        ],
        "endpoints": [
            { "addresses": ["fd00::1", "fd00::2"], "zone": "b", "nodeName": NODE,
              "hints": { "forZones": [{ "name": "b" }, { "name": "a" }], "forNodes": [{ "name": "x" }] },
              "targetRef": { "kind": "Pod", "name": "p" } },
            { "addresses": [] }, { "addresses": ["nonsense"] },
            { "addresses": ["10.0.0.1"] }, { "addresses": ["::1"] }, { "addresses": ["fe80::1"] },
            { "conditions": null, "hints": null },
        ],
    });
    let port = |name: &str, protocol, number| SlicePort { name: name.into(), protocol, number };
    let read = reader.read_slice(&json.to_string()).unwrap();
    let only = read.endpoints().next().unwrap();
    assert_eq!(
        read,
        RoutedSlice {
            namespace: "ns".into(),
            name: "svc-x".into(),
            service: "svc".into(),
            family: Some(Family::V6),
            subset: Subset::Zone("a".into()),
            headless: true,
            ports: Arc::new([
                port("http", Protocol::Tcp, 80),
                port("", Protocol::Tcp, 81),
                port("dns", Protocol::Udp, 53),
                port("sctp", Protocol::Sctp, 54),
            ]),
            endpoints: AddressList::of(
                Family::V6,
                [(only.address, (only.zone, only.flags))].into_iter()
            ),
            special_addresses: 2,
            zone_shares: Some("{\"v\":1}".into()),
            trigger_time_us: Some(1_767_323_045_000_006),
            resource_version: 77,
        }
    );
    assert_eq!((only.address, reader.zone_name(only.zone)), (V6.into(), Some("b".into())));
    assert_eq!(
        format!("{:?}", only.flags),
        r#"{"ready", "serving", "local", "zone-hinted", "for-my-zone", "node-hinted"}"#
    );
}

#[test]
fn little_or_odd_input_loses_nothing_else() {
    let reader = reader("a");
    let read = |text: &str| reader.read_slice(text);
    let empty = read("{}").unwrap();
    assert_eq!((empty.family, &*empty.service, empty.endpoints.len()), (None, "", 0));
    assert_eq!(read(r#"{"metadata":null,"endpoints":null,"ports":null}"#).unwrap(), empty);
    let names = r#"{"addressType":"FQDN","endpoints":[{"addresses":["example.com"]}]}"#;
    assert_eq!(read(names).unwrap(), empty);
    let odd = r#"{"metadata":{"resourceVersion":"abc","annotations":{
        "endpoints.kubernetes.io/last-change-trigger-time":"yesterday"}}}"#;
    assert_eq!(read(odd).unwrap(), empty);
    let escaped = r#"{"metadata":{"name":"\u0061b"}}"#;
    assert_eq!(&*read(escaped).unwrap().name, "ab");
    for wrong in
        ["", "[]", r#"{"endpoints":{}}"#, r#"{"ports":[{"port":"80"}]}"#, "{\"metadata\":1}"]
    {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn conditions_that_are_absent_have_defaults() {
    let of = |conditions: Value| {
        let mut one = endpoint("1[R");
        one["conditions"] = conditions;
        let mut slice = slice("s", "");
        slice["endpoints"] = json!([one]);
        let flags = merged(&[slice])[0].flags;
        (flags.ready(), flags.serving(), flags.terminating())
    };
    assert_eq!(of(json!(null)), (true, true, false));
    assert_eq!(
        of(json!({ "ready": null, "serving": null, "terminating": null })),
        (true, true, false)
    );
    assert_eq!(of(json!({ "ready": false })), (false, true, false));
    assert_eq!(of(json!({ "serving": false, "terminating": true })), (true, false, true));
}

#[test]
fn local_needs_both_names_and_hints_need_an_entry() {
    assert!(flags("1[R L]").local());
    assert!(!flags("1[R]").local());
    let nameless = ObjectReader::new(NodeLocation::new("", None, None));
    let one = json!({ "addressType": "IPv4", "endpoints": [
        { "addresses": ["10.0.0.1"], "nodeName": "", "hints": { "forZones": [], "forNodes": [] } } ] });
    let flags = nameless.read_slice(&one.to_string()).unwrap().endpoints().next().unwrap().flags;
    assert!(!flags.local() && !flags.zone_hinted() && !flags.node_hinted());
}

#[test]
fn zones_have_numbers_and_names() {
    let reader = reader("a");
    let endpoint = |(address, zone): (&str, &str)| json!({"addresses": [address], "zone": zone});
    let endpoints = [("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "a"), ("10.0.0.4", "")];
    let slice = json!({"addressType": "IPv4", "endpoints": endpoints.map(endpoint)});
    let slice = reader.read_slice(&slice.to_string()).unwrap();
    let ids: Vec<ZoneId> = slice.endpoints().map(|endpoint| endpoint.zone).collect();
    assert_eq!(ids[0], ids[2]);
    assert_ne!(ids[0], ids[1]);
    assert_eq!((reader.zone_name(ids[1]).as_deref(), ids[3]), (Some("b"), ZoneId::NONE));
    assert_eq!(reader.zone_name(ZoneId::NONE), None);
    assert_eq!(NodeLocation::new("n", Some(""), Some("")), NodeLocation::new("n", None, None));
}

/// A proxy does nothing for a slice with the same content, so each field that routing reads must count.
#[test]
fn every_field_but_version_and_time_is_content() {
    let reader = reader("a");
    let read = |slice: &Value| reader.read_slice(&slice.to_string()).unwrap();
    let slice = || read(&slice("s", "1[R]"));
    let later = RoutedSlice { resource_version: 2, trigger_time_us: Some(7), ..slice() };
    assert!(slice().same_content(&later));
    let others = [
        RoutedSlice { namespace: "other".into(), ..slice() },
        RoutedSlice { name: "other".into(), ..slice() },
        RoutedSlice { service: "other".into(), ..slice() },
        RoutedSlice { family: Some(Family::V6), ..slice() },
        RoutedSlice { subset: Subset::Zone("a".into()), ..slice() },
        RoutedSlice { headless: true, ..slice() },
        RoutedSlice { ports: Arc::new([]), ..slice() },
        RoutedSlice { endpoints: AddressList::default(), ..slice() },
        RoutedSlice { special_addresses: 1, ..slice() },
        RoutedSlice { zone_shares: Some("{}".into()), ..slice() },
    ];
    for other in others {
        assert!(!slice().same_content(&other), "{other:?}");
    }
}

#[test]
fn endpoints_differ_by_order_and_hints() {
    let of = |text: &str| reader("a").read_slice(&slice("s", text).to_string()).unwrap();
    assert!(!of("1[R] 2[R]").same_content(&of("2[R] 1[R]")));
    assert!(!of("1[R z:a]").same_content(&of("1[R]")));
}

#[test]
fn errors_say_what_is_expected() {
    let reader = reader("a");
    let rows = [
        (r#"[]"#, "invalid type: sequence, expected an object"),
        (r#"{"metadata":{"name":1}}"#, "invalid type: integer `1`, expected a string"),
        (r#"{"metadata":{"labels":"x"}}"#, "invalid type: string \"x\", expected a map of strings"),
        (
            r#"{"endpoints":[{"addresses":"x"}]}"#,
            "invalid type: string \"x\", expected a list of strings",
        ),
        (
            r#"{"endpoints":[{"hints":{"forZones":"x"}}]}"#,
            "invalid type: string \"x\", expected a list of names",
        ),
    ];
    for (json, expected) in rows {
        let error = reader.read_slice(json).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{json}: {error}");
    }
    assert!(reader.read_service(" []").unwrap_err().to_string().contains("expected an object"));
}

/// After a change of the node's zone or region, and for the next node: zones keep their numbers, and slices of equal
/// zone shares still share their text.
#[test]
fn a_reader_for_another_place_knows_the_same_zones() {
    let shares = with_shares(slice("s", "1[R @b z:b]"), "{}").to_string();
    let first = reader("a");
    let old = first.read_slice(&shares).unwrap();
    let moved = first.relocated(NodeLocation::new(NODE, Some("b"), Some("")));
    assert_eq!(moved.location(), &NodeLocation::new(NODE, Some("b"), None));
    let new = moved.read_slice(&shares).unwrap();
    let only = |slice: &RoutedSlice| slice.endpoints().next().unwrap();
    assert_eq!(only(&new).zone, only(&old).zone);
    assert_eq!(moved.zone_name(only(&old).zone).as_deref(), Some("b"));
    assert_eq!((only(&old).flags.for_my_zone(), only(&new).flags.for_my_zone()), (false, true));
    assert!(Arc::ptr_eq(&old.zone_shares.unwrap(), &new.zone_shares.unwrap()));
}

/// Clusters have few names of zones and lists of ports; slices hold one copy of each, however many slices there are.
#[test]
fn slices_share_equal_names_and_ports() {
    let reader = reader("a");
    let read = |name: &str| reader.read_slice(&slice(name, "1[R]").to_string()).unwrap();
    let (one, two) = (read("s1"), read("s2"));
    assert!(Arc::ptr_eq(&one.ports, &two.ports));
    assert!(std::ptr::eq(&*one.namespace, &*two.namespace));
}

#[test]
fn slices_of_one_service_are_joined() {
    let (one, two) = (slice("s1", "1[R] 2[R]"), slice("s2", "3[R] 4[R]"));
    assert_eq!(numbers(&merged(&[one.clone(), two])), ["1:80", "2:80", "3:80", "4:80"]);
    let overlapping = slice("s2", "2[R] 3[R]");
    assert_eq!(numbers(&merged(&[one.clone(), overlapping])), ["1:80", "2:80", "3:80"]);
    let mut nil = slice("s2", "5[R]");
    nil["ports"] = json!([{ "name": "http" }]);
    assert_eq!(numbers(&merged(&[one.clone(), nil])), ["1:80", "2:80"]);
    let mut other = slice("s2", "1[R] 2[R]");
    other["ports"][0]["port"] = 8080.into();
    assert_eq!(numbers(&merged(&[one, other])), ["1:80", "1:8080", "2:80", "2:8080"]);
}

#[test]
fn running_beats_terminating_in_any_order() {
    let three = ["1[T]", "1[R]", "1[U]"].map(|text| endpoint(text.trim_end_matches(']')));
    let mut gone = three[2].clone();
    gone["conditions"]["terminating"] = true.into();
    let orders = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [0, 2, 1], [2, 0, 1]];
    for order in orders {
        let all = [&three[0], &three[1], &gone];
        let mut slice = slice("s", "");
        slice["endpoints"] = order.map(|index| all[index].clone()).to_vec().into();
        let flags = merged(&[slice]).iter().map(|target| target.flags).collect::<Vec<_>>();
        assert_eq!(flags.len(), 1);
        assert!(flags[0].ready() && !flags[0].terminating(), "{order:?}");
    }
}

/// kube-proxy keeps the endpoint of the slice that it visits last; ready in either is one of its
/// results.
#[test]
fn of_two_that_run_the_ready_one_is_kept_whatever_the_order() {
    let pattern = |name: &str, every: usize| {
        let one = |index| format!("{index}[{}]", if index % every == 0 { "U" } else { "R" });
        slice(name, &(1..=12).map(one).collect::<Vec<_>>().join(" "))
    };
    let (mod3, mod6) = (pattern("s1", 3), pattern("s2", 6));
    for slices in [[mod3.clone(), mod6.clone()], [mod6, mod3]] {
        let unready = merged(&slices).into_iter().filter(|target| !target.flags.ready());
        assert_eq!(numbers(&unready.collect::<Vec<_>>()), ["12:80", "6:80"]);
    }
    let (a, b) = (slice("s1", "1[R z:a]"), slice("s2", "1[R z:b]"));
    for slices in [[a.clone(), b.clone()], [b, a]] {
        assert!(merged(&slices)[0].flags.for_my_zone(), "the first by name is kept");
    }
}

#[test]
fn a_health_check_counts_ready_addresses_of_this_node() {
    let service = policies("Cluster", "Local", 30080);
    let mut two_ports = slice("s1", "1[R L] 2[R L] 3[R] 4[T L] 5[U L]");
    two_ports["ports"] = json!([{ "name": "a", "port": 1 }, { "name": "b", "port": 2 }]);
    let again = slice("s2", "1[R L]");
    let mut portless = slice("s3", "6[R L]");
    portless["ports"] = json!([]);
    let mut foreign = slice("s4", "7[R L]");
    foreign["metadata"]["labels"]["kubernetes.io/service-name"] = "other".into();
    let slices = read(&reader("a"), &[two_ports, again, portless, foreign]);
    let slices: Vec<&RoutedSlice> = slices.iter().collect();
    assert_eq!(count_local_ready(&service, &slices, Family::V4), 2);
    assert_eq!(count_local_ready(&service, &slices, Family::V6), 0);
}

#[test]
fn null_in_any_field_is_read_as_absent() {
    let reader = ObjectReader::new(NodeLocation::new("n1", Some("a"), Some("r")));
    assert_null_is_absent(&full_service(), &[], |json| reader.read_service(json));
    assert_null_is_absent(&full_slice(), &[], |json| reader.read_slice(json));
}
