//! Counts the requests in flight, and times them when asked to. A stopping array closes the gate and waits until all of
//! them have ended. An array that becomes read-only closes it to writes alone, and may open it again.
//!
//! Knows nothing of what a request does, and reads no clock but the one it is given.

use crate::base::served::Served;
use std::cell::{Cell, RefCell, RefMut};
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
    /// Those inside that may write to members' data.
    writes: Cell<usize>,
    /// User requests that have entered since the gate was made.
    begun: Cell<u64>,
    closed: Cell<bool>,
    closed_to_writes: Cell<bool>,
    /// Tasks that close the gate, woken when the last inside has left.
    waiting: RefCell<Vec<Waker>>,
    /// Tasks in [`Gate::closes_before`], woken when the gate closes.
    listening: RefCell<Vec<Waker>>,
    /// How many have requests timed. Requests look here first, as most of the time it is none.
    timers: Cell<u32>,
    /// Set while there are any.
    timing: RefCell<Option<Timing>>,
    served: RefCell<Served>,
}

/// Nanoseconds since the start of a clock.
type Now = Box<dyn Fn() -> u64>;

/// How user requests are timed.
struct Timing {
    now: Now,
    /// Timing began then. Requests of an earlier timing do not count.
    since: u64,
}

/// One request inside the gate; dropping this leaves it.
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
    /// The nanoseconds at which a timed request entered, or [`UNTIMED`]; with [`WRITES`], [`BACKGROUND`] or both. One word
    /// for all of them, so that the struct is passed in two registers.
    entered: u64,
}

const UNTIMED: u64 = 0;
const WRITES: u64 = 1 << 63;
const BACKGROUND: u64 = 1 << 62;

/// Has requests timed until it is dropped.
pub(crate) struct Timed<'a>(&'a Gate);

