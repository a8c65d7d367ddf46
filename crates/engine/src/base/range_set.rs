//! A set of byte ranges: ascending, and apart from each other.
//!
//! Pure. Short lists: what it is for is rare.

use std::ops::Range;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Ranges in any order, overlapping or not.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.add(range));
        all
    }

    /// Adds what of `range` is not there yet.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.partition_point(|other| other.end < range.start);
        let behind = self.0.partition_point(|other| other.start <= range.end);
        let touched = &self.0[first..behind];
        let start = touched.first().map_or(range.start, |other| other.start.min(range.start));
        let end = touched.last().map_or(range.end, |other| other.end.max(range.end));
        self.0.splice(first..behind, std::iter::once(start..end));
    }

    /// Takes `range` out.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if !self.touches(range) {
            return;
        }
        let rest = |other: Range<u64>| [other.start..other.end.min(range.start), other.start.max(range.end)..other.end];
        self.0 = self.0.drain(..).flat_map(rest).filter(|part| part.start < part.end).collect();
    }

    /// Whether any byte of `range` is in it.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        let first = self.0.partition_point(|other| other.end <= range.start);
        !range.is_empty() && self.0.get(first).is_some_and(|other| other.start < range.end)
    }

    /// Whether all of `range` is in it.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let first = self.0.partition_point(|other| other.end <= range.start);
        range.is_empty() || self.0.get(first).is_some_and(|other| other.start <= range.start && range.end <= other.end)
    }

    /// How many ranges there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Takes the first one out.
    pub(crate) fn take_first(&mut self) -> Option<Range<u64>> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_set_of_bytes_that_were_added_and_not_removed_since(
            changes in proptest::collection::vec((any::<bool>(), 0_u64..60, 0_u64..20), 0..30)
        ) {
            let mut truth = [false; 80];
            let mut ranges = Ranges::default();
            for (is_added, start, length) in changes {
                let range = start..start + length;
                truth[start as usize..(start + length) as usize].fill(is_added);
                if is_added { ranges.add(range) } else { ranges.remove(&range) }
                for (byte, expected) in (0..).zip(truth) {
                    prop_assert_eq!(ranges.touches(&(byte..byte + 1)), expected);
                }
                let list: Vec<_> = ranges.iter().cloned().collect();
                prop_assert!(list.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", list);
                for start in 0..70 {
                    let all = truth[start..start + 9].iter().all(|there| *there);
                    prop_assert_eq!(ranges.covers(&(start as u64..start as u64 + 9)), all);
                }
                prop_assert_eq!(ranges.bytes(), truth.iter().filter(|there| **there).count() as u64);
            }
        }
    }
}
