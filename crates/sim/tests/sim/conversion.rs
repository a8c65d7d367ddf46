//! Metadata 0.90 becomes 1.0. Power is cut at every write and flush, and once more at a random moment while the array is
//! used as it is then. It assembles with all its members and its data each time, and the repeated conversion completes it.

use super::grow::{OLD_COMPONENT, RAID1, RAID5, Setup, after_power_loss, assemble, blank, make};
use engine::conversion::{Conversion, check_together, convert, plan};
use engine::{Array, AssembleOptions, Candidate, Durability, Member as _, Pool, Refusal};
use format::geometry::Level;
use format::superblock::{DeviceRole, Version};
use mdspace_sim::{Random, SimMember, World};
use std::cell::Cell;
use std::rc::Rc;

const OLD: Setup = Setup { version: Version::V0_90, component: OLD_COMPONENT, ..RAID5 };
const SETUPS: [Setup; 4] = [
    OLD,
    Setup { level: Level::Raid6, slots: 4, ..OLD },
    Setup { slots: 3, missing: &[1], version: Version::V0_90, ..RAID1 },
    Setup { version: Version::V0_90, ..RAID1 },
];

async fn plans(members: &[SimMember]) -> Result<Vec<Conversion>, Refusal> {
    let pool = Pool::new(1 << 20);
    let mut planned = Vec::new();
    for (index, member) in members.iter().enumerate() {
        planned.push(plan(&member.name(), member, &pool, [index as u8 + 1; 16], false).await?);
    }
    let names: Vec<String> = members.iter().map(SimMember::name).collect();
    check_together(names.iter().map(|name| &**name).zip(&planned))?;
    Ok(planned)
}

async fn change(members: &[SimMember]) -> Result<(), Refusal> {
    let planned = plans(members).await?;
    let names: Vec<String> = members.iter().map(SimMember::name).collect();
    let all = names.iter().zip(members).zip(&planned).map(|((name, member), plan)| (&**name, member, plan));
    convert(&all.collect::<Vec<_>>(), &Pool::new(1 << 20)).await
}

/// Overwrites a part of the array with its own contents.
async fn use_it(members: &[SimMember], data: &[u8], world: &World) {
    let array = assemble(members, world).await;
    array.write(1000, array.pool().copy_of(&data[1000..7000]), Durability::Stable).await.expect("enough members");
    array.stop().await.expect("enough members");
}

async fn is_whole(members: &[SimMember], data: &[u8], world: &World, context: &str) {
    let array = assemble(members, world).await;
    let status = array.status();
    assert_eq!(usize::from(status.in_sync), members.len(), "{context}: not all members take part: {status:?}");
    let bytes = array.read(0, array.pool().take(data.len())).await.expect("the members are there");
    assert!(bytes[..] == *data, "{context}: other data");
    array.resync(&|_, _| {}).await.expect("nothing fails");
    array.write(0, array.pool().copy_of(&data[..512]), Durability::Stable).await.expect("nothing fails");
    array.stop().await.expect("nothing fails");
}

#[test]
fn an_array_assembles_with_all_its_members_and_its_data_whenever_the_power_goes() {
    for setup in SETUPS {
        let mut seen = [0; 3];
        for cut in 0.. {
            let context = format!("{setup:?} cut {cut}");
            let mut random = Random::new(cut);
            let (world, boundaries) = (World::new(random.number()), Rc::<Cell<u64>>::default());
            let members = blank(&setup, &world, &boundaries);
            let mut data = Vec::new();
            world.run(make(&setup, &members, &mut data, &mut random, &world), || false);
            boundaries.set(0);
            let done = world.run(change(&members), || boundaries.get() >= cut);

            let (world, left, boundaries) = after_power_loss(&members, &mut random);
            let mixed = world.run(versions(&left), || false).expect("not stopped");
            let is_mixed = mixed.iter().any(|version| *version != mixed[0]);
            seen[if is_mixed { 1 } else { usize::from(mixed[0] == Version::V1_0) * 2 }] += 1;
            let second = random.within(1..40);
            world.run(use_it(&left, &data, &world), || boundaries.get() >= second);
            let (world, left, boundaries) = after_power_loss(&left, &mut random);
            world.run(is_whole(&left, &data, &world, &context), || false).expect("not stopped");
            boundaries.set(0);
            let repeated = world.run(change(&left), || false).expect("not stopped");
            if let Err(refusal) = repeated {
                assert!(refusal.to_string().contains("1.0 already"), "{context}: {refusal}");
            }
            world.run(is_whole(&left, &data, &world, &context), || false).expect("not stopped");
            let found = world.run(versions(&left), || false).expect("not stopped");
            assert!(found.iter().all(|version| *version == Version::V1_0), "{context}: {found:?}");
            let remains = left.iter().filter(|member| has_old(&member.contents())).count();
            assert_eq!(remains, 0, "{context}: old superblocks are left");
            if let Some(done) = done {
                done.expect("nothing fails");
                break;
            }
        }
        assert!(seen.iter().all(|count| *count > 0), "{setup:?}: {seen:?} is not all there is");
    }
}

