//! What the watches have learned about the cluster.
//!
//! ```text
//!                          writes                            reads
//!  watch of Services ────► index: services ─────────────────► sync
//!  watches of slices ────► index: slices, departures ───────► sync, departures task
//!  departures task ──────► index: slices                      (asks about departures)
//!  stale flows task ─────► index: flows_elsewhere             (asks about endpoints)
//!  every writer above ───► index: needs ────────────────────► task of other zones' watches
//!  watch of this node ───► state: node ─────────────────────► sync, watches of slices
//!  watch of ServiceCIDRs ► state: service_cidrs ────────────► sync
//!  Watches::follow ──────► state: reader, epoch ────────────► watches, sync, metrics pages
//!  every other watch ────► state: listed ───────────────────► the start, which waits for all lists
//! ```
//!
//! Two locks, `index` and `state`. Code that needs both takes `index` first. The kernel's lock
//! ([`crate::kernel::KernelHandle`]) may be held while `state` is taken, never the other way round, and
//! never together with `index`. No lock is held across an await.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use zonewise_cluster::watch::ContentType;
use zonewise_common::cidr::Cidr;
use zonewise_common::name::{Key, Name};
use zonewise_routing::{FeatureGates, NodeLocation, ObjectReader};

use super::selectors;
use crate::index::{Index, News, Perspective, Question, WatchId};
use crate::metrics::Metrics;
use crate::node::NodeInfo;
use crate::timeline::{Listing, Timeline};

/// A list that must have been read once before the kernel is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Services,
    Node,
    ServiceCidrs,
}

/// The ranges of each ServiceCIDR, by its name.
pub(super) type ServiceCidrs = BTreeMap<Name, Vec<Cidr>>;

/// What is small and changes rarely.
struct State {
    /// This node, once a list has contained it. Written by its watch.
    node: Option<NodeInfo>,
    /// The ranges that ClusterIPs come from. Written by the watch of ServiceCIDRs.
    service_cidrs: ServiceCidrs,
    /// Reads objects as they concern a node in this node's zone. Changes with the zone or region of
    /// the node.
    reader: Arc<ObjectReader>,
    /// How often the watches of this node's slices have been started: anew with each `reader`.
    epoch: u32,
    /// Which lists have been read. Every watch adds its own.
    listed: BTreeSet<List>,
}

/// The cluster, as far as this node needs to know it.
pub(crate) struct ClusterView {
    index: Mutex<Index>,
    state: Mutex<State>,
    /// Which features decide about endpoints.
    pub(super) gates: FeatureGates,
    /// The form in which objects are asked for.
    pub(super) content_type: ContentType,
    pub(crate) metrics: Arc<Metrics>,
    /// What the start spends time on.
    pub(crate) timeline: Timeline,
    /// Wakes the sync: the index, the node or the ServiceCIDRs have changed.
    pub changed: Notify,
    /// Wakes the departures task: a slice has left a watch.
    pub(super) departures: Notify,
    /// Wakes the task of other zones' watches: the needs of Services have changed.
    pub(super) needs: Notify,
    /// The API server has older data than before, and what is known compares versions.
    pub rewound: Notify,
}

impl ClusterView {
    /// Knows nothing but the node's name.
    pub(crate) fn new(
        node: &str,
        gates: FeatureGates,
        content_type: ContentType,
        metrics: Arc<Metrics>,
        timeline: Timeline,
    ) -> Arc<Self> {
        let state = State {
            node: None,
            service_cidrs: BTreeMap::new(),
            reader: Arc::new(ObjectReader::new(NodeLocation::new(node, None, None))),
            epoch: 0,
            listed: BTreeSet::new(),
        };
        Arc::new(Self {
            index: Mutex::new(Index::arriving()),
            state: Mutex::new(state),
            gates,
            content_type,
            metrics,
            timeline,
            changed: Notify::new(),
            departures: Notify::new(),
            needs: Notify::new(),
            rewound: Notify::new(),
        })
    }

    /// The index, locked.
    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// The reader for objects, which also knows where this node is.
    pub(crate) fn reader(&self) -> Arc<ObjectReader> {
        Arc::clone(&self.state.lock().reader)
    }

