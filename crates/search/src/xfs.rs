//! XFS (version 5): its blocks hold their own address and a CRC, and its inodes say where files end.
//!
//! Facts: the kernel's `fs/xfs/libxfs/xfs_format.h` and `xfs_da_format.h`.

use crate::crc::{BLOCK, holds_own};
use crate::seen::number::{be16, be32, be64, id};
use crate::seen::{Expected, Holder, Place, Want, is_a_sum, some_of};
use std::collections::{HashMap, HashSet};

/// What a superblock says of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Super {
    /// Its uuid.
    pub(crate) id: [u8; 16],
    /// Its length in blocks.
    pub(crate) blocks: u64,
    /// The group of this copy.
    pub(crate) group: u32,
    group_blocks: u32,
    group_log: u8,
    inode_bytes: u16,
    inodes_log: u8,
}

/// A block with its own address.
struct Addressed {
    id: [u8; 16],
    block: u64,
    place: Place,
    sequence: u64,
    content: u64,
}

/// Which version of a block this is: later ones are greater, and what members hold is greater than any xor of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    holder: Holder,
    sequence: u64,
}

/// An inode's block, and the ends of its files. Their addresses need the superblock.
struct Inodes {
    id: [u8; 16],
    first: u64,
    place: Place,
    sequence: u64,
    content: u64,
    /// The address of a file's last block, and the bytes of the file in it.
    ends: Vec<(u64, u16)>,
    /// The addresses and lengths of files' extents.
    data: Vec<(u64, u64)>,
}

/// All that was recognized.
#[derive(Default)]
pub(crate) struct Seen {
    /// Superblocks, one of each group, with their block's sequence number and content.
    pub(crate) supers: Vec<(Place, Super, u64, u64)>,
    addressed: Vec<Addressed>,
    inodes: Vec<Inodes>,
}

impl Seen {
    /// Looks at a block.
    pub(crate) fn look(&mut self, place: Place, content: u64, block: &[u8]) {
        match be32(block, 0) {
            SUPER => self.look_at_group(place, content, block),
            word if SHORT_BLOCKS.contains(&word) => self.add(place, content, block, [52, 16, 24, 32]),
            LONG_BLOCK => self.add(place, content, block, [64, 24, 32, 40]),
            word if DIRECTORY_BLOCKS.contains(&word) => self.add(place, content, block, [4, 8, 16, 24]),
            word if word >> 16 == 0x494e => self.look_at_inodes(place, content, block),
            _ if matches!(be16(block, 8), 0x3df1 | 0x3dff | 0x3ebe | 0x3bee) => {
                self.add(place, content, block, [12, 16, 24, 32]);
            }
            _ => {}
        }
    }

    /// Adds a block with its CRC, address, sequence number and uuid at these places.
    fn add(&mut self, place: Place, content: u64, block: &[u8], [crc_at, block_at, sequence_at, id_at]: [usize; 4]) {
        if holds_own(block, crc_at) {
            self.addressed.push(Addressed {
                id: id(block, id_at),
                block: be64(block, block_at) / 8,
                place,
                sequence: be64(block, sequence_at),
                content,
            });
        }
    }

    fn look_at_group(&mut self, place: Place, content: u64, block: &[u8]) {
        let sector = usize::from(be16(block, 102));
        let valid = be16(block, 100) & 15 == 5 && be32(block, 4) as usize == BLOCK && sector >= 512;
        if !valid || !block.get(..sector).is_some_and(|sector| holds_own(sector, 224)) {
            return;
        }
        let meta = id(block, 248);
        let found = Super {
            id: if meta == [0; 16] { id(block, 32) } else { meta },
            blocks: be64(block, 8),
            group: 0,
            group_blocks: be32(block, 84),
            group_log: block[124],
            inode_bytes: be16(block, 104),
            inodes_log: block[123],
        };
        // The header of the group's free space follows, with the group's number.
        let header = block.get(sector..2 * sector).unwrap_or_default();
        if be32(header, 0) != 0x5841_4746 || !holds_own(header, 216) {
            return;
        }
        if found.group_log > 40 || found.inodes_log > 16 {
            return;
        }
        self.supers.push((place, Super { group: be32(header, 8), ..found }, be64(header, 208), content));
    }

