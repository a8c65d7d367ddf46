//! One pass over the members: a summary of each block, and the blocks that file systems recognize as their own.
//!
//! Memory is bounded: eight bytes for each 4 KiB that were read. Of members that are longer than the budget, the start
//! is read, and windows at equal distances, the same on each member.

use crate::crc::{BLOCK, fold, sum};
use crate::overwritten;
use crate::seen::{Holder, Place, Seen, Want};
use disk::Source;
use std::collections::HashMap;
use std::ops::Range;

/// What is kept of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    /// [`crate::crc::sum`]
    pub(crate) sum: u32,
    /// [`crate::crc::fold`]: blocks that end with their own CRC all have the same sum.
    fold: u16,
    /// The bytes up to the last one that is not zero: 0 of a block of zeros.
    pub(crate) end: u16,
}

impl Summary {
    pub(crate) fn of(block: &[u8]) -> Self {
        let end = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if end == 0 {
            return Self::default();
        }
        Self { sum: sum(block), fold: fold(block), end: end as u16 }
    }
}

impl Summary {
    /// What tells contents apart, and adds up as the sum does.
    pub(crate) fn content(self) -> u64 {
        u64::from(self.fold) << 32 | u64::from(self.sum)
    }

    /// Whether the block is what a file system wants it to be.
    pub(crate) fn is(self, want: Want) -> bool {
        match want {
            Want::Sum(sum) => self.sum == sum,
            Want::End(end) => (1..=end).contains(&self.end),
            Want::Data => self.end > 0,
        }
    }
}

/// Blocks that were read of each member.
struct Window {
    /// The first block.
    at: u64,
    /// By member; shorter where the member ends.
    summaries: Vec<Vec<Summary>>,
}

/// The result of the pass.
pub(crate) struct Scan {
    windows: Vec<Window>,
    /// Blocks that a file system recognizes.
    pub(crate) seen: Seen,
    /// The members' lengths in blocks.
    pub(crate) lengths: Vec<u64>,
    /// By member, the blocks that md wrote: superblocks and what belongs to them.
    pub(crate) overwritten: Vec<Vec<Range<u64>>>,
    /// Blocks that could not be read.
    pub(crate) unreadable: u64,
    /// Bytes read.
    pub(crate) bytes: u64,
}

/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;
/// Bytes at the start of each member that are read in any case: data begins there, at most 128 MiB in.
const START_BYTES: u64 = 192 << 20;
/// Bytes of a window.
const WINDOW_BYTES: u64 = 4 << 20;

/// The ranges of bytes that are read of members of up to `longest` bytes.
fn ranges(longest: u64, members: u64, budget: u64) -> Vec<(u64, u64)> {
    let each = budget / members.max(1);
    if longest <= each || longest <= START_BYTES {
        return vec![(0, longest)];
    }
    let start = START_BYTES.min(each);
    let count = ((each - start) / WINDOW_BYTES).max(1);
    let step = ((longest - start) / count / WINDOW_BYTES).max(1) * WINDOW_BYTES;
    let windows = (0..count).map(|number| start + number * step);
    let ends = windows.filter(|at| *at < longest).map(|at| (at, (at + WINDOW_BYTES).min(longest)));
    std::iter::once((0, start)).chain(ends).collect()
}

impl Scan {
    /// Reads at most `budget` bytes, and a little more.
    pub(crate) async fn of<S: Source>(disks: &[S], budget: u64, progress: &dyn Fn(u64, u64)) -> Self {
        let lengths: Vec<u64> = disks.iter().map(|disk| disk.bytes() / BLOCK as u64).collect();
        let longest = lengths.iter().max().unwrap_or(&0) * BLOCK as u64;
        let ranges = ranges(longest, disks.len() as u64, budget);
        let total = ranges.iter().map(|(at, end)| end - at).sum::<u64>() * disks.len() as u64;
        let mut overwritten = Vec::new();
        for disk in disks {
            overwritten.push(overwritten::by_md(disk).await);
        }
        let (windows, seen) = (Vec::new(), Seen::default());
        let mut scan = Self { windows, seen, lengths, overwritten, unreadable: 0, bytes: 0 };
        for (at, end) in ranges {
            let window = scan.window(disks, at, end, &|bytes| progress(bytes.min(total), total)).await;
            scan.windows.push(window);
        }
        scan
    }

    async fn window<S: Source>(&mut self, disks: &[S], at: u64, end: u64, progress: &dyn Fn(u64)) -> Window {
        let mut window = Window { at: at / BLOCK as u64, summaries: vec![Vec::new(); disks.len()] };
        let mut position = at;
        while position < end {
            let length = READ_BYTES.min(end - position);
            // The xor of all members is what a missing one of RAID-5 holds.
            let mut xor = vec![0; length as usize];
            let mut held = Vec::with_capacity(disks.len());
            for (number, disk) in disks.iter().enumerate() {
                let own = length.min((self.lengths[number] * BLOCK as u64).saturating_sub(position)) as usize;
                let summaries = &mut window.summaries[number];
                match disk.read(position, own).await {
                    Ok(bytes) => {
                        summaries.extend(self.look(Holder::Member, number, position, &bytes));
                        xor.iter_mut().zip(&bytes).for_each(|(xor, byte)| *xor ^= byte);
                        held.push(bytes);
                    }
                    Err(_) => {
                        self.unreadable += (own / BLOCK) as u64;
                        summaries.resize(summaries.len() + own / BLOCK, Summary::default());
                    }
                }
                self.bytes += own as u64;
            }
            if disks.len() > 1 {
                self.look(Holder::Xor, 0, position, &xor);
                held.iter().for_each(|bytes| self.look_without(position, &xor, bytes));
            }
            progress(self.bytes);
            position += length;
        }
        window
    }

