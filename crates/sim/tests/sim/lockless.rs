//! Histories of arrays with a lockless bitmap, made on members that hold anything: nothing is zeroed or resynced first.
//!
//! What was flushed reads back under every loss that the level bears: while the array is in use, after a stop, and
//! after a power cut that a resync of the named chunks has mended. What was never written may be anything, but is no
//! error. A scrub of what was written finds nothing, and a whole array that was stopped has only chunks that are clean
//! or were never written.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Durability, Pool, Refusal, ScrubAction, ScrubRequest};
use format::bitmap::{BitmapSuper, Kind};
use format::geometry::{Level, default_layout};
use format::lockless::{ChunkState, STATES_AT};
use format::placement::BitmapChoice;
use format::superblock::{Superblock, Version, decode};
use format::units::MemberByte;
use futures_util::future::join;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const SECTOR: usize = 512;
const COMPONENT: u64 = 64 << 10;
const DATA_AT: u64 = 64 << 10;

#[derive(Debug, Clone)]
struct Shape {
    level: Level,
    slots: u16,
    layout: u32,
    chunk: u64,
    bitmap_chunk: u64,
    block_bytes: u32,
    missing: BTreeSet<u16>,
}

impl Shape {
    fn random(random: &mut Random) -> Self {
        let level =
            *random.pick(&[Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid5, Level::Raid6, Level::Raid10]);
        let slots = match level {
            Level::Raid1 => random.within(2..4),
            Level::Raid10 => 4,
            _ => random.within(3..6) + u64::from(level == Level::Raid6),
        } as u16;
        let missing =
            if random.once_in(4) { BTreeSet::from([random.within(0..slots.into()) as u16]) } else { BTreeSet::new() };
        Self {
            level,
            slots,
            layout: default_layout(level),
            chunk: if level == Level::Raid1 { 0 } else { 4096 << random.within(0..3) },
            bitmap_chunk: 4096 << random.within(0..3),
            block_bytes: *random.pick(&[512, 4096]),
            missing,
        }
    }

    /// How many members it bears to lose, for certain.
    fn bears(&self) -> usize {
        match self.level {
            Level::Raid6 => 2,
            Level::Raid1 => usize::from(self.slots) - 1,
            _ => 1,
        }
    }
}

/// What a sector may hold.
#[derive(Clone, Default)]
struct Sector {
    /// What it holds for certain; `None` if nothing was ever settled.
    settled: Option<Vec<u8>>,
    /// Writes since the last flush, in order.
    recent: Vec<Vec<u8>>,
}

/// What all sectors of an array may hold.
#[derive(Clone)]
struct Truth(Vec<Sector>);

impl Truth {
    fn begin(&mut self, at: u64, data: &[u8]) {
        for (sector, data) in self.0[at as usize / SECTOR..].iter_mut().zip(data.chunks(SECTOR)) {
            sector.recent.push(data.to_vec());
        }
    }

    fn flushed(&mut self) {
        for sector in &mut self.0 {
            sector.settled = sector.recent.pop().or(sector.settled.take());
            sector.recent.clear();
        }
    }

    /// Checks what a running array gives: the latest write.
    fn check_running(&self, found: &[u8], context: &str) {
        for (index, (sector, found)) in self.0.iter().zip(found.chunks(SECTOR)).enumerate() {
            let expected = sector.recent.last().or(sector.settled.as_ref());
            assert!(
                expected.is_none_or(|expected| expected == found),
                "{context}: sector {index} is not the last write"
            );
        }
    }

    /// Checks what is left after power has gone, and takes it as settled.
    fn pin(&mut self, found: &[u8], context: &str) {
        for (index, (sector, found)) in self.0.iter_mut().zip(found.chunks(SECTOR)).enumerate() {
            let is_known = sector.settled.iter().chain(&sector.recent).any(|known| known == found);
            let is_legal = is_known || sector.settled.is_none();
            assert!(is_legal, "{context}: sector {index} is neither what was settled nor a later write");
            // What was never settled may still be what was there before the array was made.
            sector.settled = is_known.then(|| found.to_vec());
            sector.recent.clear();
        }
    }
}

async fn assemble(members: &[SimMember], world: &World, read_only: bool) -> Result<Simulated, Refusal> {
    let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
    let options = AssembleOptions { read_only, ..AssembleOptions::default() };
    Array::assemble(members.iter().map(candidate).collect(), options, Pool::new(1 << 20), world.clock()).await
}

