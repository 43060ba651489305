//! Weights become groups and parts with an error below 1 %.

use proptest::prelude::*;
use zonewise_routing::{Choice, Group, MAX_GROUP_TARGETS, MAX_GROUPS};

/// The chance of each target, as the kernel draws it: a group by its parts, then one of the group.
fn chances(choice: &Choice, targets: usize) -> Vec<f64> {
    let mut chances = vec![0.0; targets];
    let parts: u32 = choice.groups.iter().map(|group| group.parts).sum();
    for Group { parts: own, targets } in &choice.groups {
        for target in targets {
            chances[*target as usize] += f64::from(*own) / f64::from(parts) / targets.len() as f64;
        }
    }
    chances
}

/// The part of the traffic that goes to another target than asked.
fn error(choice: &Choice, weights: &[u32]) -> f64 {
    let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let pairs = weights.iter().zip(chances(choice, weights.len()));
    pairs.map(|(weight, given)| (f64::from(*weight) / sum - given).abs()).sum::<f64>() / 2.0
}

fn targets(choice: &Choice) -> Vec<&[u32]> {
    choice.groups.iter().map(|group| &group.targets[..]).collect()
}

fn parts(choice: &Choice) -> Vec<u32> {
    choice.groups.iter().map(|group| group.parts).collect()
}

#[test]
fn equal_targets_are_one_group() {
    assert_eq!(Choice::uniform(0).groups, []);
    assert_eq!(targets(&Choice::uniform(3)), [[0, 1, 2]]);
    assert_eq!(Choice::uniform(20_000).elements(), 20_000);
    let zones = ["a", "b", "b"];
    let uniform = Choice::uniform(3);
    assert_eq!(Choice::weighted(&zones, &[7, 7, 7]), uniform);
    assert_eq!(Choice::weighted(&zones, &[333_334, 333_333, 333_333]), uniform, "within 1 %");
    assert_eq!(Choice::weighted(&zones, &[0, 0, 0]), uniform, "weights that say nothing");
    assert_eq!(Choice::weighted(&zones, &[1]), uniform, "weights that do not fit");
    assert_eq!(Choice::weighted::<u8>(&[], &[]).elements(), 0);
}

#[test]
fn zones_have_the_parts_of_their_weight() {
    let half = Choice::weighted(&["a", "b", "b"], &[2, 1, 1]);
    assert_eq!((half.resolution, parts(&half)), (8, vec![4, 4]));
    assert_eq!(targets(&half), [&[0][..], &[1, 2]]);
    assert_eq!(half.elements(), 3 + 4);
    let most = Choice::weighted(&["a", "b", "a"], &[1, 6, 1]);
    assert_eq!(targets(&most), [&[1][..], &[0, 2]], "the largest part first");
    assert_eq!((most.resolution, parts(&most)), (8, vec![6, 2]));
    let third = Choice::weighted(&["a", "b"], &[1, 2]);
    assert_eq!((third.resolution, parts(&third)), (128, vec![85, 43]));
    let gone = Choice::weighted(&["a", "b"], &[999_000, 1_000]);
    assert_eq!(targets(&gone), [[0]], "a thousandth may go");
    assert_eq!(gone.elements(), 1);
}

/// The Service of the documentation: 61 endpoints of three zones. In one step it needed 2,048 elements.
#[test]
fn many_endpoints_need_few_elements() {
    let zones: Vec<u8> = (0..61).map(|index| [0, 1, 1, 2, 2][index % 5]).collect();
    let count = |zone| zones.iter().filter(|of| **of == zone).count() as u32;
    let shares = [620_000, 300_000, 80_000];
    let weight = |zone: &u8| shares[usize::from(*zone)] / count(*zone);
    let weights: Vec<u32> = zones.iter().map(weight).collect();
    let choice = Choice::weighted(&zones, &weights);
    assert_eq!((choice.resolution, parts(&choice)), (128, vec![79, 39, 10]));
    assert_eq!(choice.elements(), 61 + 49);
}

