//! What the algorithms need of a processor: a register of bytes.
//!
//! Invariant: a value of a [`Vector`] type exists only where its instructions
//! may be used. Making one is therefore unsafe, and everything that takes one
//! is safe.

/// A register of bytes, each an element of GF(2^8).
///
/// Implementations are thin: every method is `#[inline(always)]`, so that it
/// is compiled within a function that has the instruction set switched on.
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

    /// To be done once when all is stored: makes stores that went past the
    /// cache take their place before those that follow.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn settle() {}

    /// The sum.
    fn xor(self, other: Self) -> Self;

    /// The sum of three.
    #[inline(always)]
    fn xor3(self, second: Self, third: Self) -> Self {
        self.xor(second).xor(third)
    }

    /// Each byte times 2.
    fn double(self) -> Self;

    /// What a sum by Horner's rule begins with, and is more by at its end than
    /// it should be: doubling may take fewer instructions about another point
    /// than zero.
    ///
    /// # Safety
    /// The processor has the instruction set.
    #[inline(always)]
    unsafe fn pivot() -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::zero() }
    }

    /// A step of Horner's rule, `2 * self + next`, of sums that are more by
    /// [`pivot`](Self::pivot).
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

/// A register that can be multiplied by any constant in a few instructions.
pub(crate) trait Scale: Vector {
    /// A constant in the form in which it is fastest to multiply by.
    type Factor: Copy;

    /// Makes ready to multiply by `constant`.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn factor(constant: u8) -> Self::Factor;

    /// Each byte times the factor.
    fn mul(self, factor: Self::Factor) -> Self;
}

/// How a register is filled from memory and emptied into it.
pub(crate) trait Access: Copy {
    /// # Safety
    /// As [`Vector::load`], for as many bytes as this accesses.
    unsafe fn load<V: Vector>(self, from: *const u8) -> V;

    /// # Safety
    /// As [`Vector::store`], for as many bytes as this accesses.
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

/// The first bytes of a register only, fewer than it has; the rest is zero.
/// By way of the stack: it happens once per block at most, and never for
/// lengths in sectors.
#[derive(Clone, Copy)]
pub(crate) struct Part(pub(crate) usize);

/// Room for the largest register there is.
type Spill = [u8; 64];

impl Access for Part {
    #[inline(always)]
    unsafe fn load<V: Vector>(self, from: *const u8) -> V {
        const { assert!(V::BYTES <= size_of::<Spill>()) };
        let mut spill: Spill = [0; _];
        // SAFETY: the caller lets self.0 bytes be read, and the spill holds more.
        unsafe {
            from.copy_to_nonoverlapping(spill.as_mut_ptr(), self.0);
            V::load(spill.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(self, vector: V, to: *mut u8) {
        const { assert!(V::BYTES <= size_of::<Spill>()) };
        let mut spill: Spill = [0; _];
        // SAFETY: the spill holds a register; the caller lets self.0 bytes be written.
        unsafe {
            vector.store(spill.as_mut_ptr());
            to.copy_from_nonoverlapping(spill.as_ptr(), self.0);
        }
    }
}
