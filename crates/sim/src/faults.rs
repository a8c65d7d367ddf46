//! What goes wrong with a member, and what is promised under each of it.
//!
//! The engine stands on members that md(4) would trust: no checksums, so what a
//! drive returns without an error is believed. From that follows what can be
//! promised, and [`crate::truth`] and [`crate::judge`] hold the engine to exactly this:
//!
//! | fault | promise, while the level bears it |
//! |---|---|
//! | power cut between any two writes or flushes; writes lost from a cache, torn at 512 bytes or 4 KiB, in any order | each sector holds what was flushed, or a write that was under way or answered since; disagreement only where the marks say so |
//! | read fails once, or until rewritten; write or flush fails; member gone, hung, slow, and back | the same, and no request fails |
//! | a write finds no room | the same, but that the write fails, and no member leaves: what was flushed is read at any moment |
//! | answers that come later than members are waited for | as for writes and reads that fail |
//! | write acknowledged but not stored, or stored elsewhere; bytes changed in place | only rows (the same sector of each chunk of a stripe, or the copies of one sector) that hold a byte changed so may come out wrong; all others as above |
//! | the same to members with checksums | the same, and requests may fail; without it, each checksum that counts is right |
//! | any of these beyond what the level bears, in an array whose parity is not trusted, or after `--force` | requests may fail; what is read without an error is as above. Rows with a write in doubt, or of which something could not be read while a resync was owed, may come out wrong when a dirty and degraded array is forced |
//!
//! What the level bears is asked when a fault is set, and anew when an array is assembled: a fault that lasts may be more
//! than the next life bears, whose recovery was not on stable storage. Whoever is about to take a member's place counts for it.
//!
//! Outside of every promise: starting an array from members that were left
//! behind, without any that went on without them (nothing on them can tell), and
//! a drive that loses its cache without a loss of power.
//!
//! Whoever sets a fault decides when it ends; a hung member always comes back.

use engine::Operation;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// What is wrong with a member; shared with whoever sets it. Ranges are of the member's bytes.
#[derive(Debug, Default)]
pub struct Faults {
    /// Reads that touch one of these fail.
    pub bad_reads: RefCell<Vec<Range<u64>>>,
    /// Reads that touch one of these fail, until it is written to: latent sector errors.
    pub latent: RefCell<Vec<Range<u64>>>,
    /// Writes that touch one of these fail.
    pub bad_writes: RefCell<Vec<Range<u64>>>,
    /// Writes that touch one of these find no room, as those to holes of a file do whose file system is full.
    pub full: RefCell<Vec<Range<u64>>>,
    /// Everything fails.
    pub gone: Cell<bool>,
    /// Nothing is answered before this moment, in nanoseconds of the world's time.
    pub hung_until: Cell<u64>,
    /// Writes that touch one of these are acknowledged and not stored.
    pub lost_writes: RefCell<Vec<Range<u64>>>,
    /// Added to each latency, in nanoseconds.
    pub slower_by: Cell<u64>,
    /// Added to each write's latency, before it is stored and after, in nanoseconds.
    pub writes_slower_by: Cell<u64>,
    /// Operations of which one will go wrong.
    pub planned: RefCell<Vec<Planned>>,
    /// What holds other bytes than were written, without anybody having been told.
    pub silent: RefCell<Vec<Range<u64>>>,
    /// What could not be read when somebody tried.
    pub unread: RefCell<Vec<Range<u64>>>,
}

/// A mishap that waits for its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// The kind of operation that it befalls.
    pub operation: Operation,
    /// How many of these pass before.
    pub after: u64,
    /// What happens then.
    pub mishap: Mishap,
}

/// How an operation goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// With an error; a write may be there in part.
    Fail,
    /// A write within `area` is acknowledged and not stored; another passes.
    Lose,
    /// A write within the area is stored this much further on, round its end; another passes.
    Misdirect {
        /// In bytes.
        by: u64,
    },
}