/// What zone shares give: the share of each zone, evenly over its endpoints.
fn shared(shares: &[u32], counts: &[usize]) -> (Vec<usize>, Vec<u32>) {
    let zones: Vec<usize> =
        counts.iter().enumerate().flat_map(|(zone, count)| vec![zone; *count]).collect();
    let weights = zones.iter().map(|zone| shares[*zone] / counts[*zone] as u32).collect();
    (zones, weights)
}

fn shares_and_counts(
    zones: std::ops::Range<usize>,
) -> impl Strategy<Value = (Vec<u32>, Vec<usize>)> {
    let share = prop_oneof![1_000u32..1_000_000, Just(250_000), Just(500_000)];
    let zone = (share, prop_oneof![1usize..6, 1usize..200]);
    prop::collection::vec(zone, zones).prop_map(|zones| zones.into_iter().unzip())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    /// Every target of every group is chosen within 1 % of what is asked in all, and no target twice.
    #[test]
    fn the_error_is_below_a_hundredth((shares, counts) in shares_and_counts(1..12)) {
        let (zones, weights) = shared(&shares, &counts);
        let choice = Choice::weighted(&zones, &weights);
        prop_assert!(error(&choice, &weights) < 0.01);
        prop_assert!((choice.error(&weights) - error(&choice, &weights)).abs() < 1e-9);
        let mut all: Vec<u32> = targets(&choice).concat();
        all.sort_unstable();
        prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(parts(&choice).is_sorted_by(|one, other| one >= other));
        prop_assert_eq!(parts(&choice).iter().sum::<u32>(), choice.resolution);
    }

    /// Up to five zones 128 parts do, however many endpoints there are.
    #[test]
    fn five_zones_need_at_most_128_parts((shares, counts) in shares_and_counts(1..6)) {
        let (zones, weights) = shared(&shares, &counts);
        let choice = Choice::weighted(&zones, &weights);
        prop_assert!(choice.resolution <= 128);
        prop_assert!(choice.elements() <= zones.len() + 128);
    }

    /// Weights that no zone shares would give: each target in a zone of its own.
    #[test]
    fn any_weights_are_met(weights in prop::collection::vec(0u32..1_000_000, 1..300)) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let zones: Vec<usize> = (0..weights.len()).collect();
        let choice = Choice::weighted(&zones, &weights);
        prop_assert!(error(&choice, &weights) < 0.01);
    }

    /// Twice the weights ask for the same, and so do zones with other names.
    #[test]
    fn only_the_proportion_counts((shares, counts) in shares_and_counts(1..8)) {
        let (zones, weights) = shared(&shares, &counts);
        let twice: Vec<u32> = weights.iter().map(|weight| weight * 2).collect();
        let renamed: Vec<isize> = zones.iter().map(|zone| -(*zone as isize)).collect();
        prop_assert_eq!(Choice::weighted(&zones, &weights), Choice::weighted(&renamed, &twice));
    }
}

#[test]
fn many_zones_stop_at_the_limit() {
    let weighted = |zones: usize| {
        let weights: Vec<u32> = (0..zones as u32).map(|index| 1 + index % 7).collect();
        let choice = Choice::weighted(&(0..zones).collect::<Vec<_>>(), &weights);
        (choice.groups.len(), error(&choice, &weights))
    };
    let (groups, error) = weighted(MAX_GROUPS);
    assert_eq!(groups, MAX_GROUPS);
    assert!(error < 0.02, "{error}");
    assert_eq!(weighted(MAX_GROUPS + 1).0, 1, "no weights");
}

/// Beside other groups, a group has no more targets than the kernel has elements for.
#[test]
fn a_very_large_group_has_no_weights() {
    let groups = |of_one_zone: usize| {
        let mut zones = vec!['a'; of_one_zone];
        zones.push('b');
        let weights: Vec<u32> =
            zones.iter().map(|zone| if *zone == 'b' { 1_000_000 } else { 1 }).collect();
        Choice::weighted(&zones, &weights).groups.len()
    };
    assert_eq!((groups(MAX_GROUP_TARGETS), groups(MAX_GROUP_TARGETS + 1)), (2, 1));
    assert_eq!(groups(MAX_GROUP_TARGETS + 2), 1);
}
