//! Runs Pods: each gets an address and servers, with the machine's kernel in a network namespace, and is removed when it is
//! deleted.
//!
//! ```text
//!  watch ─► Pod without a node ──► bound to a node
//!           Pod on our node ─────► address, servers ─► status: Running, ready, address
//!           being deleted ───────► serves until its grace period is over ─► address free, Pod deleted
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, ContentType, WatchListener, follow};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::keys::LAB;
use zonewise_common::lenient::lenient;
use zonewise_common::name::{Key, Keyed, Name};

use crate::api::{Api, NODES};
use crate::ground::{Ground, Node, Pod, Servers};
use crate::objects::{self, PORT};
use crate::scenario::GRACE;
use crate::scheduler::{Candidate, Placed, group, place, takes};
use crate::watcher::shown_name;

/// Pods that declare no port are reached here too: most images that people name serve on it.
const HTTP_PORT: u16 = 80;

/// Runs the Pods of the lab's nodes.
#[derive(Debug)]
pub(crate) struct Kubelet {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    api: Api,
    ground: Arc<Mutex<Ground>>,
    bind_all: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<Key, Running>,
    /// Pods that were bound to a node and do not run yet.
    bound: BTreeMap<Key, Placed>,
}

/// A Pod whose servers exist.
struct Running {
    uid: String,
    labels: BTreeMap<String, String>,
    /// Names and images of its containers.
    containers: Vec<(String, String)>,
    ours: bool,
    pod: Pod,
    servers: Servers,
    ready: bool,
    ending: bool,
}

/// A Pod as other modules see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodView {
    /// Its name; with its namespace if that is not the lab's.
    pub(crate) name: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its labels when it was started.
    pub(crate) labels: BTreeMap<String, String>,
    /// The lab created it. Pods that users create are run too, but the lab never deletes or replaces them.
    pub(crate) ours: bool,
    /// Name of its node.
    pub(crate) node: String,
    /// Its zone.
    pub(crate) zone: String,
    /// Its servers run, and its status says so.
    pub(crate) ready: bool,
    /// It is being deleted.
    pub(crate) ending: bool,
}

impl PodView {
    /// Whether it is a Pod of a Service of the scenario.
    pub(crate) fn is_of(&self, service: &str) -> bool {
        self.namespace == "default" && self.labels.get("app").is_some_and(|app| app == service)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Kubelet").finish_non_exhaustive()
    }
}

impl Kubelet {
    /// Starts to watch and run Pods. With `bind_all`, every Pod without a node is bound to one, otherwise only
    /// Pods that a lab made.
    pub(crate) fn start(api: Api, ground: Arc<Mutex<Ground>>, bind_all: bool) -> Self {
        let (heard, events) = mpsc::unbounded_channel();
        let client = api.client().clone();
        let shared = Arc::new(Shared { api, ground, bind_all, state: Mutex::default() });
        let mut tasks = JoinSet::new();
        // The lab looks at fields of Pods that the programs, and so their tables for protobuf, do not know.
        let pods = watch::PODS.encoded_as(ContentType::Json);
        tasks.spawn(follow(client, pods, PodListener { heard: heard.clone() }));
        tasks.spawn(work(Arc::clone(&shared), heard, events));
        Self { shared, _tasks: tasks }
    }

    /// Runs the Pods of one more node.
    pub(crate) fn add_node(&self, node: &Node) {
        self.shared.state().nodes.insert(node.name.clone(), node.clone());
    }

    /// Starts no more Pods on a node.
    pub(crate) fn remove_node(&self, node: &str) {
        self.shared.state().nodes.remove(node);
    }

    /// All running Pods, ordered by namespace and name.
    pub(crate) fn pods(&self) -> Vec<PodView> {
        let state = self.shared.state();
        let view = |(key, running): (&Key, &Running)| PodView {
            name: running.pod.name.clone(),
            namespace: key.0.to_string(),
            labels: running.labels.clone(),
            ours: running.ours,
            node: running.pod.node.clone(),
            zone: running.pod.zone.clone(),
            ready: running.ready,
            ending: running.ending,
        };
        state.pods.iter().map(view).collect()
    }
}

impl State {
    /// All Pods that run or will run.
    fn keys(&self) -> Vec<Key> {
        self.pods.keys().chain(self.bound.keys()).cloned().collect()
    }

