//! Reproducible choices and bytes: SplitMix64 (Steele, Lea, Flood 2014), which is enough for test data.

/// A random stream, determined by its seed.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A stream whose seed is a hash of a text (FNV-1a).
    pub(crate) fn from_text(text: &str) -> Random {
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Random(hash)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`. For `end` far below 2^64 the bias does not matter here.
    ///
    /// # Panics
    ///
    /// If `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An element of `items`, which must not be empty.
    pub(crate) fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// `count` different numbers below `end`, in ascending order.
    pub(crate) fn subset(&mut self, count: usize, end: usize) -> Vec<usize> {
        let mut rest: Vec<usize> = (0..end).collect();
        let mut chosen: Vec<usize> =
            (0..count).map(|_| rest.swap_remove(self.below(rest.len() as u64) as usize)).collect();
        chosen.sort_unstable();
        chosen
    }

    /// `length` random bytes; `length` must be a multiple of 8.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
        bytes
    }
}
