//! A recovery beside requests: its speed, and what the requests lose.
//!
//! Each load runs three times: alone, beside md's recovery, and beside this engine's at its default. The array is the same
//! in all runs, and lacks a member. md's recovery is a model of its own on the same drives. It shares the drives' queues
//! with the requests, and nothing else.
//!
//! Facts: `drivers/md/md.c` (`md_do_sync`, `is_mddev_idle`), `drivers/md/raid5.c` (`NR_STRIPES`), of Linux 6.1.

use crate::drive::{Model, Request, Station, models};
use crate::host::HostTime;
use crate::report::Table;
use crate::rig::{Rig, Setup};
use engine::{AssembleOptions, Clock, Durability, Moment, Operation};
use format::geometry::Level;
use format::placement::BitmapChoice;
use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use world::{Random, VirtualClock};

const SLOTS: u16 = 4;

/// Bytes of each member. Requests go anywhere in them.
const COMPONENT_BYTES: u64 = 1 << 40;

/// The number of reads in three random requests.
const READS_OF_3: u64 = 2;

/// The shortest times for loads with a pace, which have few requests.
const PACED_WARM_UP: Duration = Duration::from_secs(8);
const PACED_MEASURED: Duration = Duration::from_secs(4);

/// The requests.
struct Load {
    name: &'static str,
    /// Bytes of a request.
    bytes: u64,
    /// Requests in flight at most.
    depth: usize,
    /// The time between the starts of two requests, as far as `depth` allows. Without it each starts as soon as it can.
    pace: Option<Duration>,
    is_linear: bool,
}

/// A kind of drive, and the times of a measurement on it.
struct Bench {
    model: Model,
    /// Bytes of a paced request, such that the drives are mostly idle.
    paced_bytes: u64,
    warm_up: Duration,
    measured: Duration,
}

/// Requests a second, and the time that the slowest hundredth of them exceeded.
#[derive(Clone, Copy)]
struct Served {
    per_second: f64,
    p99_nanos: u64,
}

/// The recovery beside the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sweeper {
    None,
    Md,
    Engine,
}

fn benches() -> [Bench; 3] {
    let bench = |model, paced_bytes, warm_up, measured| Bench {
        model,
        paced_bytes,
        warm_up: Duration::from_millis(warm_up),
        measured: Duration::from_millis(measured),
    };
    [
        bench(models::e4_disk(), 256 << 10, 30_000, 60_000),
        bench(models::e1_ssd(), 16 << 10, 8_000, 4_000),
        bench(models::e5_nvme(), 16 << 10, 700, 500),
    ]
}

fn loads(paced_bytes: u64) -> [Load; 5] {
    let random = |name, depth| Load { name, bytes: 4096, depth, pace: None, is_linear: false };
    let apart = Duration::from_nanos(paced_bytes * 1000 / 12);
    [
        Load { bytes: paced_bytes, pace: Some(apart), ..random("12 MB/s", 8) },
        random("4 KiB random, 1 under way", 1),
        random("4 KiB random, 4 under way", 4),
        random("4 KiB random, 32 under way", 32),
        Load { bytes: 128 << 10, is_linear: true, ..random("128 KiB linear reads, 4 under way", 4) },
    ]
}

fn rig(model: Model) -> Rig {
    Rig::new(Setup {
        model,
        drives: SLOTS + 1,
        partitions: 1,
        spares: 1,
        level: Level::Raid5,
        layout: 2,
        chunk_bytes: 512 << 10,
        component_bytes: COMPONENT_BYTES,
        bitmap: BitmapChoice::None,
        host: HostTime::NONE,
        integrity: false,
        options: AssembleOptions::default(),
    })
}

/// The times of the requests that have ended.
#[derive(Default)]
struct Tally {
    stop: Cell<bool>,
    nanos: RefCell<Vec<u64>>,
}

impl Tally {
    fn served_in(&self, measured: Duration) -> Served {
        let nanos = &mut *self.nanos.borrow_mut();
        nanos.sort_unstable();
        let p99_nanos = nanos.get(nanos.len() * 99 / 100).copied().unwrap_or(0);
        Served { per_second: nanos.len() as f64 / measured.as_secs_f64(), p99_nanos }
    }
}

