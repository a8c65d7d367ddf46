//! Models of drives, which say how long a real drive would take.
//!
//! A [`Drive`] is a pure state machine. A request is submitted; `begin` then says which waiting request starts at the
//! given moment, and when it ends. The same calls give the same times. A drive holds no data and knows neither world
//! nor tasks: [`Station`] connects it to them.
//!
//! Between the array and the medium is a queue that behaves as the kernel's block layer. Consecutive requests that wait
//! in it are merged up to a limit, and as many commands are in flight as the drive accepts.
//!
//! Media: [`Flash`](flash::Flash) (SATA or NVMe) and [`Disk`](disk::Disk). Their parameters are explained where they
//! are declared. The drives of the published measurements are in [`models`]: each value has the figure that fixes it,
//! and a test of the fit.

pub mod disk;
pub mod flash;
pub mod models;
pub mod station;

pub use station::{Diskstats, Station};

use engine::Operation;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A request to a drive: `bytes` from byte `at` on. Both are 0 for a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// The first byte.
    pub at: u64,
    /// The length.
    pub bytes: u64,
}

impl Request {
    fn end(&self) -> u64 {
        self.at + self.bytes
    }

    /// Whether the queue merges the two requests.
    fn merges_with(&self, other: &Request, bytes_max: u64) -> bool {
        let is_transfer = matches!(self.operation, Operation::Read | Operation::Write);
        let is_neighbour = self.end() == other.at || other.end() == self.at;
        is_transfer && self.operation == other.operation && is_neighbour && self.bytes + other.bytes <= bytes_max
    }
}

/// What a drive reports to its users, and the behaviour of its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Smallest unit of a transfer.
    pub logical_block_bytes: u32,
    /// The unit that the drive writes without reading it first.
    pub physical_block_bytes: u32,
    /// The size of transfer that the drive reports as optimal; 0 if it reports none.
    pub optimal_bytes: u32,
    /// Commands in flight at a time.
    pub queue_depth: usize,
    /// Neighbouring requests are merged up to this size (`max_sectors_kb`).
    pub merge_bytes_max: u64,
    /// Whether a loss of power may lose a completed write that was not flushed.
    pub volatile_cache: bool,
}

/// A model of a drive: its interface and its medium.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The name in tables.
    pub name: &'static str,
    /// The queue and the limits.
    pub interface: Interface,
    /// The medium behind the queue.
    pub medium: Medium,
}

/// The medium of a drive.
#[derive(Debug, Clone, PartialEq)]
pub enum Medium {
    /// Flash.
    Flash(flash::Parameters),
    /// Spinning platters.
    Disk(disk::Parameters),
}

/// The state behind the queue.
enum State {
    Flash(Box<flash::Flash>),
    Disk(Box<disk::Disk>),
}

/// Identifies a submitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Requests that were merged into one command, which has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The requests.
    pub tickets: Vec<Ticket>,
    /// When the command is done, in nanoseconds.
    pub done_at: u64,
}

/// A drive's commands so far, counted after merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Reads.
    pub reads: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
}

impl Tally {
    /// The commands since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

/// One drive.
pub struct Drive {
    interface: Interface,
    state: State,
    waiting: Vec<(Ticket, Request)>,
    /// The command that waits longest, and since when no other waits longer.
    oldest: Option<(Ticket, u64)>,
    /// When the commands in flight end.
    ends: BinaryHeap<Reverse<u64>>,
    next_ticket: u64,
    tally: Tally,
}

impl Drive {
    /// An idle drive. `seed` determines the random parts of the model.
    pub fn new(model: &Model, seed: u64) -> Self {
        let state = match &model.medium {
            Medium::Flash(parameters) => {
                let unit = u64::from(model.interface.physical_block_bytes);
                let cache = model.interface.volatile_cache;
                State::Flash(Box::new(flash::Flash::new(parameters.clone(), unit, cache, seed)))
            }
            Medium::Disk(parameters) => State::Disk(Box::new(disk::Disk::new(parameters.clone(), seed))),
        };
        Self {
            interface: model.interface.clone(),
            state,
            waiting: Vec::new(),
            oldest: None,
            ends: BinaryHeap::new(),
            next_ticket: 0,
            tally: Tally::default(),
        }
    }

    /// The commands so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Puts a request into the queue.
    pub fn submit(&mut self, request: Request) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting.push((ticket, request));
        ticket
    }

