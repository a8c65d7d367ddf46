//! The cost of measuring: the same reads and writes of an array of memory members, in three variants by turns.
//! The variants are: no metering, metering, and metering while a client polls the trace as `mdspace trace` does.
//!
//! `cargo bench -p mdspace-export --bench measure` prints request rates of the engine alone and through the NBD server,
//! and their ratios. `... -- count MEASURED LOAD` issues a fixed number of requests, for callgrind: MEASURED is `on` or
//! `off`, LOAD is `read`, `write`, `stripe` (writes of full stripes) or `degraded` (reads without one member).
//! `... -- count MEASURED LOAD LEVEL MEMBERS` does so on another array than RAID-5 of 8. It measures only; it asserts no
//! figure.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Pool};
use format::geometry::Level;
use futures_util::future::{Either, join_all, select};
use io::net::{Listener, Stream};
use io::{AnyMember, Executor, MemoryMember, Options, RealClock};
use mdspace_export::measure::{Gauges, Measured};
use mdspace_export::nbd::client::{Client, connect};
use mdspace_export::nbd::handshake::ClientOptions;
use mdspace_export::nbd::server::{Server, ServerLimits};
use mdspace_export::nbd::session::Export;
use mdspace_export::{Durability, Volume, VolumeError, VolumeErrorKind};
use std::cell::Cell;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

type MemoryArray = Array<AnyMember, RealClock>;

const MEMBERS: usize = 8;
const MEMBER_BYTES: u64 = 32 << 20;
const REQUEST: u64 = 4096;
const DEPTH: usize = 32;
const ROUND: Duration = Duration::from_millis(250);
const ROUNDS: usize = 21;
const COUNTED: u64 = 100_000;

/// A full stripe of the array, and how many are counted: they move more.
const STRIPE: u64 = (MEMBERS as u64 - 1) * (64 << 10);
const STRIPES: u64 = 2_000;

/// The polling interval of `mdspace trace`.
const PAUSE: Duration = Duration::from_millis(100);

/// What is measured while the requests run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Watching {
    Nothing,
    Meters,
    Trace,
}

const WATCHING: [Watching; 3] = [Watching::Nothing, Watching::Meters, Watching::Trace];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    Read,
    Write,
    Stripe,
}

impl Load {
    fn request_bytes(self) -> u64 {
        if self == Self::Stripe { STRIPE } else { REQUEST }
    }
}

/// The array as a volume.
#[derive(Clone)]
struct Whole(MemoryArray);

fn failed(error: engine::ArrayError) -> VolumeError {
    VolumeError::new(VolumeErrorKind::Io, error.reason)
}

impl Volume for Whole {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn preferred_block_bytes(&self) -> u32 {
        4096
    }
    fn pool(&self) -> &Pool {
        self.0.pool()
    }
    async fn read(&self, at: u64, into: engine::Buffer) -> Result<engine::Buffer, VolumeError> {
        self.0.read(at, into).await.map_err(failed)
    }
    async fn write(&self, at: u64, from: engine::Block, _: Durability) -> Result<(), VolumeError> {
        self.0.write(at, from, Durability::Ordinary).await.map_err(failed)
    }
    async fn flush(&self) -> Result<(), VolumeError> {
        self.0.flush().await.map_err(failed)
    }
    async fn discard(&self, _: u64, _: u64) -> Result<(), VolumeError> {
        Ok(())
    }
    async fn write_zeroes(&self, _: u64, _: u64, _: bool, _: Durability) -> Result<(), VolumeError> {
        Err(VolumeError::new(VolumeErrorKind::Io, "this bench never zeroes"))
    }
}

async fn array(pool: &Pool) -> MemoryArray {
    array_of(pool, Level::Raid5, MEMBERS).await
}

async fn array_of(pool: &Pool, level: Level, members: usize) -> MemoryArray {
    let newcomer = |index: usize| {
        let member = AnyMember::from(MemoryMember::new(MEMBER_BYTES).expect("memory"));
        Some(Newcomer { candidate: Candidate { name: format!("m{index}"), member }, device_uuid: [index as u8; 16] })
    };
    let newcomers: Vec<_> = (0..members).map(newcomer).collect();
    let recipe = Recipe {
        chunk_bytes: 64 << 10,
        name: "bench".to_owned(),
        contents: Contents::Consistent,
        ..Recipe::new(level, [7; 16])
    };
    let clock = RealClock::new();
    create(&recipe, &newcomers, &[], pool, &clock, &|_, _| {}).await.expect("it can be made");
    let offered = newcomers.into_iter().flatten().map(|newcomer| newcomer.candidate).collect();
    Array::assemble(offered, AssembleOptions::default(), pool.clone(), clock).await.expect("it is whole")
}

