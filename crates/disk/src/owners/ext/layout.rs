//! Where the fixed parts of ext are: superblock, groups and their descriptors.

use super::super::{FileId, Owner, Part};
use super::Inode;
use crate::bytes::{array, le16, le32};
use crate::source::Source;
use std::collections::BTreeMap;
use std::ops::Range;

/// Flags of inodes: content by extents; content in the inode.
pub(super) const EXTENTS: u32 = 0x8_0000;
pub(super) const INLINE: u32 = 0x1000_0000;

/// The inode of the space for more descriptors.
pub(super) const FOR_GROWING: u64 = 7;

/// Features.
const META_GROUPS: u32 = 0x10;
const WIDE: u32 = 0x80;
const MULTI_MOUNT: u32 = 0x100;
const NEEDS_RECOVERY: u32 = 0x4;
const SPARSE: u32 = 0x1;
const GROUP_SUMS: u32 = 0x10;
const CLUSTERS: u32 = 0x200;
const METADATA_SUMS: u32 = 0x400;
const SPARSE_2: u32 = 0x200;

/// A group of blocks, by its descriptor.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    /// The first block of the inode table.
    pub(super) table: u64,
    /// Inodes at the table's start that may be in use.
    pub(super) used_inodes: u64,
    /// No block of it is in use, and its bitmap is not written yet.
    pub(super) has_no_blocks: bool,
}

/// What the superblock and the descriptors say.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Its length.
    pub(super) blocks: u64,
    pub(super) block_bytes: u64,
    first_block: u64,
    group_blocks: u64,
    cluster_blocks: u64,
    pub(super) group_inodes: u64,
    pub(super) inode_bytes: u64,
    inodes: u64,
    descriptor_bytes: u64,
    reserved_descriptors: u64,
    compatible: u32,
    incompatible: u32,
    read_only: u32,
    first_meta_group: u64,
    with_copies: [u64; 2],
    pub(super) multi_mount_block: Option<u64>,
    /// Inodes of the file system itself, and what they are.
    special: BTreeMap<u64, &'static str>,
    /// `None`: its descriptor cannot be used.
    pub(super) groups: Vec<Option<Group>>,
}

impl Layout {
    /// Reads them, from copies where the first ones cannot be used, with notes about that.
    pub(super) async fn read<S: Source + ?Sized>(source: &S) -> Result<(Self, Vec<String>), String> {
        let mut notes = Vec::new();
        let mut why = String::new();
        // The first copies with blocks of 1, 2 and 4 KiB.
        for at in [1024, 8193 << 10, 16384 << 11, 32768 << 12] {
            let found = match source.read(at, 1024).await {
                Ok(superblock) => Self::decode(&superblock).filter(|layout| layout.bytes() <= source.bytes()),
                Err(reason) => {
                    why = format!(": {reason}");
                    None
                }
            };
            let Some(mut layout) = found else { continue };
            if at != 1024 {
                notes.push(format!("the first superblock cannot be used, the copy at byte {at} counts{why}"));
            }
            if layout.incompatible & NEEDS_RECOVERY != 0 {
                notes.push("its journal was not replayed: what changed last may be named wrong".to_owned());
            }
            layout.read_groups(source, &mut notes).await;
            return Ok((layout, notes));
        }
        Err(format!("no superblock of ext that can be used{why}"))
    }

