//! Locks on ranges of numbers (stripes, bytes), granted in the order asked.
//!
//! A range waits for every earlier overlapping one, held or waiting, so that
//! nobody starves; ranges that do not overlap never wait for each other. Two
//! shared locks may overlap. A lock given up while still waiting leaves no
//! trace. The tables are short lists: depth is tens, not thousands.

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
pub(crate) struct RangeLocks {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    tickets: u64,
    /// In the order asked for, so of their tickets.
    entries: Vec<LockRequest>,
    /// How many of them are not granted.
    waiting: usize,
}

impl RangeLocks {
    /// Waits until nothing earlier overlaps `range`.
    pub(crate) fn exclusive(&self, range: Range<u64>) -> Locking<'_> {
        Locking { locks: self, request: Some((range, Mode::Exclusive)), ticket: None }
    }

    /// Waits until no earlier exclusive lock overlaps `range`.
    pub(crate) fn shared(&self, range: Range<u64>) -> Locking<'_> {
        Locking { locks: self, request: Some((range, Mode::Shared)), ticket: None }
    }

    /// Asks for an exclusive lock now, whoever waits for it later.
    pub(crate) fn request_exclusive(self: &Rc<Self>, range: Range<u64>) -> OwnedLock {
        let ticket = self.state.borrow_mut().enter(range, Mode::Exclusive);
        OwnedLock { locks: self.clone(), ticket }
    }

    /// Whether somebody holds or waits for an exclusive lock on any of `range`.
    pub(crate) fn is_wanted_exclusively(&self, range: &Range<u64>) -> bool {
        let overlaps = |entry: &LockRequest| entry.range.start < range.end && range.start < entry.range.end;
        self.state.borrow().entries.iter().any(|entry| entry.mode == Mode::Exclusive && overlaps(entry))
    }

    fn release(&self, ticket: u64) {
        let mut wake = smallvec::SmallVec::<[Waker; 4]>::new();
        {
            let state = &mut *self.state.borrow_mut();
            let place = state.place_of(ticket);
            state.waiting -= usize::from(!state.entries.remove(place).granted);
            if state.waiting == 0 {
                return;
            }
            for index in place..state.entries.len() {
                let (earlier, rest) = state.entries.split_at_mut(index);
                let entry = &mut rest[0];
                if !entry.granted && !earlier.iter().any(|e| e.conflicts(entry)) {
                    entry.granted = true;
                    state.waiting -= 1;
                    wake.extend(entry.waker.take());
                }
            }
        }
        wake.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Adds an entry behind all others and gives its ticket.
    fn enter(&mut self, range: Range<u64>, mode: Mode) -> u64 {
        self.tickets += 1;
        let mut entry = LockRequest { ticket: self.tickets, range, mode, granted: false, waker: None };
        entry.granted = !self.entries.iter().any(|earlier| earlier.conflicts(&entry));
        self.waiting += usize::from(!entry.granted);
        self.entries.push(entry);
        self.tickets
    }

    fn place_of(&self, ticket: u64) -> usize {
        let place = self.entries.binary_search_by_key(&ticket, |entry| entry.ticket);
        place.expect("what was asked for is in the table")
    }

    fn find(&mut self, ticket: u64) -> &mut LockRequest {
        let place = self.place_of(ticket);
        &mut self.entries[place]
    }
}

/// An exclusive lock that belongs to what is done under it, not to who asked:
/// given up, granted or not, when dropped.
pub(crate) struct OwnedLock {
    locks: Rc<RangeLocks>,
    ticket: u64,
}

impl OwnedLock {
    /// Whether it is held.
    pub(crate) fn is_granted(&self) -> bool {
        self.locks.state.borrow_mut().find(self.ticket).granted
    }

    /// Ready when it is held.
    pub(crate) fn poll_granted(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.locks.state.borrow_mut();
        let entry = state.find(self.ticket);
        if entry.granted {
            return Poll::Ready(());
        }
        entry.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for OwnedLock {
    fn drop(&mut self) {
        self.locks.release(self.ticket);
    }
}

/// A lock that was asked for; completes with its guard.
pub(crate) struct Locking<'a> {
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
        let entry = state.find(ticket);
        if entry.granted {
            self.ticket = None;
            Poll::Ready(RangeGuard { locks, ticket })
        } else {
            entry.waker = Some(context.waker().clone());
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
pub(crate) struct RangeGuard<'a> {
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
    fn a_waiter_that_gives_up_lets_the_next_pass() {
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
