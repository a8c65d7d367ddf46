//! Members that the real driver used without the others, as modelled by [`mdspace_sim::foreign`]: halves of an array
//! that were used apart, and members that were merely absent.
//!
//! No byte of a half is written until `--add` names its members. The half with more events reads as it was left. Halves
//! with equal event counts are refused. Members that were absent come back as usual.
//! left; halves of one age are refused; what stayed away comes back as it always did.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Clock, Durability, Pool, Refusal};
use format::bitmap::{self, BitmapSuper, SUPER_BYTES};
use format::geometry::{Geometry, Level};
use format::placement::BitmapChoice;
use format::superblock::{Superblock, Version, decode};
use mdspace_sim::foreign::Foreign;
use mdspace_sim::rows::{Row, SECTOR_BYTES, rows};
use mdspace_sim::{Random, SimMember, VirtualClock, World};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

type Simulated = Array<SimMember, VirtualClock>;

const DATA_OFFSET: u64 = 32 << 10;
const COMPONENT_BYTES: u64 = 64 << 10;
const BITMAP_CHUNK: u64 = 4096;

/// An array, and the slots of its halves.
#[derive(Debug, Clone, Copy)]
struct Setup {
    level: Level,
    layout: u32,
    chunk_bytes: u64,
    /// The half that goes on.
    fresh: &'static [usize],
    other: &'static [usize],
    version: Version,
    bitmap: bool,
}

const RAID1: Setup = Setup {
    level: Level::Raid1,
    layout: 0,
    chunk_bytes: 0,
    fresh: &[0],
    other: &[1],
    version: Version::V1_2,
    bitmap: false,
};

fn setups() -> impl Iterator<Item = Setup> {
    let parity = Setup { level: Level::Raid5, layout: 2, chunk_bytes: 4096, ..RAID1 };
    let levels = [
        RAID1,
        Setup { fresh: &[2], other: &[0, 1], ..RAID1 },
        parity,
        Setup { level: Level::Raid6, fresh: &[1, 2], other: &[0, 3], ..parity },
        Setup { level: Level::Raid10, layout: 0x102, fresh: &[1, 3], other: &[0, 2], ..parity },
    ];
    let versions = [Version::V1_0, Version::V1_1, Version::V1_2];
    levels.into_iter().flat_map(move |setup| {
        versions.into_iter().flat_map(move |version| [true, false].map(|bitmap| Setup { version, bitmap, ..setup }))
    })
}

struct Scene {
    setup: Setup,
    world: World,
    random: RefCell<Random>,
    members: Vec<SimMember>,
    rows: Vec<Row>,
    /// The array's contents, as each half has them.
    model: Vec<u8>,
}

fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

