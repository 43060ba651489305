//! Services to which zone routing does not apply, or not as to others: each is told as what it is.

use serde_json::{Value, json};

use crate::observe::run::{cluster, document, node, pod, run_on, run_with, service};

/// Three nodes in as many zones with the Pods of the Service on the first, and slices as the controller
/// writes them.
fn shop(change: &Value, pods: usize) -> Vec<Value> {
    let mut objects = cluster(&json!({}), &[("4", pods), ("4", 0), ("4", 0)]);
    let spec = objects[0]["spec"].as_object_mut().unwrap();
    for (key, value) in change.as_object().unwrap() {
        spec.insert(key.clone(), value.clone());
    }
    objects.push(slice("web-1", "endpointslice-controller.k8s.io", pods));
    objects
}

fn slice(name: &str, managed_by: &str, endpoints: usize) -> Value {
    let endpoint = |number: usize| {
        json!({
            "addresses": [format!("10.244.0.{}", number + 1)], "zone": "a", "nodeName": "a",
            "conditions": {"ready": true, "serving": true, "terminating": false},
        })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "shop", "name": name, "labels": {
            "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": managed_by,
        }},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
    })
}

fn first_lines(objects: &[Value]) -> (String, String) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let arguments = ["explain", "shop/web", "-f", "-", "--as-if", "controller,proxy"];
    let ran = run_with(&arguments, list.as_bytes(), &[("COLUMNS", "")]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let mut lines = ran.out.lines().map(str::to_owned);
    (lines.next().unwrap(), lines.next().unwrap())
}

#[test]
fn every_kind_of_service_is_told_as_what_it_is() {
    let local = json!({"internalTrafficPolicy": "Local"});
    let headless = json!({"clusterIP": "None", "clusterIPs": ["None"]});
    let alias = json!({"type": "ExternalName", "externalName": "example.org", "clusterIP": "", "clusterIPs": [], "selector": null});
    let cases = [
        (
            json!({}),
            ("routed", "notActive", json!(["any"])),
            "shop/web: not active: every node uses all endpoints; 33 % of the traffic stays in its zone",
            "why: ClusterWide: ",
        ),
        (
            local,
            ("localPolicy", "local", json!(["local"])),
            "shop/web: local: traffic stays on its node; 67 % of it is dropped, that of 2 nodes without \
             an endpoint: b, c",
            "why: internalTrafficPolicy is Local: ",
        ),
        (
            headless,
            ("headless", "notApplicable", json!([])),
            "shop/web: not applicable: headless, so clients get every address by DNS and choose \
             themselves",
            "why: it has no cluster IP: ",
        ),
        (
            alias,
            ("externalName", "notApplicable", json!([])),
            "shop/web: not applicable: an alias in DNS, which no proxy routes",
            "why: its type is ExternalName: ",
        ),
        (
            json!({"selector": null}),
            ("withoutSelector", "notActive", json!(["any"])),
            "shop/web: not active: every node uses all endpoints; 33 % of the traffic stays in its zone",
            "why: it has no selector: others write its EndpointSlices",
        ),
    ];
    for (change, (kind, state, modes), first, why) in cases {
        let objects = shop(&change, 2);
        let (verdict, reason) = first_lines(&objects);
        assert_eq!(verdict, first, "{kind}");
        assert!(reason.starts_with(why), "{kind}: {reason}");
        let one = document(&["explain", "shop/web", "--as-if", "controller,proxy"], &objects);
        assert_eq!(one["serviceKind"], kind);
        assert_eq!(one["verdict"]["state"], state, "{kind}");
        let all = document(&["explain", "--as-if", "controller,proxy"], &objects);
        let line = &all["services"][0];
        assert_eq!((&line["serviceKind"], &line["state"]), (&json!(kind), &json!(state)));
        assert_eq!(line["modes"], modes, "{kind}");
        let decided = kind == "routed";
        assert_eq!(line["reason"].is_null(), !decided, "{kind}: {line:#}");
    }
}

#[test]
fn what_the_policy_local_drops_is_in_the_matrix() {
    let objects = shop(&json!({"internalTrafficPolicy": "Local"}), 2);
    let matrix = &document(&["route", "--matrix"], &objects)["matrices"][0];
    assert_eq!(matrix["dropped"], json!(0.666667), "{matrix:#}");
    assert_eq!(matrix["droppingNodes"], json!(["b", "c"]));
    assert_eq!(matrix["inZone"], Value::Null);
    let rows: Vec<(&Value, &Value, &Value)> = matrix["from"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["zone"], &row["mode"], &row["dropped"]))
        .collect();
    let (local, all, none) = (json!("local"), json!(1.0), json!(0.0));
    let zones = [json!("a"), json!("b"), json!("c")];
    assert_eq!(
        rows,
        [(&zones[0], &local, &none), (&zones[1], &local, &all), (&zones[2], &local, &all)]
    );
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let screen = run_on(&["route", "--matrix", "-f", "-"], list.as_bytes()).out;
    assert!(screen.contains("DROPPED"), "{screen}");
    assert!(screen.contains("dropped: 67 %, because there is no endpoint on b, c"), "{screen}");
}

#[test]
fn slices_of_others_without_hints_are_the_reason_for_all_endpoints() {
    let mut objects = cluster(
        &json!({"zonewise.dev/routing-preference": "Zone"}),
        &[("4", 2), ("4", 2), ("4", 2)],
    );
    objects.push(slice("by-hand", "somebody", 1));
    let (first, why) = first_lines(&objects);
    assert!(first.starts_with("shop/web: not active: every node uses all endpoints"), "{first}");
    assert!(why.starts_with("why: HintMissing: "), "{why}");
    let all = document(&["explain", "--as-if", "controller,proxy"], &objects);
    assert_eq!(all["services"][0]["reason"], "HintMissing");
    assert_eq!(all["services"][0]["state"], "notActive");
}

#[test]
fn where_proxies_are_not_known_figures_are_given_only_if_all_agree() {
    let hinted = |hints: bool| {
        let mut objects = shop(&json!({}), 2);
        let last = objects.len() - 1;
        for endpoint in objects[last]["endpoints"].as_array_mut().unwrap() {
            if hints {
                endpoint["hints"] = json!({"forZones": [{"name": "a"}]});
            }
        }
        objects
    };
    let now = |objects: &[Value], flags: &[&str]| {
        let document = document(&[&["explain", "shop/web"], flags].concat(), objects);
        (document["verdict"]["state"].clone(), document["inZone"]["now"].clone())
    };
    let third = json!(0.333333);
    assert_eq!(now(&hinted(false), &[]), (json!("notActive"), third.clone()));
    assert_eq!(now(&hinted(true), &[]), (json!("unknown"), Value::Null));
    assert_eq!(now(&hinted(true), &["--as-if", "proxy"]), (json!("partlyActive"), third.clone()));
    let mut seen = hinted(true);
    for name in ["a", "b", "c"] {
        let mut proxy = pod(0, name);
        proxy["metadata"] = json!({"namespace": "kube-system", "name": format!("kube-proxy-{name}"), "labels": {"k8s-app": "kube-proxy"}});
        seen.push(proxy);
    }
    assert_eq!(now(&seen, &[]), (json!("partlyActive"), third));
    // One more node, of which nothing is known, and the answer is unknown again.
    seen.push(node("d", "a", "4"));
    assert_eq!(now(&seen, &[]), (json!("unknown"), Value::Null));
    let alone = [service(&json!({})), node("a", "a", "4")];
    assert_eq!(now(&alone, &[]).0, json!("unknown"), "no slice is known");
}
