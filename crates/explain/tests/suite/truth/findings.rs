//! Clusters about which something untrue was said once, and what is true of them.

use serde_json::{Value, json};
use zonewise_explain::Depth;
use zonewise_explain::screens::Width;

use super::documents::{Cluster, is_on};
use super::draw::ready_pod;
use super::fields::Report;
use super::trials;

fn explained(name: &str) -> Value {
    Cluster::recorded(name).explanation().0
}

fn is_pod(object: &Value, name: &str) -> bool {
    object["kind"] == "Pod" && object["metadata"]["name"] == name
}

/// The row of a zone in a list of rows.
fn row<'a>(rows: &'a Value, zone: &str) -> &'a Value {
    rows.as_array().unwrap().iter().find(|row| row["zone"] == zone).unwrap()
}

/// The rows of a matrix, and the overload of its endpoints by address.
fn matrix(cluster: &Cluster) -> Value {
    cluster.settled().matrices().0[0].clone()
}

/// The largest overload of any endpoint in a matrix.
fn largest(matrix: &Value) -> f64 {
    let loads = matrix["endpoints"].as_array().unwrap().iter();
    loads.map(|load| load["overload"].as_f64().unwrap()).fold(-1.0, f64::max)
}

#[test]
fn the_worst_endpoint_counts_and_not_the_first_by_name() {
    let cluster = Cluster::recorded("R1-endpoints").settled();
    let margin = cluster.explanation().0["margin"].clone();
    let loss = row(&margin["endpoints"], "b");
    assert_eq!(*loss, json!({"zone": "b", "has": 5, "survives": 0, "then": "TooFewForBalance"}));
    let lost = |pod: &str| cluster.without(|object| is_pod(object, pod)).explanation().0;
    let off = ["p1", "p2", "p3", "p5", "p6"].iter().filter(|pod| !is_on(&lost(pod))).count();
    assert!(off > 0 && off < 5, "it matters which Pod of the zone is lost");
}

