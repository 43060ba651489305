//! Subsets from the annotation to the packet: our controller writes them to a real kube-apiserver, proxies
//! on nodes of three zones and two regions follow them, and connections are made all the time.
//!
//! ```text
//!  region r                              region s
//!  zone a: n1, pods a1…a4                zone c: n3, pods c1…c4
//!  zone b: n2, pods b1…b4                        n4 with kube-proxy
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_netns::NetnsPod;
use zonewise_netns::traffic::OpenConnection;
use zonewise_testbed::{Cluster, Process, User, eventually, eventually_equals};

use crate::nodes::connections::Connections;
use crate::nodes::{
    TestNodes, cluster, cluster_ip, controller, pod_object, responders, service_object, stored,
};
use crate::observe::run::program;

pub(crate) const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// A datagram is never sent again: all that it waits for is the server's thread.
const UDP_TIMEOUT: Duration = Duration::from_secs(10);
/// With twelve endpoints, one of them is missed by chance once in more than a million times.
pub(crate) const TRIES: usize = 200;
pub(crate) const ZONES: [(&str, &str, &str); 3] =
    [("n1", "a", "r"), ("n2", "b", "r"), ("n3", "c", "s")];

/// The cluster of the picture, with a Service that selects all pods.
pub(crate) struct Subsets {
    pub(crate) cluster: Cluster,
    pub(crate) nodes: TestNodes,
    /// A pod that asks, on each node.
    pub(crate) callers: BTreeMap<&'static str, NetnsPod>,
    pub(crate) to: SocketAddr,
    /// The pods that have an object.
    present: BTreeSet<String>,
    pub(crate) controller: Option<Process>,
}

impl Subsets {
    pub(crate) async fn start() -> Self {
        let cluster = cluster().await;
        let mut nodes = TestNodes::new();
        let mut objects = Vec::new();
        for (name, zone, region) in [&ZONES[..], &[("n4", "c", "s")]].concat() {
            let mut node = nodes.add(&cluster, name, zone);
            node["metadata"]["labels"]["topology.kubernetes.io/region"] = json!(region);
            // Zone c has as much capacity as the others: n4 runs no Pods.
            if name == "n4" {
                node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!("");
            }
            objects.push(node);
        }
        for (node, zone, _) in ZONES {
            for number in 1..=4 {
                let pod = nodes.add_server(node, &format!("{zone}{number}"));
                objects.push(pod_object(&pod, "web"));
            }
        }
        objects.push(service_object("web", "web", &json!({})));
        cluster.create(&objects).await.unwrap();
        let names = ["n1", "n2", "n3", "n4"];
        let callers =
            names.map(|node| (node, nodes.add_pod(node, &format!("caller-{node}")))).into();
        let to = cluster_ip(&stored(&cluster, "web").await, false);
        let controller = Some(controller(&cluster));
        let present = nodes.network.pods().iter().map(|pod| pod.name.clone());
        let present = present.filter(|name| !name.starts_with("caller")).collect();
        let mut all = Self { cluster, nodes, callers, to, present, controller };
        for (node, ..) in ZONES {
            all.nodes.start_proxy(&all.cluster, node, &[]);
        }
        all
    }

