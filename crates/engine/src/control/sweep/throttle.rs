//! Limits the speed of a sweep: md's `sync_speed_min` and `sync_speed_max`.
//!
//! While requests are under way, or were a moment ago, the sweep yields: it starts windows only at the
//! minimum speed. Otherwise it runs as fast as the members allow, up to the maximum. It is pure: the caller
//! passes the time and the load.
//!
//! Facts: md(4), `md_do_sync` and `is_mddev_idle` in `drivers/md/md.c`.

use crate::base::gate::Load;
use crate::seam::clock::Moment;
use std::time::Duration;

/// The time after the last request for which the array still counts as busy.
const QUIET: Duration = Duration::from_millis(10);

/// The interval at which a waiting window checks the load.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Bounds of a sweep's speed, in bytes per second on each member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSpeed {
    /// Kept even while requests are served. Not zero.
    pub min: u64,
    /// Never exceeded, unless `min` is higher; `None`: what the members can do.
    pub max: Option<u64>,
}

impl Default for SyncSpeed {
    /// md's minimum, and no maximum.
    fn default() -> Self {
        Self { min: 1000 << 10, max: None }
    }
}

/// The pace of one sweep.
pub(super) struct Throttle {
    /// When the next window is due by the minimum, and by the maximum.
    floor: Moment,
    ceiling: Moment,
    begun: u64,
    /// Time of the last request seen.
    last_request: Option<Moment>,
}

impl Throttle {
    pub(super) fn new(now: Moment, load: Load) -> Self {
        Self { floor: now, ceiling: now, begun: load.begun, last_request: None }
    }

    /// Time to wait before the next call; `None`: the next window may start.
    pub(super) fn wait(&mut self, now: Moment, load: Load) -> Option<Duration> {
        if load.is_busy || load.begun != self.begun {
            self.begun = load.begun;
            self.last_request = Some(now);
        }
        let is_quiet = self.last_request.is_none_or(|last| now.since(last) >= QUIET);
        let due = if is_quiet { self.ceiling } else { self.floor.max(self.ceiling) };
        let left = due.since(now);
        (!left.is_zero()).then(|| left.min(POLL_INTERVAL))
    }

    /// A window of `bytes` on each member starts now.
    pub(super) fn start(&mut self, now: Moment, bytes: u64, speed: SyncSpeed) {
        self.floor = next(self.floor, now, bytes, speed.min);
        self.ceiling = match speed.max {
            Some(max) => next(self.ceiling, now, bytes, max.max(speed.min)),
            None => now,
        };
    }
}

/// When the window after one of `bytes` that starts now is due at `rate`. Lateness is made up for, up to the
/// duration of one window.
fn next(due: Moment, now: Moment, bytes: u64, rate: u64) -> Moment {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    let late = now.since(due).min(cost);
    now + cost.saturating_sub(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 512 << 10;
    const QUIET_LOAD: Load = Load { begun: 7, is_busy: false };

    /// Windows started per second, under a load that depends on the time.
    fn started(speed: SyncSpeed, load: impl Fn(Moment) -> Load) -> u64 {
        let mut now = Moment::default();
        let mut throttle = Throttle::new(now, QUIET_LOAD);
        let mut windows = 0;
        while now.nanos < 10_000_000_000 {
            match throttle.wait(now, load(now)) {
                Some(wait) => now = now + wait,
                None => {
                    throttle.start(now, WINDOW, speed);
                    windows += 1;
                    now = now + Duration::from_micros(100); // the members' time
                }
            }
        }
        windows / 10
    }

    #[test]
    fn a_sweep_runs_at_the_speed_of_members_or_maximum_and_keeps_its_minimum() {
        let busy = |_| Load { begun: 8, is_busy: true };
        let quiet = |_| QUIET_LOAD;
        let speed = |min, max: Option<u64>| SyncSpeed { min: min * WINDOW, max: max.map(|max| max * WINDOW) };
        for (speed, load, expected) in [
            (speed(10, None), &quiet as &dyn Fn(Moment) -> Load, 10_000),
            (speed(10, None), &busy, 10),
            (speed(10, Some(50)), &quiet, 50),
            (speed(10, Some(50)), &busy, 10),
            (speed(50, Some(10)), &quiet, 50),
        ] {
            let windows = started(speed, load);
            assert!(windows.abs_diff(expected) <= 1 + expected / 100, "{speed:?}: {windows}, not {expected}");
        }
    }

    #[test]
    fn occasional_requests_slow_a_sweep_only_while_they_are_under_way() {
        // A request of one millisecond, every 100 ms.
        let load = |now: Moment| {
            let number = now.nanos / 100_000_000;
            Load { begun: number, is_busy: now.nanos % 100_000_000 < 1_000_000 }
        };
        let windows = started(SyncSpeed::default(), load);
        assert!((7_500..9_500).contains(&windows), "{windows}");
    }
}
