//! CRC-32C (reflected, initial value and final exclusive or all ones), optimized for blocks of 4 KiB, the engine's
//! checksum unit.
//!
//! The library `crc32c` takes a word at a time by the processor's instruction, or tables. It computes all other lengths. Of
//! blocks of one length, shifts are constants, and vector registers fold beside (figures in docs/decisions/0204).
//!
//! On aarch64 a block is taken in three streams, of which the instruction of the CRC extension takes one word each in turn.
//!
//! The method on x86-64 is that of the fast-crc32 generator (P. Cawley). The block's first part is folded in vector registers,
//! while the processor's `crc32` instruction, with a latency of three, takes three more parts. So both kinds of units
//! are busy. Constants are x^n modulo the polynomial, computed at compile time.
//!
//! During a copy of a block, its checksum is computed from the registers that hold the data anyway. The copy waits for
//! memory, so the arithmetic costs next to nothing. Nothing here stores or compares a checksum.

use std::cell::Cell;

/// Bytes of a block of the optimized path.
pub const BLOCK_BYTES: usize = 4096;

/// The CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Ok(block) = bytes.try_into() {
        if *wide::IS_THERE {
            // SAFETY: the processor has the features, and a block is read alone.
            return unsafe { wide::block(block) };
        }
        if *x86::IS_THERE {
            // SAFETY: the processor has what it needs.
            return unsafe { x86::block(block) };
        }
    }
    #[cfg(target_arch = "aarch64")]
    if let (true, Ok(block)) = (*arm::IS_THERE, bytes.try_into()) {
        // SAFETY: the processor has what it needs.
        return unsafe { arm::block(block) };
    }
    ::crc32c::crc32c(bytes)
}

/// Copies a block whose cells may change between two copies, and returns the CRC-32C of the copied bytes.
pub fn copy_with_crc32c(from: &[Cell<u8>; BLOCK_BYTES], into: &mut [u8; BLOCK_BYTES]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if *wide::IS_THERE {
        // SAFETY: the processor has the features, and both have this length; a mutable borrow overlaps nothing.
        return unsafe { wide::copy(from.as_ptr().cast(), into.as_mut_ptr()) };
    }
    #[cfg(target_arch = "x86_64")]
    if *x86::IS_THERE {
        // SAFETY: as above.
        return unsafe { x86::copy(from.as_ptr().cast(), into.as_mut_ptr()) };
    }
    // SAFETY: both have this length, and a mutable borrow overlaps no other. No other thread can reach a `Cell`, and no
    // other code runs on this thread meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), into.as_mut_ptr(), BLOCK_BYTES) };
    crc32c(into)
}

/// Bytes of a line of the processor's cache.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// A copy asks for bytes this far ahead, and so for the start of the next block too. More is slower (docs/decisions/1202).
#[cfg(target_arch = "x86_64")]
const AHEAD_BYTES: usize = 512;

