//! E6: what a bitmap costs a virtual machine's small writes (llbitmap's table, linux-raid, August 2025).
//!
//! The table gives three speeds for each level and neither drives nor load. RAID-1 is slower than RAID-10 without a
//! bitmap. With one write in flight that follows from more copies on drives with a long tail, as a write ends with its
//! slowest copy. Five drives fit; the same five are used for each level.
//!
//! md's old bitmap is this engine with md's policy: bits are cleared as soon as they are idle. llbitmap is not modelled.

use crate::drive::models;
use crate::report::{Figure, Report};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Order, Workload, run as write};
use engine::{AssembleOptions, BitmapClearing, BitmapPolicy, BitmapWrites};
use format::geometry::Level;
use format::placement::BitmapChoice;
use std::time::Duration;

const DRIVES: u16 = 5;

const CHUNK_BYTES: u64 = 64 << 10;

/// What a bit of the bitmap covers.
const BIT_BYTES: u64 = 64 << 20;

/// Bits of each bitmap. Fixed by 11.9 MiB/s: a write of md's waits for the bitmap unless its bit is set, and a bit is
/// cleared within 5 to 10 s.
const BITS: u64 = 56_000;

/// fio, system calls and md's thread, which nothing published tells from a drive's latency.
const THINK: Duration = Duration::from_micros(10);

const OLD: BitmapPolicy = BitmapPolicy { writes: BitmapWrites::Preferred, clearing: BitmapClearing::Eager };

/// A level of the table, and its speeds without a bitmap, with md's old one and with llbitmap, in MiB/s.
struct Row {
    name: &'static str,
    level: Level,
    layout: u32,
    chunk_bytes: u64,
    /// Bytes of each member, such that the bitmap has [`BITS`] bits.
    component_bytes: u64,
    published: [f64; 3],
}

fn rows() -> [Row; 3] {
    let bits_bytes = BITS * BIT_BYTES;
    [
        Row {
            name: "RAID-1",
            level: Level::Raid1,
            layout: 0,
            chunk_bytes: 0,
            component_bytes: bits_bytes,
            published: [19.5, 11.9, 19.5],
        },
        Row {
            name: "RAID-10",
            level: Level::Raid10,
            layout: 0x102,
            chunk_bytes: CHUNK_BYTES,
            component_bytes: bits_bytes * 2 / u64::from(DRIVES),
            published: [27.8, 15.4, 27.8],
        },
        Row {
            name: "RAID-5",
            level: Level::Raid5,
            layout: 2,
            chunk_bytes: CHUNK_BYTES,
            component_bytes: bits_bytes,
            published: [17.8, 13.4, 13.9],
        },
    ]
}

fn rig(row: &Row, bitmap: Option<BitmapPolicy>) -> Rig {
    let rig = Rig::new(Setup {
        layout: row.layout,
        bitmap: bitmap.map_or(BitmapChoice::None, |_| BitmapChoice::Chunk(BIT_BYTES)),
        options: AssembleOptions { bitmap: bitmap.unwrap_or_default(), ..AssembleOptions::default() },
        ..Setup::new(models::e6_disk(), DRIVES, row.level, row.chunk_bytes, row.component_bytes)
    });
    let array = rig.array.clone();
    rig.world.spawn(async move { array.clear_bitmap_lazily().await });
    rig
}

/// The speed in MiB/s during `measured`, which follows `warm_up`.
fn speed(rig: &Rig, warm_up: u64, measured: u64) -> f64 {
    let extent = Extent::Time { warm_up: Duration::from_secs(warm_up), measured: Duration::from_secs(measured) };
    let order = Order::Random;
    let workload = Workload { bytes: 4096, order, jobs: 1, depth: 1, think: THINK, within: u64::MAX, extent };
    write(rig, &workload).requests_per_second() / 256.0
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let mut figures = Vec::new();
    for row in rows() {
        let mut figure = |setting: &str, unit, published, measured| {
            let (workload, setting) = (format!("{}, 4 KiB random write, 1 under way", row.name), setting.to_owned());
            figures.push(Figure { workload, setting, unit, published, measured });
        };
        let [without, old, lockless] = row.published;
        let none = speed(&rig(&row, None), 0, 20);
        figure("no bitmap", "MiB/s", Some(without), none);
        figure("md's old bitmap", "MiB/s", Some(old), speed(&rig(&row, Some(OLD)), 15, 10));
        let default = rig(&row, Some(BitmapPolicy::default()));
        let minute = speed(&default, 0, 60);
        let steady = speed(&default, 0, 20);
        figure("default, the first minute", "MiB/s", Some(lockless), minute);
        figure("default, the first minute, of no bitmap", "%", None, minute / none * 100.0);
        figure("default, from then on", "MiB/s", Some(lockless), steady);
        figure("default, from then on, of no bitmap", "%", None, steady / none * 100.0);
    }
    Report {
        experiment: "e6",
        title: "what a bitmap costs small writes",
        setup: format!(
            "{DRIVES} drives ({}), bitmap of {BITS} bits; published beside the default: llbitmap",
            models::e6_disk().name
        ),
        figures,
        traces: Vec::new(),
        tables: Vec::new(),
    }
}
