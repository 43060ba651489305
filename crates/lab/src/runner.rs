//! Runs the acts of a scenario one after the other, and measures each.

use std::collections::BTreeMap;
use std::iter::once;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use zonewise_telemetry::shutdown::Shutdown;

use crate::board::{Board, Computed, Observation, TICK, judge};
use crate::cluster::{Cluster, NodeState};
use crate::director::{Director, settle};
use crate::ground::Node;
use crate::prediction::Prediction;
use crate::scenario::{Act, Expect, Scenario, Zone};
use crate::view::{ActResult, ActView, ClusterSize, Phase, Summary, View, ZoneView};
use crate::watcher::{self, SyncMetrics, programming, routed, routes_page, statuses, sync_metrics};

/// What the user has asked for while a scenario runs.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    /// Continue with the next act.
    pub(crate) next: AtomicBool,
    /// Stay in the current act until this is false.
    pub(crate) paused: AtomicBool,
}

/// A scenario in a running cluster.
pub(crate) struct Runner {
    cluster: Arc<Cluster>,
    scenario: Scenario,
    board: Arc<Mutex<Board>>,
    controls: Arc<Controls>,
    started: Instant,
    views: watch::Sender<View>,
    tasks: JoinSet<()>,
}

/// How often a measuring act checks whether it is over.
const LOOK: Duration = Duration::from_millis(50);
/// This many nodes are asked for routes and metrics in one round; the others follow in the next rounds.
const NODES_PER_ROUND: usize = 8;

