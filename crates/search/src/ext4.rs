//! ext4 with blocks of 4 KiB: superblocks, group descriptors, bitmaps and inodes with their checksums.
//!
//! Its blocks do not say where they are. But each says, with a checksum, what others at a known place have to be. So
//! the file system is walked with a function that finds the block at a place among the members, by that checksum.
//! Facts: the kernel's `fs/ext4/ext4.h` and `Documentation/filesystems/ext4`.

use crate::crc::{BLOCK, from_raw, raw};
use crate::seen::number::{be32, id, le16, le32, le64};
use crate::seen::{Expected, Finder, LOST_MAX, Walk, Want, is_a_sum, some_of};
use std::collections::HashSet;

/// What a superblock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Super {
    /// Its uuid.
    pub(crate) id: [u8; 16],
    /// The group of this copy.
    pub(crate) group: u16,
    /// Length of the file system in blocks.
    pub(crate) blocks: u64,
    group_blocks: u32,
    group_inodes: u32,
    inode_bytes: u16,
    descriptor_bytes: u16,
    /// The seed of all checksums, if it has them.
    seed: Option<u32>,
    /// When it was last written.
    pub(crate) written: u32,
    /// KiB that were written to it in its life.
    pub(crate) lifetime_kib: u64,
    /// Blocks behind the descriptors that are kept for more of them.
    reserved: u64,
    /// Groups whose bitmaps and inodes are together.
    together: u64,
    sparse: bool,
    /// Whether the blocks that are kept for descriptors list their copies.
    lists_copies: bool,
    /// Whether all of it was written when this was: nothing is left to its journal, and no error was noted.
    pub(crate) is_clean: bool,
}

const SUPER_AT: usize = 1024;
const MAGIC: [u8; 2] = [0x53, 0xef];

/// Whether [`Super::of`] might see one in a block with these words.
pub(crate) fn may_be(word: impl Fn(usize) -> [u8; 8]) -> bool {
    [0, SUPER_AT].iter().any(|at| word(at + 0x38).starts_with(&MAGIC))
}
const CHECKSUM_AT: usize = 0x3fc;

impl Super {
    /// The superblock in `block`: of the first group behind 1024 bytes, of the others at the beginning.
    pub(crate) fn of(block: &[u8]) -> Option<Self> {
        let first = Self::at(block, SUPER_AT).filter(|found| found.group == 0);
        first.or_else(|| Self::at(block, 0).filter(|found| found.group > 0))
    }

    /// The block of this copy.
    pub(crate) fn super_block(&self) -> u64 {
        u64::from(self.group) * u64::from(self.group_blocks)
    }

    fn at(block: &[u8], at: usize) -> Option<Self> {
        let bytes = block.get(at..at + 1024)?;
        let is_known = le16(bytes, 0x38) == 0xef53 && le32(bytes, 0x18) == 2 && le32(bytes, 0x14) == 0;
        let (incompatible, read_only) = (le32(bytes, 0x60), le32(bytes, 0x64));
        let has_sums = read_only & 0x400 != 0;
        if !is_known || has_sums && raw(!0, &bytes[..CHECKSUM_AT]) != le32(bytes, CHECKSUM_AT) {
            return None;
        }
        let (wide, compatible) = (incompatible & 0x80 != 0, le32(bytes, 0x5c));
        let seed = if incompatible & 0x2000 != 0 { le32(bytes, 0x270) } else { raw(!0, &id(bytes, 0x68)) };
        let found = Self {
            id: id(bytes, 0x68),
            group: le16(bytes, 0x5a),
            blocks: u64::from(le32(bytes, 4)) | if wide { u64::from(le32(bytes, 0x150)) << 32 } else { 0 },
            group_blocks: le32(bytes, 0x20),
            group_inodes: le32(bytes, 0x28),
            inode_bytes: le16(bytes, 0x58),
            descriptor_bytes: if wide { le16(bytes, 0xfe) } else { 32 },
            seed: has_sums.then_some(seed),
            written: le32(bytes, 0x30),
            lifetime_kib: le64(bytes, 0x178),
            reserved: le16(bytes, 0xce).into(),
            together: if incompatible & 0x200 != 0 { 1 << bytes[0x174].min(16) } else { 1 },
            sparse: incompatible & 0x10 == 0,
            lists_copies: compatible & 0x10 != 0 && compatible & 0x200 == 0 && read_only & 1 != 0,
            is_clean: incompatible & 4 == 0 && le16(bytes, 0x3a) & 3 == 1,
        };
        let sane = found.group_blocks > 0
            && found.group_inodes > 0
            && matches!(found.inode_bytes, 128 | 256 | 512 | 1024)
            && matches!(found.descriptor_bytes, 32 | 64);
        sane.then_some(found)
    }
}

