//! Creates an array over another one and cuts power at every write and flush. This leaves the old array with its data,
//! the new one, or none; never the superblocks of one over data of the other. Further tests: creation over what may be
//! a superblock, and members that fail during creation.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Operation, Pool, Refusal};
use format::geometry::Level;
use format::superblock::{Version, decode, places};
use mdspace_sim::faults::{Mishap, Planned};
use mdspace_sim::{Random, SimMember, World};
use std::cell::Cell;
use std::rc::Rc;

const MEMBERS: usize = 3;
const MEMBER_BYTES: usize = 256 << 10;
const OLD: [u8; 16] = *b"the old array...";
const NEW: [u8; 16] = *b"the new array...";

fn recipe(version: Version, set_uuid: [u8; 16], contents: Contents) -> Recipe {
    Recipe {
        version,
        layout: 2,
        chunk_bytes: 4096,
        name: "sim:made".to_owned(),
        data_offset_bytes: (!version.is_at_end()).then_some(64 << 10),
        component_bytes: Some(64 << 10),
        contents,
        overwrite: true,
        ..Recipe::new(Level::Raid5, set_uuid)
    }
}

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

async fn try_to_make(recipe: Recipe, members: &[SimMember], world: &World) -> Result<(), Refusal> {
    let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
    let newcomers: Vec<_> = candidates(members).into_iter().enumerate().map(newcomer).collect();
    create(&recipe, &newcomers, &[], &Pool::new(8 << 20), &world.clock(), &|_, _| {}).await
}

async fn make(recipe: Recipe, members: &[SimMember], world: &World) {
    try_to_make(recipe, members, world).await.expect("the array is created");
}

/// Versions other than `version` at whose positions something begins as a superblock.
fn strays(member: &SimMember, version: Version) -> Vec<Version> {
    let image = member.image();
    let is_there = |(other, at): &(Version, format::units::MemberByte)| {
        let place = &image[at.0 as usize..at.0 as usize + 4096];
        *other != version && !matches!(decode(*other, *at, place, image.len() as u64), Ok(None))
    };
    places(image.len() as u64).into_iter().filter(is_there).map(|(other, _)| other).collect()
}

/// The array's identity and contents, if there is one.
async fn look(members: &[SimMember], world: &World) -> Option<(String, Vec<u8>)> {
    let options = AssembleOptions { read_only: true, ..AssembleOptions::default() };
    let array = Array::assemble(candidates(members), options, Pool::new(1 << 20), world.clock()).await.ok()?;
    let bytes = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("the members are there");
    Some((array.status().uuid, bytes.to_vec()))
}

#[test]
fn creation_over_another_array_leaves_the_old_one_the_new_one_or_none() {
    use Contents::{Consistent, Unknown};
    for (old, new, contents) in [
        (Version::V1_2, Version::V1_2, Unknown),
        (Version::V1_0, Version::V1_2, Unknown),
        (Version::V1_1, Version::V1_0, Unknown),
        (Version::V1_0, Version::V1_2, Consistent),
        (Version::V1_2, Version::V1_1, Consistent),
    ] {
        let mut seen = [0; 3];
        for cut in 1.. {
            let mut random = Random::new(cut);
            let world = World::new(random.number());
            let boundaries = Rc::new(Cell::new(0));
            let member =
                |index| SimMember::new(format!("member{index}"), &world, vec![0; MEMBER_BYTES], boundaries.clone());
            let members: Vec<_> = (0..MEMBERS).map(member).collect();
            let mut data = Vec::new();
            let before = async {
                make(recipe(old, OLD, Contents::Consistent), &members, &world).await;
                let array = Array::assemble(
                    candidates(&members),
                    AssembleOptions::default(),
                    Pool::new(1 << 20),
                    world.clock(),
                );
                let array = array.await.expect("it was made");
                data = vec![0; array.bytes() as usize];
                random.fill(&mut data);
                array.write(0, array.pool().copy_of(&data), Durability::Stable).await.expect("whole");
                array.stop().await.expect("whole");
            };
            world.run(before, || false);

            boundaries.set(0);
            let done = world.run(make(recipe(new, NEW, contents), &members, &world), || boundaries.get() >= cut);
            if done.is_some() {
                members.iter().for_each(|member| assert_eq!(strays(member, new), [], "{new} over {old}, {contents:?}"));
            }
            let world = World::new(random.number());
            let left: Vec<_> = members
                .iter()
                .map(|member| {
                    SimMember::new(member.name(), &world, member.after_power_loss(&mut random), Rc::default())
                })
                .collect();
            let found = world.run(look(&left, &world), || false).expect("not stopped");
            let context = format!("{new} over {old}, {contents:?}, cut {cut}");
            match found {
                None => seen[0] += 1,
                Some((uuid, bytes)) if uuid == engine::status::uuid_text(&OLD) => {
                    assert!(bytes == data, "{context}: the old array without its data");
                    seen[1] += 1;
                }
                Some((_, bytes)) => {
                    let is_zeros = || bytes.iter().all(|byte| *byte == 0);
                    assert!(contents == Consistent || is_zeros(), "{context}: the new array with old data");
                    seen[2] += 1;
                }
            }
            if done.is_some() {
                assert!(seen.iter().all(|count| *count > 0), "{context}: {seen:?} is not all there is");
                break;
            }
        }
    }
}

