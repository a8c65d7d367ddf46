//! Detects which reads follow each other, so that reading the rest of their stripes pays.
//!
//! Two consecutive reads may be chance; from the third on they are a stream. Pure bookkeeping: a wrong guess costs
//! time, never data.

use std::ops::Range;

/// Streams that are followed at a time.
const STREAMS_MAX: usize = 16;

/// Single reads that are remembered, so that a later read can continue one.
const SINGLES_MAX: usize = 32;

/// Consecutive reads that make a stream.
const READS_OF_A_STREAM: u32 = 3;

/// A stream without reads, while this many reads of others came, is over.
const SILENCE_MAX: u64 = 1024;

#[derive(Debug, Clone, Copy)]
struct ReadStream {
    /// One past the furthest byte so far.
    next: u64,
    reads: u32,
    /// When it was last used, counted in reads of the array.
    used: u64,
    /// Stripes below this were returned already.
    named: u64,
}

/// The streams of reads of an array.
#[derive(Debug)]
pub(super) struct ReadStreams {
    stripe_bytes: u64,
    reads: u64,
    streams: Vec<ReadStream>,
    /// The ends of single reads, as a ring.
    singles: [u64; SINGLES_MAX],
    next_single: usize,
}

impl ReadStreams {
    pub(super) fn new(stripe_bytes: u64) -> Self {
        let singles = [u64::MAX; SINGLES_MAX];
        Self { stripe_bytes, reads: 0, streams: Vec::new(), singles, next_single: 0 }
    }

    /// Records a read of `bytes` at `at`. Returns the stripes that its stream touches for the first time; each stripe
    /// is returned once.
    pub(super) fn arrive(&mut self, at: u64, bytes: u64) -> Range<u64> {
        self.reads += 1;
        let Some(index) = self.followed(at).or_else(|| self.begun(at)) else {
            self.singles[self.next_single] = at + bytes;
            self.next_single = (self.next_single + 1) % SINGLES_MAX;
            return 0..0;
        };
        let stream = &mut self.streams[index];
        stream.reads += u32::from(stream.next == at);
        stream.next = stream.next.max(at + bytes);
        stream.used = self.reads;
        if stream.reads < READS_OF_A_STREAM {
            return 0..0;
        }
        if at + bytes <= stream.named * self.stripe_bytes {
            return 0..0;
        }
        let first = stream.named.max(at / self.stripe_bytes);
        stream.named = (at + bytes).div_ceil(self.stripe_bytes);
        first..stream.named
    }

    /// The stream that continues at `at`, or near it: reads may overtake each other on their way here.
    fn followed(&self, at: u64) -> Option<usize> {
        if let Some(index) = self.streams.iter().position(|stream| stream.next == at) {
            return Some(index);
        }
        let is_near = |stream: &ReadStream| {
            stream.reads >= READS_OF_A_STREAM
                && self.reads - stream.used <= SILENCE_MAX
                && stream.next.abs_diff(at) < self.stripe_bytes
        };
        self.streams.iter().position(is_near)
    }

    /// Makes a stream of a single read and the read at `at` that continues it.
    fn begun(&mut self, at: u64) -> Option<usize> {
        let first = self.singles.iter().position(|&end| end == at)?;
        self.singles[first] = u64::MAX;
        let stream = ReadStream { next: at, reads: 1, used: self.reads, named: 0 };
        if self.streams.len() < STREAMS_MAX {
            self.streams.push(stream);
            return Some(self.streams.len() - 1);
        }
        let oldest = (0..STREAMS_MAX).min_by_key(|&index| self.streams[index].used)?;
        self.streams[oldest] = stream;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: u64 = 100;

    fn streams() -> ReadStreams {
        ReadStreams::new(STRIPE)
    }

    #[test]
    fn the_third_read_in_a_row_makes_a_stream_and_each_stripe_is_named_once() {
        let mut streams = streams();
        let named: Vec<_> = (0..40).map(|number| streams.arrive(number * 10, 10)).collect();
        assert!(named[..2].iter().all(Range::is_empty), "two may be chance");
        let all: Vec<u64> = named.iter().cloned().flatten().collect();
        assert_eq!(all, (0..4).collect::<Vec<_>>(), "when it comes to them");
    }

    #[test]
    fn reads_at_random_name_nothing_even_beside_a_stream_s_end() {
        let mut streams = streams();
        (0..3).for_each(|number| _ = streams.arrive(number * 10, 10));
        (0..SILENCE_MAX + 1).for_each(|number| assert!(streams.arrive((number * 7919 + 50) * 13, 10).is_empty()));
        assert!(streams.arrive(40, 10).is_empty(), "the stream is over");
    }

    #[test]
    fn a_read_that_overtakes_another_belongs_to_the_stream_as_well() {
        let mut streams = streams();
        (0..3).for_each(|number| _ = streams.arrive(number * 10, 10));
        let named: Vec<u64> = [50, 30, 40, 60].into_iter().flat_map(|at| streams.arrive(at, 10)).collect();
        assert!(named.is_empty(), "its stripe was named already");
        assert_eq!(streams.arrive(100, 10), 1..2);
        assert_eq!(streams.streams.len(), 1);
    }

    #[test]
    fn long_reads_name_no_more_than_they_touch() {
        let mut streams = streams();
        let named: Vec<_> = (0..6).map(|number| streams.arrive(number * 150, 150)).collect();
        assert_eq!(named, [0..0, 0..0, 3..5, 5..6, 6..8, 8..9]);
    }
}
