//! The write buffer: memory that outlives its server, with the writes that were answered and are not on the members.
//!
//! A server that starts again finds there what a killed one had answered. A loss of power takes the memory with it, and
//! with it all that it says: nothing here is on a disk. The layout is two copies of a header, then a table with one
//! descriptor for each block, then the blocks ([`BLOCK_BYTES`]). A process can be killed between any two stores:
//!
//! - A header is stored over the older of its two copies. The newest whole one counts.
//! - A descriptor is sealed by a checksum over itself and its data, and stored after the data. A torn one says nothing.
//! - Descriptors are freed in the order of their sequence, so an older write never outlives a newer one. One that stays,
//!   because members could not take it, gets the bytes of newer ones before these are freed.
//!
//! The header names the superblocks for which the buffer counts ([`crate::stamp`]). Nothing here maps memory.
//! Layout: `docs/format.md`, "Write buffer".

use crate::stamp::{self, RawStamp, Stamp};
use crate::superblock::Superblock;
use crc32c::{crc32c, crc32c_append};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The superblocks that a header names.
pub const STAMPS: usize = 4;

/// The bytes of a block: the most data of one descriptor.
pub const BLOCK_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"md-wbuf1";
const HEADERS_AT: [usize; 2] = [0, 512];
const TABLE_AT: usize = 4096;
const DESCRIPTOR_BYTES: usize = size_of::<RawDescriptor>();

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    checksum: U32,
    blocks: U32,
    sequence: U64,
    set_uuid: [u8; 16],
    stamps: [RawStamp; STAMPS],
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawDescriptor {
    /// 0 while the block is free.
    sequence: U64,
    at: U64,
    bytes: U32,
    checksum: U32,
    reserved: U64,
}

/// What the memory says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Counts the headers that were stored.
    pub sequence: u64,
    /// The uuid of the array.
    pub set_uuid: [u8; 16],
    /// The number of blocks.
    pub blocks: u32,
    /// The superblocks for which the buffer counts: the last of those that were to be written, the newest last. A member
    /// may have any of them: one that was told last, or one of a round that failed.
    pub stamps: [Stamp; STAMPS],
}

/// A write in the buffer, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferedWrite {
    /// Later writes have a greater one.
    pub sequence: u64,
    /// The first byte of the array that it changes.
    pub at: u64,
    /// Its length in bytes, at most [`BLOCK_BYTES`].
    pub bytes: u32,
    /// The block that holds its data.
    pub block: u32,
}

