//! The stripe log of one device: the ring of its records, and what its header says.
//!
//! Pure; [`crate::device::transfer::stripe_log`] writes. Which writes are logged is decided elsewhere
//! ([`crate::metadata::stripe_log`]).

use crate::base::range_lock::RangeLocks;
use format::Defect;
use format::integrity::Layout;
use format::stamp::Stamp;
use format::stripe_log::{Header, Place};
use format::superblock::Superblock;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

/// What the logs of all members share.
pub(crate) struct LogState {
    /// This use of the array.
    epoch: u64,
    /// The next batch.
    next: Cell<u64>,
    /// Batches before this one are on stable storage, with their data.
    retired: Cell<u64>,
    /// Whether parity was built everywhere. Since then it can be wrong only where whole rows were being written.
    is_built: Cell<bool>,
}

impl LogState {
    /// The state of a new use of the array. `before` is the greatest epoch that the members have, `now` wall-clock time.
    pub(crate) fn after(before: u64, now: Duration, is_built: bool) -> Self {
        let epoch = (now.as_micros() as u64).max(before + 1);
        Self { epoch, next: Cell::new(1), retired: Cell::new(1), is_built: Cell::new(is_built) }
    }

    /// Whether parity is built everywhere from now on.
    pub(crate) fn set_built(&self, is_built: bool) {
        self.is_built.set(is_built);
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of a new batch.
    pub(crate) fn begin_batch(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    pub(crate) fn next(&self) -> u64 {
        self.next.get()
    }

    pub(crate) fn retired(&self) -> u64 {
        self.retired.get()
    }

    /// Batches before `sequence` are on stable storage, with their data.
    pub(crate) fn retire_before(&self, sequence: u64) {
        self.retired.set(self.retired.get().max(sequence));
    }
}

/// A record in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placed {
    sequence: u64,
    start: u64,
    end: u64,
}

/// The records that a replay would find, oldest first.
#[derive(Debug, Default)]
struct Ring {
    bytes: u64,
    /// Where the next record goes, if it fits before the end.
    head: u64,
    records: VecDeque<Placed>,
}

/// Where a record goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) offset: u64,
    /// Records before this one must be given up first.
    pub(crate) first: u64,
}

impl Ring {
    fn spot(&self, bytes: u64) -> Spot {
        let wraps = self.head + bytes > self.bytes;
        let offset = if wraps { 0 } else { self.head };
        let is_in_way = |placed: &&Placed| {
            (placed.start < offset + bytes && offset < placed.end) || (wraps && placed.end > self.head)
        };
        // The records in the way are the oldest.
        let first = self.records.iter().rev().find(is_in_way).map_or(0, |placed| placed.sequence + 1);
        Spot { offset, first }
    }

    /// The records to give up at once, so that the header need not be written for each record.
    fn generous(&self, spot: Spot, bytes: u64, retired: u64) -> u64 {
        let ahead = (bytes.max(self.bytes / 4)).min(self.bytes - spot.offset);
        let is_in_way = |placed: &&Placed| placed.start < spot.offset + ahead && spot.offset < placed.end;
        let far = self.records.iter().rev().find(is_in_way).map_or(0, |placed| placed.sequence + 1);
        far.min(retired).max(spot.first)
    }

    fn give_up(&mut self, first: u64) {
        while self.records.front().is_some_and(|placed| placed.sequence < first) {
            self.records.pop_front();
        }
    }

    fn put(&mut self, offset: u64, bytes: u64, sequence: u64) {
        self.head = offset + bytes;
        self.records.push_back(Placed { sequence, start: offset, end: offset + bytes });
    }
}

/// The log of one device.
pub(crate) struct DeviceLog {
    pub(super) place: Place,
    header: RefCell<Header>,
    ring: RefCell<Ring>,
    /// Held while the header is written.
    pub(super) writing: RangeLocks,
}

impl DeviceLog {
    /// The log of a device that takes part from the next batch on.
    ///
    /// # Errors
    /// When there is no room for one.
    pub(super) fn new(superblock: &Superblock, state: &LogState) -> Result<Self, Defect> {
        let place = Place::of(superblock)?;
        let header = Header { first: state.next(), ..Header::new(superblock, &place, state.epoch) };
        let ring = Ring { bytes: place.ring_bytes(), ..Ring::default() };
        Ok(Self { place, header: RefCell::new(header), ring: RefCell::new(ring), writing: RangeLocks::default() })
    }

    /// Checks that checksums would not lie in the log.
    pub(crate) fn check_apart(&self, checksums: &Layout) -> Result<(), Defect> {
        self.place.check_apart(checksums)
    }

    /// Names the superblock about to be written, and the one that it replaces.
    pub(super) fn announce(&self, present: Stamp, next: &Superblock) {
        let mut header = self.header.borrow_mut();
        *header = Header {
            stamps: [present, Stamp::of(next)],
            first: header.first,
            ..Header::new(next, &self.place, header.epoch)
        };
    }

    /// The header's page.
    pub(super) fn header_page(&self, state: &LogState) -> Vec<u8> {
        let mut header = self.header.borrow_mut();
        (header.tail, header.is_built) = (state.retired(), state.is_built.get());
        header.encode()
    }

    /// Seals the records.
    pub(super) fn seed(&self) -> u32 {
        self.header.borrow().seed()
    }

    /// A replay finds no record before `first` any more.
    pub(super) fn begin_at(&self, first: u64) {
        self.header.borrow_mut().first = first;
        self.ring.borrow_mut().give_up(first);
    }

    /// The first record that a replay would find.
    pub(crate) fn first(&self) -> u64 {
        self.header.borrow().first
    }

    /// Where a record of so many bytes goes.
    pub(crate) fn spot(&self, bytes: u64) -> Spot {
        self.ring.borrow().spot(bytes)
    }

    pub(crate) fn ring_bytes(&self) -> u64 {
        self.place.ring_bytes()
    }

    /// Whether records must be given up before one of so many bytes is put there. They are, once the header is written.
    pub(super) fn must_give_up(&self, spot: Spot, bytes: u64, state: &LogState) -> bool {
        if spot.first <= self.first() {
            return false;
        }
        let first = self.ring.borrow().generous(spot, bytes, state.retired());
        self.header.borrow_mut().first = first;
        self.ring.borrow_mut().give_up(first);
        true
    }

    /// A record is about to be written there.
    pub(super) fn put(&self, spot: Spot, bytes: u64, sequence: u64) {
        self.ring.borrow_mut().put(spot.offset, bytes, sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_record_is_put_over_one_that_counts_and_older_ones_are_given_up_first(
            records in prop::collection::vec((1_u64..5, 0_u64..4), 1..200),
        ) {
            let mut ring = Ring { bytes: 16, ..Ring::default() };
            let mut bytes_of = [0_u64; 16];
            let mut first = 0;
            for (sequence, (bytes, kept)) in (1_u64..).zip(records) {
                let spot = ring.spot(bytes);
                // The caller gives up what is in the way, and more where that is retired.
                let retired = u64::max(sequence.saturating_sub(kept), spot.first);
                if spot.first > first {
                    first = ring.generous(spot, bytes, retired);
                    prop_assert!(first >= spot.first && first <= retired);
                    ring.give_up(first);
                }
                let range = spot.offset as usize..(spot.offset + bytes) as usize;
                prop_assert!(range.end <= 16);
                prop_assert!(bytes_of[range.clone()].iter().all(|old| *old < u64::max(first, 1)), "it overwrites a live one");
                bytes_of[range].fill(sequence);
                ring.put(spot.offset, bytes, sequence);
            }
        }
    }
}
