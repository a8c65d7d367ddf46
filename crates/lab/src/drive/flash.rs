//! A solid-state drive: a link, a write buffer, and channels of flash behind it.
//!
//! * Commands cross the link one at a time. Each takes a fixed time and a time per byte. On a half-duplex link (SATA),
//!   reads and writes share it.
//! * A latency is added to each command; it occupies nothing. It may have a tail: most commands are quick, a few slow.
//! * A read also waits for the channels that hold its pages. A write completes when it is in the buffer; the buffer is
//!   then written to the flash, one channel after the other. When the buffer is full, writes wait.
//! * A write that covers a unit in part makes the drive read the unit from flash, change it and write it. While such a
//!   unit is being programmed, it cannot be read for the next change.
//! * With a volatile cache, a flush waits until the buffer is empty.

use super::Request;
use engine::Operation;
use std::collections::{HashMap, VecDeque};
use world::Random;

/// The cost of reads, or of writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// The least time from the end of the transfer to the completion.
    pub latency_nanos: u64,
    /// The random part of the latency, at most.
    pub latency_spread_nanos: u64,
    /// The further latency that half of the commands exceed, a quarter by twice as much, and so on; 0 for none.
    pub tail_nanos: u64,
    /// How long a command occupies the link.
    pub command_nanos: u64,
    /// How long a byte occupies the link, in picoseconds.
    pub byte_picos: u64,
    /// How long a page occupies a channel.
    pub page_nanos: u64,
}

/// A solid-state drive's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Whether reads and writes share the link.
    pub half_duplex: bool,
    /// The number of independent channels.
    pub channels: usize,
    /// Bytes of a page. Consecutive pages are on consecutive channels.
    pub page_bytes: u64,
    /// Capacity of the write buffer.
    pub buffer_bytes: u64,
    /// The cost of a write that covers a unit in part, if there is one.
    pub rewriting: Option<Rewriting>,
}

/// The cost of reading, changing and writing a unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewriting {
    /// The least time until the write completes.
    pub nanos: u64,
    /// The random part of this time, at most.
    pub spread_nanos: u64,
    /// How long the unit is then programmed, and cannot be read for another change.
    pub program_nanos: u64,
}

/// The state of a solid-state drive. Moments are in nanoseconds.
pub struct Flash {
    parameters: Parameters,
    /// The unit that the drive writes without reading it first.
    unit_bytes: u64,
    volatile_cache: bool,
    random: Random,
    /// When the link is free for reads, and for writes. Both are equal on a half-duplex link.
    read_link: u64,
    write_link: u64,
    /// When each channel is free.
    channels: Vec<u64>,
    /// The channel of the next page that is written.
    next_channel: usize,
    /// Writes in the buffer: the moment at which each is in the flash, and its length.
    buffer: VecDeque<(u64, u64)>,
    buffered_bytes: u64,
    /// Changed units, and the moments at which they are programmed.
    changed: HashMap<u64, u64>,
}

impl Flash {
    pub(super) fn new(parameters: Parameters, unit_bytes: u64, volatile_cache: bool, seed: u64) -> Self {
        Self {
            channels: vec![0; parameters.channels],
            parameters,
            unit_bytes,
            volatile_cache,
            random: Random::new(seed),
            read_link: 0,
            write_link: 0,
            next_channel: 0,
            buffer: VecDeque::new(),
            buffered_bytes: 0,
            changed: HashMap::new(),
        }
    }

    /// Serves a command that begins at `now`; returns when it is done.
    pub(super) fn serve(&mut self, now: u64, request: &Request) -> u64 {
        match request.operation {
            Operation::Read => self.read(now, request),
            Operation::Write | Operation::WriteZeroes => self.write(now, request),
            Operation::Flush => {
                let written = self.buffer.iter().map(|(in_flash, _)| *in_flash).max().unwrap_or(0);
                let emptied = if self.volatile_cache { written.max(now) } else { now };
                emptied + self.parameters.write.latency_nanos.max(1)
            }
            Operation::Discard => now + self.parameters.write.latency_nanos.max(1),
        }
    }

