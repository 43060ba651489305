//! A binary heap over zones whose keys may change while they wait.
//!
//! `std::collections::BinaryHeap` does not fit: ties must be settled by the very sequence of swaps
//! of the evaluation tool's heap, and keys that changed inside the queue must stay where they are.

/// Orders a whole array.
#[inline]
pub(crate) fn build(heap: &mut [u32], before: impl Fn(u32, u32) -> bool) {
    for start in (0..heap.len() / 2).rev() {
        sift_down(heap, start, heap.len(), &before);
    }
}

/// Appends a zone and lets it rise.
#[inline]
pub(crate) fn push(heap: &mut Vec<u32>, zone: u32, before: impl Fn(u32, u32) -> bool) {
    heap.push(zone);
    let mut at = heap.len() - 1;
    while at > 0 {
        let parent = (at - 1) / 2;
        if !before(heap[at], heap[parent]) {
            break;
        }
        heap.swap(at, parent);
        at = parent;
    }
}

/// Removes the first zone.
#[inline]
pub(crate) fn pop(heap: &mut Vec<u32>, before: impl Fn(u32, u32) -> bool) -> Option<u32> {
    let last = heap.len().checked_sub(1)?;
    heap.swap(0, last);
    sift_down(heap, 0, last, &before);
    heap.pop()
}

#[inline]
fn sift_down(heap: &mut [u32], start: usize, end: usize, before: &impl Fn(u32, u32) -> bool) {
    let mut at = start;
    loop {
        let left = 2 * at + 1;
        if left >= end {
            return;
        }
        let right = left + 1;
        let child = if right < end && before(heap[right], heap[left]) { right } else { left };
        if !before(heap[child], heap[at]) {
            return;
        }
        heap.swap(at, child);
        at = child;
    }
}