/// x^n modulo the polynomial. Bit 31 is x^0.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const fn power(n: usize) -> u32 {
    let (mut value, mut left) = (0x8000_0000_u32, n);
    while left > 0 {
        value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
        left -= 1;
    }
    value
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{BLOCK_BYTES, power};
    use std::arch::aarch64::*;
    use std::arch::is_aarch64_feature_detected;
    use std::sync::LazyLock;

    pub(super) static IS_THERE: LazyLock<bool> = LazyLock::new(|| is_aarch64_feature_detected!("crc"));

    /// Words of each of three streams; the block's last two words follow them.
    const WORDS: usize = 170;
    const STREAM: usize = WORDS * size_of::<u64>();
    const _: () = assert!(3 * STREAM + 2 * size_of::<u64>() == BLOCK_BYTES);

    /// By number and value of a CRC's nibble: what it becomes when a stream of zeros follows.
    static SHIFTED: [[u32; 16]; 8] = {
        let mut table = [[0; 16]; 8];
        let mut bit = 0;
        while bit < 32 {
            // Bit 31 is x^0.
            let (shifted, nibble) = (power(STREAM * 8 + 31 - bit), &mut table[bit / 4]);
            let mut value = 0;
            while value < 16 {
                if value >> (bit % 4) & 1 == 1 {
                    nibble[value] ^= shifted;
                }
                value += 1;
            }
            bit += 1;
        }
        table
    };

    /// The CRC after a stream of zeros.
    fn after_stream(crc: u32) -> u32 {
        SHIFTED.iter().enumerate().fold(0, |sum, (number, nibble)| sum ^ nibble[(crc >> (number * 4) & 0xf) as usize])
    }

    #[target_feature(enable = "crc")]
    pub(super) fn block(block: &[u8; BLOCK_BYTES]) -> u32 {
        let (words, _) = block.as_chunks::<{ size_of::<u64>() }>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let [mut a, mut b, mut c] = [!0, 0, 0];
        for at in 0..WORDS {
            a = __crc32cd(a, word(at));
            b = __crc32cd(b, word(WORDS + at));
            c = __crc32cd(c, word(2 * WORDS + at));
        }
        let streams = after_stream(after_stream(a) ^ b) ^ c;
        !words[3 * WORDS..].iter().fold(streams, |crc, word| __crc32cd(crc, u64::from_le_bytes(*word)))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_block_in_three_streams_has_the_crc_of_the_library() {
            assert!(*IS_THERE, "emulated processors have the extension");
            for seed in 0..64_usize {
                let bytes: [u8; BLOCK_BYTES] =
                    std::array::from_fn(|at| (at * at * (seed + 1) + seed * 7 + at / 251) as u8);
                // SAFETY: checked above.
                assert_eq!(unsafe { block(&bytes) }, ::crc32c::crc32c(&bytes), "{seed}");
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK_BYTES, power};
    use std::arch::x86_64::*;
    use std::sync::LazyLock;

    pub(super) static IS_THERE: LazyLock<bool> = LazyLock::new(|| {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.2")
    });

    /// Bytes of a register, and the number of registers folded at once.
    const REGISTER: usize = 32;
    const FOLDED: usize = 2;

    /// Bytes that are folded. Three streams of `STREAM` bytes each follow.
    const HEAD: usize = 1600;
    const STREAM: usize = 832;
    const _: () = assert!(HEAD + 3 * STREAM == BLOCK_BYTES && HEAD.is_multiple_of(FOLDED * REGISTER));

    /// Words of each stream per fold of `FOLDED` registers, and in total.
    const WORDS_BESIDE: usize = 4;
    const WORDS: usize = STREAM / size_of::<u64>();
    const STEPS: usize = HEAD / (FOLDED * REGISTER);
    const _: () = assert!((STEPS - 1) * WORDS_BESIDE < WORDS);

    /// Factors that shift a register's 16-byte lanes by `bytes`, for their first and second half.
    pub(super) const fn fold_by(bytes: usize) -> [i64; 2] {
        [power(bytes * 8 + 31) as i64, power(bytes * 8 - 33) as i64]
    }

    /// The factor that shifts a CRC by `bytes`.
    const fn shift_by(bytes: usize) -> i64 {
        power(bytes * 8 - 33) as i64
    }

    #[target_feature(enable = "avx2,vpclmulqdq")]
    fn fold(lanes: __m256i, by: __m256i) -> __m256i {
        _mm256_xor_si256(_mm256_clmulepi64_epi128(lanes, by, 0x00), _mm256_clmulepi64_epi128(lanes, by, 0x11))
    }

    #[target_feature(enable = "avx2")]
    fn factors([first, second]: [i64; 2]) -> __m256i {
        _mm256_broadcastsi128_si256(_mm_set_epi64x(second, first))
    }

    #[target_feature(enable = "pclmulqdq,sse4.2")]
    fn shifted(crc: u64, factor: i64) -> __m128i {
        _mm_clmulepi64_si128(_mm_cvtsi64_si128(crc.cast_signed()), _mm_cvtsi64_si128(factor), 0)
    }

    /// The CRC of two folded registers.
    #[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
    fn crc_of(folded: [__m256i; FOLDED]) -> u64 {
        let lanes = _mm256_xor_si256(fold(folded[0], factors(const { fold_by(REGISTER) })), folded[1]);
        let (first, second) = (_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
        let moved = fold(_mm256_zextsi128_si256(first), factors(const { fold_by(REGISTER / 2) }));
        let lane = _mm_xor_si128(_mm256_castsi256_si128(moved), second);
        let crc = _mm_crc32_u64(0, _mm_extract_epi64(lane, 0).cast_unsigned());
        _mm_crc32_u64(crc, _mm_extract_epi64(lane, 1).cast_unsigned())
    }

    /// A copy in 32-byte registers, each of which is also folded. Addresses and prefetching are as in
    /// [`super::wide::copy`].
    ///
    /// # Safety
    /// A block must be at both addresses, and they must not overlap.
    #[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) unsafe fn copy(from: *const u8, into: *mut u8) -> u32 {
        const LANES: usize = 4;
        const { assert!(BLOCK_BYTES.is_multiple_of(LANES * REGISTER)) };
        let register = |at: usize| {
            if at.is_multiple_of(super::LINE_BYTES) {
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at + super::AHEAD_BYTES).cast());
            }
            // SAFETY: the bytes are there on both sides; any alignment is allowed.
            unsafe {
                let bytes = _mm256_loadu_si256(from.add(at).cast());
                _mm256_storeu_si256(into.add(at).cast(), bytes);
                bytes
            }
        };
        let mut folded: [__m256i; LANES] = std::array::from_fn(|number| register(number * REGISTER));
        folded[0] = _mm256_xor_si256(folded[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128(-1))); // the initial value
        let by = factors(const { fold_by(LANES * REGISTER) });
        for at in (LANES * REGISTER..BLOCK_BYTES).step_by(LANES * REGISTER) {
            for (number, lanes) in folded.iter_mut().enumerate() {
                *lanes = _mm256_xor_si256(fold(*lanes, by), register(at + number * REGISTER));
            }
        }
        let by = factors(const { fold_by(REGISTER) });
        let [a, b, c, d] = folded;
        let next = |lanes, next| _mm256_xor_si256(fold(lanes, by), next);
        !(crc_of([next(next(a, b), c), d]) as u32)
    }

    #[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) fn block(block: &[u8; BLOCK_BYTES]) -> u32 {
        let (head, streams) = block.split_at(HEAD);
        let register = |number: usize| {
            let bytes: &[u8; REGISTER] = head[number * REGISTER..][..REGISTER].try_into().expect("a register's bytes");
            // SAFETY: the bytes are there; any alignment is allowed.
            unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
        };
        let word = |stream: usize, number: usize| {
            let at = stream * STREAM + number * size_of::<u64>();
            u64::from_le_bytes(streams[at..][..size_of::<u64>()].try_into().expect("a word's bytes"))
        };
        let mut folded: [__m256i; FOLDED] = [register(0), register(1)];
        folded[0] = _mm256_xor_si256(folded[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128(-1))); // the initial value
        let by = factors(const { fold_by(FOLDED * REGISTER) });
        let mut crcs = [0_u64; 3];
        let take = |crcs: [u64; 3], number: usize| {
            let [a, b, c] = crcs;
            [_mm_crc32_u64(a, word(0, number)), _mm_crc32_u64(b, word(1, number)), _mm_crc32_u64(c, word(2, number))]
        };
        for step in 1..STEPS {
            folded[0] = _mm256_xor_si256(fold(folded[0], by), register(step * FOLDED));
            folded[1] = _mm256_xor_si256(fold(folded[1], by), register(step * FOLDED + 1));
            for beside in 0..WORDS_BESIDE {
                crcs = take(crcs, (step - 1) * WORDS_BESIDE + beside);
            }
        }
        for number in (STEPS - 1) * WORDS_BESIDE..WORDS - 1 {
            crcs = take(crcs, number);
        }
        let [a, b, c] = crcs;
        let (a, b) = (_mm_crc32_u64(a, word(0, WORDS - 1)), _mm_crc32_u64(b, word(1, WORDS - 1)));
        // The CRC of everything before the last word is shifted to its position, and combined with it.
        let before = _mm_xor_si128(
            shifted(crc_of(folded), const { shift_by(3 * STREAM) }),
            _mm_xor_si128(shifted(a, const { shift_by(2 * STREAM) }), shifted(b, const { shift_by(STREAM) })),
        );
        let last = word(2, WORDS - 1) ^ _mm_cvtsi128_si64(before).cast_unsigned();
        !(_mm_crc32_u64(c, last) as u32)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_kernels_below_avx_512_copy_and_sum_as_the_library_does() {
            if !*IS_THERE {
                return println!("SKIPPED: this processor cannot run them");
            }
            for seed in 0..64_usize {
                let bytes: [u8; BLOCK_BYTES] =
                    std::array::from_fn(|at| (at * at * (seed + 1) + seed * 7 + at / 251) as u8);
                let mut copied = [0; BLOCK_BYTES];
                // SAFETY: checked above.
                let sums = unsafe { [block(&bytes), copy(bytes.as_ptr(), copied.as_mut_ptr())] };
                assert_eq!(sums, [::crc32c::crc32c(&bytes); 2], "{seed}");
                assert_eq!(copied, bytes, "{seed}");
            }
        }
    }
}

