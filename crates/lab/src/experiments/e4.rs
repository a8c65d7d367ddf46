//! E4: reads of a degraded array (md/raid5, 2015).
//!
//! A missing chunk is reconstructed from all other chunks of its stripe, most of which a stream reads anyway. If each
//! chunk is reconstructed on its own, they are read twice. If everything passes through the cache of one thread, they
//! are read once, at the speed of that thread.

use crate::drive::models;
use crate::host::{Host, HostTime};
use crate::report::{Report, Table};
use crate::rig::{LabArray, Rig, Setup};
use engine::{AssembleOptions, Clock};
use format::geometry::{Geometry, Level, Parity, Role, Shape};
use format::units::Slot;
use futures_util::future::{join, join_all};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use world::Random;

const KIB: u64 = 1 << 10;

const SLOTS: u16 = 10;

const LAYOUT: u32 = 2;

const CHUNK_BYTES: u64 = 128 * KIB;

const STRIPE_BYTES: u64 = (SLOTS as u64 - 2) * CHUNK_BYTES;

/// Nearly the whole drive, so that random reads seek over all of it.
const COMPONENT_BYTES: u64 = 5500 << 30;

/// The time that a request takes of the single CPU that issues them, wherever its data is. Fixed by 850 MiB/s in requests
/// of 4 KiB, which the changed md answers from its cache.
const REQUEST_NANOS: u64 = 3_960;

/// A byte of a request. Fixed by 1368 MiB/s in requests of 16 KiB.
const PICOS_PER_BYTE: u64 = 156;

/// The time that a member transfer takes of the same CPU. Fixed by 411 and 768 MiB/s in requests of 4 and 8 KiB, each of
/// which is a transfer.
const SUBMIT_NANOS: u64 = 4_900;

/// The time that a block of 4 KiB takes in the thread of md's cache. Fixed by 995 MiB/s; md reads as much as it
/// delivers.
const CACHE_NANOS: u64 = 3_930;

/// Requests in flight; not published.
const DEPTH: u64 = 32;

/// Linear requests below 128 KiB in flight. With fewer, the changed md's column is slower than published.
const SHORT_DEPTH: u64 = 256;

/// Requests in flight that are tried.
const DEPTHS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// How a degraded array is read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Policy {
    /// Each chunk of a request on its own, with nothing kept: md with chunk-aligned reads.
    Direct,
    /// Every block passes through one thread and its cache: md as changed.
    Cache,
    Default,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Linear,
    Random,
}

fn rig(policy: Policy) -> Rig {
    let mut options = AssembleOptions::default();
    let mut host = HostTime { read_nanos: SUBMIT_NANOS, ..HostTime::NONE };
    match policy {
        Policy::Direct => options.read_ahead_bytes = 0,
        Policy::Cache => {
            host = HostTime { read_nanos: CACHE_NANOS, unit_bytes: 4 * KIB, ..HostTime::NONE };
        }
        Policy::Default => {}
    }
    Rig::new(Setup {
        layout: LAYOUT,
        host,
        options,
        ..Setup::new(models::out_of_step(models::e4_disk()), SLOTS, Level::Raid6, CHUNK_BYTES, COMPONENT_BYTES)
    })
}

/// As [`rig`], without the first drive.
fn degraded(policy: Policy) -> Rig {
    let rig = rig(policy);
    rig.world.run(rig.array.fail("drive0"), || false).expect("the run is not stopped").expect("the level survives it");
    rig
}

async fn read(array: &LabArray, policy: Policy, at: u64, bytes: u64) {
    let piece_bytes = if policy == Policy::Direct { CHUNK_BYTES.min(bytes) } else { bytes };
    let pieces = (at..at + bytes).step_by(piece_bytes as usize);
    let reads = pieces.map(|at| array.read(at, array.pool().take(piece_bytes as usize)));
    for read in join_all(reads).await {
        read.expect("the level survives one missing member");
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy)]
struct Measured {
    requests_per_second: f64,
    /// Bytes that members read per byte requested, from the first request to the last.
    read: f64,
    /// The fewest bytes that members could have read without knowledge of later requests.
    least: f64,
}

/// The length of the measurement.
const WARM_UP: Duration = Duration::from_millis(100);
const LINEAR: Duration = Duration::from_millis(200);
const RANDOM: Duration = Duration::from_secs(6);

/// Reads of `bytes` at aligned positions. The last request completes a stripe.
fn measure(rig: &Rig, policy: Policy, order: Order, bytes: u64) -> Measured {
    let time = if order == Order::Linear { LINEAR } else { RANDOM };
    let depth = if order == Order::Linear && bytes < 128 * KIB { SHORT_DEPTH } else { DEPTH };
    measure_at(rig, policy, order, bytes, depth, time)
}

