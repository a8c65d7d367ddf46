//! md's resync and recovery, as a model: a small program that issues their transfers to the modelled drives.
//!
//! It shares the drives' queues and the host's thread with the requests, and nothing else. The requests are served by
//! this engine.
//!
//! Facts: `drivers/md/md.c` (`md_do_sync`, `is_mddev_idle`, `sync_io_within_limit`), `drivers/md/raid5.c`
//! (`NR_STRIPES`), of Linux 6.1 and 6.16.

use crate::drive::{Request, Station};
use crate::host::Host;
use engine::{Clock, Moment, Operation};
use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use world::VirtualClock;

/// How md decides whether others use the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// By what the members moved besides the sweep: up to Linux 6.15.
    ByTransfers,
    /// By the array's own requests, in flight or ended since the last check: since Linux 6.16.
    ByRequests,
}

/// The settings of a sweep of md's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) idle: Idle,
    /// `speed_limit_min` and `speed_limit_max`, in bytes a second.
    pub(super) speed_min: u64,
    pub(super) speed_max: u64,
    /// The stripe cache, in bytes of each member.
    pub(super) cache_bytes: u64,
    /// With fewer bytes of each member in flight the sweep goes on, whatever else uses the array.
    pub(super) limit_bytes: u64,
    /// What md's thread takes for a step of [`STEP_BYTES`] of each member.
    pub(super) step_nanos: u64,
    /// Whether the last drive is written; otherwise all are read and compared.
    pub(super) is_recovery: bool,
}

impl Rules {
    /// md's defaults. The stripe cache has 256 pages of each member; md lets it grow.
    pub(super) const DEFAULT: Self = Self {
        idle: Idle::ByTransfers,
        speed_min: 1000 << 10,
        speed_max: 200_000 << 10,
        cache_bytes: 1 << 20,
        limit_bytes: 0,
        step_nanos: 0,
        is_recovery: true,
    };
}

/// Bytes of each member between two checks for other requests.
pub(super) const STEP_BYTES: u64 = 128 << 10;

/// Other transfers up to this many bytes since the last check that counted do not make a drive busy.
const IDLE_BYTES: u64 = 64 * 512;

/// Start of the data on a member.
const DATA_AT: u64 = 128 << 20;

/// The array's requests, as the sweep sees them.
#[derive(Default)]
pub(super) struct Requests {
    pub(super) under_way: Cell<u64>,
    pub(super) ended: Cell<u64>,
}

/// A sweep of md's over all drives.
pub(super) struct Md {
    rules: Rules,
    stations: Vec<Rc<Station>>,
    clock: VirtualClock,
    /// md's thread, which handles the requests too.
    host: Rc<Host>,
    /// Bytes of each member whose sweep has started, and those swept.
    started: Cell<u64>,
    swept: Cell<u64>,
    /// For each drive, the bytes of other transfers when it last counted as busy.
    last: RefCell<Vec<u64>>,
    /// The requests that had ended at the last check.
    seen: Cell<u64>,
}

impl Md {
    pub(super) fn new(rules: Rules, stations: Vec<Rc<Station>>, host: Rc<Host>, clock: VirtualClock) -> Self {
        let last = RefCell::new(vec![0; stations.len()]);
        let [started, swept, seen] = std::array::from_fn(|_| Cell::new(0));
        Self { rules, stations, clock, host, started, swept, last, seen }
    }

    /// Bytes of each member that were swept.
    pub(super) fn swept(&self) -> u64 {
        self.swept.get()
    }

    async fn step(&self, at: u64) {
        let (target, sources) = self.stations.split_last().expect("there are four drives");
        let sources = if self.rules.is_recovery { sources } else { &self.stations };
        let request = |operation| Request { operation, at: DATA_AT + at, bytes: STEP_BYTES };
        join_all(sources.iter().map(|source| source.serve(request(Operation::Read)))).await;
        self.host.spend(self.rules.step_nanos).await;
        if self.rules.is_recovery {
            target.serve(request(Operation::Write)).await;
        }
        self.swept.set(self.swept.get() + STEP_BYTES);
    }

    fn is_idle(&self, requests: &Requests) -> bool {
        match self.rules.idle {
            Idle::ByTransfers => self.is_idle_by_transfers(),
            Idle::ByRequests => {
                let ended = requests.ended.get();
                self.seen.replace(ended) == ended && requests.under_way.get() == 0
            }
        }
    }

    fn is_idle_by_transfers(&self) -> bool {
        let moved = self.stations.iter().map(|station| {
            let tally = station.tally();
            (tally.read_bytes + tally.written_bytes).saturating_sub(self.started.get())
        });
        let mut is_idle = true;
        for (last, moved) in self.last.borrow_mut().iter_mut().zip(moved) {
            if moved.saturating_sub(*last) > IDLE_BYTES {
                *last = moved;
                is_idle = false;
            }
        }
        is_idle
    }

    /// Sweeps until `stop`.
    pub(super) async fn run(&self, requests: &Requests, stop: &Cell<bool>) {
        let (begun, mut under_way) = (self.clock.now(), FuturesUnordered::new());
        let due = |rate: u64| begun + Duration::from_secs_f64(self.started.get() as f64 / rate as f64);
        while !stop.get() {
            under_way.push(self.step(self.started.get()));
            self.started.set(self.started.get() + STEP_BYTES);
            let is_within = (under_way.len() as u64 * STEP_BYTES) < self.rules.limit_bytes;
            while under_way.len() as u64 * STEP_BYTES >= self.rules.cache_bytes {
                under_way.next().await;
            }
            if self.clock.now() < due(self.rules.speed_min) && !is_within && !self.is_idle(requests) {
                while under_way.next().await.is_some() {}
            }
            let sleep: Moment = due(self.rules.speed_max);
            if self.clock.now() < sleep {
                join(self.clock.sleep_until(sleep), async { while under_way.next().await.is_some() {} }).await;
            }
        }
        while under_way.next().await.is_some() {}
    }
}
