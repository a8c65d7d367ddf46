//! Whether a block without a checksum can be what it should be: by what its fields have to be, and by what has to fit.
//!
//! Each rule holds for every block that Linux writes, so that a block that breaks one is another block. A block that
//! keeps all of them may still be another one, such as parity of its like: who uses a rule has to reckon with that.
//! Nothing here reads a member.

use super::inode::{EXTENTS, Kind, MAP_AT, MAP_BYTES, WRITTEN_MAX, has_extents, is_inline, kind, last_byte, links};
use super::superblock::Super;
use crate::crc::BLOCK;
use crate::seen::number::{le16, le32};
use std::collections::HashSet;

/// The root directory.
pub(super) const ROOT: u32 = 2;
/// The inode to which the blocks belong that are kept for descriptors.
pub(super) const RESIZE: u32 = 7;
/// The inode of the journal.
pub(super) const JOURNAL: u32 = 8;
/// The last of the inodes with a purpose of their own.
const RESERVED_LAST: u32 = 10;
/// What a descriptor's flags may be.
const FLAGS: u16 = 7;
const NANOSECONDS: u32 = 1_000_000_000;

impl Super {
    /// Whether the descriptors of groups can be these: what they name is in the file system, and no two are at one place.
    pub(super) fn are_descriptors(&self, first: u32, descriptors: &[&[u8]]) -> bool {
        let table_blocks = u64::from(self.group_inodes) * u64::from(self.inode_bytes) / BLOCK as u64;
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let are_sane = (first..).zip(descriptors).all(|(number, own)| {
            let own = Descriptor(own);
            taken.extend([(own.block_bitmap(), 1), (own.inode_bitmap(), 1), (own.table(), table_blocks)]);
            let group = u64::from(number) * u64::from(self.group_blocks);
            // Without flexible groups each has its own in it. With them `resize2fs` may have put them elsewhere.
            let (from, end) = match self.together {
                1 => (group, (group + u64::from(self.group_blocks)).min(self.blocks)),
                _ => (0, self.blocks),
            };
            let here = &taken[taken.len() - 3..];
            let is_inside = |(at, count): &(u64, u64)| *at >= from.max(1) && at.saturating_add(*count) <= end;
            here.iter().all(is_inside)
                && own.free_blocks() <= self.group_blocks
                && own.free_inodes() <= self.group_inodes
                && own.directories() <= self.group_inodes - own.free_inodes()
                && own.unused() <= own.free_inodes()
                && own.flags() <= FLAGS
        });
        taken.sort_unstable();
        are_sane && taken.is_sorted_by(|(at, count), (next, _)| at + count <= *next)
    }

    /// Whether `inode` can be that of a file.
    fn is_used(&self, inode: &[u8]) -> bool {
        let Some(kind) = kind(inode) else { return false };
        let is_alive = links(inode) > 0 && le32(inode, 0x14) == 0;
        is_alive && self.has_sane_map(kind, inode) && has_sane_times(inode)
    }

    fn has_sane_map(&self, kind: Kind, inode: &[u8]) -> bool {
        let map = &inode[MAP_AT..MAP_AT + MAP_BYTES];
        let length = last_byte(inode).map_or(0, |last| last.saturating_add(1));
        let is_map = || map.chunks_exact(4).all(|entry| u64::from(le32(entry, 0)) < self.blocks);
        let is_inside = || if has_extents(inode) { self.is_node(map, None, None) } else { is_map() };
        match kind {
            _ if is_inline(inode) => true,
            Kind::Special => !has_extents(inode) && map[8..].iter().all(|byte| *byte == 0),
            Kind::Link if length < MAP_BYTES as u64 && !has_extents(inode) => true,
            Kind::Link => length <= BLOCK as u64 && is_inside(),
            Kind::Directory => length > 0 && length.is_multiple_of(BLOCK as u64) && is_inside(),
            Kind::File => is_inside(),
        }
    }

