//! Guard mode as people run it: beside the built-in controller, with kube-proxy on every node, and connections that go
//! where `explain --mode guard` says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use zonewise_testbed::eventually_equals;

use crate::nodes::connections::Connections;
use crate::nodes::guard::{SERVERS, ZONES, apply, expected, guard, measured, zonewise};
use crate::nodes::{
    TestNodes, cluster, cluster_ip, pod_object, responders, service_object, stored,
};

#[tokio::test(flavor = "multi_thread")]
async fn connections_through_kube_proxy_go_where_explain_says() {
    let cluster = cluster().await;
    apply(&cluster).await;
    let mut nodes = TestNodes::new();
    let mut objects: Vec<Value> =
        ZONES.iter().map(|(node, zone)| nodes.add(&cluster, node, zone)).collect();
    for (node, server) in SERVERS {
        objects.push(pod_object(&nodes.add_server(node, server), "web"));
    }
    objects.push(service_object("web", "web", &json!({})));
    cluster.create(&objects).await.unwrap();
    let _built_in = cluster.controller_manager(&[]).unwrap();
    let mut callers = BTreeMap::new();
    for (node, zone) in ZONES {
        callers.insert(zone, nodes.add_pod(node, &format!("caller-{zone}")).namespace);
        nodes.start_kube_proxy(&cluster, node, &[]);
    }
    let to = cluster_ip(&stored(&cluster, "web").await, false);
    let all: BTreeSet<String> = SERVERS.map(|(_, server)| server.to_owned()).into();
    for caller in callers.values() {
        eventually_equals("without topology", all.clone(), || responders(caller, to, 60)).await;
    }

    let mut service = stored(&cluster, "web").await;
    service["apiVersion"] = "v1".into();
    service["kind"] = "Service".into();
    service["status"].take();
    service["metadata"]["annotations"] =
        json!({ "zonewise.dev/routing-preference": "zonewise.dev/auto" });
    cluster.update(&[service]).await.unwrap();
    // Before anything runs, `explain` and `plan` show what would be.
    let planned = expected(&cluster);
    assert!((planned - 2.0 / 3.0).abs() < 1e-5, "{planned}");
    let plan = zonewise(&cluster, &["plan", "--mode", "guard", "-o", "yaml"]);
    assert!(
        plan.contains("kind: ZoneAllocation") && !plan.contains("kind: EndpointSlice"),
        "{plan}"
    );

    let ways = callers.values().map(|caller| (caller.clone(), to)).collect();
    let connections = Connections::start(ways);
    let guard = guard(&cluster);
    for (zone, servers) in [("a", 2), ("b", 2), ("c", 2)] {
        let caller = &callers[zone];
        eventually_equals(zone, servers, || responders(caller, to, 40).len()).await;
        let own = responders(caller, to, 40).into_iter().filter(|name| name.starts_with(zone));
        assert_eq!(own.count(), if zone == "a" { 2 } else { 1 }, "{zone}");
    }
    // 900 connections, of which 300 are drawn evenly from two: six standard deviations are 0.06.
    let found = measured(&callers, to);
    assert!((found - planned).abs() < 0.06, "{found} instead of {planned}");
    assert!((expected(&cluster) - planned).abs() < 1e-9, "once it is in force");

    // Removed, all servers answer everybody again.
    guard.stop().await.unwrap();
    let removed = zonewise(&cluster, &["guard", "remove", "-o", "json"]);
    assert_eq!(removed, "{\"floors\":1,\"services\":1}\n");
    for caller in callers.values() {
        eventually_equals("removed", all.clone(), || responders(caller, to, 60)).await;
    }
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();
}