/// Makes requests until `tally` stops it.
async fn request(rig: &Rig, load: &Load, tally: &Tally) {
    let (array, clock) = (&rig.array, rig.world.clock());
    let random = RefCell::new(Random::new(1));
    let (count, next, due) = (array.bytes() / load.bytes, Cell::new(0), Cell::new(clock.now()));
    let zeros = array.pool().zeroed(load.bytes as usize).freeze();
    let workers = (0..load.depth).map(|_| async {
        while !tally.stop.get() {
            if let Some(apart) = load.pace {
                let begin = due.get();
                due.set(begin + apart);
                clock.sleep_until(begin).await;
            }
            let number = next.replace(next.get() + 1);
            let is_read = load.is_linear || random.borrow_mut().within(0..3) < READS_OF_3;
            let place = if load.is_linear { number % count } else { random.borrow_mut().within(0..count) };
            let begun = clock.now();
            if is_read {
                let into = array.pool().take(load.bytes as usize);
                array.read(place * load.bytes, into).await.expect("the level survives it");
            } else {
                let written = array.write(place * load.bytes, zeros.clone(), Durability::Ordinary);
                written.await.expect("the level survives it");
            }
            tally.nanos.borrow_mut().push(clock.now().since(begun).as_nanos() as u64);
        }
    });
    join_all(workers).await;
}

/// md's recovery: from three drives onto a fourth.
struct Md {
    stations: Vec<Rc<Station>>,
    clock: VirtualClock,
    /// Bytes of each member whose recovery has started, and those recovered.
    started: Cell<u64>,
    recovered: Cell<u64>,
    /// For each drive, the bytes of other transfers when it last counted as busy.
    last: RefCell<Vec<u64>>,
}

impl Md {
    /// Bytes between two checks for other transfers.
    const STEP_BYTES: u64 = 128 << 10;

    /// The stripe cache: 256 pages of each member.
    const CACHE_BYTES: u64 = 1 << 20;

    /// Other transfers up to this many bytes since the last check that counted do not make a drive busy.
    const IDLE_BYTES: u64 = 64 * 512;

    /// `speed_limit_min` and `speed_limit_max`.
    const SPEED_MIN: u64 = 1000 << 10;
    const SPEED_MAX: u64 = 200_000 << 10;

    /// Start of the data on a member.
    const DATA_AT: u64 = 128 << 20;

    fn new(stations: Vec<Rc<Station>>, clock: VirtualClock) -> Self {
        let last = RefCell::new(vec![0; stations.len()]);
        Self { stations, clock, started: Cell::new(0), recovered: Cell::new(0), last }
    }

    async fn step(&self, at: u64) {
        let (target, sources) = self.stations.split_last().expect("there are four drives");
        let request = |operation| Request { operation, at: Self::DATA_AT + at, bytes: Self::STEP_BYTES };
        join_all(sources.iter().map(|source| source.serve(request(Operation::Read)))).await;
        target.serve(request(Operation::Write)).await;
        self.recovered.set(self.recovered.get() + Self::STEP_BYTES);
    }

    fn is_idle(&self) -> bool {
        let moved = self.stations.iter().map(|station| {
            let tally = station.tally();
            (tally.read_bytes + tally.written_bytes).saturating_sub(self.started.get())
        });
        let mut is_idle = true;
        for (last, moved) in self.last.borrow_mut().iter_mut().zip(moved) {
            if moved.saturating_sub(*last) > Self::IDLE_BYTES {
                *last = moved;
                is_idle = false;
            }
        }
        is_idle
    }

