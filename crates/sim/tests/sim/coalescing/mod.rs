//! Coalescing of writes, measured in member transfers: linear writes of any size become full stripes, random writes
//! cost the minimum, and no write waits in vain. The submodules add failures and writeback.

mod company;
mod kills;
pub(crate) mod scene;
mod weather;
mod writeback;

use engine::Clock;
use format::geometry::Level;
use futures_util::future::join_all;
use scene::{CHUNK_BYTES, KIB, Scene};
use std::cell::Cell;
use std::time::Duration;

/// The cost of full stripes: no reads, and the user's bytes times n/(n - parities).
fn full_stripes(user_bytes: u64, parities: u64) -> (u64, u64) {
    (0, user_bytes * 8 / (8 - parities))
}

#[test]
fn linear_writes_of_any_size_become_full_stripes_if_the_queue_holds_one() {
    for (level, parities) in [(Level::Raid5, 1), (Level::Raid6, 2)] {
        let stripe = (8 - parities) * CHUNK_BYTES;
        for request_bytes in [4 * KIB, 16 * KIB, 64 * KIB, 448 * KIB, 1000 * KIB, 1024 * KIB, 1000, 5000] {
            let fewest = stripe.div_ceil(request_bytes) + u64::from(!stripe.is_multiple_of(request_bytes));
            for depth in [fewest, 2 * fewest + 3] {
                let scene = Scene::new(level, 8);
                let end = scene.array.bytes();
                scene.world.run(scene.write_linear(0, end, request_bytes, depth as usize), || false);
                let tally = scene.tally();
                let context = format!("{level:?}, {request_bytes} bytes, {depth} at a time");
                assert_eq!((tally.reads, tally.written_bytes), full_stripes(end, parities), "{context}");
                scene.world.run(scene.check(), || false);
            }
        }
    }
}

#[test]
fn a_request_of_many_stripes_writes_each_member_once() {
    let scene = Scene::new(Level::Raid5, 40);
    scene.world.run(scene.write(3 * scene.stripe_bytes, 16 * scene.stripe_bytes), || false);
    let tally = scene.tally();
    assert_eq!((tally.reads, tally.writes), (0, 8), "16 chunks of 64 KiB are 1 MiB");
    scene.world.run(scene.check(), || false);
}

#[test]
fn several_streams_mixed_with_random_writes_become_full_stripes() {
    let scene = Scene::new(Level::Raid5, 32);
    let part = scene.array.bytes() / 4;
    let random = async {
        let blocks = part / 4096;
        for index in 0..16 {
            // Blocks of different stripes, as what a write leaves in memory would spare reads.
            let at = 3 * part + (index * blocks / 16 + scene.world.chance(0..blocks / 64)) * 4096;
            scene.write(at, 4096).await;
        }
    };
    let streams = (0..3).map(|stream| scene.write_linear(stream * part, (stream + 1) * part, 16 * KIB, 40));
    scene.world.run(futures_util::future::join(join_all(streams), random), || false);
    let tally = scene.tally();
    assert_eq!((tally.reads, tally.read_bytes), (32, 32 * 4096), "those of the random writes");
    assert_eq!(tally.written_bytes, 3 * part * 8 / 7 + 32 * 4096);
    scene.world.run(scene.check(), || false);
}

#[test]
fn a_random_write_costs_the_minimum_and_does_not_wait() {
    for (level, transfers) in [(Level::Raid5, 2), (Level::Raid6, 3)] {
        let scene = Scene::new(level, 40);
        let places: Vec<_> = (0..40).map(|stripe| stripe * 7 % 40 * scene.stripe_bytes + stripe * 4096).collect();
        scene.world.run(scene.write(places[0], 4096), || false);
        let (before, start) = (scene.tally(), scene.world.clock().now());
        let count = places.len() as u64 - 1;
        let writes = async {
            for at in &places[1..] {
                scene.write(*at, 4096).await;
            }
        };
        scene.world.run(writes, || false);
        let (after, took) = (scene.tally(), scene.world.clock().now().since(start));
        assert_eq!(after.reads - before.reads, count * transfers, "{level:?}");
        assert_eq!(after.writes - before.writes, count * transfers, "{level:?}");
        assert_eq!(after.read_bytes - before.read_bytes, count * transfers * 4096, "{level:?}");
        // Three latencies of at most 200 us each: one for the reads, two for the writes.
        assert!(took <= Duration::from_micros(600) * count as u32, "{level:?}: {took:?}");
        scene.world.run(scene.check(), || false);
    }
}

#[test]
fn random_writes_that_look_like_streams_by_chance_are_not_delayed_for_long() {
    let scene = Scene::new(Level::Raid5, 64);
    let longest = Cell::new(Duration::ZERO);
    let lane = async || {
        for _ in 0..500 {
            let at = scene.world.chance(0..scene.array.bytes() / 4096) * 4096;
            let start = scene.world.clock().now();
            scene.write(at, 4096).await;
            longest.set(longest.get().max(scene.world.clock().now().since(start)));
        }
    };
    scene.world.run(join_all((0..32).map(|_| lane())), || false);
    // Several times the limit of a wait, as one waiting write may meet others that wait.
    assert!(longest.get() <= Duration::from_millis(12), "{:?}", longest.get());
    scene.world.run(scene.check(), || false);
}

#[test]
fn random_writes_in_a_small_area_wait_for_no_stream() {
    for (area, depth) in [(512 * KIB, 32), (512 * KIB, 4), (1024 * KIB, 32), (8192 * KIB, 32)] {
        let scene = Scene::new(Level::Raid5, 24);
        let longest = Cell::new(Duration::ZERO);
        let lane = async || {
            for _ in 0..8000 / depth {
                let at = scene.world.chance(0..area / 4096) * 4096;
                let start = scene.world.clock().now();
                scene.write(at, 4096).await;
                longest.set(longest.get().max(scene.world.clock().now().since(start)));
            }
        };
        scene.world.run(join_all((0..depth).map(|_| lane())), || false);
        // The time for which the stripe's lock is held before it, and its own time. Waiting for a stream would add 3
        // ms.
        assert!(longest.get() < Duration::from_millis(3), "{area} bytes, {depth} under way: {:?}", longest.get());
    }
}

#[test]
fn a_stream_whose_queue_holds_no_stripe_is_not_slowed() {
    for depth in [1, 2, 4] {
        let scene = Scene::new(Level::Raid5, 16);
        let start = scene.world.clock().now();
        scene.world.run(scene.write_linear(0, scene.array.bytes(), 64 * KIB, depth), || false);
        let took = scene.world.clock().now().since(start);
        let requests = (scene.array.bytes() / (64 * KIB)) as u32;
        // Three latencies per request, and two waits in vain.
        let bound = Duration::from_micros(600) * requests + Duration::from_millis(6);
        assert!(took <= bound, "{depth} at a time: {took:?}, not {bound:?}");
        scene.world.run(scene.check(), || false);
    }
}
