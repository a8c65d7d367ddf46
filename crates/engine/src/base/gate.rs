//! Counts the requests in flight. A stopping array closes the gate and waits until all of them have ended.
//!
//! Knows nothing of what a request does.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

/// The load that user requests put on the array now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Requests begun since the array was assembled.
    pub(crate) begun: u64,
    /// Whether any request is in flight.
    pub(crate) is_busy: bool,
}

#[derive(Default)]
pub(crate) struct Gate {
    /// All requests inside, background work included.
    inside: Cell<usize>,
    background: Cell<usize>,
    /// User requests that have entered since the gate was made.
    begun: Cell<u64>,
    closed: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    /// Tasks in [`Gate::closes_before`], woken when the gate closes.
    listening: RefCell<Vec<Waker>>,
}

/// One request inside the gate; dropping this leaves it.
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
    /// 1 for background work, otherwise 0. A whole word, because moving a struct with a lone byte stalls the processor.
    background: usize,
}

impl Gate {
    /// Enters, unless the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        if self.closed.get() {
            return None;
        }
        self.begun.set(self.begun.get() + 1);
        self.inside.set(self.inside.get() + 1);
        Some(Inside { gate: self, background: 0 })
    }

    /// As [`Gate::enter`], for the array's own background work, which does not count as load.
    pub(crate) fn enter_background(&self) -> Option<Inside<'_>> {
        if self.closed.get() {
            return None;
        }
        self.inside.set(self.inside.get() + 1);
        self.background.set(self.background.get() + 1);
        Some(Inside { gate: self, background: 1 })
    }

    /// The present load.
    pub(crate) fn load(&self) -> Load {
        Load { begun: self.begun.get(), is_busy: self.inside.get() > self.background.get() }
    }

    /// Whether the gate refuses new requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits for `moment` or for the gate to close; true when the gate is closed.
    pub(crate) async fn closes_before(&self, moment: impl Future<Output = ()>) -> bool {
        let mut moment = pin!(moment);
        poll_fn(|context| {
            if self.closed.get() {
                return Poll::Ready(true);
            }
            if moment.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            let listening = &mut *self.listening.borrow_mut();
            if !listening.iter().any(|waker| waker.will_wake(context.waker())) {
                listening.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Refuses new requests and waits for those inside.
    pub(crate) async fn close(&self) {
        self.closed.set(true);
        self.listening.take().into_iter().for_each(Waker::wake);
        poll_fn(|context| {
            if self.inside.get() == 0 {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let gate = self.gate;
        gate.background.set(gate.background.get() - self.background);
        gate.inside.set(gate.inside.get() - 1);
        if gate.inside.get() == 0 && gate.closed.get() {
            gate.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn closing_waits_for_requests_inside_and_refuses_new_ones() {
        let gate = Gate::default();
        let inside = gate.enter().expect("open");
        let mut closing = Box::pin(gate.close());
        assert!((&mut closing).now_or_never().is_none());
        assert!(gate.enter().is_none());
        drop(inside);
        assert!(closing.now_or_never().is_some());
    }

    #[test]
    fn only_requests_count_as_load() {
        let gate = Gate::default();
        let background = gate.enter_background().expect("open");
        assert_eq!(gate.load(), Load { begun: 0, is_busy: false });
        let request = gate.enter().expect("open");
        assert_eq!(gate.load(), Load { begun: 1, is_busy: true });
        drop(background);
        assert_eq!(gate.load(), Load { begun: 1, is_busy: true });
        drop(request);
        assert_eq!(gate.load(), Load { begun: 1, is_busy: false });
    }
}
