//! Scrubs: what they read, find and heal, beside other users of the array, and over pauses and restarts.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{
    Array, AssembleOptions, Candidate, Clock, Durability, FindingVerdict, Outcome, Pool, ScrubAction, ScrubReport,
    ScrubRequest, ScrubState,
};
use format::geometry::Level;
use format::signature::HEAD_BYTES;
use futures_util::future::join;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const DATA_OFFSET: u64 = 32 << 10;
const CHECK: ScrubRequest = ScrubRequest { action: ScrubAction::Check, range: None };
const REPAIR: ScrubRequest = ScrubRequest { action: ScrubAction::Repair, range: None };
const REPAIR_PARITY: ScrubRequest = ScrubRequest { action: ScrubAction::RepairParity, range: None };

#[derive(Debug, Clone, Copy)]
struct Setup {
    level: Level,
    layout: u32,
    chunk_bytes: u64,
    slots: usize,
    component_bytes: u64,
}

const RAID1: Setup = Setup { level: Level::Raid1, layout: 0, chunk_bytes: 0, slots: 3, component_bytes: 3 << 20 };
const RAID5: Setup = Setup { level: Level::Raid5, layout: 2, chunk_bytes: 64 << 10, slots: 4, ..RAID1 };
const RAID6: Setup = Setup { level: Level::Raid6, slots: 6, ..RAID5 };
const RAID10: Setup = Setup { level: Level::Raid10, layout: 0x102, slots: 4, ..RAID5 };

const SETUPS: [Setup; 11] = [
    RAID1,
    Setup { slots: 2, component_bytes: (3 << 20) + (64 << 10), ..RAID1 },
    Setup { level: Level::Raid4, layout: 0, ..RAID5 },
    RAID5,
    Setup { chunk_bytes: 1 << 20, layout: 0, ..RAID5 },
    RAID6,
    Setup { chunk_bytes: 4 << 10, layout: 8, ..RAID6 },
    RAID10,
    Setup { layout: 0x201, ..RAID10 },
    Setup { layout: 0x103, slots: 5, component_bytes: 3840 << 10, ..RAID10 },
    Setup { layout: 0x1_0201, chunk_bytes: 8 << 10, ..RAID10 },
];

/// The world, the members and the expected contents.
struct Scene {
    setup: Setup,
    world: World,
    members: Vec<SimMember>,
    random: RefCell<Random>,
}

impl Scene {
    fn new(setup: Setup, seed: u64) -> Self {
        let world = World::new(seed);
        let bytes = (DATA_OFFSET + setup.component_bytes.next_multiple_of(64 << 10)) as usize;
        let member = |index| SimMember::new(format!("member{index}"), &world, vec![0; bytes], Rc::default());
        let members = (0..setup.slots).map(member).collect();
        Self { setup, world, members, random: RefCell::new(Random::new(seed)) }
    }

    fn run<T>(&self, life: impl Future<Output = T>) -> T {
        self.world.run(life, || false).expect("the run is not stopped")
    }

    fn candidates(&self) -> Vec<Candidate<SimMember>> {
        self.members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
    }

    async fn create(&self) {
        let recipe = Recipe {
            layout: self.setup.layout,
            chunk_bytes: self.setup.chunk_bytes,
            name: "sim:scrub".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET),
            component_bytes: Some(self.setup.component_bytes),
            contents: Contents::Consistent,
            ..Recipe::new(self.setup.level, [7; 16])
        };
        let newcomer = |(number, candidate)| Some(Newcomer { candidate, device_uuid: [number; 16] });
        let newcomers: Vec<_> = (0..).zip(self.candidates()).map(newcomer).collect();
        let pool = Pool::new(1 << 20);
        create(&recipe, &newcomers, &[], &pool, &self.world.clock(), &|_, _| {}).await.expect("the array is created");
        let array = self.assemble().await;
        let mut bytes = vec![0; array.bytes() as usize];
        self.random.borrow_mut().fill(&mut bytes);
        array.write(0, array.pool().copy_of(&bytes), Durability::Ordinary).await.expect("a whole array");
        array.stop().await.expect("a whole array");
    }

    async fn assemble(&self) -> Simulated {
        self.assemble_of(self.candidates()).await
    }

    async fn assemble_of(&self, members: Vec<Candidate<SimMember>>) -> Simulated {
        let pool = Pool::new(32 << 20);
        let options = AssembleOptions::default();
        Array::assemble(members, options, pool, self.world.clock()).await.expect("the array is assembled")
    }

    async fn pause(&self, time: Duration) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + time).await;
    }

    /// Changes a range of a member's component silently.
    fn corrupt(&self, member: usize, component_at: u64, bytes: u64) {
        let at = DATA_OFFSET + component_at;
        self.members[member].corrupt(at..at + bytes, &mut self.random.borrow_mut());
    }

    fn data(&self, member: usize) -> Vec<u8> {
        self.members[member].image()[DATA_OFFSET as usize..].to_vec()
    }

    fn all_data(&self) -> Vec<Vec<u8>> {
        (0..self.members.len()).map(|member| self.data(member)).collect()
    }
}

