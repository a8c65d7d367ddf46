//! Partial parity logs are replayed before parity is trusted. The logs are made here by the format's rules: for random
//! writes that a loss of power cut short at any sector, one member is missing afterwards. What no write touched is
//! right, what one touched is old or new, and what nothing can tell is an error.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Pool};
use format::bad_blocks::{BadRange, encode};
use format::geometry::{Geometry, Level, Parity, Role};
use format::partial_parity::{Entry, HEADER_BYTES, Header, checksum};
use format::superblock::{BadBlockPlace, PplPlace, Resync, Superblock, Version, decode};
use format::units::{MemberByte, Sectors, Slot};
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::rc::Rc;

const CHUNK: u64 = 4096;
const COMPONENT: u64 = 64 << 10;
const DATA_AT: u64 = 64 << 10;
const MEMBER_BYTES: usize = 160 << 10;
const SECTOR: u64 = 512;
const SUPER_AT: u64 = 4096;
const LOG_AT: u64 = 8192;
const LOG_SECTORS: u16 = 96;
const UUID: [u8; 16] = [7; 16];

/// A write that power cut short.
struct Write {
    stripe: u64,
    changed: std::ops::Range<u16>,
    rows: std::ops::Range<u64>,
    is_torn: bool,
}

struct Scene {
    members: Vec<SimMember>,
    parity: Parity,
    old: Vec<u8>,
    new: Vec<u8>,
    writes: Vec<Write>,
}

fn superblock_of(member: &SimMember) -> Superblock {
    let image = member.contents();
    let place = &image[SUPER_AT as usize..][..4096];
    decode(Version::V1_2, MemberByte(SUPER_AT), place, image.len() as u64).expect("right").expect("there")
}

/// Gives each member a log, in an array that is dirty or clean.
fn announce(members: &[SimMember], multiple: bool, resync: Resync) {
    for member in members {
        let place = PplPlace { sectors_from_superblock: 8, sectors: LOG_SECTORS, multiple };
        let mut superblock = superblock_of(member);
        (superblock.ppl, superblock.bitmap, superblock.bad_blocks) = (Some(place), None, None);
        superblock.resync = resync;
        member.plant(SUPER_AT, &superblock.encode());
    }
}

async fn assemble(members: &[SimMember], world: &World, force: bool) -> Array<SimMember, VirtualClock> {
    let candidates = members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect();
    let options = AssembleOptions { read_only: true, replay: true, force, ..AssembleOptions::default() };
    Array::assemble(candidates, options, Pool::new(1 << 20), world.clock()).await.unwrap_or_else(|why| panic!("{why}"))
}

fn random_bytes(random: &mut Random, count: u64) -> Vec<u8> {
    let mut bytes = vec![0; count as usize];
    random.fill(&mut bytes);
    bytes
}

