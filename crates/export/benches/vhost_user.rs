//! One memory volume served through vhost-user-blk (client: libblkio) and through NBD over a unix socket (client: this
//! crate's), by turns in one run.
//!
//! `cargo bench -p mdspace-export --bench vhost_user` prints operations per second and the ratio. `... -- SOCKET
//! SOCKET` compares two vhost-user servers that are already running, the second one qemu-storage-daemon, and prints rows
//! of a table (`tests/ways.py`). It measures only; it asserts no figure.

#[path = "../tests/support/virtual_machine.rs"]
mod virtual_machine;

use engine::Pool;
use futures_util::future::join_all;
use io::net::{Listener, Stream};
use io::{Executor, Options};
use mdspace_export::MemoryVolume;
use mdspace_export::nbd::client::{Client, connect};
use mdspace_export::nbd::handshake::ClientOptions;
use mdspace_export::nbd::server::{Server, ServerLimits};
use mdspace_export::nbd::session::Export;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use virtual_machine::VirtualMachine;

const VOLUME_BYTES: usize = 256 << 20;
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS: usize = 9;

/// Bytes and queue depth of the reads.
const LOADS: [(usize, usize); 3] = [(4096, 32), (4096, 1), (1 << 20, 4)];

fn main() {
    // Cargo adds `--bench`.
    let sockets: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    match &sockets[..] {
        [first, second] => beside(first.as_ref(), second.as_ref()),
        _ => beside_nbd(),
    }
}

/// Compares two vhost-user servers. Each must serve at least `VOLUME_BYTES`.
fn beside(first: &Path, second: &Path) {
    let connect = |socket: &Path| VirtualMachine::connect(socket, 1, 64 << 20).expect("a client");
    let mut machines = [connect(first), connect(second)];
    for (bytes, depth) in LOADS {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            machines.iter_mut().zip(&mut rates).for_each(|(machine, rates)| {
                rates.push(by_vhost_user(machine, bytes, depth));
            });
        }
        let ratio = median(rates[0].iter().zip(&rates[1]).map(|(first, second)| first / second).collect());
        let [first, second] = rates.map(median);
        let size = if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
        let load = format!("read {size} random, depth {depth}");
        println!("| vhost-user | {load} | {first:.0} | qemu-storage-daemon | {second:.0} | {ratio:.2} |");
    }
}

fn beside_nbd() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (vhost, nbd) = (directory.path().join("vhost"), directory.path().join("nbd"));
    serve(&vhost, &nbd);
    let pool = Pool::new(64 << 20);
    let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
    let mut machine = VirtualMachine::connect(&vhost, 1, 64 << 20).expect("a client");
    let client = executor.block_on(async {
        let stream = Stream::connect_unix(&nbd).await.expect("it listens");
        let (client, connection) = connect(stream, pool.clone(), ClientOptions::default()).await.expect("a handshake");
        drop(io::spawn(connection));
        client
    });
    println!("reads: bytes  depth  vhost-user/s       NBD/s  ratio   (medians of {ROUNDS} rounds of {ROUND:?})");
    for (bytes, depth) in LOADS {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            rates[0].push(by_vhost_user(&mut machine, bytes, depth));
            rates[1].push(executor.block_on(by_nbd(&client, bytes, depth)));
        }
        let [ours, theirs] = rates.map(median);
        println!("     {bytes:7}  {depth:5}  {ours:12.0}  {theirs:10.0}  {:5.2}", ours / theirs);
    }
}

/// Serves one memory volume through both interfaces, on a thread that ends with the process.
fn serve(vhost: &Path, nbd: &Path) {
    let (sender, started) = mpsc::channel();
    let (vhost, nbd) = (vhost.to_owned(), nbd.to_owned());
    std::thread::spawn(move || {
        let pool = Pool::new(64 << 20);
        let executor = Executor::new(&Options::new(pool.clone())).expect("an executor");
        let volume = MemoryVolume::new(VOLUME_BYTES, pool);
        executor.block_on(async {
            let _vhost = mdspace_export::vhost_user::Server::start(&vhost, 0o600.into(), volume.clone(), "memory")
                .expect("a server");
            let export = Export { name: "memory".into(), volume };
            let listener = Listener::unix(&nbd, 0o600).expect("a socket");
            sender.send(()).expect("the bench waits");
            Server::new(vec![export], ServerLimits::default()).accept_from(listener).await.expect("accepting");
        });
    });
    started.recv().expect("the server starts");
}

/// A random offset, a multiple of `bytes`.
fn place(random: &mut u64, bytes: usize) -> u64 {
    *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*random >> 33) % (VOLUME_BYTES / bytes) as u64 * bytes as u64
}

/// Reads per second through vhost-user-blk.
fn by_vhost_user(machine: &mut VirtualMachine, bytes: usize, depth: usize) -> f64 {
    let (began, mut random, mut done) = (Instant::now(), 1, 0_u64);
    for lane in 0..depth {
        machine.read(0, place(&mut random, bytes), lane * bytes, bytes, lane);
    }
    let mut in_flight = depth;
    while in_flight > 0 {
        let goes_on = began.elapsed() < ROUND;
        for (lane, result) in machine.wait(0, 1) {
            assert_eq!(result, 0);
            done += 1;
            if goes_on {
                machine.read(0, place(&mut random, bytes), lane * bytes, bytes, lane);
            } else {
                in_flight -= 1;
            }
        }
    }
    done as f64 / began.elapsed().as_secs_f64()
}

/// Reads per second through NBD.
async fn by_nbd(client: &Client, bytes: usize, depth: usize) -> f64 {
    let began = Instant::now();
    let lanes = (0..depth as u64).map(|lane| {
        let client = client.clone();
        io::spawn(async move {
            let (mut random, mut done) = (lane, 0_u64);
            let mut buffer = Some(client.pool().take(bytes));
            while began.elapsed() < ROUND {
                let into = buffer.take().expect("given back");
                buffer = Some(client.read(place(&mut random, bytes), into).await.expect("a read"));
                done += 1;
            }
            done
        })
    });
    let done: u64 = join_all(lanes).await.into_iter().sum();
    done as f64 / began.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
