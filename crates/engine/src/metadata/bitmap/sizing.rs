//! How large a write of the bitmap is made.
//!
//! A drive that writes 4 KiB at once reads, changes and writes back for
//! anything smaller: half a millisecond instead of a fiftieth, measured on a
//! bitmap whose last page was written as the seven sectors that it had. So a
//! write is widened to what the member prefers, where that touches nothing but
//! the bitmap's own room. Pure arithmetic.
//! Source of the rule: `drivers/md/md-bitmap.c` (2023), which widens the last page alone.

use crate::metadata::bitmap::PAGE_BYTES;
use crate::seam::member::Limits;
use std::ops::Range;

/// How large writes of the write-intent bitmap are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BitmapWrites {
    /// In the units that each member prefers: its optimal transfer, else its
    /// physical block, else pages of 4 KiB, the first that fits the bitmap's room.
    #[default]
    Preferred,
    /// In pages of 4 KiB, the last of them only as many logical blocks as it
    /// needs: the least bytes, as md did it before 2023.
    Exact,
}

/// Where a bitmap may be written on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Byte of the member at which it begins.
    pub(super) at: u64,
    /// Bytes up to what comes next.
    pub(super) bytes: u64,
}

/// The writes that put `pages`, in ascending order, on a member: ranges in bytes from the
/// bitmap's start, apart from each other. `used` is how many bytes of it mean something.
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

/// `span` in whole units of the member, if those are the bitmap's own.
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
            // Aligned as the member counts, not as the bitmap does.
            (512, 4096, 16 * K as u32, 16 * K, 64 * K, Preferred, &[1][..], (0, 16 * K)),
            (512, 4096, 16 * K as u32, 8 * K, 64 * K, Preferred, &[0][..], (0, 4 * K)),
            (512, 8192, 0, 8 * K, 64 * K, Preferred, &[0][..], (0, 8 * K)),
            (512, 8192, 0, 4 * K, 64 * K, Preferred, &[0][..], (0, 4 * K)),
            // Neighbours are one write.
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
