//! The algorithms' interface to a processor: a register of bytes.
//!
//! Invariant: a value of a [`Vector`] type exists only where its instructions may be used. So creating one is unsafe,
//! and everything that takes one is safe. Nothing here detects a feature; `kernel` does.

/// A register of bytes, each an element of GF(2^8).
///
/// Implementations are thin: every method is `#[inline(always)]`, so that it is compiled into a function with the
/// instruction set enabled.
pub(crate) trait Vector: Copy {
    /// Bytes in a register.
    const BYTES: usize;

    /// All zeros.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn zero() -> Self;

    /// The bytes at `from`, at any alignment.
    ///
    /// # Safety
    /// The processor has the instruction set; `BYTES` bytes may be read.
    unsafe fn load(from: *const u8) -> Self;

    /// Writes the bytes to `to`, at any alignment.
    ///
    /// # Safety
    /// `BYTES` bytes may be written.
    unsafe fn store(self, to: *mut u8);

    /// Called once after all stores: orders non-temporal stores before the stores that follow.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn settle() {}

    /// The sum of two.
    fn xor(self, other: Self) -> Self;

    /// The sum of three.
    #[inline(always)]
    fn xor3(self, second: Self, third: Self) -> Self {
        self.xor(second).xor(third)
    }

    /// Each byte times 2.
    fn double(self) -> Self;

    /// The initial value of a sum by Horner's rule, by which the result is then too large. Relative to a point other
    /// than zero, doubling may take fewer instructions.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn pivot() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::zero() }
    }

    /// A step of Horner's rule, `2 * self + next`, for sums that include [`pivot`](Self::pivot).
    #[inline(always)]
    fn horner(self, next: Self) -> Self {
        self.double().xor(next)
    }

    /// Two steps, `4 * self + 2 * high + low`.
    #[inline(always)]
    fn horner2(self, high: Self, low: Self) -> Self {
        self.horner(high).horner(low)
    }
}

/// A register with a fast way of four steps of Horner's rule, for which [`Vector::pivot`] is zero.
#[cfg(target_arch = "aarch64")]
pub(crate) trait Fours: Vector {
    /// Four steps from zero, `8 * a + 4 * b + 2 * c + d`.
    fn begin4(four: [Self; 4]) -> Self;

    /// Four steps, `16 * self + 8 * a + 4 * b + 2 * c + d`.
    fn horner4(self, four: [Self; 4]) -> Self;
}

/// A register with a fast product with any constant.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) trait Scale: Vector {
    /// A constant in its fastest form.
    type Factor: Copy;

    /// Prepares a multiplication by `constant`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn factor(constant: u8) -> Self::Factor;

    /// Each byte times the factor.
    fn mul(self, factor: Self::Factor) -> Self;

    /// The sum of this and `source` times the factor.
    #[inline(always)]
    fn add_product(self, source: Self, factor: Self::Factor) -> Self {
        self.xor(source.mul(factor))
    }
}

/// How a register is loaded and stored.
pub(crate) trait Access: Copy {
    /// # Safety
    /// The same as for [`Vector::load`], for as many bytes as this accesses.
    unsafe fn load<V: Vector>(self, from: *const u8) -> V;

    /// # Safety
    /// The same as for [`Vector::store`], for as many bytes as this accesses.
    unsafe fn store<V: Vector>(self, vector: V, to: *mut u8);
}

/// Whole registers.
#[derive(Clone, Copy)]
pub(crate) struct Whole;

impl Access for Whole {
    #[inline(always)]
    unsafe fn load<V: Vector>(self, from: *const u8) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(from) }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(self, vector: V, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { vector.store(to) }
    }
}

/// Only the first bytes of a register; the rest is zero. It uses the stack, because it happens at most once per block,
/// and never for lengths in sectors.
#[derive(Clone, Copy)]
pub(crate) struct Part(pub(crate) usize);

/// Space for the largest register.
type Spill = [u8; 64];

impl Access for Part {
    #[inline(always)]
    unsafe fn load<V: Vector>(self, from: *const u8) -> V {
        const { assert!(V::BYTES <= size_of::<Spill>()) };
        let mut spill: Spill = [0; _];
        // SAFETY: the caller promises self.0 readable bytes, and the spill holds more.
        unsafe {
            from.copy_to_nonoverlapping(spill.as_mut_ptr(), self.0);
            V::load(spill.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(self, vector: V, to: *mut u8) {
        const { assert!(V::BYTES <= size_of::<Spill>()) };
        let mut spill: Spill = [0; _];
        // SAFETY: the spill holds a register; the caller promises self.0 writable bytes.
        unsafe {
            vector.store(spill.as_mut_ptr());
            to.copy_from_nonoverlapping(spill.as_ptr(), self.0);
        }
    }
}
