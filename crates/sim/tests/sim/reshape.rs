//! Arrays in the middle of a reshape. Each is put together of two arrays with other bytes, one of the old shape and one of the
//! new shape. So what is read shows which side it came from, and that must follow the position alone.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::reshape::Reshaping;
use engine::{Array, AssembleOptions, Candidate, Durability, Offer, Pool, Refusal};
use format::geometry::Level;
use format::superblock::{DeviceRole, Reshape, Resync, Superblock, Version, decode};
use format::units::{DeviceNumber, MemberByte, Sectors, Slot};
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cmp::Ordering;
use std::ops::Range;
use std::rc::Rc;

const SUPER_AT: usize = 4096;
const COMPONENT: u64 = 192 << 10;
/// Where the data begins: of one array at each place, so that they do not overlap.
const FIRST_AT: u64 = 32 << 10;
const SECOND_AT: u64 = 320 << 10;
const MEMBER_BYTES: usize = 640 << 10;

#[derive(Debug, Clone, Copy)]
struct Shape {
    slots: u16,
    layout: u32,
    chunk: u32,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    level: Level,
    old: Shape,
    new: Shape,
    backwards: bool,
}

impl Case {
    /// Whether md may have moved more data than the position says.
    fn may_be_ahead(&self) -> bool {
        self.level != Level::Raid10 && self.old.slots == self.new.slots
    }
}

fn offer(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

async fn read_side(
    members: &[SimMember],
    force: bool,
    world: &World,
) -> Result<Array<SimMember, VirtualClock>, Refusal> {
    read_with(members, None, force, world).await
}

async fn read_with(
    members: &[SimMember],
    backup: Option<&SimMember>,
    force: bool,
    world: &World,
) -> Result<Array<SimMember, VirtualClock>, Refusal> {
    let backup = backup.map(|file| Candidate { name: file.name(), member: file.clone() });
    let (offer, pool) = (Offer { backup, ..Offer::of(offer(members)) }, Pool::new(1 << 20));
    Array::assemble_to_read(offer, AssembleOptions { force, ..AssembleOptions::default() }, pool, world.clock()).await
}

/// Changes a member's superblock.
fn edit(member: &SimMember, change: &dyn Fn(&mut Superblock)) {
    let mut superblock = superblock_of(&member.contents());
    change(&mut superblock);
    member.plant(SUPER_AT as u64, &superblock.encode());
}

fn superblock_of(image: &[u8]) -> Superblock {
    let place = &image[SUPER_AT..][..4096];
    decode(Version::V1_2, MemberByte(SUPER_AT as u64), place, image.len() as u64).expect("right").expect("there")
}

/// The images of an array of random bytes, and these.
async fn array(level: Level, shape: Shape, at: u64, random: &mut Random, world: &World) -> (Vec<Vec<u8>>, Vec<u8>) {
    let member = |index| SimMember::new(format!("m{index}"), world, vec![0; MEMBER_BYTES], Rc::default());
    let members: Vec<_> = (0..shape.slots).map(member).collect();
    let recipe = Recipe {
        layout: shape.layout,
        chunk_bytes: shape.chunk.into(),
        name: "sim:reshape".to_owned(),
        data_offset_bytes: Some(at),
        component_bytes: Some(COMPONENT),
        contents: Contents::Zeros,
        ..Recipe::new(level, [7; 16])
    };
    let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
    let newcomers: Vec<_> = offer(&members).into_iter().enumerate().map(newcomer).collect();
    create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &world.clock(), &|_, _| {}).await.expect("created");
    let options = AssembleOptions::default();
    let array = Array::assemble(offer(&members), options, Pool::new(1 << 20), world.clock()).await.expect("whole");
    let mut bytes = vec![0; array.bytes() as usize];
    random.fill(&mut bytes);
    array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("written");
    array.stop().await.expect("clean");
    (members.iter().map(SimMember::contents).collect(), bytes)
}

