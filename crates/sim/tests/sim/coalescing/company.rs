//! Random writes never wait for company by chance: what each of them waits for, judged by the writes beside it.
//!
//! The rule: a write waits only while a write to one of its rows is under way, as both change one parity. All that wait
//! for the same rows go together. So a write takes at most twice as long as alone, however many are under way.

use super::scene::{CHUNK_BYTES, KIB, Scene};
use engine::{Clock, Durability, Moment};
use format::geometry::Level;
use futures_util::future::{join, join_all};
use mdspace_sim::Random;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::Duration;

/// What a write takes alone, at most: one latency of a read and two of a write, of up to 200 us each.
const ALONE: Duration = Duration::from_micros(600);

/// A row is 4 KiB of every chunk of a stripe.
const ROW: u64 = 4 * KIB;

/// Where the writes go.
#[derive(Debug, Clone, Copy)]
enum Places {
    Uniform,
    /// The block of rank n is written 1/n times as often as the first one.
    Zipf,
}

/// A write of one row or of a part of one.
struct Done {
    /// The stripe, and the row in it.
    row: (u64, u64),
    time: Range<Moment>,
}

/// A load of random writes.
#[derive(Debug, Clone, Copy)]
struct Load {
    places: Places,
    /// The number of blocks that are written.
    blocks: u64,
    /// Blocks that follow each other before the next stripe: all of a stripe, or fewer.
    of_stripe: u64,
    depth: u64,
    writes: u64,
}

/// Draws blocks of an area.
struct Draw {
    /// The sum of the weights up to each block.
    sums: Vec<u64>,
    random: RefCell<Random>,
}

impl Draw {
    fn new(load: &Load) -> Self {
        let blocks = load.blocks;
        let weight = |rank: u64| match load.places {
            Places::Uniform => 1,
            Places::Zipf => (1 << 20) / (rank + 1),
        };
        // The ranks are spread over the area: an odd number has no factor in common with these areas.
        let ranks = (0..blocks).map(|block| block * 37 % blocks);
        let sums = ranks.scan(0, |sum, rank| {
            *sum += weight(rank);
            Some(*sum)
        });
        Self { sums: sums.collect(), random: RefCell::new(Random::new(blocks + load.depth)) }
    }

    /// The block of a write, and the range in it: most are of all of it.
    fn next(&self) -> (u64, Range<u64>) {
        let mut random = self.random.borrow_mut();
        let drawn = random.within(0..*self.sums.last().expect("an area has blocks"));
        let block = self.sums.partition_point(|sum| *sum <= drawn) as u64;
        let start = random.within(0..4) * KIB;
        (block, if random.once_in(8) { start..start + KIB } else { 0..ROW })
    }
}

/// Runs the load. Returns what it did, and how long it took.
async fn run(scene: &Scene, load: Load) -> (Vec<Done>, Duration) {
    let (clock, draw) = (scene.world.clock(), Draw::new(&load));
    let (done, left) = (RefCell::new(Vec::new()), Cell::new(load.writes));
    let start = clock.now();
    let lane = async || {
        while left.get() > 0 {
            left.set(left.get() - 1);
            let (block, part) = draw.next();
            let at = block / load.of_stripe * scene.stripe_bytes + block % load.of_stripe * ROW + part.start;
            let row = (at / scene.stripe_bytes, at % CHUNK_BYTES / ROW);
            let start = clock.now();
            write(scene, at, part.end - part.start).await;
            done.borrow_mut().push(Done { row, time: start..clock.now() });
        }
    };
    join_all((0..load.depth).map(|_| lane())).await;
    (done.into_inner(), clock.now().since(start))
}

/// As [`Scene::write`], to a range that others may write at the same time: the last request counts.
async fn write(scene: &Scene, at: u64, bytes: u64) {
    let mut contents = vec![0; bytes as usize];
    Random::new(scene.world.chance(0..u64::MAX)).fill(&mut contents);
    scene.truth.borrow_mut()[at as usize..(at + bytes) as usize].copy_from_slice(&contents);
    let block = scene.array.pool().copy_of(&contents);
    scene.array.write(at, block, Durability::Ordinary).await.expect("nothing fails");
}

/// Asserts the rule for each write.
fn judge(done: &[Done], load: &Load, level: Level) {
    for one in done {
        let is_beside =
            |other: &&Done| other.row == one.row && other.time.start < one.time.end && one.time.start < other.time.end;
        let beside = done.iter().filter(is_beside).count() - 1;
        let bound = if beside == 0 { ALONE } else { 2 * ALONE };
        let took = one.time.end.since(one.time.start);
        assert!(took <= bound, "{level:?} {load:?}: {took:?} for row {:?}, with {beside} others", one.row);
    }
}

/// A scene whose array is marked.
fn scene(level: Level, stripes: u64) -> Scene {
    let scene = Scene::new(level, stripes);
    scene.world.run(scene.write(0, ROW), || false);
    scene
}

#[test]
fn a_random_write_waits_only_for_a_write_to_one_of_its_rows() {
    for (level, places) in [(Level::Raid5, Places::Uniform), (Level::Raid6, Places::Zipf)] {
        for (blocks, depth) in [(1, 9), (16, 3), (32, 32), (128, 32), (128, 256)] {
            let scene = scene(level, 24);
            let load = Load { places, blocks, of_stripe: scene.stripe_bytes / ROW, depth, writes: 3000 };
            let (done, _) = scene.world.run(run(&scene, load), || false).expect("not stopped");
            judge(&done, &load, level);
            scene.world.run(scene.check(), || false);
        }
    }
}

#[test]
fn a_stream_beside_random_writes_delays_none_of_them_and_becomes_full_stripes() {
    let scene = scene(Level::Raid5, 48);
    let (middle, end) = (24 * scene.stripe_bytes, 48 * scene.stripe_bytes);
    let of_stripe = scene.stripe_bytes / ROW;
    let load = Load { places: Places::Uniform, blocks: 256, of_stripe, depth: 16, writes: 2000 };
    let both = join(run(&scene, load), scene.write_linear(middle, end, 16 * KIB, 40));
    let ((done, _), ()) = scene.world.run(both, || false).expect("not stopped");
    judge(&done, &load, Level::Raid5);
    scene.world.run(scene.check(), || false);
}

/// 512 KiB of one chunk, where each row has one block that is written, and of a whole stripe, where it has seven. A row
/// takes one batch of writes at a time, so the more of its blocks are drawn, the more often it is busy.
#[test]
fn random_writes_of_a_busy_area_are_as_fast_as_those_of_a_wide_one_at_every_depth() {
    let mut shares = Vec::new();
    for depth in [1, 4, 16, 32, 64, 256] {
        let took = |places, blocks, of_stripe| {
            let scene = scene(Level::Raid5, 64);
            let load = Load { places, blocks, of_stripe, depth, writes: 20 * depth + 400 };
            scene.world.run(run(&scene, load), || false).expect("not stopped").1.as_secs_f64()
        };
        let wide = took(Places::Uniform, 64 * 112, 112);
        for (places, of_stripe, least) in
            [(Places::Uniform, 16, 0.95), (Places::Zipf, 16, 0.9), (Places::Uniform, 112, 0.8)]
        {
            shares.push((depth, places, of_stripe, wide / took(places, 128, of_stripe), least));
        }
    }
    assert!(shares.iter().all(|(.., share, least)| share >= least), "{shares:.3?}");
}
