//! E2: what the last page of the write-intent bitmap costs (md-bitmap, 2023).
//!
//! Random writes of 4 KiB set bits all over a bitmap whose second page is used for 3584 bytes only. If md writes just
//! these bytes, the drive has to read, change and write its unit of 4 KiB. md's two columns differ in the length of
//! that write. In both, md clears bits as soon as they are idle; this engine's default clears them sparingly.

use crate::drive::models;
use crate::report::{Figure, Report, Trace};
use crate::rig::{Rig, Setup};
use crate::workload::{Extent, Order, Workload, run as write};
use engine::{AssembleOptions, BitmapClearing, BitmapPolicy, BitmapWrites};
use format::geometry::Level;
use format::placement::BitmapChoice;
use std::time::Duration;

/// The chunk of the array and of the bitmap.
const CHUNK_BYTES: u64 = 64 << 20;

/// Bits of the bitmap; there is one for each chunk of the array.
const BITS: u64 = 57228;

/// From the completion of a write to the next one of the same job: fio, system calls, md's thread. Fixed by 15.7 k.
const THINK: Duration = Duration::from_micros(44);

const MD_BEFORE: BitmapPolicy = BitmapPolicy { writes: BitmapWrites::Exact, clearing: BitmapClearing::Eager };
const MD_AFTER: BitmapPolicy = BitmapPolicy { writes: BitmapWrites::Preferred, clearing: BitmapClearing::Eager };

/// How the bitmap is kept; `None` without a bitmap.
type Bitmap = Option<BitmapPolicy>;

fn rig(bitmap: Bitmap, chunk_bytes: u64, array_bytes: u64) -> Rig {
    let rig = Rig::new(Setup {
        bitmap: bitmap.map_or(BitmapChoice::None, |_| BitmapChoice::Chunk(chunk_bytes)),
        options: AssembleOptions { bitmap: bitmap.unwrap_or_default(), ..AssembleOptions::default() },
        ..Setup::new(models::e2_nvme(), 4, Level::Raid10, chunk_bytes, array_bytes / 2)
    });
    let array = rig.array.clone();
    rig.world.spawn(async move { array.clear_bitmap_lazily().await });
    rig
}

fn random_writes(depth: u64, extent: Extent) -> Workload {
    Workload { bytes: 4096, order: Order::Random, jobs: 1, depth, think: THINK, within: u64::MAX, extent }
}

fn published_rig(bitmap: Bitmap) -> Rig {
    rig(bitmap, CHUNK_BYTES, BITS * CHUNK_BYTES)
}

/// The IOPS of a rig during `measured`, which follows `warm_up`.
fn iops_of(rig: &Rig, depth: u64, warm_up: Duration, measured: Duration) -> f64 {
    write(rig, &random_writes(depth, Extent::Time { warm_up, measured })).requests_per_second()
}

/// fio's run as published, one minute from a clean bitmap: the IOPS, and [`dirty`].
fn minute(bitmap: BitmapPolicy) -> (f64, f64) {
    let rig = published_rig(Some(bitmap));
    (iops_of(&rig, 1, Duration::ZERO, Duration::from_secs(60)), dirty(&rig))
}

/// The share of the array that would be resynced if the server died now, in %.
fn dirty(rig: &Rig) -> f64 {
    rig.array.status().bitmap.map_or(100.0, |bitmap| bitmap.set as f64 / bitmap.bits as f64 * 100.0)
}

/// When nearly every bit has been set, after six times as many writes as there are bits: the IOPS, and [`dirty`].
fn steady(bitmap: Bitmap, depth: u64) -> (f64, f64) {
    let writes = if bitmap.is_some() { 6 * BITS } else { 0 };
    let (warm_up, measured) = (Duration::from_micros(writes * 64 / depth), Duration::from_secs(6) / depth as u32);
    let rig = published_rig(bitmap);
    (iops_of(&rig, depth, warm_up, measured), dirty(&rig))
}

