//! Answers that are easy to get wrong.

use serde_json::{Value, json};

use crate::observe::run::{cluster, document, node, pod, run_on};

const AUTO: &str = "service.kubernetes.io/topology-mode";

/// The objects with the slices that a plan writes for them.
pub(super) fn settled(mut objects: Vec<Value>) -> Vec<Value> {
    let plan = document(&["plan"], &objects);
    objects.extend(plan["services"][0]["creates"].as_array().unwrap().clone());
    objects
}

fn explain(objects: &[Value], flags: &[&str]) -> Value {
    let as_if = ["explain", "shop/web", "--as-if", "controller,proxy"];
    document(&[&as_if, flags].concat(), objects)
}

fn consumer<'a>(explanation: &'a Value, name: &str, family: &str) -> &'a Value {
    let all = explanation["consumers"].as_array().unwrap();
    all.iter().find(|one| one["consumer"] == name && one["family"] == family).unwrap()
}

#[test]
fn b10_a_policy_of_local_stays_on_the_node_whatever_hints_say() {
    let mut objects = cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3), ("4", 3)]);
    objects[0]["spec"]["internalTrafficPolicy"] = json!("Local");
    let objects = settled(objects);
    let matrix = document(&["route", "--matrix"], &objects)["matrices"].clone();
    assert_eq!(matrix[0]["inZone"], json!(1.0), "{matrix:#}");
    let loads: Vec<&Value> =
        matrix[0]["endpoints"].as_array().unwrap().iter().map(|one| &one["overload"]).collect();
    assert_eq!(loads, [&json!(0.0); 9]);
    let told = explain(&objects, &[]);
    assert_eq!((&told["changes"], &told["margin"]), (&json!([]), &Value::Null));
    assert_eq!(told["verdict"]["state"], "local", "{:#}", told["verdict"]);
}

#[test]
fn slices_of_another_writer_without_hints_are_named_as_the_cause() {
    let mut objects = settled(cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3), ("4", 3)]));
    objects.push(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-mine", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "me"}},
        "addressType": "IPv4", "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": true}}],
    }));
    let told = explain(&objects, &[]);
    assert_eq!(told["notes"][0]["value"], "web-mine", "{:#}", told["notes"]);
    assert!(told["inZone"]["planned"].as_f64().unwrap() < 0.5, "{:#}", told["inZone"]);
}

#[test]
fn families_are_not_mixed_up() {
    let mut objects = cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3), ("4", 3)]);
    objects[0]["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    objects[0]["spec"]["clusterIPs"] = json!(["10.96.0.10", "fd00::10"]);
    let told = explain(&objects, &[]);
    assert_eq!((&told["family"], &told["reason"]), (&json!("IPv6"), &json!("NoEndpoints")));
    assert_eq!(consumer(&told, "zonewise proxy", "IPv4")["inZone"], json!(1.0));
    assert_eq!(consumer(&told, "zonewise proxy", "IPv6")["inZone"], Value::Null);
    // New Pods have an address in both families, so they are what IPv6 lacks.
    assert_eq!(told["changes"][0]["steps"][0]["kind"], "add-endpoints", "{:#}", told["changes"]);
}

#[test]
fn now_is_what_is_stored_and_what_runs_on_the_nodes() {
    let objects = cluster(
        &json!({"zonewise.dev/routing-preference": "zonewise.dev/balanced"}),
        &[("8", 1), ("4", 1), ("4", 1)],
    );
    assert_eq!(explain(&objects, &[])["inZone"]["now"], Value::Null);
    let objects = settled(objects);
    let now = |flags: &[&str]| explain(&objects, flags)["inZone"]["now"].as_f64().unwrap();
    let (ours, theirs) = (now(&[]), now(&["--consumer", "kube-proxy"]));
    assert!(ours > theirs, "{ours} {theirs}");
}

#[test]
fn without_zones_nothing_is_invented() {
    let mut objects = cluster(&json!({}), &[("4", 2)]);
    objects[1]["metadata"]["labels"] = json!({});
    let all = document(&["explain", "--cost-per-gb", "1", "--gb", "1"], &settled(objects));
    let line = &all["services"][0];
    let known = [&line["endpoints"], &line["inZone"], &line["best"], &line["cost"]];
    assert_eq!(known, [&json!(2), &Value::Null, &Value::Null, &Value::Null], "{line:#}");
}

#[test]
fn a1_regions_are_called_regions() {
    let mut objects = cluster(
        &json!({"endpointslice.kubernetes.io/subsetting": "Region"}),
        &[("4", 2), ("4", 2)],
    );
    for (name, region) in [("a", "east"), ("b", "west")] {
        let one = objects
            .iter_mut()
            .find(|one| one["kind"] == "Node" && one["metadata"]["name"] == name)
            .unwrap();
        one["metadata"]["labels"]["topology.kubernetes.io/region"] = json!(region);
    }
    let told = explain(&objects, &[]);
    assert_eq!((&told["groupedBy"], &told["zones"][0]["zone"]), (&json!("region"), &json!("east")));
    assert_eq!(told["changes"][0]["steps"][0]["kind"], "add-endpoints", "{:#}", told["changes"]);
}

