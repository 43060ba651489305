//! Carries out the steps of a scenario.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::time::Instant;
use zonewise_cluster::api::ApiError;
use zonewise_common::clock;
use zonewise_common::time::timestamp;
use zonewise_controller::evacuation::{self, EvacuationSpec, Phase};

use crate::api::{NODES, PODS, SERVICES, SLICES};
use crate::cluster::{Cluster, NodeState};
use crate::ground::Node;
use crate::kubelet::{PodView, now};
use crate::objects;
use crate::scenario::{Callers, Step};
use crate::watcher::{routes_page, sync_metrics};

/// How long after a zone was cut off its nodes and Pods become unready, as if a node controller had noticed.
const DETECTION_DELAY: Duration = Duration::from_secs(1);
/// Time between two observations while waiting.
const POLL: Duration = Duration::from_millis(100);
/// The proxies are up to date when nothing has changed for this many observations.
const STABLE: usize = 4;
/// How long a zone may take to be emptied, and stays empty.
const EVACUATION: Duration = Duration::from_hours(1);
/// How long to wait for proxies and Pods.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Carries out steps, and remembers what later steps need.
pub(crate) struct Director<'c> {
    cluster: &'c Cluster,
    /// Connections per second of each Service, over all zones.
    totals: Vec<f64>,
    /// Connections per second that a step has set for one Service and zone (by index).
    fixed: BTreeMap<(usize, usize), f64>,
    /// Pods per Service of each drained zone, to be created again when it comes back.
    away: BTreeMap<String, BTreeMap<String, usize>>,
}

impl<'c> Director<'c> {
    /// For a cluster that receives the connections its scenario asks for.
    pub(crate) fn new(cluster: &'c Cluster) -> Self {
        let totals = cluster.services.iter().map(|service| service.connections).collect();
        let mut director = Self { cluster, totals, fixed: BTreeMap::new(), away: BTreeMap::new() };
        for (index, service) in cluster.services.iter().enumerate() {
            director.divide(index, &service.callers);
        }
        director
    }

    /// Divides the connections of a Service (by index) in this proportion, if there is one.
    fn divide(&mut self, service: usize, callers: &Callers) {
        let all: f64 = callers.values().sum();
        if all == 0.0 {
            return;
        }
        for (index, zone) in self.cluster.zones.iter().enumerate() {
            let part = callers.get(&zone.name).copied().unwrap_or_default() / all;
            self.fixed.insert((service, index), self.totals[service] * part);
        }
    }

    /// Tells the clients how many connections to make now.
    pub(crate) async fn aim(&self) -> anyhow::Result<()> {
        let cores: Vec<f64> = self
            .cluster
            .zones
            .iter()
            .map(|zone| {
                self.cluster.nodes_of(&zone.name, NodeState::On).len() as f64
                    * f64::from(zone.cores)
            })
            .collect();
        self.cluster.aim(&rates(&self.totals, &self.fixed, &cores)).await
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// If the API server or the kernel refuses it.
    pub(crate) async fn perform(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Annotate { service, key, value } => {
                let patch = json!({"metadata": {"annotations": {key: value}}});
                self.change(&format!("{SERVICES}/{service}"), &patch).await?;
            }
            Step::Distribute { service, value } => {
                let patch = json!({"spec": {"trafficDistribution": value}});
                self.change(&format!("{SERVICES}/{service}"), &patch).await?;
            }
            Step::Scale { service, zone, to } => self.scale(service, zone, *to).await?,
            Step::Roll { service } => self.roll(service).await?,
            Step::Drain { zone } => self.drain(zone).await?,
            Step::Cut { zone } => self.cut(zone).await?,
            Step::Restore { zone } => self.restore(zone).await?,
            Step::Evacuate { zone, step } => self.evacuate(zone, step.0).await?,
            Step::GiveBack { zone } => self.give_back(zone).await?,
            Step::Nodes { zone, to } => self.nodes(zone, *to).await?,
            Step::Traffic { service, zone, connections } => {
                self.call(service, zone.as_deref(), *connections);
            }
            Step::Callers(callers) => {
                (0..self.totals.len()).for_each(|service| self.divide(service, callers));
            }
            Step::Wait(span) => tokio::time::sleep(span.0).await,
            Step::Unchanged { span, at_most } => self.unchanged(span.0, at_most.0).await?,
        }
        self.aim().await
    }

