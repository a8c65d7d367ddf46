//! Power is cut while an array with a partial parity log is written to, at any write or flush of its members. Then one
//! member is lost as well, any of them. What no write touched is right, and what one touched is old or new. Only what
//! the lost member held of a write under way may be anything.
//!
//! Power may go again while the log is replayed. Where no member is missing, parity then agrees with the data
//! everywhere: md resyncs nothing after a replay.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, ConsistencyPolicy, Durability, Pool, Refusal};
use format::geometry::{Geometry, Level};
use format::partial_parity::Header;
use format::placement::BitmapChoice;
use format::superblock::{Superblock, Version, decode};
use format::units::MemberByte;
use futures_util::future::{join, join_all};
use mdspace_sim::rows::{Row, SECTOR_BYTES, rows};
use mdspace_sim::truth::{Look, Truth};
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

pub(super) type Simulated = Array<SimMember, VirtualClock>;

const COMPONENT: u64 = 64 << 10;
const WRITERS: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) policy: ConsistencyPolicy,
    pub(super) slots: u16,
    pub(super) layout: u32,
    pub(super) chunk: u64,
    pub(super) version: Version,
    /// Bytes before the data, which bound the log.
    pub(super) data_at: u64,
    pub(super) block_bytes: u32,
    /// Lost before anything is written.
    pub(super) missing: Option<u16>,
    /// Failed by command amid the writes.
    pub(super) fails: Option<u16>,
}

impl Shape {
    fn random(random: &mut Random) -> Self {
        let slots = random.within(3..6) as u16;
        let missing = random.once_in(3).then(|| random.within(0..slots.into()) as u16);
        let fails = (missing.is_none() && random.once_in(3)).then(|| random.within(0..slots.into()) as u16);
        Self {
            policy: ConsistencyPolicy::PartialParity,
            slots,
            layout: random.within(0..6) as u32,
            chunk: 4096 << random.within(0..3),
            version: *random.pick(&[Version::V1_0, Version::V1_1, Version::V1_2]),
            data_at: *random.pick(&[64 << 10, 256 << 10]),
            block_bytes: *random.pick(&[512, 4096]),
            missing,
            fails,
        }
    }

    fn is_at_end(&self) -> bool {
        self.version == Version::V1_0
    }
}

/// A life of an array, and what it may hold.
pub(super) struct Scene {
    pub(super) shape: Shape,
    pub(super) members: Vec<SimMember>,
    pub(super) boundaries: Rc<Cell<u64>>,
    pub(super) truth: Rc<RefCell<Truth>>,
    pub(super) rows: Vec<Row>,
}

fn superblock_of(image: &[u8], version: Version) -> Superblock {
    let at = version.place(image.len() as u64).expect("long enough");
    let place = &image[at.0 as usize..][..4096];
    decode(version, MemberByte(at.0), place, image.len() as u64).expect("right").expect("there")
}

pub(super) async fn assemble(
    members: &[SimMember],
    options: AssembleOptions,
    world: &World,
) -> Result<Simulated, Refusal> {
    let candidates = members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect();
    Array::assemble(candidates, options, Pool::new(1 << 20), world.clock()).await
}

