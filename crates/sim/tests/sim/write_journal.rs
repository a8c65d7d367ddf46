//! A loss of power and of members costs an array with a write journal nothing at all ([`super::log_scene`]): also what a
//! lost member held of a write under way is as before the write or as after it. Parity agrees with the data in each row
//! after a replay.

use super::log_scene::{Scene, Seen, Shape, assemble, histories, play, superblock_of};
use super::policy_records;
use engine::{AssembleOptions, Candidate, ConsistencyPolicy, Durability, JournalPlan, Refusal};
use format::geometry::{Geometry, Level, Parity, default_layout};
use format::journal::{BLOCK_BYTES, MetaBlock, Payload, Ring, checksum};
use format::superblock::{DeviceRole, Superblock, Version};
use format::units::{ArrayByte, Sectors};
use futures_util::future::{join, join_all};
use mdspace_sim::{Random, SimMember, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

fn small_shape() -> Shape {
    Shape { data_at: 64 << 10, ..Shape::small(ConsistencyPolicy::Journal) }
}

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
        has_spare: false,
        ..small_shape()
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
            let scene = Scene::new(Shape { level, slots, ..small_shape() }, &world).await;
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
        let scene = Scene::new(small_shape(), &world).await;
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
        let scene = Scene::new(small_shape(), &world).await;
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
            let mut superblock = superblock_of(&member.contents(), small_shape().version);
            superblock.roles[3] = DeviceRole::Faulty;
            member.plant(superblock.super_at().0, &superblock.encode());
        }
        let words = refused(&scene.here(), AssembleOptions::default()).await;
        assert!(words.contains("m3") && words.contains("do not call device 3 their journal"), "{words}");
    };
    world.run(course, || false).expect("the power does not go");
}

/// What a loss of power has met while a journal came and went.
#[derive(Debug, Default)]
struct Met {
    boundaries: u64,
    journaled: u64,
    plain: u64,
    lost_with_journal: u64,
    left_behind: u64,
}

/// What a loss of power leaves, with all members and without one. `journal` has been given to the array, or will be.
fn look(scene: &Scene, journal: &SimMember, context: &str, cut: u64, met: &mut Met) {
    let mut random = Random::new(cut);
    let world = World::new(cut);
    let mut truth = scene.truth.borrow().clone();
    truth.interrupted();
    let mut of_power_loss = |member: &SimMember| {
        let image = member.after_power_loss(&mut random);
        SimMember::new(member.name(), &world, image, Rc::default()).with_blocks(scene.shape.block_bytes)
    };
    let left: Vec<SimMember> = scene.here().iter().map(&mut of_power_loss).collect();
    let journal = of_power_loss(journal);
    let is_one = |member: &SimMember| {
        let image = member.contents();
        image[4096..4100] == [0xfc, 0x4e, 0x2b, 0xa9] // md's magic number
    };
    for lost in [None, Some(cut as usize % left.len())] {
        let here = left.iter().enumerate().filter(|(index, _)| Some(*index) != lost).map(|(_, member)| member.clone());
        let check = async {
            let mut members: Vec<SimMember> = here.collect();
            if is_one(&journal) {
                members.push(journal.clone());
            }
            let mut assembled = assemble(&members, AssembleOptions::default(), &world).await;
            let is_unnamed =
                |refusal: &Refusal| ["their journal", "a stale journal"].iter().any(|why| refusal.reason.contains(why));
            if is_one(&journal) && assembled.as_ref().is_err_and(is_unnamed) {
                met.left_behind += 1;
                members.pop();
                assembled = assemble(&members, AssembleOptions::default(), &world).await;
            }
            match assembled {
                Ok(array) => {
                    let has_journal = array.status().consistency_policy == "journal";
                    met.journaled += u64::from(has_journal);
                    met.plain += u64::from(!has_journal);
                    met.lost_with_journal += u64::from(has_journal && lost.is_some());
                    assert_eq!(scene.check(&array, &truth).await.first_wrong, None, "{context} without {lost:?}");
                }
                Err(refusal) => {
                    let is_write_hole = refusal.reason.contains("dirty and degraded");
                    assert!(is_write_hole && lost.is_some(), "{context} without {lost:?}: {refusal}");
                }
            }
        };
        world.run(check, || false).expect("the power does not go");
        world.forget_all();
    }
    met.boundaries += 1;
}

