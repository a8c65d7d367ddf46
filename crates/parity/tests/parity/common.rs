//! Helpers of this crate's tests: the oracle, the supported kernels, and blocks at awkward addresses. Nothing here uses
//! the crate's own tables.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Once;

use mdspace_parity::{Kernel, Symbol, kernels};

/// The product in GF(2^8): a product of polynomials, then the remainder of the division by 0x11d. Slow and obvious.
pub(crate) fn slow_mul(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    for bit in 0..8 {
        if b & (1 << bit) != 0 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product & (1 << bit) != 0 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

/// 2^exponent, by repeated multiplication.
pub(crate) fn slow_pow2(exponent: u8) -> u8 {
    (0..exponent).fold(1, |power, _| slow_mul(power, 2))
}

/// Adds the sum of the terms to each byte of the target.
pub(crate) fn slow_combine(target: &mut [u8], terms: &[(u8, Vec<u8>)]) {
    for (coefficient, source) in terms {
        for (sum, &byte) in target.iter_mut().zip(source) {
            *sum ^= slow_mul(*coefficient, byte);
        }
    }
}

/// A block of the stripe, from its data blocks and their exponents.
pub(crate) fn slow_symbol(symbol: Symbol, data: &[(u8, Vec<u8>)], bytes: usize) -> Vec<u8> {
    let coefficient = |exponent| match symbol {
        Symbol::Data(wanted) => u8::from(wanted == exponent),
        Symbol::P => 1,
        Symbol::Q => slow_pow2(exponent),
    };
    let terms: Vec<_> = data.iter().map(|(exponent, block)| (coefficient(*exponent), block.clone())).collect();
    let mut block = vec![0; bytes];
    slow_combine(&mut block, &terms);
    block
}

/// The kernels that this processor can run. It reports the others on standard error (despite the harness's capture of
/// output).
///
/// # Panics
/// When the environment's MDSPACE_REQUIRE_KERNELS (names separated by commas) names a kernel that cannot run here. So a
/// machine that must cover an instruction set cannot pass without it.
pub(crate) fn kernels_that_run() -> Vec<&'static Kernel> {
    static SAY: Once = Once::new();
    let (run, skipped): (Vec<&Kernel>, Vec<&Kernel>) = kernels().iter().partition(|kernel| kernel.is_supported());
    let names = |kernels: &[&Kernel]| match kernels {
        [] => "none".to_owned(),
        some => some.iter().map(|kernel| kernel.name()).collect::<Vec<_>>().join(", "),
    };
    SAY.call_once(|| {
        let line = format!("parity kernels: ran {}; SKIPPED {}\n", names(&run), names(&skipped));
        std::io::stderr().write_all(line.as_bytes()).expect("standard error takes a line");
    });

    let required = std::env::var("MDSPACE_REQUIRE_KERNELS").unwrap_or_default();
    let required: BTreeSet<&str> = required.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let missing: Vec<_> = required.iter().filter(|&&name| run.iter().all(|kernel| kernel.name() != name)).collect();
    assert!(missing.is_empty(), "MDSPACE_REQUIRE_KERNELS names kernels that did not run: {missing:?}");
    run
}

/// Pseudo-random bytes, the same in every run.
pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// A block at a chosen distance from an aligned address, with fences on both sides that reveal a write outside it.
pub(crate) struct Fenced {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

const FENCE: usize = 128;
const PAINT: u8 = 0xa5;

impl Fenced {
    pub(crate) fn new(contents: &[u8], misalignment: usize) -> Self {
        let mut memory = vec![PAINT; FENCE + 64 + contents.len() + FENCE];
        let start = FENCE + memory[FENCE..].as_ptr().align_offset(64) + misalignment % 64;
        memory.resize(start + contents.len() + FENCE, PAINT);
        let mut fenced = Self { memory, start, bytes: contents.len() };
        fenced.block_mut().copy_from_slice(contents);
        fenced
    }

    pub(crate) fn block(&self) -> &[u8] {
        &self.memory[self.start..][..self.bytes]
    }

    pub(crate) fn block_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.bytes]
    }

    /// Panics unless the block holds `expected` and its surroundings are unchanged.
    pub(crate) fn assert_is(&self, expected: &[u8], what: &dyn std::fmt::Display) {
        let wrong = self.block().iter().zip(expected).position(|(got, want)| got != want);
        assert_eq!(wrong, None, "{what}: first wrong byte");
        let end = self.start + self.bytes;
        let fences = self.memory[..self.start].iter().chain(&self.memory[end..]);
        assert!(fences.into_iter().all(|&byte| byte == PAINT), "{what}: wrote outside the block");
    }
}