#[test]
fn nodes_are_alike_only_if_their_pods_serve_the_same() {
    let cluster = Cluster::recorded("R2-node").settled();
    let margin = cluster.explanation().0["margin"].clone();
    let critical: Vec<&str> = margin["criticalNodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["node"].as_str().unwrap())
        .collect();
    for node in ["a1", "b0", "b1", "b2", "c1", "c2", "c3"] {
        let lost = cluster.without(|object| {
            (object["kind"] == "Node" && object["metadata"]["name"] == node)
                || (object["kind"] == "Pod" && object["spec"]["nodeName"] == node)
        });
        assert_eq!(critical.contains(&node), !is_on(&lost.explanation().0), "{node}");
    }
    assert!(critical.contains(&"b2"));
}

#[test]
fn a_node_that_is_not_ready_is_critical_if_its_pods_are_needed() {
    let mut cluster = Cluster::recorded("R1-endpoints");
    for object in &mut cluster.objects {
        if object["metadata"]["name"] == "b1" {
            object["status"]["conditions"][0]["status"] = "False".into();
        }
    }
    let cluster = cluster.settled();
    let explanation = cluster.explanation().0;
    assert!(is_on(&explanation), "{explanation}");
    let lost = cluster
        .without(|object| object["metadata"]["name"] == "b1" || object["spec"]["nodeName"] == "b1");
    let named = explanation["margin"]["criticalNodes"].to_string().contains("\"b1\"");
    assert_eq!(named, !is_on(&lost.explanation().0));
}

#[test]
fn node_hints_work_without_a_zone() {
    let explanation = explained("R3-samenode");
    assert_eq!(explanation["reason"], "OwnNode");
    assert_eq!(explanation["outcome"], "in-force");
    assert_eq!(explanation["arithmetic"]["endpointsWithoutZone"], 1);
    let settled = Cluster::recorded("R3-samenode").settled();
    for node in ["a1", "b1", "x"] {
        assert_eq!(settled.routes(node).0[0]["mode"], "same-node", "{node}");
    }
}

#[test]
fn ready_endpoints_are_never_called_none() {
    let explanation = explained("R4-local-weighted");
    assert_eq!(explanation["endpoints"], 4);
    assert_eq!(explanation["reason"], "GroupsAssigned");
    let settled = Cluster::recorded("R4-local-weighted").settled();
    assert_eq!(settled.routes("a1").0[0]["mode"], "shares");
    assert_eq!(settled.routes("b1").0[0]["mode"], "shares");
}

#[test]
fn nothing_is_in_force_without_endpoints() {
    for heuristic in ["local-opt", "local-weighted", "local", "local-shared", "shared-global"] {
        let mut cluster = Cluster::recorded("R5-noendpoints");
        for object in cluster.objects.iter_mut().filter(|object| object["kind"] == "Service") {
            object["metadata"]["annotations"] =
                json!({"zonewise.dev/routing-preference": format!("zonewise.dev/{heuristic}")});
        }
        let explanation = cluster.explanation().0;
        assert!(!is_on(&explanation), "{heuristic}: {}", explanation["reason"]);
        assert_eq!(explanation["margin"], Value::Null, "{heuristic}");
        for score in explanation["inZoneByHeuristic"].as_array().unwrap() {
            let asked = !["random", "spread"].contains(&score["heuristic"].as_str().unwrap());
            assert!(!asked || score["reason"] != "GroupsAssigned", "{score}");
        }
    }
    assert_eq!(explained("R5-noendpoints")["reason"], "NoEndpoints");
}

#[test]
fn hints_that_every_proxy_ignores_are_not_in_force() {
    let explanation = explained("R6-unplaced");
    assert_eq!(explanation["reason"], "EndpointsWithoutZone");
    assert_eq!(explanation["arithmetic"]["endpoints"], 1);
    assert_eq!(explanation["outcome"], "fallback");
}

#[test]
fn endpoints_outside_the_zones_that_send_keep_no_traffic_in_its_zone() {
    for (annotations, distribution) in [
        (json!({}), json!("PreferSameZone")),
        (json!({}), json!("PreferSameNode")),
        (json!({"endpointslice.kubernetes.io/subsetting": "Require"}), Value::Null),
    ] {
        let mut cluster = Cluster::recorded("R4-local-weighted").without(|one| is_pod(one, "p0"));
        for object in cluster.objects.iter_mut().filter(|object| object["kind"] == "Service") {
            object["metadata"]["annotations"] = annotations.clone();
            object["spec"]["trafficDistribution"] = distribution.clone();
        }
        let explanation = cluster.explanation().0;
        assert_eq!(explanation["reason"], "NoZoneWithEndpoints", "{annotations}{distribution}");
        assert_eq!(explanation["outcome"], "fallback");
        assert_eq!(cluster.settled().routes("a1").0[0]["mode"], "any");
    }
}

#[test]
fn costs_of_regional_services_are_those_of_crossing_zones() {
    let cluster = Cluster::recorded("R7-region");
    let (explanation, overview) = (cluster.explanation().0, cluster.overview().0);
    // Every zone uses all three Pods, of which two are in a and one is in c.
    assert_eq!(overview["inZone"], 0.333333);
    let best = overview["best"].as_f64().unwrap();
    assert!((best - 2.0 / 3.0).abs() < 1e-9, "{best}");
    assert_eq!(explanation["cost"], overview["cost"]);
    // What the explanation itself speaks of are regions: r1 sends two thirds and has two thirds.
    assert_eq!(explanation["groupedBy"], "region");
    let in_region = &explanation["inZone"];
    assert!((in_region["now"].as_f64().unwrap() - 5.0 / 9.0).abs() < 1e-5, "{in_region}");
    assert!((in_region["best"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{in_region}");
}

#[test]
fn no_cost_is_told_by_one_screen_alone() {
    let cluster = Cluster::recorded("R7-region").without(|object| object["kind"] == "Pod");
    let (explanation, overview) = (cluster.explanation().0, cluster.overview().0);
    assert_eq!(explanation.get("cost"), None);
    assert_eq!(overview.get("cost"), None);
    assert_eq!(explanation["inZone"]["best"], Value::Null);
}

#[test]
fn one_region_is_not_called_one_zone() {
    let explanation = explained("R13-onezone");
    assert_eq!(explanation["reason"], "OneRegionOnly");
    assert!(!explanation["sentence"].as_str().unwrap().contains("one zone"));
}

#[test]
fn all_figures_of_a_screen_have_one_basis() {
    let cluster = Cluster::recorded("R8-basis");
    let explanation = cluster.explanation().0;
    assert_eq!(explanation["capacityBy"], "nodes");
    assert_eq!(explanation["nodesWithoutCpu"], json!(["a2"]));
    // Two of three nodes are in a, and all endpoints.
    let share = row(&explanation["zones"], "a")["share"].as_f64().unwrap();
    assert!((share - 2.0 / 3.0).abs() < 1e-9, "{share}");
    for figure in ["now", "planned", "best"] {
        let part = explanation["inZone"][figure].as_f64().unwrap();
        assert!((part - 2.0 / 3.0).abs() < 1e-5, "{figure} {part}");
    }
    let full = cluster.plan(Depth::Full).0["explanation"]["inZone"]["planned"].clone();
    let brief = cluster.plan(Depth::Arithmetic).0["explanation"]["inZone"]["planned"].clone();
    assert!(brief.is_null() || brief == full, "{brief} {full}");
}

#[test]
fn overload_is_that_of_the_endpoints_that_are_used() {
    for name in
        ["R9-samenode-overload", "R10-require", "R14-kept", "R15-local-opt", "R15-local-weighted"]
    {
        let cluster = Cluster::recorded(name);
        let (explanation, matrix) = (cluster.explanation().0, matrix(&cluster));
        let zones = explanation["zones"].as_array().unwrap();
        let overload =
            zones.iter().filter_map(|zone| zone["overload"].as_f64()).fold(-1.0, f64::max);
        assert_eq!(overload, largest(&matrix), "{name}");
        assert_eq!(explanation["inZone"]["planned"], matrix["inZone"], "{name}");
    }
}

#[test]
fn the_zones_of_same_node_have_the_overload_of_their_endpoints() {
    let explanation = explained("R9-samenode-overload");
    let overload = row(&explanation["zones"], "a")["overload"].as_f64().unwrap();
    assert!((overload - 0.6).abs() < 1e-6, "{overload}");
}

#[test]
fn c8_a_zone_without_endpoints_is_served_also_where_zones_are_required() {
    let explanation = explained("R10-require");
    let zone = row(&explanation["zones"], "b");
    assert_eq!(*zone.pointer("/assigned").unwrap(), 2);
    assert_eq!(*zone.pointer("/overload").unwrap(), 0.0);
    let scores = explanation["inZoneByHeuristic"].as_array().unwrap();
    let score = scores.iter().find(|score| score["heuristic"] == "require-zone").unwrap();
    assert_eq!(score["inZone"], 0.5, "the model serves it too");
}

#[test]
fn shares_that_are_kept_are_described_as_they_are() {
    let explanation = explained("R14-kept");
    let said = explanation["arithmetic"]["inZone"].as_f64().unwrap();
    let planned = explanation["inZone"]["planned"].as_f64().unwrap();
    assert!((said - planned).abs() < 1e-5, "{said} {planned}");
    let overload = row(&explanation["zones"], "b")["overload"].as_f64().unwrap();
    let most = explanation["arithmetic"]["maxOverload"].as_f64().unwrap();
    assert!((overload - most).abs() < 1e-4, "{overload} {most}");
}

#[test]
fn shares_beside_slices_of_others_are_described_with_all_endpoints() {
    let explanation = explained("R18-foreign-shares");
    assert_eq!(explanation["reason"], "SharesBalanced");
    let said = explanation["arithmetic"]["inZone"].as_f64().unwrap();
    let planned = explanation["inZone"]["planned"].as_f64().unwrap();
    assert!((said - planned).abs() < 1e-5, "{said} {planned}");
}

/// The reference has one message for nodes without information and for a cluster of one zone.
#[test]
fn one_zone_is_told_as_such_with_the_reference_s_way_too() {
    let recorded = Cluster::recorded("R17-one-zone-upstream");
    let cluster = Cluster { upstream: true, count_nodes: true, ..recorded };
    let explanation = cluster.explanation().0;
    assert_eq!(explanation["arithmetic"], json!({"code": "OneZoneOnly"}));
}

#[test]
fn advice_has_no_step_too_many() {
    let cluster = Cluster::recorded("R11-threshold");
    let explanation = cluster.explanation().0;
    let steps: Vec<&Value> = explanation["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|suggestion| &suggestion["steps"])
        .collect();
    let padding = json!([{"kind": "annotate", "key": "zonewise.dev/padding", "value": "0"}]);
    assert!(steps.contains(&&padding), "{steps:?}");
    let both = |steps: &&&Value| steps.to_string().contains("starting-threshold");
    assert!(steps.iter().filter(both).all(|steps| steps.as_array().unwrap().len() == 1));
}

#[test]
fn what_is_set_already_is_not_advised() {
    let mut cluster = Cluster::recorded("R8-basis");
    for object in cluster.objects.iter_mut().filter(|object| object["kind"] == "Service") {
        object["metadata"]["annotations"] =
            json!({"zonewise.dev/routing-preference": "zonewise.dev/balanced"});
    }
    let explanation = cluster.explanation().0;
    assert_eq!(explanation["reason"], "NodeInformationMissing");
    let changes = explanation["changes"].as_array().unwrap();
    assert!(!changes.is_empty());
    assert!(!explanation["changes"].to_string().contains("routing-preference"), "{changes:?}");
}

#[test]
fn nodes_of_a_zone_that_differ_are_all_told() {
    let cluster = Cluster::recorded("R12-modes");
    assert_eq!(cluster.overview().0["modes"], json!(["same-node", "same-zone"]));
    let matrix = cluster.matrices().0[0].clone();
    let zone = row(&matrix["from"], "a");
    assert_eq!(zone["mode"], "same-node,same-zone");
    assert_eq!(
        zone["ways"],
        json!([
            {"mode": "same-node", "reason": "SameNodeHints", "part": 0.5},
            {"mode": "same-zone", "reason": "SameZoneHints", "part": 0.5},
        ])
    );
}

/// A slice that another controller writes, with a ready endpoint and no hints.
fn foreign_slice() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-other", "namespace": "shop", "uid": "other", "labels": {
            "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "someone"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": true}, "zone": "a"}],
    })
}

