//! The kinds of silent corruption.

use super::{BLOCK_BYTES, Images};
use world::Random;

/// A kind of silent corruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One to eight bits of a block are flipped.
    Bits,
    /// A block is overwritten with noise.
    Block,
    /// A range of up to 48 KiB is overwritten with noise.
    Range,
    /// Two blocks of a member change places: misdirected writes.
    Swapped,
    /// A block holds its previous contents: a lost write.
    Stale,
    /// Blocks at the same position of two members change places.
    Exchanged,
    /// The whole member is shifted by one block.
    Shifted,
    /// The same block of every member is overwritten with noise, which no level survives.
    Everywhere,
}

const BLOCK: usize = BLOCK_BYTES as usize;

impl Kind {
    /// All kinds.
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

    /// The name in tables.
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

    /// The members' data after this corruption. `right` is the data before it; `older` the data before the last write.
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
