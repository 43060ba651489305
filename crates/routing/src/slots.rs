//! Weights into slots: the kernel picks one of N slots with equal chance, and a target with twice
//! the weight has twice the slots.

/// Most slots that weights are given.
pub const MAX_SLOTS: usize = 16_384;

/// The target of each slot.
///
/// Without weights every target has one slot, which is exact. With weights there are as many slots
/// as targets if that is good enough, else the smallest power of two, not below the number of
/// targets and at most [`MAX_SLOTS`], that is. Good enough: less than 1 % of the traffic goes to
/// another target than asked (the total variation distance). Slots are given by largest remainder,
/// so a target without a slot is part of that 1 %. Weights that say nothing (all zero, or not one
/// for each target) count as equal.
pub fn slots(targets: usize, weights: Option<&[u32]>) -> Vec<u32> {
    let equal = || (0..targets as u32).collect();
    let Some(weights) = weights.filter(|weights| weights.len() == targets) else {
        return equal();
    };
    if weights.iter().all(|weight| *weight == weights[0]) {
        return equal();
    }
    let powers = std::iter::successors(Some(targets.next_power_of_two()), |count| Some(count * 2));
    let powers = powers.take_while(|count| *count <= MAX_SLOTS);
    let mut best = Vec::new();
    for count in std::iter::once(targets).chain(powers) {
        best = deal(weights, count);
        if is_good(weights, &best, count) {
            break;
        }
    }
    let each = best.into_iter().enumerate();
    each.flat_map(|(target, count)| std::iter::repeat_n(target as u32, count)).collect()
}

/// Slots per target, by largest remainder; the first of equal remainders wins.
fn deal(weights: &[u32], count: usize) -> Vec<usize> {
    let sum = sum(weights);
    let exact = |weight: u32| u128::from(weight) * count as u128;
    let mut dealt: Vec<usize> =
        weights.iter().map(|weight| (exact(*weight) / sum) as usize).collect();
    let missing = count - dealt.iter().sum::<usize>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(exact(weights[*index]) % sum));
    for index in order.into_iter().take(missing) {
        dealt[index] += 1;
    }
    dealt
}

/// Whether ½ Σ |asked − given| is below 1/100, in whole numbers.
fn is_good(weights: &[u32], dealt: &[usize], count: usize) -> bool {
    let sum = sum(weights);
    let pairs = weights.iter().zip(dealt);
    let off: u128 = pairs
        .map(|(weight, slots)| (u128::from(*weight) * count as u128).abs_diff(*slots as u128 * sum))
        .sum();
    off * 50 < sum * count as u128
}

fn sum(weights: &[u32]) -> u128 {
    weights.iter().map(|weight| u128::from(*weight)).sum()
}
