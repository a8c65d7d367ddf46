//! Cuts power at every write and flush of small arrays, one after the other: while they are only written to, while a
//! member fails, while a bitmap is added or removed, and while its file fails. A failed member is back with its old
//! contents when power returns.
//!
//! Afterwards flushed data must read back, and the stale member must not be used. Where copies or parity disagree in an
//! array with a bitmap, every member with a valid bitmap must have the bit set.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, BitmapPolicy, Candidate, Clock, Durability, Offer, Pool, Refusal};
use format::bitmap::{self, BitmapSuper, SUPER_BYTES};
use format::geometry::{Geometry, Level, Role};
use format::placement::BitmapChoice;
use format::superblock::{DeviceRole, Resync, Superblock, Version, decode};
use format::units::{ArrayByte, MemberByte, Slot};
use futures_util::future::join_all;
use mdspace_sim::checksums;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const DATA_OFFSET: usize = 32 << 10;
/// So short that the checksums lie after the data.
const SMALL_DATA_OFFSET: usize = 16 << 10;
const COMPONENT_BYTES: u64 = 64 << 10;
const MEMBER_BYTES: usize = DATA_OFFSET + COMPONENT_BYTES as usize;
const CHUNK_BYTES: u64 = 4096;
const FILE_BYTES: usize = 4096;

/// Where the write-intent bitmap is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bitmap {
    None,
    Members,
    File,
}

#[derive(Debug, Clone, Copy)]
struct Setup {
    level: Level,
    layout: u32,
    slots: usize,
    bitmap: Bitmap,
    block_bytes: u32,
    /// A slot that is empty from the start.
    missing: Option<usize>,
    /// Whether the members hold checksums.
    integrity: bool,
    data_offset: usize,
}

const RAID1: Setup = Setup {
    level: Level::Raid1,
    layout: 0,
    slots: 2,
    bitmap: Bitmap::None,
    block_bytes: 512,
    missing: None,
    integrity: false,
    data_offset: DATA_OFFSET,
};
const RAID5: Setup = Setup { level: Level::Raid5, layout: 2, slots: 4, ..RAID1 };
const SETUPS: [Setup; 16] = [
    Setup { integrity: true, data_offset: SMALL_DATA_OFFSET, ..RAID1 },
    Setup { integrity: true, data_offset: SMALL_DATA_OFFSET, bitmap: Bitmap::Members, ..RAID5 },
    Setup { integrity: true, ..RAID1 },
    Setup { integrity: true, bitmap: Bitmap::Members, ..RAID5 },
    Setup { integrity: true, level: Level::Raid6, slots: 5, missing: Some(1), ..RAID5 },
    Setup { integrity: true, level: Level::Raid10, layout: 0x102, slots: 3, bitmap: Bitmap::Members, ..RAID1 },
    RAID1,
    Setup { bitmap: Bitmap::Members, slots: 3, ..RAID1 },
    Setup { slots: 3, missing: Some(0), ..RAID1 },
    RAID5,
    Setup { bitmap: Bitmap::Members, block_bytes: 4096, ..RAID5 },
    Setup { level: Level::Raid6, bitmap: Bitmap::Members, ..RAID5 },
    Setup { level: Level::Raid6, slots: 5, missing: Some(1), ..RAID5 },
    Setup { level: Level::Raid10, layout: 0x102, slots: 3, bitmap: Bitmap::Members, ..RAID1 },
    Setup { bitmap: Bitmap::File, slots: 3, ..RAID1 },
    Setup { bitmap: Bitmap::File, ..RAID5 },
];

/// What goes wrong, or changes, during the life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A member is failed by command.
    Failed,
    Gone,
    /// A member accepts writes of data, but not of its superblock.
    Superblock,
    /// A bitmap is added, or removed if there is one.
    BitmapChanged,
    /// A bitmap is added while the first writes wait for the array to become dirty.
    BitmapAddedFirst,
    /// The bitmap file fails.
    File,
}

/// The pauses between writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// None: there is always a request in flight.
    Busy,
    /// Long enough for the array to become clean and for bits to be cleared.
    Slow,
}

impl Pace {
    fn pause(self, random: &mut Random) -> Duration {
        match self {
            Self::Busy => Duration::from_micros(random.within(0..400)),
            Self::Slow => Duration::from_millis(random.within(0..20_000)),
        }
    }

