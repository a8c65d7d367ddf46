//! Members without space: sparse files in a full file system.
//!
//! The writer gets an error, and no member is failed. What was answered reads back at any moment, without any one
//! member, and after a power cut. Once there is space, copies and parity are what the array's state says.

use crate::coalescing::scene::{KIB, Scene as Gathered};
use crate::healing::{DATA_OFFSET, RAID1, RAID5, RAID6, RAID10, ROW, Scene, Setup, candidate, of, play};
use engine::{Array, ArrayErrorKind, Clock, Durability, WriteBack};
use format::geometry::Level;
use mdspace_sim::{Random, SimMember, VirtualClock};
use std::cell::RefCell;
use std::ops::Range;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const RAID4: Setup = Setup { level: Level::Raid4, layout: 0, ..RAID5 };
const SETUPS: [Setup; 6] = [RAID1, Setup { slots: 3, ..RAID1 }, RAID4, RAID5, RAID6, RAID10];

/// Ranges of the array whose last write failed.
#[derive(Default)]
struct Doubt(RefCell<Vec<Range<u64>>>);

impl Doubt {
    fn covers(&self, at: u64) -> bool {
        self.0.borrow().iter().any(|range| range.contains(&at))
    }

    fn settle(&self, range: &Range<u64>) {
        let rest = |other: Range<u64>| [other.start..other.end.min(range.start), other.start.max(range.end)..other.end];
        let left = self.0.take().into_iter().flat_map(rest).filter(|part| part.start < part.end).collect();
        self.0.replace(left);
    }
}

/// Reads the whole array and compares what was answered.
async fn check(scene: &Scene, array: &Simulated, doubt: &Doubt, context: &str) {
    let found = array.read(0, array.pool().take(array.bytes() as usize)).await;
    let found = found.unwrap_or_else(|error| panic!("{:?} {context}: {error}", scene.setup));
    let truth = scene.truth.borrow();
    let wrong = (0..array.bytes()).find(|&at| found[at as usize] != truth[at as usize] && !doubt.covers(at));
    assert_eq!(wrong, None, "{:?} {context}: the first byte that is not what was answered", scene.setup);
}

/// Writes at random positions and records what must be read; returns the number of failed writes.
async fn write_about(scene: &Scene, array: &Simulated, doubt: &Doubt, random: &mut Random, count: u32) -> u32 {
    let mut refused = 0;
    for _ in 0..count {
        let longest = if random.once_in(3) { array.bytes() } else { 5 * ROW };
        let at = random.within(0..array.bytes() - 1);
        let range = at..(at + random.within(1..longest)).min(array.bytes());
        let mut bytes = vec![0; (range.end - range.start) as usize];
        random.fill(&mut bytes);
        match array.write(at, array.pool().copy_of(&bytes), Durability::Stable).await {
            Ok(()) => {
                scene.truth.borrow_mut()[range.start as usize..range.end as usize].copy_from_slice(&bytes);
                doubt.settle(&range);
            }
            Err(error) => {
                assert_eq!(error.kind, ArrayErrorKind::NoSpace, "{:?}: {error}", scene.setup);
                doubt.0.borrow_mut().push(range);
                refused += 1;
            }
        }
    }
    refused
}

/// Takes the space from some members, in a random part of their data.
fn fill_up(members: &[SimMember], which: u64, random: &mut Random) {
    for (index, member) in members.iter().enumerate() {
        if which & 1 << index != 0 {
            let start = random.within(0..24) * ROW / 2;
            let end = start + random.within(1..40) * ROW / 2;
            member.faults().full.borrow_mut().push(DATA_OFFSET + start..DATA_OFFSET + end);
        }
    }
}

fn make_room(members: &[SimMember]) {
    members.iter().for_each(|member| drop(member.faults().full.take()));
}

