//! E1: small stripe units or large ones (md/raid5, 2020).
//!
//! md moves stripes in units of `stripe_size`. With a large unit, a small write moves much more than it changes. With a
//! small unit, a large write becomes many transfers, which all pass through one thread.

use crate::drive::models;
use crate::member::ThreadTime;
use crate::report::{Figure, Report};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Order, Workload, run as write};
use engine::{AssembleOptions, StripeSize};
use format::geometry::Level;
use format::placement::BitmapChoice;
use std::time::Duration;

/// The time that md's thread spends on a transfer. Fixed by 700 MB/s.
const TRANSFER_NANOS: u64 = 4_390;

/// The time of fio and of system calls. With 128 requests in flight it has no influence.
const THINK: Duration = Duration::from_micros(10);

fn rig(stripe_size: StripeSize) -> Rig {
    Rig::new(Setup {
        model: models::e1_ssd(),
        drives: 4,
        partitions: 1,
        spares: 0,
        level: Level::Raid5,
        layout: 2,
        chunk_bytes: 512 << 10, // md's default
        component_bytes: 240 << 30,
        bitmap: BitmapChoice::None,
        thread: ThreadTime { nanos: TRANSFER_NANOS, bytes_max: u64::MAX },
        integrity: false,
        options: AssembleOptions { stripe_size, ..AssembleOptions::default() },
    })
}

/// The settings that are compared, with their names.
const SETTINGS: [(&str, StripeSize); 3] = [
    ("stripe_size 64K", StripeSize::Fixed(64 << 10)),
    ("stripe_size 4K", StripeSize::Fixed(4 << 10)),
    ("default", StripeSize::Auto),
];

/// The speed in MB/s.
fn speed(stripe_size: StripeSize, bytes: u64, order: Order) -> f64 {
    let extent = Extent::Time { warm_up: Duration::from_millis(300), measured: Duration::from_secs(2) };
    let workload = Workload { bytes, order, jobs: 2, depth: 64, think: THINK, within: u64::MAX, extent };
    write(&rig(stripe_size), &workload).megabytes_per_second()
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let workloads = [
        ("4 KiB random write", 4 << 10, Order::Random, [Some(15.0), Some(100.0), None]),
        ("1 MiB linear write", 1 << 20, Order::Linear, [Some(1000.0), Some(700.0), None]),
    ];
    let figures = workloads.into_iter().flat_map(|(workload, bytes, order, published)| {
        SETTINGS.into_iter().zip(published).map(move |((setting, stripe_size), published)| Figure {
            workload: workload.to_owned(),
            setting: setting.to_owned(),
            unit: "MB/s",
            published,
            measured: speed(stripe_size, bytes, order),
        })
    });
    Report {
        experiment: "e1",
        title: "small stripe units or large ones",
        setup: format!("RAID-5 over 4 drives ({}), chunk 512 KiB, 2 jobs, 64 requests each", models::e1_ssd().name),
        figures: figures.collect(),
        traces: Vec::new(),
        tables: Vec::new(),
    }
}