    fn rounds(self) -> usize {
        match self {
            Self::Busy => 2,
            Self::Slow => 3,
        }
    }
}

/// The part of the array that one writer uses, and its legal contents.
struct Part {
    range: Range<usize>,
    settled: Vec<u8>,
    /// Written since the last flush.
    recent: Vec<Vec<u8>>,
}

struct Life {
    setup: Setup,
    fault: Fault,
    pace: Pace,
    seed: u64,
    members: Vec<SimMember>,
    file: SimMember,
    parts: Vec<Rc<RefCell<Part>>>,
    /// Whether the array has been stopped.
    was_stopped: Cell<bool>,
}

impl Life {
    fn context(&self, cut: u64) -> String {
        format!("{:?} {:?} {:?} seed {} cut {cut}", self.setup, self.fault, self.pace, self.seed)
    }
}

fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(candidate).collect()
}

async fn make(setup: &Setup, members: &[SimMember], file: &SimMember, world: &World) {
    let recipe = Recipe {
        layout: setup.layout,
        chunk_bytes: if setup.level == Level::Raid1 { 0 } else { CHUNK_BYTES },
        name: "sim:cut".to_owned(),
        data_offset_bytes: Some(setup.data_offset as u64),
        component_bytes: Some(COMPONENT_BYTES),
        bitmap: match setup.bitmap {
            Bitmap::Members => BitmapChoice::Chunk(CHUNK_BYTES),
            Bitmap::None | Bitmap::File => BitmapChoice::None,
        },
        contents: Contents::Zeros,
        integrity: setup.integrity,
        ..Recipe::new(setup.level, [7; 16])
    };
    let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
    let newcomers: Vec<_> = candidates(members).into_iter().enumerate().map(newcomer).collect();
    create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &world.clock(), &|_, _| {})
        .await
        .expect("the array is created");
    if setup.bitmap == Bitmap::File {
        let array = assemble(members, None, world, false).await.expect("whole");
        let file = candidate(file);
        array.add_bitmap_file(file, Some(CHUNK_BYTES), BitmapPolicy::default()).await.expect("it can have one");
        array.stop().await.expect("nothing fails");
    }
}

async fn assemble(
    members: &[SimMember],
    file: Option<&SimMember>,
    world: &World,
    force: bool,
) -> Result<Simulated, Refusal> {
    let options = AssembleOptions { force, ..AssembleOptions::default() };
    let offer = Offer { bitmap: file.map(candidate), ..Offer::of(candidates(members)) };
    Array::assemble_offer(offer, options, Pool::new(1 << 20), world.clock()).await
}

/// Writes and flushes its own part several times, with pauses.
async fn write_and_flush(
    array: Simulated,
    part: Rc<RefCell<Part>>,
    clock: VirtualClock,
    mut random: Random,
    pace: Pace,
) {
    for _ in 0..pace.rounds() {
        clock.sleep_until(clock.now() + pace.pause(&mut random)).await;
        let range = part.borrow().range.clone();
        let mut bytes = vec![0; range.len()];
        random.fill(&mut bytes);
        let block = array.pool().copy_of(&bytes);
        part.borrow_mut().recent.push(bytes.clone());
        let durability = if random.once_in(2) { Durability::Stable } else { Durability::Ordinary };
        array.write(range.start as u64, block, durability).await.expect("the level survives it");
        if durability == Durability::Ordinary {
            array.flush().await.expect("the level survives it");
        }
        let mut part = part.borrow_mut();
        part.settled = bytes;
        part.recent.clear();
    }
}

