//! Arrays that grow or shrink, and RAID-1 with more or fewer copies. Power is cut at every write and flush, and once
//! more at a random moment while the remaining array is used. The array has its old size or its new one, its data is
//! unchanged, and after a resync copies and parity agree.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{
    Array, ArrayError, ArrayErrorKind, AssembleOptions, BitmapPolicy, Candidate, Durability, Member, Offer, Pool,
    ScrubAction, ScrubRequest,
};
use format::geometry::Level;
use format::placement::BitmapChoice;
use format::superblock::Version;
use format::units::MemberByte;
use futures_util::future::join3;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::Cell;
use std::rc::Rc;

pub(super) type Simulated = Array<SimMember, VirtualClock>;

const MEMBER_BYTES: usize = 256 << 10;
const CHUNK_BYTES: u64 = 4096;
pub(super) const OLD_COMPONENT: u64 = 64 << 10;
const NEW_COMPONENT: u64 = 128 << 10;

#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) level: Level,
    pub(super) layout: u32,
    pub(super) slots: usize,
    pub(super) version: Version,
    pub(super) bitmap: BitmapChoice,
    /// Bytes used of each member at first.
    pub(super) component: u64,
    /// Empty slots.
    pub(super) missing: &'static [usize],
}

pub(super) const RAID5: Setup = Setup {
    level: Level::Raid5,
    layout: 2,
    slots: 3,
    version: Version::V1_2,
    bitmap: BitmapChoice::None,
    component: OLD_COMPONENT,
    missing: &[],
};
pub(super) const RAID1: Setup = Setup { level: Level::Raid1, layout: 0, slots: 2, ..RAID5 };
pub(super) const BITMAP: BitmapChoice = BitmapChoice::Chunk(CHUNK_BYTES);
pub(super) const SETUPS: [Setup; 10] = [
    RAID5,
    Setup { bitmap: BITMAP, ..RAID5 },
    Setup { bitmap: BITMAP, version: Version::V1_0, ..RAID5 },
    Setup { level: Level::Raid6, slots: 4, bitmap: BITMAP, version: Version::V1_1, ..RAID5 },
    Setup { level: Level::Raid6, slots: 4, version: Version::V1_0, ..RAID5 },
    RAID1,
    Setup { bitmap: BITMAP, version: Version::V1_0, ..RAID1 },
    Setup { level: Level::Raid10, layout: 0x102, bitmap: BITMAP, ..RAID5 },
    Setup { bitmap: BITMAP, version: Version::V0_90, ..RAID1 },
    Setup { level: Level::Raid6, slots: 4, version: Version::V0_90, ..RAID5 },
];

pub(super) fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

pub(super) async fn assemble(members: &[SimMember], world: &World) -> Simulated {
    let array = Array::assemble(candidates(members), AssembleOptions::default(), Pool::new(1 << 20), world.clock());
    array.await.unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// Creates an array on a part of its members, with `data` in it and noise in the unused part.
pub(super) async fn make(setup: &Setup, members: &[SimMember], data: &mut Vec<u8>, random: &mut Random, world: &World) {
    let recipe = Recipe {
        version: setup.version,
        layout: setup.layout,
        chunk_bytes: if setup.level == Level::Raid1 { 0 } else { CHUNK_BYTES },
        name: if setup.version == Version::V0_90 { String::new() } else { "sim:small".to_owned() },
        data_offset_bytes: (!setup.version.is_at_end()).then_some(64 << 10),
        component_bytes: Some(setup.component),
        bitmap: setup.bitmap,
        contents: Contents::Zeros,
        ..Recipe::new(setup.level, *b"simulated arrays")
    };
    let mut offered = candidates(members).into_iter();
    let newcomer = |slot| {
        let is_missing = setup.missing.contains(&slot);
        (!is_missing)
            .then(|| Newcomer { candidate: offered.next().expect("one for each"), device_uuid: [slot as u8; 16] })
    };
    let newcomers: Vec<_> = (0..setup.slots).map(newcomer).collect();
    let pool = Pool::new(1 << 20);
    create(&recipe, &newcomers, &[], &pool, &world.clock(), &|_, _| {}).await.expect("the array is created");
    let unused = if setup.version.is_at_end() { setup.component } else { (64 << 10) + setup.component };
    for member in members {
        let mut anything = vec![0; (NEW_COMPONENT - OLD_COMPONENT) as usize];
        random.fill(&mut anything);
        member.write(MemberByte(unused), pool.copy_of(&anything)).await.expect("nothing fails");
    }
    let array = assemble(members, world).await;
    *data = vec![0; array.bytes() as usize];
    random.fill(data);
    array.write(0, array.pool().copy_of(data), Durability::Stable).await.expect("whole");
    array.stop().await.expect("whole");
}

/// A change of an array's shape.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Component,
    /// Shrinks an unused array, which stops it.
    Shrink,
    Copies(u16),
}

