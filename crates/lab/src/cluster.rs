//! The whole cluster: API server, controller, nodes with their proxies and clients, Pods, Services.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::query_parameter;
use zonewise_common::keys::{LAB, SERVICE_NAME};
use zonewise_common::name::SYSTEM_NAMESPACE;
use zonewise_common::proxy_report::ProxyReport;
use zonewise_controller::config::{DemandConfig, File, Source};
use zonewise_netns::Namespace;

use crate::api::{Api, NODES, PODS, SERVICES, SLICES};
use crate::ground::{Ground, Node};
use crate::inside::InsideProgram;
use crate::kubelet::{Kubelet, PodView, now};
use crate::objects::{self, SERVICE_PORT};
use crate::proxies;
use crate::relay::Relay;
use crate::rights::Place;
use crate::scenario::{Scenario, Service, Zone};
use crate::traffic::{Target, Traffic};
use crate::view::Kernel;
use crate::watcher::ServiceStatus;

/// How to reach the API server.
#[derive(Clone)]
pub(crate) struct Access {
    /// Client configuration for this process.
    pub(crate) config: kube::Config,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    /// It is not the embedded one: it continues after the lab, and may hold Pods that the lab did not make.
    pub(crate) lives_on: bool,
    /// A file with the token with which the controller asks the proxies what they have counted; `None` if demand is not
    /// measured.
    pub(crate) demand_token: Option<PathBuf>,
}

/// A running cluster. Dropping it removes everything that it made on this machine.
pub(crate) struct Cluster {
    /// Before the relay, which it needs until it has ended.
    controller: Option<InsideProgram>,
    /// Requests to the API server.
    pub(crate) api: Api,
    /// The place where it is.
    pub(crate) place: Place,
    /// Zones of the scenario, in order.
    pub(crate) zones: Vec<Zone>,
    /// Services of the scenario, in order.
    pub(crate) services: Vec<Service>,
    /// Runs the Pods.
    pub(crate) kubelet: Kubelet,
    /// The clients that make connections.
    pub(crate) traffic: Mutex<Traffic>,
    /// Connections to the Services of the scenario, as last set.
    targets: Mutex<Vec<Option<Target>>>,
    /// Services that users have created, in the order of their appearance. Names are never taken away, because clients
    /// count connections under their numbers.
    user_services: Mutex<Vec<String>>,
    /// Users may create Services and Pods of their own: the API server is the lab's.
    allows_user_services: bool,
    /// A network namespace of a client in each zone, as a path; of none in memory.
    callers: Mutex<BTreeMap<String, PathBuf>>,
    inside: kube::Config,
    /// The proxies count connections by Service, for the controller.
    counts: bool,
    lab_nodes: Mutex<BTreeMap<String, LabNode>>,
    pods_made: AtomicUsize,
    ground: Arc<Mutex<Ground>>,
    _relay: Option<Relay>,
}

/// A node of the cluster. Its proxy runs while the node is on.
pub(crate) struct LabNode {
    pub(crate) node: Node,
    pub(crate) state: NodeState,
    proxy: Option<InsideProgram>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// It runs, and takes Pods.
    On,
    /// It still runs, but takes no new Pods because it is about to be switched off.
    Leaving,
    /// It cannot be reached, and its Node object still exists.
    Lost,
    /// It was removed from the cluster; its namespace is kept and may be used again.
    Gone,
}

/// How long Pods may take to become ready.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(25);
/// Connections per second to a Service that a user has created.
const GUEST_CONNECTIONS: f64 = 30.0;

