//! Several shards beside one, on arrays of the same kind, in turn: each thread issues its own requests.
//!
//! Requests are for stripes of the thread's own shard, which cross no thread, or for any, of which all but one in so many do.

use super::measure::{ROUNDS, median};
use super::workload::{Kind, Xorshift};
use crate::command::server::crew::{Crew, Hand, Orders, Shard, deliver};
use crate::command::text::failure::Failure;
use crate::machine::{Arena, Array, Machine};
use engine::{Buffer, Clock, Durability};
use futures_util::future::{join, join_all};
use io::RealClock;
use serde::Serialize;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// What was measured. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Serialize)]
pub(super) struct ShardFigure {
    /// What was asked.
    workload: &'static str,
    /// Bytes of each request.
    request_bytes: usize,
    /// Requests a second to one array by one thread, the median of the rounds.
    one_per_second: f64,
    /// The same to another by all shards' threads together.
    all_per_second: f64,
    /// The median of the rounds' ratios, all to one.
    ratio: f64,
}

const REQUEST_BYTES: usize = 4096;

/// Places that are worked out beforehand; then they begin again.
const PLACES: usize = 8192;

/// How often is looked whether all shards work.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Copy)]
struct Load {
    kind: Kind,
    is_own: bool,
    depth: usize,
    slice: Duration,
}

const LOADS: [(&str, Kind, bool); 4] = [
    ("read 4 KiB random, own stripes", Kind::Read, true),
    ("read 4 KiB random, all stripes", Kind::Read, false),
    ("write 4 KiB random, own stripes", Kind::Write, true),
    ("write 4 KiB random, all stripes", Kind::Write, false),
];

/// Measures `array`, which nothing else is asked of, beside `one`, for about `time` each.
pub(super) async fn measure_shards(
    machine: &Machine,
    one: &Array,
    array: &Array,
    (shards, depth, time): (std::num::NonZeroU16, usize, Duration),
) -> Result<Vec<ShardFigure>, Failure> {
    let orders = Orders { shards, kernel: machine.kernel, writeback: false, arena: Arena::Large };
    let (crew, first, line) = Crew::start(array, &orders).await?;
    let (lone, lone_first, _) = Crew::start(one, &Orders { shards: std::num::NonZeroU16::MIN, ..orders }).await?;
    drop(io::spawn(deliver(first.clone(), line)));
    let giving = io::spawn({
        let first = first.clone();
        async move { first.give_licences().await }
    });
    let hands = crew.hands();
    while !are_all_at_work(&hands).await {
        machine.clock.sleep_until(machine.clock.now() + LOOK).await;
    }
    let mut figures = Vec::new();
    for (workload, kind, is_own) in LOADS {
        let load = Load { kind, is_own, depth, slice: time / (2 * ROUNDS + 2) };
        let mut rates = Vec::new();
        for round in 0..=ROUNDS {
            let alone = issue(lone_first.clone(), load).await.map_err(Failure::unwell)?;
            let others = hands.iter().map(|hand| hand.call(move |local| issue(local.shard.clone(), load)));
            let (own, others) = join(issue(first.clone(), load), join_all(others)).await;
            let mut all = own.map_err(Failure::unwell)?;
            for other in others {
                all += other.unwrap_or_else(|_| Err("a shard ended".to_owned())).map_err(Failure::unwell)?;
            }
            if round > 0 {
                rates.push((alone, all)); // the first warms up
            }
        }
        figures.push(ShardFigure {
            workload,
            request_bytes: REQUEST_BYTES,
            one_per_second: median(rates.iter().map(|(one, _)| *one)),
            all_per_second: median(rates.iter().map(|(_, all)| *all)),
            ratio: median(rates.iter().map(|(one, all)| all / one)),
        });
    }
    array.stop().await?;
    giving.await;
    crew.end();
    lone.end();
    one.stop().await?;
    Ok(figures)
}

async fn are_all_at_work(hands: &[Hand]) -> bool {
    let at_work = join_all(hands.iter().map(|hand| hand.call(async |local| local.shard.is_at_work()))).await;
    at_work.into_iter().all(|is_at_work| is_at_work.unwrap_or(false))
}

/// Requests a second that one thread has answered, some of them under way at a time.
async fn issue(shard: Shard, load: Load) -> Result<f64, String> {
    let mut random = Xorshift::default();
    let pages = shard.bytes() / REQUEST_BYTES as u64;
    let places = std::iter::repeat_with(|| random.next() % pages * REQUEST_BYTES as u64);
    let places: Rc<[u64]> = places.filter(|at| !load.is_own || shard.owns(*at)).take(PLACES).collect();
    let next = Rc::new(Cell::new(0));
    let clock = RealClock::new();
    let start = clock.now();
    let workers = (0..load.depth).map(|_| {
        let (shard, places, next, clock) = (shard.clone(), places.clone(), next.clone(), clock.clone());
        io::spawn(async move {
            let block = shard.pool().zeroed(REQUEST_BYTES).freeze();
            let mut done = 0_u64;
            while !done.is_multiple_of(16) || clock.now() < start + load.slice {
                let at = places[next.replace(next.get() + 1) % places.len()];
                let asked = match load.kind {
                    Kind::Read => shard.read(at, shard.pool().take(REQUEST_BYTES)).await.map(drop::<Buffer>),
                    Kind::Write => shard.write(at, block.clone(), Durability::Ordinary).await,
                };
                asked.map_err(|error| error.to_string())?;
                done += 1;
                if done.is_multiple_of(16) {
                    io::yield_now().await;
                }
            }
            Ok::<u64, String>(done)
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut done = 0;
    for worker in workers {
        done += worker.await?;
    }
    Ok(done as f64 / clock.now().since(start).as_secs_f64())
}

impl ShardFigure {
    pub(super) fn heading() -> Vec<String> {
        ["", "one shard", "all shards", "all/one"].map(str::to_owned).to_vec()
    }

    pub(super) fn row(&self) -> Vec<String> {
        let side = |per_second: f64| super::amount(per_second, self.request_bytes);
        vec![
            self.workload.to_owned(),
            side(self.one_per_second),
            side(self.all_per_second),
            format!("{:.2}", self.ratio),
        ]
    }
}