async fn scrubbed(array: &Simulated, request: &ScrubRequest) -> ScrubReport {
    array.begin_scrub(request).expect("it can be scrubbed");
    array.scrub(&|_, _| {}).await.expect("the array can be scrubbed");
    let report = array.scrub_report().expect("a scrub was begun");
    assert_eq!(report.state, ScrubState::Complete);
    report
}

/// Reads of each member, and their bytes.
fn reads(array: &Simulated) -> Vec<(u64, u64)> {
    array.status().members.iter().map(|member| (member.reads, member.read_bytes)).collect()
}

#[test]
fn every_byte_of_a_healthy_array_is_read_once_in_long_transfers_and_none_is_written() {
    for setup in SETUPS {
        let scene = Scene::new(setup, 1);
        scene.run(async {
            scene.create().await;
            let before = scene.all_data();
            let array = scene.assemble().await;
            let report = scrubbed(&array, &CHECK).await;
            assert_eq!((report.found.counts.found(), report.found.counts.mismatch_cnt), (0, 0), "{setup:?}");
            let used = setup.component_bytes / setup.chunk_bytes.max(1) * setup.chunk_bytes.max(1);
            let windows = used.div_ceil((512 << 10).max(setup.chunk_bytes));
            for (reads, bytes) in reads(&array) {
                assert_eq!(bytes, used, "{setup:?}");
                // If copies are far apart on a member, each window of the array is several runs of it.
                let runs = if setup.layout > 0x1ff && setup.level == Level::Raid10 {
                    used / setup.chunk_bytes
                } else {
                    2 * windows
                };
                assert!(reads <= runs, "{setup:?}: {reads} reads of {bytes} bytes");
            }
            assert!(array.status().members.iter().all(|member| member.writes == 0));
            array.stop().await.expect("no member fails");
            assert!(scene.all_data() == before, "{setup:?}");
        });
    }
}

#[test]
fn a_wrong_block_is_named_with_its_stripe_and_position_and_healed() {
    let scene = Scene::new(RAID6, 2);
    scene.run(async {
        scene.create().await;
        let right = scene.all_data();
        // Stripe 5, the third row of slot 2's chunk. Left-symmetric: P is on slot 0 and Q on slot 1, and slot 2 holds
        // the first data chunk.
        let at = 5 * RAID6.chunk_bytes + 2 * 4096;
        scene.corrupt(2, at + 100, 200);
        let array = scene.assemble().await;
        let report = scrubbed(&array, &CHECK).await;
        let [finding] = &report.found.findings[..] else { panic!("{report:?}") };
        assert_eq!((finding.stripe, finding.outcome, finding.rows), (Some(5), Outcome::Left, 1));
        let part = &finding.members[0];
        assert_eq!((&*part.name, part.slot, &*part.role, part.member_at), ("member2", 2, "data", DATA_OFFSET + at));
        let data_chunks = 4;
        let array_at = 5 * data_chunks * RAID6.chunk_bytes + 2 * 4096;
        assert_eq!((finding.array[0].at, finding.array[0].bytes), (array_at, 4096));
        assert_eq!(report.found.counts.mismatch_cnt, 8);
        assert_eq!(report.found.counts.members[0].blocks, 1);
        let report = scrubbed(&array, &REPAIR).await;
        assert_eq!((report.found.counts.healed, report.found.counts.left()), (1, 0));
        array.stop().await.expect("no member fails");
        assert!(scene.all_data() == right);
    });
}

