//! A Service that asks for another one's address: `route` and `explain` tell it where zonewise's proxy refuses it.

use serde_json::{Value, json};
use zonewise_testbed::objects::{endpoint, endpoint_slice};

use crate::observe::run::{cluster, document, run_with};

/// `shop/web` with the ClusterIP 10.96.0.10, and `shop/aaa`, which has that as an external IP.
pub(super) fn with_a_claim_on_anothers_address() -> Vec<Value> {
    let mut objects = cluster(&json!({}), &[("4", 1), ("4", 1), ("4", 1)]);
    let mut thief = objects[0].clone();
    thief["metadata"]["name"] = json!("aaa");
    thief["metadata"]["uid"] = json!("aaa-uid");
    thief["spec"]["clusterIP"] = json!("10.96.0.11");
    thief["spec"]["clusterIPs"] = json!(["10.96.0.11"]);
    thief["spec"]["externalIPs"] = json!(["10.96.0.10", "203.0.113.7"]);
    objects.push(thief);
    objects
}

const WHY: &str = "the external IP is in the range of ClusterIPs or is another Service's ClusterIP";

#[test]
fn refused_addresses_are_told_where_our_proxy_refuses_them() {
    let routes = document(
        &["route", "--from", "a", "--as-if", "proxy"],
        &with_a_claim_on_anothers_address(),
    );
    let refused: Vec<&Value> =
        routes["routes"].as_array().unwrap().iter().map(|line| &line["refused"]).collect();
    let told = json!([{"at": "10.96.0.10:80/TCP", "reason": "AddressRefused", "why": WHY}]);
    assert_eq!(refused, [&told, &Value::Null]);

    let explained = document(
        &["explain", "shop/aaa", "--as-if", "controller,proxy"],
        &with_a_claim_on_anothers_address(),
    );
    let note = json!({
        "source": "address and port", "value": "10.96.0.10:80/TCP", "reason": "AddressRefused",
        "sentence": WHY, "commands": [],
    });
    assert_eq!(explained["notes"], json!([note]));

    let list =
        json!({"apiVersion": "v1", "kind": "List", "items": with_a_claim_on_anothers_address()})
            .to_string();
    let arguments = ["route", "--from", "a", "-f", "-", "--as-if", "proxy"];
    let screen = run_with(&arguments, list.as_bytes(), &[("COLUMNS", "")]).out;
    let line =
        format!("refused: shop/aaa does not get 10.96.0.10:80/TCP: {WHY} (AddressRefused)\n");
    assert!(screen.ends_with(&line), "{screen}");
}

#[test]
fn special_addresses_are_told_by_route_and_explain() {
    let mut objects = cluster(&json!({}), &[("4", 1), ("4", 1), ("4", 1)]);
    let of = |address: [u8; 4]| endpoint(address.into(), "a", "a");
    let endpoints = [of([10, 1, 0, 1]), of([169, 254, 169, 254])];
    objects.push(endpoint_slice("shop", "web", "web-1", &endpoints));
    let routes = document(&["route", "--from", "a", "--as-if", "proxy"], &objects);
    let notes = routes["routes"][0]["notes"].as_array().unwrap();
    assert!(notes.contains(&json!("SpecialAddresses")), "{routes}");
    let explained = document(&["explain", "shop/web", "--as-if", "controller,proxy"], &objects);
    let notes = explained["notes"].as_array().unwrap();
    let told = notes.iter().find(|note| note["reason"] == "SpecialAddresses").unwrap();
    assert!(told["sentence"].as_str().unwrap().ends_with("(1 endpoint)"), "{told}");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let arguments = ["route", "--from", "a", "-f", "-", "--as-if", "proxy"];
    let screen = run_with(&arguments, list.as_bytes(), &[("COLUMNS", "")]).out;
    assert!(screen.contains("left out: shop/web"), "{screen}");
}

/// No Service has this ClusterIP yet. Proxies refuse it all the same, so it is told where the ranges are known.
#[test]
fn external_ips_in_the_range_of_cluster_ips_are_told_as_refused() {
    let mut objects = cluster(&json!({}), &[("4", 1), ("4", 1), ("4", 1)]);
    objects[0]["spec"]["externalIPs"] = json!(["10.96.7.7"]);
    let told = |objects: &[Value]| {
        document(&["route", "--from", "a", "--as-if", "proxy"], objects)["routes"][0]["refused"]
            .clone()
    };
    assert_eq!(told(&objects), Value::Null);
    objects.push(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]},
    }));
    let expected = json!([{"at": "10.96.7.7:80/TCP", "reason": "AddressRefused", "why": WHY}]);
    assert_eq!(told(&objects), expected);
}

/// kube-proxy has rules of its own about such addresses.
#[test]
fn of_other_proxies_it_is_not_told() {
    let mut objects = with_a_claim_on_anothers_address();
    for node in ["a", "b", "c"] {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("kube-proxy-{node}"), "namespace": "kube-system", "labels": {"k8s-app": "kube-proxy"}},
            "spec": {"nodeName": node, "containers": [{"name": "kube-proxy", "image": "kube-proxy:v1.36.0"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }));
    }
    let routes = document(&["route", "--from", "a"], &objects);
    assert!(routes["routes"].as_array().unwrap().iter().all(|line| line["refused"].is_null()));
    assert_eq!(document(&["explain", "shop/aaa"], &objects)["notes"], json!([]));
}
