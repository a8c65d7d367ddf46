//! A member in memory: the fastest possible member, for measurements and tests. It never stores anything on disk.
//!
//! Each operation completes when it is first polled, with one copy, which computes checksums where they are wanted.
//! Pages never written take no memory, and a discard frees them. Source: mmap(2).

use crate::parts::range_within;
use crate::system::memory;
use engine::{Block, Buffer, Limits, Member, MemberError, Operation, SUMMED_BYTES};
use format::units::MemberByte;
use rustix::mm::ProtFlags;
use std::cell::{Cell, Ref, RefCell};
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// A transfer costs little more than its bytes. Longer transfers of several members at a time would evict data from the
/// processor's cache before its use.
const LONGEST_BYTES: u32 = 128 << 10;

/// A member in anonymous memory. Its contents end with it.
pub struct MemoryMember {
    map: Map,
    limits: Limits,
    /// Borrowed while a caller looks at the map's bytes ([`Member::lend`]); the member changes nothing then.
    lent: RefCell<()>,
}

impl MemoryMember {
    /// A member of `bytes` zeros.
    ///
    /// # Errors
    /// When the system has no such range of addresses.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let limits = Limits {
            bytes,
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            optimal_bytes: 0,
            longest_bytes: LONGEST_BYTES,
            synchronous: true,
            discards: true,
            discards_to_zeros: true,
            volatile_cache: false,
        };
        Ok(Self { map: Map::new(length)?, limits, lent: RefCell::default() })
    }

    /// The range in memory, if it lies within the member.
    fn range(&self, operation: Operation, at: MemberByte, bytes: u64) -> Result<Range<usize>, MemberError> {
        range_within(&self.limits, operation, at, bytes).map(|range| range.start as usize..range.end as usize)
    }

    fn copy_out(&self, at: MemberByte, into: &mut Buffer) -> Result<(), MemberError> {
        let range = self.range(Operation::Read, at, into.len() as u64)?;
        self.map.fill(range, into);
        Ok(())
    }

    fn copy_in(&self, at: MemberByte, from: &Block) -> Result<(), MemberError> {
        let range = self.range(Operation::Write, at, from.len() as u64)?;
        self.to_change().write(range, from);
        Ok(())
    }

    /// The memory, for a change.
    ///
    /// # Panics
    /// When a caller holds a borrow of it.
    fn to_change(&self) -> &Map {
        drop(self.lent.borrow_mut()); // no borrow can start before this thread has done the change
        &self.map
    }
}

impl Member for MemoryMember {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    async fn read(&self, at: MemberByte, mut into: Buffer) -> (Result<(), MemberError>, Buffer) {
        (self.copy_out(at, &mut into), into)
    }

    fn read_now(&self, at: MemberByte, into: &mut Buffer) -> Option<Result<(), MemberError>> {
        Some(self.copy_out(at, into))
    }

    fn lend(&self, at: MemberByte, bytes: u64) -> Option<Result<Ref<'_, [u8]>, MemberError>> {
        Some(self.range(Operation::Read, at, bytes).map(|range| {
            let bytes_at = std::ptr::slice_from_raw_parts(self.map.address(&range), range.len());
            // SAFETY: within the mapping, which lives as long as this does; and nothing is changed while `lent` is
            // borrowed.
            Ref::map(self.lent.borrow(), |()| unsafe { &*bytes_at })
        }))
    }

    async fn read_vectored(&self, at: MemberByte, mut into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        let bytes = into.iter().map(|part| part.len() as u64).sum();
        let copied = self.range(Operation::Read, at, bytes).map(|Range { mut start, .. }| {
            for part in &mut into {
                let end = start + part.len();
                self.map.fill(start..end, part);
                start = end;
            }
        });
        (copied, into)
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        self.copy_in(at, &from)
    }

    fn write_now(&self, at: MemberByte, from: &Block) -> Option<Result<(), MemberError>> {
        Some(self.copy_in(at, from))
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        let bytes = from.iter().map(|part| part.len() as u64).sum();
        let Range { mut start, .. } = self.range(Operation::Write, at, bytes)?;
        for part in &from {
            let end = start + part.len();
            self.to_change().write(start..end, part);
            start = end;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), MemberError> {
        Ok(())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        self.range(Operation::Discard, at, bytes).map(|range| self.to_change().zero(range))
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        self.range(Operation::WriteZeroes, at, bytes).map(|range| self.to_change().zero(range))
    }
}

impl fmt::Debug for MemoryMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryMember").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// An anonymous mapping. Its bytes are copied in and out, or borrowed while the member changes nothing.
struct Map {
    base: NonNull<u8>,
    bytes: usize,
}

impl Map {
    fn new(bytes: usize) -> io::Result<Self> {
        let length = bytes.max(1);
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, access, memory::ANONYMOUS)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// The address of a range, which must lie within the mapping.
    fn address(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} in a map of {}", self.bytes);
        // SAFETY: just checked to lie within the mapping.
        unsafe { self.base.as_ptr().add(range.start) }
    }

    /// Reads, and computes the checksums where they are wanted.
    fn fill(&self, range: Range<usize>, into: &mut Buffer) {
        match into.wants_sums() {
            true => into.fill_summed(|at, part| self.read_summed(range.start + at, part)),
            false => self.read(range, into),
        }
    }

    fn read_summed(&self, at: usize, into: &mut [u8; SUMMED_BYTES]) -> u32 {
        let from = self.address(&(at..at + SUMMED_BYTES)).cast::<[Cell<u8>; SUMMED_BYTES]>();
        // SAFETY: within the mapping; every other reference to it is shared.
        parity::copy_with_crc32c(unsafe { &*from }, into)
    }

    fn read(&self, range: Range<usize>, into: &mut [u8]) {
        assert_eq!(range.len(), into.len());
        // SAFETY: source and destination have this length, and no exclusive reference ever points into the mapping, so
        // they do not overlap.
        unsafe { self.address(&range).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }

    fn write(&self, range: Range<usize>, from: &[u8]) {
        assert_eq!(range.len(), from.len());
        // SAFETY: as in `read`, in the other direction; no borrow exists now.
        unsafe { self.address(&range).copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }

    /// Whole pages are returned to the system, which provides zeros at the next access. The rest is overwritten.
    fn zero(&self, range: Range<usize>) {
        let page = rustix::param::page_size(); // the system frees no less
        let pages = range.start.next_multiple_of(page)..range.end / page * page;
        if pages.start >= pages.end {
            return self.fill_zero(range);
        }
        self.fill_zero(range.start..pages.start);
        self.fill_zero(pages.end..range.end);
        // SAFETY: whole pages of our private mapping, without references to them.
        if !unsafe { memory::renew(self.address(&pages), pages.len()) } {
            self.fill_zero(pages);
        }
    }

    fn fill_zero(&self, range: Range<usize>) {
        // SAFETY: within the mapping, as `address` checks.
        unsafe { self.address(&range).write_bytes(0, range.len()) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the mapped range; no reference into it exists. A failure would mean a range that is not ours,
        // which cannot be.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes.max(1)) };
        debug_assert!(unmapped.is_ok());
    }
}
