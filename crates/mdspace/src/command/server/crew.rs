//! The threads behind `--shards`: each has an executor, memory and a shard of the array's own (`engine::Shard`), and serves
//! its share of the connections.
//!
//! What threads send each other are letters of the engine, and jobs that are done where a worker's own things are. Nothing
//! else is shared; a worker ends when it is told to, after the array has stopped.

use crate::command::server::volume::{Exported, Served};
use crate::command::text::failure::Failure;
use crate::machine::{Arena, Array, Machine};
use engine::{AssembleOptions, Division, Letter, Post, ShardOptions};
use export::measure::{Gauges, Measured, Measures};
use export::nbd::server::Server;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use futures_util::future::{LocalBoxFuture, join_all};
use io::{AnyHandle, AnyMember, RealClock};
use parity::Kernel;
use std::cell::RefCell;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::thread::JoinHandle;

/// The exit status of a process whose first thread has panicked.
const PANICKED: i32 = 101;

/// Array bytes that belong to one shard, in turn: long enough that few requests meet an edge.
const RUN_BYTES: u64 = 8 << 20;

/// A shard of an array of this command's.
pub(crate) type Shard = engine::Shard<AnyMember, RealClock>;

type Line = mpsc::UnboundedReceiver<Letter<AnyHandle>>;

/// A shard's lines to all, by number.
#[derive(Clone)]
pub(crate) struct Lines(Vec<mpsc::UnboundedSender<Letter<AnyHandle>>>);

impl Post<AnyHandle> for Lines {
    fn send(&self, to: u16, letter: Letter<AnyHandle>) {
        // A shard that is gone answers nothing, which its sender is told by the letter's end.
        drop(self.0[usize::from(to)].unbounded_send(letter));
    }
}

/// Hands its letters to a shard, until nobody can send any.
pub(crate) async fn deliver(shard: Shard, mut line: Line) {
    while let Some(letter) = line.next().await {
        if let Some(work) = shard.deliver(letter) {
            drop(io::spawn(work));
        }
    }
}

/// What a worker's thread has of its own.
pub(crate) struct Local {
    pub(crate) volume: Served,
    pub(crate) shard: Shard,
    gauges: Gauges,
    /// Once it serves connections.
    pub(crate) server: RefCell<Option<Server<Served>>>,
}

type Job = Box<dyn FnOnce(Rc<Local>) -> LocalBoxFuture<'static, ()> + Send>;

/// One thread of the crew.
struct Worker {
    jobs: mpsc::UnboundedSender<Job>,
    thread: JoinHandle<()>,
}

/// The threads of all further shards. Jobs can be given by whoever has a clone of [`Crew::hands`].
pub(crate) struct Crew {
    workers: Vec<Worker>,
}

/// A worker, for those who have something to do for it.
#[derive(Clone)]
pub(crate) struct Hand(mpsc::UnboundedSender<Job>);

impl Hand {
    /// Has `work` done on the worker's thread, whether or not somebody waits for what it gives; cancelled when the worker has ended.
    pub(crate) fn call<F, T>(&self, work: impl FnOnce(Rc<Local>) -> F + Send + 'static) -> oneshot::Receiver<T>
    where
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |local| {
            Box::pin(async move {
                // Nobody may wait for it.
                drop(sender.send(work(local).await));
            })
        });
        drop(self.0.unbounded_send(job)); // that it has ended is seen by the receiver
        receiver
    }
}

/// What a crew is for.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) shards: NonZeroU16,
    pub(crate) kernel: Option<&'static Kernel>,
    pub(crate) writeback: bool,
    pub(crate) arena: Arena,
}

impl Crew {
    /// Starts the threads of all further shards of `array`; gives the first shard, too, and its letters, for whoever has its thread.
    ///
    /// # Errors
    /// When the system gives no thread, or none of what a thread needs.
    pub(crate) async fn start(array: &Array, orders: &Orders) -> Result<(Self, Shard, Line), Failure> {
        let shards = orders.shards.get();
        let division = Division::new(array, shards, RUN_BYTES);
        let (lines, mut ends): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::unbounded()).unzip();
        let lines = Lines(lines);
        let mut workers = Vec::new();
        let own = ends.remove(0);
        for (number, line) in (1..).zip(ends) {
            let (jobs, queue) = mpsc::unbounded();
            let (ready, is_ready) = oneshot::channel();
            let place =
                Place { number, division: division.clone(), orders: orders.clone(), lines: lines.clone(), line };
            let thread = std::thread::Builder::new().name(format!("shard {number}"));
            let thread = thread.spawn(move || {
                let _whole = OneForAll;
                place.work(queue, ready);
            });
            let thread = thread.map_err(|error| Failure::refused(format!("a thread: {error}")))?;
            workers.push(Worker { jobs, thread });
            is_ready.await.unwrap_or_else(|oneshot::Canceled| Err("it ended".to_owned())).map_err(Failure::refused)?;
        }
        Ok((Self { workers }, Shard::first(array.clone(), division, Rc::new(lines)), own))
    }

    /// The workers, in order.
    pub(crate) fn hands(&self) -> Vec<Hand> {
        self.workers.iter().map(|worker| Hand(worker.jobs.clone())).collect()
    }

    /// What the workers' requests and transfers come to.
    pub(crate) async fn measures(&self) -> Vec<Measures> {
        let measures = self.hands().into_iter().map(|hand| hand.call(async |local| local.gauges.measures()));
        join_all(measures).await.into_iter().flatten().collect()
    }

    /// Ends the threads; the array has stopped.
    pub(crate) fn end(self) {
        let threads: Vec<_> = self
            .workers
            .into_iter()
            .map(|Worker { jobs, thread }| {
                jobs.close_channel();
                thread
            })
            .collect();
        for thread in threads {
            thread.join().expect("a thread that panics ends the process");
        }
    }
}

/// Ends the process when a shard's thread panics, as the only thread of an array without shards would: the others would wait
/// for its answers for ever. Members stay marked dirty.
struct OneForAll;

impl Drop for OneForAll {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::exit(PANICKED);
        }
    }
}

/// A worker before its thread has begun.
struct Place {
    number: u16,
    division: Division,
    orders: Orders,
    lines: Lines,
    line: Line,
}

impl Place {
    /// A worker's life.
    fn work(self, mut jobs: mpsc::UnboundedReceiver<Job>, ready: oneshot::Sender<Result<(), String>>) {
        let Self { number, division, orders, lines, line } = self;
        let machine = match Machine::start(orders.kernel, orders.arena) {
            Ok(machine) => machine,
            Err(refusal) => return drop(ready.send(Err(refusal.to_string()))),
        };
        let AssembleOptions { cache_bytes, gather_bytes, read_ahead_bytes, .. } = AssembleOptions::default();
        let options = ShardOptions {
            kernel: orders.kernel,
            cache_bytes,
            gather_bytes,
            read_ahead_bytes,
            writeback: orders.writeback,
        };
        let (pool, clock) = (machine.pool.clone(), machine.clock.clone());
        let shard = Shard::further(number, division, options, pool, clock, Rc::new(lines));
        machine.run(async {
            let gauges = Gauges::new();
            shard.observe(Some(Rc::new(gauges.clone())));
            let volume = Measured::new(Exported::Shard(shard.clone()), &gauges);
            let local = Rc::new(Local { volume, shard: shard.clone(), gauges, server: RefCell::default() });
            drop(io::spawn(deliver(shard, line)));
            drop(ready.send(Ok(()))); // whoever started it may have been refused something meanwhile
            while let Some(job) = jobs.next().await {
                drop(io::spawn(job(local.clone())));
            }
        });
    }
}
