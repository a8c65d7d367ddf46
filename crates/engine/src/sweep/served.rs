//! How requests were served: how many, how long they took in all, and how that is spread.
//!
//! Time is counted as it passes, so that a request that is held up counts before it has ended. The spread is in steps of a
//! fifth to an eighth. Pure, of a fixed size, and without arithmetic that differs between machines.

use crate::clock::Moment;
use std::time::Duration;

/// Steps for each doubling of the time.
const STEPS: u64 = 4;

/// A step, of the shortest times.
const UNIT_NANOS: u64 = 256;

/// From a microsecond to more than a minute.
const PLACES: usize = 27 * STEPS as usize;

/// Requests that were timed. Of samples that were made to fade it counts parts of requests.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    requests: f64,
    /// All that requests spent, those that have not ended too.
    nanos: f64,
    /// How many took how long.
    places: [f32; PLACES],
    inside: usize,
    /// Of those inside: how many began before counting did.
    older: usize,
    since: Moment,
    /// Until when `nanos` counts.
    last: Moment,
}

impl Default for Served {
    fn default() -> Self {
        let start = Moment::default();
        Self { requests: 0.0, nanos: 0.0, places: [0.0; PLACES], inside: 0, older: 0, since: start, last: start }
    }
}

impl Served {
    fn pass(&mut self, now: Moment) {
        self.nanos += now.since(self.last).as_nanos() as f64 * self.inside as f64;
        self.last = now;
    }

    /// A request begins.
    pub(crate) fn enter(&mut self, now: Moment) {
        self.pass(now);
        self.inside += 1;
    }

    /// One that began at `begun` has ended.
    pub(crate) fn leave(&mut self, begun: Moment, now: Moment) {
        self.pass(now);
        self.inside = self.inside.saturating_sub(1);
        self.older = self.older.saturating_sub(usize::from(begun < self.since));
        self.requests += 1.0;
        self.places[place(now.since(begun))] += 1.0;
    }

    /// What was counted. Counting begins anew.
    pub(crate) fn take(&mut self, now: Moment) -> Self {
        self.pass(now);
        let anew = Self { inside: self.inside, older: self.inside, since: now, last: now, ..Self::default() };
        std::mem::replace(self, anew)
    }

    /// Requests that have ended.
    pub(super) fn requests(&self) -> f64 {
        self.requests
    }

    /// Whether all that began before counting did have ended.
    pub(super) fn is_fresh(&self) -> bool {
        self.older == 0
    }

    /// Adds what was counted elsewhere.
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.nanos += other.nanos;
        self.places.iter_mut().zip(other.places).for_each(|(place, more)| *place += more);
    }

    /// Leaves a part of what was counted so far, and of how it is spread.
    pub(super) fn fade(&mut self, part: f64, part_of_spread: f32) {
        self.requests *= part;
        self.nanos *= part;
        self.places.iter_mut().for_each(|place| *place *= part_of_spread);
    }

    /// How long a request took in the mean.
    pub(super) fn mean(&self) -> Duration {
        Duration::from_nanos((self.nanos / self.requests.max(1.0)) as u64)
    }

    /// How long the slowest `part` of them took at the least.
    pub(super) fn slowest(&self, part: f64) -> Duration {
        let mut left = self.places.iter().map(|place| f64::from(*place)).sum::<f64>() * part;
        for index in (0..PLACES).rev() {
            let here = f64::from(self.places[index]);
            if here > 0.0 && here >= left {
                // As if those of a step were spread evenly over it.
                let (from, to) = (begin_of(index), begin_of(index + 1));
                return Duration::from_nanos(to - ((to - from) as f64 * (left / here)) as u64);
            }
            left -= here;
        }
        Duration::ZERO
    }
}

fn place(time: Duration) -> usize {
    let units = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / UNIT_NANOS;
    let units = units.max(STEPS);
    let doublings = units.ilog2() - STEPS.ilog2();
    let step = (units >> doublings) - STEPS;
    (u64::from(doublings) * STEPS + step).min(PLACES as u64 - 1) as usize
}

/// The shortest time of a place, in nanoseconds.
fn begin_of(place: usize) -> u64 {
    let (doublings, step) = (place as u64 / STEPS, place as u64 % STEPS);
    ((STEPS + step) << doublings) * UNIT_NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment { nanos: micros * 1000 }
    }

    #[test]
    fn the_spread_tells_how_long_the_slowest_took_within_a_step() {
        let mut served = Served::default();
        for micros in 1..=10_000 {
            served.enter(at(0));
            served.leave(at(0), at(micros));
        }
        for (part, micros) in [(0.01, 9900.0), (0.1, 9000.0), (0.5, 5000.0)] {
            let slowest = served.slowest(part).as_secs_f64() * 1e6;
            assert!((slowest / micros - 1.0).abs() < 0.12, "{part}: {slowest}, not {micros}");
        }
        assert_eq!(Served::default().slowest(0.01), Duration::ZERO);
    }

    #[test]
    fn places_follow_each_other_and_no_time_is_beyond_them() {
        for index in 0..PLACES {
            assert_eq!(place(Duration::from_nanos(begin_of(index))), index);
            assert!(begin_of(index) < begin_of(index + 1));
        }
        assert_eq!(place(Duration::ZERO), 0);
        assert_eq!(place(Duration::MAX), PLACES - 1);
    }

    #[test]
    fn one_that_is_held_up_counts_before_it_has_ended_and_is_known_to_be_older() {
        let mut served = Served::default();
        served.enter(at(0));
        served.enter(at(0));
        served.leave(at(0), at(10));
        assert_eq!(served.take(at(100)).mean(), Duration::from_micros(110));
        assert!(!served.is_fresh());
        served.enter(at(150));
        served.leave(at(150), at(160));
        assert!(!served.is_fresh());
        served.leave(at(0), at(200));
        assert!(served.is_fresh());
        assert_eq!(served.take(at(300)).mean(), Duration::from_micros((100 + 10) / 2));
    }
}