    /// Waits until no EndpointSlice has changed for a while, or as long as it may take.
    async fn unchanged(&self, span: Duration, at_most: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + at_most;
        let (mut before, mut since) = (Vec::new(), Instant::now());
        while since.elapsed() < span && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
            let now = slice_versions(self.cluster).await?;
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    fn call(&mut self, service: &str, zone: Option<&str>, connections: f64) {
        let services = &self.cluster.services;
        let Some(service) = services.iter().position(|one| one.name == service) else { return };
        match zone {
            Some(zone) => {
                self.fixed.insert((service, self.cluster.zone_index(zone)), connections);
            }
            None => {
                self.totals[service] = connections;
                self.fixed.retain(|(of, _), _| *of != service);
            }
        }
    }

    /// Changes an object. If a user has deleted it, the run goes on: the act's expectations will show it.
    async fn change(&self, path: &str, patch: &Value) -> anyhow::Result<()> {
        match self.cluster.api.merge(path, patch).await {
            Err(ApiError::NotFound(error)) => {
                tracing::warn!(
                    path,
                    error,
                    "the object that the scenario changes was deleted by another client"
                );
                Ok(())
            }
            answer => Ok(answer.map(drop)?),
        }
    }

    /// The lab's own Pods that are not being deleted.
    fn ours(&self) -> Vec<PodView> {
        let all = self.cluster.kubelet.pods().into_iter();
        all.filter(|pod| pod.ours && !pod.ending).collect()
    }

    // === Pods ===

    fn pods(&self, service: &str, zone: &str) -> Vec<PodView> {
        let of = |pod: &PodView| pod.is_of(service) && pod.zone == zone;
        self.ours().into_iter().filter(of).collect()
    }

    async fn delete(&self, pod: &str) -> anyhow::Result<()> {
        Ok(self.cluster.api.delete(&format!("{PODS}/{pod}"), None).await?)
    }

    async fn scale(&self, service: &str, zone: &str, to: usize) -> anyhow::Result<()> {
        let pods = self.pods(service, zone);
        self.cluster.create_pods(service, zone, to.saturating_sub(pods.len())).await?;
        for pod in pods.iter().skip(to) {
            self.delete(&pod.name).await?;
        }
        self.cluster.pods_ready().await
    }

    /// Replaces the Pods of a Service one by one: a new Pod is ready before an old one is deleted.
    async fn roll(&self, service: &str) -> anyhow::Result<()> {
        for old in self.ours().iter().filter(|pod| pod.is_of(service)) {
            self.replace(old).await?;
        }
        self.cluster.pods_ready().await
    }

    async fn replace(&self, old: &PodView) -> anyhow::Result<()> {
        let app = old.labels.get("app").map_or("", String::as_str);
        let names = self.cluster.create_pods(app, &old.zone, 1).await?;
        let deadline = Instant::now() + TIMEOUT;
        while !self.ours().iter().any(|pod| pod.ready && names.contains(&pod.name)) {
            let late = Instant::now() > deadline;
            anyhow::ensure!(!late, "the Pod that replaces {} does not become ready", old.name);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.delete(&old.name).await
    }

    // === zones ===

    fn remember(&mut self, zone: &str) {
        let services = &self.cluster.services;
        let count = |name: &String| (name.clone(), self.pods(name, zone).len());
        let pods = services.iter().map(|service| count(&service.name)).collect();
        self.away.insert(zone.to_owned(), pods);
    }

    async fn drain(&mut self, zone: &str) -> anyhow::Result<()> {
        self.remember(zone);
        let nodes = self.cluster.nodes_of(zone, NodeState::On);
        for node in &nodes {
            self.cluster.stop_client(&node.name).await?;
            self.cluster.set_state(&node.name, NodeState::Leaving);
        }
        for pod in self.ours().iter().filter(|pod| pod.zone == zone) {
            self.delete(&pod.name).await?;
        }
        self.cluster.pods_ready().await?;
        for node in &nodes {
            self.tell_node(node, false).await?;
            self.cluster.switch_off(&node.name, NodeState::Lost).await?;
        }
        Ok(())
    }

    async fn cut(&mut self, zone: &str) -> anyhow::Result<()> {
        let nodes = self.cluster.nodes_of(zone, NodeState::On);
        for node in &nodes {
            self.cluster.stop_client(&node.name).await?;
        }
        for node in &nodes {
            self.cluster.switch_off(&node.name, NodeState::Lost).await?;
        }
        tokio::time::sleep(DETECTION_DELAY).await;
        for node in &nodes {
            self.tell_node(node, false).await?;
        }
        self.tell_pods(zone, false).await
    }

    async fn restore(&mut self, zone: &str) -> anyhow::Result<()> {
        for node in self.cluster.nodes_of(zone, NodeState::Lost) {
            self.cluster.ground().reconnect(&node)?;
            self.cluster.switch_on(&node)?;
            self.synced(&node).await;
            self.tell_node(&node, true).await?;
            self.cluster.start_client(&node).await?;
        }
        self.tell_pods(zone, true).await?;
        for (service, count) in self.away.remove(zone).unwrap_or_default() {
            self.cluster.create_pods(&service, zone, count).await?;
        }
        self.cluster.pods_ready().await
    }

    async fn tell_node(&self, node: &Node, ready: bool) -> anyhow::Result<()> {
        let path = format!("{NODES}/{}/status", node.name);
        self.change(&path, &objects::node_ready(ready, &now())).await
    }

    async fn tell_pods(&self, zone: &str, ready: bool) -> anyhow::Result<()> {
        for pod in self.ours().iter().filter(|pod| pod.zone == zone) {
            let path = format!("{PODS}/{}/status", pod.name);
            self.change(&path, &objects::pod_ready(ready, &now())).await?;
        }
        Ok(())
    }

    // === evacuations ===

    async fn evacuate(&self, zone: &str, step: Duration) -> anyhow::Result<()> {
        let deadline = clock::now().as_second() + EVACUATION.as_secs().cast_signed();
        let spec = EvacuationSpec {
            zone: zone.into(),
            deadline: timestamp(deadline).into(),
            step_seconds: u32::try_from(step.as_secs()).ok(),
            ..EvacuationSpec::default()
        };
        self.ask(&spec, Phase::Empty).await
    }

    async fn give_back(&self, zone: &str) -> anyhow::Result<()> {
        let stored = evacuation::stored(self.cluster.api.client(), zone).await?;
        let stored = stored.with_context(|| format!("zone {zone} was not evacuated"))?;
        let spec = EvacuationSpec { restore: true, ..stored.spec };
        self.ask(&spec, Phase::Ended).await
    }

    /// Asks the controller for something about a zone, and waits until it has reached this phase.
    async fn ask(&self, spec: &EvacuationSpec, phase: Phase) -> anyhow::Result<()> {
        let client = self.cluster.api.client();
        let asked = evacuation::ask(client, spec).await.context(
            "the API server knows no ZoneEvacuations: use one of Kubernetes with --api, and apply deploy/controller/crd.yaml to it",
        )?;
        let deadline = Instant::now() + EVACUATION;
        loop {
            let stored = evacuation::stored(client, &spec.zone).await?;
            let status = stored.context("the ZoneEvacuation was deleted")?.status;
            let is_known = status.observed_generation >= asked.generation();
            match status.phase {
                reached if is_known && reached == phase => return Ok(()),
                other if is_known && other.is_over() => {
                    bail!("zone {} is {other:?}: {}", spec.zone, status.message)
                }
                _ if Instant::now() >= deadline => {
                    bail!("zone {} is not {phase:?} yet: {}", spec.zone, status.message)
                }
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }

    // === nodes ===

    async fn nodes(&mut self, zone: &str, to: usize) -> anyhow::Result<()> {
        let nodes = self.cluster.nodes_of(zone, NodeState::On);
        for _ in nodes.len()..to {
            let node = self.cluster.add_node(zone).await?;
            self.synced(&node).await;
            self.cluster.start_client(&node).await?;
        }
        for node in nodes.iter().skip(to) {
            self.cluster.set_state(&node.name, NodeState::Leaving);
        }
        for node in nodes.iter().skip(to) {
            self.leave(node).await?;
        }
        self.cluster.pods_ready().await
    }

    /// Moves client and Pods away from a node, then removes the node.
    async fn leave(&self, node: &Node) -> anyhow::Result<()> {
        self.cluster.stop_client(&node.name).await?;
        for pod in self.ours().iter().filter(|pod| pod.node == node.name) {
            self.replace(pod).await?;
        }
        self.cluster.pods_ready().await?;
        self.cluster.remove_node(&node.name).await
    }

    /// Waits until a node's new proxy has written its rules, or for [`TIMEOUT`].
    async fn synced(&self, node: &Node) {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let look = node.clone();
            let sync_metrics = tokio::task::spawn_blocking(move || sync_metrics(&look)).await;
            if sync_metrics.ok().flatten().is_some_and(|sync_metrics| sync_metrics.last_sync > 0.0)
            {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Waits until neither EndpointSlices nor the proxies' routes change any more. Returns when a proxy last
/// wrote a change, in seconds since the Unix epoch.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn settle(cluster: &Cluster) -> anyhow::Result<f64> {
    let deadline = Instant::now() + TIMEOUT;
    let (mut before, mut stable) = (None, 0);
    while stable < STABLE && Instant::now() < deadline {
        let versions = slice_versions(cluster).await?;
        let nodes = cluster.nodes();
        let pages =
            tokio::task::spawn_blocking(move || nodes.iter().map(routes_page).collect::<Vec<_>>())
                .await?;
        let now = Some((versions, pages));
        stable = if now == before { stable + 1 } else { 0 };
        before = now;
        tokio::time::sleep(POLL).await;
    }
    let nodes = cluster.nodes();
    let all_metrics = tokio::task::spawn_blocking(move || {
        nodes.iter().filter_map(sync_metrics).collect::<Vec<_>>()
    })
    .await?;
    Ok(all_metrics.iter().map(|sync_metrics| sync_metrics.last_sync).fold(0.0, f64::max))
}

/// The version of each EndpointSlice.
async fn slice_versions(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let slices = cluster.api.list(SLICES, "").await?;
    Ok(slices.iter().map(|slice| slice["metadata"]["resourceVersion"].to_string()).collect())
}

/// Connections per second by Service and zone: what was set for a zone, else a part of the total in
/// proportion to the zone's cores.
fn rates(totals: &[f64], fixed: &BTreeMap<(usize, usize), f64>, cores: &[f64]) -> Vec<Vec<f64>> {
    let all: f64 = cores.iter().sum();
    let rate = |service: usize, zone: usize| {
        if cores[zone] == 0.0 {
            return 0.0;
        }
        let by_cores = totals[service] * cores[zone] / all.max(1.0);
        fixed.get(&(service, zone)).copied().unwrap_or(by_cores)
    };
    (0..totals.len())
        .map(|service| (0..cores.len()).map(|zone| rate(service, zone)).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_call_by_their_cores_unless_told_otherwise() {
        let fixed = BTreeMap::from([((1, 0), 300.0)]);
        let rates = rates(&[90.0, 30.0], &fixed, &[8.0, 4.0, 0.0]);
        assert_eq!(rates, [vec![60.0, 30.0, 0.0], vec![300.0, 10.0, 0.0]]);
    }
}
