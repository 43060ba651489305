//! Numbers with four decimals, as the evaluation tool prints them.
//!
//! The published means are means of *printed* values. Keeping those as whole ten-thousandths makes
//! sums exact: the same result whatever the number of threads or shards.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number in ten-thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Decimal(pub i64);

/// Ten-thousandths in one.
pub const SCALE: i64 = 10_000;

impl Decimal {
    /// The double nearest to it.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    /// Rounds exactly, halves to even: what printing with `{:.4}` shows. Values beyond the range
    /// (5 × 10^14) and undefined ones become the nearest limit and zero.
    #[inline]
    pub fn round(value: f64) -> Self {
        let scaled = value * SCALE as f64;
        let nearest = scaled.round_ties_even();
        // Multiplying was off by at most a millionth; only close to a half does that matter.
        if (scaled - nearest).abs() < 0.499 && nearest.abs() < 1e9 {
            return Self(nearest as i64);
        }
        Self::round_exactly(value)
    }

    #[cold]
    fn round_exactly(value: f64) -> Self {
        let bits = value.abs().to_bits();
        let exponent = (bits >> 52) as i32 - 1075;
        let mantissa = (bits & ((1 << 52) - 1)) | (1 << 52);
        let magnitude = if value.is_nan() {
            0
        } else if exponent >= 49 - 52 {
            i64::MAX // from 2^49 on, ten-thousandths no longer fit
        } else {
            // A shift beyond all bits leaves far less than a half.
            let shift = exponent.unsigned_abs().min(127);
            round_shift(u128::from(mantissa) * SCALE as u128, shift)
        };
        Self(if value < 0.0 { -magnitude } else { magnitude })
    }
}

#[inline]
fn round_shift(scaled: u128, shift: u32) -> i64 {
    let whole = (scaled >> shift) as i64;
    let rest = scaled & ((1u128 << shift) - 1);
    let half = 1u128 << (shift - 1);
    whole + i64::from(rest > half || (rest == half && whole & 1 == 1))
}

impl Decimal {
    /// Appends its digits: what [`Display`](fmt::Display) shows, without the machinery.
    pub(crate) fn append_to(self, out: &mut Vec<u8>) {
        // Sign, 15 digits, point, 4 digits.
        let mut digits = [b'0'; 24];
        let mut at = digits.len();
        let mut rest = self.0.unsigned_abs();
        let mut count = 0;
        while rest > 0 || count < 5 {
            if count == 4 {
                at -= 1;
                digits[at] = b'.';
            }
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
        }
        if self.0 < 0 {
            out.push(b'-');
        }
        out.extend_from_slice(&digits[at..]);
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, part) =
            (self.0.unsigned_abs() / SCALE as u64, self.0.unsigned_abs() % SCALE as u64);
        write!(f, "{sign}{whole}.{part:04}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn printed(value: f64) -> String {
        match format!("{value:.4}").as_str() {
            "-0.0000" => String::from("0.0000"),
            text => text.to_owned(),
        }
    }

    #[test]
    fn a20_rounds_as_printing_does_at_the_edges() {
        for value in [
            0.0,
            -0.0,
            0.00005,
            0.00015,
            79.53125,
            0.03125,
            1e-320,
            99.99995,
            -41.00005,
            1e-5,
            4.99999e-5,
            5.00001e-5,
            123_456_789.123_45,
            1e-17,
            1.0 / 3.0,
            2f64.powi(48),
        ] {
            assert_eq!(Decimal::round(value).to_string(), printed(value), "{value:e}");
        }
    }

    #[test]
    fn absurd_values_saturate() {
        assert_eq!(Decimal::round(f64::NAN), Decimal(0));
        assert_eq!(Decimal::round(f64::INFINITY), Decimal(i64::MAX));
        assert_eq!(Decimal::round(-1e300), Decimal(-i64::MAX));
        let mut text = Vec::new();
        Decimal(i64::MIN).append_to(&mut text);
        assert_eq!(text, Decimal(i64::MIN).to_string().into_bytes());
    }

    proptest! {
        #[test]
        fn a20_rounds_as_printing_does(value in -1e6..1e6f64, tie in -4_000_000i64..4_000_000) {
            prop_assert_eq!(Decimal::round(value).to_string(), printed(value));
            let tie = tie as f64 / 32.0; // five binary places: many exact halves
            prop_assert_eq!(Decimal::round(tie).to_string(), printed(tie));
            let mut appended = Vec::new();
            Decimal::round(value).append_to(&mut appended);
            prop_assert_eq!(appended, printed(value).into_bytes());
        }
    }
}
