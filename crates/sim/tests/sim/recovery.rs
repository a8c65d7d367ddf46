//! Members that fail, are replaced and come back. Arrays become whole again while they are in use, and power is cut at
//! every write meanwhile.
//!
//! Flushed data must read back at any moment and after any cut. A member that is not current is never used. The
//! recovery continues to a whole array, whose data also follows from the others when any one member is left out.

mod doubt;
mod old;
mod rounds;
mod spares;

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{
    Array, AssembleOptions, BitmapPolicy, Candidate, Clock, Durability, Offer, Pool, Refusal, SweepTransfers, SyncSpeed,
};
use format::geometry::Level;
use format::placement::BitmapChoice;
use format::signature::HEAD_BYTES;
use format::superblock::{BadBlockPlace, DeviceRole, MAX_DEVICES, Superblock, Version, decode};
use format::units::{MemberByte, Sectors};
use futures_util::future::join;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const DATA_OFFSET: usize = 32 << 10;

#[derive(Debug, Clone, Copy)]
struct Setup {
    level: Level,
    layout: u32,
    chunk_bytes: u64,
    slots: usize,
    component_bytes: u64,
    bitmap: bool,
    /// The number of members that are lost, and replaced, at once.
    lost: usize,
    version: Version,
}

const RAID1: Setup = Setup {
    level: Level::Raid1,
    layout: 0,
    chunk_bytes: 0,
    slots: 3,
    component_bytes: 64 << 10,
    bitmap: false,
    lost: 2,
    version: Version::V1_2,
};
const RAID5: Setup = Setup { level: Level::Raid5, layout: 2, chunk_bytes: 4096, slots: 4, lost: 1, ..RAID1 };
const RAID6: Setup = Setup { level: Level::Raid6, slots: 5, lost: 2, ..RAID5 };
const RAID10: Setup = Setup { level: Level::Raid10, layout: 0x102, slots: 4, ..RAID5 };

const SETUPS: [Setup; 12] = [
    RAID1,
    Setup { bitmap: true, lost: 1, ..RAID1 },
    Setup { level: Level::Raid4, layout: 0, ..RAID5 },
    RAID5,
    Setup { bitmap: true, ..RAID5 },
    Setup { chunk_bytes: 16 << 10, layout: 0, ..RAID5 },
    RAID6,
    Setup { bitmap: true, lost: 1, layout: 8, ..RAID6 },
    RAID10,
    Setup { layout: 0x201, slots: 3, ..RAID10 },
    Setup { layout: 0x1_0201, bitmap: true, ..RAID10 },
    Setup { slots: 3, bitmap: true, ..RAID10 },
];

fn all_setups() -> impl Iterator<Item = Setup> {
    SETUPS.into_iter().chain(old::SETUPS)
}

/// The expected contents: settled bytes, and whole images in flight since.
struct Truth {
    settled: Vec<u8>,
    recent: Vec<Vec<u8>>,
}

impl Truth {
    fn check(&self, found: &[u8], context: &str) {
        for (index, byte) in found.iter().enumerate() {
            let is_legal = self.settled[index] == *byte || self.recent.iter().any(|image| image[index] == *byte);
            assert!(is_legal, "{context}: byte {index} is {byte}, settled was {}", self.settled[index]);
        }
    }
}

struct Life {
    setup: Setup,
    seed: u64,
    world: World,
    random: RefCell<Random>,
    boundaries: Rc<Cell<u64>>,
    truth: Rc<RefCell<Truth>>,
}

impl Life {
    fn new(setup: Setup, seed: u64) -> Self {
        let truth = Truth { settled: Vec::new(), recent: Vec::new() };
        Self {
            setup,
            seed,
            world: World::new(seed),
            random: RefCell::new(Random::new(seed)),
            boundaries: Rc::default(),
            truth: Rc::new(RefCell::new(truth)),
        }
    }

    fn context(&self) -> String {
        format!("{:?} seed {} at {}", self.setup, self.seed, self.boundaries.get())
    }

    fn member(&self, name: &str, contents: u8) -> SimMember {
        let is_old = self.setup.version == Version::V0_90;
        let behind = if is_old { 128 << 10 } else { 0 };
        let bytes = DATA_OFFSET + self.setup.component_bytes as usize + behind;
        let mut contents = vec![contents; bytes];
        contents[..HEAD_BYTES as usize].fill(0); // or it would be taken for a member
        let member = SimMember::new(name.to_owned(), &self.world, contents, self.boundaries.clone());
        self.with_tears(member)
    }

    /// A superblock 0.90 is 4 KiB and has no copy: if it is torn, the member is lost, to md as well.
    fn with_tears(&self, member: SimMember) -> SimMember {
        if self.setup.version == Version::V0_90 { member.with_tears(4096) } else { member }
    }

    /// Whether a member was never given a superblock.
    fn is_blank(&self, member: &SimMember) -> bool {
        let contents = member.contents();
        let at = self.setup.version.place(contents.len() as u64).expect("it is long enough").0 as usize;
        contents[at..at + 4] == [0x5a; 4]
    }