    fn decode(superblock: &[u8]) -> Option<Self> {
        let long = |at| u64::from(le32(superblock, at));
        let (compatible, incompatible, read_only) =
            (le32(superblock, 0x5c), le32(superblock, 0x60), le32(superblock, 0x64));
        let is_wide = incompatible & WIDE != 0;
        let (log, cluster_log) = (le32(superblock, 0x18), le32(superblock, 0x1c));
        let has_clusters = read_only & CLUSTERS != 0;
        if le16(superblock, 0x38) != 0xef53 || log > 6 || has_clusters && !(log..=log + 24).contains(&cluster_log) {
            return None;
        }
        let is_dynamic = le32(superblock, 0x4c) > 0;
        let mut special = BTreeMap::from([(1, "bad blocks"), (FOR_GROWING, "space for more descriptors")]);
        for (at, what) in [(0x240, "quota of users"), (0x244, "quota of groups"), (0x26c, "quota of projects")] {
            special.insert(long(at), what);
        }
        special.insert(long(0x280), "list of orphans");
        special.insert(long(0xe0), "journal");
        special.remove(&0);
        let layout = Self {
            blocks: long(4) | if is_wide { long(0x150) << 32 } else { 0 },
            block_bytes: 1024 << log,
            first_block: long(0x14),
            group_blocks: long(0x20),
            cluster_blocks: if has_clusters { 1 << (cluster_log - log) } else { 1 },
            group_inodes: long(0x28),
            inode_bytes: if is_dynamic { u64::from(le16(superblock, 0x58)) } else { 128 },
            inodes: long(0),
            descriptor_bytes: if is_wide { u64::from(le16(superblock, 0xfe)) } else { 32 },
            reserved_descriptors: if compatible & 0x10 != 0 { u64::from(le16(superblock, 0xce)) } else { 0 },
            compatible,
            incompatible,
            read_only,
            first_meta_group: long(0x104),
            with_copies: [long(0x24c), long(0x250)],
            multi_mount_block: (incompatible & MULTI_MOUNT != 0).then(|| u64::from_le_bytes(array(superblock, 0x168))),
            special,
            groups: Vec::new(),
        };
        layout.is_sane().then_some(layout)
    }

    fn is_sane(&self) -> bool {
        let is_power = |bytes: u64, range: Range<u64>| bytes.is_power_of_two() && range.contains(&bytes);
        is_power(self.inode_bytes, 128..self.block_bytes + 1)
            && is_power(self.descriptor_bytes, 32..self.block_bytes + 1)
            && self.group_blocks > 0
            && self.group_inodes > 0
            && self.first_block < self.blocks
            && self.blocks <= u64::MAX / self.block_bytes / 2
            && self.inodes >= self.group_inodes
            && self.count() <= self.inodes.div_ceil(self.group_inodes)
    }

    /// The number of groups.
    fn count(&self) -> u64 {
        (self.blocks - self.first_block).div_ceil(self.group_blocks)
    }

    /// Its length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    /// The bytes of blocks; none past the end.
    pub(super) fn range(&self, first: u64, count: u64) -> Range<u64> {
        let first = first.min(self.blocks);
        first * self.block_bytes..first.saturating_add(count).min(self.blocks) * self.block_bytes
    }

    /// The first block of a group.
    pub(super) fn first_of(&self, group: u64) -> u64 {
        self.first_block + group * self.group_blocks
    }

    /// The block of a group at which a copy of the superblock, or the descriptors, may begin. With clusters the first group
    /// begins at the boot block.
    pub(super) fn head_of(&self, group: u64) -> u64 {
        match self.first_of(group) {
            0 if self.block_bytes == 1024 => 1,
            first => first,
        }
    }

    /// Whether space is given to files in clusters of several blocks.
    pub(super) fn has_clusters(&self) -> bool {
        self.cluster_blocks > 1
    }

    /// The group of a block, and its bit in the bitmap.
    pub(super) fn bit_of(&self, block: u64) -> Option<(u64, u64)> {
        let block = block.checked_sub(self.first_block)?;
        Some((block / self.group_blocks, block % self.group_blocks / self.cluster_blocks))
    }

    /// Whether a group begins with a copy of the superblock.
    pub(super) fn has_superblock(&self, group: u64) -> bool {
        let is_power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        if self.compatible & SPARSE_2 != 0 {
            return group == 0 || self.with_copies.contains(&group);
        }
        self.read_only & SPARSE == 0 || group <= 1 || [3, 5, 7].into_iter().any(is_power_of)
    }

    fn each(&self) -> u64 {
        self.block_bytes / self.descriptor_bytes
    }

    /// Whether a block of descriptors lies in the groups it describes, not behind the superblock.
    fn is_meta(&self, block: u64) -> bool {
        self.incompatible & META_GROUPS != 0 && block >= self.first_meta_group
    }

    /// The blocks of descriptors in a group, with those that are reserved for more.
    pub(super) fn descriptors_in(&self, group: u64) -> Vec<(u64, u64)> {
        let behind = self.head_of(group) + u64::from(self.has_superblock(group));
        let tables = self.count().div_ceil(self.each());
        let mut found = Vec::new();
        if self.has_superblock(group) {
            let flat = if self.incompatible & META_GROUPS != 0 { tables.min(self.first_meta_group) } else { tables };
            found.push((behind, flat + self.reserved_descriptors));
        }
        let in_meta = group % self.each();
        if self.is_meta(group / self.each()) && (in_meta <= 1 || in_meta == self.each() - 1) {
            found.push((behind, 1));
        }
        found
    }

