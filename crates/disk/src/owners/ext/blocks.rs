//! The blocks of an inode of ext: by extents, or by maps of block numbers.

use super::Inode;
use super::layout::{EXTENTS, Layout};
use crate::bytes::{le16, le32};
use crate::source::Source;

/// Blocks in a row.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) first: u64,
    pub(super) count: u64,
    /// Their place in the file, in blocks; `None`: they are a part of its map.
    pub(super) within: Option<u64>,
}

/// A step of the walk that is due.
enum Due {
    Piece(Piece),
    /// A node of the tree of extents, and the most that its depth may be.
    Node(Vec<u8>, u16),
    /// The block of a node, and the most that its depth may be.
    Child(u64, u16),
    /// A block of a map: its place, the levels below it, and the first block of the file that it maps.
    Map {
        block: u64,
        levels: u32,
        within: u64,
    },
}

/// A walk through an inode's blocks, ascending.
pub(super) struct Fork {
    /// The next steps, the next one last.
    due: Vec<Due>,
    /// Blocks of the file, which bound a map.
    file_blocks: u64,
}

/// The deepest tree of extents in the kernel.
const DEPTH_MAX: u16 = 5;

/// The magic number of a node of extents.
const MAGIC: u16 = 0xf30a;

/// The places of maps in an inode behind 12 direct blocks.
const DIRECT: u64 = 12;

impl Fork {
    /// The walk of `inode`.
    pub(super) fn of(inode: &Inode, layout: &Layout) -> Self {
        let root = inode.raw[0x28..0x64].to_vec();
        let file_blocks = inode.bytes().div_ceil(layout.block_bytes);
        if inode.flags() & EXTENTS != 0 {
            return Self { due: vec![Due::Node(root, DEPTH_MAX)], file_blocks };
        }
        let each = layout.block_bytes / 4;
        let mut due = Vec::new();
        let mut within = DIRECT;
        for levels in 1..=3 {
            let block = le32(&root, 44 + 4 * levels as usize).into();
            due.push(Due::Map { block, levels, within });
            within += each.pow(levels);
        }
        let direct = (0..DIRECT).map(|within| (u64::from(le32(&root, 4 * within as usize)), within));
        let direct = direct.map(|(first, within)| Due::Piece(Piece { first, count: 1, within: Some(within) }));
        due.reverse();
        let direct: Vec<Due> = direct.collect();
        due.extend(direct.into_iter().rev());
        Self { due, file_blocks }
    }

    /// The next blocks; an error says what of the map cannot be used, and the walk goes on behind it.
    pub(super) async fn next<S: Source + ?Sized>(
        &mut self,
        source: &S,
        layout: &Layout,
        maps_left: &mut u64,
    ) -> Option<Result<Piece, String>> {
        loop {
            match self.due.pop()? {
                Due::Piece(piece) if piece.first == 0 => {}
                Due::Piece(piece) => return Some(Ok(piece)),
                Due::Node(node, depth) => {
                    if let Err(reason) = self.open(&node, depth) {
                        return Some(Err(reason));
                    }
                }
                Due::Child(block, depth) => match read(source, layout, block, maps_left).await {
                    Ok(node) => {
                        self.due.push(Due::Node(node, depth));
                        return Some(Ok(Piece { first: block, count: 1, within: None }));
                    }
                    Err(reason) => return Some(Err(reason)),
                },
                Due::Map { block: 0, .. } => {}
                Due::Map { within, .. } if within >= self.file_blocks => {}
                Due::Map { block, levels, within } => match read(source, layout, block, maps_left).await {
                    Ok(map) => {
                        self.open_map(&map, levels, within, layout);
                        return Some(Ok(Piece { first: block, count: 1, within: None }));
                    }
                    Err(reason) => return Some(Err(reason)),
                },
            }
        }
    }

    /// Adds what a node of extents says.
    fn open(&mut self, node: &[u8], depth_max: u16) -> Result<(), String> {
        let (entries, depth) = (usize::from(le16(node, 2)), le16(node, 6));
        if le16(node, 0) != MAGIC || depth > depth_max || 12 + 12 * entries > node.len() {
            return Err("a node of extents makes no sense".to_owned());
        }
        let entries = node[12..].chunks_exact(12).take(entries);
        let due: Vec<Due> = entries
            .map(|entry| match depth {
                0 => {
                    let length = u64::from(le16(entry, 4));
                    // A longer one is allocated, and not written.
                    let count = if length > 32_768 { length - 32_768 } else { length };
                    let first = u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32;
                    Due::Piece(Piece { first, count, within: Some(le32(entry, 0).into()) })
                }
                _ => Due::Child(u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32, depth - 1),
            })
            .collect();
        self.due.extend(due.into_iter().rev());
        Ok(())
    }

    /// Adds what a block of a map says.
    fn open_map(&mut self, map: &[u8], levels: u32, within: u64, layout: &Layout) {
        let each = (layout.block_bytes / 4).pow(levels - 1);
        let places =
            map.chunks_exact(4).zip(0..).map(|(number, index)| (le32(number, 0).into(), within + index * each));
        let due: Vec<Due> = places
            .map(|(block, within)| match levels {
                1 => Due::Piece(Piece { first: block, count: 1, within: Some(within) }),
                _ => Due::Map { block, levels: levels - 1, within },
            })
            .collect();
        self.due.extend(due.into_iter().rev());
    }
}

async fn read<S: Source + ?Sized>(
    source: &S,
    layout: &Layout,
    block: u64,
    maps_left: &mut u64,
) -> Result<Vec<u8>, String> {
    if block >= layout.blocks {
        return Err(format!("block {block} is past the end"));
    }
    *maps_left = maps_left.checked_sub(1).ok_or("there are more maps than blocks")?;
    source.read(block * layout.block_bytes, layout.block_bytes as usize).await
}
