//! An array of eight members for tests of coalescing, with its expected contents.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Pool, WriteBack};
use format::geometry::Level;
use futures_util::future::join_all;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(crate) type Simulated = Array<SimMember, VirtualClock>;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const CHUNK_BYTES: u64 = 64 * KIB;
pub(crate) const DATA_OFFSET: u64 = 32 * KIB;

/// An array of eight members, and its expected contents.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) members: Vec<SimMember>,
    pub(crate) array: Simulated,
    pub(crate) truth: Rc<RefCell<Vec<u8>>>,
    pub(crate) stripe_bytes: u64,
    pub(crate) parities: u64,
    /// Counts writes and flushes of all members.
    pub(crate) boundaries: Rc<Cell<u64>>,
}

/// Member transfers and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
}

impl Scene {
    pub(crate) fn new(level: Level, stripes: u64) -> Self {
        Self::with_options(level, stripes, AssembleOptions::default())
    }

    pub(crate) fn with_options(level: Level, stripes: u64, options: AssembleOptions) -> Self {
        let world = World::new(1);
        let boundaries: Rc<Cell<u64>> = Rc::default();
        let component_bytes = stripes * CHUNK_BYTES;
        let contents = || vec![0; (DATA_OFFSET + component_bytes) as usize];
        let member = |index| SimMember::new(format!("member{index}"), &world, contents(), boundaries.clone());
        let members: Vec<_> = (0..8).map(member).collect();
        let recipe = Recipe {
            layout: 2,
            chunk_bytes: CHUNK_BYTES,
            name: "sim:gathering".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET),
            component_bytes: Some(component_bytes),
            contents: Contents::Consistent,
            ..Recipe::new(level, [7; 16])
        };
        let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = candidates(&members).into_iter().enumerate().map(newcomer).collect();
        let (pool, clock) = (Pool::new(4 << 20), world.clock());
        let made = create(&recipe, &newcomers, &[], &pool, &clock, &|_, _| {});
        world.run(made, || false).expect("not stopped").expect("the array is created");
        let assembled = Array::assemble(candidates(&members), options, Pool::new(4 << 20), clock);
        let array = world.run(assembled, || false).expect("not stopped").expect("nothing is wrong with it");
        let truth = Rc::new(RefCell::new(vec![0; array.bytes() as usize]));
        let stripe_bytes = array.preferred_bytes();
        let parities = if level == Level::Raid6 { 2 } else { 1 };
        Self { world, members, array, truth, stripe_bytes, parities, boundaries }
    }

    /// Answers these writes from memory from now on.
    pub(crate) fn write_back(&self, answers: WriteBack) {
        let array = self.array.clone();
        self.world.spawn(async move { array.write_back(answers).await });
    }

    pub(crate) fn tally(&self) -> Tally {
        let mut tally = Tally { reads: 0, read_bytes: 0, writes: 0, written_bytes: 0 };
        for member in self.array.status().members {
            tally.reads += member.reads;
            tally.read_bytes += member.read_bytes;
            tally.writes += member.writes;
            tally.written_bytes += member.written_bytes;
        }
        tally
    }

    /// Writes noise to a range that no other test code writes, and records it.
    pub(crate) fn write(&self, at: u64, bytes: u64) -> impl Future<Output = ()> + use<> {
        let (array, truth, seed) = (self.array.clone(), self.truth.clone(), self.world.chance(0..u64::MAX));
        async move {
            let mut contents = vec![0; bytes as usize];
            Random::new(seed).fill(&mut contents);
            let block = array.pool().copy_of(&contents);
            array.write(at, block, Durability::Ordinary).await.expect("the level survives the faults");
            truth.borrow_mut()[at as usize..(at + bytes) as usize].copy_from_slice(&contents);
        }
    }

    /// Writes `from..end` linearly, with `depth` requests in flight.
    pub(crate) fn write_linear(
        &self,
        from: u64,
        end: u64,
        request_bytes: u64,
        depth: usize,
    ) -> impl Future<Output = ()> + '_ {
        let next = Rc::new(Cell::new(from));
        let worker = move |next: Rc<Cell<u64>>| async move {
            while next.get() < end {
                let at = next.get();
                let bytes = request_bytes.min(end - at);
                next.set(at + bytes);
                self.write(at, bytes).await;
            }
        };
        async move {
            join_all((0..depth).map(|_| worker(next.clone()))).await;
        }
    }

    /// Reads the whole array, and once more without each member, which shows that parity agrees with the data.
    pub(crate) async fn check(&self) {
        self.array.stop().await.expect("it stops clean");
        let status = self.array.status();
        let is_left = |member: &&SimMember| {
            status.members.iter().any(|other| other.name == member.name() && other.state == "in_sync")
        };
        let left: Vec<_> = self.members.iter().filter(is_left).cloned().collect();
        let spared = self.parities as usize - (self.members.len() - left.len());
        for missing in [0..0, 0..spared, spared..2 * spared] {
            let mut rest = left.clone();
            rest.drain(missing.clone());
            let array = assemble(&self.world, &rest).await;
            let read = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("all data is available");
            let truth = self.truth.borrow();
            let wrong = (0..truth.len()).find(|&byte| read[byte] != truth[byte]);
            assert_eq!(wrong, None, "without members {missing:?}");
        }
    }
}

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

pub(crate) async fn assemble(world: &World, members: &[SimMember]) -> Simulated {
    let assembled = Array::assemble(candidates(members), AssembleOptions::default(), Pool::new(4 << 20), world.clock());
    assembled.await.expect("nothing is wrong with it")
}
