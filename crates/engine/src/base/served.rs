//! The number of requests served, the time they took in all, and the distribution of their times.
//!
//! Time counts as it passes, so a delayed request counts before it ends. A bucket of the distribution is a fifth to an
//! eighth wide. Never reads a clock: callers pass nanoseconds since the clock's start. The size is fixed, and the
//! arithmetic is the same on every machine.

use std::time::Duration;

/// Buckets for each doubling of the time.
const BUCKETS_PER_DOUBLING: u64 = 4;

/// Width of the first buckets.
const UNIT_NANOS: u64 = 256;

/// From a microsecond to more than a minute.
const BUCKETS: usize = 27 * BUCKETS_PER_DOUBLING as usize;

/// Timed requests. After [`Served::fade`] it counts fractions of requests.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    requests: f64,
    /// The time of all requests, those in flight included.
    nanos: f64,
    /// The number of requests by time taken.
    buckets: [f32; BUCKETS],
    in_flight: usize,
    /// How many of those in flight began before `since`.
    older: usize,
    /// When counting began.
    since: u64,
    /// `nanos` counts up to this moment.
    last: u64,
}

impl Default for Served {
    fn default() -> Self {
        Self { requests: 0.0, nanos: 0.0, buckets: [0.0; BUCKETS], in_flight: 0, older: 0, since: 0, last: 0 }
    }
}

impl Served {
    fn advance(&mut self, now: u64) {
        self.nanos += now.saturating_sub(self.last) as f64 * self.in_flight as f64;
        self.last = now;
    }

    /// A request begins.
    pub(crate) fn enter(&mut self, now: u64) {
        self.advance(now);
        self.in_flight += 1;
    }

    /// A request that began at `begun` ends.
    pub(crate) fn leave(&mut self, begun: u64, now: u64) {
        self.advance(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.older = self.older.saturating_sub(usize::from(begun < self.since));
        self.requests += 1.0;
        self.buckets[bucket(now.saturating_sub(begun))] += 1.0;
    }

    /// Returns the counts and starts again at zero.
    pub(crate) fn take(&mut self, now: u64) -> Self {
        self.advance(now);
        let restarted =
            Self { in_flight: self.in_flight, older: self.in_flight, since: now, last: now, ..Self::default() };
        std::mem::replace(self, restarted)
    }

    /// Requests that have ended.
    pub(crate) fn requests(&self) -> f64 {
        self.requests
    }

    /// Whether all requests that began before counting did have ended.
    pub(crate) fn is_fresh(&self) -> bool {
        self.older == 0
    }

    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.nanos += other.nanos;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(bucket, more)| *bucket += more);
    }

    /// Keeps this part of the counts, and another part of the distribution.
    pub(crate) fn fade(&mut self, part: f64, part_of_distribution: f32) {
        self.requests *= part;
        self.nanos *= part;
        self.buckets.iter_mut().for_each(|bucket| *bucket *= part_of_distribution);
    }

    /// The mean time of a request.
    pub(crate) fn mean(&self) -> Duration {
        Duration::from_nanos((self.nanos / self.requests.max(1.0)) as u64)
    }

    /// The time that the slowest `part` of the requests exceed.
    pub(crate) fn slowest(&self, part: f64) -> Duration {
        let mut left = self.buckets.iter().map(|bucket| f64::from(*bucket)).sum::<f64>() * part;
        for index in (0..BUCKETS).rev() {
            let here = f64::from(self.buckets[index]);
            if here > 0.0 && here >= left {
                // As if the requests of a bucket were spread evenly over it.
                let (from, to) = (bucket_start(index), bucket_start(index + 1));
                return Duration::from_nanos(to - ((to - from) as f64 * (left / here)) as u64);
            }
            left -= here;
        }
        Duration::ZERO
    }
}

fn bucket(nanos: u64) -> usize {
    let units = (nanos / UNIT_NANOS).max(BUCKETS_PER_DOUBLING);
    let doublings = units.ilog2() - BUCKETS_PER_DOUBLING.ilog2();
    let step = (units >> doublings) - BUCKETS_PER_DOUBLING;
    (u64::from(doublings) * BUCKETS_PER_DOUBLING + step).min(BUCKETS as u64 - 1) as usize
}

/// The shortest time in a bucket, in nanoseconds.
fn bucket_start(bucket: usize) -> u64 {
    let (doublings, step) = (bucket as u64 / BUCKETS_PER_DOUBLING, bucket as u64 % BUCKETS_PER_DOUBLING);
    ((BUCKETS_PER_DOUBLING + step) << doublings) * UNIT_NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_gives_the_time_of_the_slowest_within_a_bucket() {
        let mut served = Served::default();
        for micros in 1..=10_000 {
            served.enter(0);
            served.leave(0, micros * 1000);
        }
        for (part, micros) in [(0.01, 9900.0), (0.1, 9000.0), (0.5, 5000.0)] {
            let slowest = served.slowest(part).as_secs_f64() * 1e6;
            assert!((slowest / micros - 1.0).abs() < 0.12, "{part}: {slowest}, not {micros}");
        }
        assert_eq!(Served::default().slowest(0.01), Duration::ZERO);
    }

    #[test]
    fn buckets_follow_each_other_and_cover_every_time() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(bucket_start(index)), index);
            assert!(bucket_start(index) < bucket_start(index + 1));
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_delayed_request_counts_before_it_ends_and_is_known_to_be_older() {
        let mut served = Served::default();
        served.enter(0);
        served.enter(0);
        served.leave(0, 10);
        assert_eq!(served.take(100).mean(), Duration::from_nanos(110));
        assert!(!served.is_fresh());
        served.enter(150);
        served.leave(150, 160);
        assert!(!served.is_fresh());
        served.leave(0, 200);
        assert!(served.is_fresh());
        assert_eq!(served.take(300).mean(), Duration::from_nanos((100 + 10) / 2));
    }
}
