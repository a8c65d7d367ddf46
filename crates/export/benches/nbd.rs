//! Transfers through this crate's NBD server and through nbdkit's memory plugin. Both listen on a unix socket, both
//! serve this crate's client, by turns in one run.
//!
//! `cargo bench -p mdspace-export` prints each rate, the ratio, and each server's processor time per request. The
//! processor time tells whether a ratio comes from the servers or from the scheduler: on a loaded machine, a server
//! with many threads gets more of the machine than a server with one. Without nbdkit (the Debian package of that name)
//! the bench says so and fails.

use engine::{Block, Pool};
use futures_util::future::join_all;
use io::net::{Listener, Stream};
use io::{Executor, Options};
use mdspace_export::nbd::client::{Client, connect};
use mdspace_export::nbd::handshake::ClientOptions;
use mdspace_export::nbd::server::{Server, ServerLimits};
use mdspace_export::nbd::session::Export;
use mdspace_export::{Durability, MemoryVolume};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const VOLUME_BYTES: usize = 256 << 20;
const ROUND: Duration = Duration::from_millis(1000);
const ROUNDS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Read,
    Write,
}

#[derive(Debug, Clone, Copy)]
struct Workload {
    operation: Operation,
    bytes: usize,
    depth: usize,
}

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (ours, theirs) = (directory.path().join("ours"), directory.path().join("theirs"));
    let nbdkit = Nbdkit::start(&theirs);
    let servers = [Threads::One(serve(&ours)), Threads::AllOf(nbdkit.0.id())];

    let pool = Pool::new(64 << 20);
    let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
    executor.block_on(async {
        let clients = join_all([&ours, &theirs].map(|path| connect_to(path, &pool))).await;
        println!("medians of {ROUNDS} rounds of {ROUND:?}; processor time of the server for each request");
        println!("operation   bytes  depth      ours/s    nbdkit/s  ratio    ours us  nbdkit us");
        for (bytes, depth) in [(4096, 32), (4096, 1), (1 << 20, 4)] {
            for operation in [Operation::Read, Operation::Write] {
                let workload = Workload { operation, bytes, depth };
                let mut rates = [Vec::new(), Vec::new()];
                let mut costs = [Vec::new(), Vec::new()];
                for _ in 0..ROUNDS {
                    for (side, client) in clients.iter().enumerate() {
                        let before = servers[side].processor_time();
                        let (done, seconds) = measure(client, workload).await;
                        let used = servers[side].processor_time() - before;
                        rates[side].push(done as f64 / seconds);
                        costs[side].push(used.as_secs_f64() * 1e6 / done as f64);
                    }
                }
                let ([ours, theirs], [our_cost, their_cost]) = (rates.map(median), costs.map(median));
                println!(
                    "{:9} {bytes:7}  {depth:5}  {ours:10.0}  {theirs:10.0}  {:5.2}  {our_cost:9.2}  {their_cost:9.2}",
                    format!("{operation:?}"),
                    ours / theirs
                );
            }
        }
    });
}

/// Threads whose processor time is read.
enum Threads {
    One(i32),
    AllOf(u32),
}

impl Threads {
    /// Processor time used so far, from `/proc/*/schedstat`.
    fn processor_time(&self) -> Duration {
        let of_thread = |directory: PathBuf| -> u64 {
            // The first field is nanoseconds on a processor. A thread that has just ended has no file.
            let text = std::fs::read_to_string(directory.join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        Duration::from_nanos(match self {
            Self::One(thread) => of_thread(format!("/proc/self/task/{thread}").into()),
            Self::AllOf(process) => {
                let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
                threads.flatten().map(|thread| of_thread(thread.path())).sum()
            }
        })
    }
}

/// nbdkit in the foreground. Dropping it kills the process.
struct Nbdkit(Child);

impl Nbdkit {
    fn start(socket: &Path) -> Self {
        let child = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(socket)
            .args(["memory", &VOLUME_BYTES.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("nbdkit cannot be run ({error}): apt-get install nbdkit"));
        Self(child)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // The process has ended already, or ends now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves a memory volume on a thread that ends with the process. Returns the thread's id.
fn serve(socket: &Path) -> i32 {
    let (sender, started) = mpsc::channel();
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        let pool = Pool::new(64 << 20);
        let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
        executor.block_on(async {
            let export = Export { name: "memory".into(), volume: MemoryVolume::new(VOLUME_BYTES, pool) };
            let listener = Listener::unix(&socket, 0o600).expect("a socket");
            sender.send(rustix::thread::gettid().as_raw_pid()).expect("the bench waits");
            Server::new(vec![export], ServerLimits::default()).accept_from(listener).await.expect("accepting");
        });
    });
    started.recv().expect("the server starts")
}

/// Connects as soon as the server listens, then writes the whole volume once, so that no measured request touches a
/// page for the first time.
async fn connect_to(socket: &Path, pool: &Pool) -> Client {
    let began = Instant::now();
    let stream = loop {
        match Stream::connect_unix(socket).await {
            Ok(stream) => break stream,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(10), "{}: {error}", socket.display()),
        }
        io::yield_now().await;
    };
    let (client, connection) = connect(stream, pool.clone(), ClientOptions::default()).await.expect("a handshake");
    drop(io::spawn(connection));
    let block = pool.zeroed(1 << 20).freeze();
    for at in (0..VOLUME_BYTES as u64).step_by(1 << 20) {
        client.write(at, block.clone(), Durability::Ordinary).await.expect("a write");
    }
    client
}

/// Runs operations at random multiples of their length. Returns their number and the elapsed seconds.
async fn measure(client: &Client, workload: Workload) -> (u64, f64) {
    let began = Instant::now();
    let block = client.pool().zeroed(workload.bytes).freeze();
    let lanes = (0..workload.depth).map(|lane| run_lane(client, workload, block.clone(), lane as u64, began));
    let done: u64 = join_all(lanes.map(io::spawn)).await.into_iter().sum();
    (done, began.elapsed().as_secs_f64())
}

fn run_lane(
    client: &Client,
    workload: Workload,
    block: Block,
    lane: u64,
    began: Instant,
) -> impl Future<Output = u64> + 'static {
    let client = client.clone();
    async move {
        let places = (VOLUME_BYTES / workload.bytes) as u64;
        let mut random = 0x9e37_79b9_7f4a_7c15 ^ (lane + 1);
        let mut buffer = Some(client.pool().take(workload.bytes));
        let mut done = 0;
        while done % 16 != 0 || began.elapsed() < ROUND {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = random % places * workload.bytes as u64;
            if workload.operation == Operation::Read {
                let into = buffer.take().expect("one read at a time");
                buffer = Some(client.read(at, into).await.expect("a read"));
            } else {
                client.write(at, block.clone(), Durability::Ordinary).await.expect("a write");
            }
            done += 1;
        }
        done
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
