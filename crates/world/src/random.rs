//! Random numbers that follow from a seed: SplitMix64 (Steele, Lea, Flood 2014). Not for secrets.

use std::ops::Range;

/// A random stream.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream that follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the stream.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `range`, which must not be empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// True in one of `times` cases on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.within(0..times) == 0
    }

    /// An element of `list`, which must not be empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.within(0..list.len() as u64) as usize]
    }

    /// A fresh identifier.
    pub fn uuid(&mut self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.number().to_le_bytes());
        uuid[8..].copy_from_slice(b"mdspace!");
        uuid
    }

    /// Fills `bytes` with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.number().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}
