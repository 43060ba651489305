//! EndpointSlices.

use serde_json::{Value, json};

use super::{each, slice};
use crate::requests::{Group, Step, get, group, json_patch, merge_patch, post, put, strategic};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("slices", forms()),
        group("slices-endpoints", endpoints()),
        group("slices-ports", ports()),
        group("slices-changes", changes()),
    ]
}

fn forms() -> Vec<Step> {
    let with = |name: &str, field: &str, value: Value| {
        let mut made = slice(name, json!([]));
        made[field] = value;
        made
    };
    let family = |name: &str, kind: &str, address: &str| {
        let mut made = slice(name, json!([{"addresses": [address]}]));
        made["addressType"] = kind.into();
        made
    };
    let mut steps = each(
        "endpointslices",
        vec![
            ("empty", slice("empty", json!([]))),
            ("no endpoints", with("none", "endpoints", Value::Null)),
            ("no ports", with("no-ports", "ports", Value::Null)),
            ("no type", with("no-type", "addressType", "".into())),
            ("an unknown type", with("ipx", "addressType", "IPX".into())),
            ("six", family("six", "IPv6", "fd00::1")),
            ("four in six", family("four-in-six", "IPv6", "10.1.2.3")),
            ("six in four", family("six-in-four", "IPv4", "fd00::1")),
            ("a name in four", family("name-in-four", "IPv4", "shop.example.com")),
            ("names", family("names", "FQDN", "shop.example.com")),
            ("a wrong name", family("wrong-name", "FQDN", "no name")),
            ("a wrong name of its own", slice("Wrong_Name", json!([]))),
        ],
    );
    steps.push(get("all", "endpointslices"));
    steps
        .push(get("of a Service", "endpointslices?labelSelector=kubernetes.io/service-name%3Dweb"));
    steps
}

fn endpoints() -> Vec<Step> {
    let with = |mut endpoint: Value| {
        if endpoint.get("addresses").is_none() {
            endpoint["addresses"] = json!(["10.1.2.3"]);
        }
        slice("one", json!([endpoint]))
    };
    let address = |address: &str| with(json!({"addresses": [address]}));
    let zones = |count: usize| {
        let all: Vec<Value> = (0..count).map(|n| json!({"name": format!("zone-{n}")})).collect();
        with(json!({"hints": {"forZones": all}}))
    };
    let many = |count: usize| {
        let all: Vec<Value> = (0..count)
            .map(|n| json!({"addresses": [format!("10.1.{}.{}", n / 250, n % 250 + 1)]}))
            .collect();
        slice("one", all.into())
    };
    let many_addresses: Vec<String> = (0..101).map(|n| format!("10.1.2.{n}")).collect();
    let nine_nodes: Vec<Value> = (0..9).map(|n| json!({"name": format!("n{n}")})).collect();
    each(
        "endpointslices?dryRun=All",
        vec![
            (
                "everything",
                with(json!({
                    "conditions": {"ready": true, "serving": true, "terminating": false},
                    "hostname": "one", "nodeName": "a1", "zone": "a",
                    "targetRef": {"kind": "Pod", "name": "web-1", "namespace": "{ns}",
                        "uid": "11111111-1111-1111-1111-111111111111"},
                    "hints": {"forZones": [{"name": "a"}, {"name": "b"}],
                        "forNodes": [{"name": "a1"}]}, "deprecatedTopology": {"a": "b"},
                })),
            ),
            ("no conditions", with(json!({}))),
            ("not ready", with(json!({"conditions": {"ready": false}}))),
            ("no address", with(json!({"addresses": []}))),
            ("two addresses", with(json!({"addresses": ["10.1.2.3", "10.1.2.4"]}))),
            ("too many addresses", with(json!({"addresses": many_addresses}))),
            ("a wrong address", address("10.1.2")),
            ("an address with zeros", address("010.1.2.3")),
            ("a loopback address", address("127.0.0.1")),
            ("a link-local address", address("169.254.1.1")),
            ("a multicast address", address("224.0.0.1")),
            ("the unspecified address", address("0.0.0.0")),
            (
                "the same address twice",
                slice("one", json!([{"addresses": ["10.1.2.3"]}, {"addresses": ["10.1.2.3"]}])),
            ),
            ("no hints", with(json!({"hints": {}}))),
            ("eight zones", zones(8)),
            ("nine zones", zones(9)),
            ("a zone twice", with(json!({"hints": {"forZones": [{"name": "a"}, {"name": "a"}]}}))),
            ("a wrong zone", with(json!({"hints": {"forZones": [{"name": "a b"}]}}))),
            ("a zone without a name", with(json!({"hints": {"forZones": [{}]}}))),
            ("nodes", with(json!({"hints": {"forNodes": [{"name": "a1"}]}}))),
            ("a wrong node", with(json!({"hints": {"forNodes": [{"name": "A 1"}]}}))),
            ("nine nodes", with(json!({"hints": {"forNodes": nine_nodes}}))),
            ("a wrong host", with(json!({"hostname": "One.two"}))),
            ("a wrong node name", with(json!({"nodeName": "a b"}))),
            ("a wrong home zone", with(json!({"zone": "a b"}))),
            ("a thousand", many(1000)),
            ("a thousand and one", many(1001)),
        ],
    )
    .into_iter()
    .collect()
}

fn ports() -> Vec<Step> {
    let with = |ports: Value| {
        let mut made = slice("one", json!([]));
        made["ports"] = ports;
        made
    };
    each(
        "endpointslices?dryRun=All",
        vec![
            ("no names", with(json!([{"port": 80}]))),
            ("two without names", with(json!([{"port": 80}, {"port": 81}]))),
            ("no number", with(json!([{"name": "a"}]))),
            ("nothing", with(json!([{}]))),
            ("zero", with(json!([{"port": 0}]))),
            ("large", with(json!([{"port": 70000}]))),
            ("an unknown protocol", with(json!([{"port": 80, "protocol": "ICMP"}]))),
            ("a wrong name", with(json!([{"port": 80, "name": "Not ok"}]))),
            ("one name twice", with(json!([{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]))),
            (
                "a protocol for applications",
                with(json!([{"port": 80, "appProtocol": "kubernetes.io/h2c"}])),
            ),
            (
                "too many",
                with((0..101).map(|n| json!({"port": 80, "name": format!("p{n}")})).collect()),
            ),
        ],
    )
}

fn changes() -> Vec<Step> {
    let one = "endpointslices/one";
    let mut other = slice("one", json!([{"addresses": ["fd00::1"]}]));
    other["addressType"] = "IPv6".into();
    vec![
        post(
            "made",
            "endpointslices",
            slice("one", json!([{"addresses": ["10.1.2.3"], "conditions": {"ready": true}}])),
        ),
        put("another type", one, other),
        merge_patch("labels alone", one, json!({"metadata": {"labels": {"a": "b"}}})),
        merge_patch("other endpoints", one, json!({"endpoints": [{"addresses": ["10.1.2.4"]}]})),
        strategic(
            "endpoints are replaced",
            one,
            json!({"endpoints": [{"addresses": ["10.1.2.5"]}]}),
        ),
        json_patch(
            "a hint",
            one,
            json!([{
                "op": "add", "path": "/endpoints/0/hints", "value": {"forZones": [{"name": "a"}]},
            }]),
        ),
        merge_patch("no ports", one, json!({"ports": null})),
        merge_patch("no endpoints", one, json!({"endpoints": null})),
        get("no status", &format!("{one}/status")),
    ]
}
