//! Replacement of members in use: while the array is used, while the old or the new member fails, and with power cuts
//! at any write.

use super::healing::{DATA_OFFSET, RAID1, RAID5, RAID6, RAID10, ROW, Scene, Setup, candidate, of, play};
use engine::{Array, Clock, Durability, Operation, Refusal, SweepTransfers};
use format::geometry::Level;
use futures_util::future::{join, join3};
use mdspace_sim::faults::{Mishap, Planned};
use mdspace_sim::{Random, SimMember, VirtualClock};
use std::cell::{Cell, RefCell};
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const SETUPS: [Setup; 5] = [RAID1, RAID5, RAID6, RAID10, Setup { level: Level::Raid10, layout: 0x201, ..RAID10 }];

/// What happens while member 1 is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Writes,
    /// The new member fails at some position of its data.
    NewFails,
    /// The old member is gone.
    OldFails,
    /// The old member has unreadable sectors.
    OldHasErrors,
    /// The array is stopped and started again.
    Restart,
}

#[test]
fn a_member_is_replaced_while_it_stays_in_use_whatever_happens() {
    use Meanwhile::{NewFails, OldFails, OldHasErrors, Restart, Writes};
    for setup in SETUPS {
        for meanwhile in [Writes, NewFails, OldFails, OldHasErrors, Restart] {
            let context = format!("{setup:?} {meanwhile:?}");
            play(setup, 20, async |scene| {
                let members = scene.create().await;
                let new = scene.member("new");
                let mut array = scene.serve(&members).await;
                if meanwhile == NewFails {
                    let at = DATA_OFFSET + 20 * ROW;
                    new.faults().bad_writes.borrow_mut().push(at..at + 512);
                }
                if meanwhile == OldHasErrors {
                    let at = DATA_OFFSET + 11 * ROW;
                    members[1].faults().bad_reads.borrow_mut().push(at..at + 1024);
                }
                array.freeze_sweeps(true);
                array.replace(&members[1].name(), candidate(&new), [9; 16], false).await.expect("it fits");
                let status = array.status();
                assert_eq!(of(&status, &new).state, "replacement", "{context}");
                assert_eq!(status.in_sync, status.raid_disks, "{context}: as redundant as before");
                scene.write(&array, 7000..array.bytes() / 2).await;
                if meanwhile == Restart {
                    array.stop().await.expect("stops clean");
                    let all: Vec<_> = members.iter().chain([&new]).cloned().collect();
                    array = scene.serve(&all).await;
                }
                array.freeze_sweeps(false);
                scene.write(&array, array.bytes() / 3..array.bytes() - 3000).await;
                if meanwhile == OldFails {
                    members[1].faults().gone.set(true);
                }
                scene.write(&array, 0..20_000).await;
                scene.pause().await;
                scene.check(&array).await;
                let status = array.status();
                let (old, of_new) = (of(&status, &members[1]).state, of(&status, &new).state);
                let expected = if meanwhile == NewFails { ("in_sync", "faulty") } else { ("faulty", "in_sync") };
                assert_eq!((old, of_new), expected, "{context}");
                array.stop().await.expect("stops clean");
                members[1].faults().heal();
                let mut all: Vec<_> = members.iter().chain([&new]).cloned().collect();
                let array = scene.assemble(&all, false).await.expect("whole");
                let status = array.status();
                assert_eq!((status.in_sync, &*status.state), (status.raid_disks, "clean"), "{context}: {status:?}");
                scene.check(&array).await;
                all.remove(if meanwhile == NewFails { all.len() - 1 } else { 1 });
                scene.check_without_each(&all).await;
            });
        }
    }
}

#[test]
fn the_new_member_is_copied_from_the_old_one_alone_where_that_is_readable() {
    for setup in SETUPS {
        play(setup, 21, async |scene| {
            let members = scene.create().await;
            let new = scene.member("new");
            let array = scene.serve(&members).await;
            array.replace(&members[1].name(), candidate(&new), [9; 16], false).await.expect("it fits");
            scene.pause().await;
            let status = array.status();
            assert_eq!(of(&status, &new).state, "in_sync", "{setup:?}");
            for member in &members {
                let expected = if member.name() == members[1].name() { setup.component_bytes } else { 0 };
                assert_eq!(of(&status, member).read_bytes, expected, "{setup:?}: {}", member.name());
            }
            assert_eq!(of(&status, &new).written_bytes, setup.component_bytes, "{setup:?}");
            array.stop().await.expect("stops clean");
        });
    }
}