fn measure_at(rig: &Rig, policy: Policy, order: Order, bytes: u64, depth: u64, time: Duration) -> Measured {
    let (clock, array) = (rig.world.clock(), &rig.array);
    // md's cache has a thread of its own. Everything else passes through the CPU that issues the requests.
    let cpu = Host::new(&rig.world, HostTime::NONE);
    let host = if policy == Policy::Cache { &cpu } else { &*rig.host };
    let (begun, done, end) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(u64::MAX));
    let (random, least) = (RefCell::new(Random::new(1)), Cell::new(0_u64));
    let parity = parity();
    let before = rig.tally().read_bytes;
    let reader = |_| async {
        while begun.get() < end.get() {
            let number = begun.replace(begun.get() + 1);
            let at = match order {
                Order::Linear => number * bytes,
                Order::Random => random.borrow_mut().within(0..array.bytes() / bytes) * bytes,
            };
            least.set(least.get() + if order == Order::Linear { bytes } else { least_for(&parity, at, bytes) });
            host.spend(REQUEST_NANOS + bytes * PICOS_PER_BYTE / 1000).await;
            read(array, policy, at, bytes).await;
            done.set(done.get() + 1);
        }
    };
    let observer = async {
        clock.sleep_until(clock.now() + WARM_UP).await;
        let before = done.get();
        clock.sleep_until(clock.now() + time).await;
        end.set(begun.get().next_multiple_of(STRIPE_BYTES / bytes));
        (done.get() - before) as f64 / time.as_secs_f64()
    };
    let readers = join_all((0..depth).map(reader));
    let (requests_per_second, _) = rig.world.run(join(observer, readers), || false).expect("the run is not stopped");
    let asked = (done.get() * bytes) as f64;
    Measured {
        requests_per_second,
        read: (rig.tally().read_bytes - before) as f64 / asked,
        least: least.get() as f64 / asked,
    }
}

fn parity() -> Parity {
    let (level, layout, chunk_bytes, component_bytes) = (Level::Raid6, LAYOUT, CHUNK_BYTES, COMPONENT_BYTES);
    let shape = Shape { level, layout, chunk_bytes, slots: SLOTS, component_bytes, member_bytes: Vec::new() };
    match Geometry::new(&shape).expect("a good shape") {
        Geometry::Parity(parity) => parity,
        Geometry::Mapping(_) => unreachable!("the level has parity"),
    }
}

/// The fewest bytes that members have to read for a request within one stripe, without the first slot. If the missing
/// chunk is requested, every row requested of it takes as many blocks as there are data chunks. Otherwise only what is
/// requested is read.
fn least_for(parity: &Parity, at: u64, bytes: u64) -> u64 {
    let stripe = parity.stripe(at / STRIPE_BYTES);
    let chunk = |at: u64| (at % STRIPE_BYTES / CHUNK_BYTES) as u16;
    let asked = chunk(at)..=chunk(at + bytes - 1);
    match stripe.role_of(Slot(0)) {
        Role::Data(lost) if asked.contains(&lost) => bytes.min(CHUNK_BYTES) * (STRIPE_BYTES / CHUNK_BYTES),
        _ => bytes,
    }
}

/// KiB of a request, and the published figures of the whole array, the degraded array, and the degraded array with md
/// as changed.
const LINEAR_PUBLISHED: [(u64, [f64; 3]); 9] = [
    (1024, [1608.0, 656.0, 995.0]),
    (512, [1624.0, 710.0, 956.0]),
    (256, [1635.0, 728.0, 980.0]),
    (128, [1636.0, 771.0, 983.0]),
    (64, [1612.0, 1119.0, 1000.0]),
    (32, [1580.0, 1420.0, 1004.0]),
    (16, [1368.0, 688.0, 986.0]),
    (8, [768.0, 647.0, 953.0]),
    (4, [411.0, 413.0, 850.0]),
];

const RANDOM_PUBLISHED: [(u64, [f64; 3]); 9] = [
    (1024, [163.0, 160.0, 156.0]),
    (512, [274.0, 273.0, 272.0]),
    (256, [426.0, 428.0, 424.0]),
    (128, [576.0, 592.0, 591.0]),
    (64, [726.0, 724.0, 726.0]),
    (32, [849.0, 848.0, 837.0]),
    (16, [900.0, 970.0, 971.0]),
    (8, [927.0, 940.0, 929.0]),
    (4, [948.0, 940.0, 955.0]),
];

/// One length of request: the whole array, then the three policies.
fn row(order: Order, kib: u64) -> [Measured; 4] {
    let bytes = kib * KIB;
    let policies = [Policy::Direct, Policy::Cache, Policy::Default];
    let [direct, cache, default] = policies.map(|policy| measure(&degraded(policy), policy, order, bytes));
    [measure(&rig(Policy::Default), Policy::Default, order, bytes), direct, cache, default]
}

fn table(order: Order, title: &str, published: &[(u64, [f64; 3])]) -> Table {
    let columns = [
        "KiB",
        "optimal",
        "here",
        "degraded",
        "direct here",
        "changed",
        "cache here",
        "default",
        "of optimal",
        "read for a byte",
        "least",
    ];
    let rows = published.iter().map(|&(kib, published)| {
        let measured = row(order, kib);
        let scale = if order == Order::Linear { kib as f64 / 1024.0 } else { 1.0 };
        let [optimal, direct, cache, default] = measured.map(|measured| measured.requests_per_second * scale);
        let whole = |value: f64| Some(value.round());
        let share = |value: f64| Some((value * 1000.0).round() / 1000.0);
        let numbers = vec![
            Some(published[0]),
            whole(optimal),
            Some(published[1]),
            whole(direct),
            Some(published[2]),
            whole(cache),
            whole(default),
            share(default / optimal),
            share(measured[3].read),
            share(measured[3].least),
        ];
        (kib.to_string(), numbers)
    });
    Table { title: title.to_owned(), columns: columns.map(str::to_owned).into(), rows: rows.collect() }
}

