//! Writes that wait for each other, and the task that carries them out.
//!
//! The task belongs to all its callers. One of them, the driver, polls it; when the driver is dropped, another caller
//! goes on. Only when all callers are gone is the task dropped as well. A stripe write with a single caller needs no
//! task: that caller writes it.

use crate::base::range_lock::OwnedLock;
use crate::base::write_set::WriteSet;
use crate::data::coalesce::streams::{Arrival, StreamKey};
use crate::device::write_buffer::Blocks;
use crate::seam::error::ArrayError;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The result of a write.
pub(super) type WriteResult = Result<(), ArrayError>;

/// Names a request among all requests of an array.
pub(super) type RequestId = u64;

/// How far a stripe write has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Other writes may join.
    Open,
    /// No more writes may join.
    Closed,
    /// Its stripes are being written, by itself or by the stripe write that carries it.
    Started,
    /// All members have its data, or it failed.
    Done,
}

/// A request that waits for a stripe write.
struct Caller {
    request: RequestId,
    /// `None` for a caller that only waits for other writes.
    arrival: Option<Arrival>,
    waker: Option<Waker>,
}

/// Writes to rows of one stripe, or to a run of full stripes.
pub(super) struct StripeWrite {
    pub(super) stripes: Range<u64>,
    /// The fixed unit when the rows were locked.
    pub(super) unit: Option<u32>,
    pub(super) phase: Cell<Phase>,
    pub(super) patches: RefCell<WriteSet>,
    /// The stream that fills it.
    pub(super) stream: Cell<Option<StreamKey>>,
    /// Whether the array itself waits for it, because its writes were answered already.
    pub(super) dirty: Cell<bool>,
    /// Requested when the stripe write was made or widened, so that later requests for the lock wait for it.
    pub(super) lock: RefCell<Option<OwnedLock>>,
    /// Where the write buffer holds its data, oldest first.
    pub(super) buffered: RefCell<Blocks>,
    /// Wakes the task, which waits until the stripe write is closed.
    closing: RefCell<Option<Waker>>,
    task: RefCell<Option<Pin<Box<dyn Future<Output = WriteResult>>>>>,
    callers: RefCell<SmallVec<[Caller; 1]>>,
    /// The request that polls the task.
    driver: Cell<Option<RequestId>>,
    outcome: RefCell<Option<WriteResult>>,
    /// The stripe write that writes this one's data together with its own.
    carrier: RefCell<Option<Rc<StripeWrite>>>,
}

impl StripeWrite {
    pub(super) fn new(stripes: Range<u64>, unit: Option<u32>, lock: OwnedLock) -> Self {
        Self {
            stripes,
            unit,
            phase: Cell::new(Phase::Open),
            patches: RefCell::default(),
            stream: Cell::new(None),
            dirty: Cell::new(false),
            lock: RefCell::new(Some(lock)),
            buffered: RefCell::default(),
            closing: RefCell::default(),
            task: RefCell::default(),
            callers: RefCell::default(),
            driver: Cell::new(None),
            outcome: RefCell::default(),
            carrier: RefCell::default(),
        }
    }

    /// Gives the stripe write its task, which is dropped when all callers are.
    pub(super) fn set_task(&self, task: impl Future<Output = WriteResult> + 'static) {
        *self.task.borrow_mut() = Some(Box::pin(task));
    }

    /// Whether the stripe write has a task. Must not be called while the task is polled.
    pub(super) fn has_task(&self) -> bool {
        self.task.borrow().is_some()
    }

    /// Adds a caller, with its write's arrival if it has one.
    pub(super) fn add_caller(&self, request: RequestId, arrival: Option<Arrival>) {
        if let Some(carrier) = &*self.carrier.borrow() {
            return carrier.add_caller(request, arrival);
        }
        self.callers.borrow_mut().push(Caller { request, arrival, waker: None });
    }

    /// Adds to `to` the requests that wait here and whose arrival satisfies `is_meant`.
    pub(super) fn list_requests(&self, is_meant: impl Fn(Arrival) -> bool, to: &mut Vec<RequestId>) {
        let callers = self.callers.borrow();
        let meant = callers.iter().filter(|caller| caller.arrival.is_some_and(&is_meant));
        to.extend(meant.map(|caller| caller.request));
    }

    /// Whether a request waits for it to be written.
    pub(super) fn has_waiting_callers(&self) -> bool {
        self.callers.borrow().iter().any(|caller| caller.arrival.is_some())
    }

    pub(super) fn has_several_callers(&self) -> bool {
        self.callers.borrow().len() > 1
    }

