//! Checksums of our own: a CRC-32C for each 4 KiB of a member's data area, in
//! the room before it, which belongs to nobody in md's format; or, where that
//! does not suffice, at the end of the data area, in what the array does not use.
//!
//! Of each member, in pages of 4 KiB, from the end of that room backwards: the
//! [`Header`], the [`Open`] regions, the table's pages, the header once more.
//! Nothing but the superblock is needed to find them, and no bit of it says that
//! they are there: so the kernel uses the array as it always does.
//!
//! Invariants:
//! * a checksum counts only if the header names this set, device, data offset
//!   and length, and vouches for the superblock as it is ([`Header::vouches_for`]):
//!   the kernel cannot have written meanwhile;
//! * and only if its region is not open: then no write to it was under way;
//! * whatever is damaged makes checksums unknown, never a block wrong.
//!
//! Never decides what a mismatch means. Described byte by byte in
//! `docs/format.md`, "Checksums".

mod header;
mod open;
mod page;

pub use header::{Header, Stamp};
pub use open::Open;
pub use page::{Binding, PAGE_ENTRIES, Page};

use crate::Defect;
use crate::geometry::Level;
use crate::placement::component_unit;
use crate::superblock::{Superblock, Version};
use crate::units::{MemberByte, SECTOR_BYTES, Sectors};
use std::num::NonZeroU32;
use std::ops::Range;

/// What one checksum is of.
pub const BLOCK_BYTES: u64 = 4096;

/// Everything here is in pages of so many bytes, aligned to as many from the member's start.
pub const PAGE_BYTES: usize = 4096;

/// Pages besides the table's: two headers and the open regions.
const OTHER_PAGES: u64 = 3;

/// The checksum of a block. A CRC-32C of 0 is stored as 1, since 0 stands for "unknown".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum(NonZeroU32);

impl Checksum {
    /// Of one block.
    pub fn of(block: &[u8]) -> Self {
        Self::from_crc(crc32c(block))
    }

    /// Of a block whose CRC-32C was worked out elsewhere.
    pub fn from_crc(crc: u32) -> Self {
        Self(NonZeroU32::new(crc).unwrap_or(NonZeroU32::MIN))
    }

    /// As stored; `None` for "unknown".
    const fn from_stored(stored: u32) -> Option<Self> {
        match NonZeroU32::new(stored) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }
}

/// The usual CRC-32C: reflected, initial value and final XOR all ones.
fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

/// Where the parts are on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The byte behind the last of them.
    end_at: u64,
    blocks: u64,
}

/// Pages of a table for `blocks`.
const fn table_pages(blocks: u64) -> u64 {
    blocks.div_ceil(PAGE_ENTRIES)
}

/// Bytes that the checksums of a component of so many bytes take.
pub const fn bytes_for(component_bytes: u64) -> u64 {
    (table_pages(component_bytes.div_ceil(BLOCK_BYTES)) + OTHER_PAGES) * PAGE_BYTES as u64
}

/// Whether an array of that kind can have checksums, if there is room.
fn check_kind(superblock: &Superblock) -> Result<(), Defect> {
    if matches!(superblock.level, Level::Linear | Level::Raid0) {
        // Nothing marks such an array dirty, so nobody could tell that the kernel wrote.
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
    /// Where checksums are, or would be, on the member that `superblock` describes: before its data if there is room.
    ///
    /// # Errors
    /// When the level or the format cannot have them, or there is too little room.
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
            "sector {}: checksums need {} sectors; of those before the data {} are taken, and {} are free behind what the \
             array uses of it",
            superblock.data_offset.0,
            needed / SECTOR_BYTES,
            taken / SECTOR_BYTES,
            behind.end.saturating_sub(behind.start) / SECTOR_BYTES,
        );
        defect("superblock.data_offset", reason)
    }

    /// The largest component that leaves room for checksums on the member that `superblock` describes, if any does.
    pub fn component_with_room(superblock: &Superblock) -> Option<Sectors> {
        let unit = component_unit(superblock.level, superblock.chunk).max(BLOCK_BYTES / SECTOR_BYTES);
        let mut other = superblock.clone();
        let mut has_room = |units: u64| {
            other.component = Sectors(units * unit);
            Self::of(&other).is_ok()
        };
        // Where a component has room, so has every smaller one: it needs less, before the data and behind it.
        let (mut least, mut most) = (0, superblock.data_size.0 / unit);
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            if has_room(middle) { least = middle } else { most = middle - 1 }
        }
        (least > 0).then_some(Sectors(least * unit))
    }

    /// Blocks that have a checksum.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Pages of the table.
    pub const fn pages(&self) -> u64 {
        table_pages(self.blocks)
    }

    /// Both places of the header; the first is the one at the end.
    pub const fn headers_at(&self) -> [MemberByte; 2] {
        [self.backwards(1), self.backwards(self.pages() + OTHER_PAGES)]
    }

    /// Where the open regions are noted.
    pub const fn open_at(&self) -> MemberByte {
        self.backwards(2)
    }

    /// Where a page of the table is.
    ///
    /// # Panics
    /// When there is no such page.
    pub const fn page_at(&self, page: u64) -> MemberByte {
        assert!(page < self.pages(), "a page of the table");
        self.backwards(self.pages() + 2 - page)
    }

    /// The blocks that a page holds the checksums of.
    pub fn blocks_of(&self, page: u64) -> Range<u64> {
        page * PAGE_ENTRIES..((page + 1) * PAGE_ENTRIES).min(self.blocks)
    }

    /// Pages of a region, the unit in which writes under way are noted: as few as let all regions be noted.
    pub const fn pages_in_region(&self) -> u64 {
        self.pages().div_ceil(Open::REGIONS_MAX).next_power_of_two()
    }

    /// Number of regions.
    pub const fn regions(&self) -> u64 {
        self.pages().div_ceil(self.pages_in_region())
    }

    const fn backwards(&self, pages: u64) -> MemberByte {
        MemberByte(self.end_at - pages * PAGE_BYTES as u64)
    }
}