impl Cluster {
    /// Starts everything except connections to the Services, in this place. `progress` is called with each step.
    ///
    /// # Errors
    /// If something cannot be made. What was made until then is removed.
    pub(crate) async fn start(
        scenario: &Scenario,
        place: Place,
        access: Access,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> anyhow::Result<Self> {
        let api = Api::new(Client::try_from(access.config.clone())?);
        let kernel = place.kernel();
        progress(match kernel {
            Kernel::Real => "network namespaces",
            Kernel::Memory => "kernels in memory",
        });
        let zones = scenario.cluster.zones.clone();
        let delay = scenario.cluster.delay.0;
        let names: Vec<String> = zones.iter().map(|zone| zone.name.clone()).collect();
        let (ground, listener) =
            tokio::task::spawn_blocking(move || Ground::new(kernel, &names, delay)).await??;
        let (inside, relay) = match listener {
            Some(listener) => (
                inside(&access, listener.local_addr()?)?,
                Some(Relay::start(listener, access.address)?),
            ),
            None => (access.config.clone(), None),
        };
        let router = ground.router();
        let ground = Arc::new(Mutex::new(ground));
        let kubelet = Kubelet::start(api.clone(), Arc::clone(&ground), !access.lives_on);
        let traffic = Mutex::new(Traffic::new(scenario.services.len()));
        progress("controller");
        let counts = access.demand_token.is_some();
        let controller = Some(controller(router, inside.clone(), access.demand_token)?);
        let cluster = Self {
            controller,
            api,
            place,
            services: scenario.services.clone(),
            zones,
            kubelet,
            traffic,
            targets: Mutex::default(),
            user_services: Mutex::default(),
            allows_user_services: !access.lives_on,
            callers: Mutex::default(),
            inside,
            counts,
            lab_nodes: Mutex::default(),
            pods_made: AtomicUsize::new(0),
            ground,
            _relay: relay,
        };
        cluster.populate(progress).await?;
        Ok(cluster)
    }

    async fn populate(&self, progress: &(dyn Fn(&str) + Send + Sync)) -> anyhow::Result<()> {
        match self.api.create("/api/v1/namespaces", &objects::system_namespace()).await {
            Err(ApiError::Refused(message)) if message.contains("already exists") => {}
            answer => {
                answer
                    .with_context(|| format!("cannot create the namespace {SYSTEM_NAMESPACE}"))?;
            }
        }
        progress("nodes with their proxies");
        for zone in &self.zones {
            for _ in 0..zone.nodes {
                let node = self.add_node(&zone.name).await?;
                self.start_client(&node).await?;
            }
        }
        progress("Services and Pods");
        for service in &self.services {
            self.api
                .create(SERVICES, &objects::service(service))
                .await
                .with_context(|| format!("cannot create Service {}", service.name))?;
            for (zone, count) in &service.endpoints {
                self.create_pods(&service.name, zone, *count).await?;
            }
        }
        self.pods_ready().await
    }

    /// Names of zones, in order.
    pub(crate) fn zone_names(&self) -> Vec<String> {
        self.zones.iter().map(|zone| zone.name.clone()).collect()
    }

    pub(crate) fn zone_index(&self, name: &str) -> usize {
        self.zones.iter().position(|zone| zone.name == name).unwrap_or(0)
    }

    pub(crate) fn lab_nodes(&self) -> MutexGuard<'_, BTreeMap<String, LabNode>> {
        self.lab_nodes.lock()
    }

