//! An array with a log that is written to until power goes, and what it may hold afterwards. [`super::parity_log`],
//! [`super::stripe_log`], [`super::write_journal`] and [`super::policies`] play it.
//!
//! Power is cut at any write or flush of the members. Then members are lost as well, as many as the level bears. What no
//! write touched is right, and what one touched is old or new. Only what a lost member held of a write under way may be
//! anything, and not even that with a write journal. Power may go again while the log is replayed, or soon after.

use super::policy_records::{ByPolicy, key};
use engine::create::{Contents, Newcomer, Newcomers, Recipe, create_announced};
use engine::{Array, AssembleOptions, Candidate, Clock, ConsistencyPolicy, Durability, Pool, Refusal};
use format::geometry::{Geometry, Level, default_layout};
use format::placement::BitmapChoice;
use format::superblock::{Resync, Superblock, Version, decode};
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

pub(super) type Simulated = Array<SimMember, VirtualClock>;

const COMPONENT: u64 = 64 << 10;
const WRITERS: usize = 4;

#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) policy: ConsistencyPolicy,
    pub(super) level: Level,
    pub(super) slots: u16,
    pub(super) layout: u32,
    pub(super) chunk: u64,
    pub(super) version: Version,
    /// Bytes before the data, which bound the log.
    pub(super) data_at: u64,
    pub(super) block_bytes: u32,
    pub(super) has_bitmap: bool,
    pub(super) has_checksums: bool,
    /// Lost before anything is written.
    pub(super) missing: BTreeSet<u16>,
    /// Failed by command amid the writes.
    pub(super) fails: Option<u16>,
    /// A spare is there, which takes the failed member's slot.
    pub(super) has_spare: bool,
}

impl Shape {
    /// A small array of level 5 with that policy.
    pub(super) fn small(policy: ConsistencyPolicy) -> Self {
        Self {
            policy,
            level: Level::Raid5,
            slots: 3,
            layout: default_layout(Level::Raid5),
            chunk: 4096,
            version: Version::V1_2,
            data_at: 256 << 10,
            block_bytes: 512,
            has_bitmap: false,
            has_checksums: false,
            missing: BTreeSet::new(),
            fails: None,
            has_spare: false,
        }
    }

    fn is_at_end(&self) -> bool {
        self.version == Version::V1_0
    }

    pub(super) fn parities(&self) -> usize {
        if self.level == Level::Raid6 { 2 } else { 1 }
    }

    /// Members that do not take part at the end.
    fn gone(&self) -> usize {
        self.missing.len() + usize::from(self.fails.is_some())
    }

    fn has_journal(&self) -> bool {
        self.policy == ConsistencyPolicy::Journal
    }

    /// Bytes of the journal's ring, if there is one: it goes round often.
    fn ring_bytes(&self) -> u64 {
        4096 * (4 * u64::from(self.slots + 1) + 2) * (self.chunk / 4096)
    }

    /// What members write at least: checksums are of whole blocks.
    fn least_write_bytes(&self) -> usize {
        if self.has_checksums { 4096 } else { self.block_bytes as usize }
    }
}

/// A life of an array, and what it may hold.
pub(super) struct Scene {
    pub(super) shape: Shape,
    /// By slot, then the journal if there is one.
    pub(super) members: Vec<SimMember>,
    spare: Option<SimMember>,
    pub(super) boundaries: Rc<Cell<u64>>,
    pub(super) truth: Rc<RefCell<Truth>>,
    /// Writes that have begun, and whether they are of zeros.
    under_way: RefCell<Vec<(Range<u64>, bool)>>,
    /// Slots whose members could not be read amid a replay.
    unread: RefCell<BTreeSet<u16>>,
    pub(super) rows: Vec<Row>,
}

pub(super) fn superblock_of(image: &[u8], version: Version) -> Superblock {
    find_superblock(image, version).expect("there")
}

