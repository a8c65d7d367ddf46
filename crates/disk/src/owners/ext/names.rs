//! Paths of inodes of ext, by reading directories from the root on.

use super::super::paths::{self, Entry};
use super::super::{FileId, Owners};
use super::Inode;
use super::blocks::{Fork, Piece};
use super::layout::{INLINE, Layout};
use crate::bytes::{le16, le32};
use crate::source::Source;
use std::collections::BTreeSet;

const ROOT: u64 = 2;

/// Adds a path of each file in `wanted`.
pub(super) async fn add<S: Source + ?Sized>(
    source: &S,
    layout: &Layout,
    wanted: BTreeSet<FileId>,
    owners: &mut Owners,
) {
    let mut left = layout.blocks;
    let read = async |directory| entries(source, layout, directory, &mut left).await;
    paths::add(ROOT, wanted, owners, read).await;
}

/// The names in a directory, and whether they are all.
async fn entries<S: Source + ?Sized>(
    source: &S,
    layout: &Layout,
    number: u64,
    maps_left: &mut u64,
) -> (Vec<Entry>, bool) {
    let mut found = Vec::new();
    let Some(at) = layout.inode_at(number) else { return (found, false) };
    let Ok(raw) = source.read(at, layout.inode_bytes as usize).await else { return (found, false) };
    let inode = Inode { number, raw };
    if !inode.is_directory() {
        return (found, true);
    }
    if inode.flags() & INLINE != 0 {
        // Behind the number of the directory above. More of it may be among the attributes.
        add_entries(&inode.raw[0x2c..0x64], &mut found);
        return (found, inode.bytes() <= 60);
    }
    let mut is_whole = true;
    let mut fork = Fork::of(&inode, layout);
    while let Some(piece) = fork.next(source, layout, maps_left).await {
        let Ok(Piece { first, count, within }) = piece else {
            is_whole = false;
            continue;
        };
        if within.is_none() {
            continue;
        }
        for block in first..first.saturating_add(count).min(layout.blocks) {
            match source.read(block * layout.block_bytes, layout.block_bytes as usize).await {
                Ok(block) => is_whole &= add_entries(&block, &mut found),
                Err(_) => is_whole = false,
            }
        }
    }
    (found, is_whole)
}

/// Adds the names in a block, and says whether it makes sense to its end.
fn add_entries(block: &[u8], found: &mut Vec<Entry>) -> bool {
    let mut at = 0;
    while at + 8 <= block.len() {
        let entry = &block[at..];
        let length = match le16(entry, 4) {
            0 | 0xffff if block.len() == 65_536 => block.len() - at,
            length => usize::from(length),
        };
        let (name_bytes, kind) = (usize::from(entry[6]), entry[7]);
        if length < 8 || length > entry.len() || 8 + name_bytes > length {
            return false;
        }
        let name = &entry[8..8 + name_bytes];
        let inode = u64::from(le32(entry, 0));
        if inode != 0 && name_bytes > 0 && name != b"." && name != b".." {
            found.push(Entry { inode, kind, name: String::from_utf8_lossy(name).into_owned() });
        }
        at += length;
    }
    true
}
