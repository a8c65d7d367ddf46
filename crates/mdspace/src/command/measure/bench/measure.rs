//! Measurements in rounds: array and limit in turn, so that both meet the same load of the machine; then the median of
//! their ratios.

use super::workload::{Kind, Limit, Transfer, Workload};
use crate::command::text::failure::Failure;
use crate::machine::Array;
use engine::{Block, Buffer, Clock, Durability, Member, MemberError, Moment, Pool};
use format::units::MemberByte;
use futures_util::future::join_all;
use io::{AnyMember, RealClock};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Rounds of each side; an odd number, so that the median is the value of one round.
pub(super) const ROUNDS: u32 = 21;

/// Requests in a worker's turn, and between two readings of the clock.
const BATCH: u64 = 16;

/// A measurement. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    /// The workload.
    pub(super) workload: &'static str,
    /// Bytes of each request.
    pub(super) request_bytes: usize,
    /// Requests per second, the median of the rounds.
    pub(super) array_per_second: f64,
    /// The same for the members without RAID.
    pub(super) limit_per_second: f64,
    /// The ratio of array to limit, the median of the rounds.
    pub(super) ratio: f64,
    /// For a degraded array: the ratio of its rate to that of the whole array, the median of the rounds.
    pub(super) of_whole: Option<f64>,
}

/// The target of requests.
#[derive(Clone)]
pub(super) struct Bench {
    pub(super) array: Array,
    /// For a degraded `array`: the same array with all its members, which gets the same requests.
    pub(super) whole: Option<Array>,
    pub(super) members: Vec<AnyMember>,
    /// Where data begins on each member.
    pub(super) data_at: Vec<u64>,
    pub(super) pool: Pool,
    pub(super) clock: RealClock,
    /// Requests under way at a time.
    pub(super) depth: usize,
    /// The data of writes, as long as the longest request with its parity and any transfer.
    pub(super) template: Block,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Array,
    Limit,
    Whole,
}

/// The state that the workers of a round share.
struct Round {
    bench: Rc<Bench>,
    workload: Rc<Workload>,
    side: Side,
    deadline: Moment,
    next: Cell<u64>,
    failed: RefCell<Option<String>>,
}

/// Measures `workload` for about `time`.
pub(super) async fn measure(bench: &Rc<Bench>, workload: Workload, time: Duration) -> Result<Figure, Failure> {
    let workload = Rc::new(workload);
    let sides: &[Side] = match bench.whole {
        None => &[Side::Array, Side::Limit],
        Some(_) => &[Side::Array, Side::Limit, Side::Whole],
    };
    let slice = time / (sides.len() as u32 * (ROUNDS + 1));
    // The first request of each side's next round. If every round began at the same request, the data would be in the
    // processor's cache.
    let mut next = vec![0; sides.len()];
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for round in 0..=ROUNDS {
        let mut rates = Vec::new();
        for (&side, next) in sides.iter().zip(&mut next) {
            rates.push(rate_from(bench, &workload, side, slice, next).await?);
        }
        if round > 0 {
            // The first round warms up.
            rounds.push(rates);
        }
    }
    Ok(Figure {
        workload: workload.name,
        request_bytes: workload.bytes,
        array_per_second: median(rounds.iter().map(|rates| rates[0])),
        limit_per_second: median(rounds.iter().map(|rates| rates[1])),
        ratio: median(rounds.iter().map(|rates| rates[0] / rates[1])),
        of_whole: bench.whole.as_ref().map(|_| median(rounds.iter().map(|rates| rates[0] / rates[2]))),
    })
}

pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Requests per second of one side in one round.
pub(super) async fn rate(
    bench: &Rc<Bench>,
    workload: &Rc<Workload>,
    side: Side,
    slice: Duration,
) -> Result<f64, Failure> {
    rate_from(bench, workload, side, slice, &mut 0).await
}