pub(super) async fn change(array: &Simulated, change: Change) -> Result<(), ArrayError> {
    match change {
        Change::Component => {
            let growth = array.plan_growth(Some(NEW_COMPONENT)).expect("it can grow").expect("it is larger");
            array.grow(growth).await
        }
        Change::Shrink => {
            let shrinking = array.plan_shrinking(OLD_COMPONENT).expect("it can shrink").expect("it is larger");
            array.shrink(shrinking).await
        }
        Change::Copies(copies) => {
            assert!(array.check_copies(copies).expect("it can have as many"));
            array.set_copies(copies).await
        }
    }
}

/// Changes an array that is not in use.
async fn change_at_rest(what: Change, members: &[SimMember], world: &World) {
    let array = assemble(members, world).await;
    change(&array, what).await.expect("nothing fails");
    array.stop().await.expect("nothing fails");
}

/// Overwrites a range at either end of the array with its own contents, or with noise where the space is new.
async fn use_it(members: &[SimMember], data: &[u8], world: &World) {
    let array = assemble(members, world).await;
    let block = |at: usize| array.pool().copy_of(&data[at..at + 6000]);
    let last = data.len().min(array.bytes() as usize) - 6000;
    array.write(1000, block(1000), Durability::Stable).await.expect("whole");
    array.write(array.bytes() - 6000, block(last), Durability::Ordinary).await.expect("whole");
    array.stop().await.expect("whole");
}

/// Members for an array.
pub(super) fn blank(setup: &Setup, world: &World, boundaries: &Rc<Cell<u64>>) -> Vec<SimMember> {
    // A superblock 0.90 is 4 KiB and has no copy: if it is torn, the member is lost, to md as well.
    let tear_bytes = if setup.version == Version::V0_90 { 4096 } else { 512 };
    let member = |index| {
        SimMember::new(format!("member{index}"), world, vec![0; MEMBER_BYTES], boundaries.clone())
            .with_tears(tear_bytes)
    };
    (0..setup.slots - setup.missing.len()).map(member).collect()
}

/// What a power cut leaves.
pub(super) fn after_power_loss(members: &[SimMember], random: &mut Random) -> (World, Vec<SimMember>, Rc<Cell<u64>>) {
    let (world, boundaries) = (World::new(random.number()), Rc::<Cell<u64>>::default());
    let left = |member: &SimMember| {
        SimMember::new(member.name(), &world, member.after_power_loss(random), boundaries.clone())
            .with_tears(member.tear_bytes())
    };
    let left = members.iter().map(left).collect();
    (world, left, boundaries)
}

/// Reads, resyncs and checks the array, stops it, and returns it.
async fn check_and_stop(members: &[SimMember], data: &[u8], world: &World, context: &str) -> Simulated {
    let array = assemble(members, world).await;
    let left = data.len().min(array.bytes() as usize);
    agrees_after_a_resync(&array, &data[..left], context).await;
    array.stop().await.expect("nothing fails");
    array
}