/// The versions that count.
async fn versions(members: &[SimMember]) -> Vec<Version> {
    let mut found = Vec::new();
    for member in members {
        let superblock = engine::inspect::find_superblock(&member.name(), member, &Pool::new(1 << 20)).await;
        found.push(superblock.expect("each has one").superblock.version);
    }
    found
}

fn has_old(contents: &[u8]) -> bool {
    let bytes = contents.len() as u64;
    let at = Version::V0_90.place(bytes).expect("it is long enough");
    !matches!(format::superblock::decode(Version::V0_90, at, &contents[at.0 as usize..], bytes), Ok(None))
}

/// A half of a mirror that was used with its old superblock alone is not taken for converted.
#[test]
fn a_member_that_was_used_apart_is_refused() {
    let setup = SETUPS[3];
    let (world, boundaries) = (World::new(1), Rc::<Cell<u64>>::default());
    let members = blank(&setup, &world, &boundaries);
    let course = async {
        make(&setup, &members, &mut Vec::new(), &mut Random::new(1), &world).await;
        change(&members[..1]).await.expect("nothing fails");
        let alone = &members[1..];
        let array = assemble(alone, &world).await;
        array.write(0, array.pool().copy_of(&[1; 4096]), Durability::Stable).await.expect("one is enough");
        array.stop().await.expect("nothing fails");
        let all = members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect();
        let array = Array::assemble(all, AssembleOptions::default(), Pool::new(1 << 20), world.clock()).await;
        let refusal = array.map(|array| array.status()).expect_err("they were used apart");
        assert_eq!(refusal.field.as_deref(), Some("superblock.set_uuid"), "{refusal}");
    };
    world.run(course, || false).expect("not stopped");
}

#[test]
fn what_is_not_clean_or_has_a_bitmap_or_no_room_is_refused_and_nothing_is_written() {
    let bitmap = Setup { bitmap: super::grow::BITMAP, ..SETUPS[3] };
    for (setup, is_in_use, field, words) in [
        (OLD, true, "superblock.state", "not clean"),
        (bitmap, false, "superblock.state", "has a bitmap"),
        (RAID5, false, "superblock.major_version", "only metadata 0.90"),
        (OLD, false, "superblock.super_offset", "is not empty"),
    ] {
        let (world, boundaries) = (World::new(1), Rc::<Cell<u64>>::default());
        let members = blank(&setup, &world, &boundaries);
        let course = async {
            make(&setup, &members, &mut Vec::new(), &mut Random::new(1), &world).await;
            let array = assemble(&members, &world).await;
            if is_in_use {
                array.write(0, array.pool().copy_of(&[1; 512]), Durability::Stable).await.expect("whole");
            }
            if words == "is not empty" {
                let at = Version::V1_0.place(members[1].limits().bytes).expect("it is long enough");
                members[1].write(at, array.pool().copy_of(&[7; 512])).await.expect("nothing fails");
            }
            let written = boundaries.get();
            let refusal = plans(&members).await.expect_err("it is refused");
            assert_eq!(boundaries.get(), written, "{setup:?}: something was written");
            assert_eq!(refusal.field.as_deref(), Some(field), "{setup:?}: {refusal}");
            assert!(refusal.to_string().contains(words) && refusal.member.is_some(), "{setup:?}: {refusal}");
        };
        world.run(course, || false).expect("not stopped");
    }
}

#[test]
fn a_slot_without_a_member_and_the_flags_of_a_member_stay() {
    let setup = SETUPS[2];
    let (world, boundaries) = (World::new(1), Rc::<Cell<u64>>::default());
    let members = blank(&setup, &world, &boundaries);
    let course = async {
        make(&setup, &members, &mut Vec::new(), &mut Random::new(1), &world).await;
        for Conversion { before, after, .. } in plans(&members).await.expect("it is clean") {
            assert_eq!((after.events, after.updated), (before.events, before.updated));
            assert_eq!((&after.roles, after.device_flags), (&before.roles, before.device_flags));
            assert!(!matches!(after.roles[1], DeviceRole::Active(_)), "{:?}", after.roles);
        }
    };
    world.run(course, || false).expect("not stopped");
}