/// Random reads at several depths, of the whole array and of the degraded one.
fn depths() -> Table {
    const TIME: Duration = Duration::from_secs(10);
    let columns = ["under way", "4 KiB, optimal", "degraded", "kept", "1 MiB, optimal", "degraded", "kept"];
    let row = |depth: u64| {
        let numbers = [4 * KIB, 1024 * KIB].into_iter().flat_map(|bytes| {
            let of =
                |rig: &Rig| measure_at(rig, Policy::Default, Order::Random, bytes, depth, TIME).requests_per_second;
            let (optimal, lacking) = (of(&rig(Policy::Default)), of(&degraded(Policy::Default)));
            [Some(optimal.round()), Some(lacking.round()), Some((lacking / optimal * 1000.0).round() / 1000.0)]
        });
        (depth.to_string(), numbers.collect())
    };
    let published = ("published".to_owned(), [948.0, 940.0, 0.992, 163.0, 160.0, 0.982].map(Some).into());
    Table {
        title: "Random reads by requests under way, IOPS".to_owned(),
        columns: columns.map(str::to_owned).into(),
        rows: std::iter::once(published).chain(DEPTHS.map(row)).collect(),
    }
}

/// More linear requests in flight than the default's memory for read-ahead holds.
fn beyond_memory() -> Table {
    let row = |kib: u64| {
        let of = |rig: &Rig| {
            let measured = measure_at(rig, Policy::Default, Order::Linear, kib * KIB, SHORT_DEPTH, LINEAR);
            (measured.requests_per_second * kib as f64 / 1024.0, measured.read)
        };
        let ((optimal, _), (default, read)) = (of(&rig(Policy::Default)), of(&degraded(Policy::Default)));
        let share = |value: f64| Some((value * 1000.0).round() / 1000.0);
        let numbers = vec![Some(optimal.round()), Some(default.round()), share(default / optimal), share(read)];
        (kib.to_string(), numbers)
    };
    let columns = ["KiB", "optimal, here", "default", "of optimal", "read for a byte"];
    Table {
        title: format!("Linear, {SHORT_DEPTH} under way, MiB/s"),
        columns: columns.map(str::to_owned).into(),
        rows: [1024, 512, 256, 128].map(row).into(),
    }
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    Report {
        experiment: "e4",
        title: "reads of a degraded array",
        setup: format!(
            "RAID-6 over {SLOTS} drives ({}), one of them missing, chunk 128 KiB, {DEPTH} requests under way, \
             linear ones below 128 KiB {SHORT_DEPTH}",
            models::e4_disk().name
        ),
        figures: Vec::new(),
        traces: Vec::new(),
        tables: vec![
            table(Order::Linear, "Linear, MiB/s", &LINEAR_PUBLISHED),
            table(Order::Random, "Random, IOPS", &RANDOM_PUBLISHED),
            depths(),
            beyond_memory(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_the_whole_array_run_at_the_published_speed() {
        for (kib, [optimal, _, _]) in LINEAR_PUBLISHED {
            let measured = measure(&rig(Policy::Default), Policy::Default, Order::Linear, kib * KIB);
            let here = measured.requests_per_second * kib as f64 / 1024.0;
            assert!((here / optimal - 1.0).abs() <= 0.04, "{kib} KiB: {here:.0} MiB/s, published {optimal}");
        }
    }

    #[test]
    fn streams_of_a_degraded_array_read_each_byte_once_and_run_at_nearly_full_speed() {
        for (kib, _) in LINEAR_PUBLISHED {
            let [optimal, direct, cache, default] = row(Order::Linear, kib);
            let share = default.requests_per_second / optimal.requests_per_second;
            assert!(share >= 0.88, "{kib} KiB: {share:.3} of optimal");
            let others = direct.requests_per_second.max(cache.requests_per_second);
            // The one row that is lost: stripes that lack only parity are read request by request.
            let is_better = default.requests_per_second >= others;
            assert_eq!(is_better, kib > 4, "{kib} KiB: a policy is better, or none is any more");
            // A stream is recognized at the third read of a row.
            assert!(default.read < 1.002, "{kib} KiB: {:.4} bytes are read for each", default.read);
        }
    }

    #[test]
    fn random_reads_read_the_fewest_bytes_and_no_policy_is_faster() {
        for (kib, _) in RANDOM_PUBLISHED {
            let [_, direct, cache, default] = row(Order::Random, kib);
            let others = direct.requests_per_second.max(cache.requests_per_second);
            assert!(default.requests_per_second >= 0.99 * others, "{kib} KiB: a policy is better");
            assert_eq!(default.read, default.least, "{kib} KiB");
        }
    }
}