    pub(crate) fn ground(&self) -> MutexGuard<'_, Ground> {
        self.ground.lock()
    }

    pub(crate) fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock()
    }

    /// Nodes that are on.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let lab_nodes = self.lab_nodes();
        let on = lab_nodes.values().filter(|lab_node| lab_node.state == NodeState::On);
        on.map(|lab_node| lab_node.node.clone()).collect()
    }

    // === nodes ===

    /// Adds a node to a zone, without a client: one that was removed before, or a new one.
    pub(crate) async fn add_node(&self, zone: &str) -> anyhow::Result<Node> {
        let off =
            |lab_node: &&LabNode| lab_node.state == NodeState::Gone && lab_node.node.zone == zone;
        let resting = self.lab_nodes().values().find(off).map(|lab_node| lab_node.node.clone());
        let node = match resting {
            Some(node) => {
                self.ground().reconnect(&node)?;
                node
            }
            None => self.build_node(zone).await?,
        };
        let cores = self.zones[self.zone_index(zone)].cores;
        self.api
            .create(NODES, &objects::node(&node, cores, &now()))
            .await
            .with_context(|| format!("cannot create Node {}", node.name))?;
        self.switch_on(&node)?;
        Ok(node)
    }

    async fn build_node(&self, zone: &str) -> anyhow::Result<Node> {
        let count = self.lab_nodes().values().filter(|lab_node| lab_node.node.zone == zone).count();
        let (name, zone) = (format!("{zone}-{}", count + 1), zone.to_owned());
        self.on_ground(move |ground| ground.add_node(&name, &zone)).await
    }

    async fn on_ground<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Ground) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let ground = Arc::clone(&self.ground);
        let work = move || work(&mut ground.lock());
        tokio::task::spawn_blocking(work).await?
    }

    /// Starts a node's proxy, and lets Pods run on it.
    pub(crate) fn switch_on(&self, node: &Node) -> anyhow::Result<()> {
        let proxy = Some(proxies::start(node, self.inside.clone(), self.counts)?);
        self.kubelet.add_node(node);
        let lab_node = LabNode { node: node.clone(), state: NodeState::On, proxy };
        self.lab_nodes().insert(node.name.clone(), lab_node);
        Ok(())
    }

    /// Stops a node's proxy, and disconnects the node from the network.
    pub(crate) async fn switch_off(&self, name: &str, state: NodeState) -> anyhow::Result<()> {
        self.kubelet.remove_node(name);
        let (node, proxy) = match self.lab_nodes().get_mut(name) {
            Some(lab_node) => {
                lab_node.state = state;
                (lab_node.node.clone(), lab_node.proxy.take())
            }
            None => return Ok(()),
        };
        self.ground().disconnect(&node)?;
        tokio::task::spawn_blocking(move || drop(proxy)).await?;
        Ok(())
    }

    /// Removes a node and its objects from the cluster.
    pub(crate) async fn remove_node(&self, name: &str) -> anyhow::Result<()> {
        self.switch_off(name, NodeState::Gone).await?;
        self.api.delete(&format!("{NODES}/{name}"), None).await?;
        self.api.delete(&ProxyReport::path(name), None).await?;
        Ok(())
    }

    /// Nodes of a zone in one state, by name.
    pub(crate) fn nodes_of(&self, zone: &str, state: NodeState) -> Vec<Node> {
        let lab_nodes = self.lab_nodes();
        let of = |lab_node: &&LabNode| lab_node.node.zone == zone && lab_node.state == state;
        lab_nodes.values().filter(of).map(|lab_node| lab_node.node.clone()).collect()
    }

    pub(crate) fn set_state(&self, name: &str, state: NodeState) {
        if let Some(lab_node) = self.lab_nodes().get_mut(name) {
            lab_node.state = state;
        }
    }

    /// Starts a client on a node. Its Pod is kept as long as the node.
    pub(crate) async fn start_client(&self, node: &Node) -> anyhow::Result<()> {
        let (on, name) = (node.clone(), format!("client-{}", node.name));
        let client = self.on_ground(move |ground| {
            let there = ground.pod(&name);
            there.map_or_else(|| ground.add_pod(&on, &name), Ok)
        });
        let client = client.await?;
        if let Some(path) = client.namespace_path() {
            self.callers.lock().entry(node.zone.clone()).or_insert(path);
        }
        self.traffic().start(&node.name, self.zone_index(&node.zone), client.caller());
        Ok(())
    }

    /// Stops the client of a node.
    pub(crate) async fn stop_client(&self, node: &str) -> anyhow::Result<()> {
        let client = self.traffic().take(node);
        // Dropping waits for its last connection, which may take a while.
        Ok(tokio::task::spawn_blocking(move || drop(client)).await?)
    }

    // === Pods ===

    /// Creates Pods of a Service in a zone, each on the node that has the fewest.
    pub(crate) async fn create_pods(
        &self,
        service: &str,
        zone: &str,
        count: usize,
    ) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for _ in 0..count {
            let node = self.node_with_fewest_pods(zone, &names)?;
            let number = self.pods_made.fetch_add(1, Ordering::Relaxed) + 1;
            let name = format!("{service}-{zone}-{number}");
            self.api
                .create(PODS, &objects::pod(service, &name, &node))
                .await
                .with_context(|| format!("cannot create Pod {name}"))?;
            names.push((name, node));
        }
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }

    fn node_with_fewest_pods(
        &self,
        zone: &str,
        planned: &[(String, String)],
    ) -> anyhow::Result<String> {
        let pods = self.kubelet.pods();
        let nodes = self.nodes();
        let here = nodes.iter().filter(|node| node.zone == zone);
        let load = |node: &&Node| {
            pods.iter().filter(|pod| pod.node == node.name && !pod.ending).count()
                + planned.iter().filter(|(_, on)| *on == node.name).count()
        };
        match here.min_by_key(load) {
            Some(node) => Ok(node.name.clone()),
            None => bail!("zone {zone} has no node for a Pod"),
        }
    }

    /// Waits until every Pod of the lab is ready and none is being deleted.
    pub(crate) async fn pods_ready(&self) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let wanted = self.api.list(PODS, &format!("&labelSelector={LAB}%3Dpod")).await?;
            let running = self.kubelet.pods();
            let ready = running.iter().filter(|pod| pod.ours && pod.ready && !pod.ending).count();
            let ending = |pod: &Value| !pod["metadata"]["deletionTimestamp"].is_null();
            if ready >= wanted.len() && !wanted.iter().any(ending) {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!("only {ready} of {} Pods are ready after two minutes", wanted.len());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    // === clients ===

    /// Sets how many connections per second the clients make: `rates[service][zone]`.
    pub(crate) async fn aim(&self, rates: &[Vec<f64>]) -> anyhow::Result<()> {
        let stored = self.api.list(SERVICES, "").await?;
        let address = |service: &Service| -> Option<SocketAddr> {
            let found = stored.iter().find(|one| one["metadata"]["name"] == *service.name)?;
            let ip = found["spec"]["clusterIP"].as_str()?.parse().ok()?;
            Some(SocketAddr::new(ip, SERVICE_PORT))
        };
        // Before the traffic is locked: `serve_user_services` locks the names first.
        let of_users = self.user_services().len();
        let traffic = self.traffic();
        let clients: Vec<f64> =
            (0..self.zones.len()).map(|zone| traffic.clients(zone).max(1) as f64).collect();
        let target = |(service, rates): (&Service, &Vec<f64>)| {
            let per_client = rates.iter().zip(&clients).map(|(rate, clients)| rate / clients);
            Some(Target { to: address(service)?, per_client: per_client.collect() })
        };
        let mut targets: Vec<_> = self.services.iter().zip(rates).map(target).collect();
        *self.targets.lock() = targets.clone();
        // Those of users get theirs with the next observation.
        targets.resize(targets.len() + of_users, None);
        traffic.aim(targets);
        Ok(())
    }

    /// Services that users have created, in the order of their appearance.
    pub(crate) fn user_services(&self) -> Vec<String> {
        self.user_services.lock().clone()
    }

    /// Network namespaces of clients by zone, as paths.
    pub(crate) fn callers(&self) -> BTreeMap<String, PathBuf> {
        self.callers.lock().clone()
    }

    /// Lets the clients connect to Services that users have created, as long as they have ready Pods.
    pub(crate) fn serve_user_services(&self, statuses: &BTreeMap<String, ServiceStatus>) {
        if !self.allows_user_services {
            return;
        }
        let mut user_services = self.user_services.lock();
        let ours = |name: &String| self.services.iter().any(|service| service.name == *name);
        for name in statuses.keys().filter(|name| !ours(name)) {
            if !user_services.contains(name) {
                user_services.push(name.clone());
            }
        }
        let pods = self.kubelet.pods();
        let traffic = self.traffic();
        let clients: usize = (0..self.zones.len()).map(|zone| traffic.clients(zone)).sum();
        let target = |name: &String| {
            let status = statuses.get(name)?;
            let ready = |pod: &PodView| status.selects(pod) && pod.ready && !pod.ending;
            let per_client = vec![GUEST_CONNECTIONS / clients.max(1) as f64; self.zones.len()];
            pods.iter().any(ready).then_some(Target { to: status.address()?, per_client })
        };
        let own = self.targets.lock().clone();
        traffic.aim(own.into_iter().chain(user_services.iter().map(target)).collect());
    }

    /// Stops the controller before anything else, so that it can still reach the API server, then the rest.
    pub(crate) async fn stop(mut self) {
        let controller = self.controller.take();
        let _ = tokio::task::spawn_blocking(move || drop(controller)).await;
        let traffic = std::mem::replace(self.traffic.get_mut(), Traffic::new(0));
        let lab_nodes = std::mem::take(&mut *self.lab_nodes());
        let _ = tokio::task::spawn_blocking(move || {
            drop(traffic);
            // Every proxy is told to stop before the first is waited for, so that they stop in parallel.
            let proxies = lab_nodes.values().filter_map(|lab_node| lab_node.proxy.as_ref());
            proxies.for_each(InsideProgram::stop);
            drop(lab_nodes);
        })
        .await;
    }
}

