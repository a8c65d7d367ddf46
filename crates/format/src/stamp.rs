//! Which superblocks an area of mdspace's own counts for. The areas are checksums and the stripe log; md knows neither.
//!
//! The header of such an area is written before the superblock. It names the current superblock and the next one, so it
//! knows whichever of the two a power loss leaves. The kernel writes no microseconds into a superblock, so a superblock
//! without them is never vouched for. The event count alone is not enough, because the kernel reverts the event of
//! becoming dirty when it becomes clean.
//!
//! Pure. `docs/format.md`, "Checksums" and "Stripe log".

use crate::Defect;
use crate::superblock::{Superblock, Timestamp};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Identifies one write of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The superblock's events.
    pub events: u64,
    /// The superblock's `utime`.
    pub updated: Timestamp,
}

impl Stamp {
    /// The stamp of a current or future superblock.
    pub fn of(superblock: &Superblock) -> Self {
        Self { events: superblock.events, updated: superblock.updated }
    }
}

/// Whether only a program that maintains the area can have written the member: its header announced the superblock.
pub(crate) fn vouch_for(stamps: &[Stamp], superblock: &Superblock) -> bool {
    superblock.updated.micros != 0 && stamps.contains(&Stamp::of(superblock))
}

/// A stamp as it is on a member.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RawStamp {
    events: U64,
    updated: U64,
}

impl From<Stamp> for RawStamp {
    fn from(stamp: Stamp) -> Self {
        Self { events: stamp.events.into(), updated: stamp.updated.to_bits().into() }
    }
}

impl From<RawStamp> for Stamp {
    fn from(raw: RawStamp) -> Self {
        Self { events: raw.events.get(), updated: Timestamp::from_bits(raw.updated.get()) }
    }
}

/// Checks fields of a header, each with whether it is as expected.
///
/// # Errors
/// The first that is not, with the reason that `why` gives.
pub(crate) fn check_fields(fields: &[(&'static str, bool)], why: impl FnOnce() -> String) -> Result<(), Defect> {
    match fields.iter().find(|(_, same)| !same) {
        Some((field, _)) => Err(Defect::new(field, why())),
        None => Ok(()),
    }
}
