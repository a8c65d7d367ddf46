//! Limits the speed of a sweep: md's `sync_speed_min` and `sync_speed_max`, and what requests leave between them.
//!
//! Without requests the sweep runs as fast as the members allow, up to the maximum. Beside requests it yields by one of
//! two rules, and keeps the minimum by both:
//!
//! * A resync or recovery takes what the requests leave ([`super::turns`]).
//! * A scrub, which nothing waits for, runs at the minimum alone.
//!
//! It is pure: the caller passes the time, the load, and the times of the requests.
//!
//! Facts: md(4), `md_do_sync` and `is_mddev_idle` in `drivers/md/md.c`.

use crate::base::gate::Load;
use crate::base::served::Served;
use crate::control::sweep::turns::{POLL_INTERVAL, Turns};
use crate::seam::clock::Moment;
use std::time::Duration;

/// The time after the last request for which the array still counts as busy, for a sweep that takes turns.
const QUIET_OF_TURNS: Duration = Duration::from_millis(100);

/// The same for other sweeps.
const QUIET: Duration = Duration::from_millis(10);

/// How far a sweep that takes turns may run ahead of its minimum, to fall behind it later.
const CREDIT: Duration = Duration::from_secs(1);

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

/// What keeps a sweep from running faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldBy {
    /// The sweep yields to requests, down to [`SyncSpeed::min`].
    Requests,
    /// [`SyncSpeed::max`].
    Maximum,
}

impl HeldBy {
    /// The word in `status`; for the maximum, the name of the setting.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Maximum => "sync-speed-max",
        }
    }
}

/// The pace of one sweep.
pub(super) struct Throttle {
    window_bytes: u64,
    /// When the next window is due by the minimum, and by the maximum.
    floor: Moment,
    ceiling: Moment,
    begun: u64,
    /// Time of the last request seen.
    last_request: Option<Moment>,
    is_quiet: bool,
    /// Without it the sweep runs at the minimum beside requests.
    turns: Option<Turns>,
    /// Why the next window waits, and why the last one did.
    waits_for: Option<HeldBy>,
    held_by: Option<HeldBy>,
}

impl Throttle {
    /// A sweep that runs at its minimum beside requests, in windows of `window_bytes` on each member.
    pub(super) fn at_minimum(now: Moment, load: Load, window_bytes: u64) -> Self {
        Self {
            window_bytes,
            floor: now,
            ceiling: now,
            begun: load.begun,
            last_request: None,
            is_quiet: true,
            turns: None,
            waits_for: None,
            held_by: None,
        }
    }

    /// A sweep that takes what requests leave, with at most `in_flight_bytes` in flight on each member.
    pub(super) fn in_turns(now: Moment, load: Load, window_bytes: u64, in_flight_bytes: u64) -> Self {
        let turns = Some(Turns::new(window_bytes, in_flight_bytes));
        Self { turns, ..Self::at_minimum(now, load, window_bytes) }
    }

    /// Whether the sweep needs the times of the requests, and to be called again when a window ends.
    pub(super) fn takes_turns(&self) -> bool {
        self.turns.is_some()
    }

    /// Time to wait before the next call; `None`: the next window may start. A sweep in turns calls again when a window
    /// ends, if that is earlier.
    pub(super) fn wait(&mut self, now: Moment, load: Load, served: &mut Served) -> Option<Duration> {
        if load.is_busy || load.begun != self.begun {
            self.begun = load.begun;
            self.last_request = Some(now);
        }
        let quiet = if self.takes_turns() { QUIET_OF_TURNS } else { QUIET };
        self.is_quiet = self.last_request.is_none_or(|last| now.since(last) >= quiet);
        let due = match &mut self.turns {
            Some(turns) if self.is_quiet => {
                turns.reset();
                now
            }
            Some(turns) => turns.next_due(now, served).min(self.floor),
            None if self.is_quiet => now,
            None => self.floor,
        };
        let left = due.max(self.ceiling).since(now);
        if left.is_zero() {
            return None;
        }
        self.waits_for = Some(if due < self.ceiling { HeldBy::Maximum } else { HeldBy::Requests });
        Some(left.min(POLL_INTERVAL))
    }

