//! Checks of an array that is served. A check changes no byte of a member and fails no member, whatever it finds. Each
//! finding counts once. A check that cannot continue ends with the reason.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::status::MemberStatus;
use engine::{
    Array, AssembleOptions, Candidate, ChangeKind, Clock, Durability, Pool, ScrubAction, ScrubReport, ScrubRequest,
    ScrubState, SweepTransfers, SyncSpeed,
};
use format::geometry::Level;
use format::signature::HEAD_BYTES;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const DATA_OFFSET: u64 = 64 << 10;
const COMPONENT_BYTES: u64 = 512 << 10;
const ROW: u64 = 4096;
const CHECK: ScrubRequest = ScrubRequest { action: ScrubAction::Check, range: None };

#[derive(Debug, Clone, Copy)]
struct Setup {
    level: Level,
    layout: u32,
    chunk_bytes: u64,
    slots: usize,
    integrity: bool,
}

const RAID1: Setup = Setup { level: Level::Raid1, layout: 0, chunk_bytes: 0, slots: 3, integrity: false };
const RAID5: Setup = Setup { level: Level::Raid5, layout: 2, chunk_bytes: 16 << 10, slots: 4, ..RAID1 };
const RAID6: Setup = Setup { level: Level::Raid6, slots: 5, ..RAID5 };
const RAID10: Setup = Setup { level: Level::Raid10, layout: 0x102, slots: 4, ..RAID5 };

fn setups() -> impl Iterator<Item = Setup> {
    let all =
        [RAID1, Setup { slots: 2, ..RAID1 }, RAID5, Setup { level: Level::Raid4, layout: 0, ..RAID5 }, RAID6, RAID10];
    all.into_iter().flat_map(|setup| [setup, Setup { integrity: true, ..setup }])
}

/// The world, the members and the expected contents of the array.
struct Scene {
    setup: Setup,
    world: World,
    members: Vec<SimMember>,
    random: RefCell<Random>,
    truth: RefCell<Vec<u8>>,
}

/// Plays `life` on a served array that is full of noise and idle.
fn play(setup: Setup, seed: u64, life: impl AsyncFnOnce(&Scene, Simulated)) {
    let world = World::new(seed);
    let bytes = (DATA_OFFSET + COMPONENT_BYTES) as usize;
    let member = |index| SimMember::new(format!("member{index}"), &world, vec![0; bytes], Rc::default());
    let members = (0..setup.slots).map(member).collect();
    let random = RefCell::new(Random::new(seed));
    let scene = Scene { setup, world, members, random, truth: RefCell::default() };
    let whole = async {
        let array = scene.create().await;
        life(&scene, array).await;
    };
    scene.world.run(whole, || false).expect("the run is not stopped");
}

fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

impl Scene {
    async fn create(&self) -> Simulated {
        let recipe = Recipe {
            layout: self.setup.layout,
            chunk_bytes: self.setup.chunk_bytes,
            name: "sim:checks".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET),
            component_bytes: Some(COMPONENT_BYTES),
            contents: Contents::Consistent,
            integrity: self.setup.integrity,
            ..Recipe::new(self.setup.level, [7; 16])
        };
        let newcomer = |(number, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [number; 16] });
        let newcomers: Vec<_> = (0..).zip(&self.members).map(newcomer).collect();
        let (pool, clock) = (Pool::new(1 << 20), self.world.clock());
        create(&recipe, &newcomers, &[], &pool, &clock, &|_, _| {}).await.expect("the array is created");
        let array = self.assemble().await;
        let mut bytes = vec![0; array.bytes() as usize];
        self.random.borrow_mut().fill(&mut bytes);
        array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("a whole array");
        array.stop().await.expect("a whole array");
        self.truth.replace(bytes);
        let array = self.assemble().await;
        let keeper = array.clone();
        self.world.spawn(async move { keeper.keep_whole().await });
        self.pause(60).await;
        array
    }

    async fn assemble(&self) -> Simulated {
        let members = self.members.iter().map(candidate).collect();
        let options = AssembleOptions::default();
        Array::assemble(members, options, Pool::new(8 << 20), self.world.clock()).await.expect("the array is assembled")
    }

    async fn pause(&self, seconds: u64) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + Duration::from_secs(seconds)).await;
    }

    /// Changes a row of a member silently.
    fn rot(&self, member: usize, row: u64) {
        let at = DATA_OFFSET + row * ROW;
        self.members[member].corrupt(at..at + ROW, &mut self.random.borrow_mut());
    }

    /// Makes a row of a member unreadable until it is rewritten.
    fn lose(&self, member: usize, row: u64) {
        let at = DATA_OFFSET + row * ROW;
        self.members[member].faults().latent.borrow_mut().push(at..at + ROW);
    }

    fn images(&self) -> Vec<Vec<u8>> {
        self.members.iter().map(|member| member.image().clone()).collect()
    }

    /// Waits until a scrub that was begun has ended, and what follows it too.
    async fn scrubbed(&self, array: &Simulated) -> ScrubReport {
        loop {
            self.pause(1).await;
            let report = array.scrub_report().expect("a scrub was begun");
            if report.state.is_over() {
                self.pause(120).await;
                return report;
            }
        }
    }

    async fn check(&self, array: &Simulated) -> ScrubReport {
        array.begin_scrub(&CHECK).expect("it can be checked");
        self.scrubbed(array).await
    }

    /// Reads the whole array in rows.
    async fn read_all(&self, array: &Simulated) -> Vec<u8> {
        let mut found = Vec::new();
        for at in (0..array.bytes()).step_by(ROW as usize) {
            found.extend_from_slice(
                &array.read(at, array.pool().take(ROW as usize)).await.expect("the data is available"),
            );
        }
        found
    }
}

