//! How large a write of the bitmap is. Pure arithmetic.
//!
//! A drive that writes 4 KiB at once has to read, modify and write back anything smaller. That takes half a
//! millisecond instead of a fiftieth, measured on a bitmap whose last page was written as its seven sectors. So a
//! write is widened to what the member prefers, as long as that touches only the bitmap's own room.
//!
//! Source of the rule: `drivers/md/md-bitmap.c` (2023), which widens only the last page.

use crate::seam::member::Limits;
use std::ops::Range;

/// md's page, the unit in which bitmaps are written.
pub(super) const PAGE_BYTES: usize = 4096;

/// How large writes of the write-intent bitmap are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BitmapWrites {
    /// In the unit that the member prefers and that fits the bitmap's room: its optimal transfer, else its physical
    /// block, else a page of 4 KiB.
    #[default]
    Preferred,
    /// In pages of 4 KiB, the last one cut to the logical blocks that it needs. This writes the fewest bytes, as md
    /// did before 2023.
    Exact,
}

/// Where a bitmap may be written on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Byte of the member at which the bitmap begins.
    pub(super) at: u64,
    /// Bytes up to the next structure.
    pub(super) bytes: u64,
}

/// The writes that put `pages`, in ascending order, on a member: separate ranges in bytes from the bitmap's start.
/// `used` is the length of the bitmap's contents in bytes.
pub(super) fn spans(
    pages: impl Iterator<Item = usize>,
    used: u64,
    room: Room,
    limits: &Limits,
    writes: BitmapWrites,
) -> Vec<Range<u64>> {
    let logical = u64::from(limits.logical_block_bytes);
    let page = PAGE_BYTES as u64;
    let mut units = match writes {
        BitmapWrites::Exact => Vec::new(),
        BitmapWrites::Preferred => vec![limits.optimal_bytes.into(), limits.physical_block_bytes.into(), page],
    };
    units.retain(|unit| *unit >= page.max(logical) && unit.is_multiple_of(logical));
    units.sort_unstable_by(|a, b| b.cmp(a));
    let mut spans: Vec<Range<u64>> = Vec::new();
    for index in pages {
        let start = index as u64 * page;
        let exact = start..(start + page).min(used).next_multiple_of(logical);
        let span = units.iter().find_map(|&unit| widened(&exact, unit, room)).unwrap_or(exact);
        match spans.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => spans.push(span),
        }
    }
    spans
}

/// Widens `span` to whole units of the member, if these belong to the bitmap.
fn widened(span: &Range<u64>, unit: u64, room: Room) -> Option<Range<u64>> {
    let start = (room.at + span.start) / unit * unit;
    let end = (room.at + span.end).next_multiple_of(unit);
    (start >= room.at && end <= room.at + room.bytes).then(|| start - room.at..end - room.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(logical: u32, physical: u32, optimal: u32) -> Limits {
        Limits {
            bytes: 1 << 30,
            logical_block_bytes: logical,
            physical_block_bytes: physical,
            optimal_bytes: optimal,
            longest_bytes: 0,
            synchronous: false,
            discards: false,
            discards_to_zeros: false,
            volatile_cache: true,
        }
    }

    #[test]
    fn writes_are_as_large_as_the_member_prefers_where_only_the_bitmap_is() {
        use BitmapWrites::{Exact, Preferred};
        const K: u64 = 1024;
        // The bitmap of 57228 bits: 7410 bytes, behind a superblock at 4 KiB.
        let used = 256 + 57228_u64.div_ceil(8);
        let table = [
            // logical, physical, optimal, at, room, writes, pages, the one write
            (512, 4096, 4096, 8 * K, 64 * K, Exact, &[1][..], (4 * K, 7680)),
            (512, 4096, 4096, 8 * K, 64 * K, Preferred, &[1][..], (4 * K, 8 * K)),
            (512, 512, 0, 8 * K, 64 * K, Preferred, &[1][..], (4 * K, 8 * K)),
            (4096, 4096, 0, 8 * K, 64 * K, Exact, &[1][..], (4 * K, 8 * K)),
            // The bad-block log begins within the last page.
            (512, 4096, 4096, 8 * K, 7680, Preferred, &[1][..], (4 * K, 7680)),
            // Aligned to the member, not to the bitmap's start.
            (512, 4096, 16 * K as u32, 16 * K, 64 * K, Preferred, &[1][..], (0, 16 * K)),
            (512, 4096, 16 * K as u32, 8 * K, 64 * K, Preferred, &[0][..], (0, 4 * K)),
            (512, 8192, 0, 8 * K, 64 * K, Preferred, &[0][..], (0, 8 * K)),
            (512, 8192, 0, 4 * K, 64 * K, Preferred, &[0][..], (0, 4 * K)),
            // Neighbouring pages are one write.
            (512, 4096, 0, 8 * K, 64 * K, Preferred, &[0, 1][..], (0, 8 * K)),
            (512, 4096, 8192, 8 * K, 64 * K, Preferred, &[0, 1][..], (0, 8 * K)),
            // A bitmap 1 KiB behind a superblock of metadata 1.0, with 3 KiB of room.
            (512, 4096, 4096, 100 * K + 1024, 3 * K, Preferred, &[0][..], (0, 3 * K)),
        ];
        for (logical, physical, optimal, at, bytes, writes, pages, expected) in table {
            let used = used.min(bytes);
            let limits = limits(logical, physical, optimal);
            let found = spans(pages.iter().copied(), used, Room { at, bytes }, &limits, writes);
            let found: Vec<_> = found.into_iter().map(|span| (span.start, span.end)).collect();
            assert_eq!(found, [expected], "{limits:?} at {at} with {bytes} {writes:?} {pages:?}");
        }
    }
}
