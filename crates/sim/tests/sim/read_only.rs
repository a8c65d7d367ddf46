//! An array that becomes read-only while it is used, and writable again: what was answered is on the members, which do not
//! change meanwhile, and are clean to whatever assembles them.

use super::healing::{DATA_OFFSET, RAID1, RAID5, RAID6, RAID10, Scene, Setup, candidate, of, play};
use engine::{Array, ArrayErrorKind, Clock, Durability, SweepTransfers, WriteBack};
use format::geometry::Level;
use futures_util::future::{join, join_all};
use mdspace_sim::{Random, SimMember, VirtualClock};
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const SETUPS: [Setup; 5] = [RAID1, RAID5, RAID6, RAID10, Setup { level: Level::Raid4, layout: 0, ..RAID5 }];

const WRITERS: u64 = 6;
/// Rounds of each setup; in each, the writers are interrupted at another moment.
const ROUNDS: u64 = 12;

/// Writes to one of several parts of the array until a write is refused. What was answered is noted.
async fn write_until_refused(scene: &Scene, array: &Simulated, writer: u64, random: &mut Random) {
    let share = array.bytes() / WRITERS;
    loop {
        let at = writer * share + random.within(0..share - 1);
        let mut bytes = vec![0; (1 + random.within(0..(writer + 1) * share - at)) as usize];
        random.fill(&mut bytes);
        match array.write(at, array.pool().copy_of(&bytes), Durability::Ordinary).await {
            Ok(()) => scene.truth.borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes),
            Err(error) => return assert_eq!(error.kind, ArrayErrorKind::ReadOnly, "{error}"),
        }
    }
}

/// Members with the same contents, as another process would find them.
fn copies(scene: &Scene, members: &[SimMember]) -> Vec<SimMember> {
    let copy = |member: &SimMember| SimMember::new(member.name(), &scene.world, member.contents(), Rc::default());
    members.iter().map(copy).collect()
}

/// Whether members still hold what `copies` were made of.
fn are_unchanged(members: &[SimMember], copies: &[SimMember]) -> bool {
    members.iter().zip(copies).all(|(member, copy)| member.contents() == copy.contents())
}

#[test]
fn members_of_an_array_made_read_only_hold_what_was_answered_and_do_not_change() {
    for setup in SETUPS {
        for round in 0..ROUNDS {
            play(setup, round, async |scene| {
                let context = format!("{setup:?}, round {round}");
                let members = scene.create().await;
                let array = scene.serve(&members).await;
                let (clock, keeper) = (scene.world.clock(), array.clone());
                if round % 2 == 1 {
                    let keeper = array.clone();
                    scene.world.spawn(async move { keeper.write_back(WriteBack::All).await });
                }
                scene.world.spawn(async move { keeper.mark_clean_when_idle(Duration::from_millis(200)).await });
                let writers = (0..WRITERS).map(async |writer| {
                    let mut random = Random::new(round << 8 | writer);
                    write_until_refused(scene, &array, writer, &mut random).await;
                });
                let change = async {
                    clock.sleep_until(clock.now() + Duration::from_micros(137 * round * round)).await;
                    array.make_read_only().await.expect("all members are there");
                    copies(scene, &members)
                };
                let (_, left) = join(join_all(writers), change).await;
                let status = array.status();
                assert!(status.read_only && status.made_read_only && status.state == "clean", "{context}: {status:?}");
                scene.check(&array).await;
                scene.pause().await;
                assert!(are_unchanged(&members, &left), "{context}: a member changed");
                scene.check_without_each(&left).await;

                array.make_writable().expect("it was not opened read-only");
                scene.write(&array, 1000..array.bytes() - 1000).await;
                scene.check(&array).await;
                array.stop().await.expect("stops clean");
                scene.check_without_each(&members).await;
            });
        }
    }
}

