//! Where tasks of a simulated world wait for a modelled drive.
//!
//! Members on one drive (partitions) share its station. What is submitted in one
//! moment is in the queue before anything of it begins, as if plugged. The drive
//! works whether or not anybody looks: a task of its own begins what waits.

use super::{Drive, Interface, Model, Request, Tally, Ticket};
use crate::executor::World;
use engine::{Clock, Moment, Operation};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A drive in a world.
pub struct Station {
    world: World,
    interface: Interface,
    drive: RefCell<Drive>,
    waits: RefCell<HashMap<Ticket, Wait>>,
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

    /// Returns when the drive has done what is asked. A flush of a drive without a
    /// volatile cache is not sent to it.
    pub async fn serve(self: &Rc<Self>, request: Request) {
        if request.operation == Operation::Flush && !self.interface.volatile_cache {
            return;
        }
        let ticket = self.drive.borrow_mut().submit(request);
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
            for ticket in begun.tickets {
                let before = self.waits.borrow_mut().insert(ticket, Wait::Until(begun.done_at));
                if let Some(Wait::Waiting(waker)) = before {
                    waker.wake();
                }
            }
        }
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
