//! Blocks that say by themselves where in a file system they are, as the pass over the members meets them.
//!
//! Superblocks, and blocks of XFS and Btrfs with their own address. A block of parity can look like the data it
//! protects, and a journal holds copies, so that what is seen is a claim and no proof.

use crate::{btrfs, ext4, xfs};

/// A block at a place on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The member; `None` stands for the xor of all.
    pub(crate) disk: Option<usize>,
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
    /// Looks at a block that is not zero.
    pub(crate) fn look(&mut self, disk: Option<usize>, at: u64, sum: u32, block: &[u8]) {
        let place = Place { disk, at };
        if let Some(found) = ext4::Super::of(block).filter(|found| found.group == 0) {
            self.ext4.push((place, found, sum));
        }
        self.xfs.look(place, sum, block);
        self.btrfs.look(place, sum, block);
    }
}

/// What a block of the file system has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Want {
    /// This content, by its sum.
    Sum(u32),
    /// The end of a file: nothing but zeros from this byte on, and the byte before is usually not zero.
    End(u16),
    /// A part of a file, which is usually not all zeros.
    Data,
}

/// A block of the file system, and what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Expected {
    /// The block, counted from the file system's start.
    pub(crate) block: u64,
    /// What it has to be.
    pub(crate) want: Want,
    /// Whether it was seen in the xor of all members alone. The xor of an odd number of blocks with a CRC each has one
    /// too, so that this means something only where a missing member holds that xor.
    pub(crate) of_xor: bool,
}

impl Expected {
    pub(crate) fn new(block: u64, want: Want) -> Self {
        Self { block, want, of_xor: false }
    }
}

/// Finds blocks of the file system among the members.
pub(crate) trait Finder {
    /// Whether every member still has what the array had at `block`: md wrote its superblocks over none of it.
    fn knows(&self, block: u64) -> bool;

    /// The block at `block` for which `is_right` holds; `None` if none of the members has it.
    async fn find(&mut self, block: u64, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>>;

    /// The `blocks` blocks from `first` on, if `node` recognizes the first, and their CRC tells which the others are.
    async fn find_node(&mut self, first: u64, blocks: u64, node: &dyn Fn(&[u8]) -> Option<Node>) -> Option<Vec<u8>>;
}

/// What the first block of several says of all.
pub(crate) struct Node {
    /// The usual CRC-32C of all.
    pub(crate) stored: u32,
    /// The register behind the first block, begun with ones and not inverted.
    pub(crate) register: u32,
}

/// The result of a walk through a file system.
#[derive(Default)]
pub(crate) struct Walk {
    /// What is known of blocks.
    pub(crate) expected: Vec<Expected>,
    /// Blocks of metadata that no member has at their place.
    pub(crate) lost: Vec<u64>,
    /// Whether even the first of all is nowhere.
    pub(crate) is_wrong: bool,
}

impl Walk {
    /// Notes the block that was found at `block`.
    pub(crate) fn note(&mut self, block: u64, found: &[u8]) {
        self.expected.push(Expected::new(block, Want::Sum(crate::crc::sum(found))));
    }

    /// Notes that a block was not found, if all that the members have there was looked at.
    pub(crate) fn lose(&mut self, block: u64, finder: &impl Finder) {
        if finder.knows(block) {
            self.lost.push(block);
        }
    }
}

/// A walk ends when so many blocks are nowhere: its shape is wrong.
pub(crate) const LOST_MAX: usize = 12;

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
