//! What the tests of ext4 share: a superblock, inodes, and a finder that has one block.

use super::superblock::{Sums, Super};
use crate::crc::{BLOCK, raw};
use crate::seen::{Finder, Holder, Node, Place};

/// A file system of 32 groups with these checksums.
pub(super) fn ext4(sums: Sums) -> Super {
    Super {
        id: [0; 16],
        group: 0,
        blocks: 1 << 20,
        group_blocks: 1 << 15,
        group_inodes: 1 << 13,
        inode_bytes: 256,
        descriptor_bytes: if matches!(sums, Sums::All(_)) { 64 } else { 32 },
        sums,
        written: 0,
        lifetime_kib: 0,
        reserved: 0,
        together: 16,
        has_single_blocks: true,
        sparse: true,
        lists_copies: false,
        is_clean: true,
    }
}

/// A file of so many bytes in one extent, with the checksum of `metadata_csum`.
pub(super) fn inode(seed: u32, number: u32, bytes: u32) -> Vec<u8> {
    let mut inode = vec![0; 256];
    let mut put = |at: usize, value: &[u8]| inode[at..at + value.len()].copy_from_slice(value);
    put(0, &0x81a4_u16.to_le_bytes());
    put(4, &bytes.to_le_bytes());
    put(0x1a, &1_u16.to_le_bytes());
    put(0x20, &0x8_0000_u32.to_le_bytes());
    put(0x28, &[0x0a, 0xf3, 1, 0, 4]);
    put(0x38, &(bytes.div_ceil(BLOCK as u32) as u16).to_le_bytes());
    put(0x3c, &(number * 100).to_le_bytes());
    put(0x80, &32_u16.to_le_bytes());
    let crc = raw(raw(seed, &number.to_le_bytes()), &[0; 4]);
    let crc = raw(crc, &inode);
    inode[0x7c..0x7e].copy_from_slice(&(crc as u16).to_le_bytes());
    inode[0x82..0x84].copy_from_slice(&((crc >> 16) as u16).to_le_bytes());
    inode
}

/// The xor of blocks, as parity has it.
pub(super) fn xor(blocks: &[&[u8]]) -> Vec<u8> {
    (0..BLOCK).map(|at| blocks.iter().fold(0, |sum, block| sum ^ block[at])).collect()
}

/// Has these blocks at these places, and knows all.
pub(super) struct Blocks(pub(super) Vec<(u64, Vec<u8>)>);

impl Finder for Blocks {
    fn knows(&self, _: u64) -> bool {
        true
    }

    fn holder(&self, place: Place) -> Option<Holder> {
        Some(place.holder)
    }

    async fn find(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        self.find_all(block, is_right).await.into_iter().next()
    }

    async fn find_all(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let here = self.0.iter().filter(|(place, own)| *place == block && is_right(own));
        here.map(|(_, own)| own.clone()).collect()
    }

    async fn find_node(&mut self, _: u64, _: u64, _: &dyn Fn(&[u8]) -> Option<Node>) -> Option<Vec<u8>> {
        None
    }
}
