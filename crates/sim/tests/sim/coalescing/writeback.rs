//! Writeback: writes are answered from memory, reads see them, their memory is bounded, and a flush writes them to the
//! members.

use super::scene::{CHUNK_BYTES, DATA_OFFSET, KIB, Scene};
use engine::{AssembleOptions, Clock, Durability, WriteBack};
use format::geometry::Level;
use futures_util::future::join;
use mdspace_sim::Random;
use std::cell::Cell;
use std::time::Duration;

#[test]
fn a_stream_of_one_request_at_a_time_becomes_full_stripes() {
    for (level, parities) in [(Level::Raid5, 1), (Level::Raid6, 2)] {
        for request_bytes in [4 * KIB, 5000, 1000 * KIB] {
            let scene = Scene::new(level, 8);
            scene.write_back(WriteBack::All);
            let end = scene.array.bytes();
            scene.world.run(scene.write_linear(0, end, request_bytes, 1), || false);
            scene.world.run(scene.array.flush(), || false).expect("not stopped").expect("nothing fails");
            let tally = scene.tally();
            assert_eq!((tally.reads, tally.written_bytes), (0, end * 8 / (8 - parities)), "{level:?} {request_bytes}");
            scene.world.run(scene.check(), || false);
        }
    }
}

/// Writes linearly with each queue; yields the bytes that members read and wrote for each byte.
fn linear(request_bytes: u64, depth: usize) -> (f64, f64) {
    let scene = Scene::new(Level::Raid5, 64);
    scene.write_back(WriteBack::Streams);
    let end = scene.array.bytes();
    scene.world.run(scene.write_linear(0, end, request_bytes, depth), || false);
    scene.world.run(scene.array.flush(), || false).expect("not stopped").expect("nothing fails");
    let tally = scene.tally();
    scene.world.run(scene.check(), || false);
    (tally.read_bytes as f64 / end as f64, tally.written_bytes as f64 / end as f64)
}

#[test]
fn a_stream_with_a_queue_too_short_to_fill_a_stripe_is_answered_from_memory() {
    for request_bytes in [4 * KIB, 64 * KIB, 1000 * KIB, 1024 * KIB] {
        for depth in [1, 2, 4, 16] {
            let (read, written) = linear(request_bytes, depth);
            // Before it is proven, a stream is written in parts: at most eight writes, or about a stripe.
            let least = 8.0 / 7.0;
            assert!(read < 0.03 && written < least * 1.03, "{request_bytes} bytes, {depth}: {read:.3}, {written:.3}");
        }
    }
}

#[test]
fn nothing_else_is_answered_before_the_members_have_it() {
    let scene = Scene::new(Level::Raid5, 40);
    scene.write_back(WriteBack::Streams);
    let end = scene.array.bytes();
    let answered = std::cell::Cell::new(0);
    let count = |bytes: u64| {
        answered.set(answered.get() + bytes);
        // Data and parity: more than the data alone.
        assert!(scene.tally().written_bytes > answered.get(), "{bytes} bytes were answered from memory");
    };
    let (scene, mut random) = (&scene, Random::new(7));
    let places: Vec<u64> = (0..200).map(|_| random.within(0..end / 4096) * 4096).collect();
    let apart = async {
        for at in places {
            scene.write(at, 4096).await;
            count(4096);
        }
    };
    scene.world.run(apart, || false);
    // A queue of four stripes fills them by itself.
    let next = std::cell::Cell::new(0);
    let deep = (0..28).map(|_| async {
        while next.get() < end {
            let at = next.replace(next.get() + 64 * KIB);
            scene.write(at, 64 * KIB).await;
            count(64 * KIB);
        }
    });
    scene.world.run(futures_util::future::join_all(deep), || false);
    scene.world.run(scene.check(), || false);
}

/// Bytes that wait in memory, once the array's own tasks have had a turn.
async fn in_memory(scene: &Scene) -> u64 {
    let clock = scene.world.clock();
    clock.sleep_until(clock.now() + Duration::from_micros(1)).await;
    scene.array.status().cache.waiting_bytes
}

