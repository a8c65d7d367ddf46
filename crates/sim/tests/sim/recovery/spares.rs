//! Spares for which superblocks or bitmaps have no room, that were away, or that fail while they are prepared; and power
//! cuts while a bitmap is removed.
//!
//! Such a spare is left out with the reason; a spare that can serve takes over.

use super::*;
use engine::Operation;
use mdspace_sim::faults::{Mishap, Planned};

#[test]
fn a_spare_without_room_for_a_later_bitmap_is_left_out() {
    let life = Life::new(RAID5, 5);
    life.world.clone().run(
        async {
            let (mut members, blanks) = life.create_with_spare().await;
            let array = life.assemble(&members, false).await.expect("whole");
            array.add_bitmap(Some(4096), BitmapPolicy::default()).await.expect("there is room");
            array.stop().await.expect("stops clean");
            members.push(blanks[0].clone());
            for (data_offset, left_out) in [(DATA_OFFSET as u64 / 512, 0), (16, 1)] {
                let mut spare = superblock(&blanks[0]);
                (spare.data_offset, spare.bad_blocks) = (Sectors(data_offset), None);
                blanks[0].plant(4096, &spare.encode());
                let status = life.assemble(&members, false).await.expect("whole").status();
                assert_eq!((status.in_sync, status.left_out.len()), (4, left_out), "{data_offset}");
            }
        },
        || false,
    );
}

#[test]
fn a_spare_whose_number_no_superblock_has_room_for_is_left_out() {
    let life = Life::new(RAID1, 4);
    life.world.clone().run(
        async {
            let (mut members, blanks) = life.create_with_spare().await;
            // A log after the first 384 entries of the device list; the spare itself has room for more.
            let log = BadBlockPlace { sectors_from_superblock: 2, sectors: 1, shift: 0, in_use: false };
            for member in &members {
                let mut superblock = superblock(member);
                superblock.bad_blocks = Some(log);
                member.plant(4096, &superblock.encode());
                member.plant(4096 + 1024, &[0xff; 512]);
            }
            let mut spare = superblock(&blanks[0]);
            spare.roles.resize(385, DeviceRole::Spare);
            spare.device_number.0 = 384;
            blanks[0].plant(4096, &spare.encode());
            members.push(blanks[0].clone());
            members.remove(1);
            let array = life.serve(&members, false).await.expect("degraded");
            life.pause(Duration::from_secs(1)).await;
            let status = array.status();
            assert_eq!((status.in_sync, status.left_out.len()), (2, 1), "{:?}", status.left_out);
            assert!(status.left_out[0].reason.contains("number is 384"), "{:?}", status.left_out);
            array.add(candidate(&blanks[1]), [0x81; 16], false).await.expect("there are numbers left");
            life.until_whole(&array).await;
            array.stop().await.expect("stops clean");
        },
        || false,
    );
}

#[test]
fn a_spare_takes_over_after_a_power_cut_at_any_write_of_a_bitmap_removal() {
    for cut in 0..24 {
        let life = Life::new(Setup { bitmap: true, ..RAID5 }, cut);
        let world = life.world.clone();
        let is_removing = Cell::new(false);
        let mut devices = Vec::new();
        let removal = async {
            let (members, blanks) = life.create().await;
            devices.extend(members.iter().chain(&blanks).cloned());
            let array = life.assemble(&members, false).await.expect("whole");
            array.add(candidate(&blanks[0]), [9; 16], false).await.expect("it fits");
            life.boundaries.set(0);
            is_removing.set(true);
            array.remove_bitmap().await.expect("there is one");
        };
        world.run(removal, || is_removing.get() && life.boundaries.get() >= cut);
        world.forget_all();
        devices.iter().for_each(|member| member.lose_power(&mut life.random.borrow_mut()));
        world.run(
            async {
                let array = life.serve(&devices, false).await.expect("whole");
                array.fail(&devices[2].name()).await.expect("the level survives it");
                life.until_whole(&array).await;
                array.stop().await.expect("stops clean");
            },
            || false,
        );
    }
}

