//! What counts the connections to a zone: a counter, and where Services are counted a chain and a set besides
//! (`rules::counting`). It comes with the first endpoint in the zone and goes when no slice names the zone any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use zonewise_common::name::{Key, Name};
use zonewise_nft::{Batch, Family, Rule};
use zonewise_routing::ZoneId;

use super::encode::counter_name;
use super::{Kernel, KernelError};
use crate::config::CountBy;
use crate::connections::ledger::ElementOf;
use crate::connections::{self, CountedZone};
use crate::rules::TABLE;
use crate::rules::counting::{self, PREFIX, ZONE_PREFIX};

/// How many elements that count are deleted at a time.
const PORTION: usize = 500;

/// What the kernel has for zones, by name of the zone's counter.
#[derive(Default)]
struct There {
    counters: BTreeSet<(Family, String)>,
    chains: BTreeSet<(Family, String)>,
    sets: BTreeSet<(Family, String)>,
}

impl Kernel {
    /// The name of a zone's counter, which is the name of its chain too.
    fn zone_counter(&self, zone: ZoneId) -> String {
        counter_name(&(self.zone_names)(zone))
    }

    /// The zones with a counter, by its name.
    pub(super) fn named_zones(&self) -> impl Iterator<Item = (String, Name)> {
        let zones: BTreeSet<ZoneId> = self.counters.iter().map(|(_, zone)| *zone).collect();
        zones.into_iter().map(|zone| {
            let name = (self.zone_names)(zone);
            (counter_name(&name), name.into())
        })
    }

    /// Sends a batch that makes all tables anew: what was counted goes with those that were there.
    pub(super) fn replace_counts(&mut self, batch: &Batch) -> Result<(), KernelError> {
        let published = Arc::clone(&self.published);
        let _alone = published.reading();
        self.send(batch)?;
        published.connections().tables_are_new();
        Ok(())
    }

    /// Begins to count in tables that an earlier process has left.
    pub(super) fn begin_counting(&mut self) -> Result<(), KernelError> {
        match self.counts_services() {
            true => Ok(connections::begin(&mut self.socket, &self.published)?),
            false => Ok(()),
        }
    }

    fn counts_services(&self) -> bool {
        self.options.count == CountBy::Services
    }

    /// Adds what counts for a zone, where so many other zones of the family have that. A chain that a former process has
    /// left gets its rules anew.
    pub(super) fn add_zone(&self, batch: &mut Batch, family: Family, zone: ZoneId, others: usize) {
        let name = self.zone_counter(zone);
        batch.add_counter(family, &name, "");
        if self.counts_services() {
            batch.add_set_as(family, &counting::spec(others), &counting::set(&name));
            batch.add_chain(family, &name, None, "");
            batch.flush_chain(family, &name);
            counting::rules(&name).iter().for_each(|rule| batch.add_rule(family, &name, rule));
        }
    }

    /// The chains of these zones in a family, with their rules.
    pub(super) fn zone_chains(
        &self,
        family: Family,
        zones: &BTreeSet<(Family, ZoneId)>,
    ) -> impl Iterator<Item = (String, Vec<Rule>)> {
        let chained = self.counts_services();
        let of_family = zones.iter().filter(move |(of, _)| *of == family && chained);
        of_family.map(|(_, zone)| {
            let name = self.zone_counter(*zone);
            let rules = counting::rules(&name);
            (name, rules)
        })
    }

    /// Adds counters and sets that are missing. Those of zones that no element names any more are forgotten, and the next
    /// [`Self::remove_counters`] removes them.
    pub(super) fn repair_counters(
        &mut self,
        batch: &mut Batch,
        mut zones: BTreeSet<(Family, ZoneId)>,
    ) -> Result<(), KernelError> {
        zones.extend(self.zones_of_unused_elements());
        let mut there = self.what_counts()?;
        for (family, zone) in &zones {
            let name = (*family, self.zone_counter(*zone));
            if !there.counters.contains(&name) {
                batch.add_counter(*family, &name.1, "");
            }
            if self.counts_services() && !there.sets.contains(&name) {
                let others = there.sets.iter().filter(|(of, _)| of == family).count();
                batch.add_set_as(*family, &counting::spec(others), &counting::set(&name.1));
                there.sets.insert(name);
            }
        }
        let before = std::mem::replace(&mut self.counters, zones);
        if self.counts_services() {
            // Nobody has changed the chains of zones that are forgotten: removing them is no repair.
            let forgotten = before.difference(&self.counters);
            let chains = forgotten.map(|(family, zone)| (*family, self.zone_counter(*zone)));
            let chains: Vec<(Family, String)> = chains.collect();
            self.unknown_chains.extend(chains);
        }
        Ok(())
    }

    /// The zones of elements that wait for their removal, which the kernel counts as users of what they name.
    fn zones_of_unused_elements(&self) -> impl Iterator<Item = (Family, ZoneId)> {
        let unused = self.unused_elements.iter();
        unused.filter_map(|(id, value)| Some((id.family, value.zone()?)))
    }

