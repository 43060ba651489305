//! What is said about a cluster is true of what runs in it: of a stock cluster with the reference's
//! controller and proxy, and of the same cluster once ours have taken their place.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use zonewise_netns::Namespace;
use zonewise_testbed::{Cluster, Lent, Process, User, content_type_flag, eventually_equals};

use crate::nodes::{
    TestNodes, cluster, cluster_ip, pod_object, responders, service_object, set, stored,
};
use crate::observe::looking::{allow_looking, kube_proxy_pod};
use crate::observe::run::{Ran, program};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const TRIES: usize = 24;

fn look(cluster: &Cluster, arguments: &[&str]) -> Ran {
    let kubeconfig = cluster.kubeconfig(User::Observer).unwrap();
    let mut program = program(arguments);
    program.arg("--kubeconfig").arg(kubeconfig).env("COLUMNS", "");
    let ran: Ran = program.output().unwrap().into();
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
    ran
}

fn document(cluster: &Cluster, arguments: &[&str]) -> Value {
    serde_json::from_str(&look(cluster, arguments).out).unwrap()
}

/// kube-proxy's settings, as kubeadm keeps them.
fn kube_proxy_settings() -> Value {
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n";
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": "kube-proxy"},
        "data": {"config.conf": text},
    })
}

/// Two servers in zone a, one in b and one in c; the Service asks for what only zonewise does.
struct Shop {
    nodes: TestNodes,
    caller: Namespace,
    to: SocketAddr,
    /// Dropped last, when nothing uses it any more.
    cluster: Lent,
}

async fn shop() -> Shop {
    let cluster = cluster().await;
    allow_looking(&cluster, |_| true).await;
    let mut nodes = TestNodes::new();
    let mut objects: Vec<Value> = NODES
        .iter()
        .zip(["a", "b", "c"])
        .map(|(name, zone)| nodes.add(&cluster, name, zone))
        .collect();
    for (node, server) in [("n1", "a1"), ("n1", "a2"), ("n2", "b1"), ("n3", "c1")] {
        objects.push(pod_object(&nodes.add_server(node, server), "web"));
    }
    let mut service = service_object("web", "web", &json!({}));
    service["metadata"]["annotations"] =
        json!({"zonewise.dev/routing-preference": "zonewise.dev/balanced"});
    objects.push(service);
    cluster.create(&objects).await.unwrap();
    let caller = nodes.add_pod("n1", "caller").namespace;
    let to = cluster_ip(&stored(&cluster, "web").await, false);
    Shop { cluster, nodes, caller, to }
}

impl Shop {
    fn answering(&self) -> BTreeSet<String> {
        responders(&self.caller, self.to, TRIES)
    }

    fn first_line(&self) -> String {
        let out = look(&self.cluster, &["explain", "default/web"]).out;
        out.lines().next().unwrap_or_default().to_owned()
    }

    /// Starts the reference's controller, which holds a Lease, and its proxy on every node.
    async fn start_stock(&mut self) -> Process {
        let manager = self.cluster.controller_manager(&["--leader-elect=true"]).unwrap();
        let mut objects: Vec<Value> = NODES.iter().map(|node| kube_proxy_pod(node)).collect();
        objects.push(kube_proxy_settings());
        self.cluster.create(&objects).await.unwrap();
        for node in NODES {
            self.nodes.start_kube_proxy(&self.cluster, node, &[]);
        }
        manager
    }

    /// Stops them, as somebody does who lets zonewise take over.
    async fn stop_stock(&mut self, manager: Process) {
        manager.stop().await.unwrap();
        for node in NODES {
            let proxy = self.nodes.by_name.get_mut(node).unwrap().proxy.take().unwrap();
            proxy.stop().await.unwrap();
        }
        let pods: Vec<Value> = NODES.iter().map(|node| kube_proxy_pod(node)).collect();
        self.cluster.delete(&pods).await.unwrap();
    }

    /// Starts our controller, which holds a Lease, and our proxy on every node.
    fn start_ours(&mut self) -> Process {
        let kubeconfig = self.cluster.kubeconfig(User::Controller).unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let ports = ["--metrics-address=127.0.0.1:0", "--health-address=127.0.0.1:0"];
        let form = content_type_flag();
        let mut flags = vec!["controller", &kubeconfig, ports[0], ports[1]];
        flags.extend(form.as_deref());
        let ours = std::path::Path::new(env!("CARGO_BIN_EXE_zonewise"));
        let log = self.cluster.log("controller");
        let controller = Process::spawn(ours, &flags, &[], &log).unwrap();
        for node in NODES {
            self.nodes.start_proxy(&self.cluster, node, &["--take-over"]);
        }
        controller
    }

