//! Gathering, counted at the seam: linear writes of any size become full
//! stripes, random ones cost what they must, and nobody waits in vain.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Durability, Pool};
use format::geometry::Level;
use format::placement::BitmapChoice;
use format::superblock::Version;
use futures_util::future::join_all;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const KIB: u64 = 1 << 10;
const CHUNK_BYTES: u64 = 64 * KIB;
const DATA_OFFSET: u64 = 32 * KIB;

/// An array of eight members, what it should hold, and how to look at it.
struct Scene {
    world: World,
    members: Vec<SimMember>,
    array: Simulated,
    truth: Rc<RefCell<Vec<u8>>>,
    stripe_bytes: u64,
    parities: u64,
}

/// Member transfers and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tally {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
}

impl Scene {
    fn new(level: Level, stripes: u64) -> Self {
        let world = World::new(1);
        let component_bytes = stripes * CHUNK_BYTES;
        let contents = || vec![0; (DATA_OFFSET + component_bytes) as usize];
        let member = |index| SimMember::new(format!("member{index}"), &world, contents(), Rc::default());
        let members: Vec<_> = (0..8).map(member).collect();
        let recipe = Recipe {
            version: Version::V1_2,
            level,
            layout: 2,
            chunk_bytes: CHUNK_BYTES,
            name: "sim:gathering".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET),
            component_bytes: Some(component_bytes),
            bitmap: BitmapChoice::None,
            set_uuid: [7; 16],
            contents: Contents::Consistent,
            overwrite: false,
        };
        let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = candidates(&members).into_iter().enumerate().map(newcomer).collect();
        let (pool, clock) = (Pool::new(4 << 20), world.clock());
        let made = create(&recipe, &newcomers, &[], &pool, &clock, &|_, _| {});
        world.run(made, || false).expect("not stopped").expect("it can be made");
        let array = world.run(assemble(&world, &members), || false).expect("not stopped");
        let truth = Rc::new(RefCell::new(vec![0; array.bytes() as usize]));
        let stripe_bytes = array.preferred_bytes();
        let parities = if level == Level::Raid6 { 2 } else { 1 };
        Self { world, members, array, truth, stripe_bytes, parities }
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally { reads: 0, read_bytes: 0, writes: 0, written_bytes: 0 };
        for member in self.array.status().members {
            tally.reads += member.reads;
            tally.read_bytes += member.read_bytes;
            tally.writes += member.writes;
            tally.written_bytes += member.written_bytes;
        }
        tally
    }

    /// Writes bytes that nobody else writes, and keeps what must be read then.
    fn write(&self, at: u64, bytes: u64) -> impl Future<Output = ()> + use<> {
        let (array, truth, seed) = (self.array.clone(), self.truth.clone(), self.world.chance(0..u64::MAX));
        async move {
            let mut contents = vec![0; bytes as usize];
            Random::new(seed).fill(&mut contents);
            let block = array.pool().copy_of(&contents);
            array.write(at, block, Durability::Ordinary).await.expect("nothing fails that matters");
            truth.borrow_mut()[at as usize..(at + bytes) as usize].copy_from_slice(&contents);
        }
    }

    /// Writes `from..end` in order, `depth` requests at a time.
    fn write_linear(&self, from: u64, end: u64, request_bytes: u64, depth: usize) -> impl Future<Output = ()> + '_ {
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

    /// Everything reads back, and does so from each member's fellows: parity
    /// agrees with the data everywhere.
    async fn check(&self) {
        self.array.stop().await.expect("it stops clean");
        let left: Vec<_> = self.members.iter().filter(|member| !member.faults().gone.get()).cloned().collect();
        let spared = self.parities as usize - (self.members.len() - left.len());
        for missing in [0..0, 0..spared, spared..2 * spared] {
            let mut rest = left.clone();
            rest.drain(missing.clone());
            let array = assemble(&self.world, &rest).await;
            let read = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("all can be had");
            let truth = self.truth.borrow();
            let wrong = (0..truth.len()).find(|&byte| read[byte] != truth[byte]);
            assert_eq!(wrong, None, "without members {missing:?}");
        }
    }
}

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

async fn assemble(world: &World, members: &[SimMember]) -> Simulated {
    let assembled = Array::assemble(candidates(members), AssembleOptions::default(), Pool::new(4 << 20), world.clock());
    assembled.await.expect("nothing is wrong with it")
}