fn check_all_are_members(array: &Simulated, members: &[SimMember]) {
    let status = array.status();
    let states: Vec<_> =
        members.iter().map(|member| (of(&status, member).state, of(&status, member).bad_bytes)).collect();
    assert!(states.iter().all(|state| *state == ("in_sync", 0)) && status.broken.is_none(), "{states:?}");
    assert!(members.iter().all(|member| of(&status, member).errors == 0), "no member is at fault");
}

/// Plays a scene for each combination of members without space, with several seeds.
fn for_each_case(scene: impl AsyncFn(&Scene, u64, &mut Random)) {
    for setup in SETUPS {
        for which in (0..setup.slots).map(|slot| 1 << slot).chain([0b11, u64::MAX]) {
            for seed in 0..3 {
                let mut random = Random::new(seed * 64 + which % 61);
                play(setup, seed + 100, async |own| scene(own, which, &mut random).await);
            }
        }
    }
}

#[test]
fn no_member_is_failed_for_lack_of_space_and_answered_writes_read_back_without_any_one() {
    let refused = std::cell::Cell::new(0);
    for_each_case(async |scene, which, random| {
        let (members, doubt) = (scene.create().await, Doubt::default());
        let array = scene.serve(&members).await;
        fill_up(&members, which, random);
        for _ in 0..4 {
            refused.set(refused.get() + write_about(scene, &array, &doubt, random, 2).await);
            check(scene, &array, &doubt, "at once").await;
        }
        check_all_are_members(&array, &members);
        // Data that is not on the member still follows from the others.
        let lost = random.within(0..members.len() as u64) as usize;
        array.fail(&members[lost].name()).await.expect("the level survives it");
        check(scene, &array, &doubt, "without another").await;
        write_about(scene, &array, &doubt, random, 2).await;
        check(scene, &array, &doubt, "written without another").await;
        make_room(&members);
        scene.pause().await;
        scene.pause().await;
        check(scene, &array, &doubt, "with room").await;
        array.stop().await.expect("there is room: it stops clean");
        let rest: Vec<_> = (0..members.len()).filter(|&n| n != lost).map(|n| members[n].clone()).collect();
        let array = scene.assemble(&rest, false).await.expect("clean, so degraded is no matter");
        check(scene, &array, &doubt, "later").await;
    });
    assert!(refused.get() > 100, "only {} writes found no room", refused.get());
}

#[test]
fn once_there_is_space_copies_and_parity_are_written_without_another_request() {
    for_each_case(async |scene, which, random| {
        let (members, doubt) = (scene.create().await, Doubt::default());
        let array = scene.serve(&members).await;
        fill_up(&members, which, random);
        let refused = write_about(scene, &array, &doubt, random, 6).await;
        if refused > 0 {
            let stopped = scene.assemble(&members, false).await;
            assert!(stopped.is_ok_and(|other| !other.status().in_agreement), "members say that they may not agree");
        }
        make_room(&members);
        if random.once_in(2) {
            scene.pause().await;
            scene.pause().await;
        }
        check_all_are_members(&array, &members);
        assert_eq!(write_about(scene, &array, &doubt, random, 2).await, 0, "there is room");
        array.stop().await.expect("what is owed is written by the stop");
        for missing in 0..members.len() {
            let rest: Vec<_> = (0..members.len()).filter(|&n| n != missing).map(|n| members[n].clone()).collect();
            let array = scene.assemble(&rest, false).await.expect("clean");
            check(scene, &array, &doubt, "without each").await;
        }
    });
}

#[test]
fn an_array_whose_members_have_no_space_is_not_marked_clean() {
    for_each_case(async |scene, which, random| {
        let (members, doubt) = (scene.create().await, Doubt::default());
        let array = scene.serve(&members).await;
        fill_up(&members, which, random);
        let refused = write_about(scene, &array, &doubt, random, 4).await;
        scene.pause().await;
        match array.stop().await {
            Ok(()) => {} // everything was overwritten, or no write failed
            Err(error) => {
                assert!(error.kind == ArrayErrorKind::NoSpace && refused > 0, "{error}");
                let again = scene.assemble(&members, false).await.expect("every member is there");
                assert!(!again.status().in_agreement, "{:?}", scene.setup);
                make_room(&members);
                again.resync(&|_, _| {}).await.expect("there is room");
                check(scene, &again, &doubt, "resynced").await;
                again.stop().await.expect("stops clean");
            }
        }
        let array = scene.assemble(&members[1..], false).await.expect("clean");
        check(scene, &array, &doubt, "without the first").await;
    });
}