/// A group of blocks, by its descriptor.
struct Group {
    number: u32,
    /// The bitmaps of blocks and of inodes, and what they hold by their checksums.
    bitmaps: Vec<(u64, u32)>,
    table: u64,
    used_inodes: u32,
    /// Whether this is what a copy said long ago: then inodes that are not there may never have been.
    is_old: bool,
}

/// What the inodes say of themselves.
#[derive(Default)]
struct Inodes {
    directories: Vec<Directory>,
    /// Those of no file.
    free: HashSet<u32>,
}

/// A directory, and its first block.
struct Directory {
    inode: u32,
    /// The seed of the checksums of its blocks.
    seed: u32,
    block: u64,
}

/// The groups with copies of the descriptors, as far as they are tried.
const COPIES_IN: [u64; 6] = [0, 1, 3, 5, 7, 9];

/// Blocks behind the descriptors in which the first inodes are looked for: two bitmaps for each of 16 groups are before.
const TABLE_PLACES: u64 = 64;
/// Blocks of inodes that are looked at, at most.
const TABLE_BLOCKS_MAX: u64 = 1500;
/// The inode to which the blocks belong that are kept for descriptors.
const RESIZE: u32 = 7;
/// The inode of the journal.
const JOURNAL: u32 = 8;
/// Directories that are looked at, at most.
const DIRECTORIES_MAX: usize = 300;

impl Super {
    /// Walks the file system.
    pub(crate) async fn walk(&self, finder: &mut impl Finder) -> Walk {
        let mut walk = Walk::default();
        let Some(seed) = self.seed.filter(|_| self.sparse) else { return walk };
        let groups = self.groups(seed, finder, &mut walk).await;
        self.copies(finder, &mut walk).await;
        let mut known = Inodes::default();
        // A copy of the superblock does not say so: it is as old as the file system.
        let is_unmounted = self.group == 0 && self.is_clean;
        let mut left = TABLE_BLOCKS_MAX;
        for group in &groups {
            let bitmaps = group.bitmaps.iter().map(|(block, sum)| Expected::new(*block, Want::Sum(*sum)));
            walk.expected.extend(bitmaps);
            let bytes = u64::from(group.used_inodes) * u64::from(self.inode_bytes);
            let blocks = bytes.div_ceil(BLOCK as u64).min(left);
            left -= blocks;
            for index in 0..blocks {
                if walk.lost.len() > LOST_MAX {
                    return walk;
                }
                self.inodes(seed, group, index, finder, &mut walk, &mut known).await;
            }
        }
        for Directory { inode, seed, block } in known.directories.into_iter().take(DIRECTORIES_MAX) {
            if walk.lost.len() > LOST_MAX {
                return walk;
            }
            let is_right = |block: &[u8]| is_directory(seed, inode, block);
            match finder.find(block, &is_right).await {
                // The directory, or the inodes, are of another time.
                Some(found) if is_unmounted && entries(&found).any(|inode| known.free.contains(&inode)) => {
                    walk.lose(block, finder);
                }
                Some(found) => walk.note(block, &found),
                None => walk.lose(block, finder),
            }
        }
        walk
    }

