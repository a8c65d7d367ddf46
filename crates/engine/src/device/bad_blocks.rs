//! The bad-block log of a member, in memory: ranges that must not be read although
//! the member stays in the array.
//!
//! A range is added when a write of it fails, or when its contents cannot be
//! reconstructed. A successful write of the range removes it. A range in the list is not
//! read from that moment on. The log on the member follows with the next round of
//! superblocks ([`crate::device::Device::write_superblock`]), and a caller that depends
//! on it waits for that round. A removed range may stay in the log for a while, which is safe.
//!
//! Does no I/O.
//!
//! Facts: md(4), "BAD BLOCK LIST"; `drivers/md/md.c` (`super_1_sync`, `rdev_set_badblocks`).

use crate::base::range_set::Ranges;
use format::bad_blocks::{BadRange, encode};
use format::superblock::BadBlockPlace;
use format::units::{SECTOR_BYTES, Sectors};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The bad blocks of one member. Callers name them by component bytes.
pub(crate) struct BadBlocks {
    /// In bytes of the member, as in its log. Ranges outside of the data are preserved.
    ranges: RefCell<Ranges>,
    data_at: u64,
    /// The position of the log; a member without a log cannot have bad blocks.
    place: Cell<Option<BadBlockPlace>>,
    changes: Cell<u64>,
    /// The number of changes that the log on the member includes.
    saved: Cell<u64>,
}

/// A log to be written, and the number of changes that it includes.
pub(crate) struct LogImage {
    pub(crate) bytes: Vec<u8>,
    changes: u64,
}

impl BadBlocks {
    /// The bad blocks in the log of a member whose data begins at `data_at`.
    pub(crate) fn new(place: Option<BadBlockPlace>, data_at: u64, ranges: Vec<Range<u64>>) -> Self {
        let ranges = RefCell::new(Ranges::of(ranges));
        Self { ranges, data_at, place: Cell::new(place), changes: Cell::new(0), saved: Cell::new(0) }
    }

    /// Gives up a log without entries: another area of the member is in its place.
    pub(crate) fn drop_log(&self) {
        self.place.set(None);
    }

    /// Whether the log has any entry.
    pub(crate) fn is_log_in_use(&self) -> bool {
        !self.ranges.borrow().is_empty()
    }

    /// Whether all of the data may be read.
    pub(crate) fn is_empty(&self) -> bool {
        !self.ranges.borrow().touches(&(self.data_at..u64::MAX))
    }

    fn on_member(&self, range: &Range<u64>) -> Range<u64> {
        self.data_at + range.start..self.data_at.saturating_add(range.end)
    }

    /// Whether any of `range` must not be read.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        self.ranges.borrow().touches(&self.on_member(range))
    }

    /// The number of bytes that must not be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges().bytes()
    }

    /// The ranges that must not be read.
    pub(crate) fn ranges(&self) -> Ranges {
        let ranges = self.ranges.borrow();
        let of_data =
            ranges.iter().map(|bad| bad.start.saturating_sub(self.data_at)..bad.end.saturating_sub(self.data_at));
        Ranges::of(of_data)
    }

    /// Adds `range`, in whole sectors; false, with nothing changed, when the log is full.
    pub(crate) fn add(&self, range: &Range<u64>) -> bool {
        let mut more = self.ranges.borrow().clone();
        let range = self.on_member(range);
        more.add(range.start / SECTOR_BYTES * SECTOR_BYTES..range.end.next_multiple_of(SECTOR_BYTES));
        let fits = self.place.get().is_some_and(|place| encoded(&more, place).is_some());
        if fits && *self.ranges.borrow() != more {
            self.ranges.replace(more);
            self.changes.set(self.changes.get() + 1);
        }
        fits
    }

    /// Shuts `range` in memory alone, of an array that is only read. No log is written, so none needs room.
    pub(crate) fn shut(&self, range: &Range<u64>) {
        self.ranges.borrow_mut().add(self.on_member(range));
    }

    /// Removes `range` after a write of it; true when any of it was bad and is good now. (It stays bad if
    /// the removal splits a range in two and the log is full.)
    pub(crate) fn written(&self, range: &Range<u64>) -> bool {
        if !self.touches(range) {
            return false;
        }
        let mut rest = self.ranges.borrow().clone();
        rest.remove(&self.on_member(range));
        let fits = self.place.get().is_some_and(|place| encoded(&rest, place).is_some());
        if fits {
            self.ranges.replace(rest);
            self.changes.set(self.changes.get() + 1);
        }
        fits
    }

    /// The log was moved, and must be written at its new position.
    pub(crate) fn move_log(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// The present log, if the one on the member is older.
    pub(crate) fn unsaved(&self) -> Option<LogImage> {
        let changes = self.changes.get();
        let place = self.place.get().filter(|_| changes != self.saved.get())?;
        let bytes =
            encoded(&self.ranges.borrow(), place).expect("`add` and `written` refuse a change that does not fit");
        Some(LogImage { bytes, changes })
    }

    /// `log` is on the member's stable storage.
    pub(crate) fn saved(&self, log: &LogImage) {
        self.saved.set(log.changes);
    }
}