fn of(array: &Simulated, member: usize) -> MemberStatus {
    let name = format!("member{member}");
    array.status().members.into_iter().find(|member| member.name == name).expect("it is there")
}

fn all_in_sync(array: &Simulated) -> bool {
    array.status().members.iter().all(|member| member.state == "in_sync")
}

/// Damaged rows of one member: more than the limit of read errors.
const MANY: std::ops::Range<u64> = 40..80;

#[test]
fn a_check_changes_no_member_and_fails_none_whatever_it_finds() {
    for setup in setups() {
        play(setup, 1, async |scene, array| {
            MANY.for_each(|row| scene.rot(0, row));
            (90..120).for_each(|row| scene.lose(1, row));
            (1..setup.slots).for_each(|member| [3, 4].into_iter().for_each(|row| scene.rot(member, row)));
            (0..setup.slots).for_each(|member| scene.lose(member, 6));
            let before = scene.images();
            for _ in 0..2 {
                let report = scene.check(&array).await;
                assert_eq!((report.state, &report.changes[..]), (ScrubState::Complete, &[][..]), "{setup:?}");
                assert!(report.found.counts.found() > 40 + 30, "{setup:?}: {:?}", report.found.counts);
                assert_eq!(report.found.counts.learned, 0, "{setup:?}");
            }
            assert!(scene.images() == before, "{setup:?}: a check wrote");
            assert_eq!(scene.members[1].faults().latent.borrow().len(), 31, "{setup:?}: nothing was healed");
            assert!(all_in_sync(&array), "{setup:?}");
            // Each wrong block counts once, however often it is read, and never as a read error.
            let corrupt = if setup.integrity { (40, 2) } else { (0, 0) };
            assert_eq!((of(&array, 0).corrupt_blocks, of(&array, 1).corrupt_blocks), corrupt, "{setup:?}");
            let errors = (0..setup.slots).map(|member| of(&array, member).errors).collect::<Vec<_>>();
            // Not the number of rows: rows in one transfer fail together.
            assert!(errors.iter().all(|errors| (1..=31).contains(errors)), "{setup:?}: {errors:?}");
            array.stop().await.expect("whole");
        });
    }
}

