//! Which file of Btrfs has some blocks.
//!
//! Btrfs knows it: an address of the device is a logical address by the tree of chunks, the tree of extents names the
//! references to it, and each inode names the directories it is in. Only that is read. Chunks that are striped over
//! several devices are not. Facts: the kernel's `include/uapi/linux/btrfs_tree.h`, `fs/btrfs/backref.c` and
//! `fs/btrfs/volumes.c`.

mod names;
mod trees;

use super::claims::Claims;
use super::{FileId, Owner, Owners, Part};
use crate::bytes::{le16, le32, le64};
use crate::source::Source;
use std::ops::Range;
use trees::{Chunk, Item, Key, Trees};

/// Trees by their number.
const EXTENTS: u64 = 2;

/// Kinds of items.
const EXTENT_DATA: u8 = 108;
const EXTENT_ITEM: u8 = 168;
const METADATA_ITEM: u8 = 169;
const TREE_BLOCK_REF: u8 = 176;
const EXTENT_DATA_REF: u8 = 178;
const SHARED_BLOCK_REF: u8 = 182;
const SHARED_DATA_REF: u8 = 184;
const EXTENT_OWNER_REF: u8 = 172;

/// No extent is longer.
const EXTENT_MAX: u64 = 256 << 20;

/// Where the superblocks are, and the start that Btrfs leaves to boot loaders.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: u64 = 4096;
const START_BYTES: u64 = 64 << 10;

/// A reference to an extent.
enum Reference {
    /// From a file: its subvolume, inode, and the place in the file of the extent's first byte.
    File { tree: u64, inode: u64, at: u64 },
    /// From files whose records are in this leaf.
    Leaf(u64),
    /// From a tree.
    Tree(u64),
}

/// An extent, by its logical address.
struct Extent {
    range: Range<u64>,
    is_data: bool,
    references: Vec<Reference>,
}

/// Says what has `ranges`.
pub(super) async fn find<S: Source + ?Sized>(source: &S, ranges: &[Range<u64>]) -> Result<Owners, String> {
    let mut trees = Trees::read(source).await?;
    let mut claims = Claims::new(ranges, trees.bytes());
    claims.claim(0..START_BYTES, |_| Owner::Metadata("start, which is left to boot loaders".to_owned()));
    for at in SUPERBLOCKS {
        claims.claim(at..at + SUPERBLOCK_BYTES, |_| Owner::Metadata(format!("superblock at byte {at}")));
    }
    let chunks = trees.chunks.clone();
    for chunk in &chunks {
        for at in chunk.places(trees.device) {
            for hit in claims.hits(&(at..at.saturating_add(chunk.bytes))) {
                let logical = chunk.at + (hit.start - at)..chunk.at + (hit.end - at);
                claim_logical(&mut trees, &mut claims, chunk, &logical, hit.start).await;
            }
        }
    }
    for rest in claims.rest() {
        let owner = match trees.is_whole() {
            true => Owner::Free,
            false => Owner::Unknown("the tree of chunks cannot be read in whole".to_owned()),
        };
        claims.claim(rest, |_| owner.clone());
    }
    let mut owners = Owners { places: claims.into_places(), notes: trees.notes(), ..Owners::default() };
    for file in owners.files() {
        match names::of(&mut trees, file).await {
            Ok(Some(path)) => drop(owners.paths.insert(file, path)),
            Ok(None) => {}
            Err(reason) => owners.notes.push(format!("the path of inode {}: {reason}", file.inode)),
        }
    }
    Ok(owners)
}

/// Claims the bytes of the device from `place` on, which are the logical addresses `wanted` of a chunk.
async fn claim_logical<S: Source + ?Sized>(
    trees: &mut Trees<'_, S>,
    claims: &mut Claims,
    chunk: &Chunk,
    wanted: &Range<u64>,
    place: u64,
) {
    let on_device = |range: &Range<u64>| {
        let start = range.start.max(wanted.start);
        let end = range.end.min(wanted.end).max(start);
        place + (start - wanted.start)..place + (end - wanted.start)
    };
    if chunk.is_striped {
        let reason = "its chunk is striped over several devices, which is not read".to_owned();
        return claims.claim(on_device(wanted), |_| Owner::Unknown(reason.clone()));
    }
    let (extents, is_whole) = match extents(trees, wanted).await {
        Ok(found) => found,
        Err(reason) => return claims.claim(on_device(wanted), |_| Owner::Unknown(reason.clone())),
    };
    let mut next = wanted.start;
    for extent in extents {
        if extent.range.start > next && is_whole {
            claims.claim(on_device(&(next..extent.range.start)), |_| Owner::Free);
        }
        next = next.max(extent.range.end);
        for (part, owner) in owners_of(trees, &extent, wanted).await {
            let start = part.start.max(wanted.start).saturating_sub(part.start);
            claims.claim(on_device(&part), |distance| match &owner {
                Owner::File(file, Part::Content(at)) => {
                    Owner::File(*file, Part::Content(at.saturating_add(start + distance)))
                }
                owner => owner.clone(),
            });
        }
    }
    let last = on_device(&(next.min(wanted.end)..wanted.end));
    claims.claim(last, |_| match is_whole {
        true => Owner::Free,
        false => Owner::Unknown("the tree of extents cannot be read in whole".to_owned()),
    });
}

