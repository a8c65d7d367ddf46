//! When a sweep's windows begin: md's `sync_speed_min` and `sync_speed_max`, and what requests leave between them.
//!
//! While there are no requests the sweep goes as fast as the members do, or the ceiling lets it. Beside requests it goes in
//! turns ([`super::yielding`] says how long they are, and how often), but no slower than the floor. For that it stands still
//! now and then, so that what requests get alone is known: it does so for an eighth of the time, and never to the floor's
//! cost, as what it was ahead of that counts. Pure: told the time and the load.

use super::served::Served;
use super::yielding::Yielding;
use crate::clock::Moment;
use std::time::Duration;

/// For how long after the last request the array does not yet count as quiet.
const QUIET: Duration = Duration::from_millis(100);

/// How often the load is looked at while a window waits.
const LOOK: Duration = Duration::from_millis(5);

/// How long the sweep stands still, when requests are few and when they are many, and how many are enough.
const STILL_MAX: Duration = Duration::from_millis(250);
const STILL_MIN: Duration = Duration::from_millis(5);
const STILL_REQUESTS: f64 = 100.0;

/// So many times as long it goes on.
const BESIDE: u32 = 7;

/// Before either counts, what the other left behind has to pass, for so many turns.
const SETTLE_TURNS: u32 = 3;
const SETTLE_MIN: Duration = Duration::from_millis(1);

/// For how long the sweep may have been faster than its floor, and be slower later.
const CREDIT: Duration = Duration::from_secs(1);

/// Bounds of a sweep's speed, in bytes per second on each member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSpeed {
    /// Kept up even while requests are served. Not zero.
    pub min: u64,
    /// Never exceeded, unless `min` is more; `None`: what the members can do.
    pub max: Option<u64>,
}

impl Default for SyncSpeed {
    /// md's floor, and no ceiling.
    fn default() -> Self {
        Self { min: 1000 << 10, max: None }
    }
}

/// What requests of users do to the array just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Requests since the array was assembled.
    pub(crate) begun: u64,
    /// Whether any is under way.
    pub(crate) is_busy: bool,
}

/// What keeps a sweep from going faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldBy {
    /// It yields to them, down to [`SyncSpeed::min`].
    Requests,
    /// [`SyncSpeed::max`].
    Ceiling,
}

impl HeldBy {
    /// In a word; of the setting, its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Ceiling => "sync-speed-max",
        }
    }
}

/// Beside requests the sweep stands still and goes on in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Phase {
    is_still: bool,
    begun: Moment,
    /// Since when it counts.
    counted: Option<Moment>,
}

/// Windows that go at once, before a pause.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    begun: Moment,
    /// Bytes of each member yet to be begun.
    left: u64,
    /// When the next one may begin.
    next: Moment,
    /// What the quickest of the phase took.
    quickest: Option<Duration>,
}

/// The pace of one sweep.
pub(super) struct Throttle {
    window_bytes: u64,
    /// When the next window is due by the floor, and by the ceiling.
    floor: Moment,
    ceiling: Moment,
    begun: u64,
    /// When a request was last seen.
    last_request: Option<Moment>,
    is_quiet: bool,
    /// Windows that have begun and not ended.
    under_way: usize,
    phase: Option<Phase>,
    /// What the next phase waits for, and how long the sweep stood still last.
    settle: Duration,
    still: Duration,
    turn: Turn,
    yielding: Yielding,
    /// Why the next window waits, and why the last one did.
    waits_for: Option<HeldBy>,
    held_by: Option<HeldBy>,
}

impl Throttle {
    /// Windows have `window_bytes` on each member, of which `in_flight_bytes` are under way at the most.
    pub(super) fn new(now: Moment, load: Load, window_bytes: u64, in_flight_bytes: u64) -> Self {
        Self {
            window_bytes,
            floor: now,
            ceiling: now,
            begun: load.begun,
            last_request: None,
            is_quiet: true,
            under_way: 0,
            phase: None,
            settle: SETTLE_MIN,
            still: Duration::ZERO,
            turn: Turn::default(),
            yielding: Yielding::new(window_bytes, in_flight_bytes),
            waits_for: None,
            held_by: None,
        }
    }

