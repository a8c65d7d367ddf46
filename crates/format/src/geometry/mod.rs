//! Geometry: where the array's bytes are, by level, layout and chunk.
//!
//! A [`Geometry`] is checked once, when it is built from a [`Shape`]. After that, every function of it is total over
//! `0..array_bytes()`.
//!
//! There are two families, because parity is no copy:
//! * [`Mapping`] (linear, 0, 1, 10): an array range is a list of [`Piece`]s, each stored whole on one or more members;
//! * [`Parity`] (4, 5, 6): the array is a list of stripes. A stripe has one chunk on each member, at the same component
//!   position.
//!
//! Invariants: no two array bytes share a position on a member. md itself violates that for some shapes of RAID-10 (see
//! [`Mapping`]); these are refused. Nothing here allocates after [`Geometry::new`], except for a piece of more than
//! four copies. Nothing here does I/O.
//!
//! Sources: md(4), mdadm(8), the kernel's `drivers/md/{md-linear,raid0,raid1, raid10,raid5}.c`;
//! `tests/kernel/geometry.sh` compares it with the driver.

mod divisor;
mod layout;
mod mapping;
mod parity;
mod raid10;
mod sync;
mod zones;

#[cfg(test)]
mod tests;

use smallvec::SmallVec;

pub use layout::{default_layout, parse_layout};
pub use mapping::Mapping;
pub use parity::{Parity, Stripe};
pub use sync::SyncSpace;

use crate::defect::Defect;
use crate::units::{ArrayByte, ComponentByte, SECTOR_BYTES, Slot};

/// The RAID level, with md's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// -1
    Linear,
    /// 0
    Raid0,
    /// 1
    Raid1,
    /// 4
    Raid4,
    /// 5
    Raid5,
    /// 6
    Raid6,
    /// 10
    Raid10,
}

/// How a level survives the loss of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Redundancy {
    /// It does not: linear and 0.
    None,
    /// By copies: 1 and 10.
    Copies,
    /// By parity: 4, 5 and 6.
    Parity,
}

impl Level {
    /// How the level survives the loss of members.
    pub fn redundancy(self) -> Redundancy {
        match self {
            Self::Linear | Self::Raid0 => Redundancy::None,
            Self::Raid1 | Self::Raid10 => Redundancy::Copies,
            Self::Raid4 | Self::Raid5 | Self::Raid6 => Redundancy::Parity,
        }
    }

    /// Whether the level survives the loss of any member. Levels that do not have nothing to resync, and md never marks
    /// them dirty.
    pub fn is_redundant(self) -> bool {
        self.redundancy() != Redundancy::None
    }

    /// Whether every member holds the same number of bytes, the superblock's `size`. The others use all of each member.
    pub fn has_component(self) -> bool {
        match self {
            Self::Linear | Self::Raid0 => false,
            Self::Raid1 | Self::Raid4 | Self::Raid5 | Self::Raid6 | Self::Raid10 => true,
        }
    }

    /// Whether the level cuts data into chunks. In linear a chunk is a rounding, and is optional.
    pub fn has_chunks(self) -> bool {
        match self {
            Self::Linear | Self::Raid1 => false,
            Self::Raid0 | Self::Raid4 | Self::Raid5 | Self::Raid6 | Self::Raid10 => true,
        }
    }

    /// Whether the level has parity.
    pub fn has_parity(self) -> bool {
        self.redundancy() == Redundancy::Parity
    }
}

/// An array's shape, from a superblock or from the user at creation. Unchecked: hostile values are allowed here, and
/// refused by [`Geometry::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// The layout field, in the level's own encoding. Ignored, as by md, for linear, 1 and 4, and for RAID-0 where it
    /// makes no difference.
    pub layout: u32,
    /// Bytes in a chunk; ignored by level 1. For linear it is the rounding: each member is cut to a multiple of it,
    /// unless it is 0.
    pub chunk_bytes: u64,
    /// The number of slots.
    pub slots: u16,
    /// Bytes of the data area used on each member (the superblock's `size`). Unused for linear and RAID-0.
    pub component_bytes: u64,
    /// Linear and RAID-0: bytes of each slot's own data area, in slot order, which determine their zones. Empty
    /// otherwise.
    pub member_bytes: Vec<u64>,
}

