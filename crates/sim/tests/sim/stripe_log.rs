//! Power is cut while an array with a stripe log is written to, at any write or flush of its members. Then members are
//! lost as well, as many as the level bears. What no write touched is right, and what one touched is old or new. Only what
//! a lost member held of a write under way may be anything.
//!
//! Power may go again while the log is replayed. Where no member is missing, parity then agrees with the data in each row
//! of which some chunk was left as it was.
//!
//! The same histories without a log show what it is worth: an array that is dirty and degraded is then taken by force.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Durability, Pool, Refusal};
use format::geometry::{Geometry, Level, default_layout};
use format::placement::BitmapChoice;
use format::stripe_log::{Header, Place};
use format::superblock::{Superblock, Version, decode};
use format::units::MemberByte;
use futures_util::future::{join, join_all};
use mdspace_sim::rows::{Row, SECTOR_BYTES, rows};
use mdspace_sim::truth::{Look, Truth};
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const COMPONENT: u64 = 64 << 10;
const WRITERS: usize = 4;

#[derive(Debug, Clone)]
struct Shape {
    has_log: bool,
    level: Level,
    slots: u16,
    chunk: u64,
    version: Version,
    /// Bytes before the data, which bound the log.
    data_at: u64,
    block_bytes: u32,
    has_bitmap: bool,
    has_checksums: bool,
    /// Lost before anything is written.
    missing: BTreeSet<u16>,
    /// Failed by command amid the writes.
    fails: Option<u16>,
}

impl Shape {
    fn random(random: &mut Random, has_log: bool) -> Self {
        let level = *random.pick(&[Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid6]);
        let parities = if level == Level::Raid6 { 2 } else { 1 };
        let slots = parities + random.within(2..5) as u16;
        let lost = random.within(0..u64::from(parities) * 2);
        let missing: BTreeSet<u16> =
            (0..lost.min(parities.into())).map(|_| random.within(0..slots.into()) as u16).collect();
        let can_fail = missing.len() < usize::from(parities) && random.once_in(3);
        let fails = can_fail.then(|| random.within(0..slots.into()) as u16).filter(|slot| !missing.contains(slot));
        Self {
            has_log,
            level,
            slots,
            chunk: 4096 << random.within(0..3),
            version: *random.pick(&[Version::V1_1, Version::V1_2]),
            data_at: *random.pick(&[64 << 10, 80 << 10, 256 << 10]),
            block_bytes: *random.pick(&[512, 4096]),
            has_bitmap: random.once_in(2),
            has_checksums: random.once_in(3),
            missing,
            fails,
        }
    }

    fn parities(&self) -> usize {
        if self.level == Level::Raid6 { 2 } else { 1 }
    }

    /// Members that do not take part at the end.
    fn gone(&self) -> usize {
        self.missing.len() + usize::from(self.fails.is_some())
    }
}

/// A life of an array, and what it may hold.
struct Scene {
    shape: Shape,
    members: Vec<SimMember>,
    boundaries: Rc<Cell<u64>>,
    truth: Rc<RefCell<Truth>>,
    /// Writes that have begun, and whether they are of zeros.
    under_way: RefCell<Vec<(Range<u64>, bool)>>,
    rows: Vec<Row>,
}

fn superblock_of(image: &[u8], version: Version) -> Superblock {
    let at = version.place(image.len() as u64).expect("long enough");
    let place = &image[at.0 as usize..][..4096];
    decode(version, MemberByte(at.0), place, image.len() as u64).expect("right").expect("there")
}

async fn assemble(members: &[SimMember], options: AssembleOptions, world: &World) -> Result<Simulated, Refusal> {
    let candidates = members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect();
    Array::assemble(candidates, options, Pool::new(1 << 20), world.clock()).await
}

