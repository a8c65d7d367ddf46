//! What fio does to an array: jobs, each with so many requests under way.
//!
//! A request's end lets its job make the next one, after the time that the
//! program and the system calls take. Data is zeros ([`super::contents`]).

use crate::drive::Tally;
use crate::rig::Rig;
use engine::{Clock, Durability};
use futures_util::future::{join, join_all};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use world::Random;

/// In which order a job's requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Anywhere, aligned to their length.
    Random,
    /// One behind the other; each job in a part of the array of its own.
    Linear,
}

/// Writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) bytes: u64,
    pub(crate) order: Order,
    pub(crate) jobs: u64,
    /// Requests that each job keeps under way.
    pub(crate) depth: u64,
    /// From the end of a request to the next of the same job.
    pub(crate) think: Duration,
    /// So many bytes of the array's beginning are written to.
    pub(crate) within: u64,
    pub(crate) extent: Extent,
}

/// How much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// For a time, after a time that does not count.
    Time { warm_up: Duration, measured: Duration },
    /// So many requests from the start, and what they leave to be done.
    Requests(u64),
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// What the drives did meanwhile.
    pub(crate) drives: Tally,
}

impl Measured {
    pub(crate) fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// In 10^6 bytes, as the published figures are.
    pub(crate) fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }
}

/// Where a job's next request goes.
struct Places {
    start: u64,
    count: u64,
    next: Cell<u64>,
    random: RefCell<Random>,
}

impl Places {
    fn next(&self, workload: &Workload) -> u64 {
        let number = match workload.order {
            Order::Linear => self.next.replace(self.next.get() + 1) % self.count,
            Order::Random => self.random.borrow_mut().within(0..self.count),
        };
        self.start + number * workload.bytes
    }
}

impl Workload {
    fn places(&self, job: u64, array_bytes: u64) -> Places {
        let array_bytes = array_bytes.min(self.within);
        let share = match self.order {
            Order::Linear => array_bytes / self.jobs / self.bytes,
            Order::Random => array_bytes / self.bytes,
        };
        let start = if self.order == Order::Linear { job * share * self.bytes } else { 0 };
        Places { start, count: share, next: Cell::new(0), random: RefCell::new(Random::new(job)) }
    }
}

/// Writes as much as the workload says.
pub(crate) fn run(rig: &Rig, workload: &Workload) -> Measured {
    let (clock, array) = (rig.world.clock(), &rig.array);
    let jobs: Vec<Places> = (0..workload.jobs).map(|job| workload.places(job, array.bytes())).collect();
    let zeros = array.pool().zeroed(workload.bytes as usize).freeze();
    let done = Cell::new(0_u64);
    let allowed = Cell::new(match workload.extent {
        Extent::Time { .. } => u64::MAX,
        Extent::Requests(count) => count,
    });
    let workers = jobs.iter().flat_map(|places| (0..workload.depth).map(move |_| places)).map(|places| {
        let (clock, zeros, done, allowed) = (&clock, &zeros, &done, &allowed);
        async move {
            while allowed.get() > 0 {
                allowed.set(allowed.get() - 1);
                let at = places.next(workload);
                array.write(at, zeros.clone(), Durability::Ordinary).await.expect("no member fails here");
                done.set(done.get() + 1);
                clock.sleep_until(clock.now() + workload.think).await;
            }
        }
    });
    let workers = join_all(workers);
    let snapshot = || (done.get(), rig.tally(), clock.now());
    let (before, after) = match workload.extent {
        Extent::Requests(_) => {
            let before = snapshot();
            rig.world.run(workers, || false);
            (before, snapshot())
        }
        Extent::Time { warm_up, measured } => {
            let observer = async {
                clock.sleep_until(clock.now() + warm_up).await;
                let before = snapshot();
                clock.sleep_until(clock.now() + measured).await;
                allowed.set(0);
                (before, snapshot())
            };
            rig.world.run(join(observer, workers), || false).expect("nobody stops it").0
        }
    };
    let requests = after.0 - before.0;
    let bytes = requests * workload.bytes;
    Measured { requests, bytes, seconds: after.2.since(before.2).as_secs_f64(), drives: after.1.since(&before.1) }
}
