//! The tables written as a whole: sets, elements in portions, chains, and base chains last.

use crate::rules::TABLE;
use crate::rules::affinity::SPEC;
use crate::rules::chains::Chain;
use crate::rules::entries::Value;
use crate::rules::layout::{self, CHECK_CLUSTER_IPS};
use std::collections::{BTreeMap, BTreeSet};
use zonewise_nft::{Batch, Family, TableFlags};
use zonewise_routing::ZoneId;

use super::{Kernel, KernelError, affinity, encode};

/// How many elements are encoded at a time, so that little memory is needed.
pub(super) const CHUNK: usize = 4 << 10;

/// What the desired elements need, counted in one pass.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) elements: usize,
    /// Chains that come and go, and how many elements lead to each.
    pub(super) chains: BTreeMap<(Family, Chain), i64>,
    /// Zones with a counter.
    pub(super) zones: BTreeSet<(Family, ZoneId)>,
}

impl Kernel {
    /// Writes everything. Base chains come last: until then no packet enters the tables. Tables that
    /// are there already are deleted in the same batch.
    pub(super) fn build(&mut self) -> Result<(), KernelError> {
        let (mut batch, replace) = self.foundation()?;
        let mut chunk = Vec::new();
        let mut failed = None;
        let (socket, families, zones) = (&mut self.socket, &self.families, &self.zone_names);
        self.desired.each(|entry| {
            if failed.is_some() || !families.contains(&entry.family) {
                return;
            }
            chunk.push(entry);
            // Replacing tables has to be one batch; first tables can be written in several.
            if chunk.len() >= CHUNK {
                encode::add_all(&mut batch, &mut chunk, zones);
                if !replace {
                    failed = socket.commit(&batch).err();
                    batch.clear();
                }
            }
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        encode::add_all(&mut batch, &mut chunk, &self.zone_names);
        self.hooks(&mut batch);
        self.replace_counts(&batch)
    }

    /// Has the kernel check what [`Self::build`] would write.
    pub(super) fn check_build(&mut self) -> Result<(), KernelError> {
        let (mut batch, _) = self.foundation()?;
        self.fill(&mut batch);
        self.hooks(&mut batch);
        Ok(self.socket.check(&batch)?)
    }

    /// Deletes the tables that are there, and adds new ones up to their elements.
    pub(super) fn foundation(&mut self) -> Result<(Batch, bool), KernelError> {
        self.unused_elements.clear();
        let census = self.census();
        (self.chains, self.counters) = (census.chains, census.zones);
        let mut batch = Batch::new(TABLE);
        let old = self.socket.tables()?.into_iter().filter(|table| table.name == TABLE);
        old.for_each(|table| batch.delete_table(table.family));
        let replaces = !batch.is_empty();
        self.owned = self.probe_ownership()?;
        self.frame(&mut batch);
        Ok((batch, replaces))
    }

    /// Adds all elements.
    pub(super) fn fill(&self, batch: &mut Batch) {
        let mut chunk = Vec::new();
        self.desired.each(|entry| {
            if self.families.contains(&entry.family) {
                chunk.push(entry);
            }
            if chunk.len() >= CHUNK {
                encode::add_all(batch, &mut chunk, &self.zone_names);
            }
        });
        encode::add_all(batch, &mut chunk, &self.zone_names);
    }

    /// Writes all elements again, but for session affinity, which is kept.
    pub(super) fn refill(&mut self, census: Census) -> Result<(), KernelError> {
        let mut batch = Batch::new(TABLE);
        self.repair_counters(&mut batch, census.zones)?;
        (_, self.unknown_chains) = self.repair_chains(&mut batch, &census.chains)?;
        for &family in &self.families {
            self.options.sets().for_each(|set| batch.flush_set(family, set.name()));
        }
        self.fill(&mut batch);
        self.send(&batch)?;
        self.unused_elements.clear();
        self.chains = census.chains;
        Ok(())
    }

    /// Adds the tables with their sets, counters and all chains but base chains.
    pub(super) fn frame(&self, batch: &mut Batch) {
        let flags = TableFlags { owner: self.owned, persist: self.owned };
        for &family in &self.families {
            batch.add_table(family, flags, &self.comment());
            self.options.sets().for_each(|set| batch.add_set(family, set.spec()));
            for map in affinity::maps(self.chains.keys(), family) {
                batch.add_set_as(family, &SPEC, &map.to_string());
            }
            let fixed = layout::fixed_chains(family, &self.options);
            let strays = (
                CHECK_CLUSTER_IPS.to_owned(),
                layout::check_cluster_ips(family, &self.service_cidrs),
            );
            let used = self.chains.keys().filter(|(of, chain)| *of == family && !chain.is_fixed());
            let used =
                used.map(|(_, chain)| (chain.to_string(), chain.rules(family, &self.options)));
            let chains: Vec<_> = fixed.into_iter().chain([strays]).chain(used).collect();
            chains.iter().for_each(|(name, _)| batch.add_chain(family, name, None, ""));
            for (name, rules) in &chains {
                rules.iter().for_each(|rule| batch.add_rule(family, name, rule));
            }
            let counters = self.counters.iter().filter(|(of, _)| *of == family);
            for (others, (_, zone)) in counters.enumerate() {
                self.add_zone(batch, family, *zone, others);
            }
        }
    }

    /// Adds the base chains.
    pub(super) fn hooks(&self, batch: &mut Batch) {
        for &family in &self.families {
            for (base, rules) in layout::base_chains(family, &self.options) {
                batch.add_chain(family, base.name, Some(&base.chain), "");
                rules.iter().for_each(|rule| batch.add_rule(family, base.name, rule));
            }
        }
    }

    pub(super) fn census(&self) -> Census {
        let mut census = Census::default();
        self.desired.each(|entry| {
            if !self.families.contains(&entry.family) {
                return;
            }
            census.elements += 1;
            match entry.value {
                Value::Chain(chain, _) if !chain.is_fixed() => {
                    *census.chains.entry((entry.family, chain)).or_insert(0) += 1;
                }
                Value::Zone(zone) | Value::ZoneChain(zone) => {
                    census.zones.insert((entry.family, zone));
                }
                Value::Chain(..)
                | Value::Present
                | Value::Until(_)
                | Value::Endpoint(_)
                | Value::Drop(_) => {}
            }
        });
        census
    }
}
