//! NEON: sixteen bytes, products by nibble lookup; with the SHA3 extension, sums of three in one instruction. Four steps
//! of Horner's rule are reduced together (figures in docs/decisions/0205). It never checks that the processor has the
//! instructions; see [`Vector`]. Source: Arm's architecture reference manual.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::gf;
use crate::vector::{Fours, Scale, Vector};

/// A register. A value exists only on processors with NEON.
#[derive(Clone, Copy)]
pub(crate) struct Bytes16(uint8x16_t);

/// What four doublings reduce by, for the four bits that they carry out: the first bit was carried out first.
static REDUCE: [u8; 16] = {
    let mut table = [0; 16];
    let mut carries = 0;
    while carries < table.len() {
        table[carries] = gf::slow_mul(carries as u8, 0x1d);
        carries += 1;
    }
    table
};

/// Shifts each byte of `from` right, and inserts it into `into` below its first `N` bits. The compiler makes more
/// instructions of the intrinsic `vsriq_n_u8`, which it knows as shifts and masks.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn insert<const N: usize>(mut into: uint8x16_t, from: uint8x16_t) -> uint8x16_t {
    // SAFETY: the instruction changes this register and nothing else.
    unsafe {
        asm!(
            "sri {into:v}.16b, {from:v}.16b, #{bits}",
            into = inout(vreg) into,
            from = in(vreg) from,
            bits = const N,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    into
}

impl Bytes16 {
    /// `16 * self + 8 * a + 4 * b + 2 * c` in two parts: the shifted sum, and what reduces it. The bits that leave at the
    /// top are collected, one for each doubling, and looked up together.
    #[inline(always)]
    fn four_doublings(self, [a, b, c]: [Self; 3]) -> (Self, Self) {
        // SAFETY: a register exists, so the instructions do; the table is sixteen bytes.
        unsafe {
            let once = veorq_u8(vaddq_u8(self.0, self.0), a.0);
            let twice = veorq_u8(vaddq_u8(once, once), b.0);
            let thrice = veorq_u8(vaddq_u8(twice, twice), c.0);
            let carries = insert::<3>(insert::<2>(insert::<1>(self.0, once), twice), thrice);
            let reduce = vqtbl1q_u8(vld1q_u8(REDUCE.as_ptr()), vshrq_n_u8::<4>(carries));
            (Self(vaddq_u8(thrice, thrice)), Self(reduce))
        }
    }

    /// `8 * a + 4 * b + 2 * c` in two parts.
    #[inline(always)]
    fn three_doublings([a, b, c]: [Self; 3]) -> (Self, Self) {
        // SAFETY: registers exist, so the instructions do; the table is sixteen bytes.
        unsafe {
            let twice = veorq_u8(vaddq_u8(a.0, a.0), b.0);
            let thrice = veorq_u8(vaddq_u8(twice, twice), c.0);
            let carries = insert::<2>(insert::<1>(a.0, twice), thrice);
            let reduce = vqtbl1q_u8(vld1q_u8(REDUCE.as_ptr()), vshrq_n_u8::<5>(carries));
            (Self(vaddq_u8(thrice, thrice)), Self(reduce))
        }
    }

    /// The products with the low and with the high nibbles.
    #[inline(always)]
    fn products(self, [low, high]: [uint8x16_t; 2]) -> (Self, Self) {
        // SAFETY: a register exists, so the instructions do.
        unsafe {
            let low = vqtbl1q_u8(low, vandq_u8(self.0, vdupq_n_u8(0x0f)));
            (Self(low), Self(vqtbl1q_u8(high, vshrq_n_u8::<4>(self.0))))
        }
    }
}

impl Vector for Bytes16 {
    const BYTES: usize = size_of::<Self>();

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise; the load takes any alignment.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's promise; the store takes any alignment.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: registers exist, so the instructions do.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    fn double(self) -> Self {
        // SAFETY: a register exists, so the instructions do.
        unsafe {
            let is_reduced = vcltzq_s8(vreinterpretq_s8_u8(self.0));
            Self(veorq_u8(vaddq_u8(self.0, self.0), vandq_u8(is_reduced, vdupq_n_u8(0x1d))))
        }
    }
}

impl Fours for Bytes16 {
    #[inline(always)]
    fn begin4([a, b, c, d]: [Self; 4]) -> Self {
        let (sum, reduce) = Self::three_doublings([a, b, c]);
        sum.xor(d).xor(reduce)
    }

    #[inline(always)]
    fn horner4(self, [a, b, c, d]: [Self; 4]) -> Self {
        let (sum, reduce) = self.four_doublings([a, b, c]);
        sum.xor(d).xor(reduce)
    }
}

impl Scale for Bytes16 {
    /// Products with the low and with the high nibbles.
    type Factor = [uint8x16_t; 2];

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        let [low, high] = &gf::NIBBLES[constant as usize];
        // SAFETY: both tables are sixteen bytes; the caller promised the instructions.
        unsafe { [vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr())] }
    }

    #[inline(always)]
    fn mul(self, factor: Self::Factor) -> Self {
        let (low, high) = self.products(factor);
        low.xor(high)
    }
}

/// A register. A value exists only on processors with NEON and the SHA3 extension.
#[derive(Clone, Copy)]
pub(crate) struct WithSha3(Bytes16);

impl Vector for WithSha3 {
    const BYTES: usize = Bytes16::BYTES;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Bytes16::zero() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Bytes16::load(from) })
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

    #[allow(unknown_lints, inline_always_mismatching_target_features)] // it is inlined where the features are enabled
    #[inline(always)]
    fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: registers exist, so the instructions do.
        Self(Bytes16(unsafe { veor3q_u8(self.0.0, second.0.0, third.0.0) }))
    }

    #[inline(always)]
    fn double(self) -> Self {
        Self(self.0.double())
    }
}

impl Fours for WithSha3 {
    #[inline(always)]
    fn begin4([a, b, c, d]: [Self; 4]) -> Self {
        let (sum, reduce) = Bytes16::three_doublings([a.0, b.0, c.0]);
        Self(sum).xor3(d, Self(reduce))
    }

    #[inline(always)]
    fn horner4(self, [a, b, c, d]: [Self; 4]) -> Self {
        let (sum, reduce) = self.0.four_doublings([a.0, b.0, c.0]);
        Self(sum).xor3(d, Self(reduce))
    }
}

impl Scale for WithSha3 {
    type Factor = <Bytes16 as Scale>::Factor;

    #[inline(always)]
    unsafe fn factor(constant: u8) -> Self::Factor {
        // SAFETY: the caller's promise.
        unsafe { Bytes16::factor(constant) }
    }

    #[inline(always)]
    fn mul(self, factor: Self::Factor) -> Self {
        Self(self.0.mul(factor))
    }

    #[inline(always)]
    fn add_product(self, source: Self, factor: Self::Factor) -> Self {
        let (low, high) = source.0.products(factor);
        self.xor3(Self(low), Self(high))
    }
}
