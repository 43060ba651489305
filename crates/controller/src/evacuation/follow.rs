//! The ZoneEvacuations that are stored, as the watch reports them and with our own writes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use zonewise_cluster::api::{self, ApiError};
use zonewise_cluster::watch::{self, WatchListener, version_number};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Name};
use zonewise_inventory::evacuation::{EVACUATIONS, StoredEvacuation, in_force};
use zonewise_inventory::follow::{IndexListener, WatchedIndex};
use zonewise_slices::evacuation::Evacuations;

/// How often a cluster is asked whether it knows ZoneEvacuations by now.
const ABSENT_PERIOD: Duration = Duration::from_secs(60);

/// The stored ZoneEvacuations, by name.
#[derive(Debug, Default)]
pub(crate) struct StoredEvacuations {
    known: Mutex<BTreeMap<Name, StoredEvacuation>>,
    changed: Notify,
}

impl StoredEvacuations {
    /// All of them.
    pub(crate) fn all(&self) -> Vec<StoredEvacuation> {
        self.known.lock().values().cloned().collect()
    }

    /// The zones that are being emptied.
    pub(crate) fn in_force(&self) -> Evacuations {
        in_force(self.known.lock().values())
    }

    /// The percentage of each zone's endpoints that is in use, by zone.
    pub(crate) fn percentages(&self) -> Vec<(Name, u8)> {
        let mut zones = BTreeMap::new();
        for stored in self.known.lock().values() {
            let percent = zones.entry(Name::clone(&stored.spec.zone)).or_insert(100);
            *percent = stored.status.percent.min(*percent);
        }
        zones.into_iter().collect()
    }

    /// Waits until something has changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Notes what is stored. Returns whether it was not known; what is older than what is known is not noted.
    pub(crate) fn note(&self, stored: StoredEvacuation) -> bool {
        let version = version_number(stored.version());
        let mut known = self.known.lock();
        let before = known.get(stored.name());
        let is_new = before.is_none_or(|before| {
            before.uid() != stored.uid() || version_number(before.version()) < version
        });
        if is_new {
            known.insert(Name::clone(stored.name()), stored);
            self.changed.notify_one();
        }
        is_new
    }

    fn forget(&self, name: &Name) -> bool {
        let known = self.known.lock().remove(name).is_some();
        self.changed.notify_one();
        known
    }

    fn names(&self) -> Vec<Name> {
        self.known.lock().keys().cloned().collect()
    }
}

/// Whether the cluster does not know the kind, or does not let us read it.
fn is_absent(error: &ApiError) -> bool {
    matches!(error, ApiError::NotFound(_) | ApiError::Forbidden(_))
}

/// Receives ZoneEvacuations from the watch.
pub(crate) struct EvacuationFollower<L> {
    pub(crate) evacuations: Arc<StoredEvacuations>,
    pub(crate) watched: Arc<WatchedIndex<L>>,
    /// Told when the zones that are being emptied have changed.
    pub(crate) zones_changed: Box<dyn Fn() + Send + Sync>,
}

impl<L: IndexListener> EvacuationFollower<L> {
    /// Follows them; never ends. A cluster that does not know the kind, or does not let us read it, has none.
    pub(crate) async fn follow(mut self, client: Client) {
        let path = format!("{}?limit=1", EVACUATIONS.path);
        while let Err(error) = api::get(&client, &path).await {
            if !is_absent(&error) {
                break;
            }
            tracing::info!(%error, "zones cannot be emptied: this cluster has no ZoneEvacuations, or they may not be read");
            self.gone();
            sleep(ABSENT_PERIOD).await;
        }
        watch::follow(client, EVACUATIONS, self).await;
    }

    /// There is none.
    fn gone(&mut self) {
        self.listed(0, &BTreeSet::new());
    }

    fn changed(&self) {
        (self.zones_changed)();
    }
}

impl<L: IndexListener> WatchListener for EvacuationFollower<L> {
    type Object = StoredEvacuation;

    fn read(&self, object: Encoded<'_>) -> Result<StoredEvacuation, DecodeError> {
        object.decode()
    }

    fn apply(&mut self, stored: StoredEvacuation) {
        if self.evacuations.note(stored) {
            self.changed();
        }
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.watched.listener.unreadable(EVACUATIONS.name, key, error);
    }

    fn delete(&mut self, _: u64, (_, name): &Key) {
        if self.evacuations.forget(name) {
            self.changed();
        }
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        for name in self.evacuations.names() {
            let key = (Name::default(), name);
            if !keys.contains(&key) {
                self.delete(version, &key);
            }
        }
        self.watched.listener.listed(EVACUATIONS.name);
    }

    fn rewound(&mut self) {
        self.watched.listener.rewound();
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        let health = match health {
            // It is the whole truth, so it also ends an interruption before it, which would keep this replica from
            // becoming the leader.
            Err(error) if is_absent(error) => {
                self.gone();
                Ok(())
            }
            _ => health,
        };
        self.watched.listener.health(EVACUATIONS.name, health);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use zonewise_inventory::follow::Cause;
    use zonewise_inventory::index::NodeChange;

    /// Records whether the watch works.
    #[derive(Default)]
    struct Health(Mutex<Vec<bool>>);

    impl IndexListener for Health {
        fn changed(&self, _: Cause, _: Vec<Key>) {}
        fn service_gone(&self, _: &Key) {}
        fn node_changed(&self, _: &Name, _: NodeChange) {}
        fn listed(&self, _: &'static str) {}
        fn health(&self, _: &'static str, health: Result<(), &ApiError>) {
            self.0.lock().push(health.is_ok());
        }
        fn rewound(&self) {}
        fn unreadable(&self, _: &'static str, _: &Key, _: &str) {}
    }

    /// Found by a seed of the simulation: the first request was interrupted, the kind does not exist, and the replica
    /// never became the leader.
    #[test]
    fn a_kind_that_does_not_exist_ends_an_interruption() {
        let mut follower = EvacuationFollower {
            evacuations: Arc::default(),
            watched: WatchedIndex::new(Health::default()),
            zones_changed: Box::new(|| ()),
        };
        follower.health(Err(&ApiError::Unavailable("503".into())));
        follower.health(Err(&ApiError::NotFound("404".into())));
        assert_eq!(*follower.watched.listener.0.lock(), [false, true]);
    }

    fn stored(uid: &str, version: &str, percent: u8) -> StoredEvacuation {
        serde_json::from_value(json!({
            "metadata": { "name": "a", "uid": uid, "resourceVersion": version },
            "spec": { "zone": "a" },
            "status": { "phase": "Moving", "percent": percent },
        }))
        .unwrap()
    }

    #[test]
    fn what_is_older_than_what_is_known_is_not_noted_unless_it_is_another_object() {
        let all = StoredEvacuations::default();
        let noted = |uid, version, percent| all.note(stored(uid, version, percent));
        assert_eq!(
            [noted("1", "5", 75), noted("1", "4", 100), noted("1", "6", 50)],
            [true, false, true]
        );
        assert_eq!(all.in_force(), Evacuations::default().with("a", 50));
        assert!(noted("2", "3", 25), "another object of the same name");
        assert!(all.forget(&"a".into()) && all.in_force().is_empty());
    }
}