impl Runner {
    /// Starts to count connections and to observe the cluster. Addresses of Services are written to the file `hosts`.
    /// `started` is when the lab was started.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        scenario: Scenario,
        kubectl: String,
        hosts: PathBuf,
        started: Instant,
    ) -> Self {
        let services = cluster.services.iter().map(|service| service.name.clone()).collect();
        let zones = cluster.zone_names();
        let board = Board::new(&scenario.title, cluster.place, services, zones, kubectl);
        let (views, _) = watch::channel(board.view(started.elapsed()));
        let mut runner = Self {
            cluster,
            scenario,
            board: Arc::new(Mutex::new(board)),
            controls: Arc::default(),
            started,
            views,
            tasks: JoinSet::new(),
        };
        let observation = Arc::new(Mutex::new(Observation::default()));
        runner.tasks.spawn(look(
            Arc::clone(&runner.cluster),
            Arc::clone(&observation),
            Arc::clone(&runner.board),
            hosts,
        ));
        runner.tasks.spawn(count(
            Arc::clone(&runner.cluster),
            observation,
            Arc::clone(&runner.board),
            runner.views.clone(),
            runner.started,
        ));
        runner
    }

    /// What the screen shows, updated every tick.
    pub(crate) fn views(&self) -> watch::Receiver<View> {
        self.views.subscribe()
    }

    /// Where the terminal stores what the user asks for.
    pub(crate) fn controls(&self) -> Arc<Controls> {
        Arc::clone(&self.controls)
    }

    /// The state of the run.
    pub(crate) fn board(&self) -> Arc<Mutex<Board>> {
        Arc::clone(&self.board)
    }

    /// Runs all acts, or stops at `quit`. `ended` is called with the result of each act.
    ///
    /// # Errors
    /// If a step of the scenario fails.
    pub(crate) async fn play(
        &self,
        quit: &Shutdown,
        ended: &(dyn Fn(&ActResult) + Send + Sync),
    ) -> anyhow::Result<Summary> {
        tokio::select! {
            () = quit.wait() => {}
            result = self.acts(ended) => result?,
        }
        Ok(self.summary())
    }

    async fn acts(&self, ended: &(dyn Fn(&ActResult) + Send + Sync)) -> anyhow::Result<()> {
        let mut director = Director::new(&self.cluster);
        settle(&self.cluster).await?;
        director.aim().await?;
        for (index, act) in self.scenario.acts.iter().enumerate() {
            let results = self.act(&mut director, index, act).await?;
            results.iter().for_each(ended);
            self.board.lock().end(results);
        }
        Ok(())
    }

    async fn act(
        &self,
        director: &mut Director<'_>,
        index: usize,
        act: &Act,
    ) -> anyhow::Result<Vec<ActResult>> {
        let expected: Vec<(usize, &Expect)> = once(&act.expect)
            .chain(&act.beside)
            .map(|expect| (self.service_of(expect), expect))
            .collect();
        let stage = ActView {
            number: index + 1,
            of: self.scenario.acts.len(),
            title: act.title.clone(),
            look: act.look.clone(),
            ..ActView::default()
        };
        self.board.lock().begin(stage, self.service_of(&act.expect));
        let begun = epoch();
        for step in &act.steps {
            self.board.lock().step(step.to_string());
            director.perform(step).await?;
        }
        let last = settle(&self.cluster).await?;
        let settled = (last > begun).then_some(last - begun);
        let mut computed = Vec::new();
        for (service, _) in &expected {
            computed.push(self.predict(*service).await?);
        }
        self.measure(act.measure.0).await;
        // All at once, so that they are of the same time.
        let mut results: Vec<ActResult> = {
            let board = self.board.lock();
            expected.iter().map(|(service, _)| board.figures(*service, settled)).collect()
        };
        for (index, (service, expect)) in expected.iter().enumerate() {
            let mut predictions = std::mem::take(&mut computed[index]);
            predictions.extend(self.predict(*service).await?);
            let calls_unevenly = self.scenario.calls_unevenly();
            let computed = Computed { predictions, calls_unevenly };
            judge(&mut results[index], expect, self.scenario.resized.then_some(&computed));
        }
        Ok(results)
    }

    /// What the objects lead to now, if the scenario does not say what is expected in this size.
    async fn predict(&self, service: usize) -> anyhow::Result<Vec<Prediction>> {
        if !self.scenario.resized {
            return Ok(Vec::new());
        }
        let name = &self.cluster.services[service].name;
        let prediction = Prediction::compute(self.cluster.api.client(), name).await?;
        Ok(prediction.into_iter().collect())
    }

    /// Measures for this long, or until the user continues with the next act.
    async fn measure(&self, time: Duration) {
        // A key that was pressed during the former phase does not end this one.
        tokio::time::sleep(TICK).await;
        self.controls.next.store(false, Ordering::Relaxed);
        let mut passed = Duration::ZERO;
        while passed < time && !self.controls.next.load(Ordering::Relaxed) {
            self.board
                .lock()
                .phase(Phase::Measuring { done: passed.as_secs_f64() / time.as_secs_f64() });
            tokio::time::sleep(LOOK).await;
            let paused = self.controls.paused.load(Ordering::Relaxed);
            self.board.lock().paused = paused;
            if !paused {
                passed += LOOK;
            }
        }
        // One more tick, so that the last connections are counted.
        tokio::time::sleep(TICK).await;
    }

    /// Stops counting and observing.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// The Service that an expectation is about, by index.
    fn service_of(&self, expect: &Expect) -> usize {
        let wanted = expect.service.as_deref();
        let services = &self.cluster.services;
        services.iter().position(|service| Some(service.name.as_str()) == wanted).unwrap_or(0)
    }

    /// The result so far.
    pub(crate) fn summary(&self) -> Summary {
        let board = self.board.lock();
        let (connections, failed) = board.totals();
        let first = self.cluster.traffic().first();
        Summary {
            scenario: self.scenario.title.clone(),
            kernel: self.cluster.place.kernel(),
            cluster: ClusterSize {
                zones: self.scenario.cluster.zones.len(),
                nodes: self.scenario.cluster.zones.iter().map(|zone| zone.nodes).sum(),
                services: self.scenario.services.len(),
                endpoints: self.scenario.endpoints(),
            },
            first_traffic: first.map_or(0.0, |first| (first - self.started).as_secs_f64()),
            acts: board.ended().to_vec(),
            resized: self.scenario.resized,
            played: board.played(),
            planned: self.scenario.acts.len(),
            connections,
            failed,
            programming: board.programming(),
            peak_memory: peak_memory(),
        }
    }
}

