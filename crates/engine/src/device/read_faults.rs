//! What reads of a member could not give: the ranges that wait for read repair, the errors that count against the
//! member, and a read without an answer that only a probe tries again.
//!
//! It repairs nothing and ejects nothing; that is control's ([`crate::control::read_repair`],
//! [`crate::control::hung`]).

use crate::base::range_set::Ranges;
use crate::device::counted::Counted;
use crate::device::read_errors::ReadErrors;
use crate::seam::clock::Moment;
use format::units::ComponentByte;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The read faults of one member, in component bytes.
#[derive(Default)]
pub(crate) struct ReadFaults {
    /// Ranges whose reads failed, for read repair.
    queued: RefCell<Ranges>,
    /// Ranges whose read errors are counted.
    counted: Counted,
    errors: ReadErrors,
    /// The first byte of a read that timed out here, and that read repair does not try again.
    unanswered: Cell<Option<ComponentByte>>,
}

impl ReadFaults {
    /// Queues a range for read repair, without waking it.
    pub(crate) fn queue(&self, range: Range<u64>) {
        self.queued.borrow_mut().add(range);
    }

    /// Takes a part of what is queued.
    pub(crate) fn take_queued(&self) -> Option<Range<u64>> {
        self.queued.borrow_mut().take_first()
    }

    /// The number of bytes that wait for read repair.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued.borrow().bytes()
    }

    /// Counts a medium error of a range; false when all of the range was counted before.
    pub(super) fn count(&self, range: Range<u64>) -> bool {
        self.counted.add(range)
    }

    /// After a write of `range`: its errors count again.
    pub(super) fn written(&self, range: &Range<u64>) {
        self.counted.written(range);
    }

    /// Adds a medium error that read repair has confirmed, and returns how many count now.
    pub(crate) fn add_error(&self, now: Moment) -> u32 {
        self.errors.add(now)
    }

    /// A read at `at` got no answer, or the probe after it, and read repair does not try it again.
    pub(crate) fn set_unanswered(&self, at: ComponentByte) {
        self.unanswered.set(Some(at));
    }

    /// Takes the position of a read that got no answer.
    pub(crate) fn take_unanswered(&self) -> Option<ComponentByte> {
        self.unanswered.take()
    }

    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.get().is_some()
    }
}