/// The extents that have bytes of `wanted`, in order, and whether these are all.
async fn extents<S: Source + ?Sized>(
    trees: &mut Trees<'_, S>,
    wanted: &Range<u64>,
) -> Result<(Vec<Extent>, bool), String> {
    let root = trees.root(EXTENTS).await?.ok_or("the tree of extents is missing")?;
    let from = Key { object: wanted.start.saturating_sub(EXTENT_MAX), kind: 0, offset: 0 };
    let to = Key { object: wanted.end - 1, kind: u8::MAX, offset: u64::MAX };
    let (items, is_whole) = trees.items(root, from, to).await;
    let mut found: Vec<Extent> = Vec::new();
    for item in items {
        let Key { object, kind, offset } = item.key;
        match kind {
            EXTENT_ITEM => found.push(extent(&item, object..object.saturating_add(offset))),
            METADATA_ITEM => found.push(extent(&item, object..object.saturating_add(trees.node_bytes()))),
            _ => {
                if let Some(last) = found.last_mut().filter(|last| last.range.start == object) {
                    last.references.extend(keyed(&item));
                }
            }
        }
    }
    found.retain(|extent| extent.range.start < wanted.end && extent.range.end > wanted.start);
    Ok((found, is_whole))
}

/// An extent, with the references in its own item.
fn extent(Item { key, data }: &Item, range: Range<u64>) -> Extent {
    let is_data = le64(data, 16) & 1 != 0;
    let mut at = if is_data || key.kind == METADATA_ITEM { 24 } else { 42 };
    let mut references = Vec::new();
    while let Some(kind) = data.get(at) {
        let body = &data[at + 1..];
        references.extend(reference(*kind, body));
        at += 1 + match *kind {
            EXTENT_DATA_REF => 28,
            SHARED_DATA_REF => 12,
            TREE_BLOCK_REF | SHARED_BLOCK_REF | EXTENT_OWNER_REF => 8,
            _ => break,
        };
    }
    Extent { range, is_data, references }
}

/// A reference in an extent's own item.
fn reference(kind: u8, body: &[u8]) -> Option<Reference> {
    match kind {
        EXTENT_DATA_REF => Some(Reference::File { tree: le64(body, 0), inode: le64(body, 8), at: le64(body, 16) }),
        SHARED_DATA_REF => Some(Reference::Leaf(le64(body, 0))),
        TREE_BLOCK_REF => Some(Reference::Tree(le64(body, 0))),
        _ => None,
    }
}

/// A reference that is an item of its own.
fn keyed(Item { key, data }: &Item) -> Option<Reference> {
    match key.kind {
        EXTENT_DATA_REF => reference(EXTENT_DATA_REF, data),
        SHARED_DATA_REF => Some(Reference::Leaf(key.offset)),
        TREE_BLOCK_REF => Some(Reference::Tree(key.offset)),
        _ => None,
    }
}

/// What has the parts of an extent, by logical addresses.
async fn owners_of<S: Source + ?Sized>(
    trees: &mut Trees<'_, S>,
    extent: &Extent,
    wanted: &Range<u64>,
) -> Vec<(Range<u64>, Owner)> {
    if !extent.is_data {
        let tree = extent.references.iter().find_map(|reference| match reference {
            Reference::Tree(tree) => Some(tree_name(*tree)),
            _ => None,
        });
        let what = tree.unwrap_or_else(|| "a tree that snapshots share".to_owned());
        return vec![(extent.range.clone(), Owner::Metadata(format!("a block of {what}")))];
    }
    let mut found = Vec::new();
    for reference in &extent.references {
        let records = match reference {
            Reference::File { tree, inode, at } => of_inode(trees, *tree, *inode, *at, extent).await,
            Reference::Leaf(leaf) => of_leaf(trees, *leaf).await,
            Reference::Tree(_) => continue,
        };
        match records {
            Ok(records) => found.extend(records.iter().filter_map(|(tree, item)| part_of(*tree, item, extent))),
            Err(reason) => found.push((extent.range.clone(), Owner::Unknown(reason))),
        }
    }
    // What of an extent was overwritten stays in use with the rest of it.
    let mut covered: Vec<Range<u64>> = found.iter().map(|(range, _)| range.clone()).collect();
    covered.sort_unstable_by_key(|range| range.start);
    let mut next = extent.range.start.max(wanted.start);
    let end = extent.range.end.min(wanted.end);
    covered.push(end..end);
    for range in covered {
        if range.start > next {
            let what = "an old part of an extent, which no file uses any more";
            found.push((next..range.start.min(end), Owner::Metadata(what.to_owned())));
        }
        next = next.max(range.end);
    }
    found
}