    /// As [`Self::create`], with the first blank member as a spare.
    async fn create_with_spare(&self) -> (Vec<SimMember>, Vec<SimMember>) {
        let (members, blanks) = self.create().await;
        let array = self.assemble(&members, false).await.expect("whole");
        array.add(candidate(&blanks[0]), [0x80; 16], false).await.expect("it fits");
        array.stop().await.expect("stops clean");
        (members, blanks)
    }

    /// Creates an array; returns its members, and as many blank ones as it will lose.
    async fn create(&self) -> (Vec<SimMember>, Vec<SimMember>) {
        let setup = &self.setup;
        let recipe = Recipe {
            layout: setup.layout,
            chunk_bytes: setup.chunk_bytes,
            version: setup.version,
            name: if setup.version == Version::V0_90 { String::new() } else { "sim:recovery".to_owned() },
            data_offset_bytes: (!setup.version.is_at_end()).then_some(DATA_OFFSET as u64),
            component_bytes: Some(setup.component_bytes),
            bitmap: if setup.bitmap { BitmapChoice::Chunk(4096) } else { BitmapChoice::None },
            contents: Contents::Consistent,
            ..Recipe::new(setup.level, [7; 16])
        };
        let members: Vec<_> = (0..setup.slots).map(|index| self.member(&format!("member{index}"), 0)).collect();
        let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = candidates(&members).into_iter().enumerate().map(newcomer).collect();
        let (pool, clock) = (Pool::new(1 << 20), self.world.clock());
        create(&recipe, &newcomers, &[], &pool, &clock, &|_, _| {}).await.expect("the array is created");
        let blanks = (0..setup.lost).map(|index| self.member(&format!("blank{index}"), 0x5a)).collect();
        (members, blanks)
    }

    async fn assemble(&self, members: &[SimMember], force: bool) -> Result<Simulated, Refusal> {
        let options = AssembleOptions { force, ..AssembleOptions::default() };
        Array::assemble(candidates(members), options, Pool::new(1 << 20), self.world.clock()).await
    }

    /// Assembles the array and starts the tasks of a server.
    async fn serve(&self, members: &[SimMember], force: bool) -> Result<Simulated, Refusal> {
        let array = self.assemble(members, force).await?;
        let (keeper, cleaner) = (array.clone(), array.clone());
        self.world.spawn(async move { keeper.keep_whole().await });
        self.world.spawn(async move { cleaner.mark_clean_when_idle(Duration::from_millis(5)).await });
        Ok(array)
    }

    /// Fills the array with noise.
    async fn fill(&self, array: &Simulated) {
        let mut bytes = vec![0; array.bytes() as usize];
        self.random.borrow_mut().fill(&mut bytes);
        array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("a whole array");
        self.truth.borrow_mut().settled = bytes;
    }

    /// Writes a random range, with stable durability.
    async fn write(&self, array: &Simulated) {
        let (start, bytes) = {
            let mut random = self.random.borrow_mut();
            let start = random.within(0..array.bytes());
            let mut bytes = vec![0; random.within(1..(array.bytes() - start).min(20_000) + 1) as usize];
            random.fill(&mut bytes);
            (start as usize, bytes)
        };
        let image = {
            let mut image = self.truth.borrow().settled.clone();
            image[start..start + bytes.len()].copy_from_slice(&bytes);
            self.truth.borrow_mut().recent.push(image.clone());
            image
        };
        let block = array.pool().copy_of(&bytes);
        array.write(start as u64, block, Durability::Stable).await.expect("the level survives it");
        let mut truth = self.truth.borrow_mut();
        truth.settled = image;
        truth.recent.clear();
    }

    async fn read(&self, array: &Simulated) -> Vec<u8> {
        let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
        read.unwrap_or_else(|error| panic!("{}: {error}", self.context())).to_vec()
    }

    async fn check(&self, array: &Simulated) {
        let found = self.read(array).await;
        self.truth.borrow().check(&found, &self.context());
    }

    async fn pause(&self, time: Duration) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + time).await;
    }

    /// Lets time pass until every slot has a current member.
    async fn until_whole(&self, array: &Simulated) {
        for _ in 0..10_000 {
            let status = array.status();
            if status.in_sync == status.raid_disks && status.in_agreement {
                return;
            }
            self.pause(Duration::from_millis(1)).await;
        }
        panic!("{}: it does not become whole: {:?}", self.context(), array.status());
    }

    /// Checks that the array is whole and clean, and that each member's data follows from the others.
    async fn check_whole(&self, members: &[SimMember]) {
        let context = self.context();
        let array = self.assemble(members, false).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        let status = array.status();
        assert_eq!((status.in_sync, &*status.state), (status.raid_disks, "clean"), "{context}: {status:?}");
        let found = self.read(&array).await;
        self.truth.borrow().check(&found, &context);
        for missing in status.members.iter().filter(|member| member.slot.is_some()) {
            let rest: Vec<_> = members.iter().filter(|member| member.name() != missing.name).cloned().collect();
            let array = self.assemble(&rest, false).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
            assert!(self.read(&array).await == found, "{context}: without {}", missing.name);
        }
    }
}

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

