//! The superblock of ext2, ext3 and ext4, and its copies: what it says, and whether a block is one.
//!
//! It never looks at another block. Facts: `struct ext4_super_block` in the kernel's `fs/ext4/ext4.h`.

use crate::crc::{BLOCK, raw};
use crate::seen::number::{id, le16, le32, le64};

/// What a superblock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Super {
    /// Its uuid.
    pub(crate) id: [u8; 16],
    /// The group of this copy.
    pub(crate) group: u16,
    /// Length of the file system in blocks.
    pub(crate) blocks: u64,
    pub(super) group_blocks: u32,
    pub(super) group_inodes: u32,
    pub(super) inode_bytes: u16,
    pub(super) descriptor_bytes: u16,
    pub(super) sums: Sums,
    /// When it was last written.
    pub(crate) written: u32,
    /// KiB that were written to it in its life.
    pub(crate) lifetime_kib: u64,
    /// Blocks behind the descriptors that are kept for more of them.
    pub(super) reserved: u64,
    /// Groups whose bitmaps and inodes are together.
    pub(super) together: u64,
    /// Whether each bit of a bitmap is one block.
    pub(super) has_single_blocks: bool,
    pub(super) sparse: bool,
    /// Whether the blocks that are kept for descriptors list their copies.
    pub(super) lists_copies: bool,
    /// Whether all of it was written when this was: nothing is left to its journal, and no error was noted.
    pub(crate) is_clean: bool,
}

/// Which blocks have checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// All of its metadata: the feature `metadata_csum`, with the seed of all of them.
    All(u32),
    /// The group descriptors: `uninit_bg`, which is called `gdt_csum`, too.
    Descriptors,
    /// None: ext3, and what is older.
    None,
}

const SUPER_AT: usize = 1024;
const MAGIC: [u8; 2] = [0x53, 0xef];
const CHECKSUM_AT: usize = 0x3fc;
/// More would have numbers of which the last do not fit 32 bits with those of a block behind them.
const INODES_MAX: u64 = u32::MAX as u64 - BLOCK as u64;

/// Whether [`Super::of`] might see one in a block with these words.
pub(crate) fn may_be(word: impl Fn(usize) -> [u8; 8]) -> bool {
    [0, SUPER_AT].iter().any(|at| word(at + 0x38).starts_with(&MAGIC))
}

impl Super {
    /// The superblock in `block`: of the first group behind 1024 bytes, of the others at the beginning.
    pub(crate) fn of(block: &[u8]) -> Option<Self> {
        let first = Self::at(block, SUPER_AT).filter(|found| found.group == 0);
        first.or_else(|| Self::at(block, 0).filter(|found| found.group > 0))
    }

    /// The block of this copy.
    pub(crate) fn super_block(&self) -> u64 {
        u64::from(self.group) * u64::from(self.group_blocks)
    }

    /// The number of groups.
    pub(super) fn groups(&self) -> u64 {
        self.blocks.div_ceil(self.group_blocks.into())
    }

    /// The number of inodes.
    pub(super) fn inodes(&self) -> u64 {
        self.groups().saturating_mul(self.group_inodes.into())
    }

