//! Members that fail in places: read repair, bad blocks, and hung members.
//!
//! What was answered must read back at any moment and after any power cut. Nothing may be read from a bad block, and
//! nothing may be repaired with a byte that may be wrong.

use engine::create::{Newcomer, Recipe, create};
use engine::status::{MemberStatus, Status};
use engine::{Array, AssembleOptions, Candidate, Clock, Durability, Pool, Refusal};
use format::geometry::Level;
use format::signature::HEAD_BYTES;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

pub(crate) const DATA_OFFSET: u64 = 32 << 10;
pub(crate) const ROW: u64 = 4096;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) level: Level,
    pub(crate) layout: u32,
    pub(crate) chunk_bytes: u64,
    pub(crate) slots: usize,
    pub(crate) component_bytes: u64,
}

pub(crate) const RAID1: Setup =
    Setup { level: Level::Raid1, layout: 0, chunk_bytes: 0, slots: 2, component_bytes: 256 << 10 };
pub(crate) const RAID5: Setup = Setup { level: Level::Raid5, layout: 2, chunk_bytes: 16 << 10, slots: 4, ..RAID1 };
pub(crate) const RAID6: Setup = Setup { level: Level::Raid6, slots: 5, ..RAID5 };
pub(crate) const RAID10: Setup = Setup { level: Level::Raid10, layout: 0x102, ..RAID5 };
const SETUPS: [Setup; 5] = [RAID1, RAID5, RAID6, RAID10, Setup { level: Level::Raid4, layout: 0, ..RAID5 }];

/// An array and its expected contents.
pub(crate) struct Scene {
    pub(crate) setup: Setup,
    pub(crate) world: World,
    pub(crate) boundaries: Rc<Cell<u64>>,
    pub(crate) truth: RefCell<Vec<u8>>,
    pub(crate) random: RefCell<Random>,
}

/// Plays a scene in a world of its own.
pub(crate) fn play<T>(setup: Setup, seed: u64, scene: impl AsyncFnOnce(&Scene) -> T) -> T {
    let own = Scene::new(setup, seed);
    own.run(scene(&own))
}

impl Scene {
    /// An array in a world of its own.
    pub(crate) fn new(setup: Setup, seed: u64) -> Self {
        let (world, random) = (World::new(seed), RefCell::new(Random::new(seed)));
        Self { setup, world, boundaries: Rc::default(), truth: RefCell::default(), random }
    }

    /// Runs `life` to its end.
    pub(crate) fn run<T>(&self, life: impl Future<Output = T>) -> T {
        self.world.run(life, || false).expect("the run is not stopped")
    }