    /// The groups whose descriptors are found.
    async fn groups(&self, seed: u32, finder: &mut impl Finder, walk: &mut Walk) -> Vec<Group> {
        let count = self.blocks.div_ceil(self.group_blocks.into());
        let each = BLOCK / usize::from(self.descriptor_bytes);
        let mut groups = Vec::new();
        for table in 0..count.div_ceil(each as u64).min(4096) {
            let first = table as u32 * each as u32;
            let here = (count - u64::from(first)).min(each as u64) as u32;
            let of = |block: &[u8], index: u32| {
                let bytes = usize::from(self.descriptor_bytes);
                block[index as usize * bytes..][..bytes].to_vec()
            };
            let is_right = |block: &[u8]| {
                // Behind the last one is nothing. In the xor of blocks, which has the same descriptors, is something.
                let (_, rest) = block.split_at(here as usize * usize::from(self.descriptor_bytes));
                rest.iter().all(|byte| *byte == 0)
                    && (0..here).all(|index| is_descriptor(seed, first + index, &of(block, index)))
            };
            let mut found = None;
            // md may have written over the first ones. What the kernel changes in them it does not change in the copies.
            let is_known = finder.knows(1 + table);
            for copy in COPIES_IN.into_iter().filter(|copy| *copy == 0 || *copy < count && !is_known) {
                let place = copy * u64::from(self.group_blocks) + 1 + table;
                found = finder.find(place, &is_right).await.map(|block| (copy > 0, block));
                if let Some((_, block)) = &found {
                    walk.note(place, block);
                    break;
                }
            }
            let Some((is_old, block)) = found else {
                walk.lose(1 + table, finder);
                if table == 0 && !is_known {
                    groups.extend(self.groups_without_descriptors(seed, finder).await);
                }
                // Without any group nothing is known but the superblock, which fits everywhere.
                walk.is_wrong = groups.is_empty();
                break;
            };
            groups.extend((0..here).map(|index| self.group(seed, first + index, &of(&block, index), is_old)));
        }
        groups
    }

    /// Finds the copies of the superblock. Which groups have them is an option, so that none is missed.
    async fn copies(&self, finder: &mut impl Finder, walk: &mut Walk) {
        let count = self.blocks.div_ceil(self.group_blocks.into());
        for copy in COPIES_IN.into_iter().filter(|copy| *copy != self.group.into() && *copy < count) {
            let block = copy * u64::from(self.group_blocks);
            let is_right =
                |block: &[u8]| Self::of(block).is_some_and(|own| own.id == self.id && u64::from(own.group) == copy);
            if let Some(found) = finder.find(block, &is_right).await {
                walk.note(block, &found);
            }
        }
    }

    /// The groups whose inodes follow those of the first group, wherever these are found behind the descriptors.
    async fn groups_without_descriptors(&self, seed: u32, finder: &mut impl Finder) -> Vec<Group> {
        let count = self.blocks.div_ceil(self.group_blocks.into());
        let each = BLOCK as u64 / u64::from(self.descriptor_bytes);
        let first = 1 + count.div_ceil(each) + self.reserved;
        let is_right = |block: &[u8]| self.is_inodes(seed, 1, block);
        for table in first..first + TABLE_PLACES {
            if finder.find(table, &is_right).await.is_some() {
                let blocks = u64::from(self.group_inodes) * u64::from(self.inode_bytes) / BLOCK as u64;
                let group = |number: u64| Group {
                    number: number as u32,
                    bitmaps: Vec::new(),
                    table: table + number * blocks,
                    used_inodes: self.group_inodes,
                    is_old: true,
                };
                return (0..count.min(self.together)).map(group).collect();
            }
        }
        Vec::new()
    }

    /// Whether `block` has inodes from `first` on, and nothing else.
    fn is_inodes(&self, seed: u32, first: u32, block: &[u8]) -> bool {
        let inodes = (first..).zip(block.chunks_exact(self.inode_bytes.into()));
        let mut used = inodes.filter(|(_, inode)| inode.iter().any(|byte| *byte != 0)).peekable();
        used.peek().is_some() && used.all(|(number, inode)| is_inode(seed, number, inode))
    }

