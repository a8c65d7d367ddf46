//! Discard and write-zeroes at every level, whole and degraded, on members that support them, do not, or only claim to.
//! Afterwards every byte is legal, also when it is reconstructed without any one member.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Pool};
use format::geometry::{Level, default_layout};
use format::placement::BitmapChoice;
use mdspace_sim::{Random, SimMember, VirtualClock, World, Zeroing};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

type Simulated = Array<SimMember, VirtualClock>;

const CHUNK: usize = 16 << 10;
const DATA_OFFSET: u64 = 32 << 10;
const COMPONENT: u64 = 12 * CHUNK as u64;
const MEMBERS: usize = 5;

const LEVELS: [(Level, u32); 8] = [
    (Level::Linear, 0),
    (Level::Raid0, 0),
    (Level::Raid1, 0),
    (Level::Raid4, 0),
    (Level::Raid5, 2),
    (Level::Raid6, 2),
    (Level::Raid10, 0x102),
    (Level::Raid10, 0x1_0201),
];

const ZEROINGS: [Zeroing; 5] =
    [Zeroing::Never, Zeroing::Zeroes, Zeroing::Discards, Zeroing::DiscardsToNoise, Zeroing::Promises];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    WriteZeroes,
    PunchHole,
    Discard,
}

struct Case {
    name: String,
    level: Level,
    zeroing: Zeroing,
    world: World,
    members: Vec<SimMember>,
    missing: usize,
}

impl Case {
    fn new(level: Level, layout: u32, zeroing: Zeroing, missing: usize) -> Self {
        let world = World::new(1);
        let member = |index| {
            let contents = vec![0; (DATA_OFFSET + COMPONENT) as usize];
            SimMember::new(format!("member{index}"), &world, contents, Rc::default()).with_zeroing(zeroing)
        };
        let members: Vec<_> = (0..MEMBERS).map(member).collect();
        let case = Self {
            name: format!("{level:?} {layout:#x} {zeroing:?} without {missing}"),
            level,
            zeroing,
            world,
            members,
            missing,
        };
        case.world.run(case.create(layout), || false);
        case
    }

    async fn create(&self, layout: u32) {
        let has_size = !matches!(self.level, Level::Linear | Level::Raid0);
        let recipe = Recipe {
            layout: if has_size { layout } else { default_layout(self.level) },
            chunk_bytes: if matches!(self.level, Level::Linear | Level::Raid1) { 0 } else { CHUNK as u64 },
            name: "sim:zeros".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET),
            component_bytes: has_size.then_some(COMPONENT),
            bitmap: if has_size { BitmapChoice::Chunk(4096) } else { BitmapChoice::None },
            contents: Contents::Consistent,
            ..Recipe::new(self.level, [7; 16])
        };
        let newcomer =
            |(index, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = self.members.iter().enumerate().map(newcomer).collect();
        let clock = self.world.clock();
        create(&recipe, &newcomers, &[], &Pool::new(1 << 20), &clock, &|_, _| {}).await.expect("the array is created");
    }

    async fn assemble(&self, members: &[SimMember]) -> Simulated {
        let offered = members.iter().map(candidate).collect();
        let assembled = Array::assemble(offered, AssembleOptions::default(), Pool::new(4 << 20), self.world.clock());
        assembled.await.unwrap_or_else(|refusal| panic!("{}: {refusal}", self.name))
    }

    fn is_redundant(&self) -> bool {
        !matches!(self.level, Level::Linear | Level::Raid0)
    }

    /// Updates `expected` for `how` on `range`; `None` stands for any value.
    fn apply(&self, expected: &mut [Option<u8>], range: Range<usize>, how: How, unit: usize) {
        let inner = range.start.next_multiple_of(unit)..range.end / unit * unit;
        match how {
            How::WriteZeroes | How::PunchHole => expected[range].fill(Some(0)),
            How::Discard if self.is_redundant() => match self.zeroing {
                Zeroing::Discards => expected[range].fill(Some(0)),
                // Depends on whether the array has learned already that the member cannot discard.
                Zeroing::Promises => expected[range].iter_mut().for_each(|byte| *byte = byte.filter(|&byte| byte == 0)),
                _ => {}
            },
            How::Discard if inner.start < inner.end => match self.zeroing {
                Zeroing::Discards => expected[inner].fill(Some(0)),
                Zeroing::DiscardsToNoise => expected[inner].fill(None),
                _ => {}
            },
            How::Discard => {}
        }
    }

