//! Registers of two machine words, for any processor. They hold bytes side by side; compilers turn the pair into a
//! vector register where there is one (SSE2, NEON). They never use intrinsics, and have no fast product with a
//! constant. Source: H. P. Anvin, "The mathematics of RAID-6", on multiplication by two.

use crate::vector::Vector;

/// Sixteen bytes.
#[derive(Clone, Copy)]
pub(crate) struct Words([u64; 2]);

const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Applies a function to each word.
#[inline(always)]
fn each(words: Words, f: impl Fn(u64) -> u64) -> Words {
    Words([f(words.0[0]), f(words.0[1])])
}

impl Vector for Words {
    const BYTES: usize = size_of::<Self>();

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 2])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller promises readable bytes; any alignment is allowed.
        Self(unsafe { from.cast::<[u64; 2]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller promises writable bytes; any alignment is allowed.
        unsafe { to.cast::<[u64; 2]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self([self.0[0] ^ other.0[0], self.0[1] ^ other.0[1]])
    }

    #[inline(always)]
    fn double(self) -> Self {
        each(self, |word| {
            let carries = word & splat(0x80);
            // A carry of 0x80 becomes 0x100 - 1 = 0xff: this byte is reduced.
            let reduce = (carries << 1).wrapping_sub(carries >> 7);
            (word & splat(0x7f)) << 1 ^ reduce & splat(0x1d)
        })
    }
}