    /// The versions of blocks that were seen: where, of which file system, which block, and when it was written.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (Place, [u8; 16], u64, u64)> {
        let supers = self.supers.iter().map(|(place, own, age, _)| (*place, own.id, own.super_block(), *age));
        let addressed = self.addressed.iter().map(|own| (own.place, own.id, own.block, own.sequence));
        let inodes = self.inodes.iter().map(|own| (own.place, own.id, own.first, own.sequence));
        supers.chain(addressed).chain(inodes)
    }

    fn look_at_inodes(&mut self, place: Place, content: u64, block: &[u8]) {
        // The size of an inode is a field of the superblock. The CRC tells which one it is.
        let Some(bytes) = [512, 1024, 2048, 256].into_iter().find(|bytes| holds_own(&block[..*bytes], 100)) else {
            return;
        };
        let whole = block.chunks_exact(bytes).all(|inode| be16(inode, 0) == 0x494e && holds_own(inode, 100));
        if !whole || block[4] != 3 || is_a_sum(block.chunks_exact(bytes).filter_map(is_as_long)) {
            return;
        }
        self.inodes.push(Inodes {
            id: id(block, 160),
            first: be64(block, 152),
            place,
            sequence: block.chunks_exact(bytes).map(|inode| be64(inode, 112)).max().unwrap_or(0),
            content,
            ends: block.chunks_exact(bytes).filter_map(end_of).collect(),
            data: block.chunks_exact(bytes).flat_map(extents_of).map(|(_, start, count)| (start, count)).collect(),
        });
    }

    /// What is known of the file system of `found`: of several versions of a block the latest. `held` says what held the
    /// block at a place, as far as it counts.
    pub(crate) fn expected(&self, found: &Super, held: &dyn Fn(Place) -> Option<Holder>) -> Vec<Expected> {
        let version = |place: Place, sequence: u64| Some(Version { holder: held(place)?, sequence });
        // One version of those in each kind of xor, as the level decides which of the two counts.
        let mut newest: HashMap<(u64, Holder), (Version, u64)> = HashMap::new();
        let mut add = |block: u64, version: Option<Version>, content: u64| {
            let Some(version) = version else { return };
            let entry = newest.entry((block, version.holder)).or_insert((version, content));
            if entry.0 < version {
                *entry = (version, content);
            }
        };
        for (place, own, sequence, content) in self.supers.iter().filter(|(_, own, ..)| own.id == found.id) {
            add(own.super_block(), version(*place, *sequence), *content);
        }
        for Addressed { block, place, sequence, content, .. } in self.addressed.iter().filter(|own| own.id == found.id)
        {
            add(*block, version(*place, *sequence), *content);
        }
        let inodes = || self.inodes.iter().filter(|own| own.id == found.id);
        let block_of = |inodes: &Inodes| found.linear(inodes.first >> found.inodes_log);
        inodes().for_each(|own| add(block_of(own), version(own.place, own.sequence), own.content));
        let held: HashSet<u64> = newest.keys().filter(|key| key.1 == Holder::Member).map(|key| key.0).collect();
        newest.retain(|(block, holder), _| *holder == Holder::Member || !held.contains(block));
        let mut expected: HashSet<Expected> = HashSet::new();
        for ((block, holder), (_, content)) in &newest {
            expected.insert(Expected { block: *block, want: Want::Content(*content), holder: *holder, by: None });
        }
        // Only inodes in the latest version of their block count.
        let newest_holder = |own: &Inodes| {
            let version = version(own.place, own.sequence)?;
            let is_newest = newest.get(&(block_of(own), version.holder)) == Some(&(version, own.content));
            is_newest.then_some(version.holder)
        };
        for (own, holder) in inodes().filter_map(|own| Some((own, newest_holder(own)?))) {
            let by = Some(block_of(own));
            let at = |address: u64| found.linear(address);
            expected.extend(own.ends.iter().map(|(end, bytes)| Expected {
                block: at(*end),
                want: Want::End(*bytes),
                holder,
                by,
            }));
            let data = own.data.iter().flat_map(|(start, count)| some_of(at(*start), *count));
            expected.extend(data.map(|block| Expected { block, want: Want::Data, holder, by }));
        }
        expected.into_iter().filter(|expected| expected.block < found.blocks).collect()
    }
}

const SUPER: u32 = 0x5846_5342;

/// B-tree blocks with short pointers, and with long ones.
const SHORT_BLOCKS: [u32; 6] = [0x4142_3342, 0x4142_3343, 0x4941_4233, 0x4649_4233, 0x524d_4233, 0x5233_4643];
const LONG_BLOCK: u32 = 0x424d_4133;
/// Blocks of directories.
const DIRECTORY_BLOCKS: [u32; 3] = [0x5844_4233, 0x5844_4433, 0x5844_4633];

/// Whether [`Seen::look`] might see something in a block with these words.
pub(crate) fn may_be(word: impl Fn(usize) -> [u8; 8]) -> bool {
    let first = be32(&word(0), 0);
    let is_first = |magic: &u32| *magic == first;
    SHORT_BLOCKS.iter().chain(&DIRECTORY_BLOCKS).chain(&[SUPER, LONG_BLOCK]).any(is_first)
        || first >> 16 == 0x494e
        || matches!(be16(&word(8), 0), 0x3df1 | 0x3dff | 0x3ebe | 0x3bee)
}

