//! E3: linear writes, and how much md reads back for them (RAID-5 on the linux-raid list, 2010).
//!
//! When a request fills a stripe in part, the new parity needs old data or old parity, unless the engine waits for the
//! rest of the stripe.

use crate::drive::{Model, models};
use crate::host::HostTime;
use crate::report::{Figure, Report, Table};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Measured, Order, Workload, run as write};
use engine::AssembleOptions;
use format::geometry::Level;
use std::time::Duration;

const CHUNK_BYTES: u64 = 64 << 10;

const DRIVES: u16 = 8;

/// The speed of all drives together, in MB/s.
const DRIVES_SPEED: f64 = 800.0;

/// The most that waits in memory: three quarters of the write buffer of `mdspace serve`. It is full before anything is
/// measured, so that what is answered is what the drives write.
const IN_MEMORY_BYTES: u64 = 24 << 20;

/// Whether a write may wait for other writes to its stripe.
#[derive(Clone, Copy, PartialEq)]
enum Gather {
    Streams,
    /// And streams that cannot fill a stripe are answered from memory.
    Answered,
    Never,
}

fn rig(model: Model, partitions: u16, gather: Gather) -> Rig {
    let mut options = AssembleOptions::default();
    match gather {
        Gather::Never => options.gather_bytes = 0,
        Gather::Answered => options.gather_bytes = IN_MEMORY_BYTES,
        Gather::Streams => {}
    }
    let rig = Rig::new(Setup {
        partitions,
        host: if gather == Gather::Never { HostTime::NONE } else { HostTime::ENGINE },
        options,
        ..Setup::new(model, DRIVES, Level::Raid5, CHUNK_BYTES, 4 << 30)
    });
    if gather == Gather::Answered {
        rig.answer_streams();
    }
    rig
}

fn stripe_bytes(partitions: u16) -> u64 {
    u64::from(DRIVES * partitions - 1) * CHUNK_BYTES
}

/// Requests in flight such that there are four stripes, and at least 4 MiB.
fn deep(partitions: u16, bytes: u64) -> u64 {
    (4 * stripe_bytes(partitions)).max(4 << 20).div_ceil(bytes)
}

/// One stream of linear writes.
fn linear(rig: &Rig, bytes: u64, depth: u64) -> Measured {
    let extent = Extent::Time { warm_up: Duration::from_millis(100), measured: Duration::from_millis(400) };
    let (order, think) = (Order::Linear, Duration::from_micros(10));
    write(rig, &Workload { bytes, order, jobs: 1, depth, think, within: u64::MAX, extent })
}

/// Request lengths of the default's rows: small, large, and one that does not divide a stripe.
const REQUESTS: [u64; 4] = [4 << 10, 64 << 10, 1000 << 10, 1 << 20];

/// Requests in flight in the default's rows, beside [`deep`].
const DEPTHS: [u64; 4] = [1, 4, 16, 64];

/// The bytes that were read for each byte written.
fn read(measured: &Measured) -> f64 {
    measured.drives.read_bytes as f64 / measured.bytes as f64
}

/// md without coalescing on a kind of drive: the speed, and the bytes that were read per byte written.
fn figures(model: Model, partitions: u16, bytes: u64, setting: &str, published: f64) -> [Figure; 2] {
    let commands = if model == models::e3_ssd() { "a command costs nothing" } else { "a command costs" };
    let measured = linear(&rig(model, partitions, Gather::Never), bytes, deep(partitions, bytes));
    let workload = format!("{} members, linear writes of {} KiB, {commands}", partitions * DRIVES, bytes >> 10);
    let figure = |setting: String, unit, published, measured| Figure {
        workload: workload.clone(),
        setting,
        unit,
        published,
        measured,
    };
    [
        figure(setting.to_owned(), "MB/s", Some(published), measured.megabytes_per_second()),
        figure(format!("{setting}, read for each byte written"), "bytes", None, read(&measured)),
    ]
}

/// A write mode at each depth.
fn table(partitions: u16, gather: Gather) -> Table {
    let names = DEPTHS.map(|depth| depth.to_string()).into_iter().chain(["4 stripes".to_owned()]);
    let columns = names.flat_map(|name| [format!("{name} under way"), "read".to_owned()]);
    let round = |value: f64, scale: f64| Some((value * scale).round() / scale);
    let row = |bytes: u64| {
        let depths = DEPTHS.into_iter().chain([deep(partitions, bytes)]);
        let numbers = depths.flat_map(|depth| {
            let measured = linear(&rig(models::e3_ssd_commands(), partitions, gather), bytes, depth);
            [round(measured.megabytes_per_second(), 1.0), round(read(&measured), 100.0)]
        });
        (format!("{} KiB", bytes >> 10), numbers.collect())
    };
    let mode = if gather == Gather::Answered { "--cache streams" } else { "default" };
    Table {
        title: format!("{mode}, {} members: MB/s, and bytes read for each byte written", partitions * DRIVES),
        columns: std::iter::once("linear writes of".to_owned()).chain(columns).collect(),
        rows: REQUESTS.map(row).into(),
    }
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let mut all = Vec::new();
    for (partitions, stock, changed) in [(1, 550.0, 670.0), (4, 375.0, 670.0)] {
        let members = f64::from(partitions * DRIVES);
        let full = stripe_bytes(partitions);
        for model in [models::e3_ssd(), models::e3_ssd_commands()] {
            all.extend(figures(model.clone(), partitions, 1 << 20, "nothing gathered (stock)", stock));
            all.extend(figures(model, partitions, full, "nothing gathered, full stripes (changed)", changed));
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
            "{DRIVES} drives ({}), as members and in 4 partitions each; chunk 64 KiB, 4 stripes and 4 MiB under way \
             where nothing else is said",
            models::e3_ssd().name
        ),
        figures: all,
        traces: Vec::new(),
        tables: [Gather::Streams, Gather::Answered]
            .into_iter()
            .flat_map(|gather| [1, 4].map(|p| table(p, gather)))
            .collect(),
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
            let rig = rig(models::e3_ssd(), partitions, Gather::Streams);
            let measured = linear(&rig, bytes, deep(partitions, bytes));
            let speed = measured.megabytes_per_second();
            assert!(speed >= 0.98 * theory, "{members} members, {bytes} bytes: {speed:.1} of {theory}");
            assert_eq!(measured.drives.reads, 0, "{members} members, {bytes} bytes");
        }
    }
}
