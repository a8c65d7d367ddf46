//! Write journals are replayed before an array is read. The journals are made here by the format's rules, over three states
//! of one array: before the writes, after the first of them, and after all. Each row of a stripe has its own story, and one
//! member is missing afterwards. What is read is the last state, to the byte; also when power goes while the journal is
//! replayed on the members, and another member is lost then.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Pool, Refusal};
use format::geometry::{Geometry, Level, Parity, Role};
use format::journal::{BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload, checksum};
use format::superblock::{DeviceRole, Superblock, Version, decode};
use format::units::{ArrayByte, DeviceNumber, MemberByte, Sectors, Slot};
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::Cell;
use std::rc::Rc;

const COMPONENT: u64 = 64 << 10;
const CHUNK: u64 = 8192;
const DATA_AT: u64 = 64 << 10;
const MEMBER_BYTES: usize = 160 << 10;
const SUPER_AT: usize = 4096;
const RING_BLOCKS: u64 = 300;
const UUID: [u8; 16] = [7; 16];
const ROW: usize = BLOCK_BYTES;

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    Untouched,
    /// Data and parity are in the journal, and on the members in part.
    Logged,
    /// Data is in the journal alone.
    Cached,
    /// Logged, then flushed, then written again past the journal.
    Flushed,
    /// Logged, then cached again.
    Again,
}

const STORIES: [Story; 5] = [Story::Untouched, Story::Logged, Story::Cached, Story::Flushed, Story::Again];

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

fn superblock_of(image: &[u8]) -> Superblock {
    let place = &image[SUPER_AT..][..4096];
    decode(Version::V1_2, MemberByte(SUPER_AT as u64), place, image.len() as u64).expect("right").expect("there")
}

/// The members' images of an array with these bytes, or with random ones.
async fn images(
    level: Level,
    slots: u16,
    bytes: Option<&[u8]>,
    random: &mut Random,
    world: &World,
) -> (Vec<Vec<u8>>, Vec<u8>) {
    let member = |index| SimMember::new(format!("m{index}"), world, vec![0; MEMBER_BYTES], Rc::default());
    let members: Vec<_> = (0..slots).map(member).collect();
    let recipe = Recipe {
        layout: 2,
        chunk_bytes: CHUNK,
        name: "sim:journal".to_owned(),
        data_offset_bytes: Some(DATA_AT),
        component_bytes: Some(COMPONENT),
        contents: Contents::Zeros,
        ..Recipe::new(level, UUID)
    };
    let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
    let newcomers: Vec<_> = candidates(&members).into_iter().enumerate().map(newcomer).collect();
    create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &world.clock(), &|_, _| {}).await.expect("created");
    let options = AssembleOptions::default();
    let array = Array::assemble(candidates(&members), options, Pool::new(1 << 20), world.clock()).await.expect("whole");
    let mut content = vec![0; array.bytes() as usize];
    random.fill(&mut content);
    let content = bytes.map_or(content, <[u8]>::to_vec);
    array.write(0, array.pool().copy_of(&content), Durability::Stable).await.expect("written");
    array.stop().await.expect("clean");
    (members.iter().map(SimMember::contents).collect(), content)
}

/// A journal in the making.
struct Log {
    image: Vec<u8>,
    at: u64,
    sequence: u64,
}

impl Log {
    fn put(&mut self, block: &[u8]) {
        let at = DATA_AT as usize + self.at as usize * BLOCK_BYTES;
        self.image[at..at + BLOCK_BYTES].copy_from_slice(block);
        self.at = (self.at + 1) % RING_BLOCKS;
    }

    /// Appends a meta block, and the blocks of its payloads.
    fn append(&mut self, payloads: Vec<Payload>, blocks: &[&[u8]]) {
        let block = MetaBlock { sequence: self.sequence, position: Sectors(self.at * BLOCK_SECTORS), payloads };
        self.put(&block.encode(&UUID));
        blocks.iter().for_each(|block| self.put(block));
        self.sequence += 1;
    }
}

/// An array's bytes and its members' images.
type State = (Vec<Vec<u8>>, Vec<u8>);

/// The blocks of a row's data chunks, as array bytes.
fn blocks_of(parity: &Parity, row: u64) -> Vec<usize> {
    let stripe = row / CHUNK;
    let at = |index: u64| (stripe * parity.stripe_bytes() + index * CHUNK + row % CHUNK) as usize;
    (0..parity.data_chunks().into()).map(at).collect()
}

