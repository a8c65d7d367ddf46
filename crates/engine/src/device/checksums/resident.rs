//! The pages of a table that are in memory, by their numbers. They perform no I/O, and know neither regions nor which pages
//! have to stay: [`super::entries`] does.

use format::integrity::{Checksum, PAGE_ENTRIES, Page};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// The resident pages.
pub(super) type Residents = HashMap<u64, Resident, BuildHasherDefault<PageHasher>>;

/// A set of small numbers, one bit each.
#[derive(Debug)]
pub(super) struct BitSet(Vec<u64>);

impl BitSet {
    pub(super) fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(super) fn set(&mut self, place: usize, is_in: bool) {
        let bit = 1 << (place % 64);
        match is_in {
            true => self.0[place / 64] |= bit,
            false => self.0[place / 64] &= !bit,
        }
    }

    pub(super) fn contains(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }
}

/// A page of the table in memory.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) page: Page,
    /// The positions that are newer than the member's copy, if any.
    pub(super) changed: Option<BitSet>,
    /// Used since the eviction hand passed.
    pub(super) used: bool,
}

impl Resident {
    /// A page as the member has it.
    pub(super) fn new(page: Page) -> Self {
        Self { page, changed: None, used: true }
    }

    /// Sets the checksums of a range of positions, in order.
    pub(super) fn put(&mut self, range: Range<usize>, mut next: impl FnMut() -> Option<Checksum>) {
        self.used = true;
        let changed = self.changed.get_or_insert_with(|| BitSet::none(PAGE_ENTRIES as usize));
        for (place, entry) in range.clone().zip(&mut self.page.entries_mut()[range]) {
            changed.set(place, true);
            *entry = next();
        }
    }
}

/// Hashes the number of a page: by a product, of which the bits that depend on all of the number come first. The
/// standard hasher costs more than the rest of a look-up.
#[derive(Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
