//! The one trait every heuristic implements, and what outlives a single decision.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::allocation::Allocation;
use crate::reason::Reason;
use crate::region::Region;

/// Decides which endpoints serve which zones.
///
/// A heuristic may be code (the built-in ones) or data (an object built from a user's
/// configuration): callers hold it as `dyn Heuristic` and never know.
pub trait Heuristic: Send + Sync {
    /// Its name, as users write it.
    fn name(&self) -> &str;

    /// Fills `out` for this case and says why it looks as it does. When the reason's outcome is
    /// [`Outcome::Failed`](crate::reason::Outcome::Failed), `out` must not be used.
    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason;

    /// The same for callers that know what the zones are called. Only heuristics that speak of
    /// zones by name (see [`expression`](crate::expression)) do more than [`allocate`](Self::allocate).
    fn allocate_named(&self, case: &Case<'_>, names: &[Box<str>], out: &mut Allocation) -> Reason {
        let _ = names;
        self.allocate(case, out)
    }

    /// Whether the outcome of [`allocate`](Self::allocate) is known to be in force without running it.
    /// `serving` is the number of endpoints that serve each zone by what is in force before, if anything
    /// is. Only heuristics that can tell quickly say so; `false` means nothing.
    fn is_surely_in_force(&self, region: &Region<'_>, serving: Option<&[u64]>) -> bool {
        let _ = (region, serving);
        false
    }

    /// Whether it answers with zone shares, whatever the input. Hints beside shares are an extra for
    /// proxies that do not know shares; without hints the heuristic still works.
    fn gives_shares(&self) -> bool {
        false
    }
}

impl<H: Heuristic + ?Sized> Heuristic for Arc<H> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn allocate(&self, case: &Case<'_>, out: &mut Allocation) -> Reason {
        (**self).allocate(case, out)
    }

    fn allocate_named(&self, case: &Case<'_>, names: &[Box<str>], out: &mut Allocation) -> Reason {
        (**self).allocate_named(case, names, out)
    }

    fn is_surely_in_force(&self, region: &Region<'_>, serving: Option<&[u64]>) -> bool {
        (**self).is_surely_in_force(region, serving)
    }

    fn gives_shares(&self) -> bool {
        (**self).gives_shares()
    }
}

/// One decision to take.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The zones as they are now.
    pub region: Region<'a>,
    /// What is in force since an earlier decision; `None` when nothing is. Read back from the
    /// slices, so that a restart changes nothing.
    pub previous: Option<&'a Assignment>,
    /// Assign endpoints anew, even where what is in force could stay. What is in force then only
    /// says that topology is on, so that it stays on between its two thresholds.
    pub afresh: bool,
}

impl<'a> Case<'a> {
    /// A first decision.
    pub fn fresh(region: Region<'a>) -> Self {
        Self::following(region, None)
    }

    /// A decision that keeps what is in force as long as that is good enough.
    pub fn following(region: Region<'a>, previous: Option<&'a Assignment>) -> Self {
        Self { region, previous, afresh: false }
    }

    /// What is in force, for heuristics that give each endpoint one zone: nothing where every endpoint serves several.
    pub(crate) fn assigned(&self) -> Option<&'a Assignment> {
        self.previous.filter(|previous| previous.fits(&self.region) && !previous.is_shared_only())
    }
}

/// How many endpoints of each source are assigned to each consuming zone, or to several of them.
///
/// Holds only endpoints that still exist: those that arrived since are missing from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    zones: usize,
    counts: Vec<u64>,
    /// Endpoints that serve several zones: by source, then by zones.
    shared: BTreeMap<(usize, Box<[u32]>), u64>,
}

impl Assignment {
    /// Nothing assigned yet, among `zones` zones.
    pub fn empty(zones: usize) -> Self {
        Self { zones, counts: vec![0; (zones + 1) * zones], shared: BTreeMap::new() }
    }

    /// The place of endpoints that have no zone, among the sources.
    pub fn unplaced(&self) -> usize {
        self.zones
    }

    /// Adds endpoints located at `source` that serve `consumer`.
    pub fn add(&mut self, source: usize, consumer: usize, endpoints: u64) {
        self.counts[source * self.zones + consumer] += endpoints;
    }

    /// Adds endpoints located at `source` that serve all of these zones, which are in their order.
    pub fn add_list(&mut self, source: usize, zones: &[u32], endpoints: u64) {
        match zones {
            [] => {}
            [zone] => self.add(source, *zone as usize, endpoints),
            _ => *self.shared.entry((source, zones.into())).or_default() += endpoints,
        }
    }

    /// Endpoints located at `source` that serve `consumer` alone.
    pub fn count(&self, source: usize, consumer: usize) -> u64 {
        self.counts[source * self.zones + consumer]
    }

    /// Endpoints located at `source` that serve exactly these zones.
    pub(crate) fn listed(&self, source: usize, zones: &[u32]) -> u64 {
        match zones {
            [zone] => self.count(source, *zone as usize),
            _ => self.shared.get(&(source, zones.into())).copied().unwrap_or(0),
        }
    }

    /// Endpoints located at `source` that serve any zones.
    pub(crate) fn listed_from(&self, source: usize) -> u64 {
        let of_source = (source, Box::default())..(source + 1, Box::default());
        self.assigned_from(source)
            + self.shared.range(of_source).map(|(_, count)| count).sum::<u64>()
    }

    /// All endpoints: their source, the zones that they serve, and how many there are.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (usize, Cow<'_, [u32]>, u64)> {
        let single = (0..self.counts.len()).filter(|&at| self.counts[at] > 0).map(|at| {
            let zone = (at % self.zones) as u32;
            (at / self.zones, Cow::Owned(vec![zone]), self.counts[at])
        });
        let shared = self.shared.iter();
        single.chain(
            shared.map(|((source, zones), count)| (*source, Cow::Borrowed(&**zones), *count)),
        )
    }

    /// Whether there are endpoints that serve several zones, and none that serves one.
    fn is_shared_only(&self) -> bool {
        !self.shared.is_empty() && self.counts.iter().all(|count| *count == 0)
    }

    /// Endpoints located at `source` that serve one zone.
    pub(crate) fn assigned_from(&self, source: usize) -> u64 {
        self.counts[source * self.zones..(source + 1) * self.zones].iter().sum()
    }

    /// Whether it describes the endpoints of this region: the same zones, and never more endpoints
    /// of a source than there are.
    pub fn fits(&self, region: &Region<'_>) -> bool {
        self.zones == region.zones.len()
            && (0..=self.zones).all(|source| {
                self.listed_from(source)
                    <= if source == self.zones {
                        region.unplaced
                    } else {
                        region.zones[source].endpoints
                    }
            })
    }
}

impl From<&Allocation> for Assignment {
    /// What the groups of an allocation that are meant for some zones leave behind.
    fn from(allocation: &Allocation) -> Self {
        let mut assignment = Self::empty(allocation.consumers());
        for (index, group) in allocation.groups().iter().enumerate() {
            for (source, &count) in allocation.contents_of(index).iter().enumerate() {
                if count > 0 {
                    assignment.add_list(source, allocation.zones_served(group), count);
                }
            }
        }
        assignment
    }
}
