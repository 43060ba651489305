//! One way to divide the zones into pools, and how many endpoints each pool should have.
//!
//! The size of a pool decides everything: the load of its endpoints is what its zones send, divided by the size, and
//! what stays in a zone is the part of the pool that is located there. Sizes start at two places, an even load and all
//! endpoints at home, and then single endpoints go from pool to pool as long as that is better.

use super::super::auto::take_largest;
use crate::number::{to_f64, to_u64};

/// Differences below this are rounding.
pub(super) const ROUNDING: f64 = 1e-9;

/// What is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Goal {
    /// Load above its fair share that an endpoint may get.
    max_overload: f64,
    /// What the highest overload costs, and the mean deviation from the fair share, in parts of the traffic.
    cost: f64,
}

impl Goal {
    /// In the published score, in-zone traffic counts 45 points, the highest overload 20 and the mean deviation 20.
    /// Something is left of a cost of 0, so that the more even of equal layouts is taken.
    pub(super) fn new(max_overload: f64, overload_cost: f64) -> Self {
        Self { max_overload, cost: (overload_cost * 20.0 / 45.0).max(1e-6) }
    }

    /// Whether overload costs so much that an uneven load never pays: what a zone keeps beyond an even load is missing in
    /// another zone, so it costs twice as mean deviation, and once more as highest overload.
    fn is_even(self) -> bool {
        3.0 * self.cost >= 1.0
    }
}

/// A zone that sends traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) zone: u32,
    /// Part of all traffic.
    pub(super) share: f64,
    /// The same in fair shares of an endpoint.
    pub(super) expected: f64,
    /// Endpoints located there.
    pub(super) endpoints: u64,
}

/// The senders, those that send most first, and how many endpoints there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Senders {
    pub(super) list: Vec<Sender>,
    /// Endpoints that can be given to pools.
    pub(super) present: u64,
    /// Endpoints that fair shares are counted by.
    pub(super) total: f64,
}

/// The place of a sender that every endpoint names.
pub(super) const EVERYWHERE: u32 = u32::MAX;

/// How well a layout does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fit {
    /// Endpoints that are missing to keep every pool within the allowed overload.
    pub(super) shortage: u64,
    /// Traffic that stays in its zone, less what overload costs.
    pub(super) value: f64,
    /// Part of all traffic that stays in its zone.
    pub(super) in_zone: f64,
    /// Load of the most loaded endpoint above its fair share.
    pub(super) max_overload: f64,
}

impl Fit {
    pub(super) fn is_better_than(&self, other: &Self) -> bool {
        match self.shortage.cmp(&other.shortage) {
            std::cmp::Ordering::Equal => self.value > other.value + ROUNDING,
            order => order.is_lt(),
        }
    }
}

/// Zones that use the same endpoints.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    /// What its zones send, in fair shares of an endpoint.
    expected: f64,
    /// Endpoints located in its zones.
    home: u64,
    /// Its zones.
    zones: usize,
    /// The fewest endpoints that keep it within the allowed overload.
    least: u64,
    /// The endpoints that would have an even load.
    even: f64,
}

/// A pool with one endpoint less or more.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    less: f64,
    more: f64,
    load_less: f64,
    load: f64,
    load_more: f64,
}

/// Zones in pools.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// The pool of each sender, or [`EVERYWHERE`].
    pub(super) pool_of: Vec<u32>,
    /// The endpoints of each pool.
    pub(super) sizes: Vec<u64>,
    pub(super) fit: Fit,
    pools: Vec<Pool>,
    /// Load of every endpoint by zones that every endpoint names, and what stays in these zones.
    everywhere: f64,
    everywhere_in_zone: f64,
    other_sizes: Vec<u64>,
    added: Vec<u64>,
    steps: Vec<Step>,
    by_load: Vec<usize>,
}

impl Layout {
    /// How many pools there are.
    pub(super) fn pools(&self) -> usize {
        self.pools.len()
    }

    /// The length of the longest list of zones.
    pub(super) fn longest_list(&self) -> usize {
        let everywhere = self.pool_of.iter().filter(|pool| **pool == EVERYWHERE).count();
        everywhere + self.pools.iter().map(|pool| pool.zones).max().unwrap_or(0)
    }