/// Resyncs and checks the array, and compares its beginning with `data` before and after.
pub(super) async fn agrees_after_a_resync(array: &Simulated, data: &[u8], context: &str) {
    let same = async |when: &str| {
        let bytes = array.read(0, array.pool().take(data.len())).await.expect("the members are there");
        assert!(bytes[..] == *data, "{context}: other data {when}");
    };
    same("as it was found").await;
    array.resync(&|_, _| {}).await.expect("nothing fails");
    assert!(array.status().in_agreement, "{context}: not in agreement after a resync");
    array.begin_scrub(&ScrubRequest { action: ScrubAction::Check, range: None }).expect("it can be checked");
    array.scrub(&|_, _| {}).await.expect("nothing fails");
    let report = array.scrub_report().expect("a scrub was begun");
    assert_eq!(report.found.counts.found(), 0, "{context}: not all agrees after a resync");
    same("after a resync").await;
}

/// An array after a change that a power cut ended.
struct Left {
    /// Whether the change had completed.
    is_over: bool,
    /// The length of the array before the change.
    old_bytes: u64,
    array: Simulated,
}

/// Changes an array, and cuts power after `cut` writes and flushes.
fn cut_at(setup: &Setup, what: Change, cut: u64) -> Left {
    let mut random = Random::new(cut);
    let (world, boundaries) = (World::new(random.number()), Rc::<Cell<u64>>::default());
    let members = blank(setup, &world, &boundaries);
    let mut data = Vec::new();
    world.run(make(setup, &members, &mut data, &mut random, &world), || false);
    boundaries.set(0);
    let done = world.run(change_at_rest(what, &members, &world), || boundaries.get() >= cut);

    let (world, left, boundaries) = after_power_loss(&members, &mut random);
    let second = random.within(1..60);
    world.run(use_it(&left, &data, &world), || boundaries.get() >= second);
    let (world, left, _) = after_power_loss(&left, &mut random);
    let context = format!("{setup:?} {what:?} cut {cut}");
    let array = world.run(check_and_stop(&left, &data, &world, &context), || false).expect("not stopped");
    assert_eq!(usize::from(array.status().in_sync), members.len(), "{context}: not all members take part");
    Left { is_over: done.is_some(), old_bytes: data.len() as u64, array }
}