/// Deletes all objects of labs from an API server. Returns how many.
///
/// # Errors
/// If it does not answer.
pub async fn clear(api: &Api) -> anyhow::Result<usize> {
    let selector = format!("&labelSelector={LAB}");
    let mut removed = 0;
    for path in [SERVICES, PODS, NODES] {
        for object in api.list(path, &selector).await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            api.delete(&format!("{path}/{name}"), Some(0)).await?;
            removed += 1;
            if path == SERVICES {
                let slices = query_parameter("labelSelector", &format!("{SERVICE_NAME}={name}"));
                for slice in api.list(SLICES, &slices).await? {
                    let name = slice["metadata"]["name"].as_str().unwrap_or_default();
                    api.delete(&format!("{SLICES}/{name}"), None).await?;
                }
            }
            if path == NODES {
                api.delete(&ProxyReport::path(name), None).await?;
            }
        }
    }
    Ok(removed)
}

/// How the nodes reach the API server: at the relay's address, under the server's own name for TLS.
fn inside(access: &Access, listener: SocketAddr) -> anyhow::Result<kube::Config> {
    let mut config = access.config.clone();
    let host = config.cluster_url.host().unwrap_or_default();
    let host = host.trim_matches(['[', ']']).to_owned();
    config.tls_server_name.get_or_insert(host);
    let scheme = config.cluster_url.scheme_str().unwrap_or("https").to_owned();
    config.cluster_url = format!("{scheme}://{listener}").parse()?;
    config.proxy_url = None;
    Ok(config)
}

/// Starts the controller in the network between the nodes: from there it reaches the proxies.
fn controller(
    router: Option<Namespace>,
    access: kube::Config,
    demand_token: Option<PathBuf>,
) -> anyhow::Result<InsideProgram> {
    let mut config =
        File::default().resolve("zonewise-lab").context("the controller's configuration")?;
    config.health_address = ([127, 0, 0, 1], 0).into();
    config.metrics_address = ([127, 0, 0, 1], 0).into();
    config.lease = None;
    if let Some(token_file) = demand_token {
        config.demand =
            DemandConfig { source: Source::Proxies, token_file, ..DemandConfig::default() };
        config.settings.failures_are_watched = true;
    }
    let run =
        |client, shutdown| async { Ok(zonewise_controller::run(client, config, shutdown).await?) };
    Ok(InsideProgram::start("controller".into(), router, access, run))
}
