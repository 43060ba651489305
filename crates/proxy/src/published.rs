//! What the pages show: the Services as the last sync has left them.
//!
//! ```text
//!  sync loop ─ has the kernel's lock ─► Kernel ─ after each change: the Services that it touched ─► Published
//!                                                                                                  │
//!                                             /metrics, /routes ◄── copies of pointers, at once ───┘
//! ```
//!
//! Nobody holds its lock for longer than it takes to copy pointers, so that a page never waits for the
//! kernel, whatever the sync loop reads or writes there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use zonewise_common::name::Key;
use zonewise_routing::{Frontend, Refusal, ZoneId};

use crate::rules::desired::Desired;
use crate::rules::entries::ProgrammedService;

/// A Service as the last sync has left it.
#[derive(Clone, Debug)]
pub(crate) struct PublishedService {
    /// Its ports, and the endpoints of each.
    pub(crate) programmed: ProgrammedService,
    /// The frontends that it asks for and does not get.
    pub(crate) refused: Box<[(Frontend, Refusal)]>,
}

impl PublishedService {
    /// Why it does not get a frontend.
    pub(crate) fn refusal(&self, frontend: &Frontend) -> Option<&Refusal> {
        self.refused.iter().find(|(at, _)| at == frontend).map(|(_, refusal)| refusal)
    }
}

/// What the pages show. One for the life of the process.
#[derive(Debug, Default)]
pub struct Published {
    services: Mutex<BTreeMap<Key, PublishedService>>,
    /// Zones with a counter in the kernel.
    zones: Mutex<BTreeSet<ZoneId>>,
    /// How many batches the kernel has accepted from the tables that are in use.
    batches: AtomicU64,
}

impl Published {
    /// All Services.
    pub(crate) fn services(&self) -> Vec<PublishedService> {
        self.services.lock().values().cloned().collect()
    }

    /// Zones with a counter in the kernel.
    pub(crate) fn zones(&self) -> BTreeSet<ZoneId> {
        self.zones.lock().clone()
    }

    /// How many batches the kernel has accepted.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }

    /// Forgets every Service: tables are written anew.
    pub(crate) fn clear(&self) {
        self.services.lock().clear();
    }

    /// These Services have changed.
    pub(crate) fn update(&self, desired: &Desired, touched: BTreeSet<Key>) {
        for key in touched {
            let published = desired.services().get(&key).map(|programmed| PublishedService {
                programmed: programmed.clone(),
                refused: desired.refused(&key),
            });
            let mut services = self.services.lock();
            match published {
                Some(published) => drop(services.insert(key, published)),
                None => drop(services.remove(&key)),
            }
        }
    }

    pub(crate) fn set_zones(&self, zones: BTreeSet<ZoneId>) {
        *self.zones.lock() = zones;
    }

    pub(crate) fn set_batches(&self, batches: u64) {
        self.batches.store(batches, Relaxed);
    }
}
