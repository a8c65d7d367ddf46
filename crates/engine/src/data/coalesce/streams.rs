//! Detects which writes follow each other, and whether more of them can be expected.
//!
//! A write that begins where another ended makes a stream of the two. Waiting for a stream's next write pays only if
//! that write can come. Most clients limit what they have under way, so the next write comes only when one is
//! answered. What counts is how much the stream has had under way at most. When all of that has once waited in vain,
//! the stream is *impatient* until it has more under way than then. No write waits for a stream that may be chance
//! (see [`super::front`]).
//!
//! Pure bookkeeping: a wrong guess costs time, never data.

use crate::data::coalesce::front::{Front, StreamPlace};
use std::ops::Range;

/// Streams that are followed at a time.
const STREAMS_MAX: usize = 32;

/// Single writes that are remembered: how many random writes may come between the first two of a stream.
const SINGLES_MAX: usize = 64;

/// Stripes after which an impatient stream halves the amount that waited in vain: then it may wait in vain once more.
/// More of them where such a stream is answered from memory, which costs no more than a copy.
const STRIPES_OF_IMPATIENCE: u32 = 64;
const STRIPES_OF_IMPATIENCE_ANSWERED: u32 = 2048;

/// Names a stream. The key of a forgotten stream names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamKey {
    index: u8,
    generation: u32,
}

/// Identifies a write, so that its answer can be recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arrival {
    /// A write of a known stream.
    Following(StreamKey),
    /// A write that may be the first of a stream.
    Single {
        /// The number of its arrival.
        number: u64,
        /// Where it is remembered, until it is forgotten.
        place: usize,
    },
}

impl Arrival {
    /// The stream that the write was known to belong to on arrival.
    pub(crate) fn stream(self) -> Option<StreamKey> {
        match self {
            Self::Following(key) => Some(key),
            Self::Single { .. } => None,
        }
    }
}

/// A write that continued no other.
#[derive(Debug)]
struct Single {
    /// The number of its arrival.
    number: u64,
    end: u64,
    /// Bytes of it that are not answered yet.
    in_flight: u64,
    /// The stream that it turned out to begin.
    began: Option<StreamKey>,
}

#[derive(Debug, Default)]
struct Stream {
    generation: u32,
    /// When it was last used, counted in arrivals.
    used: u64,
    front: Front,
    /// Requests not yet answered, and their bytes.
    requests: u32,
    in_flight: u64,
    /// The most bytes in flight since the last wait in vain.
    peak: u64,
    /// The bytes in flight when it last waited in vain.
    in_vain: u64,
    impatient_stripes: u32,
    /// Arrivals and answers.
    events: u64,
    /// A stripe of which a part will not come again, and how many bytes that is.
    gone: (u64, u64),
}

impl Stream {
    /// By how many bytes the stream's writes may overtake each other: as many as are under way. If a whole stripe
    /// were allowed, random writes near any stream would wait for company.
    fn overtaken(&self, stripe_bytes: u64) -> u64 {
        self.in_flight.max(self.peak).min(stripe_bytes - 1)
    }
}

/// The streams of writes of an array.
#[derive(Debug)]
pub(crate) struct Streams {
    stripe_bytes: u64,
    /// Stripes after which an impatient stream may wait again.
    impatience: u32,
    arrivals: u64,
    streams: Vec<Stream>,
    /// For each stream, where writes matter to it. Most writes matter to none, and need no further search.
    reaches: Vec<Range<u64>>,
    /// A ring.
    singles: Vec<Single>,
    next_single: usize,
    /// How many singles end at a byte with this hash. Most writes continue none, and need no further search.
    ends: [u8; 256],
}

