//! AVX-512 (F and BW): sixty-four bytes, products by nibble lookup. It never checks that the processor has the
//! instructions; see [`Vector`]. Source: Intel's intrinsics guide.

use std::arch::x86_64::*;

use crate::gf;
use crate::vector::{Scale, Vector};

/// The truth table of a three-way exclusive or, for `vpternlog`.
const XOR3: i32 = 0x96;

/// A register. A value exists only on processors with AVX-512 F and BW.
#[derive(Clone, Copy)]
pub(crate) struct Bytes64(pub(super) __m512i);

impl Vector for Bytes64 {
    const BYTES: usize = size_of::<Self>();

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise; the load takes any alignment.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise; the store takes any alignment.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: registers exist, so the instructions do.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: registers exist, so the instructions do.
        Self(unsafe { _mm512_ternarylogic_epi64::<XOR3>(self.0, second.0, third.0) })
    }

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: a register exists, so the instructions do.
        unsafe {
            let reduce = _mm512_maskz_set1_epi8(_mm512_movepi8_mask(self.0), 0x1d);
            Self(_mm512_xor_si512(_mm512_add_epi8(self.0, self.0), reduce))
        }
    }
}

impl Scale for Bytes64 {
    /// Products with the low and with the high nibbles, in all quarters.
    type Factor = [__m512i; 2];

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let [low, high] = &gf::NIBBLES[constant as usize];
        // SAFETY: both tables are sixteen bytes; the caller promised the instructions.
        unsafe {
            [
                _mm512_broadcast_i32x4(_mm_loadu_si128(low.as_ptr().cast())),
                _mm512_broadcast_i32x4(_mm_loadu_si128(high.as_ptr().cast())),
            ]
        }
    }

    #[inline(always)]
    fn mul(self, [low, high]: Self::Factor) -> Self {
        // SAFETY: a register exists, so the instructions do.
        unsafe {
            let nibble = _mm512_set1_epi8(0x0f);
            let low = _mm512_shuffle_epi8(low, _mm512_and_si512(self.0, nibble));
            let high = _mm512_shuffle_epi8(high, _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), nibble));
            Self(_mm512_xor_si512(low, high))
        }
    }
}
