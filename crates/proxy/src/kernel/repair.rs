//! Compares the tables in the kernel with what they should be, and writes the difference.
//!
//! Elements are compared by a hash of 64 bits, so that the comparison needs nine bytes of memory per
//! element, whatever its size.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use zonewise_nft::{Batch, Bytes, Data, DumpedElement, Family, Rule, RuleInfo, Verb};

use super::build::Census;
use super::encode::{self, Names};
use super::{FoundTables, Kernel, KernelError};
use crate::rules::TABLE;
use crate::rules::chains::Chain;
use crate::rules::delta::ElementId;
use crate::rules::entries::{Entry, Value};
use crate::rules::layout::{self, CHECK_CLUSTER_IPS};
use crate::rules::sets::Set;

/// What was not as it should be, and has been repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Elements that were missing or had another value.
    pub added: usize,
    /// Elements that should not have been there, or had another value.
    pub removed: usize,
    /// Chains that were missing, unknown or changed.
    pub chains: usize,
}

impl Repaired {
    /// Whether nothing was wrong.
    pub fn is_clean(self) -> bool {
        self == Self::default()
    }
}

/// The hashes of the elements that should be there, and which of them were found.
struct Wanted {
    hashes: Vec<u64>,
    seen: Vec<bool>,
}

impl Wanted {
    /// Notes an element; whether it is wanted. The kernel may list one twice, while its hash table grows.
    fn see(&mut self, hash: u64) -> bool {
        let at = self.hashes.binary_search(&hash);
        at.inspect(|at| self.seen[*at] = true).is_ok()
    }

    fn saw_all(&self) -> bool {
        self.seen.iter().all(|seen| *seen)
    }

    fn saw(&self, hash: u64) -> bool {
        self.hashes.binary_search(&hash).is_ok_and(|at| self.seen[at])
    }
}

/// An element, as far as it is compared.
struct Element<'a> {
    key: &'a [u8],
    /// The last key of a range.
    key_end: Option<&'a [u8]>,
    data: Data<'a>,
}

fn hash(family: Family, set: Set, element: &Element<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (family, set, element.key).hash(&mut hasher);
    element.key_end.unwrap_or(element.key).hash(&mut hasher);
    match element.data {
        Data::None => 0.hash(&mut hasher),
        Data::Value(bytes) => (1, bytes).hash(&mut hasher),
        Data::Drop => 2.hash(&mut hasher),
        Data::Goto(chain) => (3, chain).hash(&mut hasher),
        Data::Object(name) => (4, name).hash(&mut hasher),
    }
    hasher.finish()
}

/// The hash of an element that was read. Elements with a verdict that we never write have none.
pub(super) fn hash_of(family: Family, set: Set, seen: &DumpedElement<'_>) -> Option<u64> {
    let element = seen.data.map(|data| Element { key: seen.key, key_end: seen.key_end, data });
    element.map(|element| hash(family, set, &element))
}

/// How often a set is read while other programs change tables.
const READ_AGAIN: usize = 10;

impl Kernel {
    /// Reads the tables and repairs what differs. Nothing is written when nothing does.
    pub fn repair(&mut self) -> Result<Repaired, KernelError> {
        self.repair_to(self.census())
    }

    pub(super) fn repair_to(&mut self, census: Census) -> Result<Repaired, KernelError> {
        let mut repaired = Repaired::default();
        let mut batch = Batch::new(TABLE);
        let mut uses = census.chains;
        // Chains that nothing uses any more stay until they are removed.
        self.chains.keys().for_each(|chain| {
            uses.entry(*chain).or_insert(0);
        });
        // Chains of zones use their counters.
        self.repair_counters(&mut batch, census.zones)?;
        (repaired.chains, self.unknown_chains) = self.repair_chains(&mut batch, &uses)?;
        self.take_reused();
        let mut wanted = self.wanted();
        let extra = self.extra(&mut wanted)?;
        repaired.removed = extra.len();
        let items = extra.iter().map(|(id, value)| (*id, value));
        encode::write(&mut batch, &Names::default(), Verb::Delete, items);
        let mut missing: Vec<Entry> = Vec::new();
        if !wanted.saw_all() {
            self.each_with_hash(|entry, hash| {
                if !wanted.saw(hash) {
                    missing.push(entry);
                }
            });
        }
        repaired.added = missing.len();
        encode::add_all(&mut batch, &mut missing, &self.zone_names);
        if !batch.is_empty() {
            self.send(&batch)?;
        }
        self.chains = uses;
        Ok(repaired)
    }

    /// Unused elements that are desired again, perhaps with another value, are compared like all others.
    fn take_reused(&mut self) {
        let mut unused = std::mem::take(&mut self.unused_elements);
        if !unused.is_empty() {
            self.desired.each(|entry| drop(unused.remove(&entry.id())));
        }
        self.unused_elements = unused;
    }