    /// Runs a command of the advice, word for word.
    fn follow(&self, command: &str) {
        let programs = self.cluster.program("kubectl");
        let ran = Command::new("/bin/sh")
            .args(["-c", command])
            .env("PATH", programs.parent().unwrap())
            .env("KUBECONFIG", self.cluster.kubeconfig(User::Admin).unwrap())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{command}: {ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_is_true_of_a_stock_cluster_and_of_ours() {
    let mut shop = shop().await;
    let all = set(&["a1", "a2", "b1", "c1"]);
    let manager = shop.start_stock().await;
    eventually_equals("kube-proxy", all.clone(), || shop.answering()).await;
    nothing_is_active(&shop);

    // The advice that works without zonewise, carried out.
    let explained = document(&shop.cluster, &["explain", "default/web", "-o", "json"]);
    let works: Vec<&Value> = explained["changes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|change| change["needs"] == json!([]) && change["then"] == "OwnZone")
        .collect();
    let [advice] = works.as_slice() else { panic!("{explained:#}") };
    let commands = advice["sentences"].as_array().unwrap();
    commands.iter().for_each(|command| shop.follow(command.as_str().unwrap()));
    eventually_equals("own zone", set(&["a1", "a2"]), || shop.answering()).await;
    let said = "default/web: active: same-zone; 100 % of the traffic stays in its zone";
    eventually_equals("it is active", said.to_owned(), || shop.first_line()).await;

    // Ours take over, and what only they do is active.
    let undo = "kubectl patch service web -p '{\"spec\":{\"trafficDistribution\":null}}'";
    shop.follow(undo);
    shop.stop_stock(manager).await;
    let _controller = shop.start_ours();
    let said = "default/web: active: shares; 83 % of the traffic stays in its zone";
    eventually_equals("ours is active", said.to_owned(), || shop.first_line()).await;
    let environment = environment(&shop.cluster);
    assert_eq!(environment["controller"]["state"], "running", "{environment:#}");
    assert_eq!(environment["proxies"][0]["proxy"], "zonewise proxy", "{environment:#}");
    assert_eq!(environment["proxies"][0]["nodes"], 3, "{environment:#}");
    let explained = look(&shop.cluster, &["explain", "default/web"]).out;
    assert!(explained.contains("\nwhy: SharesBalanced: "), "{explained}");
    // Node n1 keeps its traffic: a has more endpoints than its share needs.
    eventually_equals("shares", set(&["a1", "a2"]), || shop.answering()).await;
}

/// No line says that something of zonewise's is active.
fn nothing_is_active(shop: &Shop) {
    let one = look(&shop.cluster, &["explain", "default/web"]).out;
    let mut lines = one.lines();
    let first = "default/web: not active: every node uses all endpoints; 33 % of the traffic stays in \
                 its zone";
    assert_eq!(lines.next(), Some(first), "{one}");
    let why = lines.next().unwrap();
    let begin = "why: if zonewise ran here (its controller: not found, its proxy: on 0 of 3 nodes): \
                 SharesBalanced: ";
    assert!(why.starts_with(begin), "{why}");
    let here = lines.next().unwrap();
    let begin = "here: zonewise controller not found; kube-proxy (nftables) on 3 of 3 nodes; \
                 kube-controller-manager running; Kubernetes v1.";
    assert!(here.starts_with(begin), "{here}");
    assert!(!one.contains("outcome") && !one.contains(": active"), "{one}");
    let overview = look(&shop.cluster, &["explain"]).out;
    let first = overview.lines().next().unwrap();
    assert!(first.starts_with("zone routing is active for 0 of "), "{overview}");
    assert!(overview.contains("IF ZONEWISE RAN"), "{overview}");
    let plan = look(&shop.cluster, &["plan"]).out;
    assert!(plan.starts_with("what zonewise's controller would write if it ran here"), "{plan}");
    let route = look(&shop.cluster, &["route", "--node", "n1", "--service", "default/web"]).out;
    assert!(route.starts_with("as kube-proxy routes"), "{route}");
}

fn environment(cluster: &Cluster) -> Value {
    document(cluster, &["explain", "-o", "json"])["environment"].clone()
}

/// A program that has stopped is not reported as running.
#[tokio::test(flavor = "multi_thread")]
async fn what_stops_is_said_to_have_stopped() {
    let cluster = cluster().await;
    allow_looking(&cluster, |_| true).await;
    cluster.create(&[service_object("web", "web", &json!({}))]).await.unwrap();
    let manager = cluster.controller_manager(&["--leader-elect=true"]).unwrap();
    let state = || environment(&cluster)["builtInController"]["state"].clone();
    eventually_equals("it runs", json!("running"), state).await;
    manager.kill().unwrap();
    eventually_equals("it has stopped", json!("stopped"), state).await;
}
