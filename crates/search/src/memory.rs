//! Members in memory, and numbers that look random, for the tests of this crate.

use disk::Source;

/// A member.
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl Source for Memory {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, at: u64, length: usize) -> impl Future<Output = Result<Vec<u8>, String>> {
        Source::read(&self.0[..], at, length)
    }
}

/// The same numbers for the same seed.
pub(crate) fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}