#[test]
fn a_recovery_and_a_repair_wait_until_the_array_is_writable() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        play(setup, 5, async |scene| {
            let members = scene.create().await;
            let spare = scene.member("spare");
            let array = scene.serve(&members).await;
            array.fail(&members[1].name()).await.expect("the others are there");
            array.add(candidate(&spare), [9; 16], false).await.expect("it fits");
            // A window or two are done by then.
            let begun = array.status().sweep.is_some();
            while !begun && array.status().sweep.is_none() {
                let clock = scene.world.clock();
                clock.sleep_until(clock.now() + Duration::from_micros(10)).await;
            }
            array.make_read_only().await.expect("enough members are there");
            assert!(array.status().sweep.is_none(), "{setup:?}");
            let chunks = (0..setup.component_bytes).step_by(16 << 10).map(|at| DATA_OFFSET + at);
            members[0].faults().latent.borrow_mut().extend(chunks.map(|at| at..at + 512));
            let unreadable = || members[0].faults().latent.borrow().len();
            let before = unreadable();
            let all: Vec<_> = members.iter().chain([&spare]).cloned().collect();
            let left = copies(scene, &all);
            let is_redundant = setup.level == Level::Raid6;
            let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
            assert!(read.is_ok() || !is_redundant, "{setup:?}: P or Q gives it");
            scene.pause().await;
            assert!(are_unchanged(&all, &left), "{setup:?}: a member changed");
            let refusal = array.add(candidate(&scene.member("late")), [8; 16], false).await.expect_err("read-only");
            assert!(refusal.to_string().contains("read-only=off"), "{refusal}");
            assert_eq!(of(&array.status(), &spare).state, "recovering", "{setup:?}");

            array.make_writable().expect("it was not opened read-only");
            scene.pause().await;
            assert!(!is_redundant || unreadable() < before, "{setup:?}: what was found is repaired");
            members[0].faults().heal();
            array.freeze_sweeps(false); // as a failed recovery waits for a change
            scene.pause().await;
            assert_eq!(of(&array.status(), &spare).state, "in_sync", "{setup:?}");
            scene.check(&array).await;
            array.stop().await.expect("stops clean");
        });
    }
}

/// Sweeps are held when some windows are under way, and let go before these have ended.
#[test]
fn a_recovery_that_is_held_for_a_moment_recovers_all_the_same() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        for moment in 0..40 {
            play(setup, 9, async |scene| {
                let members = scene.create().await;
                let spare = scene.member("spare");
                let array = scene.serve(&members).await;
                let transfers = SweepTransfers { window_bytes: Some(4096), in_flight_bytes: 32 << 10 };
                array.set_sweep_transfers(transfers).expect("powers of two");
                array.fail(&members[1].name()).await.expect("the others are there");
                array.add(candidate(&spare), [9; 16], false).await.expect("it fits");
                let clock = scene.world.clock();
                clock.sleep_until(clock.now() + Duration::from_micros(97 * moment)).await;
                array.freeze_sweeps(true);
                clock.sleep_until(clock.now() + Duration::from_micros(100 + 13 * (moment % 7))).await;
                array.freeze_sweeps(false);
                scene.pause().await;
                assert_eq!(of(&array.status(), &spare).state, "in_sync", "{setup:?}, {moment}");
                array.stop().await.expect("stops clean");
                let all: Vec<_> = members.iter().enumerate().filter(|(index, _)| *index != 1).collect();
                let all: Vec<_> = all.into_iter().map(|(_, member)| member.clone()).chain([spare]).collect();
                scene.check_without_each(&all).await;
            });
        }
    }
}

#[test]
fn a_member_that_leaves_a_read_only_array_is_recorded_before_the_next_write() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        play(setup, 6, async |scene| {
            let members = scene.create().await;
            let array = scene.serve(&members).await;
            array.make_read_only().await.expect("all members are there");
            array.fail(&members[0].name()).await.expect("the others are there");
            scene.check(&array).await;
            array.make_writable().expect("it was not opened read-only");
            scene.write(&array, 0..array.bytes()).await;
            array.stop().await.expect("stops clean");
            // The one that left is stale, and with it the data would be old.
            let again = scene.assemble(&members, false).await.expect("the others are there");
            assert_eq!(again.status().in_sync, setup.slots as u16 - 1, "{setup:?}");
            scene.check(&again).await;
        });
    }
}

#[test]
fn an_array_that_cannot_be_marked_clean_does_not_claim_to_be_read_only() {
    play(RAID5, 7, async |scene| {
        let members = scene.create().await;
        let array = scene.serve(&members).await;
        scene.write(&array, 0..array.bytes()).await;
        members.iter().take(2).for_each(|member| member.faults().gone.set(true));
        array.make_read_only().await.expect_err("two members are gone");
        assert!(!array.status().made_read_only);
    });
}

#[test]
fn an_array_that_was_opened_read_only_stays_so() {
    play(RAID5, 8, async |scene| {
        let members = scene.create().await;
        let options = engine::AssembleOptions { read_only: true, ..engine::AssembleOptions::default() };
        let offered = members.iter().map(candidate).collect();
        let pool = engine::Pool::new(1 << 20);
        let array = Array::assemble(offered, options, pool, scene.world.clock()).await.expect("whole");
        array.make_read_only().await.expect("it is so");
        let refusal = array.make_writable().expect_err("it was opened so");
        assert!(refusal.to_string().contains("without --read-only"), "{refusal}");
        assert!(array.status().read_only && !array.status().made_read_only);
    });
}
