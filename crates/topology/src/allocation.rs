//! The answer of a heuristic: endpoints in groups, and which zones consume each group.
//!
//! ```text
//!               source zone                 consuming zone
//!            a    b    c   (none)            a    b    c
//!  group 0   4    .    .    .       weights  1    .    .       label "a"
//!  group 1   .    3    .    .                .    1    .       label "b"
//!  group 2   1    .    3    .                .    .    1       label "c"
//!  contents: how many endpoints     weights: of an endpoint, as seen from a zone
//! ```
//!
//! A zone sends a group traffic in proportion to `size × weight`. Every shape of routing fits:
//! subsets and hints are weights of 1, zone shares are any weights, "everywhere" is one group.
//!
//! An `Allocation` is made once and refilled for every decision; refilling allocates nothing once
//! its buffers have grown.

use crate::heuristics::balanced_hints::Search;
use crate::region::Region;

/// What a group is called. The evaluation tool tells groups apart by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// The local group of a zone.
    Zone(u32),
    /// Shared by all zones.
    Global,
    /// Shared by zones that had no endpoint, followed by their names.
    Merged,
    /// Shared by several zones, followed by their names.
    Shared,
    /// Endpoints that are in no zone.
    Unplaced,
}

/// How proxies learn of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Nothing is written: every proxy uses every endpoint.
    #[default]
    Plain,
    /// Each group has slices of its own.
    Subsets,
    /// Zone hints on endpoints, in ordinary slices.
    Hints,
    /// Node and zone hints on endpoints, in ordinary slices.
    NodeHints,
    /// Zone shares beside ordinary slices.
    Shares,
}

/// Endpoints consumed by the same zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub label: Label,
    /// Endpoints in it.
    pub size: u64,
    named_zones: (u32, u32),
}

/// Groups of endpoints and the zones that consume them.
#[derive(Clone, Debug, Default)]
pub struct Allocation {
    carrier: Carrier,
    consumers: usize,
    sources: usize,
    groups: Vec<Group>,
    contents: Vec<u64>,
    weights: Vec<f64>,
    named_zones: Vec<u32>,
    /// Buffers that heuristics work in.
    pub(crate) scratch: Scratch,
}

/// Work space of the heuristics, kept between calls so that no call allocates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) expected: Vec<f64>,
    pub(crate) least: Vec<u64>,
    pub(crate) donors: Vec<u32>,
    pub(crate) everyone: Vec<u32>,
    pub(crate) hot: Vec<u32>,
    pub(crate) extra: Vec<u64>,
    pub(crate) counts: Vec<u64>,
    pub(crate) supply: Vec<(u32, u64)>,
    pub(crate) need: Vec<(u32, u64)>,
    pub(crate) fractional_supply: Vec<Fraction>,
    pub(crate) fractional_need: Vec<Fraction>,
    pub(crate) floats: Vec<f64>,
    pub(crate) search: Search,
}

/// Some endpoints of a zone with a weight (see `local-weighted`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fraction {
    pub(crate) zone: u32,
    pub(crate) amount: u64,
    pub(crate) weight: f64,
    pub(crate) local: bool,
}

/// Endpoints in an ordinary EndpointSlice.
pub const ENDPOINTS_PER_SLICE: u64 = 100;

impl Allocation {
    /// An empty allocation, to be filled by a heuristic.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties it for a region.
    #[inline]
    pub fn begin(&mut self, region: &Region<'_>, carrier: Carrier) {
        self.carrier = carrier;
        self.consumers = region.zones.len();
        self.sources = region.sources();
        self.groups.clear();
        self.contents.clear();
        self.weights.clear();
        self.named_zones.clear();
    }

    /// Adds an empty group that no zone consumes yet; returns its index.
    #[inline]
    pub fn add_group(&mut self, label: Label) -> usize {
        let end = self.named_zones.len() as u32;
        self.groups.push(Group { label, size: 0, named_zones: (end, end) });
        self.contents.resize(self.contents.len() + self.sources, 0);
        self.weights.resize(self.weights.len() + self.consumers, 0.0);
        self.groups.len() - 1
    }

    /// Appends a zone's name to the label of the newest group.
    #[inline]
    pub(crate) fn name_zone(&mut self, zone: u32) {
        if let Some(group) = self.groups.last_mut() {
            self.named_zones.push(zone);
            group.named_zones.1 = self.named_zones.len() as u32;
        }
    }

    /// Puts endpoints of a source into a group.
    #[inline]
    pub fn put(&mut self, group: usize, source: usize, endpoints: u64) {
        self.contents[group * self.sources + source] += endpoints;
        self.groups[group].size += endpoints;
    }

    /// Takes endpoints of a source out of a group.
    #[inline]
    pub fn take(&mut self, group: usize, source: usize, endpoints: u64) {
        self.contents[group * self.sources + source] -= endpoints;
        self.groups[group].size -= endpoints;
    }

    /// Sets the weight of each endpoint of a group, as seen from a zone.
    #[inline]
    pub fn set_weight(&mut self, group: usize, consumer: usize, weight: f64) {
        self.weights[group * self.consumers + consumer] = weight;
    }

    /// One group for each zone with that zone's endpoints, consumed by that zone alone.
    #[inline]
    pub(crate) fn local_groups(&mut self, region: &Region<'_>) {
        self.zone_groups();
        for (zone, input) in region.zones.iter().enumerate() {
            self.put(zone, zone, input.endpoints);
        }
    }

    /// One empty group for each zone, consumed by that zone alone; must be the first groups.
    #[inline]
    pub(crate) fn zone_groups(&mut self) {
        let zones = self.consumers;
        self.contents.resize(zones * self.sources, 0);
        self.weights.resize(zones * zones, 0.0);
        for zone in 0..zones {
            self.groups.push(Group {
                label: Label::Zone(zone as u32),
                size: 0,
                named_zones: (0, 0),
            });
            self.set_weight(zone, zone, 1.0);
        }
    }