/// A copy in 64-byte registers, each of which is also folded.
#[cfg(target_arch = "x86_64")]
mod wide {
    use super::BLOCK_BYTES;
    use super::x86::fold_by;
    use std::arch::x86_64::*;
    use std::sync::LazyLock;

    pub(super) static IS_THERE: LazyLock<bool> = LazyLock::new(|| {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.2")
    });

    /// Bytes of a register and of one of its lanes, and the number of registers folded at once.
    const REGISTER: usize = super::LINE_BYTES;
    const LANE: usize = 16;
    const FOLDED: usize = 4;
    const _: () = assert!(BLOCK_BYTES.is_multiple_of(FOLDED * REGISTER));

    /// `lanes`, shifted by the factors `by`, plus `next`.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold(lanes: __m512i, by: __m512i, next: __m512i) -> __m512i {
        const SUM: i32 = 0x96;
        let (first, second) = (_mm512_clmulepi64_epi128(lanes, by, 0x00), _mm512_clmulepi64_epi128(lanes, by, 0x11));
        _mm512_ternarylogic_epi64(first, second, next, SUM)
    }

    #[target_feature(enable = "avx512f")]
    fn factors([first, second]: [i64; 2]) -> __m512i {
        _mm512_broadcast_i32x4(_mm_set_epi64x(second, first))
    }

    #[target_feature(enable = "pclmulqdq")]
    fn fold_lane(lane: __m128i, next: __m128i) -> __m128i {
        let [first, second] = const { fold_by(LANE) };
        let by = _mm_set_epi64x(second, first);
        let moved = _mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00), _mm_clmulepi64_si128(lane, by, 0x11));
        _mm_xor_si128(moved, next)
    }

    /// The CRC of a block.
    ///
    /// # Safety
    /// The processor must have the features.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) unsafe fn block(block: &[u8; BLOCK_BYTES]) -> u32 {
        // SAFETY: the block is there, and nothing is stored.
        unsafe { sum::<false>(block.as_ptr(), std::ptr::null_mut()) }
    }

    /// Copies a block, and gives its CRC.
    ///
    /// # Safety
    /// A block must be at both addresses, and they must not overlap.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) unsafe fn copy(from: *const u8, into: *mut u8) -> u32 {
        // SAFETY: as the caller says.
        unsafe { sum::<true>(from, into) }
    }

    /// Takes addresses, not references. If the compiler knows that they do not overlap, it turns the stores into a
    /// `memcpy`, and loads everything a second time to fold it. Asks for lines before their turn, because folding
    /// leaves the processor less room to look ahead.
    ///
    /// # Safety
    /// A block must be at `from`, and with `COPIES` at both addresses, which must not overlap then.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
    unsafe fn sum<const COPIES: bool>(from: *const u8, into: *mut u8) -> u32 {
        let register = |at: usize| {
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at + super::AHEAD_BYTES).cast());
            // SAFETY: the bytes are there, and a place for their copy; any alignment is allowed.
            unsafe {
                let bytes = _mm512_loadu_si512(from.add(at).cast());
                if COPIES {
                    _mm512_storeu_si512(into.add(at).cast(), bytes);
                }
                bytes
            }
        };
        let mut folded: [__m512i; FOLDED] = std::array::from_fn(|number| register(number * REGISTER));
        folded[0] = _mm512_xor_si512(folded[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1))); // the initial value
        let by = factors(const { fold_by(FOLDED * REGISTER) });
        for at in (FOLDED * REGISTER..BLOCK_BYTES).step_by(FOLDED * REGISTER) {
            for (number, lanes) in folded.iter_mut().enumerate() {
                *lanes = fold(*lanes, by, register(at + number * REGISTER));
            }
        }
        let by = factors(const { fold_by(REGISTER) });
        let [a, b, c, d] = folded;
        let lanes = fold(fold(fold(a, by, b), by, c), by, d);
        let lane = _mm512_extracti32x4_epi32::<0>(lanes);
        let lane = fold_lane(lane, _mm512_extracti32x4_epi32::<1>(lanes));
        let lane = fold_lane(lane, _mm512_extracti32x4_epi32::<2>(lanes));
        let lane = fold_lane(lane, _mm512_extracti32x4_epi32::<3>(lanes));
        let crc = _mm_crc32_u64(0, _mm_extract_epi64::<0>(lane).cast_unsigned());
        !(_mm_crc32_u64(crc, _mm_extract_epi64::<1>(lane).cast_unsigned()) as u32)
    }
}
