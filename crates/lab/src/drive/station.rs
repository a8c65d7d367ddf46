//! Where tasks of a simulated world wait for a modelled drive.
//!
//! Members on one drive (partitions) share its station. What is submitted in one
//! moment is in the queue before anything of it begins, as if plugged. The drive
//! works whether or not anybody looks: a task of its own begins what waits.

use super::{Begun, Drive, Interface, Model, Request, Tally, Ticket};
use engine::{Clock, Moment, Operation};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use world::World;

/// A jiffy of the queue's clock, with which Linux counts a device's busy time: at 1000 a second.
const JIFFY_NANOS: u64 = 1_000_000;

/// What the queue of a drive did to reads, as iostat(1) has it from /proc/diskstats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Diskstats {
    /// Reads that were done, after merging.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Reads that became part of another.
    pub merged_reads: u64,
    /// From asking to done, of all of them together.
    pub read_nanos: u64,
    /// Jiffies in which anything was begun, done or under way.
    pub busy_jiffies: u64,
    /// The first jiffy that does not count as busy yet.
    idle_from: u64,
}

impl Diskstats {
    /// One read of `merged` requests, the first of them asked for at `asked`.
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

    /// What was done since `before`.
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
    /// What waits, and since when.
    asked: RefCell<HashMap<Ticket, (u64, Request)>>,
    diskstats: Cell<Diskstats>,
    /// Whether the drive's task is there.
    is_working: Cell<bool>,
}

enum Wait {
    /// In the queue.
    Waiting(Waker),
    /// Begun, to end then.
    Until(u64),
}

impl Station {
    /// A drive of this model; `seed` as [`Drive::new`] has it.
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

    /// What the drive tells its users.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// What the drive did so far.
    pub fn tally(&self) -> Tally {
        self.drive.borrow().tally()
    }

    /// What its queue did so far.
    pub fn diskstats(&self) -> Diskstats {
        self.diskstats.get()
    }

    /// Returns when the drive has done what is asked. A flush of a drive without a
    /// volatile cache is not sent to it.
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

    /// Begins what can begin now.
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

/// The drive's task, while there is one.
struct Working(Rc<Station>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.is_working.set(false);
    }
}

/// Begins what waits, as soon as there is room, until nothing waits.
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
    fn what_is_submitted_in_one_moment_is_merged_before_it_begins() {
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
