//! Any bytes as a partial parity log's header: never a panic; what is accepted
//! means the same when written again. Signature and checksum are set right first. What a replay would repair for each entry
//! lies within one stripe.
//!
//! The input is the header, so that real ones can be seeds; eight more bytes are the log's length.
#![no_main]

use format::geometry::{Geometry, Level, Shape};
use format::partial_parity::{HEADER_BYTES, Header, checksum, signature};
use libfuzzer_sys::fuzz_target;

const UUID: [u8; 16] = *b"fuzzed array 000";

fuzz_target!(|input: &[u8]| {
    let shape = Shape {
        level: Level::Raid5,
        layout: 2,
        chunk_bytes: 64 << 10,
        slots: 4,
        component_bytes: 1 << 30,
        member_bytes: Vec::new(),
    };
    let Ok(Geometry::Parity(parity)) = Geometry::new(&shape) else { unreachable!("a shape of level 5") };
    let mut bytes = input.to_vec();
    let length = input.get(HEADER_BYTES..HEADER_BYTES + 8);
    let log_bytes = length.map_or(1 << 20, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    bytes.resize(HEADER_BYTES, 0);
    let untouched = Header::decode(&bytes, &UUID, log_bytes);
    bytes[512..516].copy_from_slice(&signature(&UUID).to_le_bytes());
    bytes[532..536].fill(0);
    let sum = checksum(&bytes);
    bytes[532..536].copy_from_slice(&sum.to_le_bytes());
    for found in [untouched, Header::decode(&bytes, &UUID, log_bytes)] {
        let Ok(header) = found else { continue };
        for repair in header.entries.iter().filter_map(|entry| entry.repair(&parity).ok()) {
            assert!(repair.changed.start < repair.changed.end && repair.changed.end <= parity.data_chunks());
            let stripe = repair.stripe.component().0..repair.stripe.component().0 + parity.chunk_bytes();
            assert!(
                stripe.start <= repair.rows.start
                    && repair.rows.start < repair.rows.end
                    && repair.rows.end <= stripe.end
            );
        }
        assert_eq!(Header::decode(&header.encode(), &UUID, log_bytes), Ok(header));
    }
});
