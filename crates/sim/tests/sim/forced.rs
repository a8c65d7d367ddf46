//! Arrays that were assembled by force. Power is cut at every write and flush while they write their superblocks. What
//! is left can be assembled with the same contents, if need be by force; after a stop, without force.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Pool, Refusal};
use format::geometry::Level;
use format::placement::BitmapChoice;
use format::superblock::Version;
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::Cell;
use std::rc::Rc;

type Simulated = Array<SimMember, VirtualClock>;

const MEMBER_BYTES: usize = 96 << 10;

async fn assemble(members: &[SimMember], world: &World, force: bool) -> Result<Simulated, Refusal> {
    let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
    let options = AssembleOptions { force, ..AssembleOptions::default() };
    Array::assemble(members.iter().map(candidate).collect(), options, Pool::new(1 << 20), world.clock()).await
}

async fn read_all(array: &Simulated) -> Vec<u8> {
    array.read(0, array.pool().take(array.bytes() as usize)).await.expect("it can be read").to_vec()
}

/// Creates, fills and stops an array; returns its contents.
async fn make(level: Level, bitmap: BitmapChoice, members: &[SimMember], world: &World) -> Vec<u8> {
    let recipe = Recipe {
        layout: if level == Level::Raid10 { 0x102 } else { 2 },
        chunk_bytes: 4096,
        name: "sim:forced".to_owned(),
        data_offset_bytes: Some(32 << 10),
        component_bytes: Some(64 << 10),
        bitmap,
        contents: Contents::Zeros,
        ..Recipe::new(level, [7; 16])
    };
    let newcomer = |(index, member): (usize, &SimMember)| {
        let candidate = Candidate { name: member.name(), member: member.clone() };
        Some(Newcomer { candidate, device_uuid: [index as u8; 16] })
    };
    let newcomers: Vec<_> = members.iter().enumerate().map(newcomer).collect();
    create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &world.clock(), &|_, _| {})
        .await
        .expect("the array is created");
    let array = assemble(members, world, false).await.expect("whole");
    let bytes: Vec<u8> = (0..array.bytes()).map(|at| (at / 512 * 5 + at % 241) as u8).collect();
    array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("it is written");
    array.stop().await.expect("it is clean");
    bytes
}

#[test]
fn a_power_cut_while_a_forced_array_writes_its_superblocks_loses_nothing() {
    let setups = [
        (Level::Raid5, BitmapChoice::None, 4, 1),
        (Level::Raid5, BitmapChoice::Chunk(4096), 4, 1),
        (Level::Raid6, BitmapChoice::None, 5, 2),
        (Level::Raid10, BitmapChoice::Chunk(4096), 4, 1),
        (Level::Raid0, BitmapChoice::None, 3, 0),
    ];
    for (level, bitmap, slots, bears) in setups {
        for seed in 0..3 {
            let world = World::new(seed);
            let boundaries = Rc::new(Cell::new(0));
            let member = |index| SimMember::new(format!("m{index}"), &world, vec![0; MEMBER_BYTES], boundaries.clone());
            let members: Vec<_> = (0..slots).map(member).collect();
            let bytes = world.run(make(level, bitmap, &members, &world), || false).expect("the power does not go");
            // The stale members: more than the level survives (for RAID-10 one pair), ten events behind.
            let lost = if level == Level::Raid10 { 2 } else { bears + 1 };
            for member in &members[lost..] {
                forge_events(member);
            }
            let first = boundaries.get() + 1;
            let cuts = Cell::new(first);
            let look_at_each = || {
                while cuts.get() <= boundaries.get() {
                    look(&members, &bytes, seed, &format!("{level:?} {bitmap:?} seed {seed} cut {}", cuts.get()));
                    cuts.set(cuts.get() + 1);
                }
                false
            };
            let course = async {
                assert!(assemble(&members, &world, false).await.is_err(), "{level:?}: too few are current");
                let array = assemble(&members, &world, true).await.expect("it is forced");
                assert_eq!(read_all(&array).await, bytes);
                array.stop().await.expect("it is told");
                let array = assemble(&members, &world, false).await.unwrap_or_else(|refusal| panic!("{refusal}"));
                assert_eq!(read_all(&array).await, bytes);
            };
            world.run(course, look_at_each).expect("the power does not go");
            assert!(cuts.get() > first + 2 * slots as u64, "{level:?}: each member is written and flushed");
        }
    }
}