#[test]
fn reads_heal_more_wrong_blocks_than_the_limit_of_read_errors() {
    for setup in setups().filter(|setup| setup.integrity) {
        play(setup, 2, async |scene, array| {
            MANY.step_by(2).chain(80..90).for_each(|row| scene.rot(0, row));
            drop(scene.read_all(&array).await); // other tests are about reads beside a read repair
            scene.pause(120).await;
            assert!(scene.read_all(&array).await == *scene.truth.borrow(), "{setup:?}: other bytes");
            scene.pause(120).await;
            assert!(all_in_sync(&array), "{setup:?}");
            // No request reads parity, so it stays wrong; a check finds it and leaves it.
            let (healed, report) = (of(&array, 0), scene.check(&array).await);
            assert_eq!((healed.errors, healed.corrected_sectors, healed.to_heal_bytes), (0, 0, 0), "{setup:?}");
            assert_eq!(healed.healed_bytes, healed.corrupt_blocks * ROW, "{setup:?}");
            assert_eq!(healed.corrupt_blocks + report.found.counts.decided, 30, "{setup:?}");
            // A read uses one of the copies.
            let least = if matches!(setup.level, Level::Raid1 | Level::Raid10) { 1 } else { 10 };
            assert!(healed.corrupt_blocks >= least && of(&array, 0).corrupt_blocks == 30, "{setup:?}: {healed:?}");
            // A block that was healed and is wrong again counts again.
            scene.rot(0, 40);
            scene.check(&array).await;
            assert!(of(&array, 0).corrupt_blocks >= 30, "{setup:?}");
            array.stop().await.expect("whole");
        });
    }
}

#[test]
fn a_check_beside_writes_changes_nothing_that_it_finds() {
    for (setup, seed) in setups().flat_map(|setup| (0..4).map(move |seed| (setup, seed))) {
        play(setup, seed, async |scene, array| {
            // Requests write to the first half; the wrong blocks are in the second.
            let half = COMPONENT_BYTES / ROW / 2;
            (0..setup.slots as u64).for_each(|member| scene.rot(member as usize, half + 8 + 12 * member));
            (0..setup.slots).for_each(|member| scene.rot(member, half + 1));
            let second = || -> Vec<Vec<u8>> {
                let of = |image: Vec<u8>| image[(DATA_OFFSET + half * ROW) as usize..].to_vec();
                scene.images().into_iter().map(of).collect()
            };
            let before = second();
            let transfers = SweepTransfers { window_bytes: Some(16 << 10), in_flight_bytes: 32 << 10 };
            array.set_sweep_transfers(transfers).expect("powers of two");
            array.set_sync_speed(SyncSpeed { min: 1 << 20, max: Some(1 << 20) }).expect("a speed");
            array.begin_scrub(&CHECK).expect("it can be checked");
            let (clock, mut writes) = (scene.world.clock(), 0);
            while !array.scrub_report().expect("a scrub was begun").state.is_over() {
                let bytes = array.bytes() / 2;
                let at = scene.random.borrow_mut().within(0..bytes / 512) * 512;
                let length = scene.random.borrow_mut().within(1..41) * 512;
                let data = vec![writes as u8; length.min(bytes - at) as usize];
                let data = array.pool().copy_of(&data);
                array.write(at, data, Durability::Ordinary).await.expect("whole");
                writes += 1;
                clock.sleep_until(clock.now() + Duration::from_millis(20)).await;
            }
            let report = scene.scrubbed(&array).await;
            assert!(writes > 3 && report.state == ScrubState::Complete, "{setup:?} {seed}: {writes}, {report:?}");
            assert!(report.found.counts.found() > setup.slots as u64, "{setup:?} {seed}: {:?}", report.found.counts);
            assert!(second() == before, "{setup:?} {seed}: a check wrote");
            assert!(all_in_sync(&array), "{setup:?} {seed}");
            array.stop().await.expect("whole");
        });
    }
}

#[test]
fn a_member_that_times_out_during_a_check_is_asked_again_and_stays() {
    for setup in [RAID1, RAID6, Setup { integrity: true, ..RAID5 }] {
        play(setup, 3, async |scene, array| {
            let clock = scene.world.clock();
            scene.members[1].faults().hung_until.set(clock.now().nanos + 200_000_000_000);
            let report = scene.check(&array).await;
            assert!(all_in_sync(&array), "{setup:?}");
            assert_eq!(report.changes[0].change, ChangeKind::Silent, "{setup:?}");
            assert_eq!(report.found.counts.found(), 0, "{setup:?}");
            scene.pause(300).await;
            let report = scene.check(&array).await;
            assert_eq!((&report.changes[..], report.found.counts.found()), (&[][..], 0), "{setup:?}");
            scene.rot(1, 7);
            assert_eq!(scene.check(&array).await.found.counts.found(), 1, "{setup:?}: it is read again");
            array.stop().await.expect("whole");
        });
    }
}

