//! Blocks that say by themselves where in a file system they are, as the pass over the members meets them.
//!
//! Superblocks, what file systems lie in, and blocks of XFS and Btrfs with their own address. A block of parity can look
//! like the data it protects, and a journal holds copies, so that what is seen is a claim and no proof.

use crate::{btrfs, ext4, outer, xfs};
use std::collections::{HashMap, HashSet};

/// What held a block, the least trusted first: members of other shapes have nothing but noise in their xor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// The xor of all members but one: what a missing one of RAID-6 holds, if that one has Q there.
    XorWithoutOne,
    /// The xor of all members: what a missing one of RAID-4 or RAID-5 holds.
    Xor,
    /// A member.
    Member,
}

/// A block at a place on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// What held it.
    pub(crate) holder: Holder,
    /// The member, or the one that is not in the xor.
    pub(crate) disk: usize,
    /// The block on it.
    pub(crate) at: u64,
}

/// All that was recognized.
#[derive(Default)]
pub(crate) struct Seen {
    /// Superblocks of ext2, ext3 and ext4, with their block's content: at the start of a file system, and copies.
    pub(crate) ext4: Vec<(Place, ext4::Super, u64)>,
    /// What is XFS's.
    pub(crate) xfs: xfs::Seen,
    /// What is Btrfs's.
    pub(crate) btrfs: btrfs::Seen,
    /// First blocks of what file systems lie in, with their block's content.
    pub(crate) outer: Vec<(Place, outer::First, u64)>,
}

impl Seen {
    /// Looks at a block that is not zero.
    pub(crate) fn look(&mut self, place: Place, content: u64, block: &[u8]) {
        self.ext4.extend(ext4::Super::of(block).map(|found| (place, found, content)));
        self.outer.extend(outer::First::of(block).map(|found| (place, found, content)));
        self.xfs.look(place, content, block);
        self.btrfs.look(place, content, block);
    }

    /// The file systems whose first superblock a member holds.
    pub(crate) fn systems(&self) -> HashSet<[u8; 16]> {
        self.ages().map(|(id, ..)| id).collect()
    }

    /// The file systems whose first superblock a member holds, with the age that it states and the member.
    pub(crate) fn ages(&self) -> impl Iterator<Item = ([u8; 16], u64, usize)> {
        let ext4 = self.ext4.iter().filter(|(_, own, _)| own.group == 0);
        let ext4 = ext4.map(|(place, own, _)| (*place, own.id, u64::from(own.written)));
        let xfs = self.xfs.supers.iter().filter(|(_, own, ..)| own.group == 0);
        let xfs = xfs.map(|(place, own, age, _)| (*place, own.id, *age));
        let btrfs = self.btrfs.supers.iter().map(|(place, own, _)| (*place, own.id, own.generation));
        let held = ext4.chain(xfs).chain(btrfs).filter(|(place, ..)| place.holder == Holder::Member);
        held.map(|(place, id, age)| (id, age, place.disk))
    }

    /// Whether everything that was written of the file systems is in its place: each ext4 was unmounted, by its latest first
    /// superblock. A block that is not as it should be is then a fault. What is in the log of XFS is not known here.
    pub(crate) fn is_settled(&self) -> bool {
        // A journal has older ones. Clocks may be wrong, and what was written in a lifetime only grows.
        let latest = |copy: &ext4::Super| {
            let firsts = self.ext4.iter().map(|(_, own, _)| own).filter(|own| own.group == 0 && own.id == copy.id);
            firsts.max_by_key(|own| (own.lifetime_kib, own.written, !own.is_clean))
        };
        let is_any = !self.ext4.is_empty() || !self.btrfs.supers.is_empty();
        let is_ext4 = self.ext4.iter().all(|(_, own, _)| latest(own).is_some_and(|latest| latest.is_clean));
        is_any && self.xfs.supers.is_empty() && is_ext4
    }

