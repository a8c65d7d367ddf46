//! Any 4 KiB as a 1.x superblock: never a panic; what is accepted can be
//! written, and gives the same bytes.
//!
//! The input is the superblock, so that real ones can be seeds. Which version
//! it is and how long the member follow from `super_offset`, or from eight more
//! bytes after it. The checksum is set right before a second try, since otherwise almost
//! nothing would get past it.
#![no_main]

use format::superblock::{self, PLACE_BYTES, Version};
use libfuzzer_sys::fuzz_target;

const PLACE: usize = PLACE_BYTES as usize;

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    bytes.resize(PLACE, 0);
    let super_offset = number(&bytes, 144);
    let version = match super_offset {
        0 => Version::V1_1,
        8 => Version::V1_2,
        _ => Version::V1_0,
    };
    let member_bytes = match (input.len() >= PLACE + 8, version) {
        (true, _) => number(input, PLACE),
        (false, Version::V1_0) => super_offset.saturating_mul(512).saturating_add(8192),
        (false, _) => number(&bytes, 128).saturating_add(number(&bytes, 136)).saturating_mul(512),
    };
    let Some(at) = version.place(member_bytes) else { return };
    let untouched = superblock::decode(version, at, &bytes, member_bytes);
    fix_checksum(&mut bytes);
    for found in [untouched, superblock::decode(version, at, &bytes, member_bytes)] {
        let Ok(Some(superblock)) = found else { continue };
        let mut written = superblock.encode();
        assert_eq!(written, bytes[..written.len()]);
        written.resize(PLACE, 0);
        assert_eq!(superblock::decode(version, at, &written, member_bytes), Ok(Some(superblock)));
    }
});

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Puts the magic number and the right sum in; `max_dev` decides how far the sum goes.
fn fix_checksum(bytes: &mut [u8]) {
    bytes[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    let max_dev = (number(bytes, 216) >> 32).min(1920) as usize;
    bytes[216..220].fill(0);
    let words = bytes[..256 + 2 * max_dev].chunks(4);
    let sum: u64 = words.map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))).sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    bytes[216..220].copy_from_slice(&folded.to_le_bytes());
}
