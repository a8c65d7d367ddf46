//! Places of a member whose error was counted already, so that each counts once however often it is looked at: a read that
//! fails is tried again in parts, by a sweep and by healing.
//!
//! Pure. A place counts anew after it was written. Places are forgotten where there are very many of them.

use crate::base::range_set::Ranges;
use std::cell::RefCell;
use std::ops::Range;

/// Places that are kept apart, at the most: a few MiB of memory for a member that is wrong all over.
const PLACES_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Counted(RefCell<Ranges>);

impl Counted {
    /// True when a part of `range` was not counted yet; it is from here on.
    pub(crate) fn add(&self, range: Range<u64>) -> bool {
        let mut places = self.0.borrow_mut();
        if places.covers(&range) {
            return false;
        }
        if places.count() >= PLACES_MAX {
            *places = Ranges::default();
        }
        places.add(range);
        true
    }

    /// What was there is not any more.
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
    fn a_place_counts_once_until_it_is_written() {
        let counted = Counted::default();
        assert!(counted.add(0..4096));
        assert!(!counted.add(0..4096) && !counted.add(512..1024));
        assert!(counted.add(2048..8192), "a part of it is new");
        counted.written(&(1024..2048));
        assert!(counted.add(0..4096) && !counted.add(1024..2048));
    }
}