    fn group(&self, seed: u32, number: u32, descriptor: &[u8], is_old: bool) -> Group {
        let half = |low: usize, high: usize| -> u64 {
            u64::from(le32(descriptor, low)) | u64::from(le32(descriptor, high)) << 32
        };
        let flags = le16(descriptor, 0x12);
        let unused = u32::from(le16(descriptor, 0x1c)) | u32::from(le16(descriptor, 0x32)) << 16;
        let sum = |low: usize, high: usize| u32::from(le16(descriptor, low)) | u32::from(le16(descriptor, high)) << 16;
        // The whole sums are kept with wide descriptors alone, and are those of as many bits as a group has. Behind them
        // all bits are set.
        let bitmap = |block: u64, sum: u32, bits: u32| {
            let rest = vec![0xff; BLOCK.saturating_sub(bits as usize / 8)];
            (block, from_raw(raw(sum, &rest), seed))
        };
        let mut bitmaps = Vec::new();
        if self.descriptor_bytes == 64 && !is_old {
            let of_blocks = || bitmap(half(0, 0x20), sum(0x18, 0x38), self.group_blocks);
            bitmaps.extend((flags & 2 == 0 && self.group_blocks == 8 * BLOCK as u32).then(of_blocks));
            let of_inodes = || bitmap(half(4, 0x24), sum(0x1a, 0x3a), self.group_inodes);
            bitmaps.extend((flags & 1 == 0 && self.group_inodes <= 8 * BLOCK as u32).then(of_inodes));
        }
        let used = if flags & 1 != 0 { 0 } else { self.group_inodes.saturating_sub(unused) };
        Group {
            number,
            bitmaps,
            table: half(8, 0x28),
            used_inodes: if is_old { self.group_inodes } else { used },
            is_old,
        }
    }

    /// Finds one block of a group's inodes, and notes what they say.
    async fn inodes(
        &self,
        seed: u32,
        group: &Group,
        index: u64,
        finder: &mut impl Finder,
        walk: &mut Walk,
        known: &mut Inodes,
    ) {
        let bytes = usize::from(self.inode_bytes);
        let first = group.number * self.group_inodes + index as u32 * (BLOCK / bytes) as u32 + 1;
        let numbered = |block: &[u8]| -> Vec<(u32, Vec<u8>)> {
            (first..).zip(block.chunks_exact(bytes).map(<[u8]>::to_vec)).collect()
        };
        let is_right = |block: &[u8]| self.is_inodes(seed, first, block);
        let is_plausible =
            |block: &[u8]| is_right(block) && !is_a_sum(block.chunks_exact(bytes).filter_map(is_as_long));
        let block = group.table + index;
        let found = match finder.find(block, &is_plausible).await {
            Some(found) => Some(found),
            None => finder.find(block, &is_right).await,
        };
        match &found {
            Some(found) => walk.note(block, found),
            None if group.is_old => {}
            None => walk.lose(block, finder),
        }
        for (number, inode) in numbered(&found.unwrap_or_default()) {
            if number == RESIZE {
                self.note_lists(&inode, walk);
                continue;
            }
            if number == JOURNAL {
                journal(&inode, finder, walk).await;
                continue;
            }
            // A removed file may still name its blocks.
            if le16(&inode, 0x1a) == 0 {
                if !group.is_old {
                    known.free.insert(number);
                }
                continue;
            }
            match le16(&inode, 0) >> 12 {
                8 => {
                    walk.expected.extend(end_of(&inode, extents_of(&inode)));
                    walk.expected.extend(data_of(extents_of(&inode)));
                    let own = raw(raw(seed, &number.to_le_bytes()), &inode[0x64..0x68]);
                    extent_tree(own, self.blocks, &inode, finder, walk).await;
                }
                4 => known.directories.extend(extent_of(&inode, 0).map(|block| {
                    let seed = raw(raw(seed, &number.to_le_bytes()), &inode[0x64..0x68]);
                    Directory { inode: number, seed, block }
                })),
                _ => {}
            }
        }
    }
}

