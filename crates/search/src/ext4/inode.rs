//! What an inode says of the blocks of its file: extents, or the map of blocks of ext3, its length, and its last block.
//!
//! It reads one inode or one block of extents, and never judges whether it is one. Facts: `struct ext4_inode` and
//! `struct ext4_extent_header` in the kernel's `fs/ext4`, and `Documentation/filesystems/ext4`.

use crate::crc::BLOCK;
use crate::seen::number::{le16, le32};
use crate::seen::{Expected, Want, some_of};

/// Blocks of a file that are in one piece: block of the file, length, block of the file system.
pub(super) type Piece = (u64, u64, u64);

/// The length of an extent at most. A longer one is allocated, and not written.
pub(super) const WRITTEN_MAX: u64 = 32768;
/// The magic number of a node of extents.
pub(super) const EXTENTS: u16 = 0xf30a;
/// Where an inode has extents, the map of its blocks, the text of a link, or the number of a device.
pub(super) const MAP_AT: usize = 0x28;
/// The bytes there.
pub(super) const MAP_BYTES: usize = 60;
/// Blocks that the map names itself; behind them are those that list more.
pub(super) const DIRECT: usize = 12;
/// The flag of an encrypted file.
const ENCRYPTED: u32 = 0x800;
const HAS_EXTENTS: u32 = 0x8_0000;
/// The flag of a file whose content is in the inode.
const INLINE: u32 = 0x1000_0000;

/// What a file is. Fact: `S_IFMT` in the kernel's `include/uapi/linux/stat.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
    Link,
    /// A device, pipe or socket.
    Special,
}

/// What the file of an inode is; `None` if it is none.
pub(super) fn kind(inode: &[u8]) -> Option<Kind> {
    match le16(inode, 0) >> 12 {
        4 => Some(Kind::Directory),
        8 => Some(Kind::File),
        10 => Some(Kind::Link),
        1 | 2 | 6 | 12 => Some(Kind::Special),
        _ => None,
    }
}

/// How many names the file has: 0 of one that was removed.
pub(super) fn links(inode: &[u8]) -> u16 {
    le16(inode, 0x1a)
}

pub(super) fn has_extents(inode: &[u8]) -> bool {
    le32(inode, 0x20) & HAS_EXTENTS != 0
}

pub(super) fn is_inline(inode: &[u8]) -> bool {
    le32(inode, 0x20) & INLINE != 0
}

/// The pieces of a file that the inode names itself, and that are written.
pub(super) fn written(inode: &[u8]) -> impl Iterator<Item = Piece> {
    allocated(inode).filter(|(_, length, _)| *length <= WRITTEN_MAX)
}

/// The same, with those that are not written.
fn allocated(inode: &[u8]) -> impl Iterator<Item = Piece> {
    pieces_in(root_of(inode)).chain(direct(inode))
}

/// The node of extents in an inode; nothing of a file that has none.
pub(super) fn root_of(inode: &[u8]) -> &[u8] {
    if has_extents(inode) { &inode[MAP_AT..MAP_AT + MAP_BYTES] } else { &[] }
}

/// The blocks that a file without extents names in its inode.
fn direct(inode: &[u8]) -> impl Iterator<Item = Piece> {
    let has_map = !has_extents(inode) && !is_inline(inode) && matches!(kind(inode), Some(Kind::Directory | Kind::File));
    let map = if has_map { &inode[MAP_AT..MAP_AT + 4 * DIRECT] } else { &[] };
    mapped(map, 0)
}

/// The entries of a map of blocks whose first one is block `first` of the file. Those that are 0 are holes.
pub(super) fn mapped(map: &[u8], first: u64) -> impl Iterator<Item = Piece> {
    let blocks = (first..).zip(map.chunks_exact(4).map(|entry| u64::from(le32(entry, 0))));
    blocks.filter(|(_, block)| *block != 0).map(|(number, block)| (number, 1, block))
}