#[test]
fn a_write_into_a_stripe_that_is_held_in_memory_does_not_wait_for_the_rest_of_it() {
    let scene = Scene::new(Level::Raid5, 8);
    scene.write_back(WriteBack::Streams);
    let life = async {
        let clock = scene.world.clock();
        scene.write_linear(0, 10 * 16 * KIB, 16 * KIB, 1).await;
        assert!(in_memory(&scene).await > 0, "the stream's last writes are in memory");
        let before = clock.now();
        scene.write(4096, 4096).await;
        assert!(clock.now() < before + Duration::from_millis(100), "it waited");
        assert_eq!(in_memory(&scene).await, 0);
    };
    scene.world.run(life, || false);
    scene.world.run(scene.check(), || false);
}

#[test]
fn an_array_that_writes_through_again_keeps_nothing_in_memory() {
    let scene = Scene::new(Level::Raid5, 8);
    scene.write_back(WriteBack::All);
    let life = async {
        scene.write(4096, 4096).await;
        assert_eq!(in_memory(&scene).await, 4096);
        scene.array.write_through().await.expect("nothing fails");
        assert_eq!(in_memory(&scene).await, 0);
        scene.write(scene.stripe_bytes, 4096).await;
        assert_eq!(in_memory(&scene).await, 0);
    };
    scene.world.run(life, || false);
    scene.world.run(scene.check(), || false);
}

#[test]
fn reads_see_answered_writes_with_and_without_a_missing_member() {
    for seed in 0..24 {
        let scene = Scene::new(Level::Raid5, 4);
        scene.write_back(if seed < 12 { WriteBack::All } else { WriteBack::Streams });
        let mut random = Random::new(seed);
        let clock = scene.world.clock();
        let life = async {
            for step in 0..60 {
                let at = random.within(0..scene.array.bytes() - 1);
                let longest = if random.once_in(4) { scene.stripe_bytes + 5000 } else { 9000 };
                let bytes = random.within(1..longest).min(scene.array.bytes() - at);
                match random.within(0..8) {
                    0 => clock.sleep_until(clock.now() + Duration::from_millis(random.within(0..700))).await,
                    1 => scene.array.flush().await.expect("the level survives the faults"),
                    2 => {
                        let block = scene.array.pool().zeroed(bytes as usize).freeze();
                        scene.array.write(at, block, Durability::Stable).await.expect("the level survives the faults");
                        scene.truth.borrow_mut()[at as usize..(at + bytes) as usize].fill(0);
                    }
                    3 if seed >= 12 => {
                        let end = (at + 20 * bytes).min(scene.array.bytes());
                        scene.write_linear(at, end, bytes, 1 + step % 3).await;
                    }
                    3..6 => scene.write(at, bytes).await,
                    _ => {
                        let read = scene.array.read(at, scene.array.pool().take(bytes as usize)).await;
                        let found = read.expect("all data is available");
                        let truth = &scene.truth.borrow()[at as usize..(at + bytes) as usize];
                        assert!(found[..] == *truth, "seed {seed}, step {step}: {bytes} bytes at {at}");
                    }
                }
                if step == 30 && seed % 2 == 1 {
                    scene.array.fail("member2").await.expect("the level survives it");
                }
            }
        };
        scene.world.run(life, || false);
        scene.world.run(scene.check(), || false);
    }
}

#[test]
fn dirty_data_is_bounded_and_is_written_when_it_is_old() {
    let options = AssembleOptions { gather_bytes: 256 * KIB, ..AssembleOptions::default() };
    let scene = Scene::with_options(Level::Raid5, 40, options);
    scene.write_back(WriteBack::All);
    let writes = async {
        for number in 0..200 {
            scene.write(number * 7 % 40 * scene.stripe_bytes + number / 40 * 8192, 4096).await;
        }
    };
    scene.world.run(writes, || false);
    let written = scene.tally().writes;
    assert!(written >= 2 * (200 - 64), "at most 64 pages wait, not {written} / 2");
    let clock = scene.world.clock();
    scene.world.run(clock.sleep_until(clock.now() + Duration::from_secs(2)), || false);
    assert_eq!(scene.tally().writes, 400, "nothing waits for ever");
    scene.world.run(scene.check(), || false);
}