impl Scene {
    /// An array of `slots` members, full and clean.
    async fn new(slots: u16, random: &mut Random, world: &World) -> Self {
        let member = |index| SimMember::new(format!("m{index}"), world, vec![0; MEMBER_BYTES], Rc::default());
        let members: Vec<_> = (0..slots).map(member).collect();
        let recipe = Recipe {
            layout: 2,
            chunk_bytes: CHUNK,
            name: "sim:log".to_owned(),
            data_offset_bytes: Some(DATA_AT),
            component_bytes: Some(COMPONENT),
            contents: Contents::Zeros,
            ..Recipe::new(Level::Raid5, UUID)
        };
        let newcomer = |(index, member): (usize, &SimMember)| {
            let candidate = Candidate { name: member.name(), member: member.clone() };
            Some(Newcomer { candidate, device_uuid: [index as u8; 16] })
        };
        let newcomers: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &world.clock(), &|_, _| {}).await.expect("created");
        let geometry = Geometry::new(&superblock_of(&members[0]).shape(&[])).expect("a shape");
        let Geometry::Parity(parity) = geometry else { unreachable!("level 5") };
        let old = random_bytes(random, parity.array_bytes());
        let scene = Self { members, parity, new: old.clone(), old, writes: Vec::new() };
        scene.fill_and_stop(world).await;
        scene
    }

    /// Writes all of `new`, and stops the array.
    async fn fill_and_stop(&self, world: &World) {
        let candidates = self.members.iter().map(|member| Candidate { name: member.name(), member: member.clone() });
        let options = AssembleOptions::default();
        let array = Array::assemble(candidates.collect(), options, Pool::new(1 << 20), world.clock()).await;
        let array = array.expect("whole");
        array.write(0, array.pool().copy_of(&self.new), Durability::Stable).await.expect("written");
        array.stop().await.expect("clean");
    }

    fn at(&self, write: &Write, index: u16) -> usize {
        (write.stripe * self.parity.stripe_bytes() + u64::from(index) * CHUNK + write.rows.start) as usize
    }

    fn plant(&self, slot: Slot, write: &Write, row: usize, bytes: &[u8]) {
        let at = DATA_AT + write.stripe * CHUNK + write.rows.start + row as u64;
        self.members[slot.index()].plant(at, bytes);
    }

    /// Adds random writes to some stripes. Each sector of theirs came through, or not.
    fn write(&mut self, random: &mut Random) {
        for stripe in 0..COMPONENT / CHUNK {
            if !random.once_in(3) {
                continue;
            }
            let data = self.parity.data_chunks();
            let first = random.within(0..data.into()) as u16;
            let changed = first..random.within(u64::from(first) + 1..u64::from(data) + 1) as u16;
            let start = random.within(0..CHUNK / SECTOR);
            let rows = start * SECTOR..random.within(start + 1..CHUNK / SECTOR + 1) * SECTOR;
            let is_torn = random.once_in(4);
            let write = Write { stripe, changed, rows, is_torn };
            if !is_torn {
                self.carry_out(&write, random);
            }
            self.writes.push(write);
        }
    }

    /// What comes through of one write: any of its sectors, also of parity.
    fn carry_out(&mut self, write: &Write, random: &mut Random) {
        let stripe = self.parity.stripe(write.stripe);
        let rows = (write.rows.end - write.rows.start) as usize;
        for index in write.changed.clone() {
            let (at, bytes) = (self.at(write, index), random_bytes(random, rows as u64));
            self.new[at..at + rows].copy_from_slice(&bytes);
        }
        let mut sum = vec![0; rows];
        for index in 0..self.parity.data_chunks() {
            let at = self.at(write, index);
            sum.iter_mut().zip(&self.new[at..at + rows]).for_each(|(sum, byte)| *sum ^= byte);
        }
        for row in (0..rows).step_by(SECTOR as usize) {
            for index in write.changed.clone() {
                if random.once_in(2) {
                    let at = self.at(write, index) + row;
                    let slot = stripe.slot_of(Role::Data(index)).expect("a slot");
                    self.plant(slot, write, row, &self.new[at..at + SECTOR as usize]);
                }
            }
            if random.once_in(2) {
                let slot = stripe.slot_of(Role::P).expect("a slot");
                self.plant(slot, write, row, &sum[row..row + SECTOR as usize]);
            }
        }
    }

    /// The entry of a write, with its partial parity.
    fn entry(&self, write: &Write) -> (Entry, Vec<u8>) {
        let rows = (write.rows.end - write.rows.start) as usize;
        let others = (0..self.parity.data_chunks()).filter(|index| !write.changed.contains(index));
        let mut partial = vec![0; if others.clone().count() == 0 { 0 } else { rows }];
        for index in others {
            let at = self.at(write, index);
            partial.iter_mut().zip(&self.old[at..at + rows]).for_each(|(sum, byte)| *sum ^= byte);
        }
        let slot = self.parity.stripe(write.stripe).slot_of(Role::P).expect("a slot");
        let entry = Entry {
            data_sector: self.at(write, write.changed.start) as u64 / SECTOR,
            partial_parity_bytes: partial.len() as u32,
            data_bytes: (rows * write.changed.len()) as u32,
            parity_slot: slot.0.into(),
            checksum: checksum(&partial),
        };
        (entry, partial)
    }

    /// Writes the logs. A torn entry's partial parity never came. With `multiple`, older logs of other bytes go first.
    fn log(&self, multiple: bool, random: &mut Random) {
        for (index, member) in self.members.iter().enumerate() {
            let own = self.writes.iter().map(|write| (write, self.entry(write)));
            let own: Vec<_> = own.filter(|(_, (entry, _))| entry.parity_slot as usize == index).collect();
            let mut at = LOG_AT;
            if multiple {
                let stale = own.iter().filter(|(_, (_, partial))| !partial.is_empty()).map(|(_, (entry, partial))| {
                    let partial = random_bytes(random, partial.len() as u64);
                    (Entry { checksum: checksum(&partial), ..*entry }, partial)
                });
                at = put(member, at, 1, stale.collect());
            }
            let entries = own.into_iter().map(|(write, (entry, partial))| match write.is_torn && !partial.is_empty() {
                true => (entry, random_bytes(random, partial.len() as u64)),
                false => (entry, partial),
            });
            put(member, at, 2, entries.collect());
        }
    }

    /// Reads each sector, without the member of slot `missing`.
    async fn look(&self, missing: Option<usize>, world: &World, context: &str) -> usize {
        let here = self.members.iter().enumerate().filter(|(index, _)| Some(*index) != missing);
        let here: Vec<_> = here.map(|(_, member)| member.clone()).collect();
        let array = assemble(&here, world, false).await;
        let mut lost = 0;
        for at in (0..array.bytes()).step_by(SECTOR as usize) {
            let (old, new) = (&self.old[at as usize..][..512], &self.new[at as usize..][..512]);
            let bytes = array.read(at, array.pool().take(512)).await.expect("parity gives what is missing");
            if *bytes != *old && *bytes != *new {
                assert!(self.is_unknown(at, missing), "{context}: byte {at} is neither old nor new");
                lost += 1;
            }
        }
        lost
    }

    /// Whether a write of several chunks touched this byte of the missing member.
    fn is_unknown(&self, at: u64, missing: Option<usize>) -> bool {
        let (stripe, index) = (at / self.parity.stripe_bytes(), (at % self.parity.stripe_bytes() / CHUNK) as u16);
        let slot = self.parity.stripe(stripe).slot_of(Role::Data(index)).expect("a slot").index();
        let touches = |write: &Write| {
            write.stripe == stripe && write.changed.contains(&index) && write.rows.contains(&(at % CHUNK))
        };
        Some(slot) == missing && self.writes.iter().any(|write| touches(write) && write.changed.len() > 1)
    }
}

