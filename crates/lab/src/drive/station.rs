//! Where tasks of a simulated world wait for a modelled drive.
//!
//! Members that are partitions of one drive share its station. All requests that are submitted at one moment reach the
//! queue before any of them begins, as if plugged. A task of the station begins waiting commands, so the drive works
//! whether or not a member polls it.

use super::{Begun, Drive, Interface, Model, Request, Tally, Ticket};
use engine::{Clock, Moment, Operation};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use world::World;

/// A jiffy, the unit in which Linux counts the busy time of a device: 1000 per second.
const JIFFY_NANOS: u64 = 1_000_000;

/// Statistics of a drive's queue, as iostat(1) computes them from /proc/diskstats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Diskstats {
    /// Completed reads, counted after merging.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Reads that were merged into others.
    pub merged_reads: u64,
    /// The sum of the times from submission to completion.
    pub read_nanos: u64,
    /// Jiffies in which a command began, ended or was in flight.
    pub busy_jiffies: u64,
    /// The first jiffy that does not count as busy yet.
    idle_from: u64,
}

impl Diskstats {
    /// Counts one command made of `merged` requests, the first of which was submitted at `asked`.
    fn count(&mut self, operation: Operation, bytes: u64, merged: u64, asked: u64, done: u64) {
        let (first, last) = (asked / JIFFY_NANOS, done / JIFFY_NANOS);
        self.busy_jiffies += (last + 1).saturating_sub(first.max(self.idle_from));
        self.idle_from = self.idle_from.max(last + 1);
        if operation == Operation::Read {
            self.reads += 1;
            self.read_bytes += bytes;
            self.merged_reads += merged - 1;
            self.read_nanos += done - asked;
        }
    }

    /// The statistics since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            merged_reads: self.merged_reads - before.merged_reads,
            read_nanos: self.read_nanos - before.read_nanos,
            busy_jiffies: self.busy_jiffies - before.busy_jiffies,
            idle_from: self.idle_from,
        }
    }
}

/// A drive in a world.
pub struct Station {
    world: World,
    interface: Interface,
    drive: RefCell<Drive>,
    waits: RefCell<HashMap<Ticket, Wait>>,
    /// Submitted requests that have not begun, and the moments at which they were submitted.
    asked: RefCell<HashMap<Ticket, (u64, Request)>>,
    diskstats: Cell<Diskstats>,
    /// Whether the drive's task is running.
    is_working: Cell<bool>,
}

enum Wait {
    /// In the queue.
    Waiting(Waker),
    /// Begun, and done at this moment.
    Until(u64),
}

impl Station {
    /// A drive of this model; for `seed` see [`Drive::new`].
    pub fn new(world: &World, model: &Model, seed: u64) -> Self {
        Self {
            world: world.clone(),
            interface: model.interface.clone(),
            drive: RefCell::new(Drive::new(model, seed)),
            waits: RefCell::default(),
            asked: RefCell::default(),
            diskstats: Cell::default(),
            is_working: Cell::new(false),
        }
    }

    /// The drive's interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The drive's commands so far.
    pub fn tally(&self) -> Tally {
        self.drive.borrow().tally()
    }

    /// The statistics of the drive's queue so far.
    pub fn diskstats(&self) -> Diskstats {
        self.diskstats.get()
    }

    /// Returns when the drive has served the request. A flush is not sent to a drive without a volatile cache.
    pub async fn serve(self: &Rc<Self>, request: Request) {
        if request.operation == Operation::Flush && !self.interface.volatile_cache {
            return;
        }
        let ticket = self.drive.borrow_mut().submit(request);
        self.asked.borrow_mut().insert(ticket, (self.world.clock().now().nanos, request));
        if !self.is_working.replace(true) {
            self.world.spawn(work(Working(self.clone())));
        }
        let done_at = poll_fn(|context| {
            let mut waits = self.waits.borrow_mut();
            match waits.insert(ticket, Wait::Waiting(context.waker().clone())) {
                Some(Wait::Until(done_at)) => {
                    waits.remove(&ticket);
                    Poll::Ready(done_at)
                }
                _ => Poll::Pending,
            }
        });
        let done_at = done_at.await;
        self.world.clock().sleep_until(Moment { nanos: done_at }).await;
    }

    /// Begins every command that can begin now.
    fn begin(&self) {
        let now = self.world.clock().now().nanos;
        let mut drive = self.drive.borrow_mut();
        while let Some(begun) = drive.begin(now) {
            self.count(&begun);
            for ticket in begun.tickets {
                let before = self.waits.borrow_mut().insert(ticket, Wait::Until(begun.done_at));
                if let Some(Wait::Waiting(waker)) = before {
                    waker.wake();
                }
            }
        }
    }
}

impl Station {
    fn count(&self, begun: &Begun) {
        let mut asked = self.asked.borrow_mut();
        let parts: Vec<(u64, Request)> = begun.tickets.iter().filter_map(|ticket| asked.remove(ticket)).collect();
        let Some((_, first)) = parts.first() else { return };
        let since = parts.iter().map(|(since, _)| *since).min().unwrap_or(0);
        let bytes = parts.iter().map(|(_, request)| request.bytes).sum();
        let mut diskstats = self.diskstats.get();
        diskstats.count(first.operation, bytes, parts.len() as u64, since, begun.done_at);
        self.diskstats.set(diskstats);
    }
}

/// Marks the drive's task as running until it is dropped.
struct Working(Rc<Station>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.is_working.set(false);
    }
}

/// Begins waiting commands as soon as the drive accepts them, until none waits.
async fn work(working: Working) {
    let station = &working.0;
    loop {
        station.begin();
        let next = station.drive.borrow().next_room();
        let Some(nanos) = next else { return };
        station.world.clock().sleep_until(Moment { nanos }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::models;

    #[test]
    fn requests_submitted_at_one_moment_are_merged_before_any_begins() {
        let world = World::new(1);
        let station = Rc::new(Station::new(&world, &models::e1_ssd(), 1));
        for index in 1..8 {
            let station = station.clone();
            world.spawn(async move {
                station.serve(Request { operation: Operation::Write, at: index * 4096, bytes: 4096 }).await;
            });
        }
        world.run(station.serve(Request { operation: Operation::Write, at: 0, bytes: 4096 }), || false);
        assert_eq!(station.tally(), Tally { writes: 1, written_bytes: 32768, ..Tally::default() });
    }
}