    fn what_counts(&mut self) -> Result<There, KernelError> {
        let mut there = There::default();
        for &family in &self.families {
            let counters = self.socket.counters(family, TABLE)?;
            there.counters.extend(counters.into_iter().map(|counter| (family, counter.name)));
            if self.options.count != CountBy::Services {
                continue;
            }
            let sets = self.socket.sets(family, TABLE)?.into_iter().map(|set| set.name);
            let zones = sets.filter_map(|set| set.strip_prefix(PREFIX).map(str::to_owned));
            there.sets.extend(zones.map(|zone| (family, zone)));
            let chains = self.socket.chains(family, TABLE)?.into_iter().map(|chain| chain.name);
            let zones = chains.filter(|chain| chain.starts_with(ZONE_PREFIX));
            there.chains.extend(zones.map(|zone| (family, zone)));
        }
        Ok(there)
    }

    /// Removes counters that no element leads to: those of these zones, and those that a former process left. Returns
    /// the zones that no element names.
    pub fn remove_counters(
        &mut self,
        zones: &BTreeSet<ZoneId>,
    ) -> Result<BTreeSet<ZoneId>, KernelError> {
        let there = self.what_counts()?;
        if zones.is_empty() && there.counters.len() <= self.counters.len() {
            return Ok(BTreeSet::new());
        }
        let mut named = self.census().zones;
        named.extend(self.zones_of_unused_elements());
        let is_named = |zone: &ZoneId| named.iter().any(|(_, other)| other == zone);
        let unnamed: BTreeSet<ZoneId> =
            zones.iter().copied().filter(|zone| !is_named(zone)).collect();
        self.counters.extend(named);
        let kept = self.counters.iter().filter(|(_, zone)| !unnamed.contains(zone));
        let kept = kept.map(|(family, zone)| (*family, self.zone_counter(*zone)));
        self.remove_all_but(&kept.collect(), &there)?;
        self.counters.retain(|(_, zone)| !unnamed.contains(zone));
        self.published.set_zones(self.named_zones());
        self.publish();
        Ok(unnamed)
    }

    /// Removes what counts for other zones than these. What it has counted is noted first.
    fn remove_all_but(
        &mut self,
        kept: &BTreeSet<(Family, String)>,
        there: &There,
    ) -> Result<(), KernelError> {
        let mut batch = Batch::new(TABLE);
        for (family, chain) in there.chains.difference(kept) {
            batch.flush_chain(*family, chain);
            batch.delete_chain(*family, chain);
        }
        let published = Arc::clone(&self.published);
        let _alone = published.reading();
        let leaving = self.read_leaving(kept)?;
        for (family, counter) in there.sets.difference(kept) {
            batch.delete_set(*family, &counting::set(counter));
        }
        for (family, counter) in there.counters.difference(kept) {
            batch.delete_counter(*family, counter);
        }
        if !batch.is_empty() {
            self.send(&batch)?;
            let mut ledger = published.connections();
            leaving.iter().for_each(|(zone, family)| ledger.set_is_gone(zone, *family));
            self.unknown_chains
                .retain(|chain| !there.chains.contains(chain) || kept.contains(chain));
        }
        Ok(())
    }

    /// Notes what other zones than these have counted, and returns them.
    fn read_leaving(
        &mut self,
        kept: &BTreeSet<(Family, String)>,
    ) -> Result<Vec<(Name, Family)>, KernelError> {
        let mut leaving = Vec::new();
        if !self.counts_services() {
            return Ok(leaving);
        }
        for &family in &self.families {
            for counted in CountedZone::all(&mut self.socket, &self.published, family)? {
                if kept.contains(&(family, counted.counter.clone())) {
                    continue;
                }
                if let Some(read) = counted.read(&mut self.socket, &self.published)? {
                    self.published.connections().take(&counted.zone, &read);
                }
                leaving.push((counted.zone, family));
            }
        }
        Ok(leaving)
    }

    /// Removes some of the elements that count connections to addresses which no Service has any more, and forgets
    /// what was counted for Services that are gone. True if there may be more to remove.
    ///
    /// # Errors
    /// If the kernel does not remove them.
    pub fn remove_counts(&mut self) -> Result<bool, KernelError> {
        if !self.counts_services() {
            return Ok(false);
        }
        let published = Arc::clone(&self.published);
        let _alone = published.reading();
        let services = self.desired.services();
        let exists = |key: &Key| services.contains_key(key);
        let has_owner = |element: &ElementOf| connections::owner(&published, element).is_some();
        let stale = published.connections().stale(PORTION, &exists, &has_owner);
        for of_zone in stale.chunk_by(|one, other| one.0 == other.0) {
            let zone = &of_zone[0].0;
            let elements: Vec<ElementOf> = of_zone.iter().map(|(_, element)| *element).collect();
            self.forget(&counting::set(&counter_name(zone)), &elements)?;
            published.connections().elements_are_gone(zone, &elements);
        }
        Ok(stale.len() == PORTION)
    }
}
