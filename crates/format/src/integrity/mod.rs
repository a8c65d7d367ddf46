//! mdspace's own checksums: a CRC-32C for each 4 KiB of a member's data area. They lie in the space before the data,
//! which md's format leaves unused. If that is too small, they lie at the end of the data area, behind the part that
//! the array uses.
//!
//! Each member has, in pages of 4 KiB, from the end of that space backwards: the [`Header`], the [`Open`] regions, the
//! table's pages, and the header again. The superblock alone locates them, and no bit of it announces them, so the
//! kernel uses the array unchanged.
//!
//! Invariants:
//! * A checksum is valid only if the header has the set, device, data offset and length of the member. It must also
//!   vouch for the current superblock ([`Header::vouches_for`]). Then the kernel cannot have written meanwhile.
//! * A checksum is valid only if its region is not open: then no write to the region was in flight.
//! * A region that the header calls blank ([`Touched`]) was never written since it was filled with zeros. So its
//!   checksums are known, and its pages are written only when it closes for the first time.
//! * Damage makes checksums unknown, never a block wrong.
//!
//! This module never decides what a mismatch means. `docs/format.md`, "Checksums", describes every byte.

mod header;
mod page;
mod regions;

pub use header::Header;
pub use page::{Binding, PAGE_ENTRIES, Page};
pub use regions::{Open, Touched};

use crate::Defect;
use crate::placement::component_unit;
use crate::superblock::{Superblock, Version};
use crate::units::{MemberByte, SECTOR_BYTES, Sectors};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::LazyLock;

/// Bytes that one checksum covers.
pub const BLOCK_BYTES: u64 = 4096;

/// Bytes of a page. Pages are aligned to their size from the member's start.
pub const PAGE_BYTES: usize = 4096;

/// Pages besides the table: two headers and the open regions.
const OTHER_PAGES: u64 = 3;

/// Regions in an area, the unit in which the header says what was written since the member was filled with zeros. With
/// two, the bits of all areas fit behind the header.
pub const REGIONS_IN_AREA: u64 = 2;
const _: () = assert!(Open::REGIONS_MAX <= REGIONS_IN_AREA * Touched::REGIONS_MAX);

/// The checksum of a block. A CRC-32C of 0 is stored as 1, because 0 means "unknown".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(NonZeroU32);

impl Checksum {
    /// The checksum of one block.
    pub fn of(block: &[u8]) -> Self {
        Self::from_crc(crc32c(block))
    }

    /// The checksum of a block of zeros.
    pub fn of_zeros() -> Self {
        static ZEROS: LazyLock<Checksum> = LazyLock::new(|| Checksum::of(&[0; BLOCK_BYTES as usize]));
        *ZEROS
    }

    /// The checksum of a block whose CRC-32C is already computed.
    pub fn from_crc(crc: u32) -> Self {
        Self(NonZeroU32::new(crc).unwrap_or(NonZeroU32::MIN))
    }

    /// Decodes a stored checksum; `None` for "unknown".
    const fn from_stored(stored: u32) -> Option<Self> {
        match NonZeroU32::new(stored) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }
}

/// The usual CRC-32C: reflected, initial value and final XOR all ones.
fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

/// The positions of the parts on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The end of the last part.
    end_at: u64,
    blocks: u64,
}

/// Pages of the table for `blocks`.
const fn table_pages(blocks: u64) -> u64 {
    blocks.div_ceil(PAGE_ENTRIES)
}

/// Bytes of the checksums for a component of `component_bytes`.
pub const fn bytes_for(component_bytes: u64) -> u64 {
    (table_pages(component_bytes.div_ceil(BLOCK_BYTES)) + OTHER_PAGES) * PAGE_BYTES as u64
}

/// Checks that the level and format of the array allow checksums.
fn check_kind(superblock: &Superblock) -> Result<(), Defect> {
    if !superblock.level.is_redundant() {
        // No field marks such an array dirty, so a write by the kernel could not be detected.
        return defect("superblock.level", "a level without redundancy has no checksums");
    }
    if !matches!(superblock.version, Version::V1_1 | Version::V1_2) {
        let reason = format!("with metadata {} there is no room before the data", superblock.version);
        return defect("superblock.super_offset", reason);
    }
    let (data_at, data_bytes) = (superblock.data_at().0, superblock.data_bytes());
    if !data_at.is_multiple_of(PAGE_BYTES as u64) {
        return defect("superblock.data_offset", format!("byte {data_at} is not a multiple of 4 KiB"));
    }
    if !data_bytes.is_multiple_of(BLOCK_BYTES) || data_bytes == 0 {
        return defect("superblock.size", format!("{data_bytes} bytes are not whole blocks of 4 KiB"));
    }
    if table_pages(data_bytes / BLOCK_BYTES) > u64::from(u32::MAX) {
        return defect("superblock.size", format!("{data_bytes} bytes are too many"));
    }
    Ok(())
}