#[test]
fn slices_of_others_without_hints_turn_zone_routing_off_and_no_advice_ignores_them() {
    let mut cluster = Cluster::recorded("R12-modes");
    cluster.objects.push(foreign_slice());
    let explanation = cluster.explanation().0;
    assert_eq!(explanation["reason"], "HintMissing");
    assert_eq!(explanation["outcome"], "fallback");
    assert_eq!(explanation["margin"], Value::Null);
    assert_eq!(explanation["changes"], json!([]));
    assert_eq!(cluster.overview().0["reason"], "HintMissing");
    assert_eq!(cluster.settled().routes("a1").0[0]["mode"], "any");
}

#[test]
fn where_two_faults_meet_both_are_repaired() {
    // The value is misspelt, and nothing is known of the CPU of a node.
    let mut cluster = Cluster::recorded("R8-basis");
    for object in cluster.objects.iter_mut().filter(|object| object["kind"] == "Service") {
        object["metadata"]["annotations"] =
            json!({"zonewise.dev/routing-preference": "zonewise.dev/Balanced"});
    }
    let explanation = cluster.explanation().0;
    let kinds = |suggestion: &Value| -> Vec<String> {
        let steps = suggestion["steps"].as_array().unwrap().iter();
        steps.map(|step| step["kind"].as_str().unwrap().to_owned()).collect()
    };
    let changes = explanation["changes"].as_array().unwrap();
    assert!(changes.iter().any(|one| kinds(one) == ["annotate", "report-cpu"]), "{changes:?}");
}

