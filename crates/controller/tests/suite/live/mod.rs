//! Requirements on a real API server, in tables: a small cluster, the keys of its Services, and the slices and
//! conditions that must be read back from the API server. The names of tests begin with the requirements that
//! they prove (docs/requirements.md); what is expected is computed by hand from the documents.
//!
//! ```text
//!   Case: Pods per node, and Services     ┐
//!   Case: …                               ├─► stage: nodes, objects, then the controller ─► read back, compare
//!   nodes, configuration of the controller┘
//! ```
//!
//! Slices are shown as text, which the tables contain:
//!
//! ```text
//!   a*2 b*1                                endpoints of zones a and b, without hints; `?` is an unknown zone
//!   a>a*2 a>b*1 b>a+b*1                    with hints: two of a for a, one of a for b, one of b for both
//!   for-zone=a: a*2 | for-zone=b: b*1      a slice for each of two zones
//!   3 slices: a*270                        several slices of the same kind
//! ```

mod changes;
mod hints;
mod subsets;

use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use zonewise_testbed::objects::{namespace, node, pod, service};
use zonewise_testbed::{Lent, Objects, eventually};

use crate::common::{Running, lent, of_service};

const MODE: &str = "service.kubernetes.io/topology-mode";
const OLDER_MODE: &str = "service.kubernetes.io/topology-aware-hints";
const SUBSETTING: &str = "endpointslice.kubernetes.io/subsetting";
const PREFERENCE: &str = "zonewise.dev/routing-preference";
const THRESHOLD: &str = "zonewise.dev/starting-threshold";
const PADDING: &str = "zonewise.dev/padding";
const INTERNAL_POLICY: &str = "spec.internalTrafficPolicy";
const EXTERNAL_POLICY: &str = "spec.externalTrafficPolicy";
const TYPE: &str = "spec.type";
const DISTRIBUTION: &str = "spec.trafficDistribution";
const SHARES: &str = "zonewise.dev/zone-shares";

/// Annotations of a Service and, if they begin with `spec.`, fields.
type Keys = &'static [(&'static str, &'static str)];

/// A Service: its keys, its slices as text, and its conditions as text (see [`conditions`]).
type Asked = (Keys, &'static str, &'static str);

/// Pods and the Services that select them.
struct Case {
    /// The requirements that it is for, and what it shows.
    what: &'static str,
    /// How many ready Pods each node has.
    pods: &'static [(&'static str, usize)],
    services: &'static [Asked],
}

/// The conditions of Services whose request was understood and is in force, or is not.
const NONE: &str = "";
const CLUSTER_WIDE: &str = "Accepted; ClusterWide";
const DIVIDED: &str = "Accepted; SubsetsAssigned";
const REQUIRED: &str = "Accepted; ZoneRequired";
const HINTED: &str = "Accepted; HintsAssigned";
const OWN_ZONE: &str = "Accepted; OwnZone";

/// An API server with the controller's roles, and nodes and Services that change from stage to stage.
struct Live {
    cluster: Lent,
    client: Client,
    objects: Objects,
    nodes: Vec<Value>,
    /// Namespaces that were used.
    spaces: usize,
}

impl Live {
    async fn start() -> Self {
        let cluster = lent().await;
        let client = cluster.admin().unwrap();
        let objects = Objects::new(client.clone());
        Self { cluster, client, objects, nodes: Vec::new(), spaces: 0 }
    }

    /// Replaces all nodes.
    async fn set_nodes(&mut self, nodes: Vec<Value>) {
        self.objects.delete(&self.nodes).await.unwrap();
        self.objects.create(&nodes).await.unwrap();
        self.nodes = nodes;
    }

    /// Creates a namespace with Pods.
    async fn space(&mut self, pods: &[(&str, usize)]) -> String {
        self.spaces += 1;
        let space = format!("case-{}", self.spaces);
        self.objects.create(&[namespace(&space)]).await.unwrap();
        let all =
            pods.iter().flat_map(|(node, count)| (1..=*count).map(|n| numbered(&space, node, n)));
        self.objects.create(&all.collect::<Vec<_>>()).await.unwrap();
        space
    }

    /// Runs the controller over cases that are there when it starts, so that every decision is its first, until
    /// everything is as expected.
    async fn stage(&mut self, nodes: Vec<Value>, lines: &str, cases: &[Case]) {
        self.set_nodes(nodes).await;
        let mut services = Vec::new();
        let mut expected = Vec::new();
        for case in cases {
            let space = self.space(case.pods).await;
            for (number, (keys, slices, conditions)) in case.services.iter().enumerate() {
                let name = format!("service-{number}");
                services.push(asking(&space, &name, keys));
                let what = format!("{}: {keys:?}", case.what);
                expected.push(Expected { what, space: space.clone(), name, slices, conditions });
            }
        }
        self.objects.create(&services).await.unwrap();
        let running = Running::start(&self.cluster, lines).await;
        eventually(async || self.compare_lists(&expected).await).await;
        // While the last ones became so, the first ones have stayed so.
        self.compare(&expected).await.unwrap();
        running.stop().await.unwrap();
        self.objects.delete(&services).await.unwrap();
    }

