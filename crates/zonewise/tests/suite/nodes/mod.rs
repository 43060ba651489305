//! A real API server, nodes and pods as network namespaces, and our programs (or the reference's) on
//! them.
//!
//! ```text
//!   kube-apiserver + etcd ◄── gate ◄── 127.0.0.1:PORT inside each node's namespace
//!                                         ▲
//!                                zonewise proxy, or kube-proxy, of that node
//! ```
#![allow(dead_code, reason = "every test file uses its part of this")]

pub(crate) mod connections;
pub(crate) mod guard;
pub(crate) mod subsets;
pub(crate) mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;
use zonewise_netns::traffic::{Server, http_get, probe_tcp_many, probe_udp_many};
use zonewise_netns::{ClusterNetwork, Namespace, NetnsClient, NetnsNode, NetnsPod};
use zonewise_testbed::{
    Cluster, Gate, Lent, Options, Pool, Process, User, content_type_flag, eventually, manifests,
    objects,
};

/// How long a probe waits for an answer: longer than a busy machine needs, and shorter than the second after which TCP
/// sends a packet again, so that a dropped packet is seen.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_millis(900);
pub(crate) const SERVICE_RANGES: [&str; 2] = ["10.96.0.0/16", "fd00:96::/108"];
const EXTERNAL_RANGES: [&str; 2] = ["198.51.100.0/24", "2001:db8:1::/48"];

/// A node: its namespace, its relay to the API server, its proxy.
pub(crate) struct TestNode {
    pub(crate) node: NetnsNode,
    pub(crate) gate: Gate,
    pub(crate) proxy: Option<Process>,
}

/// Nodes with their pods, by name, in one network.
pub(crate) struct TestNodes {
    pub(crate) network: ClusterNetwork,
    pub(crate) by_name: BTreeMap<String, TestNode>,
    pub(crate) servers: Vec<Server>,
}

/// An API server as it starts, which no other test uses at the same time. A test that ends it starts one of its own.
pub(crate) async fn plain_cluster() -> Lent {
    static POOL: Pool = Pool::new();
    POOL.lend(Options::default(), async |_| Ok(())).await.unwrap()
}

/// The same with the roles of the controller and the proxy.
pub(crate) async fn cluster() -> Lent {
    let cluster = plain_cluster().await;
    for file in ["deploy/controller/rbac.yaml", "deploy/proxy/rbac.yaml"] {
        let all = manifests(repository(file)).unwrap();
        // The admission policy compares with the node that a token is bound to; the testbed's tokens are not
        // bound to a node.
        let policy = |object: &Value| {
            object["kind"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("ValidatingAdmissionPolicy"))
        };
        for object in all.into_iter().filter(|object| !policy(object)) {
            // Both files contain the namespace.
            let known = object["kind"] == "Namespace"
                && !cluster
                    .list("Namespace", None)
                    .await
                    .unwrap()
                    .iter()
                    .all(|known| known["metadata"]["name"] != object["metadata"]["name"]);
            if !known {
                cluster.create(&[object]).await.unwrap();
            }
        }
    }
    cluster
}

/// Lets the API server know ZoneEvacuations.
pub(crate) async fn define_evacuations(cluster: &Cluster) {
    let definition = manifests(repository("deploy/controller/crd.yaml")).unwrap();
    cluster.create(&definition).await.unwrap();
    eventually(|| async {
        let answer = cluster.list("ZoneEvacuation", None).await;
        answer.map(drop).map_err(|error| format!("{error:#}"))
    })
    .await;
}

/// A file of the repository.
fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

/// Starts our controller.
pub(crate) fn controller(cluster: &Cluster) -> Process {
    controller_without(cluster, None)
}