pub(super) fn find_superblock(image: &[u8], version: Version) -> Option<Superblock> {
    let at = version.place(image.len() as u64).expect("long enough");
    let place = &image[at.0 as usize..][..4096];
    decode(version, MemberByte(at.0), place, image.len() as u64).expect("right")
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
            let data = if index == shape.slots { shape.ring_bytes() } else { COMPONENT + (64 << 10) };
            let bytes = (before + data) as usize;
            SimMember::new(format!("m{index}"), world, vec![0; bytes], boundaries.clone())
                .with_blocks(shape.block_bytes)
        };
        let members: Vec<_> = (0..shape.slots + u16::from(shape.has_journal())).map(member).collect();
        let recipe = Recipe {
            version: shape.version,
            layout: shape.layout,
            chunk_bytes: shape.chunk,
            name: "sim:log".to_owned(),
            data_offset_bytes: (!shape.is_at_end()).then_some(shape.data_at),
            component_bytes: Some(COMPONENT),
            contents: Contents::Zeros,
            parity_log: shape.policy == ConsistencyPolicy::PartialParity,
            stripe_log: shape.policy == ConsistencyPolicy::StripeLog,
            bitmap: if shape.has_bitmap { BitmapChoice::Chunk(4096) } else { BitmapChoice::None },
            integrity: shape.has_checksums,
            ..Recipe::new(shape.level, [7; 16])
        };
        let newcomer = |(index, member): (usize, &SimMember)| {
            let candidate = Candidate { name: member.name(), member: member.clone() };
            Some(Newcomer { candidate, device_uuid: [index as u8; 16] })
        };
        let mut slots: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        let journal = slots.split_off(shape.slots.into()).pop().flatten();
        let newcomers = Newcomers { slots: &slots, spares: &[], journal: journal.as_ref() };
        let created =
            create_announced(&recipe, newcomers, &Pool::new(1 << 20), &world.clock(), &|_, _| {}, &|| {}).await;
        created.expect("created");
        let superblock = superblock_of(&members[0].contents(), shape.version);
        assert_eq!(superblock.ppl.is_some(), recipe.parity_log, "a log was made");
        let geometry = Geometry::new(&superblock.shape(&[])).expect("a shape");
        let truth = Rc::new(RefCell::new(Truth::new(geometry.array_bytes())));
        // What the failed member held of a write under way may be anything, also on the spare.
        let given_by_parity = shape.fails.filter(|_| shape.has_spare);
        let (under_way, unread) = (RefCell::default(), RefCell::new(given_by_parity.into_iter().collect()));
        let spare = shape.has_spare.then(|| {
            SimMember::new("spare".to_owned(), world, vec![0; members[0].contents().len()], boundaries.clone())
                .with_blocks(shape.block_bytes)
        });
        Self { shape, members, spare, boundaries, truth, under_way, unread, rows: rows(&geometry) }
    }

    /// The members, without those that are missing.
    pub(super) fn here(&self) -> Vec<SimMember> {
        let here = self.members.iter().zip(0_u16..).filter(|(_, slot)| !self.shape.missing.contains(slot));
        here.map(|(member, _)| member.clone()).collect()
    }

    /// Several requests at a time, for as long as power lasts.
    pub(super) async fn live(&self, random: &RefCell<Random>, world: &World) {
        let array = assemble(&self.here(), AssembleOptions::default(), world).await.expect("it has enough members");
        let policy = match array.status().consistency_policy {
            "journal" => Some(ConsistencyPolicy::Journal),
            name => ConsistencyPolicy::from_name(name),
        };
        assert_eq!(policy, Some(self.shape.policy));
        if let Some(spare) = &self.spare {
            let candidate = Candidate { name: spare.name(), member: spare.clone() };
            array.add(candidate, [9; 16], false).await.expect("it fits");
            let keeper = array.clone();
            world.spawn(async move { keeper.keep_whole().await });
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

    pub(super) async fn request(&self, array: &Simulated, random: &RefCell<Random>) {
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

    /// A few small writes, which may fail.
    async fn write_a_few(&self, array: &Simulated, random: &mut Random) {
        for _ in 0..2 * self.shape.slots {
            let mut data = vec![0; 512];
            random.fill(&mut data);
            let at = random.within(0..array.bytes() / 512) * 512;
            let id = self.truth.borrow_mut().begin(at as usize, data.clone());
            if array.write(at, array.pool().copy_of(&data), Durability::Ordinary).await.is_ok() {
                self.truth.borrow_mut().answered(id, false);
            }
        }
    }

    /// Power goes: what was not on stable storage may be lost.
    pub(super) fn lose_power(&self, random: &mut Random) {
        self.members.iter().chain(&self.spare).for_each(|member| member.lose_power(random));
    }

    /// Copies of the members as they are, without some.
    pub(super) fn without(&self, lost: &BTreeSet<u16>, world: &World) -> Vec<SimMember> {
        let left = self.members.iter().zip(0_u16..);
        let left = left.filter(|(_, slot)| !lost.contains(slot) && !self.shape.missing.contains(slot));
        let is_added = |spare: &&SimMember| find_superblock(&spare.contents(), self.shape.version).is_some();
        let spare = self.spare.iter().filter(is_added);
        left.map(|(member, _)| member)
            .chain(spare)
            .map(|member| {
                SimMember::new(member.name(), world, member.contents(), self.boundaries.clone())
                    .with_blocks(self.shape.block_bytes)
            })
            .collect()
    }

    /// Whether an array without some members is refused unless it is taken by force.
    fn is_refused(&self, lost: &BTreeSet<u16>, seed: u64) -> bool {
        let world = World::new(seed);
        let members = self.without(lost, &world);
        let started = async { assemble(&members, AssembleOptions::default(), &world).await.is_ok() };
        !world.run(started, || false).expect("the power does not go")
    }

    /// Reads everything.
    pub(super) async fn check(&self, array: &Simulated, truth: &Truth) -> Found {
        let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
        let mut given_by_parity = self.unread.borrow().clone();
        given_by_parity.extend(array.status().missing);
        let mut found = Found::default();
        for datum in self.rows.iter().flat_map(|row| &row.data) {
            if !self.shape.has_journal()
                && given_by_parity.contains(&datum.copies[0].0.0)
                && !truth.is_block_certain(datum.sector, self.shape.least_write_bytes())
            {
                found.unknown += 1;
                continue;
            }
            let place = datum.sector * SECTOR_BYTES..(datum.sector + 1) * SECTOR_BYTES;
            let wrong = match &read {
                Ok(bytes) if truth.allows(datum.sector, &bytes[place.clone()], Look::Members) => continue,
                Ok(bytes) => truth.describe(datum.sector, place.clone(), &bytes[place], Look::Members),
                Err(error) => error.to_string(),
            };
            found.wrong += 1;
            found.first_wrong.get_or_insert(wrong);
        }
        found
    }

    /// Parity agrees with the data in each row. A stripe log leaves out rows of which no sector was left as it was.
    pub(super) fn check_parity(&self, members: &[SimMember], context: &str) {
        let images: Vec<_> = members.iter().map(SimMember::contents).collect();
        let data_at = superblock_of(&images[0], self.shape.version).data_at().0;
        let truth = self.truth.borrow();
        for row in &self.rows {
            let mut sectors = row.data.iter().map(|datum| datum.sector);
            let is_partly_certain =
                sectors.any(|sector| truth.is_block_certain(sector, self.shape.least_write_bytes()));
            if !is_partly_certain && self.shape.policy == ConsistencyPolicy::StripeLog {
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
                    assert_eq!(found, expected, "{context}: byte {} of {slot}", at + byte);
                }
            }
        }
    }
}

/// What is read of an array after a loss of power.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Sectors that may be anything: a lost member held them, and they were being written.
    unknown: usize,
    /// Sectors that read wrong, or not at all.
    wrong: usize,
    pub(super) first_wrong: Option<String>,
}