    /// Zeroes some ranges in each way, and compares everything, also without each member.
    fn run(&self, rounds: usize, seed: u64) {
        let life = async {
            let present = &self.members[self.missing..];
            let array = self.assemble(present).await;
            let mut random = Random::new(seed);
            let mut data = vec![0; array.bytes() as usize];
            random.fill(&mut data);
            let written = array.write(0, array.pool().copy_of(&data), Durability::Ordinary).await;
            written.unwrap_or_else(|error| panic!("{}: {error}", self.name));
            let mut expected: Vec<_> = data.iter().copied().map(Some).collect();
            for _ in 0..rounds {
                let how = *random.pick(&[How::WriteZeroes, How::PunchHole, How::Discard]);
                let range = self.range(&mut random, data.len());
                let (at, bytes) = (range.start as u64, range.len() as u64);
                let done = match how {
                    How::WriteZeroes => array.write_zeroes(at, bytes, Durability::Ordinary).await,
                    How::PunchHole => array.punch_hole(at, bytes, Durability::Stable).await,
                    How::Discard => array.discard(at, bytes).await,
                };
                done.unwrap_or_else(|error| panic!("{}: {how:?} {range:?}: {error}", self.name));
                self.apply(&mut expected, range, how, array.block_bytes() as usize);
                // Parts of zeroed ranges are written again, which the cache must notice.
                let start = random.within(0..data.len() as u64 - 4096) as usize / 4096 * 4096;
                let mut page = vec![0; 4096];
                random.fill(&mut page);
                array
                    .write(start as u64, array.pool().copy_of(&page), Durability::Ordinary)
                    .await
                    .expect("the level survives it");
                expected[start..start + 4096].iter_mut().zip(&page).for_each(|(byte, new)| *byte = Some(*new));
            }
            let found = self.compare(&array, &expected).await;
            array.stop().await.unwrap_or_else(|error| panic!("{}: {error}", self.name));
            let spare = if self.level == Level::Raid6 { 2 } else { usize::from(self.is_redundant()) };
            for gone in (0..present.len()).filter(|_| spare > self.missing) {
                let mut rest = present.to_vec();
                rest.remove(gone);
                let array = self.assemble(&rest).await;
                assert!(self.compare(&array, &expected).await == found, "{}: without {gone} as well", self.name);
            }
        };
        self.world.run(life, || false);
    }

    fn range(&self, random: &mut Random, end: usize) -> Range<usize> {
        let unit = *random.pick(&[1, 512, 4096, CHUNK as u64]);
        let start = random.within(0..end as u64) / unit * unit;
        let longest = *random.pick(&[CHUNK as u64 / 2, CHUNK as u64 * 2, end as u64]);
        let bytes = (random.within(1..longest + 1)).next_multiple_of(unit);
        start as usize..(start + bytes).min(end as u64) as usize
    }

    async fn compare(&self, array: &Simulated, expected: &[Option<u8>]) -> Vec<u8> {
        let read = array.read(0, array.pool().take(expected.len())).await;
        let found = read.unwrap_or_else(|error| panic!("{}: {error}", self.name)).to_vec();
        let wrong = (0..found.len()).find(|&index| expected[index].is_some_and(|byte| byte != found[index]));
        assert_eq!(wrong, None, "{}: {:?}", self.name, wrong.map(|index| (found[index], expected[index])));
        found
    }
}

fn candidate(member: &SimMember) -> Candidate<SimMember> {
    Candidate { name: member.name(), member: member.clone() }
}

#[test]
fn zeroed_ranges_read_as_zeros_and_nothing_else_changes_at_any_level() {
    for (level, layout) in LEVELS {
        let bearable = match level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid6 => 2,
            _ => 1,
        };
        for zeroing in ZEROINGS {
            for missing in 0..=bearable {
                for seed in 0..2 {
                    Case::new(level, layout, zeroing, missing).run(6, seed);
                }
            }
        }
    }
}

#[test]
fn whole_stripes_are_zeroed_on_every_member_at_once_without_reads() {
    for zeroing in [Zeroing::Zeroes, Zeroing::Discards] {
        let case = Case::new(Level::Raid5, 2, zeroing, 0);
        let life = async {
            let array = case.assemble(&case.members).await;
            let stripe = (MEMBERS - 1) as u64 * CHUNK as u64;
            let mut data = vec![0; 8 * stripe as usize];
            Random::new(1).fill(&mut data);
            array.write(0, array.pool().copy_of(&data), Durability::Ordinary).await.expect("whole");
            let before = array.status().members;
            array.punch_hole(stripe, 5 * stripe, Durability::Stable).await.expect("whole");
            for (member, before) in array.status().members.iter().zip(&before) {
                assert_eq!((member.reads, member.writes), (before.reads, before.writes), "{zeroing:?}: only zeroed");
            }
            for member in &case.members {
                let image = member.contents();
                let of_stripes = |stripes: Range<usize>| {
                    let start = DATA_OFFSET as usize;
                    image[start + stripes.start * CHUNK..start + stripes.end * CHUNK].iter().all(|&byte| byte == 0)
                };
                assert!(of_stripes(1..6) && !of_stripes(0..1) && !of_stripes(6..7), "{zeroing:?}");
            }
        };
        case.world.run(life, || false);
    }
}