async fn read_all(array: &Simulated, context: &str) -> Vec<u8> {
    let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
    read.unwrap_or_else(|error| panic!("{context}: {error}")).to_vec()
}

fn superblock_of(image: &[u8]) -> Superblock {
    decode(Version::V1_2, MemberByte(4096), &image[4096..8192], image.len() as u64).expect("right").expect("there")
}

/// The states on a member, and the bitmap's superblock.
fn states_of(member: &SimMember) -> (BitmapSuper, Vec<ChunkState>) {
    let image = member.contents();
    let at = superblock_of(&image).bitmap_at().expect("it has a bitmap").0 as usize;
    let header = BitmapSuper::decode(&image[at..], 1 << 20).expect("a bitmap's superblock is never torn");
    assert_eq!(header.kind, Kind::Lockless);
    let states = &image[at + STATES_AT as usize..][..header.bits() as usize];
    (header, states.iter().map(|byte| ChunkState::from_byte(*byte)).collect())
}

/// A life of an array, and what it may hold.
struct Scene {
    shape: Shape,
    members: RefCell<Vec<SimMember>>,
    boundaries: Rc<Cell<u64>>,
    truth: RefCell<Truth>,
    context: String,
}

impl Scene {
    fn blank(&self, name: &str, world: &World, random: &mut Random) -> SimMember {
        let mut contents = vec![0; (DATA_AT + COMPONENT) as usize];
        random.fill(&mut contents);
        SimMember::new(name.to_owned(), world, contents, self.boundaries.clone()).with_blocks(self.shape.block_bytes)
    }

