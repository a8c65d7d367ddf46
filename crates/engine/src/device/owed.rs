//! Owed data: writes that a member had no space for, kept in memory until it has.
//!
//! A full sparse file or thin device refuses a write. Such a member has not failed: the data that it holds is right.
//! But the other members may have their parts of the write. Until this member has its own, copies differ and parity
//! is wrong. So the member *owes* the bytes, and they are kept here as an overlay:
//!
//! * Reads of the member return the owed bytes. So copies and parity agree, whichever member fails next.
//! * The write itself fails with [`ArrayErrorKind::NoSpace`]. A later successful write of the same range replaces the
//!   owed bytes.
//!
//! This module holds the overlay alone. [`crate::device::transfer::notes`] fills it, [`crate::control::owed`] retries
//! the writes, and [`crate::data`] limits their memory. Levels without redundancy owe nothing: each of their bytes has
//! one position, and a failed write may be there in part. Nor does anything with a log, which forgets a write once it has
//! ended: what is owed must not outlive its entry.
//!
//! [`ArrayErrorKind::NoSpace`]: crate::ArrayErrorKind::NoSpace

use crate::base::buffer::Block;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

/// The approximate overhead of one piece.
const PIECE_BYTES: u64 = 128;

/// The owed contents of a range: data, or a number of zeros.
#[derive(Clone)]
pub(crate) enum Content {
    Bytes(Block),
    Zeros(u64),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(block) => block.len() as u64,
            Self::Zeros(bytes) => *bytes,
        }
    }

    /// A part of the contents; `range` counts from their start.
    fn part(&self, range: Range<u64>) -> Self {
        match self {
            Self::Bytes(block) => Self::Bytes(block.slice(range.start as usize..range.end as usize)),
            Self::Zeros(_) => Self::Zeros(range.end - range.start),
        }
    }

    fn cost(&self) -> u64 {
        match self {
            Self::Bytes(block) => PIECE_BYTES + block.len() as u64,
            Self::Zeros(_) => PIECE_BYTES,
        }
    }
}

/// The data that one member owes: pieces that do not overlap, by the component byte at which each begins.
#[derive(Default)]
pub(crate) struct Owed {
    pieces: RefCell<BTreeMap<u64, Content>>,
    cost: Cell<u64>,
}

impl Owed {
    pub(crate) fn is_empty(&self) -> bool {
        self.cost.get() == 0
    }

    /// The number of owed bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.borrow().values().map(Content::len).sum()
    }

    /// The memory used.
    pub(crate) fn cost(&self) -> u64 {
        self.cost.get()
    }

    /// Adds `content` at `at`; it replaces what was owed there.
    pub(crate) fn put(&self, at: u64, content: Content) {
        if content.len() == 0 {
            return;
        }
        self.remove(&(at..at + content.len()));
        self.cost.set(self.cost.get() + content.cost());
        self.pieces.borrow_mut().insert(at, content);
    }

    /// Removes `range`; true when any of it was owed.
    pub(crate) fn remove(&self, range: &Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let mut pieces = self.pieces.borrow_mut();
        let touched: Vec<u64> = touched(&pieces, range).map(|(at, _)| at).collect();
        for at in &touched {
            let content = pieces.remove(at).expect("`touched` lists existing pieces");
            self.cost.set(self.cost.get() - content.cost());
            let (start, end) = (*at, at + content.len());
            for rest in [start..range.start.min(end), range.end.max(start)..end] {
                if rest.start < rest.end {
                    let part = content.part(rest.start - start..rest.end - start);
                    self.cost.set(self.cost.get() + part.cost());
                    pieces.insert(rest.start, part);
                }
            }
        }
        !touched.is_empty()
    }

    pub(crate) fn clear(&self) {
        self.pieces.take();
        self.cost.set(0);
    }

    /// Whether any byte of `range` is owed.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        !self.is_empty() && touched(&self.pieces.borrow(), range).next().is_some()
    }

    /// Whether every byte of `range` is owed.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.parts(range).iter().map(|(_, content)| content.len()).sum::<u64>() == range.end - range.start
    }

    /// The owed parts of `range`.
    pub(crate) fn parts(&self, range: &Range<u64>) -> Vec<(u64, Content)> {
        let pieces = self.pieces.borrow();
        let part = |(at, content): (u64, &Content)| {
            let (start, end) = (at.max(range.start), (at + content.len()).min(range.end));
            (start, content.part(start - at..end - at))
        };
        touched(&pieces, range).map(part).collect()
    }

    /// The first owed range from `at` on.
    pub(crate) fn next(&self, at: u64) -> Option<Range<u64>> {
        let pieces = self.pieces.borrow();
        let (start, content) = touched(&pieces, &(at..u64::MAX)).next()?;
        Some(start.max(at)..start + content.len())
    }

    /// Overlays the owed bytes on data read at `at`.
    pub(super) fn cover(&self, at: u64, read: &mut [u8]) {
        for (start, content) in self.parts(&(at..at + read.len() as u64)) {
            let place = (start - at) as usize..(start - at + content.len()) as usize;
            match content {
                Content::Bytes(block) => read[place].copy_from_slice(&block),
                Content::Zeros(_) => read[place].fill(0),
            }
        }
    }
}

/// The pieces that overlap `range`, in ascending order.
fn touched<'a>(
    pieces: &'a BTreeMap<u64, Content>,
    range: &Range<u64>,
) -> impl Iterator<Item = (u64, &'a Content)> + use<'a> {
    let (start, end) = (range.start, range.end);
    let before = pieces.range(..start).next_back().filter(|(at, content)| *at + content.len() > start);
    before.into_iter().chain(pieces.range(start..end.max(start))).map(|(at, content)| (*at, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::buffer::Pool;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_overlay_holds_the_last_contents_put_and_not_removed_since(
            changes in proptest::collection::vec((0_u8..3, 0_u64..60, 0_u64..20), 0..30)
        ) {
            let pool = Pool::new(1 << 20);
            let owed = Owed::default();
            let mut truth: [Option<u8>; 80] = [None; 80];
            for (number, (kind, start, length)) in changes.into_iter().enumerate() {
                let range = start..start + length;
                let places = start as usize..(start + length) as usize;
                let value = number as u8 + 1;
                match kind {
                    0 => {
                        owed.put(start, Content::Bytes(pool.copy_of(&vec![value; length as usize])));
                        truth[places].fill(Some(value));
                    }
                    1 => {
                        owed.put(start, Content::Zeros(length));
                        truth[places].fill(Some(0));
                    }
                    _ => {
                        let was_owed = truth[places.clone()].iter().any(Option::is_some);
                        prop_assert_eq!(owed.remove(&range), was_owed);
                        truth[places].fill(None);
                    }
                }
                let mut read = [0xee; 80];
                owed.cover(0, &mut read);
                for (byte, expected) in truth.iter().enumerate() {
                    prop_assert_eq!(read[byte], expected.unwrap_or(0xee));
                    prop_assert_eq!(owed.covers(&(byte as u64..byte as u64 + 1)), expected.is_some());
                }
                prop_assert_eq!(owed.is_empty(), truth.iter().all(Option::is_none));
                let first = truth.iter().position(Option::is_some).map(|at| at as u64);
                prop_assert_eq!(owed.next(0).map(|range| range.start), first);
            }
        }
    }
}
