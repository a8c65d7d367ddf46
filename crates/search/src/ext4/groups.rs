//! The groups of an ext4: their descriptors, or what is where without them, and the copies of the superblock.
//!
//! It says where inodes and bitmaps are, and looks at neither, but for the first inodes of a file system whose descriptors
//! are lost. Facts: `Documentation/filesystems/ext4/blockgroup.rst`, and `ext2fs_create_resize_inode` in e2fsprogs'
//! `res_gdt.c`.

use super::recognition::{Bitmap, Sight};
use super::structure::Descriptor;
use super::superblock::Super;
use super::walk::Walker;
use crate::crc::BLOCK;
use crate::seen::Finder;
use crate::seen::number::le32;

/// A group of blocks, by its descriptor.
pub(super) struct Group {
    pub(super) number: u32,
    pub(super) block_bitmap: Option<Bitmap>,
    pub(super) inode_bitmap: Option<Bitmap>,
    /// The first block of inodes.
    pub(super) table: u64,
    pub(super) used_inodes: u32,
    /// Whether this is what a copy said long ago: then inodes that are not there may never have been.
    pub(super) is_old: bool,
}

/// The groups with copies of the descriptors, as far as they are tried.
const COPIES_IN: [u64; 6] = [0, 1, 3, 5, 7, 9];
/// Blocks of descriptors that are looked at, at most.
const TABLES_MAX: u64 = 4096;
/// Blocks behind the descriptors in which the first inodes are looked for: two bitmaps for each of 16 groups are before.
const TABLE_PLACES: u64 = 64;

impl<F: Finder> Walker<'_, F> {
    /// The groups whose descriptors are found.
    pub(super) async fn groups(&mut self) -> Vec<Group> {
        let own = self.own;
        let (count, bytes) = (own.groups(), usize::from(own.descriptor_bytes));
        let each = BLOCK / bytes;
        let mut groups = Vec::new();
        for table in 0..count.div_ceil(each as u64).min(TABLES_MAX) {
            let first = table as u32 * each as u32;
            let here = (count - u64::from(first)).min(each as u64) as usize;
            let how = self.how;
            let is_right = move |block: &[u8]| {
                // Behind the last one is nothing. In the xor of blocks, which has the same descriptors, is something.
                let (descriptors, rest) = block.split_at(here * bytes);
                let descriptors: Vec<&[u8]> = descriptors.chunks_exact(bytes).collect();
                rest.iter().all(|byte| *byte == 0) && how.are_descriptors(first, &descriptors)
            };
            let mut found = None;
            // md may have written over the first ones. What the kernel changes in them it does not change in the copies.
            let is_known = self.finder.knows(1 + table);
            for copy in COPIES_IN.into_iter().filter(|copy| *copy == 0 || *copy < count && !is_known) {
                let place = copy * u64::from(own.group_blocks) + 1 + table;
                match how.find(place, self.finder, &is_right).await {
                    Sight::Block(block) => {
                        self.walk.note(place, &block);
                        found = Some((copy > 0, block));
                    }
                    // A stale member has an older one, which names the same places.
                    Sight::Several(block) => found = Some((true, block)),
                    Sight::Nothing => continue,
                }
                break;
            }
            let Some((is_old, block)) = found else {
                self.walk.lose(1 + table, self.finder);
                if table == 0 && !is_known {
                    groups.extend(self.groups_without_descriptors().await);
                }
                // Without any group nothing is known but the superblock, which fits everywhere.
                self.walk.is_wrong = groups.is_empty();
                break;
            };
            let descriptors = (first..).zip(block.chunks_exact(bytes)).take(here);
            groups.extend(descriptors.map(|(number, bytes)| Group::of(own, number, &Descriptor(bytes), is_old)));
        }
        groups
    }

    /// Finds the copies of the superblock. Which groups have them is an option, so that none is missed.
    pub(super) async fn copies(&mut self) {
        let own = self.own;
        for copy in COPIES_IN.into_iter().filter(|copy| *copy != own.group.into() && *copy < own.groups()) {
            let block = copy * u64::from(own.group_blocks);
            let is_right = |block: &[u8]| {
                Super::of(block).is_some_and(|other| other.id == own.id && u64::from(other.group) == copy)
            };
            if let Sight::Block(found) = self.how.find(block, self.finder, &is_right).await {
                self.walk.note(block, &found);
            }
        }
    }

    /// The groups whose inodes follow those of the first group, wherever these are found behind the descriptors.
    async fn groups_without_descriptors(&mut self) -> Vec<Group> {
        let own = self.own;
        let count = own.groups();
        let each = BLOCK as u64 / u64::from(own.descriptor_bytes);
        let first = 1 + count.div_ceil(each) + own.reserved;
        for table in first..first + TABLE_PLACES {
            let how = self.how;
            let is_right = move |block: &[u8]| how.are_inodes(1, &|_| None, block);
            if let Sight::Block(_) = how.find(table, self.finder, &is_right).await {
                let blocks = u64::from(own.group_inodes) * u64::from(own.inode_bytes) / BLOCK as u64;
                let group = |number: u64| Group {
                    number: number as u32,
                    block_bitmap: None,
                    inode_bitmap: None,
                    table: table + number * blocks,
                    used_inodes: own.group_inodes,
                    is_old: true,
                };
                return (0..count.min(own.together)).map(group).collect();
            }
        }
        Vec::new()
    }

    /// Notes what the blocks hold that are kept for more descriptors: where their copies are. The list of these blocks is
    /// the only one that `inode` has.
    pub(super) fn note_lists(&mut self, inode: &[u8]) {
        let own = self.own;
        let groups = own.groups();
        let each = BLOCK as u64 / u64::from(own.descriptor_bytes);
        let (first, list) = (groups.div_ceil(each), le32(inode, LIST_OF_LISTS_AT));
        if !own.lists_copies || list == 0 {
            return;
        }
        // With one group there are no copies, so that only the list of lists has entries.
        let copies: Vec<u64> = copies_before(groups);
        let mut all = vec![0; BLOCK];
        for table in first..first + own.reserved {
            let block = 1 + table;
            let mut lists = vec![0; BLOCK];
            for (entry, group) in lists.chunks_exact_mut(4).zip(&copies) {
                entry.copy_from_slice(&((block + group * u64::from(own.group_blocks)) as u32).to_le_bytes());
            }
            if !copies.is_empty() {
                self.walk.note_likely(block, &lists);
            }
            let at = table as usize * 4 % BLOCK;
            all[at..at + 4].copy_from_slice(&(block as u32).to_le_bytes());
        }
        self.walk.note_likely(list.into(), &all);
    }
}

impl Group {
    fn of(own: &Super, number: u32, descriptor: &Descriptor<'_>, is_old: bool) -> Self {
        let (block_bitmap, inode_bitmap) = Bitmap::of(own, number, descriptor);
        let has_inodes = descriptor.flags() & 1 == 0;
        let used = if has_inodes { own.group_inodes.saturating_sub(descriptor.unused()) } else { 0 };
        Self {
            number,
            block_bitmap: block_bitmap.filter(|_| !is_old),
            inode_bitmap: inode_bitmap.filter(|_| !is_old),
            table: descriptor.table(),
            used_inodes: if is_old { own.group_inodes } else { used },
            is_old,
        }
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