    /// Runs `life` until power is cut at boundary `cut`, counted from here. Returns what is left of `members`, and the
    /// number of boundaries.
    pub(crate) fn run_until_cut<'a>(
        &self,
        life: impl Future<Output = ()>,
        cut: u64,
        members: impl IntoIterator<Item = &'a SimMember>,
    ) -> (Vec<SimMember>, u64) {
        self.boundaries.set(0);
        self.world.run(life, || self.boundaries.get() >= cut);
        let end = self.boundaries.get();
        self.world.forget_all();
        let mut random = Random::new(cut);
        let left = |member: &SimMember| {
            let contents = member.after_power_loss(&mut random);
            SimMember::new(member.name(), &self.world, contents, self.boundaries.clone())
        };
        (members.into_iter().map(left).collect(), end)
    }

    pub(crate) fn member(&self, name: &str) -> SimMember {
        let bytes = (DATA_OFFSET + self.setup.component_bytes) as usize;
        let mut contents = vec![0x5a; bytes];
        contents[..HEAD_BYTES as usize].fill(0); // or it would be taken for a member
        SimMember::new(name.to_owned(), &self.world, contents, self.boundaries.clone())
    }

    /// Creates the members of an array full of noise.
    pub(crate) async fn create(&self) -> Vec<SimMember> {
        let setup = &self.setup;
        let recipe = Recipe {
            layout: setup.layout,
            chunk_bytes: setup.chunk_bytes,
            name: "sim:healing".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET),
            component_bytes: Some(setup.component_bytes),
            ..Recipe::new(setup.level, [7; 16])
        };
        let members: Vec<_> = (0..setup.slots).map(|index| self.member(&format!("member{index}"))).collect();
        let newcomer =
            |(index, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        let (pool, clock) = (Pool::new(1 << 20), self.world.clock());
        create(&recipe, &newcomers, &[], &pool, &clock, &|_, _| {}).await.expect("the array is created");
        let array = self.assemble(&members, false).await.expect("a whole array");
        array.resync(&|_, _| {}).await.expect("a whole array");
        self.write(&array, 0..array.bytes()).await;
        array.stop().await.expect("stops clean");
        members
    }

    pub(crate) async fn assemble(&self, members: &[SimMember], force: bool) -> Result<Simulated, Refusal> {
        let options = AssembleOptions { force, ..AssembleOptions::default() };
        let members = members.iter().map(candidate).collect();
        Array::assemble(members, options, Pool::new(1 << 20), self.world.clock()).await
    }

    /// Assembles the array and starts the tasks of a server.
    pub(crate) async fn serve(&self, members: &[SimMember]) -> Simulated {
        let array = self.assemble(members, false).await.expect("it can be assembled");
        let keeper = array.clone();
        self.world.spawn(async move { keeper.keep_whole().await });
        array
    }

    /// Writes noise to a range, with stable durability.
    pub(crate) async fn write(&self, array: &Simulated, range: Range<u64>) {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.random.borrow_mut().fill(&mut bytes);
        self.truth.borrow_mut().resize(array.bytes() as usize, 0);
        self.truth.borrow_mut()[range.start as usize..range.end as usize].copy_from_slice(&bytes);
        array
            .write(range.start, array.pool().copy_of(&bytes), Durability::Stable)
            .await
            .expect("the level survives it");
    }

    pub(crate) async fn check(&self, array: &Simulated) {
        let found = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("the level survives it");
        assert!(found[..] == self.truth.borrow()[..], "{:?}: other bytes than were written", self.setup);
    }

    /// Reads in rows, so that every member is read in full.
    async fn read_all_over(&self, array: &Simulated) {
        for _ in 0..2 * self.setup.slots {
            for at in (0..array.bytes()).step_by(ROW as usize) {
                let found = array.read(at, array.pool().take(ROW as usize)).await.expect("the level survives it");
                assert!(found[..] == self.truth.borrow()[at as usize..(at + ROW) as usize], "{:?} at {at}", self.setup);
            }
        }
    }

    pub(crate) async fn pause(&self) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + Duration::from_secs(1)).await;
    }

    /// Checks that the array is clean and that each member's data also follows from the others.
    pub(crate) async fn check_without_each(&self, members: &[SimMember]) {
        for missing in 0..members.len() {
            let rest: Vec<_> = (0..members.len()).filter(|&n| n != missing).map(|n| members[n].clone()).collect();
            let array = self.assemble(&rest, false).await.expect("clean");
            self.check(&array).await;
        }
    }
}

pub(crate) fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

pub(crate) fn of<'a>(status: &'a Status, member: &SimMember) -> &'a MemberStatus {
    status.members.iter().find(|other| other.name == member.name()).expect("it is there")
}

/// Two sectors of a member's data, in a row that exists at every level.
fn spot() -> Range<u64> {
    DATA_OFFSET + 9 * ROW + 512..DATA_OFFSET + 9 * ROW + 1536
}

#[test]
fn unreadable_sectors_are_rewritten_and_counted() {
    for setup in SETUPS {
        play(setup, 1, async |scene| {
            let members = scene.create().await;
            let array = scene.serve(&members).await;
            members[0].faults().latent.borrow_mut().push(spot());
            scene.read_all_over(&array).await;
            scene.pause().await;
            assert!(members[0].faults().latent.borrow().is_empty(), "{setup:?}: it was rewritten");
            let status = array.status();
            let hurt = of(&status, &members[0]);
            assert_eq!((hurt.corrected_sectors, hurt.bad_bytes, hurt.state), (8, 0, "in_sync"), "{setup:?}");
            array.stop().await.expect("stops clean");
            let again = scene.assemble(&members, false).await.expect("whole");
            assert_eq!(of(&again.status(), &members[0]).corrected_sectors, 8, "{setup:?}: the superblock counts them");
            scene.check_without_each(&members).await;
        });
    }
}