/// The copies of a piece. Four fit without an allocation.
pub type Copies = SmallVec<[(Slot, ComponentByte); 4]>;

/// A part of an array range that is contiguous on each of its copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Its position in the array.
    pub at: ArrayByte,
    /// Its length in bytes.
    pub bytes: u64,
    /// The position of each copy; never empty. The first is md's first copy. In RAID-10's flawed far sets, of which md
    /// warns, one slot can hold two of them.
    pub copies: Copies,
}

/// The role of a slot in one stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The stripe's data chunk of this index, in array order.
    Data(u16),
    /// XOR of the data.
    P,
    /// Reed-Solomon syndrome of the data.
    Q,
}

impl Role {
    /// The parities, in the order of md's levels: a level with one has the first.
    pub const PARITIES: [Role; 2] = [Role::P, Role::Q];

    /// Whether it is a parity.
    #[inline]
    pub fn is_parity(self) -> bool {
        match self {
            Self::Data(_) => false,
            Self::P | Self::Q => true,
        }
    }

    /// The first `count` parities.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline]
    pub fn parities(count: u16) -> impl Iterator<Item = Role> + Clone {
        Self::PARITIES[..usize::from(count)].iter().copied()
    }

    /// All roles of a stripe: its `data` chunks in order, then its `parities`.
    pub fn all(data: u16, parities: u16) -> impl Iterator<Item = Role> + Clone {
        (0..data).map(Role::Data).chain(Self::parities(parities))
    }
}

/// A checked geometry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Geometry {
    /// Linear, 0, 1, 10.
    Mapping(Mapping),
    /// 4, 5, 6.
    Parity(Parity),
}

impl Geometry {
    /// Checks `shape` and precomputes the lookup tables.
    ///
    /// # Errors
    /// A [`Defect`] with a field that md would refuse, or with which md would lose data: a chunk of 0, of the wrong
    /// size for the level, or not smaller than 2 GiB; too few or too many slots; an unknown layout; RAID-0 of unequal
    /// members without a layout; members without room for a chunk; more than 2^63 - 1 bytes.
    pub fn new(shape: &Shape) -> Result<Self, Defect> {
        match shape.level.redundancy() {
            Redundancy::None | Redundancy::Copies => Mapping::new(shape).map(Self::Mapping),
            Redundancy::Parity => Parity::new(shape).map(Self::Parity),
        }
    }

    /// The size of the array in bytes, at most 2^63 - 1.
    pub fn array_bytes(&self) -> u64 {
        match self {
            Self::Mapping(mapping) => mapping.array_bytes(),
            Self::Parity(parity) => parity.array_bytes(),
        }
    }

    /// The number of slots (md's `raid_disks`).
    pub fn slots(&self) -> u16 {
        match self {
            Self::Mapping(mapping) => mapping.slots(),
            Self::Parity(parity) => parity.slots(),
        }
    }

    /// The level.
    pub fn level(&self) -> Level {
        match self {
            Self::Mapping(mapping) => mapping.level(),
            Self::Parity(parity) => parity.level(),
        }
    }

    /// Bytes in a chunk; 0 where the level has none: linear, 0 and 1.
    pub fn chunk_bytes(&self) -> u64 {
        match self {
            Self::Mapping(mapping) => mapping.chunk_bytes(),
            Self::Parity(parity) => parity.chunk_bytes(),
        }
    }

    /// Whether all data is available without the slots for which `missing` is true.
    pub fn survives(&self, missing: &dyn Fn(Slot) -> bool) -> bool {
        match self {
            Self::Mapping(mapping) => mapping.survives(missing),
            Self::Parity(parity) => {
                parity.survives((0..parity.slots()).filter(|&slot| missing(Slot(slot))).count() as u16)
            }
        }
    }

