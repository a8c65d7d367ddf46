//! Members in memory: missing data is reconstructed directly from the memory of the other members, without waiting.
//!
//! A read must never return what such a reconstruction gives in a stripe that is being written to, nor what it gives from
//! parity before a resync.

use super::healing::{DATA_OFFSET, RAID5, RAID6, ROW, Scene, Setup, play};
use engine::{Clock, Durability};
use mdspace_sim::SimMember;
use std::cell::Cell;
use std::time::Duration;

const SETUPS: [Setup; 2] = [RAID5, RAID6];

impl Scene {
    /// The members of a new array full of noise. From here on most of their operations complete at once.
    async fn create_prompt(&self) -> Vec<SimMember> {
        let prompt = |member: SimMember| {
            SimMember::new(member.name(), &self.world, member.contents(), self.boundaries.clone()).with_promptness(true)
        };
        self.create().await.into_iter().map(prompt).collect()
    }
}

/// The first chunk is missing, and the next chunk of its stripe is written repeatedly.
#[test]
fn no_data_is_reconstructed_in_place_from_a_stripe_that_is_being_written_to() {
    for setup in SETUPS {
        play(setup, 14, async |scene| {
            let members = scene.create_prompt().await;
            let lost = scene.truth.borrow()[..setup.chunk_bytes as usize].to_vec();
            // Left-symmetric: chunk 0 of RAID-5 is on member 0; of RAID-6 it is on member 1, after Q on member 0.
            let missing = if setup.level == RAID5.level { 0 } else { 1 };
            let rest: Vec<_> = (0..members.len()).filter(|&n| n != missing).map(|n| members[n].clone()).collect();
            let array = scene.assemble(&rest, false).await.expect("the level survives it");
            let is_over = Cell::new(false);
            let writes = async {
                for number in 0..200_u8 {
                    let piece = array.pool().copy_of(&[number; ROW as usize]);
                    array.write(setup.chunk_bytes, piece, Durability::Ordinary).await.expect("the level survives it");
                }
                is_over.set(true);
            };
            let clock = scene.world.clock();
            let reads = async {
                while !is_over.get() {
                    let found = array.read(0, array.pool().take(ROW as usize)).await.expect("the data is available");
                    assert!(found[..] == lost[..ROW as usize], "{setup:?}: other bytes than were written");
                    clock.sleep_until(clock.now() + Duration::from_micros(1)).await;
                }
            };
            futures_util::future::join(writes, reads).await;
            array.stop().await.expect("stops clean");
        });
    }
}

/// When the power went, a write had reached the data but not the parity. Now one member does not answer.
#[test]
fn no_data_of_a_hung_member_is_reconstructed_in_place_from_parity_before_a_resync() {
    for setup in SETUPS {
        play(setup, 15, async |scene| {
            let members = scene.create_prompt().await;
            let array = scene.assemble(&members, false).await.expect("whole");
            scene.write(&array, 0..ROW).await;
            drop(array);
            for member in &members {
                member.settle_all();
            }
            let hung = if setup.level == RAID5.level { 0 } else { 1 };
            // The second chunk of the stripe, which parity does not reflect.
            members[hung + 1].plant(DATA_OFFSET, &[7; ROW as usize]);
            let array = scene.assemble(&members, false).await.expect("whole, and dirty");
            array.set_member_timeout(Some(Duration::from_secs(1)));
            members[hung].faults().hung_until.set(u64::MAX);
            let read = async || array.read(0, array.pool().take(ROW as usize)).await;
            array.in_time(read()).await.expect_err("its data is not available");
            for _ in 0..100 {
                assert!(read().await.is_err(), "{setup:?}: it was reconstructed from wrong parity");
            }
            members[hung].faults().end_lateness();
        });
    }
}
