//! mdspace's own log of writes to parts of stripes. It closes the write hole of levels 4, 5 and 6.
//!
//! Before a write to a part of a stripe reaches any member, the log has the *partial parity* of its rows: the parity of
//! the chunks that the write leaves as they are. The partial P is on the member with the rows' P, the partial Q on the
//! member with their Q. After a loss of power both parities are computed anew from the log and from the chunks of the write
//! as they are.
//!
//! The log lies in the space before the data, which md's format leaves unused, behind md's own areas. The first page is
//! the [`Header`]; [`Record`]s follow in a ring. The superblock alone locates it, and no bit of it announces it, so the
//! kernel uses the array unchanged.
//!
//! Invariants:
//! * The log counts only if each member's header vouches for that member's superblock ([`Header::vouches_for`]). Then
//!   the kernel cannot have written meanwhile.
//! * The records of a batch are on stable storage before the first of its writes begins, and before the next batch.
//! * The writes of a record are on stable storage before it is overwritten. The older records of its member were
//!   overwritten before.
//! * Of a member's entries for a row, the one with the greatest sequence counts.
//! * An entry whose write had not begun may be replayed: it leaves parity as it is.
//!
//! This module reads no member. `docs/format.md`, "Stripe log", describes every byte.

mod header;
mod record;

pub use header::Header;
use record::DATA_CHUNKS_MAX;
pub use record::{Chunks, ENTRIES_MAX, Entry, Record};

use crate::Defect;
use crate::integrity::{self, Layout};
use crate::placement::{BAD_BLOCK_LOG_SECTORS, BITMAP_SECTORS_MAX};
use crate::superblock::{Superblock, Version};
use crate::units::{MemberByte, SECTOR_BYTES};

/// Bytes of a page: of the header, and of a record's head. Records begin at multiples of it.
pub const PAGE_BYTES: usize = 4096;

const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;

/// The longest log: longer ones only take longer to read.
const LOG_BYTES_MAX: u64 = 4 << 20;

fn defect<T>(field: &'static str, reason: impl Into<String>) -> Result<T, Defect> {
    Err(Defect::new(field, reason))
}

/// The CRC-32C of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The place of the log on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The header's first byte.
    pub at: MemberByte,
    /// Bytes of header and ring: whole pages.
    pub bytes: u64,
}

/// Sectors before the data from which on the place does not depend on the array's size: mdadm's least data offset.
const AMPLE_SECTORS: u64 = 2048;

impl Place {
    /// The place of a new log on the member of `superblock`. Room for checksums ([`crate::integrity`]) stays free behind
    /// it, if there is enough.
    ///
    /// # Errors
    /// When the level or the format does not allow a log, or there is too little room.
    pub fn of(superblock: &Superblock) -> Result<Self, Defect> {
        let (page, at) = (PAGE_BYTES as u64, Self::start(superblock)?);
        let room = (superblock.data_at().0 / page * page).saturating_sub(at.0);
        // A header, and a record with a chunk of partial parity.
        let least = 2 * page + superblock.chunk.bytes().next_multiple_of(page);
        let beside_checksums = room.saturating_sub(integrity::bytes_for(superblock.data_bytes()));
        let bytes = if beside_checksums >= least { beside_checksums } else { room };
        if bytes < least {
            let reason = format!(
                "sector {}: room for {} sectors, and a stripe log takes {} for chunks of {} bytes",
                superblock.data_offset.0,
                room / SECTOR_BYTES,
                least / SECTOR_BYTES,
                superblock.chunk.bytes(),
            );
            return defect("superblock.data_offset", reason);
        }
        Ok(Self { at, bytes: (bytes / page * page).min(LOG_BYTES_MAX) })
    }

    /// The place of a log that is there: the header says how long it is.
    ///
    /// # Errors
    /// As [`Self::of`], and when the log would reach into the data.
    pub fn found(superblock: &Superblock, header: &Header) -> Result<Self, Defect> {
        let (page, at) = (PAGE_BYTES as u64, Self::start(superblock)?);
        let room = superblock.data_at().0.saturating_sub(at.0);
        let is_right =
            header.bytes.is_multiple_of(page) && (2 * page..=room.min(LOG_BYTES_MAX)).contains(&header.bytes);
        match is_right {
            true => Ok(Self { at, bytes: header.bytes }),
            false => defect("stripe_log.bytes", format!("{}, and there is room for {room}", header.bytes)),
        }
    }

    /// Where the header of a log is or would be: behind md's own areas, and the space that mdadm keeps for a bitmap.
    ///
    /// # Errors
    /// When the level, the format or the number of members does not allow a log.
    pub fn start(superblock: &Superblock) -> Result<MemberByte, Defect> {
        if !superblock.level.has_parity() {
            return defect("superblock.level", "a level without parity has no stripe log");
        }
        if !matches!(superblock.version, Version::V1_1 | Version::V1_2) {
            let reason = format!("with metadata {} there is no room before the data", superblock.version);
            return defect("superblock.super_offset", reason);
        }
        if superblock.raid_disks > DATA_CHUNKS_MAX + 1 {
            let reason =
                format!("{}, and a stripe log names at most {DATA_CHUNKS_MAX} data chunks", superblock.raid_disks);
            return defect("superblock.raid_disks", reason);
        }
        let used = superblock.room_before_data();
        let kept = match superblock.data_offset.0 >= AMPLE_SECTORS {
            true => superblock.super_offset.0 + PAGE_SECTORS + BITMAP_SECTORS_MAX + BAD_BLOCK_LOG_SECTORS,
            false => 0,
        };
        Ok(MemberByte((used.0.max(kept) * SECTOR_BYTES).next_multiple_of(PAGE_BYTES as u64)))
    }

    /// Checks that checksums do not lie in the log.
    ///
    /// # Errors
    /// When they do.
    pub fn check_apart(&self, checksums: &Layout) -> Result<(), Defect> {
        let [end, begin] = checksums.headers_at();
        match begin.0 >= self.end().0 || end.0 < self.at.0 {
            true => Ok(()),
            false => defect("superblock.data_offset", "there is no room for checksums beside the stripe log"),
        }
    }

    /// Checks that the bitmap of `superblock`, so many bytes long, ends before the log.
    ///
    /// # Errors
    /// When it does not.
    pub fn check_apart_from_bitmap(&self, superblock: &Superblock, bytes: u64) -> Result<(), Defect> {
        let Some(at) = superblock.bitmap_at() else { return Ok(()) };
        let end = at.0.saturating_add(bytes);
        match end <= self.at.0 || at.0 >= self.end().0 {
            true => Ok(()),
            false => {
                let reason =
                    format!("the bitmap ends at byte {end}, and a stripe log would begin at byte {}", self.at.0);
                defect("superblock.bitmap_offset", reason)
            }
        }
    }

    /// Bytes of the ring.
    pub const fn ring_bytes(&self) -> u64 {
        self.bytes - PAGE_BYTES as u64
    }

    /// The member's byte at `offset` of the ring.
    pub const fn in_ring(&self, offset: u64) -> MemberByte {
        MemberByte(self.at.0 + PAGE_BYTES as u64 + offset)
    }

    /// The first byte behind the log.
    pub const fn end(&self) -> MemberByte {
        MemberByte(self.at.0 + self.bytes)
    }
}
