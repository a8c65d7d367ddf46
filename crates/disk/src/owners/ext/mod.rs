//! Which file of ext2, ext3 or ext4 has some blocks.
//!
//! ext keeps no record from a block to its file. So all inodes in use are read, as by debugfs' `icheck`, and then
//! directories from the root on until each file found has a name, as by `ncheck`. Facts: the kernel's
//! `Documentation/filesystems/ext4` and `fs/ext4/ext4.h`.

mod blocks;
mod layout;
mod names;

use super::claims::Claims;
use super::{FileId, Owner, Owners, Part};
use crate::bytes::{le16, le32};
use crate::source::Source;
use blocks::Fork;
use layout::{Group, Layout};
use std::ops::Range;

/// Bytes of an inode table that are read at a time.
const TABLE_BYTES: u64 = 256 << 10;

/// The file system, and what is known of the wanted blocks so far.
struct Ext<'a, S: ?Sized> {
    source: &'a S,
    layout: Layout,
    claims: Claims,
    notes: Vec<String>,
    /// Blocks of maps that may still be read: no sound file system has more maps than blocks.
    maps_left: u64,
}

/// An inode in use.
struct Inode {
    number: u64,
    raw: Vec<u8>,
}

impl Inode {
    fn kind(&self) -> u16 {
        le16(&self.raw, 0) >> 12
    }

    fn flags(&self) -> u32 {
        le32(&self.raw, 0x20)
    }

    fn bytes(&self) -> u64 {
        u64::from(le32(&self.raw, 4)) | u64::from(le32(&self.raw, 0x6c)) << 32
    }

    fn is_directory(&self) -> bool {
        self.kind() == 4
    }

    /// Whether its content is in blocks. A short link is in the inode, and devices have none.
    fn has_blocks(&self) -> bool {
        match self.kind() {
            _ if self.flags() & layout::INLINE != 0 => false,
            10 => self.flags() & layout::EXTENTS != 0 || self.bytes() >= 60,
            kind => matches!(kind, 4 | 8),
        }
    }

    /// The block of its extended attributes.
    fn attributes(&self) -> Option<u64> {
        let block = u64::from(le32(&self.raw, 0x68)) | u64::from(le16(&self.raw, 0x76)) << 32;
        (block != 0).then_some(block)
    }
}

/// Says what has `ranges`.
pub(super) async fn find<S: Source + ?Sized>(source: &S, ranges: &[Range<u64>]) -> Result<Owners, String> {
    let (layout, notes) = Layout::read(source).await?;
    let claims = Claims::new(ranges, layout.bytes());
    let maps_left = layout.blocks;
    let mut ext = Ext { source, layout, claims, notes, maps_left };
    ext.claim_fixed();
    ext.claim_files().await;
    ext.claim_rest().await;
    let Ext { layout, claims, notes, .. } = ext;
    let mut owners = Owners { places: claims.into_places(), notes, ..Owners::default() };
    let wanted = owners.files();
    names::add(source, &layout, wanted, &mut owners).await;
    Ok(owners)
}

