//! Bytes that are to be written, from several callers: patches that do not
//! overlap, in ascending order. A later one covers an earlier one where both
//! have something to say.
//!
//! Pure; nothing is copied.

use crate::base::buffer::Block;
use smallvec::SmallVec;
use std::ops::Range;

/// A block and where it goes.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    /// First byte of the array.
    pub(crate) at: u64,
    /// Not empty.
    pub(crate) block: Block,
}

impl Patch {
    pub(crate) fn end(&self) -> u64 {
        self.at + self.block.len() as u64
    }

    /// Takes the first `bytes` off; `None` when nothing is left.
    pub(crate) fn take_front(&mut self, bytes: u64) -> Option<Patch> {
        if self.block.is_empty() {
            return None;
        }
        let (length, whole) = (bytes as usize, self.block.len());
        let front = Patch { at: self.at, block: self.block.slice(0..length) };
        *self = Patch { at: self.at + bytes, block: self.block.slice(length..whole) };
        Some(front)
    }

    /// What of it lies in `range`, if anything does.
    pub(crate) fn within(&self, range: Range<u64>) -> Option<Patch> {
        let (start, end) = (self.at.max(range.start), self.end().min(range.end));
        let part = |byte: u64| (byte - self.at) as usize;
        (start < end).then(|| Patch { at: start, block: self.block.slice(part(start)..part(end)) })
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patchwork {
    patches: SmallVec<[Patch; 2]>,
    bytes: u64,
}

impl Patchwork {
    /// Puts `patch` on top.
    pub(crate) fn put(&mut self, patch: Patch) {
        self.bytes += patch.block.len() as u64;
        if self.patches.last().is_none_or(|last| last.end() <= patch.at) {
            return self.patches.push(patch);
        }
        let first = self.patches.partition_point(|earlier| earlier.end() <= patch.at);
        let behind = self.patches.partition_point(|earlier| earlier.at < patch.end());
        let mut left = SmallVec::<[Patch; 3]>::new();
        for covered in &self.patches[first..behind] {
            self.bytes -= covered.block.len() as u64;
            left.extend(covered.within(0..patch.at));
            left.extend(covered.within(patch.end()..u64::MAX));
        }
        self.bytes += left.iter().map(|part| part.block.len() as u64).sum::<u64>();
        let place = left.partition_point(|part| part.at < patch.at);
        left.insert(place, patch);
        self.patches.drain(first..behind);
        self.patches.insert_many(first, left);
    }

    /// Adds what lies behind all that is there.
    pub(crate) fn append(&mut self, next: Patchwork) {
        debug_assert!(self.range().end <= next.range().start || next.patches.is_empty());
        self.bytes += next.bytes;
        self.patches.extend(next.patches);
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// From the first byte to behind the last; `0..0` when there is none.
    pub(crate) fn range(&self) -> Range<u64> {
        match (self.patches.first(), self.patches.last()) {
            (Some(first), Some(last)) => first.at..last.end(),
            _ => 0..0,
        }
    }

    /// The patches, in ascending order.
    pub(crate) fn patches(&self) -> &[Patch] {
        &self.patches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Pool;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_patchwork_holds_what_was_put_last_everywhere(
            writes in proptest::collection::vec((0_u64..300, 1_usize..80), 1..30)
        ) {
            let pool = Pool::new(1 << 20);
            let mut truth = vec![0_u8; 400];
            let mut work = Patchwork::default();
            for (number, &(at, length)) in writes.iter().enumerate() {
                let bytes = vec![number as u8 + 1; length];
                truth[at as usize..at as usize + length].copy_from_slice(&bytes);
                work.put(Patch { at, block: pool.copy_of(&bytes) });
            }
            let mut found = vec![0_u8; 400];
            for pair in work.patches().windows(2) {
                prop_assert!(pair[0].end() <= pair[1].at);
            }
            for patch in work.patches() {
                prop_assert!(!patch.block.is_empty());
                found[patch.at as usize..patch.end() as usize].copy_from_slice(&patch.block);
            }
            prop_assert_eq!(work.bytes(), truth.iter().filter(|&&byte| byte != 0).count() as u64);
            prop_assert!(found == truth);
        }
    }
}
