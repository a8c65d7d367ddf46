//! Counts a member's blocks whose checksum is unknown, for each page of its table.
//!
//! Holds no pages: the table reports the number of known checksums with each change. A page that was not loaded since
//! assembly is not counted, and its blocks are reported as uncounted.

use format::integrity::{Layout, PAGE_ENTRIES};
use std::ops::Range;

/// The mark of a page that was not counted yet.
const NOT_COUNTED: u16 = u16::MAX;

/// For each page, an upper bound of its used blocks whose checksum is unknown.
#[derive(Debug)]
pub(crate) struct Counts {
    unknown: Vec<u16>,
    /// Blocks in use.
    blocks: u64,
    total: u64,
    uncounted: u64,
}

impl Counts {
    /// Counts in which no page is counted.
    pub(super) fn new(layout: &Layout) -> Self {
        let unknown = vec![NOT_COUNTED; layout.pages() as usize];
        Self { unknown, blocks: layout.blocks(), total: 0, uncounted: layout.blocks() }
    }

    /// Limits the used blocks to the first `blocks`.
    pub(super) fn use_blocks(&mut self, blocks: u64) {
        let before = self.blocks;
        self.blocks = blocks.min(before);
        for page in (self.blocks / PAGE_ENTRIES) as usize..self.unknown.len() {
            let gone = Self::length(page, before) - self.blocks_in(page);
            match self.unknown[page] {
                NOT_COUNTED => self.uncounted -= gone,
                unknown => {
                    // The last blocks were probably never written, so they are taken as unknown.
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

    /// Sets a page's count from the number of its `known` checksums.
    pub(super) fn know(&mut self, page: usize, known: usize) {
        self.set(page, self.blocks_in(page).saturating_sub(known as u64));
    }

    /// Updates a page's count: of the changed entries `before` were known, and `after` are known now.
    pub(super) fn change(&mut self, page: usize, before: usize, after: usize) {
        if self.is_counted(page) {
            let unknown = (u64::from(self.unknown[page]) + before as u64).saturating_sub(after as u64);
            self.set(page, unknown.min(self.blocks_in(page)));
        }
    }

    pub(super) fn is_counted(&self, page: usize) -> bool {
        self.unknown[page] != NOT_COUNTED
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
    pub(super) fn next_uncounted(&self, most: usize) -> Option<Range<u64>> {
        let first = self.unknown.iter().position(|unknown| *unknown == NOT_COUNTED)?;
        let run = self.unknown[first..].iter().take(most).take_while(|unknown| **unknown == NOT_COUNTED).count();
        Some(first as u64..(first + run) as u64)
    }

    /// Whether any of these blocks is in a page with unknown checksums, or in an uncounted page.
    pub(super) fn is_any_unknown(&self, blocks: &Range<u64>) -> bool {
        let end = blocks.end.min(self.blocks);
        blocks.start < end
            && self.unknown[(blocks.start / PAGE_ENTRIES) as usize..=((end - 1) / PAGE_ENTRIES) as usize]
                .iter()
                .any(|unknown| *unknown > 0)
    }
}
