//! What is in the kernel against what should be, and the batch that makes them equal.
//!
//! Elements are compared by a hash of 64 bits, so that a table of any size costs eight bytes per
//! element to look at.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use zonewise_common::name::Key;
use zonewise_nft::{Batch, Bytes, Data, DumpedElement, Family, Parts, Rule, RuleInfo, Verb};
use zonewise_routing::ZoneId;

use super::encode::{self, Names, counter_name};
use super::{Census, Found, Kernel, KernelError};
use crate::rules::TABLE;
use crate::rules::chains::Chain;
use crate::rules::entries::{Entry, Frontend, Value};
use crate::rules::layout::{self, Count, STRAYS};
use crate::rules::sets::Set;
use crate::rules::text::protocol_name;

/// A Service, a protocol and a port of the Service.
pub type Counted = (Key, String, u16);

/// What was not as it should be, and is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Elements that were missing or said something else.
    pub added: usize,
    /// Elements that should not have been there.
    pub removed: usize,
    /// Chains that were missing, too many or changed.
    pub chains: usize,
}

impl Mended {
    /// Nothing was wrong.
    pub fn is_clean(self) -> bool {
        self == Self::default()
    }
}

/// The hashes of what should be there, and which of them were seen.
struct Wanted {
    hashes: Vec<u64>,
    seen: Vec<bool>,
}

impl Wanted {
    fn see(&mut self, hash: u64) -> bool {
        let place = self.hashes.binary_search(&hash);
        place.is_ok_and(|place| !std::mem::replace(&mut self.seen[place], true))
    }

    fn saw_all(&self) -> bool {
        self.seen.iter().all(|seen| *seen)
    }

    fn saw(&self, hash: u64) -> bool {
        self.hashes.binary_search(&hash).is_ok_and(|place| self.seen[place])
    }
}

