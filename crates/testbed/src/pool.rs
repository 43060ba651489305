//! Clusters that tests use one after the other: a start takes two seconds of CPU time, and most tests leave nothing but
//! objects.
//!
//! ```text
//!  test ─► Pool::lend ─┬─ a free one: put back as it was ──► Lent ──► test ends ─► free
//!                      └─ none: start, set up, remember ──► Lent ──► test panics ─► ended
//! ```
//!
//! A lent cluster has one test at a time, so tests see what they would see on a cluster of their own. What they leave is
//! removed before the next one begins: objects that were not there are deleted, and those that were there and have
//! changed are written again. A test that breaks the server, its store or its clock starts a cluster of its own.
//!
//! A pool is a static, and its clusters live as long as the test program: their processes end with it, and so do their files
//! ([`crate::process`]).

use std::collections::BTreeMap;
use std::ops::Deref;
use std::thread;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::Value;

use crate::cluster::{Cluster, Options};
use crate::requests::{Objects, code};

/// How often a cluster is looked at until it is as it was: a definition goes a while after its objects, and what writes for a
/// test that has just ended may write once more.
const ATTEMPTS: u32 = 100;
/// From so many objects of a kind in a namespace on, they are deleted by one request.
const COLLECTION: usize = 8;
/// Metadata that the API server sets.
const OF_THE_SERVER: [&str; 5] =
    ["resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"];
/// Kinds that the API server creates and renews in namespaces of its own, while it runs.
const RENEWED_BY_THE_SERVER: [&str; 4] = ["ConfigMap", "Event", "Lease", "Secret"];
/// Kinds whose status the API server writes.
const STATUS_OF_THE_SERVER: [&str; 2] = ["APIService", "CustomResourceDefinition"];

/// Clusters of one kind.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Vec<Kept>>,
}

/// A cluster, and the objects that it had before the first test.
#[derive(Debug)]
struct Kept {
    cluster: Cluster,
    before: Stored,
}

