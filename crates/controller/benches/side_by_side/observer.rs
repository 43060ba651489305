//! Watches EndpointSlices as a proxy does: which addresses are ready, and when each was added and removed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use tokio::task::JoinHandle;
use zonewise_testbed::{Change, Cluster, Objects, Watch};

/// The fields of a slice that are decoded. As few as possible, so that decoding does not take CPU from the
/// programs that are measured.
#[derive(Clone, Deserialize)]
struct Slice {
    metadata: Metadata,
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    resource_version: String,
}

#[derive(Clone, Deserialize)]
struct Endpoint {
    addresses: Vec<Ipv4Addr>,
    conditions: Conditions,
}

#[derive(Clone, Deserialize)]
struct Conditions {
    ready: Option<bool>,
}

/// The ready addresses, and when each was first added and last removed.
#[derive(Default)]
pub(crate) struct View {
    slices: BTreeMap<(String, String), Vec<Ipv4Addr>>,
    holders: BTreeMap<Ipv4Addr, u32>,
    pub(crate) arrived: BTreeMap<Ipv4Addr, Instant>,
    pub(crate) left: BTreeMap<Ipv4Addr, Instant>,
    /// The resource version of the last change.
    version: String,
    ended: Option<String>,
}

impl View {
    /// The number of distinct addresses that are ready in some slice.
    pub(crate) fn ready(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn slices(&self) -> usize {
        self.slices.len()
    }

    pub(crate) fn is_ready(&self, address: Ipv4Addr) -> bool {
        self.holders.contains_key(&address)
    }

    fn apply(&mut self, change: Change<Slice>, now: Instant) {
        let (slice, gone) = match change {
            Change::Added(slice) | Change::Modified(slice) => (slice, false),
            Change::Deleted(slice) => (slice, true),
        };
        let Metadata { namespace, name, resource_version } = slice.metadata;
        let key = (namespace, name);
        self.version = resource_version;
        let addresses = if gone { Vec::new() } else { ready(slice.endpoints) };
        for address in &addresses {
            *self.holders.entry(*address).or_default() += 1;
            self.arrived.entry(*address).or_insert(now);
        }
        let before =
            if gone { self.slices.remove(&key) } else { self.slices.insert(key, addresses) };
        for address in before.unwrap_or_default() {
            self.release(address, now);
        }
    }

    fn release(&mut self, address: Ipv4Addr, now: Instant) {
        let Some(holders) = self.holders.get_mut(&address) else { return };
        *holders -= 1;
        if *holders == 0 {
            self.holders.remove(&address);
            self.left.insert(address, now);
        }
    }
}

/// Keeps a [`View`] up to date in the background.
pub(crate) struct Observer {
    view: Arc<Mutex<View>>,
    task: JoinHandle<()>,
}

impl Observer {
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let objects = cluster.objects()?;
        let watch = objects.watch("EndpointSlice", None).await?;
        let view = Arc::new(Mutex::new(View::default()));
        let task = tokio::spawn(follow(objects, watch, Arc::clone(&view)));
        Ok(Self { view, task })
    }

    /// The view now; fails when it is not kept up to date any more.
    pub(crate) fn view(&self) -> Result<MutexGuard<'_, View>> {
        let view = self.view.lock();
        match &view.ended {
            Some(reason) => bail!("the watch on EndpointSlices ended: {reason}"),
            None => Ok(view),
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server closes a watch whose client does not keep up with thousands of new slices on a busy machine. It then
/// goes on after the last change that was seen.
async fn follow(objects: Objects, mut watch: Watch<Slice>, view: Arc<Mutex<View>>) {
    let reason = loop {
        match watch.next().await {
            Ok(Some(change)) => view.lock().apply(change, Instant::now()),
            Ok(None) => {
                let version = view.lock().version.clone();
                match objects.watch_after("EndpointSlice", None, &version).await {
                    Ok(next) => watch = next,
                    Err(error) => break format!("{error:#}"),
                }
            }
            Err(error) => break format!("{error:#}"),
        }
    };
    view.lock().ended = Some(reason);
}

fn ready(endpoints: Option<Vec<Endpoint>>) -> Vec<Ipv4Addr> {
    endpoints
        .unwrap_or_default()
        .into_iter()
        .filter(|endpoint| endpoint.conditions.ready != Some(false))
        .flat_map(|endpoint| endpoint.addresses)
        .collect()
}
