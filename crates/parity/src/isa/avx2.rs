//! AVX2: thirty-two bytes, products by nibble lookup. It never checks that the processor has the instructions; see
//! [`Vector`]. Source: Intel's intrinsics guide.

use std::arch::x86_64::*;

use crate::gf;
use crate::vector::{Scale, Vector};

/// A register. A value exists only on processors with AVX2.
#[derive(Clone, Copy)]
pub(crate) struct Bytes32(pub(super) __m256i);

impl Vector for Bytes32 {
    const BYTES: usize = size_of::<Self>();

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise; the load takes any alignment.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise; the store takes any alignment.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: registers exist, so the instructions do.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
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
        Self(unsafe { _mm256_set1_epi8(gf::PIVOT as i8) })
    }

    /// A shuffle returns zero for a byte with its highest bit set, and otherwise a table entry. So one instruction
    /// reduces, but inverted: the other bytes.
    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        // SAFETY: a register exists, so the instructions do.
        unsafe {
            let reduce = _mm256_shuffle_epi8(_mm256_set1_epi8(0x1d), self.0);
            Self(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduce)).xor(next)
        }
    }
}

impl Scale for Bytes32 {
    /// Products with the low and with the high nibbles, in both halves.
    type Factor = [__m256i; 2];

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let [low, high] = &gf::NIBBLES[constant as usize];
        // SAFETY: both tables are sixteen bytes; the caller promised the instructions.
        unsafe {
            [
                _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast())),
            ]
        }
    }

    #[inline(always)]
    fn mul(self, [low, high]: Self::Factor) -> Self {
        // SAFETY: a register exists, so the instructions do.
        unsafe {
            let nibble = _mm256_set1_epi8(0x0f);
            let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, nibble));
            let high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), nibble));
            Self(_mm256_xor_si256(low, high))
        }
    }
}
