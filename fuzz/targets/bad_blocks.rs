//! Any bytes as a bad-block log, with any shift: never a panic, and what was
//! read can be written and read again.
#![no_main]

use format::bad_blocks::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (shift, bytes) = input;
    let Ok(ranges) = decode(&bytes, shift) else { return };
    let Ok(written) = encode(&ranges, shift, 2 * bytes.len()) else { return };
    let again = decode(&written, shift).expect("what encode writes can be read");
    let sectors = |ranges: &[format::bad_blocks::BadRange]| ranges.iter().map(|r| u128::from(r.count.0)).sum::<u128>();
    assert_eq!(sectors(&ranges), sectors(&again));
});