    fn at(block: &[u8], at: usize) -> Option<Self> {
        let bytes = block.get(at..at + 1024)?;
        let is_known = le16(bytes, 0x38) == 0xef53 && le32(bytes, 0x18) == 2 && le32(bytes, 0x14) == 0;
        let (incompatible, read_only) = (le32(bytes, 0x60), le32(bytes, 0x64));
        let has_sums = read_only & 0x400 != 0;
        if !is_known || has_sums && raw(!0, &bytes[..CHECKSUM_AT]) != le32(bytes, CHECKSUM_AT) {
            return None;
        }
        let (wide, compatible) = (incompatible & 0x80 != 0, le32(bytes, 0x5c));
        let seed = if incompatible & 0x2000 != 0 { le32(bytes, 0x270) } else { raw(!0, &id(bytes, 0x68)) };
        let sums = match (has_sums, read_only & 0x10 != 0) {
            (true, _) => Sums::All(seed),
            (false, true) => Sums::Descriptors,
            (false, false) => Sums::None,
        };
        let found = Self {
            id: id(bytes, 0x68),
            group: le16(bytes, 0x5a),
            blocks: u64::from(le32(bytes, 4)) | if wide { u64::from(le32(bytes, 0x150)) << 32 } else { 0 },
            group_blocks: le32(bytes, 0x20),
            group_inodes: le32(bytes, 0x28),
            inode_bytes: le16(bytes, 0x58),
            descriptor_bytes: if wide { le16(bytes, 0xfe) } else { 32 },
            sums,
            written: le32(bytes, 0x30),
            lifetime_kib: le64(bytes, 0x178),
            reserved: le16(bytes, 0xce).into(),
            together: if incompatible & 0x200 != 0 { 1 << bytes[0x174].min(16) } else { 1 },
            has_single_blocks: read_only & 0x200 == 0,
            sparse: incompatible & 0x10 == 0,
            lists_copies: compatible & 0x10 != 0 && compatible & 0x200 == 0 && read_only & 1 != 0,
            is_clean: incompatible & 4 == 0 && le16(bytes, 0x3a) & 3 == 1,
        };
        let sane = found.group_blocks > 0
            && found.group_inodes > 0
            && matches!(found.inode_bytes, 128 | 256 | 512 | 1024)
            && matches!(found.descriptor_bytes, 32 | 64);
        (sane && (has_sums || found.is_plausible(bytes))).then_some(found)
    }

    /// Whether `bytes`, without a checksum, can say this. The parity of a superblock and two blocks of inodes has its magic
    /// number and its uuid, too.
    fn is_plausible(&self, bytes: &[u8]) -> bool {
        const ERRORS_LAST: u16 = 3; // what to do about errors
        const STATES: u16 = 0x3f;
        let (own, group_blocks) = (u64::from(le32(bytes, 0)), self.group_blocks);
        let is_sized = own == self.inodes() && own <= INODES_MAX && group_blocks <= 8 * BLOCK as u32;
        let has_same_clusters = le32(bytes, 0x1c) == 2 && le32(bytes, 0x24) == group_blocks;
        let has_room = u64::from(le32(bytes, 8)) <= self.blocks && u64::from(le32(bytes, 0xc)) <= self.blocks;
        let has_inodes = u64::from(le32(bytes, 0x10)) <= own && u64::from(le32(bytes, 0x54)) <= own;
        let is_known = le32(bytes, 0x4c) == 1 && le16(bytes, 0x3c) <= ERRORS_LAST && le16(bytes, 0x3a) <= STATES;
        is_sized && (has_same_clusters || !self.has_single_blocks) && has_room && has_inodes && is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext4::testing::{inode, xor};

    #[test]
    fn parity_of_a_superblock_and_two_blocks_of_inodes_is_none() {
        let mut first = vec![0; BLOCK];
        let fields: [(usize, u32); 12] = [
            (0, 8192),
            (4, 1000),
            (0x18, 2),
            (0x1c, 2),
            (0x20, 32768),
            (0x24, 32768),
            (0x28, 8192),
            (0x38, 0x1_ef53),
            (0x3c, 1),
            (0x4c, 1),
            (0x54, 11),
            (0x58, 256),
        ];
        for (at, value) in fields {
            first[SUPER_AT + at..][..4].copy_from_slice(&value.to_le_bytes());
        }
        assert_eq!(Super::of(&first).map(|own| own.sums), Some(Sums::None));
        let inodes = |from: u32| -> Vec<u8> { (from..from + 16).flat_map(|number| inode(7, number, 900)).collect() };
        let parity = xor(&[&first, &inodes(17), &inodes(49)]);
        assert_eq!(parity[SUPER_AT + 0x38..][..2], MAGIC, "it has the magic number");
        assert_eq!(Super::of(&parity), None);
    }
}
