//! The whole cluster: API server, controller, nodes with their proxies and clients, Pods, Services.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use kube::Client;
use serde_json::Value;
use tokio::task::JoinHandle;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::parameter;
use zonewise_common::keys::{LAB, SERVICE_NAME};
use zonewise_common::name::SYSTEM_NAMESPACE;
use zonewise_common::proxy_report::ProxyReport;
use zonewise_controller::config::File;
use zonewise_netns::{ClusterNetwork, NetnsNode};
use zonewise_telemetry::shutdown::Shutdown;

use crate::api::{Api, NODES, PODS, SERVICES, SLICES};
use crate::kubelet::{Kubelet, now};
use crate::objects::{self, SERVICE_PORT};
use crate::proxies::Proxy;
use crate::relay::Relay;
use crate::scenario::{Scenario, Service, Zone};
use crate::traffic::{Target, Traffic};

/// How the API server is reached, from here.
#[derive(Clone)]
pub struct Access {
    /// By this process, and by kubectl.
    pub config: kube::Config,
    /// Where it listens.
    pub address: SocketAddr,
    /// It lives on without the lab, and may have Pods of others.
    pub lives_on: bool,
}

/// A running cluster. Everything of it on this box goes when it is dropped.
pub struct Cluster {
    /// The API server.
    pub api: Api,
    /// Zones of the scenario, in order.
    pub zones: Vec<Zone>,
    /// Services of the scenario, in order.
    pub services: Vec<Service>,
    /// Pods.
    pub kubelet: Kubelet,
    /// Those who call.
    pub traffic: Mutex<Traffic>,
    inside: kube::Config,
    machines: Mutex<BTreeMap<String, Machine>>,
    pods_made: AtomicUsize,
    network: Arc<Mutex<ClusterNetwork>>,
    _relay: Relay,
    controller: Controller,
}

/// A node: its proxy runs while it is on.
pub(crate) struct Machine {
    pub(crate) node: NetnsNode,
    pub(crate) power: Power,
    proxy: Option<Proxy>,
}

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// It runs.
    On,
    /// It runs, and is about to go: no Pod comes to it any more.
    Leaving,
    /// It is out of reach, and its Node object is still there.
    Lost,
    /// It is not part of the cluster.
    Gone,
}

