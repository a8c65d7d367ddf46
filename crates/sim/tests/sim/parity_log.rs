//! A loss of power and of a member costs an array with a partial parity log nothing but what was being written
//! ([`super::log_scene`]). Where no member is missing, parity agrees with the data everywhere after a replay: md resyncs
//! nothing then.

use super::log_scene::{Scene, Seen, Shape, Unread, assemble, histories, play, play_unread, superblock_of};
use super::policy_records;
use engine::{Array, AssembleOptions, Candidate, ConsistencyPolicy, Durability, Offer, Pool};
use format::geometry::Level;
use format::partial_parity::Header;
use format::superblock::Version;
use mdspace_sim::{Random, SimMember, World};
use std::cell::RefCell;
use std::collections::BTreeSet;

fn shape(random: &mut Random) -> Shape {
    let slots = random.within(3..6) as u16;
    let missing = random.once_in(3).then(|| random.within(0..slots.into()) as u16);
    let fails = (missing.is_none() && random.once_in(3)).then(|| random.within(0..slots.into()) as u16);
    Shape {
        policy: ConsistencyPolicy::PartialParity,
        level: Level::Raid5,
        slots,
        layout: random.within(0..6) as u32,
        chunk: 4096 << random.within(0..3),
        version: *random.pick(&[Version::V1_0, Version::V1_1, Version::V1_2]),
        data_at: *random.pick(&[64 << 10, 256 << 10]),
        block_bytes: *random.pick(&[512, 4096]),
        has_bitmap: false,
        has_checksums: false,
        missing: missing.into_iter().collect(),
        fails,
        has_spare: false,
    }
}

#[test]
fn a_loss_of_power_and_of_a_member_costs_nothing_but_what_was_being_written() {
    let mut seen = Seen::default();
    for seed in histories() {
        let mut random = Random::new(seed);
        let shape = shape(&mut random);
        play(seed, shape, random, &mut seen, |_| {});
        assert_eq!(seen.wrong, [""; 0]);
    }
    policy_records::print(&seen.histories);
    assert!(seen.dirty > 0 && seen.unknown > 0 && seen.twice > 0, "power went amid writes, and amid replays");
}

#[test]
fn a_member_that_a_replay_could_not_read_agrees_with_parity_afterwards() {
    let mut seen = Unread::default();
    for seed in histories() {
        let mut random = Random::new(seed);
        let shape = shape(&mut random);
        play_unread(seed, shape, random, &mut seen);
        assert_eq!(seen.wrong, [""; 0]);
    }
    let all = [seen.settled, seen.resynced, seen.refused, seen.read_lacking];
    assert!(!all.contains(&0), "each end was met: {all:?}");
}

/// Power goes at each boundary of an assembly without one member, and then that member is there again. As long as it is
/// accepted, the logs make parity agree with it.
#[test]
fn a_member_that_returns_after_a_replay_without_it_agrees_with_parity_or_is_left_out() {
    let (mut accepted, mut left_out) = (0, 0);
    for seed in 0..100 {
        let (world, mut random) = (World::new(seed), Random::new(seed));
        let shape = Shape::small(ConsistencyPolicy::PartialParity);
        let scene = world.run(Scene::new(shape, &world), || false).expect("the power does not go");
        let cut = scene.boundaries.get() + random.within(1..400);
        let shared = RefCell::new(random);
        let ended = world.run(scene.live(&shared, &world), || scene.boundaries.get() >= cut);
        world.forget_all();
        if ended.is_some() {
            continue; // the power did not go
        }
        let mut random = shared.into_inner();
        scene.lose_power(&mut random);
        scene.truth.borrow_mut().interrupted();
        for (slot, boundaries) in (0..scene.shape.slots).flat_map(|slot| (1..60).map(move |cut| (slot, cut))) {
            let context = format!("seed {seed}, without {slot} for {boundaries} boundaries");
            let mut members = scene.without(&BTreeSet::from([slot]), &world);
            let cut = scene.boundaries.get() + boundaries;
            let begun = assemble(&members, AssembleOptions::default(), &world);
            let is_cut = world.run(begun, || scene.boundaries.get() >= cut).is_none();
            world.forget_all();
            if !is_cut {
                break;
            }
            members.iter().for_each(|member| member.lose_power(&mut random));
            let others = (0..scene.shape.slots).filter(|other| *other != slot).collect();
            members.insert(slot.into(), scene.without(&others, &world).remove(0));
            let begun = world.run(assemble(&members, AssembleOptions::default(), &world), || false);
            let array = begun.expect("no power cut").unwrap_or_else(|why| panic!("{context}: {why}"));
            match array.status().missing.is_empty() {
                true => {
                    scene.check_parity(&members, &context);
                    accepted += 1;
                }
                false => left_out += 1,
            }
            drop(array);
            world.forget_all();
        }
    }
    assert!(accepted > 0 && left_out > 0, "{accepted} accepted, {left_out} left out");
}

/// The entries in the first header of each member's log.
fn entries(scene: &Scene) -> Vec<usize> {
    let entries = |member: &SimMember| {
        let image = member.contents();
        let superblock = superblock_of(&image, scene.shape.version);
        let (at, place) = (superblock.ppl_at().expect("a log").0 as usize, superblock.ppl.expect("a log"));
        let header = Header::decode(&image[at..], &[7; 16], u64::from(place.sectors) * 512).expect("a header");
        header.entries.len()
    };
    scene.members.iter().map(entries).collect()
}

/// As md does.
#[test]
fn a_bitmap_file_is_refused_beside_a_log() {
    let world = World::new(1);
    let course = async {
        let scene = Scene::new(Shape::small(ConsistencyPolicy::PartialParity), &world).await;
        let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
        let file = SimMember::new("bitmap".to_owned(), &world, vec![0; 64 << 10], scene.boundaries.clone());
        let members = scene.members.iter().map(candidate).collect();
        let offer = Offer { bitmap: Some(candidate(&file)), ..Offer::of(members) };
        let before = scene.boundaries.get();
        let offered = Array::assemble_offer(offer, AssembleOptions::default(), Pool::new(1 << 20), world.clock()).await;
        let refusal = offered.map(|array| array.status()).expect_err("md allows no bitmap beside a log");
        assert_eq!(refusal.member.as_deref(), Some("bitmap"));
        assert!(refusal.reason.contains("partial parity log"), "{refusal}");
        assert_eq!(scene.boundaries.get(), before, "nothing was written");
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn the_log_of_an_earlier_use_is_erased_before_the_next() {
    let world = World::new(1);
    let course = async {
        let scene = Scene::new(Shape::small(ConsistencyPolicy::PartialParity), &world).await;
        for (at, expected) in [(0, [0, 0, 1]), (2 * scene.shape.chunk, [0, 1, 0])] {
            let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
            array.write(at, array.pool().copy_of(&[1; 512]), Durability::Stable).await.expect("written");
            array.stop().await.expect("clean");
            assert_eq!(entries(&scene), expected);
        }
    };
    world.run(course, || false).expect("the power does not go");
}