    fn read(&mut self, now: u64, request: &Request) -> u64 {
        let page = self.parameters.page_bytes;
        let mut read = now;
        for number in request.at / page..request.end().div_ceil(page) {
            let channel = &mut self.channels[number as usize % self.parameters.channels];
            *channel = (*channel).max(now) + self.parameters.read.page_nanos;
            read = read.max(*channel);
        }
        read.max(self.cross(now, request)) + self.latency(Operation::Read)
    }

    fn write(&mut self, now: u64, request: &Request) -> u64 {
        let room = self.room(now, request.bytes);
        let crossed = self.cross(room, request);
        let mut in_flash = crossed;
        let pages = request.bytes.div_ceil(self.parameters.page_bytes).max(1);
        // A partly filled page shares its programming with the next write.
        let nanos = self.parameters.write.page_nanos * request.bytes / (pages * self.parameters.page_bytes);
        for _ in 0..pages {
            let channel = &mut self.channels[self.next_channel];
            *channel = (*channel).max(crossed) + nanos;
            in_flash = in_flash.max(*channel);
            self.next_channel = (self.next_channel + 1) % self.parameters.channels;
        }
        self.buffer.push_back((in_flash, request.bytes));
        self.buffered_bytes += request.bytes;
        let changed = self.change(crossed, request);
        changed.max(crossed + self.latency(Operation::Write))
    }

    /// When the request has crossed the link.
    fn cross(&mut self, now: u64, request: &Request) -> u64 {
        let is_read = request.operation == Operation::Read;
        let direction = if is_read { &self.parameters.read } else { &self.parameters.write };
        let nanos = direction.command_nanos + request.bytes * direction.byte_picos / 1000;
        let link = if is_read { &mut self.read_link } else { &mut self.write_link };
        *link = (*link).max(now) + nanos;
        let free_at = *link;
        if self.parameters.half_duplex {
            (self.read_link, self.write_link) = (free_at, free_at);
        }
        free_at
    }

    fn latency(&mut self, operation: Operation) -> u64 {
        let direction = match operation {
            Operation::Read => &self.parameters.read,
            _ => &self.parameters.write,
        };
        let (least, spread, tail) = (direction.latency_nanos, direction.latency_spread_nanos, direction.tail_nanos);
        least + self.random.within(0..spread + 1) + self.tail(tail)
    }

    /// A time that exceeds `half` in half of all cases, twice `half` in a quarter, and so on. Integers alone, so that it
    /// is the same on every machine.
    fn tail(&mut self, half: u64) -> u64 {
        if half == 0 {
            return 0;
        }
        let times = u64::from(self.random.number().trailing_ones());
        times * half + self.random.within(0..half)
    }

    /// When the buffer has room for `bytes`.
    fn room(&mut self, now: u64, bytes: u64) -> u64 {
        let mut at = now;
        while let Some((in_flash, written)) = self.buffer.front().copied() {
            if in_flash > now && self.buffered_bytes + bytes <= self.parameters.buffer_bytes {
                break;
            }
            at = at.max(in_flash);
            self.buffered_bytes -= written;
            self.buffer.pop_front();
        }
        at
    }

    /// When the units that the write covers in part have been read and changed.
    fn change(&mut self, now: u64, request: &Request) -> u64 {
        let Some(rewriting) = &self.parameters.rewriting else { return now };
        let unit = self.unit_bytes;
        let (first, last) = (request.at / unit, (request.end().max(1) - 1) / unit);
        let head = (!request.at.is_multiple_of(unit)).then_some(first);
        let tail = (!request.end().is_multiple_of(unit)).then_some(last).filter(|tail| Some(*tail) != head);
        let mut done = now;
        for number in head.into_iter().chain(tail) {
            let readable = self.changed.get(&number).copied().unwrap_or(0).max(now);
            let changed = readable + rewriting.nanos + self.random.within(0..rewriting.spread_nanos + 1);
            self.changed.insert(number, changed + rewriting.program_nanos);
            done = done.max(changed);
        }
        done
    }
}
