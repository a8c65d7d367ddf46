//! E5: how scrubs keep a drive busy (btrfs, 2023).
//!
//! Three policies of btrfs scrubbed the same NVMe drive. Here each is a small program that issues the requests of that
//! policy to the modelled drive. The published figures fix the host's times for lookup, submission and verification.
//! Beside them stand this engine's check, repair and replacement of a member, on three kinds of drive.

use crate::drive::{Diskstats, Model, Request, Station, Tally, models};
use crate::host::HostTime;
use crate::report::{Figure, Report, Table};
use crate::rig::{Rig, Setup};
use engine::{Clock, Operation, ScrubAction, ScrubRequest, ScrubState};
use format::geometry::Level;
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use world::{Random, World};

const KIB: u64 = 1 << 10;

/// The unit that btrfs scrubs.
const STRIPE_BYTES: u64 = 64 * KIB;

/// Stripes in a group.
const GROUP: u64 = 8;

/// The data has a gap after this many stripes, across which the queue merges nothing. Fixed by 441.10 KiB per request.
const EXTENT_STRIPES: u64 = 43;

/// Looking up the extents and checksums of a stripe, without and with cached paths. Fixed by 15578 and 20666 reads per
/// second.
const LOOKUP_NANOS: u64 = 26_300;
const CACHED_LOOKUP_NANOS: u64 = 10_500;

/// Handing a command to the drive. Fixed by 2278304 KiB/s and 20666 reads per second, which differ in little else.
const SUBMIT_NANOS: u64 = 18_500;

/// Verifying a stripe. Fixed by 0.55 ms per read in the policy in which the drive waits for it.
const VERIFY_NANOS: u64 = 8_600;

/// How long each policy is measured.
const WATCHED: Duration = Duration::from_secs(1);

/// A policy with groups of stripes. It looks stripes up until `count` groups are full, then waits for all of them and
/// verifies them.
#[derive(Clone, Copy)]
struct Groups {
    lookup_nanos: u64,
    /// Groups in flight.
    count: u64,
    /// Whether the stripes of a group are submitted together, so that they are merged.
    plugged: bool,
}

/// A drive in its own world, and the next stripe on it.
struct Bench {
    world: World,
    station: Rc<Station>,
    next: Cell<u64>,
}

impl Bench {
    fn new(model: &Model) -> Rc<Self> {
        let world = World::new(1);
        let station = Rc::new(Station::new(&world, model, 1));
        Rc::new(Self { world, station, next: Cell::new(0) })
    }

    /// The position of the next stripe of data.
    fn next_stripe(&self) -> u64 {
        let number = self.next.replace(self.next.get() + 1);
        (number + number / EXTENT_STRIPES) * STRIPE_BYTES
    }

    async fn read(&self, at: u64, bytes: u64) {
        self.serve(Operation::Read, at, bytes).await;
    }

    async fn serve(&self, operation: Operation, at: u64, bytes: u64) {
        self.station.serve(Request { operation, at, bytes }).await;
    }

    async fn spend(&self, nanos: u64) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + Duration::from_nanos(nanos)).await;
    }

    /// Begins a read without waiting for it.
    fn begin(self: &Rc<Self>, at: u64, bytes: u64, under_way: &Rc<Cell<u64>>) {
        under_way.set(under_way.get() + 1);
        let (bench, under_way) = (self.clone(), under_way.clone());
        self.world.spawn(async move {
            bench.read(at, bytes).await;
            under_way.set(under_way.get() - 1);
        });
    }

    /// Statistics of the queue and commands of the drive while `policy` runs, after a short warm-up.
    fn watch(self: &Rc<Self>, policy: impl Future<Output = ()> + 'static) -> (Diskstats, Tally) {
        self.world.spawn(policy);
        let clock = self.world.clock();
        let observer = async {
            clock.sleep_until(clock.now() + WATCHED / 50).await;
            let before = (self.station.diskstats(), self.station.tally());
            clock.sleep_until(clock.now() + WATCHED).await;
            (self.station.diskstats().since(&before.0), self.station.tally().since(&before.1))
        };
        let watched = self.world.run(observer, || false).expect("the run is not stopped");
        self.world.run(std::future::pending::<()>(), || true); // drops the policy's task, which holds the world
        watched
    }
}

