//! Locks on ranges of numbers (bytes of an array or of its members), granted in the order of the requests.
//!
//! A request waits for every earlier one that overlaps it, granted or waiting, so
//! none starves. Ranges that do not overlap never wait for each other. Two shared
//! locks may overlap. A request that is dropped while it waits leaves no trace.
//! The table is a short list: it holds tens of requests, not thousands.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Shared,
    Exclusive,
}

struct LockRequest {
    ticket: u64,
    range: Range<u64>,
    mode: Mode,
    granted: bool,
    waker: Option<Waker>,
}

impl LockRequest {
    fn conflicts(&self, other: &LockRequest) -> bool {
        (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

/// A table of locked ranges.
#[derive(Default)]
pub struct RangeLocks {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    tickets: u64,
    /// In the order of the requests, which is that of their tickets.
    requests: Vec<LockRequest>,
    /// How many requests are not granted yet.
    waiting: usize,
}

impl RangeLocks {
    /// Waits until nothing earlier overlaps `range`.
    pub fn exclusive(&self, range: Range<u64>) -> Locking<'_> {
        Locking { locks: self, request: Some((range, Mode::Exclusive)), ticket: None }
    }

    /// Waits until no earlier exclusive lock overlaps `range`.
    pub(crate) fn shared(&self, range: Range<u64>) -> Locking<'_> {
        Locking { locks: self, request: Some((range, Mode::Shared)), ticket: None }
    }

    /// Requests an exclusive lock at once; any task may wait for it later.
    pub(crate) fn request_exclusive(self: &Rc<Self>, range: Range<u64>) -> OwnedLock {
        let ticket = self.state.borrow_mut().enter(range, Mode::Exclusive);
        OwnedLock { locks: self.clone(), ticket }
    }

    /// Whether an exclusive lock on any part of `range` is held or waited for.
    pub(crate) fn is_wanted_exclusively(&self, range: &Range<u64>) -> bool {
        let overlaps = |request: &LockRequest| request.range.start < range.end && range.start < request.range.end;
        self.state.borrow().requests.iter().any(|request| request.mode == Mode::Exclusive && overlaps(request))
    }

    /// Whether a lock on any part of `range` is held or waited for.
    pub(crate) fn is_wanted(&self, range: &Range<u64>) -> bool {
        let overlaps = |request: &LockRequest| request.range.start < range.end && range.start < request.range.end;
        self.state.borrow().requests.iter().any(overlaps)
    }

    /// Widens what waits to whole units. Each request keeps its place, so the order in which they are granted stays.
    pub(crate) fn widen_waiting(&self, unit: u64) {
        for request in self.state.borrow_mut().requests.iter_mut().filter(|request| !request.granted) {
            let Range { start, end } = request.range;
            request.range = start / unit * unit..end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        }
    }

    fn release(&self, ticket: u64) {
        let mut wake = smallvec::SmallVec::<[Waker; 4]>::new();
        {
            let state = &mut *self.state.borrow_mut();
            let removed = state.index_of(ticket);
            state.waiting -= usize::from(!state.requests.remove(removed).granted);
            if state.waiting == 0 {
                return;
            }
            for index in removed..state.requests.len() {
                let (earlier, rest) = state.requests.split_at_mut(index);
                let request = &mut rest[0];
                if !request.granted && !earlier.iter().any(|e| e.conflicts(request)) {
                    request.granted = true;
                    state.waiting -= 1;
                    wake.extend(request.waker.take());
                }
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Appends a request and returns its ticket.
    fn enter(&mut self, range: Range<u64>, mode: Mode) -> u64 {
        self.tickets += 1;
        let mut request = LockRequest { ticket: self.tickets, range, mode, granted: false, waker: None };
        request.granted = !self.requests.iter().any(|earlier| earlier.conflicts(&request));
        self.waiting += usize::from(!request.granted);
        self.requests.push(request);
        self.tickets
    }

    fn index_of(&self, ticket: u64) -> usize {
        let index = self.requests.binary_search_by_key(&ticket, |request| request.ticket);
        index.expect("a lock's request is in the table until it is released")
    }

    fn find(&mut self, ticket: u64) -> &mut LockRequest {
        let index = self.index_of(ticket);
        &mut self.requests[index]
    }
}

/// An exclusive lock that belongs to the work under it and may outlive the task that requested it.
/// Dropping it releases the lock, granted or not.
pub(crate) struct OwnedLock {
    locks: Rc<RangeLocks>,
    ticket: u64,
}

impl OwnedLock {
    /// What it locks.
    pub(crate) fn range(&self) -> Range<u64> {
        self.locks.state.borrow_mut().find(self.ticket).range.clone()
    }

    /// Whether the lock is held.
    pub(crate) fn is_granted(&self) -> bool {
        self.locks.state.borrow_mut().find(self.ticket).granted
    }

    /// Ready when the lock is held.
    pub(crate) fn poll_granted(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.locks.state.borrow_mut();
        let request = state.find(self.ticket);
        if request.granted {
            return Poll::Ready(());
        }
        request.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for OwnedLock {
    fn drop(&mut self) {
        self.locks.release(self.ticket);
    }
}

/// A lock request; completes with the guard.
pub struct Locking<'a> {
    locks: &'a RangeLocks,
    request: Option<(Range<u64>, Mode)>,
    ticket: Option<u64>,
}

impl<'a> Future for Locking<'a> {
    type Output = RangeGuard<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RangeGuard<'a>> {
        let locks = self.locks;
        let state = &mut *locks.state.borrow_mut();
        if let Some((range, mode)) = self.request.take() {
            self.ticket = Some(state.enter(range, mode));
        }
        let ticket = self.ticket.expect("a lock is not polled after it was granted");
        let request = state.find(ticket);
        if request.granted {
            self.ticket = None;
            Poll::Ready(RangeGuard { locks, ticket })
        } else {
            request.waker = Some(context.waker().clone());
            Poll::Pending
        }
    }
}

impl Drop for Locking<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.locks.release(ticket);
        }
    }
}

/// Holds a range until it is dropped.
pub struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    ticket: u64,
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.locks.release(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn overlapping_exclusive_locks_are_granted_one_at_a_time_in_order() {
        let locks = RangeLocks::default();
        let first = locks.exclusive(0..10).now_or_never().expect("free");
        let mut second = locks.exclusive(5..15);
        let mut third = locks.exclusive(12..20);
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none(), "waits behind the earlier waiter it overlaps");
        assert!(locks.exclusive(20..30).now_or_never().is_some(), "a range apart does not wait");
        drop(first);
        let second = second.now_or_never().expect("granted");
        assert!((&mut third).now_or_never().is_none());
        drop(second);
        assert!(third.now_or_never().is_some());
    }

    #[test]
    fn shared_locks_overlap_and_keep_writers_out() {
        let locks = RangeLocks::default();
        let a = locks.shared(0..10).now_or_never().expect("free");
        let b = locks.shared(0..10).now_or_never().expect("shared");
        let mut writer = locks.exclusive(9..10);
        assert!((&mut writer).now_or_never().is_none());
        drop((a, b));
        assert!(writer.now_or_never().is_some());
    }

    #[test]
    fn a_waiter_that_is_dropped_lets_the_next_pass() {
        let locks = RangeLocks::default();
        let _held = locks.shared(0..10).now_or_never().expect("free");
        let mut writer = locks.exclusive(0..10);
        assert!((&mut writer).now_or_never().is_none());
        let mut reader = locks.shared(0..10);
        assert!((&mut reader).now_or_never().is_none());
        drop(writer);
        assert!(reader.now_or_never().is_some());
    }
}