fn hash(family: Family, set: Set, key: &[u8], (data, end): (Data<'_>, Option<&[u8]>)) -> u64 {
    let mut hasher = DefaultHasher::new();
    (family, set, key).hash(&mut hasher);
    end.unwrap_or(key).hash(&mut hasher);
    match data {
        Data::None => 0.hash(&mut hasher),
        Data::Value(bytes) => (1, bytes).hash(&mut hasher),
        Data::Drop => 2.hash(&mut hasher),
        Data::Goto(chain) => (3, chain).hash(&mut hasher),
        Data::Object(name) => (4, name).hash(&mut hasher),
    }
    hasher.finish()
}

impl Kernel {
    /// Reads the tables back and makes good what differs. Nothing is written when nothing does.
    pub fn mend(&mut self) -> Result<Mended, KernelError> {
        self.mend_to(self.census())
    }

    pub(super) fn mend_to(&mut self, census: Census) -> Result<Mended, KernelError> {
        let mut mended = Mended::default();
        let mut batch = Batch::new(TABLE);
        let mut uses = census.chains;
        // Chains that nothing uses any more wait for their removal, too.
        self.chains.keys().for_each(|chain| {
            uses.entry(*chain).or_insert(0);
        });
        (mended.chains, self.forgotten) = self.mend_chains(&mut batch, &uses)?;
        self.mend_counters(&mut batch, census.zones)?;
        let mut wanted = self.wanted();
        let extra = self.extra(&mut wanted)?;
        mended.removed = extra.len();
        let items = extra.iter().map(|(family, set, key, value)| (*family, *set, key, value));
        encode::write(&mut batch, &Names::default(), Verb::Delete, items);
        let mut missing: Vec<Entry> = Vec::new();
        if !wanted.saw_all() {
            self.each_with_hash(|entry, hash| {
                if !wanted.saw(hash) {
                    missing.push(entry);
                }
            });
        }
        mended.added = missing.len();
        encode::all(&mut batch, &mut missing, &self.zone_names);
        if !batch.is_empty() {
            self.send(&batch)?;
        }
        self.chains = uses;
        self.purge_affinity()?;
        Ok(mended)
    }

    fn each_with_hash(&self, mut take: impl FnMut(Entry, u64)) {
        let mut names = Names::default();
        self.desired.each(|entry| {
            if self.families.contains(&entry.family) {
                names.learn(&entry.value, &self.zone_names);
                let end = match &entry.value {
                    Value::Until(end) => Some(end.as_slice()),
                    _ => None,
                };
                let data = (names.data(&entry.value), end);
                let hash = hash(entry.family, entry.set, entry.key.as_slice(), data);
                take(entry, hash);
            }
        });
    }

    fn wanted(&self) -> Wanted {
        let mut hashes = Vec::new();
        self.each_with_hash(|_, hash| hashes.push(hash));
        hashes.sort_unstable();
        hashes.dedup();
        Wanted { seen: vec![false; hashes.len()], hashes }
    }

    /// Elements in the kernel that should not be there. What waits for its removal may wait on.
    fn extra(
        &mut self,
        wanted: &mut Wanted,
    ) -> Result<Vec<(Family, Set, Bytes, Value)>, KernelError> {
        let mut extra = Vec::new();
        let (mut waiting, mut still) = (self.pending.clone(), BTreeMap::new());
        let sets: Vec<Set> = self.options.sets().filter(|set| !set.learned()).collect();
        for family in self.families.clone() {
            for &set in &sets {
                self.socket.dump(family, TABLE, set.name(), &mut |seen: DumpedElement<'_>| {
                    // Elements with a verdict that we never write have no data here: they are extra.
                    let hash =
                        seen.data.map(|data| hash(family, set, seen.key, (data, seen.key_end)));
                    let key = Bytes::from_slice(seen.key);
                    if let Some(value) = waiting.remove(&(family, set, key)) {
                        still.insert((family, set, key), value);
                    } else if !hash.is_some_and(|hash| wanted.see(hash)) {
                        let until = seen.key_end.map(|end| Value::Until(Bytes::from_slice(end)));
                        let value = until.unwrap_or(Value::Present);
                        extra.push((family, set, key, value));
                    }
                })?;
            }
        }
        self.pending = still;
        Ok(extra)
    }

    pub(super) fn mend_counters(
        &mut self,
        batch: &mut Batch,
        zones: BTreeSet<(Family, ZoneId)>,
    ) -> Result<(), KernelError> {
        for family in self.families.clone() {
            let there: Vec<String> = self
                .socket
                .counters(family, TABLE)?
                .into_iter()
                .map(|counter| counter.name)
                .collect();
            for (_, zone) in zones.iter().filter(|(of, _)| *of == family) {
                let name = counter_name(&(self.zone_names)(*zone));
                if !there.contains(&name) {
                    batch.add_counter(family, &name, "");
                }
            }
        }
        self.counters = zones;
        Ok(())
    }

    /// Whether all chains are there.
    pub(super) fn has_its_chains(&mut self) -> Result<bool, KernelError> {
        if self.look()? != Found::Ours {
            return Ok(false);
        }
        let mut batch = Batch::new(TABLE);
        let uses = self.chains.clone();
        Ok(self.mend_chains(&mut batch, &uses)?.0 == 0)
    }

    /// Chains whose rules are not what they should be are written anew. Unknown ones are emptied, and
    /// returned to be removed once nothing leads there.
    pub(super) fn mend_chains(
        &mut self,
        batch: &mut Batch,
        uses: &BTreeMap<(Family, Chain), i64>,
    ) -> Result<(usize, Vec<(Family, String)>), KernelError> {
        let mut changed = 0;
        let mut unknown_chains = Vec::new();
        for family in self.families.clone() {
            let wanted = self.wanted_chains(family, uses);
            let mut rules: BTreeMap<String, Vec<RuleInfo>> = BTreeMap::new();
            for chain in self.socket.chains(family, TABLE)? {
                rules.entry(chain.name).or_default();
            }
            for rule in self.socket.rules(family, TABLE)? {
                // Which number the kernel gave it says nothing.
                rules.entry(rule.chain.clone()).or_default().push(RuleInfo { handle: 0, ..rule });
            }
            let intact = |name: &String, wanted: &[Rule]| {
                let wanted = wanted.iter().map(|rule| rule.info(family, name));
                rules.get(name).is_some_and(|is| is.iter().cloned().eq(wanted))
            };
            let broken: Vec<&String> = wanted
                .iter()
                .filter(|(name, wanted)| !intact(name, wanted))
                .map(|(name, _)| name)
                .collect();
            let unknown: Vec<&String> =
                rules.keys().filter(|name| !wanted.contains_key(*name)).collect();
            let new = |name: &&&String| !self.forgotten.contains(&(family, (**name).clone()));
            changed += broken.len() + unknown.iter().filter(new).count();
            for name in &broken {
                let base = layout::base_chains(family, &self.options);
                let base =
                    base.iter().find(|(base, _)| base.name == **name).map(|(base, _)| base.chain);
                batch.add_chain(family, name, base.as_ref(), "");
                batch.flush_chain(family, name);
            }
            for name in &unknown {
                batch.flush_chain(family, name);
            }
            for name in broken {
                wanted[name].iter().for_each(|rule| batch.add_rule(family, name, rule));
            }
            unknown_chains.extend(unknown.into_iter().map(|name| (family, name.clone())));
        }
        Ok((changed, unknown_chains))
    }

    fn wanted_chains(
        &self,
        family: Family,
        uses: &BTreeMap<(Family, Chain), i64>,
    ) -> BTreeMap<String, Vec<Rule>> {
        let base = layout::base_chains(family, &self.options).into_iter();
        let base = base.map(|(base, rules)| (base.name.to_owned(), rules));
        let strays = (STRAYS.to_owned(), layout::strays(family, &self.ranges));
        let used = uses.keys().filter(|(of, _)| *of == family);
        let used = used.map(|(_, chain)| (chain.to_string(), chain.rules(family, &self.options)));
        let fixed = layout::fixed_chains(family, &self.options);
        base.chain(fixed).chain(used).chain([strays]).collect()
    }

    /// The connections counted so far, per family and name of a zone's counter.
    pub fn zone_connections(&mut self) -> Result<BTreeMap<String, u64>, KernelError> {
        let mut sums = BTreeMap::new();
        for family in self.families.clone() {
            for counter in self.socket.counters(family, TABLE)? {
                *sums.entry(counter.name).or_insert(0) += counter.packets;
            }
        }
        Ok(sums)
    }

    /// Connections per Service, protocol and Service port, where they are counted.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    pub fn service_connections(&mut self) -> Result<BTreeMap<Counted, u64>, KernelError> {
        let mut sums = BTreeMap::new();
        if self.options.count < Count::Services {
            return Ok(sums);
        }
        let desired = &self.desired;
        for family in self.families.clone() {
            for (set, nodeport) in [(Set::Connections, false), (Set::NodePortConnections, true)] {
                self.socket.dump(family, TABLE, set.name(), &mut |seen: DumpedElement<'_>| {
                    let mut key = Parts(seen.key);
                    let address = if nodeport { None } else { key.address(family) };
                    let (Some(protocol), Some(port)) = (key.protocol(), key.port()) else { return };
                    let frontend = Frontend { address, family, protocol, port };
                    if let Some((service, port)) = desired.owner(&frontend) {
                        let counted = (service.clone(), protocol_name(protocol), port);
                        *sums.entry(counted).or_insert(0) += seen.packets.unwrap_or(0);
                    }
                })?;
            }
        }
        Ok(sums)
    }

    /// What each zone's counter is called.
    pub fn counters_of_zones(&self) -> BTreeMap<String, ZoneId> {
        let name = |zone| counter_name(&(self.zone_names)(zone));
        self.counters.iter().map(|(_, zone)| (name(*zone), *zone)).collect()
    }
}