fn epoch() -> f64 {
    jiff::Timestamp::now().as_microsecond() as f64 / 1e6
}

/// Counts connections, every tick.
async fn count(
    cluster: Arc<Cluster>,
    observation: Arc<Mutex<Observation>>,
    board: Arc<Mutex<Board>>,
    views: watch::Sender<View>,
    started: Instant,
) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        let counts = cluster.traffic().drain();
        let mut seen = observation.lock().clone();
        seen.pods = cluster.kubelet.pods();
        seen.user_services = cluster.user_services();
        seen.zones = zones(&cluster);
        let mut board = board.lock();
        board.tick(counts, seen);
        views.send_replace(board.view(started.elapsed()));
    }
}

/// Observes Services, routes and metrics, again and again.
async fn look(
    cluster: Arc<Cluster>,
    observation: Arc<Mutex<Observation>>,
    board: Arc<Mutex<Board>>,
    hosts: PathBuf,
) {
    let mut written = String::new();
    let (mut pages, mut all_metrics) = (BTreeMap::new(), BTreeMap::new());
    let mut turn = 0;
    loop {
        match statuses(&cluster.api).await {
            Ok(statuses) => {
                cluster.serve_user_services(&statuses);
                let text = watcher::hosts(&statuses);
                if text != written {
                    write_hosts(&hosts, &text);
                    written = text;
                }
                observation.lock().statuses = statuses;
                board.lock().trouble = None;
            }
            Err(error) => board.lock().trouble = Some(error.to_string()),
        }
        let nodes = cluster.nodes();
        let asked: Vec<Node> = nodes
            .iter()
            .cycle()
            .skip(turn)
            .take(NODES_PER_ROUND.min(nodes.len()))
            .cloned()
            .collect();
        turn = if nodes.is_empty() { 0 } else { (turn + NODES_PER_ROUND) % nodes.len() };
        let answers = tokio::task::spawn_blocking(move || {
            asked
                .into_iter()
                .map(|node| (routes_page(&node), sync_metrics(&node), node.name))
                .collect::<Vec<_>>()
        });
        for (page, sync_metrics, name) in answers.await.unwrap_or_default() {
            pages.insert(name.clone(), page.unwrap_or_default());
            all_metrics.insert(name, sync_metrics.unwrap_or_default());
        }
        pages.retain(|name, _| nodes.iter().any(|node| node.name == *name));
        let all: Vec<SyncMetrics> = all_metrics.values().copied().collect();
        {
            let mut observation = observation.lock();
            observation.routed = routed(pages.values().map(String::as_str));
            observation.programming = programming(&all);
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Replaces the file as a whole, for commands that run meanwhile.
fn write_hosts(path: &Path, text: &str) {
    let new = path.with_extension("new");
    if let Err(error) = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)) {
        tracing::warn!(%error, path = %path.display(), "the addresses of Services cannot be written");
    }
}

fn zones(cluster: &Cluster) -> Vec<ZoneView> {
    let lab_nodes = cluster.lab_nodes();
    let zone = |zone: &Zone| {
        let here = || lab_nodes.values().filter(|lab_node| lab_node.node.zone == zone.name);
        let ready = here().filter(|lab_node| lab_node.state == NodeState::On).count();
        ZoneView {
            name: zone.name.clone(),
            nodes: here().filter(|lab_node| lab_node.state != NodeState::Gone).count(),
            ready,
            cores: ready as f64 * f64::from(zone.cores),
        }
    };
    cluster.zones.iter().map(zone).collect()
}

/// The most memory this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