    /// All differences between what is expected and what the API server has, by a request for each object.
    async fn compare(&self, expected: &[Expected]) -> Result<(), String> {
        let mut differences = String::new();
        for one in expected {
            let slices = self.slices(&one.space, &one.name).await;
            differences += &one.difference(&slices, &self.service(&one.space, &one.name).await);
        }
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    }

    /// The same by lists of whole namespaces, which cost less while all of it is waited for.
    async fn compare_lists(&self, expected: &[Expected]) -> Result<(), String> {
        let mut differences = String::new();
        for group in expected.chunk_by(|one, next| one.space == next.space) {
            let space = Some(&*group[0].space);
            let slices = self.objects.list("EndpointSlice", space).await.unwrap();
            let services = self.objects.list("Service", space).await.unwrap();
            for one in group {
                let named = |service: &&Value| service["metadata"]["name"] == *one.name;
                let service = services.iter().find(named).unwrap();
                differences += &one.difference(&of_service(&slices, &one.name), service);
            }
        }
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    }

    /// Waits until the slices of a Service are as expected.
    async fn reaches(&self, what: &str, (space, name): (&str, &str), expected: &str) {
        eventually(async || {
            let found = shown_like(expected, &self.slices(space, name).await)?;
            if found == expected { Ok(()) } else { Err(format!("{what}: {found}, not {expected}")) }
        })
        .await;
    }

    /// The slices of a Service, which the API server finds by the label with the Service's name (A17).
    async fn slices(&self, space: &str, name: &str) -> Vec<Value> {
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{space}/endpointslices?labelSelector=kubernetes.io/service-name%3D{name}"
        );
        let request = Request::get(path).body(Vec::new()).unwrap();
        let mut list: Value = self.client.request(request).await.unwrap();
        match list["items"].take() {
            Value::Array(slices) => slices,
            other => panic!("items of a list: {other}"),
        }
    }

    async fn service(&self, space: &str, name: &str) -> Value {
        self.objects.get("Service", Some(space), name).await.unwrap().unwrap()
    }
}

/// What a Service must have come to.
struct Expected {
    what: String,
    space: String,
    name: String,
    slices: &'static str,
    conditions: &'static str,
}

impl Expected {
    /// Empty if all is as expected.
    fn difference(&self, slices: &[Value], service: &Value) -> String {
        let found = shown_like(self.slices, slices);
        let told = conditions(service);
        if found.as_deref() == Ok(self.slices) && told == self.conditions {
            return String::new();
        }
        format!(
            "\n{}\n  {found:?} {told:?}\n  {:?} {:?} expected",
            self.what, self.slices, self.conditions
        )
    }
}

/// A node for each zone, named like it, with its cores.
fn zones(cores: &[(&str, &str)]) -> Vec<Value> {
    cores.iter().map(|(zone, cores)| node_of(zone, zone, cores)).collect()
}

/// A node of a zone. Zone c is a region of its own.
fn node_of(name: &str, zone: &str, cores: &str) -> Value {
    let mut one = node(name, zone, cores);
    let region = if zone == "c" { "s" } else { "r" };
    one["metadata"]["labels"]["topology.kubernetes.io/region"] = region.into();
    one
}

/// Three zones of the same capacity.
fn equal_zones() -> Vec<Value> {
    zones(&[("a", "4"), ("b", "4"), ("c", "4")])
}

/// A ready Pod of a node; its number makes its name and address.
fn numbered(space: &str, node: &str, number: usize) -> Value {
    let place: u32 = node.bytes().map(u32::from).sum();
    let ip = format!("10.{}.{}.{}", place % 256, number / 200, number % 200 + 1);
    pod(space, &format!("{node}-{number}"), "web", node, &ip)
}

/// A Service with keys.
fn asking(space: &str, name: &str, keys: Keys) -> Value {
    let mut one = service(space, name, "web");
    for (key, value) in keys {
        match key.strip_prefix("spec.") {
            Some(field) => one["spec"][field] = (*value).into(),
            None => one["metadata"]["annotations"][key] = (*value).into(),
        }
    }
    one
}

