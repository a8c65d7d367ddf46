//! Units as types, so that a position in the array cannot be taken for one on
//! a member. Bytes are `u64` everywhere; md's 512-byte sectors are [`Sectors`]
//! and occur only where the format itself counts in them.

use std::fmt;

/// Bytes in one of md's sectors, whatever the device's own block size is.
pub const SECTOR_BYTES: u64 = 512;

/// A count of 512-byte sectors, as the on-disk structures hold it.
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

    /// The same length in bytes. For values that were checked on reading.
    ///
    /// # Panics
    /// When the product exceeds a `u64`.
    pub const fn bytes(self) -> u64 {
        self.checked_bytes().expect("sector count was checked on reading")
    }
}

/// A byte position in the array, as its user sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ArrayByte(pub u64);

/// A byte position within a member's data area: relative to its `data_offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ComponentByte(pub u64);

/// A byte position on a member, from its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MemberByte(pub u64);

/// A member's place in the array, `0..raid_disks`: md's "role" or `raid_disk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// For indexing a table by slot.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A member's `dev_number`: its index in the superblock's table of roles.
/// Not its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u16);
