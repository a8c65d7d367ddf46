//! A load of writes, as fio makes it: jobs, each with a number of requests in flight.
//!
//! When a request completes, its job issues the next one after a think time, which stands for the program and its
//! system calls. The data is zeros ([`super::contents`]).

use crate::drive::Tally;
use crate::rig::Rig;
use engine::{Clock, Durability};
use futures_util::future::{join, join_all};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use world::Random;

/// The order of a job's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Random positions, aligned to the length of a request.
    Random,
    /// Consecutive positions; each job has its own part of the array.
    Linear,
}

/// A load of writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) bytes: u64,
    pub(crate) order: Order,
    pub(crate) jobs: u64,
    /// Requests that each job keeps in flight.
    pub(crate) depth: u64,
    /// From the completion of a request to the next request of the same job.
    pub(crate) think: Duration,
    /// Only this many bytes from the array's beginning are written to.
    pub(crate) within: u64,
    pub(crate) extent: Extent,
}

/// When the load ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// After a time, which begins when `warm_up` has passed.
    Time { warm_up: Duration, measured: Duration },
    /// After this many requests, and after whatever work they leave behind.
    Requests(u64),
}

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// The drives' commands during the measurement.
    pub(crate) drives: Tally,
}

impl Measured {
    pub(crate) fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// In units of 10^6 bytes, as the published figures.
    pub(crate) fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e6
    }
}

/// The positions of a job's requests.
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

/// Runs the load and measures it.
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
                rig.host.request().await;
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
            rig.world.run(join(observer, workers), || false).expect("the run is not stopped").0
        }
    };
    let requests = after.0 - before.0;
    let bytes = requests * workload.bytes;
    Measured { requests, bytes, seconds: after.2.since(before.2).as_secs_f64(), drives: after.1.since(&before.1) }
}
