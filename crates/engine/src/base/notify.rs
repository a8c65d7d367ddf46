//! Wakes waiting tasks when something has changed; carries no value.
//!
//! A waiter names the state that it has seen. So it cannot miss a change between
//! its look and its wait.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A counter of changes that tasks can wait on.
#[derive(Default)]
pub(crate) struct Signal {
    changes: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

/// The number of changes at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Signal {
    /// Announces a change and wakes all waiters.
    pub(crate) fn raise(&self) {
        self.changes.set(self.changes.get() + 1);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Whether it was never raised.
    pub(crate) fn is_untouched(&self) -> bool {
        self.changes.get() == 0
    }

    /// The present state, to wait for a later one.
    pub(crate) fn seen(&self) -> Seen {
        Seen(self.changes.get())
    }

    /// Waits until something has changed since `seen`.
    pub(crate) async fn changed_since(&self, seen: Seen) {
        poll_fn(|context| {
            if self.changes.get() != seen.0 {
                return Poll::Ready(());
            }
            // A task that waits for several things is polled for each of them.
            let waiting = &mut *self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_change_between_the_look_and_the_wait_is_not_missed() {
        let signal = Signal::default();
        let seen = signal.seen();
        let mut waiting = Box::pin(signal.changed_since(seen));
        assert!((&mut waiting).now_or_never().is_none());
        signal.raise();
        assert!(waiting.now_or_never().is_some());
        assert!(signal.changed_since(seen).now_or_never().is_some());
        assert!(signal.changed_since(signal.seen()).now_or_never().is_none());
    }
}
