//! Coalescing under faults: answered writes are kept, parity agrees with the data, and no write waits for ever.

use super::scene::{KIB, Scene, assemble};
use engine::{AssembleOptions, Clock, Durability, WriteBack};
use format::geometry::Level;
use futures_util::future::{Either, join, join_all, select};
use mdspace_sim::{Random, SimMember, World};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn a_member_that_fails_during_a_coalesced_write_loses_nothing_that_was_answered() {
    for (level, victim, after) in
        [(Level::Raid5, 0, 1), (Level::Raid5, 3, 3), (Level::Raid5, 7, 2), (Level::Raid6, 1, 1), (Level::Raid6, 6, 3)]
    {
        for request_bytes in [5000, 16 * KIB, 1000 * KIB] {
            let scene = Scene::new(level, 16);
            let depth = (scene.stripe_bytes / request_bytes + 2) as usize;
            let writes = scene.write_linear(0, scene.array.bytes(), request_bytes, depth);
            // Failed writes alone would only become bad blocks.
            let goes = async {
                let clock = scene.world.clock();
                clock.sleep_until(clock.now() + Duration::from_micros(after * 150)).await;
                scene.members[victim].faults().gone.set(true);
            };
            scene.world.run(join(writes, goes), || false);
            assert_eq!(scene.array.status().in_sync, 7, "{level:?}: it has left");
            scene.world.run(scene.check(), || false);
        }
    }
}

#[test]
fn writes_answered_before_a_flush_survive_a_later_power_cut() {
    let mut kept = 0;
    let answers = [None, Some(WriteBack::Streams), Some(WriteBack::All)];
    for (cut, answers) in [60, 90, 120, 150, 180].into_iter().flat_map(|cut| answers.map(|answers| (cut, answers))) {
        let scene = Scene::new(Level::Raid5, 8);
        if let Some(answers) = answers {
            scene.write_back(answers);
        }
        let flushed = RefCell::new(vec![false; scene.array.bytes() as usize]);
        let flushes = async {
            let clock = scene.world.clock();
            loop {
                clock.sleep_until(clock.now() + Duration::from_micros(scene.world.chance(10..900))).await;
                let answered = scene.truth.borrow().clone();
                scene.array.flush().await.expect("nothing fails");
                let mut flushed = flushed.borrow_mut();
                answered.iter().zip(flushed.iter_mut()).for_each(|(byte, kept)| *kept |= *byte != 0);
            }
        };
        let writes = scene.write_linear(0, scene.array.bytes(), 16 * KIB, 40);
        let start = scene.boundaries.get();
        let life = async {
            let _: Either<_, _> = select(pin!(flushes), pin!(writes)).await;
        };
        scene.world.run(life, || scene.boundaries.get() >= start + cut);
        let (world, mut random) = (World::new(cut), Random::new(cut));
        let left = |member: &SimMember| {
            SimMember::new(member.name(), &world, member.after_power_loss(&mut random), Rc::default())
        };
        let left: Vec<_> = scene.members.iter().map(left).collect();
        let look = async {
            let array = assemble(&world, &left).await;
            let found = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("it can be read");
            let (truth, flushed) = (scene.truth.borrow(), flushed.borrow());
            kept += flushed.iter().filter(|kept| **kept).count();
            let lost = (0..truth.len()).find(|&byte| flushed[byte] && found[byte] != truth[byte]);
            assert_eq!(lost, None, "cut {cut}, answered from memory: {answers:?}");
        };
        world.run(look, || false);
    }
    assert!(kept > 0, "something was flushed before the power went");
}

#[test]
fn more_streams_than_fit_into_memory_are_written_in_parts_within_the_limit() {
    let budget = 256 * KIB;
    for writeback in [false, true] {
        let options = AssembleOptions { gather_bytes: budget, ..AssembleOptions::default() };
        let scene = Scene::with_options(Level::Raid5, 12, options);
        if writeback {
            scene.write_back(WriteBack::All);
        }
        let part = scene.array.bytes() / 4;
        let streams = (0..4).map(|stream| scene.write_linear(stream * part, (stream + 1) * part, 16 * KIB, 30));
        let most = Cell::new(0);
        let look = async {
            let clock = scene.world.clock();
            loop {
                most.set(scene.array.status().cache.waiting_bytes.max(most.get()));
                clock.sleep_until(clock.now() + Duration::from_micros(10)).await;
            }
        };
        let life = async {
            let _: Either<_, _> = select(pin!(join_all(streams)), pin!(look)).await;
        };
        scene.world.run(life, || false);
        assert!(scene.tally().reads > 0, "not all of them could wait until their stripes were full");
        // Writeback also holds what is being answered: one request of each writer.
        let bound = budget + if writeback { 4 * 30 * 16 * KIB } else { 0 };
        assert!((budget / 2..=bound).contains(&most.get()), "writeback {writeback}: {} bytes waited", most.get());
        scene.world.run(scene.check(), || false);
    }
}

