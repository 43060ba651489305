//! The Services that are measured, each with a number.

use std::collections::BTreeMap;

use zonewise_common::name::Name;

use crate::window::MAX_SERVICES;

/// The Services that are measured. A number is used again when its Service is measured no longer.
#[derive(Debug, Default)]
pub(crate) struct Services {
    numbers: BTreeMap<Name, u32>,
    /// Numbers of Services that are measured no longer, for new ones.
    free: Vec<u32>,
    /// One more than the largest number.
    end: u32,
    /// How often they were set.
    sets: u64,
    /// For each number, the value of `sets` with which its Service came.
    since: Vec<u64>,
    /// Those that are wanted and for which there is no room.
    left_out: Vec<Name>,
}

impl Services {
    /// Sets them, as `namespace/name`. Those beyond [`MAX_SERVICES`] are left out; those that are measured already stay.
    /// Returns the numbers of those that are measured no longer.
    pub(crate) fn set<'a>(&mut self, wanted: impl Iterator<Item = &'a str>) -> Vec<u32> {
        let mut added: Vec<&str> = Vec::new();
        let mut kept = BTreeMap::new();
        for name in wanted {
            match self.numbers.remove_entry(name) {
                Some((name, number)) => {
                    kept.insert(name, number);
                }
                None if !kept.contains_key(name) => added.push(name),
                None => {}
            }
        }
        let gone: Vec<u32> = std::mem::replace(&mut self.numbers, kept).into_values().collect();
        self.free.extend(&gone);
        added.sort_unstable();
        added.dedup();
        let room = MAX_SERVICES.saturating_sub(self.numbers.len()).min(added.len());
        self.left_out = added[room..].iter().map(|name| Name::from(*name)).collect();
        self.sets += 1;
        for name in &added[..room] {
            let number = self.free.pop().unwrap_or(self.end);
            self.end = self.end.max(number + 1);
            self.since.resize(self.end as usize, 0);
            self.since[number as usize] = self.sets;
            self.numbers.insert(Name::from(*name), number);
        }
        gone
    }

    /// Those that are left out because too many are wanted.
    pub(crate) fn left_out(&self) -> &[Name] {
        &self.left_out
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// How many numbers there are, those that are free included.
    pub(crate) fn numbers(&self) -> usize {
        self.end as usize
    }

    /// How often they were set so far.
    pub(crate) fn sets(&self) -> u64 {
        self.sets
    }

    /// Whether the Service with this number was measured when they had been set so often.
    pub(crate) fn was_measured(&self, number: u32, sets: u64) -> bool {
        self.since[number as usize] <= sets
    }

    /// The number of a Service; `None` if it is not measured.
    pub(crate) fn number(&self, service: &str) -> Option<u32> {
        self.numbers.get(service).copied()
    }

    /// All of them, in the byte order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, u32)> {
        self.numbers.iter().map(|(name, number)| (name, *number))
    }
}