impl Gate {
    /// Enters, unless the gate is closed.
    pub(crate) fn enter(&self) -> Option<Inside<'_>> {
        if self.closed.get() {
            return None;
        }
        self.begun.set(self.begun.get() + 1);
        self.inside.set(self.inside.get() + 1);
        let entered = if self.timers.get() > 0 { self.enter_timed() } else { UNTIMED };
        Some(Inside { gate: self, entered })
    }

    /// As [`Gate::enter`], for a write.
    pub(crate) fn enter_to_write(&self) -> Option<Inside<'_>> {
        self.writing(Self::enter)
    }

    /// Enters for a write, unless the gate is closed to writes.
    fn writing<'a>(&'a self, enter: impl FnOnce(&'a Self) -> Option<Inside<'a>>) -> Option<Inside<'a>> {
        if self.closed_to_writes.get() {
            return None;
        }
        let mut inside = enter(self)?;
        inside.entered |= WRITES;
        self.writes.set(self.writes.get() + 1);
        Some(inside)
    }

    /// A timed request enters. Returns the moment.
    #[inline(never)]
    fn enter_timed(&self) -> u64 {
        let Some(now) = self.timing.borrow().as_ref().map(|timing| (timing.now)()) else { return UNTIMED };
        let now = now.clamp(UNTIMED + 1, BACKGROUND - 1); // 146 years
        self.served.borrow_mut().enter(now);
        now
    }

    /// A write leaves, background work, or a request that was timed when it entered.
    #[inline(never)]
    fn leave_special(&self, entered: u64) {
        if entered & WRITES != 0 {
            self.writes.set(self.writes.get() - 1);
        }
        if entered & BACKGROUND != 0 {
            return self.background.set(self.background.get() - 1);
        }
        let entered = entered & !WRITES;
        if entered == UNTIMED {
            return;
        }
        let timing = self.timing.borrow();
        if let Some(Timing { now, .. }) = timing.as_ref().filter(|timing| entered >= timing.since) {
            self.served.borrow_mut().leave(entered, now());
        }
    }

    /// As [`Gate::enter`], for the array's own background work, which does not count as load.
    pub(crate) fn enter_background(&self) -> Option<Inside<'_>> {
        if self.closed.get() {
            return None;
        }
        self.inside.set(self.inside.get() + 1);
        self.background.set(self.background.get() + 1);
        Some(Inside { gate: self, entered: BACKGROUND })
    }

    /// As [`Gate::enter_background`], for work that writes to members' data.
    pub(crate) fn enter_background_to_write(&self) -> Option<Inside<'_>> {
        self.writing(Self::enter_background)
    }

    /// The present load.
    pub(crate) fn load(&self) -> Load {
        Load { begun: self.begun.get(), is_busy: self.inside.get() > self.background.get() }
    }

    /// Times user requests from now on, until the result is dropped. Each request then reads the clock twice. If others
    /// have requests timed already, all share the timing, by the clock of the first.
    pub(crate) fn time_requests(&self, now: Now) -> Timed<'_> {
        if self.timers.get() == 0 {
            let since = now();
            self.served.take();
            self.timing.replace(Some(Timing { now, since }));
        }
        self.timers.set(self.timers.get() + 1);
        Timed(self)
    }

    /// What was timed since it was last taken.
    pub(crate) fn served(&self) -> RefMut<'_, Served> {
        self.served.borrow_mut()
    }

    /// Whether the gate refuses new requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Whether the gate refuses writes.
    pub(crate) fn is_closed_to_writes(&self) -> bool {
        self.closed_to_writes.get()
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
        self.wait_until(|| self.inside.get() == 0).await;
    }

    /// Refuses new writes, and waits for those inside, or until the gate is open to writes again.
    pub(crate) async fn close_to_writes(&self) {
        self.closed_to_writes.set(true);
        self.wait_until(|| self.writes.get() == 0 || !self.closed_to_writes.get()).await;
    }

    /// Takes writes again.
    pub(crate) fn open_to_writes(&self) {
        self.closed_to_writes.set(false);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Waits until `is_over`.
    async fn wait_until(&self, is_over: impl Fn() -> bool) {
        poll_fn(|context| {
            if is_over() {
                return Poll::Ready(());
            }
            let waiting = &mut *self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let gate = self.gate;
        if self.entered != UNTIMED {
            gate.leave_special(self.entered);
        }
        gate.inside.set(gate.inside.get() - 1);
        let is_last = gate.inside.get() == 0 && gate.closed.get();
        let is_last_write = gate.closed_to_writes.get() && gate.writes.get() == 0;
        if is_last || is_last_write {
            gate.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.0.timers.set(self.0.timers.get() - 1);
        if self.0.timers.get() == 0 {
            self.0.timing.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::rc::Rc;
    use std::time::Duration;

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
    fn closing_to_writes_waits_for_writes_alone_and_reads_go_on() {
        let gate = Gate::default();
        let (read, write) = (gate.enter().expect("open"), gate.enter_to_write().expect("open"));
        let background = gate.enter_background_to_write().expect("open");
        let mut closing = Box::pin(gate.close_to_writes());
        assert!((&mut closing).now_or_never().is_none());
        assert!(gate.enter_to_write().is_none() && gate.enter_background_to_write().is_none());
        assert!(gate.enter().is_some());
        drop(write);
        assert!((&mut closing).now_or_never().is_none());
        drop(background);
        assert!(closing.now_or_never().is_some());
        gate.open_to_writes();
        assert!(gate.enter_to_write().is_some());
        assert_eq!(gate.load(), Load { begun: 4, is_busy: true });
        drop(read);
        assert_eq!(gate.load(), Load { begun: 4, is_busy: false });
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

    #[test]
    fn only_user_requests_that_enter_and_leave_within_a_timing_are_timed() {
        let (gate, clock) = (Gate::default(), Rc::new(Cell::new(0)));
        let time = || {
            let clock = clock.clone();
            gate.time_requests(Box::new(move || clock.get()))
        };
        let before = gate.enter().expect("open");
        let first = time();
        let stale = gate.enter().expect("open");
        drop(first);
        clock.set(1000);
        let second = time();
        let (timed, background) = (gate.enter().expect("open"), gate.enter_background().expect("open"));
        clock.set(5000);
        drop((before, stale, timed, background));
        let served = gate.served().take(5000);
        assert_eq!((served.requests(), served.mean()), (1.0, Duration::from_nanos(4000)));
        drop(second);
        drop(gate.enter());
        assert_eq!(gate.served().take(6000).requests(), 0.0);
        assert_eq!(gate.load(), Load { begun: 4, is_busy: false });
    }

    #[test]
    fn requests_are_timed_until_the_last_user_of_the_timing_is_gone() {
        let (gate, clock) = (Gate::default(), Rc::new(Cell::new(1000)));
        let time = || {
            let clock = clock.clone();
            gate.time_requests(Box::new(move || clock.get()))
        };
        let first = time();
        let before = gate.enter().expect("open");
        let second = time();
        drop(first);
        let after = gate.enter().expect("open");
        clock.set(4000);
        drop((before, after));
        assert_eq!(gate.served().take(4000).requests(), 2.0);
        drop(second);
        drop(gate.enter());
        assert_eq!(gate.served().take(5000).requests(), 0.0);
    }
}