#[test]
fn a_spare_can_replace_a_member_and_invalid_replacements_are_refused() {
    play(RAID5, 22, async |scene| {
        let members = scene.create().await;
        let (spare, other) = (scene.member("spare"), scene.member("other"));
        let array = scene.serve(&members).await;
        array.add(candidate(&spare), [8; 16], false).await.expect("it fits");
        array.freeze_sweeps(true);
        for (old, expected) in [("nobody", "not a member"), ("spare", "only a member that is in sync")] {
            let refusal = array.replace(old, candidate(&other), [9; 16], false).await.expect_err(old);
            assert!(refusal.to_string().contains(expected), "{refusal}");
        }
        let refusal = array.replace("member0", candidate(&members[2]), [9; 16], false).await.expect_err("a member");
        assert!(refusal.to_string().contains("a member of this array already"), "{refusal}");
        array.replace_with_spare("member0", "spare").await.expect("a spare");
        let refusal = array.replace("member0", candidate(&other), [9; 16], false).await.expect_err("twice");
        assert!(refusal.to_string().contains("is being replaced already"), "{refusal}");
        // The replacement is failed by command and begun again.
        array.fail("spare").await.expect("nothing depends on it");
        array.replace("member0", candidate(&other), [9; 16], false).await.expect("it fits");
        array.freeze_sweeps(false);
        scene.pause().await;
        assert_eq!(of(&array.status(), &other).state, "in_sync");
        scene.check(&array).await;
        array.stop().await.expect("stops clean");
    });
}

/// Adds a member as a replacement of `old`, or as a spare.
async fn take_in(array: &Simulated, new: &SimMember, old: Option<&str>, overwrite: bool) -> Result<(), Refusal> {
    match old {
        Some(old) => array.replace(old, candidate(new), [9; 16], overwrite).await,
        None => array.add(candidate(new), [9; 16], overwrite).await,
    }
}

#[test]
fn what_may_be_a_member_of_another_array_is_added_only_when_asked() {
    for replaces in [false, true] {
        for at in [0, 4096] {
            play(RAID5, 24, async |scene| {
                let (members, newer, bad) = (scene.create().await, scene.member("newer"), scene.member("bad"));
                newer.plant(at, &0xa92b_4efc_u32.to_le_bytes());
                bad.faults().latent.borrow_mut().push(at..at + 512);
                let array = scene.serve(&members).await;
                for (new, old, words) in [
                    (&newer, "member0", "newer: superblock.major_version: "),
                    (&bad, "newer", "bad: superblock: read of"),
                ] {
                    let (boundaries, old) = (scene.boundaries.get(), replaces.then_some(old));
                    let refusal = take_in(&array, new, old, false).await.expect_err(words);
                    assert!(refusal.to_string().starts_with(words), "{refusal}");
                    assert!(refusal.advice.is_some_and(|advice| advice.contains("--force")));
                    assert_eq!((scene.boundaries.get(), refusal.changed), (boundaries, None), "{words}");
                    take_in(&array, new, old, true).await.expect("it was asked for");
                    scene.pause().await;
                }
                scene.check(&array).await;
                array.stop().await.expect("stops clean");
            });
        }
    }
}

#[test]
fn consent_to_a_spare_of_one_array_overwrites_nothing_else() {
    play(RAID6, 26, async |scene| {
        let (members, spare, newer) = (scene.create().await, scene.member("spare"), scene.member("newer"));
        newer.plant(4096, &0xa92b_4efc_u32.to_le_bytes());
        let array = scene.serve(&members).await;
        let (own, other) = ([7; 16], [8; 16]);
        array.freeze_sweeps(true);
        array.add(candidate(&spare), [9; 16], false).await.expect("it is blank");
        array.remove("spare").await.expect("it is a spare");
        array.fail("member0").await.expect("two may be missing");
        array.remove("member0").await.expect("it is faulty");
        for (giver, new, words) in [
            (other, &spare, "was a member of this array"),    // a spare of another
            (own, &members[0], "was a member of this array"), // its superblock calls it active
            (own, &newer, "superblock.major_version"),
        ] {
            let boundaries = scene.boundaries.get();
            let refusal = array.add_spare_of(giver, candidate(new), [9; 16]).await.expect_err(words);
            assert!(refusal.to_string().contains(words), "{refusal}");
            assert_eq!((scene.boundaries.get(), refusal.changed), (boundaries, None), "{words}");
        }
        array.add_spare_of(own, candidate(&spare), [9; 16]).await.expect("its superblock calls it a spare");
        array.freeze_sweeps(false);
        scene.pause().await;
        assert_eq!(of(&array.status(), &spare).state, "in_sync");
        scene.check(&array).await;
        array.stop().await.expect("stops clean");
    });
}

