//! The difference between two states of the tables: an element that changes twice is written once.

use std::collections::BTreeMap;

use zonewise_nft::{Bytes, Family};

use super::chains::Chain;
use super::entries::{Entry, Value};
use super::sets::Set;

/// What identifies an element: table, set and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ElementId {
    pub(crate) family: Family,
    pub(crate) set: Set,
    pub(crate) key: Bytes,
}

/// An element before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its value before; `None` if it was not there.
    pub was: Option<Value>,
    /// Its value after; `None` if it is not there.
    pub is: Option<Value>,
}

/// The elements that change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta(BTreeMap<ElementId, Change>);

impl Delta {
    /// Replaces elements by others.
    pub fn between(&mut self, before: Vec<Entry>, after: Vec<Entry>) {
        for entry in before {
            self.removed(entry);
        }
        for entry in after {
            self.added(entry);
        }
    }

    /// An element is removed.
    pub fn removed(&mut self, entry: Entry) {
        let id = entry.id();
        let known = self.0.entry(id).or_insert(Change { was: Some(entry.value), is: None });
        known.is = None;
    }

    /// An element is added.
    pub fn added(&mut self, entry: Entry) {
        let id = entry.id();
        let known = self.0.entry(id).or_insert(Change { was: None, is: None });
        known.is = Some(entry.value);
    }

    /// The value of an element afterwards, if it changes.
    pub(crate) fn after(&self, id: &ElementId) -> Option<&Value> {
        self.0.get(id)?.is.as_ref()
    }

    /// The elements whose value is another afterwards, by table and set.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&ElementId, &Change)> {
        self.0.iter().filter(|(_, change)| change.was != change.is)
    }

    /// By how much the number of elements that lead to each chain changes.
    pub fn chains(&self) -> BTreeMap<(Family, Chain), i64> {
        let mut uses = BTreeMap::new();
        for (id, change) in self.changes() {
            for (value, by) in [(&change.was, -1), (&change.is, 1)] {
                if let Some(Value::Chain(chain, _)) = value {
                    *uses.entry((id.family, *chain)).or_insert(0) += by;
                }
            }
        }
        uses.retain(|_, by| *by != 0);
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch may have a million of these, and tables with many Services are written while memory is short.
    #[test]
    fn a_changed_element_is_small() {
        assert_eq!(size_of::<ElementId>(), 43);
        assert_eq!(size_of::<Value>(), 40);
        assert_eq!(size_of::<Change>(), 2 * size_of::<Value>());
    }
}
