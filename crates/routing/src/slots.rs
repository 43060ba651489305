//! Turns weights into slots.
//!
//! The kernel picks one of N slots at random, each with equal chance. A target that should get
//! twice the traffic of another therefore gets twice as many slots.

/// The largest number of slots for one list of targets with weights.
pub const MAX_SLOTS: usize = 16_384;

/// The index of the target of each slot.
///
/// Without weights every target has one slot, which is exact. With weights, numbers of slots are
/// tried until less than 1 % of the traffic goes to another target than it should (total variation
/// distance): first as many slots as targets, then powers of two up to [`MAX_SLOTS`].
///
/// Slots are given by largest remainder. A target may get none; its traffic is part of that 1 %.
/// Equal weights count as no weights, and so does a list of weights that is not as long as the list
/// of targets.
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
        best = apportion(weights, count);
        if is_close_enough(weights, &best, count) {
            break;
        }
    }
    let each = best.into_iter().enumerate();
    each.flat_map(|(target, count)| std::iter::repeat_n(target as u32, count)).collect()
}

/// The number of slots per target, by largest remainder; the first of equal remainders wins.
fn apportion(weights: &[u32], count: usize) -> Vec<usize> {
    let sum = sum(weights);
    let exact = |weight: u32| u128::from(weight) * count as u128;
    let mut slots: Vec<usize> =
        weights.iter().map(|weight| (exact(*weight) / sum) as usize).collect();
    let missing = count - slots.iter().sum::<usize>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(exact(weights[*index]) % sum));
    for index in order.into_iter().take(missing) {
        slots[index] += 1;
    }
    slots
}

/// Whether the total variation distance ½ Σ |wanted − given| is below 1/100, in whole numbers.
fn is_close_enough(weights: &[u32], slots: &[usize], count: usize) -> bool {
    let sum = sum(weights);
    let pairs = weights.iter().zip(slots);
    let off: u128 = pairs
        .map(|(weight, given)| (u128::from(*weight) * count as u128).abs_diff(*given as u128 * sum))
        .sum();
    off * 50 < sum * count as u128
}

fn sum(weights: &[u32]) -> u128 {
    weights.iter().map(|weight| u128::from(*weight)).sum()
}