#[test]
fn sectors_that_a_member_refuses_to_write_are_bad_blocks_until_a_write_succeeds() {
    for setup in SETUPS {
        play(setup, 3, async |scene| {
            let members = scene.create().await;
            let array = scene.serve(&members).await;
            members[0].faults().bad_reads.borrow_mut().push(spot());
            scene.read_all_over(&array).await;
            scene.pause().await;
            scene.read_all_over(&array).await;
            let status = array.status();
            let hurt = of(&status, &members[0]);
            assert_eq!((hurt.bad_bytes, hurt.corrected_sectors, hurt.state), (ROW, 0, "in_sync"), "{setup:?}");
            let errors = hurt.errors;
            scene.read_all_over(&array).await;
            assert_eq!(of(&array.status(), &members[0]).errors, errors, "{setup:?}: it is not asked again");
            array.stop().await.expect("stops clean");

            // The next assembly knows the bad blocks.
            let array = scene.serve(&members).await;
            scene.read_all_over(&array).await;
            assert_eq!((of(&array.status(), &members[0]).bad_bytes, of(&array.status(), &members[0]).errors), (ROW, 0));
            members[0].faults().heal();
            scene.write(&array, 0..array.bytes()).await;
            scene.pause().await;
            assert_eq!(of(&array.status(), &members[0]).bad_bytes, 0, "{setup:?}: it was written");
            array.stop().await.expect("stops clean");
            let array = scene.assemble(&members, false).await.expect("whole");
            assert_eq!(of(&array.status(), &members[0]).bad_bytes, 0, "{setup:?}");
            scene.check_without_each(&members).await;
        });
    }
}

#[test]
fn a_write_that_fails_in_part_records_a_bad_block_before_it_is_answered() {
    for setup in SETUPS {
        play(setup, 4, async |scene| {
            let members = scene.create().await;
            let array = scene.serve(&members).await;
            members[1].faults().bad_writes.borrow_mut().push(spot());
            scene.write(&array, 0..array.bytes()).await;
            let hurt = of(&array.status(), &members[1]).bad_bytes;
            assert!(hurt >= ROW && of(&array.status(), &members[1]).state == "in_sync", "{setup:?}: {hurt}");
            scene.read_all_over(&array).await;
            scene.pause().await;
            let hurt = of(&array.status(), &members[1]).bad_bytes;
            assert_eq!(hurt, ROW, "{setup:?}: the rest of the transfer was restored");
            // As after a power cut: only what the members hold now is left.
            let again = scene.assemble(&members, true).await.expect("forced");
            assert_eq!(of(&again.status(), &members[1]).bad_bytes, hurt, "{setup:?}");
            array.stop().await.expect("stops clean");
            let again = scene.assemble(&members, false).await.expect("clean");
            scene.read_all_over(&again).await;
        });
    }
}

/// The member acknowledges the write that restores a bad block, but does not store it.
#[test]
fn a_bad_block_is_cleared_only_after_the_written_data_was_read_back() {
    for setup in SETUPS {
        play(setup, 13, async |scene| {
            let members = scene.create().await;
            let array = scene.serve(&members).await;
            let (faults, end) = (members[1].faults(), DATA_OFFSET + setup.component_bytes);
            faults.bad_writes.borrow_mut().push(end - ROW..end);
            scene.write(&array, 0..array.bytes()).await;
            let lost = faults.bad_writes.take();
            faults.lost_writes.replace(lost);
            faults.slower_by.set(1_000_000);
            let clock = scene.world.clock();
            for _ in 0..4000 {
                clock.sleep_until(clock.now() + Duration::from_micros(100)).await;
                assert!(of(&array.status(), &members[1]).bad_bytes >= ROW, "{setup:?}: it holds the old contents");
            }
            scene.pause().await;
            assert_eq!(of(&array.status(), &members[1]).bad_bytes, ROW, "{setup:?}: the rest was restored");
            scene.read_all_over(&array).await;
            array.stop().await.expect("stops clean");
        });
    }
}

