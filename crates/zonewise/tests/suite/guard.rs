//! Guard mode as people run it: beside the built-in controller, with kube-proxy on every node, and connections that go
//! where `explain --mode guard` says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_netns::traffic::probe_tcp;
use zonewise_testbed::{
    Cluster, Process, User, content_type_flag, eventually, eventually_equals, manifests,
};

use crate::nodes::connections::Connections;
use crate::nodes::{
    PROBE_TIMEOUT, TestNodes, cluster, cluster_ip, pod_object, responders, service_object, stored,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zonewise");
const ZONES: [(&str, &str); 3] = [("n1", "a"), ("n2", "b"), ("n3", "c")];
/// Four servers in zone a and one in b and c: `auto` gives one of a's to each of the others.
const SERVERS: [(&str, &str); 6] =
    [("n1", "a1"), ("n1", "a2"), ("n1", "a3"), ("n1", "a4"), ("n2", "b1"), ("n3", "c1")];

async fn apply(cluster: &Cluster) {
    for file in ["deploy/guard/crd.yaml", "deploy/guard/rbac.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        cluster.create(&manifests(path).unwrap()).await.unwrap();
    }
    eventually(|| async {
        cluster.list("ZoneAllocation", None).await.map(drop).map_err(|error| format!("{error:#}"))
    })
    .await;
}

fn guard(cluster: &Cluster) -> Process {
    let kubeconfig = cluster.kubeconfig(User::Controller).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let form = content_type_flag();
    let mut flags = vec![
        "controller",
        "--mode=guard",
        &kubeconfig,
        "--leader-elect=false",
        "--metrics-address=127.0.0.1:0",
        "--health-address=127.0.0.1:0",
    ];
    flags.extend(form.as_deref());
    Process::spawn(Path::new(PROGRAM), &flags, &[], &cluster.log("guard")).unwrap()
}

/// The output of a command of ours that succeeds.
fn zonewise(cluster: &Cluster, arguments: &[&str]) -> String {
    let kubeconfig = cluster.kubeconfig(User::Admin).unwrap();
    let output =
        Command::new(PROGRAM).args(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The part of the traffic that `explain --mode guard` expects to stay in its zone.
fn expected(cluster: &Cluster) -> f64 {
    let arguments = ["explain", "default/web", "--mode", "guard", "-o", "json"];
    let document: Value = serde_json::from_str(&zonewise(cluster, &arguments)).unwrap();
    document["inZone"]["planned"].as_f64().unwrap()
}

/// The part of connections that stay in their zone, with as many from each zone.
fn measured(callers: &BTreeMap<&str, Namespace>, to: std::net::SocketAddr) -> f64 {
    const TRIES: usize = 300;
    let stays = |(zone, caller): (&&str, &Namespace)| {
        let answers = (0..TRIES).map(|_| probe_tcp(caller, to, PROBE_TIMEOUT).to_string());
        answers.filter(|server| server.starts_with(*zone)).count()
    };
    let stayed: usize = callers.iter().map(stays).sum();
    stayed as f64 / (TRIES * callers.len()) as f64
}

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
