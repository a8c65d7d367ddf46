//! When a sweep beside requests starts its windows.
//!
//! The sweep goes in turns: some windows at once, then a pause. [`super::yielding`] decides how long both are. To give it
//! figures, the sweep stands still for an eighth of the time, which shows what requests get alone. It is pure: the caller
//! passes the time and the times of the requests.

use crate::base::served::Served;
use crate::control::sweep::yielding::Yielding;
use crate::seam::clock::Moment;
use std::time::Duration;

/// The interval at which a waiting window checks the load.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How long the sweep stands still: the maximum, and the minimum after so many requests.
const STILL_MAX: Duration = Duration::from_millis(250);
const STILL_MIN: Duration = Duration::from_millis(5);
const STILL_REQUESTS: f64 = 100.0;

/// How many times as long it runs afterwards.
const BESIDE: u32 = 7;

/// A phase counts only after the effects of the phase before it have passed: for so many turns, and at least so long.
const SETTLE_TURNS: u32 = 3;
const SETTLE_MIN: Duration = Duration::from_millis(1);

/// A phase of the sweep: it stands still, or it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SweepPhase {
    is_still: bool,
    begun: Moment,
    /// When requests began to count.
    counted: Option<Moment>,
}

/// Windows that start at once, before a pause.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    begun: Moment,
    /// Bytes of each member yet to be started.
    left: u64,
    /// When the next turn may begin.
    next: Moment,
    /// The time of the quickest turn of the phase.
    quickest: Option<Duration>,
}

/// The turns of one sweep.
pub(super) struct Turns {
    window_bytes: u64,
    /// Windows in flight.
    under_way: usize,
    /// None without requests.
    phase: Option<SweepPhase>,
    /// How long the next phase waits until it counts.
    settle: Duration,
    /// How long the sweep stood still last.
    still: Duration,
    turn: Turn,
    yielding: Yielding,
}

impl Turns {
    pub(super) fn new(window_bytes: u64, in_flight_bytes: u64) -> Self {
        Self {
            window_bytes,
            under_way: 0,
            phase: None,
            settle: SETTLE_MIN,
            still: Duration::ZERO,
            turn: Turn::default(),
            yielding: Yielding::new(window_bytes, in_flight_bytes),
        }
    }

    /// There are no requests any more.
    pub(super) fn reset(&mut self) {
        (self.phase, self.turn.left) = (None, 0);
    }

    /// When the next window may start beside the requests.
    pub(super) fn next_due(&mut self, now: Moment, served: &mut Served) -> Moment {
        self.advance(now, served);
        if self.phase.is_none_or(|phase| phase.is_still) {
            self.turn.left = 0;
            return now + POLL_INTERVAL;
        }
        match (self.turn.left, self.under_way) {
            (0, 0) => self.turn.next,
            (0, _) => now + POLL_INTERVAL, // the turn ends first
            _ => now,
        }
    }

    /// Begins the next phase when it is time.
    fn advance(&mut self, now: Moment, served: &mut Served) {
        let Some(SweepPhase { is_still, begun, counted }) = self.phase else {
            return self.begin_phase(true, now, served);
        };
        let Some(counted) = counted else {
            let is_settled = served.is_fresh() && !(is_still && self.under_way > 0);
            if now.since(begun) >= if is_settled { self.settle } else { self.settle * 4 } {
                served.take(now.nanos);
                self.turn.quickest = None;
                self.phase = Some(SweepPhase { is_still, begun, counted: Some(now) });
            }
            return;
        };
        let time = now.since(counted);
        let is_enough = time >= (self.settle * 2).clamp(STILL_MIN, STILL_MAX) && served.requests() >= STILL_REQUESTS;
        if is_still && (is_enough || time >= STILL_MAX) {
            self.still = time;
            self.yielding.note_alone(&served.take(now.nanos), time);
            self.begin_phase(false, now, served);
        } else if !is_still && time >= self.still * BESIDE {
            let beside = served.take(now.nanos);
            let turn = self.turn.quickest;
            self.settle = (turn.unwrap_or_default() * SETTLE_TURNS).max(beside.mean()).clamp(SETTLE_MIN, STILL_MAX);
            self.yielding.note_beside(&beside, time, turn);
            self.begin_phase(true, now, served);
        }
    }

    fn begin_phase(&mut self, is_still: bool, now: Moment, served: &mut Served) {
        served.take(now.nanos);
        self.phase = Some(SweepPhase { is_still, begun: now, counted: None });
    }

    /// A window starts now. Returns its bytes on each member: a whole window without requests, else at most a turn.
    pub(super) fn start(&mut self, now: Moment, is_quiet: bool) -> u64 {
        let turn_bytes = if is_quiet { self.window_bytes } else { self.yielding.bytes() };
        let bytes = turn_bytes.min(self.window_bytes);
        if self.under_way == 0 {
            (self.turn.begun, self.turn.left) = (now, turn_bytes);
        }
        self.turn.left = self.turn.left.saturating_sub(bytes);
        self.under_way += 1;
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
}