    /// This node, once it has been seen.
    pub(crate) fn node(&self) -> Option<NodeInfo> {
        self.state.lock().node.clone()
    }

    /// The ranges that ClusterIPs come from.
    pub(crate) fn service_cidrs(&self) -> Vec<Cidr> {
        let state = self.state.lock();
        let unique: BTreeSet<Cidr> = state.service_cidrs.values().flatten().copied().collect();
        unique.into_iter().collect()
    }

    /// Whether every watch has listed once, those of slices since they were last started.
    pub(crate) fn is_complete(&self) -> bool {
        let slices = self.index().is_complete();
        let listed = &self.state.lock().listed;
        let lists = [List::Services, List::Node, List::ServiceCidrs];
        slices && lists.iter().all(|list| listed.contains(list))
    }

    /// Whether the API server has been asked for this node; it may not have one of this name.
    pub(crate) fn has_listed_node(&self) -> bool {
        self.state.lock().listed.contains(&List::Node)
    }

    /// Whether the ranges that ClusterIPs come from are known, or cannot be.
    pub(crate) fn has_listed_ranges(&self) -> bool {
        self.state.lock().listed.contains(&List::ServiceCidrs)
    }

    /// Notes which of these Services have UDP flows to endpoints that are in no slice for this node.
    pub(crate) fn set_flows_elsewhere(&self, services: &BTreeSet<Key>, elsewhere: &BTreeSet<Key>) {
        self.update(|index| {
            let all = services.iter();
            all.for_each(|key| index.set_flows_elsewhere(key, elsewhere.contains(key)));
        });
        self.changed.notify_one();
    }

    // === for the watches ===

    /// Changes the index, and wakes the tasks that wait for what has changed, the sync excepted.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        let mut index = self.index();
        let result = change(&mut index);
        let News { needs, departures } = index.take_news();
        drop(index);
        if needs {
            self.needs.notify_one();
        }
        if departures {
            self.departures.notify_one();
        }
        result
    }

    /// Changes the index, and wakes the sync if `change` says so, and if there is enough to do for it.
    pub(super) fn change(&self, change: impl FnOnce(&mut Index) -> bool) {
        if self.update(|index| change(index) && index.is_worth_a_sync()) {
            self.changed.notify_one();
        }
    }

    /// A list of these objects is asked for now.
    pub(super) fn listing(&self, of: &'static str) -> Listing {
        Listing::new(&self.timeline, of)
    }

    /// What to ask the API server about departures.
    pub(super) fn question(&self) -> Option<Question> {
        self.index().question()
    }

    /// How often the watches of this node's slices have been started.
    pub(super) fn epoch(&self) -> u32 {
        self.state.lock().epoch
    }

    /// Prepares for `count` new watches of slices, for a node at `location`.
    pub(super) fn start_own_watches(
        &self,
        location: NodeLocation,
        count: u32,
    ) -> (Arc<ObjectReader>, Vec<WatchId>) {
        let gates = self.gates;
        let subsets = selectors::watches_subsets(&location, &gates);
        let perspective = subsets.then(|| Perspective { location: location.clone(), gates });
        self.update(|index| {
            let mut state = self.state.lock();
            state.reader = Arc::new(state.reader.relocated(location));
            state.epoch += 1;
            let reader = Arc::clone(&state.reader);
            (reader, index.start_own_watches(perspective, count))
        })
    }

    pub(super) fn set_node(&self, node: NodeInfo) {
        let mut state = self.state.lock();
        state.node = Some(node.following(state.node.take()));
        drop(state);
        self.changed.notify_one();
    }

    pub(super) fn change_service_cidrs(&self, change: impl FnOnce(&mut ServiceCidrs)) {
        change(&mut self.state.lock().service_cidrs);
        self.changed.notify_one();
    }

    pub(super) fn set_listed(&self, list: List) {
        self.state.lock().listed.insert(list);
        self.changed.notify_one();
    }

    pub(super) fn unreadable(&self, resource: &'static str, key: &Key, error: &str) {
        self.metrics.unreadable(resource);
        tracing::warn!(resource, namespace = %key.0, name = %key.1, error,
            "cannot read an object; its last readable version stays in use");
    }
}
