//! Slices that have left a watch, and those for this zone or region that have lost their last ready
//! endpoint. A slice whose subset label changes leaves one watch and appears on another, in any order, so
//! a departure alone does not say that the slice is gone. And a zone whose last endpoint is gone is served
//! from all zones, but their slices are not known yet.
//!
//! ```text
//!  departure at version 7 ──► every own watch has delivered everything up to 7, and none has the
//!                         │   slice. If its Service is without endpoints then for some port: the
//!                         │   watches of other zones, which serve the port, have got as far, too
//!                         └─► or the API server was asked, and its answer contains all slices of
//!                             the Service
//!                                    │
//!                                    ▼
//!                     removed, or replaced by what it has become
//! ```
//!
//! Watches deliver their changes in the order of versions, and bookmarks tell how far they have got
//! when there are none. So the first way needs no request. A slice that has lost its endpoints goes as
//! soon as other slices have some: nobody is refused meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use zonewise_common::name::{Key, Name};
use zonewise_routing::{RoutedSlice, Subset};

use super::{Index, Perspective, Stored};

/// One watch of slices. A watch that starts later has a larger number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId(pub u32);

/// How far the watches of slices have got: the version up to which each has delivered everything, 0
/// before its first list.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Those for this node's slices, in the order of [`own_watch`].
    own: BTreeMap<WatchId, u64>,
    /// Those for slices of other zones and other regions, in this order.
    others: BTreeMap<WatchId, u64>,
    /// The names of the Services that `others` are about.
    covered: BTreeSet<Name>,
    /// How many watches have been started.
    started: u32,
}

impl Progress {
    fn new_watches(&mut self, count: u32) -> BTreeMap<WatchId, u64> {
        let first = self.started;
        self.started += count;
        (first..self.started).map(|number| (WatchId(number), 0)).collect()
    }

    /// Whether this is one of the watches that run now.
    pub(super) fn runs(&self, watch: WatchId) -> bool {
        self.own.contains_key(&watch) || self.others.contains_key(&watch)
    }

    fn reach(&mut self, watch: WatchId, version: u64) {
        let known = self.own.get_mut(&watch).or_else(|| self.others.get_mut(&watch));
        if let Some(known) = known {
            *known = version.max(*known);
        }
    }

    /// The version up to which this node's slices are known; 0 before all lists are complete.
    fn own_version(&self) -> u64 {
        self.own.values().min().copied().unwrap_or(0)
    }

    /// The version up to which a Service's slices for other zones and regions are known; 0 if they are
    /// not.
    fn others_version(&self, service: &Name) -> u64 {
        let known = self.others.values().min().copied().unwrap_or(0);
        if self.covered.contains(service) { known } else { 0 }
    }

    /// The version that all watches have reached; 0 while one of them has not listed.
    fn oldest(&self) -> u64 {
        self.own.values().chain(self.others.values()).min().copied().unwrap_or(0)
    }

    fn newest(&self) -> u64 {
        self.own.values().chain(self.others.values()).max().copied().unwrap_or(0)
    }
}

/// A slice has left a watch, or has lost its last ready endpoint.
#[derive(Debug)]
pub(super) struct Departure {
    /// The version at which that happened, or at which it was found missing.
    version: u64,
    /// The API server has been asked: no running watch will deliver the slice, and the slices for other
    /// zones are known.
    confirmed: bool,
    /// What the slice is now, without a ready endpoint; `None` if it has left a watch.
    becomes: Option<Box<RoutedSlice>>,
}

impl Departure {
    fn at(version: u64) -> Self {
        Self { version, confirmed: false, becomes: None }
    }

    /// Whether the slice is still on its watch.
    pub(super) fn stays(&self) -> bool {
        self.becomes.is_some()
    }

    /// The newest version of the slice that a watch has delivered.
    fn delivered(&self) -> Option<u64> {
        self.becomes.as_ref().map(|slice| slice.resource_version)
    }
}

/// What to ask the API server about departures: the slices of these Services in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The namespace.
    pub namespace: Name,
    /// The Services; empty for all of the namespace.
    pub services: BTreeSet<Name>,
    /// The answer must not be older than this.
    pub version: u64,
    /// The slices that have left a watch.
    slices: BTreeSet<Name>,
}