#[test]
fn the_refusal_names_a_new_member_that_fails_and_what_was_changed() {
    for replaces in [false, true] {
        for (flushes, words) in [(0, "it is not a member"), (1, "the array goes on without it")] {
            play(RAID5, 25, async |scene| {
                let (members, new) = (scene.create().await, scene.member("new"));
                let fault = Planned { operation: Operation::Flush, after: flushes, mishap: Mishap::Fail };
                new.faults().planned.borrow_mut().push(fault);
                let array = scene.serve(&members).await;
                let old = replaces.then_some("member0");
                let refusal = take_in(&array, &new, old, false).await.expect_err("it failed");
                assert_eq!(refusal.member.as_deref(), Some("new"), "{refusal}");
                assert!(refusal.changed.as_ref().is_some_and(|changed| changed.contains(words)), "{refusal}");
                assert!(refusal.advice.is_some());
                scene.check(&array).await;
                array.stop().await.expect("stops clean");
            });
        }
    }
}

/// Power goes halfway through a replacement, with a write in flight that each member may have kept or not. What is read
/// then must not change any more, also after the new member has taken the slot.
#[test]
fn what_was_read_after_a_power_cut_stays_the_same_after_the_replacement() {
    for (setup, old) in SETUPS.into_iter().flat_map(|setup| [0, 1].map(|old| (setup, old))) {
        for seed in 0..12 {
            play(setup, seed, async |scene| {
                let context = format!("{setup:?}, member {old}, seed {seed}");
                let (mut all, new) = (scene.create().await, scene.member("new"));
                let array = scene.serve(&all).await;
                let transfers = SweepTransfers { window_bytes: Some(16 << 10), in_flight_bytes: 16 << 10 };
                array.set_sweep_transfers(transfers).expect("powers of two");
                array.replace(&all[old].name(), candidate(&new), [9; 16], false).await.expect("it fits");
                let clock = scene.world.clock();
                while array.status().sweep.is_none_or(|sweep| sweep.percent < 50.0) {
                    engine::Clock::sleep_until(&clock, engine::Clock::now(&clock) + Duration::from_micros(50)).await;
                }
                array.stop().await.expect("stops clean");
                all.push(new);
                let array = scene.assemble(&all, false).await.expect("whole");
                let mut bytes = vec![0; 64 << 10];
                scene.random.borrow_mut().fill(&mut bytes);
                let block = array.pool().copy_of(&bytes);
                array.write(0, block, Durability::Ordinary).await.expect("whole");
                let mut random = Random::new(seed);
                all.iter().for_each(|member| member.lose_power(&mut random));
                drop(array);
                let array = scene.assemble(&all, false).await.expect("whole");
                let read = async || array.read(0, array.pool().take(array.bytes() as usize)).await.expect("whole");
                let first = read().await;
                array.set_sweep_transfers(transfers).expect("as before");
                let keeper = array.clone();
                scene.world.spawn(async move { keeper.keep_whole().await });
                scene.pause().await;
                let states: Vec<_> = array.status().members.iter().map(|member| member.state).collect();
                assert!(!states.contains(&"replacement") && array.status().in_agreement, "{context}: {states:?}");
                let later = read().await;
                let changed = (0..first.len()).find(|&at| first[at] != later[at]);
                assert_eq!(changed, None, "{context}: another byte, without a write");
                array.stop().await.expect("stops clean");
            });
        }
    }
}