    async fn new(shape: Shape, world: &World, random: &mut Random, context: String) -> Self {
        let scene = Self {
            members: RefCell::default(),
            boundaries: Rc::default(),
            truth: RefCell::new(Truth(Vec::new())),
            context,
            shape: shape.clone(),
        };
        let members: Vec<_> = (0..shape.slots).map(|slot| scene.blank(&format!("m{slot}"), world, random)).collect();
        let recipe = Recipe {
            layout: shape.layout,
            chunk_bytes: shape.chunk,
            name: "sim:lockless".to_owned(),
            data_offset_bytes: Some(DATA_AT),
            component_bytes: Some(COMPONENT),
            bitmap: BitmapChoice::Lockless(Some(shape.bitmap_chunk)),
            contents: Contents::Unknown,
            overwrite: true,
            ..Recipe::new(shape.level, [7; 16])
        };
        let newcomer = |(slot, member): (u16, &SimMember)| {
            let candidate = Candidate { name: member.name(), member: member.clone() };
            (!shape.missing.contains(&slot)).then_some(Newcomer { candidate, device_uuid: [slot as u8; 16] })
        };
        let newcomers: Vec<_> = (0..).zip(&members).map(newcomer).collect();
        let before: Vec<_> = members.iter().map(|member| member.contents()[DATA_AT as usize..].to_vec()).collect();
        create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &world.clock(), &|_, _| {}).await.expect("created");
        for (member, before) in members.iter().zip(before) {
            assert!(member.contents()[DATA_AT as usize..] == before, "{}: creation writes no data", scene.context);
        }
        let here = (0..).zip(members).filter(|(slot, _)| !shape.missing.contains(slot)).map(|(_, member)| member);
        *scene.members.borrow_mut() = here.collect();
        let members = scene.members.borrow().clone();
        let array = assemble(&members, world, true).await.expect("it was just made");
        scene.truth.borrow_mut().0 = vec![Sector::default(); array.bytes() as usize / SECTOR];
        scene
    }

    /// Requests one after the other, beside idle work.
    async fn live(&self, random: &RefCell<Random>, world: &World) {
        loop {
            let members = self.members.borrow().clone();
            let array = assemble(&members, world, false).await.unwrap_or_else(|why| panic!("{}: {why}", self.context));
            array.resync(&|_, _| {}).await.expect("nothing fails");
            let idle = join(array.clear_bitmap_lazily(), array.mark_clean_when_idle(Duration::from_millis(200)));
            let requests = async {
                for _ in 0..24 {
                    self.act(&array, random, world).await;
                }
            };
            let course = async {
                requests.await;
                array.stop().await.unwrap_or_else(|error| panic!("{}: {error}", self.context));
            };
            join(idle, course).await; // a stop ends idle work
            self.truth.borrow_mut().flushed();
            self.check_stopped(world).await;
            if random.borrow_mut().once_in(2) {
                return;
            }
        }
    }

    async fn act(&self, array: &Simulated, random: &RefCell<Random>, world: &World) {
        let kind = random.borrow_mut().within(0..14);
        match kind {
            0 => {
                array.flush().await.expect("nothing fails");
                self.truth.borrow_mut().flushed();
            }
            1 => {
                let wait = Duration::from_millis(random.borrow_mut().within(1..40_000));
                world.clock().sleep_until(world.clock().now() + wait).await;
            }
            2 => {
                let found = read_all(array, &self.context).await;
                self.truth.borrow().check_running(&found, &self.context);
            }
            3 => self.scrub(array).await,
            4 if random.borrow_mut().once_in(2) => self.lose_or_gain(array, random, world).await,
            _ => self.write(array, random).await,
        }
    }

    async fn write(&self, array: &Simulated, random: &RefCell<Random>) {
        let (at, data, is_zeros) = {
            let random = &mut *random.borrow_mut();
            let stripe = self.shape.chunk.max(4096) * u64::from(self.shape.slots.saturating_sub(1).max(1));
            let bytes = match random.within(0..4) {
                0 => 512 * random.within(1..8),
                1 => stripe * random.within(1..3),
                2 => self.shape.bitmap_chunk,
                _ => 512 * random.within(1..80),
            };
            let at = random.within(0..array.bytes()) / 512 * 512;
            let at = if random.once_in(3) { at / stripe * stripe } else { at };
            let mut data = vec![0; bytes.min(array.bytes() - at) as usize / SECTOR * SECTOR];
            let is_zeros = random.once_in(6);
            if !is_zeros {
                random.fill(&mut data);
            }
            (at, data, is_zeros)
        };
        if data.is_empty() {
            return;
        }
        self.truth.borrow_mut().begin(at, &data);
        let written = match is_zeros {
            true => array.write_zeroes(at, data.len() as u64, Durability::Ordinary).await,
            false => array.write(at, array.pool().copy_of(&data), Durability::Ordinary).await,
        };
        written.unwrap_or_else(|error| panic!("{}: {error}", self.context));
    }

    async fn scrub(&self, array: &Simulated) {
        if !array.status().missing.is_empty() || !array.status().in_agreement {
            return;
        }
        array.begin_scrub(&ScrubRequest { action: ScrubAction::Check, range: None }).expect("none is under way");
        array.scrub(&|_, _| {}).await.expect("nothing fails");
        let report = array.scrub_report().expect("it has ended");
        assert_eq!(report.found.counts.found(), 0, "{}: what was written agrees", self.context);
    }

    /// A member fails, or an empty one takes a free slot and gets its data.
    async fn lose_or_gain(&self, array: &Simulated, random: &RefCell<Random>, world: &World) {
        let number = self.members.borrow().len();
        if array.status().missing.is_empty() {
            let chosen = random.borrow_mut().within(0..number as u64) as usize;
            let name = self.members.borrow()[chosen].name();
            array.fail(&name).await.unwrap_or_else(|why| panic!("{}: {why}", self.context));
            array.remove(&name).await.unwrap_or_else(|why| panic!("{}: {why}", self.context));
            self.members.borrow_mut().remove(chosen);
            return;
        }
        let fresh = random.borrow_mut().within(100..1 << 40);
        let blank = self.blank(&format!("n{fresh}"), world, &mut random.borrow_mut());
        let candidate = Candidate { name: blank.name(), member: blank.clone() };
        let mut uuid = [9; 16];
        uuid[..8].copy_from_slice(&fresh.to_le_bytes());
        self.members.borrow_mut().push(blank);
        array.add(candidate, uuid, true).await.unwrap_or_else(|why| panic!("{}: {why}", self.context));
        let all = array.recover(&|_, _| {}).await.unwrap_or_else(|error| panic!("{}: {error}", self.context));
        assert!(all, "{}: recovered", self.context);
        let found = read_all(array, &self.context).await;
        self.truth.borrow().check_running(&found, &self.context);
    }

    /// The stopped array with each choice of members that it can do without.
    async fn check_stopped(&self, world: &World) {
        let members = self.members.borrow().clone();
        // A member that was added just before a power cut may be a spare without a slot.
        let array = assemble(&members, world, true).await.unwrap_or_else(|why| panic!("{}: {why}", self.context));
        let gone = array.status().missing.len();
        if gone == 0 {
            for member in &members {
                let (header, states) = states_of(member);
                assert!(header.events >= superblock_of(&member.contents()).events, "{}", self.context);
                assert!(states.iter().all(|state| *state <= ChunkState::Clean), "{}: {states:?}", self.context);
            }
        }
        for lost in std::iter::once(None).chain((0..members.len()).map(Some)) {
            if lost.is_some() && gone >= self.shape.bears() {
                break;
            }
            let rest = members.iter().enumerate().filter(|(index, _)| Some(*index) != lost);
            let rest: Vec<_> = rest.map(|(_, member)| member.clone()).collect();
            let context = format!("{}, stopped, without {lost:?} of {}", self.context, members.len());
            let array = assemble(&rest, world, true).await.unwrap_or_else(|why| panic!("{context}: {why}"));
            let found = read_all(&array, &context).await;
            self.truth.borrow().check_running(&found, &context);
        }
    }

    /// What is left after a power cut.
    async fn recover_from_cut(&self, world: &World) -> bool {
        // One that was being added may have no superblock yet.
        let has_superblock = |image: &[u8]| {
            decode(Version::V1_2, MemberByte(4096), &image[4096..8192], image.len() as u64)
                .is_ok_and(|found| found.is_some())
        };
        self.members.borrow_mut().retain(|member| has_superblock(&member.contents()));
        let members = self.members.borrow().clone();
        let array = match assemble(&members, world, false).await {
            Ok(array) => array,
            Err(refusal) => {
                let is_expected = refusal.reason.contains("dirty and degraded");
                assert!(is_expected && self.shape.level.has_parity(), "{}: {refusal}", self.context);
                return false;
            }
        };
        array.resync(&|_, _| {}).await.expect("nothing fails");
        array.recover(&|_, _| {}).await.expect("nothing fails");
        let found = read_all(&array, &self.context).await;
        self.truth.borrow_mut().pin(&found, &self.context);
        // A round of superblocks may have been cut short. A write brings all members to the same events.
        self.truth.borrow_mut().begin(0, &found[..SECTOR]);
        array.write(0, array.pool().copy_of(&found[..SECTOR]), Durability::Stable).await.expect("nothing fails");
        self.truth.borrow_mut().flushed();
        self.scrub(&array).await;
        array.stop().await.unwrap_or_else(|error| panic!("{}: {error}", self.context));
        true
    }
}