    async fn run(&self, stop: &Cell<bool>) {
        let (begun, mut under_way) = (self.clock.now(), FuturesUnordered::new());
        let due = |rate: u64| begun + Duration::from_secs_f64(self.started.get() as f64 / rate as f64);
        while !stop.get() {
            under_way.push(self.step(self.started.get()));
            self.started.set(self.started.get() + Self::STEP_BYTES);
            while under_way.len() as u64 * Self::STEP_BYTES >= Self::CACHE_BYTES {
                under_way.next().await;
            }
            if self.clock.now() < due(Self::SPEED_MIN) && !self.is_idle() {
                while under_way.next().await.is_some() {}
            }
            let sleep: Moment = due(Self::SPEED_MAX);
            if self.clock.now() < sleep {
                join(self.clock.sleep_until(sleep), async { while under_way.next().await.is_some() {} }).await;
            }
        }
        while under_way.next().await.is_some() {}
    }
}

/// Lets the engine's recovery begin, so that requests write to its target too, and freezes it.
async fn stand_still(rig: &Rig) {
    let (array, clock) = (&rig.array, rig.world.clock());
    while array.status().sweep.is_none() {
        clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
    }
    array.freeze_sweeps(true);
    while array.status().sweep.is_some() {
        clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
    }
}

/// The requests beside `sweeper`, and its speed in MB/s of each member.
fn measure(bench: &Bench, load: &Load, sweeper: Sweeper) -> (Served, f64) {
    let rig = rig(bench.model.clone());
    let (array, clock, tally) = (&rig.array, rig.world.clock(), Tally::default());
    rig.world.run(array.fail("drive0"), || false).expect("the run is not stopped").expect("the level survives it");
    let keeper = array.clone();
    rig.world.spawn(async move { keeper.keep_whole().await });
    if sweeper != Sweeper::Engine {
        rig.world.run(stand_still(&rig), || false).expect("the run is not stopped");
    }
    let md = Md::new(rig.stations()[1..].to_vec(), clock.clone());
    let recovered = || match sweeper {
        Sweeper::None => 0,
        Sweeper::Md => md.recovered.get(),
        Sweeper::Engine => array.status().sweep.map_or(0, |sweep| sweep.done_bytes),
    };
    let (warm_up, measured) = match load.pace {
        Some(_) => (bench.warm_up.max(PACED_WARM_UP), bench.measured.max(PACED_MEASURED)),
        None => (bench.warm_up, bench.measured),
    };
    let observer = async {
        clock.sleep_until(clock.now() + warm_up).await;
        let at = recovered();
        tally.nanos.borrow_mut().clear();
        clock.sleep_until(clock.now() + measured).await;
        let (served, recovered) = (tally.served_in(measured), recovered() - at);
        tally.stop.set(true);
        (served, recovered as f64 / measured.as_secs_f64() / 1e6)
    };
    let beside = async {
        if sweeper == Sweeper::Md {
            md.run(&tally.stop).await;
        }
    };
    let ((outcome, ()), ()) = rig
        .world
        .run(join(join(observer, request(&rig, load, &tally)), beside), || false)
        .expect("the run is not stopped");
    outcome
}

fn row(bench: &Bench, load: &Load) -> (String, Vec<Option<f64>>) {
    let (alone, _) = measure(bench, load, Sweeper::None);
    let of = |sweeper| {
        let (beside, recovered) = measure(bench, load, sweeper);
        let kept = (beside.per_second / alone.per_second * 1000.0).round() / 10.0;
        let p99 = beside.p99_nanos as f64 / alone.p99_nanos as f64;
        [Some(kept), Some((p99 * 100.0).round() / 100.0), Some((recovered * 10.0).round() / 10.0)]
    };
    let numbers = [
        [Some(alone.per_second.round()), Some((alone.p99_nanos as f64 / 1e4).round() / 100.0)].as_slice(),
        &of(Sweeper::Md),
        &of(Sweeper::Engine),
    ]
    .concat();
    (format!("{}: {}", bench.model.name, load.name), numbers)
}

/// All loads on all kinds of drives.
pub(super) fn table() -> Table {
    let rows = benches();
    let rows = rows.iter().flat_map(|bench| loads(bench.paced_bytes).into_iter().map(move |load| row(bench, &load)));
    let columns = ["", "requests/s", "p99 ms", "md: kept %", "p99 times", "MB/s", "here: kept %", "p99 times", "MB/s"];
    Table {
        title: "A recovery beside requests: what these keep of their rate, times their p99, MB/s of each member"
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}
