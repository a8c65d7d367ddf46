//! A set of bytes, kept as ranges in ascending order that neither overlap nor touch.
//!
//! Pure. The lists are short, because the sets hold rare things such as bad blocks.

use std::ops::Range;

/// A set of bytes; see the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// The union of `ranges`, which may overlap and come in any order.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.add(range));
        all
    }

    /// Adds all of `range`.
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

    /// Removes all of `range`.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if !self.touches(range) {
            return;
        }
        let rest = |other: Range<u64>| [other.start..other.end.min(range.start), other.start.max(range.end)..other.end];
        self.0 = self.0.drain(..).flat_map(rest).filter(|part| part.start < part.end).collect();
    }

    /// Whether the set contains any byte of `range`.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        let first = self.0.partition_point(|other| other.end <= range.start);
        !range.is_empty() && self.0.get(first).is_some_and(|other| other.start < range.end)
    }

    /// Whether the set contains all of `range`.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let first = self.0.partition_point(|other| other.end <= range.start);
        range.is_empty() || self.0.get(first).is_some_and(|other| other.start <= range.start && range.end <= other.end)
    }

    /// The parts of the set in `range`, in ascending order.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = *range;
        let first = self.0.partition_point(|other| other.end <= start);
        let parts = self.0[first..].iter().take_while(move |other| other.start < end);
        parts.map(move |other| other.start.max(start)..other.end.min(end))
    }

    /// The first part of `range` that is not in the set.
    pub(crate) fn first_gap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let mut rest = range.clone();
        for part in self.within(range) {
            if rest.start < part.start {
                rest.end = part.start;
                break;
            }
            rest.start = part.end;
        }
        (!rest.is_empty()).then_some(rest)
    }

    /// The number of ranges.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// Removes the first range and returns it.
    pub(crate) fn take_first(&mut self) -> Option<Range<u64>> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    /// The number of bytes.
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
        fn it_holds_the_bytes_that_were_added_and_not_removed_since(
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
                    let part = start as u64..start as u64 + 9;
                    let within: u64 = ranges.within(&part).map(|part| part.end - part.start).sum();
                    prop_assert_eq!(within, truth[start..start + 9].iter().filter(|there| **there).count() as u64);
                    let gap = (start..start + 9).find(|byte| !truth[*byte]).map(|first| {
                        first as u64..(first..start + 9).find(|byte| truth[*byte]).unwrap_or(start + 9) as u64
                    });
                    prop_assert_eq!(ranges.first_gap(&part), gap);
                }
                prop_assert_eq!(ranges.bytes(), truth.iter().filter(|there| **there).count() as u64);
            }
        }
    }
}
