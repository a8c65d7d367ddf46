//! Resync and recovery of an idle array, beside their transfers without RAID.
//!
//! The limit reads and writes the same bytes of the same members, in windows of the same size, with as many under way.
//! The members agree, so that a resync reads and compares everything and writes nothing. The recovery rebuilds the
//! first slot.

use super::measure::{Bench, median};
use super::workload::{Limit, Transfer};
use super::{Kept, candidates, fill, make_array, name, options};
use crate::command::text::failure::Failure;
use crate::machine::{Array, Machine};
use engine::create::Contents;
use engine::{Candidate, Clock, Durability};
use format::geometry::{Geometry, Level};
use format::units::Slot;
use futures_util::{StreamExt, TryStreamExt, stream};
use io::AnyMember;
use serde::Serialize;
use std::ops::Range;

/// Rounds of each side; an odd number, so that the median is the value of one round.
const ROUNDS: usize = 9;

/// Bytes of each member under way, as in the engine.
pub(super) const BYTES_IN_FLIGHT: u64 = 8 << 20;

/// The names of the sweeps in the report. They are measured together.
pub(super) const NAMES: [&str; 2] = ["resync of each member", "recover of each member"];

/// A measurement. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Serialize)]
pub(super) struct Sweep {
    /// `resync` or `recover`.
    action: &'static str,
    /// Bytes of each member that the sweep covers.
    pub(super) member_bytes: u64,
    /// Bytes of each member per second, the median of the rounds.
    array_per_second: f64,
    /// The same for the members without RAID.
    limit_per_second: f64,
    /// The ratio of array to limit, the median of the rounds.
    ratio: f64,
}

/// Measures both sweeps of an array created for this; nothing at levels without redundancy.
pub(super) async fn measure_sweeps(
    machine: &Machine,
    members: &[AnyMember],
    level: Level,
    chunk_bytes: u64,
    kept: Kept<'_>,
    bench: &Bench,
    geometry: &Geometry,
) -> Result<Vec<Sweep>, Failure> {
    if !level.is_redundant() {
        return Ok(Vec::new());
    }
    make_array(machine, members, level, chunk_bytes, kept, true, Contents::Unknown).await?;
    // The creation left holes, which cost nothing to read. So the array is filled first.
    let array = assemble(machine, members).await?;
    fill(&array, &bench.template).await?;
    array.stop().await?;
    let resync = async || {
        // Written to and not stopped, so a resync is due.
        let array = assemble(machine, members).await?;
        array.write(0, bench.template.slice(0..4096), Durability::Ordinary).await?;
        drop(array);
        let array = assemble(machine, members).await?;
        let start = machine.clock.now();
        let resynced = array.resync(&|_, _| {}).await?;
        let seconds = machine.clock.now().since(start).as_secs_f64();
        array.stop().await?;
        if !resynced.complete || resynced.compared == 0 {
            return Err(Failure::unwell("the resync compared nothing"));
        }
        Ok(seconds)
    };
    let resyncs = rounds(bench, geometry, "resync", resync).await?;
    let array = assemble(machine, members).await?;
    let recover = async || {
        array.fail(&name(0)).await?;
        array.remove(&name(0)).await?;
        let candidate = Candidate { name: name(0), member: members[0].clone() };
        array.add(candidate, *b"mdspace's bench.", true).await?;
        let start = machine.clock.now();
        array.recover(&|_, _| {}).await?;
        Ok(machine.clock.now().since(start).as_secs_f64())
    };
    let recoveries = rounds(bench, geometry, "recover", recover).await?;
    array.stop().await?;
    Ok(vec![resyncs, recoveries])
}

async fn assemble(machine: &Machine, members: &[AnyMember]) -> Result<Array, Failure> {
    let array = Array::assemble(candidates(members), options(machine), machine.pool.clone(), machine.clock.clone());
    Ok(array.await?)
}

/// Measures the array's sweep and its limit in turn. `sweep` returns its duration in seconds.
async fn rounds(
    bench: &Bench,
    geometry: &Geometry,
    action: &'static str,
    sweep: impl AsyncFn() -> Result<f64, Failure>,
) -> Result<Sweep, Failure> {
    let member_bytes = geometry.used_bytes(Slot(0));
    let window_bytes = bench.window_bytes();
    let window = |at| window(geometry, action, at..member_bytes.min(at + window_bytes));
    let windows: Vec<Limit> = (0..member_bytes).step_by(window_bytes as usize).map(window).collect();
    let mut rates = Vec::new();
    for round in 0..=ROUNDS {
        let array = member_bytes as f64 / sweep().await?;
        let start = bench.clock.now();
        stream::iter(&windows)
            .map(|limit| bench.transfer(limit))
            .buffered((BYTES_IN_FLIGHT / window_bytes) as usize)
            .try_collect::<()>()
            .await
            .map_err(|reason| Failure::unwell(format!("{action}: {reason}")))?;
        let limit = member_bytes as f64 / bench.clock.now().since(start).as_secs_f64();
        if round > 0 {
            // The first round warms up.
            rates.push((array, limit));
        }
    }
    Ok(Sweep {
        action,
        member_bytes,
        array_per_second: median(rates.iter().map(|(array, _)| *array)),
        limit_per_second: median(rates.iter().map(|(_, limit)| *limit)),
        ratio: median(rates.iter().map(|(array, limit)| array / limit)),
    })
}

/// The transfers that a window of a sweep needs.
fn window(geometry: &Geometry, action: &str, range: Range<u64>) -> Limit {
    let bytes = (range.end - range.start) as usize;
    let transfer = |slot: u16| Transfer { slot: slot.into(), at: range.start, bytes, from: 0 };
    let reads = match (action, geometry) {
        ("resync", _) => 0..geometry.slots(),
        (_, Geometry::Parity(parity)) => 1..parity.data_chunks() + 1,
        (_, Geometry::Mapping(_)) => 1..2,
    };
    let writes = if action == "resync" { 0..0 } else { 0..1 };
    Limit { reads: reads.map(transfer).collect(), writes: writes.map(transfer).collect() }
}

impl Sweep {
    pub(super) fn heading() -> Vec<String> {
        ["", "array", "limit", "array/limit"].map(str::to_owned).to_vec()
    }

    pub(super) fn row(&self) -> Vec<String> {
        let side = |per_second: f64| format!("{:.2} GB/s", per_second / 1e9);
        vec![
            format!("{} of each member", self.action),
            side(self.array_per_second),
            side(self.limit_per_second),
            format!("{:.2}", self.ratio),
        ]
    }
}