#[test]
fn a_spare_that_was_away_while_the_bitmap_moved_to_a_file_takes_a_slot() {
    let life = Life::new(Setup { bitmap: true, ..RAID5 }, 6);
    life.world.clone().run(
        async {
            let (members, blanks) = life.create_with_spare().await;
            let array = life.assemble(&members, false).await.expect("whole");
            array.remove_bitmap().await.expect("there is one");
            let file = life.member("bitmap", 0);
            array.add_bitmap_file(candidate(&file), Some(4096), BitmapPolicy::default()).await.expect("it fits");
            array.stop().await.expect("stops clean");
            let rest: Vec<_> = [&blanks[0], &members[0], &members[2], &members[3]].into_iter().cloned().collect();
            let offer = Offer { bitmap: Some(candidate(&file)), ..Offer::of(candidates(&rest)) };
            let pool = Pool::new(1 << 20);
            let array = Simulated::assemble_offer(offer, AssembleOptions::default(), pool, life.world.clock());
            let array = array.await.expect("degraded");
            let keeper = array.clone();
            life.world.spawn(async move { keeper.keep_whole().await });
            life.until_whole(&array).await;
            array.stop().await.expect("stops clean");
        },
        || false,
    );
}

#[test]
fn no_superblock_outlives_data_that_was_overwritten_before_a_member_could_be_added() {
    let life = Life::new(RAID5, 7);
    life.world.clone().run(
        async {
            let (members, _) = life.create().await;
            let array = life.assemble(&members, false).await.expect("whole");
            life.fill(&array).await;
            array.fail(&members[1].name()).await.expect("the level survives it");
            array.remove(&members[1].name()).await.expect("faulty");
            // Where a superblock of version 1.0 would be, there is data. It cannot be read, so it is overwritten.
            let end = members[1].image().len() as u64;
            let place = (end / 512 - 16) / 8 * 8 * 512;
            members[1].faults().bad_reads.borrow_mut().push(place..place + 4096);
            let added = array.add(candidate(&members[1]), [9; 16], true).await;
            added.expect_err("a part of it stays unreadable");
            {
                let image = members[1].image();
                assert_eq!(image[place as usize..][..4096], [0; 4096]);
                assert_eq!(image[4096..][..4096], [0; 4096], "the superblock of version 1.2");
            }
            array.stop().await.expect("stops clean");
        },
        || false,
    );
}

/// A request to make a spare of a member erases its superblocks, and then fails. A request to take the same member back looks
/// at it beside that.
#[test]
fn a_member_is_not_taken_back_by_what_it_held_before_another_request_erased_it() {
    let mut met = 0;
    for (writes, delay) in (2..6).flat_map(|writes| (0..30).map(move |delay| (writes, delay))) {
        let life = Life::new(Setup { bitmap: true, ..RAID1 }, 1);
        let scene = async {
            let (members, _) = life.create().await;
            let array = life.assemble(&members, false).await.expect("whole");
            life.fill(&array).await;
            array.fail(&members[2].name()).await.expect("two are left");
            array.remove(&members[2].name()).await.expect("it failed");
            let fail = Planned { operation: Operation::Write, after: writes, mishap: Mishap::Fail };
            members[2].faults().planned.borrow_mut().push(fail);
            let take_back = async {
                life.pause(Duration::from_micros(50 * delay)).await;
                array.re_add(candidate(&members[2])).await
            };
            let (added, returned) = join(array.add(candidate(&members[2]), [9; 16], true), take_back).await;
            if added.is_err_and(|refusal| refusal.reason.contains("simulated fault")) {
                met += 1;
                assert!(returned.is_err(), "after {writes} writes and {delay}: its superblock was erased");
            }
        };
        life.world.run(scene, || false).expect("the power does not go");
    }
    assert!(met > 0, "no request to add it failed");
}