/// Slots that the level can lose together.
fn losable(setup: &Setup) -> Vec<usize> {
    let step = if setup.level == Level::Raid10 { 2 } else { 1 };
    (0..setup.lost).map(|index| index * step).collect()
}

/// Fails members, writes, adds new ones, and writes on until the array is whole.
async fn lose_and_replace(life: &Life, array: &Simulated, members: &[SimMember], blanks: &[SimMember]) {
    life.write(array).await;
    for slot in losable(&life.setup) {
        array.fail(&members[slot].name()).await.expect("the level survives it");
        array.remove(&members[slot].name()).await.expect("it is faulty");
    }
    life.write(array).await;
    for (index, blank) in blanks.iter().enumerate() {
        array.add(candidate(blank), [0x80 + index as u8; 16], false).await.expect("it fits");
    }
    for _ in 0..2 {
        life.write(array).await;
        life.check(array).await;
    }
    life.until_whole(array).await;
    life.check(array).await;
}

#[test]
fn new_members_are_recovered_while_the_array_is_in_use() {
    for (seed, setup) in all_setups().enumerate() {
        let life = Life::new(setup, seed as u64);
        let world = life.world.clone();
        world.run(
            async {
                let (members, blanks) = life.create().await;
                let array = life.serve(&members, false).await.expect("a whole array");
                life.fill(&array).await;
                lose_and_replace(&life, &array, &members, &blanks).await;
                array.stop().await.expect("stops clean");
                let all: Vec<_> = members.iter().chain(&blanks).cloned().collect();
                life.check_whole(&all).await;
            },
            || false,
        );
    }
}

#[test]
fn a_re_added_member_gets_only_what_was_written_meanwhile() {
    for (seed, setup) in all_setups().enumerate().filter(|(_, setup)| setup.bitmap) {
        let life = Life::new(setup, seed as u64);
        let world = life.world.clone();
        world.run(
            async {
                let (members, _) = life.create().await;
                let array = life.serve(&members, false).await.expect("a whole array");
                life.fill(&array).await;
                let bits = array.status().bitmap.expect("it has one").bits;
                array.stop().await.expect("stops clean"); // also clears all bits
                let array = life.serve(&members, false).await.expect("a whole array");
                let away = &members[1];
                array.fail(&away.name()).await.expect("the level survives it");
                array.remove(&away.name()).await.expect("it is faulty");
                life.write(&array).await;
                let named = array.status().bitmap.expect("it has one").set;
                assert!(named < bits, "{}: {named} of {bits} bits", life.context());
                array.re_add(candidate(away)).await.unwrap_or_else(|refusal| panic!("{}: {refusal}", life.context()));
                life.write(&array).await;
                life.until_whole(&array).await;
                life.check(&array).await;
                let status = array.status();
                let back = status.members.iter().find(|member| member.name == away.name()).expect("it is back");
                assert!(back.written_bytes < setup.component_bytes, "{}: {}", life.context(), back.written_bytes);
                array.stop().await.expect("stops clean");
                life.check_whole(&members).await;
            },
            || false,
        );
    }
}

#[test]
fn a_member_that_may_lack_more_than_the_bitmap_names_is_not_re_added() {
    let re_add = |setup: Setup, scene: &str| {
        let life = Life::new(setup, 1);
        let world = life.world.clone();
        let refusal = world.run(
            async {
                let (members, blanks) = life.create().await;
                let array = life.serve(&members, false).await.expect("a whole array");
                life.fill(&array).await;
                let away = &members[0];
                array.fail(&away.name()).await.expect("the level survives it");
                if scene != "not removed" {
                    array.remove(&away.name()).await.expect("it is faulty");
                }
                match scene {
                    "replaced" => {
                        array.add(candidate(&blanks[0]), [9; 16], false).await.expect("it fits");
                        life.until_whole(&array).await;
                    }
                    "cleared meanwhile" => {
                        array.add(candidate(&blanks[0]), [9; 16], false).await.expect("it fits");
                        life.until_whole(&array).await;
                        array.stop().await.expect("stops clean"); // clears the bits
                        let rest: Vec<_> = members[1..].iter().chain(&blanks).cloned().collect();
                        let array = life.assemble(&rest, false).await.expect("whole");
                        array.fail(&blanks[0].name()).await.expect("the level survives it");
                        array.remove(&blanks[0].name()).await.expect("it is faulty");
                        return array.re_add(candidate(away)).await.expect_err("it lacks more");
                    }
                    "used apart" => {
                        let apart = life.assemble(std::slice::from_ref(away), true).await.expect("a mirror alone");
                        apart.write(0, apart.pool().zeroed(512).freeze(), Durability::Stable).await.expect("alone");
                        apart.stop().await.expect("alone");
                    }
                    _ => {}
                }
                array.re_add(candidate(away)).await.expect_err("it may lack more")
            },
            || false,
        );
        refusal.expect("not stopped").to_string()
    };
    let mirror = Setup { bitmap: true, ..RAID1 };
    for (setup, scene, expected) in [
        (Setup { bitmap: false, ..RAID5 }, "no bitmap", "the array has no bitmap"),
        (Setup { bitmap: true, ..RAID5 }, "not removed", "a member of this array already"),
        (Setup { bitmap: true, ..RAID5 }, "replaced", "given to another member"),
        (Setup { bitmap: true, ..RAID5 }, "cleared meanwhile", "before bits were cleared"),
        (mirror, "used apart", "used without the array's other members"),
    ] {
        let refusal = re_add(setup, scene);
        assert!(refusal.contains(expected), "{scene}: {refusal}");
    }
}