/// Plays a whole life. At each boundary, checks what a power cut at that moment would leave.
fn live(setup: Setup, fault: Fault, pace: Pace, seed: u64) {
    let mut random = Random::new(seed);
    let world = World::new(random.number());
    let boundaries = Rc::new(Cell::new(0));
    let member = |index| {
        let contents = vec![0; MEMBER_BYTES];
        SimMember::new(format!("member{index}"), &world, contents, boundaries.clone()).with_blocks(setup.block_bytes)
    };
    let members: Vec<_> = (0..setup.slots).map(member).collect();
    let file = SimMember::new("bitmap".to_owned(), &world, vec![0; FILE_BYTES], boundaries.clone());
    world.run(make(&setup, &members, &file, &world), || false);
    boundaries.set(0);
    let used: Vec<_> = (0..setup.slots).filter(|&slot| Some(slot) != setup.missing).collect();
    let victim = members[*random.pick(&used)].clone();
    let offered: Vec<_> = used.iter().map(|&slot| members[slot].clone()).collect();
    // Neighbouring parts share stripes and logical blocks.
    let part = |number: usize| {
        let start = number * 9000 + 100;
        let range = start..start + random.within(1..9000) as usize;
        Rc::new(RefCell::new(Part { settled: vec![0; range.len()], range, recent: Vec::new() }))
    };
    let parts: Vec<_> = (0..4).map(part).collect();
    let life = Life {
        setup,
        fault,
        pace,
        seed,
        members,
        file: file.clone(),
        parts: parts.clone(),
        was_stopped: Cell::new(false),
    };
    let cuts = Cell::new(0);
    let look_at_each = || {
        while cuts.get() <= boundaries.get() {
            look(&life, cuts.get());
            cuts.set(cuts.get() + 1);
        }
        false
    };
    let course = async {
        let with_file = (setup.bitmap == Bitmap::File).then_some(&file);
        let array = assemble(&offered, with_file, &world, false).await.expect("whole or degraded");
        let clock = world.clock();
        let writers: Vec<_> = parts
            .iter()
            .map(|part| write_and_flush(array.clone(), part.clone(), clock.clone(), Random::new(random.number()), pace))
            .collect();
        let breaker = {
            let moment = match fault {
                Fault::BitmapAddedFirst => clock.now() + Duration::from_micros(random.within(0..100)),
                _ => clock.now() + 4 * pace.pause(&mut random),
            };
            let (array, clock, victim, file) = (array.clone(), clock.clone(), victim.clone(), file.clone());
            async move {
                clock.sleep_until(moment).await;
                match fault {
                    Fault::None => {}
                    Fault::Failed => array.fail(&victim.name()).await.expect("the level survives it"),
                    Fault::BitmapChanged if setup.bitmap != Bitmap::None => {
                        array.remove_bitmap().await.expect("there is one");
                    }
                    Fault::BitmapChanged | Fault::BitmapAddedFirst => {
                        array.add_bitmap(Some(CHUNK_BYTES), BitmapPolicy::default()).await.expect("there is room");
                    }
                    Fault::File => file.faults().gone.set(true),
                    Fault::Gone => victim.faults().gone.set(true),
                    Fault::Superblock => victim.faults().bad_writes.borrow_mut().push(4096..8192),
                }
            }
        };
        if pace == Pace::Slow {
            let (cleaner, clearer) = (array.clone(), array.clone());
            world.spawn(async move { cleaner.mark_clean_when_idle(Duration::from_millis(200)).await });
            world.spawn(async move { clearer.clear_bitmap_lazily().await });
        }
        futures_util::future::join(join_all(writers), breaker).await;
        array.stop().await.expect("stops clean");
    };
    world.run(course, look_at_each).expect("the power does not go");
    look_at_each();
    life.was_stopped.set(true);
    look(&life, cuts.get());
}

