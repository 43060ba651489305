//! Elements as messages.

use std::collections::{BTreeMap, BTreeSet};

use zonewise_nft::{Batch, Bytes, Data, Element, Family, Verb};
use zonewise_routing::ZoneId;

use super::{Kernel, ZoneNames};
use crate::rules::TABLE;
use crate::rules::chains::Chain;
use crate::rules::delta::{Delta, Place};
use crate::rules::entries::{Entry, Value};
use crate::rules::sets::Set;

/// The name of a zone's counter. Zones are named by whoever labels nodes: what the rule language
/// could not print becomes `_`, and a number keeps such names apart.
pub fn counter_name(zone: &str) -> String {
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

/// What an element's value is called in the kernel.
#[derive(Default)]
pub(super) struct Names {
    chains: BTreeMap<Chain, String>,
    zones: BTreeMap<ZoneId, String>,
}

impl Names {
    /// Knows the names that a value needs.
    pub(super) fn learn(&mut self, value: &Value, zones: &ZoneNames) {
        match value {
            Value::Chain(chain, _) => {
                self.chains.entry(*chain).or_insert_with(|| chain.to_string());
            }
            Value::Zone(zone) => {
                self.zones.entry(*zone).or_insert_with(|| counter_name(&zones(*zone)));
            }
            _ => {}
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
        }
    }

    fn element<'a>(&'a self, key: &'a [u8], value: &'a Value) -> Element<'a> {
        let key_end = match value {
            Value::Until(end) => Some(end.as_slice()),
            _ => None,
        };
        let comment = match value {
            Value::Chain(_, whom) | Value::Drop(whom) => &whom.0,
            _ => "",
        };
        Element { key, key_end, data: self.data(value), timeout: None, comment }
    }
}

/// An element to be written.
pub(super) type Item<'a> = (Family, Set, &'a Bytes, &'a Value);

/// Adds or deletes elements; neighbours of one set share a message.
pub(super) fn write<'a>(
    batch: &mut Batch,
    names: &Names,
    verb: Verb,
    items: impl Iterator<Item = Item<'a>>,
) {
    let mut items = items.peekable();
    while let Some(&(family, set, _, _)) = items.peek() {
        let mut elements = batch.elements(verb, family, set.name());
        while let Some((_, _, key, value)) = items.next_if(|item| (item.0, item.1) == (family, set))
        {
            let element = names.element(key.as_slice(), value);
            match verb {
                Verb::Add => elements.push(&element),
                Verb::Delete => {
                    elements.push(&Element { data: Data::None, comment: "", ..element });
                }
            }
        }
    }
}

/// Adds all of these elements, in the order of their sets; leaves none behind.
pub(super) fn all(batch: &mut Batch, entries: &mut Vec<Entry>, zones: &ZoneNames) {
    entries.sort_by_key(|entry| (entry.family, entry.set));
    let mut names = Names::default();
    entries.iter().for_each(|entry| names.learn(&entry.value, zones));
    let items = entries.iter().map(|entry| (entry.family, entry.set, &entry.key, &entry.value));
    write(batch, &names, Verb::Add, items);
    entries.clear();
}

/// A batch, and what will be true when the kernel has taken it.
pub(super) struct Prepared {
    pub(super) batch: Batch,
    chains: BTreeMap<(Family, Chain), i64>,
    counters: BTreeSet<(Family, ZoneId)>,
    pended: Vec<(Place, Value)>,
    unpended: Vec<Place>,
}

/// Whether packets still come to this place.
fn is_open(delta: &Delta, &(family, set, key): &Place) -> bool {
    set.entrance().is_some_and(|entrance| {
        let leads = delta.after(&(family, entrance, key));
        matches!(leads, Some(Value::Chain(Chain::ExternalLocal(_), _)))
    })
}

impl Kernel {
    /// The batch for a change: chains and counters first, then what goes, then what comes.
    pub(super) fn prepare(&self, delta: &Delta) -> Prepared {
        let mut prepared = Prepared {
            batch: Batch::new(TABLE),
            chains: delta.chains(),
            counters: BTreeSet::new(),
            pended: Vec::new(),
            unpended: Vec::new(),
        };
        prepared
            .chains
            .retain(|(family, chain), _| !chain.is_fixed() && self.families.contains(family));
        self.new_chains(&mut prepared);
        self.new_counters(delta, &mut prepared);
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for (place, change) in delta.changes().filter(|(place, _)| self.families.contains(&place.0))
        {
            match (&change.was, &change.is, self.pending.get(place)) {
                (Some(was), None, _) if place.1.outlives() && !is_open(delta, place) => {
                    prepared.pended.push((*place, was.clone()));
                }
                (None, Some(is), Some(waiting)) => {
                    prepared.unpended.push(*place);
                    if is != waiting {
                        gone.push(item(place, waiting));
                        come.push(item(place, is));
                    }
                }
                (was, is, _) => {
                    gone.extend(was.as_ref().map(|was| item(place, was)));
                    come.extend(is.as_ref().map(|is| item(place, is)));
                }
            }
            for (waiting, value) in self.reopened(delta, place) {
                prepared.unpended.push(*waiting);
                gone.push(item(waiting, value));
            }
        }
        let mut names = Names::default();
        come.iter().for_each(|(_, _, _, value)| names.learn(value, &self.zone_names));
        write(&mut prepared.batch, &names, Verb::Delete, gone.into_iter());
        write(&mut prepared.batch, &names, Verb::Add, come.into_iter());
        prepared
    }

    /// What waits to be removed behind an entrance that opens again.
    fn reopened<'a>(
        &'a self,
        delta: &'a Delta,
        &(family, set, key): &'a Place,
    ) -> impl Iterator<Item = (&'a Place, &'a Value)> {
        let behind = set.behind().map(move |picks| (family, picks, key));
        let waiting = behind.filter_map(|place| self.pending.get_key_value(&place));
        waiting.filter(|(place, _)| is_open(delta, place) && delta.after(place).is_none())
    }

    fn new_chains(&self, prepared: &mut Prepared) {
        for (&(family, chain), &by) in &prepared.chains {
            if by > 0 && !self.chains.contains_key(&(family, chain)) {
                let name = chain.to_string();
                prepared.batch.add_chain(family, &name, None, "");
                for rule in chain.rules(family, &self.options) {
                    prepared.batch.add_rule(family, &name, &rule);
                }
            }
        }
    }

    fn new_counters(&self, delta: &Delta, prepared: &mut Prepared) {
        for ((family, _, _), change) in delta.changes() {
            if let Some(Value::Zone(zone)) = change.is
                && self.families.contains(family)
                && !self.counters.contains(&(*family, zone))
                && prepared.counters.insert((*family, zone))
            {
                let name = counter_name(&(self.zone_names)(zone));
                prepared.batch.add_counter(*family, &name, "");
            }
        }
    }

    /// The kernel has taken it.
    pub(super) fn settle(&mut self, prepared: Prepared) {
        for (place, by) in prepared.chains {
            *self.chains.entry(place).or_insert(0) += by;
        }
        self.counters.extend(prepared.counters);
        for place in &prepared.unpended {
            self.pending.remove(place);
        }
        self.pending.extend(prepared.pended);
    }

    /// The batch that removes what waits for it.
    pub(super) fn encode_pending(&self) -> Batch {
        let mut batch = Batch::new(TABLE);
        let items = self.pending.iter().map(|(place, value)| item(place, value));
        write(&mut batch, &Names::default(), Verb::Delete, items);
        batch
    }
}

fn item<'a>(place: &'a Place, value: &'a Value) -> Item<'a> {
    (place.0, place.1, &place.2, value)
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