/// Where in [`Streams::ends`] a byte is counted (Fibonacci hashing).
fn place_of(end: u64) -> usize {
    (end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

impl Streams {
    /// For an array with stripes of this many bytes of data.
    pub(crate) fn new(stripe_bytes: u64) -> Self {
        let (streams, reaches, singles) = (Vec::new(), Vec::new(), Vec::new());
        let impatience = STRIPES_OF_IMPATIENCE;
        Self { stripe_bytes, impatience, arrivals: 0, streams, reaches, singles, next_single: 0, ends: [0; 256] }
    }

    /// Impatient streams are answered from memory, or not any more.
    pub(crate) fn answer_impatient(&mut self, are_answered: bool) {
        self.impatience = if are_answered { STRIPES_OF_IMPATIENCE_ANSWERED } else { STRIPES_OF_IMPATIENCE };
    }

    /// Records a write of `bytes` at `at`, and returns the stream that it belongs to. `waiting_from` is where the
    /// waiting data begins that the write continues in its stripe.
    pub(crate) fn arrive(&mut self, at: u64, bytes: u64, waiting_from: impl FnOnce() -> Option<u64>) -> Arrival {
        self.arrivals += 1;
        let write = at..at + bytes;
        let matters = self.matters(&write);
        debug_assert!(matters || self.continued(&write).is_none(), "{write:?} is out of reach: {:?}", self.reaches);
        let (index, place) = match if matters { self.continued(&write) } else { None } {
            Some(found) => found,
            None => {
                if matters {
                    self.contradict(&write);
                }
                match self.single_before(at) {
                    Some(first) => (self.begin(first, waiting_from().unwrap_or(at)), StreamPlace::Next),
                    None => return self.remember(write.end, bytes),
                }
            }
        };
        let (stripe_bytes, impatience) = (self.stripe_bytes, self.impatience);
        let stream = &mut self.streams[index];
        stream.used = self.arrivals;
        stream.events += 1;
        stream.requests += 1;
        stream.in_flight += bytes;
        // A single request under way does not show that another will join it.
        if stream.requests > 1 {
            stream.peak = stream.peak.max(stream.in_flight);
        }
        if write.end / stripe_bytes != stream.front.next() / stripe_bytes {
            stream.impatient_stripes += 1;
            if stream.impatient_stripes >= impatience {
                stream.impatient_stripes = 0;
                stream.in_vain /= 2;
            }
        }
        let overtaken = stream.overtaken(stripe_bytes);
        stream.front.advance(&write, place, overtaken);
        self.reaches[index] = stream.front.reach(stripe_bytes);
        Arrival::Following(StreamKey { index: index as u8, generation: stream.generation })
    }

    /// Whether a write may belong to any stream, or contradict it. Without a branch, so that several are compared at
    /// a time.
    fn matters(&self, write: &Range<u64>) -> bool {
        let is_in = |reach: &Range<u64>| reach.start < write.end && write.start < reach.end;
        self.reaches.iter().fold(false, |any, reach| any | is_in(reach))
    }

    /// The stream that a write belongs to, and where in it. A stream that continues exactly there comes before one
    /// that the write would have overtaken.
    fn continued(&self, write: &Range<u64>) -> Option<(usize, StreamPlace)> {
        let mut found = None;
        for (index, stream) in self.streams.iter().enumerate() {
            match stream.front.place(write, stream.overtaken(self.stripe_bytes)) {
                Some(StreamPlace::Ahead) if found.is_some() => {}
                Some(StreamPlace::Ahead) => found = Some((index, StreamPlace::Ahead)),
                Some(place) => return Some((index, place)),
                None => {}
            }
        }
        found
    }

    /// Records a write of no known stream: streams near it may not be streams either.
    fn contradict(&mut self, write: &Range<u64>) {
        for stream in &mut self.streams {
            if stream.front.is_near(write, self.stripe_bytes) {
                stream.front.contradict();
            }
        }
    }

    /// The single write that a write at `at` continues.
    fn single_before(&self, at: u64) -> Option<usize> {
        let precedes = |single: &Single| single.end == at && single.began.is_none();
        if self.ends[place_of(at)] > 0 { self.singles.iter().position(precedes) } else { None }
    }

    /// Makes a stream of a single write and the one that continues it. `from` is where the second write begins, or
    /// the data that waits in its stripe.
    fn begin(&mut self, first: usize, from: u64) -> usize {
        let index = if self.streams.len() < STREAMS_MAX {
            self.streams.push(Stream::default());
            self.reaches.push(0..0);
            self.streams.len() - 1
        } else {
            (0..STREAMS_MAX).min_by_key(|&index| self.streams[index].used).expect("there are streams")
        };
        let generation = self.streams[index].generation.wrapping_add(1);
        let single = &mut self.singles[first];
        single.began = Some(StreamKey { index: index as u8, generation });
        self.streams[index] = Stream {
            generation,
            front: Front::new(single.end, single.in_flight),
            requests: u32::from(single.in_flight > 0),
            in_flight: single.in_flight,
            gone: (from / self.stripe_bytes, from % self.stripe_bytes),
            ..Stream::default()
        };
        index
    }

    /// Remembers a single write, in place of the oldest.
    fn remember(&mut self, end: u64, in_flight: u64) -> Arrival {
        let (number, place) = (self.arrivals, self.next_single);
        let single = Single { number, end, in_flight, began: None };
        match self.singles.get_mut(place) {
            Some(oldest) => {
                let oldest = std::mem::replace(oldest, single);
                self.ends[place_of(oldest.end)] -= 1;
                self.forget(&oldest);
            }
            None => self.singles.push(single),
        }
        self.ends[place_of(end)] += 1;
        self.next_single = (place + 1) % SINGLES_MAX;
        Arrival::Single { number, place }
    }

    /// Takes the bytes of a forgotten single write off its stream. When the write is answered, its stream is not
    /// known any more.
    fn forget(&mut self, single: &Single) {
        if single.in_flight > 0
            && let Some(stream) = single.began.and_then(|key| self.get(key))
        {
            stream.requests -= 1;
            stream.in_flight -= single.in_flight;
        }
    }

    fn get(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.streams.get_mut(usize::from(key.index)).filter(|stream| stream.generation == key.generation)
    }

    /// The stream that a write belongs to, as far as is known by now.
    pub(crate) fn stream_of(&self, arrival: Arrival) -> Option<StreamKey> {
        match arrival {
            Arrival::Following(key) => Some(key),
            Arrival::Single { number, place } => {
                self.singles.get(place).filter(|single| single.number == number).and_then(|single| single.began)
            }
        }
    }

    /// Records that a write of `bytes` was answered or given up.
    pub(crate) fn answer(&mut self, arrival: Arrival, bytes: u64) {
        let began = self.stream_of(arrival);
        if let Arrival::Single { number, place } = arrival
            && let Some(single) = self.singles.get_mut(place).filter(|single| single.number == number)
        {
            single.in_flight = 0;
        }
        if let Some(stream) = began.and_then(|key| self.get(key)) {
            stream.events += 1;
            stream.requests -= 1;
            stream.in_flight -= bytes;
        }
    }

    /// How many bytes of a stripe can come together. Fewer than all, if the stream began within the stripe or a part
    /// was written before.
    pub(crate) fn expected(&mut self, key: Option<StreamKey>, stripe: u64) -> u64 {
        let whole = self.stripe_bytes;
        let gone = key.and_then(|key| self.get(key)).map(|stream| stream.gone).filter(|gone| gone.0 == stripe);
        whole - gone.map_or(0, |(_, bytes)| bytes.min(whole))
    }

    /// Records that `bytes` of a stripe are written without the rest.
    pub(crate) fn part_goes(&mut self, key: StreamKey, stripe: u64, bytes: u64) {
        if let Some(stream) = self.get(key) {
            let before = if stream.gone.0 == stripe { stream.gone.1 } else { 0 };
            stream.gone = (stripe, before + bytes);
        }
    }

    /// Whether it certainly is a stream.
    pub(crate) fn is_proven(&mut self, key: StreamKey) -> bool {
        let stripe_bytes = self.stripe_bytes;
        self.get(key).is_some_and(|stream| stream.front.is_proven(stripe_bytes))
    }

    /// Whether it pays to wait for the stream's next write.
    pub(crate) fn may_bring_more(&mut self, key: StreamKey) -> bool {
        let stripe_bytes = self.stripe_bytes;
        self.get(key).is_some_and(|stream| stream.peak > stream.in_vain && stream.front.is_proven(stripe_bytes))
    }

    /// Whether the stream may still bring more of a stripe.
    pub(crate) fn is_to_come(&mut self, key: StreamKey, stripe: u64) -> bool {
        let stripe_bytes = self.stripe_bytes;
        let range = stripe * stripe_bytes..(stripe + 1) * stripe_bytes;
        self.get(key).is_some_and(|stream| stream.front.is_to_come(&range))
    }

    /// Arrivals and answers so far, and requests not yet answered.
    pub(crate) fn activity(&mut self, key: StreamKey) -> (u64, u32) {
        self.get(key).map_or((0, 0), |stream| (stream.events, stream.requests))
    }

    /// Records that everything in flight waited, and nothing came.
    pub(crate) fn waited_in_vain(&mut self, key: StreamKey) {
        if let Some(stream) = self.get(key) {
            (stream.in_vain, stream.peak, stream.impatient_stripes) = (stream.in_flight, stream.in_flight, 0);
        }
    }

    /// Records that several writes brought all that can come of a stripe, `bytes` of it.
    pub(crate) fn filled(&mut self, key: StreamKey, bytes: u64) {
        let is_whole = bytes == self.stripe_bytes;
        if let Some(stream) = self.get(key).filter(|_| is_whole) {
            stream.in_vain = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: u64 = 100;

    /// A write of ten bytes that continues a stream.
    fn follow(streams: &mut Streams, at: u64) -> StreamKey {
        streams.arrive(at, 10, || None).stream().expect("goes on")
    }

    /// A stream up to byte 50 that has nothing under way.
    fn proven(streams: &mut Streams) -> StreamKey {
        let first = streams.arrive(0, 5, || None);
        streams.answer(first, 5);
        let keys = [5, 10, 15, 20, 25, 30, 35, 40, 45].map(|at| {
            let arrival = streams.arrive(at, 5, || None);
            streams.answer(arrival, 5);
            arrival.stream().expect("goes on")
        });
        keys[0]
    }

    #[test]
    fn writes_that_follow_each_other_are_a_stream_whatever_comes_between() {
        let mut streams = Streams::new(STRIPE);
        assert_eq!(
            streams.arrive(1000, 10, || None).stream(),
            None,
            "the first write of a stream is not known as such"
        );
        let random = |streams: &mut Streams, from: u64| {
            (0..50).for_each(|n| assert_eq!(streams.arrive(1_000_000 + (from + n) * 7919, 10, || None).stream(), None));
        };
        random(&mut streams, 0);
        let key = follow(&mut streams, 1010);
        random(&mut streams, 100);
        random(&mut streams, 200);
        assert_eq!(follow(&mut streams, 1020), key);
        assert_eq!(follow(&mut streams, 1040), key, "overtook another");
        assert_eq!(follow(&mut streams, 1030), key, "which comes late");
        assert_eq!(streams.arrive(5000, 10, || None).stream(), None);
    }

    /// `writes` writes at random places of an area of `area` write lengths, 32 under way. Returns how many would wait
    /// for company.
    fn waited_for(writes: u64, area: u64) -> u64 {
        let (mut streams, mut random) = (Streams::new(112), 7_u64);
        let mut under_way = std::collections::VecDeque::new();
        let mut waited_for = 0;
        for _ in 0..writes {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let arrival = streams.arrive((random >> 33) % area, 1, || None);
            waited_for += u64::from(arrival.stream().is_some_and(|key| streams.may_bring_more(key)));
            under_way.push_back(arrival);
            if under_way.len() == 32 {
                streams.answer(under_way.pop_front().expect("32 are"), 1);
            }
        }
        waited_for
    }

    #[test]
    fn random_writes_are_not_waited_for_however_small_the_area() {
        for area in [57_344, 4096, 1024, 512, 256, 128] {
            assert_eq!(waited_for(50_000, area), 0, "an area of {area}");
        }
        // As many places as are under way: now and then several writes are consecutive.
        assert!(waited_for(50_000, 32) < 50, "{}", waited_for(50_000, 32));
    }

    #[test]
    fn a_stream_with_one_request_at_a_time_is_never_waited_for() {
        let mut streams = Streams::new(STRIPE);
        let first = streams.arrive(0, 10, || None);
        streams.answer(first, 10);
        for at in (10..5000).step_by(10) {
            let key = follow(&mut streams, at);
            assert!(!streams.may_bring_more(key), "at {at}");
            streams.answer(Arrival::Following(key), 10);
        }
    }

    #[test]
    fn a_stream_that_waited_in_vain_is_waited_for_when_it_has_more_under_way() {
        let mut streams = Streams::new(STRIPE);
        let key = proven(&mut streams);
        let last = streams.arrive(50, 10, || None);
        assert!(!streams.may_bring_more(key), "one is under way");
        streams.arrive(60, 10, || None);
        assert!(streams.may_bring_more(key), "two are under way");
        streams.arrive(70, 10, || None);
        streams.waited_in_vain(key);
        assert!(!streams.may_bring_more(key));
        streams.answer(last, 10);
        streams.arrive(80, 10, || None);
        assert!(!streams.may_bring_more(key), "as much as then");
        streams.arrive(90, 10, || None);
        assert!(streams.may_bring_more(key), "more than then");
    }

    #[test]
    fn a_stream_among_random_writes_near_it_is_not_waited_for() {
        let mut streams = Streams::new(STRIPE);
        let key = proven(&mut streams);
        streams.arrive(50, 10, || None);
        streams.arrive(60, 10, || None);
        assert!(streams.may_bring_more(key));
        streams.arrive(1000, 10, || None);
        assert!(streams.may_bring_more(key), "that was elsewhere");
        streams.arrive(0, 10, || None);
        streams.arrive(31, 10, || None);
        assert!(!streams.may_bring_more(key));
    }

    #[test]
    fn a_forgotten_first_write_no_longer_counts_as_in_flight() {
        let mut streams = Streams::new(STRIPE);
        let first = streams.arrive(0, 10, || None);
        let key = follow(&mut streams, 10);
        assert_eq!((streams.stream_of(first), streams.activity(key).1), (Some(key), 2));
        for n in 0..SINGLES_MAX as u64 {
            streams.arrive(1_000_000 + n * 7919, 10, || None);
        }
        assert_eq!((streams.stream_of(first), streams.activity(key).1), (None, 1));
        streams.answer(first, 10);
        assert_eq!(streams.activity(key).1, 1, "not counted twice");
    }

    #[test]
    fn bytes_that_cannot_come_are_not_expected() {
        let mut streams = Streams::new(STRIPE);
        streams.arrive(1020, 10, || None);
        let key = streams.arrive(1030, 10, || Some(1020)).stream();
        assert_eq!(streams.expected(key, 10), 80, "it began at 20, and that part still waits");
        streams.part_goes(key.expect("goes on"), 10, 20);
        assert_eq!(streams.expected(key, 10), 60);
        assert_eq!((streams.expected(key, 11), streams.expected(None, 10)), (100, 100));
    }

    #[test]
    fn more_streams_than_are_followed_push_out_the_one_least_lately_used() {
        let mut streams = Streams::new(STRIPE);
        let keys: Vec<_> = (0..=STREAMS_MAX as u64)
            .map(|number| {
                let first = streams.arrive(number * 10_000, 10, || None);
                streams.answer(first, 10);
                follow(&mut streams, number * 10_000 + 10)
            })
            .collect();
        assert_eq!(streams.activity(keys[0]), (0, 0), "forgotten");
        streams.answer(Arrival::Following(keys[0]), 10);
        assert_eq!(streams.activity(keys[1]), (1, 1));
    }
}
