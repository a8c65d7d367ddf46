//! The cost of degraded reads, counted at the members, and the correctness of read-ahead.

use super::healing::{RAID1, RAID5, RAID6, RAID10, of, play};
use super::stripes::{CHUNK, Cost, Counted, KIB, PAGE, each, uncached, with_array};
use engine::{AssembleOptions, Clock, Durability};
use format::geometry::Level;
use format::superblock::{DeviceFlags, Version, decode};
use format::units::MemberByte;
use mdspace_sim::{Random, SimMember};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const STRIPES: u64 = 16;

/// The cost of this many reads, with their bytes.
const fn reads(reads: u64, read_bytes: u64) -> Cost {
    Cost { reads, read_bytes, writes: 0, written_bytes: 0 }
}

#[test]
fn every_member_byte_that_a_read_needs_is_read_once() {
    // Left-symmetric over seven members, the first ones missing. In stripe 0 the first data chunks of RAID-5 are
    // missing; RAID-6 begins after Q.
    let half = CHUNK / 2;
    let table: &[(Level, usize, u64, u64, Cost)] = &[
        // A whole stripe: as many chunks as it has data.
        (Level::Raid5, 1, 0, 6 * CHUNK, reads(6, 6 * CHUNK)),
        (Level::Raid6, 1, 0, 5 * CHUNK, reads(5, 5 * CHUNK)),
        (Level::Raid6, 2, 0, 5 * CHUNK, reads(5, 5 * CHUNK)),
        // A chunk that is there, read as it is.
        (Level::Raid5, 1, CHUNK, PAGE, reads(1, PAGE)),
        (Level::Raid5, 1, CHUNK, 5 * CHUNK, reads(5, 5 * CHUNK)),
        // A part of a missing chunk: the same part of all others.
        (Level::Raid5, 1, PAGE, PAGE, reads(6, 6 * PAGE)),
        // The second half of a missing chunk and the first half of its neighbour, which is therefore read whole, in one
        // transfer.
        (Level::Raid5, 1, half, CHUNK, reads(6, CHUNK + 5 * half)),
        // The neighbour's rows are the same: they serve as data and for the reconstruction.
        (Level::Raid5, 1, 0, 2 * CHUNK, reads(6, 6 * CHUNK)),
        // All of stripe 0 but its first half chunk.
        (Level::Raid5, 1, half, 6 * CHUNK - half, reads(6, 5 * CHUNK + half)),
        // Three stripes: of each as many chunks as it has data.
        (Level::Raid5, 1, 0, 18 * CHUNK, reads(18, 18 * CHUNK)),
    ];
    for &(level, missing, at, bytes, expected) in table {
        for options in [uncached(), AssembleOptions::default()] {
            with_array(level, missing, options, async |array| {
                let cost = array.read(at, bytes).await;
                assert_eq!(cost, expected, "{level:?} without {missing}: {bytes} bytes at {at}");
            });
        }
    }
}

/// A caller may read into the rest of a buffer, which begins at any byte.
#[test]
fn reads_fill_memory_that_is_not_aligned_for_members() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        for is_degraded in [false, true] {
            play(setup, 3, async |scene| {
                let members = scene.create().await;
                let array = scene.serve(&members).await;
                if is_degraded {
                    array.fail("member0").await.expect("the level survives it");
                }
                for (skip, at, bytes) in
                    [(1, 0, 65537), (1, 4096, 8192), (513, 512, 1024), (4095, 65535, 65537), (7, 1, 3)]
                {
                    let mut rest = array.pool().take(skip + bytes);
                    let front = rest.split_to(skip);
                    let found = array.read(at as u64, rest).await.expect("nothing fails");
                    assert!(
                        found[..] == scene.truth.borrow()[at..at + bytes],
                        "{setup:?}: {bytes} bytes at {at} behind {skip}"
                    );
                    drop(front);
                }
                assert!(array.status().members.iter().all(|member| member.errors == 0), "{setup:?}");
            });
        }
    }
}

/// Reads `from..to` linearly, one or several requests at a time.
async fn stream(array: &mut Counted, from: u64, to: u64, bytes: u64) -> Cost {
    let mut sum = each(0, 0, 0);
    for at in (from..to).step_by(bytes as usize) {
        let cost = array.read(at, bytes).await;
        sum.reads += cost.reads;
        sum.read_bytes += cost.read_bytes;
    }
    sum
}