impl Super {
    /// Notes what the blocks hold that are kept for more descriptors: where their copies are. The list of these blocks is
    /// the only one that `inode` has. Fact: `ext2fs_create_resize_inode` in e2fsprogs' `res_gdt.c`.
    fn note_lists(&self, inode: &[u8], walk: &mut Walk) {
        let groups = self.blocks.div_ceil(self.group_blocks.into());
        let each = BLOCK as u64 / u64::from(self.descriptor_bytes);
        let (first, list) = (groups.div_ceil(each), le32(inode, LIST_OF_LISTS_AT));
        if !self.lists_copies || list == 0 {
            return;
        }
        // With one group there are no copies, so that only the list of lists has entries.
        let copies: Vec<u64> = copies_before(groups);
        let mut all = vec![0; BLOCK];
        for table in first..first + self.reserved {
            let block = 1 + table;
            let mut own = vec![0; BLOCK];
            for (entry, group) in own.chunks_exact_mut(4).zip(&copies) {
                entry.copy_from_slice(&((block + group * u64::from(self.group_blocks)) as u32).to_le_bytes());
            }
            if !copies.is_empty() {
                walk.note_likely(block, &own);
            }
            let at = table as usize * 4 % BLOCK;
            all[at..at + 4].copy_from_slice(&(block as u32).to_le_bytes());
        }
        walk.note_likely(list.into(), &all);
    }
}

/// Where an inode has the block that lists blocks of lists.
const LIST_OF_LISTS_AT: usize = 0x28 + 13 * 4;

/// The groups that have copies of the superblock, without the first: powers of 3, 5 and 7 below `groups`, and 1.
fn copies_before(groups: u64) -> Vec<u64> {
    let powers = |base: u64| std::iter::successors(Some(base), move |power| power.checked_mul(base));
    let below = |base: u64| powers(base).take_while(|power| *power < groups).collect::<Vec<_>>();
    let mut copies = [vec![1], below(3), below(5), below(7)].concat();
    copies.retain(|group| *group < groups);
    copies.sort_unstable();
    copies
}

/// Finds the blocks that hold a file's extents, where the inode has no room for them, and notes what these say. `seed` is
/// that of the file's checksums, and `blocks` the file system's length.
async fn extent_tree(seed: u32, blocks: u64, inode: &[u8], finder: &mut impl Finder, walk: &mut Walk) {
    let is_inside = |block: &u64| *block < blocks;
    let mut below: Vec<u64> = children(root_of(inode)).filter(is_inside).collect();
    let mut left = TREE_BLOCKS_MAX;
    while let Some(block) = below.pop().filter(|_| left > 0 && walk.lost.len() <= LOST_MAX) {
        left -= 1;
        let Some(found) = finder.find(block, &|block| is_extent_node(seed, block)).await else {
            walk.lose(block, finder);
            continue;
        };
        walk.note(block, &found);
        below.extend(children(&found).filter(is_inside));
        let extents = || extents_in(&found).filter(|(_, length, _)| *length <= WRITTEN_MAX);
        walk.expected.extend(end_of(inode, extents()));
        walk.expected.extend(data_of(extents()));
    }
}

/// The flag of an encrypted file.
const ENCRYPTED: u32 = 0x800;
/// Blocks of a file's extents that are looked at, at most.
const TREE_BLOCKS_MAX: usize = 64;

/// The blocks that an inner node of extents names. Fact: `ext4_extent_header` and `ext4_extent_idx`.
fn children(node: &[u8]) -> impl Iterator<Item = u64> {
    let count = if le16(node, 0) == EXTENTS && le16(node, 6) > 0 { usize::from(le16(node, 2)) } else { 0 };
    let entries = node.get(12..).unwrap_or_default().chunks_exact(12).take(count);
    entries.map(|entry| u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32)
}

/// Whether `block` is a node of extents, by the checksum behind its entries.
fn is_extent_node(seed: u32, block: &[u8]) -> bool {
    let (entries, most) = (le16(block, 2), usize::from(le16(block, 4)));
    let end = 12 + 12 * most;
    let is_sane = le16(block, 0) == EXTENTS && usize::from(entries) <= most && end + 4 <= block.len();
    is_sane && raw(seed, &block[..end]) == le32(block, end)
}

