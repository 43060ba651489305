//! Batches for the kernel: elements as netlink messages.

use std::collections::{BTreeMap, BTreeSet};

use zonewise_nft::{Batch, Data, Element, Family, Verb};
use zonewise_routing::ZoneId;

use super::{Kernel, ZoneNames};
use crate::rules::TABLE;
use crate::rules::chains::Chain;
use crate::rules::delta::{Change, Delta, ElementId};
use crate::rules::entries::{Entry, Value};

/// The name of a zone's counter. Zone names added from labels of nodes: characters that nft could not
/// print become `_`, and a hash keeps such names apart.
pub(crate) fn counter_name(zone: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let clean: String = zone.chars().take(64).map(|c| if plain(c) { c } else { '_' }).collect();
    if clean == zone {
        return format!("zone-{clean}");
    }
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    zone.hash(&mut hasher);
    format!("zone-{clean}-{:08x}", hasher.finish() as u32)
}

/// The names of chains and counters that values refer to.
#[derive(Default)]
pub(super) struct Names {
    chains: BTreeMap<Chain, String>,
    zones: BTreeMap<ZoneId, String>,
}

impl Names {
    /// Adds the names that a value refers to.
    pub(super) fn learn(&mut self, value: &Value, zones: &ZoneNames) {
        match value {
            Value::Chain(chain, _) => {
                self.chains.entry(*chain).or_insert_with(|| chain.to_string());
            }
            Value::Zone(zone) | Value::ZoneChain(zone) => {
                self.zones.entry(*zone).or_insert_with(|| counter_name(&zones(*zone)));
            }
            Value::Present | Value::Until(_) | Value::Endpoint(_) | Value::Drop(_) => {}
        }
    }

    pub(super) fn data<'a>(&'a self, value: &'a Value) -> Data<'a> {
        let name = |name: Option<&'a String>| name.map_or("", |name| name);
        match value {
            Value::Present | Value::Until(_) => Data::None,
            Value::Endpoint(bytes) => Data::Value(bytes.as_slice()),
            Value::Chain(chain, _) => Data::Goto(name(self.chains.get(chain))),
            Value::Drop(_) => Data::Drop,
            Value::Zone(zone) => Data::Object(name(self.zones.get(zone))),
            Value::ZoneChain(zone) => Data::Goto(name(self.zones.get(zone))),
        }
    }

    fn element<'a>(&'a self, key: &'a [u8], value: &'a Value) -> Element<'a> {
        let comment = match value {
            Value::Chain(_, comment) | Value::Drop(comment) => &comment.0,
            Value::Present
            | Value::Until(_)
            | Value::Endpoint(_)
            | Value::Zone(_)
            | Value::ZoneChain(_) => "",
        };
        let key_end = value.key_end();
        Element { key, key_end, data: self.data(value), timeout: None, comment }
    }
}

/// An element to be written.
pub(super) type Item<'a> = (ElementId, &'a Value);

/// Adds or deletes elements. Consecutive elements of one set share a message.
pub(super) fn write<'a>(
    batch: &mut Batch,
    names: &Names,
    verb: Verb,
    items: impl Iterator<Item = Item<'a>>,
) {
    let mut items = items.peekable();
    while let Some(&(ElementId { family, set, .. }, _)) = items.peek() {
        let mut elements = batch.elements(verb, family, set.name());
        let same_set = |(id, _): &Item<'_>| (id.family, id.set) == (family, set);
        while let Some((id, value)) = items.next_if(same_set) {
            let element = names.element(id.key.as_slice(), value);
            match verb {
                Verb::Add => elements.push(&element),
                Verb::Delete => {
                    elements.push(&Element { data: Data::None, comment: "", ..element });
                }
            }
        }
    }
}

/// Adds all of these elements, sorted by set, and clears the list.
pub(super) fn add_all(batch: &mut Batch, entries: &mut Vec<Entry>, zones: &ZoneNames) {
    entries.sort_by_key(|entry| (entry.family, entry.set));
    let mut names = Names::default();
    entries.iter().for_each(|entry| names.learn(&entry.value, zones));
    let items = entries.iter().map(|entry| (entry.id(), &entry.value));
    write(batch, &names, Verb::Add, items);
    entries.clear();
}

