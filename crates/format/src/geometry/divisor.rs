//! Division by an invariant number, as a multiplication. A 64-bit division takes ten and more cycles, and every small
//! read had to wait for two of them.
//!
//! The method is that of Granlund and Montgomery ("Division by Invariant Integers using Multiplication", 1994), with a
//! reciprocal of 63 bits. It is exact for the dividends of almost every array. For any other array, a real division is
//! used, so a quotient is never approximate.

/// The number of fractional bits of the reciprocal.
const SHIFT: u32 = 63;

/// An invariant divisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Divisor {
    by: u64,
    /// 2^63 / `by`, rounded up to the next whole number. Its error in a quotient is at most dividend / 2^63. That is
    /// less than 1 / `by`, the least distance of a quotient to the next whole number, if dividend x `by` < 2^63.
    reciprocal: u64,
    is_exact: bool,
}

impl Divisor {
    /// A divisor `by`, which is not 0, for dividends up to `most`.
    pub(super) fn new(by: u64, most: u64) -> Self {
        let is_exact = u128::from(most) * u128::from(by) < 1 << SHIFT;
        Self { by, reciprocal: (1 << SHIFT) / by + 1, is_exact }
    }

    /// The divisor itself.
    #[inline]
    pub(super) fn get(self) -> u64 {
        self.by
    }

    /// Quotient and remainder.
    #[inline]
    pub(super) fn divide(self, dividend: u64) -> (u64, u64) {
        let quotient = if self.is_exact {
            ((u128::from(dividend) * u128::from(self.reciprocal)) >> SHIFT) as u64
        } else {
            dividend / self.by
        };
        (quotient, dividend - quotient * self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quotients_and_remainders_are_those_of_a_division(
            by in prop_oneof![1..=64_u64, 1..=u64::from(u16::MAX)],
            most_bits in 1..=63_u32,
            share in any::<u64>(),
            near in 0..=2_u64,
        ) {
            let most = (1_u64 << most_bits) - 1;
            let divisor = Divisor::new(by, most);
            let any = share & most;
            // The dividend with the least margin: the last number before the next quotient.
            let last = (any / by * by).saturating_sub(near);
            for dividend in [any, last, most, 0] {
                prop_assert_eq!(divisor.divide(dividend), (dividend / by, dividend % by));
            }
        }
    }

    #[test]
    fn the_usual_array_needs_no_division() {
        let chunks = (16_u64 << 40) * 30 / (64 << 10);
        assert!(Divisor::new(30, chunks).is_exact);
        assert!(!Divisor::new(u16::MAX.into(), u64::MAX >> 12).is_exact);
    }
}