#[test]
fn undecidable_rows_stay_unless_mds_choice_is_requested() {
    for setup in [RAID5, Setup { slots: 2, ..RAID1 }, RAID10] {
        let scene = Scene::new(setup, 3);
        scene.run(async {
            scene.create().await;
            scene.corrupt(1, 256 << 10, 4096);
            let spoiled = scene.all_data();
            let array = scene.assemble().await;
            for request in [CHECK, REPAIR] {
                let counts = scrubbed(&array, &request).await.found.counts;
                assert_eq!((counts.undecidable, counts.decided, counts.left()), (1, 0, 1), "{setup:?}");
                assert!(scene.all_data() == spoiled, "{setup:?}");
            }
            let counts = scrubbed(&array, &REPAIR_PARITY).await.found.counts;
            assert_eq!((counts.undecidable, counts.rewritten, counts.left()), (1, 1, 0), "{setup:?}");
            assert_eq!(scrubbed(&array, &CHECK).await.found.counts.found(), 0, "{setup:?}");
            array.stop().await.expect("no member fails");
        });
    }
}

#[test]
fn an_unreadable_sector_is_found_reconstructed_and_rewritten() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        let scene = Scene::new(setup, 4);
        scene.run(async {
            scene.create().await;
            let bad = DATA_OFFSET + (1 << 20) + 4096 + 512;
            scene.members[1].faults().latent.borrow_mut().push(bad..bad + 512);
            let array = scene.assemble().await;
            let report = scrubbed(&array, &CHECK).await;
            let [finding] = &report.found.findings[..] else { panic!("{setup:?}: {report:?}") };
            assert!(matches!(finding.verdict, FindingVerdict::Decided(_)), "{setup:?}: {finding:?}");
            assert_eq!((finding.members[0].slot, finding.members[0].member_at), (1, bad / 4096 * 4096));
            for (member, (_, bytes)) in reads(&array).into_iter().enumerate() {
                // The failed transfer of the member with the bad sector was repeated in smaller parts.
                let again = if member == 1 { (512 << 10) + (64 << 10) } else { 0 };
                assert!(bytes <= setup.component_bytes + again, "{setup:?}: {bytes} bytes of member {member}");
            }
            let counts = scrubbed(&array, &REPAIR).await.found.counts;
            assert_eq!((counts.healed, counts.left()), (1, 0), "{setup:?}");
            assert_eq!(scrubbed(&array, &CHECK).await.found.counts.found(), 0, "{setup:?}");
            array.stop().await.expect("no member fails");
        });
    }
}

#[test]
fn one_wrong_block_too_many_for_a_decision_is_found_and_left_alone() {
    let scene = Scene::new(RAID6, 5);
    scene.run(async {
        scene.create().await;
        scene.corrupt(1, 300 << 10, 4096);
        scene.corrupt(4, 300 << 10, 4096);
        scene.corrupt(3, 800 << 10, 4096);
        let mut candidates = scene.candidates();
        let whole = scene.assemble().await;
        let counts = scrubbed(&whole, &REPAIR).await.found.counts;
        assert_eq!((counts.undecidable, counts.healed), (1, 1));
        whole.stop().await.expect("no member fails");
        // With one member missing, a mismatch is seen, but no block can be identified as wrong.
        scene.corrupt(3, 900 << 10, 4096);
        candidates.remove(5);
        let degraded = scene.assemble_of(candidates).await;
        let counts = scrubbed(&degraded, &REPAIR).await.found.counts;
        assert_eq!((counts.undecidable, counts.decided, counts.left()), (2, 0, 2));
        // With md's choice: the missing data is what P says, and Q follows from it all.
        let before = scene.all_data();
        let counts = scrubbed(&degraded, &REPAIR_PARITY).await.found.counts;
        assert_eq!((counts.undecidable, counts.rewritten, counts.left()), (2, 2, 0));
        assert_eq!(scrubbed(&degraded, &CHECK).await.found.counts.found(), 0);
        let changed = before.iter().zip(scene.all_data()).filter(|(before, after)| **before != *after);
        assert!(changed.count() <= 2, "a parity of each row, and nothing else");
        degraded.stop().await.expect("no member fails");
    });
}