#[test]
fn a_stream_of_short_degraded_reads_reads_each_stripe_once_in_long_transfers() {
    for (level, missing, data) in [(Level::Raid5, 1, 6), (Level::Raid6, 1, 5), (Level::Raid6, 2, 5)] {
        let stripe = data * CHUNK;
        for bytes in [PAGE, 16 * KIB, CHUNK, stripe / 2] {
            with_array(level, missing, AssembleOptions::default(), async |array| {
                // To the array's end, after which nothing can be read ahead.
                let cost = stream(array, 0, STRIPES * stripe, bytes).await;
                let besides = cost.read_bytes - STRIPES * stripe;
                let what = format!("{level:?} without {missing}, {bytes} bytes: {cost:?}");
                assert!(
                    besides <= 2 * data * bytes,
                    "but for its first two reads, which might have been alone; {what}"
                );
            });
        }
    }
}

#[test]
fn random_reads_never_cause_read_ahead() {
    for (level, missing) in [(Level::Raid5, 1), (Level::Raid6, 2)] {
        let mut costs =
            [AssembleOptions::default(), AssembleOptions { read_ahead_bytes: 0, ..AssembleOptions::default() }]
                .map(|options| {
                    let mut sum = each(0, 0, 0);
                    with_array(level, missing, options, async |array| {
                        let mut random = Random::new(5);
                        let places = array.array.bytes() / PAGE;
                        for _ in 0..300 {
                            // Never two consecutive requests.
                            let cost = array.read(random.within(0..places / 3) * 3 * PAGE, PAGE).await;
                            sum.reads += cost.reads;
                            sum.read_bytes += cost.read_bytes;
                        }
                    });
                    sum
                })
                .into_iter();
        assert_eq!(costs.next(), costs.next(), "{level:?} without {missing}");
    }
}

#[test]
fn a_degraded_linear_read_loads_the_remaining_members_equally() {
    for missing in [1, 2] {
        with_array(Level::Raid6, missing, AssembleOptions::default(), async |array| {
            // Two rounds of stripes: one reads P, the other Q.
            stream(array, 0, 14 * 5 * CHUNK, 5 * CHUNK).await;
            let read: Vec<u64> = array.array.status().members.iter().map(|member| member.read_bytes / CHUNK).collect();
            let read: Vec<u64> = read.into_iter().filter(|&chunks| chunks > 0).collect();
            let (most, least) = (read.iter().max(), read.iter().min());
            assert_eq!(read.len(), 7 - missing, "{read:?}");
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{read:?}");
        });
    }
}

#[test]
fn a_long_read_is_split_over_all_copies_and_a_stream_of_short_reads_stays_on_one() {
    let members = |array: &Counted| -> Vec<u64> {
        array.array.status().members.iter().map(|member| member.read_bytes / KIB).collect()
    };
    with_array(Level::Raid1, 0, AssembleOptions::default(), async |array| {
        array.read(0, 512 * KIB).await;
        assert_eq!(members(array)[..3], [256, 256, 0], "each as much as makes a share");
        stream(array, 512 * KIB, 1024 * KIB, PAGE).await;
        assert_eq!(members(array)[..3], [256, 768, 0], "the member that was there already");
    });
    with_array(Level::Raid10, 0, AssembleOptions::default(), async |array| {
        // 14 chunks, each on two of seven members.
        array.read(0, 14 * CHUNK).await;
        assert_eq!(members(array), [128; 7]);
    });
}

/// A change of the array.
#[derive(Debug, Clone, Copy)]
enum Change {
    Write,
    Zeroes,
}

/// Marks a member as `mdadm --write-mostly` does.
fn mark_write_mostly(member: &SimMember) {
    let at = 4096;
    let decoded = {
        let image = member.image();
        decode(Version::V1_2, MemberByte(at), &image[4096..8192], image.len() as u64)
    };
    let mut superblock = decoded.expect("sound").expect("there");
    superblock.device_flags = DeviceFlags::WRITE_MOSTLY;
    member.plant(at, &superblock.encode());
}

