//! The cost of the executor: reads through [`Executor`] and [`FileMember`], beside a bare io_uring loop, with
//! registered memory and descriptor and without.
//!
//! One load reads a loop device over tmpfs with `O_DIRECT`; the other reads a cached file, where a read is little more
//! than the system call. The contenders take turns in short rounds. Each is compared with the bare loop of its kind in
//! the same round, because the machine's speed drifts. CPU time is this thread's, user and system. The loop driver's
//! own threads are not counted, equally for every contender. It measures only; it asserts no figure.
//!
//!     cargo bench -p mdspace-io --bench transfers

#[path = "../tests/support/mod.rs"]
mod support;

use engine::{Member, Pool};
use format::units::MemberByte;
use futures_util::future::join_all;
use io_uring::{IoUring, opcode, squeue, types};
use mdspace_io::{Direct, Executor, FileMember, OpenOptions, Options, spawn};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use support::LoopDevice;

const MEMBER_BYTES: u64 = 512 << 20;
const ROUND: Duration = Duration::from_millis(250);
const ROUNDS: usize = 5;

/// One load: size, depth and direct I/O of the reads.
#[derive(Clone, Copy)]
struct Load {
    bytes: usize,
    depth: usize,
    direct: Direct,
}

/// The result of one round.
#[derive(Clone, Copy)]
struct Sample {
    per_second: f64,
    cpu_micros_each: f64,
}

fn main() {
    println!("{:<34} {:>12} {:>9} {:>12} {:>9}", "", "reads/s", "to bare", "CPU us each", "to bare");
    let small = |depth| Load { bytes: 4096, depth, direct: Direct::Auto };
    match LoopDevice::new(MEMBER_BYTES) {
        Ok(device) => {
            fill(device.path());
            compare("loop device", device.path(), small(32));
            compare("loop device", device.path(), small(1));
            compare("loop device", device.path(), Load { bytes: 1 << 20, depth: 8, direct: Direct::Auto });
        }
        Err(reason) => support::did_not_run("bench transfers, on a loop device", &reason),
    }
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
    fill(file.path());
    compare("cached file", file.path(), Load { direct: Direct::Never, ..small(32) });
    compare("cached file", file.path(), Load { direct: Direct::Never, ..small(1) });
}