    /// Whether `node` can be one of extents: as many fit as it says, in order, and in the file system. `depth` is that of
    /// one below another, and `first` the block of the file from which it is.
    pub(super) fn is_node(&self, node: &[u8], depth: Option<u16>, first: Option<u32>) -> bool {
        const DEPTH_MAX: u16 = 5;
        let (count, most, own_depth) = (usize::from(le16(node, 2)), usize::from(le16(node, 4)), le16(node, 6));
        let is_head = le16(node, 0) == EXTENTS && most == (node.len() - 12) / 12 && count <= most;
        if !is_head || own_depth > DEPTH_MAX || depth.is_some_and(|depth| own_depth != depth || count == 0) {
            return false;
        }
        let mut next = u64::from(first.unwrap_or(0));
        node[12..].chunks_exact(12).take(count).all(|entry| {
            let from = u64::from(le32(entry, 0));
            let (start, length) = if own_depth > 0 {
                (u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32, 1)
            } else {
                let length = u64::from(le16(entry, 4));
                let length = if length > WRITTEN_MAX { length - WRITTEN_MAX } else { length };
                (u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32, length)
            };
            let is_next = from >= next && length > 0 && start > 0 && start + length <= self.blocks;
            next = from + length;
            is_next
        })
    }

    /// Whether `block` can list blocks of a file, of which so many are left from its first one on: these are in the file
    /// system and different, and behind them is nothing. `each` is how many of the file's an entry stands for.
    pub(super) fn is_list(&self, left: u64, each: u64, block: &[u8]) -> bool {
        let count = left.div_ceil(each);
        let entries = || (0..).zip(block.chunks_exact(4).map(|entry| le32(entry, 0)));
        let mut seen = HashSet::new();
        let is_sane =
            |(number, entry): (u64, u32)| number < count && u64::from(entry) < self.blocks && seen.insert(entry);
        entries().any(|(_, entry)| entry != 0) && entries().filter(|(_, entry)| *entry != 0).all(is_sane)
    }

    /// Whether `block` can be of inodes from `first` on, as far as it is told which of them are `used`, and one is.
    pub(super) fn are_inodes(&self, first: u32, used: &dyn Fn(u32) -> Option<bool>, block: &[u8]) -> bool {
        let mut is_any = false;
        let are_sane = (first..).zip(block.chunks_exact(self.inode_bytes.into())).all(|(number, inode)| {
            let is_used = self.is_used(inode);
            is_any |= is_used;
            if number <= RESERVED_LAST {
                return self.is_reserved(number, inode);
            }
            match used(number) {
                Some(true) => is_used,
                Some(false) => links(inode) == 0,
                None => is_used || links(inode) == 0,
            }
        });
        is_any && are_sane
    }

    /// Whether `block` can be of inodes that are all free.
    pub(super) fn are_free(&self, block: &[u8]) -> bool {
        block.chunks_exact(self.inode_bytes.into()).all(|inode| links(inode) == 0)
    }

    /// Whether an inode with a purpose of its own can be this.
    fn is_reserved(&self, number: u32, inode: &[u8]) -> bool {
        let is_absent = le16(inode, 0) == 0 && links(inode) == 0;
        match number {
            ROOT => kind(inode) == Some(Kind::Directory) && self.is_used(inode),
            RESIZE | JOURNAL => is_absent || kind(inode) == Some(Kind::File),
            3 | 4 | 9 | 10 => is_absent || self.is_used(inode), // quotas, and what others use
            _ => links(inode) == 0,
        }
    }

    /// Whether `block` can be the first one of the directory `inode`, which begins with itself and the one above it.
    pub(super) fn is_directory(&self, inode: u32, block: &[u8]) -> bool {
        let names = |at: usize, name: &[u8]| {
            let kind = block[at + 7]; // 0 in old file systems, which do not say it
            usize::from(block[at + 6]) == name.len() && matches!(kind, 0 | 2) && block[at + 8..].starts_with(name)
        };
        let begins = le32(block, 0) == inode && le16(block, 4) == 12;
        begins && names(0, b".") && names(12, b"..") && self.has_entries(block)
    }