/// What full stripes cost: no reads, and n/(n-parities) of the user's bytes.
fn full_stripes(user_bytes: u64, parities: u64) -> (u64, u64) {
    (0, user_bytes * 8 / (8 - parities))
}

#[test]
fn linear_writes_of_any_size_are_full_stripes_where_the_queue_holds_one() {
    for (level, parities) in [(Level::Raid5, 1), (Level::Raid6, 2)] {
        let stripe = (8 - parities) * CHUNK_BYTES;
        for request_bytes in [4 * KIB, 16 * KIB, 64 * KIB, 448 * KIB, 1000 * KIB, 1024 * KIB, 1000, 5000] {
            let fewest = stripe.div_ceil(request_bytes) + u64::from(!stripe.is_multiple_of(request_bytes));
            for depth in [fewest, 2 * fewest + 3] {
                let scene = Scene::new(level, 8);
                let end = scene.array.bytes();
                scene.world.run(scene.write_linear(0, end, request_bytes, depth as usize), || false);
                let tally = scene.tally();
                let context = format!("{level:?}, {request_bytes} bytes, {depth} at a time");
                assert_eq!((tally.reads, tally.written_bytes), full_stripes(end, parities), "{context}");
                scene.world.run(scene.check(), || false);
            }
        }
    }
}

#[test]
fn a_request_of_many_stripes_writes_each_member_once() {
    let scene = Scene::new(Level::Raid5, 40);
    scene.world.run(scene.write(3 * scene.stripe_bytes, 16 * scene.stripe_bytes), || false);
    let tally = scene.tally();
    assert_eq!((tally.reads, tally.writes), (0, 8), "16 chunks of 64 KiB are 1 MiB");
    scene.world.run(scene.check(), || false);
}

#[test]
fn several_streams_mixed_with_random_writes_are_full_stripes() {
    let scene = Scene::new(Level::Raid5, 32);
    let part = scene.array.bytes() / 4;
    let random = async {
        for _ in 0..16 {
            let at = 3 * part + scene.world.chance(0..part / 4096) * 4096;
            scene.write(at, 4096).await;
        }
    };
    let streams = (0..3).map(|stream| scene.write_linear(stream * part, (stream + 1) * part, 16 * KIB, 40));
    scene.world.run(futures_util::future::join(join_all(streams), random), || false);
    let tally = scene.tally();
    assert_eq!((tally.reads, tally.read_bytes), (32, 32 * 4096), "those of the random writes");
    assert_eq!(tally.written_bytes, 3 * part * 8 / 7 + 32 * 4096);
    scene.world.run(scene.check(), || false);
}

#[test]
fn a_random_write_costs_what_it_must_and_waits_for_nobody() {
    for (level, transfers) in [(Level::Raid5, 2), (Level::Raid6, 3)] {
        let scene = Scene::new(level, 40);
        let places: Vec<_> = (0..40).map(|stripe| stripe * 7 % 40 * scene.stripe_bytes + stripe * 4096).collect();
        scene.world.run(scene.write(places[0], 4096), || false);
        let (before, start) = (scene.tally(), scene.world.clock().now());
        let count = places.len() as u64 - 1;
        let writes = async {
            for at in &places[1..] {
                scene.write(*at, 4096).await;
            }
        };
        scene.world.run(writes, || false);
        let (after, took) = (scene.tally(), scene.world.clock().now().since(start));
        assert_eq!(after.reads - before.reads, count * transfers, "{level:?}");
        assert_eq!(after.writes - before.writes, count * transfers, "{level:?}");
        assert_eq!(after.read_bytes - before.read_bytes, count * transfers * 4096, "{level:?}");
        // Three latencies of at most 200 us each: one of the reads, two of the writes.
        assert!(took <= Duration::from_micros(600) * count as u32, "{level:?}: {took:?}");
        scene.world.run(scene.check(), || false);
    }
}

#[test]
fn a_stream_whose_queue_holds_no_stripe_is_not_slowed() {
    for depth in [1, 2, 4] {
        let scene = Scene::new(Level::Raid5, 16);
        let start = scene.world.clock().now();
        scene.world.run(scene.write_linear(0, scene.array.bytes(), 64 * KIB, depth), || false);
        let took = scene.world.clock().now().since(start);
        let requests = (scene.array.bytes() / (64 * KIB)) as u32;
        // Three latencies a request, and twice the patience that was in vain.
        let bound = Duration::from_micros(600) * requests + Duration::from_millis(6);
        assert!(took <= bound, "{depth} at a time: {took:?}, not {bound:?}");
        scene.world.run(scene.check(), || false);
    }
}