/// What the API server has answered: all slices that the [`Question`] is about.
pub(crate) type Answer = Vec<RoutedSlice>;

/// More Services than this are not named in a question.
const MAX_NAMED: usize = 50;

impl Index {
    /// Starts `count` watches for the slices of this node, and ends all other watches of slices. What
    /// they have delivered stays until the new ones have listed everything. `perspective` is `None` if
    /// one watch delivers all slices.
    pub fn start_own_watches(
        &mut self,
        perspective: Option<Perspective>,
        count: u32,
    ) -> Vec<WatchId> {
        self.perspective = perspective;
        self.forget_needs();
        self.progress.own = self.progress.new_watches(count);
        self.progress.others.clear();
        self.progress.covered.clear();
        self.progress.own.keys().copied().collect()
    }

    /// Starts `count` watches for slices of other zones and regions, instead of those before. They are
    /// about the Services of these names.
    pub fn start_other_watches(&mut self, count: u32, services: BTreeSet<Name>) -> Vec<WatchId> {
        self.progress.others = self.progress.new_watches(count);
        self.progress.covered = services;
        if count == 0 {
            self.sweep();
        }
        self.progress.others.keys().copied().collect()
    }

    /// Every change of the slices up to this version has been taken in: every watch has delivered it, and
    /// no slice that left a watch by then is still in use. Watches that are silent move with the API
    /// server's bookmarks, once a minute.
    pub fn version(&self) -> u64 {
        let open = self.departures.values().map(|left| left.version.saturating_sub(1));
        open.fold(self.progress.oldest(), u64::min)
    }

    /// The newest version that a watch of slices has delivered.
    pub fn newest_version(&self) -> u64 {
        self.progress.newest()
    }

    /// Whether the watches of this node's slices have listed everything.
    pub fn is_complete(&self) -> bool {
        self.progress.own_version() > 0
    }

    /// Whether no departure is open, and the slices that Services need of other zones are known.
    pub fn is_settled(&self) -> bool {
        let known = |(_, name): &Key| self.progress.others_version(name) > 0;
        self.departures.is_empty() && self.needs.keys().all(known)
    }

    /// A slice has left a watch at `version`. True if a slice was removed.
    pub fn slice_left(&mut self, key: &Key, version: u64, watch: WatchId) -> bool {
        let Some(stored) = self.slices.get(key) else { return false };
        // Another watch has delivered it meanwhile.
        if stored.watch != watch || self.delivered(key, stored) > version {
            return false;
        }
        self.depart(key, version);
        self.settle()
    }

    /// A watch has listed everything it selects, as of `version`: slices that it delivered before and
    /// that are not in the list have left it. True if something has changed.
    pub fn listed(&mut self, keys: &BTreeSet<Key>, version: u64, watch: WatchId) -> bool {
        let known = self.slices.iter().filter(|(_, stored)| stored.watch == watch);
        let missing: Vec<Key> =
            known.map(|(key, _)| key).filter(|key| !keys.contains(*key)).cloned().collect();
        for key in missing {
            self.depart(&key, version);
        }
        let was_complete = self.is_complete();
        self.progress.reach(watch, version);
        let completed = !was_complete && self.is_complete();
        if completed {
            self.find_needs();
            // Those that were written as they arrived are as they should be.
            if !self.arrivals.end() {
                self.mark_all_dirty();
            }
        }
        let swept = self.sweep();
        self.settle() || swept || completed
    }

    /// A watch has delivered everything up to `version`. True if a slice was removed.
    pub fn reached(&mut self, watch: WatchId, version: u64) -> bool {
        self.progress.reach(watch, version);
        self.settle()
    }

    fn depart(&mut self, key: &Key, version: u64) {
        let Some(stored) = self.slices.get(key) else { return };
        let service = (Name::clone(&key.0), Name::clone(&stored.slice.service));
        self.departures.insert(key.clone(), Departure::at(version));
        self.news.departures = true;
        self.update_need(&service);
    }