    /// Which member has missed a write. At a place where members disagree, one holds a version of a block, and the xor of the
    /// others another. If its own is the older one, the member is stale; if it is the newer one, another member is.
    pub(crate) fn missed(&self) -> Missed {
        let supers = self.ext4.iter().map(|(place, own, _)| (*place, own.id, own.super_block(), own.lifetime_kib));
        let of_btrfs =
            self.btrfs.supers.iter().map(|(place, own, _)| (*place, own.id, own.super_block, own.generation));
        let versions = || supers.clone().chain(of_btrfs.clone()).chain(self.xfs.versions());
        let others = versions().filter(|(place, ..)| place.holder == Holder::XorWithoutOne);
        let others: HashMap<_, u64> =
            others.map(|(place, id, block, age)| ((place.disk, place.at, id, block), age)).collect();
        let mut missed = Missed::default();
        for (place, id, block, age) in versions().filter(|(place, ..)| place.holder == Holder::Member) {
            let theirs = others.get(&(place.disk, place.at, id, block)).copied().unwrap_or(age);
            missed.older |= u64::from(age < theirs) << place.disk;
            missed.newer |= u64::from(age > theirs) << place.disk;
        }
        missed
    }

    /// Whether [`Seen::look`] might see something in a block of which `word` gives the word at a multiple of 8 bytes.
    pub(crate) fn may_be(word: impl Fn(usize) -> [u8; 8]) -> bool {
        ext4::may_be(&word) || xfs::may_be(&word) || btrfs::may_be(&word) || outer::may_be(&word)
    }
}

/// Members, as bits, that hold an older version of a block than the xor of all others, and those that hold a newer one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) older: u64,
    pub(crate) newer: u64,
}

impl Missed {
    /// Whether it shows that this shape of one parity, with a member left out as stale, leaves out the wrong one.
    pub(crate) fn refutes(self, members: u64, left_out: u64) -> bool {
        // Only one member can be told; more have missed different writes.
        self.older.count_ones() <= 1 && (self.older & members != 0 || self.newer & left_out != 0)
    }
}

/// What a block of the file system has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Want {
    /// A content with this sum, which another block holds. Blocks that end with their own CRC all have the same.
    Sum(u32),
    /// This content, of a block that was seen.
    Content(u64),
    /// The end of a file: nothing but zeros from this byte on, and usually something before.
    End(u16),
    /// A part of a file, which is usually not all zeros.
    Data,
}

impl Want {
    /// Whether a block of a known content, as [`crate::crc::content`] gives it, is this.
    pub(crate) fn is_content(self, content: u64) -> bool {
        match self {
            Self::Sum(sum) => content as u32 == sum,
            Self::Content(own) => content == own,
            Self::End(_) | Self::Data => false,
        }
    }
}

/// A block of the file system, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Expected {
    /// The block, counted from the file system's start.
    pub(crate) block: u64,
    /// What it has to be.
    pub(crate) want: Want,
    /// What held it where it was seen. The xor of an odd number of blocks with a CRC each has one too, so that this means
    /// something only where a missing member holds that xor.
    pub(crate) holder: Holder,
    /// The block that says so, if it may be none of the file system's. Where it is nowhere, this is not known.
    pub(crate) by: Option<u64>,
}

impl Expected {
    pub(crate) fn new(block: u64, want: Want) -> Self {
        Self { block, want, holder: Holder::Member, by: None }
    }
}

/// Finds blocks of the file system among the members.
pub(crate) trait Finder {
    /// Whether every member gives what the array had at `block`: it can be read, and md wrote no superblocks over it.
    fn knows(&self, block: u64) -> bool;

    /// What held the block that was seen at `place`, among the members that count; `None` if these say nothing of it.
    fn holder(&self, place: Place) -> Option<Holder>;