/// Cuts power at boundary `cut`, counted from the beginning of the replacement. What is left continues to a whole
/// array. Returns the number of boundaries.
fn cut_while_replacing(setup: Setup, cut: u64) -> u64 {
    let scene = Scene::new(setup, 23);
    let (members, new) = (scene.run(scene.create()), scene.member("new"));
    let under_way: Cell<Option<(u64, u64)>> = Cell::new(None);
    let before = RefCell::new(scene.truth.borrow().clone());
    let life = async {
        let array = scene.serve(&members).await;
        array.replace(&members[1].name(), candidate(&new), [9; 16], false).await.expect("it fits");
        for (at, bytes) in [(5_000, 30_000), (60_000, 50_000)] {
            before.borrow_mut().clone_from(&scene.truth.borrow());
            under_way.set(Some((at, bytes)));
            scene.write(&array, at..at + bytes).await;
            under_way.set(None);
        }
        let clock = scene.world.clock();
        for _ in 0..200 {
            engine::Clock::sleep_until(&clock, engine::Clock::now(&clock) + Duration::from_millis(1)).await;
            if of(&array.status(), &new).state == "in_sync" {
                break;
            }
        }
        assert_eq!(of(&array.status(), &new).state, "in_sync", "{setup:?}");
        under_way.set(Some((1_000, 9_000)));
        before.borrow_mut().clone_from(&scene.truth.borrow());
        scene.write(&array, 1_000..10_000).await; // not written to the old member
        under_way.set(None);
        array.stop().await.expect("stops clean");
    };
    let (mut left, end) = scene.run_until_cut(life, cut, members.iter().chain([&new]));
    left.retain(|member| member.contents()[4096..4100] != [0x5a; 4] && member.contents()[4096..4100] != [0; 4]);
    let after = async {
        let context = format!("{setup:?} cut {cut}");
        let array = scene.assemble(&left, false).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        let status = array.status();
        assert_eq!(status.in_sync, status.raid_disks, "{context}: every slot has a current member: {status:?}");
        let first = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("whole").to_vec();
        let keeper = array.clone();
        scene.world.spawn(async move { keeper.keep_whole().await });
        scene.pause().await;
        let found = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("whole").to_vec();
        let changed = (0..found.len()).find(|&at| found[at] != first[at]);
        assert_eq!(changed, None, "{context}: what was read once has changed without a write");
        let (old, new) = (before.borrow().clone(), scene.truth.borrow().clone());
        let may_be_old = |at: u64| under_way.get().is_some_and(|(start, bytes)| (start..start + bytes).contains(&at));
        for (at, byte) in (0..).zip(&found) {
            let is_right = *byte == new[at as usize] || may_be_old(at) && *byte == old[at as usize];
            assert!(is_right, "{context}: byte {at}");
        }
        array.write(0, array.pool().copy_of(&found), Durability::Stable).await.expect("whole");
        let status = array.status();
        let states: Vec<_> = status.members.iter().map(|member| member.state).collect();
        assert!(!states.contains(&"replacement") && status.in_sync == status.raid_disks, "{context}: {states:?}");
        array.stop().await.expect("stops clean");
        scene.truth.replace(found);
        let seated =
            |member: &&SimMember| status.members.iter().any(|m| m.name == member.name() && m.state == "in_sync");
        let seated: Vec<_> = left.iter().filter(seated).cloned().collect();
        scene.check_without_each(&seated).await;
    };
    scene.run(after);
    end
}

#[test]
fn power_may_go_at_any_write_of_a_replacement_in_use() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        let setup = Setup { component_bytes: 128 << 10, ..setup };
        let end = cut_while_replacing(setup, u64::MAX);
        assert!(end > 20, "{setup:?}: {end} boundaries");
        for cut in 0..=end {
            cut_while_replacing(setup, cut);
        }
    }
}

/// Whenever it begins to hang, it is refused in time; requests work meanwhile and afterwards.
#[test]
fn a_new_member_that_hangs_is_refused_in_time_and_delays_no_request() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let mut refusals = [0, 0];
    for (turn, begins) in (0..60_u64).map(|turn| (turn, Duration::from_micros(turn * 100))) {
        play(RAID6, 30 + turn, async |scene| {
            let context = format!("hangs after {begins:?}");
            let members = scene.create().await;
            let new = scene.member("new");
            let array = scene.serve(&members).await;
            array.set_member_timeout(Some(TIMEOUT));
            let clock = scene.world.clock();
            let begun = clock.now();
            let hang = async {
                clock.sleep_until(begun + begins).await;
                new.faults().hung_until.set(u64::MAX);
            };
            let joins = async {
                match turn % 2 {
                    0 => array.add(candidate(&new), [9; 16], false).await,
                    _ => array.replace(&members[1].name(), candidate(&new), [9; 16], false).await,
                }
            };
            let others = async {
                scene.write(&array, 7000..array.bytes() / 2).await;
                array.fail(&members[0].name()).await
            };
            let (joined, failed, ()) = join3(joins, others, hang).await;
            failed.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
            let waited = clock.now().since(begun);
            assert!(waited < 4 * TIMEOUT, "{context}: {waited:?}");
            if let Err(refusal) = joined {
                let was_changed = refusal.changed.is_some();
                if refusal.to_string().contains("no answer within 2 s") {
                    refusals[usize::from(was_changed)] += 1;
                }
            }
            scene.write(&array, array.bytes() / 3..array.bytes()).await;
            scene.check(&array).await;
            array.stop().await.unwrap_or_else(|error| panic!("{context}: {error}"));
        });
    }
    assert!(refusals.iter().all(|count| *count > 0), "while it is looked at, and while it is written to: {refusals:?}");
}

#[test]
fn a_stop_does_not_wait_for_a_new_member_that_hangs() {
    play(RAID5, 31, async |scene| {
        let members = scene.create().await;
        let new = scene.member("new");
        new.faults().hung_until.set(u64::MAX);
        let array = scene.serve(&members).await;
        let clock = scene.world.clock();
        let begun = clock.now();
        let (joined, stopped) = join(array.add(candidate(&new), [9; 16], false), array.stop()).await;
        stopped.expect("stops clean");
        let refusal = joined.expect_err("it hangs").to_string();
        assert!(refusal.contains("the array is stopping"), "{refusal}");
        assert!(clock.now().since(begun) < Duration::from_secs(1));
    });
}