/// Plants a log; the next one's place.
fn put(member: &SimMember, at: u64, generation: u64, entries: Vec<(Entry, Vec<u8>)>) -> u64 {
    let (entries, partial): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
    let header = Header { entries, ..Header::empty(&UUID, generation) };
    member.plant(at, &header.encode());
    member.plant(at + HEADER_BYTES as u64, &partial.concat());
    at + header.bytes()
}

#[test]
fn a_replayed_log_makes_parity_agree_with_the_data() {
    let mut lost = 0;
    for seed in 0..60 {
        let (slots, multiple) = (3 + (seed % 3) as u16, seed % 2 == 1);
        let world = World::new(seed);
        let course = async {
            let mut random = Random::new(seed);
            let mut scene = Scene::new(slots, &mut random, &world).await;
            scene.write(&mut random);
            scene.log(multiple, &mut random);
            announce(&scene.members, multiple, Resync::From(Sectors(0)));
            let missing = (seed as usize / 3 % (usize::from(slots) + 1)).checked_sub(1);
            scene.look(missing, &world, &format!("seed {seed}, without {missing:?}")).await
        };
        lost += world.run(course, || false).expect("the power does not go");
    }
    assert!(lost > 0, "some writes touched several chunks, one of them missing");
}

#[test]
fn the_log_of_a_clean_array_is_not_replayed() {
    let world = World::new(1);
    let course = async {
        let mut random = Random::new(1);
        let mut scene = Scene::new(3, &mut random, &world).await;
        scene.write(&mut random);
        scene.log(false, &mut random);
        scene.new = random_bytes(&mut random, scene.old.len() as u64);
        scene.fill_and_stop(&world).await;
        announce(&scene.members, false, Resync::Clean);
        (scene.old, scene.writes) = (scene.new.clone(), Vec::new());
        for missing in 0..3 {
            assert_eq!(scene.look(Some(missing), &world, "clean").await, 0);
        }
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn parity_that_may_never_have_been_built_replaces_nothing_while_all_members_are_there() {
    let mut lost = 0;
    for seed in 0..30 {
        let world = World::new(seed);
        let course = async {
            let mut random = Random::new(seed);
            let mut scene = Scene::new(3, &mut random, &world).await;
            if seed % 3 > 0 {
                scene.write(&mut random);
            }
            scene.log(false, &mut random);
            announce(&scene.members, false, Resync::From(Sectors(0)));
            let unwritten = |stripe: &u64| scene.writes.iter().all(|write| write.stripe != *stripe);
            let unbuilt: Vec<u64> = (0..COMPONENT / CHUNK).filter(unwritten).collect();
            for stripe in &unbuilt {
                let at = DATA_AT + stripe * CHUNK;
                let slot = |role| scene.parity.stripe(*stripe).slot_of(role).expect("a slot").index();
                scene.members[slot(Role::P)].plant(at, &random_bytes(&mut random, CHUNK));
                let faults = scene.members[slot(Role::Data(0))].faults();
                faults.latent.borrow_mut().push(at..at + CHUNK);
            }
            let array = assemble(&scene.members, &world, false).await;
            for at in (0..array.bytes()).step_by(CHUNK as usize) {
                let (stripe, index) = (at / scene.parity.stripe_bytes(), at % scene.parity.stripe_bytes() / CHUNK);
                let read = array.read(at, array.pool().take(CHUNK as usize)).await;
                let is_bad = unbuilt.contains(&stripe) && index == 0;
                assert_eq!(read.is_err(), is_bad, "seed {seed}: byte {at}");
                lost += usize::from(is_bad);
            }
        };
        world.run(course, || false).expect("the power does not go");
    }
    assert!(lost > 0, "some stripes were not written");
}

#[test]
fn an_array_that_is_refused_for_its_bad_blocks_is_refused_before_the_replay() {
    let place = BadBlockPlace { sectors_from_superblock: 104, sectors: 8, shift: 0, in_use: true };
    let bad = BadRange { first: Sectors(DATA_AT / SECTOR), count: Sectors(8) };
    let log = encode(&[bad], place.shift, usize::from(place.sectors) * SECTOR as usize).expect("it fits");
    let mut replayed = 0;
    for (seed, force) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let world = World::new(seed);
        let course = async {
            let mut random = Random::new(seed);
            let mut scene = Scene::new(3, &mut random, &world).await;
            scene.write(&mut random);
            scene.log(false, &mut random);
            announce(&scene.members, false, Resync::From(Sectors(0)));
            let member = &scene.members[1];
            let mut superblock = superblock_of(member);
            superblock.bad_blocks = Some(place);
            member.plant(SUPER_AT, &superblock.encode());
            member.plant(superblock.bad_blocks_at().expect("a log").0, &log);
            let contents = || scene.members.iter().map(SimMember::contents).collect::<Vec<_>>();
            let before = contents();
            let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
            let options = AssembleOptions { force, ..AssembleOptions::default() };
            let candidates = scene.members.iter().map(candidate).collect();
            match Array::assemble(candidates, options, Pool::new(1 << 20), world.clock()).await {
                Ok(_) => replayed += usize::from(force && contents() != before),
                Err(refusal) => {
                    assert!(!force && refusal.field.as_deref() == Some("bad-block log"), "{refusal:?}");
                    assert!(contents() == before, "seed {seed}: the refusal left changes");
                }
            }
        };
        world.run(course, || false).expect("the power does not go");
    }
    assert!(replayed > 0, "by force, a log was replayed");
}

#[test]
fn a_missing_member_of_a_dirty_array_is_read_with_a_warning_that_parity_may_never_have_been_built() {
    for is_written in [false, true] {
        let world = World::new(5);
        let course = async {
            let mut random = Random::new(5);
            let mut scene = Scene::new(3, &mut random, &world).await;
            if is_written {
                scene.write(&mut random);
            }
            scene.log(false, &mut random);
            announce(&scene.members, false, Resync::From(Sectors(0)));
            let warnings = async |members| assemble(members, &world, false).await.status().warnings.join("\n");
            let (whole, degraded) = (warnings(&scene.members).await, warnings(&scene.members[1..]).await);
            assert!(!whole.contains("never built"), "{whole}");
            assert!(degraded.contains("slot 0 held is wrong where parity was never built"), "{degraded}");
            assert_eq!(degraded.contains("no log held a write"), !is_written, "{degraded}");
        };
        world.run(course, || false).expect("the power does not go");
    }
}
