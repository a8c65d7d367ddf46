//! Making an array over another one, with the power gone at every write and
//! flush: what is left is the old array with its data, the new one, or none,
//! and never one array's superblocks over another's data.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Pool};
use format::geometry::Level;
use format::placement::BitmapChoice;
use format::superblock::Version;
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
        level: Level::Raid5,
        layout: 2,
        chunk_bytes: 4096,
        name: "sim:made".to_owned(),
        data_offset_bytes: (!version.is_at_end()).then_some(64 << 10),
        component_bytes: Some(64 << 10),
        bitmap: BitmapChoice::None,
        set_uuid,
        contents,
        integrity: false,
        overwrite: true,
    }
}

fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

async fn make(recipe: Recipe, members: &[SimMember], world: &World) {
    let newcomer = |(index, candidate)| Some(Newcomer { candidate, device_uuid: [index as u8; 16] });
    let newcomers: Vec<_> = candidates(members).into_iter().enumerate().map(newcomer).collect();
    create(&recipe, &newcomers, &[], &Pool::new(8 << 20), &world.clock(), &|_, _| {}).await.expect("it can be made");
}

/// The array's identity and its bytes, if there is one.
async fn look(members: &[SimMember], world: &World) -> Option<(String, Vec<u8>)> {
    let options = AssembleOptions { read_only: true, ..AssembleOptions::default() };
    let array = Array::assemble(candidates(members), options, Pool::new(1 << 20), world.clock()).await.ok()?;
    let bytes = array.read(0, array.pool().take(array.bytes() as usize)).await.expect("the members are there");
    Some((array.status().uuid, bytes.to_vec()))
}

#[test]
fn an_array_made_over_another_is_there_or_not_and_never_half() {
    for (old, new) in [(Version::V1_2, Version::V1_2), (Version::V1_0, Version::V1_2), (Version::V1_1, Version::V1_0)] {
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
            let done =
                world.run(make(recipe(new, NEW, Contents::Unknown), &members, &world), || boundaries.get() >= cut);
            let world = World::new(random.number());
            let left: Vec<_> = members
                .iter()
                .map(|member| {
                    SimMember::new(member.name(), &world, member.after_power_loss(&mut random), Rc::default())
                })
                .collect();
            let found = world.run(look(&left, &world), || false).expect("not stopped");
            let context = format!("{new} over {old}, cut {cut}");
            match found {
                None => seen[0] += 1,
                Some((uuid, bytes)) if uuid == engine::status::uuid_text(&OLD) => {
                    assert!(bytes == data, "{context}: the old array without its data");
                    seen[1] += 1;
                }
                Some((_, bytes)) => {
                    assert!(bytes.iter().all(|byte| *byte == 0), "{context}: the new array with old data");
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