/// The members of both arrays as one, with the reshape at `position`.
fn put_together(case: Case, position: u64, old: &[Vec<u8>], new: &[Vec<u8>], world: &World) -> Vec<SimMember> {
    let (from, to) = offsets(case);
    let count = old.len().max(new.len());
    let image = |index: usize| {
        let of = if index < old.len() { &old[index] } else { &new[index] };
        let mut image = of.clone();
        for (images, at) in [(old, from), (new, to)] {
            let area = at as usize..(at + COMPONENT) as usize;
            if let Some(own) = images.get(index) {
                image[area.clone()].copy_from_slice(&own[area]);
            }
        }
        let mut superblock = reshaping(case, position, index, count, &old[0]);
        superblock.new_offset = Some((to as i64 / 512 - from as i64 / 512) as i32);
        let encoded = superblock.encode();
        image[SUPER_AT..SUPER_AT + encoded.len()].copy_from_slice(&encoded);
        SimMember::new(format!("m{index}"), world, image, Rc::default())
    };
    (0..count).map(image).collect()
}

/// The superblock of member `index` of so many, from that of an array of the old shape.
fn reshaping(case: Case, position: u64, index: usize, count: usize, image: &[u8]) -> Superblock {
    let mut superblock = superblock_of(image);
    superblock.device_number = DeviceNumber(index as u16);
    superblock.device_uuid = Some([index as u8; 16]);
    superblock.roles = (0..count).map(|slot| DeviceRole::Active(Slot(slot as u16))).collect();
    superblock.raid_disks = case.new.slots;
    (superblock.bitmap, superblock.bad_blocks) = (None, None);
    superblock.data_size = Sectors(superblock.component.0);
    superblock.reshape = Some(Reshape {
        position: Sectors(position / 512),
        new_level: match case.level {
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            _ => 10,
        },
        delta_disks: i32::from(case.new.slots) - i32::from(case.old.slots),
        new_layout: case.new.layout,
        new_chunk: case.new.chunk / 512,
        backwards: case.backwards,
    });
    superblock
}

/// Where the data of the old shape begins, and of the new one: a forward reshape moves it towards the start.
fn offsets(case: Case) -> (u64, u64) {
    if case.backwards { (FIRST_AT, SECOND_AT) } else { (SECOND_AT, FIRST_AT) }
}

async fn look(case: Case, seed: u64, world: &World) {
    let mut random = Random::new(seed);
    let (from, to) = offsets(case);
    let (old_images, old) = array(case.level, case.old, from, &mut random, world).await;
    let (new_images, new) = array(case.level, case.new, to, &mut random, world).await;
    let chunk = u64::from(case.old.chunk.max(case.new.chunk));
    let bytes = COMPONENT / chunk * chunk;
    let both = (old.len() as u64 * bytes / COMPONENT).min(new.len() as u64 * bytes / COMPONENT) / chunk * chunk;
    let parities = if case.level == Level::Raid6 { 2 } else { 1 };
    let row = if case.level == Level::Raid10 { 512 } else { chunk * u64::from(case.new.slots - parities) };
    for position in [0, 1, 2, random.within(0..both / row + 1), both / row].map(|number| (number * row).min(both)) {
        let members = put_together(case, position, &old_images, &new_images, world);
        for missing in [None, Some(random.within(0..members.len() as u64) as usize)] {
            let here = members.iter().enumerate().filter(|(index, _)| Some(*index) != missing);
            let here: Vec<_> = here.map(|(_, member)| member.clone()).collect();
            let context = format!("{case:?} at {position} without {missing:?}");
            if case.may_be_ahead() {
                let refusal = read_side(&here, false, world).await.err().expect("the position may be behind");
                assert_eq!(refusal.field.as_deref(), Some("superblock.reshape_position"), "{context}: {refusal}");
                assert!(refusal.advice.is_some_and(|advice| advice.contains("--force")), "{context}");
            }
            let array = read_side(&here, case.may_be_ahead(), world).await;
            let array = array.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
            let is_warned =
                array.status().warnings.iter().any(|warning| warning.contains("beyond the recorded position"));
            assert_eq!(is_warned, case.may_be_ahead(), "{context}: {:?}", array.status().warnings);
            let size = array.bytes();
            assert!(
                size <= both && both < size + chunk * u64::from(case.old.slots.max(case.new.slots)),
                "{context}: {size} of {both}"
            );
            let expected = |at: usize| {
                let is_new = (at as u64) < position;
                if is_new != case.backwards { new[at] } else { old[at] }
            };
            for _ in 0..30 {
                let start = random.within(0..size);
                let end = random.within(start + 1..(start + 100_000).min(size) + 1);
                let read = array.read(start, array.pool().take((end - start) as usize)).await;
                let read = read.unwrap_or_else(|error| panic!("{context}: {error}"));
                let wrong = (start..end).find(|at| read[(at - start) as usize] != expected(*at as usize));
                assert_eq!(wrong, None, "{context}: a byte of {start} to {end} is from the other side");
            }
        }
    }
}

