//! Any 4 KiB as a 0.90 superblock: never a panic; what is accepted can be
//! written, and means the same. The input is the superblock, so that real ones
//! can be seeds; eight more bytes are the member's length. The checksum is set
//! right before a second try, since otherwise almost nothing would get past it.
#![no_main]

use format::superblock::{self, Counts, PLACE_BYTES, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    let length = input.get(PLACE_BYTES as usize..PLACE_BYTES as usize + 8);
    let member_bytes = length.map_or(8 << 20, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    let Some(at) = Version::V0_90.place(member_bytes) else { return };
    bytes.resize(PLACE_BYTES as usize, 0);
    let untouched = superblock::decode(Version::V0_90, at, &bytes, member_bytes);
    fix_checksum(&mut bytes);
    for found in [untouched, superblock::decode(Version::V0_90, at, &bytes, member_bytes)] {
        let Ok(Some(superblock)) = found else { continue };
        assert!(Counts::of(&bytes).is_some_and(|counts| counts.devices.len() == 27));
        let written = superblock.encode();
        let again = superblock::decode(Version::V0_90, at, &written, member_bytes);
        assert_eq!(again.expect("what encode writes can be read").expect("it has the magic").encode(), written);
    }
});

/// Puts the magic number, the version and the right sum in.
fn fix_checksum(bytes: &mut [u8]) {
    bytes[..12].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0, 90, 0, 0, 0]);
    bytes[152..156].fill(0);
    let sum: u64 = bytes.chunks(4).map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))).sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    bytes[152..156].copy_from_slice(&folded.to_le_bytes());
}
