//! Any bytes as a bitmap's superblock, in any room: never a panic; what is
//! accepted reads back the same, and its bits stay within the room.
#![no_main]

use std::ops::Range;

use format::bitmap::{BitmapSuper, Kind, SUPER_BYTES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, Range<u64>, Vec<u8>)| {
    let (room, range, mut bytes) = input;
    bytes.resize(SUPER_BYTES, 0);
    bytes[..4].copy_from_slice(b"bitm");
    let Ok(bitmap) = BitmapSuper::decode(&bytes, room.into()) else { return };
    assert_eq!(bitmap.encode(), bytes[..]);
    if bitmap.kind == Kind::Lockless {
        return;
    }
    assert!(bitmap.bits().div_ceil(8) + SUPER_BYTES as u64 <= room.into());
    let bits = bitmap.bits_of(range);
    assert!(bits.end <= bitmap.bits());
    if let Some(last) = bits.last() {
        assert!(bitmap.bytes_of(last).end <= bitmap.sync_size.bytes());
    }
});
