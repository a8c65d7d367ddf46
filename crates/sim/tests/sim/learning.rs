//! Checksums that became unknown, by a power cut or because the kernel used the array. Their number is reported, and
//! they are recomputed beside the requests where all members are present and agree.

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

/// Bytes of blocks whose checksums are unknown, and bytes that are not counted yet.
fn unknown(array: &Simulated) -> (u64, u64) {
    let ChecksumStatus { unknown_bytes, uncounted_bytes, .. } = checksums(array);
    (unknown_bytes, uncounted_bytes)
}

/// Changes the superblocks as the kernel would: their times have no microseconds.
fn used_by_the_kernel(scene: &Scene) {
    for member in &scene.members {
        let mut superblock = superblock(member);
        superblock.updated.micros = 0;
        superblock.events += 2;
        member.plant(4096, &superblock.encode());
    }
}

#[test]
fn checksums_lost_in_a_power_cut_are_counted_and_recomputed() {
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
            // Known now, and after the next assembly too.
            scene.rot(1, 3);
            let array = scene.assemble(&scene.members, Verify::Always).await;
            let counts = scene.scrub(&array, ScrubAction::Check).await.found.counts;
            assert_eq!((counts.found(), counts.learned), (1, 0), "{setup:?}");
            array.stop().await.expect("whole");
        });
    }
}

#[test]
fn after_the_kernel_used_an_array_checksums_are_recomputed_only_where_members_agree() {
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
            assert_eq!((uncounted, checksums(&array).wrong), (0, 0), "{setup:?}: no block is named as wrong");
            assert!(scene.data() == before, "{setup:?}: nothing was written");
            array.stop().await.expect("whole");
        });
    }
}

/// While the array is degraded, nothing shows which data is right. Once the slot is recovered, it can be compared.
#[test]
fn checksums_are_recomputed_only_once_no_member_is_missing() {
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
fn a_read_only_array_counts_unknown_checksums_and_changes_nothing() {
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

/// A failed write may have changed a part of a block, so a checksum of what was read before is not valid.
#[test]
fn a_resync_stores_no_checksums_of_blocks_that_a_failed_write_may_have_changed() {
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
            array.resync(&|_, _| {}).await.expect("the level survives a bad block");
            let bad = |array: &Simulated| array.status().members.iter().map(|member| member.bad_bytes).sum::<u64>();
            assert!(bad(&array) > BLOCK_BYTES, "{setup:?}: writes have failed");
            array.stop().await.expect("whole");
            let found = examine(&hurt.image(), &superblock(hurt)).expect("it keeps checksums");
            assert!(found.wrong.is_empty() && found.unknown > 0, "{setup:?}: {found:?}");
        });
    }
}
