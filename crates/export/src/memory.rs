//! A volume in memory: for tests, examples, and benches of the interfaces. It never stores anything on disk.
//!
//! It tracks allocation page by page, so that clients see holes.

use crate::volume::{Durability, Extent, Volume, VolumeError, VolumeErrorKind};
use engine::{Block, Buffer, Pool};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// Granularity of [`Volume::allocation`].
const PAGE_BYTES: u64 = 4096;

/// A volume in memory. Clones share the contents.
#[derive(Clone, Debug)]
pub struct MemoryVolume {
    contents: Rc<RefCell<Contents>>,
    pool: Pool,
    read_only: bool,
}

#[derive(Debug)]
struct Contents {
    bytes: Vec<u8>,
    /// Whether each page was written since its last discard.
    allocated: Vec<bool>,
}

impl MemoryVolume {
    /// A volume of `bytes` zeroes. Transfer buffers come from `pool`.
    pub fn new(bytes: usize, pool: Pool) -> Self {
        let pages = bytes.div_ceil(PAGE_BYTES as usize);
        let contents = Contents { bytes: vec![0; bytes], allocated: vec![false; pages] };
        Self { contents: Rc::new(RefCell::new(contents)), pool, read_only: false }
    }

    /// The same volume through a handle that refuses writes.
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// A copy of the whole contents.
    pub fn snapshot(&self) -> Vec<u8> {
        self.contents.borrow().bytes.clone()
    }

    /// Modifies a range, and marks its pages allocated.
    fn change(&self, at: u64, bytes: u64, change: impl FnOnce(&mut [u8])) -> Result<(), VolumeError> {
        if self.read_only {
            return Err(VolumeError::new(VolumeErrorKind::ReadOnly, "this handle of the memory volume is read-only"));
        }
        let mut contents = self.contents.borrow_mut();
        let range = contents.range(at, bytes)?;
        change(&mut contents.bytes[range]);
        for page in at / PAGE_BYTES..(at + bytes).div_ceil(PAGE_BYTES) {
            contents.allocated[page as usize] = true;
        }
        Ok(())
    }

    /// Deallocates the whole pages within a range, which then read as zeroes.
    fn punch(&self, at: u64, bytes: u64) {
        let mut contents = self.contents.borrow_mut();
        for page in at.div_ceil(PAGE_BYTES)..(at + bytes) / PAGE_BYTES {
            let start = (page * PAGE_BYTES) as usize;
            contents.bytes[start..start + PAGE_BYTES as usize].fill(0);
            contents.allocated[page as usize] = false;
        }
    }
}

impl Contents {
    fn range(&self, at: u64, bytes: u64) -> Result<Range<usize>, VolumeError> {
        let size = self.bytes.len();
        let end = at.checked_add(bytes).filter(|end| *end <= size as u64).ok_or_else(|| {
            let text = format!("{bytes} bytes at byte {at} are not within the memory volume of {size}");
            VolumeError::new(VolumeErrorKind::OutOfRange, text)
        })?;
        Ok(at as usize..end as usize)
    }
}

impl Volume for MemoryVolume {
    fn bytes(&self) -> u64 {
        self.contents.borrow().bytes.len() as u64
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn preferred_block_bytes(&self) -> u32 {
        PAGE_BYTES as u32
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn read(&self, at: u64, mut into: Buffer) -> Result<Buffer, VolumeError> {
        let contents = self.contents.borrow();
        let range = contents.range(at, into.len() as u64)?;
        into.copy_from_slice(&contents.bytes[range]);
        Ok(into)
    }

    async fn write(&self, at: u64, from: Block, _durability: Durability) -> Result<(), VolumeError> {
        self.change(at, from.len() as u64, |bytes| bytes.copy_from_slice(&from))
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn discard(&self, at: u64, bytes: u64) -> Result<(), VolumeError> {
        self.contents.borrow().range(at, bytes)?;
        self.punch(at, bytes);
        Ok(())
    }

    async fn write_zeroes(
        &self,
        at: u64,
        bytes: u64,
        may_discard: bool,
        _durability: Durability,
    ) -> Result<(), VolumeError> {
        self.change(at, bytes, |range| range.fill(0))?;
        if may_discard {
            self.punch(at, bytes);
        }
        Ok(())
    }

    async fn allocation(&self, at: u64, bytes: u64) -> Result<Vec<Extent>, VolumeError> {
        let contents = self.contents.borrow();
        contents.range(at, bytes)?;
        let mut extents: Vec<Extent> = Vec::new();
        let mut start = at;
        while start < at + bytes {
            let page = start / PAGE_BYTES;
            let end = ((page + 1) * PAGE_BYTES).min(at + bytes);
            let hole = !contents.allocated[page as usize];
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.bytes += end - start,
                _ => extents.push(Extent { bytes: end - start, hole, zero: hole }),
            }
            start = end;
        }
        Ok(extents)
    }
}