fn on_member(row: u64) -> std::ops::Range<usize> {
    let start = (DATA_AT + row) as usize;
    start..start + ROW
}

/// Appends what a row's data has in `new` and not in `old`; with its parities, if asked.
fn log_row(log: &mut Log, parity: &Parity, row: u64, old: &State, new: &State, with_parity: bool) {
    let (mut payloads, mut blocks) = (Vec::new(), Vec::new());
    for at in blocks_of(parity, row).into_iter().filter(|&at| old.1[at..at + ROW] != new.1[at..at + ROW]) {
        let block = &new.1[at..at + ROW];
        payloads.push(Payload::Data { at: Sectors(at as u64 / 512), checksum: checksum(&UUID, block) });
        blocks.push(block);
    }
    if with_parity {
        let slots =
            Role::parities(parity.parities()).map(|role| parity.stripe(row / CHUNK).slot_of(role).expect("one"));
        let parities: Vec<&[u8]> = slots.map(|slot: Slot| &new.0[slot.index()][on_member(row)]).collect();
        let checksums = parities.iter().map(|block| checksum(&UUID, block)).collect();
        payloads.push(Payload::Parity { at: Sectors(row / 512), checksums });
        blocks.extend(parities);
    }
    log.append(payloads, &blocks);
}

/// An array that a loss of power has left with a journal.
struct Scene {
    /// In the order of their slots, then the journal.
    members: Vec<SimMember>,
    parity: Parity,
    rows: Vec<(u64, Story)>,
    last: State,
}

async fn scene(level: Level, slots: u16, random: &mut Random, world: &World) -> Scene {
    let old = images(level, slots, None, random, world).await;
    let geometry = Geometry::new(&superblock_of(&old.0[0]).shape(&[])).expect("a shape");
    let Geometry::Parity(parity) = geometry else { unreachable!("a level with parity") };
    let rows: Vec<(u64, Story)> = (0..COMPONENT).step_by(ROW).map(|row| (row, *random.pick(&STORIES))).collect();
    let mut change = |bytes: &[u8], which: &[Story]| {
        let mut bytes = bytes.to_vec();
        for (row, _) in rows.iter().filter(|(_, story)| which.contains(story)) {
            let blocks = blocks_of(&parity, *row);
            let one = *random.pick(&blocks);
            for at in blocks {
                if at == one || random.once_in(2) {
                    random.fill(&mut bytes[at..at + ROW]);
                }
            }
        }
        bytes
    };
    let middle_bytes = change(&old.1, &[Story::Logged, Story::Flushed, Story::Again]);
    let last_bytes = change(&middle_bytes, &[Story::Cached, Story::Flushed, Story::Again]);
    let middle = images(level, slots, Some(&middle_bytes), random, world).await;
    let last = images(level, slots, Some(&last_bytes), random, world).await;

    let tail = random.within(0..RING_BLOCKS);
    let image = vec![0; DATA_AT as usize + RING_BLOCKS as usize * BLOCK_BYTES];
    let mut log = Log { image, at: tail, sequence: random.within(0..1000) };
    log.append(Vec::new(), &[]);
    let told =
        |which: &'static [Story]| rows.iter().filter(move |(_, story)| which.contains(story)).map(|(row, _)| *row);
    for row in told(&[Story::Logged, Story::Flushed, Story::Again]) {
        log_row(&mut log, &parity, row, &old, &middle, true);
    }
    log.append(vec![Payload::Flush { rows: told(&[Story::Flushed]).map(|row| Sectors(row / 512)).collect() }], &[]);
    for row in told(&[Story::Cached, Story::Again]) {
        log_row(&mut log, &parity, row, &middle, &last, false);
    }
    // The journal ends with a block that must not count: torn, or left from the last time round.
    let noise = vec![0xa5; ROW];
    let (is_torn, next) = (random.once_in(2), log.sequence);
    log.sequence = if is_torn { next } else { next + 7 };
    let sum = checksum(&UUID, &noise) ^ u32::from(is_torn);
    log.append(vec![Payload::Data { at: Sectors(0), checksum: sum }], &[&noise]);

    let mut members: Vec<SimMember> = Vec::new();
    for slot in 0..usize::from(slots) {
        let mut image = old.0[slot].clone();
        for (row, story) in &rows {
            let from = match story {
                Story::Logged | Story::Again if random.once_in(2) => &middle,
                Story::Flushed => &last,
                _ => continue,
            };
            image[on_member(*row)].copy_from_slice(&from.0[slot][on_member(*row)]);
        }
        members.push(member(&image, slot, slots, tail, world));
    }
    log.image[..DATA_AT as usize].copy_from_slice(&old.0[0][..DATA_AT as usize]);
    members.push(member(&log.image, slots.into(), slots, tail, world));
    Scene { members, parity, rows, last }
}