    /// How many more slots may go, whichever they are, with all data still available, when those for which `missing` is
    /// true are gone.
    pub fn may_fail(&self, missing: &dyn Fn(Slot) -> bool) -> u16 {
        match self {
            Self::Mapping(mapping) => mapping.may_fail(missing),
            Self::Parity(parity) => {
                parity.may_fail((0..parity.slots()).filter(|&slot| missing(Slot(slot))).count() as u16)
            }
        }
    }

    /// mdadm's name of the layout: `left-symmetric`, `near=2`. `None` where the level has no choice: linear, 1, 4,
    /// RAID-0 of one zone.
    pub fn layout_name(&self) -> Option<String> {
        match self {
            Self::Mapping(mapping) => mapping.layout_name(),
            Self::Parity(parity) => parity.layout_name().map(str::to_owned),
        }
    }

    /// Bytes of `slot`'s data area that the array uses, from its start. A member with a smaller data area does not fit
    /// the array.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn used_bytes(&self, slot: Slot) -> u64 {
        assert!(slot.0 < self.slots(), "slot {slot} of {}", self.slots());
        match self {
            Self::Mapping(mapping) => mapping.used_bytes(slot),
            Self::Parity(parity) => parity.stripes() * parity.chunk_bytes(),
        }
    }
}

/// md stores array positions as signed 64-bit byte offsets.
const ARRAY_BYTES_MAX: u64 = i64::MAX as u64;

/// md stores a chunk's bytes in a C `int`.
const CHUNK_BYTES_MAX: u64 = i32::MAX as u64;

/// Parity levels and RAID-10 work in pages; 4 KiB is the smallest page size.
const PAGE_BYTES: u64 = 4096;

/// Checks the chunk of level 0, and of linear with rounding: whole sectors.
fn check_chunk(bytes: u64) -> Result<(), Defect> {
    if bytes == 0 {
        return Err(Defect::new("superblock.chunksize", "0, but this level needs a chunk size"));
    }
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(Defect::new("superblock.chunksize", format!("{bytes} bytes is not whole 512-byte sectors")));
    }
    if bytes > CHUNK_BYTES_MAX {
        return Err(Defect::new("superblock.chunksize", format!("{bytes} bytes, but a chunk is smaller than 2 GiB")));
    }
    Ok(())
}

/// Checks the chunk of levels 4, 5, 6 and 10: also a power of two, at least a page. Returns its base-2 logarithm.
fn check_chunk_of_pages(bytes: u64) -> Result<u32, Defect> {
    check_chunk(bytes)?;
    if !bytes.is_power_of_two() || bytes < PAGE_BYTES {
        let reason = format!("{bytes} bytes, but this level needs a power of two of at least 4096");
        return Err(Defect::new("superblock.chunksize", reason));
    }
    Ok(bytes.trailing_zeros())
}

/// Checks the superblock's `size`: whole sectors, and at least `smallest`.
fn check_component(bytes: u64, smallest: u64) -> Result<(), Defect> {
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(Defect::new("superblock.size", format!("{bytes} bytes is not whole 512-byte sectors")));
    }
    if bytes < smallest {
        let reason = format!("{bytes} bytes on each member is less than the {smallest} needed");
        return Err(Defect::new("superblock.size", reason));
    }
    Ok(())
}

/// Checks an array's size, computed in 128 bits.
fn check_array(field: &'static str, bytes: u128) -> Result<u64, Defect> {
    u64::try_from(bytes)
        .ok()
        .filter(|&bytes| bytes <= ARRAY_BYTES_MAX)
        .ok_or_else(|| Defect::new(field, format!("an array of {bytes} bytes exceeds 2^63 - 1")))
}

/// Refuses fewer than `least` slots.
fn check_slots(slots: u16, least: u16) -> Result<(), Defect> {
    if slots < least {
        return Err(Defect::new("superblock.raid_disks", format!("{slots}, but this level needs at least {least}")));
    }
    Ok(())
}

/// The defect of an unknown layout.
fn unknown_layout(layout: u32, acceptable: &str) -> Defect {
    Defect::new("superblock.layout", format!("{layout} ({layout:#x}) is unknown; acceptable: {acceptable}"))
}
