//! The ZoneAllocations that are stored, as the watch reports them and with our own writes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, WatchListener, version_number};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Keyed};
use zonewise_inventory::follow::{Cause, IndexListener, WatchedIndex};
use zonewise_inventory::guard::{ALLOCATIONS, StoredAllocation};
use zonewise_slices::guard::ZoneAllocation;
use zonewise_slices::service::Service;

use super::name_quota::QuotaHolder;

/// The stored allocations, by Service.
#[derive(Debug, Default)]
pub(crate) struct Allocations(Mutex<BTreeMap<Key, StoredAllocation>>);

impl Allocations {
    /// The allocation of a Service.
    pub(crate) fn get(&self, service: &Service) -> Option<ZoneAllocation> {
        self.0.lock().get(&Keyed::key(service)).map(|stored| stored.of(service))
    }

    /// The allocation with the name of a Service, whether that exists or not.
    pub(crate) fn stored(&self, service: &Key) -> Option<ZoneAllocation> {
        self.0.lock().get(service).map(|stored| stored.spec.clone())
    }

    /// Notes what is stored. Returns whether it was not known; what is older than what is known is not noted.
    pub(crate) fn note(&self, stored: StoredAllocation) -> bool {
        let (service, version) = (stored.key(), version_number(stored.version()));
        let mut known = self.0.lock();
        let is_new =
            known.get(&service).is_none_or(|known| version_number(known.version()) < version);
        if is_new {
            known.insert(service, stored);
        }
        is_new
    }

    /// Notes that a Service has no allocation any more. Returns whether it was known to have one.
    pub(crate) fn forget(&self, service: &Key) -> bool {
        self.0.lock().remove(service).is_some()
    }

    /// The Services that need a binding: those whose allocation has an effect, in any namespace. Anybody may create
    /// ZoneAllocations, and only those of Services count (`is_service`).
    pub(crate) fn in_force(&self, is_service: impl Fn(&Key) -> bool) -> Vec<QuotaHolder> {
        let known = self.0.lock();
        let needed =
            known.iter().filter(|(key, stored)| stored.spec.has_effect() && is_service(key));
        let holder = |(key, stored): (&Key, &StoredAllocation)| QuotaHolder {
            since: stored.created().into(),
            service: key.clone(),
        };
        needed.map(holder).collect()
    }

    fn keys(&self) -> Vec<Key> {
        self.0.lock().keys().cloned().collect()
    }
}

/// Receives ZoneAllocations from the watch.
pub(crate) struct AllocationFollower<L> {
    pub(crate) allocations: Arc<Allocations>,
    pub(crate) watched: Arc<WatchedIndex<L>>,
}

impl<L: IndexListener> AllocationFollower<L> {
    /// Follows the allocations; never ends.
    pub(crate) async fn follow(self, client: Client) {
        watch::follow(client, ALLOCATIONS, self).await;
    }

    fn changed(&self, service: Key) {
        self.watched.listener.changed(Cause::Service, vec![service]);
    }
}

impl<L: IndexListener> WatchListener for AllocationFollower<L> {
    type Object = StoredAllocation;

    fn read(&self, object: Encoded<'_>) -> Result<StoredAllocation, DecodeError> {
        object.decode()
    }

    fn apply(&mut self, stored: StoredAllocation) {
        let service = stored.key();
        if self.allocations.note(stored) {
            self.changed(service);
        }
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.watched.listener.unreadable(ALLOCATIONS.name, key, error);
    }

    fn delete(&mut self, _: u64, service: &Key) {
        if self.allocations.forget(service) {
            self.changed(service.clone());
        }
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        for gone in self.allocations.keys().iter().filter(|key| !keys.contains(*key)) {
            self.delete(version, gone);
        }
        self.watched.listener.listed(ALLOCATIONS.name);
    }

    fn rewound(&mut self) {
        self.watched.listener.rewound();
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        self.watched.listener.health(ALLOCATIONS.name, health);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stored(name: &str, version: &str, others: &str) -> StoredAllocation {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "shop", "name": name, "resourceVersion": version,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "others": others },
        }))
        .unwrap()
    }

    #[test]
    fn what_is_older_than_what_is_known_is_not_noted() {
        let allocations = Allocations::default();
        let noted = |version| allocations.note(stored("web", version, "OwnZone"));
        assert_eq!([noted("5"), noted("5"), noted("4"), noted("6")], [true, false, false, true]);
    }

    #[test]
    fn bindings_are_for_services_whose_hints_are_kept() {
        let (allocations, foreign) = (Allocations::default(), "x".repeat(64));
        for (name, others) in [("web", "OwnZone"), ("floor", "AsWritten"), (&foreign, "OwnZone")] {
            allocations.note(stored(name, "1", others));
        }
        let found = allocations.in_force(|(_, name)| **name != *foreign);
        let web = QuotaHolder {
            since: "2026-01-01T00:00:00Z".into(),
            service: ("shop".into(), "web".into()),
        };
        assert_eq!(found, [web]);
    }
}