    /// Sets the annotations that request routing.
    pub(crate) async fn annotate(&self, annotations: Value) {
        let mut service = stored(&self.cluster, "web").await;
        service["apiVersion"] = json!("v1");
        service["kind"] = json!("Service");
        service["metadata"]["annotations"] = annotations;
        service["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        self.cluster.update(&[service]).await.unwrap();
    }

    /// Stops the proxy of a node and starts it with other flags.
    async fn replace_proxy(&mut self, node: &str, flags: &[&str]) {
        let proxy = self.nodes.by_name.get_mut(node).unwrap().proxy.take();
        proxy.unwrap().stop().await.unwrap();
        self.nodes.start_proxy(&self.cluster, node, flags);
    }

    /// Removes pods, or creates them again. Their servers go on answering.
    pub(crate) async fn set_pods(&mut self, names: &[&str], present: bool) {
        let wanted = |pod: &&NetnsPod| names.contains(&&*pod.name);
        let pods = self.nodes.network.pods();
        let objects: Vec<Value> =
            pods.iter().filter(wanted).map(|pod| pod_object(pod, "web")).collect();
        if present {
            self.cluster.create(&objects).await.unwrap();
            self.present.extend(names.iter().map(|name| (*name).to_owned()));
        } else {
            self.cluster.delete(&objects).await.unwrap();
            self.present.retain(|name| !names.contains(&&**name));
        }
    }

    /// Replaces a pod by another, as a rolling update does: the new one is ready before the old one begins to
    /// terminate, and it is gone a while later.
    async fn replace_pod(&mut self, old: &str, new: &str) {
        self.set_pods(&[new], true).await;
        self.have_endpoint(new, true).await;
        let pods = self.nodes.network.pods();
        let pod = pods.iter().find(|pod| pod.name == old).unwrap();
        let objects = self.cluster.objects().unwrap();
        objects.terminate(&[pod_object(pod, "web")]).await.unwrap();
        self.set_pods(&[old], false).await;
        self.have_endpoint(old, false).await;
    }

    /// Waits until the slices have an endpoint, or have it no more.
    async fn have_endpoint(&self, name: &str, present: bool) {
        eventually(|| async {
            let written = self.written().await?;
            let found = written.values().any(|names| names.contains(name));
            (found == present).then_some(()).ok_or_else(|| format!("{name}: {written:?}"))
        })
        .await;
    }

    /// One thread that connects from every zone to the Service.
    pub(crate) fn connections(&self, to: SocketAddr) -> Connections {
        let from = |(node, ..): &(&str, _, _)| (self.callers[node].namespace.clone(), to);
        Connections::start(ZONES.iter().map(from).collect())
    }

    /// Ready IPv4 endpoints by the subset label of their slice; an endpoint that is in two slices fails.
    async fn written(&self) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
        let slices = self.cluster.list("EndpointSlice", Some("default")).await.unwrap();
        let mut subsets: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for slice in slices.iter().filter(|slice| slice["addressType"] == "IPv4") {
            let label = ["for-zone", "for-region"].iter().find_map(|key| {
                let value =
                    &slice["metadata"]["labels"][format!("endpointslice.kubernetes.io/{key}")];
                Some(format!("{key}={}", value.as_str()?))
            });
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                let name = endpoint["targetRef"]["name"].as_str().unwrap().to_owned();
                if !seen.insert(name.clone()) {
                    return Err(format!("{name} is in two slices"));
                }
                subsets.entry(label.clone().unwrap_or_default()).or_default().insert(name);
            }
        }
        Ok(subsets)
    }

    /// Waits until slices, packets of every node, and `zonewise route` agree with what is expected.
    pub(crate) async fn expect(
        &self,
        step: &str,
        subsets: &[(&str, &[&str])],
        reached: [&[&str]; 3],
    ) {
        let expected: BTreeMap<String, BTreeSet<String>> = subsets
            .iter()
            .map(|(label, zones)| ((*label).to_owned(), self.pods_of(zones)))
            .collect();
        eventually(|| async {
            let written = self.written().await?;
            (written == expected).then_some(()).ok_or_else(|| format!("{step}: {written:?}"))
        })
        .await;
        for ((node, ..), zones) in ZONES.iter().zip(reached) {
            let expected = self.pods_of(zones);
            let caller = &self.callers[node].namespace;
            eventually_equals(&format!("{step}: from {node}"), expected.clone(), || {
                responders(caller, self.to, TRIES)
            })
            .await;
            assert_eq!(self.routed(node), expected, "{step}: zonewise route --node {node}");
        }
    }

    /// The pods of some zones.
    fn pods_of(&self, zones: &[&str]) -> BTreeSet<String> {
        self.present.iter().filter(|name| zones.contains(&&name[..1])).cloned().collect()
    }

    /// The endpoints that `zonewise route` names for a node, as names of pods.
    fn routed(&self, node: &str) -> BTreeSet<String> {
        let lines = self.ask(&["route", "--node", node, "--service", "default/web", "-o", "json"]);
        let is_http = |line: &&Value| line["port"] == "http" && line["family"] == "IPv4";
        let line = lines["routes"].as_array().unwrap().iter().find(is_http).unwrap();
        let endpoints = line["cluster"].as_array().unwrap().iter();
        let name = |endpoint: &Value| {
            let address: SocketAddr = endpoint.as_str().unwrap().parse().unwrap();
            let pods = self.nodes.network.pods();
            pods.iter().find(|pod| address.ip() == pod.v4).unwrap().name.clone()
        };
        endpoints.map(name).collect()
    }

    fn ask(&self, arguments: &[&str]) -> Value {
        let kubeconfig = self.cluster.kubeconfig(User::Admin).unwrap();
        let output = program(arguments).arg("--kubeconfig").arg(kubeconfig).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

pub(crate) const ALL: &[&str] = &["a", "b", "c"];
pub(crate) const EACH_ITS_OWN: [&[&str]; 3] = [&["a"], &["b"], &["c"]];
pub(crate) const EVERYWHERE: [&[&str]; 3] = [ALL; 3];
pub(crate) const PER_ZONE: &[(&str, &[&str])] =
    &[("for-zone=a", &["a"]), ("for-zone=b", &["b"]), ("for-zone=c", &["c"])];
pub(crate) const UNDIVIDED: &[(&str, &[&str])] = &[("", ALL)];

/// Every value that requests subsets, switched on and off and on, under traffic: slices are divided as the
/// documents say, every node reaches exactly what it should, `route` says the same, and nothing fails. These are
/// the cases of document C's unit tests (C4): the labels of the own and of another zone and region, no label, and
/// at the end a proxy that does not look at labels.
#[tokio::test(flavor = "multi_thread")]
async fn a1_a11_a26_c1_c2_c4_c5_every_kind_of_subset_reaches_the_packets() {
    let mut subsets = Subsets::start().await;
    subsets.expect("no request", UNDIVIDED, EVERYWHERE).await;
    let connections = subsets.connections(subsets.to);
    let per_region: &[(&str, &[&str])] = &[("for-region=r", &["a", "b"]), ("for-region=s", &["c"])];
    let by_region: [&[&str]; 3] = [&["a", "b"], &["a", "b"], &["c"]];
    let steps = [
        ("Auto", json!({SUBSETTING: "Auto"}), PER_ZONE, EACH_ITS_OWN),
        ("off", json!({}), UNDIVIDED, EVERYWHERE),
        ("Auto again", json!({SUBSETTING: "Auto"}), PER_ZONE, EACH_ITS_OWN),
        ("Random", json!({SUBSETTING: "Random"}), UNDIVIDED, EVERYWHERE),
        ("Require", json!({SUBSETTING: "Require"}), PER_ZONE, EACH_ITS_OWN),
        ("Region", json!({SUBSETTING: "Region"}), per_region, by_region),
        ("local-subset", json!({PREFERENCE: "zonewise.dev/local-subset"}), PER_ZONE, EACH_ITS_OWN),
        ("require-zone", json!({PREFERENCE: "zonewise.dev/require-zone"}), PER_ZONE, EACH_ITS_OWN),
    ];
    for (step, annotations, divided, reached) in steps {
        subsets.annotate(annotations).await;
        subsets.expect(step, divided, reached).await;
        connections.more(30).await;
        assert_eq!(connections.failures(), BTreeMap::new(), "{step}");
    }

    // A zone that empties is served from all; its subset comes back with its endpoints.
    let zone_c = ["c1", "c2", "c3", "c4"];
    subsets.set_pods(&zone_c, false).await;
    let left: &[(&str, &[&str])] = &[("for-zone=a", &["a"]), ("for-zone=b", &["b"])];
    subsets.expect("zone c is empty", left, [&["a"], &["b"], &["a", "b"]]).await;
    subsets.set_pods(&zone_c, true).await;
    subsets.expect("zone c is back", PER_ZONE, EACH_ITS_OWN).await;
    connections.more(30).await;
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();

    subsets.replace_proxy("n2", &["--feature-gates=EndpointSliceSubsetting=false"]).await;
    let gate_off = &subsets.callers["n2"].namespace;
    let all = subsets.pods_of(ALL);
    eventually_equals("gate off", all, || responders(gate_off, subsets.to, TRIES)).await;
}

/// A8: subsets that are in force stay until there are `threshold - padding` endpoints, and start again only at
/// `threshold + padding`.
#[tokio::test(flavor = "multi_thread")]
async fn a8_subsets_end_and_start_at_their_thresholds() {
    let mut subsets = Subsets::start().await;
    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("twelve", PER_ZONE, EACH_ITS_OWN).await;
    let connections = subsets.connections(subsets.to);
    subsets.set_pods(&["a4", "b4", "c4"], false).await;
    subsets.expect("nine keep them", PER_ZONE, EACH_ITS_OWN).await;
    subsets.set_pods(&["a3", "b3", "c3"], false).await;
    subsets.expect("six end them", UNDIVIDED, EVERYWHERE).await;
    subsets.set_pods(&["a3", "b3", "c3", "a4", "b4"], true).await;
    subsets.expect("eleven do not start them", UNDIVIDED, EVERYWHERE).await;
    subsets.set_pods(&["c4"], true).await;
    subsets.expect("twelve start them", PER_ZONE, EACH_ITS_OWN).await;
    connections.more(30).await;
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();
}

/// A rolling update replaces every Pod, the new one before the old one. Subsets stay in force, every zone ends
/// with its own new Pods, and no connection fails.
#[tokio::test(flavor = "multi_thread")]
async fn a9_a26_a_rolling_update_keeps_subsets_and_fails_no_connection() {
    let mut subsets = Subsets::start().await;
    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("before", PER_ZONE, EACH_ITS_OWN).await;
    let connections = subsets.connections(subsets.to);
    for number in 1..=4 {
        for (node, zone, _) in ZONES {
            let (old, new) = (format!("{zone}{number}"), format!("{zone}{}", number + 4));
            subsets.nodes.add_server(node, &new);
            subsets.replace_pod(&old, &new).await;
            let written = subsets.written().await.unwrap();
            assert!(!written.contains_key(""), "{new}: subsets stay in force: {written:?}");
        }
    }
    subsets.expect("after", PER_ZONE, EACH_ITS_OWN).await;
    connections.more(30).await;
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();
}

/// A UDP flow stays with its endpoint when that moves to another zone's subset, and leaves it when the endpoint
/// is gone, which the node's own watches do not show.
#[tokio::test(flavor = "multi_thread")]
async fn c5_udp_flows_stay_with_endpoints_that_move_to_another_subset() {
    let mut subsets = Subsets::start().await;
    subsets.expect("no request", UNDIVIDED, EVERYWHERE).await;
    for timeout in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        let node = &subsets.nodes.node("n1").namespace;
        node.write_sysctl(&format!("net/netfilter/{timeout}"), "3600").unwrap();
    }
    let caller = subsets.callers["n1"].namespace.clone();
    let mut flows: BTreeMap<String, OpenConnection> = BTreeMap::new();
    eventually_equals("a flow to every endpoint", subsets.pods_of(ALL), || {
        let mut flow = OpenConnection::udp(&caller, subsets.to, UDP_TIMEOUT).unwrap();
        flows.entry(flow.probe().to_string()).or_insert(flow);
        flows.keys().cloned().collect()
    })
    .await;
    let stays = |(name, flow): (&String, &mut OpenConnection)| {
        assert_eq!(&flow.probe().to_string(), name, "the flow to {name}");
    };

    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("Auto", PER_ZONE, EACH_ITS_OWN).await;
    flows.iter_mut().for_each(stays);
    for gone in ["b1", "a1"] {
        subsets.set_pods(&[gone], false).await;
        let mut flow = flows.remove(gone).unwrap();
        eventually_equals(&format!("the flow to {gone} goes elsewhere"), false, || {
            flow.probe().to_string() == gone
        })
        .await;
        flows.iter_mut().for_each(stays);
    }
    subsets.annotate(json!({})).await;
    subsets.expect("off", UNDIVIDED, EVERYWHERE).await;
    flows.iter_mut().for_each(stays);
}