#[test]
fn spares_take_over_without_a_command_even_for_one_another() {
    for setup in [RAID5, Setup { bitmap: true, lost: 1, ..RAID1 }, Setup { lost: 1, ..RAID6 }] {
        let life = Life::new(Setup { lost: 2, ..setup }, 3);
        let world = life.world.clone();
        world.run(
            async {
                let (members, spares) = life.create().await;
                let array = life.serve(&members, false).await.expect("a whole array");
                life.fill(&array).await;
                for (index, spare) in spares.iter().enumerate() {
                    array.add(candidate(spare), [0x80 + index as u8; 16], false).await.expect("it fits");
                }
                assert_eq!(array.status().members.iter().filter(|member| member.state == "spare").count(), 2);
                // The first spare fails under the first byte of data.
                spares[0].faults().bad_writes.borrow_mut().push(DATA_OFFSET as u64..u64::MAX);
                members[0].faults().gone.set(true);
                life.write(&array).await;
                life.until_whole(&array).await;
                life.check(&array).await;
                let state = |name: &str| {
                    let status = array.status();
                    status.members.iter().find(|member| member.name == name).map(|member| member.state)
                };
                assert_eq!((state("blank0"), state("blank1")), (Some("faulty"), Some("in_sync")));
                array.stop().await.expect("stops clean");
                let rest: Vec<_> = members[1..].iter().chain(&spares).cloned().collect();
                life.check_whole(&rest).await;
            },
            || false,
        );
    }
}

#[test]
fn a_member_is_recovered_in_an_array_with_a_bitmap_file() {
    let life = Life::new(RAID5, 7);
    let world = life.world.clone();
    world.run(
        async {
            let (members, blanks) = life.create().await;
            let array = life.serve(&members, false).await.expect("whole");
            let file = life.member("bitmap", 0);
            array.add_bitmap_file(candidate(&file), Some(4096), BitmapPolicy::default()).await.expect("it fits");
            life.fill(&array).await;
            life.write(&array).await;
            array.fail(&members[1].name()).await.expect("the level survives it");
            array.remove(&members[1].name()).await.expect("faulty");
            array.add(candidate(&blanks[0]), [9; 16], false).await.expect("it fits");
            life.until_whole(&array).await;
            array.stop().await.expect("stops clean");
            let rest: Vec<_> = [&members[0], &blanks[0], &members[2], &members[3]].into_iter().cloned().collect();
            life.check_whole(&rest).await;
        },
        || false,
    );
}

#[test]
fn two_recoveries_at_once_end_with_a_whole_array() {
    for setup in [RAID6, Setup { lost: 1, ..RAID6 }, RAID5, RAID10] {
        for seed in 0..20 {
            let life = Life::new(setup, seed);
            life.world.clone().run(
                async {
                    let (members, blanks) = life.create().await;
                    let array = life.serve(&members, false).await.expect("whole");
                    array
                        .set_sweep_transfers(SweepTransfers { window_bytes: Some(4096), in_flight_bytes: 16 << 10 })
                        .expect("powers of two");
                    life.fill(&array).await;
                    let other = array.clone();
                    life.world.spawn(async move { other.keep_whole().await });
                    for (member, blank) in members.iter().zip(&blanks) {
                        array.fail(&member.name()).await.expect("the level survives it");
                        array.add(candidate(blank), [blank.name().len() as u8; 16], false).await.expect("it fits");
                        life.until_whole(&array).await;
                    }
                    array.stop().await.expect("stops clean");
                    let rest: Vec<_> = members[blanks.len()..].iter().chain(&blanks).cloned().collect();
                    life.check_whole(&rest).await;
                },
                || false,
            );
        }
    }
}

#[test]
fn a_re_added_member_is_recovered_in_full_if_the_bitmap_is_removed() {
    for setup in SETUPS.into_iter().filter(|setup| setup.bitmap) {
        let life = Life::new(setup, 8);
        let world = life.world.clone();
        world.run(
            async {
                let (members, _) = life.create().await;
                let array = life.assemble(&members, false).await.expect("whole");
                life.fill(&array).await;
                array.fail(&members[1].name()).await.expect("the level survives it");
                life.write(&array).await;
                array.remove(&members[1].name()).await.expect("faulty");
                array.re_add(candidate(&members[1])).await.expect("it left after bits were cleared");
                array.remove_bitmap().await.expect("there is one");
                array.add_bitmap(Some(4096), BitmapPolicy::default()).await.expect("there is room");
                assert!(array.recover(&|_, _| {}).await.expect("nothing fails"));
                array.stop().await.expect("stops clean");
                life.check_whole(&members).await;
            },
            || false,
        );
    }
}

