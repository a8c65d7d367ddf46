//! A hard disk: one arm over turning platters, a queue, and a read-ahead buffer.
//!
//! * Outer tracks are longer than inner ones (zones). The angle under the head is a function of time.
//! * A seek takes a fixed time, and a time that grows with the square root of the distance. Then the disk waits until
//!   the sector comes round.
//! * The disk serves the command of its queue that it can begin first.
//! * After a read an idle disk reads on into its buffer, so a stream that is read with pauses loses no revolution.
//! * A disk with segments reads on after each short read that continues an earlier one, before it serves others. Later
//!   reads of that stream take no arm, and go first.
//! * A disk with patience serves a command first that has waited so long.
//!
//! Writes go to the platters: the write cache of the modelled disks is off, as is usual in arrays.

use super::Request;
use engine::Operation;
use std::collections::VecDeque;
use std::ops::Range;
use world::Random;

/// A zone: tracks of equal length.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    /// Bytes of the disk in this zone.
    pub bytes: u64,
    /// Bytes of a track.
    pub track_bytes: u64,
}

/// A hard disk's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Time of one revolution.
    pub revolution_nanos: u64,
    /// Time of a seek to the next track.
    pub seek_min_nanos: u64,
    /// Time of a seek over the whole disk.
    pub seek_max_nanos: u64,
    /// Time of a command apart from the mechanics.
    pub command_nanos: u64,
    /// The zones, from the outside in.
    pub zones: Vec<Zone>,
    /// The length of the read-ahead.
    pub read_ahead_bytes: u64,
    /// Bytes that the disk reads on for a stream of short reads, whatever waits; 0 for a disk without segments.
    pub segment_bytes: u64,
    /// Whether each disk's platters have an angle of their own. Without it all disks of an array turn in step.
    pub has_own_phase: bool,
    /// How long a command waits at most for others that are nearer, in nanoseconds.
    pub patience_nanos: u64,
}

/// A read of at most this part of a segment is short.
const SHORT_PART: u64 = 4;

/// Segments, and so streams that a disk tells apart.
const SEGMENTS: usize = 16;

/// The state of a hard disk. Moments are in nanoseconds.
pub struct Disk {
    parameters: Parameters,
    /// When the arm is free, and the byte after its last transfer.
    free_at: u64,
    head: u64,
    /// Whether the last transfer was a read, so that the disk reads ahead.
    reads_on: bool,
    /// Ranges of bytes in the buffer, the newest last.
    segments: VecDeque<Range<u64>>,
    /// How far this disk's platters are ahead of others', as a time.
    phase_nanos: u64,
}

/// The position of a byte.
struct Place {
    track: u64,
    /// A fraction of a revolution, in units of 2^-32.
    angle: u64,
    track_bytes: u64,
}

/// A whole revolution.
const TURN: u64 = 1 << 32;

impl Disk {
    pub(super) fn new(parameters: Parameters, seed: u64) -> Self {
        let phase = Random::new(seed).within(0..parameters.revolution_nanos);
        let phase_nanos = if parameters.has_own_phase { phase } else { 0 };
        Self { parameters, free_at: 0, head: 0, reads_on: false, segments: VecDeque::new(), phase_nanos }
    }

    /// Whether a command that was submitted at `asked` is served first at `now`.
    pub(super) fn is_overdue(&self, asked: u64, now: u64) -> bool {
        now.saturating_sub(asked) >= self.parameters.patience_nanos
    }

    /// The request that can begin first at `now`. Of requests that are consecutive on the disk only the first is
    /// considered: the elevator and the disk keep such requests in order.
    pub(super) fn nearest(&self, now: u64, requests: impl Iterator<Item = Request>) -> usize {
        let requests: Vec<_> = requests.collect();
        let follows = |request: &Request| {
            requests.iter().any(|other| other.operation == request.operation && other.end() == request.at)
        };
        let first = |(_, request): &(usize, &Request)| request.bytes == 0 || self.holds(request) || !follows(request);
        let costs = requests.iter().enumerate().filter(first).map(|(index, request)| (self.reach(now, request), index));
        costs.min().map_or(0, |(_, index)| index)
    }

