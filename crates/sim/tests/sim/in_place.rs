//! Members in memory: lost data is worked out where the other members hold it, without waiting.
//!
//! What must hold: a reader never gets what such a look finds in a stripe that is being written to, nor what parity gives
//! that no resync has been over.

use super::healing::{DATA_OFFSET, RAID5, RAID6, ROW, Scene, Setup, play};
use engine::{Clock, Durability};
use mdspace_sim::SimMember;
use std::cell::Cell;
use std::time::Duration;

const SETUPS: [Setup; 2] = [RAID5, RAID6];

impl Scene {
    /// The members of a new array with contents of its own; from here on they do most of what they are asked at once.
    async fn create_prompt(&self) -> Vec<SimMember> {
        let prompt = |member: SimMember| {
            SimMember::new(member.name(), &self.world, member.contents(), self.boundaries.clone()).with_promptness(true)
        };
        self.create().await.into_iter().map(prompt).collect()
    }
}

/// The first chunk is lost, and the next one of its stripe is written to again and again.
#[test]
fn what_is_lost_is_not_worked_out_of_a_stripe_that_is_being_written_to() {
    for setup in SETUPS {
        play(setup, 14, async |scene| {
            let members = scene.create_prompt().await;
            let lost = scene.truth.borrow()[..setup.chunk_bytes as usize].to_vec();
            // Left-symmetric: chunk 0 of RAID-5 is on member 0; of RAID-6 it is on member 1, behind Q on member 0.
            let missing = if setup.level == RAID5.level { 0 } else { 1 };
            let rest: Vec<_> = (0..members.len()).filter(|&n| n != missing).map(|n| members[n].clone()).collect();
            let array = scene.assemble(&rest, false).await.expect("it bears that");
            let is_over = Cell::new(false);
            let writes = async {
                for number in 0..200_u8 {
                    let piece = array.pool().copy_of(&[number; ROW as usize]);
                    array.write(setup.chunk_bytes, piece, Durability::Ordinary).await.expect("it bears that");
                }
                is_over.set(true);
            };
            let clock = scene.world.clock();
            let reads = async {
                while !is_over.get() {
                    let found = array.read(0, array.pool().take(ROW as usize)).await.expect("it can be had");
                    assert!(found[..] == lost[..ROW as usize], "{setup:?}: other bytes than were written");
                    clock.sleep_until(clock.now() + Duration::from_micros(1)).await;
                }
            };
            futures_util::future::join(writes, reads).await;
            array.stop().await.expect("stops clean");
        });
    }
}

/// The array was in use when the power went, and a write had reached data and not parity. One member does not answer.
#[test]
fn what_does_not_answer_is_not_worked_out_of_parity_that_no_resync_has_been_over() {
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
            // The second chunk of the stripe, which no parity knows of.
            members[hung + 1].plant(DATA_OFFSET, &[7; ROW as usize]);
            let array = scene.assemble(&members, false).await.expect("whole, and dirty");
            array.set_member_timeout(Some(Duration::from_secs(1)));
            members[hung].faults().hung_until.set(u64::MAX);
            let read = async || array.read(0, array.pool().take(ROW as usize)).await;
            array.in_time(read()).await.expect_err("nothing else says what it holds");
            for _ in 0..100 {
                assert!(read().await.is_err(), "{setup:?}: it was worked out of wrong parity");
            }
            members[hung].faults().end_lateness();
        });
    }
}