#[test]
fn each_byte_is_read_in_the_shape_that_it_has() {
    use Level::{Raid5, Raid6, Raid10};
    let shape = |slots, layout, kib: u32| Shape { slots, layout, chunk: kib << 10 };
    let cases = [
        (Raid5, shape(3, 2, 4), shape(4, 2, 4), false),
        (Raid5, shape(5, 2, 8), shape(3, 2, 8), true),
        (Raid5, shape(4, 2, 4), shape(4, 2, 16), false),
        (Raid5, shape(4, 2, 16), shape(4, 0, 4), true),
        (Raid6, shape(5, 18, 4), shape(5, 2, 4), false),
        (Raid6, shape(4, 2, 8), shape(6, 2, 4), false),
        (Raid10, shape(4, 0x102, 4), shape(5, 0x102, 4), false),
        (Raid10, shape(4, 0x102, 8), shape(4, 0x102, 16), true),
    ];
    for (seed, (level, old, new, backwards)) in (0..).zip(cases) {
        let world = World::new(seed);
        let course = look(Case { level, old, new, backwards }, seed, &world);
        world.run(course, || false).expect("the power does not go");
    }
}

/// Reads all of an array that is being reshaped, or was.
async fn read_all(members: &[SimMember], world: &World) -> Vec<u8> {
    let array = read_side(members, false, world).await.expect("readable");
    let bytes = array.bytes() as usize;
    array.read(0, array.pool().take(bytes)).await.expect("each byte").to_vec()
}

#[test]
fn a_reshape_to_more_members_that_md_began_is_ended_with_its_bytes_also_with_another_chunk() {
    let shape = |slots, kib: u32| Shape { slots, layout: 2, chunk: kib << 10 };
    let cases = [
        (Level::Raid5, shape(3, 4), shape(4, 4)),
        (Level::Raid6, shape(4, 8), shape(6, 4)),
        (Level::Raid5, shape(3, 4), shape(4, 16)),
    ];
    for (seed, (level, old, new)) in (0..).zip(cases) {
        let case = Case { level, old, new, backwards: false };
        for cut in [u64::MAX, 3, 9, 14, 25, 31, 40, 47] {
            let world = World::new(seed);
            let mut random = Random::new(seed ^ cut);
            let (from, to) = offsets(case);
            let arrays = async {
                let (old_images, old_bytes) = array(level, old, from, &mut random, &world).await;
                let (new_images, new_bytes) = array(level, new, to, &mut random, &world).await;
                (old_images, old_bytes, new_images, new_bytes)
            };
            let (old_images, old_bytes, new_images, new_bytes) = world.run(arrays, || false).expect("no cut yet");
            let parities = if level == Level::Raid6 { 2 } else { 1 };
            let row = u64::from(old.chunk.max(new.chunk)) * u64::from(new.slots - parities);
            let position = row * random.within(0..old_bytes.len() as u64 / row + 1);
            let boundaries = Rc::new(std::cell::Cell::new(0));
            let members: Vec<_> = put_together(case, position, &old_images, &new_images, &world)
                .iter()
                .map(|member| SimMember::new(member.name(), &world, member.contents(), boundaries.clone()))
                .collect();
            let carry_out = async || {
                let mut reshaping =
                    Reshaping::of(offer(&members), Pool::new(1 << 20), world.clock()).await.expect("members");
                reshaping.carry_out(&AssembleOptions::default(), false, &|_, _| {}).await
            };
            let context = format!("{case:?} from {position}, cut at {cut}");
            let expected: Vec<u8> = (0..old_bytes.len())
                .map(|at| if (at as u64) < position { new_bytes[at] } else { old_bytes[at] })
                .collect();
            if world.run(carry_out(), || boundaries.get() >= cut).is_none() {
                members.iter().for_each(|member| member.lose_power(&mut random));
                let read = world.run(read_all(&members, &world), || false).expect("no cut");
                let both = read.len().min(expected.len());
                assert!(read[..both] == expected[..both], "{context}: other bytes amid it");
                let rest = world.run(carry_out(), || false).expect("no cut");
                let is_ended = |refusal: &Refusal| refusal.reason.contains("no reshape is under way");
                assert!(rest.as_ref().err().is_none_or(is_ended), "{context}: {rest:?}");
            }
            let read = world.run(read_all(&members, &world), || false).expect("no cut");
            let whole = expected.len().min(read.len()) as u64 / row * row;
            assert!(read[..whole as usize] == expected[..whole as usize], "{context}: other bytes");
        }
    }
}