#[test]
fn a_journal_that_comes_and_goes_may_be_interrupted_anywhere() {
    let mut met = Met::default();
    for (level, slots, block_bytes) in [(Level::Raid5, 3, 512), (Level::Raid6, 4, 4096)] {
        let shape = Shape {
            policy: ConsistencyPolicy::Resync,
            level,
            slots,
            layout: default_layout(level),
            block_bytes,
            ..small_shape()
        };
        let world = World::new(slots.into());
        let scene = world.run(Scene::new(shape, &world), || false).expect("the power does not go");
        let bytes = scene.members[0].contents().len();
        let journal = SimMember::new("journal".to_owned(), &world, vec![0; bytes], scene.boundaries.clone())
            .with_blocks(block_bytes);
        let random = RefCell::new(Random::new(slots.into()));
        let course = async {
            let options = AssembleOptions { journal: JournalPlan::ToCome, ..AssembleOptions::default() };
            let array = assemble(&scene.here(), options, &world).await.expect("enough members");
            let writer = async |_| {
                for _ in 0..10 {
                    scene.request(&array, &random).await;
                }
            };
            let changes = async {
                // The journal comes back over its own old blocks.
                for uuid in [8, 9, 10] {
                    array.add_journal(candidate(&journal), [uuid; 16], false).await.expect("it fits");
                    scene.request(&array, &random).await;
                    scene.request(&array, &random).await;
                    array.set_consistency(ConsistencyPolicy::Resync).await.expect("nothing fails");
                    scene.request(&array, &random).await;
                }
            };
            join(join_all((0..2).map(writer)), changes).await;
            array.stop().await.expect("nothing fails");
        };
        let cuts = Cell::new(scene.boundaries.get());
        let met = RefCell::new(&mut met);
        let look_at_each = || {
            while cuts.get() < scene.boundaries.get() {
                cuts.set(cuts.get() + 1);
                look(&scene, &journal, &format!("{level:?} cut at {}", cuts.get()), cuts.get(), &mut met.borrow_mut());
            }
            false
        };
        world.run(course, look_at_each).expect("the power does not go");
    }
    let Met { boundaries, journaled, plain, lost_with_journal, left_behind } = met;
    assert!(
        boundaries > 300 && journaled > 200 && plain > 200 && lost_with_journal > 100 && left_behind > 0,
        "{met:?}"
    );
}