    /// All Pods that have a node.
    fn placed(&self) -> Vec<Placed> {
        let running = self.pods.iter().filter(|(_, running)| !running.ending);
        let running = running.map(|(key, running)| Placed {
            node: running.pod.node.clone(),
            group: group(&key.0, &running.labels),
        });
        running.chain(self.bound.values().cloned()).collect()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

// === what the watch reports ===

#[derive(Deserialize)]
struct WatchedPod {
    metadata: Metadata,
    spec: Spec,
    #[serde(default, deserialize_with = "lenient")]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Name,
    #[serde(default, deserialize_with = "lenient")]
    namespace: Name,
    uid: String,
    #[serde(default, deserialize_with = "lenient")]
    labels: BTreeMap<String, Option<String>>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    node_selector: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "lenient")]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default, deserialize_with = "lenient")]
    image: String,
    #[serde(default, deserialize_with = "lenient")]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    container_port: u16,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
}

impl Keyed for WatchedPod {
    fn key(&self) -> Key {
        (Name::clone(&self.metadata.namespace), Name::clone(&self.metadata.name))
    }
}

impl WatchedPod {
    fn is_ours(&self) -> bool {
        &*self.metadata.namespace == "default" && self.metadata.labels.contains_key(LAB)
    }

    fn ports(&self) -> BTreeSet<u16> {
        let ports = self.spec.containers.iter().flat_map(|container| &container.ports);
        let ports: BTreeSet<u16> = ports.map(|port| port.container_port).collect();
        if ports.is_empty() { BTreeSet::from([HTTP_PORT, PORT]) } else { ports }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.metadata.labels.iter();
        labels.filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
    }
}

enum Event {
    WatchedPod(Box<WatchedPod>),
    Gone(Key),
    /// A list is complete: Pods that are not among these keys no longer exist.
    Only(BTreeSet<Key>),
}

struct PodListener {
    heard: mpsc::UnboundedSender<Event>,
}

impl WatchListener for PodListener {
    type Object = WatchedPod;

    fn read(&self, object: Encoded<'_>) -> Result<WatchedPod, DecodeError> {
        object.decode()
    }

    fn apply(&mut self, object: WatchedPod) {
        let _ = self.heard.send(Event::WatchedPod(Box::new(object)));
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        tracing::warn!(pod = %key.1, error, "a Pod cannot be read; it is ignored");
    }

    fn delete(&mut self, _: u64, key: &Key) {
        let _ = self.heard.send(Event::Gone(key.clone()));
    }

    fn listed(&mut self, _: u64, keys: &BTreeSet<Key>) {
        let _ = self.heard.send(Event::Only(keys.clone()));
    }

    fn health(&mut self, _: Result<(), &ApiError>) {}
}

// === what is done about it ===

/// Time until a Pod that could not be started is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

async fn work(
    shared: Arc<Shared>,
    heard: mpsc::UnboundedSender<Event>,
    mut events: mpsc::UnboundedReceiver<Event>,
) {
    while let Some(event) = events.recv().await {
        match event {
            Event::WatchedPod(seen) => {
                if let Err(error) = see(&shared, &seen).await {
                    tracing::warn!(pod = %seen.metadata.name, "a Pod cannot be run yet: {error:#}");
                    let heard = heard.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(RETRY_DELAY).await;
                        let _ = heard.send(Event::WatchedPod(seen));
                    });
                }
            }
            Event::Gone(key) => remove(&shared, &key).await,
            Event::Only(keys) => {
                let known = shared.state().keys();
                for key in known.iter().filter(|key| !keys.contains(*key)) {
                    remove(&shared, key).await;
                }
            }
        }
    }
}

async fn see(shared: &Arc<Shared>, seen: &WatchedPod) -> anyhow::Result<()> {
    let key = seen.key();
    if seen.metadata.deletion_timestamp.is_some() {
        end(shared, key, seen);
        return Ok(());
    }
    let Some(node) = &seen.spec.node_name else {
        return bind(shared, seen).await;
    };
    let node = shared.state().nodes.get(node).cloned();
    let unready = shared.state().pods.get(&key).map(|running| !running.ready);
    match (node, unready) {
        (Some(node), None) if seen.status.pod_ip.is_none() => {
            begin(shared, &key, seen, node).await?;
            announce(shared, &key).await
        }
        (_, Some(true)) => announce(shared, &key).await,
        _ => Ok(()),
    }
}

