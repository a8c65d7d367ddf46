//! What of a member must not be read, though the member goes on: its bad-block
//! log, in memory.
//!
//! A range comes in when the member could not be written there, or nobody could
//! give what belongs there; it goes when a write of it succeeds. From the
//! moment it is in, nobody reads it; the log on the member follows with the next
//! round of superblocks ([`crate::device::Device::write_superblock`]), and who depends on it
//! waits for that round. A range that went may stay in the log for a while, which is safe.
//!
//! Facts: md(4), "BAD BLOCK LIST"; `drivers/md/md.c` (`super_1_sync`, `rdev_set_badblocks`).

use crate::base::range_set::Ranges;
use format::bad_blocks::{BadRange, encode};
use format::superblock::BadBlockPlace;
use format::units::{SECTOR_BYTES, Sectors};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The bad blocks of one member. Others name them by component bytes.
pub(crate) struct BadBlocks {
    /// Of the member's bytes, as in its log; what lies outside of the data is kept.
    ranges: RefCell<Ranges>,
    data_at: u64,
    /// Where they are kept; a member without a log cannot have any.
    place: Option<BadBlockPlace>,
    changes: Cell<u64>,
    /// As many of the changes as the log on the member has.
    saved: Cell<u64>,
}

/// A log to be written, and how new it is.
pub(crate) struct LogImage {
    pub(crate) bytes: Vec<u8>,
    changes: u64,
}

impl BadBlocks {
    /// What the log of a member holds, whose data begins at `data_at`.
    pub(crate) fn new(place: Option<BadBlockPlace>, data_at: u64, ranges: Vec<Range<u64>>) -> Self {
        let ranges = RefCell::new(Ranges::of(ranges));
        Self { ranges, data_at, place, changes: Cell::new(0), saved: Cell::new(0) }
    }

    /// Whether the log has anything to say.
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

    /// How many bytes must not be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges().bytes()
    }

    /// What must not be read.
    pub(crate) fn ranges(&self) -> Ranges {
        let ranges = self.ranges.borrow();
        let of_data =
            ranges.iter().map(|bad| bad.start.saturating_sub(self.data_at)..bad.end.saturating_sub(self.data_at));
        Ranges::of(of_data)
    }

    /// Adds `range`, in whole sectors; false, with nothing changed, when the log has no room for it.
    pub(crate) fn add(&self, range: &Range<u64>) -> bool {
        let mut more = self.ranges.borrow().clone();
        let range = self.on_member(range);
        more.add(range.start / SECTOR_BYTES * SECTOR_BYTES..range.end.next_multiple_of(SECTOR_BYTES));
        let fits = self.place.is_some_and(|place| encoded(&more, place).is_some());
        if fits && *self.ranges.borrow() != more {
            self.ranges.replace(more);
            self.changes.set(self.changes.get() + 1);
        }
        fits
    }

    /// `range` was written; true when some of it was bad and is not any more. (It stays bad where
    /// the log has no room for what is left on both sides of it.)
    pub(crate) fn written(&self, range: &Range<u64>) -> bool {
        if !self.touches(range) {
            return false;
        }
        let mut rest = self.ranges.borrow().clone();
        rest.remove(&self.on_member(range));
        let fits = self.place.is_some_and(|place| encoded(&rest, place).is_some());
        if fits {
            self.ranges.replace(rest);
            self.changes.set(self.changes.get() + 1);
        }
        fits
    }

    /// The log has another place now, where nothing of it is yet.
    pub(crate) fn move_log(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// The log as it is to be, when the one on the member is older.
    pub(crate) fn unsaved(&self) -> Option<LogImage> {
        let changes = self.changes.get();
        let place = self.place.filter(|_| changes != self.saved.get())?;
        let bytes = encoded(&self.ranges.borrow(), place).expect("a change that does not fit is refused");
        Some(LogImage { bytes, changes })
    }

    /// The member has a log on stable storage.
    pub(crate) fn saved(&self, log: &LogImage) {
        self.saved.set(log.changes);
    }
}

/// As many entries as fit the log, or none.
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
    fn what_does_not_fit_the_log_is_refused_and_changes_nothing() {
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
    fn entries_count_from_the_members_start_and_those_outside_of_the_data_stay() {
        let bad = BadBlocks::new(log(8), 8192, vec![512..1024, 8192..8704]);
        assert!(bad.touches(&(0..1)) && !bad.touches(&(512..8192)) && bad.bytes() == 512);
        assert!(bad.add(&(1024..1536)) && bad.written(&(0..512)));
        let log = bad.unsaved().expect("it changed").bytes;
        let entry = |index: usize| u64::from_le_bytes(log[index * 8..][..8].try_into().expect("eight bytes"));
        assert_eq!([entry(0), entry(1), entry(2)], [1 << 10 | 1, 18 << 10 | 1, u64::MAX]);
        assert!(bad.written(&(0..4096)) && bad.is_empty() && bad.is_log_in_use());
    }

    #[test]
    fn the_log_is_unsaved_until_the_one_that_was_written_is_the_newest() {
        let bad = BadBlocks::new(log(8), 0, Vec::new());
        assert!(bad.unsaved().is_none() && !bad.written(&(0..4096)));
        assert!(bad.add(&(100..700)) && bad.touches(&(1023..1024)));
        let first = bad.unsaved().expect("a range was added");
        assert!(bad.written(&(512..4096)) && bad.bytes() == 512);
        bad.saved(&first);
        let second = bad.unsaved().expect("a range went meanwhile");
        bad.saved(&second);
        assert!(bad.unsaved().is_none());
    }
}
