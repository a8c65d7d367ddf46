//! Registers with non-temporal stores: memory is not read before it is overwritten, and the cache keeps its contents.
//! They pay for results that no processor reads soon, and never otherwise (figures in docs/decisions/0203). Source:
//! Intel's optimization manual.

use std::arch::x86_64::*;

use super::avx2::Bytes32;
use super::gfni::Affine64;
use crate::vector::{Scale, Vector};

/// A register with a non-temporal store.
pub(crate) trait PastCache: Scale {
    /// Writes the bytes to `to`, bypassing the cache.
    ///
    /// # Safety
    /// `to` is aligned to `BYTES`, and that many bytes may be written.
    unsafe fn stream(self, to: *mut u8);
}

impl PastCache for Bytes32 {
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_stream_si256(to.cast(), self.0) }
    }
}

impl PastCache for Affine64 {
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_stream_si512(to.cast(), self.register()) }
    }
}

/// A register. A value exists only where `V` does.
#[derive(Clone, Copy)]
pub(crate) struct Streaming<V>(V);

impl<V: PastCache> Vector for Streaming<V> {
    const BYTES: usize = V::BYTES;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { V::zero() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { V::load(from) })
    }

    /// Bypasses the cache if `to` is aligned to the register.
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise; the store that needs an aligned address gets one.
        unsafe {
            match to.addr().is_multiple_of(V::BYTES) {
                true => self.0.stream(to),
                false => self.0.store(to),
            }
        }
    }

    #[inline(always)]
    unsafe fn settle() {
        // SAFETY: every processor with AVX2 has the instruction.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(self.0.xor(other.0))
    }

    #[inline(always)]
    fn xor3(self, second: Self, third: Self) -> Self {
        Self(self.0.xor3(second.0, third.0))
    }

    #[inline(always)]
    fn double(self) -> Self {
        Self(self.0.double())
    }

    #[inline(always)]
    unsafe fn pivot() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { V::pivot() })
    }

    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        Self(self.0.horner(next.0))
    }

    #[inline(always)]
    fn horner2(self, high: Self, low: Self) -> Self {
        Self(self.0.horner2(high.0, low.0))
    }
}

impl<V: PastCache> Scale for Streaming<V> {
    type Factor = V::Factor;

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        // SAFETY: the caller's promise.
        unsafe { V::factor(constant) }
    }

    #[inline(always)]
    fn mul(self, factor: Self::Factor) -> Self {
        Self(self.0.mul(factor))
    }
}