#[test]
fn a_write_mostly_copy_is_read_only_where_there_is_no_other() {
    // md uses the flag at level 1 only.
    for (setup, is_spared) in [(RAID1, true), (RAID10, false)] {
        play(setup, 13, async |scene| {
            let members = scene.create().await;
            mark_write_mostly(&members[0]);
            let array = scene.assemble(&members, false).await.expect("it is whole");
            let reads = async |bytes: u64| {
                let before = of(&array.status(), &members[0]).reads;
                for at in (0..array.bytes()).step_by(bytes as usize) {
                    let part = bytes.min(array.bytes() - at);
                    array.read(at, array.pool().take(part as usize)).await.expect("nothing fails");
                }
                of(&array.status(), &members[0]).reads - before
            };
            for bytes in [PAGE, array.bytes()] {
                assert_eq!(reads(bytes).await == 0, is_spared, "{setup:?}, {bytes} bytes at a time");
            }
            array.fail(&members[1].name()).await.expect("the level survives it");
            assert!(reads(PAGE).await > 0, "{setup:?}");
        });
    }
}

#[test]
fn a_stream_never_reads_data_from_before_a_write() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (level, missing) = *random.pick(&[(Level::Raid5, 1), (Level::Raid6, 1), (Level::Raid6, 2)]);
        let bytes = *random.pick(&[512, 3 * 512, PAGE, 3 * PAGE, CHUNK]);
        with_array(level, missing, AssembleOptions::default(), async |counted| {
            let array = counted.array.clone();
            let mut truth = vec![0_u8; array.bytes() as usize];
            random.fill(&mut truth);
            array.write(0, array.pool().copy_of(&truth), Durability::Ordinary).await.expect("nothing fails");
            let mut next = random.within(0..array.bytes() / 2) / 512 * 512;
            for step in 0..400 {
                if random.once_in(12) {
                    // Near the stream, where it was or will be.
                    let at = (next + random.within(0..10 * CHUNK)).saturating_sub(4 * CHUNK) / 512 * 512;
                    let length = (512 * random.within(1..300)).min(array.bytes().saturating_sub(at));
                    let range = at as usize..(at + length) as usize;
                    if length == 0 {
                        continue;
                    }
                    match *random.pick(&[Change::Write, Change::Write, Change::Zeroes]) {
                        Change::Write => {
                            random.fill(&mut truth[range.clone()]);
                            let block = array.pool().copy_of(&truth[range]);
                            array.write(at, block, Durability::Ordinary).await.expect("nothing fails");
                        }
                        Change::Zeroes => {
                            truth[range].fill(0);
                            array.write_zeroes(at, length, Durability::Ordinary).await.expect("nothing fails");
                        }
                    }
                    continue;
                }
                if next + bytes > array.bytes() {
                    next = 0;
                }
                let found = array.read(next, array.pool().take(bytes as usize)).await.expect("the data is available");
                let expected = &truth[next as usize..(next + bytes) as usize];
                assert!(found[..] == *expected, "seed {seed}, step {step}: {bytes} bytes at {next} are not the last");
                next += bytes;
            }
        });
    }
}

/// A write discards the read-ahead of its stripe: a read that waits for this read-ahead has to be woken.
#[test]
fn a_stream_that_waits_for_read_ahead_continues_when_a_write_discards_it() {
    let setups = [(RAID5, 1), (RAID6, 1), (RAID6, 2)];
    for (seed, (setup, missing)) in (0..10).flat_map(|seed| setups.map(|setup| (seed, setup))) {
        play(setup, seed, async |scene| {
            let members = scene.create().await;
            let array = scene.assemble(&members[missing..], false).await.expect("the level survives it");
            let next = Rc::new(Cell::new(Some(0)));
            let (reader, place, clock) = (array.clone(), next.clone(), scene.world.clock());
            let limit = clock.now() + Duration::from_secs(1);
            let write = async |at| {
                let block = array.pool().zeroed(PAGE as usize).freeze();
                array.write(at, block, Durability::Ordinary).await.expect("the level survives it");
            };
            write(0).await; // the array is dirty from here on, so a write locks its stripe at once
            // A task of its own, which is not woken together with the writer.
            scene.world.spawn(async move {
                for at in (0..reader.bytes()).step_by(PAGE as usize) {
                    place.set(Some(at));
                    reader.read(at, reader.pool().take(PAGE as usize)).await.expect("the data is available");
                }
                place.set(None);
            });
            while let Some(at) = next.get() {
                assert!(clock.now() < limit, "{setup:?}: the stream waits for ever at {at}");
                clock.sleep_until(clock.now() + Duration::from_micros(scene.world.chance(1..200))).await;
                write(at).await;
            }
            array.stop().await.expect("stops clean");
        });
    }
}
