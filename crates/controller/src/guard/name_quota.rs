//! Which names of Services guard mode keeps hints for, where more ask than there are places.
//!
//! ```text
//!  in force, oldest first ─► NameQuota ◄─ take ─ a Service that asks
//!                              └─► yes, or it waits until a place is free
//! ```
//!
//! Each name makes every write of a slice by the built-in controller cost a little more, in whichever namespace. So there is
//! one limit for all, and a namespace takes another place only while it has fewer than are still free: one alone gets half
//! of them, the next one half of the rest. So no namespace alone can take all. Several can: each takes half of what is left,
//! and a tenant who may create any number of namespaces, or has about ten of them where there are a thousand places,
//! leaves none for the last. A name that has a place costs nothing more in a second namespace. No Service loses its place
//! because another one asks.

use std::collections::{BTreeMap, BTreeSet};

use zonewise_common::name::{Key, Name};

/// A Service whose hints are in force.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QuotaHolder {
    /// When it was allocated, as the API server writes times: their order is that of the texts.
    pub(crate) since: Box<str>,
    /// The Service.
    pub(crate) service: Key,
}

/// The places that are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameQuota {
    limit: usize,
    names: BTreeSet<Name>,
    /// How many names each namespace was the first to have.
    by_namespace: BTreeMap<Name, usize>,
}

impl NameQuota {
    /// Those of the Services whose hints are in force. If these have more names than there are places, because the limit
    /// was lowered, the oldest stay.
    pub(crate) fn of(limit: usize, mut holders: Vec<QuotaHolder>) -> Self {
        holders.sort();
        let mut quota = Self { limit, ..Self::default() };
        for QuotaHolder { service, .. } in &holders {
            if quota.names.contains(&service.1) || quota.free() > 0 {
                quota.add(service);
            }
        }
        quota
    }

    /// Notes a Service that was given a place.
    pub(crate) fn add(&mut self, (namespace, name): &Key) {
        if self.names.insert(Name::clone(name)) {
            *self.by_namespace.entry(Name::clone(namespace)).or_default() += 1;
        }
    }

    /// Whether a Service has a place, or gets one now.
    pub(crate) fn take(&mut self, service: &Key) -> bool {
        let (namespace, name) = service;
        let has = self.by_namespace.get(namespace).copied().unwrap_or_default();
        let is_granted = self.names.contains(name) || has < self.free();
        if is_granted {
            self.add(service);
        }
        is_granted
    }

    /// The names that have a place.
    pub(crate) fn into_names(self) -> BTreeSet<Name> {
        self.names
    }

    fn free(&self) -> usize {
        self.limit.saturating_sub(self.names.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        (namespace.into(), name.into())
    }

    fn holder(since: &str, namespace: &str, name: &str) -> QuotaHolder {
        QuotaHolder { since: since.into(), service: key(namespace, name) }
    }

    /// How many of its thousand Services each namespace gets in, one namespace after the other.
    fn granted(limit: usize, namespaces: &[&str]) -> Vec<usize> {
        let mut quota = NameQuota::of(limit, Vec::new());
        let mut all = |namespace: &&str| {
            let names = (0..1000).map(|number| key(namespace, &format!("{namespace}-{number}")));
            names.filter(|service| quota.take(service)).count()
        };
        namespaces.iter().map(&mut all).collect()
    }

    #[test]
    fn a_namespace_that_asks_for_everything_leaves_places_for_others() {
        assert_eq!(granted(1000, &["a"]), [500]);
        assert_eq!(granted(1000, &["a", "b", "c", "d"]), [500, 250, 125, 63]);
        // What is not promised: a tenant with ten namespaces leaves nothing for the next one.
        let eleven = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "next"];
        assert_eq!(granted(1000, &eleven), [500, 250, 125, 63, 31, 16, 8, 4, 2, 1, 0]);
        assert_eq!(granted(1, &["a", "b"]), [1, 0]);
        assert_eq!(granted(2, &["a", "b"]), [1, 1]);
        let many: Vec<String> = (0..9).map(|number| format!("n{number}")).collect();
        let mut quota = NameQuota::of(1000, Vec::new());
        // In turns, nine namespaces get a hundred each.
        let mut counts = vec![0; many.len()];
        for round in 0..200 {
            for (namespace, count) in many.iter().zip(&mut counts) {
                *count += usize::from(quota.take(&key(namespace, &format!("{namespace}-{round}"))));
            }
        }
        assert_eq!(counts, [100; 9]);
    }

    #[test]
    fn a_name_that_has_a_place_costs_nothing_in_another_namespace() {
        let mut quota = NameQuota::of(3, vec![holder("1", "a", "web"), holder("1", "a", "api")]);
        assert!(quota.take(&key("b", "web")));
        assert!(quota.take(&key("b", "db")), "it is b's first");
        assert!(quota.take(&key("b", "api")));
        assert!(!quota.take(&key("c", "other")));
        assert_eq!(quota.into_names(), ["api", "db", "web"].map(Name::from).into());
        // Who shares names still has but half of what is left: a name counts for who had it first.
        let shared = |number: usize| ["a", "b"].map(|space| key(space, &format!("web-{number}")));
        let mut quota = NameQuota::of(100, Vec::new());
        let granted = (0..100).flat_map(shared).filter(|service| quota.take(service)).count();
        assert_eq!((granted, quota.into_names().len()), (125, 75));
    }

    #[test]
    fn who_is_in_force_stays_and_with_a_lower_limit_the_oldest() {
        let holders = ["3", "1", "2"].map(|since| holder(since, "a", &format!("web-{since}")));
        let names = |limit| NameQuota::of(limit, holders.to_vec()).into_names();
        assert_eq!(names(3).len(), 3, "more than a namespace would be given now");
        assert_eq!(names(2), BTreeSet::from(["web-1".into(), "web-2".into()]));
        let mut full = NameQuota::of(2, holders.to_vec());
        let stays = |quota: &mut NameQuota, name: &str| quota.take(&key("a", name));
        assert_eq!(
            ["web-1", "web-2", "web-3"].map(|name| stays(&mut full, name)),
            [true, true, false]
        );
    }
}