    /// Adds up the zones of each pool.
    pub(super) fn gather(&mut self, senders: &Senders, goal: Goal) {
        let present = to_f64(senders.present);
        let pools = self.pool_of.iter().filter(|pool| **pool != EVERYWHERE).max();
        self.pools.clear();
        self.pools.resize(pools.map_or(0, |last| *last as usize + 1), Pool::default());
        (self.everywhere, self.everywhere_in_zone) = (0.0, 0.0);
        let mut in_pools = 0.0;
        for (sender, &pool) in senders.list.iter().zip(&self.pool_of) {
            if pool == EVERYWHERE {
                self.everywhere += sender.expected / present;
                self.everywhere_in_zone += sender.share * to_f64(sender.endpoints) / present;
                continue;
            }
            let pool = &mut self.pools[pool as usize];
            pool.expected += sender.expected;
            pool.home += sender.endpoints;
            pool.zones += 1;
            in_pools += sender.expected;
        }
        let room = 1.0 + goal.max_overload - self.everywhere;
        for pool in &mut self.pools {
            pool.even = pool.expected / in_pools * present;
            pool.least = to_u64((pool.expected / room - ROUNDING).ceil()).max(1);
            if room <= 0.0 {
                pool.least = senders.present + 1;
            }
        }
    }

    /// What a layout cannot exceed: every pool as small as can pay, and overload for free.
    pub(super) fn bound(&self, senders: &Senders, goal: Goal) -> f64 {
        let smallest = |pool: &Pool| {
            if goal.is_even() { pool.least.max(to_u64(pool.even)) } else { pool.least }
        };
        let kept = |pool: usize| self.kept(senders, pool, smallest(&self.pools[pool]));
        self.everywhere_in_zone + (0..self.pools.len()).map(kept).sum::<f64>()
    }

    /// Finds the sizes of the pools.
    pub(super) fn solve(&mut self, senders: &Senders, goal: Goal) {
        let least: u64 = self.pools.iter().fold(0, |sum: u64, pool| sum.saturating_add(pool.least));
        if least > senders.present {
            self.fit = Fit { shortage: least - senders.present, ..Fit::default() };
            return;
        }
        let spare = senders.present - least;
        self.start_even(spare);
        self.climb(senders, goal);
        let even = self.measure(senders, goal);
        if goal.is_even() {
            self.fit = even;
            return;
        }
        std::mem::swap(&mut self.sizes, &mut self.other_sizes);
        self.start_at_home(spare);
        self.climb(senders, goal);
        self.fit = self.measure(senders, goal);
        if !self.fit.is_better_than(&even) {
            std::mem::swap(&mut self.sizes, &mut self.other_sizes);
            self.fit = even;
        }
    }

    /// Sizes with a load as even as possible.
    fn start_even(&mut self, spare: u64) {
        let pools = &self.pools;
        self.sizes.clear();
        self.sizes.resize(pools.len(), 0);
        // The least is below the even size, or less than one above it.
        take_largest(
            |pool| pools[pool].even - to_f64(pools[pool].least) + 1.0,
            spare,
            &mut self.sizes,
        );
        for (size, pool) in self.sizes.iter_mut().zip(pools) {
            *size += pool.least;
        }
    }

    /// Sizes with as many endpoints at home as possible.
    fn start_at_home(&mut self, spare: u64) {
        let pools = &self.pools;
        let at_home = |pool: usize| pools[pool].home.saturating_sub(pools[pool].least);
        let all: u64 = (0..pools.len()).map(at_home).sum();
        self.sizes.clear();
        self.sizes.resize(pools.len(), 0);
        take_largest(|pool| to_f64(at_home(pool)), spare.min(all), &mut self.sizes);
        for (size, pool) in self.sizes.iter_mut().zip(pools) {
            *size += pool.least;
        }
        // Endpoints of zones that are in no pool go where the load is highest.
        let lack = |pool: usize| pools[pool].even - to_f64(self.sizes[pool]);
        let shift = 1.0 - (0..pools.len()).map(lack).fold(0.0, f64::min);
        self.added.clear();
        self.added.resize(pools.len(), 0);
        take_largest(|pool| lack(pool) + shift, spare - spare.min(all), &mut self.added);
        for (size, added) in self.sizes.iter_mut().zip(&self.added) {
            *size += added;
        }
    }