    /// The block at `block` for which `is_right` holds; `None` if none of the members has it.
    async fn find(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>>;

    /// All different blocks that may be the one at `block`, as far as `is_right` holds for them.
    async fn find_all(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Vec<Vec<u8>>;

    /// The `blocks` blocks from `first` on, if `node` recognizes the first, and their CRC tells which the others are.
    async fn find_node(&mut self, first: u64, blocks: u64, node: &dyn Fn(&[u8]) -> Option<Node>) -> Option<Vec<u8>>;
}

/// What the first block of several says of all.
pub(crate) struct Node {
    /// The usual CRC-32C of all.
    pub(crate) stored: u32,
    /// The register behind the first block, begun with ones and not inverted.
    pub(crate) register: u32,
}

/// The result of a walk through a file system.
#[derive(Default)]
pub(crate) struct Walk {
    /// What is known of blocks.
    pub(crate) expected: Vec<Expected>,
    /// What is known if it is there at all: of a block that is nowhere, nothing is known.
    pub(crate) likely: Vec<Expected>,
    /// Blocks of metadata that no member has at their place.
    pub(crate) lost: Vec<u64>,
    /// Whether even the first of all is nowhere.
    pub(crate) is_wrong: bool,
    /// File systems that members have, and that are in no volume.
    pub(crate) missed: u64,
}

impl Walk {
    /// Notes the block that was found at `block`.
    pub(crate) fn note(&mut self, block: u64, found: &[u8]) {
        self.expected.push(Expected::new(block, Want::Content(crate::crc::content(found))));
    }

    /// Notes what the block at `block` is in nearly all file systems.
    pub(crate) fn note_likely(&mut self, block: u64, content: &[u8]) {
        self.likely.push(Expected::new(block, Want::Content(crate::crc::content(content))));
    }

    /// Notes that a block was not found, if all that the members have there was looked at.
    pub(crate) fn lose(&mut self, block: u64, finder: &impl Finder) {
        if finder.knows(block) {
            self.lost.push(block);
        }
    }
}

/// Blocks of an extent that are looked at, at most: the blocks of a long file are as many as those of the disks.
const SOME: u64 = 1000;

/// Some of `count` blocks from `start` on, spread evenly, and not always at the same place in a chunk.
pub(crate) fn some_of(start: u64, count: u64) -> impl Iterator<Item = u64> {
    let step = count.div_ceil(SOME).max(1) | 1;
    (start..start.saturating_add(count)).step_by(step as usize)
}

/// A walk ends when so many blocks are nowhere: its shape is wrong.
pub(crate) const LOST_MAX: usize = 12;

/// Whether a block of inodes is the sum of an odd number of others, as parity is. CRCs are linear, so those of such a sum
/// are right wherever its inodes' numbers are the sum of theirs. But its files' lengths do not fit their extents.
///
/// `fitting` says of each file whether its extents fit its length. A real file may end with a hole, but few do.
pub(crate) fn is_a_sum(fitting: impl Iterator<Item = bool>) -> bool {
    let (files, unfit) = fitting.fold((0, 0), |(files, unfit), is_fitting| (files + 1, unfit + u32::from(!is_fitting)));
    unfit > 1 && unfit * 8 > files
}

/// Little-endian and big-endian numbers of a block; 0 past its end.
pub(crate) mod number {
    fn bytes<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
        block.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }
    pub(crate) fn le16(block: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(bytes(block, at))
    }
    pub(crate) fn le32(block: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes(block, at))
    }
    pub(crate) fn le64(block: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes(block, at))
    }
    pub(crate) fn be16(block: &[u8], at: usize) -> u16 {
        u16::from_be_bytes(bytes(block, at))
    }
    pub(crate) fn be32(block: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(bytes(block, at))
    }
    pub(crate) fn be64(block: &[u8], at: usize) -> u64 {
        u64::from_be_bytes(bytes(block, at))
    }
    pub(crate) fn id(block: &[u8], at: usize) -> [u8; 16] {
        bytes(block, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The block of a first superblock of ext4 without checksums.
    fn ext4(id: u8, written: u32, lifetime_kib: u64, is_clean: bool) -> Vec<u8> {
        let mut block = vec![0; 4096];
        let mut put = |at: usize, bytes: &[u8]| block[1024 + at..1024 + at + bytes.len()].copy_from_slice(bytes);
        put(0x38, &0xef53_u16.to_le_bytes());
        put(0x18, &2_u32.to_le_bytes());
        put(0, &8192_u32.to_le_bytes());
        put(0x1c, &2_u32.to_le_bytes());
        put(0x24, &32768_u32.to_le_bytes());
        put(0x4c, &1_u32.to_le_bytes());
        put(4, &1000_u32.to_le_bytes());
        put(0x20, &32768_u32.to_le_bytes());
        put(0x28, &8192_u32.to_le_bytes());
        put(0x58, &256_u16.to_le_bytes());
        put(0x68, &[id; 16]);
        put(0x30, &written.to_le_bytes());
        put(0x178, &lifetime_kib.to_le_bytes());
        put(0x60, &(if is_clean { 0_u32 } else { 4 }).to_le_bytes()); // a journal that is to be replayed
        put(0x3a, &u16::from(is_clean).to_le_bytes());
        block
    }

    #[test]
    fn everything_is_in_its_place_if_the_latest_superblock_of_each_ext4_says_that_it_was_unmounted() {
        let clean = |written, kib| ext4(1, written, kib, true);
        let mounted = |written, kib| ext4(1, written, kib, false);
        for (blocks, expected) in [
            (vec![], false),
            (vec![clean(5, 9)], true),
            (vec![mounted(5, 9)], false),
            (vec![mounted(5, 9), clean(6, 9)], true), // an older one in its journal, or of a stale member
            (vec![clean(5, 9), mounted(6, 9)], false),
            (vec![mounted(7, 8), clean(6, 9)], true), // the clock was wrong
            (vec![clean(7, 8), mounted(6, 9)], false),
            (vec![clean(5, 9), mounted(5, 9)], false), // both at once: the worse one
            (vec![clean(5, 9), ext4(2, 5, 9, true)], true),
            (vec![clean(5, 9), ext4(2, 5, 9, false)], false), // another file system
        ] {
            let mut seen = Seen::default();
            for (disk, block) in blocks.iter().enumerate() {
                seen.look(Place { holder: Holder::Member, disk, at: 0 }, disk as u64, block);
            }
            assert_eq!(seen.ext4.len(), blocks.len(), "each is one");
            assert_eq!(seen.is_settled(), expected, "{:?}", seen.ext4);
        }
    }

    #[test]
    fn the_later_of_two_versions_at_one_place_tells_which_member_has_missed_a_write() {
        let member = |disk, at, kib| (Place { holder: Holder::Member, disk, at }, kib);
        let others = |disk, at, kib| (Place { holder: Holder::XorWithoutOne, disk, at }, kib);
        let missed = |older, newer| Missed { older, newer };
        for (versions, expected) in [
            (vec![member(1, 0, 9)], missed(0, 0)),
            (vec![member(1, 0, 9), others(1, 0, 9)], missed(0, 0)),
            (vec![member(1, 0, 8), others(1, 0, 9)], missed(0b10, 0)),
            (vec![others(1, 0, 8), member(1, 0, 9)], missed(0, 0b10)),
            (vec![member(1, 0, 8), others(2, 0, 9)], missed(0, 0)), // of another member
            (vec![member(1, 0, 8), others(1, 7, 9)], missed(0, 0)), // at another place
            (vec![member(0, 0, 8), others(0, 0, 9), member(2, 5, 9), others(2, 5, 8)], missed(0b1, 0b100)),
        ] {
            let mut seen = Seen::default();
            versions.iter().for_each(|(place, kib)| seen.look(*place, *kib, &ext4(1, 5, *kib, true)));
            assert_eq!(seen.missed(), expected, "{versions:?}");
        }
        for (older, newer, members, left_out, expected) in [
            (0, 0, 0b011, 0b100, false),
            (0b100, 0, 0b011, 0b100, false),
            (0b001, 0, 0b011, 0b100, true),      // a stale one is in it
            (0, 0b100, 0b011, 0b100, true),      // a current one is left out
            (0b011, 0b100, 0b011, 0b100, false), // more than one can have missed
        ] {
            assert_eq!(missed(older, newer).refutes(members, left_out), expected, "{older:b} {newer:b}");
        }
    }
}
