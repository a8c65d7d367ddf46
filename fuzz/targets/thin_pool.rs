//! Any bytes as a thin pool's metadata, with their checksums mended: never a panic or an endless walk, and a block is in
//! one piece.
#![no_main]

use disk::lvm::thin::map;
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 4096;

/// The kernel's checksum: CRC-32C without the last inversion.
fn sum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
    bytes.iter().fold(u32::MAX, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

fuzz_target!(|input: &[u8]| {
    // Each 64 bytes of input begin a block; the rest of it is zeros.
    let mut metadata = Vec::new();
    for (number, part) in input.chunks(64).take(16).enumerate() {
        let mut block = vec![0; BLOCK];
        block[..part.len()].copy_from_slice(part);
        block[8..16].copy_from_slice(&(number as u64).to_le_bytes());
        let mut xor = 121_107;
        if number == 0 {
            block[32..40].copy_from_slice(&27_022_010_u64.to_le_bytes());
            block[48..56].fill(0);
            block[320] = 1;
            block[336] = 128;
            xor = 160_774;
        } else {
            block[24..28].copy_from_slice(&8_u32.to_le_bytes());
        }
        let sum = sum(&block[4..]) ^ xor;
        block[..4].copy_from_slice(&sum.to_le_bytes());
        metadata.extend(block);
    }
    for device in [0, 1] {
        let found = map(&metadata[..], device, 0).now_or_never().expect("memory answers at once");
        let Ok(map) = found else { continue };
        let mut at = 0;
        for _ in 0..1000 {
            let (_, run) = map.locate(at);
            assert!(run > 0);
            let Some(next) = at.checked_add(run).filter(|next| *next < u64::MAX) else { break };
            at = next;
        }
    }
});