/// A member of noise, with nothing that looks like a superblock.
fn newcomer(scene: &Scene, bytes: usize) -> SimMember {
    let mut contents = vec![0x5a; bytes];
    contents[..HEAD_BYTES as usize].fill(0);
    SimMember::new("blank".to_owned(), &scene.world, contents, Rc::default())
}

#[test]
fn the_report_lists_changes_of_members_since_the_scrub_began() {
    for setup in [RAID1, RAID6] {
        play(setup, 4, async |scene, array| {
            array.begin_scrub(&CHECK).expect("it can be checked");
            array.pause_scrub(true).expect("it was begun");
            array.fail("member1").await.expect("the level survives it");
            array.remove("member1").await.expect("it is faulty");
            let bytes = (DATA_OFFSET + COMPONENT_BYTES) as usize;
            let blank = newcomer(scene, bytes);
            array.add(candidate(&blank), [9; 16], false).await.expect("it fits");
            scene.pause(120).await;
            array.pause_scrub(false).expect("it is paused");
            let report = scene.scrubbed(&array).await;
            let told: Vec<_> = report.changes.iter().map(|told| (&*told.member, told.slot, told.change)).collect();
            let expected = [
                ("member1", Some(1), ChangeKind::Left),
                ("member1", None, ChangeKind::Removed),
                ("blank", Some(1), ChangeKind::Recovering),
                ("blank", Some(1), ChangeKind::Recovered),
            ];
            assert_eq!(told, expected, "{setup:?}");
            assert_eq!((report.state, report.found.counts.found()), (ScrubState::Complete, 0), "{setup:?}");
            array.stop().await.expect("whole");
        });
    }
}

/// Makes every member fail its next write, so that the array fails.
async fn fail_array(scene: &Scene, array: &Simulated) {
    for member in &scene.members {
        member.faults().bad_writes.borrow_mut().push(0..DATA_OFFSET + COMPONENT_BYTES);
    }
    array
        .write(0, array.pool().copy_of(&[1; 4096]), Durability::Stable)
        .await
        .expect_err("every member fails the write");
    assert!(array.status().broken.is_some(), "{:?}", scene.setup);
}

#[test]
fn a_scrub_of_a_failed_array_ends_at_once_with_the_reason() {
    for (setup, action) in [(RAID1, ScrubAction::Check), (RAID5, ScrubAction::Repair), (RAID10, ScrubAction::Check)] {
        let request = ScrubRequest { action, range: None };
        for is_paused in [false, true] {
            play(setup, 5, async |scene, array| {
                array.begin_scrub(&request).expect("it can be scrubbed");
                if is_paused {
                    array.pause_scrub(true).expect("it was begun");
                }
                fail_array(scene, &array).await;
                let report = array.scrub_report().expect("a scrub was begun");
                let reason = report.failure.as_deref().unwrap_or_default();
                assert_eq!(report.state, ScrubState::Failed, "{setup:?}");
                assert!(reason.contains("takes no more writes") && reason.contains("member"), "{setup:?}: {reason}");
                let refusal = array.begin_scrub(&request).expect_err("the array has failed").to_string();
                assert!(refusal.contains("takes no writes"), "{setup:?}: {refusal}");
                array.stop().await.expect_err("the array has failed");
            });
        }
    }
}

#[test]
fn a_scrub_does_not_wait_for_a_recovery_that_cannot_continue() {
    play(RAID5, 6, async |scene, array| {
        array.fail("member1").await.expect("the level survives it");
        let bytes = (DATA_OFFSET + COMPONENT_BYTES) as usize;
        let blank = newcomer(scene, bytes);
        // Without member 2, what the new member cannot get would become bad blocks, as long as member 2 cannot return.
        scene.members[2].faults().gone.set(true);
        array.begin_scrub(&CHECK).expect("it can be checked");
        array.pause_scrub(true).expect("it was begun");
        drop(array.add(candidate(&blank), [9; 16], false).await);
        drop(array.pause_scrub(false));
        scene.pause(120).await;
        let report = array.scrub_report().expect("a scrub was begun");
        assert_eq!(report.state, ScrubState::Failed, "{:?}, {:?}", report, array.status().sweep_failure);
        assert!(report.failure.is_some());
        drop(array.stop().await);
    });
}