/// Slices as text: in full, or only how many endpoints are hinted to each zone if the expected text begins
/// with `hints`.
fn shown_like(expected: &str, slices: &[Value]) -> Result<String, String> {
    let full = shown(slices)?;
    if !expected.starts_with("hints ") {
        return Ok(full);
    }
    let counts: BTreeMap<String, usize> = crate::common::hints(slices);
    let counts: Vec<String> =
        counts.iter().map(|(zone, count)| format!("{zone}*{count}")).collect();
    Ok(format!("hints {}", counts.join(" ")))
}

/// Slices as text. An error if an endpoint is in two slices of its family and ports (A29).
fn shown(slices: &[Value]) -> Result<String, String> {
    let mut seen = BTreeSet::new();
    let mut groups: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for slice in slices {
        for endpoint in endpoints(slice) {
            let place =
                format!("{} {} {}", slice["addressType"], slice["ports"], endpoint["addresses"]);
            if !seen.insert(place.clone()) {
                return Err(format!("twice: {place}"));
            }
        }
        groups.entry(subset(slice)).or_default().push(slice);
    }
    let groups: Vec<String> = groups.iter().map(|(subset, slices)| group(subset, slices)).collect();
    Ok(groups.join(" | "))
}

fn endpoints(slice: &Value) -> impl Iterator<Item = &Value> {
    slice["endpoints"].as_array().into_iter().flatten()
}

/// The label that says whom a slice is for (C1), with what follows it in the text.
fn subset(slice: &Value) -> String {
    let labels = ["for-zone", "for-region"].iter().filter_map(|name| {
        let value = &slice["metadata"]["labels"][format!("endpointslice.kubernetes.io/{name}")];
        Some(format!("{name}={}: ", value.as_str()?))
    });
    labels.collect()
}

/// Slices of one kind.
fn group(subset: &str, slices: &[&Value]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for endpoint in slices.iter().flat_map(|slice| endpoints(slice)) {
        let hints = endpoint["hints"]["forZones"].as_array();
        let hints: Vec<&str> =
            hints.into_iter().flatten().map(|hint| hint["name"].as_str().unwrap()).collect();
        let arrow = if hints.is_empty() { "" } else { ">" };
        let zone = endpoint["zone"].as_str().unwrap_or("?");
        *counts.entry(format!("{zone}{arrow}{}", hints.join("+"))).or_default() += 1;
    }
    let number =
        if slices.len() == 1 { String::new() } else { format!("{} slices: ", slices.len()) };
    let counts: Vec<String> =
        counts.iter().map(|(kind, count)| format!("{kind}*{count}")).collect();
    let shares: BTreeSet<&str> = slices
        .iter()
        .filter_map(|slice| slice["metadata"]["annotations"][SHARES].as_str())
        .collect();
    let shares: String = shares.iter().map(|shares| format!(" {shares}")).collect();
    format!("{subset}{number}{}{shares}", counts.join(" ")).trim_end().to_owned()
}

/// The reasons of the conditions `Accepted` and `Programmed`, with `not` before those that are false.
fn conditions(service: &Value) -> String {
    let all = service["status"]["conditions"].as_array();
    let reason = |kind: &str| {
        let kind = format!("zonewise.dev/RoutingPreference{kind}");
        let found = all?.iter().find(|condition| condition["type"] == kind.as_str())?;
        let not = if found["status"] == "True" { "" } else { "not " };
        Some(format!("{not}{}", found["reason"].as_str()?))
    };
    let reasons: Vec<String> = ["Accepted", "Programmed"].into_iter().filter_map(reason).collect();
    reasons.join("; ")
}

/// The message of the condition `Accepted`.
fn accepted_message(service: &Value) -> String {
    let all = service["status"]["conditions"].as_array().unwrap();
    let kind = "zonewise.dev/RoutingPreferenceAccepted";
    let found = all.iter().find(|condition| condition["type"] == kind).unwrap();
    found["message"].as_str().unwrap().to_owned()
}

/// A Node whose status says that it is not ready.
fn unready(mut node: Value) -> Value {
    zonewise_testbed::objects::set_ready(&mut node, false);
    node
}

/// A Node with one more label.
fn labelled(mut node: Value, label: &str) -> Value {
    node["metadata"]["labels"][label] = "".into();
    node
}

/// A Node that does not say its zone.
fn zoneless(mut node: Value) -> Value {
    let labels = node["metadata"]["labels"].as_object_mut().unwrap();
    labels.retain(|label, _| !label.starts_with("topology.kubernetes.io/"));
    node
}

/// A Node that does not say its CPU.
fn without_cpu(mut node: Value) -> Value {
    for field in ["capacity", "allocatable"] {
        node["status"][field] = json!({ "memory": "16Gi", "pods": "1000" });
    }
    node
}