/// As [`rate`], from request `next` on; also returns the request that follows the last one.
async fn rate_from(
    bench: &Rc<Bench>,
    workload: &Rc<Workload>,
    side: Side,
    slice: Duration,
    next: &mut u64,
) -> Result<f64, Failure> {
    let start = bench.clock.now();
    let round = Rc::new(Round {
        bench: bench.clone(),
        workload: workload.clone(),
        side,
        deadline: start + slice,
        next: Cell::new(*next),
        failed: RefCell::new(None),
    });
    let workers: Vec<_> = (0..bench.depth).map(|_| io::spawn(work(round.clone()))).collect();
    let done: u64 = join_all(workers).await.into_iter().sum();
    *next = round.next.get();
    if let Some(reason) = round.failed.take() {
        return Err(Failure::unwell(format!("{}: {reason}", workload.name)));
    }
    Ok(done as f64 / bench.clock.now().since(start).as_secs_f64())
}

/// A worker: issues requests one after another until the time is over. It yields at intervals, because members in
/// memory complete at once.
async fn work(round: Rc<Round>) -> u64 {
    let requests = &round.workload.requests;
    let mut done = 0;
    while done % BATCH != 0 || round.bench.clock.now() < round.deadline {
        let number = round.next.replace(round.next.get() + 1);
        let (at, limit) = &requests[(number % requests.len() as u64) as usize];
        let result = match round.side {
            Side::Array => {
                round.bench.request(&round.bench.array, round.workload.kind, *at, round.workload.bytes).await
            }
            Side::Limit => round.bench.transfer(limit).await,
            Side::Whole => {
                let whole = round.bench.whole.as_ref().expect("a degraded array has a whole one beside it");
                round.bench.request(whole, round.workload.kind, *at, round.workload.bytes).await
            }
        };
        if let Err(reason) = result {
            round.failed.replace(Some(reason));
            break;
        }
        done += 1;
        if done % BATCH == 0 {
            io::yield_now().await;
        }
    }
    done
}

impl Bench {
    /// Bytes of each member in a window of a sweep.
    pub(super) fn window_bytes(&self) -> u64 {
        self.members[0].limits().window_bytes()
    }

    async fn request(&self, array: &Array, kind: Kind, at: u64, bytes: usize) -> Result<(), String> {
        let done = match kind {
            Kind::Read => array.read(at, self.pool.take(bytes)).await.map(drop),
            Kind::Write => array.write(at, self.template.slice(0..bytes), Durability::Ordinary).await,
        };
        done.map_err(|error| error.to_string())
    }

    /// Reads into parts of one buffer, as the array does, then writes from one block.
    pub(super) async fn transfer(&self, limit: &Limit) -> Result<(), String> {
        let mut rest = self.pool.take(limit.reads.iter().map(|transfer| transfer.bytes).sum());
        let reads = limit.reads.iter().map(|transfer| self.read(transfer, rest.split_to(transfer.bytes)));
        at_once(reads).await.map_err(|error| error.to_string())?;
        at_once(limit.writes.iter().map(|transfer| self.write(transfer))).await.map_err(|error| error.to_string())
    }

    /// As the array does: by a plain call if the member needs no future.
    async fn read(&self, transfer: &Transfer, mut into: Buffer) -> Result<(), MemberError> {
        let (member, at) = (&self.members[transfer.slot], self.place_of(transfer));
        match member.read_now(at, &mut into) {
            Some(result) => result,
            None => member.read(at, into).await.0,
        }
    }

    async fn write(&self, transfer: &Transfer) -> Result<(), MemberError> {
        let from = transfer.from.min(self.template.len() - transfer.bytes);
        let block = self.template.slice(from..from + transfer.bytes);
        let (member, at) = (&self.members[transfer.slot], self.place_of(transfer));
        match member.write_now(at, &block) {
            Some(result) => result,
            None => member.write(at, block).await,
        }
    }

    fn place_of(&self, transfer: &Transfer) -> MemberByte {
        MemberByte(self.data_at[transfer.slot] + transfer.at)
    }
}

/// Awaits all transfers concurrently; a single one needs no list.
async fn at_once<F>(mut transfers: impl ExactSizeIterator<Item = F>) -> Result<(), MemberError>
where
    F: Future<Output = Result<(), MemberError>>,
{
    match transfers.len() {
        0 => Ok(()),
        1 => transfers.next().expect("its length is 1").await,
        _ => join_all(transfers).await.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_move_the_median() {
        assert_eq!(median([3.0, 1.0, 1000.0].into_iter()), 3.0);
    }
}