    /// Begins one waiting command, if there is one and the drive accepts it at `now`, in nanoseconds. `now` must not
    /// decrease.
    pub fn begin(&mut self, now: u64) -> Option<Begun> {
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.ends.pop();
        }
        if self.waiting.is_empty() || self.ends.len() >= self.concurrency() {
            return None;
        }
        let depth = self.interface.queue_depth;
        let since = self.oldest_since(now);
        let index = match &self.state {
            State::Flash(_) => 0,
            State::Disk(disk) if disk.is_overdue(since, now) => 0,
            State::Disk(disk) => disk.nearest(now, self.waiting.iter().take(depth).map(|(_, request)| *request)),
        };
        let (tickets, request) = self.take_merged(index);
        self.count(&request);
        let done_at = match &mut self.state {
            State::Flash(flash) => flash.serve(now, &request),
            State::Disk(disk) => disk.serve(now, &request),
        };
        self.ends.push(Reverse(done_at));
        Some(Begun { tickets, done_at })
    }

    fn oldest_since(&mut self, now: u64) -> u64 {
        let ticket = self.waiting[0].0;
        match self.oldest {
            Some((oldest, since)) if oldest == ticket => since,
            _ => {
                self.oldest = Some((ticket, now));
                now
            }
        }
    }

    /// When the drive accepts the next waiting command; `None` if none waits.
    pub fn next_room(&self) -> Option<u64> {
        let Reverse(end) = self.ends.peek().filter(|_| !self.waiting.is_empty())?;
        Some(*end)
    }

    /// Commands that the medium serves at the same time. The queue of a disk waits for the arm.
    fn concurrency(&self) -> usize {
        match &self.state {
            State::Flash(_) => self.interface.queue_depth,
            State::Disk(_) => 1,
        }
    }

    /// Takes a request and all those that merge with it from the queue.
    fn take_merged(&mut self, index: usize) -> (Vec<Ticket>, Request) {
        let (ticket, mut request) = self.waiting.remove(index);
        let mut tickets = vec![ticket];
        let bytes_max = self.interface.merge_bytes_max;
        while let Some(next) = self.waiting.iter().position(|(_, next)| request.merges_with(next, bytes_max)) {
            let (ticket, next) = self.waiting.remove(next);
            tickets.push(ticket);
            request = Request { at: request.at.min(next.at), bytes: request.bytes + next.bytes, ..request };
        }
        (tickets, request)
    }

    fn count(&mut self, request: &Request) {
        let tally = &mut self.tally;
        match request.operation {
            Operation::Read => {
                tally.reads += 1;
                tally.read_bytes += request.bytes;
            }
            Operation::Write => {
                tally.writes += 1;
                tally.written_bytes += request.bytes;
            }
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, bytes: u64) -> Request {
        Request { operation: Operation::Write, at, bytes }
    }

    fn drive(queue_depth: usize, merge_bytes_max: u64) -> Drive {
        let mut model = models::e1_ssd();
        model.interface = Interface { queue_depth, merge_bytes_max, ..model.interface };
        Drive::new(&model, 1)
    }

    #[test]
    fn consecutive_requests_that_wait_are_merged_up_to_the_limit() {
        let mut drive = drive(1, 16384);
        for at in [0, 8192, 4096, 12288, 16384, 40960] {
            drive.submit(write(at, 4096));
        }
        let first = drive.begin(0).expect("it is idle");
        assert_eq!(first.tickets, [Ticket(0), Ticket(2), Ticket(1), Ticket(3)]);
        let second = drive.begin(first.done_at).expect("the first is done");
        assert_eq!(second.tickets, [Ticket(4)]);
        assert_eq!(drive.tally(), Tally { writes: 2, written_bytes: 20480, ..Tally::default() });
    }

    #[test]
    fn no_more_commands_are_in_flight_than_the_drive_accepts() {
        let mut drive = drive(2, 0);
        for index in 0..3 {
            drive.submit(write(index * 8192, 4096));
        }
        let first = drive.begin(0).expect("room for two");
        assert!(drive.begin(0).is_some());
        assert!(drive.begin(first.done_at - 1).is_none());
        assert!(drive.begin(first.done_at).is_some());
    }

    #[test]
    fn the_same_requests_take_the_same_time() {
        for model in models::all() {
            let run = || {
                let mut drive = Drive::new(&model, 7);
                let mut now = 0;
                let mut ends = Vec::new();
                for index in 0..200_u64 {
                    let operation = if index % 3 == 0 { Operation::Read } else { Operation::Write };
                    drive.submit(Request { operation, at: index * index * 4096 % (1 << 30), bytes: 4096 });
                    while let Some(begun) = drive.begin(now) {
                        assert!(begun.done_at > now, "{}", model.name);
                        ends.push(begun.done_at);
                    }
                    now += 5_000;
                }
                ends
            };
            assert_eq!(run(), run(), "{}", model.name);
        }
    }
}
