//! The speed of a check, and of requests during a check.
//!
//! The limit of a check is the same transfers of the same members without comparison. The limit of the requests is the
//! same requests without a check.

use super::measure::{Bench, Figure, ROUNDS, Side, median, rate};
use super::sweeps::BYTES_IN_FLIGHT;
use super::workload::Workload;
use crate::command::text::failure::Failure;
use engine::{Clock, Member, MemberError, ScrubAction, ScrubRequest};
use format::geometry::Geometry;
use format::units::{MemberByte, Slot};
use futures_util::{StreamExt, TryStreamExt, stream};
use io::AnyMember;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The name of the check in the report.
pub(super) const CHECK_NAME: &str = "check, bytes of all members";

/// The name of [`beside_a_check`] in the report.
pub(super) const BESIDE_A_CHECK: &str = "read 4 KiB random beside a check";

const CHECK: ScrubRequest = ScrubRequest { action: ScrubAction::Check, range: None };

/// Measures a check: bytes of all members per second, as a number of its transfers.
pub(super) async fn check(bench: &Rc<Bench>, geometry: &Geometry) -> Result<Figure, Failure> {
    let used = geometry.used_bytes(Slot(0));
    let window_bytes = bench.window_bytes();
    let transfers = (used * u64::from(geometry.slots())) as f64 / window_bytes as f64;
    let mut rates: Vec<(f64, f64)> = Vec::new();
    for round in 0..=ROUNDS {
        let begun = bench.clock.now();
        bench.array.begin_scrub(&CHECK)?;
        bench.array.scrub(&|_, _| {}).await?;
        let array = bench.clock.now().since(begun).as_secs_f64();
        let report = bench.array.scrub_report().expect("one was begun");
        if report.found.counts.found() > 0 {
            return Err(Failure::unwell("the check found errors in a new array"));
        }
        let begun = bench.clock.now();
        read_all(bench, used).await.map_err(|error| Failure::unwell(error.to_string()))?;
        let limit = bench.clock.now().since(begun).as_secs_f64();
        if round > 0 {
            rates.push((transfers / array, transfers / limit));
        }
    }
    Ok(Figure {
        workload: CHECK_NAME,
        request_bytes: window_bytes as usize,
        array_per_second: median(rates.iter().map(|(array, _)| *array)),
        limit_per_second: median(rates.iter().map(|(_, limit)| *limit)),
        ratio: median(rates.iter().map(|(array, limit)| array / limit)),
        of_whole: None,
    })
}

/// Reads the same bytes of every member without comparing them.
async fn read_all(bench: &Bench, used: u64) -> Result<(), MemberError> {
    let read = async |member: &AnyMember, at: u64, bytes: u64| {
        member.read(MemberByte(at), bench.pool.take(bytes as usize)).await.0
    };
    let window_bytes = bench.window_bytes();
    let window = async |start: u64| {
        let bytes = window_bytes.min(used - start);
        let reads =
            bench.members.iter().zip(&bench.data_at).map(|(member, data_at)| read(member, data_at + start, bytes));
        futures_util::future::join_all(reads).await.into_iter().collect::<Result<(), MemberError>>()
    };
    let windows = stream::iter((0..used).step_by(window_bytes as usize)).map(window);
    windows.buffered((BYTES_IN_FLIGHT / window_bytes) as usize).try_collect().await
}

/// Runs one check after another: on small members a single check ends before anything is measured.
async fn check_until(bench: Rc<Bench>, enough: Rc<Cell<bool>>) -> Result<(), Failure> {
    while !enough.get() {
        bench.array.begin_scrub(&CHECK)?;
        bench.array.scrub(&|_, _| {}).await?;
        // On members in memory the whole check may have run in one turn.
        io::yield_now().await;
    }
    Ok(())
}

/// Measures `workload` during a check at the default speed; the limit is the same without a check.
pub(super) async fn beside_a_check(bench: &Rc<Bench>, workload: Workload, time: Duration) -> Result<Figure, Failure> {
    let (workload, slice) = (Rc::new(workload), time / (2 * ROUNDS + 2));
    let mut rates: Vec<(f64, f64)> = Vec::new();
    for round in 0..=ROUNDS {
        let enough = Rc::new(Cell::new(false));
        let checks = io::spawn(check_until(bench.clone(), enough.clone()));
        let beside = rate(bench, &workload, Side::Array, slice).await;
        enough.set(true);
        // A check that has just ended cannot be cancelled, which makes no difference.
        drop(bench.array.cancel_scrub());
        checks.await?;
        let beside = beside?;
        let alone = rate(bench, &workload, Side::Array, slice).await?;
        if round > 0 {
            rates.push((beside, alone));
        }
    }
    Ok(Figure {
        workload: BESIDE_A_CHECK,
        request_bytes: workload.bytes,
        array_per_second: median(rates.iter().map(|(beside, _)| *beside)),
        limit_per_second: median(rates.iter().map(|(_, alone)| *alone)),
        ratio: median(rates.iter().map(|(beside, alone)| beside / alone)),
        of_whole: None,
    })
}