/// A whole array can have an old `events_cleared`, from before a member had a bad block, if that block was rewritten
/// just before the stop. (With md it is always old.)
#[test]
fn a_member_that_left_long_before_bits_were_cleared_is_not_re_added() {
    for setup in [RAID1, Setup { level: Level::Raid10, layout: 0x103, chunk_bytes: 4096, ..RAID1 }] {
        let life = Life::new(Setup { bitmap: true, lost: 1, ..setup }, 10);
        let world = life.world.clone();
        let scene = async {
            let (members, blanks) = life.create().await;
            let array = life.assemble(&members, false).await.expect("whole");
            life.fill(&array).await;
            array.stop().await.expect("stops clean");
            let array = life.assemble(&members, false).await.expect("whole");
            let zeros = || array.pool().zeroed(4096).freeze();
            let first = (DATA_OFFSET as u64, DATA_OFFSET as u64 + 4096);
            members[2].faults().bad_writes.borrow_mut().push(first.0..first.1);
            array.write(0, zeros(), Durability::Stable).await.expect("the level survives a bad block");
            members[2].faults().heal();
            array.fail(&members[1].name()).await.expect("the level survives it");
            array.remove(&members[1].name()).await.expect("it is faulty");
            array.write(16 << 10, zeros(), Durability::Stable).await.expect("the level survives it");
            array.add(candidate(&blanks[0]), [9; 16], false).await.expect("it fits");
            assert!(array.recover(&|_, _| {}).await.expect("nothing fails"));
            array.write(0, zeros(), Durability::Stable).await.expect("the bad block is good again");
            array.stop().await.expect("stops clean");

            let rest = [&members[0], &blanks[0], &members[2]].map(SimMember::clone);
            let array = life.assemble(&rest, false).await.expect("whole");
            let set = || array.status().bitmap.expect("it has one").set;
            assert!(set() > 0, "{}: bits are cleared of a whole array alone", life.context());
            let clearer = array.clone();
            world.spawn(async move { clearer.clear_bitmap_lazily().await });
            life.pause(Duration::from_secs(20)).await;
            assert_eq!(set(), 0, "{}", life.context());
            array.fail(&blanks[0].name()).await.expect("the level survives it");
            array.remove(&blanks[0].name()).await.expect("it is faulty");
            let refusal = array.re_add(candidate(&members[1])).await.expect_err("it lacks what no bit names any more");
            assert!(refusal.reason.contains("before bits were cleared"), "{}: {refusal}", life.context());
        };
        world.run(scene, || false);
    }
}

#[test]
fn a_member_that_is_added_twice_at_once_joins_once() {
    let life = Life::new(Setup { bitmap: true, ..RAID5 }, 9);
    let world = life.world.clone();
    world.run(
        async {
            let (members, _) = life.create().await;
            let array = life.assemble(&members, false).await.expect("whole");
            array.fail(&members[1].name()).await.expect("the level survives it");
            array.remove(&members[1].name()).await.expect("faulty");
            let (returned, added) =
                join(array.re_add(candidate(&members[1])), array.add(candidate(&members[1]), [9; 16], true)).await;
            assert_eq!([returned.is_ok(), added.is_ok()].map(usize::from).iter().sum::<usize>(), 1);
            let count = array.status().members.iter().filter(|member| member.name == members[1].name()).count();
            assert_eq!(count, 1);
        },
        || false,
    );
}

/// The kernel reuses device numbers at once, mdadm counts up. Here a number is reused only when all others have been
/// used.
#[test]
fn device_numbers_of_removed_members_are_reused_when_no_others_are_left() {
    let life = Life::new(Setup { lost: 1, ..RAID1 }, 3);
    life.world.clone().run(
        async {
            let (mut members, blanks) = life.create().await;
            let blank = &blanks[0];
            let array = life.assemble(&members, false).await.expect("whole");
            life.fill(&array).await;
            let lost = members.remove(1).name();
            array.fail(&lost).await.expect("the level survives it");
            array.remove(&lost).await.expect("faulty");
            let mut former = None;
            for number in 3..MAX_DEVICES as u16 {
                array.add(candidate(blank), [0x80; 16], true).await.expect("there is room");
                assert_eq!(superblock(blank).device_number.0, number);
                let former = former.get_or_insert_with(|| life.member("former", 0));
                if number == 3 {
                    former.plant(0, &blank.image());
                }
                array.fail(&blank.name()).await.expect("the level survives it");
                array.remove(&blank.name()).await.expect("faulty");
            }
            array.add(candidate(blank), [0x90; 16], true).await.expect("a number is given again");
            assert_eq!(superblock(blank).device_number.0, 3);
            array.stop().await.expect("stops clean");
            members.push(blank.clone());
            let array = life.serve(&members, false).await.expect("whole");
            life.until_whole(&array).await;
            array.stop().await.expect("stops clean");
            life.check_whole(&members).await;
            // The former owner of the number is not mistaken for the present one.
            members.push(former.expect("it was there"));
            let array = life.assemble(&members, false).await.expect("whole");
            let status = array.status();
            assert_eq!((status.in_sync, status.left_out.len(), &*status.left_out[0].name), (3, 1, "former"));
        },
        || false,
    );
}