/// Checks what a power cut leaves. Every member is present.
fn look(life: &Life, cut: u64) {
    let context = life.context(cut);
    let mut random = Random::new(life.seed ^ cut);
    let world = World::new(random.number());
    let left: Vec<_> = life
        .members
        .iter()
        .map(|member| {
            let contents = member.after_power_loss(&mut random);
            SimMember::new(member.name(), &world, contents, Rc::default()).with_blocks(life.setup.block_bytes)
        })
        .collect();
    let file = SimMember::new("bitmap".to_owned(), &world, life.file.after_power_loss(&mut random), Rc::default());
    let with_file = (life.setup.bitmap == Bitmap::File && random.once_in(2)).then_some(&file);
    check_marks(&life.setup, &left, &file, &context);
    check_checksums(life, &left, &context);
    let look = async {
        let mut forced = false;
        let array = match assemble(&left, with_file, &world, false).await {
            Ok(array) => array,
            Err(refusal) => {
                assert!(refusal.reason.contains("dirty and degraded"), "{context}: {refusal}");
                forced = true;
                assemble(&left, with_file, &world, true).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"))
            }
        };
        let found = read_all(&array, &context).await;
        check_found(life, &found, forced, &context);
        array.resync(&|_, _| {}).await.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(read_all(&array, &context).await == found, "{context}: a resync does not change data");
        array.write(0, array.pool().copy_of(&found[..100]), Durability::Ordinary).await.expect("takes writes");
        array.stop().await.unwrap_or_else(|error| panic!("{context}: {error}"));
        let array =
            assemble(&left, with_file, &world, false).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        let status = array.status();
        assert!(status.state.starts_with("clean"), "{context}: {}", status.state);
        assert!(read_all(&array, &context).await == found, "{context}: after a stop");
        check_checksums(life, &left, &context);
        if !forced {
            check_marks(&life.setup, &left, &file, &context); // force marks a dirty array as clean
        }
        // The data of each member also follows from the others.
        for missing in left.iter().filter(|_| status.in_sync == status.raid_disks) {
            let rest: Vec<_> = left.iter().filter(|member| member.name() != missing.name()).cloned().collect();
            let array =
                assemble(&rest, None, &world, false).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
            assert!(read_all(&array, &context).await == found, "{context}: without {}", missing.name());
        }
    };
    world.run(look, || false);
}

async fn read_all(array: &Simulated, context: &str) -> Vec<u8> {
    let read = array.read(0, array.pool().take(array.bytes() as usize)).await;
    read.unwrap_or_else(|error| panic!("{context}: {error}")).to_vec()
}

/// Flushed data must be there; other bytes may be whatever was in flight. If a dirty and degraded array was forced,
/// stripes that were being written are in doubt.
fn check_found(life: &Life, found: &[u8], forced: bool, context: &str) {
    let stripe = CHUNK_BYTES as usize * (life.setup.slots - if life.setup.level == Level::Raid6 { 2 } else { 1 });
    let is_changing = |range: &Range<usize>, part: &Part| {
        !part.recent.is_empty()
            && part.range.start / stripe <= range.end / stripe
            && range.start / stripe <= part.range.end / stripe
    };
    for part in &life.parts {
        let part = part.borrow();
        for index in part.range.clone() {
            if forced && life.parts.iter().any(|other| is_changing(&(index..index + 1), &other.borrow())) {
                continue;
            }
            let at = index - part.range.start;
            let is_legal =
                found[index] == part.settled[at] || part.recent.iter().any(|bytes| bytes[at] == found[index]);
            assert!(is_legal, "{context}: byte {index} is {}, settled was {}", found[index], part.settled[at]);
        }
    }
}

/// Where current members disagree, the array must be dirty, and the bit must be set in every bitmap.
fn check_marks(setup: &Setup, members: &[SimMember], file: &SimMember, context: &str) {
    let images: Vec<Vec<u8>> = members.iter().map(SimMember::contents).collect();
    let superblocks: Vec<Superblock> = images.iter().map(|image| superblock(image)).collect();
    let freshest = superblocks.iter().max_by_key(|superblock| superblock.events).expect("there are members");
    let mut slots: Vec<Option<usize>> = vec![None; setup.slots];
    for (index, superblock) in superblocks.iter().enumerate() {
        if let DeviceRole::Active(slot) = freshest.role(superblock.device_number)
            && superblock.events + 1 >= freshest.events
        {
            slots[slot.index()] = Some(index);
        }
    }
    let geometry = Geometry::new(&freshest.shape(&[])).expect("a made array has a geometry");
    // A member that is one event behind may not know the bitmap yet.
    let bitmaps: Vec<_> = match freshest.bitmap_at() {
        Some(at) => slots.iter().flatten().map(|&index| images[index][at.0 as usize..].to_vec()).collect(),
        None if setup.bitmap == Bitmap::File => vec![file.contents()],
        None => Vec::new(),
    };
    let trusted = bitmaps.iter().filter_map(|bytes| {
        let header = BitmapSuper::decode(bytes, 4096).expect("a bitmap's header is never torn");
        (header.events >= freshest.events).then_some((header, &bytes[SUPER_BYTES..]))
    });
    let trusted: Vec<_> = trusted.collect();
    check_absent(&geometry, &superblocks, &slots, &images, &trusted, context);
    for wrong in disagreements(&geometry, &slots, &images) {
        assert!(freshest.resync != Resync::Clean, "{context}: {wrong:?} disagree, but the array is clean");
        for (header, bits) in &trusted {
            let is_named = header.bits_of(wrong.clone()).all(|bit| bitmap::is_set(bits, bit));
            assert!(is_named, "{context}: {wrong:?} disagree, but a bitmap that counts has no bit");
        }
    }
}