/// Issues requests at random offsets until `is_over` returns true. Returns how many it issued.
async fn requests(bytes: u64, request: u64, ask: impl AsyncFn(u64), is_over: impl Fn(u64) -> bool) -> u64 {
    let done = Cell::new(0);
    let lane = async |mut random: u64| {
        while !is_over(done.get()) {
            for _ in 0..16 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ask((random >> 20) % (bytes / request) * request).await;
                done.set(done.get() + 1);
            }
            io::yield_now().await;
        }
    };
    join_all((1..=DEPTH as u64).map(lane)).await;
    done.get()
}

async fn of_volume<V: Volume>(volume: &V, load: Load, is_over: impl Fn(u64) -> bool) -> u64 {
    let bytes = volume.bytes();
    match load {
        Load::Read => {
            let read =
                async |at| drop(volume.read(at, volume.pool().take(REQUEST as usize)).await.expect("it is read"));
            requests(bytes, REQUEST, read, is_over).await
        }
        Load::Write | Load::Stripe => {
            let request = load.request_bytes();
            let block = volume.pool().zeroed(request as usize).freeze();
            let write = async |at| volume.write(at, block.clone(), Durability::Ordinary).await.expect("it is written");
            requests(bytes, request, write, is_over).await
        }
    }
}

async fn of_client(client: &Client, load: Load, is_over: impl Fn(u64) -> bool) -> u64 {
    let bytes = MEMBER_BYTES * (MEMBERS as u64 - 2);
    match load {
        Load::Read => {
            let read =
                async |at| drop(client.read(at, client.pool().take(REQUEST as usize)).await.expect("it is read"));
            requests(bytes, REQUEST, read, is_over).await
        }
        Load::Write | Load::Stripe => {
            let block = client.pool().zeroed(REQUEST as usize).freeze();
            let write = async |at| client.write(at, block.clone(), Durability::Ordinary).await.expect("it is written");
            requests(bytes, REQUEST, write, is_over).await
        }
    }
}

/// Polls the trace, and serializes each answer as the server does.
async fn ask_for_traces(gauges: Gauges) {
    let clock = RealClock::new();
    let mut next = None;
    loop {
        let traces = gauges.traces(next);
        next = Some(traces.next);
        std::hint::black_box(serde_json::to_vec(&traces).expect("it is JSON"));
        clock.sleep_until(clock.now() + PAUSE).await;
    }
}

