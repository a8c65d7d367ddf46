//! Checksums that became unknown, by a loss of power or by others who used the array: how many are is said, and they are learned
//! beside the requests, where all members are there and agree.

use super::checksums::{BLOCKS, RAID1, RAID5, RAID6, RAID10, Scene, Simulated, play, superblock};
use engine::status::ChecksumStatus;
use engine::{Durability, ScrubAction, Verify};
use format::integrity::BLOCK_BYTES;
use format::superblock::Resync;
use format::units::Sectors;
use mdspace_sim::checksums::examine;
use mdspace_sim::{Random, SimMember};

fn checksums(array: &Simulated) -> ChecksumStatus {
    array.status().checksums.expect("it has some")
}

/// Bytes of whose checksums nothing is known, or is not known yet.
fn unknown(array: &Simulated) -> (u64, u64) {
    let ChecksumStatus { unknown_bytes, uncounted_bytes, .. } = checksums(array);
    (unknown_bytes, uncounted_bytes)
}

/// As the kernel leaves superblocks: without microseconds.
fn used_by_the_kernel(scene: &Scene) {
    for member in &scene.members {
        let mut superblock = superblock(member);
        superblock.updated.micros = 0;
        superblock.events += 2;
        member.plant(4096, &superblock.encode());
    }
}

#[test]
fn what_a_loss_of_power_made_unknown_is_counted_and_learned() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        play(setup, true, async |scene| {
            let array = scene.assemble(&scene.members, Verify::Always).await;
            array.write(0, array.pool().zeroed(4096).freeze(), Durability::Stable).await.expect("whole");
            let mut random = Random::new(1);
            scene.members.iter().for_each(|member| member.lose_power(&mut random));
            let again = scene.assemble(&scene.members, Verify::Always).await;
            let (lost, uncounted) = unknown(&again);
            assert_eq!(lost + uncounted, setup.slots as u64 * BLOCKS * BLOCK_BYTES, "{setup:?}");
            assert!(lost > 0, "{setup:?}: the region was open");
            let array = scene.serve(&scene.members, Verify::Always).await;
            scene.pause().await;
            let status = array.status();
            assert_eq!((unknown(&array), status.sync_action), ((0, 0), "idle"), "{setup:?}");
            array.stop().await.expect("whole");
            // Known, and of those who come next too.
            scene.rot(1, 3);
            let array = scene.assemble(&scene.members, Verify::Always).await;
            let counts = scene.scrub(&array, ScrubAction::Check).await.found.counts;
            assert_eq!((counts.found(), counts.learned), (1, 0), "{setup:?}");
            array.stop().await.expect("whole");
        });
    }
}

#[test]
fn after_others_have_used_an_array_all_is_unknown_until_it_is_learned_and_what_does_not_agree_stays_so() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        play(setup, true, async |scene| {
            used_by_the_kernel(scene);
            scene.rot(1, 3);
            let all = setup.slots as u64 * BLOCKS * BLOCK_BYTES;
            let array = scene.assemble(&scene.members, Verify::Always).await;
            assert_eq!(unknown(&array), (all, 0), "{setup:?}");
            let array = scene.serve(&scene.members, Verify::Always).await;
            let before = scene.data();
            scene.pause().await;
            let (left, uncounted) = unknown(&array);
            assert!(left >= setup.slots.min(2) as u64 * BLOCK_BYTES && left < all / 2, "{setup:?}: {left}");
            assert_eq!((uncounted, checksums(&array).wrong), (0, 0), "{setup:?}: nobody is accused");
            assert!(scene.data() == before, "{setup:?}: nothing was written");
            array.stop().await.expect("whole");
        });
    }
}

/// Of a degraded array nothing says what is right. Once a member has taken the place, there is more to compare with.
#[test]
fn nothing_is_learned_while_a_member_is_missing_and_it_is_when_another_was_recovered() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        play(setup, true, async |scene| {
            used_by_the_kernel(scene);
            let (lost, rest) = scene.members.split_first().expect("some");
            let array = scene.serve(rest, Verify::Always).await;
            scene.pause().await;
            assert_eq!(unknown(&array), (rest.len() as u64 * BLOCKS * BLOCK_BYTES, 0), "{setup:?}");
            let new = SimMember::new("new".to_owned(), &scene.world, vec![0; lost.image().len()], Default::default());
            let candidate = engine::Candidate { name: new.name(), member: new.clone() };
            array.add(candidate, [9; 16], true).await.expect("it fits");
            scene.pause().await;
            assert_eq!(unknown(&array), (0, 0), "{setup:?}");
            scene.read(&array, 0..array.bytes()).await.expect("whole");
            array.stop().await.expect("whole");
        });
    }
}

#[test]
fn who_only_looks_is_told_how_much_is_unknown() {
    play(RAID6, true, async |scene| {
        let array = scene.serve(&scene.members, Verify::Always).await;
        scene.pause().await;
        assert_eq!(unknown(&array), (0, 0));
        array.stop().await.expect("whole");
        scene.damage_table(2);
        let before: Vec<Vec<u8>> = scene.members.iter().map(SimMember::contents).collect();
        let options = engine::AssembleOptions { read_only: true, ..Default::default() };
        let candidates =
            scene.members.iter().map(|member| engine::Candidate { name: member.name(), member: member.clone() });
        let pool = engine::Pool::new(1 << 20);
        let array = Simulated::assemble(candidates.collect(), options, pool, scene.world.clock()).await.expect("whole");
        let keeper = array.clone();
        scene.world.spawn(async move { keeper.keep_whole().await });
        scene.pause().await;
        assert_eq!(unknown(&array), (BLOCKS * BLOCK_BYTES, 0));
        array.stop().await.expect("nothing was written");
        let after: Vec<Vec<u8>> = scene.members.iter().map(SimMember::contents).collect();
        assert!(before == after, "a reader changes nothing");
    });
}

/// A write that fails may have changed a part of a block: what was read before says nothing of it any more.
#[test]
fn a_resync_learns_nothing_of_blocks_that_a_failed_write_has_changed_in_part() {
    for setup in [RAID1, RAID10] {
        play(setup, true, async |scene| {
            used_by_the_kernel(scene);
            for member in &scene.members {
                let mut superblock = superblock(member);
                superblock.resync = Resync::From(Sectors(0));
                member.plant(4096, &superblock.encode());
            }
            let hurt = &scene.members[1];
            for block in (1..BLOCKS).step_by(3) {
                scene.rot(1, block);
                let at = setup.data_offset + block * BLOCK_BYTES;
                hurt.faults().bad_writes.borrow_mut().push(at..at + BLOCK_BYTES);
            }
            let array = scene.assemble(&scene.members, Verify::Always).await;
            array.resync(&|_, _| {}).await.expect("a bad block is borne");
            let bad = |array: &Simulated| array.status().members.iter().map(|member| member.bad_bytes).sum::<u64>();
            assert!(bad(&array) > BLOCK_BYTES, "{setup:?}: writes have failed");
            array.stop().await.expect("whole");
            let found = examine(&hurt.image(), &superblock(hurt)).expect("it keeps checksums");
            assert!(found.wrong.is_empty() && found.unknown > 0, "{setup:?}: {found:?}");
        });
    }
}