impl Scene {
    async fn new(shape: Shape, world: &World) -> Self {
        let boundaries = Rc::new(Cell::new(0));
        let member = |index| {
            let bytes = (shape.data_at + COMPONENT + (64 << 10)) as usize;
            SimMember::new(format!("m{index}"), world, vec![0; bytes], boundaries.clone())
                .with_blocks(shape.block_bytes)
        };
        let members: Vec<_> = (0..shape.slots).map(member).collect();
        let recipe = Recipe {
            version: shape.version,
            layout: default_layout(shape.level),
            chunk_bytes: shape.chunk,
            name: "sim:log".to_owned(),
            data_offset_bytes: Some(shape.data_at),
            component_bytes: Some(COMPONENT),
            contents: Contents::Zeros,
            bitmap: if shape.has_bitmap { BitmapChoice::DefaultChunk } else { BitmapChoice::None },
            stripe_log: shape.has_log,
            integrity: shape.has_checksums,
            ..Recipe::new(shape.level, [7; 16])
        };
        let newcomer = |(index, member): (usize, &SimMember)| {
            let candidate = Candidate { name: member.name(), member: member.clone() };
            Some(Newcomer { candidate, device_uuid: [index as u8; 16] })
        };
        let newcomers: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &world.clock(), &|_, _| {}).await.expect("created");
        let superblock = superblock_of(&members[0].contents(), shape.version);
        let geometry = Geometry::new(&superblock.shape(&[])).expect("a shape");
        let truth = Rc::new(RefCell::new(Truth::new(geometry.array_bytes())));
        Self { shape, members, boundaries, truth, under_way: RefCell::default(), rows: rows(&geometry) }
    }

    /// The members, without those that are missing.
    fn here(&self) -> Vec<SimMember> {
        let here = self.members.iter().zip(0_u16..).filter(|(_, slot)| !self.shape.missing.contains(slot));
        here.map(|(member, _)| member.clone()).collect()
    }

    /// Several requests at a time, for as long as power lasts.
    async fn live(&self, random: &RefCell<Random>, world: &World) {
        let array = assemble(&self.here(), AssembleOptions::default(), world).await.expect("it has enough members");
        if self.shape.has_log {
            assert_eq!(array.status().consistency_policy, "log");
        }
        let writer = async |_| {
            for _ in 0..8 {
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

    async fn request(&self, array: &Simulated, random: &RefCell<Random>) {
        if random.borrow_mut().once_in(6) {
            let since = self.truth.borrow_mut().moment();
            array.flush().await.expect("nothing fails");
            return self.truth.borrow_mut().flushed(since);
        }
        let stripe = self.shape.chunk * (u64::from(self.shape.slots) - self.shape.parities() as u64);
        let (at, data, is_zeros) = {
            let random = &mut *random.borrow_mut();
            let bytes = match random.within(0..4) {
                0 => random.within(1..4096),
                1 => self.shape.chunk * random.within(1..4),
                2 => stripe * random.within(1..3),
                _ => 512 * random.within(1..64),
            };
            // Often the same few stripes.
            let at = if random.once_in(2) { random.within(0..array.bytes()) } else { random.within(0..2 * stripe) };
            let unit = *random.pick(&[1, self.shape.chunk, stripe]);
            let at = at / unit * unit;
            let mut data = vec![0; bytes.min(array.bytes() - at) as usize];
            let is_zeros = random.once_in(8);
            if !is_zeros {
                random.fill(&mut data);
            }
            (at, data, is_zeros)
        };
        // The order of zeroing and of a write at the same time is not promised.
        let range = at..at + data.len() as u64;
        let overlaps = |(other, zeros): &(Range<u64>, bool)| {
            (is_zeros || *zeros) && other.start < range.end && range.start < other.end
        };
        if self.under_way.borrow().iter().any(overlaps) {
            return;
        }
        self.under_way.borrow_mut().push((range.clone(), is_zeros));
        let id = self.truth.borrow_mut().begin(at as usize, data.clone());
        let written = match is_zeros {
            true => array.write_zeroes(at, data.len() as u64, Durability::Ordinary).await,
            false => array.write(at, array.pool().copy_of(&data), Durability::Ordinary).await,
        };
        written.expect("nothing fails");
        self.truth.borrow_mut().answered(id, false);
        let mut under_way = self.under_way.borrow_mut();
        let own = under_way.iter().position(|other| *other == (range.clone(), is_zeros)).expect("it was noted");
        under_way.swap_remove(own);
    }

    /// Copies of the members as they are, without some.
    fn without(&self, lost: &BTreeSet<u16>, world: &World) -> Vec<SimMember> {
        let left = self.members.iter().zip(0_u16..);
        let left = left.filter(|(_, slot)| !lost.contains(slot) && !self.shape.missing.contains(slot));
        left.map(|(member, _)| {
            SimMember::new(member.name(), world, member.contents(), self.boundaries.clone())
                .with_blocks(self.shape.block_bytes)
        })
        .collect()
    }

    /// Whether no write in doubt touched the logical block of a sector. Members take whole blocks, and so do checksums.
    fn is_untouched(&self, truth: &Truth, sector: usize) -> bool {
        let bytes = if self.shape.has_checksums { 4096 } else { self.shape.block_bytes };
        let block = bytes as usize / SECTOR_BYTES;
        let first = sector / block * block;
        (first..first + block).all(|sector| truth.is_certain(sector))
    }

    /// Reads everything. Returns how many sectors may be anything, and the first wrong one.
    async fn check(&self, array: &Simulated) -> (usize, Option<String>) {
        let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
        let found = match read {
            Ok(found) => found,
            Err(error) => return (0, Some(error.to_string())),
        };
        let missing = array.status().missing;
        let truth = self.truth.borrow();
        let mut unknown = 0;
        for datum in self.rows.iter().flat_map(|row| &row.data) {
            if missing.contains(&datum.copies[0].0.0) && !self.is_untouched(&truth, datum.sector) {
                unknown += 1;
                continue;
            }
            let place = datum.sector * SECTOR_BYTES..(datum.sector + 1) * SECTOR_BYTES;
            let bytes = &found[place.clone()];
            if !truth.allows(datum.sector, bytes, Look::Members) {
                return (unknown, Some(truth.describe(datum.sector, place.clone(), bytes, Look::Members)));
            }
        }
        (unknown, None)
    }

    /// Parity agrees with the data in each row of which some sector was left as it was.
    fn check_parity(&self, members: &[SimMember], seed: u64) {
        let images: Vec<_> = members.iter().map(SimMember::contents).collect();
        let data_at = superblock_of(&images[0], self.shape.version).data_at().0;
        let truth = self.truth.borrow();
        for row in &self.rows {
            if !row.data.iter().any(|datum| self.is_untouched(&truth, datum.sector)) {
                continue;
            }
            let at = (data_at + row.component.0) as usize;
            let data = |index: usize| &images[row.data[index].copies[0].0.index()][at..at + SECTOR_BYTES];
            for byte in 0..SECTOR_BYTES {
                let (mut p, mut q) = (0, 0);
                for index in 0..row.data.len() {
                    let value = data(index)[byte];
                    let exponent = row.exponents.get(index).copied().unwrap_or(0); // only level 6 has them
                    p ^= value;
                    q ^= (0..exponent).fold(value, |value, _| (value << 1) ^ if value & 0x80 != 0 { 0x1d } else { 0 });
                }
                for (slot, expected) in [(row.p, p), (row.q, q)] {
                    let Some(slot) = slot else { continue };
                    let found = images[slot.index()][at + byte];
                    assert_eq!(found, expected, "seed {seed}, {:?}: byte {} of {slot}", self.shape, at + byte);
                }
            }
        }
    }
}

/// What happened in all histories.
#[derive(Default)]
struct Seen {
    dirty: usize,
    unknown: usize,
    twice: usize,
    wraps: usize,
    wrong: Vec<String>,
}

/// The members to lose at the end, in turn: none, and each choice of as many as the level still bears.
fn losses(shape: &Shape) -> Vec<BTreeSet<u16>> {
    let bears = shape.parities() - shape.gone();
    let left: Vec<u16> = (0..shape.slots).filter(|slot| !shape.missing.contains(slot)).collect();
    let mut losses = vec![BTreeSet::new()];
    for first in left.iter().filter(|_| bears >= 1) {
        losses.push(BTreeSet::from([*first]));
        let others = left.iter().filter(|second| bears >= 2 && *second > first);
        losses.extend(others.map(|second| BTreeSet::from([*first, *second])));
    }
    losses
}

fn play(seed: u64, has_log: bool, seen: &mut Seen) {
    let world = World::new(seed);
    let mut random = Random::new(seed);
    let shape = Shape::random(&mut random, has_log);
    let scene = world.run(Scene::new(shape.clone(), &world), || false).expect("the power does not go");
    let cut = scene.boundaries.get() + random.within(1..1200);
    let random = RefCell::new(random);
    let ended = world.run(scene.live(&random, &world), || scene.boundaries.get() >= cut);
    seen.dirty += usize::from(ended.is_none());
    world.forget_all();
    let mut random = random.into_inner();
    scene.members.iter().for_each(|member| member.lose_power(&mut random));
    scene.truth.borrow_mut().interrupted();
    seen.wraps += usize::from(has_log && scene.members.iter().any(|member| has_wrapped(member, shape.version)));
    for lost in losses(&shape) {
        let members = scene.without(&lost, &world);
        if random.once_in(2) {
            // Power goes again while the log is replayed, or soon after.
            let cut = scene.boundaries.get() + random.within(1..60);
            let begin = async {
                let options = AssembleOptions { force: !has_log, ..AssembleOptions::default() };
                let array = assemble(&members, options, &world).await.expect("it has enough members");
                let block = array.read(0, array.pool().take(512)).await.expect("it can be read");
                array.write(0, block.freeze(), Durability::Ordinary).await.expect("nothing fails");
            };
            seen.twice += usize::from(world.run(begin, || scene.boundaries.get() >= cut).is_none());
            world.forget_all();
            members.iter().for_each(|member| member.lose_power(&mut random));
        }
        let read_only = random.once_in(2);
        let options = AssembleOptions { read_only, replay: read_only, force: !has_log, ..AssembleOptions::default() };
        let context = format!("seed {seed}, {shape:?} without {lost:?}");
        let checked = world.run(
            async {
                let array = assemble(&members, options, &world).await.unwrap_or_else(|why| panic!("{context}: {why}"));
                scene.check(&array).await
            },
            || false,
        );
        let (unknown, wrong) = checked.expect("the power does not go");
        seen.unknown += unknown;
        seen.wrong.extend(wrong.map(|wrong| format!("{context}: {wrong}")));
        world.forget_all();
        if has_log && !read_only && lost.is_empty() && shape.gone() == 0 {
            scene.check_parity(&members, seed);
        }
    }
}

/// Whether the log of a member has given up records to make room for others.
fn has_wrapped(member: &SimMember, version: Version) -> bool {
    let image = member.contents();
    let place = Place::of(&superblock_of(&image, version)).expect("there is room");
    let header = Header::decode(&image[place.at.0 as usize..]).ok().flatten();
    header.is_some_and(|header| header.first > 1)
}

#[test]
fn a_loss_of_power_and_of_members_costs_nothing_but_what_was_being_written() {
    let mut seen = Seen::default();
    for seed in 0..histories() {
        play(seed, true, &mut seen);
        assert_eq!(seen.wrong, [""; 0]);
    }
    assert!(seen.dirty > 0 && seen.unknown > 0 && seen.twice > 0 && seen.wraps > 0, "each situation was met");
}

#[test]
fn without_a_log_the_same_histories_lose_data_that_was_not_being_written() {
    let (mut seen, mut lossy) = (Seen::default(), 0);
    for seed in 0..histories() {
        let before = seen.wrong.len();
        play(seed, false, &mut seen);
        lossy += usize::from(seen.wrong.len() > before);
    }
    println!("{lossy} of {} histories lose data without a log", histories());
    assert!(lossy > 0, "the log is worth something");
}

/// A small array of level 5 that lost power while it was dirty.
async fn dirty(world: &World) -> Scene {
    let shape = Shape {
        has_log: true,
        level: Level::Raid5,
        slots: 3,
        chunk: 4096,
        version: Version::V1_2,
        data_at: 64 << 10,
        block_bytes: 512,
        has_bitmap: false,
        has_checksums: false,
        missing: BTreeSet::new(),
        fails: None,
    };
    let scene = Scene::new(shape, world).await;
    let array = assemble(&scene.here(), AssembleOptions::default(), world).await.expect("whole");
    array.write(0, array.pool().copy_of(&[1; 512]), Durability::Stable).await.expect("nothing fails");
    scene
}

#[test]
fn a_log_is_void_once_other_software_has_written_the_members() {
    let world = World::new(1);
    let course = async {
        let scene = dirty(&world).await;
        for member in &scene.members {
            // md writes no microseconds.
            let mut superblock = superblock_of(&member.contents(), scene.shape.version);
            superblock.events += 1;
            superblock.updated.micros = 0;
            member.plant(superblock.super_at().0, &superblock.encode());
        }
        let lost = BTreeSet::from([0]);
        let refused = assemble(&scene.without(&lost, &world), AssembleOptions::default(), &world).await;
        let refusal = refused.map(|array| array.status()).expect_err("the log would be replayed over md's writes");
        assert!(refusal.reason.contains("dirty and degraded"), "{refusal}");
        let whole = assemble(&scene.without(&BTreeSet::new(), &world), AssembleOptions::default(), &world).await;
        let status = whole.expect("nothing is missing").status();
        assert!(status.warnings.iter().any(|warning| warning.contains("the stripe log is void")), "{:?}", status.warnings);
        assert_eq!(status.consistency_policy, "log", "the array still keeps one");
    };
    world.run(course, || false).expect("the power does not go");
}

/// Histories in a run of the tests.
fn histories() -> u64 {
    std::env::var("MDSPACE_LOG_HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}