/// In between, a power cut would leave a member that is not in sync, so a caller must not count on it yet.
#[test]
fn a_member_is_reported_in_sync_only_once_its_superblock_says_so() {
    let life = Life::new(RAID5, 5);
    life.world.clone().run(
        async {
            let (mut members, blanks) = life.create().await;
            let array = life.serve(&members, false).await.expect("whole");
            array.fail(&members.remove(1).name()).await.expect("the level survives it");
            array.add(candidate(&blanks[0]), [0x80; 16], false).await.expect("it fits");
            while array.status().in_sync < array.status().raid_disks {
                life.pause(Duration::from_micros(1)).await;
            }
            assert_eq!(superblock(&blanks[0]).recovery_offset, None);
            array.stop().await.expect("stops clean");
        },
        || false,
    );
}

/// The superblock that a member holds.
fn superblock(member: &SimMember) -> Superblock {
    let image = member.image();
    let superblock = decode(Version::V1_2, MemberByte(4096), &image[4096..8192], image.len() as u64);
    superblock.expect("sound").expect("there")
}

fn events(member: &SimMember) -> u64 {
    superblock(member).events
}

/// md takes a member for current if another superblock calls it active, unless its own superblock has a recovery
/// offset.
#[test]
fn no_superblock_calls_a_spare_active_before_the_spares_own_does() {
    for (seed, cut) in (0..10).flat_map(|seed| (1..30).map(move |cut| (seed, cut))) {
        let life = Life::new(RAID1, seed);
        let (world, boundaries, is_seating) = (life.world.clone(), life.boundaries.clone(), Cell::new(false));
        let mut devices = Vec::new();
        let scene = async {
            let (members, blanks) = life.create().await;
            devices.extend(members.iter().chain(&blanks).cloned());
            let array = life.assemble(&members, false).await.expect("whole");
            for (blank, uuid) in blanks.iter().zip(8..) {
                array.add(candidate(blank), [uuid; 16], false).await.expect("it fits");
            }
            for member in &members[1..] {
                array.fail(&member.name()).await.expect("one is left");
            }
            boundaries.set(0);
            is_seating.set(true);
            world.spawn(async move { array.keep_whole().await });
            life.pause(Duration::from_millis(100)).await;
        };
        world.run(scene, || is_seating.get() && boundaries.get() >= cut);
        world.forget_all();
        devices.iter().for_each(|member| member.lose_power(&mut life.random.borrow_mut()));
        let superblocks: Vec<_> = devices.iter().map(superblock).collect();
        let newest = superblocks.iter().map(|superblock| superblock.events).max().expect("five");
        let is_active = |role| matches!(role, DeviceRole::Active(_));
        for teller in superblocks.iter().filter(|teller| teller.events == newest) {
            for own in superblocks.iter().filter(|own| own.events + 1 >= newest) {
                let is_sure = !is_active(teller.role(own.device_number)) || is_active(own.own_role());
                assert!(is_sure, "seed {seed} cut {cut}: {:?} is called active and does not know", own.device_number);
            }
        }
    }
}

/// Older kernels accept a member that is one event behind, even if the others call it faulty.
#[test]
fn a_member_that_alone_has_the_next_event_is_stale_once_the_others_go_on() {
    let mut told_alone = 0;
    for (seed, cut) in (0..20).flat_map(|seed| (1..8).map(move |cut| (seed, cut))) {
        let life = Life::new(RAID1, seed);
        let (world, boundaries) = (life.world.clone(), life.boundaries.clone());
        let (members, _) = world.run(life.create(), || false).expect("not stopped");
        boundaries.set(0);
        let first = async {
            let array = life.assemble(&members, false).await.expect("whole");
            array.write(0, array.pool().zeroed(4096).freeze(), Durability::Ordinary).await.expect("whole");
        };
        world.run(first, || boundaries.get() >= cut);
        world.forget_all();
        members.iter().for_each(|member| member.lose_power(&mut life.random.borrow_mut()));
        let (absent, rest) = members.split_first().expect("three");
        told_alone += usize::from(rest.iter().all(|member| events(member) < events(absent)));
        let second = async {
            let array = life.assemble(rest, false).await.expect("degraded");
            array.write(0, array.pool().zeroed(4096).freeze(), Durability::Ordinary).await.expect("degraded");
        };
        world.run(second, || false);
        world.forget_all();
        for member in rest {
            let (ahead, behind) = (events(member), events(absent));
            assert!(
                ahead > behind + 1,
                "seed {seed} cut {cut}: the others are at {ahead}, the absent member at {behind}"
            );
        }
    }
    assert!(told_alone > 0, "the power never went at that moment");
}

