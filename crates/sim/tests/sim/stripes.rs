//! The bytes and transfers that writes cost the members, counted at the members. The counts are exact. Most tests are
//! about stripes that change in part.

use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Block, Candidate, Durability, Pool, StripeSize};
use format::geometry::Level;
use mdspace_sim::{SimMember, VirtualClock, World};
use std::rc::Rc;

type Simulated = Array<SimMember, VirtualClock>;

pub(super) const KIB: u64 = 1024;
pub(super) const PAGE: u64 = 4 * KIB;
pub(super) const CHUNK: u64 = 64 * KIB;
const DATA_OFFSET: u64 = 32 * KIB;
const COMPONENT: u64 = 16 * CHUNK;
const MEMBERS: usize = 7;

/// The members' transfers and bytes since the last count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
}

/// The cost of this many reads and writes, all of `bytes`.
pub(super) const fn each(reads: u64, writes: u64, bytes: u64) -> Cost {
    Cost { reads, read_bytes: reads * bytes, writes, written_bytes: writes * bytes }
}

pub(super) struct Counted {
    pub(super) array: Simulated,
    before: Cost,
}

impl Counted {
    fn total(&self) -> Cost {
        let mut sum = each(0, 0, 0);
        for member in self.array.status().members {
            sum.reads += member.reads;
            sum.read_bytes += member.read_bytes;
            sum.writes += member.writes;
            sum.written_bytes += member.written_bytes;
        }
        sum
    }

    /// The cost of `work`.
    async fn cost<T>(&mut self, work: impl Future<Output = T>) -> Cost {
        work.await;
        let (before, now) = (self.before, self.total());
        self.before = now;
        Cost {
            reads: now.reads - before.reads,
            read_bytes: now.read_bytes - before.read_bytes,
            writes: now.writes - before.writes,
            written_bytes: now.written_bytes - before.written_bytes,
        }
    }

    async fn write(&mut self, at: u64, bytes: u64) -> Cost {
        let array = self.array.clone();
        let block: Block = array.pool().copy_of(&vec![at as u8; bytes as usize]);
        self.cost(async move { array.write(at, block, Durability::Ordinary).await.expect("nothing fails") }).await
    }

    pub(super) async fn read(&mut self, at: u64, bytes: u64) -> Cost {
        let array = self.array.clone();
        self.cost(
            async move { array.read(at, array.pool().take(bytes as usize)).await.expect("the data is available") },
        )
        .await
    }
}

/// Plays `life` on an array of 7 members, the first `missing` of which are missing.
pub(super) fn with_array(level: Level, missing: usize, options: AssembleOptions, life: impl AsyncFnOnce(&mut Counted)) {
    let world = World::new(1);
    let member = |index| {
        SimMember::new(format!("member{index}"), &world, vec![0; (DATA_OFFSET + COMPONENT) as usize], Rc::default())
    };
    let members: Vec<_> = (0..MEMBERS).map(member).collect();
    let candidate = |member: &SimMember| Candidate { name: member.name(), member: member.clone() };
    let recipe = Recipe {
        chunk_bytes: if level == Level::Raid1 { 0 } else { CHUNK },
        name: "sim:stripes".to_owned(),
        data_offset_bytes: Some(DATA_OFFSET),
        component_bytes: Some(COMPONENT),
        contents: Contents::Consistent,
        ..Recipe::new(level, [7; 16])
    };
    let whole = async {
        let pool = Pool::new(4 << 20);
        let newcomer =
            |(index, member)| Some(Newcomer { candidate: candidate(member), device_uuid: [index as u8; 16] });
        let newcomers: Vec<_> = members.iter().enumerate().map(newcomer).collect();
        create(&recipe, &newcomers, &[], &pool, &world.clock(), &|_, _| {}).await.expect("the array is created");
        let offered = members[missing..].iter().map(candidate).collect();
        let array = Array::assemble(offered, options, pool, world.clock()).await.expect("the level survives it");
        let mut counted = Counted { before: each(0, 0, 0), array };
        life(&mut counted).await;
        counted.array.stop().await.expect("nothing fails");
    };
    world.run(whole, || false);
}

pub(super) fn uncached() -> AssembleOptions {
    AssembleOptions { cache_bytes: Some(0), ..AssembleOptions::default() }
}

fn fixed(bytes: u64) -> AssembleOptions {
    AssembleOptions { stripe_size: StripeSize::Fixed(bytes as u32), ..uncached() }
}

#[test]
fn a_small_write_costs_its_own_bytes_of_data_and_parity_and_no_more() {
    for (level, transfers) in [(Level::Raid4, 2), (Level::Raid5, 2), (Level::Raid6, 3)] {
        for options in [uncached(), AssembleOptions::default()] {
            with_array(level, 0, options, async |array| {
                for page in [0, 17, 50, 100, 131] {
                    assert_eq!(array.write(page * PAGE, PAGE).await, each(transfers, transfers, PAGE), "{level:?}");
                }
                assert_eq!(array.write(150 * PAGE, 512).await, each(transfers, transfers, 512), "{level:?}");
            });
        }
    }
}

