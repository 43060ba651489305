//! Conversions on hot paths.
//!
//! Counts are far below 2^63, where signed and unsigned conversions agree; the signed ones are a
//! single instruction on x86-64, the unsigned ones a dozen.

/// A count as a double.
#[inline(always)]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as i64 as f64
}

/// The whole part of a double that is not negative.
#[inline(always)]
pub(crate) fn to_u64(value: f64) -> u64 {
    value as i64 as u64
}