impl Scene {
    pub(super) async fn new(shape: Shape, world: &World) -> Self {
        let boundaries = Rc::new(Cell::new(0));
        let member = |index| {
            let before = if shape.is_at_end() { 1 << 20 } else { shape.data_at };
            let bytes = (before + COMPONENT + (64 << 10)) as usize;
            SimMember::new(format!("m{index}"), world, vec![0; bytes], boundaries.clone())
                .with_blocks(shape.block_bytes)
        };
        let members: Vec<_> = (0..shape.slots).map(member).collect();
        let recipe = Recipe {
            version: shape.version,
            layout: shape.layout,
            chunk_bytes: shape.chunk,
            name: "sim:log".to_owned(),
            data_offset_bytes: (!shape.is_at_end()).then_some(shape.data_at),
            component_bytes: Some(COMPONENT),
            contents: Contents::Zeros,
            parity_log: shape.policy == ConsistencyPolicy::PartialParity,
            bitmap: match shape.policy {
                ConsistencyPolicy::Bitmap => BitmapChoice::Chunk(4096),
                _ => BitmapChoice::None,
            },
            ..Recipe::new(Level::Raid5, [7; 16])
        };
        let newcomer = |(index, member): (usize, &SimMember)| {
            let candidate = Candidate { name: member.name(), member: member.clone() };
            Some(Newcomer { candidate, device_uuid: [index as u8; 16] })
        };
        let newcomers: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &world.clock(), &|_, _| {}).await.expect("created");
        let superblock = superblock_of(&members[0].contents(), shape.version);
        assert_eq!(superblock.ppl.is_some(), recipe.parity_log, "a log was made");
        let geometry = Geometry::new(&superblock.shape(&[])).expect("a shape");
        let truth = Rc::new(RefCell::new(Truth::new(geometry.array_bytes())));
        Self { shape, members, boundaries, truth, rows: rows(&geometry) }
    }

    /// The members, without the one that is missing.
    pub(super) fn here(&self) -> Vec<SimMember> {
        let here = self.members.iter().zip(0_u16..).filter(|(_, slot)| Some(*slot) != self.shape.missing);
        here.map(|(member, _)| member.clone()).collect()
    }

    /// Several requests at a time, for as long as power lasts.
    async fn live(&self, random: &RefCell<Random>, world: &World) {
        let array = assemble(&self.here(), AssembleOptions::default(), world).await.expect("it has enough members");
        let writer = async |_| {
            for _ in 0..6 {
                self.request(&array, random).await;
            }
        };
        let failing = async {
            let Some(slot) = self.shape.fails else { return };
            let wait = Duration::from_micros(random.borrow_mut().within(0..4000));
            world.clock().sleep_until(world.clock().now() + wait).await;
            array.fail(&self.members[usize::from(slot)].name()).await.expect("the others are enough");
        };
        join(join_all((0..WRITERS).map(writer)), failing).await;
        if random.borrow_mut().once_in(2) {
            array.stop().await.expect("nothing fails");
        }
    }

    pub(super) async fn request(&self, array: &Simulated, random: &RefCell<Random>) {
        if random.borrow_mut().once_in(5) {
            let since = self.truth.borrow_mut().moment();
            array.flush().await.expect("nothing fails");
            return self.truth.borrow_mut().flushed(since);
        }
        let (at, data) = {
            let random = &mut *random.borrow_mut();
            let bytes = match random.within(0..4) {
                0 => random.within(1..4096),
                1 => self.shape.chunk * random.within(1..4),
                2 => self.shape.chunk * u64::from(self.shape.slots - 1) * random.within(1..3),
                _ => 512 * random.within(1..64),
            };
            let at = random.within(0..array.bytes());
            let at = if random.once_in(2) { at / self.shape.chunk * self.shape.chunk } else { at };
            let mut data = vec![0; bytes.min(array.bytes() - at) as usize];
            random.fill(&mut data);
            (at, data)
        };
        let id = self.truth.borrow_mut().begin(at as usize, data.clone());
        array.write(at, array.pool().copy_of(&data), Durability::Ordinary).await.expect("nothing fails");
        self.truth.borrow_mut().answered(id, false);
    }

    /// Copies of the members as they are, without one.
    fn without(&self, lost: Option<u16>, world: &World) -> Vec<SimMember> {
        let left = self.members.iter().zip(0_u16..);
        let left = left.filter(|(_, slot)| Some(*slot) != lost && Some(*slot) != self.shape.missing);
        left.map(|(member, _)| {
            SimMember::new(member.name(), world, member.contents(), self.boundaries.clone())
                .with_blocks(self.shape.block_bytes)
        })
        .collect()
    }

    /// Reads everything without `lost`. Returns how many sectors may be anything.
    async fn check(&self, members: &[SimMember], lost: Option<u16>, options: AssembleOptions, world: &World) -> usize {
        let array = assemble(members, options, world).await;
        let array = array.unwrap_or_else(|why| panic!("{:?} without {lost:?}: {why}", self.shape));
        let truth = self.truth.borrow().clone();
        self.check_array(&array, &truth, &format!("{:?} without {lost:?}", self.shape)).await
    }

    /// Reads everything. Returns how many sectors may be anything.
    pub(super) async fn check_array(&self, array: &Simulated, truth: &Truth, context: &str) -> usize {
        let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
        let found = read.unwrap_or_else(|error| panic!("{context}: {error}"));
        let missing = array.status().missing;
        let mut unknown = 0;
        for datum in self.rows.iter().flat_map(|row| &row.data) {
            if missing.contains(&datum.copies[0].0.0)
                && !truth.is_block_certain(datum.sector, self.shape.block_bytes as usize)
            {
                unknown += 1;
                continue;
            }
            let place = datum.sector * SECTOR_BYTES..(datum.sector + 1) * SECTOR_BYTES;
            let bytes = &found[place.clone()];
            let why = || format!("{context}: {}", truth.describe(datum.sector, place.clone(), bytes, Look::Members));
            assert!(truth.allows(datum.sector, bytes, Look::Members), "{}", why());
        }
        unknown
    }
}