/// Requests per second of the array with one variant of measuring.
async fn rate(array: &MemoryArray, gauges: &Gauges, watching: Watching, load: Load) -> f64 {
    let begun = Instant::now();
    let is_over = |_| begun.elapsed() >= ROUND;
    let is_watched = watching != Watching::Nothing;
    array.observe(is_watched.then(|| Rc::new(gauges.clone()) as _));
    let whole = Whole(array.clone());
    let done = match watching {
        Watching::Nothing => of_volume(&whole, load, is_over).await,
        Watching::Meters => of_volume(&Measured::new(whole, gauges), load, is_over).await,
        Watching::Trace => {
            let measured = Measured::new(whole, gauges);
            match select(pin!(of_volume(&measured, load, is_over)), pin!(ask_for_traces(gauges.clone()))).await {
                Either::Left((done, _)) => done,
                Either::Right(((), _)) => unreachable!("it has no end"),
            }
        }
    };
    done as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Prints the median rate of each variant, and the median of its ratio to the first variant.
fn report(what: &str, load: Load, rounds: &[[f64; 3]]) {
    let [off, on, traced] = [0, 1, 2].map(|side| median(rounds.iter().map(|round| round[side]).collect()));
    let [on_off, traced_off] = [1, 2].map(|side| median(rounds.iter().map(|round| round[side] / round[0]).collect()));
    let load = format!("{load:?}");
    println!("{what:7} {load:6} {off:12.0} {on:12.0} {traced:12.0}   {on_off:.3}   {traced_off:.3}");
}

fn level_of(word: &str) -> Level {
    match word {
        "5" => Level::Raid5,
        "6" => Level::Raid6,
        other => panic!("{other}: not a level that is counted"),
    }
}

fn count(measured: &str, load: &str, level: Level, members: usize) {
    let is_degraded = load == "degraded";
    let load = match load {
        "read" | "degraded" => Load::Read,
        "write" => Load::Write,
        "stripe" => Load::Stripe,
        other => panic!("{other}: not a load"),
    };
    let pool = Pool::new(64 << 20);
    let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
    executor.block_on(async {
        let array = array_of(&pool, level, members).await;
        if is_degraded {
            array.fail("m3").await.expect("the array can do without one member");
        }
        let is_over = |done| done >= if load == Load::Stripe { STRIPES } else { COUNTED };
        let done = if measured == "on" {
            let gauges = Gauges::new();
            array.observe(Some(Rc::new(gauges.clone())));
            of_volume(&Measured::new(Whole(array), &gauges), load, is_over).await
        } else {
            of_volume(&Whole(array), load, is_over).await
        };
        println!("{done} requests");
    });
}

/// Serves an array over NBD on a thread of its own, with one variant of measuring.
fn serve(path: &Path, watching: Watching) {
    let path = path.to_owned();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let pool = Pool::new(64 << 20);
        let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
        executor.block_on(async {
            let array = array(&pool).await;
            let listener = Listener::unix(&path, 0o600).expect("a socket");
            ready.send(()).expect("the bench waits");
            let name = String::new();
            if watching == Watching::Nothing {
                let export = Export { name, volume: Whole(array) };
                drop(Server::new(vec![export], ServerLimits::default()).accept_from(listener).await);
                return;
            }
            let gauges = Gauges::new();
            array.observe(Some(Rc::new(gauges.clone())));
            if watching == Watching::Trace {
                drop(io::spawn(ask_for_traces(gauges.clone())));
            }
            let export = Export { name, volume: Measured::new(Whole(array), &gauges) };
            drop(Server::new(vec![export], ServerLimits::default()).accept_from(listener).await);
        });
    });
    is_ready.recv().expect("it serves");
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let [command, measured, load, shape @ ..] = &words[..] {
        assert_eq!(command, "count");
        let (level, members) = match shape {
            [] => (Level::Raid5, MEMBERS),
            [level, members] => (level_of(level), members.parse().expect("a number of members")),
            _ => panic!("{shape:?}: not a level and a number of members"),
        };
        return count(measured, load, level, members);
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let paths = ["off", "on", "traced"].map(|name| directory.path().join(name));
    for (path, watching) in paths.iter().zip(WATCHING) {
        serve(path, watching);
    }
    let pool = Pool::new(64 << 20);
    let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
    executor.block_on(async {
        println!("RAID-5 of {MEMBERS} members in memory, {REQUEST} B at random, depth {DEPTH}; {ROUNDS} rounds of {ROUND:?} in turn");
        println!("                      off/s         on/s     traced/s  on/off  traced/off");
        // Each variant has gauges of its own, because a trace stays active for seconds after its last poll.
        let (array, gauges) = (array(&pool).await, WATCHING.map(|_| Gauges::new()));
        for load in [Load::Read, Load::Write] {
            let mut rounds = Vec::new();
            for _ in 0..=ROUNDS {
                let mut rates = [0.0; 3];
                for ((watching, gauges), place) in WATCHING.into_iter().zip(&gauges).zip(&mut rates) {
                    *place = rate(&array, gauges, watching, load).await;
                }
                rounds.push(rates);
            }
            report("engine", load, &rounds[1..]);
        }
        let mut clients = Vec::new();
        for path in &paths {
            let stream = Stream::connect_unix(path).await.expect("it listens");
            let handshake = connect(stream, pool.clone(), ClientOptions::default()).await;
            let (client, connection) = handshake.expect("it speaks NBD");
            drop(io::spawn(connection));
            clients.push(client);
        }
        for load in [Load::Read, Load::Write] {
            let mut rounds = Vec::new();
            for _ in 0..=ROUNDS {
                let mut rates = [0.0; 3];
                for (client, rate) in clients.iter().zip(&mut rates) {
                    let begun = Instant::now();
                    let done = of_client(client, load, |_| begun.elapsed() >= ROUND).await;
                    *rate = done as f64 / begun.elapsed().as_secs_f64();
                }
                rounds.push(rates);
            }
            report("NBD", load, &rounds[1..]);
        }
    });
}
