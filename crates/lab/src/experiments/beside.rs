//! A resync or recovery beside requests: its speed, and what the requests lose.
//!
//! A load runs alone, beside md's sweep ([`super::md_sync`], a model), and beside this engine's at its default. The array
//! is the same in all runs; for a recovery it lacks a member.

use super::md_sync::{Md, Requests, Rules};
use crate::drive::{Model, models};
use crate::host::HostTime;
use crate::report::Table;
use crate::rig::{Rig, Setup};
use engine::{Clock, Durability};
use format::geometry::Level;
use futures_util::future::{join, join_all};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use world::Random;

/// Bytes of each member. Requests go anywhere in them.
const COMPONENT_BYTES: u64 = 1 << 40;

/// The shortest times for loads with a pace, which have few requests.
const PACED_WARM_UP: Duration = Duration::from_secs(8);
const PACED_MEASURED: Duration = Duration::from_secs(4);

/// The requests.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) name: &'static str,
    /// Bytes of a request.
    pub(super) bytes: u64,
    /// Requests in flight at most.
    pub(super) depth: usize,
    /// The time between the starts of two requests, as far as `depth` allows. Without it each starts as soon as it can.
    pub(super) pace: Option<Duration>,
    pub(super) is_linear: bool,
    /// The number of reads in three requests.
    pub(super) reads_of_3: u64,
}

impl Load {
    /// Random requests of 4 KiB, two of three reads.
    pub(super) const fn random(name: &'static str, depth: usize) -> Self {
        Self { name, bytes: 4096, depth, pace: None, is_linear: false, reads_of_3: 2 }
    }
}

