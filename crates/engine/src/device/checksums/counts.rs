//! How many blocks of a member have no checksum that is known, by the pages of its table.
//!
//! Knows no page: whoever changes one says what is known of it. A page that nobody has looked at since the array was started is
//! not counted, and whoever asks is told of how many blocks that is so.

use format::integrity::{Layout, PAGE_ENTRIES};
use std::ops::Range;

/// A page that was not counted yet.
const NOT_COUNTED: u16 = u16::MAX;

/// For each page how many of its blocks that are in use are unknown, at the most.
#[derive(Debug)]
pub(crate) struct Counts {
    unknown: Vec<u16>,
    /// Blocks in use.
    blocks: u64,
    total: u64,
    uncounted: u64,
}

impl Counts {
    /// Nothing is counted yet.
    pub(super) fn new(layout: &Layout) -> Self {
        let unknown = vec![NOT_COUNTED; layout.pages() as usize];
        Self { unknown, blocks: layout.blocks(), total: 0, uncounted: layout.blocks() }
    }

    /// No more than so many blocks are in use.
    pub(super) fn use_blocks(&mut self, blocks: u64) {
        let before = self.blocks;
        self.blocks = blocks.min(before);
        for page in (self.blocks / PAGE_ENTRIES) as usize..self.unknown.len() {
            let gone = Self::length(page, before) - self.blocks_in(page);
            match self.unknown[page] {
                NOT_COUNTED => self.uncounted -= gone,
                unknown => {
                    // The last ones are unknown more likely than not: they were never written.
                    let left = u64::from(unknown).saturating_sub(gone);
                    self.total -= u64::from(unknown) - left;
                    self.unknown[page] = left as u16;
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
        match self.unknown[page] {
            NOT_COUNTED => self.uncounted -= self.blocks_in(page),
            before => self.total -= u64::from(before),
        }
        self.unknown[page] = unknown as u16;
        self.total += unknown;
    }

    /// Of a page so many checksums are known.
    pub(super) fn know(&mut self, page: usize, known: usize) {
        self.set(page, self.blocks_in(page).saturating_sub(known as u64));
    }

    /// Of so many places in a page `before` were known, and `after` are now.
    pub(super) fn change(&mut self, page: usize, before: usize, after: usize) {
        if self.is_counted(page) {
            let unknown = (u64::from(self.unknown[page]) + before as u64).saturating_sub(after as u64);
            self.set(page, unknown.min(self.blocks_in(page)));
        }
    }

    pub(super) fn is_counted(&self, page: usize) -> bool {
        self.unknown[page] != NOT_COUNTED
    }

    /// Blocks that are unknown, of the pages that were counted.
    pub(super) fn unknown(&self) -> u64 {
        self.total
    }

    /// Blocks of the pages that were not.
    pub(super) fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// The first pages that were not counted, so many at the most.
    pub(super) fn next_uncounted(&self, most: usize) -> Option<Range<u64>> {
        let first = self.unknown.iter().position(|unknown| *unknown == NOT_COUNTED)?;
        let run = self.unknown[first..].iter().take(most).take_while(|unknown| **unknown == NOT_COUNTED).count();
        Some(first as u64..(first + run) as u64)
    }

    /// Whether any of these blocks is of a page with something unknown in it, or may be.
    pub(super) fn is_any_unknown(&self, blocks: &Range<u64>) -> bool {
        let end = blocks.end.min(self.blocks);
        blocks.start < end
            && self.unknown[(blocks.start / PAGE_ENTRIES) as usize..=((end - 1) / PAGE_ENTRIES) as usize]
                .iter()
                .any(|unknown| *unknown > 0)
    }
}