#[test]
fn a_scrub_that_is_paused_interrupted_and_resumed_reads_each_byte_once_and_reports_all() {
    let scene = Scene::new(RAID6, 6);
    scene.run(async {
        scene.create().await;
        for (member, at) in [(0, 0), (3, 1 << 20), (2, (3 << 20) - 4096)] {
            scene.corrupt(member, at, 4096);
        }
        let array = scene.assemble().await;
        array.begin_scrub(&CHECK).expect("it can be scrubbed");
        assert!(array.begin_scrub(&CHECK).is_err(), "one at a time");
        array.pause_scrub(true).expect("it was begun");
        array.scrub(&|_, _| {}).await.expect("it stands still");
        assert_eq!(array.scrub_report().expect("begun").position, 0);
        array.pause_scrub(false).expect("it is paused");
        array.set_sync_speed(engine::SyncSpeed { min: 1 << 20, max: Some(1 << 20) }).expect("a speed");
        let kept: RefCell<Option<ScrubReport>> = RefCell::default();
        let keep = |report: &ScrubReport| {
            kept.replace(Some(report.clone()));
        };
        let later = async {
            scene.pause(Duration::from_millis(1200)).await;
            array.stop().await.expect("no member fails");
        };
        let watch = array.watch_scrub(Duration::from_secs(1), &keep);
        let (scrubbed, (), ()) = futures_util::future::join3(array.scrub(&|_, _| {}), later, watch).await;
        scrubbed.expect("interrupted, not failed");
        let report = kept.take().expect("it was told");
        assert!(report.position > 0 && report.position < report.positions.end, "{report:?}");
        assert_eq!(report.state, ScrubState::Waiting);
        let read_before: Vec<u64> = reads(&array).into_iter().map(|(_, bytes)| bytes).collect();
        drop(array);
        let array = scene.assemble().await;
        array.restore_scrub(report).expect("of this array");
        array.scrub(&|_, _| {}).await.expect("the array can be scrubbed");
        let report = array.scrub_report().expect("it was restored");
        assert_eq!((report.state, report.found.counts.decided), (ScrubState::Complete, 3));
        for ((_, bytes), before) in reads(&array).into_iter().zip(read_before) {
            assert_eq!(bytes + before, RAID6.component_bytes);
        }
        array.begin_scrub(&CHECK).expect("the last one is over");
        array.cancel_scrub().expect("it was begun");
        array.scrub(&|_, _| {}).await.expect("there is nothing to do");
        assert_eq!(array.scrub_report().expect("a scrub was begun").state, ScrubState::Cancelled);
        array.stop().await.expect("no member fails");
    });
}

#[test]
fn a_range_is_widened_to_whole_stripes_and_nothing_else_is_read() {
    for (setup, range, read) in [
        (RAID5, 200 << 10..900 << 10, 4 * (64 << 10)), // stripes of 192 KiB: 1 to 4
        (RAID1, 100 << 10..200 << 10, 3 * (64 << 10)),
    ] {
        let scene = Scene::new(setup, 7);
        scene.run(async {
            scene.create().await;
            let array = scene.assemble().await;
            let beyond = ScrubRequest { action: ScrubAction::Check, range: Some(0..array.bytes() + 1) };
            assert!(array.begin_scrub(&beyond).is_err());
            let seen = Cell::new(0);
            let watch = async {
                for _ in 0..100 {
                    scene.world.clock().sleep_until(scene.world.clock().now() + Duration::from_micros(100)).await;
                    let Some(sweep) = array.status().sweep else { continue };
                    assert_eq!(sweep.total_bytes, read, "{setup:?}: what is shown is of the range: {sweep:?}");
                    assert!(sweep.done_bytes <= read && sweep.percent <= 100.0, "{setup:?}: {sweep:?}");
                    seen.set(seen.get() + 1);
                }
            };
            let request = ScrubRequest { action: ScrubAction::Check, range: Some(range) };
            join(scrubbed(&array, &request), watch).await;
            assert!(seen.get() > 0, "{setup:?}: it was over before it was looked at");
            assert!(reads(&array).iter().all(|(_, bytes)| *bytes == read), "{setup:?}: {:?}", reads(&array));
            array.stop().await.expect("no member fails");
        });
    }
}

