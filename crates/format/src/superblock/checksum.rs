//! md's superblock checksum, the same for 0.90 and 1.x. It detects accidents, not malice: it never notices swapped
//! words. Source: `calc_sb_csum` in `drivers/md/md.c`.

/// The sum of the little-endian 32-bit words of `bytes` and a trailing 16-bit word, with the carry folded in once. The
/// caller must zero the checksum field first.
///
/// # Panics
/// When `bytes` has an odd length.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    match tail {
        [] => {}
        [low, high] => total += u64::from(u16::from_le_bytes([*low, *high])),
        _ => panic!("superblocks have an even length"),
    }
    (total as u32).wrapping_add((total >> 32) as u32)
}

/// The sum folded to 16 bits, as some architectures stored it in 0.90.
pub(super) const fn fold(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}