/// Starts our controller with one of its gates off.
pub(crate) fn controller_without(cluster: &Cluster, off: Option<&str>) -> Process {
    let kubeconfig = cluster.kubeconfig(User::Controller).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let gates = off.map_or(String::new(), |gate| format!("{gate}=false"));
    let gates = format!("--feature-gates={gates}");
    let form = content_type_flag();
    let mut flags = vec![
        "controller",
        &kubeconfig,
        &gates,
        "--leader-elect=false",
        "--metrics-address=127.0.0.1:0",
        "--health-address=127.0.0.1:0",
    ];
    flags.extend(form.as_deref());
    let program = Path::new(env!("CARGO_BIN_EXE_zonewise"));
    Process::spawn(program, &flags, &[], &cluster.log("controller")).unwrap()
}

impl TestNodes {
    pub(crate) fn new() -> Self {
        let network =
            ClusterNetwork::new().expect("network namespaces can be made; this test needs root");
        Self { network, by_name: BTreeMap::new(), servers: Vec::new() }
    }

    /// Adds a node with a relay of its own to the API server; returns its Node object.
    pub(crate) fn add(&mut self, cluster: &Cluster, name: &str, zone: &str) -> Value {
        let node = self.network.add_node(name, zone).unwrap();
        let listener = node.namespace.enter(|| TcpListener::bind("127.0.0.1:0")).unwrap();
        let gate = Gate::open_at(cluster, listener).unwrap();
        let mut object = objects::node(name, zone, "4");
        object["status"]["addresses"] = json!([
            {"type": "InternalIP", "address": node.v4},
            {"type": "InternalIP", "address": node.v6},
        ]);
        object["spec"]["podCIDRs"] = json!([node.pods_v4.to_string(), node.pods_v6.to_string()]);
        object["spec"]["podCIDR"] = json!(node.pods_v4.to_string());
        self.by_name.insert(name.into(), TestNode { node, gate, proxy: None });
        object
    }

    pub(crate) fn node(&self, name: &str) -> &NetnsNode {
        &self.by_name[name].node
    }

    /// Adds a pod that answers on port 8080 with its name.
    pub(crate) fn add_server(&mut self, node: &str, name: &str) -> NetnsPod {
        let pod = self.add_pod(node, name);
        for v6 in [false, true] {
            let address = SocketAddr::new(pod.address(v6), 8080);
            self.servers.push(Server::both(&pod.namespace, name, address).unwrap());
        }
        pod
    }

    /// Adds a pod that only sends requests.
    pub(crate) fn add_pod(&mut self, node: &str, name: &str) -> NetnsPod {
        let node = self.node(node).clone();
        self.network.add_pod(&node, name).unwrap()
    }

    /// Adds a client outside the cluster, whose route to Services leads through a node.
    pub(crate) fn add_client(&mut self, name: &str, through: &str) -> NetnsClient {
        let client = self.network.add_client(name).unwrap();
        for range in SERVICE_RANGES.into_iter().chain(EXTERNAL_RANGES) {
            client.route_via(Cidr::parse(range).unwrap(), self.node(through)).unwrap();
        }
        client
    }

    /// Starts our proxy on a node.
    pub(crate) fn start_proxy(&mut self, cluster: &Cluster, name: &str, flags: &[&str]) {
        let test_node = self.by_name.get_mut(name).unwrap();
        let kubeconfig = cluster.kubeconfig_through(User::Proxy, &test_node.gate).unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let node = format!("--node-name={name}");
        let form = content_type_flag();
        let mut all = vec!["proxy", &kubeconfig, &node];
        all.extend(form.as_deref());
        all.extend(NAMESPACE_FLAGS);
        all.extend(flags);
        let program = Path::new(env!("CARGO_BIN_EXE_zonewise"));
        let log = cluster.log(&format!("proxy-{name}"));
        let spawn = || Process::spawn(program, &all, &[], &log);
        test_node.proxy = Some(test_node.node.namespace.enter(spawn).unwrap());
    }

