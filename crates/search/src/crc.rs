//! CRC-32C in the forms that file systems store, and one that adds up over members.
//!
//! A CRC is linear: the CRC of the xor of blocks is the xor of their CRCs, if no constant is added. So the parity of
//! blocks can be checked, and the CRC of a lost block known, without the blocks.

use std::sync::LazyLock;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;
/// A block of zeros, once in the program.
pub(crate) static ZEROS: [u8; BLOCK] = [0; BLOCK];

static TABLE: LazyLock<[u32; 256]> = LazyLock::new(|| {
    let mut table = [0; 256];
    for (byte, entry) in table.iter_mut().enumerate() {
        *entry = (0..8).fold(byte as u32, |crc, _| (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78));
    }
    table
});

/// The CRC of a block of zeros.
static OF_ZEROS: LazyLock<u32> = LazyLock::new(|| parity::crc32c(&ZEROS));

/// The register after `bytes`, begun with `seed` and not inverted: the form of ext4.
pub(crate) fn raw(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

/// The CRC-16 after `bytes`, begun with `seed`: the form of ext4's group descriptors. Fact: the kernel's `lib/crc16.c`.
pub(crate) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    let bit = |crc: u16, _| (crc >> 1) ^ ((crc & 1) * 0xa001);
    bytes.iter().fold(seed, |crc, byte| (0..8).fold(crc ^ u16::from(*byte), bit))
}

/// The sum of a block that adds up: 0 of zeros, and of the xor of blocks the xor of their sums.
pub(crate) fn sum(block: &[u8]) -> u32 {
    from_standard(parity::crc32c(block))
}

/// Another sum that adds up. A block that ends with its own CRC, such as a superblock or directory of ext4, has the
/// same [`sum`] whatever it holds.
pub(crate) fn fold(block: &[u8]) -> u16 {
    let words = block.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let all = (0..).zip(words).fold(0, |all, (at, word)| all ^ u64::rotate_left(word, at % 61));
    (all ^ all >> 16 ^ all >> 32 ^ all >> 48) as u16
}

/// What tells a block's content from others, and adds up: [`sum`] and [`fold`].
pub(crate) fn content(block: &[u8]) -> u64 {
    joined(sum(block), fold(block))
}

/// The content with this [`sum`] and this [`fold`].
pub(crate) fn joined(sum: u32, fold: u16) -> u64 {
    u64::from(fold) << 32 | u64::from(sum)
}

/// What each bit of a register becomes behind a block of zeros.
static BEHIND: LazyLock<[u32; 32]> = LazyLock::new(|| std::array::from_fn(|bit| raw(1 << bit, &ZEROS)));

/// The register `crc` behind `blocks` blocks of zeros. So [`sum`] of several blocks is made of theirs.
pub(crate) fn behind(crc: u32, blocks: u64) -> u32 {
    (0..blocks).fold(crc, |crc, _| {
        let bits = BEHIND.iter().enumerate().filter(|(bit, _)| crc >> bit & 1 == 1);
        bits.fold(0, |all, (_, own)| all ^ own)
    })
}

/// [`sum`] of a block, from its usual CRC-32C.
pub(crate) fn from_standard(crc: u32) -> u32 {
    crc ^ *OF_ZEROS
}

/// [`sum`] of a block, from its [`raw`] CRC with `seed`.
pub(crate) fn from_raw(crc: u32, seed: u32) -> u32 {
    crc ^ raw(seed, &ZEROS)
}

/// Whether `bytes` have the usual CRC-32C that they hold at `at`, computed with zeros there.
pub(crate) fn holds_own(bytes: &[u8], at: usize) -> bool {
    let Some((before, rest)) = bytes.split_at_checked(at) else { return false };
    let Some((stored, after)) = rest.split_at_checked(4) else { return false };
    let crc = !raw(raw(raw(!0, before), &[0; 4]), after);
    stored == crc.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_add_up_and_every_form_leads_to_them() {
        let block = |salt: usize| -> Vec<u8> { (0..BLOCK).map(|at| ((at * salt) >> 3) as u8).collect() };
        let (a, b) = (block(7), block(13));
        let both: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a ^ b).collect();
        assert_eq!(sum(&both), sum(&a) ^ sum(&b));
        assert_eq!((sum(&[0; BLOCK]), fold(&[0; BLOCK])), (0, 0));
        assert_eq!(fold(&both), fold(&a) ^ fold(&b));
        let ending = |mut block: Vec<u8>| {
            let crc = raw(!0, &block[..BLOCK - 4]);
            block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
            block
        };
        let (one, other) = (ending(a.clone()), ending(b.clone()));
        assert_eq!(sum(&one), sum(&other), "each ends with its own CRC");
        assert_ne!(fold(&one), fold(&other));
        let three = [&a[..], &b[..], &both[..]].concat();
        let expected = behind(sum(&a), 2) ^ behind(sum(&b), 1) ^ sum(&both);
        assert_eq!(raw(0, &three), expected, "several blocks");
        assert_eq!(raw(!0, &three[32..]), behind(raw(!0, &a[32..]), 2) ^ behind(sum(&b), 1) ^ sum(&both));
        assert_eq!(from_raw(raw(77, &a), 77), sum(&a));
        assert_eq!(!raw(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(!0, b"123456789"), 0x4b37);
    }
}
