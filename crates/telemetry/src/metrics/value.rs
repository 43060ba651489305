//! Counters, gauges and histograms: atomics behind cloneable handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A value that only grows.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A value that goes up and down.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<Float>);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.0.store(value.to_bits(), Relaxed);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1.0);
    }

    /// Subtracts one.
    pub fn dec(&self) {
        self.add(-1.0);
    }

    /// Adds a number, which may be negative.
    pub fn add(&self, more: f64) {
        self.0.add(more);
    }

    /// The current value.
    pub fn get(&self) -> f64 {
        self.0.get()
    }
}

/// Counts observations in buckets.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    bounds: Arc<[f64]>,
    /// One more than bounds: the last bucket has no upper bound.
    counts: Box<[AtomicU64]>,
    sum: Float,
}

impl Histogram {
    pub(super) fn new(bounds: Arc<[f64]>) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Buckets { bounds, counts, sum: Float::default() }))
    }

    /// Counts one value. NaN is ignored, because it would make the sum NaN for ever.
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let at = self.0.bounds.partition_point(|&bound| bound < value);
        self.0.counts[at].fetch_add(1, Relaxed);
        self.0.sum.add(value);
    }

    /// The values at one moment. The total count is that of the last bucket, so that the two always agree
    /// although other threads keep counting.
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        let cumulative = self.0.counts.iter().scan(0, |below, count| {
            *below += count.load(Relaxed);
            Some(*below)
        });
        Snapshot { bounds: &self.0.bounds, cumulative: cumulative.collect(), sum: self.0.sum.get() }
    }
}

/// A histogram at one moment.
pub(super) struct Snapshot<'a> {
    pub(super) bounds: &'a [f64],
    /// Observations at or below each bound, and all of them.
    pub(super) cumulative: Vec<u64>,
    pub(super) sum: f64,
}

/// A double in an atomic.
#[derive(Debug, Default)]
struct Float(AtomicU64);

impl Float {
    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    fn add(&self, more: f64) {
        let mut bits = self.0.load(Relaxed);
        let grown = |bits: u64| (f64::from_bits(bits) + more).to_bits();
        while let Err(now) = self.0.compare_exchange_weak(bits, grown(bits), Relaxed, Relaxed) {
            bits = now;
        }
    }
}
