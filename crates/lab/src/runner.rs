//! Plays a scenario: acts, one after the other, and what came of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use zonewise_netns::NetnsNode;
use zonewise_telemetry::shutdown::Shutdown;

use crate::board::{Board, Glance, TICK, judge};
use crate::cluster::{Cluster, Power};
use crate::director::{Director, settle};
use crate::scenario::{Act, Scenario};
use crate::view::{self, ActResult, ClusterSize, Phase, Summary, View, Zone};
use crate::watcher::{Pace, pace, programming, routed, routes_page, standings};

/// What people may do while it plays.
#[derive(Debug, Default)]
pub struct Controls {
    /// On with the next act.
    pub next: AtomicBool,
    /// Measuring goes on until this is false.
    pub paused: AtomicBool,
}

/// A scenario in a running cluster.
pub struct Runner {
    cluster: Arc<Cluster>,
    scenario: Scenario,
    board: Arc<Mutex<Board>>,
    controls: Arc<Controls>,
    started: Instant,
    views: watch::Sender<View>,
    tasks: JoinSet<()>,
}

/// How often an act looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);
/// Nodes asked for their pages at one glance; the others have their turn.
const ASKED: usize = 8;

impl Runner {
    /// Begins to count and to look. `started` is when the lab began.
    pub fn new(
        cluster: Arc<Cluster>,
        scenario: Scenario,
        kubectl: String,
        started: Instant,
    ) -> Self {
        let services = cluster.services.iter().map(|service| service.name.clone()).collect();
        let board = Board::new(&scenario.title, services, cluster.zone_names(), kubectl);
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
        let glance = Arc::new(Mutex::new(Glance::default()));
        runner.tasks.spawn(look(
            Arc::clone(&runner.cluster),
            Arc::clone(&glance),
            Arc::clone(&runner.board),
        ));
        runner.tasks.spawn(count(
            Arc::clone(&runner.cluster),
            glance,
            Arc::clone(&runner.board),
            runner.views.clone(),
            runner.started,
        ));
        runner
    }

    /// What there is to see, renewed all the time.
    pub fn views(&self) -> watch::Receiver<View> {
        self.views.subscribe()
    }

    /// What people may do.
    pub fn controls(&self) -> Arc<Controls> {
        Arc::clone(&self.controls)
    }

    /// Where everything is noted.
    pub fn board(&self) -> Arc<Mutex<Board>> {
        Arc::clone(&self.board)
    }

