//! A loss of power and of members costs an array with a stripe log nothing but what was being written
//! ([`super::log_scene`]). The same histories without a log show what it is worth.

use super::log_scene::{
    Scene, Seen, Shape, Simulated, Unread, assemble, find_superblock, histories, play, play_unread, superblock_of,
};
use super::policy_records;
use engine::{AssembleOptions, Candidate, ConsistencyPolicy, Durability};
use format::geometry::{Level, default_layout};
use format::stripe_log::{Header, PAGE_BYTES, Place, Record};
use format::superblock::Version;
use mdspace_sim::{Random, SimMember, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

fn shape(random: &mut Random, has_log: bool) -> Shape {
    let level = *random.pick(&[Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid6]);
    let parities = if level == Level::Raid6 { 2 } else { 1 };
    let slots = parities + random.within(2..5) as u16;
    let lost = random.within(0..u64::from(parities) * 2).min(parities.into());
    let missing: BTreeSet<u16> = (0..lost).map(|_| random.within(0..slots.into()) as u16).collect();
    let can_fail = missing.len() < usize::from(parities) && random.once_in(3);
    let fails = can_fail.then(|| random.within(0..slots.into()) as u16).filter(|slot| !missing.contains(slot));
    let has_bitmap = random.once_in(2);
    Shape {
        policy: match (has_log, has_bitmap) {
            (true, _) => ConsistencyPolicy::StripeLog,
            (false, true) => ConsistencyPolicy::Bitmap,
            (false, false) => ConsistencyPolicy::Resync,
        },
        level,
        slots,
        layout: default_layout(level),
        chunk: 4096 << random.within(0..3),
        version: *random.pick(&[Version::V1_1, Version::V1_2]),
        data_at: *random.pick(&[64 << 10, 80 << 10, 256 << 10]),
        block_bytes: *random.pick(&[512, 4096]),
        has_bitmap,
        has_checksums: random.once_in(3),
        missing,
        fails,
        has_spare: false,
    }
}

/// Whether the log of a member has given up records to make room for others.
fn has_wrapped(member: &SimMember, version: Version) -> bool {
    let image = member.contents();
    let place = Place::of(&superblock_of(&image, version)).expect("there is room");
    let header = Header::decode(&image[place.at.0 as usize..]).ok().flatten();
    header.is_some_and(|header| header.first > 1)
}

#[test]
fn a_loss_of_power_and_of_members_costs_nothing_but_what_was_being_written() {
    let (mut seen, mut wraps) = (Seen::default(), 0);
    for seed in histories() {
        let mut random = Random::new(seed);
        let shape = shape(&mut random, true);
        let look = |scene: &Scene| {
            wraps += usize::from(scene.members.iter().any(|member| has_wrapped(member, scene.shape.version)));
        };
        play(seed, shape, random, &mut seen, look);
        assert_eq!(seen.wrong, [""; 0]);
    }
    policy_records::print(&seen.histories);
    assert!(seen.dirty > 0 && seen.unknown > 0 && seen.twice > 0 && wraps > 0, "each situation was met");
    let starts: Vec<_> = seen.histories.values().map(|level| level.whole.all.min(level.lacking.all)).collect();
    assert!(starts.len() == 3 && !starts.contains(&0), "levels 4, 5 and 6, with every member and without some");
}

#[test]
fn a_member_that_a_replay_could_not_read_agrees_with_parity_afterwards() {
    let mut seen = Unread::default();
    for seed in histories() {
        let mut random = Random::new(seed);
        let shape = shape(&mut random, true);
        play_unread(seed, shape, random, &mut seen);
        assert_eq!(seen.wrong, [""; 0]);
    }
    let all = [seen.settled, seen.resynced, seen.refused, seen.read_lacking];
    assert!(!all.contains(&0), "each end was met: {all:?}");
}

/// The member with Q leaves while a batch waits for its turn, which has no part of it then. Power goes before the superblocks
/// say that it has left.
#[test]
fn a_parity_that_leaves_while_its_batch_waits_does_not_count_as_current() {
    const SEED: u64 = 30_562;
    let (mut seen, mut random) = (Seen::default(), Random::new(SEED));
    let shape = shape(&mut random, true);
    assert!(shape.fails.is_some());
    play(SEED, shape, random, &mut seen, |_| {});
    assert_eq!(seen.wrong, [""; 0]);
}

/// Power goes while a record is written, so that its head is whole and its partial parity is not.
#[test]
fn partial_parity_that_was_torn_is_not_replayed() {
    const SEED: u64 = 1183;
    let (mut seen, mut random) = (Seen::default(), Random::new(SEED));
    let shape = shape(&mut random, true);
    play(SEED, shape, random, &mut seen, |_| {});
    assert_eq!(seen.wrong, [""; 0]);
}

#[test]
fn after_a_replay_a_member_may_fail_before_the_resync_and_bad_blocks_need_no_force() {
    for has_bad_block in [false, true] {
        let world = World::new(1);
        let course = async {
            let scene = Scene::new(Shape::small(ConsistencyPolicy::StripeLog), &world).await;
            let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
            if has_bad_block {
                // The first data chunk is on the first member.
                let (faults, sector) = (scene.members[0].faults(), scene.shape.data_at..scene.shape.data_at + 512);
                faults.bad_writes.borrow_mut().push(sector.clone());
                faults.bad_reads.borrow_mut().push(sector);
            }
            write_once(&array).await;
            let bad_bytes: u64 = array.status().members.iter().map(|member| member.bad_bytes).sum();
            assert_eq!(bad_bytes > 0, has_bad_block);
            drop(array);
            scene.members.iter().for_each(SimMember::end_of_process);
            let array =
                assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("the log was replayed");
            assert!(!array.status().in_agreement, "a resync is due");
            if !has_bad_block {
                array.fail(&scene.members[0].name()).await.expect("parity stands in for it");
            }
            let read = array.read(0, array.pool().take(512)).await.expect("parity gives it");
            assert_eq!(read[..], [1; 512]);
        };
        world.run(course, || false).expect("the power does not go");
    }
}

/// A RAID-6 of which a member fails, and a spare takes its slot.
fn play_with_spare(seed: u64, seen: &mut Seen) {
    let mut random = Random::new(seed);
    let slots = random.within(4..6) as u16;
    let fails = Some(random.within(0..slots.into()) as u16);
    let (level, layout, missing) = (Level::Raid6, default_layout(Level::Raid6), BTreeSet::new());
    let shape = Shape { level, layout, slots, missing, fails, has_spare: true, ..shape(&mut random, true) };
    play(seed, shape, random, seen, |_| {});
    assert_eq!(seen.wrong, [""; 0]);
}

/// The spare has no part of the batches before. A replay must not take their entries on other members for torn ones.
#[test]
fn a_spare_that_takes_a_slot_hides_no_entry_of_the_other_parity() {
    let mut seen = Seen::default();
    histories().for_each(|seed| play_with_spare(seed, &mut seen));
    assert!(seen.dirty > 0 && seen.unknown > 0, "each situation was met");
}

/// A write is planned while the slot of one parity is empty, and logged when a spare has taken it.
#[test]
fn a_parity_that_a_write_leaves_out_hides_no_entry_of_the_other() {
    play_with_spare(1419, &mut Seen::default());
}

#[test]
fn without_a_log_the_same_histories_lose_data_that_was_not_being_written() {
    let (mut seen, mut lossy) = (Seen::default(), 0);
    for seed in histories() {
        let before = seen.wrong.len();
        let mut random = Random::new(seed);
        let shape = shape(&mut random, false);
        play(seed, shape, random, &mut seen, |_| {});
        lossy += usize::from(seen.wrong.len() > before);
    }
    println!("{lossy} of {} histories lose data without a log", histories().count());
    policy_records::print(&seen.histories);
    let whole: usize = seen.histories.values().map(|level| level.whole.lossy).sum();
    assert_eq!(whole, 0, "with every member nothing is lost");
    assert!(lossy > 0, "the log is worth something");
}

/// All bytes of an array, as they are read.
async fn contents(array: &Simulated) -> Vec<u8> {
    array.read(0, array.pool().take(array.bytes() as usize)).await.expect("it has enough members").to_vec()
}

/// How an array comes to lack a member before power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// A RAID-6 lacks one from the beginning, with a log or taken by force.
    Member { has_log: bool },
    /// A member fails amid the writes, and a spare is being recovered in its place.
    Recovering { level: Level },
}