/// The block that lists more blocks: once, twice or three times over. 0 if there is none.
pub(super) fn list(inode: &[u8], times: usize) -> u64 {
    le32(inode, MAP_AT + 4 * (DIRECT + times - 1)).into()
}

/// The extents in a node that has no others below it.
pub(super) fn pieces_in(node: &[u8]) -> impl Iterator<Item = Piece> {
    let count = if le16(node, 0) == EXTENTS && le16(node, 6) == 0 { usize::from(le16(node, 2)) } else { 0 };
    node.get(12..).unwrap_or_default().chunks_exact(12).take(count).map(|extent| {
        let start = u64::from(le32(extent, 8)) | u64::from(le16(extent, 6)) << 32;
        (u64::from(le32(extent, 0)), u64::from(le16(extent, 4)), start)
    })
}

/// A node of extents below another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Child {
    /// Its block of the file system.
    pub(super) block: u64,
    /// The first block of the file in it.
    pub(super) first: u32,
    /// The levels below it.
    pub(super) depth: u16,
}

/// The nodes below a node of extents.
pub(super) fn children(node: &[u8]) -> impl Iterator<Item = Child> {
    let depth = le16(node, 6);
    let count = if le16(node, 0) == EXTENTS && depth > 0 { usize::from(le16(node, 2)) } else { 0 };
    let entries = node.get(12..).unwrap_or_default().chunks_exact(12).take(count);
    entries.map(move |entry| Child {
        block: u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32,
        first: le32(entry, 0),
        depth: depth.saturating_sub(1),
    })
}

/// Whether the extents of a file or directory fit its length, if they are in the inode: its last block is in one, and none
/// that was written goes further. A directory has whole blocks.
pub(super) fn is_as_long(inode: &[u8]) -> Option<bool> {
    let has_lists = !has_extents(inode) && (1..=3).any(|times| list(inode, times) != 0);
    let is_known = matches!(kind(inode), Some(Kind::Directory | Kind::File)) && !has_lists;
    allocated(inode).next().filter(|_| is_known)?;
    let last_byte = last_byte(inode)?;
    let last = last_byte / BLOCK as u64;
    let bare = |length: u64| if length > WRITTEN_MAX { length - WRITTEN_MAX } else { length };
    let is_covered = allocated(inode).any(|(from, length, _)| (from..from + bare(length)).contains(&last));
    let is_exceeded = written(inode).any(|(from, length, _)| from + length > last + 1);
    let is_whole = kind(inode) == Some(Kind::File) || (last_byte + 1).is_multiple_of(BLOCK as u64);
    Some(is_covered && !is_exceeded && is_whole)
}

/// The last byte of a file, unless it is empty.
pub(super) fn last_byte(inode: &[u8]) -> Option<u64> {
    (u64::from(le32(inode, 4)) | u64::from(le32(inode, 0x6c)) << 32).checked_sub(1)
}

/// The block of the file system in which block `wanted` of a file is, by these pieces.
pub(super) fn place_in(mut pieces: impl Iterator<Item = Piece>, wanted: u64) -> Option<u64> {
    pieces
        .find(|(from, length, _)| (*from..from + length).contains(&wanted))
        .map(|(from, _, start)| start + wanted - from)
}

/// Some of the blocks of a file that these pieces name.
pub(super) fn data_of(pieces: impl Iterator<Item = Piece>) -> impl Iterator<Item = Expected> {
    pieces.flat_map(|(_, length, start)| some_of(start, length)).map(|block| Expected::new(block, Want::Data))
}

/// What is known of a file's last block, if it is in these pieces.
pub(super) fn end_of(inode: &[u8], pieces: impl Iterator<Item = Piece>) -> Option<Expected> {
    let is_encrypted = le32(inode, 0x20) & ENCRYPTED != 0; // behind its end, too
    let last = last_byte(inode).filter(|_| !is_encrypted)?;
    let block = place_in(pieces, last / BLOCK as u64)?;
    Some(Expected::new(block, Want::End((last % BLOCK as u64 + 1) as u16)))
}
