//! E3: linear writes, and how much md reads back for them (RAID-5 on the linux-raid list, 2010).
//!
//! When a request fills a stripe in part, the new parity needs old data or old parity, unless the engine waits for the
//! rest of the stripe.

use crate::drive::models;
use crate::member::ThreadTime;
use crate::report::{Figure, Report};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Measured, Order, Workload, run as write};
use engine::AssembleOptions;
use format::geometry::Level;
use format::placement::BitmapChoice;
use std::time::Duration;

const CHUNK_BYTES: u64 = 64 << 10;

const DRIVES: u16 = 8;

/// The speed of all drives together, in MB/s.
const DRIVES_SPEED: f64 = 800.0;

/// Whether a write may wait for other writes to its stripe.
#[derive(Clone, Copy, PartialEq)]
enum Gather {
    Streams,
    Never,
}

fn rig(partitions: u16, gather: Gather) -> Rig {
    let mut options = AssembleOptions::default();
    if gather == Gather::Never {
        options.gather_bytes = 0;
    }
    Rig::new(Setup {
        model: models::e3_ssd(),
        drives: DRIVES,
        partitions,
        spares: 0,
        level: Level::Raid5,
        layout: 2,
        chunk_bytes: CHUNK_BYTES,
        component_bytes: 4 << 30,
        bitmap: BitmapChoice::None,
        thread: ThreadTime::NONE,
        integrity: false,
        options,
    })
}

fn stripe_bytes(partitions: u16) -> u64 {
    u64::from(DRIVES * partitions - 1) * CHUNK_BYTES
}

/// One stream of linear writes. Four stripes are in flight, and at least 4 MiB.
fn linear(partitions: u16, bytes: u64, gather: Gather) -> Measured {
    let depth = (4 * stripe_bytes(partitions)).max(4 << 20).div_ceil(bytes);
    let extent = Extent::Time { warm_up: Duration::from_millis(100), measured: Duration::from_millis(400) };
    let (order, think) = (Order::Linear, Duration::from_micros(10));
    let workload = Workload { bytes, order, jobs: 1, depth, think, within: u64::MAX, extent };
    write(&rig(partitions, gather), &workload)
}

/// Request lengths of the default's rows: small, large, and one that does not divide a stripe.
const REQUESTS: [u64; 4] = [4 << 10, 64 << 10, 1000 << 10, 1 << 20];

/// The speed, and the bytes that were read per byte written.
fn figures(partitions: u16, bytes: u64, gather: Gather, setting: &str, published: Option<f64>) -> [Figure; 2] {
    let measured = linear(partitions, bytes, gather);
    let workload = format!("{} members, linear writes of {} KiB", partitions * DRIVES, bytes >> 10);
    let figure = |setting: String, unit, published, measured| Figure {
        workload: workload.clone(),
        setting,
        unit,
        published,
        measured,
    };
    let read = measured.drives.read_bytes as f64 / measured.bytes as f64;
    [
        figure(setting.to_owned(), "MB/s", published, measured.megabytes_per_second()),
        figure(format!("{setting}, read for each byte written"), "bytes", None, read),
    ]
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let mut all = Vec::new();
    for (partitions, stock, changed) in [(1, 550.0, 670.0), (4, 375.0, 670.0)] {
        let members = f64::from(partitions * DRIVES);
        let never = figures(partitions, 1 << 20, Gather::Never, "nothing gathered (stock)", Some(stock));
        all.extend(never);
        let full = stripe_bytes(partitions);
        all.extend(figures(partitions, full, Gather::Never, "nothing gathered, full stripes (changed)", Some(changed)));
        for bytes in REQUESTS {
            all.extend(figures(partitions, bytes, Gather::Streams, "default", None));
        }
        all.push(Figure {
            workload: format!("{members} members"),
            setting: "theory".to_owned(),
            unit: "MB/s",
            published: None,
            measured: DRIVES_SPEED * (members - 1.0) / members,
        });
    }
    Report {
        experiment: "e3",
        title: "linear writes to RAID-5",
        setup: format!(
            "{DRIVES} drives ({}), as members and in 4 partitions each; chunk 64 KiB, 4 stripes and 4 MiB under way",
            models::e3_ssd().name
        ),
        figures: all,
        traces: Vec::new(),
        tables: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_reads_nothing_and_runs_at_the_drives_speed() {
        for (partitions, bytes) in [1, 4].into_iter().flat_map(|partitions| REQUESTS.map(|bytes| (partitions, bytes))) {
            let members = f64::from(partitions * DRIVES);
            let theory = DRIVES_SPEED * (members - 1.0) / members;
            let measured = linear(partitions, bytes, Gather::Streams);
            let speed = measured.megabytes_per_second();
            assert!(speed >= 0.98 * theory, "{members} members, {bytes} bytes: {speed:.1} of {theory}");
            assert_eq!(measured.drives.reads, 0, "{members} members, {bytes} bytes");
        }
    }
}