    /// Whether entries of a directory fill `block`, and name inodes. Fact: `ext4_dir_entry_2`.
    fn has_entries(&self, block: &[u8]) -> bool {
        let mut at = 0;
        while let Some(entry) = block.get(at..at + 8) {
            let (inode, length) = (le32(entry, 0), usize::from(le16(entry, 4)));
            let needs = 8 + if inode == 0 { 0 } else { usize::from(entry[6]) };
            if length < needs || !length.is_multiple_of(4) || u64::from(inode) > self.inodes() {
                return false;
            }
            at += length;
        }
        at == BLOCK
    }
}

/// Whether the parts of seconds of an inode's times are such. They are numbers of 30 bits, and of parity of three inodes
/// many are too large. Fact: `ext4_decode_extra_time`.
fn has_sane_times(inode: &[u8]) -> bool {
    let Some(extra) = inode.get(0x80..).filter(|extra| !extra.is_empty()) else { return true };
    let length = usize::from(le16(extra, 0));
    let times = [(0x84, 8), (0x88, 12), (0x8c, 16), (0x94, 24)]; // and behind which byte of the extra ones each ends
    let is_sane = |(at, end): (usize, usize)| length < end || le32(inode, at) >> 2 < NANOSECONDS;
    length <= extra.len() && length.is_multiple_of(4) && times.into_iter().all(is_sane)
}

/// Whether of the first `bits` bits of `block` so many are 0, and none behind them.
pub(super) fn has_free(bits: u32, free: u32, block: &[u8]) -> bool {
    let (own, rest) = block.split_at((bits as usize / 8).min(BLOCK));
    let zeros = own.iter().map(|byte| byte.count_zeros()).sum::<u32>();
    // The last group may end within a byte.
    let (part, behind) = rest.split_at(usize::from(!bits.is_multiple_of(8)).min(rest.len()));
    let mask = !(!0_u8 << (bits % 8));
    let in_part = part.iter().map(|byte| (byte | !mask).count_zeros()).sum::<u32>();
    zeros + in_part == free && part.iter().all(|byte| byte & !mask == !mask) && behind.iter().all(|byte| *byte == 0xff)
}

/// A group descriptor. Fact: `struct ext4_group_desc`.
pub(super) struct Descriptor<'a>(pub(super) &'a [u8]);

