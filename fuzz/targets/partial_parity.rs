//! Any bytes as a partial parity log's header: never a panic; what is accepted
//! means the same when written again. Signature and checksum are set right first.
#![no_main]

use format::partial_parity::{HEADER_BYTES, Header, checksum, signature};
use libfuzzer_sys::fuzz_target;

const UUID: [u8; 16] = *b"fuzzed array 000";

fuzz_target!(|input: (u32, Vec<u8>)| {
    let (log_bytes, mut bytes) = input;
    bytes.resize(HEADER_BYTES, 0);
    let untouched = Header::decode(&bytes, &UUID, log_bytes.into());
    bytes[512..516].copy_from_slice(&signature(&UUID).to_le_bytes());
    bytes[532..536].fill(0);
    let sum = checksum(&bytes);
    bytes[532..536].copy_from_slice(&sum.to_le_bytes());
    for found in [untouched, Header::decode(&bytes, &UUID, log_bytes.into())] {
        let Ok(header) = found else { continue };
        assert_eq!(Header::decode(&header.encode(), &UUID, log_bytes.into()), Ok(header));
    }
});