impl Faults {
    /// Everything that was set or planned is over. What it did stays known.
    pub fn heal(&self) {
        self.bad_reads.take();
        self.latent.take();
        self.bad_writes.take();
        self.full.take();
        self.lost_writes.take();
        self.gone.set(false);
        self.end_lateness();
        self.planned.take();
    }

    /// It answers in time again.
    pub fn end_lateness(&self) {
        self.hung_until.set(0);
        self.slower_by.set(0);
        self.writes_slower_by.set(0);
    }

    /// Whether an answer takes longer than it should, at this moment in nanoseconds.
    pub fn is_late(&self, now: u64) -> bool {
        self.hung_until.get() > now || self.slower_by.get() > 0 || self.writes_slower_by.get() > 0
    }

    /// Whether an operation may fail, now or as planned; not by being late.
    pub fn is_any(&self) -> bool {
        let ranges = [&self.bad_reads, &self.latent, &self.bad_writes, &self.full];
        self.gone.get() || !self.planned.borrow().is_empty() || ranges.iter().any(|ranges| !ranges.borrow().is_empty())
    }

    /// The mishap that befalls the next operation of this kind, which is counted.
    pub(crate) fn befalls(&self, operation: Operation) -> Option<Mishap> {
        let mut planned = self.planned.borrow_mut();
        let due = planned.iter().position(|plan| plan.operation == operation && plan.after == 0);
        let due = due.map(|index| planned.swap_remove(index).mishap);
        for plan in planned.iter_mut().filter(|plan| plan.operation == operation) {
            plan.after = plan.after.saturating_sub(1);
        }
        due
    }

    /// Whether a change of this range finds no room.
    pub(crate) fn is_full(&self, operation: Operation, range: &Range<u64>) -> bool {
        let is_change = matches!(operation, Operation::Write | Operation::WriteZeroes | Operation::Discard);
        is_change && self.full.borrow().iter().any(|full| full.start < range.end && range.start < full.end)
    }

    /// Whether an operation on this range fails.
    pub(crate) fn spoils(&self, operation: Operation, range: &Range<u64>) -> bool {
        let touch = |ranges: &RefCell<Vec<Range<u64>>>| {
            ranges.borrow().iter().any(|bad| bad.start < range.end && range.start < bad.end)
        };
        let is_spoilt = match operation {
            Operation::Read => touch(&self.bad_reads) || touch(&self.latent),
            Operation::Write | Operation::WriteZeroes | Operation::Discard => touch(&self.bad_writes),
            Operation::Flush => false,
        };
        is_spoilt || self.is_full(operation, range) || self.gone.get()
    }

    /// Whether a write of this range is not stored.
    pub(crate) fn loses(&self, range: &Range<u64>) -> bool {
        self.lost_writes.borrow().iter().any(|lost| lost.start < range.end && range.start < lost.end)
    }

    /// A write mends latent errors under it.
    pub(crate) fn rewritten(&self, range: &Range<u64>) {
        let mut latent = self.latent.borrow_mut();
        if latent.is_empty() {
            return;
        }
        let rest = |bad: Range<u64>| [bad.start..bad.end.min(range.start), bad.start.max(range.end)..bad.end];
        *latent = latent.drain(..).flat_map(rest).filter(|bad| bad.start < bad.end).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_mishap_befalls_one_operation_of_its_kind() {
        let faults = Faults::default();
        faults.planned.borrow_mut().push(Planned { operation: Operation::Write, after: 1, mishap: Mishap::Fail });
        let kinds = [Operation::Flush, Operation::Write, Operation::Write, Operation::Write];
        assert_eq!(kinds.map(|kind| faults.befalls(kind)), [None, None, Some(Mishap::Fail), None]);
        assert!(!faults.is_any());
    }

    #[test]
    fn a_latent_error_lasts_where_it_was_not_rewritten() {
        let faults = Faults::default();
        faults.latent.borrow_mut().push(1024..4096);
        faults.rewritten(&(2048..2560));
        assert_eq!(*faults.latent.borrow(), [1024..2048, 2560..4096]);
        assert!(faults.spoils(Operation::Read, &(512..1536)) && !faults.spoils(Operation::Read, &(2048..2560)));
    }
}