#[test]
fn rows_missing_on_different_members_are_reconstructed_from_each_other() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        play(setup, 5, async |scene| {
            let members = scene.create().await;
            let array = scene.serve(&members).await;
            for (index, member) in members.iter().enumerate() {
                let at = DATA_OFFSET + 8 * ROW + index as u64 * ROW / 2;
                member.faults().bad_reads.borrow_mut().push(at..at + 512);
                if setup.level == Level::Raid5 && index == 2 {
                    break; // three rows of a stripe
                }
            }
            // Before any read repair, in one request and in many.
            let cold = scene.assemble(&members, false).await.expect("whole");
            scene.check(&cold).await;
            scene.check(&array).await;
            scene.read_all_over(&array).await;
            scene.write(&array, 3000..array.bytes() - 5000).await;
            scene.check(&array).await;
            array.stop().await.expect("stops clean");
        });
    }
}

#[test]
fn a_member_with_too_many_read_errors_is_failed_unless_it_is_needed() {
    let play_with = |setup: Setup, absent: usize, errors: u64| {
        play(setup, 6, async |scene| {
            let members = scene.create().await;
            let there = &members[absent..];
            let array = scene.serve(there).await;
            array.set_read_errors_max(5);
            for number in 0..errors {
                let at = DATA_OFFSET + 2 * number * ROW;
                there[0].faults().latent.borrow_mut().push(at..at + 512);
                scene.read_all_over(&array).await;
            }
            scene.pause().await;
            let state = of(&array.status(), &there[0]).state;
            scene.check(&array).await;
            array.stop().await.expect("stops clean");
            state
        })
    };
    assert_eq!(play_with(RAID1, 0, 4), "in_sync");
    assert_eq!(play_with(RAID1, 0, 12), "faulty");
    assert_eq!(play_with(RAID6, 1, 12), "faulty");
    assert_eq!(play_with(RAID6, 2, 0), "in_sync");
}

#[test]
fn unrecoverable_sectors_fail_reads_there_and_nowhere_else() {
    play(RAID5, 7, async |scene| {
        let members = scene.create().await;
        let array = scene.serve(&members[1..]).await;
        members[1].faults().latent.borrow_mut().push(spot());
        let mut lost = 0;
        for _ in 0..2 {
            for at in (0..array.bytes()).step_by(512) {
                match array.read(at, array.pool().take(512)).await {
                    Ok(found) => assert!(found[..] == scene.truth.borrow()[at as usize..at as usize + 512], "at {at}"),
                    Err(_) => lost += 1,
                }
            }
            scene.pause().await;
        }
        // Two sectors: each of them, and those that depend on them, in both rounds; fewer at parity levels where the
        // sector is parity.
        assert!((4..=8).contains(&lost), "{lost}");
        assert_eq!(members[1].faults().latent.borrow().len(), 1, "nothing was written over it");
        array.stop().await.expect("stops clean");
    });
}

#[test]
fn a_recovery_records_bad_blocks_for_unrecoverable_sectors() {
    for setup in [RAID1, RAID5, RAID10] {
        play(setup, 8, async |scene| {
            let members = scene.create().await;
            let array = scene.serve(&members[1..]).await;
            members[1].faults().bad_reads.borrow_mut().push(spot());
            array.add(candidate(&members[0]), [9; 16], true).await.expect("it fits");
            scene.pause().await;
            let status = array.status();
            assert_eq!((status.in_sync, &status.sweep_failure), (status.raid_disks, &None), "{setup:?}");
            let new = of(&status, &members[0]);
            assert_eq!(new.bad_bytes, spot().end - spot().start, "{setup:?}: to the sector");
            array.stop().await.expect("stops clean");
            let array = scene.assemble(&members, false).await.expect("whole");
            assert_eq!(of(&array.status(), &members[0]).bad_bytes, 1024, "{setup:?}");
            for at in (0..array.bytes()).step_by(512) {
                if let Ok(found) = array.read(at, array.pool().take(512)).await {
                    assert!(found[..] == scene.truth.borrow()[at as usize..at as usize + 512], "{setup:?} at {at}");
                }
            }
        });
    }
}