/// Every valid checksum is right, on all members. After a clean stop every block has one.
fn check_checksums(life: &Life, members: &[SimMember], context: &str) {
    for (slot, member) in members.iter().enumerate().filter(|_| life.setup.integrity) {
        let image = member.contents();
        let Some(found) = checksums::examine(&image, &superblock(&image)) else {
            assert!(life.setup.missing == Some(slot), "{context}: member {slot} has lost its checksums");
            continue;
        };
        assert!(found.wrong.is_empty(), "{context}: member {slot}: blocks {:?} are wrong", found.wrong);
        let is_whole = life.fault == Fault::None && life.was_stopped.get();
        assert!(!is_whole || found.unknown == 0, "{context}: member {slot} knows nothing of {} blocks", found.unknown);
    }
}

/// If the bitmap says that a stale member can be updated by it, the other members must have a bit wherever it differs.
fn check_absent(
    geometry: &Geometry,
    superblocks: &[Superblock],
    slots: &[Option<usize>],
    images: &[Vec<u8>],
    bitmaps: &[(BitmapSuper, &[u8])],
    context: &str,
) {
    for (absent, superblock) in superblocks.iter().enumerate() {
        let DeviceRole::Active(slot) = superblock.own_role() else { continue };
        let mut with_it = slots.to_vec();
        if slots[slot.index()].is_some() {
            continue;
        }
        with_it[slot.index()] = Some(absent);
        for (header, bits) in bitmaps.iter().filter(|(header, _)| superblock.events >= header.events_cleared) {
            for wrong in disagreements(geometry, &with_it, images) {
                let is_named = header.bits_of(wrong.clone()).all(|bit| bitmap::is_set(bits, bit));
                assert!(is_named, "{context}: member {absent} could be re-added, but misses {wrong:?}");
            }
        }
    }
}

fn superblock(image: &[u8]) -> Superblock {
    let place = MemberByte(4096);
    decode(Version::V1_2, place, &image[4096..8192], image.len() as u64).expect("sound").expect("there")
}

/// The ranges of the bitmap's space in which copies or parity disagree, as far as the members at hand show it.
fn disagreements(geometry: &Geometry, slots: &[Option<usize>], images: &[Vec<u8>]) -> Vec<Range<u64>> {
    let chunk = |slot: Slot, at: u64| {
        slots[slot.index()].map(|index| {
            let start = (superblock(&images[index]).data_at().0 + at) as usize;
            &images[index][start..start + CHUNK_BYTES as usize]
        })
    };
    match geometry {
        Geometry::Mapping(mapping) => (0..geometry.array_bytes() / CHUNK_BYTES)
            .map(|number| number * CHUNK_BYTES)
            .filter(|&at| {
                let piece = mapping.piece_at(ArrayByte(at));
                let mut copies = piece.copies.iter().filter_map(|&(slot, at)| chunk(slot, at.0));
                let first = copies.next();
                copies.any(|copy| Some(copy) != first)
            })
            .map(|at| at..at + CHUNK_BYTES)
            .collect(),
        Geometry::Parity(parity) => (0..parity.stripes())
            .map(|number| parity.stripe(number))
            .filter(|stripe| {
                let mut sum = vec![0; CHUNK_BYTES as usize];
                for slot in (0..parity.slots()).map(Slot).filter(|&slot| stripe.role_of(slot) != Role::Q) {
                    let Some(chunk) = chunk(slot, stripe.component().0) else { return false };
                    sum.iter_mut().zip(chunk).for_each(|(sum, byte)| *sum ^= byte);
                }
                sum.iter().any(|&byte| byte != 0)
            })
            .map(|stripe| stripe.component().0..stripe.component().0 + CHUNK_BYTES)
            .collect(),
    }
}

