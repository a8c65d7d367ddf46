//! How far a sweep yields to requests: how much it moves in a turn, and for which share of the time.
//!
//! Beside requests a sweep goes in turns: some windows at once, then a pause. Now and then it stands still, and compares
//! what requests get alone with what they get beside it. Requests may lose a part of their rate, and the slowest hundredth
//! of them may take nearly twice the time. The sweep takes what that leaves.
//!
//! * The share of the time decides how often requests are delayed, and so their rate.
//! * The length of a turn decides how long a request is delayed, and so the slowest of them. A drive that spends its turns
//!   on positioning is hardly quicker with a shorter one. Such drives keep long turns, and get fewer of them.
//!
//! It is pure: the caller passes the requests of phases of known length.

use crate::base::served::Served;
use std::time::Duration;

/// The part of their rate that requests should lose. The documented bound is a fifth.
const LOSS: f64 = 0.16;

/// A request that waits where it did not wait alone costs time, but no rate. This much of that is free.
const LOSS_OF_TIME_FREE: f64 = 0.1;

/// The slowest requests take at most so many times as long as alone; above the next the sweep asks for no more; below the
/// last it tries a longer turn. The documented bound is twice.
const SLOWEST_MAX: f64 = 1.9;
const SLOWEST_GOOD: f64 = 1.75;
const SLOWEST_LOW: f64 = 1.4;

/// Below this share, and with slowest requests above this, the sweep tries shorter turns and a larger share.
const SLOWEST_FAIR: f64 = 1.3;
const SHARE_LOW: f64 = 0.75;

/// Requests needed to judge the effect.
const REQUESTS_MIN: f64 = 20.0;

/// Fewer are enough when requests lose so much of their time.
const DELAYED: f64 = 0.5;

/// The part of the requests that counts as the slowest: a hundredth, or four of those known.
const SLOWEST_PART: f64 = 0.01;
const SLOWEST_REQUESTS: f64 = 4.0;

/// While that part is larger than this, a turn may take so many times as long as the slowest requests.
const PART_KNOWN: f64 = 0.02;
const TURN_OF_SLOWEST: f64 = 1.3;

/// No turn takes longer than this, if a shorter one is quicker.
const TURN_MAX: Duration = Duration::from_millis(50);

/// The first share, and the minimum.
const SHARE_FIRST: f64 = 0.25;
const SHARE_MIN: f64 = 1.0 / 256.0;

/// The shortest turn.
const BYTES_MIN: u64 = 32 << 10;

/// A turn of half the bytes that takes more than this part of the time gains nothing.
const QUICKER: f64 = 0.75;

/// Judgements until the sweep tries a longer turn: after a longer one, and after a shorter one.
const PATIENCE_LONGER: u32 = 3;
const PATIENCE_SHORTER: u32 = 8;

/// The part of earlier samples that a judgement keeps, of requests alone and beside the sweep. The few slowest of those alone
/// are kept longer.
const FADE_ALONE: f64 = 0.8;
const FADE_ALONE_DISTRIBUTION: f32 = 0.95;
const FADE_BESIDE: f64 = 0.5;

/// Requests of the phases of one kind, and the length of these. Later phases weigh more.
#[derive(Debug, Clone, Default)]
struct Sample {
    served: Served,
    seconds: f64,
}

impl Sample {
    fn rate(&self) -> f64 {
        self.served.requests() / self.seconds
    }

    /// In seconds.
    fn slowest(&self, part: f64) -> f64 {
        self.served.slowest(part).as_secs_f64()
    }
}

/// How requests fare beside the sweep: the effect that it has on them.
#[derive(Debug, Clone, Copy)]
struct Effect {
    /// The part of their rate or time that they lose; the aim is [`LOSS`].
    loss: f64,
    /// How many times as long their slowest take.
    slowest: f64,
    /// The time of a turn, as a part of the longest that is allowed.
    turn: f64,
}

/// How far a sweep yields, as learned so far.
#[derive(Debug, Clone)]
pub(super) struct Yielding {
    share: f64,
    bytes: u64,
    bytes_max: u64,
    /// Shorter turns would not be quicker.
    bytes_min: u64,
    /// While a shorter turn is tried: the bytes and the time of the longer one.
    tried: Option<(u64, Duration)>,
    /// Judgements until a longer turn is tried.
    patience: u32,
    alone: Sample,
    beside: Sample,
}