#[test]
fn requests_do_not_wait_for_a_hung_member() {
    const SECOND: u64 = 1_000_000_000;
    for setup in SETUPS {
        for (hang_seconds, is_written, state) in
            [(2, false, "in_sync"), (1_000_000, false, "faulty"), (1_000_000, true, "faulty")]
        {
            play(setup, 10, async |scene| {
                let context = format!("{setup:?} {hang_seconds} s, written: {is_written}");
                let members = scene.create().await;
                let array = scene.serve(&members).await;
                array.set_member_timeout(Some(Duration::from_secs(1)));
                let clock = scene.world.clock();
                members[0].faults().hung_until.set(clock.now().nanos + hang_seconds * SECOND);
                let begun = clock.now();
                match is_written {
                    true => scene.write(&array, 0..array.bytes()).await,
                    false => scene.check(&array).await,
                }
                // The timeout and an eighth, once for the data; a write also waits for the mark before it.
                let waited = clock.now().since(begun);
                assert!(waited < Duration::from_millis(1500), "{context}: {waited:?}");
                // Later requests do not wait at all.
                let begun = clock.now();
                scene.check(&array).await;
                let waited = clock.now().since(begun);
                assert!(waited < Duration::from_millis(50), "{context}: {waited:?}");
                for _ in 0..4 {
                    scene.pause().await;
                }
                assert_eq!(of(&array.status(), &members[0]).state, state, "{context}");
                scene.write(&array, 0..array.bytes() - 3000).await;
                scene.read_all_over(&array).await;
                let begun = clock.now();
                array.stop().await.expect("the level survives it");
                assert!(clock.now().since(begun) < Duration::from_secs(2), "{context}");
                members[0].faults().heal();
                let again = scene.assemble(&members, false).await.expect("whole or degraded");
                scene.check(&again).await;
            });
        }
    }
}

#[test]
fn requests_do_not_wait_for_a_hung_member_without_background_tasks_either() {
    for setup in SETUPS {
        play(setup, 12, async |scene| {
            let members = scene.create().await;
            let array = scene.assemble(&members, false).await.expect("it is whole");
            array.set_member_timeout(Some(Duration::from_secs(1)));
            members[0].faults().hung_until.set(u64::MAX);
            let clock = scene.world.clock();
            let begun = clock.now();
            array.in_time(scene.check(&array)).await;
            let waited = clock.now().since(begun);
            assert!(waited < Duration::from_millis(1500), "{setup:?}: {waited:?}");
            array.stop().await.expect("the level survives it");
        });
    }
}

#[test]
fn a_stop_does_not_wait_for_a_hung_member_and_a_needed_one_returns_unchanged() {
    play(RAID1, 11, async |scene| {
        let members = scene.create().await;
        let array = scene.serve(&members[..1]).await;
        array.set_member_timeout(Some(Duration::from_secs(1)));
        members[0].faults().hung_until.set(scene.world.clock().now().nanos + 5_000_000_000);
        // There is no other copy: an error in time, and right again once the member answers.
        array.read(0, array.pool().take(4096)).await.expect_err("the only copy hangs");
        for _ in 0..8 {
            scene.pause().await;
        }
        scene.check(&array).await;
        array.stop().await.expect("stops clean");
        let array = scene.serve(&members).await;
        array.set_member_timeout(Some(Duration::from_secs(1)));
        members[1].faults().hung_until.set(u64::MAX);
        let clock = scene.world.clock();
        let begun = clock.now();
        scene.write(&array, 0..4096).await;
        array.stop().await.expect("the other has it");
        assert!(clock.now().since(begun) < Duration::from_secs(4));
    });
}

