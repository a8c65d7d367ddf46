//! Counts the requests inside and lets one closer wait until all have left.

use crate::clock::Moment;
use crate::sweep::{Load, Served};
use std::cell::{Cell, RefCell, RefMut};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

#[derive(Default)]
pub(crate) struct Gate {
    /// All inside, the unseen included.
    inside: Cell<usize>,
    unseen: Cell<usize>,
    /// Requests that ever entered.
    begun: Cell<u64>,
    closed: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    /// Those to whom closing is news.
    listening: RefCell<Vec<Waker>>,
    /// Tells the time, while requests are timed, and since when they are.
    timer: RefCell<Option<(Timer, Moment)>>,
    /// What was timed since it was last taken.
    served: RefCell<Served>,
}

/// What tells the time.
pub(crate) type Timer = Rc<dyn Fn() -> Moment>;

/// One request inside; it leaves when this is dropped.
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
    /// 1 if it is. (A word, as what has an odd byte in it is moved in odd parts, which a processor has to wait for.)
    unseen: usize,
    /// When it entered, while requests are timed.
    begun: Option<Moment>,
}

impl Gate {
    /// Enters, unless the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        if self.closed.get() {
            return None;
        }
        self.begun.set(self.begun.get() + 1);
        self.inside.set(self.inside.get() + 1);
        let begun = self.timer.borrow().as_ref().map(|(timer, _)| timer());
        if let Some(now) = begun {
            self.served.borrow_mut().enter(now);
        }
        Some(Inside { gate: self, unseen: 0, begun })
    }

    /// As [`Gate::enter`], for work of the array's own that is no load to others' eyes.
    pub(crate) fn enter_unseen(&self) -> Option<Inside<'_>> {
        if self.closed.get() {
            return None;
        }
        self.inside.set(self.inside.get() + 1);
        self.unseen.set(self.unseen.get() + 1);
        Some(Inside { gate: self, unseen: 1, begun: None })
    }

    /// What requests do just now.
    pub(crate) fn load(&self) -> Load {
        Load { begun: self.begun.get(), is_busy: self.inside.get() > self.unseen.get() }
    }

    /// From now on requests are timed, or no longer: it costs each two looks at the clock.
    pub(crate) fn time_requests(&self, timer: Option<Timer>) {
        let timer = timer.map(|timer| {
            let now = timer();
            (timer, now)
        });
        self.timer.replace(timer);
        self.served.take();
    }

    /// What was timed.
    pub(crate) fn served(&self) -> RefMut<'_, Served> {
        self.served.borrow_mut()
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
        let gate = self.gate;
        if let (Some(begun), Some((timer, since))) = (self.begun, gate.timer.borrow().as_ref())
            && begun >= *since
        {
            gate.served.borrow_mut().leave(begun, timer());
        }
        gate.unseen.set(gate.unseen.get() - self.unseen);
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
    fn closing_waits_for_those_inside_and_keeps_others_out() {
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
        let unseen = gate.enter_unseen().expect("open");
        assert_eq!(gate.load(), Load { begun: 0, is_busy: false });
        let seen = gate.enter().expect("open");
        assert_eq!(gate.load(), Load { begun: 1, is_busy: true });
        drop(unseen);
        assert_eq!(gate.load(), Load { begun: 1, is_busy: true });
        drop(seen);
        assert_eq!(gate.load(), Load { begun: 1, is_busy: false });
    }
}
