//! Blocks that say by themselves where in a file system they are, as the pass over the members meets them.
//!
//! Superblocks, and blocks of XFS and Btrfs with their own address. A block of parity can look like the data it
//! protects, and a journal holds copies, so that what is seen is a claim and no proof.

use crate::{btrfs, ext4, xfs};

/// A block at a place on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The member; the number of members stands for the xor of all.
    pub(crate) disk: usize,
    /// The block on it.
    pub(crate) at: u64,
}

/// All that was recognized.
#[derive(Default)]
pub(crate) struct Seen {
    /// Superblocks of ext2, ext3 and ext4 at the start of a file system, with their block's sum.
    pub(crate) ext4: Vec<(Place, ext4::Super, u32)>,
    /// What is XFS's.
    pub(crate) xfs: xfs::Seen,
    /// What is Btrfs's.
    pub(crate) btrfs: btrfs::Seen,
}

impl Seen {
    /// Looks at a block that is not zero. `rest` begins with it, and goes on behind it on the member.
    pub(crate) fn look(&mut self, disk: usize, at: u64, sum: u32, block: &[u8], rest: &[u8]) {
        let place = Place { disk, at };
        if let Some(found) = ext4::Super::of(block).filter(|found| found.group == 0) {
            self.ext4.push((place, found, sum));
        }
        self.xfs.look(place, sum, block);
        self.btrfs.look(place, sum, block, rest);
    }
}

/// What a block of the file system has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// This content, by its sum.
    Sum(u32),
    /// The end of a file: nothing but zeros from this byte on, and the byte before is usually not zero.
    End(u16),
    /// A part of a file, which is usually not all zeros.
    Data,
}

/// A block of the file system, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The block, counted from the file system's start.
    pub(crate) block: u64,
    /// What it has to be.
    pub(crate) want: Want,
}

/// Little-endian and big-endian numbers of a block; 0 past its end.
pub(crate) mod number {
    fn bytes<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
        block.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }
    pub(crate) fn le16(block: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(bytes(block, at))
    }
    pub(crate) fn le32(block: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes(block, at))
    }
    pub(crate) fn le64(block: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes(block, at))
    }
    pub(crate) fn be16(block: &[u8], at: usize) -> u16 {
        u16::from_be_bytes(bytes(block, at))
    }
    pub(crate) fn be32(block: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(bytes(block, at))
    }
    pub(crate) fn be64(block: &[u8], at: usize) -> u64 {
        u64::from_be_bytes(bytes(block, at))
    }
    pub(crate) fn id(block: &[u8], at: usize) -> [u8; 16] {
        bytes(block, at)
    }
}