impl Scene {
    /// Parity agrees with the data in each row.
    fn check_parity(&self, members: &[SimMember]) {
        let images: Vec<_> = members.iter().map(SimMember::contents).collect();
        let data_at = superblock_of(&images[0], self.shape.version).data_at().0;
        for row in &self.rows {
            let at = (data_at + row.component.0) as usize;
            for byte in at..at + SECTOR_BYTES {
                let sum = images.iter().fold(0, |sum, image| sum ^ image[byte]);
                assert_eq!(sum, 0, "{:?}: parity at byte {byte} of the members", self.shape);
            }
        }
    }
}

/// How many members, and how much of a write, power took.
#[derive(Default)]
struct Seen {
    dirty: usize,
    unknown: usize,
    twice: usize,
}

fn play(seed: u64, seen: &mut Seen) {
    let world = World::new(seed);
    let mut random = Random::new(seed);
    let shape = Shape::random(&mut random);
    let scene = world.run(Scene::new(shape, &world), || false).expect("the power does not go");
    let cut = scene.boundaries.get() + random.within(1..600);
    let random = RefCell::new(random);
    let ended = world.run(scene.live(&random, &world), || scene.boundaries.get() >= cut);
    seen.dirty += usize::from(ended.is_none());
    world.forget_all();
    let mut random = random.into_inner();
    scene.members.iter().for_each(|member| member.lose_power(&mut random));
    scene.truth.borrow_mut().interrupted();
    let losses: Vec<_> = match shape.missing.or(shape.fails) {
        Some(_) => vec![None],
        None => std::iter::once(None).chain((0..shape.slots).map(Some)).collect(),
    };
    for lost in losses {
        let members = scene.without(lost, &world);
        if random.once_in(2) {
            // Power goes again while the log is replayed, or soon after.
            let cut = scene.boundaries.get() + random.within(1..40);
            let begin = async {
                let array =
                    assemble(&members, AssembleOptions::default(), &world).await.expect("it has enough members");
                let block = array.read(0, array.pool().take(512)).await.expect("it can be read");
                array.write(0, block.freeze(), Durability::Ordinary).await.expect("nothing fails");
            };
            seen.twice += usize::from(world.run(begin, || scene.boundaries.get() >= cut).is_none());
            world.forget_all();
            members.iter().for_each(|member| member.lose_power(&mut random));
        }
        let is_read_only = random.once_in(2);
        let options = AssembleOptions { read_only: is_read_only, replay: is_read_only, ..AssembleOptions::default() };
        let checked = world.run(scene.check(&members, lost, options, &world), || false);
        seen.unknown += checked.expect("the power does not go");
        world.forget_all();
        if !is_read_only && lost.is_none() && shape.missing.or(shape.fails).is_none() {
            scene.check_parity(&members);
        }
    }
}

#[test]
fn a_loss_of_power_and_of_a_member_costs_nothing_but_what_was_being_written() {
    let mut seen = Seen::default();
    for seed in 0..mdspace_sim_count() {
        play(seed, &mut seen);
    }
    assert!(seen.dirty > 0 && seen.unknown > 0 && seen.twice > 0, "power went amid writes, and amid replays");
}

/// Histories in a run of the tests.
fn mdspace_sim_count() -> u64 {
    std::env::var("MDSPACE_LOG_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

/// The entries in the first header of each member's log.
fn entries(scene: &Scene) -> Vec<usize> {
    let entries = |member: &SimMember| {
        let image = member.contents();
        let superblock = superblock_of(&image, scene.shape.version);
        let (at, place) = (superblock.ppl_at().expect("a log").0 as usize, superblock.ppl.expect("a log"));
        let header = Header::decode(&image[at..], &[7; 16], u64::from(place.sectors) * 512).expect("a header");
        header.entries.len()
    };
    scene.members.iter().map(entries).collect()
}

#[test]
fn the_log_of_an_earlier_use_is_erased_before_the_next() {
    let world = World::new(1);
    let shape = Shape {
        policy: ConsistencyPolicy::PartialParity,
        slots: 3,
        layout: 2,
        chunk: 4096,
        version: Version::V1_2,
        data_at: 256 << 10,
        block_bytes: 512,
        missing: None,
        fails: None,
    };
    let course = async {
        let scene = Scene::new(shape, &world).await;
        for (at, expected) in [(0, [0, 0, 1]), (2 * shape.chunk, [0, 1, 0])] {
            let array = assemble(&scene.here(), AssembleOptions::default(), &world).await.expect("whole");
            array.write(at, array.pool().copy_of(&[1; 512]), Durability::Stable).await.expect("written");
            array.stop().await.expect("clean");
            assert_eq!(entries(&scene), expected);
        }
    };
    world.run(course, || false).expect("the power does not go");
}
