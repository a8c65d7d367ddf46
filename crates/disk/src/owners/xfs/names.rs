//! Paths of inodes of XFS, by reading directories from the root on.

use super::super::paths::{self, Entry, UNSAID};
use super::super::{FileId, Owners};
use super::inode::{Extent, Inode};
use super::layout::Layout;
use crate::bytes::{be16, be32, be64};
use crate::source::Source;
use std::collections::BTreeSet;

/// Behind this byte of a directory are hashes instead of names.
const HASHES_AT: u64 = 1 << 35;

/// Adds a path of each file in `wanted`.
pub(super) async fn add<S: Source + ?Sized>(
    source: &S,
    layout: &Layout,
    wanted: BTreeSet<FileId>,
    owners: &mut Owners,
) {
    let mut left = layout.blocks;
    let read = async |directory| entries(source, layout, directory, &mut left).await;
    paths::add(layout.root, wanted, owners, read).await;
}

/// The names in a directory, and whether they are all.
async fn entries<S: Source + ?Sized>(source: &S, layout: &Layout, inode: u64, left: &mut u64) -> (Vec<Entry>, bool) {
    let mut found = Vec::new();
    let Some((group, number)) = layout.local(inode) else { return (found, false) };
    let raw = source.read(layout.inode_at(group, number), layout.inode_bytes as usize).await;
    let Some(inode) = raw.ok().and_then(Inode::of) else { return (found, false) };
    if !inode.is_directory() {
        return (found, true);
    }
    if let Some(local) = inode.local() {
        let length = local.len().min(inode.bytes() as usize);
        let is_whole = add_local(&local[..length], layout.has_kinds, &mut found).is_some();
        return (found, is_whole);
    }
    let mut is_whole = true;
    for extent in inode.extents(true, source, layout, left).await {
        let Ok(Extent { block, count, within }) = extent else {
            is_whole = false;
            continue;
        };
        let Some(within) = within else { continue };
        if within.saturating_mul(layout.block_bytes) < HASHES_AT {
            is_whole &= add_extent(source, layout, block, count, &mut found).await;
        }
    }
    (found, is_whole)
}

/// Adds the names in an extent of a directory. A directory's block may be cut by extents: then its names are not read.
async fn add_extent<S: Source + ?Sized>(
    source: &S,
    layout: &Layout,
    block: u64,
    count: u64,
    found: &mut Vec<Entry>,
) -> bool {
    let range = layout.range(block, count);
    let mut is_whole = (range.end - range.start).is_multiple_of(layout.directory_bytes);
    let mut at = range.start;
    while at + layout.directory_bytes <= range.end {
        is_whole &= match source.read(at, layout.directory_bytes as usize).await {
            Ok(block) => add_block(&block, layout.has_kinds, found).is_some(),
            Err(_) => false,
        };
        at += layout.directory_bytes;
    }
    is_whole
}

fn name_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Adds the names of a directory that is in its inode. `None` if it makes no sense to its end.
fn add_local(bytes: &[u8], has_kinds: bool, found: &mut Vec<Entry>) -> Option<()> {
    let is_wide = *bytes.get(1)? > 0;
    let number_bytes = if is_wide { 8 } else { 4 };
    let mut at = 2 + number_bytes;
    for _ in 0..*bytes.first()? {
        let length = usize::from(*bytes.get(at)?);
        let name = bytes.get(at + 3..at + 3 + length)?;
        at += 3 + length;
        let kind = if has_kinds { bytes.get(at).copied().unwrap_or(UNSAID) } else { UNSAID };
        at += usize::from(has_kinds);
        let number = bytes.get(at..at + number_bytes)?;
        let inode = if is_wide { be64(number, 0) } else { be32(number, 0).into() };
        at += number_bytes;
        found.push(Entry { inode, kind, name: name_of(name) });
    }
    Some(())
}

/// Adds the names in a block of a directory. `None` if it makes no sense to its end.
fn add_block(block: &[u8], has_kinds: bool, found: &mut Vec<Entry>) -> Option<()> {
    let (header, is_whole_directory) = match block.get(..4)? {
        b"XD2D" => (16, false),
        b"XD2B" => (16, true),
        b"XDD3" => (64, false),
        b"XDB3" => (64, true),
        _ => return None,
    };
    let end = match is_whole_directory {
        true => block.len().checked_sub(8 + 8 * be32(block, block.len() - 8) as usize)?,
        false => block.len(),
    };
    let mut at = header;
    while at + 8 <= end {
        if be16(block, at) == 0xffff {
            at += usize::from(be16(block, at + 2)).max(8);
            continue;
        }
        let length = usize::from(*block.get(at + 8)?);
        let name = block.get(at + 9..at + 9 + length)?;
        let kind = if has_kinds { block.get(at + 9 + length).copied().unwrap_or(UNSAID) } else { UNSAID };
        if name != b"." && name != b".." {
            found.push(Entry { inode: be64(block, at), kind, name: name_of(name) });
        }
        at += (9 + length + usize::from(has_kinds) + 2).next_multiple_of(8);
    }
    Some(())
}