/// Finds the first block of the journal. What the others hold is unknown: most are zeros in a young file system.
async fn journal(inode: &[u8], finder: &mut impl Finder, walk: &mut Walk) {
    const MAGIC: u32 = 0xc03b_3998;
    const JOURNAL_HEAD_BYTES: usize = 1024;
    let Some(block) = extent_of(inode, 0) else { return };
    let blocks = le32(inode, 4) / BLOCK as u32;
    // Magic number, kind, length of a block, and blocks: all in the other byte order. Behind them is nothing; in their xor
    // with the first block of the file system is its superblock.
    let is_right = |block: &[u8]| {
        let kind = be32(block, 4);
        let is_alone = block[JOURNAL_HEAD_BYTES..].iter().all(|byte| *byte == 0);
        let is_as_long = be32(block, 12) == BLOCK as u32 && be32(block, 16) == blocks;
        be32(block, 0) == MAGIC && matches!(kind, 3 | 4) && is_as_long && is_alone
    };
    match finder.find(block, &is_right).await {
        Some(found) => walk.note(block, &found),
        None => walk.lose(block, finder),
    }
}

/// Whether `block` is the first one of a directory: with its checksum, which a block with an index has elsewhere.
fn is_directory(seed: u32, inode: u32, block: &[u8]) -> bool {
    const TAIL_BYTES: usize = 12;
    let begins = le32(block, 0) == inode && le32(block, 4) == 0x0201_000c && block[8] == b'.';
    let (entries, tail) = block.split_at(BLOCK - TAIL_BYTES);
    let has_tail = le32(tail, 0) == 0 && le32(tail, 4) == 0xde00_000c;
    let has_index = usize::from(le16(block, 16)) == BLOCK - TAIL_BYTES;
    begins && if has_tail { raw(seed, entries) == le32(tail, 8) } else { has_index }
}

/// The inodes that the entries of a directory's block name. Fact: `ext4_dir_entry_2`.
fn entries(block: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let mut at = 0;
    let next = std::iter::from_fn(move || {
        let (entry, length) = (block.get(at..at + 8)?, usize::from(le16(block, at + 4)));
        at += if length < 8 { BLOCK } else { length };
        Some(le32(entry, 0))
    });
    next.filter(|inode| *inode != 0)
}

fn is_descriptor(seed: u32, number: u32, descriptor: &[u8]) -> bool {
    let crc = raw(raw(seed, &number.to_le_bytes()), &descriptor[..0x1e]);
    let crc = raw(raw(crc, &[0; 2]), &descriptor[0x20..]);
    crc as u16 == le16(descriptor, 0x1e)
}

fn is_inode(seed: u32, number: u32, inode: &[u8]) -> bool {
    let crc = raw(raw(seed, &number.to_le_bytes()), &inode[0x64..0x68]);
    let crc = raw(raw(raw(crc, &inode[..0x7c]), &[0; 2]), &inode[0x7e..128]);
    let low = u32::from(le16(inode, 0x7c));
    if inode.len() == 128 {
        return crc & 0xffff == low;
    }
    let has_high = le16(inode, 0x80) >= 4;
    let crc = raw(crc, &inode[0x80..0x82]);
    if !has_high {
        return raw(crc, &inode[0x82..]) & 0xffff == low;
    }
    raw(raw(crc, &[0; 2]), &inode[0x84..]) == low | u32::from(le16(inode, 0x82)) << 16
}

/// The extents of a file that are in the inode and written: block of the file, length, block of the file system.
fn extents_of(inode: &[u8]) -> impl Iterator<Item = (u64, u64, u64)> {
    allocated(inode).filter(|(_, length, _)| *length <= WRITTEN_MAX)
}

/// The length of an extent at most. A longer one is allocated, and not written.
const WRITTEN_MAX: u64 = 32768;

/// The same, with those that are not written.
fn allocated(inode: &[u8]) -> impl Iterator<Item = (u64, u64, u64)> {
    extents_in(root_of(inode))
}

