//! The first tables, written in parts while the objects for them are still arriving.
//!
//! ```text
//!  begin: sets, fixed chains ─► add: elements of some Services ─► add … ─► complete: the rest, and base chains
//!                                                                           │
//!                                             no packet enters the tables ──┴── packets enter
//! ```
//!
//! A process that gives up in the middle, or ends, leaves tables that [`Kernel::start`] finds and corrects.

use zonewise_common::cidr::Cidr;
use zonewise_nft::Batch;

use super::build::CHUNK;
use super::{FoundTables, Kernel, KernelError, Update};
use crate::rules::TABLE;
use crate::rules::entries::Entry;

impl Kernel {
    /// Writes tables without Services and base chains. False, and nothing is written, if there are tables already: what
    /// works is replaced as a whole.
    ///
    /// # Errors
    /// If the kernel refuses them.
    pub fn begin(&mut self, service_cidrs: Vec<Cidr>) -> Result<bool, KernelError> {
        self.service_cidrs = service_cidrs;
        if self.find_tables()? != FoundTables::Nothing {
            return Ok(false);
        }
        let (mut batch, _) = self.foundation()?;
        self.fill(&mut batch);
        self.replace_counts(&batch)?;
        Ok(true)
    }

    /// Adds Services to tables that no packet enters yet.
    ///
    /// # Errors
    /// If the kernel refuses one of them.
    pub fn add(&mut self, updates: Vec<Update>) -> Result<(), KernelError> {
        let (mut entries, mut others) = (Vec::new(), Vec::new());
        for (key, programmed) in updates {
            let Some(new) = programmed else {
                others.push((key, None));
                continue;
            };
            if let Err(programmed) = self.desired.add_new(&key, new, &mut entries) {
                others.push((key, Some(programmed)));
            }
            if entries.len() >= CHUNK {
                self.add_entries(&mut entries)?;
            }
        }
        self.add_entries(&mut entries)?;
        self.attempt(others).map_err(|(error, _)| error)
    }

    /// Adds elements of Services that were not there.
    fn add_entries(&mut self, entries: &mut Vec<Entry>) -> Result<(), KernelError> {
        entries.retain(|entry| self.families.contains(&entry.family));
        let prepared = self.prepare_new(entries);
        self.send_prepared(prepared)
    }

    /// Adds the last Services, then the base chains.
    ///
    /// # Errors
    /// If the kernel refuses it; no packet enters the tables then.
    pub fn complete(&mut self, updates: Vec<Update>) -> Result<(), KernelError> {
        self.add(updates)?;
        let mut batch = Batch::new(TABLE);
        self.hooks(&mut batch);
        self.send(&batch)?;
        self.published.forget_others(&self.desired);
        self.publish();
        Ok(())
    }
}
