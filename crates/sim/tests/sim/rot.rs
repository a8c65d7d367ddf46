//! Reads beside read repair and beside writes over corrupted blocks, on members that take their time. A read returns
//! the old data or data being written, never corrupted data.

use super::checksums::{BLOCKS, RAID1, RAID5, RAID6, RAID10, Scene, Simulated, play};
use engine::{Clock, Durability, ScrubAction, Verify};
use futures_util::future::{join, join_all};
use std::cell::Cell;
use std::time::Duration;

/// Concurrent readers.
const READERS: usize = 6;

impl Scene {
    /// Overwrites every `step`th block of a member with noise.
    fn rot_many(&self, member: usize, step: usize) {
        (1..BLOCKS).step_by(step).for_each(|block| self.rot(member, block));
    }

    /// Reads random ranges until `is_over`; `takes` says whether a byte at a position is legal.
    async fn read_beside(&self, array: &Simulated, is_over: &Cell<bool>, takes: &dyn Fn(usize, u8) -> bool) {
        let clock = self.world.clock();
        while !is_over.get() {
            let bytes = [512, 4096, 4096, 16384][self.random.borrow_mut().within(0..4) as usize];
            let at = self.random.borrow_mut().within(0..array.bytes() / bytes) * bytes;
            let read =
                array.read(at, array.pool().take(bytes as usize)).await.expect("the other members have the data");
            for (place, byte) in (at as usize..).zip(read.iter()) {
                assert!(takes(place, *byte), "{:?}: byte {place} is neither old nor new", self.setup);
            }
            clock.sleep_until(clock.now() + Duration::from_micros(50)).await;
        }
    }
}

#[test]
fn no_read_beside_read_repair_returns_corrupted_data() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        for write_micros in [0, 100, 5_000] {
            play(setup, true, async |scene| {
                let before = scene.data();
                scene.rot_many(1, 7);
                scene.members[1].faults().writes_slower_by.set(write_micros * 1000);
                let array = scene.serve(&scene.members, Verify::Always).await;
                let is_over = Cell::new(false);
                let truth = scene.truth.borrow().clone();
                let takes = |place: usize, byte: u8| truth[place] == byte;
                let readers = (0..READERS).map(|_| scene.read_beside(&array, &is_over, &takes));
                let clock = scene.world.clock();
                let wait = async {
                    clock.sleep_until(clock.now() + Duration::from_millis(40)).await;
                    is_over.set(true);
                };
                join(join_all(readers), wait).await;
                scene.members[1].faults().end_lateness();
                scene.pause().await;
                assert!(array.status().checksums.expect("it has some").wrong > 0, "{setup:?}: it was met");
                array.stop().await.expect("whole");
                let array = scene.assemble(&scene.members, Verify::Always).await;
                scene.scrub(&array, ScrubAction::Repair).await; // heals parity, which no request reads
                assert!(scene.data() == before, "{setup:?}: healed, and with nothing else");
                array.stop().await.expect("whole");
            });
        }
    }
}

#[test]
fn a_read_beside_a_write_over_corrupted_data_returns_the_old_or_the_new() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        for write_micros in [0, 1_000] {
            play(setup, true, async |scene| {
                let array = scene.serve(&scene.members, Verify::Always).await;
                let (old, mut new) = (scene.truth.borrow().clone(), vec![0; array.bytes() as usize]);
                scene.random.borrow_mut().fill(&mut new);
                scene.rot_many(0, 3);
                scene.members.iter().for_each(|member| member.faults().writes_slower_by.set(write_micros * 1000));
                let is_over = Cell::new(false);
                let takes = |place: usize, byte: u8| old[place] == byte || new[place] == byte;
                let readers = (0..READERS).map(|_| scene.read_beside(&array, &is_over, &takes));
                let write = async {
                    let step = array.bytes() as usize / 4;
                    for (at, part) in (0..).step_by(step).zip(new.chunks(step)) {
                        let block = array.pool().copy_of(part);
                        array.write(at, block, Durability::Ordinary).await.expect("whole");
                    }
                    is_over.set(true);
                };
                join(join_all(readers), write).await;
                scene.members.iter().for_each(|member| member.faults().end_lateness());
                scene.truth.replace(new);
                scene.read(&array, 0..array.bytes()).await.expect("whole");
                array.stop().await.expect("whole");
            });
        }
    }
}