/// The node of extents in an inode; nothing of a file that has none.
fn root_of(inode: &[u8]) -> &[u8] {
    let has_extents = le32(inode, 0x20) & 0x8_0000 != 0;
    if has_extents { &inode[0x28..0x28 + 60] } else { &[] }
}

/// The magic number of a node of extents.
const EXTENTS: u16 = 0xf30a;

/// The extents in a node that has no others below it.
fn extents_in(node: &[u8]) -> impl Iterator<Item = (u64, u64, u64)> {
    let count = if le16(node, 0) == EXTENTS && le16(node, 6) == 0 { usize::from(le16(node, 2)) } else { 0 };
    node.get(12..).unwrap_or_default().chunks_exact(12).take(count).map(|extent| {
        let start = u64::from(le32(extent, 8)) | u64::from(le16(extent, 6)) << 32;
        (u64::from(le32(extent, 0)), u64::from(le16(extent, 4)), start)
    })
}

/// Whether the extents of a file or directory fit its length, if they are in the inode: its last block is in one, and none
/// that was written goes further. A directory has whole blocks.
fn is_as_long(inode: &[u8]) -> Option<bool> {
    let kind = le16(inode, 0) >> 12;
    let has_extents = matches!(kind, 4 | 8) && allocated(inode).next().is_some();
    let last_byte = last_byte(inode).filter(|_| has_extents)?;
    let last = last_byte / BLOCK as u64;
    let bare = |length: u64| if length > WRITTEN_MAX { length - WRITTEN_MAX } else { length };
    let is_covered = allocated(inode).any(|(from, length, _)| (from..from + bare(length)).contains(&last));
    let is_exceeded = extents_of(inode).any(|(from, length, _)| from + length > last + 1);
    let is_whole = kind == 8 || (last_byte + 1).is_multiple_of(BLOCK as u64);
    Some(is_covered && !is_exceeded && is_whole)
}

/// The last byte of a file, unless it is empty.
fn last_byte(inode: &[u8]) -> Option<u64> {
    (u64::from(le32(inode, 4)) | u64::from(le32(inode, 0x6c)) << 32).checked_sub(1)
}

/// The block in which block `wanted` of a file is, if its extents are in the inode.
fn extent_of(inode: &[u8], wanted: u64) -> Option<u64> {
    place_in(extents_of(inode), wanted)
}

/// The block in which block `wanted` of a file is by these extents.
fn place_in(mut extents: impl Iterator<Item = (u64, u64, u64)>, wanted: u64) -> Option<u64> {
    extents
        .find(|(from, length, _)| (*from..from + length).contains(&wanted))
        .map(|(from, _, start)| start + wanted - from)
}

/// Some of the blocks of a file that these extents name.
fn data_of(extents: impl Iterator<Item = (u64, u64, u64)>) -> impl Iterator<Item = Expected> {
    extents.flat_map(|(_, length, start)| some_of(start, length)).map(|block| Expected::new(block, Want::Data))
}