/// Writes random whole units until `unit` is 0.
async fn write_meanwhile(scene: &Scene, array: &Simulated, model: &RefCell<Vec<u8>>, unit: &Cell<u64>) {
    while unit.get() > 0 {
        let (at, bytes) = {
            let (mut random, unit) = (scene.random.borrow_mut(), unit.get());
            let units = random.within(1..(40_000 / unit).max(2));
            let mut bytes = vec![0; (unit * units) as usize];
            random.fill(&mut bytes);
            (random.within(0..(array.bytes() / unit - units)) * unit, bytes)
        };
        model.borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        array.write(at, array.pool().copy_of(&bytes), Durability::Ordinary).await.expect("no member fails");
        scene.pause(Duration::from_micros(200)).await;
    }
}

#[test]
fn writes_in_flight_are_never_mistaken_for_mismatches_nor_undone_by_a_repair() {
    for (setup, seed) in [RAID1, RAID5, RAID6, RAID10].into_iter().zip(10..) {
        let scene = Scene::new(setup, seed);
        scene.run(async {
            scene.create().await;
            let array = scene.assemble().await;
            array.set_sync_speed(engine::SyncSpeed { min: 1 << 30, max: None }).expect("a speed");
            let whole = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("a whole array");
            let (model, unit) = (RefCell::new(whole.to_vec()), Cell::new(1));
            let scrubs = async {
                for round in 0..8 {
                    let report = scrubbed(&array, &if round % 2 == 0 { CHECK } else { REPAIR_PARITY }).await;
                    assert_eq!(report.found.counts.found(), 0, "{setup:?}: {report:?}");
                }
                // With blocks to heal, only whole stripes are written. Other writes would use wrong blocks as data, and
                // make them permanent.
                unit.set(array.preferred_bytes());
                for round in 0..8 {
                    scene.corrupt(setup.slots - 1, round * (256 << 10), 4096);
                    scrubbed(&array, &REPAIR).await;
                }
                unit.set(0);
            };
            futures_util::future::join(scrubs, write_meanwhile(&scene, &array, &model, &unit)).await;
            let found = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("a whole array");
            let is_decidable = matches!(setup.level, Level::Raid6) || (setup.level, setup.slots) == (Level::Raid1, 3);
            if is_decidable {
                assert!(found[..] == model.borrow()[..], "{setup:?}");
                assert_eq!(scrubbed(&array, &CHECK).await.found.counts.found(), 0, "{setup:?}");
            }
            array.stop().await.expect("no member fails");
        });
    }
}

#[test]
fn a_servers_scrub_waits_for_a_recovery_and_continues_after_it() {
    let scene = Scene::new(RAID6, 20);
    scene.run(async {
        scene.create().await;
        let array = scene.assemble().await;
        let keeper = array.clone();
        scene.world.spawn(async move { keeper.keep_whole().await });
        array.set_sync_speed(engine::SyncSpeed { min: 1 << 20, max: Some(4 << 20) }).expect("a speed");
        array.begin_scrub(&CHECK).expect("it can be scrubbed");
        scene.pause(Duration::from_millis(300)).await;
        assert_eq!(array.status().sync_action, "check");
        array.fail("member0").await.expect("the level survives it");
        let mut contents = vec![0x5a; (DATA_OFFSET + RAID6.component_bytes) as usize];
        contents[..HEAD_BYTES as usize].fill(0); // or it would be taken for a member
        let blank = SimMember::new("blank".to_owned(), &scene.world, contents, Rc::default());
        array.add(Candidate { name: "blank".to_owned(), member: blank }, [9; 16], false).await.expect("it fits");
        let mut recovered = false;
        loop {
            let status = array.status();
            recovered |= status.sync_action == "recover";
            let report = array.scrub_report().expect("a scrub was begun");
            if report.state.is_over() {
                assert!(recovered && status.in_sync == 6, "{status:?}");
                assert_eq!((report.state, report.found.counts.found()), (ScrubState::Complete, 0));
                break;
            }
            scene.pause(Duration::from_millis(20)).await;
        }
        array.stop().await.expect("no member fails");
    });
}
