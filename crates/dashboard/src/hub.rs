//! Where everything comes together: the snapshot, what is computed from it, and who waits for changes.
//!
//! ```text
//!  watches ─► Signals: Services to look at again ─► refresh, some at a time ─► Board ─► version ─► streams
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use zonewise_cluster::api::ApiError;
use zonewise_common::name::{Key, Name};
use zonewise_explain::environment::Component;
use zonewise_explain::live::{Cause, Change, Followed, SnapshotListener};
use zonewise_explain::{
    Concerned, Environment, Planner, Prices, ServiceOverview, Snapshot, SnapshotBuilder, overview,
};
use zonewise_slices::service::Service;
use zonewise_topology::capacity::Basis;

use crate::board::Board;

/// Changes that come together are looked at together.
const PAUSE: Duration = Duration::from_millis(40);
/// Services that are looked at while watches wait.
const TOGETHER: usize = 64;

/// Where the objects come from.
pub enum Origin {
    /// A running cluster.
    Cluster {
        /// The client that reads it.
        client: Client,
        /// What it is called, for people.
        name: String,
    },
    /// Objects that do not change.
    Files {
        /// The objects.
        snapshot: Box<Snapshot>,
        /// What they are called, for people.
        name: String,
    },
}

/// How the objects are looked at.
#[derive(Clone)]
pub struct View {
    /// As which controller.
    pub planner: Planner,
    /// What counts as running, whatever is seen.
    pub assumed: Vec<Component>,
    /// What traffic costs, if that is known.
    pub prices: Option<Prices>,
    /// Only this namespace.
    pub namespace: Option<String>,
}

/// Names of namespaces. It is the same one for as long as it has the same names.
pub(crate) type Namespaces = Arc<BTreeSet<Name>>;

/// Everything that the page shows.
pub struct Hub {
    followed: Arc<Followed<Signals>>,
    view: View,
    /// The planner, with what runs now.
    planner: RwLock<Arc<Planner>>,
    board: RwLock<Board>,
    /// The namespaces that have Services; absent until all are listed.
    namespaces: RwLock<Option<Namespaces>>,
    version: watch::Sender<u64>,
    name: String,
    /// Whether objects can change.
    live: bool,
    /// What the clients of a lab have measured, as JSON.
    pub(crate) lab: Option<watch::Receiver<Arc<str>>>,
    /// Distinguishes this run from others: versions of another run say nothing.
    run: String,
}

/// The state of the cluster and of the connection to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterState {
    kind: &'static str,
    /// Distinguishes runs of this program.
    run: String,
    /// What is shown: a context, or files.
    name: String,
    /// Whether objects can change.
    live: bool,
    /// Whether all Services have been looked at once.
    complete: bool,
    /// Why the API server cannot be read now; absent if it can.
    trouble: Option<String>,
    /// What runs.
    environment: Environment,
    /// The same in one line.
    summary: String,
    /// The capacity of each zone.
    zones: Vec<Zone>,
    /// What capacity is counted by.
    capacity_by: Basis,
    /// Whether prices are known.
    priced: bool,
    /// Whether this is a lab, with measured connections.
    lab: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Zone {
    zone: String,
    nodes: u64,
    cpu: f64,
    share: f64,
}

/// What the watches tell.
#[derive(Default)]
struct Signals {
    dirty: Mutex<Dirty>,
    wake: Notify,
    status: Mutex<Status>,
}

/// What is to be looked at again.
#[derive(Default)]
struct Dirty {
    all: bool,
    services: BTreeSet<Key>,
    writes: BTreeMap<Key, u64>,
}

#[derive(Default)]
struct Status {
    listed: BTreeSet<Cause>,
    troubles: BTreeMap<Cause, String>,
    /// All Services have been looked at once.
    complete: bool,
    /// Counts changes.
    changes: u64,
}

/// The kinds that have to be listed before anything is shown.
const NEEDED: [Cause; 4] = [Cause::Nodes, Cause::Services, Cause::Pods, Cause::Slices];

impl Status {
    fn is_listed(&self) -> bool {
        NEEDED.iter().all(|cause| self.listed.contains(cause))
    }
}