    /// Summarizes blocks, and notes those that a file system recognizes.
    fn look(&mut self, holder: Holder, disk: usize, position: u64, bytes: &[u8]) -> Vec<Summary> {
        let mut summaries = Vec::with_capacity(bytes.len() / BLOCK);
        for (index, block) in bytes.chunks_exact(BLOCK).enumerate() {
            let summary = Summary::of(block);
            if summary.end > 0 {
                let place = Place { holder, disk, at: position / BLOCK as u64 + index as u64 };
                self.seen.look(place, summary.sum, block);
            }
            summaries.push(summary);
        }
        summaries
    }

    /// Notes the blocks that a file system recognizes in the xor of all members but the one that holds `bytes`.
    fn look_without(&mut self, position: u64, xor: &[u8], bytes: &[u8]) {
        let blocks = xor.chunks_exact(BLOCK).zip(bytes.chunks_exact(BLOCK)).enumerate();
        for (index, (xor, own)) in blocks {
            let word = |at: usize| -> [u8; 8] { std::array::from_fn(|byte| xor[at + byte] ^ own[at + byte]) };
            // Without parity of its own, or with nothing on the member, it is what another already showed.
            if !Seen::may_be(word) || is_zero(xor) || is_zero(own) {
                continue;
            }
            let rest: Vec<u8> = xor.iter().zip(own).map(|(xor, own)| xor ^ own).collect();
            let at = position / BLOCK as u64 + index as u64;
            let place = Place { holder: Holder::XorWithoutOne, disk: 0, at };
            self.seen.look(place, sum(&rest), &rest);
        }
    }

    /// Whether md wrote block `at` of `disk`.
    pub(crate) fn is_overwritten(&self, disk: usize, at: u64) -> bool {
        self.overwritten[disk].iter().any(|range| range.contains(&at))
    }

    /// The summary of block `at` of `disk`, if it was read, and md did not write over it.
    pub(crate) fn summary(&self, disk: usize, at: u64) -> Option<Summary> {
        if self.is_overwritten(disk, at) {
            return None;
        }
        let index = self.windows.partition_point(|window| window.at <= at).checked_sub(1)?;
        let window = &self.windows[index];
        window.summaries[disk].get((at - window.at) as usize).copied()
    }

    /// The blocks that were read of every member, in order.
    pub(crate) fn common(&self) -> impl Iterator<Item = u64> + '_ {
        self.windows.iter().flat_map(|window| {
            let shortest = window.summaries.iter().map(Vec::len).min().unwrap_or(0) as u64;
            window.at..window.at + shortest
        })
    }

    /// Distances in blocks at which members repeat what others hold: where far copies of RAID-10 may be. The most
    /// frequent first.
    pub(crate) fn strides(&self) -> Vec<u64> {
        let mut seen: HashMap<u32, Vec<(usize, u64)>> = HashMap::new();
        for window in &self.windows {
            for (disk, summaries) in window.summaries.iter().enumerate() {
                for (at, summary) in (window.at..).zip(summaries).filter(|(_, summary)| is_sampled(summary)) {
                    let places = seen.entry(summary.sum).or_default();
                    if places.len() <= REPEATS_MAX {
                        places.push((disk, at));
                    }
                }
            }
        }
        let mut times: HashMap<u64, u64> = HashMap::new();
        for places in seen.into_values().filter(|places| places.len() <= REPEATS_MAX) {
            for (index, (disk, at)) in places.iter().enumerate() {
                for (_, other) in places[..index].iter().filter(|(other, place)| other != disk && place != at) {
                    *times.entry(at.abs_diff(*other)).or_default() += 1;
                }
            }
        }
        let mut times: Vec<(u64, u64)> = times.into_iter().filter(|(_, times)| *times >= TIMES_MIN).collect();
        times.sort_unstable_by_key(|(stride, times)| (u64::MAX - times, *stride));
        times.into_iter().take(STRIDES_MAX).map(|(stride, _)| stride).collect()
    }
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// Places of a block with the same content: of more than these, which is usual in a file system, none is counted.
const REPEATS_MAX: usize = 6;
/// How often a distance has to be seen.
const TIMES_MIN: u64 = 4;
/// Distances that are tried.
const STRIDES_MAX: usize = 3;

/// Whether a block takes part in the search for repeats: a quarter of those that are not zeros.
fn is_sampled(summary: &Summary) -> bool {
    summary.end > 0 && summary.sum.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, numbers};
    use futures_util::FutureExt;

    #[test]
    fn the_distance_of_far_copies_is_the_most_frequent_one_of_repeats() {
        let mut random = numbers(3);
        let blocks: Vec<Vec<u8>> = (0..120).map(|_| (0..BLOCK).map(|_| random() as u8).collect()).collect();
        let rows = |shift: usize| {
            let member = move |slot: usize| (0..40).map(move |row| row * 3 + (slot + 3 - shift) % 3);
            [0, 1, 2].map(|slot| member(slot).flat_map(|block| blocks[block].clone()).collect::<Vec<u8>>())
        };
        let members: Vec<Memory> = rows(0)
            .into_iter()
            .zip(rows(1))
            .map(|(first, second)| Memory([first, vec![0; 24 * BLOCK], second].concat()))
            .collect();
        let strides = |members: &[Memory]| {
            Scan::of(members, 1 << 30, &|_, _| {}).now_or_never().expect("memory answers at once").strides()
        };
        assert_eq!(strides(&members), [64]);
        assert_eq!(strides(&members[1..]), [64], "with a member missing");
        assert_eq!(strides(&members[..1]), [0_u64; 0], "a member does not repeat itself");
    }
}