    /// A window starts now. Returns its bytes on each member.
    pub(super) fn start(&mut self, now: Moment, speed: SyncSpeed) -> u64 {
        let (bytes, credit) = match &mut self.turns {
            Some(turns) => (turns.start(now, self.is_quiet), CREDIT),
            None => (self.window_bytes, Duration::ZERO),
        };
        self.held_by = self.waits_for.take().or((!self.is_quiet).then_some(HeldBy::Requests));
        self.floor = next(self.floor, now, bytes, speed.min, credit);
        self.ceiling = match speed.max {
            Some(max) => next(self.ceiling, now, bytes, max.max(speed.min), Duration::ZERO),
            None => now,
        };
        bytes
    }

    /// A window has ended.
    pub(super) fn end(&mut self, now: Moment) {
        if let Some(turns) = &mut self.turns {
            turns.end(now);
        }
    }

    /// What the next window waits for, or else what the last one waited for.
    pub(super) fn held_by(&self) -> Option<HeldBy> {
        self.waits_for.or(self.held_by)
    }
}

/// When the window after one of `bytes` that starts now is due at `rate`. The window that starts now was `due` itself.
/// Lateness is made up for, up to the duration of one window. Earliness counts against the next window, up to `credit`
/// in all.
fn next(due: Moment, now: Moment, bytes: u64, rate: u64, credit: Duration) -> Moment {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    let late = now.since(due).min(cost);
    let early = due.since(now).min(credit.saturating_sub(cost));
    now + (cost + early).saturating_sub(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 512 << 10;
    const QUIET_LOAD: Load = Load { begun: 7, is_busy: false };

    /// The time of a window that nothing delays.
    const WINDOW_TIME: Duration = Duration::from_micros(100);

    fn speed(min: u64, max: Option<u64>) -> SyncSpeed {
        SyncSpeed { min: min * WINDOW, max: max.map(|max| max * WINDOW) }
    }

    /// Windows started per second by a sweep at its minimum, under a load that depends on the time.
    fn started(speed: SyncSpeed, load: impl Fn(Moment) -> Load) -> u64 {
        let mut now = Moment::default();
        let (mut throttle, mut served) = (Throttle::at_minimum(now, QUIET_LOAD, WINDOW), Served::default());
        let mut windows = 0;
        while now.nanos < 10_000_000_000 {
            match throttle.wait(now, load(now), &mut served) {
                Some(wait) => now = now + wait,
                None => {
                    throttle.start(now, speed);
                    windows += 1;
                    now = now + WINDOW_TIME;
                    throttle.end(now);
                }
            }
        }
        windows / 10
    }

    #[test]
    fn a_sweep_runs_at_the_speed_of_members_or_maximum_and_keeps_its_minimum() {
        let busy = |_| Load { begun: 8, is_busy: true };
        let quiet = |_| QUIET_LOAD;
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
    /// Requests of one length, one after the other, in the ranges of time that `is_loaded` gives.
    struct Requests<F> {
        is_loaded: F,
        length: Duration,
        now: Moment,
        served: Served,
        load: Load,
        /// Start and end of the request in flight.
        in_flight: Option<(Moment, Moment)>,
    }

    impl<F: Fn(Moment) -> bool> Requests<F> {
        /// Lets time pass, during which the request in flight is delayed by so much.
        fn pass(&mut self, step: Duration, delay: Duration) {
            let end = self.now + step;
            loop {
                self.in_flight = self.in_flight.map(|(from, until)| (from, until + delay));
                match self.in_flight {
                    Some((from, until)) if until <= end => {
                        self.served.leave(from.nanos, until.nanos);
                        (self.in_flight, self.now) = (None, until);
                    }
                    None if self.now < end && (self.is_loaded)(self.now) => {
                        self.served.enter(self.now.nanos);
                        self.load.begun += 1;
                        self.in_flight = Some((self.now, self.now + self.length));
                    }
                    _ => break,
                }
            }
            (self.now, self.load.is_busy) = (end, self.in_flight.is_some());
        }
    }

    /// Windows started per second by a sweep in turns, and what held the last one. A window delays a request by `harm`
    /// thousandths of the window's time.
    fn in_turns(
        speed: SyncSpeed,
        is_loaded: impl Fn(Moment) -> bool,
        length: Duration,
        harm: u32,
    ) -> (u64, Option<HeldBy>) {
        let (now, served, load) = (Moment::default(), Served::default(), QUIET_LOAD);
        let mut requests = Requests { is_loaded, length, now, served, load, in_flight: None };
        let mut throttle = Throttle::in_turns(now, QUIET_LOAD, WINDOW, WINDOW);
        let mut windows = 0;
        requests.pass(Duration::ZERO, Duration::ZERO);
        while requests.now.nanos < 20_000_000_000 {
            match throttle.wait(requests.now, requests.load, &mut requests.served) {
                Some(wait) => requests.pass(wait.min(WINDOW_TIME), Duration::ZERO),
                None => {
                    throttle.start(requests.now, speed);
                    windows += u64::from(requests.now.nanos >= 10_000_000_000);
                    throttle.end(requests.now + WINDOW_TIME);
                    requests.pass(WINDOW_TIME, WINDOW_TIME * harm / 1000);
                }
            }
        }
        (windows / 10, throttle.held_by())
    }

    #[test]
    fn without_requests_a_sweep_in_turns_runs_as_fast_as_members_and_maximum_allow() {
        for (speed, expected, held_by) in [
            (speed(10, None), 10_000, None),
            (speed(10, Some(50)), 50, Some(HeldBy::Maximum)),
            (speed(50, Some(10)), 50, Some(HeldBy::Maximum)),
        ] {
            let (windows, held) = in_turns(speed, |_| false, WINDOW_TIME, 0);
            assert!(windows.abs_diff(expected) <= 1 + expected / 100, "{speed:?}: {windows}, not {expected}");
            assert_eq!(held, held_by, "{speed:?}");
        }
    }

    #[test]
    fn beside_requests_that_it_does_not_delay_a_sweep_in_turns_goes_on_and_keeps_its_maximum() {
        let (windows, held) = in_turns(speed(10, None), |_| true, WINDOW_TIME * 5, 0);
        assert!(windows > 5_000, "{windows}");
        assert_eq!(held, Some(HeldBy::Requests));
        let (windows, held) = in_turns(speed(10, Some(50)), |_| true, WINDOW_TIME * 5, 0);
        assert!((45..=51).contains(&windows), "{windows}");
        assert_eq!(held, Some(HeldBy::Maximum));
    }

    #[test]
    fn beside_requests_that_it_delays_a_sweep_in_turns_yields_down_to_its_minimum() {
        let delaying = |speed| in_turns(speed, |_| true, WINDOW_TIME * 5, 30_000).0;
        let yielded = delaying(speed(1, None));
        assert!((1..600).contains(&yielded), "{yielded}");
        let floored = delaying(speed(2_000, None));
        assert!((1_800..2_100).contains(&floored), "{floored}");
    }

    #[test]
    fn occasional_requests_slow_a_sweep_in_turns_only_while_they_are_under_way() {
        // A millisecond in each second.
        let is_loaded = |now: Moment| now.nanos % 1_000_000_000 < 1_000_000;
        let (windows, _) = in_turns(SyncSpeed::default(), is_loaded, WINDOW_TIME, 0);
        assert!((8_500..9_500).contains(&windows), "{windows}");
    }

    #[test]
    fn a_sweep_at_its_minimum_names_what_holds_it() {
        let (mut throttle, mut served) =
            (Throttle::at_minimum(Moment::default(), QUIET_LOAD, WINDOW), Served::default());
        let mut held = |load, speed| {
            throttle.start(Moment::default(), speed);
            assert!(throttle.wait(Moment::default(), load, &mut served).is_some());
            throttle.held_by()
        };
        assert_eq!(held(QUIET_LOAD, speed(10, Some(50))), Some(HeldBy::Maximum));
        assert_eq!(held(Load { begun: 8, is_busy: true }, speed(10, None)), Some(HeldBy::Requests));
    }
}