/// The rewrite (v6.4), and the fixed version.
async fn groups(bench: Rc<Bench>, policy: Groups) {
    let under_way = Rc::new(Cell::new(0));
    loop {
        for _ in 0..policy.count {
            let mut group = Vec::new();
            for _ in 0..GROUP {
                bench.spend(policy.lookup_nanos).await;
                let at = bench.next_stripe();
                if policy.plugged {
                    group.push(at);
                } else {
                    bench.spend(SUBMIT_NANOS).await;
                    bench.begin(at, STRIPE_BYTES, &under_way);
                }
            }
            if policy.plugged {
                bench.spend(SUBMIT_NANOS).await;
                group.iter().for_each(|at| bench.begin(*at, STRIPE_BYTES, &under_way));
            }
        }
        while under_way.get() > 0 {
            bench.spend(1_000).await;
        }
        bench.spend(policy.count * GROUP * VERIFY_NANOS).await;
    }
}

/// Version 6.3 keeps this many requests of 128 KiB in flight, and submits a few at a time.
const OLD_REQUESTS: u64 = 64;
const OLD_REQUEST_BYTES: u64 = 128 * KIB;

/// The number of requests that are plugged together, in turn. Fixed by 352.02 KiB per read.
const OLD_PLUGS: [u64; 4] = [3, 3, 3, 2];

/// From the completion of a request to the next one in its place. Fixed by 21.18 in flight.
const OLD_PAUSE_NANOS: u64 = 214_000;

async fn old(bench: Rc<Bench>) {
    let plugs = Rc::new(Cell::new(0_usize));
    let places = OLD_REQUESTS * 4 / OLD_PLUGS.iter().sum::<u64>();
    let workers = (0..places).map(|_| {
        let (bench, plugs) = (bench.clone(), plugs.clone());
        async move {
            loop {
                let count = OLD_PLUGS[plugs.replace(plugs.get() + 1) % OLD_PLUGS.len()];
                let number = bench.next.replace(bench.next.get() + count);
                let reads =
                    (number..number + count).map(|number| bench.read(number * OLD_REQUEST_BYTES, OLD_REQUEST_BYTES));
                join_all(reads).await;
                bench.spend(OLD_PAUSE_NANOS).await;
            }
        }
    });
    join_all(workers).await;
}

/// The columns of iostat, as the mean of several drives.
const COLUMNS: [&str; 9] = ["", "r/s", "rkB/s", "rrqm/s", "%rrqm", "r_await", "rareq-sz", "aqu-sz", "%util"];

fn iostat(stats: &[Diskstats], seconds: f64) -> Vec<Option<f64>> {
    let mean = |of: &dyn Fn(&Diskstats) -> u64| stats.iter().map(of).sum::<u64>() as f64 / stats.len() as f64;
    let (reads, kib) = (mean(&|stats| stats.reads), mean(&|stats| stats.read_bytes) / 1024.0);
    let (merged, millis) = (mean(&|stats| stats.merged_reads), mean(&|stats| stats.read_nanos) / 1e6);
    let busy = mean(&|stats| stats.busy_jiffies) / 1000.0 / seconds * 100.0;
    let columns = [
        reads / seconds,
        kib / seconds,
        merged / seconds,
        merged / (merged + reads).max(1.0) * 100.0,
        millis / reads.max(1.0),
        kib / reads.max(1.0),
        millis / 1000.0 / seconds,
        busy.min(100.0),
    ];
    columns.map(|value| Some((value * 100.0).round() / 100.0)).into()
}