impl Descriptor<'_> {
    /// A number whose high half is in the second part of a wide descriptor, or 0.
    fn wide(&self, low: usize, high: usize) -> u64 {
        u64::from(le32(self.0, low)) | u64::from(le32(self.0, high)) << 32
    }

    fn short(&self, low: usize, high: usize) -> u32 {
        u32::from(le16(self.0, low)) | u32::from(le16(self.0, high)) << 16
    }

    pub(super) fn block_bitmap(&self) -> u64 {
        self.wide(0, 0x20)
    }

    pub(super) fn inode_bitmap(&self) -> u64 {
        self.wide(4, 0x24)
    }

    /// The first block of inodes.
    pub(super) fn table(&self) -> u64 {
        self.wide(8, 0x28)
    }

    pub(super) fn free_blocks(&self) -> u32 {
        self.short(0xc, 0x2c)
    }

    pub(super) fn free_inodes(&self) -> u32 {
        self.short(0xe, 0x2e)
    }

    fn directories(&self) -> u32 {
        self.short(0x10, 0x30)
    }

    /// Inodes behind the last one that was ever used.
    pub(super) fn unused(&self) -> u32 {
        self.short(0x1c, 0x32)
    }

    pub(super) fn flags(&self) -> u16 {
        le16(self.0, 0x12)
    }

    /// The sums of the bitmaps of blocks and of inodes.
    pub(super) fn bitmap_sums(&self) -> (u32, u32) {
        (self.short(0x18, 0x38), self.short(0x1a, 0x3a))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext4::superblock::Sums;
    use crate::ext4::testing::ext4;

    #[test]
    fn a_bitmap_has_as_many_free_bits_as_its_descriptor_says_and_none_behind() {
        let mut block = vec![0xff; BLOCK];
        block[3] = 0xf0;
        for (bits, free, expected) in [(32, 4, true), (32, 3, false), (32768, 4, true), (28, 4, true), (26, 4, false)] {
            assert_eq!(has_free(bits, free, &block), expected, "{bits} {free}");
        }
        block[3] = 0xf8;
        assert!(has_free(27, 3, &block) && !has_free(26, 2, &block), "the last group ends within a byte");
    }

    #[test]
    fn the_first_block_of_a_directory_names_itself_and_is_full_of_entries() {
        let own = ext4(Sums::None);
        let mut block = vec![0; BLOCK];
        block[..9].copy_from_slice(&[12, 0, 0, 0, 12, 0, 1, 2, b'.']);
        block[12..22].copy_from_slice(&[2, 0, 0, 0, 12, 0, 2, 2, b'.', b'.']);
        block[24..33].copy_from_slice(&[13, 0, 0, 0, 0xe8, 0x0f, 1, 1, b'a']);
        assert!(own.is_directory(12, &block));
        assert!(!own.is_directory(13, &block), "it names another one");
        for (at, value) in [(28, 0xe4), (26, 0xff), (4, 16), (20, b'x')] {
            let mut other = block.clone();
            other[at] = value;
            assert!(!own.is_directory(12, &other), "{at}");
        }
    }

    /// A node of so many extents of 10 blocks each.
    fn node(extents: u8, from: u32) -> Vec<u8> {
        let mut node = vec![0; BLOCK];
        node[..6].copy_from_slice(&[0x0a, 0xf3, extents, 0, 0x54, 1]);
        for (number, entry) in (0..u32::from(extents)).zip(node[12..].chunks_exact_mut(12)) {
            entry[..4].copy_from_slice(&(from + number * 10).to_le_bytes());
            entry[4] = 10;
            entry[8..].copy_from_slice(&(5000 + number * 77).to_le_bytes());
        }
        node
    }

    #[test]
    fn a_node_of_extents_has_them_in_order_and_parity_of_three_has_not() {
        let own = ext4(Sums::None);
        let nodes = [node(20, 0), node(31, 1000), node(18, 5000)];
        assert!(own.is_node(&nodes[1], Some(0), Some(1000)));
        assert!(!own.is_node(&nodes[1], Some(1), Some(1000)), "of another level");
        assert!(!own.is_node(&nodes[1], Some(0), Some(1001)), "it begins before it should");
        assert!(!own.is_node(&node(0, 0), Some(0), Some(0)), "an empty one would have been removed");
        let sum = crate::ext4::testing::xor(&[&nodes[0], &nodes[1], &nodes[2]]);
        assert!(!own.is_node(&sum, Some(0), Some(0)));
    }

    #[test]
    fn descriptors_name_places_of_their_own_that_are_in_the_file_system() {
        let own = ext4(Sums::None);
        let descriptor = |group: u32, blocks: u32| -> Vec<u8> {
            let words = [blocks, blocks + 16, blocks + 32 + 512 * group, 7 << 16 | 9, 1];
            words.iter().flat_map(|word| word.to_le_bytes()).chain([0; 12]).collect()
        };
        let are_right = |all: &[Vec<u8>]| own.are_descriptors(0, &all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert!(are_right(&[descriptor(0, 100), descriptor(1, 101)]));
        assert!(!are_right(&[descriptor(0, 100), descriptor(1, 100)]), "the same bitmap twice");
        assert!(!are_right(&[descriptor(0, 100), descriptor(0, 101)]), "tables that overlap");
        assert!(!are_right(&[descriptor(0, 1 << 20)]), "behind the end");
        let mut full = descriptor(0, 100);
        full[0xf] = 0xff;
        assert!(!are_right(&[full]), "more free inodes than there are");
    }

    #[test]
    fn parts_of_a_second_are_below_a_second() {
        let mut inode = vec![0; 256];
        inode[0x80] = 32;
        assert!(has_sane_times(&inode) && has_sane_times(&inode[..128]));
        inode[0x88..0x8c].copy_from_slice(&(999_999_999_u32 << 2 | 1).to_le_bytes());
        assert!(has_sane_times(&inode));
        inode[0x88..0x8c].copy_from_slice(&(NANOSECONDS << 2).to_le_bytes());
        assert!(!has_sane_times(&inode));
        inode[0x80] = 8; // which ends before it
        assert!(has_sane_times(&inode));
    }
}