impl SnapshotListener for Signals {
    fn changed(&self, Change { cause, concerned }: Change) {
        let counts = cause == Cause::Slices && self.status.lock().is_listed();
        let mut dirty = self.dirty.lock();
        match concerned {
            Concerned::All => dirty.all = true,
            Concerned::Services(services) => {
                for key in services {
                    if counts {
                        *dirty.writes.entry(key.clone()).or_default() += 1;
                    }
                    dirty.services.insert(key);
                }
            }
        }
        drop(dirty);
        self.wake.notify_one();
    }

    fn listed(&self, cause: Cause) {
        let mut status = self.status.lock();
        status.listed.insert(cause);
        drop(status);
        self.dirty.lock().all = true;
        self.wake.notify_one();
    }

    fn health(&self, cause: Cause, health: Result<(), &ApiError>) {
        let mut status = self.status.lock();
        let before = status.troubles.clone();
        match health {
            Ok(()) => drop(status.troubles.remove(&cause)),
            Err(error) => drop(status.troubles.insert(cause, error.to_string())),
        }
        if status.troubles != before {
            status.changes += 1;
            drop(status);
            self.wake.notify_one();
        }
    }
}

impl Hub {
    /// Begins to look at objects. It goes on until the returned tasks are dropped.
    pub fn start(
        origin: Origin,
        view: View,
        lab: Option<watch::Receiver<Arc<str>>>,
    ) -> (Arc<Self>, JoinSet<()>) {
        let signals = Signals::default();
        let (snapshot, name, client) = match origin {
            Origin::Cluster { client, name } => {
                let (snapshot, _) = SnapshotBuilder::default().finish(view.planner.missing_cpu);
                (snapshot, name, Some(client))
            }
            Origin::Files { snapshot, name } => {
                signals.status.lock().listed.extend(NEEDED);
                signals.dirty.lock().all = true;
                (*snapshot, name, None)
            }
        };
        let followed = Followed::new(snapshot, signals);
        let hub = Arc::new(Self {
            planner: RwLock::new(Arc::new(view.planner.clone())),
            board: RwLock::default(),
            namespaces: RwLock::default(),
            version: watch::Sender::new(0),
            run: format!("{:x}", now()),
            live: client.is_some(),
            followed,
            view,
            name,
            lab,
        });
        let mut tasks = match &client {
            Some(client) => hub.followed.start(client, hub.view.namespace.as_deref()),
            None => JoinSet::new(),
        };
        hub.followed.listener.wake.notify_one();
        tasks.spawn(Arc::clone(&hub).keep_up());
        (hub, tasks)
    }

    /// Looks at what has changed, again and again.
    async fn keep_up(self: Arc<Self>) {
        loop {
            self.followed.listener.wake.notified().await;
            tokio::time::sleep(PAUSE).await;
            let hub = Arc::clone(&self);
            if let Err(error) = tokio::task::spawn_blocking(move || hub.refresh()).await {
                tracing::error!(%error, "the Services could not be evaluated");
            }
        }
    }

    fn refresh(&self) {
        let signals = &self.followed.listener;
        if signals.status.lock().is_listed() {
            let Dirty { all, services, mut writes } = std::mem::take(&mut *signals.dirty.lock());
            self.count_namespaces();
            if all {
                self.observe();
            }
            let keys = if all { self.all_keys() } else { services.into_iter().collect() };
            for group in keys.chunks(TOGETHER) {
                self.look_at(group, &mut writes);
                self.tell();
            }
            if all {
                self.forget_missing(&keys);
                signals.status.lock().complete = true;
            }
        }
        signals.status.lock().changes += 1;
        self.tell();
    }

    /// Wakes the streams.
    fn tell(&self) {
        let changes = self.followed.listener.status.lock().changes;
        let version = self.board.read().version();
        self.version.send_replace(version + changes);
    }

    /// Finds out what runs now.
    fn observe(&self) {
        let mut planner = self.view.planner.clone();
        planner.observe(&self.followed.snapshot(), &self.view.assumed);
        *self.planner.write() = Arc::new(planner);
    }

    fn count_namespaces(&self) {
        let names: BTreeSet<Name> = {
            let snapshot = self.followed.snapshot();
            let names = snapshot.services().map(|service| &service.namespace);
            names.filter(|name| self.shows(name)).map(Name::clone).collect()
        };
        let mut known = self.namespaces.write();
        if known.as_deref() != Some(&names) {
            *known = Some(Arc::new(names));
        }
    }

