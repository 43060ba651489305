//! Keeps a [`Snapshot`] as the cluster is now: four watches, and what runs, looked at again and again.
//!
//! ```text
//!  watches ─► Snapshot::apply, delete ─► SnapshotListener::changed(Services that it concerns)
//!  Leases, Pods and settings of proxies, every few seconds ─► Snapshot::set_facts
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::{RwLock, RwLockReadGuard};
use serde::de::Error as _;
use tokio::task::JoinSet;
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{
    self, ContentType, NODES, PODS, Resource, SERVICE_CIDRS, SERVICES, SLICES, WatchListener,
};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Keyed};
use zonewise_inventory::evacuation::{EVACUATIONS, KIND};

use super::{OPTIONS, Reader, SOURCE, facts};
use crate::input::{Item, LocatedObject, Object, item};
use crate::snapshot::{Concerned, Snapshot, identity, unreadable_by_proxies};

/// How often it is looked at which programs run.
const LOOK: Duration = Duration::from_secs(10);

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Nodes.
    Nodes,
    /// Pods.
    Pods,
    /// Services.
    Services,
    /// Slices.
    Slices,
    /// What runs in the cluster.
    Programs,
}

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What has changed.
    pub cause: Cause,
    /// Whom it concerns.
    pub concerned: Concerned,
}

/// Is told what becomes of a followed cluster.
pub trait SnapshotListener: Send + Sync + 'static {
    /// Something has changed.
    fn changed(&self, change: Change);
    /// All objects of a kind have been listed.
    fn listed(&self, cause: Cause);
    /// The list or watch of a kind works, or has failed.
    fn health(&self, cause: Cause, health: Result<(), &ApiError>);
}

/// A snapshot that watches keep up to date.
pub struct Followed<L> {
    snapshot: RwLock<Snapshot>,
    /// Is told of the changes.
    pub listener: L,
}

impl<L: SnapshotListener> Followed<L> {
    /// Begins with a snapshot; usually an empty one.
    pub fn new(snapshot: Snapshot, listener: L) -> Arc<Self> {
        Arc::new(Self { snapshot: RwLock::new(snapshot), listener })
    }

    /// The snapshot as it is now. It does not change while the guard is held, and watches wait: hold it for moments, and
    /// never across an await.
    pub fn snapshot(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.snapshot.read()
    }

    /// Starts the watches, of one namespace or of all. They end when the returned tasks are dropped.
    pub fn start(self: &Arc<Self>, client: &Client, namespace: Option<&str>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for kind in [&NODE, &SERVICE, &POD, &SLICE] {
            // Proxies read the JSON.
            let resource = kind.resource.clone().encoded_as(ContentType::Json);
            let resource = match namespace.filter(|_| kind.cause != Cause::Nodes) {
                Some(namespace) => resource.in_namespace(namespace),
                None => resource,
            };
            let updater = Updater { kind, known: BTreeSet::new(), followed: Arc::clone(self) };
            tasks.spawn(watch::follow(client.clone(), resource, updater));
        }
        tasks.spawn(Arc::clone(self).look(client.clone()));
        tasks
    }

