//! A loss of power and of members costs an array with a write journal nothing at all ([`super::log_scene`]): also what a
//! lost member held of a write under way is as before the write or as after it. Parity agrees with the data in each row
//! after a replay.

use super::log_scene::{Scene, Seen, Shape, assemble, histories, play, superblock_of};
use super::policy_records;
use engine::{AssembleOptions, Candidate, ConsistencyPolicy, Durability};
use format::geometry::{Level, default_layout};
use format::superblock::{DeviceRole, Version};
use mdspace_sim::{Random, SimMember, World};
use std::collections::BTreeSet;
use std::rc::Rc;

const SHAPE: Shape = Shape {
    policy: ConsistencyPolicy::Journal,
    level: Level::Raid5,
    slots: 3,
    layout: 2,
    chunk: 4096,
    version: Version::V1_2,
    data_at: 64 << 10,
    block_bytes: 512,
    has_bitmap: false,
    has_checksums: false,
    missing: BTreeSet::new(),
    fails: None,
};

fn shape(random: &mut Random) -> Shape {
    let level = *random.pick(&[Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid6]);
    let parities = if level == Level::Raid6 { 2 } else { 1 };
    let slots = parities + random.within(2..5) as u16;
    let lost = random.within(0..u64::from(parities) * 2).min(parities.into());
    let missing: BTreeSet<u16> = (0..lost).map(|_| random.within(0..slots.into()) as u16).collect();
    let can_fail = missing.len() < usize::from(parities) && random.once_in(3);
    let fails = can_fail.then(|| random.within(0..slots.into()) as u16).filter(|slot| !missing.contains(slot));
    Shape {
        level,
        slots,
        layout: default_layout(level),
        chunk: 4096 << random.within(0..3),
        version: *random.pick(&[Version::V1_1, Version::V1_2]),
        block_bytes: *random.pick(&[512, 4096]),
        has_checksums: random.once_in(3),
        missing,
        fails,
        ..SHAPE
    }
}

#[test]
fn a_loss_of_power_and_of_members_costs_nothing() {
    let (mut seen, mut moved) = (Seen::default(), 0);
    for seed in histories() {
        let mut random = Random::new(seed);
        let shape = shape(&mut random);
        let look = |scene: &Scene| {
            let journal = scene.members.last().expect("there is one").contents();
            let tail = superblock_of(&journal, scene.shape.version).journal_tail;
            moved += usize::from(tail.is_some_and(|tail| tail.0 > 8));
        };
        play(seed, shape, random, &mut seen, look);
        assert_eq!(seen.wrong, [""; 0]);
    }
    policy_records::print(&seen.histories);
    assert!(seen.dirty > 0 && seen.twice > 0 && moved > 0, "each situation was met: {seen:?}");
    assert_eq!(seen.unknown, 0);
}

fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

#[test]
fn entries_of_a_missing_parity_are_gone_before_it_is_recovered() {
    for (level, slots) in [(Level::Raid5, 3), (Level::Raid6, 4)] {
        let world = World::new(1);
        let course = async {
            let scene = Scene::new(Shape { level, slots, ..SHAPE }, &world).await;
            let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
            let lost = if level == Level::Raid5 { 2 } else { 1 }; // it has the first stripe's P
            array.fail(&scene.members[lost].name()).await.expect("the others are enough");
            let data: Vec<u8> = (0..array.bytes()).map(|at| (at / 512) as u8 | 1).collect();
            array.write(0, array.pool().copy_of(&data), Durability::Ordinary).await.expect("nothing fails");
            let bytes = scene.members[lost].contents().len();
            let spare = SimMember::new("spare".to_owned(), &world, vec![0; bytes], scene.boundaries.clone());
            array.add(candidate(&spare), [9; 16], false).await.expect("it fits");
            assert!(array.recover(&|_, _| {}).await.expect("nothing fails"));
            array.flush().await.expect("nothing fails");
            drop(array);
            let mut left = scene.without(&BTreeSet::from([lost as u16, 0]), &world);
            left.push(SimMember::new(spare.name(), &world, spare.contents(), Rc::default()));
            let array = assemble(&left, AssembleOptions::default(), &world).await.expect("one is missing");
            let read = array.read(0, array.pool().take(data.len())).await.expect("it can be read");
            assert!(*read == data[..], "{level:?}: the recovered parity was overwritten");
        };
        world.run(course, || false).expect("the power does not go");
    }
}

#[test]
fn a_journal_that_fails_ends_writes_and_leaves_reads() {
    let world = World::new(2);
    let course = async {
        let scene = Scene::new(SHAPE, &world).await;
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
        let block = array.pool().copy_of(&[7; 4096]);
        array.write(0, block.clone(), Durability::Stable).await.expect("nothing fails");
        let journal = scene.members.last().expect("there is one");
        let refused = array.fail(&journal.name()).await.expect_err("writes rely on it");
        assert!(refused.reason.contains("cannot do without"), "{refused}");
        let refused = array.remove(&journal.name()).await.expect_err("writes rely on it");
        assert!(refused.reason.contains("write journal"), "{refused}");
        journal.faults().gone.set(true);
        let error = array.write(8192, block, Durability::Ordinary).await.expect_err("the journal is dead");
        assert!(error.reason.contains("its write journal m3 failed"), "{}", error.reason);
        let error = array.write(0, array.pool().copy_of(&[8; 512]), Durability::Ordinary).await.expect_err("still");
        assert!(error.reason.contains("takes no writes"), "{}", error.reason);
        let read = array.read(0, array.pool().take(8192)).await.expect("reads go on");
        assert!(read[..4096] == [7; 4096] && read[4096..] == [0; 4096], "the write that failed has changed nothing");
        assert_eq!(array.status().state, "broken");
        drop(array);
        // The journal is back, and is replayed.
        journal.faults().gone.set(false);
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("all are there");
        assert_eq!(array.status().state, "clean");
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn what_a_journal_must_not_be_used_for_is_refused_by_name() {
    let world = World::new(3);
    let course = async {
        let scene = Scene::new(SHAPE, &world).await;
        let without = &scene.here()[..3];
        let refused = async |members: &[SimMember], options| {
            let assembled = assemble(members, options, &world).await;
            assembled.map(|array| array.status()).expect_err("it is refused").to_string()
        };
        let words = refused(without, AssembleOptions::default()).await;
        assert!(words.contains("write journal, which is not given"), "{words}");
        let forced = AssembleOptions { read_only: true, force: true, ..AssembleOptions::default() };
        let array = assemble(without, forced, &world).await.expect("it is read by force");
        assert!(array.status().warnings.iter().any(|warning| warning.contains("the write journal is not given")));
        // The members say that their journal has failed.
        for member in without {
            let mut superblock = superblock_of(&member.contents(), SHAPE.version);
            superblock.roles[3] = DeviceRole::Faulty;
            member.plant(superblock.super_at().0, &superblock.encode());
        }
        let words = refused(&scene.here(), AssembleOptions::default()).await;
        assert!(words.contains("m3") && words.contains("do not call device 3 their journal"), "{words}");
    };
    world.run(course, || false).expect("the power does not go");
}
