//! Turns weights into what the kernel can draw: a group of targets by weight, then one of the group.
//!
//! ```text
//!  zone   targets   share         drawn first               drawn second
//!  a      2         62 %          80 parts of 128           each of 2 with equal chance
//!  b      30        30 %          38 parts                  each of 30
//!  c      29         8 %          10 parts                  each of 29
//! ```
//!
//! The kernel draws a number below a constant, and every number that stands for something needs an element of
//! a map. In one step, 61 targets with these shares would need 2,048 numbers for an error below 1 %. In two
//! steps they need 128, however many targets there are, and one for each target. The largest group needs no
//! numbers of its own: it is what is left when no other group was drawn.

use std::collections::BTreeMap;

/// The numbers of parts that groups can be drawn by, each a power of two. The first that brings the error below
/// 1 % is used: 128 always does for up to five groups, 1,024 for up to forty.
pub const RESOLUTIONS: [u32; 4] = [8, 128, 1024, 16_384];

/// The most groups that can be drawn, and the most targets of one that has others beside it. With more there
/// are no weights.
pub const MAX_GROUPS: usize = 1_000;
/// See [`MAX_GROUPS`].
pub const MAX_GROUP_TARGETS: usize = 1_000_000;

/// How one of several targets is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// How many parts the groups have together; of no meaning for a single group.
    pub resolution: u32,
    /// The groups, that with most parts first. There are none if there are no targets.
    pub groups: Vec<Group>,
}

/// Targets with equal chances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// How many of the parts it has.
    pub parts: u32,
    /// The indexes of its targets.
    pub targets: Vec<u32>,
}

impl Choice {
    /// Each of so many targets with the same chance.
    pub fn uniform(targets: usize) -> Self {
        let resolution = RESOLUTIONS[0];
        let group = Group { parts: resolution, targets: (0..targets as u32).collect() };
        Self { resolution, groups: (targets > 0).then_some(group).into_iter().collect() }
    }

    /// How to choose among targets that are in these zones and have these weights.
    ///
    /// Targets of one zone form a group: zone shares give them the same weight, up to rounding. Less than 1 %
    /// of the traffic goes to another target than it should (total variation distance), unless there are
    /// hundreds of zones. Groups may get no part, and are left out then; their traffic is in that 1 %.
    ///
    /// Weights that differ too little to matter count as no weights, and so does a list of weights that is not
    /// as long as the list of targets.
    pub fn weighted<Z: Ord + Copy>(zones: &[Z], weights: &[u32]) -> Self {
        let uniform = Self::uniform(zones.len());
        if weights.len() != zones.len() || sum(weights) == 0 || uniform.error(weights) < LIMIT {
            return uniform;
        }
        let groups = by_zone(zones);
        if groups.len() > MAX_GROUPS || groups.iter().any(|group| group.len() > MAX_GROUP_TARGETS) {
            return uniform;
        }
        let mut best = uniform;
        for resolution in RESOLUTIONS {
            best = Self::apportion(resolution, &groups, weights);
            if best.error(weights) < LIMIT {
                break;
            }
        }
        best
    }

    /// How many elements the kernel needs for it: one for each target, and one for each part of all groups but
    /// the first.
    pub fn elements(&self) -> usize {
        let targets: usize = self.groups.iter().map(|group| group.targets.len()).sum();
        let parts: usize = self.groups.iter().skip(1).map(|group| group.parts as usize).sum();
        targets + parts
    }

    /// The part of the traffic that goes to another target than the weights ask for.
    pub fn error(&self, weights: &[u32]) -> f64 {
        let all = sum(weights).max(1) as f64;
        let wanted = |target: &u32| {
            weights.get(*target as usize).map_or(0.0, |weight| f64::from(*weight) / all)
        };
        let parts: f64 = self.groups.iter().map(|group| f64::from(group.parts)).sum();
        let mut known = 0.0;
        let mut off = 0.0;
        for group in &self.groups {
            let given = f64::from(group.parts) / parts / group.targets.len() as f64;
            for target in &group.targets {
                known += wanted(target);
                off += (wanted(target) - given).abs();
            }
        }
        // What targets without a part should have got.
        (off + (1.0 - known).max(0.0)) / 2.0
    }

    /// Gives the parts to groups by largest remainder; the first of equal remainders wins.
    fn apportion(resolution: u32, groups: &[Vec<u32>], weights: &[u32]) -> Self {
        let weight = |targets: &Vec<u32>| {
            targets.iter().map(|target| u128::from(weights[*target as usize])).sum::<u128>()
        };
        let exact: Vec<u128> =
            groups.iter().map(|targets| weight(targets) * u128::from(resolution)).collect();
        let all = sum(weights);
        let mut parts: Vec<u32> = exact.iter().map(|exact| (exact / all) as u32).collect();
        let missing = resolution - parts.iter().sum::<u32>();
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(exact[*index] % all));
        order.into_iter().take(missing as usize).for_each(|index| parts[index] += 1);
        let given = parts.into_iter().zip(groups).filter(|(parts, _)| *parts > 0);
        let mut groups: Vec<Group> =
            given.map(|(parts, targets)| Group { parts, targets: targets.clone() }).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.parts));
        Self { resolution, groups }
    }
}

/// A hundredth.
const LIMIT: f64 = 0.01;

/// The targets of each zone, in the order in which the zones first appear: that order does not depend on how
/// zones are numbered.
fn by_zone<Z: Ord + Copy>(zones: &[Z]) -> Vec<Vec<u32>> {
    let mut places: BTreeMap<Z, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for (target, zone) in (0..).zip(zones) {
        let place = *places.entry(*zone).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(target),
            None => groups.push(vec![target]),
        }
    }
    groups
}

fn sum(weights: &[u32]) -> u128 {
    weights.iter().map(|weight| u128::from(*weight)).sum()
}