impl Lack {
    fn shape(self, random: &mut Random) -> Shape {
        let slots = random.within(4..7) as u16;
        let slot = random.within(0..slots.into()) as u16;
        let (level, has_log, missing, fails) = match self {
            Self::Member { has_log } => (Level::Raid6, has_log, BTreeSet::from([slot]), None),
            Self::Recovering { level } => (level, true, BTreeSet::new(), Some(slot)),
        };
        let (layout, has_spare) = (default_layout(level), fails.is_some());
        Shape { level, layout, slots, missing, fails, has_spare, ..shape(random, has_log) }
    }
}

/// Power goes while an array that lacks a member is written to, also in whole stripes, which no log settles. It may go again
/// amid the resync, a spare may take the slot before, and a member may not be read for a while. In the end no further loss changes what is read. Returns whether
/// the array was dirty.
fn play_settled(seed: u64, lack: Lack) -> bool {
    let world = World::new(seed);
    let mut random = Random::new(seed);
    let shape = lack.shape(&mut random);
    let scene = world.run(Scene::new(shape.clone(), &world), || false).expect("the power does not go");
    let cut = scene.boundaries.get() + random.within(1..1200);
    let shared = RefCell::new(random);
    if world.run(scene.live(&shared, &world), || scene.boundaries.get() >= cut).is_some() {
        return false;
    }
    world.forget_all();
    let mut random = shared.into_inner();
    scene.lose_power(&mut random);
    let mut members = scene.without(&BTreeSet::new(), &world);
    if lack == (Lack::Recovering { level: shape.level }) {
        let failed = scene.members[usize::from(shape.fails.expect("one fails"))].name();
        members.retain(|member| member.name() != failed);
    }
    let context = format!("seed {seed}, {shape:?}");
    let spare = (!shape.has_spare && random.once_in(2)).then(|| {
        let bytes = vec![0; members[0].contents().len()];
        SimMember::new("spare".to_owned(), &world, bytes, scene.boundaries.clone()).with_blocks(shape.block_bytes)
    });
    let force = lack == Lack::Member { has_log: false };
    let options = || AssembleOptions { force, ..AssembleOptions::default() };
    let unread = Cell::new(random.once_in(2).then(|| {
        let data_at = superblock_of(&members[0].contents(), shape.version).data_at().0;
        let at = data_at + random.within(0..16) * 4096;
        (random.within(0..members.len() as u64) as usize, at..at + 4096 * random.within(1..8))
    }));
    let (was_dirty, read) = (Cell::new(false), RefCell::new(None));
    let settle = async |members: &[SimMember]| {
        let array = assemble(members, options(), &world).await.unwrap_or_else(|why| panic!("{context}: {why}"));
        was_dirty.set(was_dirty.get() || !array.status().in_agreement);
        let before = read.take().unwrap_or(contents(&array).await);
        read.replace(Some(before.clone()));
        let unchanged = async |when| assert!(contents(&array).await == before, "{context}: it reads otherwise {when}");
        unchanged("the second time").await;
        if let Some(spare) = spare.as_ref().filter(|spare| members.iter().all(|member| member.name() != spare.name())) {
            let candidate = Candidate { name: spare.name(), member: spare.clone() };
            array.add(candidate, [9; 16], true).await.expect("it fits");
        }
        array.recover(&|_, _| {}).await.expect("nothing fails");
        unchanged("after a recovery").await;
        if let Some((index, place)) = unread.take() {
            // For a while it cannot be read: nothing may be settled by what the others give for it.
            let faults = members[index].faults();
            faults.bad_reads.borrow_mut().push(place);
            drop(array.resync(&|_, _| {}).await);
            faults.heal();
        }
        array.resync(&|_, _| {}).await.expect("nothing fails");
        unchanged("after the resync").await;
        let status = array.status();
        array.stop().await.expect("nothing fails");
        usize::from(status.raid_disks - status.in_sync)
    };
    let cut = scene.boundaries.get() + if random.once_in(2) { random.within(1..200) } else { u64::from(u32::MAX) };
    let missing = world.run(settle(&members), || scene.boundaries.get() >= cut).unwrap_or_else(|| {
        world.forget_all();
        members.iter().chain(&spare).for_each(|member| member.lose_power(&mut random));
        let is_added = |spare: &&SimMember| find_superblock(&spare.contents(), shape.version).is_some();
        members.extend(spare.iter().filter(is_added).cloned());
        world.run(settle(&members), || false).expect("the power does not go")
    });
    world.forget_all();
    members.retain(|member| member.name() != "spare" || spare.is_none());
    members.extend(spare.clone());
    let before = read.take().expect("it was read");
    let bears = shape.parities() - missing; // the spare may not have taken the slot
    for further in 0..if bears > 0 { members.len() } else { 0 } {
        let copy = |member: &SimMember| {
            SimMember::new(member.name(), &world, member.contents(), scene.boundaries.clone())
                .with_blocks(shape.block_bytes)
        };
        let mut left: Vec<_> = members.iter().map(copy).collect();
        left.remove(further);
        let reading = async {
            let array = assemble(&left, options(), &world).await; // the last one to be told may be the lost one
            contents(&array.unwrap_or_else(|why| panic!("{context} without {further}: {why}"))).await
        };
        let after = world.run(reading, || false).expect("the power does not go");
        assert!(after == before, "{context}: without {further} it reads otherwise");
        world.forget_all();
    }
    was_dirty.get()
}