/// What happened in all histories.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) histories: ByPolicy,
    pub(super) dirty: usize,
    pub(super) unknown: usize,
    pub(super) twice: usize,
    pub(super) wrong: Vec<String>,
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

/// Plays a history. An array without a log that is dirty and degraded is taken by force. `look` sees the members when power
/// has gone.
pub(super) fn play(seed: u64, shape: Shape, random: Random, seen: &mut Seen, look: impl FnOnce(&Scene)) {
    let world = World::new(seed);
    let mut random = random;
    let force = matches!(shape.policy, ConsistencyPolicy::Resync | ConsistencyPolicy::Bitmap);
    let scene = world.run(Scene::new(shape.clone(), &world), || false).expect("the power does not go");
    let cut = scene.boundaries.get() + random.within(1..1200);
    let random = RefCell::new(random);
    let ended = world.run(scene.live(&random, &world), || scene.boundaries.get() >= cut);
    seen.dirty += usize::from(ended.is_none());
    world.forget_all();
    let mut random = random.into_inner();
    scene.lose_power(&mut random);
    scene.truth.borrow_mut().interrupted();
    look(&scene);
    let histories = seen.histories.entry(key(shape.policy, shape.level)).or_default();
    histories.all += 1;
    for lost in losses(&shape) {
        let is_refused = force && scene.is_refused(&lost, seed);
        let members = scene.without(&lost, &world);
        if random.once_in(2) {
            // Power goes again while the log is replayed, or soon after.
            let cut = scene.boundaries.get() + random.within(1..60);
            let begin = async {
                let options = AssembleOptions { force, ..AssembleOptions::default() };
                let array = assemble(&members, options, &world).await.expect("it has enough members");
                let block = array.read(0, array.pool().take(512)).await.expect("it can be read");
                array.write(0, block.freeze(), Durability::Ordinary).await.expect("nothing fails");
            };
            seen.twice += usize::from(world.run(begin, || scene.boundaries.get() >= cut).is_none());
            world.forget_all();
            members.iter().for_each(|member| member.lose_power(&mut random));
        }
        let superblocks = members.iter().map(|member| superblock_of(&member.contents(), shape.version));
        let freshest = superblocks.max_by_key(|superblock| superblock.events).expect("members");
        let is_dirty = freshest.resync != Resync::Clean;
        let has_replayed = Cell::new(false); // a journal, although the array is called clean
        let read_only = random.once_in(2);
        let options = AssembleOptions { read_only, replay: read_only, force, ..AssembleOptions::default() };
        let context = format!("seed {seed}, {shape:?} without {lost:?}");
        let truth = scene.truth.borrow().clone();
        let checking = async {
            let array = assemble(&members, options, &world).await.unwrap_or_else(|why| panic!("{context}: {why}"));
            let is_told = |warning: &String| warning.contains("the write journal was replayed");
            has_replayed.set(array.status().warnings.iter().any(is_told));
            scene.check(&array, &truth).await
        };
        let found = world.run(checking, || false).expect("the power does not go");
        let is_whole = lost.is_empty() && shape.gone() == 0;
        let starts = if is_whole { &mut histories.whole } else { &mut histories.lacking };
        starts.all += 1;
        starts.refused += usize::from(is_refused);
        starts.lossy += usize::from(found.wrong > 0);
        starts.sectors += found.wrong;
        seen.unknown += found.unknown;
        seen.wrong.extend(found.first_wrong.map(|wrong| format!("{context}: {wrong}")));
        world.forget_all();
        if !force && !read_only && is_whole {
            scene.check_parity(&members, &context);
        }
        let is_told = (is_dirty || has_replayed.get()) && !shape.has_spare;
        if !force && !read_only && is_told && !lost.is_empty() {
            let returned = lost.iter().map(|slot| scene.members[usize::from(*slot)].clone());
            let all: Vec<_> = members.iter().cloned().chain(returned).collect();
            let options = AssembleOptions { read_only: true, replay: true, ..AssembleOptions::default() };
            let array = world.run(assemble(&all, options, &world), || false).expect("the power does not go");
            let missing = array.unwrap_or_else(|why| panic!("{context}, returned: {why}")).status().missing;
            assert!(lost.is_subset(&missing.into_iter().collect()), "{context}: it lacks the replay, and is current");
            world.forget_all();
        }
    }
}