    /// Starts the reference's proxy on a node.
    pub(crate) fn start_kube_proxy(&mut self, cluster: &Cluster, name: &str, flags: &[&str]) {
        let test_node = self.by_name.get_mut(name).unwrap();
        let kubeconfig = cluster.kubeconfig_through(User::Admin, &test_node.gate).unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let node = format!("--hostname-override={name}");
        let mut all =
            vec![&*kubeconfig, &node, "--proxy-mode=nftables", "--iptables-min-sync-period=100ms"];
        all.push("--nodeport-addresses=primary");
        all.extend(NAMESPACE_FLAGS);
        all.extend(flags);
        let program = cluster.program("kube-proxy");
        let log = cluster.log(&format!("kube-proxy-{name}"));
        let spawn = || Process::spawn(&program, &all, &[], &log);
        test_node.proxy = Some(test_node.node.namespace.enter(spawn).unwrap());
    }

    pub(crate) fn proxy(&mut self, name: &str) -> &mut Process {
        self.by_name.get_mut(name).unwrap().proxy.as_mut().unwrap()
    }

    /// The body of an HTTP page of a node's proxy.
    pub(crate) fn page(&self, name: &str, port: u16, path: &str) -> Option<String> {
        http_get(&self.node(name).namespace, SocketAddr::from(([127, 0, 0, 1], port)), path)
    }
}

/// Turns off settings of the whole machine, which a namespace cannot have.
const NAMESPACE_FLAGS: [&str; 4] = [
    "--cluster-cidr=10.244.0.0/16,fd00:10:244::/48",
    "--conntrack-max-per-core=0",
    "--conntrack-tcp-timeout-established=0s",
    "--conntrack-tcp-timeout-close-wait=0s",
];

/// The names of the servers that answer over some tries.
pub(crate) fn responders(from: &Namespace, to: SocketAddr, tries: usize) -> BTreeSet<String> {
    probe_tcp_many(from, to, tries, PROBE_TIMEOUT).into_keys().collect()
}

pub(crate) fn responders_udp(from: &Namespace, to: SocketAddr, tries: usize) -> BTreeSet<String> {
    probe_udp_many(from, to, tries, PROBE_TIMEOUT).into_keys().collect()
}

pub(crate) fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A Pod object for a pod of the network.
pub(crate) fn pod_object(pod: &NetnsPod, app: &str) -> Value {
    let mut object = objects::pod("default", &pod.name, app, &pod.node, &pod.v4.to_string());
    object["status"]["podIPs"] = json!([{"ip": pod.v4}, {"ip": pod.v6}]);
    object
}

/// A dual-stack Service for an app, TCP and UDP on port 80.
pub(crate) fn service_object(name: &str, app: &str, changes: &Value) -> Value {
    let mut object = objects::service("default", name, app);
    object["spec"]["ipFamilyPolicy"] = json!("RequireDualStack");
    object["spec"]["ports"] = json!([
        {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"},
        {"name": "udp", "port": 80, "targetPort": 8080, "protocol": "UDP"},
    ]);
    for (key, value) in changes.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

/// A Service as the API server has stored it.
pub(crate) async fn stored(cluster: &Cluster, name: &str) -> Value {
    let all = cluster.list("Service", Some("default")).await.unwrap();
    all.into_iter().find(|service| service["metadata"]["name"] == name).unwrap()
}

/// Waits until all proxies have applied what the controller has written for a Service.
pub(crate) async fn is_ready(cluster: &Cluster, name: &str) {
    const READY: &str = "zonewise.dev/RoutingPreferenceReady";
    eventually(async || {
        let service = stored(cluster, name).await;
        let conditions = service["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.into_iter().find(|condition| condition["type"] == READY);
        let is_true = ready.is_some_and(|condition| condition["status"] == "True");
        is_true.then_some(()).ok_or_else(|| format!("{ready:?}"))
    })
    .await;
}

/// The ClusterIP and port of a stored Service in a family.
pub(crate) fn cluster_ip(service: &Value, v6: bool) -> SocketAddr {
    let all = service["spec"]["clusterIPs"].as_array().unwrap();
    let ip = all.iter().find(|ip| ip.as_str().unwrap().contains(':') == v6).unwrap();
    SocketAddr::new(ip.as_str().unwrap().parse().unwrap(), 80)
}

pub(crate) fn node_port(service: &Value, node: &NetnsNode, v6: bool) -> SocketAddr {
    let port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    SocketAddr::new(node.address(v6), u16::try_from(port).unwrap())
}