#[test]
fn after_the_resync_of_an_array_that_lacked_a_member_a_further_loss_changes_no_byte() {
    let lacks = [
        Lack::Member { has_log: true },
        Lack::Member { has_log: false },
        Lack::Recovering { level: Level::Raid5 },
        Lack::Recovering { level: Level::Raid6 },
    ];
    for lack in lacks {
        let dirty = histories().filter(|seed| play_settled(*seed, lack)).count();
        assert!(dirty > 0, "each situation was met: {lack:?}");
    }
}

/// A small array of level 5 that lost power while it was dirty.
async fn dirty(world: &World) -> Scene {
    let shape = Shape { data_at: 64 << 10, ..Shape::small(ConsistencyPolicy::StripeLog) };
    let scene = Scene::new(shape, world).await;
    let array = assemble(&scene.here(), AssembleOptions::default(), world).await.expect("whole");
    write_once(&array).await;
    scene
}

#[test]
fn a_log_is_void_once_other_software_has_written_the_members() {
    let world = World::new(1);
    let course = async {
        let scene = dirty(&world).await;
        for member in &scene.members {
            // md writes no microseconds.
            let mut superblock = superblock_of(&member.contents(), scene.shape.version);
            superblock.events += 1;
            superblock.updated.micros = 0;
            member.plant(superblock.super_at().0, &superblock.encode());
        }
        let lost = BTreeSet::from([0]);
        let refused = assemble(&scene.without(&lost, &world), AssembleOptions::default(), &world).await;
        let refusal = refused.map(|array| array.status()).expect_err("the log would be replayed over md's writes");
        assert!(refusal.reason.contains("dirty and degraded"), "{refusal}");
        let whole = assemble(&scene.without(&BTreeSet::new(), &world), AssembleOptions::default(), &world).await;
        let status = whole.expect("nothing is missing").status();
        assert!(
            status.warnings.iter().any(|warning| warning.contains("the stripe log is void")),
            "{:?}",
            status.warnings
        );
        assert_eq!(status.consistency_policy, "log", "the array still keeps one");
    };
    world.run(course, || false).expect("the power does not go");
}