/// [`dirty`] after a minute of 50 writes a second.
fn dirty_at_leisure(bitmap: BitmapPolicy) -> f64 {
    let rig = published_rig(Some(bitmap));
    let extent = Extent::Time { warm_up: Duration::ZERO, measured: Duration::from_secs(60) };
    write(&rig, &Workload { think: Duration::from_millis(20), ..random_writes(1, extent) });
    dirty(&rig)
}

fn iops(workload: &str, setting: &str, published: Option<f64>, measured: f64) -> Figure {
    Figure { workload: workload.to_owned(), setting: setting.to_owned(), unit: "IOPS", published, measured }
}

/// The share of the array that a crash would leave to resync.
fn to_resync(workload: &str, setting: &str, dirty: f64) -> Figure {
    Figure { unit: "% of the array", ..iops(workload, &format!("to resync: {setting}"), None, dirty) }
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let default = Some(BitmapPolicy::default());
    let busy = "4 KiB random write, 1 under way, for a minute";
    let leisure = "4 KiB random write, 50 a second, for a minute";
    let mut figures = Vec::new();
    for (setting, bitmap, published) in [
        ("last page as long as its bits", MD_BEFORE, Some(1676.0)),
        ("last page as the drive prefers", MD_AFTER, Some(15_700.0)),
        ("default", BitmapPolicy::default(), None),
    ] {
        let (measured, dirty) = minute(bitmap);
        figures.push(iops(busy, setting, published, measured));
        figures.push(to_resync(busy, setting, dirty));
    }
    for (setting, bitmap) in [("md's clearing", MD_AFTER), ("default", BitmapPolicy::default())] {
        figures.push(to_resync(leisure, setting, dirty_at_leisure(bitmap)));
    }
    for depth in [1, 32] {
        let workload = format!("4 KiB random write, {depth} under way, steady");
        let ((with, dirty), (without, _)) = (steady(default, depth), steady(None, depth));
        figures.push(iops(&workload, "default", None, with));
        figures.push(iops(&workload, "no bitmap", None, without));
        figures.push(Figure { unit: "%", ..iops(&workload, "default, of no bitmap", None, with / without * 100.0) });
        figures.push(to_resync(&workload, "default", dirty));
    }
    figures.extend(member_writes(default));
    let setup = format!(
        "RAID-10 over 4 drives ({}), chunk and bitmap chunk 64 MiB, internal bitmap of {BITS} bits",
        models::e2_nvme().name
    );
    let traces = vec![
        trace("Last page as long as its bits", MD_BEFORE),
        trace("Last page as the drive prefers (default)", BitmapPolicy::default()),
    ];
    Report {
        experiment: "e2",
        title: "the last page of the write-intent bitmap",
        setup,
        figures,
        traces,
        tables: Vec::new(),
    }
}

/// The member writes of 1024 requests. On a clean bitmap with small chunks nearly every request sets a bit.
fn member_writes(bitmap: Bitmap) -> Vec<Figure> {
    let count = |depth| {
        let rig = rig(bitmap, 64 << 10, 1 << 30);
        write(&rig, &random_writes(depth, Extent::Requests(1024))).drives.writes as f64
    };
    let figure = |depth, published| Figure {
        workload: "1024 writes on a clean bitmap of 64 KiB chunks".to_owned(),
        setting: format!("default, {depth} under way"),
        unit: "member writes",
        published,
        measured: count(depth),
    };
    vec![figure(1, None), figure(32, Some(5104.0))]
}

/// The members' transfers, as a tracer of block I/O prints them.
fn trace(title: &str, bitmap: BitmapPolicy) -> Trace {
    let rig = published_rig(Some(bitmap));
    write(&rig, &random_writes(1, Extent::Requests(1))); // marks the array as dirty
    rig.begin_trace();
    write(&rig, &random_writes(1, Extent::Requests(5)));
    Trace { title: title.to_owned(), transfers: rig.end_trace() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_old_policy_writes_less_than_the_drive_prefers() {
        let is_partial = |trace: &Trace| trace.transfers.iter().any(|transfer| transfer.bytes % 4096 != 0);
        assert!(is_partial(&trace("", MD_BEFORE)));
        assert!(!is_partial(&trace("", BitmapPolicy::default())));
    }
}