/// The written extents of a file that are in the inode: block of the file, address, length.
fn extents_of(inode: &[u8]) -> impl Iterator<Item = (u64, u64, u64)> {
    allocated(inode).filter(|(is_written, _)| *is_written).map(|(_, extent)| extent)
}

/// The extents of a file that are in the inode, and whether they are written.
fn allocated(inode: &[u8]) -> impl Iterator<Item = (bool, (u64, u64, u64))> {
    let is_flat_file = be16(inode, 2) >> 12 == 8 && inode[5] == 2;
    let has_wide_counts = be64(inode, 120) >> 4 & 1 == 1;
    let count = if has_wide_counts { be64(inode, 24) } else { u64::from(be32(inode, 76)) };
    let count = if is_flat_file { count } else { 0 };
    let records = inode[176..].chunks_exact(16).take(count as usize).map(|record| (be64(record, 0), be64(record, 8)));
    records.map(|(high, low)| {
        let extent = (high >> 9 & ((1 << 54) - 1), (high & 0x1ff) << 43 | low >> 21, low & 0x1f_ffff);
        (high >> 63 == 0, extent)
    })
}

/// Whether a file's extents fit its length, if they are in the inode: its last block is in one, and none that was written
/// goes further. XFS allocates more for a file that grows, and frees that when it is closed.
fn is_as_long(inode: &[u8]) -> Option<bool> {
    let last = be64(inode, 56).checked_sub(1)? / BLOCK as u64;
    allocated(inode).next()?;
    let is_covered = allocated(inode).any(|(_, (from, _, count))| (from..from + count).contains(&last));
    let is_exceeded = extents_of(inode).any(|(from, _, count)| from + count > last + 1);
    Some(is_covered && !is_exceeded)
}

/// The last block of a file with its extents in the inode, and the bytes of the file in it.
fn end_of(inode: &[u8]) -> Option<(u64, u16)> {
    let last = be64(inode, 56).checked_sub(1)?;
    let block = last / BLOCK as u64;
    let (from, start, _) = extents_of(inode).find(|(from, _, count)| (*from..from + count).contains(&block))?;
    Some((start + block - from, (last % BLOCK as u64 + 1) as u16))
}

impl Super {
    /// The superblock in `block`, also a copy.
    pub(crate) fn of(block: &[u8]) -> Option<(Self, u64)> {
        let mut seen = Seen::default();
        seen.look_at_group(Place { holder: Holder::Member, disk: 0, at: 0 }, 0, block);
        seen.supers.pop().map(|(_, found, age, _)| (found, age))
    }

    /// The block of this copy of the superblock.
    pub(crate) fn super_block(&self) -> u64 {
        u64::from(self.group) * u64::from(self.group_blocks)
    }

    /// The block with this address of XFS, which has the group's number in its high bits.
    fn linear(&self, address: u64) -> u64 {
        let group = address >> self.group_log;
        group.saturating_mul(self.group_blocks.into()).saturating_add(address & ((1 << self.group_log) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of so many bytes, with one extent of so many blocks.
    fn inode(bytes: u64, blocks: u64, is_written: bool) -> Vec<u8> {
        let mut inode = vec![0; 512];
        let mut put = |at: usize, value: &[u8]| inode[at..at + value.len()].copy_from_slice(value);
        put(2, &0x81a4_u16.to_be_bytes());
        put(5, &[2]);
        put(56, &bytes.to_be_bytes());
        put(76, &1_u32.to_be_bytes());
        put(176, &(u64::from(!is_written) << 63).to_be_bytes());
        put(184, &(1000 << 21 | blocks).to_be_bytes());
        inode
    }

    #[test]
    fn parity_of_three_blocks_of_inodes_is_told_from_files_with_holes_and_unwritten_ends() {
        let mut random = crate::memory::numbers(4);
        let mut file = || {
            let bytes = 1 + random() % 100_000;
            inode(bytes, bytes.div_ceil(BLOCK as u64), true)
        };
        let mut block = || -> Vec<u8> { (0..8).flat_map(|_| file()).collect() };
        let parts = [block(), block(), block()];
        let sum: Vec<u8> = (0..BLOCK).map(|at| parts.iter().fold(0, |sum, part| sum ^ part[at])).collect();
        let is_sum = |block: &[u8]| is_a_sum(block.chunks_exact(512).filter_map(is_as_long));
        assert!(is_sum(&sum) && !parts.iter().any(|part| is_sum(part)));
        // An image of a machine whose end is not written, and a file that ends with a hole.
        let real = [inode(1 << 20, 256, false), inode(1 << 20, 10, true)].concat();
        assert!(!is_sum(&real));
    }
}
