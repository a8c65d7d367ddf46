//! Any bytes as a bitmap's superblock, in any room: never a panic; what is
//! accepted reads back the same, and its bits stay within the room.
//!
//! The input is what stands at a bitmap's place, so that real ones can be seeds; behind its superblock, where there are no bits to
//! be looked at here, the room and a range.
#![no_main]

use format::bitmap::{BitmapSuper, SUPER_BYTES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    bytes.resize(SUPER_BYTES + 24, 0);
    let behind = bytes.split_off(SUPER_BYTES);
    let number = |at: usize| u64::from_le_bytes(behind[at..at + 8].try_into().expect("eight bytes"));
    // A seed's bits would be no room at all.
    let (room, range) = (number(0).wrapping_sub(1).min(1 << 30), number(8)..number(16));
    bytes[..4].copy_from_slice(b"bitm");
    let Ok(bitmap) = BitmapSuper::decode(&bytes, room) else { return };
    assert_eq!(bitmap.encode(), bytes[..]);
    assert!(bitmap.used_bytes() <= room);
    let bits = bitmap.bits_of(range);
    assert!(bits.end <= bitmap.bits());
    if let Some(last) = bits.last() {
        assert!(bitmap.bytes_of(last).end <= bitmap.sync_size.bytes());
    }
});