async fn assemble(members: &[SimMember], world: &World) -> Result<Array<SimMember, VirtualClock>, Refusal> {
    let options = AssembleOptions { read_only: true, replay: true, ..AssembleOptions::default() };
    Array::assemble(candidates(members), options, Pool::new(1 << 20), world.clock()).await
}

/// Reads all without the member that the seed chooses, or none. What cannot be read is in a row of `bad`: how many blocks.
async fn look(scene: &Scene, bad: &[u64], seed: u64, world: &World) -> usize {
    let Scene { members, parity, rows, last } = scene;
    let missing = (seed as usize % members.len()).checked_sub(1);
    let here: Vec<_> =
        members.iter().enumerate().filter(|(index, _)| Some(*index) != missing).map(|(_, one)| one.clone()).collect();
    let context = format!("seed {seed} without {missing:?}");
    let array = assemble(&here, world).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
    let mut lost = 0;
    for at in (0..array.bytes()).step_by(ROW) {
        let (_, component, _) = parity.locate(ArrayByte(at));
        let story = rows.iter().find(|(row, _)| *row == component.0).expect("each row has one").1;
        match array.read(at, array.pool().take(ROW)).await {
            Ok(block) => assert!(*block == last.1[at as usize..][..ROW], "{context}: byte {at}, {story:?}"),
            Err(error) => {
                assert!(bad.contains(&component.0) && missing.is_some(), "{context}: byte {at}, {story:?}: {error}");
                lost += 1;
            }
        }
    }
    lost
}

/// A member with a superblock that knows of the journal.
fn member(image: &[u8], index: usize, slots: u16, tail: u64, world: &World) -> SimMember {
    let is_journal = index == usize::from(slots);
    let mut image = image.to_vec();
    let mut superblock = superblock_of(&image[..MEMBER_BYTES.min(image.len())]);
    superblock.device_number = DeviceNumber(index as u16);
    superblock.device_uuid = Some([index as u8; 16]);
    superblock.roles = (0..slots).map(|slot| DeviceRole::Active(Slot(slot))).chain([DeviceRole::Journal]).collect();
    superblock.journal = true;
    (superblock.bitmap, superblock.bad_blocks) = (None, None);
    if is_journal {
        superblock.journal_tail = Some(Sectors(tail * BLOCK_SECTORS));
        superblock.data_size = Sectors(RING_BLOCKS * BLOCK_SECTORS);
    }
    let encoded = superblock.encode();
    image[SUPER_AT..SUPER_AT + encoded.len()].copy_from_slice(&encoded);
    SimMember::new(format!("m{index}"), world, image, Rc::default())
}

const SHAPES: [(Level, u16); 4] = [(Level::Raid5, 3), (Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid6, 5)];

#[test]
fn a_replayed_journal_gives_the_last_state_of_each_row() {
    for seed in 0..40 {
        let (level, slots) = SHAPES[seed as usize % 4];
        let world = World::new(seed);
        let course = async {
            let scene = scene(level, slots, &mut Random::new(seed), &world).await;
            look(&scene, &[], seed, &world).await;
        };
        world.run(course, || false).expect("the power does not go");
    }
}

/// Copies of the members, which count their boundaries.
fn copies(members: &[SimMember], lost: Option<usize>, world: &World, boundaries: &Rc<Cell<u64>>) -> Vec<SimMember> {
    let left = members.iter().enumerate().filter(|(index, _)| Some(*index) != lost);
    left.map(|(_, member)| SimMember::new(member.name(), world, member.contents(), boundaries.clone())).collect()
}

