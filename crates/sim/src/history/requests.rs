//! Concurrent requests, and their effects on the truth.

use super::run::Runner;
use super::run::Simulated;
use super::step::Means;
use crate::member::SimMember;
use crate::truth::{Look, Stamp, Truth};
use engine::{ArrayError, ArrayErrorKind, Durability};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// What a life shares with the requests that it started.
pub(super) struct Shared {
    pub(super) truth: RefCell<Truth>,
    pub(super) failure: RefCell<Option<String>>,
    /// Whether requests may fail.
    pub(super) lenient: Cell<bool>,
    /// Whether a fault was set in this life, so that a sweep may end early.
    pub(super) disturbed: Cell<bool>,
    /// Whether the array is read-only for a while.
    pub(super) is_paused: Cell<bool>,
    /// How many faults have changed bytes silently.
    pub(super) silent: Cell<u32>,
    /// Whether a request failed that changes something.
    pub(super) failed: Cell<bool>,
    /// Whether the array shows what may not be on stable storage and is no answered write: discarded bytes, which read
    /// as zeros or not, and writes in doubt that the assembly found in the write buffer.
    pub(super) unflushed: Cell<bool>,
    pub(super) under_way: Cell<usize>,
    pub(super) waiting: RefCell<Option<Waker>>,
}

impl Shared {
    pub(super) fn fail(&self, what: impl FnOnce() -> String) {
        self.failure.borrow_mut().get_or_insert_with(what);
    }

    /// The result of a request, if it succeeded. A failure is reported unless it is allowed.
    pub(super) fn expect<T>(&self, what: &str, result: Result<T, ArrayError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.lenient.get() {
                    self.fail(|| format!("{what} failed, which is not allowed here: {error}"));
                }
                None
            }
        }
    }

    pub(super) fn check(&self, at: usize, found: &[u8], asked: Stamp) {
        if let Err(wrong) = self.truth.borrow().check(at, found, Look::Reader(asked)) {
            self.fail(|| wrong);
        }
    }

    /// Waits until no request is in flight.
    pub(super) async fn join(&self) {
        poll_fn(|context| {
            if self.under_way.get() == 0 {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Counts a request in flight until it is dropped.
pub(super) struct UnderWay(Rc<Shared>);

impl UnderWay {
    pub(super) fn new(shared: &Rc<Shared>) -> Self {
        shared.under_way.set(shared.under_way.get() + 1);
        Self(shared.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        if self.0.under_way.get() == 0
            && let Some(waker) = self.0.waiting.take()
        {
            waker.wake();
        }
    }
}

impl Runner<'_> {
    pub(super) fn write(&self, array: &Simulated, at: usize, data: Vec<u8>, stable: bool) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        let block = array.pool().copy_of(&data);
        let id = shared.truth.borrow_mut().begin(at, data);
        self.tally.count("writes");
        self.world.spawn(async move {
            let durability = if stable { Durability::Stable } else { Durability::Ordinary };
            let written = array.write(at as u64, block, durability).await;
            let is_refused = written.as_ref().is_err_and(|error| error.kind == ArrayErrorKind::ReadOnly);
            if is_refused && shared.is_paused.get() {
                return shared.truth.borrow_mut().refused(id);
            }
            match shared.expect("a write", written) {
                Some(()) => shared.truth.borrow_mut().answered(id, stable),
                None => {
                    shared.truth.borrow_mut().failed(id);
                    shared.failed.set(true);
                }
            }
            drop(under_way);
        });
    }

    pub(super) fn zero(&self, array: &Simulated, range: Range<usize>, means: Means) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        let id = shared.truth.borrow_mut().begin(range.start, vec![0; range.len()]);
        // Without redundancy, discarded bytes may read as anything.
        let means = if self.is_redundant() || means != Means::Discard { means } else { Means::Punch };
        self.world.spawn(async move {
            let (at, bytes) = (range.start as u64, range.len() as u64);
            let done = match means {
                Means::Write => array.write_zeroes(at, bytes, Durability::Ordinary).await,
                Means::Punch => array.punch_hole(at, bytes, Durability::Ordinary).await,
                Means::Discard => array.discard(at, bytes).await,
            };
            // A part of a long range may be zeroed already.
            let is_refused = done.as_ref().is_err_and(|error| error.kind == ArrayErrorKind::ReadOnly);
            if is_refused && shared.is_paused.get() {
                shared.truth.borrow_mut().failed(id);
                return shared.failed.set(true);
            }
            match shared.expect("zeroing", done) {
                Some(()) if means != Means::Discard => shared.truth.borrow_mut().answered(id, false),
                Some(()) => {
                    shared.truth.borrow_mut().failed(id); // zeros, or the contents before
                    shared.unflushed.set(true);
                }
                None => {
                    shared.truth.borrow_mut().failed(id);
                    shared.failed.set(true);
                }
            }
            drop(under_way);
        });
    }

    /// Reads a range, and then the next ranges of the same length, `reads` in all.
    pub(super) fn read_on(&self, array: &Simulated, range: Range<usize>, reads: u32) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        let silent: Vec<_> = self.members.iter().map(SimMember::faults).collect();
        self.world.spawn(async move {
            let end = (range.start + range.len() * reads as usize).min(array.bytes() as usize);
            for at in (range.start..end).step_by(range.len()) {
                let asked = shared.truth.borrow_mut().start_reading();
                let bytes = range.len().min(end - at);
                let read = array.read(at as u64, array.pool().take(bytes)).await;
                // Silent changes that are not yet recorded in the truth are judged later.
                let is_known = silent.iter().all(|faults| faults.silent.borrow().is_empty());
                if let Some(found) = shared.expect("a read", read).filter(|_| is_known) {
                    shared.check(at, &found, asked);
                }
                shared.truth.borrow_mut().stop_reading();
            }
            drop(under_way);
        });
    }

    pub(super) fn flush(&self, array: &Simulated) {
        let (array, shared, under_way) = (array.clone(), self.shared.clone(), UnderWay::new(&self.shared));
        let asked = shared.truth.borrow_mut().moment();
        self.world.spawn(async move {
            match shared.expect("a flush", array.flush().await) {
                Some(()) => shared.truth.borrow_mut().flushed(asked),
                None => shared.failed.set(true),
            }
            drop(under_way);
        });
    }

    /// Starts a resync beside the requests. No step waits for it.
    pub(super) fn resync(&self, array: &Simulated) {
        let (array, shared) = (array.clone(), self.shared.clone());
        self.tally.count("resyncs");
        self.world.spawn(async move {
            let resynced = array.resync(&|_, _| {}).await;
            if !shared.disturbed.get() {
                shared.expect("a resync", resynced);
            }
        });
    }
}