impl<S: Source + ?Sized> Ext<'_, S> {
    /// The bytes of blocks.
    fn range(&self, first: u64, count: u64) -> Range<u64> {
        self.layout.range(first, count)
    }

    fn claim_metadata(&mut self, first: u64, count: u64, what: &str) {
        let range = self.range(first, count);
        self.claims.claim(range, |_| Owner::Metadata(what.to_owned()));
    }

    /// Claims what is at a fixed place.
    fn claim_fixed(&mut self) {
        let layout = self.layout.clone();
        self.claims.claim(0..1024, |_| Owner::Metadata("boot block".to_owned()));
        for (number, group) in layout.groups.iter().enumerate() {
            let first = layout.head_of(number as u64);
            if layout.has_superblock(number as u64) {
                let start = if number == 0 { 1024 } else { layout.range(first, 1).start };
                let end = layout.range(first, 1).end;
                let what = format!("superblock, copy of group {number}");
                self.claims.claim(start..end.max(start), |_| Owner::Metadata(what.clone()));
            }
            for (first, count) in layout.descriptors_in(number as u64) {
                self.claim_metadata(
                    first,
                    count,
                    &format!("group descriptors and space for more, copy of group {number}"),
                );
            }
            let Some(Group { block_bitmap, inode_bitmap, table, .. }) = group else { continue };
            self.claim_metadata(*block_bitmap, 1, &format!("block bitmap of group {number}"));
            self.claim_metadata(*inode_bitmap, 1, &format!("inode bitmap of group {number}"));
            self.claim_table(number as u64, *table);
        }
        if let Some(block) = layout.multi_mount_block {
            self.claim_metadata(block, 1, "block of the multiple mount protection");
        }
    }

    /// Claims the inode table of a group, with the inodes in each wanted part of it.
    fn claim_table(&mut self, group: u64, table: u64) {
        let (inodes, inode_bytes) = (self.layout.group_inodes, self.layout.inode_bytes);
        let first = group * inodes + 1;
        let start = self.range(table, 0).start;
        for hit in self.claims.hits(&(start..start.saturating_add(inodes * inode_bytes))) {
            let (from, to) = ((hit.start - start) / inode_bytes, (hit.end - 1 - start) / inode_bytes);
            let what = format!("inode table of group {group}: inodes {} to {}", first + from, first + to);
            self.claims.claim(hit, |_| Owner::Metadata(what.clone()));
        }
    }

    /// Claims what inodes have.
    async fn claim_files(&mut self) {
        for number in 0..self.layout.groups.len() {
            let Some(group) = self.layout.groups[number].clone() else { continue };
            let inode_bytes = self.layout.inode_bytes;
            let start = self.range(group.table, 0).start;
            let end = start + group.used_inodes * inode_bytes;
            let first = number as u64 * self.layout.group_inodes + 1;
            let mut at = start;
            while at < end {
                let length = TABLE_BYTES.min(end - at);
                for (from, part) in read_around(self.source, at..at + length, &mut self.notes, number).await {
                    for (index, raw) in part.chunks_exact(inode_bytes as usize).enumerate() {
                        let number = first + (from - start) / inode_bytes + index as u64;
                        let is_used = le16(raw, 0) != 0 && le16(raw, 0x1a) != 0;
                        if is_used {
                            self.claim_inode(&Inode { number, raw: raw.to_vec() }).await;
                        }
                    }
                }
                at += length;
            }
        }
    }

    async fn claim_inode(&mut self, inode: &Inode) {
        let file = FileId { tree: 0, inode: inode.number };
        if let Some(block) = inode.attributes() {
            let range = self.range(block, 1);
            self.claims.claim(range, |_| Owner::File(file, Part::Attributes));
        }
        if !inode.has_blocks() {
            return;
        }
        let mut fork = Fork::of(inode, &self.layout);
        while let Some(piece) = fork.next(self.source, &self.layout, &mut self.maps_left).await {
            match piece {
                // They are at a fixed place behind the descriptors.
                Ok(blocks::Piece { within: Some(_), .. }) if inode.number == layout::FOR_GROWING => {}
                Ok(blocks::Piece { first, count, within: Some(within) }) => {
                    let owner = self.layout.owner_of(inode, file, within);
                    let range = self.range(first, count);
                    self.claims.claim(range, |distance| match &owner {
                        Owner::File(file, Part::Content(at)) => {
                            Owner::File(*file, Part::Content(at.saturating_add(distance)))
                        }
                        owner => owner.clone(),
                    });
                }
                Ok(blocks::Piece { first, count, within: None }) => {
                    let owner = match self.layout.special(inode.number) {
                        Some(owner) => owner,
                        None => Owner::File(file, Part::Map),
                    };
                    let range = self.range(first, count);
                    self.claims.claim(range, |_| owner.clone());
                }
                Err(reason) => self.notes.push(format!("the map of inode {}: {reason}", inode.number)),
            }
        }
    }

    /// Claims what is left: free space, by the block bitmaps.
    async fn claim_rest(&mut self) {
        let mut bitmap = None;
        for rest in self.claims.rest() {
            for block in rest.start / self.layout.block_bytes..rest.end.div_ceil(self.layout.block_bytes) {
                let owner = self.free_or_not(block, &mut bitmap).await;
                let range = self.range(block, 1);
                self.claims.claim(rest.start.max(range.start)..rest.end.min(range.end), |_| owner.clone());
            }
        }
    }

    /// Whether a block that nothing claims is free. `bitmap` keeps what was read last.
    async fn free_or_not(&self, block: u64, bitmap: &mut Option<(u64, Result<Vec<u8>, String>)>) -> Owner {
        let Some((number, bit)) = self.layout.bit_of(block) else {
            return Owner::Metadata("boot block".to_owned());
        };
        let Some(Some(group)) = self.layout.groups.get(number as usize) else {
            return Owner::Unknown(format!("the descriptor of group {number} cannot be used"));
        };
        if group.has_no_blocks {
            return Owner::Free;
        }
        if bitmap.as_ref().is_none_or(|(known, _)| *known != number) {
            let at = self.range(group.block_bitmap, 0).start;
            *bitmap = Some((number, self.source.read(at, self.layout.block_bytes as usize).await));
        }
        let (_, bits) = bitmap.as_ref().expect("it was read");
        match bits.as_ref().map(|bits| bits.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 0)) {
            Ok(true) => Owner::Free,
            Ok(false) if self.layout.has_clusters() => Owner::Unknown(
                "in use, and in no file that can be read: mostly the rest of a file's cluster".to_owned(),
            ),
            Ok(false) => Owner::Unknown("in use, and no inode that can be read has it".to_owned()),
            Err(reason) => Owner::Unknown(format!("the block bitmap of group {number} cannot be read: {reason}")),
        }
    }
}

/// The parts of `range` that can be read, each with its place. What cannot be read is noted.
async fn read_around<S: Source + ?Sized>(
    source: &S,
    range: Range<u64>,
    notes: &mut Vec<String>,
    group: usize,
) -> Vec<(u64, Vec<u8>)> {
    const UNIT: u64 = 4096;
    if let Ok(all) = source.read(range.start, (range.end - range.start) as usize).await {
        return vec![(range.start, all)];
    }
    let mut parts = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + UNIT);
        match source.read(at, (end - at) as usize).await {
            Ok(part) => parts.push((at, part)),
            Err(reason) => {
                notes.push(format!("inode table of group {group}: bytes {at} to {end} cannot be read: {reason}"));
            }
        }
        at = end;
    }
    parts
}
