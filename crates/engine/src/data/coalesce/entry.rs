//! Writes that wait for each other, and the work that carries them out.
//!
//! The work belongs to all its callers: whichever of them is the driver polls
//! it, and when that one is dropped another goes on. Only when all are gone
//! is the work dropped as well. An entry that nobody joins needs none: its only
//! caller writes it.

use crate::base::range_lock::OwnedLock;
use crate::base::write_set::WriteSet;
use crate::data::coalesce::streams::{Arrival, StreamKey};
use crate::seam::error::{ArrayError, ArrayErrorKind};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

pub(super) type Outcome = Result<(), ArrayError>;

/// Names a request among all of an array.
pub(super) type RequestId = u64;

/// How far an entry has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Others may join.
    Gathering,
    /// Nobody joins any more.
    Closed,
    /// Its stripes are being written, by itself or by the one before it.
    Started,
    /// All members have its data, or it failed.
    Done,
}

struct Caller {
    request: RequestId,
    /// `None` of one that only waits for others.
    arrival: Option<Arrival>,
    waker: Option<Waker>,
}

/// Writes to one stripe, or a run of full stripes.
pub(super) struct Entry {
    pub(super) stripes: Range<u64>,
    pub(super) phase: Cell<Phase>,
    pub(super) patches: RefCell<WriteSet>,
    /// The stream that fills it.
    pub(super) stream: Cell<Option<StreamKey>>,
    /// Whether the array waits for it, because callers were answered already.
    pub(super) kept: Cell<bool>,
    /// Asked for when the entry was made; so whatever is asked later waits for it.
    pub(super) lock: RefCell<Option<OwnedLock>>,
    /// Wakes the work, which waits for the entry to be closed.
    closing: RefCell<Option<Waker>>,
    work: RefCell<Option<Pin<Box<dyn Future<Output = Outcome>>>>>,
    callers: RefCell<SmallVec<[Caller; 1]>>,
    /// Who polls the work.
    driver: Cell<Option<RequestId>>,
    outcome: RefCell<Option<Outcome>>,
    /// The entry that writes this one's data along with its own.
    carrier: RefCell<Option<Rc<Entry>>>,
}

impl Entry {
    pub(super) fn new(stripes: Range<u64>, lock: OwnedLock) -> Self {
        Self {
            stripes,
            phase: Cell::new(Phase::Gathering),
            patches: RefCell::default(),
            stream: Cell::new(None),
            kept: Cell::new(false),
            lock: RefCell::new(Some(lock)),
            closing: RefCell::default(),
            work: RefCell::default(),
            callers: RefCell::default(),
            driver: Cell::new(None),
            outcome: RefCell::default(),
            carrier: RefCell::default(),
        }
    }

    /// Gives it the work; dropped undone when every caller is.
    pub(super) fn set_work(&self, work: impl Future<Output = Outcome> + 'static) {
        *self.work.borrow_mut() = Some(Box::pin(work));
    }

    /// Whether it was given its work. Not to be asked while that is polled.
    pub(super) fn has_work(&self) -> bool {
        self.work.borrow().is_some()
    }

    /// One more waits for it, with the write that arrived so, if any.
    pub(super) fn add_caller(&self, request: RequestId, arrival: Option<Arrival>) {
        if let Some(carrier) = &*self.carrier.borrow() {
            return carrier.add_caller(request, arrival);
        }
        self.callers.borrow_mut().push(Caller { request, arrival, waker: None });
    }

    /// Adds the requests that wait here and arrived as `is_meant` says.
    pub(super) fn list_requests(&self, is_meant: impl Fn(Arrival) -> bool, to: &mut Vec<RequestId>) {
        let callers = self.callers.borrow();
        let meant = callers.iter().filter(|caller| caller.arrival.is_some_and(&is_meant));
        to.extend(meant.map(|caller| caller.request));
    }

    pub(super) fn has_several_callers(&self) -> bool {
        self.callers.borrow().len() > 1
    }

    /// Whether its data is on the members, or could not be written.
    pub(super) fn is_done(&self) -> bool {
        self.carrier.borrow().as_ref().map_or(self.phase.get(), |carrier| carrier.phase.get()) == Phase::Done
    }

    /// Whether its data could not be written; known of kept ones. What members have no room for is owed, and can be read.
    pub(super) fn has_failed(&self) -> bool {
        let failed = |entry: &Entry| matches!(&*entry.outcome.borrow(), Some(Err(error)) if error.kind != ArrayErrorKind::NoSpace);
        self.carrier.borrow().as_ref().map_or_else(|| failed(self), |carrier| failed(carrier))
    }

    /// Lets nobody join any more.
    pub(super) fn close(&self) {
        if self.phase.get() == Phase::Gathering {
            self.phase.set(Phase::Closed);
            if let Some(waker) = self.closing.take() {
                waker.wake();
            }
        }
    }

    /// Waits until its stripes are locked for it.
    pub(super) async fn locked(&self) {
        poll_fn(|context| match &*self.lock.borrow() {
            Some(lock) => lock.poll_granted(context),
            None => unreachable!("a lock is there until the work is started"),
        })
        .await;
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        poll_fn(|context| {
            if self.phase.get() != Phase::Gathering {
                return Poll::Ready(());
            }
            self.closing.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Takes over the callers of `other`, whose data this one writes.
    pub(super) fn carry(self: &Rc<Self>, other: &Entry) {
        other.phase.set(Phase::Started);
        other.work.take();
        self.callers.borrow_mut().extend(other.callers.take());
        other.carrier.replace(Some(self.clone()));
    }

    /// Goes on with the work, or waits for whoever does.
    pub(super) fn poll(self: &Rc<Self>, request: RequestId, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Some(carrier) = &*self.carrier.borrow() {
            return carrier.poll(request, context);
        }
        if let Some(outcome) = &*self.outcome.borrow() {
            return Poll::Ready(outcome.clone());
        }
        if self.driver.get().is_some_and(|driver| driver != request) {
            let mut callers = self.callers.borrow_mut();
            let caller = callers.iter_mut().find(|caller| caller.request == request);
            caller.expect("it waits here").waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.driver.set(Some(request));
        let mut work = self.work.take().expect("work that is not done is there");
        match work.as_mut().poll(context) {
            Poll::Ready(outcome) => {
                self.phase.set(Phase::Done);
                drop(work); // with its locks, before anybody hears of it
                self.finish(request, &outcome);
                Poll::Ready(outcome)
            }
            Poll::Pending => {
                self.work.replace(Some(work));
                Poll::Pending
            }
        }
    }

    fn finish(&self, driver: RequestId, outcome: &Outcome) {
        let callers = self.callers.take();
        if callers.len() > 1 || self.kept.get() {
            self.outcome.replace(Some(outcome.clone()));
        }
        let others = callers.into_iter().filter(|caller| caller.request != driver);
        others.filter_map(|caller| caller.waker).for_each(Waker::wake);
    }

    /// A caller is gone. Another drives the work then; true when there is none
    /// left, and the work was dropped.
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
            self.work.take();
            return true;
        }
        if self.driver.get().is_none_or(|driver| driver == request) {
            self.driver.set(None);
            // One that was never polled becomes the driver by itself.
            callers.iter_mut().filter_map(|caller| caller.waker.take()).take(1).for_each(Waker::wake);
        }
        false
    }
}
