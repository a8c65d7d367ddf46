//! The ways in which members change without a word.

use super::{BLOCK_BYTES, Images};
use world::Random;

/// A way to change members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One to eight bits of a block.
    Bits,
    /// A block holds noise.
    Block,
    /// So does any range of bytes, up to 48 KiB.
    Range,
    /// Two blocks of a member are in each other's place: misdirected writes.
    Swapped,
    /// A block holds what it held before it was written last: a lost write.
    Stale,
    /// Blocks of two members, in the same place of each, are in each other's.
    Exchanged,
    /// All of a member lies a block further on than it should.
    Shifted,
    /// The same block of every member holds noise: more than any level bears.
    Everywhere,
}

const BLOCK: usize = BLOCK_BYTES as usize;

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Bits,
        Self::Block,
        Self::Range,
        Self::Swapped,
        Self::Stale,
        Self::Exchanged,
        Self::Shifted,
        Self::Everywhere,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bits => "bits",
            Self::Block => "a block",
            Self::Range => "a range",
            Self::Swapped => "two blocks swapped",
            Self::Stale => "a stale block",
            Self::Exchanged => "exchanged between members",
            Self::Shifted => "a member shifted",
            Self::Everywhere => "a block of every member",
        }
    }

    /// What becomes of members that hold `right`, and held `older` before.
    pub(super) fn spoil(self, right: &Images, older: &Images, random: &mut Random) -> Images {
        let mut images = right.clone();
        let slot = random.within(0..right.len() as u64) as usize;
        let bytes = right[slot].len();
        let blocks = (bytes / BLOCK) as u64;
        let number = random.within(0..blocks) as usize;
        let block = number * BLOCK..(number + 1) * BLOCK;
        let image = &mut images[slot];
        match self {
            Self::Bits => {
                for _ in 0..=random.within(0..8) {
                    let bit = random.within(0..BLOCK_BYTES * 8) as usize;
                    image[block.start + bit / 8] |= 1 << (bit % 8);
                    image[block.start + bit / 8] ^= right[slot][block.start + bit / 8] & (1 << (bit % 8));
                }
            }
            Self::Block => random.fill(&mut image[block]),
            Self::Range => {
                let start = random.within(0..bytes as u64) as usize;
                let end = bytes.min(start + 1 + random.within(0..48 << 10) as usize);
                random.fill(&mut image[start..end]);
            }
            Self::Swapped => {
                let other = (number + 1 + random.within(0..blocks - 1) as usize) % blocks as usize;
                let there = other * BLOCK..(other + 1) * BLOCK;
                image[block.clone()].copy_from_slice(&right[slot][there.clone()]);
                image[there].copy_from_slice(&right[slot][block]);
            }
            Self::Stale => image[block.clone()].copy_from_slice(&older[slot][block]),
            Self::Exchanged => {
                let other = (slot + 1 + random.within(0..right.len() as u64 - 1) as usize) % right.len();
                image[block.clone()].copy_from_slice(&right[other][block.clone()]);
                images[other][block.clone()].copy_from_slice(&right[slot][block]);
            }
            Self::Shifted => image.rotate_right(BLOCK),
            Self::Everywhere => images.iter_mut().for_each(|image| random.fill(&mut image[block.clone()])),
        }
        images
    }
}
