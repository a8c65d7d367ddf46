//! What reads of a degraded array cost its members, counted at the members, and
//! that what is read ahead for streams is never stale.

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

/// Reads only: so many, and their bytes.
const fn reads(reads: u64, read_bytes: u64) -> Cost {
    Cost { reads, read_bytes, writes: 0, written_bytes: 0 }
}

#[test]
fn every_member_byte_that_a_read_needs_is_read_once() {
    // Left-symmetric over seven members, the first ones missing: of stripe 0 the first
    // data chunks of RAID-5 are lost; RAID-6 begins behind Q.
    let half = CHUNK / 2;
    let table: &[(Level, usize, u64, u64, Cost)] = &[
        // A whole stripe: as many chunks as it has data.
        (Level::Raid5, 1, 0, 6 * CHUNK, reads(6, 6 * CHUNK)),
        (Level::Raid6, 1, 0, 5 * CHUNK, reads(5, 5 * CHUNK)),
        (Level::Raid6, 2, 0, 5 * CHUNK, reads(5, 5 * CHUNK)),
        // What is there, as it is.
        (Level::Raid5, 1, CHUNK, PAGE, reads(1, PAGE)),
        (Level::Raid5, 1, CHUNK, 5 * CHUNK, reads(5, 5 * CHUNK)),
        // A part of what is lost: the same part of all others.
        (Level::Raid5, 1, PAGE, PAGE, reads(6, 6 * PAGE)),
        // The second half of what is lost and the first of its neighbour, which so is read whole, in one transfer.
        (Level::Raid5, 1, half, CHUNK, reads(6, CHUNK + 5 * half)),
        // The neighbour's rows are the same: they serve as data and for the lost ones.
        (Level::Raid5, 1, 0, 2 * CHUNK, reads(6, 6 * CHUNK)),
        // All of stripe 0 but its first half chunk.
        (Level::Raid5, 1, half, 6 * CHUNK - half, reads(6, 5 * CHUNK + half)),
        // Three stripes: in each as many as it has data.
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

/// As a caller has it that reads into the rest of a buffer, which may begin at any byte.
#[test]
fn memory_that_no_member_takes_is_filled_all_the_same() {
    for setup in [RAID1, RAID5, RAID6, RAID10] {
        for is_degraded in [false, true] {
            play(setup, 3, async |scene| {
                let members = scene.create().await;
                let array = scene.serve(&members).await;
                if is_degraded {
                    array.fail("member0").await.expect("the level bears it");
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

/// Reads from `from` to `to`, one behind the other, or several at a time.
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
fn a_stream_of_short_reads_reads_each_stripe_once_and_long_transfers_where_something_is_lost() {
    for (level, missing, data) in [(Level::Raid5, 1, 6), (Level::Raid6, 1, 5), (Level::Raid6, 2, 5)] {
        let stripe = data * CHUNK;
        for bytes in [PAGE, 16 * KIB, CHUNK, stripe / 2] {
            with_array(level, missing, AssembleOptions::default(), async |array| {
                // To the array's end, where nothing more can be read ahead.
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
fn reads_at_random_are_never_read_ahead_for() {
    for (level, missing) in [(Level::Raid5, 1), (Level::Raid6, 2)] {
        let mut costs =
            [AssembleOptions::default(), AssembleOptions { read_ahead_bytes: 0, ..AssembleOptions::default() }]
                .map(|options| {
                    let mut sum = each(0, 0, 0);
                    with_array(level, missing, options, async |array| {
                        let mut random = Random::new(5);
                        let places = array.array.bytes() / PAGE;
                        for _ in 0..300 {
                            // Never one behind the other.
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
fn the_survivors_share_the_work_whatever_the_layout() {
    for missing in [1, 2] {
        with_array(Level::Raid6, missing, AssembleOptions::default(), async |array| {
            // Two rounds of stripes: the one reads P, the other Q.
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
fn a_long_read_takes_a_share_of_every_copy_and_a_stream_of_short_ones_stays_where_it_is() {
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

/// How an array changes.
#[derive(Debug, Clone, Copy)]
enum Change {
    Write,
    Zeroes,
}

/// As `mdadm --write-mostly` marks it.
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
    // md heeds the flag at level 1 alone.
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
            array.fail(&members[1].name()).await.expect("the level bears it");
            assert!(reads(PAGE).await > 0, "{setup:?}");
        });
    }
}

#[test]
fn a_stream_never_sees_what_was_there_before_a_write() {
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
                let found = array.read(next, array.pool().take(bytes as usize)).await.expect("it can be had");
                let expected = &truth[next as usize..(next + bytes) as usize];
                assert!(found[..] == *expected, "seed {seed}, step {step}: {bytes} bytes at {next} are not the last");
                next += bytes;
            }
        });
    }
}

/// A write gives up what is being read ahead of its stripe: a reader that waits for it has to be told.
#[test]
fn a_stream_that_waits_for_what_is_read_ahead_goes_on_when_a_write_gives_that_up() {
    let setups = [(RAID5, 1), (RAID6, 1), (RAID6, 2)];
    for (seed, (setup, missing)) in (0..10).flat_map(|seed| setups.map(|setup| (seed, setup))) {
        play(setup, seed, async |scene| {
            let members = scene.create().await;
            let array = scene.assemble(&members[missing..], false).await.expect("it bears that");
            let next = Rc::new(Cell::new(Some(0)));
            let (reader, place, clock) = (array.clone(), next.clone(), scene.world.clock());
            let limit = clock.now() + Duration::from_secs(1);
            let write = async |at| {
                let block = array.pool().zeroed(PAGE as usize).freeze();
                array.write(at, block, Durability::Ordinary).await.expect("it bears that");
            };
            write(0).await; // from here on the array is marked dirty, and a write takes its stripe at once
            // A task of its own: what wakes the writer does not wake it.
            scene.world.spawn(async move {
                for at in (0..reader.bytes()).step_by(PAGE as usize) {
                    place.set(Some(at));
                    reader.read(at, reader.pool().take(PAGE as usize)).await.expect("it can be had");
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