impl Yielding {
    /// For windows of `window_bytes` on each member, with at most `in_flight_bytes` in flight.
    pub(super) fn new(window_bytes: u64, in_flight_bytes: u64) -> Self {
        Self {
            share: SHARE_FIRST,
            bytes: window_bytes,
            bytes_max: window_bytes.max(in_flight_bytes),
            bytes_min: BYTES_MIN.min(window_bytes),
            tried: None,
            patience: 0,
            alone: Sample::default(),
            beside: Sample::default(),
        }
    }

    /// Bytes of each member in a turn.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The pause after a turn that took `turn`.
    pub(super) fn pause(&self, turn: Duration) -> Duration {
        turn.mul_f64(1.0 / self.share - 1.0)
    }

    /// Adds the requests of a phase in which the sweep stood still.
    pub(super) fn note_alone(&mut self, served: &Served, time: Duration) {
        let Sample { served: all, seconds } = &mut self.alone;
        all.fade(FADE_ALONE, FADE_ALONE_DISTRIBUTION);
        all.add(served);
        *seconds = *seconds * FADE_ALONE + time.as_secs_f64();
    }

    /// Adds the requests of a phase in which the sweep ran, and adapts. Its quickest turn took `turn`.
    pub(super) fn note_beside(&mut self, served: &Served, time: Duration, turn: Option<Duration>) {
        let Sample { served: all, seconds } = &mut self.beside;
        all.fade(FADE_BESIDE, FADE_BESIDE as f32);
        all.add(served);
        *seconds = *seconds * FADE_BESIDE + time.as_secs_f64();
        if let (Some(effect), Some(turn)) = (self.effect(turn), turn) {
            self.act(effect, turn);
        }
    }

    /// `None` while too few requests are known.
    fn effect(&self, turn: Option<Duration>) -> Option<Effect> {
        let Self { alone, beside, .. } = self;
        let by_rate = 1.0 - beside.rate() / alone.rate();
        let by_time = 1.0 - alone.served.mean().as_secs_f64() / beside.served.mean().as_secs_f64();
        let requests = alone.served.requests().min(beside.served.requests());
        let are_delayed = by_time > DELAYED && alone.served.requests() >= REQUESTS_MIN; // so that few of them end
        if requests < REQUESTS_MIN && !are_delayed {
            return None;
        }
        // If requests are fewer but take no longer, the clients made fewer. If they take longer but are as many, the
        // clients have a pace of their own.
        let loss = by_rate.min(by_time).max(by_time - LOSS_OF_TIME_FREE);
        let part = (SLOWEST_REQUESTS / requests).clamp(SLOWEST_PART, 0.2);
        let (slowest, turn) = (alone.slowest(part), turn.unwrap_or_default());
        let turn_max = if part > PART_KNOWN { slowest * TURN_OF_SLOWEST } else { slowest.max(TURN_MAX.as_secs_f64()) };
        let turn = turn.as_secs_f64() / turn_max;
        Some(Effect { loss, slowest: beside.slowest(part) / slowest, turn })
    }

    fn act(&mut self, effect: Effect, turn: Duration) {
        self.patience = self.patience.saturating_sub(1);
        if let Some((bytes, before)) = self.tried.take().filter(|(bytes, _)| *bytes > self.bytes)
            && turn > before.mul_f64(QUICKER)
        {
            (self.bytes, self.bytes_min) = (bytes, bytes);
            self.share = (self.share * 0.7).max(SHARE_MIN);
            return;
        }
        let change = (LOSS / effect.loss.max(0.01)).sqrt().clamp(0.5, 1.5);
        let is_too_slow = effect.slowest > SLOWEST_MAX && change > 0.7; // the sweep first lowers a share that is far too high
        if is_too_slow || (effect.turn > 1.0 && self.bytes > self.bytes_min) {
            self.shorten(effect, turn);
        } else if change < 1.0 || effect.slowest < SLOWEST_GOOD {
            self.share = (self.share * change).clamp(SHARE_MIN, 1.0);
            if self.patience == 0 || (self.share == 1.0 && change > 1.4) {
                self.try_another_turn(effect, turn);
            }
        }
    }

    /// Makes turns shorter, as the slowest requests wait too long.
    fn shorten(&mut self, effect: Effect, turn: Duration) {
        self.patience = PATIENCE_SHORTER;
        if self.bytes > self.bytes_min {
            self.tried = Some((self.bytes, turn));
            self.bytes = (self.bytes / if effect.slowest > 3.0 { 4 } else { 2 }).max(self.bytes_min);
            return;
        }
        self.share = (self.share * 0.8).max(SHARE_MIN);
        let is_of_positioning = self.bytes_min > BYTES_MIN;
        if is_of_positioning && effect.turn < 0.5 && self.bytes < self.bytes_max {
            self.bytes = (self.bytes * 2).min(self.bytes_max); // fewer turns, but longer ones
            self.bytes_min = self.bytes;
        }
    }

