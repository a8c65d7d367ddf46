//! Members that fail, are replaced, come back: arrays that become whole again
//! while they are in use, and whose power goes at every write meanwhile.
//!
//! What must hold: what was flushed reads back, at any moment and after any
//! cut; a member that is not current is never believed, by this engine or by
//! md's rules ([`judge`]); and the recovery goes on to a whole array in which the data
//! follows from the others when any one member is left out.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Durability, Pool, Refusal};
use format::geometry::Level;
use format::placement::BitmapChoice;
use format::superblock::Version;
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
    /// Members that are lost, and replaced, at once.
    lost: usize,
}

const RAID1: Setup = Setup {
    level: Level::Raid1,
    layout: 0,
    chunk_bytes: 0,
    slots: 3,
    component_bytes: 64 << 10,
    bitmap: false,
    lost: 2,
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

/// What the array should hold: settled bytes, and whole images that were under way since.
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
        let bytes = DATA_OFFSET + self.setup.component_bytes as usize;
        SimMember::new(name.to_owned(), &self.world, vec![contents; bytes], self.boundaries.clone())
    }

    /// The members of a new array, and as many blank ones as it will lose.
    async fn create(&self) -> (Vec<SimMember>, Vec<SimMember>) {
        let setup = &self.setup;
        let recipe = Recipe {
            version: Version::V1_2,
            level: setup.level,
            layout: setup.layout,
            chunk_bytes: setup.chunk_bytes,
            name: "sim:recovery".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET as u64),
            component_bytes: Some(setup.component_bytes),
            bitmap: if setup.bitmap { BitmapChoice::Chunk(4096) } else { BitmapChoice::None },
            set_uuid: [7; 16],
            contents: Contents::Consistent,
            overwrite: false,
        };
        let members: Vec<_> = (0..setup.slots).map(|index| self.member(&format!("member{index}"), 0)).collect();
        let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = candidates(&members).into_iter().enumerate().map(newcomer).collect();
        let (pool, clock) = (Pool::new(1 << 20), self.world.clock());
        create(&recipe, &newcomers, &[], &pool, &clock, &|_, _| {}).await.expect("it can be made");
        let blanks = (0..setup.lost).map(|index| self.member(&format!("blank{index}"), 0x5a)).collect();
        (members, blanks)
    }

    async fn assemble(&self, members: &[SimMember], force: bool) -> Result<Simulated, Refusal> {
        let options = AssembleOptions { force, ..AssembleOptions::default() };
        Array::assemble(candidates(members), options, Pool::new(1 << 20), self.world.clock()).await
    }

    /// As a server has it: assembled, with its keepers beside it.
    async fn serve(&self, members: &[SimMember], force: bool) -> Result<Simulated, Refusal> {
        let array = self.assemble(members, force).await?;
        let (keeper, cleaner) = (array.clone(), array.clone());
        self.world.spawn(async move { keeper.keep_whole().await });
        self.world.spawn(async move { cleaner.mark_clean_when_idle(Duration::from_millis(5)).await });
        Ok(array)
    }

    /// Fills the array with bytes of its own.
    async fn fill(&self, array: &Simulated) {
        let mut bytes = vec![0; array.bytes() as usize];
        self.random.borrow_mut().fill(&mut bytes);
        array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("a whole array");
        self.truth.borrow_mut().settled = bytes;
    }

    /// Writes something somewhere, and flushes.
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
        array.write(start as u64, block, Durability::Stable).await.expect("the level bears it");
        let mut truth = self.truth.borrow_mut();
        truth.settled = image;
        truth.recent.clear();
    }

    async fn read(&self, array: &Simulated) -> Vec<u8> {
        let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
        read.unwrap_or_else(|error| panic!("{}: {error}", self.context())).to_vec()
    }

    async fn check(&self, array: &Simulated) {
        self.truth.borrow().check(&self.read(array).await, &self.context());
    }

    async fn pause(&self, time: Duration) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + time).await;
    }

    /// Lets time pass until every slot is filled by a current member.
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

    /// Whole, clean, and each member's data follows from the others.
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

/// Loses members, writes, gets new ones for them, writes on until it is whole.
async fn lose_and_replace(life: &Life, array: &Simulated, members: &[SimMember], blanks: &[SimMember]) {
    life.write(array).await;
    for slot in losable(&life.setup) {
        array.fail(&members[slot].name()).await.expect("the level bears it");
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
    for (seed, setup) in SETUPS.into_iter().enumerate() {
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