/// The published rows, each with the statistics of its policy here.
fn policies() -> Vec<(&'static str, [f64; 8], Diskstats)> {
    let run = |policy: Option<Groups>| {
        let bench = Bench::new(&models::e5_nvme());
        let held = bench.clone();
        match policy {
            None => bench.watch(old(held)).0,
            Some(policy) => bench.watch(groups(held, policy)).0,
        }
    };
    let of = |lookup_nanos, count, plugged| Some(Groups { lookup_nanos, count, plugged });
    vec![
        ("old (v6.3)", [9731.0, 3_425_544.0, 17237.0, 63.92, 2.18, 352.02, 21.18, 100.0], run(None)),
        ("rewrite (v6.4)", [15578.0, 993_616.0, 5.0, 0.03, 0.09, 63.78, 1.32, 100.0], run(of(LOOKUP_NANOS, 1, false))),
        (
            "rewrite, cached lookups",
            [20666.0, 1_318_240.0, 10.0, 0.05, 0.08, 63.79, 1.63, 100.0],
            run(of(CACHED_LOOKUP_NANOS, 1, false)),
        ),
        (
            "fixed",
            [5165.0, 2_278_304.0, 30557.0, 85.54, 0.55, 441.10, 2.81, 100.0],
            run(of(CACHED_LOOKUP_NANOS, 16, true)),
        ),
    ]
}

const SLOTS: u16 = 4;

/// Bytes of each member that are scrubbed.
const COMPONENT_BYTES: u64 = 512 << 20;

/// Corrupted blocks that a repair heals.
const WRONG_BLOCKS: u64 = 2;

fn rig(model: &Model, spares: u16, host: HostTime) -> Rig {
    Rig::new(Setup {
        spares,
        host,
        ..Setup::new(model.clone(), SLOTS + spares, Level::Raid6, 512 * KIB, COMPONENT_BYTES)
    })
}

/// The outcome of a scrub.
struct Scrubbed {
    stats: Vec<Diskstats>,
    seconds: f64,
    healed: u64,
}

/// The speed in MB/s of each member.
fn speed(seconds: f64) -> f64 {
    COMPONENT_BYTES as f64 / seconds / 1e6
}

/// A whole scrub, without any other load.
fn scrub(model: &Model, action: ScrubAction, host: HostTime) -> Scrubbed {
    let rig = rig(model, 0, host);
    if action == ScrubAction::Repair {
        let data_at = 256 << 20; // after all metadata
        for number in 0..WRONG_BLOCKS {
            rig.spoil(number as usize, data_at + number * (64 << 20), &[0x5a; 4096]);
        }
    }
    let (clock, before) = (rig.world.clock(), rig.diskstats());
    let begun = clock.now();
    rig.array.begin_scrub(&ScrubRequest { action, range: None }).expect("a whole array");
    rig.world.run(rig.array.scrub(&|_, _| {}), || false).expect("the run is not stopped").expect("no member fails");
    let seconds = clock.now().since(begun).as_secs_f64();
    let report = rig.array.scrub_report().expect("it was begun");
    assert_eq!(report.state, ScrubState::Complete);
    let stats = rig.diskstats().iter().zip(&before).map(|(now, before)| now.since(before)).collect();
    Scrubbed { stats, seconds, healed: report.found.counts.healed }
}

/// Copies a whole member onto a spare that replaces it. Returns the statistics of the replaced member's drive, and the
/// seconds.
fn replace(model: &Model, host: HostTime) -> (Diskstats, f64) {
    const LEAVES: usize = 0;
    let rig = rig(model, 1, host);
    let (array, clock) = (rig.array.clone(), rig.world.clock());
    let keeper = array.clone();
    rig.world.spawn(async move { keeper.keep_whole().await });
    let before = rig.diskstats()[LEAVES];
    let spare = format!("drive{SLOTS}");
    let replaced = async {
        let begun = clock.now();
        array.replace_with_spare(&format!("drive{LEAVES}"), &spare).await.expect("it fits");
        let has_taken_over = || array.status().members.iter().any(|it| it.name == spare && it.state == "in_sync");
        while !has_taken_over() {
            clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
        }
        clock.now().since(begun)
    };
    let time = rig.world.run(replaced, || false).expect("the run is not stopped");
    (rig.diskstats()[LEAVES].since(&before), time.as_secs_f64())
}

