//! Upper bounds that grow with the number of zones.

/// `a + b·zones + c·zones²`: how long a value gets, or how many steps an expression takes.
///
/// There is no cube: what would need one is refused, and that is what limits nesting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bound([u64; 3]);

impl Bound {
    pub(super) const NONE: Self = Self([0, 0, 0]);
    pub(super) const ONE: Self = Self([1, 0, 0]);
    pub(super) const ZONES: Self = Self([0, 1, 0]);

    pub(super) const fn of(amount: u64) -> Self {
        Self([amount, 0, 0])
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|power| self.0[power].saturating_add(other.0[power])))
    }

    /// At least as much as either.
    pub(super) fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|power| self.0[power].max(other.0[power])))
    }

    /// `None` where the product grows faster than the square of the zones.
    pub(super) fn times(self, other: Self) -> Option<Self> {
        let mut product = [0u64; 3];
        for (left, &a) in self.0.iter().enumerate() {
            for (right, &b) in other.0.iter().enumerate().filter(|(_, b)| a > 0 && **b > 0) {
                let term = product.get_mut(left + right)?;
                *term = term.saturating_add(a.saturating_mul(b));
            }
        }
        Some(Self(product))
    }

    /// Its value for so many zones.
    pub(super) fn at(self, zones: u64) -> u64 {
        let [a, b, c] = self.0;
        c.saturating_mul(zones).saturating_add(b).saturating_mul(zones).saturating_add(a)
    }
}

#[cfg(test)]
mod tests {
    use super::Bound;

    #[test]
    fn bounds_multiply_up_to_squares_and_saturate() {
        let square = Bound::ZONES.times(Bound::ZONES).unwrap();
        assert_eq!(square.plus(Bound::of(3)).at(12), 147);
        assert_eq!(square.times(Bound::ZONES), None);
        assert_eq!(square.times(Bound::NONE), Some(Bound::NONE));
        assert_eq!(square.or(Bound::ZONES).at(2), 6);
        let huge = Bound::of(u64::MAX).plus(square);
        assert_eq!(huge.times(Bound::of(2)).unwrap().at(u64::MAX), u64::MAX);
    }
}
