//! Which file of XFS has some blocks.
//!
//! All inodes are read, by the trees of inodes of each allocation group; then directories from the root on, until each
//! file found has a name. Newer XFS also keeps a tree from blocks to owners, which is not needed for that. Facts: the
//! kernel's `fs/xfs/libxfs/xfs_format.h`, `xfs_da_format.h` and `Documentation/filesystems/xfs`.

mod inode;
mod layout;
mod names;
mod tree;

use super::claims::Claims;
use super::{FileId, Owner, Owners, Part};
use crate::bytes::{be16, be32, be64};
use crate::source::Source;
use inode::{Extent, Inode};
use layout::Layout;
use std::ops::Range;
use tree::Tree;

/// The trees of an allocation group: magic numbers without and with checksums, bytes of a record and of a key, and what
/// they are.
const FREE: Tree = Tree { magic: [*b"ABTB", *b"AB3B"], record: 8, key: 8, what: "free space" };
const FREE_BY_LENGTH: Tree = Tree { magic: [*b"ABTC", *b"AB3C"], record: 8, key: 8, what: "free space by length" };
const INODES: Tree = Tree { magic: [*b"IABT", *b"IAB3"], record: 16, key: 4, what: "inodes" };
const FREE_INODES: Tree = Tree { magic: [*b"FIBT", *b"FIB3"], record: 16, key: 4, what: "free inodes" };
const OWNERS: Tree = Tree { magic: [*b"RMB3", *b"RMB3"], record: 24, key: 40, what: "owners of blocks" };
const COUNTS: Tree = Tree { magic: [*b"R3FC", *b"R3FC"], record: 12, key: 4, what: "counts of shared blocks" };

/// Inodes of a record in the tree of inodes.
const CHUNK_INODES: u64 = 64;

struct Xfs<'a, S: ?Sized> {
    source: &'a S,
    layout: Layout,
    claims: Claims,
    notes: Vec<String>,
    /// Blocks of trees that may still be read: no sound file system has more of them than blocks.
    left: u64,
    /// Free blocks in groups with wanted bytes.
    free: Vec<Range<u64>>,
    /// Groups whose free space is known.
    known: Vec<u64>,
}

/// Says what has `ranges`.
pub(super) async fn find<S: Source + ?Sized>(source: &S, ranges: &[Range<u64>]) -> Result<Owners, String> {
    let (layout, notes) = Layout::read(source).await?;
    let claims = Claims::new(ranges, layout.bytes());
    let left = layout.blocks;
    let mut xfs = Xfs { source, layout, claims, notes, left, free: Vec::new(), known: Vec::new() };
    xfs.claim_journal();
    for group in 0..xfs.layout.groups {
        xfs.claim_group(group).await;
    }
    xfs.claim_rest();
    let Xfs { layout, claims, notes, .. } = xfs;
    let mut owners = Owners { places: claims.into_places(), notes, ..Owners::default() };
    let wanted = owners.files();
    names::add(source, &layout, wanted, &mut owners).await;
    Ok(owners)
}