/// Whether the array survives one more failure.
fn survives_a_fault(setup: &Setup) -> bool {
    setup.missing.is_none() || setup.level == Level::Raid6 || setup.slots > 2
}

fn cut_everywhere(fault: Fault, pace: Pace) {
    let is_of_interest = |setup: &Setup| {
        let has_bitmap = pace == Pace::Busy || setup.bitmap != Bitmap::None;
        match fault {
            Fault::File => setup.bitmap == Bitmap::File,
            Fault::BitmapAddedFirst => setup.bitmap == Bitmap::None,
            Fault::None | Fault::BitmapChanged => has_bitmap,
            _ => has_bitmap && survives_a_fault(setup),
        }
    };
    for setup in SETUPS.into_iter().filter(is_of_interest) {
        let seeds = if pace == Pace::Busy { 0..2 } else { 0..1 };
        for seed in seeds {
            live(setup, fault, pace, seed);
        }
    }
}

#[test]
fn power_may_go_at_any_write() {
    cut_everywhere(Fault::None, Pace::Busy);
}

#[test]
fn power_may_go_while_a_member_is_failed_by_command() {
    cut_everywhere(Fault::Failed, Pace::Busy);
}

#[test]
fn power_may_go_while_a_member_goes() {
    cut_everywhere(Fault::Gone, Pace::Busy);
}

#[test]
fn power_may_go_while_a_superblock_cannot_be_written() {
    cut_everywhere(Fault::Superblock, Pace::Busy);
}

#[test]
fn power_may_go_while_bits_are_cleared() {
    cut_everywhere(Fault::None, Pace::Slow);
}

#[test]
fn power_may_go_between_the_loss_of_a_member_and_the_clearing_of_bits() {
    cut_everywhere(Fault::Failed, Pace::Slow);
    cut_everywhere(Fault::Gone, Pace::Slow);
}

#[test]
fn power_may_go_while_a_bitmap_is_added_or_removed() {
    cut_everywhere(Fault::BitmapChanged, Pace::Busy);
}

#[test]
fn power_may_go_while_a_bitmap_is_added_before_the_first_write() {
    cut_everywhere(Fault::BitmapAddedFirst, Pace::Busy);
}

#[test]
fn power_may_go_while_the_bitmap_file_fails() {
    cut_everywhere(Fault::File, Pace::Busy);
}

/// Data that was written without the file has no bits in it, so the file must never be valid again.
#[test]
fn a_bitmap_file_one_event_ahead_is_stale_after_the_array_was_used_without_it() {
    let setup = Setup { bitmap: Bitmap::File, ..RAID1 };
    let mut left_ahead = 0;
    for (seed, cut) in (0..10).flat_map(|seed| (1..12).map(move |cut| (seed, cut))) {
        let (world, boundaries) = (World::new(seed), Rc::new(Cell::new(0)));
        let mut random = Random::new(seed ^ cut);
        let member = |name: &str, bytes| SimMember::new(name.to_owned(), &world, vec![0; bytes], boundaries.clone());
        let members = ["member0", "member1"].map(|name| member(name, MEMBER_BYTES));
        let file = member("bitmap", FILE_BYTES);
        world.run(make(&setup, &members, &file, &world), || false);
        boundaries.set(0);
        let write = async |with_file, at| {
            let array = assemble(&members, with_file, &world, false).await.expect("whole");
            array.write(at, array.pool().zeroed(4096).freeze(), Durability::Ordinary).await.expect("whole");
        };
        world.run(write(Some(&file), 0), || boundaries.get() >= cut);
        world.forget_all();
        members.iter().chain([&file]).for_each(|member| member.lose_power(&mut random));
        let events = || members.iter().map(|member| superblock(&member.contents()).events).max().expect("two");
        let of_file = BitmapSuper::decode(&file.contents(), FILE_BYTES as u64).expect("never torn").events;
        left_ahead += usize::from(of_file > events());
        world.run(write(None, 8 * CHUNK_BYTES), || false);
        world.forget_all();
        assert!(events() > of_file, "seed {seed} cut {cut}: the members are at {}, the file at {of_file}", events());
    }
    assert!(left_ahead > 0, "the power never went at that moment");
}