    /// Looks at what runs, again and again.
    async fn look(self: Arc<Self>, client: Client) {
        loop {
            let seen = facts(&client).await;
            // What cannot be read now is read the next time.
            let ranges =
                read_all(&client, "ServiceCIDR", SERVICE_CIDRS.path).await.unwrap_or_default();
            let evacuations = read_all(&client, KIND, EVACUATIONS.path).await.ok();
            let changed = {
                let mut snapshot = self.snapshot.write();
                let mut changed = snapshot.set_facts(seen);
                for range in ranges {
                    changed |= snapshot.apply_range(range);
                }
                if let Some(evacuations) = evacuations {
                    let stored = evacuations.into_iter().filter_map(|object| match object {
                        Object::Evacuation(stored) => Some(stored),
                        _ => None,
                    });
                    changed |= snapshot.set_evacuations(&stored.collect::<Vec<_>>());
                }
                changed
            };
            if changed {
                let concerned = Concerned::All;
                self.listener.changed(Change { cause: Cause::Programs, concerned });
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// All objects of a kind that not every cluster has.
async fn read_all(client: &Client, kind: &str, path: &str) -> Result<Vec<Object>, ApiError> {
    let mut objects = Vec::new();
    let mut take = |item| objects.extend(object_of(item));
    Reader { client, pods: false, take: &mut take }.list_if_known(kind, path).await?;
    Ok(objects)
}

/// A kind of object that is watched.
struct Kind {
    name: &'static str,
    cause: Cause,
    resource: Resource,
    delete: fn(&mut Snapshot, &Key) -> Concerned,
}

static NODE: Kind =
    Kind { name: "Node", cause: Cause::Nodes, resource: NODES, delete: Snapshot::delete_node };
static POD: Kind =
    Kind { name: "Pod", cause: Cause::Pods, resource: PODS, delete: Snapshot::delete_pod };
static SERVICE: Kind = Kind {
    name: "Service",
    cause: Cause::Services,
    resource: SERVICES,
    delete: Snapshot::delete_service,
};
static SLICE: Kind = Kind {
    name: "EndpointSlice",
    cause: Cause::Slices,
    resource: SLICES,
    delete: Snapshot::delete_slice,
};

/// The listener of the watch of one kind.
struct Updater<L> {
    kind: &'static Kind,
    /// The objects that are in the snapshot.
    known: BTreeSet<Key>,
    followed: Arc<Followed<L>>,
}

impl<L: SnapshotListener> Updater<L> {
    fn tell(&self, concerned: Concerned) {
        if concerned != Concerned::Services(BTreeSet::new()) {
            self.followed.listener.changed(Change { cause: self.kind.cause, concerned });
        }
    }
}

struct Watched(Object);

impl Keyed for Watched {
    fn key(&self) -> Key {
        let (_, namespace, name) = identity(&self.0);
        (namespace, name)
    }
}

fn object_of(item: Item) -> Option<Object> {
    match item {
        Item::Found(LocatedObject { object, .. }) => Some(object),
        Item::Fault(_) | Item::Ignored { .. } | Item::Clue { .. } => None,
    }
}

fn unusable(message: &str) -> DecodeError {
    DecodeError::Json(serde_json::Error::custom(message))
}

impl<L: SnapshotListener> WatchListener for Updater<L> {
    type Object = Watched;

    fn read(&self, object: Encoded<'_>) -> Result<Watched, DecodeError> {
        let Encoded::Json(json) = object else {
            return Err(unusable("it is not JSON, which was asked for"));
        };
        match item(SOURCE, self.kind.name, json, &OPTIONS) {
            Item::Found(LocatedObject { object, .. }) => match unreadable_by_proxies(&object) {
                Some(why) => Err(unusable(&why)),
                None => Ok(Watched(object)),
            },
            Item::Fault(fault) => Err(unusable(&fault.message)),
            Item::Ignored { kind, .. } | Item::Clue { kind, .. } => {
                Err(unusable(&format!("the API server sent a {kind}")))
            }
        }
    }

    fn apply(&mut self, object: Watched) {
        self.known.insert(object.key());
        let concerned = self.followed.snapshot.write().apply(object.0);
        self.tell(concerned);
    }

    fn unreadable(&mut self, (namespace, name): &Key, error: &str) {
        let kind = self.kind.name;
        tracing::warn!(
            kind,
            %namespace,
            %name,
            error,
            "an object cannot be used; what was known of it before is shown"
        );
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.known.remove(key);
        let concerned = (self.kind.delete)(&mut self.followed.snapshot.write(), key);
        self.tell(concerned);
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let gone: Vec<Key> = self.known.difference(keys).cloned().collect();
        for key in gone {
            self.delete(version, &key);
        }
        self.followed.listener.listed(self.kind.cause);
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        self.followed.listener.health(self.kind.cause, health);
    }
}
