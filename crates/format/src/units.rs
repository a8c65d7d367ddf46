//! Units as types, so that a position in the array cannot be confused with one on a member. Bytes are `u64` everywhere.
//! md's 512-byte sectors are [`Sectors`], and occur only where the format itself counts in them. Nothing here rounds
//! implicitly.

use std::fmt;

/// Bytes in one of md's sectors, whatever the device's block size.
pub const SECTOR_BYTES: u64 = 512;

/// A count of 512-byte sectors, as in the on-disk structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sectors(pub u64);

impl Sectors {
    /// The whole sectors in `bytes`, rounded down.
    pub const fn from_bytes_down(bytes: u64) -> Self {
        Self(bytes / SECTOR_BYTES)
    }

    /// The same length in bytes; `None` when it exceeds a `u64`.
    pub const fn checked_bytes(self) -> Option<u64> {
        self.0.checked_mul(SECTOR_BYTES)
    }

    /// The same length in bytes, for values that were checked at decoding.
    ///
    /// # Panics
    /// When the product exceeds a `u64`.
    pub const fn bytes(self) -> u64 {
        self.checked_bytes().expect("sector count was checked on reading")
    }
}

/// A byte position in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ArrayByte(pub u64);

/// A byte position within a member's data area: relative to its `data_offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ComponentByte(pub u64);

/// A byte position on a member, from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MemberByte(pub u64);

/// The slot of a member in the array, `0..raid_disks`: md's "role" or `raid_disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an index into a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A member's `dev_number`: its index in the superblock's table of roles. It is not the slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u16);