/// What is known of a file's last block, if it is in these extents.
fn end_of(inode: &[u8], extents: impl Iterator<Item = (u64, u64, u64)>) -> Option<Expected> {
    let is_encrypted = le32(inode, 0x20) & ENCRYPTED != 0; // behind its end, too
    let last = last_byte(inode).filter(|_| !is_encrypted)?;
    let block = place_in(extents, last / BLOCK as u64)?;
    Some(Expected::new(block, Want::End((last % BLOCK as u64 + 1) as u16)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::{Holder, Node, Place};
    use futures_util::FutureExt;

    /// Has one block at one place, and knows all.
    struct One(u64, Vec<u8>);

    impl Finder for One {
        fn knows(&self, _: u64) -> bool {
            true
        }

        fn holder(&self, place: Place) -> Option<Holder> {
            Some(place.holder)
        }

        async fn find(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
            Some(self.1.clone()).filter(|own| block == self.0 && is_right(own))
        }

        async fn find_all(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
            self.find(block, is_right).await.into_iter().collect()
        }

        async fn find_node(&mut self, _: u64, _: u64, _: &dyn Fn(&[u8]) -> Option<Node>) -> Option<Vec<u8>> {
            None
        }
    }

    /// A file of so many bytes in one extent.
    fn inode(seed: u32, number: u32, bytes: u32) -> Vec<u8> {
        let mut inode = vec![0; 256];
        let mut put = |at: usize, value: &[u8]| inode[at..at + value.len()].copy_from_slice(value);
        put(0, &0x81a4_u16.to_le_bytes());
        put(4, &bytes.to_le_bytes());
        put(0x20, &0x8_0000_u32.to_le_bytes());
        put(0x28, &[0x0a, 0xf3, 1, 0, 4]);
        put(0x38, &(bytes.div_ceil(BLOCK as u32) as u16).to_le_bytes());
        put(0x3c, &(number * 100).to_le_bytes());
        put(0x80, &32_u16.to_le_bytes());
        let crc = raw(raw(seed, &number.to_le_bytes()), &[0; 4]);
        let crc = raw(crc, &inode);
        inode[0x7c..0x7e].copy_from_slice(&(crc as u16).to_le_bytes());
        inode[0x82..0x84].copy_from_slice(&((crc >> 16) as u16).to_le_bytes());
        inode
    }

    #[test]
    fn parity_of_three_blocks_of_inodes_has_right_checksums_and_is_told_from_a_fourth() {
        let ext4 = Super {
            id: [0; 16],
            group: 0,
            blocks: 1 << 20,
            group_blocks: 1 << 15,
            group_inodes: 1 << 13,
            inode_bytes: 256,
            descriptor_bytes: 64,
            seed: Some(7),
            written: 0,
            lifetime_kib: 0,
            reserved: 0,
            together: 1,
            sparse: true,
            lists_copies: false,
            is_clean: true,
        };
        let mut random = crate::memory::numbers(3);
        let first = |place: u32| place * 16 + 1;
        let mut block = |place: u32| -> Vec<u8> {
            let numbers = first(place)..first(place) + 16;
            numbers.flat_map(|number| inode(7, number, 1 + random() as u32 % 100_000)).collect()
        };
        let parts = [block(4), block(8), block(16)];
        let sum: Vec<u8> = (0..BLOCK).map(|at| parts.iter().fold(0, |sum, part| sum ^ part[at])).collect();
        assert!(ext4.is_inodes(7, first(4), &parts[0]));
        assert!(ext4.is_inodes(7, first(4 ^ 8 ^ 16), &sum), "its checksums are right");
        let is_sum = |block: &[u8]| is_a_sum(block.chunks_exact(256).filter_map(is_as_long));
        assert!(is_sum(&sum) && !parts.iter().any(|part| is_sum(part)));
    }

    #[test]
    fn the_journal_is_known_by_its_first_block_alone() {
        let mut inode = vec![0; 256];
        inode[4..8].copy_from_slice(&(1024 * BLOCK as u32).to_le_bytes());
        inode[0x20..0x24].copy_from_slice(&0x8_0000_u32.to_le_bytes());
        inode[0x28..0x2c].copy_from_slice(&[0x0a, 0xf3, 1, 0]);
        inode[0x38..0x3a].copy_from_slice(&1024_u16.to_le_bytes());
        inode[0x3c..0x40].copy_from_slice(&777_u32.to_le_bytes());
        let mut first = vec![0; BLOCK];
        for (at, word) in [(0, 0xc03b_3998), (4, 4), (12, BLOCK as u32), (16, 1024)] {
            first[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
        }
        let walked = |block: &[u8]| {
            let mut walk = Walk::default();
            journal(&inode, &mut One(777, block.to_vec()), &mut walk).now_or_never().expect("memory answers at once");
            walk
        };
        let walk = walked(&first);
        assert_eq!(walk.expected, [Expected::new(777, Want::Content(crate::crc::content(&first)))]);
        assert!(walk.lost.is_empty());
        first[19] ^= 1;
        let walk = walked(&first);
        assert_eq!((walk.expected, walk.lost), (Vec::new(), vec![777]), "that of another length is not it");
    }
}
