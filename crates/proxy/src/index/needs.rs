//! Services that slices of other zones and regions matter for: a port and address family that this
//! node's slices leave without a ready endpoint is served from all slices, and UDP flows may lead to
//! endpoints that have moved to a slice for another zone.

use std::collections::{BTreeMap, BTreeSet};

use zonewise_common::name::Key;
use zonewise_routing::{
    FeatureGates, NodeLocation, RoutedSlice, Subset, is_for_node, needs_other_subsets,
};

use super::{Departure, Index};

/// Where this node is, and which features decide about slices.
#[derive(Clone, Debug)]
pub struct Perspective {
    /// Its zone and region.
    pub location: NodeLocation,
    /// The features.
    pub gates: FeatureGates,
}

impl Perspective {
    pub(super) fn is_for_node(&self, slice: &RoutedSlice) -> bool {
        is_for_node(slice, &self.location, &self.gates)
    }
}

/// How likely a Service has slices for other zones and regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is divided into subsets: one of its slices has a label.
    Urgent,
    /// All its slices that are known are for everybody, so it most likely has no others. Or they have
    /// left a watch; then they stay in use until it is known whether there are others.
    Patient,
}

/// What has happened that other tasks wait for.
#[derive(Debug, Default)]
pub struct News {
    /// The needs have changed.
    pub needs: bool,
    /// There is a departure that is not settled.
    pub departures: bool,
}

impl Index {
    /// Services that slices of other zones and regions matter for.
    pub fn needs(&self) -> &BTreeMap<Key, Need> {
        &self.needs
    }

    /// What has happened since the last call.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Services with UDP flows to endpoints that are in no slice for this node.
    pub fn flows_elsewhere(&self) -> &BTreeSet<Key> {
        &self.flows_elsewhere
    }

    /// Whether a Service has UDP flows to endpoints that are in no slice for this node: then its other
    /// slices are watched, to know when these endpoints are gone.
    pub fn set_flows_elsewhere(&mut self, service: &Key, flows: bool) {
        match flows {
            true => self.flows_elsewhere.insert(service.clone()),
            false => self.flows_elsewhere.remove(service),
        };
        self.update_need(service);
    }

    /// The slices of a Service that are for this node.
    pub fn own_slices(&self, service: &Key) -> Vec<&RoutedSlice> {
        let mut slices = self.slices(service);
        slices
            .retain(|slice| self.perspective.as_ref().is_none_or(|known| known.is_for_node(slice)));
        slices
    }

    pub(super) fn forget_needs(&mut self) {
        self.news.needs |= !self.needs.is_empty();
        self.needs.clear();
    }

    pub(super) fn find_needs(&mut self) {
        self.news.needs = true;
        let all: Vec<Key> = self.services.keys().cloned().collect();
        all.iter().for_each(|service| self.update_need(service));
    }

    pub(super) fn update_need(&mut self, service: &Key) {
        // Before all lists are complete, endpoints may be missing that are about to come.
        if !self.is_complete() {
            return;
        }
        let need = self.need(service);
        if self.needs.get(service).copied() == need {
            return;
        }
        self.news.needs = true;
        match need {
            Some(need) => drop(self.needs.insert(service.clone(), need)),
            None => {
                self.needs.remove(service);
                self.drop_unneeded(service);
            }
        }
    }

    fn need(&self, key: &Key) -> Option<Need> {
        let known = self.perspective.as_ref()?;
        let service = self.services.get(key)?;
        let stays = |slice: &Key| !self.departures.contains_key(slice);
        let mine: Vec<&RoutedSlice> = self
            .stored(key)
            .filter(|(slice, stored)| stays(slice) && known.is_for_node(&stored.slice))
            .map(|(_, stored)| &*stored.slice)
            .collect();
        let needed = needs_other_subsets(service, &mine) || self.flows_elsewhere.contains(key);
        needed.then(|| if self.is_divided(key) { Need::Urgent } else { Need::Patient })
    }

    /// Whether a Service has slices for single zones or regions.
    fn is_divided(&self, service: &Key) -> bool {
        let stays = |slice: &Key| self.departures.get(slice).is_none_or(Departure::stays);
        let mut all = self.stored(service);
        all.any(|(slice, stored)| stays(slice) && stored.slice.subset != Subset::All)
    }

    /// Whether a Service may have endpoints in slices that this node does not know: it is divided into
    /// subsets, and only those for this node are watched.
    pub fn is_partly_known(&self, service: &Key) -> bool {
        self.perspective.is_some() && self.is_divided(service)
    }
}