/// Two batches, and how the bookkeeping changes when the kernel has accepted them.
pub(super) struct Prepared {
    /// What elements of the second batch lead to: chains, with their rules and what these name. A packet that is on its
    /// way while a batch takes effect finds the new elements, but goes on by the rules of before, and a chain of the same
    /// batch has none: the connection would be rejected.
    pub(super) ahead: Batch,
    pub(super) batch: Batch,
    chains: BTreeMap<(Family, Chain), i64>,
    counters: BTreeSet<(Family, ZoneId)>,
    became_unused: Vec<(ElementId, Value)>,
    /// Elements that are desired again, or deleted by this batch.
    no_longer_unused: Vec<ElementId>,
}

/// Whether the element is behind an entrance that leads packets to it after the change.
fn is_reachable(delta: &Delta, id: &ElementId) -> bool {
    id.set.entrance().is_some_and(|entrance| {
        let leads = delta.after(&ElementId { set: entrance, ..*id });
        matches!(leads, Some(Value::Chain(Chain::ExternalLocal(_), _)))
    })
}

impl Default for Prepared {
    fn default() -> Self {
        Self {
            ahead: Batch::new(TABLE),
            batch: Batch::new(TABLE),
            chains: BTreeMap::new(),
            counters: BTreeSet::new(),
            became_unused: Vec::new(),
            no_longer_unused: Vec::new(),
        }
    }
}

impl Kernel {
    /// The batches for a change: chains and counters, then elements to delete and elements to add.
    pub(super) fn prepare(&self, delta: &Delta) -> Prepared {
        let mut prepared = Prepared { chains: delta.chains(), ..Prepared::default() };
        prepared
            .chains
            .retain(|(family, chain), _| !chain.is_fixed() && self.families.contains(family));
        self.new_chains(&mut prepared);
        self.new_counters(delta, &mut prepared);
        let mut names = Names::default();
        for (id, change) in self.changes(delta) {
            if self.waits(delta, id, change) {
                prepared.became_unused.extend(change.was.clone().map(|was| (*id, was)));
            } else if change.was.is_none() && self.unused_elements.contains_key(id) {
                prepared.no_longer_unused.push(*id);
            }
            prepared.no_longer_unused.extend(self.reopened(delta, id).map(|(id, _)| *id));
            self.added(id, change).into_iter().for_each(|is| names.learn(is, &self.zone_names));
        }
        // Twice over the changes, so that no list of them is needed: a batch may have a million.
        let deleted = self.changes(delta).flat_map(|(id, change)| {
            let own = self.deleted(delta, id, change).map(|was| (*id, was));
            own.into_iter().chain(self.reopened(delta, id).map(|(id, value)| (*id, value)))
        });
        write(&mut prepared.batch, &names, Verb::Delete, deleted);
        let added = self.changes(delta);
        let added = added.filter_map(|(id, change)| Some((*id, self.added(id, change)?)));
        write(&mut prepared.batch, &names, Verb::Add, added);
        prepared
    }

    /// The batches for elements that are not there yet: chains and counters, then the elements. Clears the list.
    pub(super) fn prepare_new(&self, entries: &mut Vec<Entry>) -> Prepared {
        let mut prepared = Prepared::default();
        for entry in &*entries {
            match entry.value {
                Value::Chain(chain, _) if !chain.is_fixed() => {
                    *prepared.chains.entry((entry.family, chain)).or_insert(0) += 1;
                }
                Value::Zone(zone) | Value::ZoneChain(zone) => {
                    self.new_counter(entry.family, zone, &mut prepared);
                }
                // They need nothing but the element.
                Value::Chain(..)
                | Value::Present
                | Value::Until(_)
                | Value::Endpoint(_)
                | Value::Drop(_) => {}
            }
        }
        self.new_chains(&mut prepared);
        add_all(&mut prepared.batch, entries, &self.zone_names);
        prepared
    }

