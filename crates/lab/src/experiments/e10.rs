//! E10: read-modify-write on RAID-6 (md/raid5, 2014).
//!
//! md reconstructed P and Q of every partial write from all data of the stripe (`rmw_level` 0). The change lets it read the
//! old data, P and Q instead, where that is less.
//!
//! Both of md's columns are a model: a program that issues the transfers of either way to the same drives. The published
//! eight threads make 41 writes a second on ten disks, which are then mostly idle. So one write at a time is assumed, as
//! where the threads write to one file that is locked for each.

use crate::drive::{Request, Station, models};
use crate::host::HostTime;
use crate::report::{Report, Table};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Order, Workload, run as write};
use engine::{Clock, Operation};
use format::geometry::{Geometry, Level, Parity, Role, Shape};
use format::units::Slot;
use futures_util::future::join_all;
use std::rc::Rc;
use std::time::Duration;
use world::{Random, World};

const DRIVES: u16 = 10;

const CHUNK_BYTES: u64 = 64 << 10;

const LAYOUT: u32 = 2;

/// 400 GB of each disk.
const COMPONENT_BYTES: u64 = 400_000_000_000 / CHUNK_BYTES * CHUNK_BYTES;

/// Writes of each measurement: the published ones took 300 s.
const WRITES: u64 = 3_000;

/// KiB of a write, and the published KB/s with `rmw_level` 0 and 1, `skip_copy` 0.
const PUBLISHED: [(u64, [f64; 2]); 5] =
    [(4, [140.0, 165.0]), (8, [274.0, 324.0]), (16, [534.0, 640.0]), (32, [1045.0, 1234.0]), (64, [1962.0, 2282.0])];

/// What md reads before it writes a part of one chunk.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// All other data of the stripe.
    Reconstruct,
    /// The old data, P and Q.
    Modify,
}

fn parity() -> Parity {
    let (level, layout, chunk_bytes, component_bytes) = (Level::Raid6, LAYOUT, CHUNK_BYTES, COMPONENT_BYTES);
    let shape = Shape { level, layout, chunk_bytes, slots: DRIVES, component_bytes, member_bytes: Vec::new() };
    match Geometry::new(&shape).expect("a good shape") {
        Geometry::Parity(parity) => parity,
        Geometry::Mapping(_) => unreachable!("the level has parity"),
    }
}

/// KiB/s of md's random writes of `bytes`.
fn md(way: Way, bytes: u64) -> f64 {
    let world = World::new(1);
    let station = |seed| Rc::new(Station::new(&world, &models::e10_disk(), seed));
    let stations: Vec<_> = (0..u64::from(DRIVES)).map(station).collect();
    let (parity, mut random) = (parity(), Random::new(0));
    let data = u64::from(DRIVES) - 2;
    let load = async {
        for _ in 0..WRITES {
            let place = random.within(0..COMPONENT_BYTES * data / bytes) * bytes;
            let (row, within) = (place / (data * CHUNK_BYTES), place % (data * CHUNK_BYTES));
            let (target, at) = (within / CHUNK_BYTES, row * CHUNK_BYTES + within % CHUNK_BYTES);
            let stripe = parity.stripe(row);
            let written =
                |slot: u16| !matches!(stripe.role_of(Slot(slot)), Role::Data(data) if u64::from(data) != target);
            let all = |operation, which: bool| {
                let slots = (0..DRIVES).filter(move |slot| written(*slot) == which);
                let request = Request { operation, at, bytes };
                join_all(slots.map(|slot| stations[usize::from(slot)].serve(request)).collect::<Vec<_>>())
            };
            all(Operation::Read, way == Way::Modify).await;
            all(Operation::Write, true).await;
        }
        world.clock().now().nanos
    };
    let nanos = world.run(load, || false).expect("the run is not stopped");
    (WRITES * bytes) as f64 / 1024.0 / (nanos as f64 / 1e9)
}

/// KiB/s of this engine's, with `depth` in flight.
fn default(bytes: u64, depth: u64) -> f64 {
    let rig = Rig::new(Setup {
        layout: LAYOUT,
        host: HostTime::ENGINE,
        ..Setup::new(models::e10_disk(), DRIVES, Level::Raid6, CHUNK_BYTES, COMPONENT_BYTES)
    });
    let (think, extent) = (Duration::ZERO, Extent::Requests(WRITES));
    let measured =
        write(&rig, &Workload { bytes, order: Order::Random, jobs: 1, depth, think, within: u64::MAX, extent });
    measured.bytes as f64 / 1024.0 / measured.seconds
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let row = |(kib, [reconstruct, modify]): (u64, [f64; 2])| {
        let bytes = kib << 10;
        let whole = |value: f64| Some(value.round());
        let numbers = vec![
            Some(reconstruct),
            whole(md(Way::Reconstruct, bytes)),
            Some(modify),
            whole(md(Way::Modify, bytes)),
            whole(default(bytes, 1)),
            whole(default(bytes, 8)),
        ];
        (kib.to_string(), numbers)
    };
    let columns =
        ["KiB", "rmw_level 0, published", "model", "rmw_level 1, published", "model", "default", "8 under way"];
    Report {
        experiment: "e10",
        title: "read-modify-write on RAID-6",
        setup: format!("RAID-6 over {DRIVES} drives ({}), chunk 64 KiB, 1 write under way", models::e10_disk().name),
        figures: Vec::new(),
        traces: Vec::new(),
        tables: vec![Table {
            title: "Random writes, KiB/s".to_owned(),
            columns: columns.map(str::to_owned).into(),
            rows: PUBLISHED.map(row).into(),
        }],
    }
}