    /// Plays all acts, or as many as there is time for. `ended` hears of each.
    ///
    /// # Errors
    /// If the cluster does not do what it is told.
    pub async fn play(
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
            let result = self.act(&mut director, index, act).await?;
            ended(&result);
            lock(&self.board).end(result);
        }
        Ok(())
    }

    async fn act(
        &self,
        director: &mut Director<'_>,
        index: usize,
        act: &Act,
    ) -> anyhow::Result<ActResult> {
        let service = self.service_of(act);
        let stage = view::Act {
            number: index + 1,
            of: self.scenario.acts.len(),
            title: act.title.clone(),
            look: act.look.clone(),
            ..view::Act::default()
        };
        lock(&self.board).begin(stage, service);
        let begun = epoch();
        for step in &act.steps {
            lock(&self.board).step(step.to_string());
            director.perform(step).await?;
        }
        let last = settle(&self.cluster).await?;
        let settled = (last > begun).then_some(last - begun);
        self.measure(act.measure.0).await;
        let mut result = lock(&self.board).figures(service, settled);
        judge(&mut result, &act.expect);
        Ok(result)
    }

    /// Counts for so long, or until somebody says that it is enough.
    async fn measure(&self, time: Duration) {
        // What was asked for before this moment counts for before.
        tokio::time::sleep(TICK).await;
        self.controls.next.store(false, Ordering::Relaxed);
        let mut passed = Duration::ZERO;
        while passed < time && !self.controls.next.load(Ordering::Relaxed) {
            lock(&self.board)
                .phase(Phase::Measuring { done: passed.as_secs_f64() / time.as_secs_f64() });
            tokio::time::sleep(LOOK).await;
            let paused = self.controls.paused.load(Ordering::Relaxed);
            lock(&self.board).paused = paused;
            if !paused {
                passed += LOOK;
            }
        }
        // The last connections have to be fetched.
        tokio::time::sleep(TICK).await;
    }

    /// Counts and looks no longer.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    fn service_of(&self, act: &Act) -> usize {
        let wanted = act.expect.service.as_deref();
        let services = &self.cluster.services;
        services.iter().position(|service| Some(service.name.as_str()) == wanted).unwrap_or(0)
    }

    /// What it came to so far.
    pub fn summary(&self) -> Summary {
        let board = lock(&self.board);
        let (connections, failed) = board.totals();
        let first = self.cluster.traffic().first();
        Summary {
            scenario: self.scenario.title.clone(),
            cluster: ClusterSize {
                zones: self.scenario.cluster.zones.len(),
                nodes: self.scenario.cluster.zones.iter().map(|zone| zone.nodes).sum(),
                services: self.scenario.services.len(),
                endpoints: self.scenario.endpoints(),
            },
            first_traffic: first.map_or(0.0, |first| (first - self.started).as_secs_f64()),
            acts: board.ended().to_vec(),
            planned: self.scenario.acts.len(),
            connections,
            failed,
            programming: board.programming(),
            peak_memory: peak_memory(),
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn epoch() -> f64 {
    jiff::Timestamp::now().as_microsecond() as f64 / 1e6
}

/// Counts connections, all the time.
async fn count(
    cluster: Arc<Cluster>,
    glance: Arc<Mutex<Glance>>,
    board: Arc<Mutex<Board>>,
    views: watch::Sender<View>,
    started: Instant,
) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        let counts = cluster.traffic().drain();
        let mut seen = lock(&glance).clone();
        seen.pods = cluster.kubelet.pods();
        seen.zones = zones(&cluster);
        let mut board = lock(&board);
        board.tick(counts, seen);
        views.send_replace(board.view(started.elapsed()));
    }
}

/// Asks the cluster about itself, all the time.
async fn look(cluster: Arc<Cluster>, glance: Arc<Mutex<Glance>>, board: Arc<Mutex<Board>>) {
    let (mut pages, mut paces) = (BTreeMap::new(), BTreeMap::new());
    let mut turn = 0;
    loop {
        match standings(&cluster.api).await {
            Ok(standings) => {
                lock(&glance).standings = standings;
                lock(&board).trouble = None;
            }
            Err(error) => lock(&board).trouble = Some(error.to_string()),
        }
        let nodes = cluster.nodes();
        let asked: Vec<NetnsNode> =
            nodes.iter().cycle().skip(turn).take(ASKED.min(nodes.len())).cloned().collect();
        turn = if nodes.is_empty() { 0 } else { (turn + ASKED) % nodes.len() };
        let answers = tokio::task::spawn_blocking(move || {
            asked
                .into_iter()
                .map(|node| (routes_page(&node), pace(&node), node.name))
                .collect::<Vec<_>>()
        });
        for (page, pace, name) in answers.await.unwrap_or_default() {
            pages.insert(name.clone(), page.unwrap_or_default());
            paces.insert(name, pace.unwrap_or_default());
        }
        pages.retain(|name, _| nodes.iter().any(|node| node.name == *name));
        let all: Vec<Pace> = paces.values().copied().collect();
        {
            let mut glance = lock(&glance);
            glance.routed = routed(pages.values().map(String::as_str));
            glance.programming = programming(&all);
        }
        tokio::time::sleep(TICK).await;
    }
}

fn zones(cluster: &Cluster) -> Vec<Zone> {
    let machines = cluster.machines();
    let zone = |zone: &crate::scenario::Zone| {
        let here = || machines.values().filter(|machine| machine.node.zone == zone.name);
        let ready = here().filter(|machine| machine.power == Power::On).count();
        Zone {
            name: zone.name.clone(),
            nodes: here().filter(|machine| machine.power != Power::Gone).count(),
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
