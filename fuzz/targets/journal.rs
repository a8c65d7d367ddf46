//! Any bytes as a meta block of a write journal: never a panic; what is accepted means the same when written again. The
//! checksum is set right first.
#![no_main]

use format::journal::{BLOCK_BYTES, MetaBlock, checksum};
use format::units::Sectors;
use libfuzzer_sys::fuzz_target;

const UUID: [u8; 16] = *b"fuzzed array 000";

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    bytes.resize(BLOCK_BYTES, 0);
    bytes[..4].copy_from_slice(&[0x09, 0xc5, 0x33, 0x64]);
    bytes[8] = 1;
    bytes[4..8].fill(0);
    let sum = checksum(&UUID, &bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    let position = Sectors(u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes")));
    for parities in [1, 2] {
        let Ok(block) = MetaBlock::decode(&bytes, position, parities, &UUID) else { continue };
        assert_eq!(MetaBlock::decode(&block.encode(&UUID), position, parities, &UUID), Ok(block));
    }
});