#[test]
fn overlapping_writes_take_effect_in_the_order_of_their_requests() {
    for seed in 0..30 {
        let scene = Scene::new(Level::Raid5, 4);
        match seed {
            0..10 => {}
            10..20 => scene.write_back(WriteBack::Streams),
            _ => scene.write_back(WriteBack::All),
        }
        let mut random = Random::new(seed);
        let area = 2 * scene.stripe_bytes;
        let mut truth = scene.truth.borrow().clone();
        let clock = scene.world.clock();
        let mut writes = Vec::new();
        let mut moment = clock.now();
        for _ in 0..24 {
            let at = random.within(0..area - 1);
            let longest = if random.once_in(4) { area } else { 20_000 };
            let bytes = random.within(1..longest).min(area - at);
            let mut contents = vec![0; bytes as usize];
            random.fill(&mut contents);
            truth[at as usize..(at + bytes) as usize].copy_from_slice(&contents);
            let block = scene.array.pool().copy_of(&contents);
            let durability = if random.once_in(6) { Durability::Stable } else { Durability::Ordinary };
            // The executor keeps the order of requests that begin at one moment.
            moment = moment + Duration::from_micros(random.within(0..3) * 150);
            let (array, clock) = (scene.array.clone(), clock.clone());
            writes.push(async move {
                clock.sleep_until(moment).await;
                array.write(at, block, durability).await.expect("nothing fails");
            });
        }
        scene.world.run(join_all(writes), || false);
        *scene.truth.borrow_mut() = truth;
        scene.world.run(scene.check(), || false);
    }
}

#[test]
fn dropping_one_write_leaves_the_others_of_its_stripe_intact() {
    for seed in 0..12 {
        let scene = Scene::new(Level::Raid5, 4);
        let mut random = Random::new(seed);
        let given_up = RefCell::new(Vec::new());
        let clock = scene.world.clock();
        let writes = (0..scene.array.bytes() / (16 * KIB)).map(|number| {
            // One write of each stripe stays, and all of these complete.
            let patience = if number % 28 == 9 || random.once_in(2) { 1_000_000 } else { random.within(0..900) };
            let (scene, clock, given_up) = (&scene, &clock, &given_up);
            async move {
                let write = scene.write(number * 16 * KIB, 16 * KIB);
                let enough = clock.sleep_until(clock.now() + Duration::from_micros(patience));
                if let Either::Right(_) = select(pin!(write), pin!(enough)).await {
                    given_up.borrow_mut().push(number * 16 * KIB);
                }
            }
        });
        let writes: Vec<_> = writes.collect();
        scene.world.run(join_all(writes), || false);
        assert!(!given_up.borrow().is_empty());
        // Writes that were dropped may be there or not.
        let found = scene.world.run(scene.array.read(0, scene.array.pool().take(scene.truth.borrow().len())), || false);
        let found = found.expect("not stopped").expect("it can be read");
        for at in given_up.take() {
            let range = at as usize..(at + 16 * KIB) as usize;
            scene.truth.borrow_mut()[range.clone()].copy_from_slice(&found[range]);
        }
        scene.world.run(scene.check(), || false);
    }
}

#[test]
fn dropping_all_waiting_writes_leaves_nothing_behind() {
    let scene = Scene::new(Level::Raid5, 4);
    let clock = scene.world.clock();
    let waiting = join_all((0..10).map(|number| scene.write(number * 16 * KIB, 16 * KIB)));
    let soon = clock.sleep_until(clock.now() + Duration::from_millis(1));
    let life = async { matches!(select(pin!(waiting), pin!(soon)).await, Either::Right(_)) };
    assert_eq!(scene.world.run(life, || false), Some(true), "a stream waits for more");
    assert_eq!(scene.tally().writes, 0);
    scene.world.run(scene.write(0, 170 * KIB), || false);
    scene.world.run(scene.check(), || false);
}

#[test]
fn a_stop_does_not_wait_for_further_writes() {
    let scene = Scene::new(Level::Raid5, 4);
    let clock = scene.world.clock();
    let start = clock.now();
    let writes = join_all((0..3).map(|number| scene.write(number * 16 * KIB, 16 * KIB)));
    let stop = async {
        clock.sleep_until(start + Duration::from_micros(300)).await;
        scene.check().await;
    };
    scene.world.run(join(writes, stop), || false);
}
