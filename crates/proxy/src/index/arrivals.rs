//! Services that have come, with slices, while the first lists are still being read. Their rules can be written at once;
//! the others follow when all has come.

use zonewise_common::name::Key;

use super::Index;

/// How many Services are written at a time. Fewer would cost more batches, more would keep the watches from the index for
/// longer.
pub(crate) const PORTION: usize = 256;

/// What has come since it was last asked for.
#[derive(Debug, Default)]
pub(super) enum Arrivals {
    /// The watches of slices have all listed.
    #[default]
    Over,
    /// In the order in which they came. The last may have more slices that are about to come.
    Noted(Vec<Key>),
}

impl Arrivals {
    fn are_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    fn note(&mut self, service: &Key) {
        if let Self::Noted(keys) = self
            && keys.last() != Some(service)
        {
            keys.push(service.clone());
        }
    }

    /// The lists are complete; whether they were the first.
    pub(super) fn end(&mut self) -> bool {
        matches!(std::mem::take(self), Self::Noted(_))
    }
}

impl Index {
    /// An index whose first lists are about to be read.
    pub fn arriving() -> Self {
        Self { arrivals: Arrivals::Noted(Vec::new()), ..Self::default() }
    }

    /// Whether there is enough to do for a sync: always, once the first lists are complete.
    pub(crate) fn is_worth_a_sync(&self) -> bool {
        match &self.arrivals {
            Arrivals::Over => true,
            Arrivals::Noted(keys) => keys.len() > PORTION,
        }
    }

    /// A Service has come.
    pub(super) fn service_arrived(&mut self, service: &Key) {
        if !self.arrivals.are_over() && self.stored(service).next().is_some() {
            self.arrivals.note(service);
        }
    }

    /// A slice of a Service has come.
    pub(super) fn slice_arrived(&mut self, service: &Key) {
        if !self.arrivals.are_over() && self.services.contains_key(service) {
            self.arrivals.note(service);
        }
    }

    /// Takes the Services that can be written already, if there are enough of them; they are not dirty any more.
    pub(crate) fn take_arrived(&mut self) -> Option<Vec<Key>> {
        if !self.is_worth_a_sync() {
            return None;
        }
        let Arrivals::Noted(keys) = &mut self.arrivals else { return None };
        let last = keys.pop();
        let arrived = std::mem::replace(keys, last.into_iter().collect());
        Some(arrived.into_iter().filter(|key| self.dirty.remove(key)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use zonewise_routing::{NodeLocation, ObjectReader};

    use super::*;
    use crate::index::WatchId;

    fn key(number: usize) -> Key {
        ("default".into(), format!("s-{number:04}").as_str().into())
    }

    fn reader() -> ObjectReader {
        ObjectReader::new(NodeLocation::new("n1", None, None))
    }

    fn add_service(index: &mut Index, number: usize) {
        let name = key(number).1;
        let service = json!({
            "metadata": {"namespace": "default", "name": &*name},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "10.96.0.1",
                "clusterIPs": ["10.96.0.1"],
                "ports": [{"port": 80, "protocol": "TCP"}],
            },
        });
        assert!(index.apply_service(reader().read_service(&service.to_string()).unwrap()));
    }

    fn add_slice(index: &mut Index, watch: WatchId, number: usize) {
        let name = key(number).1;
        let slice = json!({
            "metadata": {
                "namespace": "default",
                "name": &*name,
                "resourceVersion": "5",
                "labels": {"kubernetes.io/service-name": &*name},
            },
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
        });
        assert!(index.apply_slice(reader().read_slice(&slice.to_string()).unwrap(), watch));
    }

    /// Services can be written once they and their slices have come, whichever comes first, and then are not dirty any
    /// more. All others are left for when the lists are complete.
    #[test]
    fn what_has_come_can_be_taken_in_portions() {
        let mut index = Index::arriving();
        let watch = index.start_own_watches(None, 1)[0];
        (0..PORTION).for_each(|number| add_service(&mut index, number));
        assert!(!index.is_worth_a_sync(), "no slice has come");
        (0..PORTION + 2).for_each(|number| add_slice(&mut index, watch, number));
        assert!(!index.is_worth_a_sync(), "two slices have come and their Services have not");
        assert_eq!(index.take_arrived(), None);
        (PORTION..PORTION + 2).for_each(|number| add_service(&mut index, number));
        assert!(index.is_worth_a_sync());
        // The last one may have more slices.
        let expected: Vec<Key> = (0..=PORTION).map(key).collect();
        assert_eq!(index.take_arrived(), Some(expected));
        assert!(!index.is_worth_a_sync());

        // A slice that comes later makes its Service dirty again, and Services without slices stay.
        add_service(&mut index, 9_000);
        index.remove_slice(&key(3));
        let keys: BTreeSet<Key> = (0..PORTION + 2).filter(|n| *n != 3).map(key).collect();
        assert!(index.listed(&keys, 7, watch));
        assert!(index.is_worth_a_sync());
        let dirty: Vec<Key> = index.take_changes().services.into_iter().collect();
        assert_eq!(dirty, [3, PORTION + 1, 9_000].map(key));
        assert_eq!(index.take_arrived(), None, "the first lists are complete");
    }

    /// When the node has moved, everything is routed anew.
    #[test]
    fn later_lists_make_everything_dirty() {
        let mut index = Index::arriving();
        let watch = index.start_own_watches(None, 1)[0];
        add_service(&mut index, 1);
        add_slice(&mut index, watch, 1);
        index.listed(&[key(1)].into(), 7, watch);
        index.take_changes();
        let moved = index.start_own_watches(None, 1)[0];
        index.listed(&BTreeSet::new(), 8, moved);
        assert!(index.take_changes().services.contains(&key(1)));
    }
}