#[test]
fn parity_that_a_lockless_bitmap_does_not_call_clean_is_not_trusted() {
    let world = World::new(6);
    let course = async {
        let member = |index| SimMember::new(format!("m{index}"), &world, vec![0; MEMBER_BYTES], Rc::default());
        let members: Vec<_> = (0..3).map(member).collect();
        let bytes = make(Level::Raid5, BitmapChoice::Chunk(4096), &members, &world).await;
        let open = async |members: &[SimMember], force| {
            let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
            let members = members.iter().map(candidate).collect();
            let options = AssembleOptions { force, read_only: true, ..AssembleOptions::default() };
            Array::assemble(members, options, Pool::new(1 << 20), world.clock()).await
        };
        // 16 chunks of 4 KiB; one of them has a state other than clean, or none has. What one member calls unwritten, and
        // the others clean, is not trusted either.
        for (state, is_trusted) in [(1, true), (0, false), (2, true), (3, false), (4, false), (5, false), (255, false)]
        {
            for member in &members {
                let at = superblock_of(member).bitmap_at().expect("it has one").0;
                member.plant(at + 4, &[6]);
                member.plant(at + 52, &8_u32.to_le_bytes()); // sectors of a chunk
                member.plant(at + 1024, &[1; 16]);
            }
            let at = superblock_of(&members[0]).bitmap_at().expect("it has one").0;
            members[0].plant(at + 1024 + 5, &[state]);
            assert_eq!(read_all(&open(&members, false).await.expect("whole")).await, bytes);
            match open(&members[..2], false).await {
                Ok(array) => assert!(is_trusted && read_all(&array).await == bytes, "{state}"),
                Err(refusal) => assert!(!is_trusted && refusal.reason.contains("lockless"), "{state}: {refusal}"),
            }
            assert_eq!(read_all(&open(&members[..2], true).await.expect("by force")).await, bytes);
        }
    };
    world.run(course, || false).expect("the power does not go");
}

fn superblock_of(member: &SimMember) -> format::superblock::Superblock {
    let image = member.contents();
    format::superblock::decode(Version::V1_2, format::units::MemberByte(4096), &image[4096..8192], image.len() as u64)
        .expect("it is right")
        .expect("it is there")
}

/// Adds ten events and corrects the checksum. Roles stay as they are, as on members whose old images were restored.
fn forge_events(member: &SimMember) {
    let mut superblock = superblock_of(member);
    superblock.events += 10;
    member.plant(4096, &superblock.encode());
}

/// Checks what a power cut leaves.
fn look(members: &[SimMember], bytes: &[u8], seed: u64, context: &str) {
    let mut random = Random::new(seed);
    let world = World::new(seed);
    let left: Vec<_> = members
        .iter()
        .map(|member| SimMember::new(member.name(), &world, member.after_power_loss(&mut random), Rc::default()))
        .collect();
    let course = async {
        let array = match assemble(&left, &world, false).await {
            Ok(array) => array,
            Err(_) => assemble(&left, &world, true).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}")),
        };
        assert!(read_all(&array).await == bytes, "{context}");
        array.resync(&|_, _| {}).await.unwrap_or_else(|error| panic!("{context}: {error}"));
        array.stop().await.unwrap_or_else(|error| panic!("{context}: {error}"));
        let array = assemble(&left, &world, false).await.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        assert!(read_all(&array).await == bytes, "{context}: after a stop");
    };
    world.run(course, || false).expect("the power does not go");
}
