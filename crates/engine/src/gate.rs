//! Counts the requests inside and lets one closer wait until all have left.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

#[derive(Default)]
pub(crate) struct Gate {
    inside: Cell<usize>,
    closed: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    /// Those to whom closing is news.
    listening: RefCell<Vec<Waker>>,
}

/// One request inside; it leaves when this is dropped.
pub(crate) struct Inside<'a>(&'a Gate);

impl Gate {
    /// Enters, unless the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        if self.closed.get() {
            return None;
        }
        self.inside.set(self.inside.get() + 1);
        Some(Inside(self))
    }

    /// Whether nobody is let in any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Waits for `moment`, or until the gate is closed; true when it is.
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

    /// Lets nobody in any more, and waits for those inside.
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
        let gate = self.0;
        gate.inside.set(gate.inside.get() - 1);
        if gate.inside.get() == 0 {
            gate.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn closing_waits_for_those_inside_and_keeps_others_out() {
        let gate = Gate::default();
        let inside = gate.enter().expect("open");
        let mut closing = Box::pin(gate.close());
        assert!((&mut closing).now_or_never().is_none());
        assert!(gate.enter().is_none());
        drop(inside);
        assert!(closing.now_or_never().is_some());
    }
}
