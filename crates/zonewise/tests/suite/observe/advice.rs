//! What `explain` advises is done, and what it promises happens. The changes are made to the
//! objects here, by other code than the one that found them.

use serde_json::{Value, json};

use crate::observe::run::{cluster, document, node, pod, run_on};

/// Makes a change; returns flags it needs.
fn make(change: &Value, objects: &mut Vec<Value>) -> Vec<String> {
    let text = |key: &str| change[key].as_str().unwrap().to_owned();
    match change["kind"].as_str().unwrap() {
        "add-endpoints" => {
            let home = objects.iter().find(|one| {
                one["kind"] == "Node"
                    && one["metadata"]["labels"]["topology.kubernetes.io/zone"] == change["zone"]
            });
            let home = home.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
            for _ in 0..change["count"].as_u64().unwrap() {
                objects.push(pod(objects.len() + 500, &home));
            }
        }
        "label-node" => {
            named(objects, &text("node"))["metadata"]["labels"] =
                json!({"topology.kubernetes.io/zone": text("zone")});
        }
        "report-cpu" => {
            named(objects, &text("node"))["status"]["allocatable"] = json!({"cpu": "4"});
        }
        "add-node" => objects.push(node("added", &text("zone"), &change["cpu"].to_string())),
        "annotate" => objects[0]["metadata"]["annotations"][text("key")] = text("value").into(),
        "remove-annotation" => {
            objects[0]["metadata"]["annotations"].as_object_mut().unwrap().remove(&text("key"));
        }
        "set-traffic-distribution" => {
            objects[0]["spec"]["trafficDistribution"] = text("value").into();
        }
        "turn-on-gate" => return vec!["--feature-gates".into(), format!("{}=true", text("gate"))],
        "count-nodes" => return vec!["--missing-cpu".into(), "count-nodes".into()],
        other => panic!("unknown change {other}"),
    }
    Vec::new()
}

fn named<'a>(objects: &'a mut [Value], name: &str) -> &'a mut Value {
    objects.iter_mut().find(|one| one["metadata"]["name"] == name).unwrap()
}

fn explain(objects: &[Value], flags: &[String]) -> Value {
    let mut arguments = vec!["explain", "shop/web", "--as-if", "controller,proxy"];
    arguments.extend(flags.iter().map(String::as_str));
    document(&arguments, objects)
}

fn is_on(explanation: &Value) -> bool {
    explanation["outcome"] == "in-force" && explanation["reason"] != "ClusterWide"
}

const AUTO: &str = "service.kubernetes.io/topology-mode";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";

/// Objects, flags, the reason, and the kinds of the first way out.
type Off = (Vec<Value>, Vec<String>, &'static str, Vec<&'static str>);

/// Situations in which zone routing is off.
fn off() -> Vec<Off> {
    let auto = json!({AUTO: "Auto"});
    let none = Vec::new;
    let mut unlabelled = cluster(&auto, &[("4", 3), ("4", 3), ("4", 3)]);
    unlabelled.push(node("lost", "a", "4"));
    unlabelled.last_mut().unwrap()["metadata"]["labels"] = json!({});
    let mut silent = cluster(&auto, &[("4", 3), ("4", 3), ("4", 3)]);
    silent.push(node("mute", "a", "4"));
    silent.last_mut().unwrap()["status"]["allocatable"] = json!({});
    let mut homeless = cluster(&json!({PREFERENCE: "Zone"}), &[("4", 3), ("4", 3)]);
    named(&mut homeless, "b")["metadata"]["labels"] = json!({});
    vec![
        (
            cluster(&auto, &[("4", 1), ("4", 1), ("4", 0)]),
            none(),
            "TooFewEndpoints",
            vec!["add-endpoints"],
        ),
        (
            cluster(&auto, &[("8", 2), ("8", 1), ("4", 0)]),
            none(),
            "TooFewForBalance",
            vec!["add-endpoints"],
        ),
        (
            cluster(&auto, &[("4", 0), ("4", 0), ("4", 0)]),
            none(),
            "NoEndpoints",
            vec!["add-endpoints"],
        ),
        (cluster(&auto, &[("4", 4)]), none(), "OneZoneOnly", vec!["add-node"]),
        (cluster(&auto, &[("4", 1)]), none(), "OneZoneOnly", vec!["add-node", "add-endpoints"]),
        (unlabelled, none(), "NodeInformationMissing", vec!["label-node"]),
        (silent, none(), "NodeInformationMissing", vec!["report-cpu"]),
        (homeless, none(), "EndpointsWithoutZone", vec!["label-node"]),
        (
            cluster(&json!({SUBSETTING: "Auto"}), &[("4", 2), ("4", 2), ("4", 2)]),
            none(),
            "BelowStartingThreshold",
            vec!["add-endpoints"],
        ),
    ]
}