/// The number of blocks for which `bytes` of memory suffice.
pub fn blocks_in(bytes: usize) -> u32 {
    let blocks = bytes.saturating_sub(TABLE_AT + BLOCK_BYTES) / (BLOCK_BYTES + DESCRIPTOR_BYTES);
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// The bytes of memory for so many blocks.
pub fn memory_bytes(blocks: u32) -> usize {
    TABLE_AT + BLOCK_BYTES + blocks as usize * (BLOCK_BYTES + DESCRIPTOR_BYTES)
}

fn descriptor_at(block: u32) -> usize {
    TABLE_AT + block as usize * DESCRIPTOR_BYTES
}

fn data_at(blocks: u32, block: u32) -> usize {
    descriptor_at(blocks).next_multiple_of(BLOCK_BYTES) + block as usize * BLOCK_BYTES
}

impl Header {
    /// The newest whole header, if the memory is as long as it says.
    pub fn find(memory: &[u8]) -> Option<Self> {
        HEADERS_AT.iter().filter_map(|at| Self::decode(memory, *at)).max_by_key(|header| header.sequence)
    }

    fn decode(memory: &[u8], at: usize) -> Option<Self> {
        let (raw, _) = RawHeader::ref_from_prefix(memory.get(at..)?).ok()?;
        let is_whole = raw.magic == MAGIC && raw.checksum.get() == sum(raw);
        let blocks = raw.blocks.get();
        (is_whole && blocks <= blocks_in(memory.len())).then(|| Self {
            sequence: raw.sequence.get(),
            set_uuid: raw.set_uuid,
            blocks,
            stamps: raw.stamps.map(Stamp::from),
        })
    }

    /// Stores the header over the older copy.
    ///
    /// # Panics
    /// If the memory is shorter than [`memory_bytes`].
    pub fn store(&self, memory: &mut [u8]) {
        let mut raw = RawHeader {
            magic: MAGIC,
            blocks: self.blocks.into(),
            sequence: self.sequence.into(),
            set_uuid: self.set_uuid,
            stamps: self.stamps.map(RawStamp::from),
            ..RawHeader::new_zeroed()
        };
        raw.checksum = sum(&raw).into();
        let at = HEADERS_AT[(self.sequence % 2) as usize];
        memory[at..at + size_of::<RawHeader>()].copy_from_slice(raw.as_bytes());
    }

    /// Whether only a program that keeps this buffer can have written the superblock.
    pub fn vouches_for(&self, superblock: &Superblock) -> bool {
        self.set_uuid == superblock.set_uuid && stamp::vouch_for(&self.stamps, superblock)
    }

    /// All writes in the buffer, oldest first.
    pub fn writes(&self, memory: &[u8]) -> Vec<BufferedWrite> {
        let mut writes: Vec<_> = (0..self.blocks).filter_map(|block| self.write_in(memory, block)).collect();
        writes.sort_unstable_by_key(|write| write.sequence);
        writes
    }

    /// The write in a block, if there is one.
    pub fn write_in(&self, memory: &[u8], block: u32) -> Option<BufferedWrite> {
        let (raw, _) = RawDescriptor::ref_from_prefix(&memory[descriptor_at(block)..]).ok()?;
        let (sequence, at, bytes) = (raw.sequence.get(), raw.at.get(), raw.bytes.get());
        if sequence == 0 || bytes as usize > BLOCK_BYTES || at.checked_add(bytes.into()).is_none() {
            return None;
        }
        let write = BufferedWrite { sequence, at, bytes, block };
        (raw.checksum.get() == seal(&write, self.data(memory, &write))).then_some(write)
    }

    /// The data of a write.
    pub fn data<'a>(&self, memory: &'a [u8], write: &BufferedWrite) -> &'a [u8] {
        let at = data_at(self.blocks, write.block);
        &memory[at..at + write.bytes as usize]
    }

    /// Stores a write in its block, which must be free, and then its descriptor.
    ///
    /// # Panics
    /// If there is no such block, or `data` is longer than one.
    pub fn put(&self, memory: &mut [u8], write: &BufferedWrite, data: &[u8]) {
        assert!(write.block < self.blocks && data.len() <= BLOCK_BYTES && data.len() == write.bytes as usize);
        let at = data_at(self.blocks, write.block);
        memory[at..at + data.len()].copy_from_slice(data);
        let raw = RawDescriptor {
            sequence: write.sequence.into(),
            at: write.at.into(),
            bytes: write.bytes.into(),
            checksum: seal(write, data).into(),
            reserved: 0.into(),
        };
        let at = descriptor_at(write.block);
        memory[at..at + DESCRIPTOR_BYTES].copy_from_slice(raw.as_bytes());
    }

    /// Frees a block.
    pub fn free(&self, memory: &mut [u8], block: u32) {
        let at = descriptor_at(block);
        memory[at..at + size_of::<U64>()].fill(0);
    }
}

fn sum(raw: &RawHeader) -> u32 {
    let zeroed = RawHeader { checksum: 0.into(), ..raw.clone() };
    crc32c(zeroed.as_bytes())
}