impl Layout {
    /// The current or future positions of the checksums on the member of `superblock`: before its data if there is
    /// room.
    ///
    /// # Errors
    /// When the level or the format does not allow checksums, or there is too little room.
    pub fn of(superblock: &Superblock) -> Result<Self, Defect> {
        let (data_at, data_bytes) = (superblock.data_at().0, superblock.data_bytes());
        check_kind(superblock)?;
        let (blocks, needed) = (data_bytes / BLOCK_BYTES, bytes_for(data_bytes));
        let taken = superblock.room_before_data().bytes();
        if data_at.saturating_sub(taken) >= needed {
            return Ok(Self { end_at: data_at, blocks });
        }
        let behind = superblock.room_behind_data().map_or(0..0, |sectors| {
            sectors.start * SECTOR_BYTES..sectors.end * SECTOR_BYTES / PAGE_BYTES as u64 * PAGE_BYTES as u64
        });
        if behind.end.saturating_sub(behind.start) >= needed {
            return Ok(Self { end_at: behind.end, blocks });
        }
        let reason = format!(
            "sector {}: checksums need {} sectors; before the data {} are in use, and behind the part that the array uses \
             {} are free",
            superblock.data_offset.0,
            needed / SECTOR_BYTES,
            taken / SECTOR_BYTES,
            behind.end.saturating_sub(behind.start) / SECTOR_BYTES,
        );
        defect("superblock.data_offset", reason)
    }

    /// The largest component that leaves room for checksums on the member of `superblock`, if any does.
    pub fn component_with_room(superblock: &Superblock) -> Option<Sectors> {
        let unit = component_unit(superblock.level, superblock.chunk).max(BLOCK_BYTES / SECTOR_BYTES);
        let mut other = superblock.clone();
        let mut has_room = |units: u64| {
            other.component = Sectors(units * unit);
            Self::of(&other).is_ok()
        };
        // If a component leaves room, every smaller one does: it needs less, before the data and behind it.
        let (mut least, mut most) = (0, superblock.data_size.0 / unit);
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            if has_room(middle) { least = middle } else { most = middle - 1 }
        }
        (least > 0).then_some(Sectors(least * unit))
    }

    /// The number of blocks with a checksum.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Pages of the table.
    pub const fn pages(&self) -> u64 {
        table_pages(self.blocks)
    }

    /// Both positions of the header. The first is the one at the end.
    pub const fn headers_at(&self) -> [MemberByte; 2] {
        [self.backwards(1), self.backwards(self.pages() + OTHER_PAGES)]
    }

    /// The position of the open regions.
    pub const fn open_at(&self) -> MemberByte {
        self.backwards(2)
    }

    /// The position of a page of the table.
    ///
    /// # Panics
    /// When there is no such page.
    pub const fn page_at(&self, page: u64) -> MemberByte {
        assert!(page < self.pages(), "a page of the table");
        self.backwards(self.pages() + 2 - page)
    }

    /// The blocks whose checksums a page holds.
    pub fn blocks_of(&self, page: u64) -> Range<u64> {
        page * PAGE_ENTRIES..((page + 1) * PAGE_ENTRIES).min(self.blocks)
    }

    /// Pages of a region, the unit in which writes in flight are recorded: as few as possible for
    /// `Open::REGIONS_MAX`.
    pub const fn pages_in_region(&self) -> u64 {
        self.pages().div_ceil(Open::REGIONS_MAX).next_power_of_two()
    }

    /// Number of regions.
    pub const fn regions(&self) -> u64 {
        self.pages().div_ceil(self.pages_in_region())
    }

    /// The set of touched areas of a member that is all zeros.
    pub fn blank(&self) -> Touched {
        let mut touched = Touched::all();
        (0..self.regions().div_ceil(REGIONS_IN_AREA)).for_each(|area| touched.remove(area));
        touched
    }

    const fn backwards(&self, pages: u64) -> MemberByte {
        MemberByte(self.end_at - pages * PAGE_BYTES as u64)
    }
}