    /// Whether a slice that is stored serves connections that `slice`, what it is now, does not serve, and
    /// no other slice that is known: other zones may.
    pub(super) fn leaves_unserved(&self, key: &Key, slice: &RoutedSlice) -> bool {
        let Some(stored) = self.slices.get(key).map(|stored| &stored.slice) else { return false };
        let for_some_nodes = stored.subset != Subset::All && self.perspective.is_some();
        let same_service = stored.service == slice.service;
        let emptied = stored.has_ready_endpoint() && !slice.has_ready_endpoint();
        for_some_nodes && same_service && emptied && self.is_complete() && !self.is_replaced(key)
    }

    /// The slice has lost its last ready endpoint; those it had stay in use. True if a slice has changed.
    pub(super) fn hold(&mut self, key: &Key, slice: RoutedSlice, watch: WatchId) -> bool {
        let service = (Name::clone(&key.0), Name::clone(&slice.service));
        let version = slice.resource_version;
        let held = self.departures.entry(key.clone()).or_insert_with(|| Departure::at(version));
        held.becomes = Some(Box::new(slice));
        if let Some(stored) = self.slices.get_mut(key) {
            stored.watch = watch;
        }
        self.news.departures = true;
        self.update_need(&service);
        self.settle()
    }

    /// Whether other slices have a ready endpoint for every port of its Service that this one offers.
    fn is_replaced(&self, key: &Key) -> bool {
        let Some(Stored { slice, .. }) = self.slices.get(key) else { return true };
        let service = (Name::clone(&key.0), Name::clone(&slice.service));
        let ports = self.services.get(&service).map_or(&[][..], |known| &known.ports);
        let others: Vec<&RoutedSlice> = self
            .stored(&service)
            .filter(|(other, _)| *other != key && !self.departures.contains_key(*other))
            .map(|(_, other)| &*other.slice)
            .filter(|other| other.family == slice.family && other.has_ready_endpoint())
            .collect();
        let mut offered = ports.iter().filter(|port| slice.offers(&port.name, port.protocol));
        offered.all(|port| others.iter().any(|other| other.offers(&port.name, port.protocol)))
    }

    /// The newest version of a slice that a watch has delivered.
    pub(super) fn delivered(&self, key: &Key, stored: &Stored) -> u64 {
        let held = self.departures.get(key).and_then(Departure::delivered);
        held.unwrap_or(stored.slice.resource_version)
    }

    /// Looks at slices that only former watches have delivered, once the watches that run now have
    /// listed. Those that are not for this node and not needed are removed; the others may be gone.
    fn sweep(&mut self) -> bool {
        if !self.is_complete() || self.progress.others.values().any(|version| *version == 0) {
            return false;
        }
        let former = self.slices.iter().filter(|(_, stored)| !self.progress.runs(stored.watch));
        let (unneeded, unsure): (Vec<_>, Vec<_>) =
            former.partition(|(key, stored)| self.is_unneeded(key, stored));
        let names = |slices: Vec<(&Key, &Stored)>| -> Vec<Key> {
            slices.into_iter().map(|(key, _)| key.clone()).collect()
        };
        let (unneeded, unsure) = (names(unneeded), names(unsure));
        for key in unsure {
            if !self.departures.contains_key(&key) {
                self.depart(&key, self.progress.newest());
            }
        }
        self.remove_slices(&unneeded)
    }

    fn is_unneeded(&self, key: &Key, stored: &Stored) -> bool {
        let service = (Name::clone(&key.0), Name::clone(&stored.slice.service));
        let mine = self.perspective.as_ref().is_none_or(|known| known.is_for_node(&stored.slice));
        !mine && !self.progress.runs(stored.watch) && !self.needs.contains_key(&service)
    }

    /// Removes slices of a Service that are for other zones, are not watched and not needed.
    pub(super) fn drop_unneeded(&mut self, service: &Key) {
        let unneeded = self.stored(service).filter(|(key, stored)| self.is_unneeded(key, stored));
        let unneeded: Vec<Key> = unneeded.map(|(key, _)| key.clone()).collect();
        self.remove_slices(&unneeded);
    }

