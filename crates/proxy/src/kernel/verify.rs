//! Verification in portions, between which the sync loop applies changes.
//!
//! ```text
//!  tables, chains, counters ─► elements, Service by Service, looked up by key ─► shared elements ─► done
//!        │                          └─ time is up: go on later                        │
//!        └─────────── something is not as it should be ───────────────────────────────┴─► read all, repair
//! ```
//!
//! The kernel needs time that grows with the square of a set's size to list it, and a change would wait for
//! that. Looking elements up by key costs the same for each, however many there are. It does not find elements
//! that should not be there: these can come only from other programs, which the kernel keeps away
//! where tables have an owner. Elsewhere the verification ends with reading everything.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use zonewise_common::name::Key;
use zonewise_nft::Family;

use super::encode::Names;
use super::repair::hash_of;
use super::{Kernel, KernelError, Repaired};
use crate::rules::TABLE;
use crate::rules::entries::Entry;
use crate::rules::sets::Set;

/// Tables with up to this many endpoints are read at once: that takes milliseconds.
const AT_ONCE: usize = 2000;
/// How many elements are looked up with one request; the responses must fit into the socket's buffer.
const PORTION: usize = 500;

/// How far a verification has come.
#[derive(Debug, Default)]
pub struct Verification {
    position: Position,
}

#[derive(Debug, Default)]
enum Position {
    #[default]
    Start,
    /// Services up to this one are verified.
    Services(Option<Key>),
    /// All Services, and this many shared elements.
    Shared(usize),
}

impl Kernel {
    /// Goes on with a verification for about this long. `None` if there is more to do, else what was
    /// repaired.
    ///
    /// # Errors
    /// If the kernel cannot be read, or cannot be brought to the desired state.
    pub fn verify(
        &mut self,
        verification: &mut Verification,
        budget: Duration,
    ) -> Result<Option<Repaired>, KernelError> {
        let began = Instant::now();
        if matches!(verification.position, Position::Start) {
            if self.endpoints() <= AT_ONCE || !self.has_all_chains()? || !self.has_all_counters()? {
                return self.restore().map(Some);
            }
            verification.position = Position::Services(None);
        }
        loop {
            let portion = self.next_portion(verification);
            if portion.is_empty() {
                return match self.owned {
                    true => Ok(Some(Repaired::default())),
                    false => self.restore().map(Some),
                };
            }
            if !self.holds(&portion)? {
                return self.restore().map(Some);
            }
            if began.elapsed() >= budget {
                return Ok(None);
            }
        }
    }

    /// How many endpoints there are: a measure for the size of the tables that is cheap to compute.
    fn endpoints(&self) -> usize {
        let ports = self.desired.services().values().flat_map(|known| known.ports.iter().flatten());
        ports.flatten().map(|route| route.cluster.len() + route.local.len()).sum()
    }

    fn has_all_counters(&mut self) -> Result<bool, KernelError> {
        let mut batch = zonewise_nft::Batch::new(TABLE);
        self.repair_counters(&mut batch, self.counters.clone())?;
        Ok(batch.is_empty())
    }

    /// Elements that are to be verified next; none at the end.
    fn next_portion(&self, verification: &mut Verification) -> Vec<Entry> {
        let mut portion = Vec::new();
        while let Position::Services(after) = &verification.position {
            match self.desired.next_service(after.as_ref()) {
                Some((key, entries)) => {
                    portion.extend(entries);
                    verification.position = Position::Services(Some(key));
                }
                None => verification.position = Position::Shared(0),
            }
            if portion.len() >= PORTION {
                return portion;
            }
        }
        if let (true, Position::Shared(done)) = (portion.is_empty(), &mut verification.position) {
            portion.extend(self.desired.common_entries().skip(*done).take(PORTION));
            *done += portion.len();
        }
        portion
    }

    /// Whether the kernel has these elements.
    fn holds(&mut self, entries: &[Entry]) -> Result<bool, KernelError> {
        let mut by_set: BTreeMap<(Family, Set), Vec<&Entry>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| self.families.contains(&entry.family)) {
            by_set.entry((entry.family, entry.set)).or_default().push(entry);
        }
        let mut names = Names::default();
        for ((family, set), entries) in by_set {
            for portion in entries.chunks(PORTION) {
                let mut wanted: BTreeSet<u64> =
                    portion.iter().map(|entry| self.hash_of_entry(&mut names, entry)).collect();
                let keys =
                    portion.iter().map(|entry| (entry.key.as_slice(), entry.value.key_end()));
                let found = self.socket.lookup(family, TABLE, set.name(), keys, &mut |seen| {
                    hash_of(family, set, &seen).map(|hash| wanted.remove(&hash));
                });
                match found {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                    result => result?,
                }
                if !wanted.is_empty() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