/// What happened in the histories of [`play_unread`].
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Arrays that a replay has left as they are to be, although a member could not be read.
    pub(super) settled: usize,
    /// Whole arrays that go on, and are resynced.
    pub(super) resynced: usize,
    /// Arrays that lack a member and are refused.
    pub(super) refused: usize,
    /// Arrays that lack a member afterwards, and are read.
    pub(super) read_lacking: usize,
    pub(super) wrong: Vec<String>,
}

/// Plays a history in which some places of a member cannot be read while the log is replayed, and can again afterwards.
/// Then parity has to agree with what the member holds: any further member may be lost.
pub(super) fn play_unread(seed: u64, shape: Shape, mut random: Random, seen: &mut Unread) {
    let world = World::new(seed);
    let scene = world.run(Scene::new(shape.clone(), &world), || false).expect("the power does not go");
    let cut = scene.boundaries.get() + random.within(1..1200);
    let shared = RefCell::new(random);
    if world.run(scene.live(&shared, &world), || scene.boundaries.get() >= cut).is_some() {
        return; // the power did not go
    }
    world.forget_all();
    let mut random = shared.into_inner();
    scene.members.iter().for_each(|member| member.lose_power(&mut random));
    scene.truth.borrow_mut().interrupted();
    let lost = random.pick(&losses(&shape)).clone();
    let members = scene.without(&lost, &world);
    let slots: Vec<u16> =
        (0..shape.slots).filter(|slot| !lost.contains(slot) && !shape.missing.contains(slot)).collect();
    let data_at = superblock_of(&members[0].contents(), shape.version).data_at().0;
    // Mostly where a write was under way.
    let doubtful: Vec<_> = {
        let truth = scene.truth.borrow();
        let data = scene.rows.iter().flat_map(|row| &row.data).filter(|datum| !truth.is_certain(datum.sector));
        let places = data.map(|datum| datum.copies[0]);
        places.filter_map(|(slot, at)| Some((slots.iter().position(|own| *own == slot.0)?, at.0))).collect()
    };
    for _ in 0..random.within(1..4) {
        let block = u64::from(shape.block_bytes);
        let (index, at) = match doubtful.is_empty() || random.once_in(4) {
            true => (random.within(0..members.len() as u64) as usize, random.within(0..COMPONENT)),
            false => *random.pick(&doubtful),
        };
        let (start, faults) = (data_at + at / block * block, members[index].faults());
        let range = start..start + block * random.within(1..16);
        // Most places can be read once they are rewritten.
        if random.once_in(3) {
            faults.bad_reads.borrow_mut().push(range.clone());
            if random.once_in(2) {
                faults.bad_writes.borrow_mut().push(range);
            }
        } else {
            faults.latent.borrow_mut().push(range);
        }
        scene.unread.borrow_mut().insert(slots[index]);
    }
    let context = format!("seed {seed}, {shape:?} without {lost:?}");
    let is_whole = lost.is_empty() && shape.gone() == 0;
    let begun = world.run(assemble(&members, AssembleOptions::default(), &world), || false).expect("no power cut");
    let is_resynced = match begun {
        Ok(array) => {
            members.iter().for_each(|member| drop(member.faults().bad_writes.take()));
            // Other entries take the place of those that were replayed.
            world.run(scene.write_a_few(&array, &mut random), || false).expect("no power cut");
            array.status().warnings.iter().any(|warning| warning.contains("cannot be used"))
        }
        Err(refusal) => {
            let is_of_the_faults =
                ["cannot be read", "simulated fault"].iter().any(|word| refusal.reason.contains(word));
            assert!(!is_whole && is_of_the_faults, "{context}: {refusal}");
            seen.refused += 1;
            return;
        }
    };
    seen.resynced += usize::from(is_resynced);
    seen.settled += usize::from(!is_resynced);
    world.forget_all();
    scene.truth.borrow_mut().interrupted();
    members.iter().for_each(|member| {
        member.end_of_process();
        member.faults().heal();
    });
    if is_whole && !is_resynced {
        scene.check_parity(&members, &context);
    }
    for out in losses(&shape).into_iter().filter(|out| lost.is_subset(out)) {
        let left = members.iter().zip(&slots).filter(|(_, slot)| !out.contains(slot));
        let copy = |member: &SimMember| {
            SimMember::new(member.name(), &world, member.contents(), scene.boundaries.clone())
                .with_blocks(shape.block_bytes)
        };
        let left: Vec<_> = left.map(|(member, _)| copy(member)).collect();
        let begun = world.run(assemble(&left, AssembleOptions::default(), &world), || false).expect("no power cut");
        let array = match begun {
            Ok(array) => array,
            Err(refusal) => {
                assert!(is_resynced && refusal.reason.contains("dirty and degraded"), "{context}, {out:?}: {refusal}");
                continue;
            }
        };
        seen.read_lacking += usize::from(!array.status().missing.is_empty());
        let truth = scene.truth.borrow().clone();
        let found = world.run(scene.check(&array, &truth), || false).expect("no power cut");
        seen.wrong.extend(found.first_wrong.map(|wrong| format!("{context}, then {out:?}: {wrong}")));
        drop(array);
        world.forget_all();
    }
}

/// The seeds of a run of the tests.
pub(super) fn histories() -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let first = number("MDSPACE_LOG_FROM").unwrap_or(0);
    first..first + number("MDSPACE_LOG_HISTORIES").unwrap_or(400)
}
