//! What the result of a transfer means for the device: errors that count, ranges for read repair, bad blocks that are
//! good again, and data that the member owes.
//!
//! Does no I/O and ejects nothing: the caller gets every error.

use crate::base::buffer::{Block, Buffer};
use crate::device::in_use::Device;
use crate::device::owed::Content;
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use crate::seam::observe::Why;
use format::units::ComponentByte;
use std::ops::Range;

fn is_lack_of_space(result: &Result<(), MemberError>) -> bool {
    result.as_ref().is_err_and(|error| error.kind == MemberErrorKind::NoSpace)
}

impl<M: Member> Device<M> {
    /// Counts an error of the member, and logs the first. Checksum mismatches are counted
    /// separately, each block once ([`Device::corrupt_blocks`]).
    pub(super) fn note(&self, result: &Result<(), MemberError>) {
        let Err(error) = result else { return };
        // Lack of space is no fault of the member; the caller gets the error.
        if matches!(error.kind, MemberErrorKind::Corrupt | MemberErrorKind::NoSpace) {
            return;
        }
        if self.activity.count_error() {
            tracing::warn!("{}: {error}; its status counts further errors", self.name);
        }
    }

    /// As [`Device::note`], of a read. A sweep or read repair that reads a range again whose error was counted does not
    /// count it again.
    pub(super) fn note_read(&self, at: ComponentByte, bytes: u64, result: &Result<(), MemberError>, why: Why) {
        let Err(error) = result else { return };
        let is_news = !error.is_medium_error() || self.faults.count(at.0..at.0 + bytes);
        if is_news || why != Why::Sweep {
            self.note(result);
        }
    }

    /// Queues a failed read for read repair.
    pub(crate) fn note_unread(&self, at: ComponentByte, bytes: u64, result: &Result<(), MemberError>) {
        if let Err(error) = result {
            self.reach.read_failed(!error.is_medium_error());
            self.queue_for_repair(at.0..at.0 + bytes);
        }
    }

    /// Queues a range for read repair, and wakes it.
    pub(crate) fn queue_for_repair(&self, range: Range<u64>) {
        self.faults.queue(range);
        self.context.read_error_pending.raise();
    }

    /// After a successful write the range's bad blocks are good again, and it owes nothing there.
    pub(crate) fn note_written(&self, at: ComponentByte, bytes: u64, result: &Result<(), MemberError>) {
        if result.is_ok() {
            self.faults.written(&(at.0..at.0 + bytes));
            self.note_paid(&(at.0..at.0 + bytes));
        }
        if result.is_ok() && !self.bad.is_empty() && self.bad.written(&(at.0..at.0 + bytes)) {
            self.context.read_error_pending.raise();
        }
    }

    /// After a write of `blocks` that ended with `result`: keeps them if the member had no space.
    pub(super) fn note_owed(&self, at: ComponentByte, blocks: &[Block], result: &Result<(), MemberError>) {
        if !is_lack_of_space(result) || !self.may_owe() {
            return;
        }
        let mut at = at.0;
        for block in blocks {
            // A copy, because a slice would hold the memory of the whole request.
            self.owe(at, Content::Bytes(self.context.pool.copy_of(block)));
            at += block.len() as u64;
        }
    }

    /// Whether a write without space is kept as owed ([`crate::device::owed`]).
    pub(crate) fn may_owe(&self) -> bool {
        let superblock = self.superblock.borrow();
        let has_log = superblock.ppl.is_some() || superblock.journal || self.context.stripe_log().is_some();
        superblock.level.is_redundant() && !has_log
    }

    /// As [`Device::note_owed`], of zeros.
    pub(crate) fn note_zeros_owed(&self, at: ComponentByte, bytes: u64, result: &Result<(), MemberError>) {
        if is_lack_of_space(result) && self.may_owe() {
            self.owe(at.0, Content::Zeros(bytes));
        }
    }

    fn owe(&self, at: u64, content: Content) {
        if self.owed.is_empty() {
            tracing::warn!("{}: no space for written data; it stays in memory until the member has space", self.name);
        }
        if !mutant!("owed-forgotten") {
            self.owed.put(at, content);
        }
        self.context.owed_changed.raise();
    }

    /// After a successful write of `range`: nothing of it is owed any more.
    pub(super) fn note_paid(&self, range: &Range<u64>) {
        if !self.owed.is_empty() && self.owed.remove(range) && self.owed.is_empty() {
            tracing::warn!("{}: space is available again, and all owed data is written", self.name);
            self.context.owed_changed.raise();
        }
    }

    /// The result of a read of adjacent parts, with the owed bytes overlaid. A failed read succeeds if all of its range
    /// is owed.
    pub(super) fn with_owed(
        &self,
        at: ComponentByte,
        mut result: Result<(), MemberError>,
        parts: &mut [Buffer],
    ) -> Result<(), MemberError> {
        let mut start = at.0;
        for part in parts {
            let range = start..start + part.len() as u64;
            if self.owed.touches(&range) && (result.is_ok() || self.owed.covers(&range)) {
                self.owed.cover(start, part);
                result = Ok(());
            }
            start = range.end;
        }
        result
    }
}