/// Measures a load by all contenders and prints a line for each.
fn compare(what: &str, path: &Path, load: Load) {
    let contenders: [(&str, &dyn Fn() -> Sample); 4] = [
        ("bare io_uring, registered", &|| bare(path, load, true)),
        ("bare io_uring", &|| bare(path, load, false)),
        ("executor, registered", &|| ours(path, load, true)),
        ("executor", &|| ours(path, load, false)),
    ];
    let rounds: Vec<Vec<Sample>> = (0..ROUNDS).map(|_| contenders.iter().map(|(_, run)| run()).collect()).collect();
    println!("{what}, {} KiB, {} at a time", load.bytes >> 10, load.depth);
    for (index, (name, _)) in contenders.iter().enumerate() {
        let of = |value: fn(&Sample) -> f64| median(rounds.iter().map(|round| value(&round[index])));
        let to_bare = |value: fn(&Sample) -> f64| {
            median(rounds.iter().map(|round| value(&round[index]) / value(&round[index % 2])))
        };
        println!(
            "  {name:<32} {:>12.0} {:>9.2} {:>12.2} {:>9.2}",
            of(|sample| sample.per_second),
            to_bare(|sample| sample.per_second),
            of(|sample| sample.cpu_micros_each),
            to_bare(|sample| sample.cpu_micros_each),
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Writes the whole device, so that the bench does not measure holes.
fn fill(path: &Path) {
    let mut file = std::fs::File::options().write(true).open(path).expect("the loop device opens");
    std::io::copy(&mut std::io::Read::take(std::io::repeat(7), MEMBER_BYTES), &mut file).expect("written");
    file.sync_all().expect("synced");
}

/// Pseudo-random positions, the same for every contender.
struct Positions(u64);

impl Positions {
    fn next(&mut self, bytes: usize) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % (MEMBER_BYTES / bytes as u64) * bytes as u64
    }
}

/// Wall and CPU time of a round.
struct Meter {
    start: Instant,
    cpu: Duration,
}

impl Meter {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu_time() }
    }

    /// Whether the round is over after `turns` reads. It reads the clock only every 32 turns, because that costs a good
    /// part of a read.
    fn is_over(&self, turns: u64) -> bool {
        turns.is_multiple_of(32) && self.start.elapsed() >= ROUND
    }

    fn sample(&self, reads: u64) -> Sample {
        let cpu = cpu_time() - self.cpu;
        Sample {
            per_second: reads as f64 / self.start.elapsed().as_secs_f64(),
            cpu_micros_each: cpu.as_secs_f64() * 1e6 / reads as f64,
        }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Memory for one load: at least as much as makes registration worth while.
fn pool(load: Load) -> Pool {
    Pool::new((load.bytes * load.depth).max(2 << 20))
}

/// Through the crate: one task for each read in flight.
fn ours(path: &Path, load: Load, register: bool) -> Sample {
    let pool = pool(load);
    let executor = Executor::new(&Options { register, ..Options::new(pool.clone()) }).expect("io_uring");
    assert_eq!(executor.registered_bytes() > 0, register);
    let member = Rc::new(
        FileMember::open(path, &OpenOptions { direct: load.direct, ..OpenOptions::default() }).expect("opened"),
    );
    let meter = Rc::new(Meter::start());
    let reader = |seed| {
        let (member, meter, pool) = (member.clone(), meter.clone(), pool.clone());
        async move {
            let mut positions = Positions(seed);
            let mut reads = 0_u64;
            while !meter.is_over(reads) {
                let buffer = pool.take(load.bytes);
                let (result, _) = member.read(MemberByte(positions.next(load.bytes)), buffer).await;
                result.expect("read");
                reads += 1;
            }
            reads
        }
    };
    let reads = executor.block_on(async {
        let readers: Vec<_> = (0..load.depth as u64).map(|seed| spawn(reader(seed))).collect();
        join_all(readers).await.into_iter().sum()
    });
    meter.sample(reads)
}

/// The minimal io_uring loop.
fn bare(path: &Path, load: Load, register: bool) -> Sample {
    let pool = pool(load);
    let mut ring: IoUring =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_cqsize(1024).build(256).expect("io_uring");
    let flags = if load.direct == Direct::Auto { libc::O_DIRECT } else { 0 };
    let file = std::fs::File::options().read(true).custom_flags(flags).open(path).expect("opened");
    let mut buffers: Vec<_> = (0..load.depth).map(|_| pool.take(load.bytes)).collect();
    if register {
        ring.submitter().register_files(&[file.as_raw_fd()]).expect("registered");
        let (base, bytes) = pool.arena();
        let arena = libc::iovec { iov_base: base.cast(), iov_len: bytes };
        // SAFETY: the arena outlives the ring's last operation.
        unsafe { ring.submitter().register_buffers(&[arena]).expect("registered") };
    }
    let mut positions: Vec<Positions> = (0..load.depth as u64).map(Positions).collect();
    let mut entry = |slot: usize| -> squeue::Entry {
        let (address, bytes) = (buffers[slot].as_mut_ptr(), load.bytes as u32);
        let at = positions[slot].next(load.bytes);
        let entry = if register {
            opcode::ReadFixed::new(types::Fixed(0), address, bytes, 0).offset(at).build()
        } else {
            opcode::Read::new(types::Fd(file.as_raw_fd()), address, bytes).offset(at).build()
        };
        entry.user_data(slot as u64)
    };
    let meter = Meter::start();
    let mut reads = 0;
    let mut free: Vec<usize> = (0..load.depth).collect();
    let mut turns = 0;
    let mut is_over = false;
    loop {
        turns += 1;
        is_over = is_over || meter.is_over(turns);
        if !is_over {
            for slot in free.drain(..) {
                // SAFETY: each slot's buffer serves one operation at a time.
                unsafe { ring.submission().push(&entry(slot)).expect("room for everything") };
            }
        }
        if free.len() == load.depth {
            return meter.sample(reads);
        }
        ring.submit_and_wait(1).expect("entered");
        for completion in ring.completion() {
            assert_eq!(completion.result(), load.bytes as i32);
            reads += 1;
            free.push(completion.user_data() as usize);
        }
    }
}
