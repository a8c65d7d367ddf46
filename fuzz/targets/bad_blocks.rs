//! Any bytes as a bad-block log, with any shift: never a panic, and what was
//! read can be written and read again.
//!
//! The input is the log, so that real ones can be seeds; a byte more than whole entries is the shift.
#![no_main]

use format::bad_blocks::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (bytes, shift) = match input.split_last() {
        Some((shift, bytes)) if bytes.len().is_multiple_of(8) => (bytes, *shift),
        _ => (input, 0),
    };
    let Ok(ranges) = decode(bytes, shift) else { return };
    let Ok(written) = encode(&ranges, shift, 2 * bytes.len()) else { return };
    let again = decode(&written, shift).expect("what encode writes can be read");
    let sectors = |ranges: &[format::bad_blocks::BadRange]| ranges.iter().map(|r| u128::from(r.count.0)).sum::<u128>();
    assert_eq!(sectors(&ranges), sectors(&again));
});
