//! Any bytes as a write buffer: never a panic, no write beyond the memory, and each block at most once.
//!
//! A whole header, and whole descriptors, are not found by chance. So they are stored first, and then bytes of the input
//! are put over the memory. The input needs no seeds.
#![no_main]

use format::stamp::Stamp;
use format::write_buffer::{BLOCK_BYTES, BufferedWrite, Header, STAMPS, memory_bytes};
use libfuzzer_sys::fuzz_target;

const BLOCKS: u32 = 4;

/// A write: its place in the array, its block and its data.
type Write = (u64, u8, Vec<u8>);

fuzz_target!(|input: (Vec<u8>, Vec<Write>, Vec<(u16, u8)>)| {
    let (foreign, writes, changes) = input;
    check(&foreign);
    let mut memory = vec![0; memory_bytes(BLOCKS)];
    let header = Header { sequence: 1, set_uuid: [1; 16], blocks: BLOCKS, stamps: [Stamp::default(); STAMPS] };
    header.store(&mut memory);
    for (number, (at, block, mut data)) in writes.into_iter().enumerate() {
        data.truncate(BLOCK_BYTES);
        let (block, bytes) = (u32::from(block) % BLOCKS, data.len() as u32);
        let write = BufferedWrite { sequence: number as u64 + 1, at, bytes, block };
        header.put(&mut memory, &write, &data);
        let is_found = header.writes(&memory).contains(&write);
        assert_eq!(is_found, at.checked_add(bytes.into()).is_some());
    }
    for (at, byte) in changes {
        let place = usize::from(at) % memory.len();
        memory[place] = byte;
    }
    check(&memory);
});

fn check(memory: &[u8]) {
    let Some(header) = Header::find(memory) else { return };
    let writes = header.writes(memory);
    assert!(writes.is_sorted_by_key(|write| write.sequence));
    let mut blocks: Vec<u32> = writes.iter().map(|write| write.block).collect();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), writes.len());
    assert!(writes.iter().all(|write| header.data(memory, write).len() == write.bytes as usize));
}
