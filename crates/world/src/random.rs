//! Randomness that follows from a seed: SplitMix64 (Steele, Lea, Flood 2014).
//! Not for secrets.

use std::ops::Range;

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `range`, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.within(0..times) == 0
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.within(0..list.len() as u64) as usize]
    }

    /// Names one thing among all.
    pub fn uuid(&mut self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.number().to_le_bytes());
        uuid[8..].copy_from_slice(b"mdspace!");
        uuid
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.number().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}