    /// Moves single endpoints from pool to pool as long as that is better.
    fn climb(&mut self, senders: &Senders, goal: Goal) {
        for _ in 0..MOST_STEPS {
            self.look_around(senders, goal);
            let highest = |without: [usize; 2]| {
                let other = self.by_load.iter().find(|pool| !without.contains(pool));
                other.map_or(1.0, |pool| self.steps[*pool].load.max(1.0))
            };
            let now = highest([usize::MAX; 2]);
            let mut best = None;
            for giver in
                (0..self.pools.len()).filter(|&pool| self.sizes[pool] > self.pools[pool].least)
            {
                for receiver in (0..self.pools.len()).filter(|pool| *pool != giver) {
                    let (less, more) = (self.steps[giver], self.steps[receiver]);
                    let then = highest([giver, receiver]).max(less.load_less).max(more.load_more);
                    let gain = less.less + more.more - goal.cost * (then - now);
                    if gain > best.map_or(ROUNDING, |(most, _, _)| most) {
                        best = Some((gain, giver, receiver));
                    }
                }
            }
            let Some((_, giver, receiver)) = best else { return };
            self.sizes[giver] -= 1;
            self.sizes[receiver] += 1;
        }
    }

    /// What one endpoint less or more would do to each pool.
    fn look_around(&mut self, senders: &Senders, goal: Goal) {
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        steps.extend((0..self.pools.len()).map(|pool| {
            let size = self.sizes[pool];
            let value = |size| self.value(senders, goal, pool, size);
            let (now, less) = (value(size), size.max(2) - 1);
            Step {
                less: value(less) - now,
                more: value(size + 1) - now,
                load_less: self.load(pool, less),
                load: self.load(pool, size),
                load_more: self.load(pool, size + 1),
            }
        }));
        self.by_load.clear();
        self.by_load.extend(0..steps.len());
        self.by_load.sort_by(|a, b| steps[*b].load.total_cmp(&steps[*a].load));
        self.steps = steps;
    }

    fn measure(&self, senders: &Senders, goal: Goal) -> Fit {
        let pools = || 0..self.pools.len();
        let kept = |pool: usize| self.kept(senders, pool, self.sizes[pool]);
        let load = |pool: usize| self.load(pool, self.sizes[pool]);
        let value = |pool: usize| self.value(senders, goal, pool, self.sizes[pool]);
        let max_overload = pools().map(load).fold(1.0, f64::max) - 1.0;
        Fit {
            shortage: 0,
            value: self.everywhere_in_zone + pools().map(value).sum::<f64>()
                - goal.cost * max_overload,
            in_zone: self.everywhere_in_zone + pools().map(kept).sum::<f64>(),
            max_overload,
        }
    }

    /// What a pool of this size contributes, but for the highest overload.
    fn value(&self, senders: &Senders, goal: Goal, pool: usize, size: u64) -> f64 {
        let deviation = (self.load(pool, size) - 1.0).abs() * to_f64(size) / senders.total;
        self.kept(senders, pool, size) - goal.cost * deviation
    }

    /// The load of each endpoint of a pool of this size, in fair shares.
    fn load(&self, pool: usize, size: u64) -> f64 {
        self.everywhere + self.pools[pool].expected / to_f64(size)
    }

    /// Part of all traffic that stays in its zone by a pool of this size. Zones that send most keep their endpoints first.
    fn kept(&self, senders: &Senders, pool: usize, size: u64) -> f64 {
        let mut left = size;
        let mut sum = 0.0;
        for sender in self.members(senders, pool) {
            let own = sender.endpoints.min(left);
            left -= own;
            sum += sender.share * to_f64(own);
        }
        sum / to_f64(size)
    }

    /// The senders of a pool.
    pub(super) fn members<'a>(
        &'a self,
        senders: &'a Senders,
        pool: usize,
    ) -> impl Iterator<Item = &'a Sender> {
        let all = senders.list.iter().zip(&self.pool_of);
        all.filter(move |(_, of)| **of == pool as u32).map(|(sender, _)| sender)
    }
}

/// A bound for steps that move one endpoint at a time: sizes start near their best.
const MOST_STEPS: u64 = 64;