    /// Ends the departures that are settled. True if there were any.
    pub(super) fn settle(&mut self) -> bool {
        let settled = self.departures.iter().filter(|(key, left)| self.can_go(key, left));
        let settled: Vec<Key> = settled.map(|(key, _)| key.clone()).collect();
        for key in &settled {
            let becomes = self.departures.remove(key).and_then(|left| left.becomes);
            match (becomes, self.slices.get(key).map(|stored| stored.watch)) {
                (Some(slice), Some(watch)) => self.put(key.clone(), *slice, watch),
                _ => self.remove_slice(key),
            };
        }
        !settled.is_empty()
    }

    /// Whether no running watch has the slice, and its Service is served without it if it can be.
    fn can_go(&self, key: &Key, left: &Departure) -> bool {
        let Some(stored) = self.slices.get(key) else { return true };
        let service = (Name::clone(&key.0), Name::clone(&stored.slice.service));
        if !self.services.contains_key(&service) {
            return true;
        }
        let others = || self.progress.others_version(&service.1) >= left.version;
        let passed = self.progress.own_version() >= left.version;
        let known = passed && (!self.needs.contains_key(&service) || others());
        left.confirmed || known || left.becomes.is_some() && self.is_replaced(key)
    }

    fn remove_slices(&mut self, keys: &[Key]) -> bool {
        let mut changed = false;
        for key in keys {
            changed |= self.remove_slice(key);
        }
        changed
    }

    // === questions ===

    /// What to ask the API server about departures that the watches have not settled; `None` if there
    /// is nothing to ask.
    pub fn question(&self) -> Option<Question> {
        let open = |(_, left): &(&Key, &Departure)| !left.confirmed;
        let (namespace, _) = self.departures.iter().find(open)?.0;
        let here = self.departures.iter().filter(open).filter(|(key, _)| key.0 == *namespace);
        let mut question = Question {
            namespace: Name::clone(namespace),
            services: BTreeSet::new(),
            version: 0,
            slices: BTreeSet::new(),
        };
        for (key, left) in here {
            question.version = question.version.max(left.version);
            question.slices.insert(Name::clone(&key.1));
            let stored = self.slices.get(key);
            question.services.extend(stored.map(|stored| Name::clone(&stored.slice.service)));
        }
        if question.services.len() > MAX_NAMED {
            question.services.clear();
        }
        Some(question)
    }

    /// The API server has answered a question. True if something has changed.
    pub fn answered(&mut self, question: &Question, slices: Answer) -> bool {
        let mut changed = false;
        for slice in slices {
            changed |= self.apply_answer(slice);
        }
        for name in &question.slices {
            let key = (Name::clone(&question.namespace), Name::clone(name));
            if let Some(left) = self.departures.get_mut(&key) {
                left.confirmed |= left.version <= question.version;
            }
        }
        self.settle() || changed
    }

    /// A slice that is for this node, or for another zone and needed, is stored as if the watch had
    /// delivered it that selects it.
    fn apply_answer(&mut self, slice: RoutedSlice) -> bool {
        let key = (Name::clone(&slice.namespace), Name::clone(&slice.name));
        let service = (Name::clone(&slice.namespace), Name::clone(&slice.service));
        let Some(known) = self.perspective.as_ref() else { return false };
        let number = if known.is_for_node(&slice) {
            self.progress.own.keys().nth(own_watch(&slice, known))
        } else if self.needs.contains_key(&service) {
            let others = self.progress.others.keys();
            let mut covering = others.filter(|_| self.progress.covered.contains(&service.1));
            covering.nth(other_watch(&slice)).or(Some(&NOT_WATCHED))
        } else {
            None
        };
        let Some(watch) = number.copied() else { return false };
        !self.is_outdated(&key, &slice, watch) && self.put_or_hold(key, slice, watch)
    }
}

/// The watch of slices that an answer has brought and that no watch selects yet.
const NOT_WATCHED: WatchId = WatchId(u32::MAX);

/// Which of the watches of other zones' slices selects a slice; `others` in `watches/selectors.rs` has
/// the same order.
fn other_watch(slice: &RoutedSlice) -> usize {
    usize::from(matches!(slice.subset, Subset::Region(_)))
}

