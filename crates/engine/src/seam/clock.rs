//! The seam to time. Real time, virtual time and a test's manual time implement it.
//!
//! The engine has no other source of time.

use std::future::Future;
use std::ops::Add;
use std::time::Duration;

/// A point on a [`Clock`]'s own monotonic line, in nanoseconds since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment {
    /// Nanoseconds since the clock's start.
    pub nanos: u64,
}

impl Moment {
    /// Time passed since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment { nanos: self.nanos.saturating_add(nanos) }
    }
}

/// A source of time that a task can wait on.
pub trait Clock: Clone + 'static {
    /// The present moment; never goes back.
    fn now(&self) -> Moment;

    /// Completes at `moment` or, when that has passed, at once.
    fn sleep_until(&self, moment: Moment) -> impl Future<Output = ()> + use<Self>;

    /// Wall-clock time since the Unix epoch, for superblock times only.
    fn wall(&self) -> Duration;
}