#[test]
fn after_a_power_cut_the_resync_repairs_what_found_no_space() {
    for_each_case(async |scene, which, random| {
        let (members, doubt) = (scene.create().await, Doubt::default());
        let array = scene.serve(&members).await;
        fill_up(&members, which, random);
        write_about(scene, &array, &doubt, random, 5).await;
        if random.once_in(2) {
            scene.pause().await;
        }
        let left = |member: &SimMember| {
            let contents = member.after_power_loss(&mut Random::new(which));
            SimMember::new(member.name(), &scene.world, contents, scene.boundaries.clone())
        };
        let left: Vec<_> = members.iter().map(left).collect();
        let again = scene.assemble(&left, false).await.expect("every member is there");
        check(scene, &again, &doubt, "after the cut").await;
        again.resync(&|_, _| {}).await.expect("every member is there");
        check(scene, &again, &doubt, "resynced").await;
        again.stop().await.expect("stops clean");
        let array = scene.assemble(&left[1..], false).await.expect("clean");
        check(scene, &array, &doubt, "without the first").await;
    });
}

#[test]
fn a_recovery_waits_for_space_and_its_member_stays() {
    for setup in SETUPS {
        play(setup, 9, async |scene| {
            let members = scene.create().await;
            let array = scene.serve(&members).await;
            array.fail("member0").await.expect("the level survives it");
            let spare = scene.member("spare");
            spare.faults().full.borrow_mut().push(DATA_OFFSET + 5 * ROW..u64::MAX);
            array.add(candidate(&spare), [9; 16], false).await.expect("it fits");
            scene.pause().await;
            scene.pause().await;
            assert_eq!(of(&array.status(), &spare).state, "recovering", "{setup:?}");
            scene.check(&array).await;
            spare.faults().full.take();
            for _ in 0..5 {
                scene.pause().await;
            }
            assert_eq!(of(&array.status(), &spare).state, "in_sync", "{setup:?}");
            array.stop().await.expect("stops clean");
            let now: Vec<_> = members[1..].iter().cloned().chain([spare]).collect();
            scene.check_without_each(&now).await;
        });
    }
}

#[test]
fn dirty_data_that_finds_no_space_is_readable_and_fails_the_flush() {
    for (level, which) in [(Level::Raid5, 1), (Level::Raid5, 8), (Level::Raid6, 3)] {
        let scene = Gathered::new(level, 6);
        scene.write_back(WriteBack::All);
        let keeper = scene.array.clone();
        scene.world.spawn(async move { keeper.keep_whole().await });
        let life = async {
            for member in &scene.members[..which] {
                member.faults().full.borrow_mut().push(96 * KIB..u64::MAX);
            }
            for number in 0..12 {
                scene.write(number * scene.stripe_bytes / 2 + 4096, 40 * KIB).await;
            }
            let array = &scene.array;
            for _ in 0..2 {
                let flushed = array.flush().await;
                assert!(flushed.is_err_and(|error| error.kind == ArrayErrorKind::NoSpace), "{level:?} {which}");
                let found = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("nothing is lost");
                assert!(found[..] == scene.truth.borrow()[..], "{level:?} {which}: what was answered is read");
            }
            assert!(array.status().broken.is_none() && array.status().in_sync == 8, "{level:?} {which}");
            make_room(&scene.members);
            array.flush().await.expect("there is room");
            let clock = scene.world.clock();
            clock.sleep_until(clock.now() + Duration::from_secs(2)).await;
            scene.check().await; // stopped clean, and equal without each member
        };
        scene.world.run(life, || false).expect("not stopped");
    }
}

