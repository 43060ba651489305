//! Which zones share their endpoints: from one pool for each zone, by the best of all single changes as long as there
//! is a better one.
//!
//! ```text
//!   a | b | c ──► a b | c    two pools become one
//!             ──► b | c      and a is on every list
//! ```
//!
//! A change is only looked at closely if its [bound](Layout::bound) is better than what is known. With many endpoints, a
//! pool for each zone comes so near to the limit that no change is.

use super::group_of;
use super::layout::{EVERYWHERE, Fit, Goal, Layout, Sender, Senders};
use crate::allocation::{Allocation, Carrier};
use crate::heuristic::Assignment;
use crate::hints::MAX_ZONES;
use crate::number::to_f64;
use crate::region::Region;

/// A bound for one decision, in pairs of pools that are looked at: all changes of ten zones, and fewer where there are
/// many zones.
const MOST_PAIRS: usize = 50_000;

/// The search and its buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    senders: Senders,
    best: Layout,
    trial: Layout,
    /// The pools that changes start from.
    base: Vec<u32>,
    /// Endpoints of each source that no pool of their own zone uses.
    free: Vec<u64>,
    zones: Vec<u32>,
}

/// A change of a layout.
#[derive(Clone, Copy)]
enum Change {
    /// The second pool becomes part of the first.
    Join(u32, u32),
    /// Every endpoint names the zones of a pool.
    Everywhere(u32),
}

impl Search {
    /// Finds the best layout; `None` if none keeps to the allowed overload.
    pub(super) fn run(&mut self, region: &Region<'_>, goal: Goal) -> Option<Fit> {
        self.list_senders(region);
        let zones = self.senders.list.len() as u32;
        self.best.pool_of.clear();
        self.best.pool_of.extend(0..zones);
        self.best.gather(&self.senders, goal);
        self.best.solve(&self.senders, goal);
        let mut left = MOST_PAIRS;
        while self.best.pools() > 2 && self.improve(goal, &mut left) {}
        Some(self.best.fit).filter(|fit| fit.shortage == 0)
    }

    fn list_senders(&mut self, region: &Region<'_>) {
        self.senders.present = region.present();
        self.senders.total = to_f64(region.total);
        let sender = |zone: usize| Sender {
            zone: zone as u32,
            share: region.zones[zone].share,
            expected: region.expected(zone),
            endpoints: region.zones[zone].endpoints,
        };
        let list = &mut self.senders.list;
        list.clear();
        list.extend((0..region.zones.len()).map(sender).filter(|sender| sender.share > 0.0));
        list.sort_by(|a, b| b.share.total_cmp(&a.share));
    }

    /// What every zone using every endpoint is worth: the load is even.
    pub(super) fn everywhere(&self) -> f64 {
        let kept = |sender: &Sender| sender.share * to_f64(sender.endpoints);
        self.senders.list.iter().map(kept).sum::<f64>() / to_f64(self.senders.present)
    }

    /// Takes the best single change; false if none is better than what is known. Looks at so many pairs of pools.
    fn improve(&mut self, goal: Goal, left: &mut usize) -> bool {
        self.base.clone_from(&self.best.pool_of);
        let pools = self.best.pools();
        let mut is_better = false;
        for change in changes(pools as u32) {
            let Some(rest) = left.checked_sub(pools * pools) else { break };
            *left = rest;
            self.trial.pool_of.clear();
            self.trial.pool_of.extend(self.base.iter().map(|&pool| change.of(pool)));
            self.trial.gather(&self.senders, goal);
            let is_known = self.best.fit.shortage == 0;
            if self.trial.longest_list() > MAX_ZONES
                || (is_known && self.trial.bound(&self.senders, goal) <= self.best.fit.value)
            {
                continue;
            }
            self.trial.solve(&self.senders, goal);
            if self.trial.fit.is_better_than(&self.best.fit) {
                std::mem::swap(&mut self.trial, &mut self.best);
                is_better = true;
            }
        }
        is_better
    }

    /// Writes down the best layout. Endpoints that serve another zone than their own are, where possible, of
    /// the sources of which so many serve that zone already.
    pub(super) fn fill(
        &mut self,
        region: &Region<'_>,
        previous: Option<&Assignment>,
        out: &mut Allocation,
    ) {
        out.begin(region, Carrier::Hints);
        out.zone_groups();
        self.free.clear();
        self.free.extend(region.zones.iter().map(|zone| zone.endpoints));
        for pool in 0..self.best.pools() {
            let group = group_of(self.list_of(pool), out);
            for sender in self.best.members(&self.senders, pool) {
                let room = self.best.sizes[pool] - out.groups()[group].size;
                let own = sender.endpoints.min(room);
                out.put(group, sender.zone as usize, own);
                self.free[sender.zone as usize] -= own;
            }
        }
        if let Some(previous) = previous {
            self.fill_pools(out, |source, zones| previous.listed(source, zones));
        }
        self.fill_pools(out, |_, _| u64::MAX);
    }

    /// Fills pools with free endpoints: of each source at most so many for a list of zones.
    fn fill_pools(&mut self, out: &mut Allocation, most: impl Fn(usize, &[u32]) -> u64) {
        for pool in 0..self.best.pools() {
            let group = group_of(self.list_of(pool), out);
            for source in 0..self.free.len() {
                let room = self.best.sizes[pool] - out.groups()[group].size;
                let already = out.content(group, source);
                let most = most(source, &self.zones).saturating_sub(already);
                let added = self.free[source].min(room).min(most);
                out.put(group, source, added);
                self.free[source] -= added;
            }
        }
    }

    /// The list of zones that the endpoints of a pool carry, in the order of the zones.
    fn list_of(&mut self, pool: usize) -> &[u32] {
        self.zones.clear();
        let named = self.senders.list.iter().zip(&self.best.pool_of);
        let named = named.filter(|(_, of)| **of == pool as u32 || **of == EVERYWHERE);
        self.zones.extend(named.map(|(sender, _)| sender.zone));
        self.zones.sort_unstable();
        &self.zones
    }
}

/// The changes of a layout with so many pools.
fn changes(pools: u32) -> impl Iterator<Item = Change> {
    let joins = (0..pools).flat_map(move |a| (a + 1..pools).map(move |b| Change::Join(a, b)));
    joins.chain((0..pools).map(Change::Everywhere))
}

impl Change {
    /// The pool that a sender of this pool is in after the change. Pools stay numbered without gaps.
    fn of(self, pool: u32) -> u32 {
        let (gone, instead) = match self {
            Self::Join(stays, gone) => (gone, stays),
            Self::Everywhere(gone) => (gone, EVERYWHERE),
        };
        match pool {
            EVERYWHERE => EVERYWHERE,
            _ if pool == gone => instead,
            _ => pool - u32::from(pool > gone),
        }
    }
}