fn seal(write: &BufferedWrite, data: &[u8]) -> u32 {
    let mut named = [0; 2 * size_of::<u64>() + 2 * size_of::<u32>()];
    named[..8].copy_from_slice(&write.sequence.to_le_bytes());
    named[8..16].copy_from_slice(&write.at.to_le_bytes());
    named[16..20].copy_from_slice(&write.bytes.to_le_bytes());
    named[20..].copy_from_slice(&write.block.to_le_bytes());
    crc32c_append(crc32c(&named), data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(blocks: u32, sequence: u64) -> Header {
        Header { sequence, set_uuid: [7; 16], blocks, stamps: [Stamp::default(); STAMPS] }
    }

    fn memory_of(blocks: u32) -> Vec<u8> {
        let mut memory = vec![0; memory_bytes(blocks)];
        header(blocks, 1).store(&mut memory);
        memory
    }

    #[test]
    fn a_header_torn_at_any_byte_leaves_the_one_before_it() {
        let mut memory = memory_of(2);
        header(2, 2).store(&mut memory);
        let before = memory.clone();
        let newest = Header { stamps: [Stamp { events: 9, ..Stamp::default() }; STAMPS], ..header(2, 3) };
        newest.store(&mut memory);
        for cut in 0..=size_of::<RawHeader>() {
            let mut torn = before.clone();
            torn[512..512 + cut].copy_from_slice(&memory[512..512 + cut]);
            let found = Header::find(&torn).expect("a whole header is there");
            let is_stored = torn == memory;
            assert_eq!(found, if is_stored { newest.clone() } else { header(2, 2) }, "torn after {cut} bytes");
        }
    }

    #[test]
    fn a_write_torn_at_any_byte_is_not_there() {
        let (header, before) = (header(2, 1), memory_of(2));
        let write = BufferedWrite { sequence: 5, at: 300, bytes: 100, block: 1 };
        let mut memory = before.clone();
        header.put(&mut memory, &write, &[0x5a; 100]);
        assert_eq!(header.writes(&memory), [write]);
        assert_eq!(header.data(&memory, &write), [0x5a; 100]);
        let at = descriptor_at(1);
        for cut in 0..DESCRIPTOR_BYTES {
            let mut torn = memory.clone();
            torn[at + cut..at + DESCRIPTOR_BYTES].copy_from_slice(&before[at + cut..at + DESCRIPTOR_BYTES]);
            let expected: &[BufferedWrite] = if torn == memory { &[write] } else { &[] };
            assert_eq!(header.writes(&torn), expected, "torn after {cut} bytes");
        }
    }

    #[test]
    fn memory_of_any_length_holds_the_blocks_that_it_is_said_to_hold() {
        for bytes in (0..200_000).step_by(997) {
            let blocks = blocks_in(bytes);
            assert!(blocks == 0 || memory_bytes(blocks) <= bytes, "{blocks} blocks in {bytes} bytes");
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_no_writes_beyond_the_memory(mut memory in prop::collection::vec(any::<u8>(), 0..20_000)) {
            if let Some(header) = Header::find(&memory) {
                prop_assert!(header.writes(&memory).len() <= header.blocks as usize);
            }
            let blocks = blocks_in(memory.len());
            if blocks > 0 {
                header(blocks, 1).store(&mut memory);
                let found = Header::find(&memory).expect("a whole header is there");
                prop_assert!(found.writes(&memory).is_empty());
            }
        }

        #[test]
        fn writes_are_found_oldest_first_until_they_are_freed(
            writes in prop::collection::vec((0..1_000_000_u64, 1..=BLOCK_BYTES), 1..8),
            freed in 0..8_usize,
        ) {
            let header = header(8, 1);
            let mut memory = memory_of(8);
            let mut expected = Vec::new();
            for (number, (at, bytes)) in writes.iter().enumerate() {
                // The last blocks first.
                let block = 7 - number as u32;
                let write = BufferedWrite { sequence: number as u64 + 1, at: *at, bytes: *bytes as u32, block };
                header.put(&mut memory, &write, &vec![number as u8; *bytes]);
                expected.push(write);
            }
            for write in expected.drain(..freed.min(writes.len())) {
                header.free(&mut memory, write.block);
            }
            prop_assert_eq!(header.writes(&memory), expected);
        }
    }
}
