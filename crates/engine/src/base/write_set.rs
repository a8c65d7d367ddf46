//! Bytes to be written, from several callers: extents that do not overlap, in
//! ascending order. Where two writes overlap, the later one replaces the earlier.
//!
//! Pure; copies no data.

use crate::base::buffer::Block;
use smallvec::SmallVec;
use std::ops::Range;

/// A block and its position.
#[derive(Debug, Clone)]
pub(crate) struct WriteExtent {
    /// First byte of the array.
    pub(crate) at: u64,
    /// Not empty.
    pub(crate) block: Block,
}

impl WriteExtent {
    pub(crate) fn end(&self) -> u64 {
        self.at + self.block.len() as u64
    }

    /// Splits off the first `bytes`; `None` when the extent is empty.
    pub(crate) fn take_front(&mut self, bytes: u64) -> Option<WriteExtent> {
        if self.block.is_empty() {
            return None;
        }
        let (length, whole) = (bytes as usize, self.block.len());
        let front = WriteExtent { at: self.at, block: self.block.slice(0..length) };
        *self = WriteExtent { at: self.at + bytes, block: self.block.slice(length..whole) };
        Some(front)
    }

    /// The part of the extent that lies in `range`, if any.
    pub(crate) fn within(&self, range: Range<u64>) -> Option<WriteExtent> {
        let (start, end) = (self.at.max(range.start), self.end().min(range.end));
        let part = |byte: u64| (byte - self.at) as usize;
        (start < end).then(|| WriteExtent { at: start, block: self.block.slice(part(start)..part(end)) })
    }
}

/// A set of extents; see the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteSet {
    extents: SmallVec<[WriteExtent; 2]>,
    bytes: u64,
}

impl WriteSet {
    /// Adds `extent`, which replaces the bytes that it overlaps.
    pub(crate) fn put(&mut self, extent: WriteExtent) {
        self.bytes += extent.block.len() as u64;
        if self.extents.last().is_none_or(|last| last.end() <= extent.at) {
            return self.extents.push(extent);
        }
        let first = self.extents.partition_point(|earlier| earlier.end() <= extent.at);
        let behind = self.extents.partition_point(|earlier| earlier.at < extent.end());
        let mut left = SmallVec::<[WriteExtent; 3]>::new();
        for covered in &self.extents[first..behind] {
            self.bytes -= covered.block.len() as u64;
            left.extend(covered.within(0..extent.at));
            left.extend(covered.within(extent.end()..u64::MAX));
        }
        self.bytes += left.iter().map(|part| part.block.len() as u64).sum::<u64>();
        let place = left.partition_point(|part| part.at < extent.at);
        left.insert(place, extent);
        self.extents.drain(first..behind);
        self.extents.insert_many(first, left);
    }

    /// Appends `next`, all of which lies behind this set.
    pub(crate) fn append(&mut self, next: WriteSet) {
        debug_assert!(self.range().end <= next.range().start || next.extents.is_empty());
        self.bytes += next.bytes;
        self.extents.extend(next.extents);
    }

    /// The number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From the first byte to behind the last; `0..0` when the set is empty.
    pub(crate) fn range(&self) -> Range<u64> {
        match (self.extents.first(), self.extents.last()) {
            (Some(first), Some(last)) => first.at..last.end(),
            _ => 0..0,
        }
    }

    /// The extents, in ascending order.
    pub(crate) fn extents(&self) -> &[WriteExtent] {
        &self.extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Pool;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_write_set_holds_the_last_write_of_each_byte(
            writes in proptest::collection::vec((0_u64..300, 1_usize..80), 1..30)
        ) {
            let pool = Pool::new(1 << 20);
            let mut truth = vec![0_u8; 400];
            let mut work = WriteSet::default();
            for (number, &(at, length)) in writes.iter().enumerate() {
                let bytes = vec![number as u8 + 1; length];
                truth[at as usize..at as usize + length].copy_from_slice(&bytes);
                work.put(WriteExtent { at, block: pool.copy_of(&bytes) });
            }
            let mut found = vec![0_u8; 400];
            for pair in work.extents().windows(2) {
                prop_assert!(pair[0].end() <= pair[1].at);
            }
            for extent in work.extents() {
                prop_assert!(!extent.block.is_empty());
                found[extent.at as usize..extent.end() as usize].copy_from_slice(&extent.block);
            }
            prop_assert_eq!(work.bytes(), truth.iter().filter(|&&byte| byte != 0).count() as u64);
            prop_assert!(found == truth);
        }
    }
}