/// A label of APIServices that the API server keeps by itself, for definitions.
const AUTOMATIC: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Kind, namespace and name of an object.
type Key = (&'static str, String, String);
type Stored = BTreeMap<Key, Value>;

/// A cluster that a test has for itself until it ends.
#[derive(Debug)]
pub struct Lent {
    /// `None` only while it is dropped.
    kept: Option<Kept>,
    pool: &'static Pool,
}

impl Pool {
    /// Makes a pool without clusters.
    #[must_use]
    pub const fn new() -> Self {
        Self { free: Mutex::new(Vec::new()) }
    }

    /// Lends a cluster that is as `set_up` leaves a new one with these options, which are the same for all of a pool.
    ///
    /// # Errors
    /// If no cluster can be started, set up or put back.
    pub async fn lend(
        &'static self,
        options: Options,
        set_up: impl AsyncFn(&Cluster) -> Result<()>,
    ) -> Result<Lent> {
        let free = self.free.lock().pop();
        let kept = match free {
            Some(kept) => {
                kept.put_back().await.context("cannot put back a cluster that tests share")?;
                kept
            }
            None => {
                let cluster = Cluster::start_with(options).await?;
                set_up(&cluster).await?;
                let before = stored(&cluster.objects()?).await?;
                Kept { cluster, before }
            }
        };
        Ok(Lent { kept: Some(kept), pool: self })
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Lent {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        match &self.kept {
            Some(kept) => &kept.cluster,
            None => unreachable!("it is returned only when it is dropped"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A failed test may have left anything.
        if let Some(kept) = self.kept.take().filter(|_| !thread::panicking()) {
            self.pool.free.lock().push(kept);
        }
    }
}

impl Kept {
    /// Removes what is new, and writes what has changed or is gone, until all is as before.
    async fn put_back(&self) -> Result<()> {
        let objects = self.cluster.objects()?;
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let now = stored(&objects).await?;
            let is_new = |(key, one): &(&Key, &Value)| {
                self.before.get(*key).is_none_or(|before| is_another(before, one))
            };
            let new: Vec<&Key> = now.iter().filter(is_new).map(|(key, _)| key).collect();
            let is_gone = |(key, _): &(&Key, &Value)| !now.contains_key(*key);
            let gone: Vec<Value> =
                self.before.iter().filter(is_gone).map(|(_, one)| of_a_client(one)).collect();
            let changed = changed(&self.before, &now);
            if new.is_empty() && gone.is_empty() && changed.is_empty() {
                return Ok(());
            }
            last = format!("{new:?} are new, {gone:?} are gone, {changed:?} have changed");
            self.remove(&objects, &new).await?;
            // The server makes some objects again by itself, and a status has another version than what was written before it.
            for written in [objects.create(&gone).await, objects.update(&changed).await] {
                written
                    .or_else(|error| if code(&error) == Some(409) { Ok(()) } else { Err(error) })?;
            }
        }
        bail!("{ATTEMPTS} times was not enough: {last}")
    }

    /// Deletes objects, and namespaces after what is in them.
    async fn remove(&self, objects: &Objects, all: &[&Key]) -> Result<()> {
        let mut by_place: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (kind, namespace, name) in all {
            by_place.entry((kind, namespace)).or_default().push(name);
        }
        let namespaces = by_place.remove(&("Namespace", "")).unwrap_or_default();
        for ((kind, namespace), names) in by_place {
            let is_whole =
                !self.before.keys().any(|(known, space, _)| *known == kind && space == namespace);
            if is_whole && names.len() >= COLLECTION && !namespace.is_empty() {
                objects.delete_all(kind, namespace).await?;
                continue;
            }
            for name in names {
                objects.delete_if_there(kind, namespace, name).await?;
            }
        }
        for name in namespaces {
            objects.end_namespace(name).await?;
        }
        Ok(())
    }
}

/// All objects of all known kinds, but for those that the server renews in namespaces of its own.
async fn stored(objects: &Objects) -> Result<Stored> {
    let mut stored = Stored::new();
    for (kind, list) in objects.list_everything().await? {
        for mut object in list {
            let text =
                |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            let (namespace, name) = (text("namespace"), text("name"));
            let is_automatic = object["metadata"]["labels"][AUTOMATIC].is_string();
            let is_renewed =
                namespace.starts_with("kube-") && RENEWED_BY_THE_SERVER.contains(&kind);
            if !is_automatic && !is_renewed {
                object["kind"] = kind.into();
                stored.insert((kind, namespace, name), object);
            }
        }
    }
    Ok(stored)
}

/// Objects that say something else than before, as they were, with the version that they have now.
fn changed(before: &Stored, now: &Stored) -> Vec<Value> {
    let version = |one: &Value| one["metadata"]["resourceVersion"].clone();
    let pairs = before.iter().filter_map(|(key, before)| Some((before, now.get(key)?)));
    pairs
        .filter(|(before, now)| !is_another(before, now))
        .filter(|(before, now)| version(before) != version(now))
        .map(|(before, now)| (of_a_client(before), of_a_client(now), version(now)))
        .filter(|(before, now, _)| before != now)
        .map(|(mut before, _, version)| {
            before["metadata"]["resourceVersion"] = version;
            before
        })
        .collect()
}

/// True if an object has taken the name of one that said something else.
fn is_another(before: &Value, now: &Value) -> bool {
    before["metadata"]["uid"] != now["metadata"]["uid"] && of_a_client(before) != of_a_client(now)
}

/// An object without what the server sets.
fn of_a_client(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in OF_THE_SERVER {
            metadata.remove(field);
        }
    }
    if let Some(object) = object
        .as_object_mut()
        .filter(|one| STATUS_OF_THE_SERVER.iter().any(|kind| one["kind"] == *kind))
    {
        object.remove("status");
    }
    object
}