    /// The places of a block of descriptors, the one that counts first.
    fn places_of(&self, table: u64) -> Vec<u64> {
        let behind = |group: u64| self.head_of(group) + u64::from(self.has_superblock(group));
        match self.is_meta(table) {
            true => {
                let first = table * self.each();
                [first, first + 1, first + self.each() - 1].map(behind).into()
            }
            false => [0, 1, 3, 5, 7]
                .into_iter()
                .filter(|group| self.has_superblock(*group))
                .map(behind)
                .map(|block| block + table)
                .collect(),
        }
    }

    async fn read_groups<S: Source + ?Sized>(&mut self, source: &S, notes: &mut Vec<String>) {
        let count = self.count();
        for table in 0..count.div_ceil(self.each()) {
            let first = table * self.each();
            let here = self.each().min(count - first);
            let mut why = String::new();
            let mut found = None;
            for place in self.places_of(table).into_iter().filter(|place| *place < self.blocks) {
                match source.read(place * self.block_bytes, self.block_bytes as usize).await {
                    Ok(block) => found = found.or(Some(block)),
                    Err(reason) => why = reason,
                }
                if found.is_some() {
                    break;
                }
            }
            if found.is_none() || !why.is_empty() {
                let what = if found.is_some() { "a copy counts" } else { "and no copy" };
                notes.push(format!(
                    "descriptors of groups {first} to {}: cannot be read, {what}: {why}",
                    first + here - 1
                ));
            }
            let groups = (0..here).map(|index| {
                let descriptor = found.as_ref()?.get((index * self.descriptor_bytes) as usize..)?;
                self.group(&descriptor[..self.descriptor_bytes as usize])
            });
            let groups: Vec<_> = groups.collect();
            self.groups.extend(groups);
        }
    }

    fn group(&self, descriptor: &[u8]) -> Option<Group> {
        let is_wide = descriptor.len() >= 64;
        let block = |low: usize, high: usize| {
            u64::from(le32(descriptor, low)) | if is_wide { u64::from(le32(descriptor, high)) << 32 } else { 0 }
        };
        let has_sums = self.read_only & (GROUP_SUMS | METADATA_SUMS) != 0;
        let flags = if has_sums { le16(descriptor, 0x12) } else { 0 };
        let high = if is_wide { u64::from(le16(descriptor, 0x32)) << 16 } else { 0 };
        let unused = if has_sums { u64::from(le16(descriptor, 0x1c)) | high } else { 0 };
        let used_inodes = if flags & 1 != 0 { 0 } else { self.group_inodes.saturating_sub(unused) };
        let group = Group {
            block_bitmap: block(0, 0x20),
            inode_bitmap: block(4, 0x24),
            table: block(8, 0x28),
            used_inodes,
            has_no_blocks: flags & 2 != 0,
        };
        let table_blocks = (self.group_inodes * self.inode_bytes).div_ceil(self.block_bytes);
        let ends = [group.block_bitmap, group.inode_bitmap, group.table.checked_add(table_blocks)? - 1];
        ends.into_iter().all(|block| block > 0 && block < self.blocks).then_some(group)
    }

    /// Where an inode is.
    pub(super) fn inode_at(&self, number: u64) -> Option<u64> {
        let index = number.checked_sub(1).filter(|_| number <= self.inodes)?;
        let group = self.groups.get((index / self.group_inodes) as usize)?.as_ref()?;
        Some(group.table * self.block_bytes + index % self.group_inodes * self.inode_bytes)
    }

    /// What has all blocks of an inode of the file system itself.
    pub(super) fn special(&self, inode: u64) -> Option<Owner> {
        match *self.special.get(&inode)? {
            "journal" => Some(Owner::Journal),
            what => Some(Owner::Metadata(what.to_owned())),
        }
    }

    /// What has the content of an inode, from block `within` of it on.
    pub(super) fn owner_of(&self, inode: &Inode, file: FileId, within: u64) -> Owner {
        match self.special(inode.number) {
            Some(owner) => owner,
            None if inode.is_directory() => Owner::File(file, Part::Entries),
            None => Owner::File(file, Part::Content(within.saturating_mul(self.block_bytes))),
        }
    }
}
