//! Zones as small numbers, so that an endpoint needs two bytes for its zone.
//!
//! Anyone who may write EndpointSlices chooses the names. So a namespace can add only so many of them, and a name that
//! no object has any more gives its number back.

use std::collections::{BTreeMap, BTreeSet};

use zonewise_common::name::Name;

/// A zone, as a number that its [`ObjectReader`](crate::ObjectReader) gave it. 0 stands for no zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(u16);

impl ZoneId {
    /// No zone.
    pub const NONE: Self = Self(0);

    /// Whether this is [`Self::NONE`].
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    fn index(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

/// How many zones the slices of one namespace may add. Clouds have fewer than ten zones in a region.
const MOST_PER_NAMESPACE: usize = 1024;

/// The names behind the numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Zones {
    ids: BTreeMap<Name, ZoneId>,
    /// By number, from 1 on.
    names: Vec<Zone>,
    /// Numbers without a name.
    free: Vec<ZoneId>,
    /// How many zones each namespace has added.
    added: BTreeMap<Name, usize>,
}

#[derive(Clone, Debug)]
struct Zone {
    name: Name,
    /// The namespace whose slice named it first.
    added_by: Name,
    /// It was asked for since [`Zones::unused`] looked last.
    touched: bool,
}

impl Zones {
    /// The number of a zone. When all numbers are taken, or the namespace has added too many zones, a new one counts as no
    /// zone: its endpoints are still used, but not preferred by zone.
    pub(crate) fn id(&mut self, namespace: &str, name: &str) -> ZoneId {
        if name.is_empty() {
            return ZoneId::NONE;
        }
        let Some(id) = self.ids.get(name).copied() else { return self.add(namespace, name) };
        if let Some(zone) = id.index().and_then(|index| self.names.get_mut(index)) {
            zone.touched = true;
        }
        id
    }

    fn add(&mut self, namespace: &str, name: &str) -> ZoneId {
        let added = self.added.get(namespace).copied().unwrap_or_default();
        if added >= MOST_PER_NAMESPACE {
            return ZoneId::NONE;
        }
        let (name, added_by) = (Name::from(name), Name::from(namespace));
        let zone =
            Zone { name: Name::clone(&name), added_by: Name::clone(&added_by), touched: true };
        let Some(id) = self.take_number(zone) else { return ZoneId::NONE };
        self.ids.insert(name, id);
        self.added.insert(added_by, added + 1);
        id
    }

    fn take_number(&mut self, zone: Zone) -> Option<ZoneId> {
        if let Some(id) = self.free.pop() {
            let place = id.index().and_then(|index| self.names.get_mut(index))?;
            *place = zone;
            return Some(id);
        }
        let id = u16::try_from(self.names.len() + 1).ok().filter(|id| *id < u16::MAX)?;
        self.names.push(zone);
        Some(ZoneId(id))
    }

    pub(crate) fn name(&self, id: ZoneId) -> Option<Name> {
        let zone = self.names.get(id.index()?)?;
        Some(Name::clone(&zone.name)).filter(|name| self.ids.get(name) == Some(&id))
    }

    /// Zones that are not in `used`, and that nothing has asked for since the last call.
    pub(crate) fn unused(&mut self, used: &BTreeSet<ZoneId>) -> BTreeSet<ZoneId> {
        let names = &mut self.names;
        let mut untouched = |id: &ZoneId| {
            let zone = id.index().and_then(|index| names.get_mut(index));
            !zone.is_some_and(|zone| std::mem::take(&mut zone.touched))
        };
        self.ids.values().copied().filter(|id| untouched(id) && !used.contains(id)).collect()
    }

    /// Gives the numbers of zones back, but for those that something has asked for meanwhile.
    pub(crate) fn forget(&mut self, zones: &BTreeSet<ZoneId>) {
        for id in zones {
            let zone = id.index().and_then(|index| self.names.get(index));
            let Some(zone) = zone.filter(|zone| !zone.touched).cloned() else { continue };
            if self.ids.remove(&zone.name).is_none() {
                continue;
            }
            self.free.push(*id);
            if let Some(added) = self.added.get_mut(&zone.added_by) {
                *added -= 1;
                if *added == 0 {
                    self.added.remove(&zone.added_by);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[ZoneId]) -> BTreeSet<ZoneId> {
        ids.iter().copied().collect()
    }

    #[test]
    fn a_zone_that_nothing_names_gives_its_number_back() {
        let mut zones = Zones::default();
        let [a, b] = ["a", "b"].map(|name| zones.id("shop", name));
        // Slices that are being read have just asked for both.
        assert_eq!(zones.unused(&set(&[a])), set(&[]));
        assert_eq!(zones.unused(&set(&[a])), set(&[b]));
        // A slice that names it again comes before it is forgotten.
        assert_eq!(zones.id("shop", "b"), b);
        zones.forget(&set(&[b]));
        assert_eq!(zones.name(b).as_deref(), Some("b"));
        assert_eq!(zones.unused(&set(&[a])), set(&[]));
        assert_eq!(zones.unused(&set(&[a])), set(&[b]));
        zones.forget(&set(&[b]));
        assert_eq!(zones.name(b), None);
        assert_eq!(zones.id("shop", "c"), b);
        assert_eq!((zones.name(a).as_deref(), zones.name(b).as_deref()), (Some("a"), Some("c")));
    }

    #[test]
    fn a_namespace_that_names_very_many_zones_takes_none_from_others() {
        let mut zones = Zones::default();
        for number in 0..100_000 {
            let id = zones.id("evil", &format!("zone-{number}"));
            assert_eq!(id.is_none(), number >= MOST_PER_NAMESPACE, "{number}");
        }
        let real = zones.id("shop", "a");
        assert!(!real.is_none());
        assert_eq!(zones.id("evil", "a"), real);
        // It may name others once its first ones are gone.
        for _ in 0..2 {
            let unused = zones.unused(&set(&[real]));
            zones.forget(&unused);
        }
        assert!(!zones.id("evil", "new").is_none());
    }
}