/// Takes the space from whole members, as a full file system that writes nothing in place does.
fn fill_up_wholly(members: &[SimMember], which: u64) {
    for (_, member) in members.iter().enumerate().filter(|(index, _)| which & 1 << index != 0) {
        member.faults().full.borrow_mut().push(0..u64::MAX);
    }
}

#[test]
fn no_member_is_failed_for_lack_of_space_for_its_superblock() {
    let refused = std::cell::Cell::new(0);
    for_each_case(async |scene, which, random| {
        let (members, doubt) = (scene.create().await, Doubt::default());
        let array = scene.serve(&members).await;
        if random.once_in(2) {
            write_about(scene, &array, &doubt, random, 1).await; // else the mark finds no room
        }
        if random.once_in(2) {
            scene.pause().await; // else the array is not marked clean yet
        }
        fill_up_wholly(&members, which);
        for _ in 0..3 {
            refused.set(refused.get() + write_about(scene, &array, &doubt, random, 2).await);
            check(scene, &array, &doubt, "at once").await;
            scene.pause().await;
        }
        check_all_are_members(&array, &members);
        if random.once_in(3) {
            // Power is lost, or another member fails before there is room.
            let left = |member: &SimMember| {
                let contents = member.after_power_loss(&mut Random::new(which));
                SimMember::new(member.name(), &scene.world, contents, scene.boundaries.clone())
            };
            let left: Vec<_> = members.iter().map(left).collect();
            let again = scene.assemble(&left, false).await.expect("every member is there");
            assert_eq!(usize::from(again.status().in_sync), members.len(), "{:?}: none is stale", scene.setup);
            check(scene, &again, &doubt, "after the cut").await;
        }
        make_room(&members);
        scene.pause().await;
        scene.pause().await;
        check_all_are_members(&array, &members);
        assert_eq!(write_about(scene, &array, &doubt, random, 2).await, 0, "there is room");
        array.stop().await.expect("there is room: it stops clean");
        for missing in 0..members.len() {
            let rest: Vec<_> = (0..members.len()).filter(|&n| n != missing).map(|n| members[n].clone()).collect();
            let array = scene.assemble(&rest, false).await.expect("clean");
            check(scene, &array, &doubt, "without each").await;
        }
    });
    assert!(refused.get() > 100, "only {} writes found no room", refused.get());
}

#[test]
fn a_member_that_is_failed_while_others_lack_space_is_recorded_once_there_is_space() {
    for_each_case(async |scene, which, random| {
        let (members, doubt) = (scene.create().await, Doubt::default());
        let array = scene.serve(&members).await;
        write_about(scene, &array, &doubt, random, 1).await;
        fill_up_wholly(&members, which);
        let lost = random.within(0..members.len() as u64) as usize;
        let failed = array.fail(&members[lost].name()).await;
        let others_lack_space = which & !(1 << lost) & ((1 << members.len()) - 1) != 0;
        assert_eq!(failed.is_err(), others_lack_space, "{:?} {which}: {failed:?}", scene.setup);
        if others_lack_space {
            let refused = write_about(scene, &array, &doubt, random, 1).await;
            assert_eq!(refused, 1, "{:?} {which}: no superblock says yet that the member left", scene.setup);
        }
        check(scene, &array, &doubt, "without another").await;
        make_room(&members);
        scene.pause().await;
        scene.pause().await;
        write_about(scene, &array, &doubt, random, 2).await;
        let status = array.status();
        assert_eq!((usize::from(status.in_sync), status.broken), (members.len() - 1, None), "{:?}", scene.setup);
        array.stop().await.expect("there is room: it stops clean");
        let again = scene.assemble(&members, false).await.expect("degraded");
        assert_eq!(
            usize::from(again.status().in_sync),
            members.len() - 1,
            "{:?}: the failed one is stale",
            scene.setup
        );
        check(scene, &again, &doubt, "later").await;
    });
}
