//! CRC-32C against a bitwise implementation of its definition.

use mdspace_parity::{CRC_BLOCK_BYTES, copy_with_crc32c, crc32c};
use proptest::prelude::*;
use std::cell::Cell;

/// The definition, bit by bit.
fn slow(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn the_crcs_of_the_standards_examples_match() {
    // RFC 3720, B.4
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn every_bit_of_a_block_counts_as_the_definition_says() {
    let mut block = vec![0; CRC_BLOCK_BYTES];
    assert_eq!(crc32c(&block), slow(&block));
    for bit in 0..block.len() * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        if bit % 61 == 0 {
            assert_eq!(crc32c(&block), slow(&block), "bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn the_crc_of_a_block_is_its_definition_s_at_any_alignment(
        bytes in prop::collection::vec(any::<u8>(), CRC_BLOCK_BYTES + 64),
        at in 0..64_usize,
        is_whole in any::<bool>(),
    ) {
        let mut from = bytes.clone();
        let from = &Cell::from_mut(&mut from[..]).as_slice_of_cells()[at..at + CRC_BLOCK_BYTES];
        let mut copy = vec![0; CRC_BLOCK_BYTES + 64];
        let into = &mut copy[64 - at..64 - at + CRC_BLOCK_BYTES];
        let sum = copy_with_crc32c(from.try_into().unwrap(), (&mut *into).try_into().unwrap());
        prop_assert_eq!(sum, slow(into));
        prop_assert_eq!(&*into, &bytes[at..at + CRC_BLOCK_BYTES]);
        let around = copy[..64 - at].iter().chain(&copy[64 - at + CRC_BLOCK_BYTES..]);
        prop_assert!(around.into_iter().all(|byte| *byte == 0), "no byte around it was written");

        let bytes = if is_whole { &bytes[at..at + CRC_BLOCK_BYTES] } else { &bytes[at..] };
        prop_assert_eq!(crc32c(bytes), slow(bytes));
    }
}
