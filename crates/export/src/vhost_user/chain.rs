//! The memory of one request: a descriptor chain, walked once.
//!
//! The crate `virtio-queue` walks only chains that come from the available ring. After a reconnection, chains are known
//! by their head index alone. This module never trusts an address, an index or a length. Source: Virtio 1.2, 2.7.

use smallvec::SmallVec;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryError, GuestMemoryMmap};

/// Why a chain is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChainError {
    #[error("descriptor {0} does not exist")]
    Index(u16),
    #[error("a chain of more descriptors than the queue's size")]
    Loop,
    #[error("an indirect table of {0} bytes, or within another")]
    Indirect(u32),
    #[error("more than 4 GiB in one request")]
    TooLong,
    #[error("the client's memory: {0}")]
    Memory(#[from] GuestMemoryError),
}

/// Consecutive pieces of the client's memory.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: SmallVec<[(GuestAddress, u32); 4]>,
    /// The sum of their lengths.
    pub(super) bytes: u32,
}

impl Pieces {
    fn push(&mut self, descriptor: &Descriptor) -> Result<(), ChainError> {
        self.bytes = self.bytes.checked_add(descriptor.len()).ok_or(ChainError::TooLong)?;
        self.pieces.push((descriptor.addr(), descriptor.len()));
        Ok(())
    }

    /// Copies the bytes from offset `from` on into `into`.
    ///
    /// # Panics
    /// When the pieces end before `into` is full.
    pub(super) fn read(&self, memory: &GuestMemoryMmap, from: u32, mut into: &mut [u8]) -> Result<(), ChainError> {
        for (address, length) in self.range(from, into.len()) {
            let (now, rest) = into.split_at_mut(length);
            memory.read_slice(now, address)?;
            into = rest;
        }
        Ok(())
    }

    /// Copies `from` to offset `to`.
    ///
    /// # Panics
    /// When the pieces end before all of `from` is copied.
    pub(super) fn write(&self, memory: &GuestMemoryMmap, to: u32, mut from: &[u8]) -> Result<(), ChainError> {
        for (address, length) in self.range(to, from.len()) {
            let (now, rest) = from.split_at(length);
            memory.write_slice(now, address)?;
            from = rest;
        }
        Ok(())
    }

    /// The parts of the pieces that cover `bytes` from offset `start` on.
    fn range(&self, start: u32, bytes: usize) -> impl Iterator<Item = (GuestAddress, usize)> {
        assert!(start as usize + bytes <= self.bytes as usize, "{bytes} bytes at {start} of {}", self.bytes);
        let (mut skip, mut left) = (start, bytes);
        self.pieces.iter().filter_map(move |(address, length)| {
            let skipped = skip.min(*length);
            skip -= skipped;
            let now = left.min((length - skipped) as usize);
            left -= now;
            // An address that overflows lies in no memory region.
            (now > 0).then(|| (address.checked_add(skipped.into()).unwrap_or(GuestAddress(u64::MAX)), now))
        })
    }
}

/// The memory of a request.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Buffers that the client wrote: the device-readable part.
    pub(super) readable: Pieces,
    /// Buffers for the answer: the device-writable part.
    pub(super) writable: Pieces,
}

impl Chain {
    /// Walks the chain from `head` in the descriptor table at `table`, which has `size` descriptors.
    pub(super) fn walk(
        memory: &GuestMemoryMmap,
        table: GuestAddress,
        size: u16,
        head: u16,
    ) -> Result<Self, ChainError> {
        let mut chain = Self::default();
        let (mut table, mut table_size, mut is_indirect) = (table, size, false);
        let mut index = head;
        // A chain is at most as long as the queue, also through an indirect table.
        for _ in 0..=size {
            if index >= table_size {
                return Err(ChainError::Index(index));
            }
            let at = table.checked_add(u64::from(index) * DESCRIPTOR_BYTES).ok_or(ChainError::Index(index))?;
            let descriptor: Descriptor = memory.read_obj(at)?;
            if descriptor.refers_to_indirect_table() {
                let entries = u64::from(descriptor.len()) / DESCRIPTOR_BYTES;
                let is_whole = u64::from(descriptor.len()).is_multiple_of(DESCRIPTOR_BYTES);
                if is_indirect || !is_whole || entries == 0 || descriptor.has_next() {
                    return Err(ChainError::Indirect(descriptor.len()));
                }
                table_size = u16::try_from(entries).map_err(|_| ChainError::Indirect(descriptor.len()))?;
                (table, is_indirect, index) = (descriptor.addr(), true, 0);
                continue;
            }
            if descriptor.is_write_only() { &mut chain.writable } else { &mut chain.readable }.push(&descriptor)?;
            if !descriptor.has_next() {
                return Ok(chain);
            }
            index = descriptor.next();
        }
        Err(ChainError::Loop)
    }
}