    /// How long to wait before asking again, unless a window ends before; `None`: the next window may start.
    pub(super) fn wait(&mut self, now: Moment, load: Load, served: &mut Served) -> Option<Duration> {
        if load.is_busy || load.begun != self.begun {
            self.begun = load.begun;
            self.last_request = Some(now);
        }
        self.is_quiet = self.last_request.is_none_or(|last| now.since(last) >= QUIET);
        let due = if self.is_quiet {
            (self.phase, self.turn.left) = (None, 0);
            now
        } else {
            self.go_on(now, served);
            self.next_of_turn(now).min(self.floor)
        };
        let left = due.max(self.ceiling).since(now);
        if left.is_zero() {
            return None;
        }
        self.waits_for = Some(if due < self.ceiling { HeldBy::Ceiling } else { HeldBy::Requests });
        Some(left.min(LOOK))
    }

    /// When the next window may start for the requests' sake.
    fn next_of_turn(&mut self, now: Moment) -> Moment {
        if self.phase.is_none_or(|phase| phase.is_still) {
            self.turn.left = 0;
            return now + LOOK;
        }
        match (self.turn.left, self.under_way) {
            (0, 0) => self.turn.next,
            (0, _) => now + LOOK, // it ends first
            _ => now,
        }
    }

    /// Goes on to the next phase when it is time.
    fn go_on(&mut self, now: Moment, served: &mut Served) {
        let Some(Phase { is_still, begun, counted }) = self.phase else { return self.begin_phase(true, now, served) };
        let Some(counted) = counted else {
            let is_settled = served.is_fresh() && !(is_still && self.under_way > 0);
            if now.since(begun) >= if is_settled { self.settle } else { self.settle * 4 } {
                served.take(now);
                self.turn.quickest = None;
                self.phase = Some(Phase { is_still, begun, counted: Some(now) });
            }
            return;
        };
        let time = now.since(counted);
        let is_enough = time >= (self.settle * 2).clamp(STILL_MIN, STILL_MAX) && served.requests() >= STILL_REQUESTS;
        if is_still && (is_enough || time >= STILL_MAX) {
            self.still = time;
            self.yielding.note_alone(&served.take(now), time);
            self.begin_phase(false, now, served);
        } else if !is_still && time >= self.still * BESIDE {
            let beside = served.take(now);
            let turn = self.turn.quickest;
            self.settle = (turn.unwrap_or_default() * SETTLE_TURNS).max(beside.mean()).clamp(SETTLE_MIN, STILL_MAX);
            self.yielding.note_beside(&beside, time, turn);
            self.begin_phase(true, now, served);
        }
    }

    fn begin_phase(&mut self, is_still: bool, now: Moment, served: &mut Served) {
        served.take(now);
        self.phase = Some(Phase { is_still, begun: now, counted: None });
    }

    /// A window starts now; how many bytes of each member it has.
    pub(super) fn start(&mut self, now: Moment, speed: SyncSpeed) -> u64 {
        let turn_bytes = if self.is_quiet { self.window_bytes } else { self.yielding.bytes() };
        let bytes = turn_bytes.min(self.window_bytes);
        if self.under_way == 0 {
            (self.turn.begun, self.turn.left) = (now, turn_bytes);
        }
        self.turn.left = self.turn.left.saturating_sub(bytes);
        self.under_way += 1;
        self.held_by = self.waits_for.take().or((!self.is_quiet).then_some(HeldBy::Requests));
        self.floor = next(self.floor, now, bytes, speed.min, CREDIT);
        self.ceiling = match speed.max {
            Some(max) => next(self.ceiling, now, bytes, max.max(speed.min), Duration::ZERO),
            None => now,
        };
        bytes
    }

    /// A window has ended.
    pub(super) fn end(&mut self, now: Moment) {
        self.under_way -= 1;
        if self.under_way == 0 && self.turn.left == 0 {
            let took = now.since(self.turn.begun);
            self.turn.quickest = Some(self.turn.quickest.map_or(took, |quickest| quickest.min(took)));
            self.turn.next = now + self.yielding.pause(took);
        }
    }

    /// What the next window waits for, or the last one did.
    pub(super) fn held_by(&self) -> Option<HeldBy> {
        self.waits_for.or(self.held_by)
    }
}