/// The same, where the asking is at fault.
fn misunderstood() -> Vec<Off> {
    let auto = json!({AUTO: "Auto"});
    let none = Vec::new;
    vec![
        (
            cluster(&json!({}), &[("4", 2), ("4", 2), ("4", 2)]),
            none(),
            "ClusterWide",
            vec!["annotate"],
        ),
        (
            cluster(&json!({PREFERENCE: "Balanced"}), &[("4", 2), ("4", 2)]),
            none(),
            "ClusterWide",
            vec!["annotate"],
        ),
        (
            cluster(&json!({PREFERENCE: "zonewise.dev/ballanced"}), &[("4", 2), ("4", 2)]),
            none(),
            "ClusterWide",
            vec!["annotate"],
        ),
        (
            cluster(&json!({SUBSETTING: "yes"}), &[("4", 6), ("4", 6)]),
            none(),
            "ClusterWide",
            vec!["annotate"],
        ),
        (
            cluster(&json!({AUTO: "On"}), &[("4", 2), ("4", 2)]),
            none(),
            "ClusterWide",
            vec!["annotate"],
        ),
        (
            cluster(&auto, &[("4", 2), ("4", 2)]),
            vec!["--feature-gates".into(), "TopologyAwareHints=false".into()],
            "ClusterWide",
            vec!["turn-on-gate"],
        ),
        (
            cluster(&auto, &[("4", 2), ("4", 2)]),
            ["--compat", "upstream", "--feature-gates", "TopologyAwareHints=false"]
                .map(String::from)
                .into(),
            "ClusterWide",
            vec!["turn-on-gate"],
        ),
        (
            cluster(&json!({PREFERENCE: "zonewise.dev/local-subset"}), &[("4", 6), ("4", 6)]),
            vec!["--feature-gates".into(), "TopologyAwareSubsetting=false".into()],
            "ClusterWide",
            vec!["turn-on-gate"],
        ),
        (
            cluster(&auto, &[("8", 2), ("8", 1), ("4", 0)]),
            vec!["--compat".into(), "upstream".into()],
            "TooFewForBalance",
            vec!["add-endpoints"],
        ),
    ]
}

#[test]
fn every_way_that_is_told_turns_it_on() {
    for (objects, flags, reason, first) in off().into_iter().chain(misunderstood()) {
        let before = explain(&objects, &flags);
        assert_eq!(before["reason"], reason, "{before:#}");
        assert!(!is_on(&before) && before["margin"].is_null());
        let ways = before["changes"].as_array().unwrap();
        let kinds = |way: &Value| -> Vec<String> {
            let steps = way["steps"].as_array().unwrap();
            let kinds = steps.iter().map(|step| step["kind"].as_str().unwrap().to_owned());
            let mut kinds: Vec<String> = kinds.collect();
            kinds.dedup();
            kinds
        };
        assert_eq!(kinds(&ways[0]), first, "{reason}: {:#}", before["changes"]);
        for way in ways {
            let (mut objects, mut flags) = (objects.clone(), flags.clone());
            for step in way["steps"].as_array().unwrap() {
                let needed = make(step, &mut objects);
                // A flag and its value take the place of the same flag with another value.
                if let Some(at) = flags.iter().position(|flag| Some(flag) == needed.first()) {
                    flags.drain(at..at + 2);
                }
                flags.extend(needed);
            }
            let after = explain(&objects, &flags);
            assert!(is_on(&after), "{reason}, {way:#}: {:#}", after["sentence"]);
            assert_eq!(after["reason"], way["then"], "{reason}, {way:#}");
        }
    }
}