    /// One group of everything for everyone.
    pub fn everywhere(&mut self, region: &Region<'_>, carrier: Carrier) {
        self.begin(region, carrier);
        let group = self.add_group(Label::Global);
        for source in 0..self.sources {
            self.put(group, source, region.endpoints_at(source));
        }
        for zone in 0..self.consumers {
            self.set_weight(group, zone, 1.0);
        }
    }

    /// Lets zones that no group serves use all endpoints: what a proxy does when it finds no hint
    /// and no subset for its zone.
    pub fn serve_the_unserved(&mut self) {
        for zone in 0..self.consumers {
            if !self.serves(zone) {
                for group in 0..self.groups.len() {
                    self.set_weight(group, zone, 1.0);
                }
            }
        }
    }

    fn serves(&self, zone: usize) -> bool {
        let used = |group: usize| self.groups[group].size > 0 && self.weight(group, zone) > 0.0;
        // Most often, the first groups are the local ones.
        (zone < self.groups.len() && used(zone)) || (0..self.groups.len()).any(used)
    }

    /// Drops the groups for which `keep` is false.
    pub(crate) fn retain_groups(&mut self, keep: impl Fn(&Group) -> bool) {
        let mut kept = 0;
        for group in 0..self.groups.len() {
            if keep(&self.groups[group]) {
                self.copy_group(group, kept);
                kept += 1;
            }
        }
        self.groups.truncate(kept);
        self.contents.truncate(kept * self.sources);
        self.weights.truncate(kept * self.consumers);
    }

    /// Drops the group at `index`.
    pub(crate) fn remove_group(&mut self, index: usize) {
        for group in index + 1..self.groups.len() {
            self.copy_group(group, group - 1);
        }
        self.groups.pop();
        self.contents.truncate(self.groups.len() * self.sources);
        self.weights.truncate(self.groups.len() * self.consumers);
    }

    fn copy_group(&mut self, from: usize, to: usize) {
        let (sources, consumers) = (self.sources, self.consumers);
        self.groups[to] = self.groups[from];
        self.contents.copy_within(from * sources..(from + 1) * sources, to * sources);
        self.weights.copy_within(from * consumers..(from + 1) * consumers, to * consumers);
    }

    /// How proxies learn of it.
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// The groups.
    #[inline]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Sources a group can draw from (zones, then "no zone" if some endpoint has none).
    #[inline]
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// Zones that consume.
    #[inline]
    pub fn consumers(&self) -> usize {
        self.consumers
    }

    /// Endpoints of a source in a group.
    #[inline]
    pub fn content(&self, group: usize, source: usize) -> u64 {
        self.contents[group * self.sources + source]
    }

    /// Endpoints per source of a group.
    #[inline]
    pub fn contents_of(&self, group: usize) -> &[u64] {
        &self.contents[group * self.sources..(group + 1) * self.sources]
    }

    /// The weight of each endpoint of a group, as seen from a zone.
    #[inline]
    pub fn weight(&self, group: usize, consumer: usize) -> f64 {
        self.weights[group * self.consumers + consumer]
    }

    /// Weights per consuming zone of a group.
    #[inline]
    pub fn weights_of(&self, group: usize) -> &[f64] {
        &self.weights[group * self.consumers..(group + 1) * self.consumers]
    }

    /// The zones that a group's label names.
    pub(crate) fn zones_in_label(&self, group: &Group) -> &[u32] {
        &self.named_zones[group.named_zones.0 as usize..group.named_zones.1 as usize]
    }

    /// The zones a hint or subset label names for a group; none where everyone uses it.
    pub fn zones_served<'s>(&'s self, group: &'s Group) -> &'s [u32] {
        match &group.label {
            Label::Zone(zone) => std::slice::from_ref(zone),
            Label::Merged | Label::Shared => self.zones_in_label(group),
            Label::Global | Label::Unplaced => &[],
        }
    }

    /// EndpointSlices needed: hints and shares leave all endpoints in ordinary slices, otherwise
    /// each group has slices of its own.
    #[inline]
    pub fn slices(&self) -> u64 {
        let sizes = self.groups.iter().map(|group| group.size);
        match self.carrier {
            Carrier::Plain | Carrier::Subsets => {
                sizes.map(|size| size.div_ceil(ENDPOINTS_PER_SLICE)).sum()
            }
            Carrier::Hints | Carrier::NodeHints | Carrier::Shares => {
                sizes.sum::<u64>().div_ceil(ENDPOINTS_PER_SLICE)
            }
        }
    }

    /// A group's label as the evaluation tool writes it.
    pub fn label_text<S: AsRef<str>>(&self, group: &Group, names: &[S]) -> String {
        let mut text = String::from(match group.label {
            Label::Zone(zone) => names[zone as usize].as_ref(),
            Label::Global => "global",
            Label::Merged => "merged",
            Label::Shared => "shared",
            Label::Unplaced => "no-zone",
        });
        for &zone in self.zones_in_label(group) {
            text.push('-');
            text.push_str(names[zone as usize].as_ref());
        }
        text
    }

    /// Keeps, of groups with equal label texts, only the last: the evaluation tool stores groups
    /// by name, so a zone called `global` loses its local group.
    pub fn drop_shadowed<S: AsRef<str>>(&mut self, names: &[S]) {
        let texts: Vec<String> =
            self.groups.iter().map(|group| self.label_text(group, names)).collect();
        for group in (0..texts.len()).rev() {
            if texts[group + 1..].contains(&texts[group]) {
                self.remove_group(group);
            }
        }
    }
}