#[test]
fn one_pod_fewer_is_considered() {
    // Four Pods in three zones of equal size: three Pods can be divided, four cannot.
    let mut cluster = Cluster::recorded("R1-endpoints")
        .without(|object| ["p3", "p5", "p6"].iter().any(|name| is_pod(object, name)));
    for object in cluster.objects.iter_mut().filter(|object| object["kind"] == "Node") {
        object["status"]["allocatable"]["cpu"] = "4".into();
    }
    let explanation = cluster.explanation().0;
    assert_eq!(explanation["reason"], "TooFewForBalance");
    let changes = explanation["changes"].as_array().unwrap();
    let fewer = changes.iter().find(|one| one["steps"][0]["kind"] == "remove-pod").unwrap();
    let pod = fewer["steps"][0]["pod"].as_str().unwrap();
    let after = cluster.without(|object| is_pod(object, pod)).explanation().0;
    assert_eq!(after["reason"], fewer["then"]);
}

fn node(name: &str, zone: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {
            "allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

#[test]
fn advice_counts_new_pods_in_every_address_family() {
    let (v4, v6) =
        (|n| json!({"ip": format!("10.0.0.{n}")}), |n| json!({"ip": format!("fd00::{n}")}));
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "svc-uid",
            "annotations": {"service.kubernetes.io/topology-mode": "Auto"},
        },
        "spec": {
            "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2", "fd00:96::2"],
            "ipFamilies": ["IPv4", "IPv6"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    });
    // One more Pod in b repairs IPv4. It also has an IPv6 address, and three endpoints are too few there.
    let cluster = Cluster::of(vec![
        node("a1", "a", "7"),
        node("b1", "b", "9500m"),
        service,
        ready_pod("p0", "a1", &[v4(1)]),
        ready_pod("p1", "b1", &[v4(2), v6(2)]),
        ready_pod("p2", "a1", &[v4(3), v6(3)]),
    ]);
    let explanation = cluster.explanation().0;
    assert_eq!(explanation["reason"], "TooFewForBalance");
    assert_ne!(explanation["changes"], json!([]));
    trials::advice(&mut Report::default(), &cluster, &explanation);
}

