//! How far a stream of writes has come, and whether it is a stream at all.
//!
//! Random writes follow each other by chance, and often so in a small area. So a stream must be *proven* before any
//! write waits for it. Several writes continued exactly where it was, or a whole stripe of it came, and no other
//! write came near meanwhile. A write that goes back over what the stream has written is not part of it.
//!
//! Pure bookkeeping: a wrong guess costs time, never data.

use smallvec::SmallVec;
use std::ops::Range;

/// Consecutive writes that prove a stream. In an area of n write lengths, n random writes pass for each one that
/// continues by chance, and nearly all of them contradict. Fewer than one pair in n⁷ is taken for a stream.
const PROOF: u8 = 8;

/// How much a contradiction takes back, and the maximum that a stream can have.
const CONTRADICTION: u8 = 4;
const PROOF_MAX: u8 = PROOF + 2 * CONTRADICTION;

/// Holes that are remembered: ranges that the stream has skipped.
const HOLES_MAX: usize = 8;

/// Where in a stream a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamPlace {
    /// At the stream's end.
    Next,
    /// Further on: the write overtook others.
    Ahead,
    /// A write that was overtaken, in the hole with this index.
    Late(usize),
}

/// How far a stream has come.
#[derive(Debug, Default)]
pub(super) struct Front {
    /// One past the furthest byte so far.
    next: u64,
    /// The ranges that are missing before it, oldest first.
    holes: SmallVec<[Range<u64>; 2]>,
    /// Writes that continued the stream, less contradictions.
    run: u8,
    /// Bytes that came since the last contradiction.
    bytes: u64,
}

impl Front {
    /// A stream that begins with a write of `bytes` that ends at `next`.
    pub(super) fn new(next: u64, bytes: u64) -> Self {
        Self { next, bytes, ..Self::default() }
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Where in the stream a write is, if it belongs to it. Writes may overtake each other on their way here, but by
    /// no more than `overtaken` bytes.
    pub(super) fn place(&self, write: &Range<u64>, overtaken: u64) -> Option<StreamPlace> {
        if write.start >= self.next {
            let ahead = write.start - self.next;
            return match ahead {
                0 => Some(StreamPlace::Next),
                _ if ahead <= overtaken => Some(StreamPlace::Ahead),
                _ => None,
            };
        }
        let is_filled = |hole: &Range<u64>| hole.start <= write.start && write.end <= hole.end;
        self.holes.iter().position(is_filled).map(StreamPlace::Late)
    }

    /// Records a write of the stream. `overtaken` as in [`Front::place`].
    pub(super) fn advance(&mut self, write: &Range<u64>, place: StreamPlace, overtaken: u64) {
        match place {
            StreamPlace::Next => self.run = (self.run + 1).min(PROOF_MAX),
            StreamPlace::Ahead => {
                self.run = self.run.saturating_sub(1);
                self.holes.push(self.next..write.start);
            }
            StreamPlace::Late(index) => {
                let hole = self.holes.remove(index);
                let rest = [write.end..hole.end, hole.start..write.start];
                rest.into_iter().filter(|rest| !rest.is_empty()).for_each(|rest| self.holes.insert(index, rest));
            }
        }
        self.next = self.next.max(write.end);
        self.bytes += write.end - write.start;
        // A hole that is further back than writes can be overtaken will not be filled.
        while self.has_lost(overtaken) {
            self.holes.remove(0);
            self.contradict();
        }
    }

    /// Whether the oldest hole is further back than writes can have been overtaken, or there are too many holes.
    fn has_lost(&self, overtaken: u64) -> bool {
        let is_far = |hole: &Range<u64>| hole.end.saturating_add(overtaken) < self.next;
        self.holes.first().is_some_and(is_far) || self.holes.len() > HOLES_MAX
    }

    /// Whether a write that is not part of the stream is nearer than `distance`.
    pub(super) fn is_near(&self, write: &Range<u64>, distance: u64) -> bool {
        write.start < self.next.saturating_add(distance) && self.next < write.end.saturating_add(distance)
    }

    /// The range outside of which no write belongs to the stream or is nearer than `distance`. Writes overtake each
    /// other by less than that.
    pub(super) fn reach(&self, distance: u64) -> Range<u64> {
        let first = self.holes.first().map_or(self.next, |hole| hole.start);
        first.min(self.next.saturating_sub(distance))..self.next.saturating_add(distance)
    }

    /// Records something that is typical of random writes.
    pub(super) fn contradict(&mut self) {
        self.run = self.run.saturating_sub(CONTRADICTION);
        self.bytes = 0;
    }

    /// Whether it certainly is a stream, on an array with stripes of this many bytes.
    pub(super) fn is_proven(&self, stripe_bytes: u64) -> bool {
        self.run >= PROOF || self.bytes >= stripe_bytes
    }

    /// Whether more of `range` may come.
    pub(super) fn is_to_come(&self, range: &Range<u64>) -> bool {
        self.next < range.end || self.holes.iter().any(|hole| hole.start < range.end && range.start < hole.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: u64 = 1000;

    /// Records a write of ten bytes. Returns whether it belongs to the stream.
    fn come(front: &mut Front, at: u64, overtaken: u64) -> bool {
        let write = at..at + 10;
        let place = front.place(&write, overtaken);
        match place {
            Some(place) => front.advance(&write, place, overtaken),
            None => front.contradict(),
        }
        place.is_some()
    }

    #[test]
    fn consecutive_writes_prove_a_stream_in_any_order_of_arrival() {
        for order in [[10, 20, 30, 40], [20, 10, 30, 40], [20, 30, 10, 40], [40, 30, 20, 10]] {
            let mut front = Front::new(10, 10);
            let mut all = order.into_iter().chain((50..=120).step_by(10));
            assert!(all.all(|at| come(&mut front, at, 40)), "{order:?}");
            assert!(front.is_proven(STRIPE) && !front.is_to_come(&(0..130)), "{order:?}: {front:?}");
        }
    }

    #[test]
    fn a_whole_stripe_is_proof_enough() {
        let mut front = Front::new(600, 600);
        assert!(!front.is_proven(STRIPE));
        front.advance(&(600..1200), StreamPlace::Next, 0);
        assert!(front.is_proven(STRIPE));
    }

    #[test]
    fn writes_that_go_back_leave_gaps_or_are_elsewhere_prove_no_stream() {
        for others in [&[0, 10][..], &[20, 40, 60, 80, 100], &[300, 600, 900]] {
            let mut front = Front::new(10, 10);
            (1..4).for_each(|n| assert!(come(&mut front, n * 10, 20)));
            for at in others {
                come(&mut front, 30 + at, 20);
            }
            assert!(!front.is_proven(STRIPE), "{others:?}: {front:?}");
        }
    }

    #[test]
    fn an_overtaken_write_is_expected_until_it_is_too_far_back() {
        let mut front = Front::new(10, 10);
        assert!(come(&mut front, 30, 20));
        assert!(front.is_to_come(&(0..20)) && front.is_to_come(&(15..35)) && !front.is_to_come(&(30..40)));
        assert!(come(&mut front, 40, 20) && come(&mut front, 50, 20));
        assert!(!front.is_to_come(&(0..60)) && !come(&mut front, 10, 20), "{front:?}");
    }
}
