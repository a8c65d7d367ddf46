//! A histogram of durations: eight buckets to each doubling of the time.
//!
//! Two bounds are at most an eighth apart, so a quantile is exact to an eighth. Counting is one increment in a fixed
//! table. The layout is HdrHistogram's, at one width; the crate of that name keeps tables larger than the first-level
//! cache can hold beside the engine's work. This module reads no clock.

use serde::{Deserialize, Serialize};
use std::cell::Cell;

/// Buckets per doubling, as a power of two.
const PARTS_LOG: u32 = 3;
const PARTS: usize = 1 << PARTS_LOG;

/// Number of doublings, up to more than a minute. The last bucket counts everything longer.
const DOUBLINGS: usize = 34;
const BUCKETS: usize = (DOUBLINGS + 1) * PARTS;

/// Counts durations in nanoseconds.
pub struct Histogram {
    counts: Box<[Cell<u64>; BUCKETS]>,
}

/// The index of the bucket of a duration in nanoseconds.
fn bucket(nanos: u64) -> usize {
    if nanos < PARTS as u64 {
        return nanos as usize;
    }
    let doublings = nanos.ilog2() - PARTS_LOG;
    let part = (nanos >> doublings) as usize - PARTS;
    ((doublings as usize + 1) * PARTS + part).min(BUCKETS - 1)
}

/// The longest duration of a bucket, in nanoseconds.
fn bound(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let (doublings, part) = (bucket / PARTS - 1, bucket % PARTS);
    (((PARTS + part + 1) as u64) << doublings) - 1
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([const { Cell::new(0) }; BUCKETS]) }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn count(&self, nanos: u64) {
        let count = &self.counts[bucket(nanos)];
        count.set(count.get() + 1);
    }

    /// The counts so far.
    pub fn snapshot(&self) -> Latencies {
        let counts = self.counts.iter().map(Cell::get).enumerate();
        Latencies(counts.filter(|(_, count)| *count > 0).map(|(index, count)| (bound(index), count)).collect())
    }
}

/// The non-empty buckets in ascending order: pairs of the bucket's longest duration in nanoseconds, and its count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies(pub Vec<(u64, u64)>);

impl Latencies {
    /// The number of durations counted.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The duration in nanoseconds that a `share` (0 to 1) of all durations does not exceed. `None` when nothing was
    /// counted.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        self.0.iter().find_map(|&(bound, count)| {
            below += count;
            (below >= wanted).then_some(bound)
        })
    }

    /// The counts added since an earlier snapshot of the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bound: u64| earlier.0.iter().find(|(b, _)| *b == bound).map_or(0, |(_, count)| *count);
        let rest = self.0.iter().map(|&(bound, count)| (bound, count.saturating_sub(before(bound))));
        Self(rest.filter(|(_, count)| *count > 0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap_and_are_an_eighth_wide_at_most() {
        for index in 1..BUCKETS {
            let (below, own) = (bound(index - 1), bound(index));
            assert_eq!(bucket(below + 1), index);
            assert_eq!(bucket(own), index);
            assert!((own - below) * PARTS as u64 <= below + 1 || own < 2 * PARTS as u64, "{below}..{own}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(bound(BUCKETS - 1) > 60_000_000_000, "a minute has a bucket of its own");
    }

    proptest! {
        #[test]
        fn a_quantile_is_right_to_within_an_eighth(
            mut durations in prop::collection::vec(0_u64..10_000_000_000, 1..200),
            share in 0.0_f64..1.0,
        ) {
            let histogram = Histogram::default();
            durations.iter().for_each(|&nanos| histogram.count(nanos));
            durations.sort_unstable();
            let rank = ((durations.len() as f64 * share).ceil() as usize).clamp(1, durations.len());
            let (exact, reported) = (durations[rank - 1], histogram.snapshot().quantile(share).expect("some were counted"));
            prop_assert!(exact <= reported && reported - exact <= exact / 8, "{exact} is reported as {reported}");
        }
    }

    #[test]
    fn a_difference_holds_what_came_in_between() {
        let histogram = Histogram::default();
        [5, 700, 700].into_iter().for_each(|nanos| histogram.count(nanos));
        let earlier = histogram.snapshot();
        [700, 90_000].into_iter().for_each(|nanos| histogram.count(nanos));
        let between = histogram.snapshot().since(&earlier);
        assert_eq!(between.count(), 2);
        assert_eq!(between.quantile(0.5), Some(bound(bucket(700))));
        assert_eq!(earlier.since(&earlier), Latencies::default());
        assert_eq!(Latencies::default().quantile(0.5), None);
    }
}