/// Three empty members in a world of their own.
fn blanks() -> (World, Rc<Cell<u64>>, Vec<SimMember>) {
    let (world, boundaries) = (World::new(5), Rc::new(Cell::new(0)));
    let blank = |index| SimMember::new(format!("member{index}"), &world, vec![0; MEMBER_BYTES], boundaries.clone());
    let members = (0..MEMBERS).map(blank).collect();
    (world, boundaries, members)
}

#[test]
fn a_resync_that_creation_leaves_for_later_makes_parity_right() {
    let (world, _, members) = blanks();
    let mut random = Random::new(7);
    for member in &members {
        let mut old = vec![0; MEMBER_BYTES];
        random.fill(&mut old);
        member.plant(0, &old);
    }
    let recipe = |contents| Recipe { resync_later: true, ..recipe(Version::V1_2, NEW, contents) };
    let assembled = async |members: &[SimMember]| {
        let options = AssembleOptions::default();
        Array::assemble(candidates(members), options, Pool::new(1 << 20), world.clock()).await.expect("it was made")
    };
    let all = async |array: &Array<SimMember, _>| {
        array.read(0, array.pool().take(array.bytes() as usize)).await.expect("no member failed").to_vec()
    };
    let test = async {
        make(recipe(Contents::Unknown), &members, &world).await;
        let array = assembled(&members).await;
        let before = all(&array).await;
        assert!(!array.status().in_agreement && before.iter().any(|byte| *byte != 0), "nothing was filled with zeros");
        array.resync(&|_, _| {}).await.expect("no member failed");
        array.stop().await.expect("whole");
        for missing in 0..MEMBERS {
            let others: Vec<_> = members.iter().enumerate().filter(|(index, _)| *index != missing).collect();
            let others: Vec<_> = others.into_iter().map(|(_, member)| member.clone()).collect();
            let (_, bytes) = look(&others, &world).await.expect("one may be missing");
            assert!(bytes == before, "without member {missing}");
        }

        // Where a member is missing, its data is lost unless parity is right from the start.
        let newcomer =
            |(index, candidate)| (index > 0).then_some(Newcomer { candidate, device_uuid: [index as u8; 16] });
        let slots: Vec<_> = candidates(&members).into_iter().enumerate().map(newcomer).collect();
        let (recipe, pool) = (recipe(Contents::Unknown), Pool::new(8 << 20));
        create(&recipe, &slots, &[], &pool, &world.clock(), &|_, _| {}).await.expect("it is created");
        let array = assembled(&members[1..]).await;
        assert!(array.status().in_agreement && all(&array).await.iter().all(|byte| *byte == 0));
        array.stop().await.expect("no other failed");
    };
    world.run(test, || false).expect("it ends");
}

#[test]
fn an_unreadable_or_unknown_superblock_is_overwritten_only_when_asked() {
    type Spoil = fn(&SimMember, u64);
    let spoils: [(&str, Spoil, &str); 2] = [
        ("unreadable", |member, at| member.faults().latent.borrow_mut().push(at..at + 512), "superblock: read of"),
        ("magic", |member, at| member.plant(at, &0xa92b_4efc_u32.to_le_bytes()), "superblock."),
    ];
    for (what, spoil, words) in spoils {
        for (version, at) in places(MEMBER_BYTES as u64) {
            let (world, boundaries, members) = blanks();
            spoil(&members[1], at.0);
            let ask = |overwrite| Recipe { overwrite, ..recipe(Version::V1_2, NEW, Contents::Consistent) };
            let life = async {
                let refusal = try_to_make(ask(false), &members, &world).await.expect_err("it may be a member's");
                let text = refusal.to_string();
                assert!(text.starts_with(&format!("member1: {words}")), "{what} {version}: {text}");
                assert!(text.contains("--force") && refusal.changed.is_none(), "{what} {version}: {text}");
                assert_eq!(boundaries.get(), 0, "{what} {version}: something was written");
                make(ask(true), &members, &world).await;
                assert_eq!(strays(&members[1], Version::V1_2), [], "{what} {version}");
                look(&members, &world).await.expect("it was made");
            };
            world.run(life, || false).expect("the run is not stopped");
        }
    }
}

#[test]
fn the_refusal_names_a_member_that_fails_during_creation_and_what_was_changed() {
    for (stage, words) in [(0, "old superblocks may be"), (1, "old contents are lost"), (2, "some members have")] {
        let (world, boundaries, members) = blanks();
        let life = async {
            make(recipe(Version::V1_0, OLD, Contents::Consistent), &members, &world).await;
            let written = boundaries.get();
            let fault = Planned { operation: Operation::Flush, after: stage, mishap: Mishap::Fail };
            members[1].faults().planned.borrow_mut().push(fault);
            let made = try_to_make(recipe(Version::V1_2, NEW, Contents::Unknown), &members, &world).await;
            let refusal = made.expect_err("a member failed");
            assert_eq!(refusal.member.as_deref(), Some("member1"), "{refusal}");
            assert!(refusal.changed.as_ref().is_some_and(|changed| changed.contains(words)), "{stage}: {refusal}");
            assert!(boundaries.get() > written && refusal.advice.is_some(), "{stage}: {refusal}");
        };
        world.run(life, || false).expect("the run is not stopped");
    }
}
