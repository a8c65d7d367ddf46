//! GFNI: a product with a constant is one instruction, `gf2p8affineqb` with the constant's bit matrix, on AVX2's and
//! AVX-512's registers. It never checks that the processor has the instructions; see [`Vector`]. Source: Intel's
//! intrinsics guide.

use std::arch::x86_64::*;

use super::avx2::Bytes32;
use super::avx512::Bytes64;
use crate::gf;
use crate::vector::{Scale, Vector};

/// An AVX2 register. A value exists only on processors with AVX2 and GFNI.
#[derive(Clone, Copy)]
pub(crate) struct Affine32(Bytes32);

/// An AVX-512 register. A value exists only on processors with AVX-512 F, BW and GFNI.
#[derive(Clone, Copy)]
pub(crate) struct Affine64(Bytes64);

impl Vector for Affine32 {
    const BYTES: usize = size_of::<Self>();

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Bytes32::zero() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Bytes32::load(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.0.store(to) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(self.0.xor(other.0))
    }

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: a register exists, so the instructions do.
        self.mul(unsafe { Self::factor(2) })
    }
}

impl Scale for Affine32 {
    /// The bit matrix, repeated for each eight bytes.
    type Factor = __m256i;

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        // SAFETY: the caller's promise.
        unsafe { _mm256_set1_epi64x(gf::MATRICES[constant as usize].cast_signed()) }
    }

    #[inline(always)]
    fn mul(self, factor: Self::Factor) -> Self {
        // SAFETY: a register exists, so the instructions do.
        Self(Bytes32(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0.0, factor) }))
    }
}

impl Affine64 {
    #[inline(always)]
    pub(super) fn register(self) -> __m512i {
        self.0.0
    }
}

impl Vector for Affine64 {
    const BYTES: usize = size_of::<Self>();

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Bytes64::zero() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Bytes64::load(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.0.store(to) }
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
        // SAFETY: a register exists, so the instructions do.
        self.mul(unsafe { Self::factor(2) })
    }

    /// Multiplies by 4 at once: one three-way sum instead of two two-way sums.
    #[inline(always)]
    fn horner2(self, high: Self, low: Self) -> Self {
        // SAFETY: a register exists, so the instructions do.
        self.mul(unsafe { Self::factor(4) }).xor3(high.double(), low)
    }
}

impl Scale for Affine64 {
    /// The bit matrix, repeated for each eight bytes.
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        // SAFETY: the caller's promise.
        unsafe { _mm512_set1_epi64(gf::MATRICES[constant as usize].cast_signed()) }
    }

    #[inline(always)]
    fn mul(self, factor: Self::Factor) -> Self {
        // SAFETY: a register exists, so the instructions do.
        Self(Bytes64(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0.0, factor) }))
    }
}