/// The speed in MB/s at which a drive is read, or written, linearly with 8 MiB in flight.
fn delivered(model: &Model, operation: Operation) -> f64 {
    const REQUEST_BYTES: u64 = 512 * KIB;
    let bench = Bench::new(model);
    let worker = |_| {
        let bench = bench.clone();
        async move {
            loop {
                let number = bench.next.replace(bench.next.get() + 1);
                bench.serve(operation, number * REQUEST_BYTES, REQUEST_BYTES).await;
            }
        }
    };
    let workers: Vec<_> = (0..16).map(worker).collect();
    let (_, drive) = bench.watch(async move {
        join_all(workers).await;
    });
    (drive.read_bytes + drive.written_bytes) as f64 / WATCHED.as_secs_f64() / 1e6
}

/// Random reads of 4 KiB per second with 16 in flight, and with a check beside them the MB/s of the check.
fn foreground(model: &Model, with_check: bool) -> (f64, f64) {
    let rig = rig(model, 0, HostTime::ENGINE);
    let clock = rig.world.clock();
    if with_check {
        rig.array.begin_scrub(&ScrubRequest { action: ScrubAction::Check, range: None }).expect("a whole array");
        let keeper = rig.array.clone();
        rig.world.spawn(async move { keeper.keep_whole().await });
    }
    let (done, stop) = (Cell::new(0_u64), Cell::new(false));
    let random = RefCell::new(Random::new(1));
    let readers = (0..16).map(|_| async {
        while !stop.get() {
            let at = random.borrow_mut().within(0..rig.array.bytes() / 4096) * 4096;
            rig.host.request().await;
            rig.array.read(at, rig.array.pool().take(4096)).await.expect("no member fails");
            done.set(done.get() + 1);
        }
    });
    let position = || rig.array.scrub_report().map_or(0, |report| report.position);
    let observer = async {
        clock.sleep_until(clock.now() + Duration::from_millis(200)).await;
        let (before, at) = (done.get(), position());
        clock.sleep_until(clock.now() + Duration::from_secs(2)).await;
        stop.set(true);
        ((done.get() - before) as f64 / 2.0, (position() - at) as f64 / 2.0 / 1e6)
    };
    rig.world.run(futures_util::future::join(observer, join_all(readers)), || false).expect("the run is not stopped").0
}

/// The drives of the default's rows.
fn drives() -> [Model; 3] {
    [models::e5_nvme(), models::e1_ssd(), models::e4_disk()]
}

