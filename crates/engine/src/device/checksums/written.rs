//! The checksums of data that is written.
//!
//! Pure.

use crate::base::buffer::Block;
use format::integrity::{BLOCK_BYTES, Checksum};
use smallvec::SmallVec;

/// The checksums that a write leaves.
#[derive(Debug)]
pub(crate) enum WrittenChecksums {
    Blocks(SmallVec<[Checksum; 16]>),
    Zeros,
}

impl WrittenChecksums {
    /// The checksums of adjacent blocks, each a multiple of 4 KiB.
    pub(crate) fn of(blocks: &[Block]) -> Self {
        let pieces = blocks.iter().flat_map(|block| block.chunks(BLOCK_BYTES as usize));
        Self::Blocks(pieces.map(checksum).collect())
    }

    /// The checksum of the block at `index`.
    pub(super) fn at(&self, index: u64) -> Checksum {
        match self {
            Self::Blocks(checksums) => checksums[index as usize],
            Self::Zeros => Checksum::of_zeros(),
        }
    }
}

/// As [`Checksum::of`], but faster.
pub(super) fn checksum(block: &[u8]) -> Checksum {
    Checksum::from_crc(parity::crc32c(block))
}