    /// Tries another length while requests keep within the bounds. Longer turns move more for the same loss; shorter turns
    /// delay each request less.
    fn try_another_turn(&mut self, effect: Effect, turn: Duration) {
        if effect.slowest > SLOWEST_FAIR && self.share < SHARE_LOW && self.bytes > self.bytes_min {
            self.shorten(effect, turn);
            self.share = (self.share * 1.5).min(1.0);
        } else if effect.slowest < SLOWEST_LOW && effect.turn < 0.6 && self.bytes < self.bytes_max {
            self.bytes = (self.bytes * 2).min(self.bytes_max);
            self.patience = PATIENCE_LONGER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 512 << 10;

    /// The times of a drive: of a turn, and of a request without a sweep.
    struct Drive {
        positioning: Duration,
        nanos_of_byte: f64,
        alone: Duration,
    }

    impl Drive {
        fn turn(&self, bytes: u64) -> Duration {
            self.positioning + Duration::from_nanos((bytes as f64 * self.nanos_of_byte) as u64)
        }

        /// Requests one after the other for `time`. They wait for a turn as often as the share says.
        fn serve(&self, turn: Duration, share: f64, time: Duration) -> Served {
            let (mut served, mut now, mut hit) = (Served::default(), 0, 0.0);
            while Duration::from_nanos(now) < time {
                // A turn begins every `turn / share`, and delays the request that it meets.
                let meets = self.alone.as_secs_f64() / (turn.as_secs_f64() / share.max(1e-9));
                hit += meets.min(1.0);
                let waits = if hit >= 1.0 { turn } else { Duration::ZERO };
                hit -= if hit >= 1.0 { 1.0 } else { 0.0 };
                served.enter(now);
                let begun = now;
                now += (self.alone + waits).as_nanos() as u64;
                served.leave(begun, now);
            }
            served
        }

        /// The state that a sweep settles on: its share, the bytes of its turn, and what requests keep.
        fn settled(&self) -> (f64, u64, f64) {
            let mut yielding = Yielding::new(WINDOW, 8 << 20);
            let (still, going) = (Duration::from_millis(250), Duration::from_millis(1750));
            let mut kept = 0.0;
            for _ in 0..200 {
                let alone = self.serve(Duration::ZERO, 0.0, still);
                yielding.note_alone(&alone, still);
                let turn = self.turn(yielding.bytes);
                let beside = self.serve(turn, yielding.share, going);
                kept = (beside.requests() / 7.0) / alone.requests();
                yielding.note_beside(&beside, going, Some(turn));
            }
            (yielding.share, yielding.bytes, kept)
        }
    }

    const FLASH: Drive =
        Drive { positioning: Duration::from_micros(150), nanos_of_byte: 8.0, alone: Duration::from_micros(200) };
    const DISK: Drive =
        Drive { positioning: Duration::from_millis(8), nanos_of_byte: 5.0, alone: Duration::from_millis(8) };

    #[test]
    fn requests_keep_four_fifths_of_their_rate_and_the_sweep_takes_something_of_the_rest() {
        for drive in [FLASH, DISK] {
            let (share, bytes, kept) = drive.settled();
            assert!((0.78..0.99).contains(&kept), "kept {kept} at {share} of {bytes}");
            assert!(share > 0.01, "{share} of {bytes}");
        }
    }

    #[test]
    fn turns_become_short_where_that_makes_them_quick_and_stay_long_where_it_does_not() {
        let ((_, on_flash, _), (_, on_disk, _)) = (FLASH.settled(), DISK.settled());
        assert!(on_flash <= WINDOW / 4, "{on_flash}");
        assert!(on_disk >= WINDOW / 2, "{on_disk}");
    }

    #[test]
    fn a_few_requests_change_nothing() {
        let mut yielding = Yielding::new(WINDOW, 8 << 20);
        let (mut served, time) = (Served::default(), Duration::from_secs(1));
        served.enter(0);
        served.leave(0, 1_000_000);
        yielding.note_alone(&served, time);
        yielding.note_beside(&Served::default(), time, Some(time));
        assert_eq!((yielding.share, yielding.bytes), (SHARE_FIRST, WINDOW));
    }
}