    fn all_keys(&self) -> Vec<Key> {
        let snapshot = self.followed.snapshot();
        let shown = |service: &&Arc<Service>| self.shows(&service.namespace);
        let key =
            |service: &Arc<Service>| (Name::clone(&service.namespace), Name::clone(&service.name));
        snapshot.services().filter(shown).map(key).collect()
    }

    fn shows(&self, namespace: &str) -> bool {
        self.view.namespace.as_deref().is_none_or(|only| only == namespace)
    }

    /// Computes the lines of some Services anew.
    fn look_at(&self, keys: &[Key], writes: &mut BTreeMap<Key, u64>) {
        let planner = self.planner();
        let (lines, gone) = {
            let snapshot = self.followed.snapshot();
            let (mut here, mut gone) = (Vec::new(), Vec::new());
            for key in keys.iter().filter(|key| self.shows(&key.0)) {
                match snapshot.service(key) {
                    Some(service) => here.push(service),
                    None => gone.push(format!("{}/{}", key.0, key.1)),
                }
            }
            (self.lines(&snapshot, &here, &planner), gone)
        };
        let mut with_writes = |line: ServiceOverview| {
            let (namespace, name) = line.service.split_once('/').unwrap_or_default();
            let key: Key = (namespace.into(), name.into());
            let written = writes.remove(&key).unwrap_or(0);
            (line, written)
        };
        let lines = lines.into_iter().map(&mut with_writes).collect();
        let mut board = self.board.write();
        board.put(now(), lines);
        board.remove(gone.iter().map(String::as_str));
    }

    fn lines(
        &self,
        snapshot: &Snapshot,
        services: &[Arc<Service>],
        planner: &Planner,
    ) -> Vec<ServiceOverview> {
        let prices = self.view.prices.as_ref();
        overview(snapshot, services, planner, prices).unwrap_or_else(|error| {
            // What proxies cannot read does not get into a snapshot.
            tracing::error!(%error, "some Services are not shown");
            Vec::new()
        })
    }

    fn forget_missing(&self, keys: &[Key]) {
        let known: BTreeSet<String> =
            keys.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        let mut board = self.board.write();
        let missing = board.missing_from(&known);
        board.remove(missing.iter().map(String::as_str));
    }

    /// The snapshot as it is now. Watches wait while the guard is held.
    pub(crate) fn snapshot(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.followed.snapshot()
    }

    /// The planner, with what runs now.
    pub(crate) fn planner(&self) -> Arc<Planner> {
        Arc::clone(&self.planner.read())
    }

    pub(crate) fn prices(&self) -> Option<&Prices> {
        self.view.prices.as_ref()
    }

    pub(crate) fn board(&self) -> RwLockReadGuard<'_, Board> {
        self.board.read()
    }

    /// Changes whenever there is something to tell.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Distinguishes this run from others.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// A Service that is shown.
    pub(crate) fn service(&self, snapshot: &Snapshot, name: &str) -> Option<Arc<Service>> {
        let (namespace, name) = name.split_once('/')?;
        snapshot.service(&(namespace.into(), name.into())).filter(|_| self.shows(namespace))
    }

    /// The namespaces that have Services; `None` until all are listed.
    pub(crate) fn namespaces(&self) -> Option<Namespaces> {
        self.namespaces.read().clone()
    }

    /// The state of the cluster.
    pub(crate) fn state(&self) -> ClusterState {
        let planner = self.planner();
        let (trouble, complete) = {
            let status = self.followed.listener.status.lock();
            (status.troubles.values().next().cloned(), status.complete)
        };
        let snapshot = self.followed.snapshot();
        let capacity = &snapshot.nodes().zones;
        let zone = |zone: &zonewise_topology::capacity::ZoneCapacity| Zone {
            zone: zone.name.to_string(),
            nodes: zone.nodes,
            cpu: zone.cpu_milli as f64 / 1000.0,
            share: zone.share,
        };
        ClusterState {
            kind: "Cluster",
            run: self.run.clone(),
            name: self.name.clone(),
            live: self.live,
            complete,
            trouble,
            environment: planner.environment.clone(),
            summary: planner.environment.summary(),
            zones: capacity.zones.iter().map(zone).collect(),
            capacity_by: capacity.basis,
            priced: self.view.prices.is_some(),
            lab: self.lab.is_some(),
        }
    }
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