/// Runs the experiment.
pub(crate) fn run() -> Report {
    let mut rows = Vec::new();
    for (name, published, stats) in policies() {
        rows.push((format!("{name}, published"), published.map(Some).to_vec()));
        rows.push(("  here".to_owned(), iostat(&[stats], WATCHED.as_secs_f64())));
    }
    let mut figures = Vec::new();
    for model in &drives() {
        let (limit, taken) = (delivered(model, Operation::Read), delivered(model, Operation::Write));
        let mut figure = |setting: &str, unit, measured| {
            let (workload, setting) = (model.name.to_owned(), setting.to_owned());
            figures.push(Figure { workload, setting, unit, published: None, measured });
        };
        figure("a drive read from end to end", "MB/s", limit);
        for (name, action) in [("check", ScrubAction::Check), ("repair", ScrubAction::Repair)] {
            let scrubbed = scrub(model, action, HostTime::ENGINE);
            let here = speed(scrubbed.seconds);
            figure(&format!("default, {name}"), "MB/s a member", here);
            figure(&format!("default, {name}, of what a drive gives"), "%", here / limit * 100.0);
            let free = speed(scrub(model, action, HostTime::NONE).seconds);
            figure(&format!("{name} on a host without cost, of what a drive gives"), "%", free / limit * 100.0);
            let healed = if action == ScrubAction::Repair {
                format!(", {} blocks healed", scrubbed.healed)
            } else {
                String::new()
            };
            rows.push((format!("default, {name}{healed}: {}", model.name), iostat(&scrubbed.stats, scrubbed.seconds)));
        }
        let (read, seconds) = replace(model, HostTime::ENGINE);
        let slower = limit.min(taken);
        figure("a drive written from end to end", "MB/s", taken);
        figure("default, replace", "MB/s a member", speed(seconds));
        figure("default, replace, of what the slower of both does", "%", speed(seconds) / slower * 100.0);
        let free = speed(replace(model, HostTime::NONE).1);
        figure("replace on a host without cost, of the slower", "%", free / slower * 100.0);
        rows.push((format!("default, replace, old member: {}", model.name), iostat(&[read], seconds)));
    }
    let ssd = models::e1_ssd();
    let ((alone, _), (beside, check)) = (foreground(&ssd, false), foreground(&ssd, true));
    let load = "4 KiB random read, 16 under way, SATA SSD";
    for (setting, unit, measured) in [
        ("no scrub", "IOPS", alone),
        ("a check beside it", "IOPS", beside),
        ("a check beside it, of no scrub", "%", beside / alone * 100.0),
        ("the check meanwhile", "MB/s a member", check),
    ] {
        figures.push(Figure {
            workload: load.to_owned(),
            setting: setting.to_owned(),
            unit,
            published: None,
            measured,
        });
    }
    Report {
        experiment: "e5",
        title: "how a scrub keeps its drives busy",
        setup: format!(
            "policies: one drive ({}); default: RAID-6 over {SLOTS} drives, chunk 512 KiB, {} MiB of each",
            models::e5_nvme().name,
            COMPONENT_BYTES >> 20
        ),
        figures,
        traces: Vec::new(),
        tables: vec![Table {
            title: "iostat, a drive's mean".to_owned(),
            columns: COLUMNS.map(str::to_owned).into(),
            rows,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_rows_are_reproduced() {
        for (name, published, stats) in policies() {
            let here = iostat(&[stats], WATCHED.as_secs_f64());
            for (column, share) in [(0, 0.05), (1, 0.05), (5, 0.03), (6, 0.25)] {
                let value = here[column].expect("every column has a number");
                let off = value / published[column] - 1.0;
                assert!(
                    off.abs() <= share,
                    "{name}, {}: {value}, published {}",
                    COLUMNS[column + 1],
                    published[column]
                );
            }
        }
    }

    #[test]
    fn the_default_scrubs_at_the_drives_speed_and_yields_to_readers() {
        for model in &drives() {
            let limit = delivered(model, Operation::Read);
            for action in [ScrubAction::Check, ScrubAction::Repair] {
                let scrubbed = scrub(model, action, HostTime::NONE);
                let speed = speed(scrubbed.seconds);
                assert!(speed >= 0.95 * limit, "{}, {action:?}: {speed:.0} of {limit:.0} MB/s", model.name);
                let expected = if action == ScrubAction::Repair { WRONG_BLOCKS } else { 0 };
                assert_eq!(scrubbed.healed, expected);
            }
            let (limit, (_, seconds)) = (limit.min(delivered(model, Operation::Write)), replace(model, HostTime::NONE));
            assert!(
                speed(seconds) >= 0.95 * limit,
                "{}, replace: {:.0} of {limit:.0} MB/s",
                model.name,
                speed(seconds)
            );
        }
        let ssd = models::e1_ssd();
        let (alone, beside) = (foreground(&ssd, false).0, foreground(&ssd, true).0);
        assert!(beside >= 0.8 * alone, "{beside:.0} of {alone:.0} reads a second");
    }
}
