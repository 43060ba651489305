//! What changes from one state of the table to the next, netted: a place that changes twice is
//! written once.

use std::collections::BTreeMap;

use zonewise_nft::{Bytes, Family};

use super::chains::Chain;
use super::entries::{Entry, Value};
use super::sets::Set;

/// Where an element belongs.
pub type Place = (Family, Set, Bytes);

/// An element before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it said.
    pub was: Option<Value>,
    /// What it says.
    pub is: Option<Value>,
}

/// Elements that change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta(BTreeMap<Place, Change>);

impl Delta {
    /// Notes how the elements of one owner change.
    pub fn between(&mut self, before: Vec<Entry>, after: Vec<Entry>) {
        for entry in before {
            self.removed(entry);
        }
        for entry in after {
            self.added(entry);
        }
    }

    /// An element goes.
    pub fn removed(&mut self, entry: Entry) {
        let place = (entry.family, entry.set, entry.key);
        let known = self.0.entry(place).or_insert(Change { was: Some(entry.value), is: None });
        known.is = None;
    }

    /// An element comes.
    pub fn added(&mut self, entry: Entry) {
        let place = (entry.family, entry.set, entry.key);
        let known = self.0.entry(place).or_insert(Change { was: None, is: None });
        known.is = Some(entry.value);
    }

    /// What a place says afterwards, as far as this knows it.
    pub fn after(&self, place: &Place) -> Option<&Value> {
        self.0.get(place)?.is.as_ref()
    }

    /// What is left to do, by table and set.
    pub fn changes(&self) -> impl Iterator<Item = (&Place, &Change)> {
        self.0.iter().filter(|(_, change)| change.was != change.is)
    }

    /// How the number of elements that lead to each chain changes.
    pub fn chains(&self) -> BTreeMap<(Family, Chain), i64> {
        let mut uses = BTreeMap::new();
        for ((family, _, _), change) in self.changes() {
            for (value, by) in [(&change.was, -1), (&change.is, 1)] {
                if let Some(Value::Chain(chain, _)) = value {
                    *uses.entry((*family, *chain)).or_insert(0) += by;
                }
            }
        }
        uses.retain(|_, by| *by != 0);
        uses
    }
}