#[test]
fn a_write_of_several_chunks_of_each_member_is_one_transfer_for_each() {
    for (level, copies) in [(Level::Raid0, 1), (Level::Raid10, 2), (Level::Raid1, MEMBERS as u64)] {
        with_array(level, 0, AssembleOptions::default(), async |array| {
            let written = Cost { writes: MEMBERS as u64, written_bytes: 14 * CHUNK * copies, ..each(0, 0, 0) };
            assert_eq!(array.write(0, 14 * CHUNK).await, written, "{level:?}");
        });
    }
}

#[test]
fn a_row_that_is_written_repeatedly_is_not_read_again() {
    for (level, transfers) in [(Level::Raid5, 2), (Level::Raid6, 3)] {
        with_array(level, 0, AssembleOptions::default(), async |array| {
            for reads in [transfers, transfers, 0, 0, 0] {
                assert_eq!(array.write(20 * PAGE, PAGE).await, each(reads, 0, PAGE).and_writes(transfers), "{level:?}");
            }
            // The same row of another chunk: parity is in memory, the old data is not.
            let neighbour = 20 * PAGE + CHUNK;
            assert_eq!(array.write(neighbour, PAGE).await, each(1, 0, PAGE).and_writes(transfers), "{level:?}");
            assert_eq!(array.write(neighbour, PAGE).await, each(0, transfers, PAGE), "{level:?}");
            // A part of a page is not cached, and invalidates what was.
            assert_eq!(array.write(neighbour, 512).await, each(0, transfers, 512), "{level:?}");
            assert_eq!(array.write(neighbour, PAGE).await, each(transfers, transfers, PAGE), "{level:?}");
        });
    }
}

#[test]
fn the_rest_of_a_stripe_needs_no_read_when_its_beginning_is_in_memory() {
    with_array(Level::Raid5, 0, AssembleOptions::default(), async |array| {
        let stripe = 6 * CHUNK;
        array.write(0, CHUNK).await;
        let second = array.write(CHUNK, CHUNK).await;
        assert_eq!((second.reads, second.writes), (2, 2), "the stream has just begun: {second:?}");
        assert_eq!(array.write(2 * CHUNK, 4 * CHUNK).await.reads, 1, "the first chunk was not worth keeping yet");
        assert_eq!(array.write(stripe, 4 * CHUNK).await.reads, 2, "the stream goes on");
        assert_eq!(array.write(stripe + 4 * CHUNK, 2 * CHUNK).await.reads, 0, "all the rest is in memory");
    });
}

impl Cost {
    /// The cost of as many writes as reads, of the same size.
    const fn and_writes(self, writes: u64) -> Cost {
        Cost { writes, written_bytes: writes * PAGE, ..self }
    }
}

#[test]
fn a_fixed_stripe_size_moves_whole_units_of_every_chunk_it_touches() {
    for (level, transfers) in [(Level::Raid5, 2), (Level::Raid6, 3)] {
        for unit in [4 * KIB, 16 * KIB, 64 * KIB] {
            with_array(level, 0, fixed(unit), async |array| {
                for page in [0, 17, 50, 131] {
                    assert_eq!(
                        array.write(page * PAGE, PAGE).await,
                        each(transfers, transfers, unit),
                        "{level:?} {unit}"
                    );
                }
                // Two units of one chunk, in one transfer.
                if unit < CHUNK {
                    let cost = array.write(unit - 512, 1024).await;
                    assert_eq!(cost, each(transfers, transfers, 2 * unit), "{level:?} {unit}");
                }
                let stripe = if level == Level::Raid5 { 6 } else { 5 } * CHUNK;
                let whole = array.write(3 * stripe, stripe).await;
                assert_eq!((whole.reads, whole.written_bytes), (0, 7 * CHUNK), "a full stripe is one");
                array.array.set_stripe_size(StripeSize::Auto).expect("changes at once");
                assert_eq!(array.write(0, PAGE).await, each(transfers, transfers, PAGE), "{level:?}");
            });
        }
    }
}

#[test]
fn reconstructing_reads_move_whole_units_where_the_stripe_size_is_fixed() {
    // Left-symmetric: the first chunk of the array is on member 0, which is missing.
    with_array(Level::Raid5, 1, uncached(), async |array| {
        assert_eq!(array.read(PAGE, PAGE).await, each(6, 0, PAGE));
    });
    with_array(Level::Raid5, 1, fixed(16 * KIB), async |array| {
        assert_eq!(array.read(PAGE, PAGE).await, each(6, 0, 16 * KIB));
        assert_eq!(array.read(CHUNK, PAGE).await, each(1, 0, PAGE), "what is there is read as it is");
    });
}

#[test]
fn a_degraded_array_uses_the_stripe_cache_as_well() {
    with_array(Level::Raid5, 1, AssembleOptions::default(), async |array| {
        // Chunk 0 is missing: its parity is computed from the others.
        assert_eq!(array.write(0, PAGE).await, Cost { writes: 1, written_bytes: PAGE, ..each(5, 0, PAGE) });
        assert_eq!(array.write(0, PAGE).await.reads, 5);
        assert_eq!(array.write(0, PAGE).await, each(0, 1, PAGE), "the others are in memory");
        assert_eq!(array.read(0, PAGE).await, each(0, 0, PAGE), "and so is what a read is solved from");
        assert_eq!(array.write(CHUNK, PAGE).await, each(0, 2, PAGE));
    });
}