/// When the window after one of `bytes` that starts now is due at `rate`. One that is late is made up for, by no more than
/// itself; what came early counts up to `credit`.
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

    /// What a window takes that nothing holds up.
    const TAKES: Duration = Duration::from_micros(100);

    /// Windows begun in a second, and what held the last one up, beside requests of a length one after the other, at times.
    /// A window holds a request up for a part of what it takes, in thousandths.
    fn swept(
        speed: SyncSpeed,
        is_there: impl Fn(Moment) -> bool,
        length: Duration,
        harm: u32,
    ) -> (u64, Option<HeldBy>) {
        let (mut now, mut served, mut begun) = (Moment::default(), Served::default(), 7);
        let mut throttle = Throttle::new(now, QUIET_LOAD, WINDOW, WINDOW);
        let (mut windows, mut request): (u64, Option<(Moment, Moment)>) = (0, None);
        let mut next_step = |throttle: &mut Throttle, step: Duration, held_up: Duration| {
            let end = now + step;
            loop {
                request = request.map(|(from, until)| (from, until + held_up));
                match request {
                    Some((from, until)) if until <= end => {
                        served.leave(from, until);
                        request = None;
                        now = until;
                    }
                    None if now < end && is_there(now) => {
                        served.enter(now);
                        begun += 1;
                        request = Some((now, now + length));
                    }
                    _ => break,
                }
            }
            now = end;
            (now, throttle.wait(now, Load { begun, is_busy: request.is_some() }, &mut served))
        };
        let (mut at, mut wait) = next_step(&mut throttle, Duration::ZERO, Duration::ZERO);
        while at.nanos < 20_000_000_000 {
            (at, wait) = match wait {
                Some(wait) => next_step(&mut throttle, wait.min(Duration::from_micros(100)), Duration::ZERO),
                None => {
                    throttle.start(at, speed);
                    windows += u64::from(at.nanos >= 10_000_000_000);
                    let ended = at + TAKES;
                    throttle.end(ended);
                    next_step(&mut throttle, TAKES, TAKES * harm / 1000)
                }
            };
        }
        (windows / 10, throttle.held_by())
    }

    fn speed(min: u64, max: Option<u64>) -> SyncSpeed {
        SyncSpeed { min: min * WINDOW, max: max.map(|max| max * WINDOW) }
    }

    #[test]
    fn without_requests_a_sweep_goes_as_fast_as_members_and_ceiling_let_it() {
        for (speed, expected, held_by) in [
            (speed(10, None), 10_000, None),
            (speed(10, Some(50)), 50, Some(HeldBy::Ceiling)),
            (speed(50, Some(10)), 50, Some(HeldBy::Ceiling)),
        ] {
            let (windows, held) = swept(speed, |_| false, TAKES, 0);
            assert!(windows.abs_diff(expected) <= 1 + expected / 100, "{speed:?}: {windows}, not {expected}");
            assert_eq!(held, held_by, "{speed:?}");
        }
    }

    #[test]
    fn beside_requests_that_it_does_not_harm_a_sweep_goes_on_and_keeps_its_ceiling() {
        let (windows, held) = swept(speed(10, None), |_| true, TAKES * 5, 0);
        assert!(windows > 5_000, "{windows}");
        assert_eq!(held, Some(HeldBy::Requests));
        let (windows, held) = swept(speed(10, Some(50)), |_| true, TAKES * 5, 0);
        assert!((45..=51).contains(&windows), "{windows}");
        assert_eq!(held, Some(HeldBy::Ceiling));
    }

    #[test]
    fn beside_requests_that_it_harms_a_sweep_yields_down_to_its_floor() {
        let harmed = |speed| swept(speed, |_| true, TAKES * 5, 30_000).0;
        let yielded = harmed(speed(1, None));
        assert!((1..600).contains(&yielded), "{yielded}");
        let floored = harmed(speed(2_000, None));
        assert!((1_800..2_100).contains(&floored), "{floored}");
    }

    #[test]
    fn requests_now_and_then_slow_a_sweep_only_while_they_are_there() {
        // A millisecond in each second.
        let (windows, _) = swept(SyncSpeed::default(), |now| now.nanos % 1_000_000_000 < 1_000_000, TAKES, 0);
        assert!((8_500..9_500).contains(&windows), "{windows}");
    }
}
