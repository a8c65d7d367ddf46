//! Blocks of the B-trees of XFS.

use crate::bytes::{be16, be32, be64};

/// A kind of tree of an allocation group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    /// Magic numbers without and with checksums.
    pub(super) magic: [[u8; 4]; 2],
    /// Bytes of a record, and of a key.
    pub(super) record: usize,
    pub(super) key: usize,
    pub(super) what: &'static str,
}

/// A block of a tree.
pub(super) struct Node {
    block: Vec<u8>,
    /// 0: a leaf.
    pub(super) level: u16,
    count: usize,
    header: usize,
}

/// The highest tree.
const LEVEL_MAX: u16 = 10;

impl Node {
    /// A block with pointers of 32 bits, within an allocation group. `level`: what the block above says.
    pub(super) fn short(block: Vec<u8>, magic: [u8; 4], level: Option<u16>, is_v5: bool) -> Option<Self> {
        Self::of(block, magic, level, if is_v5 { 56 } else { 16 })
    }

    /// A block with pointers of 64 bits, of the map of an inode.
    pub(super) fn long(block: Vec<u8>, level: u16, is_v5: bool) -> Option<Self> {
        match is_v5 {
            true => Self::of(block, *b"BMA3", Some(level), 72),
            false => Self::of(block, *b"BMAP", Some(level), 24),
        }
    }

    fn of(block: Vec<u8>, magic: [u8; 4], expected: Option<u16>, header: usize) -> Option<Self> {
        let (level, count) = (be16(&block, 4), be16(&block, 6).into());
        let is_right = block.starts_with(&magic) && level <= LEVEL_MAX && expected.is_none_or(|is| is == level);
        is_right.then_some(Self { block, level, count, header })
    }

    /// The records of a leaf.
    pub(super) fn records(&self, bytes: usize) -> Vec<Vec<u8>> {
        self.block[self.header..].chunks_exact(bytes).take(self.count).map(<[u8]>::to_vec).collect()
    }

    /// The blocks below, by pointers of 32 bits.
    pub(super) fn children(&self, key: usize) -> Vec<u64> {
        let most = (self.block.len() - self.header) / (key + 4);
        let pointers = self.block[self.header + most * key..].chunks_exact(4);
        pointers.take(self.count.min(most)).map(|pointer| be32(pointer, 0).into()).collect()
    }

    /// The blocks below, by pointers of 64 bits.
    pub(super) fn long_children(&self) -> Vec<u64> {
        let most = (self.block.len() - self.header) / 16;
        let pointers = self.block[self.header + most * 8..].chunks_exact(8);
        pointers.take(self.count.min(most)).map(|pointer| be64(pointer, 0)).collect()
    }
}