#[test]
fn an_array_that_grows_has_its_old_size_or_its_new_one_and_its_data_whenever_the_power_goes() {
    for setup in SETUPS {
        let mut seen = [0; 2];
        for cut in 1.. {
            let Left { is_over, old_bytes: old, array } = cut_at(&setup, Change::Component, cut);
            let found = array.bytes();
            assert!(found == old || found == 2 * old, "{setup:?} cut {cut}: {found} bytes of {old}");
            seen[usize::from(found > old)] += 1;
            if is_over {
                assert_eq!(found, 2 * old, "{setup:?}: grown, and not larger");
                break;
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{setup:?}: {seen:?} is not all there is");
    }
}

#[test]
fn an_array_that_shrinks_has_its_old_size_or_its_new_one_and_the_data_before_it_whenever_the_power_goes() {
    for setup in SETUPS.into_iter().chain([Setup { layout: 0x10201, slots: 4, ..SETUPS[7] }]) {
        let setup = Setup { component: NEW_COMPONENT, ..setup };
        let mut seen = [0; 2];
        for cut in 1.. {
            let Left { is_over, old_bytes: old, array } = cut_at(&setup, Change::Shrink, cut);
            let found = array.bytes();
            assert!(found == old || found == old / 2, "{setup:?} cut {cut}: {found} bytes of {old}");
            seen[usize::from(found < old)] += 1;
            if is_over {
                assert_eq!(found, old / 2, "{setup:?}: shrunk, and not smaller");
                break;
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{setup:?}: {seen:?} is not all there is");
    }
}

/// Requests that come during the change or later are refused, before the new end as well as after it.
#[test]
fn an_array_that_shrinks_refuses_later_requests() {
    for setup in [RAID5, RAID1].map(|setup| Setup { component: NEW_COMPONENT, ..setup }) {
        let (world, boundaries) = (World::new(1), Rc::<Cell<u64>>::default());
        let members = blank(&setup, &world, &boundaries);
        let life = async {
            make(&setup, &members, &mut Vec::new(), &mut Random::new(1), &world).await;
            let array = assemble(&members, &world).await;
            let last = array.bytes() - 4096;
            let shrinking = array.plan_shrinking(OLD_COMPONENT).expect("it can shrink").expect("it is larger");
            let write = |at| array.write(at, array.pool().copy_of(&[7; 4096]), Durability::Stable);
            let (first, shrunk, second) = join3(write(last), array.shrink(shrinking), write(last)).await;
            first.expect("it began before");
            shrunk.expect("nothing fails");
            assert_eq!(second.expect_err("it came later").kind, ArrayErrorKind::Stopped, "{setup:?}");
            assert_eq!(write(0).await.expect_err("it is stopped").kind, ArrayErrorKind::Stopped, "{setup:?}");
            assert_eq!(assemble(&members, &world).await.bytes(), array.bytes(), "{setup:?}");
        };
        world.run(life, || false).expect("not stopped");
    }
}

#[test]
fn a_raid_1_has_its_old_number_of_copies_or_its_new_one_and_all_its_members_whenever_the_power_goes() {
    for (setup, wanted) in [
        (RAID1, 3),
        (Setup { bitmap: BITMAP, ..RAID1 }, 4),
        (Setup { slots: 3, missing: &[0], ..RAID1 }, 2),
        (Setup { slots: 5, missing: &[0, 1], bitmap: BITMAP, version: Version::V1_0, ..RAID1 }, 3),
        (Setup { version: Version::V0_90, ..RAID1 }, 3),
        (Setup { bitmap: BITMAP, version: Version::V0_90, ..RAID1 }, 4),
    ] {
        let mut seen = [0; 2];
        for cut in 1.. {
            let Left { is_over, array, .. } = cut_at(&setup, Change::Copies(wanted), cut);
            let found = array.status().raid_disks;
            assert!([setup.slots as u16, wanted].contains(&found), "{setup:?} cut {cut}: {found} slots");
            seen[usize::from(found == wanted)] += 1;
            if is_over {
                assert_eq!(found, wanted, "{setup:?}: changed, and not so");
                break;
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{setup:?}: {seen:?} is not all there is");
    }
}

#[test]
fn an_array_with_a_bitmap_file_refuses_to_grow_and_writes_nothing() {
    for setup in [RAID5, RAID1] {
        let (world, boundaries) = (World::new(1), Rc::<Cell<u64>>::default());
        let member = |name| SimMember::new(name, &world, vec![0; MEMBER_BYTES], boundaries.clone());
        let members: Vec<_> = (0..setup.slots).map(|index| member(format!("member{index}"))).collect();
        let bits = member("bits".to_owned());
        let file = || Candidate { name: bits.name(), member: bits.clone() };
        let life = async {
            make(&setup, &members, &mut Vec::new(), &mut Random::new(1), &world).await;
            let array = assemble(&members, &world).await;
            let policy = BitmapPolicy::default();
            array.add_bitmap_file(file(), Some(CHUNK_BYTES), policy).await.expect("it can have one");
            array.stop().await.expect("nothing fails");
            let offer = Offer { bitmap: Some(file()), ..Offer::of(candidates(&members)) };
            let array = Array::assemble_offer(offer, AssembleOptions::default(), Pool::new(1 << 20), world.clock());
            let array = array.await.unwrap_or_else(|refusal| panic!("{refusal}"));
            let written = boundaries.get();
            let mut refusals = vec![array.plan_growth(Some(NEW_COMPONENT)).err()];
            if setup.level == Level::Raid1 {
                refusals.push(array.check_copies(3).err());
            }
            for refusal in refusals {
                let said = refusal.expect("it is refused").to_string();
                assert!(said.contains("bitmap is in a file"), "{setup:?}: {said}");
            }
            assert_eq!(boundaries.get(), written, "{setup:?}: something was written");
        };
        world.run(life, || false).expect("not stopped");
    }
}