#[test]
fn a_member_that_fails_to_discard_is_failed_and_the_others_hold_zeros() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10] {
        let layout = if level == Level::Raid10 { 0x102 } else { default_layout(level) };
        let case = Case::new(level, layout, Zeroing::Discards, 0);
        let life = async {
            let array = case.assemble(&case.members).await;
            let data = vec![1; array.bytes() as usize];
            array.write(0, array.pool().copy_of(&data), Durability::Ordinary).await.expect("whole");
            // Failed discards alone would only become bad blocks.
            case.members[1].faults().gone.set(true);
            array.discard(0, array.bytes()).await.expect("the level survives it");
            assert_eq!(array.status().in_sync as usize, MEMBERS - 1, "{level:?}");
            case.compare(&array, &vec![Some(0); data.len()]).await;
            array.stop().await.expect("stops clean");
        };
        case.world.run(life, || false);
    }
}

#[test]
fn half_a_chunk_is_discarded_on_a_degraded_array() {
    for (level, missing) in [(Level::Raid4, 1), (Level::Raid5, 1), (Level::Raid6, 1), (Level::Raid6, 2)] {
        let case = Case::new(level, default_layout(level), Zeroing::Discards, missing);
        let life = async {
            let present = &case.members[missing..];
            let array = case.assemble(present).await;
            let mut data = vec![0; array.bytes() as usize];
            Random::new(missing as u64).fill(&mut data);
            array.write(0, array.pool().copy_of(&data), Durability::Ordinary).await.expect("degraded");
            // One half of every chunk in five stripes, so that each role is on the missing member.
            let end = data.len();
            for half in (0..40).map(|chunk| chunk * CHUNK + chunk % 2 * (CHUNK / 2)).filter(|at| *at < end) {
                array.discard(half as u64, CHUNK as u64 / 2).await.expect("degraded");
                data[half..half + CHUNK / 2].fill(0);
            }
            let expected: Vec<_> = data.into_iter().map(Some).collect();
            case.compare(&array, &expected).await;
            array.stop().await.expect("stops clean");
            let spare = if level == Level::Raid6 { 2 - missing } else { 0 };
            for gone in (0..present.len()).take(if spare > 0 { present.len() } else { 1 }) {
                let mut rest = present.to_vec();
                rest.drain(gone..gone + spare);
                case.compare(&case.assemble(&rest).await, &expected).await;
            }
        };
        case.world.run(life, || false);
    }
}

/// Zeros of less than a stripe are written as data, a transfer at a time. Power goes at any write.
#[test]
fn no_block_is_torn_by_zeros_that_take_several_transfers() {
    const ZEROS: Range<usize> = 100..100 + (3 << 19);
    const SECTOR: usize = 512;
    let mut amid = 0;
    for cut in 1..200 {
        let (world, boundaries) = (World::new(cut), Rc::new(Cell::new(0)));
        let contents = vec![0; DATA_OFFSET as usize + (1 << 20)];
        let member = |index| SimMember::new(format!("member{index}"), &world, contents.clone(), boundaries.clone());
        let members: Vec<_> = (0..3).map(member).collect();
        let recipe = Recipe {
            layout: 2,
            chunk_bytes: 1 << 20,
            name: "sim:zeros".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET),
            bitmap: BitmapChoice::None,
            contents: Contents::Zeros,
            ..Recipe::new(Level::Raid5, [7; 16])
        };
        let begin = async {
            let newcomer = |(index, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [index; 16] });
            let newcomers: Vec<_> = (0..).zip(&members).map(newcomer).collect();
            create(&recipe, &newcomers, &[], &Pool::new(4 << 20), &world.clock(), &|_, _| {}).await.expect("created");
            let all = members.iter().map(candidate).collect();
            let options = AssembleOptions::default();
            let array = Array::assemble(all, options, Pool::new(4 << 20), world.clock()).await.expect("whole");
            let old = array.pool().copy_of(&vec![0xaa; array.bytes() as usize]);
            array.write(0, old, Durability::Stable).await.expect("written");
            array
        };
        let array = world.run(begin, || false).expect("the power does not go");
        let before = boundaries.get();
        let zeroing = array.write_zeroes(ZEROS.start as u64, ZEROS.len() as u64, Durability::Ordinary);
        let ended = world.run(zeroing, || boundaries.get() >= before + cut);
        world.forget_all();
        members.iter().for_each(|member| member.lose_power(&mut Random::new(cut)));
        let images: Vec<_> = members.iter().map(SimMember::contents).collect();
        // The only stripe has its parity on the last member.
        let data = [0, 1].map(|index: usize| &images[index][DATA_OFFSET as usize..]).concat();
        let whole = ZEROS.start.next_multiple_of(SECTOR)..ZEROS.end / SECTOR * SECTOR;
        let sectors: Vec<_> = data[whole].chunks(SECTOR).collect();
        for sector in &sectors {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "cut at {cut}: a sector is torn");
        }
        amid += usize::from(sectors.iter().any(|sector| sector[0] == 0) && sectors.iter().any(|sector| sector[0] != 0));
        if ended.is_some() {
            break;
        }
    }
    assert!(amid > 0, "power did not go amid the zeros");
}