/// The records of extents in a file that may refer to `extent`, with their subvolume.
async fn of_inode<S: Source + ?Sized>(
    trees: &mut Trees<'_, S>,
    tree: u64,
    inode: u64,
    at: u64,
    extent: &Extent,
) -> Result<Vec<(u64, Item)>, String> {
    let root = trees.root(tree).await?.ok_or_else(|| format!("subvolume {tree} is missing"))?;
    // The place of the extent's start in the file, which is before the file's start if that was cut off.
    let from = if at > u64::MAX / 2 { 0 } else { at };
    // Compressed, an extent may be longer in the file than on the device.
    let to = from.saturating_add((extent.range.end - extent.range.start).max(EXTENT_MAX));
    let key = |offset| Key { object: inode, kind: EXTENT_DATA, offset };
    let (items, is_whole) = trees.items(root, key(from), key(to)).await;
    match is_whole {
        true => Ok(items.into_iter().map(|item| (tree, item)).collect()),
        false => Err(format!("the tree of subvolume {tree} cannot be read in whole")),
    }
}

/// The records of extents in a leaf that snapshots share, with the subvolume that the leaf was made for.
async fn of_leaf<S: Source + ?Sized>(trees: &mut Trees<'_, S>, leaf: u64) -> Result<Vec<(u64, Item)>, String> {
    let (tree, items) = trees.leaf(leaf).await?;
    let is_extent = |item: &Item| item.key.kind == EXTENT_DATA;
    Ok(items.into_iter().filter(is_extent).map(|item| (tree, item)).collect())
}

/// The part of `extent` that a file's record refers to, and the file.
fn part_of(tree: u64, Item { key, data }: &Item, extent: &Extent) -> Option<(Range<u64>, Owner)> {
    const INLINE: u8 = 0;
    if *data.get(20)? == INLINE || data.len() < 53 || le64(data, 21) != extent.range.start {
        return None;
    }
    let file = FileId { tree, inode: key.object };
    if data[16] != 0 {
        return Some((extent.range.clone(), Owner::File(file, Part::Compressed(key.offset))));
    }
    let start = extent.range.start.checked_add(le64(data, 37))?;
    let range = start..start.checked_add(le64(data, 45))?.min(extent.range.end);
    (!range.is_empty()).then_some((range, Owner::File(file, Part::Content(key.offset))))
}

/// A tree in words.
fn tree_name(tree: u64) -> String {
    match tree {
        1 => "the tree of roots".to_owned(),
        EXTENTS => "the tree of extents".to_owned(),
        3 => "the tree of chunks".to_owned(),
        4 => "the tree of devices".to_owned(),
        5 => "the tree of the top subvolume".to_owned(),
        7 => "the tree of checksums".to_owned(),
        8 => "the tree of quotas".to_owned(),
        9 => "the tree of UUIDs".to_owned(),
        10 => "the tree of free space".to_owned(),
        11 => "the tree of block groups".to_owned(),
        256..=0xffff_ffff_ffff => format!("the tree of subvolume {tree}"),
        _ => format!("tree {}", tree.cast_signed()),
    }
}

/// The name in a reference from an inode or a subvolume to a directory.
fn name_at(data: &[u8], length_at: usize) -> Option<String> {
    let length = usize::from(le16(data, length_at));
    let name = data.get(length_at + 2..length_at + 2 + length)?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// A chunk's record: its place, and its length in bytes.
fn chunk(at: u64, item: &[u8]) -> Option<(Chunk, usize)> {
    const SEVERAL_DEVICES: u64 = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8;
    let stripes = usize::from(le16(item, 44));
    let length = 48 + 32 * stripes;
    let item = item.get(..length)?;
    at.checked_add(le64(item, 0))?;
    let copies = item[48..].chunks_exact(32).map(|stripe| (le64(stripe, 0), le64(stripe, 8))).collect();
    let is_striped = le64(item, 24) & SEVERAL_DEVICES != 0 && stripes > 1;
    Some((Chunk { at, bytes: le64(item, 0), copies, is_striped }, length))
}

/// The flags of a superblock that change where things are: the second version of the tree of extents.
fn is_unknown(incompatible: u64) -> bool {
    incompatible & (1 << 13) != 0
}

fn level_of(node: &[u8]) -> u8 {
    node.get(100).copied().unwrap_or(u8::MAX)
}

fn count_of(node: &[u8]) -> usize {
    le32(node, 96) as usize
}