/// Size of a descriptor, in bytes.
const DESCRIPTOR_BYTES: u64 = size_of::<Descriptor>() as u64;

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: GuestAddress = GuestAddress(0x1000);
    const OTHER: u64 = 0x2000;
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;

    /// Descriptors of the main table and of an indirect one: address, length, flags, next.
    type Table = &'static [(u64, u32, u16, u16)];

    fn walk(main: Table, other: Table, size: u16) -> Result<(u32, u32), String> {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10000)]).expect("memory");
        for (table, entries) in [(TABLE.0, main), (OTHER, other)] {
            for (index, (address, length, flags, next)) in entries.iter().enumerate() {
                let descriptor = Descriptor::new(*address, *length, *flags, *next);
                memory.write_obj(descriptor, GuestAddress(table + index as u64 * DESCRIPTOR_BYTES)).expect("memory");
            }
        }
        let chain = Chain::walk(&memory, TABLE, size, 0).map_err(|error| error.to_string())?;
        Ok((chain.readable.bytes, chain.writable.bytes))
    }

    #[test]
    fn chains_are_walked_through_indirect_tables_too() {
        let table: [(Table, Table, (u32, u32)); 4] = [
            (&[(0, 16, 0, 0)], &[], (16, 0)),
            (&[(0, 16, NEXT, 2), (9, 9, 0, 0), (0x100, 512, NEXT | WRITE, 3), (0x300, 1, WRITE, 0)], &[], (16, 513)),
            (&[(OTHER, 48, INDIRECT, 0)], &[(0, 16, NEXT, 1), (0, 8, NEXT, 2), (0, 1, WRITE, 9)], (24, 1)),
            (&[(0, 16, NEXT, 1), (OTHER, 16, INDIRECT, 0)], &[(0, 1, WRITE, 0)], (16, 1)),
        ];
        for (main, other, expected) in table {
            assert_eq!(walk(main, other, 4), Ok(expected), "{main:?} {other:?}");
        }
    }

    #[test]
    fn chains_that_make_no_sense_are_refused() {
        let table: [(Table, Table, &str); 8] = [
            (&[(0, 16, NEXT, 0)], &[], "more descriptors"),
            (&[(0, 16, NEXT, 1), (0, 16, NEXT, 0)], &[], "more descriptors"),
            (&[(0, 16, NEXT, 4)], &[], "descriptor 4"),
            (&[(OTHER, 0, INDIRECT, 0)], &[], "indirect table of 0"),
            (&[(OTHER, 17, INDIRECT, 0)], &[], "indirect table of 17"),
            (&[(OTHER, 16, INDIRECT, 0)], &[(OTHER, 16, INDIRECT, 0)], "indirect table of 16"),
            (&[(OTHER, 16, INDIRECT, 0)], &[(0, 1, NEXT, 1)], "descriptor 1"),
            (&[(u64::MAX - 3, 16, INDIRECT, 0)], &[], "memory"),
        ];
        for (main, other, expected) in table {
            let error = walk(main, other, 4).expect_err(expected);
            assert!(error.contains(expected), "{error}, not {expected}");
        }
        assert!(walk(&[(0, u32::MAX, NEXT, 1), (0, 2, 0, 0)], &[], 4).expect_err("too long").contains("4 GiB"));
    }

    #[test]
    fn pieces_are_read_and_written_across_their_boundaries() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x1000)]).expect("memory");
        let mut pieces = Pieces::default();
        for (address, length) in [(100, 3), (50, 0), (200, 1), (10, 4)] {
            pieces.push(&Descriptor::new(address, length, 0, 0)).expect("short");
        }
        pieces.write(&memory, 1, b"abcdefg").expect("there is memory");
        for (address, expected) in [(100, &b"\0ab"[..]), (200, b"c"), (10, b"defg"), (50, b"\0\0")] {
            let mut got = vec![0; expected.len()];
            memory.read_slice(&mut got, GuestAddress(address)).expect("there is memory");
            assert_eq!(got, expected, "at {address}");
        }
        let mut got = [0; 3];
        pieces.read(&memory, 2, &mut got).expect("there is memory");
        assert_eq!(&got, b"bcd");
        pieces.push(&Descriptor::new(0xfff, 2, 0, 0)).expect("short");
        assert!(pieces.write(&memory, 8, b"xy").is_err(), "the memory ends there");
        pieces.push(&Descriptor::new(u64::MAX, 9, 0, 0)).expect("short");
        assert!(pieces.write(&memory, 12, b"xy").is_err(), "so do addresses");
    }
}