    /// Serves a command that begins at `now`; returns when it is done.
    pub(super) fn serve(&mut self, now: u64, request: &Request) -> u64 {
        if !matches!(request.operation, Operation::Read | Operation::Write | Operation::WriteZeroes) {
            return now.max(self.free_at) + self.parameters.command_nanos;
        }
        if self.holds(request) {
            return now + self.parameters.command_nanos;
        }
        let begun = self.reach(now, request);
        let done = begun + self.transfer_nanos(request.at, request.bytes);
        self.free_at = done;
        self.head = request.end();
        self.reads_on = request.operation == Operation::Read;
        self.read_on(request);
        done.max(now) + self.parameters.command_nanos
    }

    /// Whether the buffer holds what is read.
    fn holds(&self, request: &Request) -> bool {
        let holds = |segment: &Range<u64>| segment.start <= request.at && request.end() <= segment.end;
        request.operation == Operation::Read && request.bytes > 0 && self.segments.iter().any(holds)
    }

    /// After a short read: reads on for its stream, if it has one, and remembers where it ends.
    fn read_on(&mut self, request: &Request) {
        let ahead = self.parameters.segment_bytes;
        if request.operation != Operation::Read || request.bytes * SHORT_PART > ahead {
            return;
        }
        let continues = |segment: &Range<u64>| (segment.start..=segment.end).contains(&request.at);
        let stream = self.segments.iter().position(continues).and_then(|index| self.segments.remove(index));
        let mut end = request.end();
        if stream.is_some() {
            self.free_at += self.transfer_nanos(end, ahead);
            end += ahead;
            self.head = end;
        }
        self.segments.push_back(request.at..end);
        if self.segments.len() > SEGMENTS {
            self.segments.pop_front();
        }
    }

    /// When the head reaches the first byte, or reached it while the disk read ahead.
    fn reach(&self, now: u64, request: &Request) -> u64 {
        if self.holds(request) {
            return 0;
        }
        let continues = (self.head..=self.head + self.parameters.read_ahead_bytes).contains(&request.at);
        if request.operation == Operation::Read && self.reads_on && continues {
            return self.free_at + self.transfer_nanos(self.head, request.at - self.head);
        }
        // The request was queued behind the one that it continues, so the head has not passed yet.
        if request.at == self.head && now <= self.free_at + self.parameters.command_nanos {
            return self.free_at;
        }
        let (from, to) = (self.place(self.head), self.place(request.at));
        let arrived = now.max(self.free_at) + self.seek_nanos(from.track.abs_diff(to.track));
        let revolution = self.parameters.revolution_nanos;
        let angle =
            (u128::from((arrived + self.phase_nanos) % revolution) * u128::from(TURN) / u128::from(revolution)) as u64;
        let turn = (to.angle + TURN - angle) % TURN;
        arrived + (u128::from(turn) * u128::from(revolution) / u128::from(TURN)) as u64
    }

    fn seek_nanos(&self, tracks: u64) -> u64 {
        if tracks == 0 {
            return 0;
        }
        let all = self.parameters.zones.iter().map(|zone| zone.bytes / zone.track_bytes).sum::<u64>().max(1);
        let share = (tracks as f64 / all as f64).sqrt();
        let (least, most) = (self.parameters.seek_min_nanos, self.parameters.seek_max_nanos);
        least + ((most - least) as f64 * share) as u64
    }

    fn place(&self, at: u64) -> Place {
        let (mut start, mut track) = (0, 0);
        let mut zones = self.parameters.zones.iter().peekable();
        while let Some(zone) = zones.next() {
            if at < start + zone.bytes || zones.peek().is_none() {
                let within = at - start;
                let angle =
                    (u128::from(within % zone.track_bytes) * u128::from(TURN) / u128::from(zone.track_bytes)) as u64;
                return Place { track: track + within / zone.track_bytes, angle, track_bytes: zone.track_bytes };
            }
            start += zone.bytes;
            track += zone.bytes / zone.track_bytes;
        }
        unreachable!("a disk has a zone")
    }

    /// The time for `bytes` from `at` on to pass under the head. Tracks are skewed, so that a step to the next track
    /// takes no extra time.
    fn transfer_nanos(&self, at: u64, bytes: u64) -> u64 {
        let track_bytes = self.place(at).track_bytes;
        (u128::from(bytes) * u128::from(self.parameters.revolution_nanos) / u128::from(track_bytes)) as u64
    }
}