#[test]
fn members_that_md_left_at_the_end_of_a_reshape_are_read_where_their_data_is() {
    let shape = |slots| Shape { slots, layout: 2, chunk: 4096 };
    let case = Case { level: Level::Raid5, old: shape(3), new: shape(4), backwards: false };
    let world = World::new(12);
    let course = async {
        let mut random = Random::new(12);
        let (from, to) = offsets(case);
        let (old, _) = array(case.level, case.old, from, &mut random, &world).await;
        let (new, bytes) = array(case.level, case.new, to, &mut random, &world).await;
        for told in [&[0_usize][..], &[1, 3], &[0, 1, 2]] {
            let members = put_together(case, bytes.len() as u64, &old, &new, &world);
            for index in told {
                edit(&members[*index], &|superblock| {
                    superblock.events += 1;
                    (superblock.reshape, superblock.new_offset) = (None, None);
                    superblock.data_offset = Sectors(to / 512);
                });
            }
            let options = AssembleOptions::default();
            let whole = Array::assemble(offer(&members), options, Pool::new(1 << 20), world.clock()).await;
            let array = whole.unwrap_or_else(|refusal| panic!("{told:?}: {refusal}"));
            assert!(array.status().left_out.is_empty(), "{told:?}");
            let read = array.read(0, array.pool().take(bytes.len())).await.expect("each byte");
            assert!(*read == bytes, "{told:?}: other bytes");
        }
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn a_dirty_reshape_goes_on_with_all_members_and_is_refused_without_one_also_by_force() {
    let shape = |slots| Shape { slots, layout: 2, chunk: 4096 };
    let case = Case { level: Level::Raid5, old: shape(3), new: shape(4), backwards: false };
    let world = World::new(11);
    let course = async {
        let mut random = Random::new(11);
        let (from, to) = offsets(case);
        let (old, _) = array(case.level, case.old, from, &mut random, &world).await;
        let (new, _) = array(case.level, case.new, to, &mut random, &world).await;
        for (lacks, degraded, goes_on) in [(None, false, true), (Some(1), false, false), (Some(1), true, false)] {
            let mut members = put_together(case, 12288, &old, &new, &world);
            members.iter().for_each(|member| edit(member, &|one| one.resync = Resync::From(Sectors(0))));
            lacks.into_iter().for_each(|index| drop(members.remove(index)));
            let before: Vec<_> = members.iter().map(SimMember::contents).collect();
            let reshaping = Reshaping::of(offer(&members), Pool::new(1 << 20), world.clock()).await;
            let options = AssembleOptions::default();
            match reshaping.expect("members").carry_out(&options, degraded, &|_, _| {}).await {
                Ok(_) => assert!(goes_on, "without {lacks:?}"),
                Err(refusal) => {
                    assert!(!goes_on && refusal.field.as_deref() == Some("superblock.resync_offset"), "{refusal:?}");
                    let after: Vec<_> = members.iter().map(SimMember::contents).collect();
                    assert!(before == after, "without {lacks:?}, {degraded}: something was written");
                }
            }
        }
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn a_position_where_md_would_not_go_on_is_refused() {
    let shape = |slots, kib: u32| Shape { slots, layout: 2, chunk: kib << 10 };
    let case = Case { level: Level::Raid5, old: shape(3, 4), new: shape(4, 4), backwards: false };
    let world = World::new(9);
    let course = async {
        let mut random = Random::new(9);
        let (from, to) = offsets(case);
        let (old, _) = array(case.level, case.old, from, &mut random, &world).await;
        let (new, _) = array(case.level, case.new, to, &mut random, &world).await;
        let refused = async |position, case, change: &dyn Fn(&mut Superblock)| {
            let members = put_together(case, position, &old, &new, &world);
            members.iter().for_each(|member| edit(member, change));
            let refusal =
                read_side(&members, false, &world).await.err().unwrap_or_else(|| panic!("{position} is read"));
            refusal.field.expect("a field")
        };
        let reshape = |superblock: &mut Superblock, change: &dyn Fn(&mut Reshape)| {
            superblock.reshape.iter_mut().for_each(change);
        };
        let position = "superblock.reshape_position";
        assert_eq!(refused(4096, case, &|_| ()).await, position, "no boundary of stripes");
        let too_near = |one: &mut Superblock| one.new_offset = Some(2);
        assert_eq!(refused(12288, case, &too_near).await, position, "over what is still to be read");
        assert_eq!(refused(0, case, &|one| reshape(one, &|to| to.new_level = 6)).await, "superblock.new_level");
        assert_eq!(refused(0, case, &|one| reshape(one, &|to| to.new_chunk = 0)).await, "superblock.new_chunk");
        assert_eq!(refused(0, case, &|one| reshape(one, &|to| to.delta_disks = 4)).await, "superblock.delta_disks");
        assert_eq!(refused(0, case, &|one| reshape(one, &|to| to.new_layout = 99)).await, "superblock.layout");
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn a_member_that_is_left_out_does_not_say_where_the_data_moved() {
    let shape = |slots| Shape { slots, layout: 0x102, chunk: 4096 };
    let case = Case { level: Level::Raid10, old: shape(4), new: shape(5), backwards: false };
    let world = World::new(10);
    let course = async {
        let mut random = Random::new(10);
        let (from, to) = offsets(case);
        let (old, _) = array(case.level, case.old, from, &mut random, &world).await;
        let (new, bytes) = array(case.level, case.new, to, &mut random, &world).await;
        let members = put_together(case, 8192, &old, &new, &world);
        members[1..].iter().for_each(|member| edit(member, &|superblock| superblock.events += 9));
        edit(&members[0], &|superblock| {
            // It failed before the reshape began.
            (superblock.reshape, superblock.new_offset, superblock.raid_disks) = (None, None, 4);
            superblock.roles.truncate(4);
        });
        let array = read_side(&members, false, &world).await.expect("the others have all the data");
        let read = array.read(0, array.pool().take(8192)).await.expect("it can be read");
        assert!(*read == bytes[..8192], "the new shape");
        let left_out: Vec<_> = array.status().left_out.into_iter().map(|left_out| left_out.name).collect();
        assert_eq!(left_out, [members[0].name()]);
    };
    world.run(course, || false).expect("the power does not go");
}

#[test]
fn members_of_the_same_age_that_say_another_reshape_are_refused() {
    let shape = |slots| Shape { slots, layout: 2, chunk: 4096 };
    let case = Case { level: Level::Raid5, old: shape(3), new: shape(4), backwards: false };
    let world = World::new(11);
    let course = async {
        let mut random = Random::new(11);
        let (from, to) = offsets(case);
        let (old, _) = array(case.level, case.old, from, &mut random, &world).await;
        let (new, _) = array(case.level, case.new, to, &mut random, &world).await;
        for (what, change) in [
            ("another position", (|reshape| reshape.position = Sectors(0)) as fn(&mut Reshape)),
            ("another layout", |reshape| reshape.new_layout = 0),
            ("the other direction", |reshape| reshape.backwards = true),
        ] {
            let members = put_together(case, 12288, &old, &new, &world);
            edit(&members[2], &|superblock| superblock.reshape.iter_mut().for_each(change));
            for force in [false, true] {
                let refusal =
                    read_side(&members, force, &world).await.err().unwrap_or_else(|| panic!("{what} is read"));
                assert_eq!(refusal.field.as_deref(), Some("superblock.reshape_position"), "{what}: {refusal}");
                assert_eq!(refusal.member, Some(members[2].name()), "{what}: {refusal}");
            }
        }
    };
    world.run(course, || false).expect("the power does not go");
}

/// What a reshape in place has left of an array: the members, the bytes that are right, and the critical section.
struct InPlace {
    members: Vec<SimMember>,
    right: Vec<u8>,
    section: Range<u64>,
}

/// A reshape in place at `position`: up to there the bytes of one array, from the end of the critical section on those of
/// another, and noise in between.
async fn in_place(case: Case, position: u64, random: &mut Random, world: &World) -> InPlace {
    let (old_images, old) = array(case.level, case.old, FIRST_AT, random, world).await;
    let (new_images, new) = array(case.level, case.new, FIRST_AT, random, world).await;
    let parities = if case.level == Level::Raid6 { 2 } else { 1 };
    let row = |shape: Shape| u64::from(shape.chunk) * u64::from(shape.slots - parities);
    let part = (1..).map(|count| count * row(case.old)).find(|bytes| bytes.is_multiple_of(row(case.new))).expect("one");
    let data = u64::from(case.new.slots - parities);
    let section = match case.old.slots.cmp(&case.new.slots) {
        Ordering::Less => position..part,
        Ordering::Equal => position..position + 2 * part.max(2 * row(case.new)),
        Ordering::Greater => 0..position,
    };
    let (_, count) = (assert!(section.end <= old.len().min(new.len()) as u64), old_images.len().max(new_images.len()));
    let member = |index: usize| {
        let mut image = old_images.get(index).unwrap_or(&new_images[index.min(new_images.len() - 1)]).clone();
        let at = |byte: u64| (FIRST_AT + byte / data) as usize;
        let moved = if case.backwards { at(section.end)..at(0) + COMPONENT as usize } else { at(0)..at(section.start) };
        if let Some(new) = new_images.get(index) {
            image[moved.clone()].copy_from_slice(&new[moved]);
        }
        random.fill(&mut image[at(section.start)..at(section.end)]);
        // The first stripe was moved, without a record.
        if let Some(new) = new_images.get(index).filter(|_| !case.backwards) {
            let first = at(section.start)..at(section.start) + case.old.chunk.max(case.new.chunk) as usize;
            image[first.clone()].copy_from_slice(&new[first]);
        }
        let mut superblock = reshaping(case, position, index, count, &old_images[0]);
        superblock.new_offset = None;
        let encoded = superblock.encode();
        image[SUPER_AT..SUPER_AT + encoded.len()].copy_from_slice(&encoded);
        SimMember::new(format!("m{index}"), world, image, Rc::default())
    };
    let members = (0..count).map(member).collect();
    let mut right = vec![0; old.len().min(new.len())];
    random.fill(&mut right);
    let moved = if case.backwards { position } else { position + u64::from(case.old.chunk.max(case.new.chunk)) * data };
    let is_known = |at: &u64| !section.contains(at) || (!case.backwards && *at < moved);
    for (at, byte) in right.iter_mut().enumerate().filter(|(at, _)| is_known(&(*at as u64))) {
        let is_new = if case.backwards { at as u64 >= position } else { (at as u64) < moved };
        *byte = if is_new { new[at] } else { old[at] };
    }
    InPlace { members, right, section }
}

/// mdadm's backup of these two parts of the array, behind `before` bytes.
fn backup(of: &InPlace, parts: [Range<u64>; 2], before: usize, change: &dyn Fn(&mut Vec<u8>)) -> Vec<u8> {
    let superblock = superblock_of(&of.members[0].contents());
    let sectors = |bytes: u64| (bytes / 512).to_le_bytes();
    let length = |part: &Range<u64>| sectors(part.end - part.start);
    let mut header = b"md_backup_data-2".to_vec();
    header.extend(superblock.set_uuid);
    header.extend(superblock.updated.seconds.to_le_bytes());
    header.extend([sectors(before as u64 + 4096), sectors(parts[0].start), length(&parts[0])].concat());
    let sum = (0..64).fold(0_u32, |sum, _| (sum << 3).wrapping_add(b'm'.into())).to_le_bytes();
    header.extend([sum, [0; 4]].concat());
    header.extend([length(&parts[0]), sectors(parts[1].start), length(&parts[1])].concat());
    header.extend(sum);
    change(&mut header);
    header.resize(4096, 0);
    let bytes = |part: &Range<u64>| &of.right[part.start as usize..part.end as usize];
    [&header[..], bytes(&parts[0]), bytes(&parts[1]), &[0; 4096]].concat()
}

const IN_PLACE: [(Level, Shape, Shape, &[u64]); 5] = {
    use Level::{Raid5, Raid6};
    const fn shape(slots: u16, layout: u32, kib: u32) -> Shape {
        Shape { slots, layout, chunk: kib << 10 }
    }
    [
        (Raid5, shape(4, 2, 4), shape(4, 2, 8), &[0, 1, 3]),
        (Raid5, shape(4, 2, 8), shape(4, 0, 4), &[0, 2]),
        (Raid6, shape(5, 18, 4), shape(5, 2, 4), &[0, 5]),
        (Raid5, shape(3, 2, 8), shape(4, 2, 8), &[0, 1]),
        (Raid5, shape(5, 2, 8), shape(4, 2, 8), &[4, 2, 1]),
    ]
};

/// Each reshape in place, at each of its positions.
fn each_in_place(seed: u64, look: impl AsyncFn(Case, InPlace, &mut Random, &World)) {
    for (seed, (level, old, new, rows)) in (seed..).zip(IN_PLACE) {
        let world = World::new(seed);
        let case = Case { level, old, new, backwards: new.slots < old.slots };
        let course = async {
            let mut random = Random::new(seed);
            let parities = if level == Level::Raid6 { 2 } else { 1 };
            let row = u64::from(old.chunk.max(new.chunk)) * u64::from(new.slots - parities);
            for position in rows.iter().map(|number| number * row) {
                let left = in_place(case, position, &mut random, &world).await;
                look(case, left, &mut random, &world).await;
            }
        };
        world.run(course, || false).expect("the power does not go");
    }
}

#[test]
fn a_critical_section_is_read_from_its_backup_or_not_at_all() {
    each_in_place(20, async |case, left, random, world| {
        let InPlace { members, right, section } = &left;
        let middle = section.start + (section.end - section.start) / 1024 * 512;
        let parts = [middle..section.end, section.start..middle];
        let file = SimMember::new("backup".to_owned(), world, backup(&left, parts, 0, &|_| ()), Rc::default());
        for missing in [None, Some(random.within(0..members.len() as u64) as usize)] {
            let here = members.iter().enumerate().filter(|(index, _)| Some(*index) != missing);
            let here: Vec<_> = here.map(|(_, member)| member.clone()).collect();
            for backup in [None, Some(&file)] {
                let context = format!("{case:?}, {section:?}, without {missing:?}, backup: {}", backup.is_some());
                let array = read_with(&here, backup, false, world).await;
                let array = array.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
                let warnings = array.status().warnings.join("\n");
                let named = if backup.is_some() { "are read from mdadm's backup, backup" } else { "--backup-file" };
                assert!(warnings.contains(named), "{context}: {warnings}");
                for _ in 0..40 {
                    let start = random.within(0..array.bytes());
                    let end = random.within(start + 1..(start + 50_000).min(array.bytes()) + 1);
                    let read = array.read(start, array.pool().take((end - start) as usize)).await;
                    match read {
                        Ok(read) => {
                            assert!(*read == right[start as usize..end as usize], "{context}: {start} to {end}");
                            let is_in = start < section.end && section.start < end;
                            assert!(backup.is_some() || !is_in, "{context}: {start} to {end} is read");
                        }
                        Err(error) => {
                            assert!(backup.is_none(), "{context}: {error}");
                            // Without a backup, nothing says where mdadm made md wait.
                            let is_before = if case.backwards { start >= section.end } else { end <= section.start };
                            assert!(!is_before, "{context}: {start} to {end}: {error}");
                            assert!(error.reason.contains("half written"), "{context}: {error}");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn a_new_member_may_have_the_backup() {
    each_in_place(30, async |case, left, _, world| {
        let section = left.section.clone();
        let before = (FIRST_AT + COMPONENT) as usize - 4096 - (section.end - section.start) as usize - 4096;
        let parts = [section.start..section.end, section.end..section.end];
        let saved = backup(&left, parts, before, &|_| ());
        for member in [0, left.members.len() - 1] {
            let held = left.members[member].contents();
            let end = before + saved.len() - 4096;
            left.members[member].plant(before as u64, &saved[..saved.len() - 4096]);
            left.members[member].plant(end as u64, &saved[..512]);
            let array = read_with(&left.members, None, false, world).await.expect("readable");
            let read = array.read(section.start, array.pool().take((section.end - section.start) as usize)).await;
            // mdadm looks for it on no member that the array had before.
            assert_eq!(read.is_ok(), case.old.slots < case.new.slots && member > 0, "{case:?}: on {member}");
            if let Ok(read) = read {
                assert!(*read == left.right[section.start as usize..section.end as usize], "{case:?}");
            }
            left.members[member].plant(0, &held);
        }
    });
}

#[test]
fn a_backup_that_mdadm_would_not_restore_is_refused_by_its_field() {
    each_in_place(40, async |case, left, _, world| {
        let section = left.section.clone();
        let parts = [section.start..section.end, section.end..section.end];
        type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
        let changes: [(&str, Change<'_>); 8] = [
            ("backup.magic", &|header| header[3] = b'B'),
            ("backup.sb_csum", &|header| header[64] ^= 1),
            ("backup.sb_csum2", &|header| header[96] ^= 1),
            ("backup.set_uuid", &|header| header[16] ^= 1),
            ("backup.mtime", &|header| header[37] = 1),
            ("backup.devstart", &|header| header[40] = 16),
            ("backup.length", &|header| header[56..64].fill(0)),
            ("backup.arraystart", &|header| header[52] = 1),
        ];
        for (field, change) in changes {
            let bytes = backup(&left, parts.clone(), 0, change);
            let file = SimMember::new("backup".to_owned(), world, bytes, Rc::default());
            let refusal = read_with(&left.members, Some(&file), false, world).await.err();
            let refusal = refusal.unwrap_or_else(|| panic!("{field} is taken: {case:?}"));
            assert_eq!(refusal.field.as_deref(), Some(field), "{case:?}: {refusal}");
            assert_eq!(refusal.member.as_deref(), Some("backup"), "{field}: {refusal}");
            let forced = read_with(&left.members, Some(&file), true, world).await;
            assert_eq!(forced.is_ok(), field == "backup.mtime", "{field}: only the time may be another");
        }
        // As if mdadm had read the members when the reshape had come further.
        let mut late = backup(&left, parts.clone(), 0, &|_| ());
        late[4096] ^= 1;
        let file = SimMember::new("backup".to_owned(), world, late, Rc::default());
        let refusal = read_with(&left.members, Some(&file), false, world).await.err();
        assert_eq!(refusal.is_none(), case.backwards, "{case:?}: {refusal:?}");
        assert!(refusal.is_none_or(|refusal| refusal.field.as_deref() == Some("backup.arraystart")), "{case:?}");
        read_with(&left.members, Some(&file), true, world).await.expect("by force");
        let mut short = backup(&left, parts.clone(), 0, &|_| ());
        short.truncate(8192);
        let file = SimMember::new("backup".to_owned(), world, short, Rc::default());
        let refusal = read_with(&left.members, Some(&file), false, world).await.err().expect("it is short");
        assert_eq!(refusal.field.as_deref(), Some("backup.length"), "{refusal}");
    });
}