impl<S: Source + ?Sized> Xfs<'_, S> {
    fn claim_metadata(&mut self, range: Range<u64>, what: &str) {
        self.claims.claim(range, |_| Owner::Metadata(what.to_owned()));
    }

    fn claim_journal(&mut self) {
        if let Some(range) = self.layout.journal() {
            self.claims.claim(range, |_| Owner::Journal);
        }
    }

    /// Claims what a group's headers and trees say.
    async fn claim_group(&mut self, group: u64) {
        let sector = self.layout.sector_bytes;
        let start = self.layout.group_range(group, 0, 0).start;
        for (index, what) in ["superblock", "record of free space", "record of inodes", "free list"].iter().enumerate()
        {
            let at = start + index as u64 * sector;
            self.claim_metadata(at..at + sector, &format!("{what} of allocation group {group}"));
        }
        let header = self.layout.group_range(group, 0, (4 * sector).div_ceil(self.layout.block_bytes));
        self.claim_metadata(start + 4 * sector..header.end, &format!("headers of allocation group {group}"));
        let has_wanted = !self.claims.hits(&self.layout.whole_group(group)).is_empty();
        match self.source.read(start + 2 * sector, 512).await {
            Ok(header) if header.starts_with(b"XAGI") => {
                for record in self.walk(group, INODES, be32(&header, 20)).await {
                    self.claim_inodes(group, &record).await;
                }
                if has_wanted && self.layout.has_free_inodes {
                    self.walk(group, FREE_INODES, be32(&header, 328)).await;
                }
            }
            Ok(_) => self.notes.push(format!("allocation group {group}: its record of inodes makes no sense")),
            Err(reason) => {
                self.notes.push(format!("allocation group {group}: its record of inodes cannot be read: {reason}"));
            }
        }
        if has_wanted {
            self.claim_free(group, start).await;
        }
    }

    /// Reads what is free in a group, and claims the blocks of its trees.
    async fn claim_free(&mut self, group: u64, start: u64) {
        let sector = self.layout.sector_bytes;
        let header = match self.source.read(start + sector, 512).await {
            Ok(header) if header.starts_with(b"XAGF") => header,
            _ => return self.notes.push(format!("allocation group {group}: its record of free space cannot be used")),
        };
        let before = self.notes.len();
        let records = self.walk(group, FREE, be32(&header, 16)).await;
        for record in records {
            let (first, count) = (be32(&record, 0).into(), be32(&record, 4).into());
            self.free.push(self.layout.group_range(group, first, count));
        }
        if self.notes.len() == before {
            self.known.push(group);
        }
        self.walk(group, FREE_BY_LENGTH, be32(&header, 20)).await;
        if self.layout.has_owners {
            self.walk(group, OWNERS, be32(&header, 24)).await;
        }
        if self.layout.has_counts {
            self.walk(group, COUNTS, be32(&header, 88)).await;
        }
        self.claim_free_list(group, start + 3 * sector, &header).await;
    }

    /// Claims the blocks that a group keeps for its trees.
    async fn claim_free_list(&mut self, group: u64, at: u64, header: &[u8]) {
        let Ok(list) = self.source.read(at, self.layout.sector_bytes as usize).await else { return };
        let from = if self.layout.is_v5 { 36 } else { 0 };
        let slots: Vec<u32> = list[from..].chunks_exact(4).map(|slot| be32(slot, 0)).collect();
        let (first, count) = (be32(header, 40) as usize, be32(header, 48) as usize);
        for index in 0..count.min(slots.len()) {
            let block = slots[(first + index) % slots.len()];
            let range = self.layout.group_range(group, block.into(), 1);
            self.claim_metadata(range, &format!("reserve for trees of allocation group {group}"));
        }
    }

    /// The records of a tree of a group, whose blocks are claimed.
    async fn walk(&mut self, group: u64, tree: Tree, root: u32) -> Vec<Vec<u8>> {
        let mut due = vec![(u64::from(root), None)];
        let mut records = Vec::new();
        while let Some((block, level)) = due.pop() {
            let range = self.layout.group_range(group, block, 1);
            self.claim_metadata(range.clone(), &format!("tree of {} of allocation group {group}", tree.what));
            let node = match self.node(range, level, tree).await {
                Ok(node) => node,
                Err(reason) => {
                    self.notes.push(format!("allocation group {group}: tree of {}: {reason}", tree.what));
                    continue;
                }
            };
            match node.level {
                0 => records.extend(node.records(tree.record)),
                level => due.extend(node.children(tree.key).into_iter().rev().map(|child| (child, Some(level - 1)))),
            }
        }
        records
    }

    async fn node(&mut self, range: Range<u64>, level: Option<u16>, tree: Tree) -> Result<tree::Node, String> {
        if range.is_empty() {
            return Err("a pointer leads past the group's end".to_owned());
        }
        self.left = self.left.checked_sub(1).ok_or("it has more blocks than the file system")?;
        let block = self.source.read(range.start, (range.end - range.start) as usize).await?;
        let magic = tree.magic[usize::from(self.layout.is_v5)];
        tree::Node::short(block, magic, level, self.layout.is_v5).ok_or_else(|| "a block makes no sense".to_owned())
    }

    /// Claims the inodes of a record, and what they have.
    async fn claim_inodes(&mut self, group: u64, record: &[u8]) {
        let (layout, first) = (self.layout.clone(), u64::from(be32(record, 0)));
        let holes = if layout.has_holes { be16(record, 4) } else { 0 };
        let free = be64(record, 8);
        // A bit of the holes stands for four inodes.
        for index in (0..CHUNK_INODES).filter(|index| holes >> (index / 4) & 1 == 0) {
            let number = first + index;
            let at = layout.inode_at(group, number);
            let global = layout.global(group, number);
            let what = format!("inode {global}{}", if free >> index & 1 == 1 { ", which is not in use" } else { "" });
            self.claim_metadata(at..at + layout.inode_bytes, &what);
        }
        let block_inodes = layout.block_bytes / layout.inode_bytes;
        let mut index = 0;
        while index < CHUNK_INODES {
            let count = block_inodes.min(CHUNK_INODES - index);
            let wanted: Vec<u64> =
                (index..index + count).filter(|i| holes >> (i / 4) & 1 == 0 && free >> i & 1 == 0).collect();
            let at = layout.inode_at(group, first + index);
            index += count;
            if wanted.is_empty() {
                continue;
            }
            match self.source.read(at, (count * layout.inode_bytes) as usize).await {
                Ok(raw) => {
                    for slot in wanted {
                        let from = (slot % block_inodes.min(CHUNK_INODES) * layout.inode_bytes) as usize;
                        let raw = raw[from..from + layout.inode_bytes as usize].to_vec();
                        self.claim_inode(layout.global(group, first + slot), raw).await;
                    }
                }
                Err(reason) => self.notes.push(format!("inodes at byte {at} cannot be read: {reason}")),
            }
        }
    }

    async fn claim_inode(&mut self, number: u64, raw: Vec<u8>) {
        let Some(inode) = Inode::of(raw) else {
            return self.notes.push(format!("inode {number} makes no sense"));
        };
        let file = FileId { tree: 0, inode: number };
        let special = self.layout.special(number);
        for is_data in [true, false] {
            let extents = inode.extents(is_data, self.source, &self.layout, &mut self.left).await;
            for extent in extents {
                match extent {
                    Ok(extent) => self.claim_extent(&inode, file, is_data, &extent, special),
                    Err(reason) => self.notes.push(format!("the map of inode {number}: {reason}")),
                }
            }
        }
    }

    fn claim_extent(&mut self, inode: &Inode, file: FileId, is_data: bool, extent: &Extent, special: Option<&str>) {
        let Extent { block, count, within } = *extent;
        let range = self.layout.range(block, count);
        let block_bytes = self.layout.block_bytes;
        self.claims.claim(range, |distance| match (special, within, is_data) {
            (Some(what), ..) => Owner::Metadata(what.to_owned()),
            (_, None, _) => Owner::File(file, Part::Map),
            (_, _, false) => Owner::File(file, Part::Attributes),
            (..) if inode.is_directory() => Owner::File(file, Part::Entries),
            (_, Some(within), _) => {
                Owner::File(file, Part::Content(within.saturating_mul(block_bytes).saturating_add(distance)))
            }
        });
    }

    /// Claims what is left: free space, by the trees of it.
    fn claim_rest(&mut self) {
        let mut free = std::mem::take(&mut self.free);
        free.sort_unstable_by_key(|range| range.start);
        for rest in self.claims.rest() {
            let first = free.partition_point(|range| range.end <= rest.start);
            for range in free[first..].iter().take_while(|range| range.start < rest.end) {
                self.claims.claim(rest.start.max(range.start)..rest.end.min(range.end), |_| Owner::Free);
            }
        }
        for rest in self.claims.rest() {
            let group = rest.start / self.layout.block_bytes / self.layout.group_blocks;
            let reason = match self.known.contains(&group) {
                true => "in use, and no inode that can be read has it",
                false => "the free space of its allocation group cannot be read",
            };
            self.claims.claim(rest, |_| Owner::Unknown(reason.to_owned()));
        }
    }
}