/// An array, and the times of a measurement on it.
pub(super) struct Bench {
    pub(super) model: Model,
    /// Members that take part, without a spare.
    pub(super) slots: u16,
    pub(super) chunk_bytes: u64,
    /// Whether a member is missing and a spare replaces it. Otherwise parity is resynced.
    pub(super) is_recovery: bool,
    pub(super) host: HostTime,
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// Requests a second, and the time that the slowest hundredth of them exceeded.
#[derive(Clone, Copy)]
pub(super) struct Served {
    pub(super) per_second: f64,
    pub(super) p99_nanos: u64,
}

/// The sweep beside the requests.
#[derive(Clone, Copy)]
pub(super) enum Sweeper {
    None,
    Md(Rules),
    Engine,
}

/// The benches of the table, and for each the bytes of a paced request, such that the drives are mostly idle.
fn benches() -> [(Bench, u64); 3] {
    let bench = |model, warm_up, measured| Bench {
        model,
        slots: 4,
        chunk_bytes: 512 << 10,
        is_recovery: true,
        host: HostTime::NONE,
        warm_up: Duration::from_millis(warm_up),
        measured: Duration::from_millis(measured),
    };
    [
        (bench(models::e4_disk(), 30_000, 60_000), 256 << 10),
        (bench(models::e1_ssd(), 8_000, 4_000), 16 << 10),
        (bench(models::e5_nvme(), 700, 500), 16 << 10),
    ]
}

fn loads(paced_bytes: u64) -> [Load; 5] {
    let random = Load::random;
    let apart = Duration::from_nanos(paced_bytes * 1000 / 12);
    [
        Load { bytes: paced_bytes, pace: Some(apart), ..random("12 MB/s", 8) },
        random("4 KiB random, 1 under way", 1),
        random("4 KiB random, 4 under way", 4),
        random("4 KiB random, 32 under way", 32),
        Load { bytes: 128 << 10, is_linear: true, ..random("128 KiB linear reads, 4 under way", 4) },
    ]
}

fn rig(bench: &Bench) -> Rig {
    let spares = u16::from(bench.is_recovery);
    let mut rig = Rig::new(Setup {
        spares,
        host: bench.host,
        ..Setup::new(bench.model.clone(), bench.slots + spares, Level::Raid5, bench.chunk_bytes, COMPONENT_BYTES)
    });
    if bench.is_recovery {
        rig.world
            .run(rig.array.fail("drive0"), || false)
            .expect("the run is not stopped")
            .expect("the level survives it");
    } else {
        let zeros = rig.array.pool().zeroed(4096).freeze();
        let written = rig.array.write(0, zeros, Durability::Ordinary);
        rig.world.run(written, || false).expect("the run is not stopped").expect("no member fails here");
        rig.assemble_again(); // without a stop, so that it has to be resynced
    }
    rig
}

/// The times of the requests that have ended.
#[derive(Default)]
struct Tally {
    stop: Cell<bool>,
    nanos: RefCell<Vec<u64>>,
    requests: Requests,
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
            let is_read = load.is_linear || random.borrow_mut().within(0..3) < load.reads_of_3;
            let place = if load.is_linear { number % count } else { random.borrow_mut().within(0..count) };
            let begun = clock.now();
            let Requests { under_way, ended } = &tally.requests;
            under_way.set(under_way.get() + 1);
            rig.host.request().await;
            if is_read {
                let into = array.pool().take(load.bytes as usize);
                array.read(place * load.bytes, into).await.expect("the level survives it");
            } else {
                let written = array.write(place * load.bytes, zeros.clone(), Durability::Ordinary);
                written.await.expect("the level survives it");
            }
            under_way.set(under_way.get() - 1);
            ended.set(ended.get() + 1);
            tally.nanos.borrow_mut().push(clock.now().since(begun).as_nanos() as u64);
        }
    });
    join_all(workers).await;
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
pub(super) fn measure(bench: &Bench, load: &Load, sweeper: Sweeper) -> (Served, f64) {
    let rig = rig(bench);
    let (array, clock, tally) = (&rig.array, rig.world.clock(), Tally::default());
    let is_engine = matches!(sweeper, Sweeper::Engine);
    if bench.is_recovery || is_engine {
        let keeper = array.clone();
        rig.world.spawn(async move { keeper.keep_whole().await });
    }
    if bench.is_recovery && !is_engine {
        rig.world.run(stand_still(&rig), || false).expect("the run is not stopped");
    }
    let md = match sweeper {
        Sweeper::Md(rules) => {
            let stations = rig.stations()[usize::from(bench.is_recovery)..].to_vec();
            Some(Md::new(Rules { is_recovery: bench.is_recovery, ..rules }, stations, rig.host.clone(), clock.clone()))
        }
        Sweeper::None | Sweeper::Engine => None,
    };
    let swept = || match &md {
        Some(md) => md.swept(),
        None if is_engine => array.status().sweep.map_or(0, |sweep| sweep.done_bytes),
        None => 0,
    };
    let (warm_up, measured) = match load.pace {
        Some(_) => (bench.warm_up.max(PACED_WARM_UP), bench.measured.max(PACED_MEASURED)),
        None => (bench.warm_up, bench.measured),
    };
    let observer = async {
        clock.sleep_until(clock.now() + warm_up).await;
        let at = swept();
        tally.nanos.borrow_mut().clear();
        clock.sleep_until(clock.now() + measured).await;
        let (served, swept) = (tally.served_in(measured), swept() - at);
        tally.stop.set(true);
        (served, swept as f64 / measured.as_secs_f64() / 1e6)
    };
    let beside = async {
        if let Some(md) = &md {
            md.run(&tally.requests, &tally.stop).await;
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
        &of(Sweeper::Md(Rules::DEFAULT)),
        &of(Sweeper::Engine),
    ]
    .concat();
    (format!("{}: {}", bench.model.name, load.name), numbers)
}

/// All loads on all kinds of drives.
pub(super) fn table() -> Table {
    let rows = benches();
    let rows = rows.iter().flat_map(|(bench, paced)| loads(*paced).into_iter().map(move |load| row(bench, &load)));
    let columns = ["", "requests/s", "p99 ms", "md: kept %", "p99 times", "MB/s", "here: kept %", "p99 times", "MB/s"];
    Table {
        title: "A recovery beside requests: what these keep of their rate, times their p99, MB/s of each member"
            .to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}