/// Power goes after a write.
async fn write_once(array: &Simulated) {
    array.write(0, array.pool().copy_of(&[1; 512]), Durability::Stable).await.expect("nothing fails");
}

#[test]
fn a_header_that_was_left_behind_begins_no_log_beside_a_journal() {
    let world = World::new(1);
    let course = async {
        let scene = Scene::new(Shape::small(ConsistencyPolicy::Journal), &world).await;
        let members = &scene.members[..usize::from(scene.shape.slots)];
        let of_member = |member: &SimMember| {
            let superblock = superblock_of(&member.contents(), scene.shape.version);
            let place = Place::of(&superblock).expect("there is room");
            (place.at.0, Header::new(&superblock, &place, 1).encode())
        };
        let planted: Vec<_> = members.iter().map(of_member).collect();
        members.iter().zip(&planted).for_each(|(member, (at, header))| member.plant(*at, header));
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
        write_once(&array).await;
        array.stop().await.expect("nothing fails");
        for (member, (at, header)) in members.iter().zip(planted) {
            assert_eq!(
                member.contents()[at as usize..][..header.len()],
                header,
                "the old header names new superblocks"
            );
        }
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn after_one_that_failed_to_begin_a_log_has_records_that_its_headers_name() {
    let world = World::new(1);
    let course = async {
        let scene = Scene::new(Shape::small(ConsistencyPolicy::Resync), &world).await;
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
        let superblock = superblock_of(&scene.members[0].contents(), scene.shape.version);
        let super_at = superblock.super_at().0;
        let full = &scene.members[0].faults().full;
        full.borrow_mut().push(super_at..super_at + 4096);
        let failed = array.set_consistency(ConsistencyPolicy::StripeLog).await;
        assert!(failed.is_err(), "a member has no room for its superblock");
        full.take();
        array.set_consistency(ConsistencyPolicy::StripeLog).await.expect("there is room now");
        write_once(&array).await;
        let has_record = |member: &SimMember| {
            let image = member.contents();
            let place = Place::of(&superblock_of(&image, scene.shape.version)).expect("there is room");
            let header = Header::decode(&image[place.at.0 as usize..]).expect("right").expect("there");
            let record = &image[place.in_ring(0).0 as usize..];
            Record::decode(&record[..PAGE_BYTES], 0, place.ring_bytes(), header.epoch, header.seed()).is_some()
        };
        assert!(scene.members.iter().any(has_record), "no header is of the epoch of the records");
    };
    world.run(course, || false).expect("the power does not go");
}