/// Assembles for writing, power goes at a boundary, and another member is lost. Returns whether power went amid the
/// replay.
fn cut_short(scene: &Scene, world: &World, cut: u64, random: &mut Random) -> bool {
    let (slots, boundaries) = (scene.members.len() - 1, Rc::new(Cell::new(0)));
    let any = |random: &mut Random| random.within(0..slots as u64) as usize;
    let bears = usize::from(scene.parity.parities());
    let first = random.once_in(2).then(|| any(random));
    let members = copies(&scene.members, first, world, &boundaries);
    let replay = async {
        let options = AssembleOptions::default();
        Array::assemble(candidates(&members), options, Pool::new(1 << 20), world.clock()).await.map(drop)
    };
    let ended = world.run(replay, || boundaries.get() >= cut);
    assert!(ended.as_ref().is_none_or(Result::is_ok), "cut at {cut}: {ended:?}");
    world.forget_all();
    members.iter().for_each(|member| member.lose_power(random));
    let second = (bears > usize::from(first.is_some())).then(|| random.within(0..members.len() as u64 - 1) as usize);
    let left = copies(&members, second, world, &boundaries);
    let look = async {
        let array = assemble(&left, world).await.unwrap_or_else(|refusal| panic!("cut at {cut}: {refusal}"));
        array.read(0, array.pool().take(scene.last.1.len())).await.expect("it can be read").to_vec()
    };
    let read = world.run(look, || false).expect("the power does not go");
    world.forget_all();
    for at in (0..read.len()).step_by(ROW) {
        let (_, component, _) = scene.parity.locate(ArrayByte(at as u64));
        let story = scene.rows.iter().find(|(row, _)| *row == component.0).expect("each row has one").1;
        let is_right = read[at..at + ROW] == scene.last.1[at..at + ROW];
        assert!(is_right, "cut at {cut} without {first:?} and {second:?}: byte {at}, {story:?}");
    }
    ended.is_none()
}

#[test]
fn a_replay_on_the_members_may_be_cut_short_anywhere() {
    let mut cuts = 0;
    for seed in 0..8 {
        let (level, slots) = SHAPES[seed as usize % 4];
        let world = World::new(seed);
        let mut random = Random::new(seed);
        let course = scene(level, slots, &mut random, &world);
        let scene = world.run(course, || false).expect("the power does not go");
        let mut cut = 1;
        while cut_short(&scene, &world, cut, &mut random) {
            cut += random.within(1..4);
            cuts += 1;
        }
    }
    assert!(cuts > 100, "only {cuts} cuts");
}

#[test]
fn bad_sectors_cost_blocks_of_their_rows_alone_when_a_journal_is_replayed() {
    let mut lost = 0;
    for seed in 0..40 {
        let (level, slots) = SHAPES[seed as usize % 4];
        let world = World::new(seed);
        let course = async {
            let mut random = Random::new(seed);
            let scene = scene(level, slots, &mut random, &world).await;
            let bad: Vec<u64> = scene.rows.iter().map(|(row, _)| *row).filter(|_| random.once_in(3)).collect();
            for row in &bad {
                let (member, bytes) = (random.within(0..slots.into()) as usize, on_member(*row));
                let faults = scene.members[member].faults();
                faults.latent.borrow_mut().push(bytes.start as u64..bytes.end as u64);
            }
            look(&scene, &bad, seed, &world).await
        };
        lost += world.run(course, || false).expect("the power does not go");
    }
    assert!(lost > 0, "some of the rows lack a member, too");
}

#[test]
fn a_journal_of_another_age_than_the_members_is_refused() {
    let world = World::new(3);
    let course = async {
        let scene = scene(Level::Raid5, 3, &mut Random::new(3), &world).await;
        let journal = scene.members.last().expect("the journal is the last");
        for member in &scene.members {
            set_events(member, 100);
        }
        for (events, stale) in [(98, Some("stale journal")), (99, None), (101, None), (102, Some("members are stale"))]
        {
            set_events(journal, events);
            let refusal = assemble(&scene.members, &world).await.err();
            let is_right = refusal
                .as_ref()
                .map(|refusal| (refusal.field.as_deref(), stale.is_some_and(|words| refusal.reason.contains(words))));
            assert_eq!(is_right, stale.map(|_| (Some("superblock.events"), true)), "{events}: {refusal:?}");
        }
    };
    world.run(course, || false).expect("the power does not go");
}

fn set_events(member: &SimMember, events: u64) {
    let mut superblock = superblock_of(&member.contents());
    superblock.events = events;
    member.plant(SUPER_AT as u64, &superblock.encode());
}
