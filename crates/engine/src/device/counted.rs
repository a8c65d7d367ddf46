//! Ranges of a member whose error has been counted. Each error counts once, although sweeps and read repair retry a
//! failed read in parts.
//!
//! Pure. A range counts again after it was written. The list is cleared when it grows too long.

use crate::base::range_set::Ranges;
use std::cell::RefCell;
use std::ops::Range;

/// The most ranges kept: a few MiB of memory for a member with errors everywhere.
const RANGES_MAX: usize = 1 << 16;

/// The counted ranges; see the module.
#[derive(Debug, Default)]
pub(crate) struct Counted(RefCell<Ranges>);

impl Counted {
    /// Marks `range` as counted; true when a part of it was not counted before.
    pub(crate) fn add(&self, range: Range<u64>) -> bool {
        let mut ranges = self.0.borrow_mut();
        if ranges.covers(&range) {
            return false;
        }
        if ranges.count() >= RANGES_MAX {
            *ranges = Ranges::default();
        }
        ranges.add(range);
        true
    }

    /// After a write of `range`: its errors count again.
    pub(crate) fn written(&self, range: &Range<u64>) {
        if !self.0.borrow().is_empty() {
            self.0.borrow_mut().remove(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_counts_once_until_it_is_written() {
        let counted = Counted::default();
        assert!(counted.add(0..4096));
        assert!(!counted.add(0..4096) && !counted.add(512..1024));
        assert!(counted.add(2048..8192), "a part of it is new");
        counted.written(&(1024..2048));
        assert!(counted.add(0..4096) && !counted.add(1024..2048));
    }
}
