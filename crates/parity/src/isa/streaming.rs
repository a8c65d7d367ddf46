//! AVX-512 with GFNI, storing past the cache: memory is not read before it is
//! overwritten, and the cache keeps what it has. For results that no processor
//! will look at soon; for others it costs more than it gains.

use std::arch::x86_64::*;

use super::gfni::Affine64;
use crate::vector::{Scale, Vector};

/// A register; exists only where there are AVX-512 F, BW and GFNI.
#[derive(Clone, Copy)]
pub(crate) struct Streaming64(Affine64);

impl Vector for Streaming64 {
    const BYTES: usize = Affine64::BYTES;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Affine64::zero() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Affine64::load(from) })
    }

    /// Past the cache where `to` is aligned to the register, else through it.
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise, and the one store that needs an aligned address has it.
        unsafe {
            match to.cast::<__m512i>().is_aligned() {
                true => _mm512_stream_si512(to.cast(), self.0.register()),
                false => self.0.store(to),
            }
        }
    }

    #[inline(always)]
    unsafe fn settle() {
        // SAFETY: every processor with AVX-512 has it.
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
    fn horner2(self, high: Self, low: Self) -> Self {
        Self(self.0.horner2(high.0, low.0))
    }
}

impl Scale for Streaming64 {
    type Factor = <Affine64 as Scale>::Factor;

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        // SAFETY: the caller's promise.
        unsafe { Affine64::factor(constant) }
    }

    #[inline(always)]
    fn mul(self, factor: Self::Factor) -> Self {
        Self(self.0.mul(factor))
    }
}
