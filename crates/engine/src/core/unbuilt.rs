//! The parts of an array that were never brought into agreement, because nothing was ever written there: their copies
//! may differ, and their parity may be wrong. An array has such parts only with a lockless bitmap, which names them.
//!
//! A write builds what it touches; what is built leaves this set for good. What was never written has no defined
//! contents. Where a member of it is missing it reads as zeros, and scrubs and recoveries leave it out.
//!
//! Ranges are positions, as [`format::geometry::Geometry::sync_range`] counts them. Nothing here performs I/O. Facts:
//! `drivers/md/md-llbitmap.c`.

use crate::base::range_set::Ranges;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The unbuilt parts of an array; see the module.
#[derive(Debug, Default)]
pub(crate) struct Unbuilt {
    ranges: RefCell<Ranges>,
    /// Whether there are any. Most arrays have none, and requests ask for it.
    any: Cell<bool>,
    /// The unit in which the bitmap names them, in bytes.
    grain: u64,
}

impl Unbuilt {
    /// What a bitmap with chunks of `grain` bytes names.
    pub(crate) fn new(ranges: Ranges, grain: u64) -> Self {
        Self { any: Cell::new(!ranges.is_empty()), ranges: RefCell::new(ranges), grain }
    }

    /// Whether there are any.
    pub(crate) fn is_any(&self) -> bool {
        self.any.get()
    }

    /// Whether any of `range` is unbuilt.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        self.any.get() && self.ranges.borrow().touches(range)
    }

    /// Whether all of `range` is unbuilt.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.any.get() && self.ranges.borrow().covers(range)
    }

    /// The unbuilt parts of `range`.
    pub(crate) fn parts(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        if self.any.get() { self.ranges.borrow().within(range).collect() } else { Vec::new() }
    }

    /// The first part of `range` that is built.
    pub(crate) fn first_built(&self, range: Range<u64>) -> Option<Range<u64>> {
        if self.any.get() { self.ranges.borrow().first_gap(&range) } else { Some(range) }
    }

    /// `range`, widened to whole chunks of the bitmap.
    pub(crate) fn widened(&self, range: &Range<u64>) -> Range<u64> {
        let grain = self.grain.max(1);
        range.start / grain * grain..range.end.next_multiple_of(grain)
    }

    /// Copies or parity agree in all of `range`. Called only after they were written.
    pub(crate) fn built(&self, range: &Range<u64>) {
        if !self.any.get() {
            return;
        }
        let mut ranges = self.ranges.borrow_mut();
        ranges.remove(range);
        self.any.set(!ranges.is_empty());
    }

    /// Bytes of positions that are unbuilt.
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.borrow().bytes()
    }
}