#[test]
fn every_byte_that_a_recovery_needs_is_read_once_and_written_once() {
    // Several windows of 512 KiB, and a short last one.
    let component_bytes = 5 * (512 << 10) + (128 << 10);
    for (setup, lost, bytes_read) in [
        (Setup { chunk_bytes: 64 << 10, ..RAID5 }, 1, 3 * component_bytes),
        (Setup { chunk_bytes: 64 << 10, ..RAID6 }, 1, 3 * component_bytes),
        (Setup { chunk_bytes: 64 << 10, ..RAID6 }, 2, 3 * component_bytes),
        (RAID1, 2, component_bytes),
        (Setup { chunk_bytes: 64 << 10, ..RAID10 }, 1, component_bytes),
        (Setup { chunk_bytes: 64 << 10, layout: 0x201, ..RAID10 }, 1, component_bytes),
    ] {
        let life = Life::new(Setup { component_bytes, lost, ..setup }, 5);
        let world = life.world.clone();
        world.run(
            async {
                let (members, blanks) = life.create().await;
                let rest = &members[lost..];
                let array = life.assemble(rest, false).await.expect("degraded");
                for (index, blank) in blanks.iter().enumerate() {
                    array.add(candidate(blank), [0x80 + index as u8; 16], false).await.expect("it fits");
                }
                assert!(array.recover(&|_, _| {}).await.expect("nothing fails"));
                let status = array.status();
                let context = life.context();
                let (new, old): (Vec<_>, Vec<_>) =
                    status.members.iter().partition(|member| member.name.starts_with("blank"));
                assert_eq!(old.iter().map(|member| member.read_bytes).sum::<u64>(), bytes_read, "{context}: {old:?}");
                assert_eq!(old.iter().map(|member| member.written_bytes).sum::<u64>(), 0, "{context}");
                for member in &new {
                    assert_eq!((member.written_bytes, member.writes), (component_bytes, 6), "{context}: {member:?}");
                }
                array.stop().await.expect("stops clean");
            },
            || false,
        );
    }
}

#[test]
fn a_recovery_resumes_where_it_was_stopped() {
    let setup = Setup { chunk_bytes: 64 << 10, component_bytes: 32 << 20, ..RAID5 };
    let life = Life::new(setup, 6);
    let world = life.world.clone();
    world.run(
        async {
            let (members, blanks) = life.create().await;
            let array = life.assemble(&members, false).await.expect("whole");
            life.fill(&array).await;
            array.fail(&members[2].name()).await.expect("the level survives it");
            array.remove(&members[2].name()).await.expect("faulty");
            array.add(candidate(&blanks[0]), [9; 16], false).await.expect("it fits");
            let keeper = array.clone();
            world.spawn(async move { keeper.keep_whole().await });
            while array.status().sweep.is_none_or(|sweep| sweep.percent < 30.0) {
                life.pause(Duration::from_micros(50)).await;
            }
            array.stop().await.expect("stops clean");
            let all: Vec<_> = members.iter().chain(&blanks).cloned().collect();
            let array = life.assemble(&all, false).await.expect("degraded");
            life.check(&array).await;
            assert!(array.recover(&|_, _| {}).await.expect("nothing fails"));
            let status = array.status();
            let new = status.members.iter().find(|member| member.name == "blank0").expect("it is there");
            let written = new.written_bytes as f64 / setup.component_bytes as f64;
            assert!((0.2..0.7).contains(&written), "{written}");
            array.stop().await.expect("stops clean");
            life.check_whole(&all).await;
        },
        || false,
    );
}

#[test]
fn a_recovery_reads_around_bad_sectors_and_passes_over_unrecoverable_ones() {
    let recover = |setup: Setup, bad: &[usize]| {
        let life = Life::new(setup, 7);
        let world = life.world.clone();
        world.run(
            async {
                let (members, blanks) = life.create().await;
                let array = life.serve(&members, false).await.expect("whole");
                life.fill(&array).await;
                for &slot in bad {
                    // One sector, at a different position on each.
                    let at = (DATA_OFFSET + (20 << 10) + slot * 8192) as u64;
                    members[slot].faults().bad_reads.borrow_mut().push(at..at + 512);
                }
                array.fail(&members[0].name()).await.expect("the level survives it");
                array.remove(&members[0].name()).await.expect("faulty");
                array.add(candidate(&blanks[0]), [9; 16], false).await.expect("it fits");
                life.pause(Duration::from_millis(100)).await;
                let status = array.status();
                assert_eq!((status.in_sync, &status.sweep_failure), (status.raid_disks, &None), "{}", life.context());
                let new = status.members.iter().find(|member| member.name == "blank0").expect("it is there");
                if new.bad_bytes == 0 {
                    life.check(&array).await;
                }
                array.stop().await.expect("stops clean");
                new.bad_bytes
            },
            || false,
        )
    };
    let one = |setup| Setup { lost: 1, ..setup };
    for (setup, bad, lost) in [
        (one(RAID6), &[1][..], 0),
        (one(RAID6), &[1, 2, 3], 0), // never two in one stripe
        (one(RAID1), &[1], 0),
        (one(RAID5), &[1], 512),
        (one(RAID10), &[1], 512),
        (one(RAID10), &[2, 3], 0),
    ] {
        assert_eq!(recover(setup, bad).expect("not stopped"), lost, "{setup:?} {bad:?}");
    }
}

/// How members are lost and restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    Replacement,
    /// So slow that it has checkpoints.
    SlowReplacement,
    Return,
}

