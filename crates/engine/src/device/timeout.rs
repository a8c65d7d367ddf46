//! Members that hang: every operation of a member is given up when it has not
//! ended within a bound.
//!
//! The clock is not asked for each operation. What does not end at once is listed with
//! the tick at which it began; a tick is a part of the bound, and whoever keeps the
//! array lets them pass ([`Inner::give_up_in_time`]). With nobody to do so, or without a bound, nothing is given up.
//!
//! * What is given up goes on at the member, with its memory ([`crate::base::buffer`]); nobody waits for it.
//! * A member that gave no answer is not asked for data that others have, until it has given one
//!   to whoever heals ([`crate::control::read_repair`]). If it does not, it leaves, as one does that gave no answer to a write:
//!   what it was told may still arrive there at any time, so it is never believed again as it is.

use crate::base::buffer::Pool;
use crate::base::notify::Signal;
use crate::device::{Device, DeviceState};
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault, Operation};
use crate::seam::observe::Observer;
use format::units::MemberByte;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a member may take over one operation, when nobody says otherwise: what Linux gives a SCSI command.
pub(crate) const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Ticks in it: an operation is given up between this many of them and one more.
pub(crate) const TICKS: u64 = 8;

/// How often it is looked whether there is a bound now.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// What all members of an array have in common.
pub(crate) struct DeviceContext {
    pub(crate) pool: Pool,
    /// Raised when there may be something to heal.
    pub(crate) read_error_pending: Signal,
    /// Raised when a check got no answer of a member.
    pub(crate) unanswered: Signal,
    /// Some successor did not take what was written.
    pub(crate) is_successor_lost: Cell<bool>,
    /// Raised when a member begins or ends to owe data ([`crate::control::owed`]).
    pub(crate) owed_changed: Signal,
    /// Is told of every transfer of every member.
    pub(crate) observer: RefCell<Option<Rc<dyn Observer>>>,
    pub(crate) tick: Cell<u64>,
    pub(crate) timeout: Cell<Option<Duration>>,
}

impl DeviceContext {
    pub(crate) fn new(pool: Pool) -> Rc<Self> {
        Rc::new(Self {
            pool,
            read_error_pending: Signal::default(),
            unanswered: Signal::default(),
            is_successor_lost: Cell::new(false),
            owed_changed: Signal::default(),
            observer: RefCell::default(),
            tick: Cell::new(0),
            timeout: Cell::new(Some(TIMEOUT_DEFAULT)),
        })
    }

    /// Sets how long a member may take over one operation; `None` or zero: as long as it likes.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.set(timeout.filter(|timeout| !timeout.is_zero()));
    }

    /// How long a member may take over one operation.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout.get()
    }
}

/// An operation that did not end at once.
struct PendingOperation {
    begun: u64,
    waker: Option<Waker>,
    is_given_up: bool,
}

/// The operations of one member that did not end at once, each at its slot.
#[derive(Default)]
pub(crate) struct PendingOperations {
    slots: RefCell<Vec<Option<PendingOperation>>>,
    free: RefCell<Vec<usize>>,
}

/// The slot of one operation, given back when this is dropped.
struct PendingSlot<'a> {
    table: &'a PendingOperations,
    index: Option<usize>,
}

impl PendingSlot<'_> {
    /// Ready when the operation is given up.
    fn poll(&mut self, tick: u64, context: &Context<'_>) -> Poll<()> {
        let slots = &mut *self.table.slots.borrow_mut();
        let index = *self.index.get_or_insert_with(|| {
            self.table.free.borrow_mut().pop().unwrap_or_else(|| {
                slots.push(None);
                slots.len() - 1
            })
        });
        let entry =
            slots[index].get_or_insert_with(|| PendingOperation { begun: tick, waker: None, is_given_up: false });
        if entry.is_given_up {
            return Poll::Ready(());
        }
        if !entry.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            entry.waker = Some(context.waker().clone());
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
    /// Gives up everything: the member has left.
    pub(crate) fn give_up(&self) {
        self.give_up_before(u64::MAX);
    }

    /// Gives up what began more than [`TICKS`] before `tick`; true when there was anything.
    pub(crate) fn give_up_before(&self, tick: u64) -> bool {
        let is_late = |entry: &&mut PendingOperation| !entry.is_given_up && entry.begun + TICKS < tick;
        let late: Vec<Option<Waker>> = {
            let mut slots = self.slots.borrow_mut();
            let late = slots.iter_mut().flatten().filter(is_late);
            late.map(|entry| {
                entry.is_given_up = true;
                entry.waker.take()
            })
            .collect()
        };
        let is_any = !late.is_empty();
        late.into_iter().flatten().for_each(Waker::wake);
        is_any
    }
}

impl<M: Member> Device<M> {
    /// Waits for `work` on this member, but not for ever. The work stays where it is pinned: as an
    /// argument by value every transfer's future would hold it twice.
    pub(crate) async fn bounded<T>(
        &self,
        operation: Operation,
        (at, bytes): (MemberByte, u64),
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, MemberError> {
        let mut slot = PendingSlot { table: &self.pending, index: None };
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => slot.poll(self.context.tick.get(), context).map(|()| Err(())),
        })
        .await
        .map_err(|()| {
            let reason = match self.state.get() {
                DeviceState::Faulty => "given up, as the member has left the array",
                _ => "no answer in time",
            };
            let source = Rc::new(std::io::Error::new(std::io::ErrorKind::TimedOut, reason));
            MemberFault { kind: MemberErrorKind::TimedOut, operation, at, bytes, source }.into()
        })
    }
}
