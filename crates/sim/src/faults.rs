//! Faults of a member, and what the engine promises under each.
//!
//! Members are what md(4) would trust: without checksums, whatever a drive returns without an error is taken as right.
//! The promises below follow from that, and [`crate::truth`] and [`crate::judge`] hold the engine to exactly these:
//!
//! | fault | promise, while the level survives it |
//! |---|---|
//! | power cut between any two writes or flushes; writes lost from a cache or torn at 512 bytes or 4 KiB, in any order | each sector holds what was flushed, or a write that was answered later or was in flight; copies and parity disagree only where the metadata marks it |
//! | a read fails once, or until it is rewritten; a write or flush fails; a member goes, hangs, is slow, or returns | the same, and no request fails |
//! | a write fails for lack of space | the same, except that the write fails; no member is failed, and flushed data stays readable |
//! | a member answers after its timeout | as for reads and writes that fail |
//! | a write is acknowledged but not stored, or is stored elsewhere; bytes change silently | only rows that hold such a byte may read wrong (a row is the same sector of each chunk of a stripe, or the copies of one sector); all other rows as above |
//! | the same on members with checksums | the same, and requests may fail. As long as there is no silent fault, every valid checksum is right |
//! | more faults than the level survives, faults in an array whose parity is not trusted, or after `--force` | requests may fail; what is read without an error is as above. When a dirty and degraded array is forced, rows with a write in doubt may read wrong, as may rows that could not be read while a resync was pending |
//!
//! Whether the level survives a fault is decided when the fault is set, and again at each assembly. A lasting fault may
//! be more than the next life survives, if a recovery had not reached stable storage. A replacement counts as its
//! slot's member.
//!
//! Two things are outside every promise. An array may be started from stale members alone, without any of those that
//! went on: nothing on the stale ones can tell. And a drive may lose its cache without a loss of power.
//!
//! The code that sets a fault also ends it. A hung member always answers again.

use engine::Operation;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The faults of a member; shared with the code that sets them. Ranges are in bytes of the member.
#[derive(Debug, Default)]
pub struct Faults {
    /// Reads that overlap one of these ranges fail.
    pub bad_reads: RefCell<Vec<Range<u64>>>,
    /// Reads that overlap one of these ranges fail until the range is rewritten: latent sector errors.
    pub latent: RefCell<Vec<Range<u64>>>,
    /// Writes that overlap one of these ranges fail.
    pub bad_writes: RefCell<Vec<Range<u64>>>,
    /// Writes that overlap one of these ranges fail for lack of space, as in a sparse file on a full file system.
    pub full: RefCell<Vec<Range<u64>>>,
    /// The member is gone: every operation fails.
    pub gone: Cell<bool>,
    /// The member hangs: it answers nothing before this moment, in nanoseconds of the world's time.
    pub hung_until: Cell<u64>,
    /// Writes that overlap one of these ranges are acknowledged but not stored.
    pub lost_writes: RefCell<Vec<Range<u64>>>,
    /// Delay of each operation, in nanoseconds.
    pub slower_by: Cell<u64>,
    /// Delay of each write, once before it is stored and once after, in nanoseconds.
    pub writes_slower_by: Cell<u64>,
    /// Mishaps of single operations still to come.
    pub planned: RefCell<Vec<Planned>>,
    /// Ranges that silently hold other bytes than were written.
    pub silent: RefCell<Vec<Range<u64>>>,
    /// Those of them that were read.
    pub misread: RefCell<Vec<Range<u64>>>,
    /// Ranges of reads that failed.
    pub unread: RefCell<Vec<Range<u64>>>,
    /// While a log may be replayed: ranges that could not be read. A flush ends a replay.
    pub(crate) unread_by_replay: RefCell<Option<Vec<Range<u64>>>>,
    /// The parts of them that it wrote afterwards, or tried to.
    pub(crate) given_by_replay: RefCell<Vec<Range<u64>>>,
}

/// A mishap, and the operation that it befalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// The kind of operation.
    pub operation: Operation,
    /// The number of such operations that succeed first.
    pub after: u64,
    /// What happens then.
    pub mishap: Mishap,
}

/// A mishap of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// The operation fails; a write may be stored in part.
    Fail,
    /// A write within `area` is acknowledged but not stored. Other writes succeed.
    Lose,
    /// A write within `area` is stored further on, wrapping round at the area's end. Other writes succeed.
    Misdirect {
        /// The distance in bytes.
        by: u64,
    },
}