/// The lab's scheduler: binds a Pod to a node.
async fn bind(shared: &Arc<Shared>, seen: &WatchedPod) -> anyhow::Result<()> {
    if !shared.bind_all && !seen.is_ours() {
        return Ok(());
    }
    let known = shared.api.list(NODES, "").await?;
    let takes = |name: &str| {
        let found = known.iter().find(|node| node["metadata"]["name"] == name);
        found.is_some_and(|node| takes(node, &seen.spec.node_selector))
    };
    let group = group(&seen.metadata.namespace, &seen.labels());
    let placed = {
        let state = shared.state();
        let nodes = state.nodes.values().filter(|node| takes(&node.name));
        let candidate =
            |node: &Node| Candidate { name: node.name.clone(), zone: node.zone.clone() };
        let candidates: Vec<Candidate> = nodes.map(candidate).collect();
        let node = place(&candidates, &state.placed(), &group).map(str::to_owned);
        node.map(|node| Placed { node, group })
    };
    let placed = placed.context("no node takes it: all are cordoned, lost, or lack labels")?;
    let node = placed.node.clone();
    shared.state().bound.insert(seen.key(), placed);
    let Metadata { namespace, name, .. } = &seen.metadata;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    match shared.api.create(&path, &binding).await {
        // It was deleted, or another client has bound it.
        Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => {
            shared.state().bound.remove(&seen.key());
            Ok(())
        }
        answer => Ok(answer.map(drop)?),
    }
}

async fn begin(
    shared: &Arc<Shared>,
    key: &Key,
    seen: &WatchedPod,
    node: Node,
) -> anyhow::Result<()> {
    let name = shown_name(&seen.metadata.namespace, &seen.metadata.name);
    let ports = seen.ports();
    let ground = Arc::clone(&shared.ground);
    let made = tokio::task::spawn_blocking(move || make(&ground, &node, &name, &ports)).await?;
    let (pod, servers) = made?;
    let labels = seen.labels();
    let (uid, ours) = (seen.metadata.uid.clone(), seen.is_ours());
    let containers = seen.spec.containers.iter();
    let containers = containers.map(|one| (one.name.clone(), one.image.clone())).collect();
    let (ready, ending) = (false, false);
    let running = Running { uid, labels, containers, ours, pod, servers, ready, ending };
    let mut state = shared.state();
    state.bound.remove(key);
    state.pods.insert(key.clone(), running);
    Ok(())
}

/// Sets a Pod's status to running and ready.
async fn announce(shared: &Arc<Shared>, key: &Key) -> anyhow::Result<()> {
    let known = shared.state().pods.get(key).map(|one| (one.pod.v4, one.containers.clone()));
    let Some((address, containers)) = known else { return Ok(()) };
    let path = format!("/api/v1/namespaces/{}/pods/{}/status", key.0, key.1);
    match shared.api.merge(&path, &objects::pod_running(address, &containers, &now())).await {
        // The Pod was deleted in the meantime.
        Err(ApiError::NotFound(_)) => remove(shared, key).await,
        answer => {
            answer?;
            if let Some(running) = shared.state().pods.get_mut(key) {
                running.ready = true;
            }
        }
    }
    Ok(())
}

fn make(
    ground: &Mutex<Ground>,
    node: &Node,
    name: &str,
    ports: &BTreeSet<u16>,
) -> anyhow::Result<(Pod, Servers)> {
    let pod = ground.lock().add_pod(node, name)?;
    let servers = pod.serve(ports)?;
    Ok((pod, servers))
}

/// A Pod that is being deleted serves until its grace period is over, at most [`GRACE`], and is removed.
fn end(shared: &Arc<Shared>, key: Key, seen: &WatchedPod) {
    let mut state = shared.state();
    let Some(running) = state.pods.get_mut(&key) else { return };
    if running.ending || running.uid != seen.metadata.uid {
        return;
    }
    running.ending = true;
    drop(state);
    let allowed = Duration::from_secs(seen.metadata.deletion_grace_period_seconds.unwrap_or(0));
    let grace = allowed.min(GRACE);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        tokio::time::sleep(grace).await;
        remove(&shared, &key).await;
        let path = format!("/api/v1/namespaces/{}/pods/{}", key.0, key.1);
        if let Err(error) = shared.api.delete(&path, Some(0)).await {
            tracing::warn!(pod = %key.1, %error, "a Pod that has ended cannot be deleted");
        }
    });
}

async fn remove(shared: &Arc<Shared>, key: &Key) {
    shared.state().bound.remove(key);
    let Some(running) = shared.state().pods.remove(key) else { return };
    let ground = Arc::clone(&shared.ground);
    let removed = tokio::task::spawn_blocking(move || {
        let Running { pod, servers, .. } = running;
        drop(servers);
        ground.lock().remove_pod(&pod)
    });
    if let Ok(Err(error)) = removed.await {
        tracing::warn!(pod = %key.1, %error, "a Pod's namespace cannot be removed");
    }
}

/// The current time, as Kubernetes objects write it.
pub(crate) fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}
