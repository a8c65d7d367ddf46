//! Timeouts for hung members: an operation that has not ended within the timeout is
//! abandoned.
//!
//! Operations do not read the clock. An operation that does not end at once is listed here with
//! the tick at which it began ([`crate::device::transfer::bare`]). A tick is a fraction of the timeout, and a
//! background task advances it ([`crate::control::hung`]). Without that task or without a timeout no operation
//! is abandoned.
//!
//! * An abandoned operation goes on at the member, with its memory ([`crate::base::buffer`]); no task waits for it.
//! * A member that timed out is not read where other members have the data, until it answers read repair
//!   ([`crate::control::read_repair`]). If it times out there too, it is ejected, as after a write that timed out. An
//!   abandoned write may still arrive at any time, so the ejected member's contents are never trusted again.
//!
//! Fact: 30 s is the timeout of a SCSI command in Linux (`SD_TIMEOUT` in `drivers/scsi/sd.h`).

use std::cell::RefCell;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The default timeout of one operation, which is that of a SCSI command in Linux.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Ticks in a timeout: an operation is abandoned after this many ticks and before one more.
pub(crate) const TICKS: u64 = 8;

/// While no timeout is set, the interval at which the setting is read again.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// An operation that has not ended at its first poll.
struct PendingOperation {
    begun: u64,
    waker: Option<Waker>,
    is_abandoned: bool,
}

/// The pending operations of one member, each in a slot.
#[derive(Default)]
pub(crate) struct PendingOperations {
    slots: RefCell<Vec<Option<PendingOperation>>>,
    free: RefCell<Vec<usize>>,
}

/// The slot of one operation; dropping this frees it.
pub(super) struct PendingSlot<'a> {
    table: &'a PendingOperations,
    index: Option<usize>,
}

impl PendingSlot<'_> {
    /// Ready when the operation is abandoned.
    pub(super) fn poll(&mut self, tick: u64, context: &Context<'_>) -> Poll<()> {
        let slots = &mut *self.table.slots.borrow_mut();
        let index = *self.index.get_or_insert_with(|| {
            self.table.free.borrow_mut().pop().unwrap_or_else(|| {
                slots.push(None);
                slots.len() - 1
            })
        });
        let operation =
            slots[index].get_or_insert_with(|| PendingOperation { begun: tick, waker: None, is_abandoned: false });
        if operation.is_abandoned {
            return Poll::Ready(());
        }
        if !operation.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            operation.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for PendingSlot<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.table.slots.borrow_mut()[index] = None;
            self.table.free.borrow_mut().push(index);
        }
    }
}

impl PendingOperations {
    /// For an operation that begins; it takes a slot when it is first polled.
    pub(super) fn slot(&self) -> PendingSlot<'_> {
        PendingSlot { table: self, index: None }
    }

    /// Abandons all operations, because the member was ejected.
    pub(crate) fn abandon(&self) {
        self.abandon_before(u64::MAX);
    }

    /// Abandons the operations that began more than [`TICKS`] before `tick`; true when there was any.
    pub(crate) fn abandon_before(&self, tick: u64) -> bool {
        let is_late = |operation: &&mut PendingOperation| !operation.is_abandoned && operation.begun + TICKS < tick;
        let late: Vec<Option<Waker>> = {
            let mut slots = self.slots.borrow_mut();
            let late = slots.iter_mut().flatten().filter(is_late);
            late.map(|operation| {
                operation.is_abandoned = true;
                operation.waker.take()
            })
            .collect()
        };
        let is_any = !late.is_empty();
        late.into_iter().flatten().for_each(Waker::wake);
        is_any
    }
}