/// Replaces a member so slowly that a window takes longer than the interval of checkpoints.
async fn replace_slowly(life: &Life, array: &Simulated, members: &[SimMember], blanks: &[SimMember]) {
    let speed = SyncSpeed { min: 40_000, max: Some(40_000) };
    array.set_sync_speed(speed).expect("it is not zero");
    array.fail(&members[0].name()).await.expect("the level survives it");
    array.remove(&members[0].name()).await.expect("it is faulty");
    array.add(candidate(&blanks[0]), [0x80; 16], false).await.expect("it fits");
    life.pause(Duration::from_secs(60)).await;
    let status = array.status();
    assert_eq!(status.in_sync, status.raid_disks, "{}: it is not recovered in time", life.context());
}

/// Plays a story until power is cut at boundary `cut`; what is left must continue to a whole array. Returns the number
/// of boundaries.
fn cut_and_go_on(setup: Setup, seed: u64, cut: u64, story: Story) -> u64 {
    let life = Life::new(setup, seed);
    let world = life.world.clone();
    let all: RefCell<Vec<SimMember>> = RefCell::default();
    let made = world.run(
        async {
            let (members, blanks) = life.create().await;
            let array = life.assemble(&members, false).await.expect("whole");
            life.fill(&array).await;
            array.stop().await.expect("stops clean");
            (members, blanks)
        },
        || false,
    );
    let (members, blanks) = made.expect("not stopped");
    all.borrow_mut().extend(members.iter().chain(blanks.iter().filter(|_| story != Story::Return)).cloned());
    life.boundaries.set(0);
    let lived = async {
        let array = life.serve(&members, false).await.expect("whole");
        match story {
            Story::Replacement => lose_and_replace(&life, &array, &members, &blanks).await,
            Story::SlowReplacement => replace_slowly(&life, &array, &members, &blanks).await,
            Story::Return => {
                let away = members[1].name();
                array.fail(&away).await.expect("the level survives it");
                array.remove(&away).await.expect("faulty");
                life.write(&array).await;
                array.re_add(candidate(&members[1])).await.expect("the bitmap says what it lacks");
                life.write(&array).await;
                life.until_whole(&array).await;
            }
        }
        array.stop().await.expect("stops clean");
    };
    let boundaries = life.boundaries.clone();
    world.run(lived, || boundaries.get() >= cut);
    let end = boundaries.get();
    world.forget_all();

    let mut random = Random::new(seed ^ cut);
    let after = Life { world: World::new(random.number()), ..life };
    let left: Vec<_> = all
        .borrow()
        .iter()
        .map(|member| SimMember::new(member.name(), &after.world, member.after_power_loss(&mut random), Rc::default()))
        // A blank member that was not added yet does not belong to the array.
        .filter(|member| !after.is_blank(member))
        .collect();
    let world = after.world.clone();
    world.run(go_on(&after, &left, cut), || false);
    end
}

/// Continues after the power cut.
async fn go_on(life: &Life, left: &[SimMember], cut: u64) {
    let context = format!("{} cut {cut}", life.context());
    let (array, is_forced) = match life.serve(left, false).await {
        Ok(array) => (array, false),
        Err(refusal) => {
            assert!(refusal.reason.contains("dirty and degraded"), "{context}: {refusal}");
            (life.serve(left, true).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}")), true)
        }
    };
    let found = life.read(&array).await;
    if !is_forced {
        life.truth.borrow().check(&found, &context);
    }
    *life.truth.borrow_mut() = Truth { settled: found, recent: Vec::new() };
    life.write(&array).await;
    // Members that are missing by now are replaced.
    for index in 0..array.status().missing.len() {
        let blank = life.member(&format!("late{index}"), 0xa5);
        array.add(candidate(&blank), [0x90 + index as u8; 16], false).await.expect("it fits");
    }
    life.until_whole(&array).await;
    if is_forced {
        // If a write was in flight, P and Q may point to different data.
        life.truth.borrow_mut().settled = life.read(&array).await;
    }
    life.check(&array).await;
    array.stop().await.unwrap_or_else(|error| panic!("{context}: {error}"));
}

fn cut_everywhere(setups: &[Setup], story: Story) {
    for (seed, setup) in setups.iter().enumerate() {
        let end = cut_and_go_on(*setup, seed as u64, u64::MAX, story);
        for cut in 0..=end {
            cut_and_go_on(*setup, seed as u64, cut, story);
        }
    }
}

#[test]
fn power_may_go_at_any_write_of_a_replacement() {
    cut_everywhere(&SETUPS, Story::Replacement);
}

#[test]
fn power_may_go_at_any_write_of_a_recovery_that_no_other_flush_covers() {
    // One window; and four, with checkpoints. Without a bitmap, whose rounds would flush what was recovered.
    let short = Setup { component_bytes: 256 << 10, slots: 2, lost: 1, ..RAID1 };
    let copies = Setup { component_bytes: 2 << 20, ..short };
    let parity = Setup { component_bytes: 2 << 20, slots: 3, chunk_bytes: 64 << 10, ..RAID5 };
    cut_everywhere(&[short, short, copies, parity], Story::SlowReplacement);
}

#[test]
fn power_may_go_at_any_write_of_a_re_add() {
    let setups: Vec<_> = SETUPS.into_iter().filter(|setup| setup.bitmap).collect();
    cut_everywhere(&setups, Story::Return);
}