    /// Whether its data is on the members, or could not be written.
    pub(super) fn is_done(&self) -> bool {
        self.carrier.borrow().as_ref().map_or(self.phase.get(), |carrier| carrier.phase.get()) == Phase::Done
    }

    /// Whether the write buffer holds any of its data.
    pub(super) fn is_buffered(&self) -> bool {
        !self.buffered.borrow().is_empty()
    }

    /// The first byte of its data.
    pub(super) fn start(&self) -> u64 {
        self.patches.borrow().range().start
    }

    /// The component bytes that it locks until it is started: whole rows, and whole stripes where a write changes more
    /// than its rows.
    pub(super) fn locked_rows(&self) -> Range<u64> {
        self.lock.borrow().as_ref().map_or(0..0, OwnedLock::range)
    }

    /// Whether it locks any part of a range.
    pub(super) fn locks_any_of(&self, range: &Range<u64>) -> bool {
        let locked = self.locked_rows();
        locked.start < range.end && range.start < locked.end
    }

    /// Whether it locks all of a range.
    pub(super) fn locks_all_of(&self, range: &Range<u64>) -> bool {
        let locked = self.locked_rows();
        locked.start <= range.start && range.end <= locked.end
    }

    /// Whether its locks are held.
    pub(super) fn is_lock_held(&self) -> bool {
        self.lock.borrow().as_ref().is_some_and(OwnedLock::is_granted)
    }

    /// Lets no more writes join.
    pub(super) fn close(&self) {
        if self.phase.get() == Phase::Open {
            self.phase.set(Phase::Closed);
            if let Some(waker) = self.closing.take() {
                waker.wake();
            }
        }
    }

    /// Waits until the stripe write's rows are locked for it.
    pub(super) async fn locked(&self) {
        poll_fn(|context| match &*self.lock.borrow() {
            Some(lock) => lock.poll_granted(context),
            None => unreachable!("a stripe write has its lock until it is started"),
        })
        .await;
    }

    /// Waits until the stripe write is closed.
    pub(super) async fn closed(&self) {
        poll_fn(|context| {
            if self.phase.get() != Phase::Open {
                return Poll::Ready(());
            }
            self.closing.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Takes over the callers of `other`, whose data this one writes.
    pub(super) fn carry(self: &Rc<Self>, other: &StripeWrite) {
        other.phase.set(Phase::Started);
        other.task.take();
        self.callers.borrow_mut().extend(other.callers.take());
        other.carrier.replace(Some(self.clone()));
    }

    /// Drives the task, or waits for the caller that does.
    pub(super) fn poll(self: &Rc<Self>, request: RequestId, context: &mut Context<'_>) -> Poll<WriteResult> {
        if let Some(carrier) = &*self.carrier.borrow() {
            return carrier.poll(request, context);
        }
        if let Some(outcome) = &*self.outcome.borrow() {
            return Poll::Ready(outcome.clone());
        }
        if self.driver.get().is_some_and(|driver| driver != request) {
            let mut callers = self.callers.borrow_mut();
            let caller = callers.iter_mut().find(|caller| caller.request == request);
            caller.expect("a caller that polls was added").waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.driver.set(Some(request));
        let mut task = self.task.take().expect("a stripe write without outcome has its task");
        match task.as_mut().poll(context) {
            Poll::Ready(outcome) => {
                self.phase.set(Phase::Done);
                drop(task); // with its locks, before any caller learns the outcome
                self.finish(request, &outcome);
                Poll::Ready(outcome)
            }
            Poll::Pending => {
                self.task.replace(Some(task));
                Poll::Pending
            }
        }
    }

    fn finish(&self, driver: RequestId, outcome: &WriteResult) {
        let callers = self.callers.take();
        if callers.len() > 1 || self.dirty.get() {
            self.outcome.replace(Some(outcome.clone()));
        }
        let others = callers.into_iter().filter(|caller| caller.request != driver);
        others.filter_map(|caller| caller.waker).for_each(Waker::wake);
    }

    /// Removes a caller; another caller drives the task from now on. Returns true if there is none left, and the task
    /// was dropped.
    pub(super) fn leave(&self, request: RequestId) -> bool {
        if let Some(carrier) = &*self.carrier.borrow() {
            return carrier.leave(request);
        }
        if self.outcome.borrow().is_some() {
            return false;
        }
        let mut callers = self.callers.borrow_mut();
        callers.retain(|caller| caller.request != request);
        if callers.is_empty() {
            drop(callers);
            self.task.take();
            return true;
        }
        if self.driver.get().is_none_or(|driver| driver == request) {
            self.driver.set(None);
            // A caller that was never polled becomes the driver by itself.
            callers.iter_mut().filter_map(|caller| caller.waker.take()).take(1).for_each(Waker::wake);
        }
        false
    }
}