impl Faults {
    /// Ends all faults, current and planned. Records of what they did remain.
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

    /// The member answers in time again.
    pub fn end_lateness(&self) {
        self.hung_until.set(0);
        self.slower_by.set(0);
        self.writes_slower_by.set(0);
    }

    /// Whether answers are delayed at this moment, in nanoseconds.
    pub fn is_late(&self, now: u64) -> bool {
        self.hung_until.get() > now || self.slower_by.get() > 0 || self.writes_slower_by.get() > 0
    }

    /// Whether an operation may fail, now or as planned. Delays do not count.
    pub fn is_any(&self) -> bool {
        let ranges = [&self.bad_reads, &self.latent, &self.bad_writes, &self.full];
        self.gone.get() || !self.planned.borrow().is_empty() || ranges.iter().any(|ranges| !ranges.borrow().is_empty())
    }

    /// Counts an operation of this kind; returns the mishap that befalls it.
    pub(crate) fn befalls(&self, operation: Operation) -> Option<Mishap> {
        let mut planned = self.planned.borrow_mut();
        let due = planned.iter().position(|plan| plan.operation == operation && plan.after == 0);
        let due = due.map(|index| planned.swap_remove(index).mishap);
        for plan in planned.iter_mut().filter(|plan| plan.operation == operation) {
            plan.after = plan.after.saturating_sub(1);
        }
        due
    }

    /// Whether a write of this range fails for lack of space.
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

    /// This range is read: notes which silently changed bytes are in it.
    pub(crate) fn note_read(&self, range: &Range<u64>) {
        let silent = self.silent.borrow();
        let is_read = |silent: &&Range<u64>| silent.start < range.end && range.start < silent.end;
        self.misread.borrow_mut().extend(silent.iter().filter(is_read).cloned());
    }

    /// Notes what a replay does where the member cannot be read.
    pub(crate) fn note_replay(&self, operation: Operation, range: &Range<u64>, fails: bool) {
        let mut unread = self.unread_by_replay.borrow_mut();
        match (operation, &mut *unread) {
            (Operation::Read, Some(unread)) if fails => unread.push(range.clone()),
            (Operation::Write, Some(unread)) => {
                let parts = unread.iter().map(|unread| unread.start.max(range.start)..unread.end.min(range.end));
                self.given_by_replay.borrow_mut().extend(parts.filter(|part| part.start < part.end));
            }
            (Operation::Flush, _) => *unread = None,
            _ => {}
        }
    }

    /// Whether a write of this range is acknowledged but not stored.
    pub(crate) fn loses(&self, range: &Range<u64>) -> bool {
        self.lost_writes.borrow().iter().any(|lost| lost.start < range.end && range.start < lost.end)
    }

    /// A write repairs the latent errors in its range.
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
    fn a_read_notes_the_silently_changed_bytes_in_it() {
        let faults = Faults::default();
        faults.silent.borrow_mut().extend([512..1024, 4096..8192]);
        faults.note_read(&(1024..4096));
        assert!(faults.misread.borrow().is_empty());
        faults.note_read(&(4096..4608));
        assert_eq!(faults.misread.borrow().first(), Some(&(4096..8192)));
    }

    #[test]
    fn what_a_replay_gave_is_what_it_could_not_read_and_wrote_before_its_flush() {
        let faults = Faults::default();
        let note = |operation, range, fails| faults.note_replay(operation, &range, fails);
        let look = || faults.given_by_replay.borrow().clone();
        note(Operation::Read, 0..512, true);
        note(Operation::Write, 0..512, false);
        assert_eq!(look(), [], "no replay");
        faults.unread_by_replay.replace(Some(Vec::new()));
        note(Operation::Read, 0..512, false);
        note(Operation::Read, 512..2048, true);
        note(Operation::Write, 0..1024, false);
        assert_eq!((look().len(), look().first()), (1, Some(&(512..1024))));
        note(Operation::Write, 1536..4096, true);
        assert_eq!(look(), [512..1024, 1536..2048]);
        note(Operation::Flush, 0..0, false);
        note(Operation::Read, 4096..8192, true);
        note(Operation::Write, 4096..8192, false);
        assert_eq!(look().len(), 2);
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