#[test]
fn a_member_that_hung_once_is_read_again_also_where_nothing_is_repaired() {
    let raid0 = Setup { level: Level::Raid0, layout: 2, ..RAID5 };
    for (setup, read_only) in [(raid0, false), (raid0, true), (RAID1, true), (RAID5, true)] {
        play(setup, 13, async |scene| {
            let members = scene.create().await;
            let options = AssembleOptions { read_only, ..AssembleOptions::default() };
            let candidates = members.iter().map(candidate).collect();
            let array = Array::assemble(candidates, options, Pool::new(1 << 20), scene.world.clock());
            let array = array.await.expect("whole");
            let keeper = array.clone();
            scene.world.spawn(async move { keeper.keep_whole().await });
            array.set_member_timeout(Some(Duration::from_secs(1)));
            for member in &members {
                member.faults().hung_until.set(scene.world.clock().now().nanos + 3_000_000_000);
            }
            array.read(0, array.pool().take(4096)).await.expect_err("every member hangs");
            for _ in 0..8 {
                scene.pause().await;
            }
            scene.check(&array).await;
            assert!(array.status().members.iter().all(|member| member.state == "in_sync"), "{setup:?}");
            array.stop().await.expect("it stops");
        });
    }
}

/// Cuts power at `cut`, counted from the first error. What was answered reads back. Returns the number of boundaries.
fn cut_while_healing(setup: Setup, cut: u64) -> u64 {
    let scene = Scene::new(setup, 9);
    let members = scene.run(scene.create());
    let written = Cell::new(false);
    let life = async {
        let array = scene.serve(&members).await;
        members[1].faults().bad_writes.borrow_mut().push(spot());
        members[0].faults().latent.borrow_mut().push(spot().start + (64 << 10)..spot().end + (64 << 10));
        scene.read_all_over(&array).await;
        let before = scene.truth.borrow().clone();
        let range = 20_000..array.bytes() - 10_000;
        scene.truth.borrow_mut().clone_from(&before);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        scene.random.borrow_mut().fill(&mut bytes);
        let block = array.pool().copy_of(&bytes);
        array.write(range.start, block, Durability::Stable).await.expect("the level survives it");
        scene.truth.borrow_mut()[range.start as usize..range.end as usize].copy_from_slice(&bytes);
        written.set(true);
        scene.pause().await;
        array.stop().await.expect("stops clean");
    };
    let (members, end) = scene.run_until_cut(life, cut, &members);
    let after = async {
        let array = match scene.assemble(&members, false).await {
            Ok(array) => array,
            Err(refusal) => {
                assert!(refusal.reason.contains("dirty and degraded"), "{setup:?} cut {cut}: {refusal}");
                scene.assemble(&members, true).await.expect("forced")
            }
        };
        array.resync(&|_, _| {}).await.unwrap_or_else(|error| panic!("{setup:?} cut {cut}: {error}"));
        if written.get() {
            scene.check(&array).await;
        }
        let found = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("whole").to_vec();
        scene.truth.replace(found);
        scene.write(&array, 0..512).await; // updates the members that an interrupted round left behind
        array.stop().await.expect("stops clean");
        scene.check_without_each_that_may_go(&members).await;
    };
    scene.run(after);
    end
}

impl Scene {
    /// As [`Scene::check_without_each`], but leaves out only members on which no data depends that the others have as
    /// bad blocks.
    async fn check_without_each_that_may_go(&self, members: &[SimMember]) {
        let array = self.assemble(members, false).await.expect("clean");
        let status = array.status();
        let bad = members.iter().position(|member| of(&status, member).bad_bytes > 0);
        for missing in (0..members.len()).filter(|&number| bad.is_none_or(|bad| bad == number)) {
            let rest: Vec<_> = (0..members.len()).filter(|&n| n != missing).map(|n| members[n].clone()).collect();
            let array = self.assemble(&rest, false).await.expect("clean");
            self.check(&array).await;
        }
    }
}

#[test]
fn power_may_go_at_any_write_during_read_repair() {
    for setup in SETUPS {
        let end = cut_while_healing(setup, u64::MAX);
        assert!(end > 10, "{setup:?}: {end} boundaries");
        for cut in 0..=end {
            cut_while_healing(setup, cut);
        }
    }
}
