//! Counts a member's blocks whose checksum is unknown, for each page of its table.
//!
//! Holds no pages: the table reports the number of known checksums with each change. A page that was not loaded since
//! assembly is not counted, and its blocks are reported as uncounted.
//!
//! A member of 8 TiB has two million pages. Nearly all rows of them have one count: all are known, or none is counted.
//! So a row of pages with equal counts takes the memory of one.

use format::integrity::{Layout, PAGE_ENTRIES};
use std::ops::Range;

/// The mark of a page that was not counted yet.
const NOT_COUNTED: u16 = u16::MAX;

/// Pages in a row.
const ROW: usize = 256;

#[derive(Debug, Clone)]
enum Row {
    Equal(u16),
    Each(Box<[u16; ROW]>),
}

impl Row {
    fn get(&self, place: usize) -> u16 {
        match self {
            Self::Equal(count) => *count,
            Self::Each(counts) => counts[place],
        }
    }

    fn set(&mut self, place: usize, count: u16) {
        if self.get(place) == count {
            return;
        }
        if let Self::Equal(before) = *self {
            *self = Self::Each(Box::new([before; ROW]));
        }
        let Self::Each(counts) = self else { unreachable!("made so above") };
        counts[place] = count;
        // Rows are counted in order, so most become equal with the last page.
        if place == ROW - 1 && counts.iter().all(|other| *other == count) {
            *self = Self::Equal(count);
        }
    }
}

/// For each page, an upper bound of its used blocks whose checksum is unknown.
#[derive(Debug)]
pub(crate) struct Counts {
    unknown: Vec<Row>,
    pages: usize,
    /// Blocks in use.
    blocks: u64,
    total: u64,
    uncounted: u64,
    /// All pages before this one are counted.
    counted_to: usize,
}

impl Counts {
    /// Counts in which no page is counted.
    pub(super) fn new(layout: &Layout) -> Self {
        let pages = layout.pages() as usize;
        let unknown = vec![Row::Equal(NOT_COUNTED); pages.div_ceil(ROW)];
        Self { unknown, pages, blocks: layout.blocks(), total: 0, uncounted: layout.blocks(), counted_to: 0 }
    }

    fn get(&self, page: usize) -> u16 {
        self.unknown[page / ROW].get(page % ROW)
    }

    /// Limits the used blocks to the first `blocks`.
    pub(super) fn use_blocks(&mut self, blocks: u64) {
        let before = self.blocks;
        self.blocks = blocks.min(before);
        for page in (self.blocks / PAGE_ENTRIES) as usize..self.pages {
            let gone = Self::length(page, before) - self.blocks_in(page);
            match self.get(page) {
                NOT_COUNTED => self.uncounted -= gone,
                unknown => {
                    // The last blocks were probably never written, so they are taken as unknown.
                    let left = u64::from(unknown).saturating_sub(gone);
                    self.total -= u64::from(unknown) - left;
                    self.unknown[page / ROW].set(page % ROW, left as u16);
                }
            }
        }
    }

    fn length(page: usize, blocks: u64) -> u64 {
        blocks.saturating_sub(page as u64 * PAGE_ENTRIES).min(PAGE_ENTRIES)
    }

    fn blocks_in(&self, page: usize) -> u64 {
        Self::length(page, self.blocks)
    }

    fn set(&mut self, page: usize, unknown: u64) {
        match self.get(page) {
            NOT_COUNTED => self.uncounted -= self.blocks_in(page),
            before => self.total -= u64::from(before),
        }
        self.unknown[page / ROW].set(page % ROW, unknown as u16);
        self.total += unknown;
    }

    /// Sets a page's count from the number of its `known` checksums.
    pub(super) fn know(&mut self, page: usize, known: usize) {
        self.set(page, self.blocks_in(page).saturating_sub(known as u64));
    }

    /// Updates a page's count: of the changed entries `before` were known, and `after` are known now.
    pub(super) fn change(&mut self, page: usize, before: usize, after: usize) {
        if self.is_counted(page) {
            let unknown = (u64::from(self.get(page)) + before as u64).saturating_sub(after as u64);
            self.set(page, unknown.min(self.blocks_in(page)));
        }
    }

    pub(super) fn is_counted(&self, page: usize) -> bool {
        self.get(page) != NOT_COUNTED
    }

    /// Blocks with an unknown checksum in the counted pages.
    pub(super) fn unknown(&self) -> u64 {
        self.total
    }

    /// Blocks in the pages that are not counted.
    pub(super) fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// The first run of uncounted pages, at most `most` long.
    pub(super) fn next_uncounted(&mut self, most: usize) -> Option<Range<u64>> {
        let first = (self.counted_to..self.pages).find(|page| !self.is_counted(*page)).unwrap_or(self.pages);
        self.counted_to = first;
        let run = (first..self.pages).take(most).take_while(|page| !self.is_counted(*page)).count();
        if run == 0 {
            return None;
        }
        Some(first as u64..(first + run) as u64)
    }

    /// Whether any of these blocks is in a page with unknown checksums, or in an uncounted page.
    pub(super) fn is_any_unknown(&self, blocks: &Range<u64>) -> bool {
        let end = blocks.end.min(self.blocks);
        blocks.start < end
            && ((blocks.start / PAGE_ENTRIES) as usize..=((end - 1) / PAGE_ENTRIES) as usize)
                .any(|page| self.get(page) > 0)
    }
}
