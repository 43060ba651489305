//! The watches of other zones' slices, for Services that this node's own slices leave without endpoints
//! for some port.
//!
//! ```text
//!  index: needs ─► which Services, and how soon ─► watches of their other slices ─► index
//! ```
//!
//! The list of Services is part of the watches' selector, so a change of the list starts them anew. Every
//! node of a zone finds the same needs at the same moment; each waits for a random time before it sends
//! requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use zonewise_cluster::watch::{self, Resource, jittered, random_part};
use zonewise_common::name::{Key, Name};
use zonewise_routing::ObjectReader;

use super::listeners::SliceListener;
use super::{ClusterView, selectors};
use crate::index::{Need, WatchId};

/// How long to wait at most before the slices of a Service are requested that is divided into subsets,
/// and of all Services after the node's own slices were listed.
const URGENT: Duration = Duration::from_millis(100);
/// How long to wait at least, and half of how long at most, for a Service that most likely has no slices
/// for other zones, such as one that was scaled to zero: every node of the cluster wants to know.
const PATIENT: Duration = Duration::from_secs(4);
/// How long Services stay in the list after the last one that needed it: endpoints come and go.
const UNUSED: Duration = Duration::from_secs(60);

/// The watches that run.
#[derive(Default)]
struct Running {
    epoch: u32,
    services: BTreeSet<Name>,
}

/// What has to change about the watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Services that need them urgently are missing.
    Urgent,
    /// Other Services are missing.
    Patient,
    /// Most Services do not need them any more.
    Unused,
}

impl Change {
    /// What has to change so that the Services of `needs` are watched.
    fn of(watched: &BTreeSet<Name>, needs: &BTreeMap<Key, Need>) -> Option<Self> {
        let missing = || needs.iter().filter(|((_, name), _)| !watched.contains(name));
        if missing().any(|(_, need)| *need == Need::Urgent) {
            return Some(Self::Urgent);
        }
        if missing().next().is_some() {
            return Some(Self::Patient);
        }
        (names(needs).len() * 2 < watched.len()).then_some(Self::Unused)
    }

    /// How long to wait before it is made.
    fn delay(self) -> Duration {
        match self {
            Self::Urgent => random_part(URGENT),
            Self::Patient => PATIENT + random_part(PATIENT),
            Self::Unused => jittered(UNUSED),
        }
    }
}

fn names(needs: &BTreeMap<Key, Need>) -> BTreeSet<Name> {
    needs.keys().map(|(_, name)| Name::clone(name)).collect()
}

/// Watches the slices of other zones that Services need, until dropped.
pub(super) async fn follow_needs(client: Client, view: Arc<ClusterView>) {
    let mut running = Running::default();
    let mut watches = JoinSet::new();
    let mut due: Option<Instant> = None;
    loop {
        let complete = view.index().is_complete();
        if complete && running.epoch != view.epoch() {
            // The node has moved, and its own watches have listed everything for its new place.
            running = Running { epoch: view.epoch(), services: BTreeSet::new() };
            watches = JoinSet::new();
            due = Some(Instant::now() + random_part(URGENT));
        }
        let change = Change::of(&running.services, view.index().needs()).filter(|_| complete);
        due = change.map(|change| {
            let at = Instant::now() + change.delay();
            due.map_or(at, |due| due.min(at))
        });
        tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                running = start(&client, &view, &mut watches);
            }
            () = view.needs.notified() => {}
        }
    }
}

/// Starts the watches anew, for all Services that need them now.
fn start(client: &Client, view: &Arc<ClusterView>, watches: &mut JoinSet<()>) -> Running {
    let OtherWatches { reader, running, resources } = view.start_other_watches();
    tracing::info!(
        services = running.services.len(),
        watches = resources.len(),
        "watching EndpointSlices of other zones, for Services with a port that has no endpoint for this zone"
    );
    *watches = JoinSet::new();
    for (watch, resource) in resources {
        let (view, reader) = (Arc::clone(view), Arc::clone(&reader));
        let resource = resource.encoded_as(view.content_type);
        let listing = view.listing("endpointslices of other zones");
        let listener = SliceListener { view, reader, watch, listing };
        watches.spawn(watch::follow(client.clone(), resource, listener));
    }
    running
}

/// Watches to start.
struct OtherWatches {
    reader: Arc<ObjectReader>,
    running: Running,
    resources: Vec<(WatchId, Resource)>,
}

impl ClusterView {
    /// Notes in the index that the watches start anew. The node cannot move meanwhile.
    fn start_other_watches(&self) -> OtherWatches {
        let started = self.update(|index| {
            let services = names(index.needs());
            let (reader, epoch) = (self.reader(), self.epoch());
            let resources = match services.is_empty() {
                true => Vec::new(),
                false => selectors::of_other_zones(reader.location(), &services),
            };
            let count = u32::try_from(resources.len()).unwrap_or(u32::MAX);
            let ids = index.start_other_watches(count, services.clone());
            let resources = ids.into_iter().zip(resources).collect();
            OtherWatches { reader, running: Running { epoch, services }, resources }
        });
        // Slices of former watches may have been removed.
        self.changed.notify_one();
        started
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watches_follow_the_needs_and_not_every_change_of_them() {
        let needs = |list: &[(&str, Need)]| -> BTreeMap<Key, Need> {
            list.iter().map(|(name, need)| (("ns".into(), Name::from(*name)), *need)).collect()
        };
        let watched = |list: &[&str]| -> BTreeSet<Name> {
            list.iter().map(|name| Name::from(*name)).collect()
        };
        let (urgent, patient) = (("a", Need::Urgent), ("b", Need::Patient));
        let rows = [
            (watched(&[]), needs(&[]), None),
            (watched(&[]), needs(&[urgent]), Some(Change::Urgent)),
            (watched(&[]), needs(&[patient]), Some(Change::Patient)),
            (watched(&["b"]), needs(&[urgent, patient]), Some(Change::Urgent)),
            (watched(&["a"]), needs(&[urgent, patient]), Some(Change::Patient)),
            (watched(&["a", "b"]), needs(&[urgent, patient]), None),
            (watched(&["a", "b"]), needs(&[urgent]), None),
            (watched(&["a", "b", "c"]), needs(&[urgent]), Some(Change::Unused)),
            (watched(&["a"]), needs(&[]), Some(Change::Unused)),
        ];
        for (watched, needs, expected) in rows {
            assert_eq!(Change::of(&watched, &needs), expected, "{watched:?} {needs:?}");
        }
    }
}