struct Controller {
    shutdown: Shutdown,
    task: Option<JoinHandle<()>>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

/// How long everything may take to come up.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(25);

impl Cluster {
    /// Brings everything up but the Services' callers. `tell` hears what is being done.
    ///
    /// # Errors
    /// If something cannot be made; what was made is gone then.
    pub async fn start(
        scenario: &Scenario,
        access: Access,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> anyhow::Result<Self> {
        let api = Api::new(Client::try_from(access.config.clone())?);
        tell("network namespaces");
        let zones = scenario.cluster.zones.clone();
        let delay = scenario.cluster.delay.0;
        let names: Vec<String> = zones.iter().map(|zone| zone.name.clone()).collect();
        let (network, listener) =
            tokio::task::spawn_blocking(move || network(&names, delay)).await??;
        let inside = inside(&access, listener.local_addr()?)?;
        let relay = Relay::start(listener, access.address)?;
        let network = Arc::new(Mutex::new(network));
        let kubelet = Kubelet::start(api.clone(), Arc::clone(&network), !access.lives_on);
        let traffic = Mutex::new(Traffic::new(scenario.services.len()));
        tell("controller");
        let controller = controller(&api)?;
        let cluster = Self {
            api,
            services: scenario.services.clone(),
            zones,
            kubelet,
            traffic,
            inside,
            machines: Mutex::default(),
            pods_made: AtomicUsize::new(0),
            network,
            _relay: relay,
            controller,
        };
        cluster.populate(tell).await?;
        Ok(cluster)
    }

    async fn populate(&self, tell: &(dyn Fn(&str) + Send + Sync)) -> anyhow::Result<()> {
        match self.api.create("/api/v1/namespaces", &objects::system_namespace()).await {
            Err(ApiError::Refused(message)) if message.contains("already exists") => {}
            answer => {
                answer
                    .with_context(|| format!("cannot create the namespace {SYSTEM_NAMESPACE}"))?;
            }
        }
        tell("nodes with their proxies");
        for zone in &self.zones {
            for _ in 0..zone.nodes {
                let node = self.add_node(&zone.name).await?;
                self.start_client(&node).await?;
            }
        }
        tell("Services and Pods");
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
    pub fn zone_names(&self) -> Vec<String> {
        self.zones.iter().map(|zone| zone.name.clone()).collect()
    }

    pub(crate) fn zone_index(&self, name: &str) -> usize {
        self.zones.iter().position(|zone| zone.name == name).unwrap_or(0)
    }

    pub(crate) fn machines(&self) -> MutexGuard<'_, BTreeMap<String, Machine>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn network(&self) -> MutexGuard<'_, ClusterNetwork> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nodes that run and can be reached.
    pub fn nodes(&self) -> Vec<NetnsNode> {
        let machines = self.machines();
        let on = machines.values().filter(|machine| machine.power == Power::On);
        on.map(|machine| machine.node.clone()).collect()
    }

    // === nodes ===

    /// One more node in a zone: one that was switched off, or a new one. Nobody calls from there yet.
    pub(crate) async fn add_node(&self, zone: &str) -> anyhow::Result<NetnsNode> {
        let off = |machine: &&Machine| machine.power == Power::Gone && machine.node.zone == zone;
        let resting = self.machines().values().find(off).map(|machine| machine.node.clone());
        let node = match resting {
            Some(node) => {
                self.network().reconnect(&node)?;
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

    async fn build_node(&self, zone: &str) -> anyhow::Result<NetnsNode> {
        let count = self.machines().values().filter(|machine| machine.node.zone == zone).count();
        let (name, zone) = (format!("{zone}-{}", count + 1), zone.to_owned());
        self.on_network(move |network| Ok(network.add_node(&name, &zone)?)).await
    }

    async fn on_network<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut ClusterNetwork) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let network = Arc::clone(&self.network);
        let work = move || work(&mut network.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(work).await?
    }

    /// Starts a node's proxy, and lets Pods come.
    pub(crate) fn switch_on(&self, node: &NetnsNode) -> anyhow::Result<()> {
        let proxy = Some(Proxy::start(node, self.inside.clone())?);
        self.kubelet.add_node(node);
        let machine = Machine { node: node.clone(), power: Power::On, proxy };
        self.machines().insert(node.name.clone(), machine);
        Ok(())
    }

    /// Ends a node's proxy, and pulls its cable.
    pub(crate) async fn switch_off(&self, name: &str, power: Power) -> anyhow::Result<()> {
        self.kubelet.remove_node(name);
        let (node, proxy) = match self.machines().get_mut(name) {
            Some(machine) => {
                machine.power = power;
                (machine.node.clone(), machine.proxy.take())
            }
            None => return Ok(()),
        };
        self.network().disconnect(&node)?;
        tokio::task::spawn_blocking(move || drop(proxy)).await?;
        Ok(())
    }

    /// Takes a node out of the cluster for good.
    pub(crate) async fn remove_node(&self, name: &str) -> anyhow::Result<()> {
        self.switch_off(name, Power::Gone).await?;
        self.api.delete(&format!("{NODES}/{name}"), None).await?;
        self.api.delete(&ProxyReport::path(name), None).await?;
        Ok(())
    }

    /// Nodes of a zone in one state, by name.
    pub(crate) fn nodes_of(&self, zone: &str, power: Power) -> Vec<NetnsNode> {
        let machines = self.machines();
        let of = |machine: &&Machine| machine.node.zone == zone && machine.power == power;
        machines.values().filter(of).map(|machine| machine.node.clone()).collect()
    }

    pub(crate) fn set_power(&self, name: &str, power: Power) {
        if let Some(machine) = self.machines().get_mut(name) {
            machine.power = power;
        }
    }

    /// A client on a node; its namespace stays for the node's life.
    pub(crate) async fn start_client(&self, node: &NetnsNode) -> anyhow::Result<()> {
        let (on, name) = (node.clone(), format!("client-{}", node.name));
        let client = self.on_network(move |network| {
            let there = network.pods().iter().find(|pod| pod.name == name).cloned();
            Ok(there.map_or_else(|| network.add_pod(&on, &name), Ok)?)
        });
        let namespace = client.await?.namespace;
        self.traffic().start(&node.name, self.zone_index(&node.zone), namespace);
        Ok(())
    }

    /// Nobody calls from a node any more.
    pub(crate) async fn stop_client(&self, node: &str) -> anyhow::Result<()> {
        let client = self.traffic().take(node);
        // Its last connection may take a while.
        Ok(tokio::task::spawn_blocking(move || drop(client)).await?)
    }

    // === Pods ===

    /// More Pods of a Service in a zone, on the nodes that have the fewest.
    pub(crate) async fn create_pods(
        &self,
        service: &str,
        zone: &str,
        count: usize,
    ) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for _ in 0..count {
            let node = self.roomiest(zone, &names)?;
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

    fn roomiest(&self, zone: &str, planned: &[(String, String)]) -> anyhow::Result<String> {
        let pods = self.kubelet.pods();
        let nodes = self.nodes();
        let here = nodes.iter().filter(|node| node.zone == zone);
        let load = |node: &&NetnsNode| {
            pods.iter().filter(|pod| pod.node == node.name && !pod.ending).count()
                + planned.iter().filter(|(_, on)| *on == node.name).count()
        };
        match here.min_by_key(load) {
            Some(node) => Ok(node.name.clone()),
            None => bail!("zone {zone} has no node for a Pod"),
        }
    }

    /// Waits until every Pod that was created answers, and none is ending.
    pub(crate) async fn pods_ready(&self) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
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

    // === callers ===

    /// Says who is called how often: `rates[service][zone]`, connections per second.
    pub(crate) async fn aim(&self, rates: &[Vec<f64>]) -> anyhow::Result<()> {
        let stored = self.api.list(SERVICES, "").await?;
        let address = |service: &Service| -> Option<SocketAddr> {
            let found = stored.iter().find(|one| one["metadata"]["name"] == *service.name)?;
            let ip = found["spec"]["clusterIP"].as_str()?.parse().ok()?;
            Some(SocketAddr::new(ip, SERVICE_PORT))
        };
        let traffic = self.traffic();
        let clients: Vec<f64> =
            (0..self.zones.len()).map(|zone| traffic.clients(zone).max(1) as f64).collect();
        let target = |(service, rates): (&Service, &Vec<f64>)| {
            let per_client = rates.iter().zip(&clients).map(|(rate, clients)| rate / clients);
            Some(Target { to: address(service)?, per_client: per_client.collect() })
        };
        traffic.aim(self.services.iter().zip(rates).map(target).collect());
        Ok(())
    }

    /// Ends the controller in good order: it gives its work up before the API server goes.
    pub async fn stop(mut self) {
        self.controller.shutdown.trigger();
        if let Some(task) = self.controller.task.take() {
            let _ = task.await;
        }
        let traffic = std::mem::replace(
            self.traffic.get_mut().unwrap_or_else(PoisonError::into_inner),
            Traffic::new(0),
        );
        let machines = std::mem::take(&mut *self.machines());
        let _ = tokio::task::spawn_blocking(move || {
            drop(traffic);
            // All at once, before any is waited for.
            machines.values().filter_map(|machine| machine.proxy.as_ref()).for_each(Proxy::stop);
            drop(machines);
        })
        .await;
    }
}

/// Deletes what labs have made on an API server.
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
                let slices = parameter("labelSelector", &format!("{SERVICE_NAME}={name}"));
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

/// The fabric, zones that are some way off, and a listener that every node reaches.
fn network(zones: &[String], delay: Duration) -> anyhow::Result<(ClusterNetwork, TcpListener)> {
    let mut network = ClusterNetwork::new()?;
    if !delay.is_zero() {
        for zone in zones {
            network.delay_zone(zone, delay)?;
        }
    }
    let listener = network.fabric().enter(|| TcpListener::bind((FABRIC, 0)));
    Ok((network, listener.context("cannot listen inside the fabric")?))
}

/// The fabric's address, which every node reaches.
const FABRIC: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 168, 0, 254);

/// How the API server is reached from inside: by another address, under the same name.
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

fn controller(api: &Api) -> anyhow::Result<Controller> {
    let mut config =
        File::default().resolve("zonewise-lab").context("the controller's configuration")?;
    config.metrics_address = ([127, 0, 0, 1], 0).into();
    config.lease = None;
    let (client, shutdown) = (api.client().clone(), Shutdown::manual());
    let signal = shutdown.clone();
    let task = tokio::spawn(async move {
        if let Err(error) = zonewise_controller::run(client, config, signal).await {
            tracing::error!("the controller ended: {error:#}");
        }
    });
    Ok(Controller { shutdown, task: Some(task) })
}
