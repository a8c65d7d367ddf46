//! The unit in which parity arrays move data: md's `stripe_size`.
//!
//! In md the user chooses: a small unit makes small writes cheap, a large unit makes large transfers few. Here the
//! default moves exactly the needed bytes, one transfer for each member and stripe, and is never worse. A fixed unit
//! exists to get md's behaviour, or to compare with it.

use crate::core::personality::personality;
use crate::seam::error::Refusal;
use format::geometry::Geometry;

/// The unit in which members are read and written where a stripe changes in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StripeSize {
    /// Exactly the bytes that are needed.
    #[default]
    Auto,
    /// Whole units of this many bytes, aligned within the chunk: a power of two, from [`STRIPE_SIZE_MIN`] to the
    /// chunk.
    Fixed(u32),
}

/// The smallest fixed unit, as in md.
pub const STRIPE_SIZE_MIN: u32 = 4096;

impl StripeSize {
    /// The fixed unit in bytes, if there is one.
    pub fn bytes(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Fixed(bytes) => Some(bytes),
        }
    }

    /// Refuses a unit that an array of this geometry cannot have.
    pub(crate) fn check(self, geometry: &Geometry) -> Result<(), Refusal> {
        let Self::Fixed(bytes) = self else { return Ok(()) };
        let refused = |reason: String| Err(Refusal::new(reason).field("stripe-size"));
        let Some(stripe) = personality(geometry).stripe() else {
            return refused("an array without parity has no stripe size".to_owned());
        };
        if !bytes.is_power_of_two() {
            return refused(format!("{bytes} bytes is not a power of two"));
        }
        if bytes < STRIPE_SIZE_MIN || u64::from(bytes) > stripe.chunk_bytes {
            let chunk = stripe.chunk_bytes;
            return refused(format!("{bytes} bytes is not from {STRIPE_SIZE_MIN} to the chunk's {chunk}"));
        }
        Ok(())
    }
}
