//! A cluster whose Service has twelve Pods, for tests of subsets: our controller writes them to a real kube-apiserver, and
//! proxies on nodes of three zones and two regions follow them.
//!
//! ```text
//!  region r                              region s
//!  zone a: n1, pods a1…a4                zone c: n3, pods c1…c4
//!  zone b: n2, pods b1…b4                        n4 without a proxy of ours
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use zonewise_netns::NetnsPod;
use zonewise_testbed::{Lent, Process, User, eventually, eventually_equals};

use super::connections::Connections;
use super::{
    TestNodes, cluster, cluster_ip, controller, pod_object, responders, service_object, stored,
};
use crate::observe::run::program;

pub(crate) const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
pub(crate) const PREFERENCE: &str = "zonewise.dev/routing-preference";
pub(crate) const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
/// A datagram is never sent again: all that it waits for is the server's thread.
pub(crate) const UDP_TIMEOUT: Duration = Duration::from_secs(10);
/// With twelve endpoints, one of them is missed by chance once in more than a million times.
pub(crate) const TRIES: usize = 200;

/// So many tries miss one of a number of endpoints by chance once in more than a million times.
fn tries(endpoints: usize) -> usize {
    let endpoints = endpoints.max(2) as f64;
    ((1e-6 / endpoints).ln() / (1.0 - 1.0 / endpoints).ln()).ceil() as usize
}
pub(crate) const ZONES: [(&str, &str, &str); 3] =
    [("n1", "a", "r"), ("n2", "b", "r"), ("n3", "c", "s")];

/// The cluster of the picture, with a Service that selects all pods.
pub(crate) struct Subsets {
    pub(crate) nodes: TestNodes,
    /// A pod that asks, on each node.
    pub(crate) callers: BTreeMap<&'static str, NetnsPod>,
    pub(crate) to: SocketAddr,
    /// The pods that have an object.
    present: BTreeSet<String>,
    pub(crate) controller: Option<Process>,
    /// Dropped last, when nothing uses it any more.
    pub(crate) cluster: Lent,
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
    pub(crate) async fn replace_proxy(&mut self, node: &str, flags: &[&str]) {
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
    pub(crate) async fn replace_pod(&mut self, old: &str, new: &str) {
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
    pub(crate) async fn written(&self) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
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
                responders(caller, self.to, tries(expected.len()))
            })
            .await;
            assert_eq!(self.routed(node), expected, "{step}: zonewise route --node {node}");
        }
    }

    /// The pods of some zones.
    pub(crate) fn pods_of(&self, zones: &[&str]) -> BTreeSet<String> {
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

    pub(crate) fn ask(&self, arguments: &[&str]) -> Value {
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