/// Which of the own watches selects a slice; `own` in `watches/selectors.rs` has the same order.
fn own_watch(slice: &RoutedSlice, known: &Perspective) -> usize {
    match slice.subset {
        Subset::All => 0,
        Subset::Zone(_) => 1,
        Subset::Region(_) if known.location.region.is_some() => 2,
        Subset::Region(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use zonewise_routing::{FeatureGates, NodeLocation, ObjectReader};

    use super::super::Need;
    use super::*;

    const WEB: &str = r#"{"metadata": {"namespace": "shop", "name": "web"}, "spec": {"clusterIP": "10.96.0.1",
        "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "ports": [{"name": "", "port": 80, "protocol": "TCP"}]}}"#;

    /// A slice of the Service `shop/web` for everybody, or for zone a.
    fn slice(name: &str, version: u64, for_zone: bool) -> RoutedSlice {
        read(name, version, for_zone, true)
    }

    /// A slice for zone a, whose endpoint is not ready.
    fn emptied(name: &str, version: u64) -> RoutedSlice {
        read(name, version, true, false)
    }

    fn read(name: &str, version: u64, for_zone: bool, ready: bool) -> RoutedSlice {
        let zone = if for_zone { r#", "endpointslice.kubernetes.io/for-zone": "a""# } else { "" };
        let json = format!(
            r#"{{"metadata": {{"namespace": "shop", "name": "{name}", "resourceVersion": "{version}",
                "labels": {{"kubernetes.io/service-name": "web"{zone}}}}}, "addressType": "IPv4",
                "ports": [{{"name": "", "port": 8080, "protocol": "TCP"}}],
                "endpoints": [{{"addresses": ["10.0.0.1"], "conditions": {{"ready": {ready}}}}}]}}"#
        );
        let reader = ObjectReader::new(NodeLocation::new("n1", Some("a"), None));
        reader.read_slice(&json).unwrap()
    }

    /// D12: what a proxy reports as applied is what all its watches have delivered.
    #[test]
    fn d12_the_version_is_what_all_watches_have_reached() {
        let mut index = Index::default();
        let location = NodeLocation::new("n1", Some("a"), None);
        let perspective = Perspective { location, gates: FeatureGates::default() };
        let watches = index.start_own_watches(Some(perspective), 2);
        let [all, zone] = watches[..] else { panic!("two watches: {watches:?}") };
        let keys = |names: &[&str]| -> BTreeSet<Key> {
            names.iter().map(|name| ("shop".into(), Name::from(*name))).collect()
        };
        index.apply_slice(slice("everybody", 3, false), all);
        index.listed(&keys(&["everybody"]), 10, all);
        assert_eq!(index.version(), 0, "one watch has not listed");
        index.apply_slice(slice("zone", 4, true), zone);
        index.listed(&keys(&["zone"]), 9, zone);
        assert_eq!(index.version(), 9);

        index.apply_slice(slice("everybody", 20, false), all);
        index.reached(all, 20);
        assert_eq!(index.version(), 9, "the watch of the zone lags");
        index.reached(zone, 25);
        assert_eq!(index.take_changes().version, 20, "a bookmark has moved it");
        index.reached(all, 40);
        assert_eq!(index.version(), 25);

        // A slice that has left one watch is in use until the others have got as far.
        let reader = ObjectReader::new(NodeLocation::new("n1", Some("a"), None));
        index.apply_service(reader.read_service(WEB).unwrap());
        let key = ("shop".into(), "zone".into());
        index.slice_left(&key, 50, zone);
        index.reached(zone, 60);
        assert_eq!(index.version(), 40, "the watch of all lags");
        index.reached(all, 55);
        assert_eq!((index.slices.contains_key(&key), index.version()), (false, 55));

        let others = index.start_other_watches(1, ["web".into()].into());
        assert_eq!(index.version(), 0, "slices of other zones are not listed");
        index.listed(&BTreeSet::new(), 57, others[0]);
        assert_eq!(index.version(), 55);
    }

    /// An index with a Service on a node of zone a, with `own` as its slice for zone a. Returns the own
    /// watches, too.
    fn divided(own: RoutedSlice) -> (Index, Vec<WatchId>) {
        let mut index = Index::default();
        let location = NodeLocation::new("n1", Some("a"), None);
        let perspective = Perspective { location, gates: FeatureGates::default() };
        let watches = index.start_own_watches(Some(perspective), 2);
        let reader = ObjectReader::new(NodeLocation::new("n1", Some("a"), None));
        index.apply_service(reader.read_service(WEB).unwrap());
        index.listed(&BTreeSet::new(), 1, watches[0]);
        let key = (Name::clone(&own.namespace), Name::clone(&own.name));
        index.apply_slice(own, watches[1]);
        index.listed(&[key].into(), 1, watches[1]);
        (index, watches)
    }

    fn ready(index: &Index) -> Vec<&str> {
        let slices = index.slices(&("shop".into(), "web".into()));
        let ready = slices.into_iter().filter(|slice| slice.has_ready_endpoint());
        ready.map(|slice| &*slice.name).collect()
    }

    /// C8: a zone that loses its last ready endpoint is served by what it had until the slices of other zones
    /// are known; a version that is applied tells nothing else.
    #[test]
    fn c8_a_zone_is_served_until_the_slices_of_other_zones_are_known() {
        let (mut index, watches) = divided(slice("zone", 5, true));
        index.apply_slice(emptied("zone", 10), watches[1]);
        index.reached(watches[1], 10);
        assert_eq!((ready(&index), index.version()), (vec!["zone"], 1));
        let needs = [(("shop".into(), "web".into()), Need::Urgent)];
        assert_eq!(index.needs(), &needs.into(), "the Service is still divided");

        index.apply_slice(emptied("zone", 11), watches[1]);
        let others = index.start_other_watches(1, ["web".into()].into());
        let mut elsewhere = slice("elsewhere", 7, false);
        elsewhere.subset = Subset::Zone("b".into());
        index.apply_slice(elsewhere, others[0]);
        assert!(index.listed(&[("shop".into(), "elsewhere".into())].into(), 11, others[0]));
        assert_eq!(ready(&index), ["elsewhere"]);
        assert!(index.departures.is_empty());
    }

    /// What ends the wait for other slices, besides a list of them.
    #[test]
    fn c8_a_zone_without_endpoints_is_not_served_for_ever() {
        type Event = fn(&mut Index, &[WatchId]);
        let cases: [(&str, Event, &[&str]); 5] = [
            ("nothing", |_, _| {}, &["zone"]),
            (
                "a slice for everybody",
                |index, watches| {
                    index.apply_slice(slice("everybody", 9, false), watches[0]);
                    index.reached(watches[0], 9);
                },
                &["everybody"],
            ),
            (
                "the API server was asked",
                |index, _| {
                    let question = index.question().unwrap();
                    index.answered(&question, vec![emptied("zone", 10)]);
                },
                &[],
            ),
            (
                "new endpoints",
                |index, watches| {
                    index.apply_slice(slice("zone", 12, true), watches[1]);
                },
                &["zone"],
            ),
            (
                "the slice is deleted, and no other exists",
                |index, watches| {
                    index.slice_left(&("shop".into(), "zone".into()), 13, watches[1]);
                    let others = index.start_other_watches(1, ["web".into()].into());
                    index.listed(&BTreeSet::new(), 14, others[0]);
                    index.reached(watches[0], 14);
                    index.reached(watches[1], 14);
                },
                &[],
            ),
        ];
        for (event, happens, expected) in cases {
            let (mut index, watches) = divided(slice("zone", 5, true));
            index.apply_slice(emptied("zone", 10), watches[1]);
            happens(&mut index, &watches);
            assert_eq!(ready(&index), expected, "{event}");
        }
        // A Service that is not divided has no slices for other zones.
        let (mut index, watches) = divided(slice("everybody", 5, false));
        let mut empty = emptied("everybody", 10);
        empty.subset = Subset::All;
        index.apply_slice(empty, watches[0]);
        assert_eq!(ready(&index), [""; 0]);
    }
}