/// Proxies that know nothing of subsets use all slices and get no endpoint twice: kube-proxy, and ours with its
/// gate off. With hints, kube-proxy stays in its zone, and `explain` names the node that does not count for them.
#[tokio::test(flavor = "multi_thread")]
async fn a27_b11_c3_proxies_that_do_not_know_subsets_reach_every_endpoint() {
    let mut subsets = Subsets::start().await;
    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("Auto", PER_ZONE, EACH_ITS_OWN).await;
    subsets.nodes.start_kube_proxy(&subsets.cluster, "n4", &[]);
    let kube_proxy = subsets.callers["n4"].namespace.clone();
    let all = subsets.pods_of(ALL);
    eventually_equals("kube-proxy", all.clone(), || responders(&kube_proxy, subsets.to, TRIES))
        .await;
    assert_eq!(endpoints_of_kube_proxy(&subsets), 12, "each endpoint once");

    subsets.replace_proxy("n2", &["--feature-gates=EndpointSliceSubsetting=false"]).await;
    let gate_off = subsets.callers["n2"].namespace.clone();
    eventually_equals("gate off", all, || responders(&gate_off, subsets.to, TRIES)).await;

    subsets.annotate(json!({TOPOLOGY_MODE: "Auto"})).await;
    let at_home = subsets.pods_of(&["c"]);
    eventually_equals("hints", at_home, || responders(&kube_proxy, subsets.to, TRIES)).await;
    // B11: n4 doubles the cores of zone c, and is left out of the proportions with a reason.
    let explanation = subsets.ask(&["explain", "default/web", "-o", "json"]);
    assert_eq!(explanation["nodesLeftOut"], json!([{"node": "n4", "why": "control-plane"}]));
}

/// How many endpoints kube-proxy chooses from for the Service's IPv4 TCP port, by its own rules.
fn endpoints_of_kube_proxy(subsets: &Subsets) -> usize {
    let list = || Command::new("nft").args(["list", "table", "ip", "kube-proxy"]).output();
    let output = subsets.nodes.node("n4").namespace.enter(list);
    let output = output.expect("the nft program is needed: apt-get install nftables");
    let text = String::from_utf8(output.stdout).unwrap();
    // chain service-ABC-default/web/tcp/http { … numgen random mod 12 map { 0 : 10.244.1.2 . 8080, …
    let is_ours =
        |chain: &&str| chain.starts_with("service-") && chain.contains("-default/web/tcp/http {");
    let chain = text.split("chain ").find(is_ours).unwrap_or_else(|| panic!("{text}"));
    chain.matches(" . 8080").count()
}