/// What is told to work without zonewise does, with the built-in controller and kube-proxy; and where it is
/// not known that zonewise runs, it comes first.
#[test]
fn what_works_without_zonewise_is_told_and_works() {
    let mut told = 0;
    for (objects, flags, reason, _) in off() {
        if !flags.is_empty() {
            continue;
        }
        let before = document(&["explain", "shop/web"], &objects);
        let ways = before["changes"].as_array().unwrap();
        let without = |way: &&Value| way["needs"] == json!([]);
        let first = ways.iter().take_while(without).count();
        assert_eq!(first, ways.iter().filter(without).count(), "{reason}: {ways:#?}");
        for way in ways.iter().take(first) {
            let mut objects = objects.clone();
            let steps = way["steps"].as_array().unwrap();
            let needed: Vec<String> =
                steps.iter().flat_map(|step| make(step, &mut objects)).collect();
            assert_eq!(needed, Vec::<String>::new(), "{way:#}");
            let flags = ["explain", "shop/web", "--compat", "upstream", "--consumer", "kube-proxy"];
            let after = document(&flags, &objects);
            assert!(is_on(&after), "{reason}, {way:#}: {:#}", after["sentence"]);
            told += 1;
        }
    }
    assert!(told > 5, "{told} ways");
}

/// One endpoint fewer than advised, in any zone, is not enough.
#[test]
fn the_change_is_the_smallest() {
    let auto = json!({AUTO: "Auto"});
    let rows = [
        [("8", 2), ("8", 1), ("4", 0)],
        [("4", 1), ("4", 0), ("4", 0)],
        [("16", 0), ("1", 1), ("1", 0)],
    ];
    for zones in rows {
        let objects = cluster(&auto, &zones);
        let steps = explain(&objects, &[])["changes"][0]["steps"].clone();
        let advised: u64 =
            steps.as_array().unwrap().iter().map(|step| step["count"].as_u64().unwrap()).sum();
        assert!(advised > 0, "{steps}");
        for fewer in 0..advised {
            for zone in ["a", "b", "c"] {
                let mut objects = objects.clone();
                make(&json!({"kind": "add-endpoints", "zone": zone, "count": fewer}), &mut objects);
                assert!(!is_on(&explain(&objects, &[])), "{zones:?}: {fewer} in {zone}");
            }
        }
    }
}

/// Takes so many Pods of a zone away.
fn lose(objects: &mut Vec<Value>, zone: &str, count: u64) {
    let mut left = count;
    objects.retain(|one| {
        let lost = left > 0 && one["kind"] == "Pod" && one["spec"]["nodeName"] == zone;
        left -= u64::from(lost);
        !lost
    });
}

/// The slices that a plan leaves: margins are those of hints in force.
fn settled(mut objects: Vec<Value>) -> Vec<Value> {
    let plan = document(&["plan"], &objects);
    let mut slices = plan["services"][0]["creates"].as_array().unwrap().clone();
    for slice in &mut slices {
        slice["metadata"]["uid"] = slice["metadata"]["name"].clone();
    }
    objects.extend(slices);
    objects
}

