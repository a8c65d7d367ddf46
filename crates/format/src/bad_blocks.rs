//! The bad-block log: ranges of a member that must not be read, because their data is lost or was never written, while
//! the member stays in use.
//!
//! Entries of 64 bits, little endian: first sector from the member's start in the upper 54, count in the lower 10. All
//! ones ends the list. It need not be sorted, and empty entries occur. Nothing here reads a member.
//!
//! Facts: `super_1_load` and `super_1_sync` in `drivers/md/md.c`; `docs/format.md`.

use crate::Defect;
use crate::units::{SECTOR_BYTES, Sectors};

const COUNT_BITS: u32 = 10;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Maximum count of one entry that the kernel writes, in units.
pub const COUNT_MAX: u64 = 512;

/// Positions from here on cannot be stored.
const FIRST_LIMIT: u64 = 1 << (u64::BITS - COUNT_BITS);

const END: u64 = u64::MAX;

/// A range of a member that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BadRange {
    /// First sector, from the member's start (not from its data area).
    pub first: Sectors,
    /// Number of sectors. [`decode`] never returns 0.
    pub count: Sectors,
}

/// Decodes the log in `bytes`, in units of `1 << shift` sectors. Empty entries are skipped.
///
/// # Errors
/// When an entry lies beyond the last possible sector, or `bytes` are not whole entries.
pub fn decode(bytes: &[u8], shift: u8) -> Result<Vec<BadRange>, Defect> {
    let (entries, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Defect::new("bad_blocks", format!("{} bytes are not whole entries of 8", bytes.len())));
    }
    let mut ranges = Vec::new();
    for entry in entries {
        let entry = u64::from_le_bytes(*entry);
        if entry == END {
            break;
        }
        let count = entry & COUNT_MASK;
        if count == 0 {
            continue;
        }
        let scale =
            |units: u64| units.checked_mul(1_u64.checked_shl(shift.into())?).filter(|s| *s < u64::MAX / SECTOR_BYTES);
        let first = scale(entry >> COUNT_BITS);
        let end = scale((entry >> COUNT_BITS) + count);
        let (Some(first), Some(end)) = (first, end) else {
            let reason = format!("entry {entry:#018x} with shift {shift} lies beyond the last possible sector");
            return Err(Defect::new("bad_blocks", reason));
        };
        ranges.push(BadRange { first: Sectors(first), count: Sectors(end - first) });
    }
    Ok(ranges)
}

/// Encodes `ranges` into a log of `log_bytes`, in units of `1 << shift` sectors, rounded outwards. A long range becomes
/// several entries.
///
/// # Errors
/// When the ranges do not fit. Then the log must not be written, and the member must be failed.
pub fn encode(ranges: &[BadRange], shift: u8, log_bytes: usize) -> Result<Vec<u8>, Defect> {
    let mut bytes = Vec::with_capacity(log_bytes);
    for range in ranges {
        let unit = 1_u64.checked_shl(shift.into()).ok_or_else(|| Defect::new("superblock.bblog_shift", "above 63"))?;
        let mut first = range.first.0 / unit;
        let end = range.first.0.saturating_add(range.count.0).div_ceil(unit);
        if end >= FIRST_LIMIT {
            return Err(Defect::new("bad_blocks", format!("sector {} cannot be stored", range.first.0)));
        }
        while first < end {
            let count = (end - first).min(COUNT_MAX);
            bytes.extend_from_slice(&(first << COUNT_BITS | count).to_le_bytes());
            first += count;
        }
    }
    if bytes.len() > log_bytes {
        let reason = format!("{} entries do not fit the {} of the log", bytes.len() / 8, log_bytes / 8);
        return Err(Defect::new("bad_blocks", reason));
    }
    bytes.resize(log_bytes, 0xff);
    Ok(bytes)
}