    /// The changes in the tables that there are.
    fn changes<'a>(
        &'a self,
        delta: &'a Delta,
    ) -> impl Iterator<Item = (&'a ElementId, &'a Change)> {
        delta.changes().filter(|(id, _)| self.families.contains(&id.family))
    }

    /// Whether an element is not desired any more and is left for its removal later.
    fn waits(&self, delta: &Delta, id: &ElementId, change: &Change) -> bool {
        change.is.is_none() && id.set.is_removed_later() && !is_reachable(delta, id)
    }

    /// The value with which an element has to be deleted now.
    fn deleted<'a>(
        &'a self,
        delta: &Delta,
        id: &ElementId,
        change: &'a Change,
    ) -> Option<&'a Value> {
        match (&change.was, self.unused_elements.get(id)) {
            (Some(_), _) if self.waits(delta, id, change) => None,
            (None, Some(waiting)) => (change.is.as_ref() != Some(waiting)).then_some(waiting),
            (was, _) => was.as_ref(),
        }
    }

    /// The value with which an element has to be added now: none if it still waits for its removal with it.
    fn added<'a>(&self, id: &ElementId, change: &'a Change) -> Option<&'a Value> {
        let waiting = self.unused_elements.get(id).filter(|_| change.was.is_none());
        change.is.as_ref().filter(|is| waiting != Some(*is))
    }

    /// Unused elements behind an entrance that leads to them again: they must be deleted at once.
    fn reopened<'a>(
        &'a self,
        delta: &'a Delta,
        id: &'a ElementId,
    ) -> impl Iterator<Item = (&'a ElementId, &'a Value)> {
        let behind = id.set.behind().map(move |set| ElementId { set, ..*id });
        let waiting = behind.filter_map(|id| self.unused_elements.get_key_value(&id));
        waiting.filter(|(id, _)| is_reachable(delta, id) && delta.after(id).is_none())
    }

    fn new_chains(&self, prepared: &mut Prepared) {
        let chains = prepared.chains.iter().filter(|(_, by)| **by > 0).map(|(chain, _)| chain);
        self.new_affinity_maps(&mut prepared.ahead, chains);
        for (&(family, chain), &by) in &prepared.chains {
            if by > 0 && !self.chains.contains_key(&(family, chain)) {
                let name = chain.to_string();
                prepared.ahead.add_chain(family, &name, None, "");
                for rule in chain.rules(family, &self.options) {
                    prepared.ahead.add_rule(family, &name, &rule);
                }
            }
        }
    }

    fn new_counters(&self, delta: &Delta, prepared: &mut Prepared) {
        for (ElementId { family, .. }, change) in delta.changes() {
            if let Some(zone) = change.is.as_ref().and_then(Value::zone)
                && self.families.contains(family)
            {
                self.new_counter(*family, zone, prepared);
            }
        }
    }

    /// Adds what counts for a zone, if it is not there.
    fn new_counter(&self, family: Family, zone: ZoneId, prepared: &mut Prepared) {
        let id = (family, zone);
        if !self.counters.contains(&id) && prepared.counters.insert(id) {
            let known = self.counters.union(&prepared.counters);
            let others = known.filter(|other| other.0 == family && **other != id).count();
            self.add_zone(&mut prepared.ahead, family, zone, others);
        }
    }

    /// The kernel has accepted the first batch: its chains are there, and nothing leads to them yet.
    pub(super) fn accepted_ahead(&mut self, prepared: &Prepared) {
        for (id, by) in &prepared.chains {
            if *by > 0 {
                self.chains.entry(*id).or_insert(0);
            }
        }
        self.counters.extend(&prepared.counters);
    }

    /// The kernel has accepted both batches.
    pub(super) fn accepted(&mut self, prepared: Prepared) {
        for (id, by) in prepared.chains {
            *self.chains.entry(id).or_insert(0) += by;
        }
        for id in &prepared.no_longer_unused {
            self.unused_elements.remove(id);
        }
        self.unused_elements.extend(prepared.became_unused);
    }

    /// The batch that deletes unused elements.
    pub(super) fn encode_unused(&self) -> Batch {
        let mut batch = Batch::new(TABLE);
        let items = self.unused_elements.iter().map(|(id, value)| (*id, value));
        write(&mut batch, &Names::default(), Verb::Delete, items);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::counter_name;

    #[test]
    fn names_of_counters_can_be_printed_and_told_apart() {
        assert_eq!(counter_name("eu-west-1a"), "zone-eu-west-1a");
        let odd = ["a b", "a\"b", "a\nb", "zône", &"z".repeat(200), "{"];
        let names: std::collections::BTreeSet<String> =
            odd.iter().map(|zone| counter_name(zone)).collect();
        assert_eq!(names.len(), odd.len());
        assert!(
            names.iter().all(|name| name.is_ascii()
                && name.len() < 100
                && !name.contains(['"', ' ', '\n']))
        );
    }
}
