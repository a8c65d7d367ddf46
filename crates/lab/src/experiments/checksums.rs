//! What checksums cost random writes: the members' commands, with and without checksums.
//!
//! There is no published figure for it. The cost depends on the size of the members relative to the memory for
//! checksums: a small table fits into memory. Terabytes take long to fill memory, so large members are modelled by a
//! part of them, with the same part of the default memory. The count begins when everything that grows has reached its
//! size: pages in memory, open regions, checksums that wait to be written.

use crate::drive::{Model, models};
use crate::report::{Report, Table};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Measured, Order, Workload, run as write};
use engine::ChecksumMemory;
use format::geometry::Level;
use std::time::Duration;

const SLOTS: u16 = 4;

/// Bytes used of each member.
const COMPONENT_BYTES: u64 = 64 << 30;

/// Requests in flight.
const DEPTH: u64 = 32;

/// A load: its drives, the part of the array that it writes to, and its length.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    model: fn() -> Model,
    level: Level,
    /// Each member stands for one that is this many times as large.
    scale: usize,
    within: u64,
    warm_up: Duration,
    measured: Duration,
}

const LOADS: [Load; 6] = [
    Load {
        name: "RAID-5, SSDs of 64 GiB, anywhere, from the start",
        model: models::e1_ssd,
        level: Level::Raid5,
        scale: 1,
        within: u64::MAX,
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(2),
    },
    Load {
        name: "RAID-5, SSDs of 64 GiB, anywhere",
        model: models::e1_ssd,
        level: Level::Raid5,
        scale: 1,
        within: u64::MAX,
        warm_up: Duration::from_secs(11),
        measured: Duration::from_secs(10),
    },
    Load {
        name: "RAID-5, SSDs of 64 GiB, within a sixteenth",
        model: models::e1_ssd,
        level: Level::Raid5,
        scale: 1,
        within: 12 << 30,
        warm_up: Duration::from_secs(6),
        measured: Duration::from_secs(5),
    },
    Load {
        name: "RAID-5, SSDs of 1 TiB, anywhere",
        model: models::e1_ssd,
        level: Level::Raid5,
        scale: 16,
        within: u64::MAX,
        warm_up: Duration::from_secs(11),
        measured: Duration::from_secs(10),
    },
    Load {
        name: "RAID-5, disks of 2 TiB, anywhere",
        model: models::e4_disk,
        level: Level::Raid5,
        scale: 32,
        within: u64::MAX,
        warm_up: Duration::from_secs(120),
        measured: Duration::from_secs(60),
    },
    Load {
        name: "RAID-6, disks of 2 TiB, within a sixteenth",
        model: models::e4_disk,
        level: Level::Raid6,
        scale: 32,
        within: 8 << 30,
        warm_up: Duration::from_secs(60),
        measured: Duration::from_secs(60),
    },
];

/// Random writes of 4 KiB to an array with lazy clearing of the bitmap, as in a server.
fn measure(load: &Load, integrity: bool) -> Measured {
    let rig =
        Rig::new(Setup { integrity, ..Setup::new((load.model)(), SLOTS, load.level, 512 << 10, COMPONENT_BYTES) });
    let ChecksumMemory { pages, changes_bytes } = ChecksumMemory::default();
    rig.array
        .set_checksum_memory(ChecksumMemory { pages: pages / load.scale, changes_bytes: changes_bytes / load.scale });
    let lazy = rig.array.clone();
    rig.world.spawn(async move { lazy.clear_bitmap_lazily().await });
    let Load { within, warm_up, measured, .. } = *load;
    let warm_up = if integrity { warm_up } else { Duration::ZERO }; // without checksums nothing grows
    let (think, extent) = (Duration::from_micros(10), Extent::Time { warm_up, measured });
    write(&rig, &Workload { bytes: 4096, order: Order::Random, jobs: 1, depth: DEPTH, think, within, extent })
}

fn each(measured: &Measured, count: u64) -> f64 {
    count as f64 / measured.requests as f64
}

/// Member writes per request, without checksums and with them.
fn writes([without, with]: &[Measured; 2]) -> [f64; 2] {
    [each(without, without.drives.writes), each(with, with.drives.writes)]
}

fn row(load: &Load) -> (String, Vec<Option<f64>>) {
    let both = [false, true].map(|integrity| measure(load, integrity));
    let (writes, [without, with]) = (writes(&both), &both);
    let bytes = |measured: &Measured| each(measured, measured.drives.written_bytes) / 1024.0;
    let numbers = [
        writes[0],
        writes[1],
        writes[1] / writes[0],
        bytes(without),
        bytes(with),
        each(without, without.drives.reads),
        each(with, with.drives.reads),
        without.requests_per_second(),
        with.requests_per_second(),
    ];
    let round = |value: f64| Some((value * 1000.0).round() / 1000.0);
    (load.name.to_owned(), numbers.map(round).to_vec())
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let columns = ["", "writes", "with", "times", "KiB", "with", "reads", "with", "IOPS", "with"];
    Report {
        experiment: "checksums",
        title: "what checksums cost random writes of 4 KiB",
        setup: format!(
            "{SLOTS} drives, chunk 512 KiB, {} GiB of each, {DEPTH} requests under way",
            COMPONENT_BYTES >> 30
        ),
        figures: Vec::new(),
        traces: Vec::new(),
        tables: vec![Table {
            title: "Members' writes, KiB written and reads of each request; without checksums and with".to_owned(),
            columns: columns.map(str::to_owned).into(),
            rows: LOADS.iter().map(row).collect(),
        }],
    }
}
