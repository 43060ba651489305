//! What the watches have learned about the cluster.
//!
//! ```text
//!                          writes                            reads
//!  watch of Services ────► index: services ─────────────────► sync
//!  watches of slices ────► index: slices, unconfirmed ──────► sync, deletions task
//!  deletions task ───────► index: slices                      (asks about unconfirmed deletions)
//!  fallback task ────────► index: fallback slices ──────────► sync
//!  watch of this node ───► state: node ─────────────────────► sync, watches of slices
//!  watch of ServiceCIDRs ► state: service_cidrs ────────────► sync
//!  Watches::follow ──────► state: reader, slice_watches ────► watches, sync, metrics pages
//!  every watch ──────────► state: listed ───────────────────► the start, which waits for all lists
//! ```
//!
//! Two locks, `index` and `state`. Code that needs both takes `index` first. The kernel's lock
//! ([`crate::kernel::KernelHandle`]) may be held while `state` is taken, never the other way round, and
//! never together with `index`. No lock is held across an await.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use zonewise_common::cidr::Cidr;
use zonewise_common::name::{Key, Name};
use zonewise_routing::{FeatureGates, NodeLocation, ObjectReader};

use crate::index::{Index, WatchId};
use crate::metrics::Metrics;
use crate::node::NodeInfo;

/// A list that must have been read once before the kernel is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Services,
    Slices(WatchId),
    Node,
    ServiceCidrs,
}

/// The watches of slices that run now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SliceWatches {
    /// How often they have been started; 0 before the first time.
    pub(super) epoch: u32,
    /// How many there are: one for all slices, or one per subset.
    pub(super) count: u8,
}

/// The ranges of each ServiceCIDR, by its name.
pub(super) type ServiceCidrs = BTreeMap<Name, Vec<Cidr>>;

/// What is small and changes rarely.
struct State {
    /// This node, once a list has contained it. Written by its watch.
    node: Option<NodeInfo>,
    /// The ranges that ClusterIPs come from. Written by the watch of ServiceCIDRs.
    service_cidrs: ServiceCidrs,
    /// Reads objects as they concern a node in this node's zone. Written together with
    /// `slice_watches` when the zone or region of the node changes.
    reader: Arc<ObjectReader>,
    slice_watches: SliceWatches,
    /// Which lists have been read. Every watch adds its own.
    listed: BTreeSet<List>,
}

/// The cluster, as far as this node needs to know it.
pub(crate) struct ClusterView {
    index: Mutex<Index>,
    state: Mutex<State>,
    /// Which features decide about endpoints.
    pub(super) gates: FeatureGates,
    pub(super) metrics: Arc<Metrics>,
    /// Wakes the sync: the index, the node or the ServiceCIDRs have changed.
    pub changed: Notify,
    /// Wakes the deletions task: there may be unconfirmed deletions.
    pub(super) deletions: Notify,
    /// Wakes the fallback task: Services want fallback slices.
    pub(super) fallback: Notify,
}

impl ClusterView {
    /// Knows nothing but the node's name.
    pub(crate) fn new(node: &str, gates: FeatureGates, metrics: Arc<Metrics>) -> Arc<Self> {
        let state = State {
            node: None,
            service_cidrs: BTreeMap::new(),
            reader: Arc::new(ObjectReader::new(NodeLocation::new(node, None, None))),
            slice_watches: SliceWatches::default(),
            listed: BTreeSet::new(),
        };
        Arc::new(Self {
            index: Mutex::default(),
            state: Mutex::new(state),
            gates,
            metrics,
            changed: Notify::new(),
            deletions: Notify::new(),
            fallback: Notify::new(),
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
        let state = self.state.lock();
        let SliceWatches { epoch, count } = state.slice_watches;
        let slices = (0..count).map(|watch| List::Slices(WatchId { epoch, watch }));
        let mut lists = slices.chain([List::Services, List::Node, List::ServiceCidrs]);
        count > 0 && lists.all(|list| state.listed.contains(&list))
    }

    /// Whether the API server has been asked for this node; it may not have one of this name.
    pub(crate) fn has_listed_node(&self) -> bool {
        self.state.lock().listed.contains(&List::Node)
    }

    /// Asks for fallback slices of those of these Services that the subset watches leave without
    /// endpoints. They are listed in the background.
    pub(crate) fn want_fallback(&self, services: &BTreeSet<Key>) {
        let watches_subsets = self.slice_watches().count > 1;
        if watches_subsets && self.index().want_fallback(services) {
            self.fallback.notify_one();
        }
    }

    // === for the watches ===

    pub(super) fn slice_watches(&self) -> SliceWatches {
        self.state.lock().slice_watches
    }

    /// Prepares for `count` new watches of slices, for a node at `location`.
    pub(super) fn start_slice_watches(
        &self,
        location: NodeLocation,
        count: u8,
    ) -> (Arc<ObjectReader>, u32) {
        let mut state = self.state.lock();
        state.reader = Arc::new(state.reader.relocated(location));
        let epoch = state.slice_watches.epoch + 1;
        state.slice_watches = SliceWatches { epoch, count };
        (Arc::clone(&state.reader), epoch)
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