#[test]
fn what_it_survives_it_survives_and_one_more_turns_it_off() {
    let rows = [
        (json!({AUTO: "Auto"}), [("4", 3), ("4", 3), ("4", 3)]),
        (json!({AUTO: "Auto"}), [("8", 6), ("8", 5), ("4", 3)]),
        (json!({PREFERENCE: "zonewise.dev/balanced"}), [("4", 2), ("4", 1), ("4", 2)]),
    ];
    for (asked, zones) in rows {
        let objects = settled(cluster(&asked, &zones));
        let before = explain(&objects, &[]);
        assert!(is_on(&before), "{before:#}");
        for loss in before["margin"]["endpoints"].as_array().unwrap() {
            let zone = loss["zone"].as_str().unwrap();
            let survives = loss["survives"].as_u64().unwrap();
            for lost in 1..=survives {
                let mut objects = objects.clone();
                lose(&mut objects, zone, lost);
                assert!(is_on(&explain(&objects, &[])), "{zones:?}: {lost} of {zone}");
            }
            if !loss["then"].is_null() {
                let mut objects = objects.clone();
                lose(&mut objects, zone, survives + 1);
                let after = explain(&objects, &[]);
                assert!(!is_on(&after), "{zones:?}: {} of {zone}", survives + 1);
                assert_eq!(after["reason"], loss["then"]);
            }
        }
        for loss in before["margin"]["zones"].as_array().unwrap() {
            let zone = loss["zone"].as_str().unwrap();
            let mut objects = objects.clone();
            lose(&mut objects, zone, u64::MAX);
            objects.retain(|one| one["kind"] != "Node" || one["metadata"]["name"] != zone);
            let after = explain(&objects, &[]);
            assert_eq!(is_on(&after), loss["survives"] == true, "{zone}");
            if !is_on(&after) {
                assert_eq!(after["reason"], loss["then"], "{zone}");
            }
        }
    }
}

/// Zone routing that is on, and how it could be better: the planned figures, the first way, and its figures.
#[test]
fn poor_routing_gets_advice_that_holds() {
    let close = |zones: &[(&str, usize)]| {
        let mut objects = cluster(&json!({}), zones);
        objects[0]["spec"]["trafficDistribution"] = json!("PreferClose");
        objects
    };
    let four_and_one = close(&[("4", 4), ("4", 1)]);
    let no_pod_in_c = close(&[("4", 3), ("4", 3), ("4", 0)]);
    for objects in [four_and_one, no_pod_in_c] {
        let told = explain(&objects, &[]);
        assert!(is_on(&told) && told["changes"] == json!([]), "{told:#}");
        let ways = told["improvements"].as_array().unwrap();
        assert_eq!(ways[0]["steps"][0]["kind"], "add-endpoints", "{ways:#?}");
        for way in ways {
            let mut after = objects.clone();
            for step in way["steps"].as_array().unwrap() {
                assert_eq!(make(step, &mut after), Vec::<String>::new());
            }
            let then = explain(&after, &[]);
            let zones = then["zones"].as_array().unwrap().iter();
            let most = zones.filter_map(|zone| zone["overload"].as_f64()).max_by(f64::total_cmp);
            assert_eq!(then["reason"], way["then"], "{way:#}");
            assert_eq!(then["inZone"]["planned"], way["inZone"], "{way:#}");
            assert_eq!(most, way["maxOverload"].as_f64(), "{way:#}");
            assert!(most <= Some(0.2), "{way:#}");
        }
    }
    let even = explain(&close(&[("4", 3), ("4", 3)]), &[]);
    assert_eq!(even["improvements"], json!([]));
}

/// The overview points at Services whose routing is on but poor.
#[test]
fn the_overview_marks_poor_routing() {
    let mut objects = cluster(&json!({}), &[("4", 4), ("4", 1)]);
    objects[0]["spec"]["trafficDistribution"] = json!("PreferClose");
    let dump = |objects: &[Value]| {
        json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
    };
    let plan = run_on(&["plan", "-o", "json", "-f", "-"], dump(&objects).as_bytes()).out;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    objects.extend(plan["services"][0]["creates"].as_array().unwrap().clone());
    let line = &document(&["explain", "--as-if", "proxy"], &objects)["services"][0];
    assert_eq!((&line["inZone"], &line["maxOverload"]), (&json!(1.0), &json!(1.5)));
    let screen = run_on(&["explain", "-f", "-", "--as-if", "proxy"], dump(&objects).as_bytes()).out;
    assert!(screen.contains("~  shop/web"), "{screen}");
    assert!(screen.contains("one endpoint gets 150 % more than its share"), "{screen}");
}
