//! The speed of resync and recovery: without other load that of the slowest member, under load what requests leave, and at
//! least the floor that was set.

use super::beside;
use crate::drive::{Model, models};
use crate::report::{Figure, Report};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Order, Workload, run as write};
use engine::{Clock, SyncSpeed};
use format::geometry::Level;
use futures_util::future::{join, join_all};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use world::Random;

const SLOTS: u16 = 4;

/// Bytes of each member that are swept.
const COMPONENT_BYTES: u64 = 2 << 30;

/// The floor of the speed under load: ten times md's default, as this load would not reach the default.
const FLOOR: u64 = 10_000 << 10;

fn rig(model: Model) -> Rig {
    Rig::new(Setup { spares: 1, ..Setup::new(model, SLOTS + 1, Level::Raid5, 512 << 10, COMPONENT_BYTES) })
}

fn one_write() -> Workload {
    writes(1, Extent::Requests(1))
}

fn writes(depth: u64, extent: Extent) -> Workload {
    let think = Duration::from_micros(10);
    Workload { bytes: 4096, order: Order::Random, jobs: 1, depth, think, within: u64::MAX, extent }
}

/// An array that was not stopped, so that a resync has to compare everything.
fn unclean(model: Model) -> Rig {
    let mut rig = rig(model);
    write(&rig, &one_write());
    rig.assemble_again();
    rig
}

/// The speed of a resync without other load, in MB/s of each member.
fn resync(model: Model) -> f64 {
    let rig = unclean(model);
    let clock = rig.world.clock();
    let begun = clock.now();
    let resynced = rig.world.run(rig.array.resync(&|_, _| {}), || false).expect("the run is not stopped");
    assert!(resynced.expect("no member fails").complete);
    COMPONENT_BYTES as f64 / clock.now().since(begun).as_secs_f64() / 1e6
}

/// The speed of a recovery onto a spare without other load, in MB/s of each member.
fn recovery(model: Model) -> f64 {
    let rig = rig(model);
    let (array, clock) = (rig.array.clone(), rig.world.clock());
    let keeper = array.clone();
    rig.world.spawn(async move { keeper.keep_whole().await });
    let recovered = async {
        array.fail("drive0").await.expect("the level survives it");
        let begun = clock.now();
        while array.status().in_sync < SLOTS {
            clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
        }
        clock.now().since(begun)
    };
    let time = rig.world.run(recovered, || false).expect("the run is not stopped");
    COMPONENT_BYTES as f64 / time.as_secs_f64() / 1e6
}

/// The speed of a resync beside random writes of 4 KiB with 16 in flight, in MB/s of each member, and the IOPS of the writes.
fn resync_under_load(model: Model) -> (f64, f64) {
    let rig = unclean(model);
    let speed = SyncSpeed { min: FLOOR, ..SyncSpeed::default() };
    rig.array.set_sync_speed(speed).expect("the floor is not zero");
    let (array, done) = (rig.array.clone(), Rc::new(Cell::new(0)));
    let (told, seen) = (done.clone(), Rc::new(Cell::new(0)));
    rig.world.spawn(async move {
        let resynced = array.resync(&|at, end| told.set(at * COMPONENT_BYTES / end)).await;
        resynced.expect("no member fails");
    });
    let load = |warm_up, measured| write(&rig, &writes(16, Extent::Time { warm_up, measured }));
    load(Duration::ZERO, Duration::from_millis(500));
    seen.set(done.get());
    let begun = rig.world.clock().now();
    let iops = load(Duration::ZERO, Duration::from_secs(4)).requests_per_second();
    let seconds = rig.world.clock().now().since(begun).as_secs_f64();
    ((done.get() - seen.get()) as f64 / seconds / 1e6, iops)
}

/// The IOPS of random reads of 4 KiB from an array without its first member, with 32 in flight; and the speed of a recovery
/// beside them at the default throttle, in MB/s of each member.
fn reads_beside_recovery(model: Model, with_recovery: bool) -> (f64, f64) {
    let rig = rig(model);
    let (array, clock) = (&rig.array, rig.world.clock());
    rig.world.run(array.fail("drive0"), || false).expect("the run is not stopped").expect("the level survives it");
    if with_recovery {
        let keeper = array.clone();
        rig.world.spawn(async move { keeper.keep_whole().await });
    }
    let (done, stop) = (Cell::new(0_u64), Cell::new(false));
    let random = RefCell::new(Random::new(1));
    let readers = (0..32).map(|_| async {
        while !stop.get() {
            let at = random.borrow_mut().within(0..array.bytes() / 4096) * 4096;
            array.read(at, array.pool().take(4096)).await.expect("the level survives it");
            done.set(done.get() + 1);
        }
    });
    let recovered = || array.status().sweep.map_or(0, |sweep| sweep.done_bytes);
    let observer = async {
        clock.sleep_until(clock.now() + Duration::from_millis(500)).await;
        let (before, at) = (done.get(), recovered());
        clock.sleep_until(clock.now() + Duration::from_secs(2)).await;
        stop.set(true);
        ((done.get() - before) as f64 / 2.0, (recovered() - at) as f64 / 2.0 / 1e6)
    };
    rig.world.run(join(observer, join_all(readers)), || false).expect("the run is not stopped").0
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let mut figures = Vec::new();
    let mut figure = |workload: &str, setting: String, unit, published, measured| {
        figures.push(Figure { workload: workload.to_owned(), setting, unit, published, measured });
    };
    for (model, speed) in [(models::e3_ssd(), 100.0), (models::e4_disk(), 214.6)] {
        let of = |what: &str| format!("{what}, {} ({speed} MB/s)", model.name);
        figure("no requests", of("resync"), "MB/s a member", None, resync(model.clone()));
        figure("no requests", of("recovery"), "MB/s a member", None, recovery(model.clone()));
    }
    let quiet = write(
        &rig(models::e3_ssd()),
        &writes(16, Extent::Time { warm_up: Duration::ZERO, measured: Duration::from_secs(2) }),
    );
    let (swept, iops) = resync_under_load(models::e3_ssd());
    let load = "4 KiB random write, 16 under way";
    figure(load, "no resync".to_owned(), "IOPS", None, quiet.requests_per_second());
    figure(load, format!("resync, floor {:.2} MB/s", FLOOR as f64 / 1e6), "IOPS", None, iops);
    figure(load, "the resync beside it".to_owned(), "MB/s a member", None, swept);
    let load = "4 KiB random read, degraded, 32 under way";
    let ((alone, _), (beside, swept)) =
        (reads_beside_recovery(models::e3_ssd(), false), reads_beside_recovery(models::e3_ssd(), true));
    figure(load, "no recovery".to_owned(), "IOPS", None, alone);
    figure(load, "a recovery, default throttle".to_owned(), "IOPS", None, beside);
    figure(load, "of no recovery".to_owned(), "%", None, beside / alone * 100.0);
    figure(load, "the recovery beside it".to_owned(), "MB/s a member", None, swept);
    Report {
        experiment: "sweep",
        title: "resync and recovery",
        setup: format!("RAID-5 over {SLOTS} drives and a spare, chunk 512 KiB, 2 GiB of each"),
        figures,
        traces: Vec::new(),
        tables: vec![beside::table()],
    }
}