/// The encoded log; `None` when the ranges do not fit.
fn encoded(ranges: &Ranges, place: BadBlockPlace) -> Option<Vec<u8>> {
    let sectors = |bytes| Sectors(bytes / SECTOR_BYTES);
    let bad =
        ranges.iter().map(|range| BadRange { first: sectors(range.start), count: sectors(range.end - range.start) });
    encode(&bad.collect::<Vec<_>>(), place.shift, usize::from(place.sectors) * SECTOR_BYTES as usize).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(sectors: u16) -> Option<BadBlockPlace> {
        Some(BadBlockPlace { sectors_from_superblock: 16, sectors, shift: 0, in_use: false })
    }

    #[test]
    fn a_range_that_does_not_fit_the_log_is_refused_and_changes_nothing() {
        assert!(!BadBlocks::new(None, 0, Vec::new()).add(&(0..512)));
        let bad = BadBlocks::new(log(1), 4096, Vec::new());
        for entry in 0..64 {
            assert!(bad.add(&(entry * 4096..entry * 4096 + 512)), "{entry}");
        }
        assert!(!bad.add(&(1 << 20..(1 << 20) + 512)));
        assert_eq!(bad.bytes(), 64 * 512);
        assert!(bad.add(&(512..4096)), "two entries become one");
    }

    #[test]
    fn entries_count_from_the_members_start_and_those_outside_of_the_data_are_preserved() {
        let bad = BadBlocks::new(log(8), 8192, vec![512..1024, 8192..8704]);
        assert!(bad.touches(&(0..1)) && !bad.touches(&(512..8192)) && bad.bytes() == 512);
        assert!(bad.add(&(1024..1536)) && bad.written(&(0..512)));
        let log = bad.unsaved().expect("it changed").bytes;
        let entry = |index: usize| u64::from_le_bytes(log[index * 8..][..8].try_into().expect("eight bytes"));
        assert_eq!([entry(0), entry(1), entry(2)], [1 << 10 | 1, 18 << 10 | 1, u64::MAX]);
        assert!(bad.written(&(0..4096)) && bad.is_empty() && bad.is_log_in_use());
    }

    #[test]
    fn the_log_is_unsaved_until_its_newest_version_is_written() {
        let bad = BadBlocks::new(log(8), 0, Vec::new());
        assert!(bad.unsaved().is_none() && !bad.written(&(0..4096)));
        assert!(bad.add(&(100..700)) && bad.touches(&(1023..1024)));
        let first = bad.unsaved().expect("a range was added");
        assert!(bad.written(&(512..4096)) && bad.bytes() == 512);
        bad.saved(&first);
        let second = bad.unsaved().expect("a range was removed meanwhile");
        bad.saved(&second);
        assert!(bad.unsaved().is_none());
    }
}
