//! Shares from what really flows: real connections through the kernel, counted by the proxies, asked for by the
//! controller.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use zonewise_cluster::connect::connect;
use zonewise_controller::config::{Config, DemandConfig, File, Source};
use zonewise_telemetry::shutdown::Shutdown;
use zonewise_testbed::{Cluster, User, eventually, manifests};

use crate::nodes::connections::Connections;
use crate::nodes::{TestNodes, cluster, cluster_ip, pod_object, service_object, stored};

const ZONES: [(&str, &str); 3] = [("n1", "a"), ("n2", "b"), ("n3", "c")];
/// Which zone calls next: 70, 20 and 10 of 100.
const CALLS: [usize; 10] = [0, 1, 0, 0, 2, 0, 0, 1, 0, 0];
/// Of so many connections an endpoint's part is known to 2 %.
const COUNTED: usize = 12_000;

/// What the controller and the proxies need besides.
async fn apply_demand_roles(cluster: &Cluster) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/demand/rbac.yaml");
    cluster.create(&manifests(file).unwrap()).await.unwrap();
}

async fn token_file(cluster: &Cluster) -> PathBuf {
    let path = cluster.directory().join("demand-token");
    let token = cluster.account_token(User::Controller, "zonewise-demand").await.unwrap();
    std::fs::write(&path, token).unwrap();
    path
}

/// The configuration of a controller that asks proxies more often than usual, so that the test does not take minutes.
fn config(token_file: PathBuf) -> Config {
    let text = "apiVersion: config.zonewise.dev/v1alpha1\nkind: ControllerConfiguration\n\
                healthAddress: 127.0.0.1:0\nmetricsAddress: 127.0.0.1:0\nleaderElection: { leaderElect: false }\n";
    // Shares change by 1 % in a second, and a rewrite is allowed eight times in a row: with shorter periods the rewrites are
    // spent before the shares have arrived.
    let period = Duration::from_secs(10);
    let demand = DemandConfig { source: Source::Proxies, token_file, period, write_period: period };
    let config = File::parse("test.yaml", text).unwrap().resolve("test").unwrap();
    Config { demand, ..config }
}

/// Runs the controller on a node until the shutdown: from there it reaches the proxies.
fn run_controller(
    cluster: &Cluster,
    nodes: &TestNodes,
    config: Config,
    shutdown: Shutdown,
) -> std::thread::JoinHandle<()> {
    let node = &nodes.by_name["n1"];
    let kubeconfig = cluster.kubeconfig_through(User::Controller, &node.gate).unwrap();
    let namespace = node.node.namespace.clone();
    std::thread::spawn(move || {
        namespace.enter(|| {
            // The threads of the runtime inherit the namespace of the thread that creates them.
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let client = connect(Some(&kubeconfig)).await.unwrap();
                zonewise_controller::run(client, config, shutdown).await.unwrap();
            });
        });
    })
}

/// How far above its fair part the busiest endpoint is while so many connections are made: 0.5 for half as much again.
async fn excess(nodes: &TestNodes, connections: &Connections) -> f64 {
    let counts = || -> Vec<usize> { nodes.servers.iter().map(|server| server.count()).collect() };
    let before = counts();
    connections.more(COUNTED).await;
    let made = counts().into_iter().zip(before).map(|(now, before)| now - before);
    // Each Pod has a server of either family, and all connections are IPv4.
    let busy: Vec<usize> = made.filter(|made| *made > 0).collect();
    let fair = busy.iter().sum::<usize>() as f64 / busy.len() as f64;
    let busiest = busy.iter().copied().max().unwrap_or_default() as f64;
    busiest / fair - 1.0
}

/// Callers 70/20/10 on three zones of the same CPU, with two endpoints in each. By CPU the endpoints of the busy zone get
/// twice what is fair; by what is measured, all get the same.
#[tokio::test(flavor = "multi_thread")]
async fn measured_demand_relieves_the_endpoints_of_a_hot_zone() {
    let cluster = cluster().await;
    apply_demand_roles(&cluster).await;
    let mut nodes = TestNodes::new();
    let mut objects = Vec::new();
    for (node, zone) in ZONES {
        objects.push(nodes.add(&cluster, node, zone));
        for n in [1, 2] {
            let pod = nodes.add_server(node, &format!("{zone}{n}"));
            objects.push(pod_object(&pod, "web"));
        }
    }
    let callers = ZONES.map(|(node, _)| nodes.add_pod(node, &format!("ask-{node}")));
    cluster.create(&objects).await.unwrap();
    let mut service = service_object("web", "web", &json!({}));
    service["metadata"]["annotations"] =
        json!({"zonewise.dev/routing-preference": "zonewise.dev/balanced"});
    cluster.create(&[service]).await.unwrap();
    let shutdown = Shutdown::manual();
    let config = config(token_file(&cluster).await);
    let controller = run_controller(&cluster, &nodes, config, shutdown.clone());
    for (node, _) in ZONES {
        nodes.start_proxy(&cluster, node, &["--count=services", "--demand-address=0.0.0.0:10274"]);
    }
    let mut service = stored(&cluster, "web").await;
    let to = cluster_ip(&service, false);
    eventually(|| async {
        let weighted =
            ZONES.map(|(node, _)| nodes.page(node, 10249, "/routes").unwrap_or_default());
        let all = weighted.iter().all(|page| page.contains("\"mode\":\"shares\""));
        if all { Ok(()) } else { Err(format!("{weighted:?}")) }
    })
    .await;

    let ways = CALLS.map(|caller| (callers[caller].namespace.clone(), to));
    let connections = Connections::start(ways.into());
    let by_cpu = excess(&nodes, &connections).await;
    assert!(by_cpu > 0.8, "by CPU the busiest endpoint is {by_cpu} above its fair part");

    service["apiVersion"] = json!("v1");
    service["kind"] = json!("Service");
    service["metadata"]["annotations"]["zonewise.dev/demand"] = json!("measured");
    service["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    cluster.update(&[service]).await.unwrap();
    let settled = eventually(|| async {
        let excess = excess(&nodes, &connections).await;
        if excess < 0.08 { Ok(excess) } else { Err(format!("{excess} above its fair part")) }
    })
    .await;
    let again = excess(&nodes, &connections).await;
    assert!(again < 0.1, "settled at {settled}, then {again} above its fair part");
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();
    shutdown.trigger();
    controller.join().unwrap();
}