#[test]
fn advice_with_many_steps_has_none_too_many() {
    let cluster = Cluster { count_nodes: true, ..Cluster::recorded("R16-steps") };
    let explanation = cluster.explanation().0;
    let longest = explanation["changes"].as_array().unwrap().iter();
    let longest = longest.map(|change| change["steps"].as_array().unwrap().len()).max();
    assert!(longest > Some(6), "{longest:?}");
    trials::advice(&mut Report::default(), &cluster, &explanation);
}

/// Two nodes in two zones, and a Service that is changed by `shape`.
fn two_zones(shape: impl FnOnce(&mut Value)) -> Cluster {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "svc-uid",
            "annotations": {"zonewise.dev/routing-preference": "Zone"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2"],
            "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    });
    shape(&mut service["spec"]);
    Cluster::of(vec![node("a1", "a", "4"), node("b1", "b", "4"), service])
}

/// The same with a ready Pod on each node of the list.
fn with_pods(mut cluster: Cluster, nodes: &[&str]) -> Cluster {
    for (number, node) in nodes.iter().enumerate() {
        let ip = json!({"ip": format!("10.0.0.{}", number + 1)});
        cluster.objects.push(ready_pod(&format!("p{number}"), node, &[ip]));
    }
    cluster
}

/// A slice of a Service without a selector, with a ready endpoint on each node of the list.
fn hand_written_slice(nodes: &[&str]) -> Value {
    let endpoint = |(number, node): (usize, &&str)| {
        json!({
            "addresses": [format!("10.8.0.{}", number + 1)], "nodeName": node, "zone": node[..1],
            "conditions": {}, "hints": {"forZones": [{"name": node[..1]}]},
        })
    };
    let endpoints: Vec<Value> = nodes.iter().enumerate().map(endpoint).collect();
    let mut slice = foreign_slice();
    slice["endpoints"] = endpoints.into();
    slice
}

#[test]
fn a_service_without_selector_whose_policy_is_local_is_told_as_local() {
    let mut cluster = two_zones(|spec| {
        spec["selector"] = Value::Null;
        spec["internalTrafficPolicy"] = "Local".into();
    });
    cluster.objects.push(hand_written_slice(&["a1"]));
    let (told, _) = cluster.unmanaged(Width::Wide);
    assert_eq!(told["serviceKind"], "withoutSelector");
    assert_eq!(told["verdict"]["state"], "local");
    let sentence = "local: traffic stays on its node; 50 % of it is dropped, that of 1 node without an endpoint: b1";
    assert_eq!(told["verdict"]["sentence"], sentence);
    assert_eq!(cluster.overview().0["state"], "local");
}

#[test]
fn endpoints_of_a_service_without_selector_are_counted_whatever_is_known_of_proxies() {
    let mut cluster = two_zones(|spec| spec["selector"] = Value::Null);
    cluster.objects.push(hand_written_slice(&["a1", "b1"]));
    cluster.here = Some(Vec::new());
    let line = cluster.overview().0;
    assert_eq!(line["state"], "unknown");
    assert_eq!(line["endpoints"], 2);
}

#[test]
fn plan_calls_nothing_active_that_no_proxy_uses() {
    let headless = two_zones(|spec| spec["clusterIP"] = "None".into());
    let local = two_zones(|spec| spec["internalTrafficPolicy"] = "Local".into());
    for (cluster, remark) in [(headless, "(headless)"), (local, "(policy Local)")] {
        let (_, row) = with_pods(cluster, &["a1", "b1"]).plan(Depth::Arithmetic);
        assert_eq!(row[1..3], [remark, "-"]);
    }
}

#[test]
fn without_a_node_that_counts_it_is_said_so() {
    let mut cluster = with_pods(two_zones(|_| {}), &["a1", "b1"]).settled();
    for object in cluster.objects.iter_mut().filter(|object| object["kind"] == "Node") {
        object["status"]["conditions"][0]["status"] = "False".into();
    }
    let verdict = cluster.explanation().0["verdict"].clone();
    assert_eq!(verdict["sentence"], "unknown: no node that counts has a zone label");
}

#[test]
fn only_nodes_that_count_are_said_to_have_an_endpoint() {
    let mut cluster = two_zones(|spec| spec["internalTrafficPolicy"] = "Local".into());
    let mut control_plane = node("c1", "c", "4");
    control_plane["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "".into();
    cluster.objects.push(control_plane);
    let cluster = with_pods(cluster, &["a1", "b1"]).settled();
    assert_eq!(cluster.routes("c1").0[0]["reason"], "NoLocalEndpoint");
    assert_eq!(
        cluster.explanation().0["verdict"]["sentence"],
        "local: traffic stays on its node; every node that counts has an endpoint, and none is dropped"
    );
}

#[test]
fn with_the_policy_local_slices_of_others_overrule_nothing() {
    let cluster = two_zones(|spec| spec["internalTrafficPolicy"] = "Local".into());
    let mut cluster = with_pods(cluster, &["a1", "b1"]);
    cluster.objects.push(foreign_slice());
    let explanation = cluster.explanation().0;
    assert_eq!(explanation["reason"], "OwnZone");
    assert_eq!(explanation["notes"], json!([]));
}

#[test]
fn with_the_policy_local_each_node_has_its_own_reason() {
    let cluster = two_zones(|spec| {
        spec["internalTrafficPolicy"] = "Local".into();
        spec["type"] = "NodePort".into();
        spec["ports"][0]["nodePort"] = 30080.into();
    });
    let mut cluster = with_pods(cluster, &["a1"]);
    for pod in cluster.objects.iter_mut().filter(|object| object["kind"] == "Pod") {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    let rows = matrix(&cluster)["from"].clone();
    assert_eq!(row(&rows, "a")["reason"], "OnlyTerminating");
    assert_eq!(row(&rows, "b")["reason"], "NoLocalEndpoint");
}

#[test]
fn a_service_whose_policy_is_local_has_no_cost_that_zone_routing_could_save() {
    let cluster = two_zones(|spec| spec["internalTrafficPolicy"] = "Local".into());
    let cluster = with_pods(cluster, &["a1", "b1"]).settled();
    assert_eq!(cluster.explanation().0.get("cost"), None);
    assert_eq!(cluster.overview().0.get("cost"), None);
}

#[test]
fn advice_that_works_without_zonewise_gives_what_the_built_in_controller_decides() {
    let mut cluster = with_pods(two_zones(|_| {}), &["a1", "a1", "b1", "b1"]);
    for service in cluster.objects.iter_mut().filter(|object| object["kind"] == "Service") {
        service["metadata"]["annotations"] = json!({"service.kubernetes.io/topology-mode": "Auto"});
    }
    // The gate of zonewise's controller is off. The built-in one has no such gate, and prefers Auto to the field.
    cluster.gates_off = vec!["TopologyAwareHints"];
    cluster.here = Some(Vec::new());
    let explanation = cluster.explanation().0;
    let changes = explanation["changes"].as_array().unwrap().iter();
    let field = |change: &&Value| change["steps"][0]["kind"] == "set-traffic-distribution";
    let [change] = changes.filter(field).collect::<Vec<_>>()[..] else { panic!("{explanation:#}") };
    assert_eq!(change["needs"], json!([]));
    assert_eq!(change["then"], "HintsAssigned");
}

#[test]
fn advice_needs_our_controller_where_the_built_in_one_gives_hints_that_no_proxy_uses() {
    let mut cluster = with_pods(two_zones(|_| {}), &["a1"; 8]);
    for object in &mut cluster.objects {
        match object["kind"].as_str() {
            Some("Service") => {
                object["metadata"]["annotations"] =
                    json!({"service.kubernetes.io/topology-mode": "Auto"});
            }
            // All endpoints are in a zone without capacity. The built-in controller gives them hints for that zone.
            Some("Node") if object["metadata"]["name"] == "a1" => {
                object["status"]["conditions"][0]["status"] = "False".into();
            }
            _ => {}
        }
    }
    cluster.here = Some(Vec::new());
    let explanation = cluster.explanation().0;
    let changes = explanation["changes"].as_array().unwrap().iter();
    let node = |change: &&Value| change["steps"][0]["kind"] == "add-node";
    let [change] = changes.filter(node).collect::<Vec<_>>()[..] else { panic!("{explanation:#}") };
    assert_eq!(
        (&change["needs"], &change["then"]),
        (&json!(["controller"]), &json!("HintsAssigned"))
    );
}
