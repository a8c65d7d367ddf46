//! E1: small stripe units or large ones (md/raid5, 2020).
//!
//! md moves stripes in units of `stripe_size`. With a large unit, a small write moves much more than it changes. With a
//! small unit, a large write becomes many transfers, which all pass through one thread.
//!
//! What bounds the 100 MB/s of small writes was not published: the drives, or md's thread. So each is assumed in turn.
//! If the drives bound it, no engine exceeds it.

use crate::drive::{Model, models};
use crate::host::HostTime;
use crate::report::{Figure, Report};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Order, Workload, run as write};
use engine::{AssembleOptions, StripeSize};
use format::geometry::Level;
use std::time::Duration;

/// The time that md's thread spends on a transfer of a full stripe. Fixed by 700 MB/s.
const TRANSFER_NANOS: u64 = 4_390;

/// The time that md's thread spends on a read, if that thread bounds 100 MB/s. A write of 4 KiB has two reads and two
/// writes, which take 41 us then.
const READ_NANOS: u64 = 16_000;

/// The time of fio and of system calls. With 128 requests in flight it has no influence.
const THINK: Duration = Duration::from_micros(10);

/// What bounds 100 MB/s of small writes in md's columns.
#[derive(Clone, Copy, PartialEq)]
enum Bound {
    Drives,
    Host,
}

impl Bound {
    fn name(self) -> &'static str {
        match self {
            Self::Drives => "bound by the drives",
            Self::Host => "bound by md's thread",
        }
    }

    fn model(self) -> Model {
        match self {
            Self::Drives => models::e1_ssd(),
            Self::Host => models::e1_ssd_apart(),
        }
    }

    /// The host's time in md's columns.
    fn md(self) -> HostTime {
        let read_nanos = if self == Self::Drives { TRANSFER_NANOS } else { READ_NANOS };
        HostTime { read_nanos, write_nanos: TRANSFER_NANOS, ..HostTime::NONE }
    }
}

fn rig(bound: Bound, stripe_size: StripeSize) -> Rig {
    Rig::new(Setup {
        host: if stripe_size == StripeSize::Auto { HostTime::ENGINE } else { bound.md() },
        options: AssembleOptions { stripe_size, ..AssembleOptions::default() },
        ..Setup::new(bound.model(), 4, Level::Raid5, 512 << 10, 240 << 30)
    })
}

/// The settings that are compared, with their names.
const SETTINGS: [(&str, StripeSize); 3] = [
    ("stripe_size 64K", StripeSize::Fixed(64 << 10)),
    ("stripe_size 4K", StripeSize::Fixed(4 << 10)),
    ("default", StripeSize::Auto),
];

/// The speed in MB/s.
fn speed(bound: Bound, stripe_size: StripeSize, bytes: u64, order: Order) -> f64 {
    let extent = Extent::Time { warm_up: Duration::from_millis(300), measured: Duration::from_secs(1) };
    let workload = Workload { bytes, order, jobs: 2, depth: 64, think: THINK, within: u64::MAX, extent };
    write(&rig(bound, stripe_size), &workload).megabytes_per_second()
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let workloads = [
        ("4 KiB random write", 4 << 10, Order::Random, [Some(15.0), Some(100.0), None]),
        ("1 MiB linear write", 1 << 20, Order::Linear, [Some(1000.0), Some(700.0), None]),
    ];
    let bounds = [Bound::Drives, Bound::Host];
    let rows = bounds.into_iter().flat_map(|bound| workloads.map(|workload| (bound, workload)));
    let figures = rows.flat_map(|(bound, (workload, bytes, order, published))| {
        SETTINGS.into_iter().zip(published).map(move |((setting, stripe_size), published)| Figure {
            workload: format!("{workload}, {}", bound.name()),
            setting: setting.to_owned(),
            unit: "MB/s",
            published,
            measured: speed(bound, stripe_size, bytes, order),
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