#[test]
fn pods_that_are_not_ready_count_where_they_are_published() {
    let mut objects = cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3), ("4", 3)]);
    objects[0]["spec"]["publishNotReadyAddresses"] = json!(true);
    for one in objects.iter_mut().filter(|one| one["kind"] == "Pod") {
        one["status"]["conditions"] = json!([]);
    }
    let told = explain(&objects, &[]);
    assert_eq!(told["margin"]["endpoints"][0]["has"], json!(3), "{:#}", told["margin"]);
}

#[test]
fn advice_for_the_reference_names_nothing_it_lacks() {
    let mut objects = cluster(&json!({AUTO: "Auto"}), &[("4", 3), ("4", 3)]);
    objects.push(node("mute", "a", "4"));
    objects.last_mut().unwrap()["status"]["allocatable"] = json!({});
    let told = explain(&objects, &["--compat", "upstream"]);
    let kinds: Vec<&Value> =
        told["changes"].as_array().unwrap().iter().map(|way| &way["steps"][0]["kind"]).collect();
    assert_eq!(kinds, [&json!("report-cpu")]);
}

#[test]
fn the_later_of_two_slices_counts_for_plan_and_route() {
    let slice = |version: &str, ip: &str| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": version, "labels": {"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
            "addressType": "IPv4", "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
            "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        })
    };
    let mut objects = cluster(&json!({}), &[("4", 1)]);
    objects.extend([slice("9", "10.9.9.1"), slice("5", "10.9.9.2")]);
    let route = &document(&["route", "--node", "a"], &objects)["routes"];
    assert_eq!(route[0]["cluster"], json!(["10.9.9.2:8080"]));
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let diff = run_on(&["plan", "-f", "-", "--diff"], dump.as_bytes());
    assert!(!diff.out.contains("10.9.9.1"), "{}", diff.out);
}

#[test]
fn a_service_of_another_proxy_is_not_routed_here() {
    let mut objects = settled(cluster(&json!({}), &[("4", 1)]));
    objects[0]["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "other"});
    assert_eq!(document(&["route", "--node", "a"], &objects)["routes"], json!([]));
}

#[test]
fn nodes_that_do_not_report_cpu_send_too() {
    let mut objects = cluster(&json!({}), &[("4", 1), ("4", 1)]);
    objects.push(node("mute", "c", "4"));
    objects.last_mut().unwrap()["status"]["allocatable"] = json!({});
    objects.push(pod(7, "mute"));
    let matrix = &document(&["route", "--matrix"], &settled(objects))["matrices"];
    let shares: Vec<&Value> =
        matrix[0]["from"].as_array().unwrap().iter().map(|row| &row["share"]).collect();
    assert_eq!(shares, [&json!(0.333333); 3]);
}

/// Two zones whose sizes have changed since the slices were written, so that one has 25 % overload: the
/// hints may stay, and a quiet Service gets a fresh decision.
#[test]
fn b20_plan_shows_the_settled_state_and_explain_says_when_it_is_taken() {
    let mut objects = settled(cluster(&json!({AUTO: "Auto"}), &[("10", 5), ("10", 5)]));
    for (name, cpu) in [("a", "12500m"), ("b", "7500m")] {
        let found =
            objects.iter_mut().find(|one| one["kind"] == "Node" && one["metadata"]["name"] == name);
        *found.unwrap() = node(name, name, cpu);
    }
    let plan = &document(&["plan"], &objects)["services"][0];
    assert_eq!((&plan["settled"], plan["updates"].as_array().unwrap().len()), (&json!(true), 1));
    let told = explain(&objects, &[]);
    let settling = &told["settling"];
    assert_eq!((&settling["after"], &settling["now"]["inZone"]), (&json!("15s"), &json!(1.0)));
    assert_eq!(settling["now"]["maxOverload"], json!(0.25));
    assert!(settling["fresh"]["maxOverload"].as_f64().unwrap() < 0.05, "{settling:#}");
    let assigned: Vec<&Value> =
        told["zones"].as_array().unwrap().iter().map(|zone| &zone["assigned"]).collect();
    assert_eq!(assigned, [&json!(6), &json!(4)], "the table shows what is written");

    let off = ["--settle-after", "0"];
    let plan = &document(&[&["plan"], &off[..]].concat(), &objects)["services"][0];
    assert_eq!((&plan["settled"], &plan["updates"]), (&json!(false), &json!([])));
    let told = explain(&objects, &off);
    assert_eq!((&told["settling"]["after"], &told["reason"]), (&Value::Null, &json!("HintsKept")));
    let told = explain(&objects, &["--settle-gain", "0.5"]);
    assert_eq!(told["settling"], Value::Null, "less than half is not worth a write");

    let dump = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let screen = |arguments: &[&str]| run_on(arguments, dump.as_bytes()).out;
    let row = screen(&["plan", "-f", "-"]);
    assert!(row.contains("+0 ~1 -0 when quiet"), "{row}");
    let mark = "# shop/web: settled state, a part of it is written when the Service has been quiet";
    for output in [&["plan", "--diff", "-f", "-"][..], &["plan", "-o", "yaml", "-f", "-"]] {
        let marked = screen(output);
        assert!(marked.contains(mark), "{marked}");
        let at_once = screen(&[output, &off[..]].concat());
        assert!(!at_once.contains(mark), "{at_once}");
    }
    let page = screen(&["explain", "shop/web", "-f", "-"]);
    assert!(
        page.contains("the controller takes it when the Service has been quiet for 15s"),
        "{page}"
    );
}