/// Plays a history; whether power went, and whether what it left could be assembled.
fn play(seed: u64) -> (bool, bool) {
    let world = World::new(seed);
    let mut random = Random::new(seed);
    let shape = Shape::random(&mut random);
    let context = format!("seed {seed}, {shape:?}");
    let scene = world.run(Scene::new(shape, &world, &mut random, context), || false).expect("the power does not go");
    let cut = if random.once_in(4) { u64::MAX } else { scene.boundaries.get() + random.within(1..900) };
    let random = RefCell::new(random);
    if world.run(scene.live(&random, &world), || scene.boundaries.get() >= cut).is_some() {
        return (false, true);
    }
    world.forget_all();
    let mut random = random.into_inner();
    scene.members.borrow().iter().for_each(|member| member.lose_power(&mut random));
    let is_left = world.run(scene.recover_from_cut(&world), || false).expect("the power does not go");
    world.forget_all();
    if is_left {
        world.run(scene.check_stopped(&world), || false).expect("the power does not go");
    }
    (true, is_left)
}

#[test]
fn what_was_written_survives_losses_and_power_cuts_without_an_initial_sync() {
    let histories: u64 = std::env::var("MDSPACE_LOCKLESS_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let (mut cut, mut left) = (0, 0);
    for seed in 0..histories {
        let (is_cut, is_left) = play(seed);
        cut += u64::from(is_cut);
        left += u64::from(is_cut && is_left);
    }
    assert!(cut > histories / 4 && left > histories / 8, "each situation was met: {cut} and {left} of {histories}");
}