#[test]
fn a_journal_that_was_given_up_is_stale_should_it_return() {
    let world = World::new(5);
    let course = async {
        let scene = Scene::new(small_shape(), &world).await;
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
        array.write(0, array.pool().copy_of(&[7; 4096]), Durability::Stable).await.expect("nothing fails");
        let journal = scene.members.last().expect("there is one");
        let before = journal.contents();
        array.set_consistency(ConsistencyPolicy::Resync).await.expect("nothing fails");
        let read = array.read(0, array.pool().take(4096)).await.expect("nothing fails");
        assert_eq!(read[..], [7; 4096]);
        drop(array);
        assert!(journal.contents()[4096..8192].iter().all(|byte| *byte == 0), "its superblock is erased");
        journal.plant(0, &before);
        let refused = assemble(&scene.here(), AssembleOptions::default(), &world).await.map(drop);
        let refused = refused.expect_err("an old copy of the journal").to_string();
        assert!(refused.contains("a stale journal"), "{refused}");
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn old_blocks_of_a_journal_that_returns_are_not_replayed() {
    let world = World::new(6);
    let course = async {
        let scene = Scene::new(Shape { policy: ConsistencyPolicy::Resync, ..small_shape() }, &world).await;
        let journal = SimMember::new("journal".to_owned(), &world, vec![0; 1 << 20], scene.boundaries.clone());
        let options = AssembleOptions { journal: JournalPlan::ToCome, ..AssembleOptions::default() };
        let array = assemble(&scene.here(), options, &world).await.expect("whole");
        array.add_journal(candidate(&journal), [8; 16], false).await.expect("it fits");
        array.write(0, array.pool().copy_of(&[7; 4096]), Durability::Stable).await.expect("nothing fails");
        array.set_consistency(ConsistencyPolicy::Resync).await.expect("nothing fails");
        array.write(0, array.pool().copy_of(&[8; 4096]), Durability::Stable).await.expect("nothing fails");
        array.add_journal(candidate(&journal), [9; 16], false).await.expect("it fits");
        drop(array);
        let all = [scene.here(), vec![journal]].concat();
        let array = assemble(&all, AssembleOptions::default(), &world).await.expect("all are there");
        let read = array.read(0, array.pool().take(4096)).await.expect("nothing fails");
        assert_eq!(read[..], [8; 4096], "the write from the journal's first time is not repeated");
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn a_replay_passes_over_bad_blocks_and_ends_at_what_cannot_be_written_elsewhere() {
    let world = World::new(7);
    let course = async {
        let scene = Scene::new(small_shape(), &world).await;
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
        let block = |fill: u8| array.pool().copy_of(&[fill; 4096]);
        array.write(0, block(6), Durability::Stable).await.expect("nothing fails");
        // The first data chunk of the first stripe is on the first member. One sector of it goes bad.
        let (member, sector) = (&scene.members[0], scene.shape.data_at + 512..scene.shape.data_at + 1024);
        let faults = member.faults();
        faults.bad_writes.borrow_mut().push(sector.clone());
        faults.bad_reads.borrow_mut().push(sector);
        array.write(0, block(7), Durability::Stable).await.expect("the others suffice");
        assert!(array.status().members.iter().any(|member| member.bad_bytes > 0), "the bad-block log names it");
        drop(array);
        member.end_of_process();
        // The rest of the block had not reached the member.
        let (rest, old) = (scene.shape.data_at + 1024, [6; 3072]);
        member.plant(rest, &old);
        let array =
            assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("a bad block is no obstacle");
        let read = array.read(0, array.pool().take(4096)).await.expect("the others give it");
        assert_eq!(read[..], [7; 4096]);
        assert_eq!(member.contents()[rest as usize..][..old.len()], [7; 3072], "the sectors beside it are written");
        drop(array);
        // The second stripe's last data chunk is on that member, too. No log names it.
        let at = 12_288;
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("as before");
        array.write(at, array.pool().copy_of(&[8; 4096]), Durability::Stable).await.expect("the others suffice");
        drop(array);
        member.end_of_process();
        let place = scene.shape.data_at + 4096;
        faults.bad_writes.borrow_mut().push(place..place + 512);
        let refused = assemble(&scene.here(), AssembleOptions::default(), &world).await;
        let refusal = refused.map(|array| array.status()).expect_err("it may hold the earlier bytes there");
        assert!(refusal.advice.as_ref().is_some_and(|advice| advice.contains("leave this member out")), "{refusal}");
        let array = assemble(&scene.members[1..], AssembleOptions::default(), &world).await.expect("without it");
        let read = array.read(at, array.pool().take(4096)).await.expect("the others give it");
        assert_eq!(read[..], [8; 4096]);
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn an_array_goes_on_without_a_journal_that_is_lost() {
    let world = World::new(4);
    let course = async {
        let scene = Scene::new(small_shape(), &world).await;
        let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
        array.write(0, array.pool().copy_of(&[7; 4096]), Durability::Stable).await.expect("nothing fails");
        drop(array);
        let without = &scene.here()[..3];
        let given_up = AssembleOptions { journal: JournalPlan::GivenUp, ..AssembleOptions::default() };
        let refused = assemble(without, given_up.clone(), &world).await.map(drop).expect_err("writes may be lost");
        assert!(refused.to_string().contains("--force gives it up"), "{refused}");
        // A member that is missing as well is taken to be right, by the same word.
        let forced = AssembleOptions { force: true, ..given_up };
        let array = assemble(without, forced, &world).await.expect("by force");
        assert!(array.status().warnings.iter().any(|warning| warning.contains("no journal")));
        array.stop().await.expect("nothing fails");
        let array = assemble(without, AssembleOptions::default(), &world).await.expect("it has no journal");
        let status = array.status();
        assert_eq!((status.consistency_policy, status.in_agreement), ("resync", false), "parity is resynced");
        array.write(8192, array.pool().copy_of(&[8; 4096]), Durability::Stable).await.expect("nothing fails");
        drop(array);
        let refused = assemble(&scene.here(), AssembleOptions::default(), &world).await.map(drop);
        let refused = refused.expect_err("the journal was left behind");
        assert!(refused.to_string().contains("a stale journal"), "{refused}");
    };
    world.run(course, || false).expect("the power does not go");
}

/// A place that a payload names: mostly within `sectors`.
fn hostile_place(random: &mut Random, sectors: u64) -> Sectors {
    Sectors(match random.within(0..12) {
        0 => random.number(),
        1 => u64::MAX - random.within(0..16),
        2 => sectors + random.within(0..16),
        3 => random.within(0..sectors),
        _ => random.within(0..sectors / 8) * 8,
    })
}

fn hostile_payload(random: &mut Random, parity: &Parity) -> Payload {
    let rows = parity.stripes() * parity.chunk_bytes() / 512;
    match random.within(0..5) {
        0 | 1 => Payload::Data { at: hostile_place(random, parity.array_bytes() / 512), checksum: 0 },
        2 | 3 => Payload::Parity { at: hostile_place(random, rows), checksums: vec![0; parity.parities().into()] },
        _ => Payload::Flush { rows: (0..random.within(0..5)).map(|_| hostile_place(random, rows)).collect() },
    }
}

/// Meta blocks one after the other, most of them with the next sequence number and right checksums. They may go round and lie
/// over the first. Rows that any of them names are added to `named`.
fn hostile_ring(random: &mut Random, superblock: &Superblock, parity: &Parity, named: &mut BTreeSet<u64>) -> Vec<u8> {
    let (ring, uuid) = (Ring::of(superblock), &superblock.set_uuid);
    let mut bytes = vec![0; ring.blocks() as usize * BLOCK_BYTES];
    random.fill(&mut bytes);
    let place = |at: Sectors| ring.place(at).0 as usize..ring.place(at).0 as usize + BLOCK_BYTES;
    let mut sequence = *random.pick(&[1, 77, u64::MAX - 2]);
    let mut at = Sectors(0);
    for _ in 0..random.within(1..12) {
        let mut payloads: Vec<_> = (0..random.within(0..5)).map(|_| hostile_payload(random, parity)).collect();
        let mut next = ring.after(at, 1);
        for payload in &mut payloads {
            let row = match payload {
                Payload::Data { at, .. } if at.0 < parity.array_bytes() / 512 => {
                    Some(parity.locate(ArrayByte(at.bytes())).1.0)
                }
                Payload::Parity { at, .. } => at.checked_bytes(),
                Payload::Data { .. } | Payload::Flush { .. } => None,
            };
            named.extend(row);
            let checksums = match payload {
                Payload::Data { checksum, .. } => std::slice::from_mut(checksum),
                Payload::Parity { checksums, .. } => checksums,
                Payload::Flush { .. } => &mut [],
            };
            for sum in checksums {
                *sum = checksum(uuid, &bytes[place(next)]) ^ u32::from(random.once_in(40));
                next = ring.after(next, 1);
            }
        }
        let mut block = MetaBlock { sequence, position: at, payloads }.encode(uuid);
        if random.once_in(8) {
            let word = 12 + 4 * random.within(0..12) as usize;
            block[word..word + 4].copy_from_slice(&(random.within(0..4096) as u32).to_le_bytes());
            block[4..8].fill(0);
            let sum = checksum(uuid, &block);
            block[4..8].copy_from_slice(&sum.to_le_bytes());
        }
        bytes[place(at)].copy_from_slice(&block);
        sequence = sequence.wrapping_add(if random.once_in(10) { random.within(0..3) } else { 1 });
        at = next;
    }
    bytes
}

#[test]
fn a_hostile_journal_is_refused_by_name_or_changes_nothing_but_rows_that_it_names() {
    let (mut refused, mut replayed) = (0, 0);
    for seed in 0..1500 {
        let (world, mut random) = (World::new(seed), Random::new(seed));
        let course = async {
            let shape = Shape { missing: BTreeSet::new(), fails: None, has_checksums: false, ..shape(&mut random) };
            let scene = Scene::new(shape, &world).await;
            let (version, data_at) = (scene.shape.version, scene.shape.data_at as usize);
            let journal = scene.members.last().expect("there is one");
            let superblock = superblock_of(&journal.contents(), version);
            let Ok(Geometry::Parity(parity)) = Geometry::new(&superblock.shape(&[])) else { panic!("it has parity") };
            let mut named = BTreeSet::new();
            let ring = hostile_ring(&mut random, &superblock, &parity, &mut named);
            journal.plant(superblock.data_at().0, &ring);
            let before: Vec<Vec<u8>> = scene.members.iter().map(SimMember::contents).collect();
            let contents = || scene.members.iter().map(SimMember::contents);

            match assemble(&scene.here(), AssembleOptions::default(), &world).await {
                Ok(array) => {
                    replayed += 1;
                    let bytes = array.bytes() as usize;
                    array.read(0, array.pool().take(bytes)).await.expect("all members are there");
                    array.stop().await.expect("nothing fails");
                }
                Err(refusal) => {
                    refused += 1;
                    let words = refusal.to_string();
                    assert!(words.contains(&journal.name()) && words.contains("journal"), "seed {seed}: {words}");
                }
            }
            let used = (parity.stripes() * parity.chunk_bytes()) as usize;
            for (after, before) in contents().zip(&before).take(scene.shape.slots.into()) {
                let (rows, rest) = (data_at..data_at + used, data_at + used..before.len());
                assert!(after[rest.clone()] == before[rest], "seed {seed}: it wrote behind the data");
                let (new, old) = (after[rows.clone()].chunks(4096), before[rows].chunks(4096));
                for (row, _) in (0..).step_by(4096).zip(new.zip(old)).filter(|(_, (new, old))| new != old) {
                    assert!(named.contains(&row), "seed {seed}: the journal does not name row {row}");
                }
            }
        };
        world.run(course, || false).expect("the power does not go");
    }
    assert!(refused > 100 && replayed > 400, "both were met: {refused} refused, {replayed} replayed");
}
