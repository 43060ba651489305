//! The 2,000 recorded cases of the reference proxy: `null` and `[]` too.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Value, json};
use zonewise_routing::{FeatureGates, NodeLocation, ObjectReader, Target};

use crate::common::{ask, policies};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    node: String,
    zone: String,
    internal_traffic_policy: String,
    external_traffic_policy: String,
    node_port: u16,
    endpoints: Vec<Recorded>,
    #[serde(flatten)]
    expected: Lists,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    endpoint: String,
    local: bool,
    ready: bool,
    serving: bool,
    terminating: bool,
    zone_hints: Vec<String>,
    node_hints: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lists {
    cluster: Option<Vec<String>>,
    local_only: Option<Vec<String>>,
    all_reachable: Option<Vec<String>>,
    has_any_endpoints: bool,
}

/// One slice for each port number.
fn slices(case: &Case) -> Vec<Value> {
    let mut by_port = BTreeMap::<u16, Vec<Value>>::new();
    let names = |names: &[String]| -> Value {
        names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>().into()
    };
    for one in &case.endpoints {
        let (address, port) = one.endpoint.rsplit_once(':').unwrap();
        by_port.entry(port.parse().unwrap()).or_default().push(json!({
            "addresses": [address],
            "nodeName": if one.local { &case.node } else { "elsewhere" },
            "conditions": {
                "ready": one.ready, "serving": one.serving, "terminating": one.terminating,
            },
            "hints": { "forZones": names(&one.zone_hints), "forNodes": names(&one.node_hints) },
        }));
    }
    let slice = |(port, endpoints): (u16, Vec<Value>)| {
        json!({
            "metadata": { "name": format!("s-{port}"), "namespace": "ns" },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "protocol": "TCP", "port": port }],
            "endpoints": endpoints,
        })
    };
    by_port.into_iter().map(slice).collect()
}

fn check(line: &str) {
    let case: Case = serde_json::from_str(line).unwrap();
    let reader = ObjectReader::new(NodeLocation::new(&case.node, Some(&case.zone), None));
    let service =
        policies(&case.internal_traffic_policy, &case.external_traffic_policy, case.node_port);
    let route = ask(&reader, &FeatureGates::default(), &service, &slices(&case));
    let text =
        |list: Option<Box<[Target]>>| list.map(|list| list.iter().map(Target::to_string).collect());
    let answer = Lists {
        cluster: text(route.cluster),
        local_only: text(route.local),
        all_reachable: text(route.reachable),
        has_any_endpoints: route.has_any,
    };
    assert_eq!(answer, case.expected, "{line}");
}

#[test]
fn d1_d3_d4_b10_the_recorded_cases_of_the_reference() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/upstream/select-endpoints.jsonl.gz");
    let lines = BufReader::new(GzDecoder::new(std::fs::File::open(path).unwrap())).lines();
    let count = lines.map(|line| check(&line.unwrap())).count();
    assert_eq!(count, 2000);
}