impl Scene {
    /// A stopped array full of noise.
    async fn new(setup: Setup, world: World) -> Self {
        let slots = setup.fresh.len() + setup.other.len();
        let blank = |index| {
            let contents = vec![0; (DATA_OFFSET + COMPONENT_BYTES + (32 << 10)) as usize];
            SimMember::new(format!("member{index}"), &world, contents, Rc::default())
        };
        let members: Vec<SimMember> = (0..slots).map(blank).collect();
        let recipe = Recipe {
            version: setup.version,
            layout: setup.layout,
            chunk_bytes: setup.chunk_bytes,
            name: "sim:halves".to_owned(),
            data_offset_bytes: (!setup.version.is_at_end()).then_some(DATA_OFFSET),
            component_bytes: Some(COMPONENT_BYTES),
            bitmap: if setup.bitmap { BitmapChoice::Chunk(BITMAP_CHUNK) } else { BitmapChoice::None },
            contents: Contents::Consistent,
            ..Recipe::new(setup.level, [7; 16])
        };
        let newcomer =
            |(index, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        let (pool, clock) = (Pool::new(1 << 20), world.clock());
        create(&recipe, &newcomers, &[], &pool, &clock, &|_, _| {}).await.expect("the array is created");
        let mut scene =
            Self { setup, world, random: RefCell::new(Random::new(5)), members, rows: Vec::new(), model: Vec::new() };
        let array = scene.assemble(&scene.all()).await.expect("a whole array");
        let mut bytes = vec![0; array.bytes() as usize];
        scene.random.borrow_mut().fill(&mut bytes);
        array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("a whole array");
        array.stop().await.expect("stops clean");
        scene.rows = rows(&Geometry::new(&scene.superblock(0).shape(&[])).expect("it was made"));
        scene.model = bytes;
        scene
    }

    fn all(&self) -> Vec<usize> {
        (0..self.members.len()).collect()
    }

    fn superblock(&self, number: usize) -> Superblock {
        let image = self.members[number].image();
        let at = self.setup.version.place(image.len() as u64).expect("it is long enough");
        let bytes = &image[at.0 as usize..at.0 as usize + 4096];
        decode(self.setup.version, at, bytes, image.len() as u64).expect("well made").expect("one is there")
    }

    async fn assemble(&self, numbers: &[usize]) -> Result<Simulated, Refusal> {
        let candidates = numbers.iter().map(|&number| candidate(&self.members[number])).collect();
        Array::assemble(candidates, AssembleOptions::default(), Pool::new(1 << 20), self.world.clock()).await
    }

    /// Assembles the array as a server does: spares take over and are recovered.
    async fn serve(&self, numbers: &[usize]) -> Result<Simulated, Refusal> {
        let array = self.assemble(numbers).await?;
        let keeper = array.clone();
        self.world.spawn(async move { keeper.keep_whole().await });
        Ok(array)
    }

    /// Lets the real driver use these members alone, with `changes` changes between dirty and clean, and a row written
    /// at each change to dirty. Returns the array's contents afterwards.
    fn use_apart(&self, numbers: &[usize], changes: u64) -> Vec<u8> {
        let members: Vec<SimMember> = numbers.iter().map(|&number| self.members[number].clone()).collect();
        let mut array = Foreign::assemble(&members, 9).expect("md takes them");
        let mut model = self.model.clone();
        for change in 0..changes {
            if change % 2 == 1 {
                array.rest();
                continue;
            }
            let random = &mut *self.random.borrow_mut();
            let row = random.pick(&self.rows);
            let sectors = row.data.iter().map(|datum| {
                let mut bytes = vec![0; SECTOR_BYTES];
                random.fill(&mut bytes);
                model[datum.sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(&bytes);
                bytes
            });
            let sectors: Vec<Vec<u8>> = sectors.collect();
            array.write(row, &sectors);
        }
        model
    }

    fn images(&self, numbers: &[usize]) -> Vec<Vec<u8>> {
        numbers.iter().map(|&number| self.members[number].contents()).collect()
    }

    async fn read(&self, array: &Simulated) -> Vec<u8> {
        array.read(0, array.pool().take(array.bytes() as usize)).await.expect("nothing fails").to_vec()
    }

    async fn rest(&self) {
        let clock = self.world.clock();
        clock.sleep_until(clock.now() + Duration::from_secs(2)).await;
    }

    /// Checks that the array is whole and holds `expected`, also without any one member that it can lose.
    async fn check_whole(&self, array: &Simulated, expected: &[u8], context: &str) {
        self.rest().await;
        let status = array.status();
        assert_eq!(status.in_sync, status.raid_disks, "{context}: {status:?}");
        array.stop().await.expect("stops clean");
        for left_out in self.all() {
            let rest: Vec<usize> = self.all().into_iter().filter(|number| *number != left_out).collect();
            let array = self.assemble(&rest).await.expect("one may be missing");
            assert!(self.read(&array).await == expected, "{context}: other bytes without member{left_out}");
        }
    }
}

/// Plays a scene with each setup.
fn each(play: impl AsyncFn(&Scene, &str)) {
    for setup in setups() {
        let world = World::new(11);
        let scene = async {
            let scene = Scene::new(setup, world.clone()).await;
            play(&scene, &format!("{setup:?}")).await;
        };
        world.run(scene, || false).expect("the run is not stopped");
        world.forget_all();
    }
}

#[test]
fn a_half_that_was_used_apart_is_never_overwritten_and_halves_with_equal_events_are_refused() {
    for apart in 0..4 {
        each(async |scene, context| {
            let context = &format!("{context}, {apart} events apart");
            let Setup { fresh, other, .. } = scene.setup;
            let model = scene.use_apart(fresh, 4);
            scene.use_apart(other, 4 - apart);
            let before = scene.images(&scene.all());
            if apart == 0 {
                let refusal = scene.serve(&scene.all()).await.err().expect(context);
                assert!(refusal.reason.contains("used apart") && !refusal.to_string().contains("Slot("), "{refusal}");
                assert!(scene.images(&scene.all()) == before, "{context}: a refusal writes nothing");
                return;
            }
            let array = scene.serve(&scene.all()).await.expect(context);
            scene.rest().await;
            assert!(scene.read(&array).await == model, "{context}: not what the later half holds");
            let left_out = array.status().left_out;
            assert_eq!(left_out.len(), other.len(), "{context}: {left_out:?}");
            assert!(left_out.iter().all(|left| left.reason.contains("used apart")), "{context}: {left_out:?}");
            for &number in other {
                let refusal = array.re_add(candidate(&scene.members[number])).await.expect_err(context);
                assert!(refusal.reason.contains("used without"), "{context}: {refusal}");
            }
            array.write(0, array.pool().copy_of(&model[..512]), Durability::Stable).await.expect("it is degraded");
            scene.rest().await;
            let unchanged = other.iter().all(|&number| scene.members[number].contents() == before[number]);
            assert!(unchanged, "{context}: a half was written to");
            for (index, &number) in other.iter().enumerate() {
                array.add(candidate(&scene.members[number]), [0x80 + index as u8; 16], true).await.expect("given up");
            }
            scene.check_whole(&array, &model, context).await;
        });
    }
}

#[test]
fn a_member_that_was_merely_absent_is_a_spare_or_is_re_added_by_the_bitmap() {
    for changes in 1..5 {
        each(async |scene, context| {
            let context = &format!("{context}, {changes} events behind");
            let Setup { fresh, other, bitmap, level, .. } = scene.setup;
            let model = scene.use_apart(fresh, changes);
            let array = match scene.serve(&scene.all()).await {
                Ok(array) => array,
                Err(refusal) => {
                    let is_hole = changes % 2 == 1 && matches!(level, Level::Raid5 | Level::Raid6);
                    assert!(is_hole && refusal.reason.contains("dirty and degraded"), "{context}: {refusal}");
                    return;
                }
            };
            assert!(scene.read(&array).await == model, "{context}");
            let stale = array.status().left_out;
            assert_eq!(stale.is_empty(), changes == 1, "{context}: {stale:?}");
            assert!(stale.iter().all(|left| left.reason.contains("stale")), "{context}: {stale:?}");
            for &number in other.iter().filter(|_| changes > 1) {
                let returned = array.re_add(candidate(&scene.members[number])).await;
                assert_eq!(returned.is_ok(), bitmap, "{context}: {returned:?}");
                if !bitmap {
                    array.add(candidate(&scene.members[number]), [0x80 + number as u8; 16], true).await.expect("new");
                }
            }
            scene.check_whole(&array, &model, context).await;
        });
    }
}

#[test]
fn a_re_added_member_is_also_recovered_where_only_its_own_bitmap_is_set() {
    each(async |scene, context| {
        let Setup { other, bitmap, .. } = scene.setup;
        if !bitmap {
            return;
        }
        let number = *other.last().expect("a half has members"); // with the array's last chunk on it
        let member = &scene.members[number];
        let array = scene.serve(&scene.all()).await.expect("whole");
        array.fail(&member.name()).await.expect("the level survives it");
        array.remove(&member.name()).await.expect("it is faulty");
        // md has written to it since, and kept the bitmap on this member but on no other.
        let superblock = scene.superblock(number);
        let at = superblock.bitmap_at().expect("it has one").0 as usize;
        let header = BitmapSuper::decode(&member.image()[at..], 4096).expect("well made");
        let bits = header.bits();
        let mut map = member.image()[at + SUPER_BYTES..at + SUPER_BYTES + bits.div_ceil(8) as usize].to_vec();
        bitmap::set_range(&mut map, bits - 1..bits);
        member.plant((at + SUPER_BYTES) as u64, &map);
        let data_end = superblock.data_at().0 + COMPONENT_BYTES;
        member.plant(data_end - 512, &[0x5a; 512]);
        array.re_add(candidate(member)).await.expect(context);
        scene.check_whole(&array, &scene.model, context).await;
    });
}
