//! Real time: the engine's [`Clock`] on the system's monotonic clock.
//!
//! Sleeping tasks wait in a map ordered by deadline. The executor passes the earliest deadline to the kernel as the
//! timeout of its one wait. So a timer costs no system call, and a dropped sleep leaves nothing behind. Setting the
//! system's date never affects a sleep. Source: clock_gettime(2).

use crate::executor::Core;
use engine::{Clock, Moment};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A deadline, and a number that orders equal deadlines by their registration.
type Key = (Instant, u64);

#[derive(Default)]
pub(crate) struct Timers {
    waiting: RefCell<BTreeMap<Key, Waker>>,
    sequence: Cell<u64>,
}

impl Timers {
    fn add(&self, deadline: Instant, waker: Waker) -> Key {
        let key = (deadline, self.sequence.replace(self.sequence.get() + 1));
        self.waiting.borrow_mut().insert(key, waker);
        key
    }

    /// Wakes every task whose deadline has passed, earliest first.
    pub(crate) fn fire(&self) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        let now = Instant::now();
        loop {
            let mut waiting = self.waiting.borrow_mut();
            let Some(first) = waiting.first_entry().filter(|first| first.key().0 <= now) else { return };
            let waker = first.remove();
            drop(waiting);
            waker.wake();
        }
    }

    /// The time until the earliest deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        let waiting = self.waiting.borrow();
        let ((deadline, _), _) = waiting.first_key_value()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }
}

/// The system's clock. Sleeping needs the thread's [`crate::Executor`]; reading the time does not.
#[derive(Debug, Clone)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock that starts at 0 now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Moment {
        Moment::default() + self.start.elapsed()
    }

    fn sleep_until(&self, moment: Moment) -> impl Future<Output = ()> + use<> {
        Sleep { deadline: self.start.checked_add(Duration::from_nanos(moment.nanos)), timer: None }
    }

    fn wall(&self) -> Duration {
        // A clock set before 1970 counts as 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

struct Sleep {
    /// `None` when the deadline is beyond the range of the system's clock.
    deadline: Option<Instant>,
    timer: Option<(Rc<Core>, Key)>,
}

impl Sleep {
    fn cancel(&mut self) {
        if let Some((core, key)) = self.timer.take() {
            core.timers.waiting.borrow_mut().remove(&key);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        self.cancel();
        if deadline <= Instant::now() {
            return Poll::Ready(());
        }
        let core = Core::current();
        let key = core.timers.add(deadline, context.waker().clone());
        self.timer = Some((core, key));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}
