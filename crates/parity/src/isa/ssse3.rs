//! SSSE3: sixteen bytes, products by nibble lookup. It never checks that the processor has the instructions; see
//! [`Vector`]. Source: Intel's intrinsics guide.

use std::arch::x86_64::*;

use crate::gf;
use crate::vector::{Scale, Vector};

/// A register. A value exists only on processors with SSSE3.
#[derive(Clone, Copy)]
pub(crate) struct Bytes16(__m128i);

impl Vector for Bytes16 {
    const BYTES: usize = size_of::<Self>();

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm_setzero_si128() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise; the load takes any alignment.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise; the store takes any alignment.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: registers exist, so the instructions do.
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: a register exists, so the instructions do.
        let pivot = unsafe { Self::pivot() };
        self.xor(pivot).horner(pivot)
    }

    #[inline(always)]
    unsafe fn pivot() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm_set1_epi8(gf::PIVOT as i8) })
    }

    /// A shuffle returns zero for a byte with its highest bit set, and otherwise a table entry. So one instruction
    /// reduces, but inverted: the other bytes.
    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        // SAFETY: a register exists, so the instructions do.
        unsafe {
            let reduce = _mm_shuffle_epi8(_mm_set1_epi8(0x1d), self.0);
            Self(_mm_xor_si128(_mm_add_epi8(self.0, self.0), reduce)).xor(next)
        }
    }
}

impl Scale for Bytes16 {
    /// Products with the low and with the high nibbles.
    type Factor = [__m128i; 2];

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let [low, high] = &gf::NIBBLES[constant as usize];
        // SAFETY: both tables are sixteen bytes; the caller promised the instructions.
        unsafe { [_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())] }
    }

    #[inline(always)]
    fn mul(self, [low, high]: Self::Factor) -> Self {
        // SAFETY: a register exists, so the instructions do.
        unsafe {
            let nibble = _mm_set1_epi8(0x0f);
            let low = _mm_shuffle_epi8(low, _mm_and_si128(self.0, nibble));
            let high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi16::<4>(self.0), nibble));
            Self(_mm_xor_si128(low, high))
        }
    }
}
