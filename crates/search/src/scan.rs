//! One pass over the members: a summary of each block, and the blocks that file systems recognize as their own.
//!
//! Memory is bounded: sixteen bytes for each 4 KiB that were read. Of members that are longer than the budget, the start
//! is read, and windows at equal distances, the same on each member.

use crate::crc::{BLOCK, content, fold, joined, sum};
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
    /// Of a block that could not be read.
    const UNREADABLE: Self = Self { sum: 0, fold: 0, end: u16::MAX };
    /// Of a block over which md wrote.
    const OVERWRITTEN: Self = Self { sum: 1, ..Self::UNREADABLE };

    pub(crate) fn of(block: &[u8]) -> Self {
        let end = block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if end == 0 {
            return Self::default();
        }
        Self { sum: sum(block), fold: fold(block), end: end as u16 }
    }
}

impl Summary {
    /// Whether nothing is known of what the array had there.
    fn is_lost(&self) -> bool {
        self.end == u16::MAX
    }

    /// What tells contents apart, and adds up as the sum does.
    pub(crate) fn content(self) -> u64 {
        joined(self.sum, self.fold)
    }

    /// Whether the block is what a file system wants it to be.
    pub(crate) fn is(self, want: Want) -> bool {
        match want {
            Want::Sum(_) | Want::Content(_) => want.is_content(self.content()),
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

impl Window {
    /// The blocks that were read of every member, and are not zeros on all of them.
    fn written(&self) -> impl Iterator<Item = u64> + '_ {
        let shortest = self.summaries.iter().map(Vec::len).min().unwrap_or(0);
        let is_written = |index: &usize| self.summaries.iter().any(|own| own[*index] != Summary::default());
        (0..shortest).filter(is_written).map(|index| self.at + index as u64)
    }
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
    /// In order, the blocks that were read of every member, and are not zeros on all of them.
    written: Vec<u64>,
    /// Bytes read.
    pub(crate) bytes: u64,
}

/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;
/// Bytes at the start of each member that are read in any case: data begins there, at most 128 MiB in.
const START_BYTES: u64 = 192 << 20;
/// Bytes of a window.
const WINDOW_BYTES: u64 = 4 << 20;

/// Reads bytes of a disk, in blocks of which each is read alone if they cannot be read together: from the start to the first
/// one that cannot be read, and from the end back to the last one. What is between them counts as unreadable, so that a
/// failing disk is asked for few more blocks. Gives the bytes, zeros for what is lost, and the blocks that are.
async fn read<S: Source>(disk: &S, at: u64, length: usize) -> (Vec<u8>, Range<usize>) {
    if let Ok(bytes) = disk.read(at, length).await {
        return (bytes, 0..0);
    }
    let (mut bytes, blocks) = (vec![0; length], length / BLOCK);
    let mut lost = 0..blocks;
    while let Some(block) = lost.next() {
        let Ok(own) = disk.read(at + (block * BLOCK) as u64, BLOCK).await else {
            lost.start = block;
            break;
        };
        bytes[block * BLOCK..][..BLOCK].copy_from_slice(&own);
    }
    while let Some(block) = lost.next_back() {
        let Ok(own) = disk.read(at + (block * BLOCK) as u64, BLOCK).await else {
            lost.end = block + 1;
            break;
        };
        bytes[block * BLOCK..][..BLOCK].copy_from_slice(&own);
    }
    (bytes, lost)
}

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
        let mut scan = Self { windows, seen, lengths, overwritten, unreadable: 0, written: Vec::new(), bytes: 0 };
        for (at, end) in ranges {
            let window = scan.window(disks, at, end, &|bytes| progress(bytes.min(total), total)).await;
            scan.written.extend(window.written());
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
            let (mut held, mut unread) = (Vec::with_capacity(disks.len()), Vec::new());
            for (number, disk) in disks.iter().enumerate() {
                let own = length.min((self.lengths[number] * BLOCK as u64).saturating_sub(position)) as usize;
                let summaries = &mut window.summaries[number];
                let (bytes, lost) = read(disk, position, own).await;
                let first = summaries.len();
                summaries.extend(self.look(Holder::Member, number, position, &bytes));
                summaries[first..][lost.clone()].fill(Summary::UNREADABLE);
                self.unreadable += lost.len() as u64;
                xor.iter_mut().zip(&bytes).for_each(|(xor, byte)| *xor ^= byte);
                held.push(bytes);
                unread.push(lost);
                self.bytes += own as u64;
            }
            // Beside an unreadable block, the xor is what that one holds, and not a missing member.
            unread.into_iter().for_each(|blocks| xor[blocks.start * BLOCK..blocks.end * BLOCK].fill(0));
            if disks.len() > 1 {
                self.look(Holder::Xor, 0, position, &xor);
                held.iter().enumerate().for_each(|(disk, bytes)| self.look_without(disk, position, &xor, bytes));
            }
            progress(self.bytes);
            position += length;
        }
        for (summaries, overwritten) in window.summaries.iter_mut().zip(&self.overwritten) {
            for range in overwritten {
                let length = summaries.len();
                let inside = |block: u64| (block.saturating_sub(window.at) as usize).min(length);
                summaries[inside(range.start)..inside(range.end)].fill(Summary::OVERWRITTEN);
            }
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
                self.seen.look(place, summary.content(), block);
            }
            summaries.push(summary);
        }
        summaries
    }

    /// Notes the blocks that a file system recognizes in the xor of all members but `disk`, which holds `bytes`.
    fn look_without(&mut self, disk: usize, position: u64, xor: &[u8], bytes: &[u8]) {
        let blocks = xor.chunks_exact(BLOCK).zip(bytes.chunks_exact(BLOCK)).enumerate();
        for (index, (xor, own)) in blocks {
            let word = |at: usize| -> [u8; 8] { std::array::from_fn(|byte| xor[at + byte] ^ own[at + byte]) };
            // Without parity of its own, or with nothing on the member, it is what another already showed.
            if !Seen::may_be(word) || is_zero(xor) || is_zero(own) {
                continue;
            }
            let rest: Vec<u8> = xor.iter().zip(own).map(|(xor, own)| xor ^ own).collect();
            let at = position / BLOCK as u64 + index as u64;
            let place = Place { holder: Holder::XorWithoutOne, disk, at };
            self.seen.look(place, content(&rest), &rest);
        }
    }

    /// Whether block `at` of `disk` could not be read, or md wrote over it.
    pub(crate) fn is_lost(&self, disk: usize, at: u64) -> bool {
        self.is_unreadable(disk, at) || self.overwritten[disk].iter().any(|range| range.contains(&at))
    }

    /// Whether block `at` of `disk` could not be read.
    pub(crate) fn is_unreadable(&self, disk: usize, at: u64) -> bool {
        self.raw(disk, at) == Some(Summary::UNREADABLE)
    }

    /// The summary of block `at` of `disk`, if it was read, and md did not write over it.
    pub(crate) fn summary(&self, disk: usize, at: u64) -> Option<Summary> {
        self.raw(disk, at).filter(|summary| !summary.is_lost())
    }

    /// Whether the xor of all members is zero at block `at`, as that of data and P is.
    pub(crate) fn agrees(&self, at: u64) -> bool {
        let mut contents = (0..self.lengths.len()).map(|disk| Some(self.summary(disk, at)?.content()));
        contents.try_fold(0, |xor, content| Some(xor ^ content?)) == Some(0)
    }

    fn raw(&self, disk: usize, at: u64) -> Option<Summary> {
        let index = self.windows.partition_point(|window| window.at <= at).checked_sub(1)?;
        let window = &self.windows[index];
        window.summaries[disk].get((at - window.at) as usize).copied()
    }

    /// In order, those of these blocks that were read of every member, and are not zeros on all of them; counted from the
    /// start of the range.
    pub(crate) fn written(&self, range: Range<u64>) -> impl ExactSizeIterator<Item = u64> + '_ {
        let behind = |end: u64| self.written.partition_point(|at| *at < end);
        self.written[behind(range.start)..behind(range.end)].iter().map(move |at| at - range.start)
    }

    /// Distances in blocks at which members repeat what others hold: where far copies of RAID-10 may be. The most
    /// frequent first.
    pub(crate) fn strides(&self) -> Vec<u64> {
        let mut seen: HashMap<u64, Vec<(usize, u64)>> = HashMap::new();
        for window in &self.windows {
            for (disk, summaries) in window.summaries.iter().enumerate() {
                for (at, summary) in (window.at..).zip(summaries).filter(|(_, summary)| is_sampled(summary)) {
                    let places = seen.entry(summary.content()).or_default();
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
    !summary.is_lost() && summary.end > 0 && summary.sum.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, numbers};
    use futures_util::FutureExt;

    /// A member with blocks that cannot be read.
    struct Failing(Memory, [u64; 2]);

    impl Source for Failing {
        fn bytes(&self) -> u64 {
            self.0.bytes()
        }

        async fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
            let blocks = at / BLOCK as u64..(at + length as u64).div_ceil(BLOCK as u64);
            match self.1.iter().find(|block| blocks.contains(block)) {
                Some(block) => Err(format!("block {block}")),
                None => self.0.read(at, length).await,
            }
        }
    }

    #[test]
    fn of_a_failing_disk_only_what_is_between_two_unreadable_blocks_of_a_read_is_lost() {
        let mut random = numbers(5);
        let bytes: Vec<u8> = (0..600 * BLOCK).map(|_| random() as u8).collect();
        for (failing, lost) in [([7, 7], 7..8), ([0, 255], 0..256), ([20, 31], 20..32), ([599, 599], 599..600)] {
            let disks = [Failing(Memory(bytes.clone()), failing), Failing(Memory(bytes.clone()), [u64::MAX; 2])];
            let scan = Scan::of(&disks, 1 << 30, &|_, _| {}).now_or_never().expect("memory answers at once");
            assert_eq!(scan.unreadable, lost.end - lost.start);
            for block in 0..600 {
                let own = &bytes[block as usize * BLOCK..][..BLOCK];
                let expected = Some(Summary::of(own)).filter(|_| !lost.contains(&block));
                assert_eq!(scan.summary(0, block), expected, "block {block} with {failing:?}");
                assert_eq!(scan.is_lost(0, block), lost.contains(&block));
                assert_eq!(scan.summary(1, block), Some(Summary::of(own)));
            }
        }
    }

    #[test]
    fn two_versions_of_a_block_that_ends_with_its_own_crc_differ_by_content_alone() {
        let version = |byte: u8| {
            let mut block = vec![byte; BLOCK - 4];
            block.extend(crate::crc::raw(!0, &block).to_le_bytes());
            (Summary::of(&block), content(&block))
        };
        let ((old, content_of_old), (new, content_of_new)) = (version(1), version(2));
        assert!(old.is(Want::Sum(new.sum)) && new.is(Want::Sum(old.sum)));
        assert!(old.is(Want::Content(content_of_old)) && new.is(Want::Content(content_of_new)));
        assert!(!old.is(Want::Content(content_of_new)) && !new.is(Want::Content(content_of_old)));
    }

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