    fn each_with_hash(&self, mut take: impl FnMut(Entry, u64)) {
        let mut names = Names::default();
        self.desired.each(|entry| {
            if self.families.contains(&entry.family) {
                let hash = self.hash_of_entry(&mut names, &entry);
                take(entry, hash);
            }
        });
    }

    /// The hash of an element that should be there.
    pub(super) fn hash_of_entry(&self, names: &mut Names, entry: &Entry) -> u64 {
        names.learn(&entry.value, &self.zone_names);
        let element = Element {
            key: entry.key.as_slice(),
            key_end: entry.value.key_end(),
            data: names.data(&entry.value),
        };
        hash(entry.family, entry.set, &element)
    }

    fn wanted(&self) -> Wanted {
        let mut hashes = Vec::new();
        self.each_with_hash(|_, hash| hashes.push(hash));
        hashes.sort_unstable();
        hashes.dedup();
        Wanted { seen: vec![false; hashes.len()], hashes }
    }

    /// Elements in the kernel that should not be there. Unused elements are left for their removal.
    fn extra(&mut self, wanted: &mut Wanted) -> Result<Vec<(ElementId, Value)>, KernelError> {
        let mut extra = Vec::new();
        let mut still_there = BTreeMap::new();
        let sets: Vec<Set> = self.options.sets().collect();
        for family in self.families.clone() {
            for &set in &sets {
                extra.extend(self.extra_of(family, set, wanted, &mut still_there)?);
            }
        }
        self.unused_elements = still_there;
        Ok(extra)
    }

    /// The same for one set. It is read again if another program has changed a table meanwhile. If that happens
    /// again and again the last reading counts: only we write to our tables, or else the batch
    /// that repairs them fails and they are read once more.
    fn extra_of(
        &mut self,
        family: Family,
        set: Set,
        wanted: &mut Wanted,
        still_there: &mut BTreeMap<ElementId, Value>,
    ) -> Result<BTreeMap<ElementId, Value>, KernelError> {
        let mut extra = BTreeMap::new();
        for _ in 0..READ_AGAIN {
            extra.clear();
            let unused = &self.unused_elements;
            let read = self.socket.dump(family, TABLE, set.name(), &mut |seen| {
                let id = ElementId { family, set, key: Bytes::from_slice(seen.key) };
                let hash = hash_of(family, set, &seen);
                if let Some(value) = unused.get(&id) {
                    still_there.insert(id, value.clone());
                } else if !hash.is_some_and(|hash| wanted.see(hash)) {
                    let until =
                        seen.key_end.map(|end| Value::Until(Box::new(Bytes::from_slice(end))));
                    extra.insert(id, until.unwrap_or(Value::Present));
                }
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Ok(result.map(|()| extra)?),
            }
        }
        Ok(extra)
    }

    /// Whether the tables and all of their chains are there, with their rules.
    pub(super) fn has_all_chains(&mut self) -> Result<bool, KernelError> {
        if self.find_tables()? != FoundTables::Ours {
            return Ok(false);
        }
        let mut batch = Batch::new(TABLE);
        let uses = self.chains.clone();
        Ok(self.repair_chains(&mut batch, &uses)?.0 == 0)
    }

    /// Writes chains anew whose rules are not what they should be. Unknown chains are emptied, and
    /// returned so that they can be removed once nothing leads to them. Returns how many chains were
    /// wrong as well.
    pub(super) fn repair_chains(
        &mut self,
        batch: &mut Batch,
        uses: &BTreeMap<(Family, Chain), i64>,
    ) -> Result<(usize, Vec<(Family, String)>), KernelError> {
        let mut changed = self.repair_affinity_maps(batch, uses)?;
        let mut unknown_chains = Vec::new();
        for family in self.families.clone() {
            let wanted = self.wanted_chains(family, uses);
            let mut rules: BTreeMap<String, Vec<RuleInfo>> = BTreeMap::new();
            for chain in self.socket.chains(family, TABLE)? {
                rules.entry(chain.name).or_default();
            }
            for rule in self.socket.rules(family, TABLE)? {
                // The handle is a number that the kernel gives to every rule.
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
            let new = |name: &&&String| !self.unknown_chains.contains(&(family, (**name).clone()));
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
        let strays =
            (CHECK_CLUSTER_IPS.to_owned(), layout::check_cluster_ips(family, &self.service_cidrs));
        let used = uses.keys().filter(|(of, _)| *of == family);
        let used = used.map(|(_, chain)| (chain.to_string(), chain.rules(family, &self.options)));
        let fixed = layout::fixed_chains(family, &self.options);
        let zones = self.zone_chains(family, &self.counters);
        base.chain(fixed).chain(used).chain(zones).chain([strays]).collect()
    }
}