#[test]
fn dirty_data_that_cannot_be_written_fails_the_flush() {
    let scene = Scene::new(Level::Raid5, 4);
    scene.write_back(WriteBack::All);
    scene.world.run(scene.write(0, 4096), || false);
    scene.members.iter().take(2).for_each(|member| member.faults().bad_writes.borrow_mut().push(0..u64::MAX));
    for _ in 0..2 {
        let flushed = scene.world.run(scene.array.flush(), || false).expect("not stopped");
        assert!(flushed.is_err(), "what was answered is lost");
    }
    let block = scene.array.pool().zeroed(4096).freeze();
    let write = scene.array.write(scene.stripe_bytes, block, Durability::Ordinary);
    let written = scene.world.run(write, || false).expect("not stopped");
    assert!(written.is_err(), "nor is any more answered");
}

#[test]
fn a_write_that_was_requested_earlier_and_ends_later_clears_no_loss() {
    let scene = Scene::new(Level::Raid5, 4);
    scene.write_back(WriteBack::All);
    let (array, stripe) = (&scene.array, scene.stripe_bytes);
    let has_ended = Cell::new(false);
    // From the end of stripe 1 into the second chunk of stripe 2, which is written long after the rest.
    let earlier = async {
        let block = array.pool().copy_of(&vec![1; (CHUNK_BYTES + 8192) as usize]);
        array.write(2 * stripe - 4096, block, Durability::Stable).await.expect("what it writes is readable");
        has_ended.set(true);
    };
    let later = async {
        let clock = scene.world.clock();
        clock.sleep_until(clock.now() + Duration::from_millis(10)).await;
        let found = array.read(2 * stripe - 4096, array.pool().take(4096)).await.expect("it is readable");
        assert!(found[..] == [1; 4096], "this part of the earlier write is on the members");
        let unreadable = DATA_OFFSET + 2 * CHUNK_BYTES - 8192..DATA_OFFSET + 2 * CHUNK_BYTES - 4096;
        scene.members.iter().for_each(|member| member.faults().latent.borrow_mut().push(unreadable.clone()));
        let block = array.pool().copy_of(&[2; 6144]);
        array.write(2 * stripe - 6144, block, Durability::Ordinary).await.expect("it is answered from memory");
        array.flush().await.expect_err("what was answered is lost");
        assert!(!has_ended.get());
    };
    let life = async {
        // The array is marked dirty before member 7 is slow.
        scene.write(0, 4096).await;
        array.flush().await.expect("nothing fails");
        scene.members[7].faults().writes_slower_by.set(50_000_000);
        join(earlier, later).await;
        array.flush().await.expect_err("it is lost still");
        let read = array.read(2 * stripe - 4096, array.pool().take(4096)).await;
        assert!(read.is_err(), "what the earlier write left there is no answer");
        scene.write(stripe, stripe).await;
        array.flush().await.expect("it was written over");
    };
    scene.world.run(life, || false).expect("the run is not stopped");
}

#[test]
fn an_unreadable_row_loses_only_its_own_dirty_data_until_it_is_overwritten() {
    let scene = Scene::new(Level::Raid5, 4);
    scene.write_back(WriteBack::All);
    // In stripe 1 two members cannot be read, so a part of it cannot be written.
    let unreadable = DATA_OFFSET + CHUNK_BYTES..DATA_OFFSET + 2 * CHUNK_BYTES;
    scene.members.iter().take(3).for_each(|member| member.faults().latent.borrow_mut().push(unreadable.clone()));
    let life = async {
        let (array, stripe) = (&scene.array, scene.stripe_bytes);
        scene.write(stripe + CHUNK_BYTES, 4096).await;
        for _ in 0..2 {
            array.flush().await.expect_err("what was answered is lost");
        }
        let read = array.read(stripe + CHUNK_BYTES, array.pool().take(4096)).await;
        assert!(read.is_err(), "it is not on the members");
        scene.write(2 * stripe, 4096).await;
        let block = array.pool().zeroed(4096).freeze();
        array.write(0, block, Durability::Stable).await.expect("all else goes on");
        scene.truth.borrow_mut()[..4096].fill(0);
        assert!(array.status().broken.is_none());
        array.flush().await.expect_err("it is lost still");
        scene.write(stripe, stripe).await;
        array.flush().await.expect("it was written over");
        scene.check().await;
        array.stop().await.expect("stops clean");
        assert!(array.status().broken.is_none());
    };
    scene.world.run(life, || false).expect("the run is not stopped");
}
