//! Weights become slots with an error below 1 %.

use proptest::prelude::*;
use zonewise_routing::{MAX_SLOTS, slots};

/// The part of the traffic that goes to another target than asked.
fn error(weights: &[u32], slots: &[u32]) -> f64 {
    let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let mut given = vec![0.0; weights.len()];
    for target in slots {
        given[*target as usize] += 1.0 / slots.len() as f64;
    }
    let pairs = weights.iter().zip(&given);
    pairs.map(|(weight, given)| (f64::from(*weight) / sum - given).abs()).sum::<f64>() / 2.0
}

#[test]
fn equal_targets_have_one_slot_each() {
    assert!(slots(0, None).is_empty());
    assert_eq!(slots(3, None), [0, 1, 2]);
    assert_eq!(slots(3, Some(&[7, 7, 7])), [0, 1, 2]);
    assert_eq!(slots(3, Some(&[333_334, 333_333, 333_333])), [0, 1, 2], "within 1 %");
    assert_eq!(slots(2, Some(&[0, 0])), [0, 1], "weights that say nothing");
    assert_eq!(slots(2, Some(&[1])), [0, 1], "weights that do not fit");
    assert!(slots(0, Some(&[])).is_empty());
    assert_eq!(slots(1, Some(&[5])), [0]);
    assert_eq!(slots(20_000, None).len(), 20_000);
}

#[test]
fn uneven_targets_have_the_slots_of_their_weight() {
    assert_eq!(slots(2, Some(&[1, 3])), [0, 1, 1, 1]);
    assert_eq!(slots(2, Some(&[0, 3])), [1, 1]);
    assert_eq!(slots(3, Some(&[1, 1, 2])), [0, 1, 2, 2]);
    assert_eq!(slots(2, Some(&[999_000, 1_000])), [0, 0], "a thousandth may go");
    assert_eq!(slots(2, Some(&[1, 2])).len(), 64);
    let uneven: Vec<u32> = (0..20_000).map(|index| 1 + index % 2).collect();
    assert_eq!(slots(20_000, Some(&uneven)).len(), 20_000);
}

proptest! {
    #[test]
    fn the_error_is_below_a_hundredth(
        weights in prop::collection::vec(prop_oneof![Just(0u32), 1u32..1000, 1u32..1_000_000], 1..600),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let count = weights.len();
        let dealt = slots(count, Some(&weights));
        prop_assert!(error(&weights, &dealt) < 0.01);
        prop_assert!(dealt.is_sorted());
        prop_assert!(dealt.len() == count || dealt.len().is_power_of_two());
        prop_assert!((count..=MAX_SLOTS).contains(&dealt.len()));
        prop_assert_eq!(dealt, slots(count, Some(&weights)));
    }

    /// Twice the weights ask for the same.
    #[test]
    fn only_the_proportion_counts(weights in prop::collection::vec(1u32..1_000_000, 1..50)) {
        let twice: Vec<u32> = weights.iter().map(|weight| weight * 2).collect();
        prop_assert_eq!(slots(weights.len(), Some(&weights)), slots(twice.len(), Some(&twice)));
    }
}

#[test]
fn many_targets_stop_at_the_limit() {
    let weights: Vec<u32> = (0..10_000).map(|index| 1 + index % 7).collect();
    let dealt = slots(weights.len(), Some(&weights));
    assert_eq!(dealt.len(), MAX_SLOTS);
    assert!(error(&weights, &dealt) < 0.2);
}
