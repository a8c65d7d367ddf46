//! A member's checksums in memory: which are known, which pages of the table
//! are here and which of them have to be written, and which regions are open.
//!
//! Knows no member and waits for nothing. Invariants:
//! * a checksum is known only if no write to its block is under way and the last
//!   one ended with it: it is forgotten before the write begins;
//! * a region with a write under way is open, and is not picked to be closed;
//! * what is dirty stays here until it was written;
//! * a page that is lost is never read: the member's copy of it is older than the data.
//!
//! A region that is open is [`Table::is_stable`] once the member has said so
//! on stable storage; it is neither from the moment it is picked.

use super::checksum;
use format::integrity::{Binding, Checksum, Layout, Open, PAGE_ENTRIES, Page};
use std::ops::Range;

/// Periods without a write after which a region may be closed.
pub(super) const IDLE_PERIODS: u32 = 2;

/// Where a page of the table is.
#[derive(Debug)]
enum Place {
    /// On the member.
    Stored,
    /// Nowhere: all that it would say is unknown.
    Lost,
    /// Here.
    Here(Resident),
}

#[derive(Debug)]
struct Resident {
    page: Page,
    /// To be written.
    dirty: bool,
    /// The member's copy must not be read.
    lost: bool,
    /// Looked at since the hand passed.
    used: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Region {
    under_way: u32,
    /// The period in which its last write ended.
    ended: u32,
}

pub(super) struct Table {
    layout: Layout,
    binding: Binding,
    /// What the member is to say is open.
    open: Open,
    /// What it says on stable storage.
    stable: Open,
    regions: Vec<Region>,
    pages: Vec<Place>,
    here: usize,
    /// Where the search for a page to let go of goes on.
    hand: usize,
    period: u32,
    /// Rises whenever a checksum changes that was or becomes known by a write.
    rewrites: u64,
}

impl Table {
    /// As it was found: the pages of open regions are lost; all of them, when `vouched` is false.
    pub(super) fn new(layout: Layout, binding: Binding, open: Open, vouched: bool) -> Self {
        let is_lost = |page| !vouched || open.contains(page / layout.pages_in_region());
        let place = |page| if is_lost(page) { Place::Lost } else { Place::Stored };
        Self {
            pages: (0..layout.pages()).map(place).collect(),
            regions: vec![Region::default(); layout.regions() as usize],
            stable: open.clone(),
            open,
            layout,
            binding,
            here: 0,
            hand: 0,
            period: 0,
            rewrites: 0,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn rewrites(&self) -> u64 {
        self.rewrites
    }

    fn page_of(block: u64) -> usize {
        (block / PAGE_ENTRIES) as usize
    }

    fn pages_of(blocks: &Range<u64>) -> Range<usize> {
        Self::page_of(blocks.start)..Self::page_of(blocks.end - 1) + 1
    }

    fn regions_of(&self, blocks: &Range<u64>) -> Range<u64> {
        let (pages, unit) = (Self::pages_of(blocks), self.layout.pages_in_region());
        pages.start as u64 / unit..(pages.end as u64 - 1) / unit + 1
    }

    fn region_of(&self, page: usize) -> u64 {
        page as u64 / self.layout.pages_in_region()
    }

    /// The first page that is not here and has to be, for these blocks.
    pub(super) fn missing(&self, blocks: &Range<u64>) -> Option<u64> {
        let mut pages = Self::pages_of(blocks);
        pages.find(|&page| !self.is_here(page as u64)).map(|page| page as u64)
    }

    pub(super) fn is_here(&self, page: u64) -> bool {
        matches!(self.pages[page as usize], Place::Here(_))
    }

    /// Whether the member has a page that can be read.
    pub(super) fn is_stored(&self, page: u64) -> bool {
        matches!(self.pages[page as usize], Place::Stored)
    }

    /// Takes a page in that was not here: what was read, or `None` for one that knows nothing.
    pub(super) fn insert(&mut self, number: u64, page: Option<Page>) {
        let place = &mut self.pages[number as usize];
        debug_assert!(!matches!(place, Place::Here(_)), "it was not here");
        let lost = page.is_none();
        *place = Place::Here(Resident { page: page.unwrap_or_else(Page::unknown), dirty: false, lost, used: true });
        self.here += 1;
    }

    /// How many pages are here.
    pub(super) fn here(&self) -> usize {
        self.here
    }

    /// Lets go of pages that need not be written, until no more than `most` are here or none is left.
    pub(super) fn let_go(&mut self, most: usize) {
        for _ in 0..2 * self.pages.len() {
            if self.here <= most {
                return;
            }
            self.hand = (self.hand + 1) % self.pages.len();
            let place = &mut self.pages[self.hand];
            let Place::Here(resident) = place else { continue };
            if !resident.dirty && !std::mem::take(&mut resident.used) {
                *place = if resident.lost { Place::Lost } else { Place::Stored };
                self.here -= 1;
            }
        }
    }

    fn entry(&self, block: u64) -> Option<Checksum> {
        match &self.pages[Self::page_of(block)] {
            Place::Here(resident) => resident.page.entries()[(block % PAGE_ENTRIES) as usize],
            Place::Stored | Place::Lost => None,
        }
    }

    /// What is known of a block.
    pub(super) fn get(&self, block: u64) -> Option<Checksum> {
        self.entry(block)
    }

    /// Calls `visit` with the checksums of `blocks`, whose pages are here, and notes that they were used.
    fn visit(&mut self, blocks: Range<u64>, mut visit: impl FnMut(&mut Option<Checksum>, &mut bool)) {
        let mut at = blocks.start;
        while at < blocks.end {
            let end = ((at / PAGE_ENTRIES + 1) * PAGE_ENTRIES).min(blocks.end);
            if let Place::Here(resident) = &mut self.pages[Self::page_of(at)] {
                resident.used = true;
                let (first, count) = ((at % PAGE_ENTRIES) as usize, (end - at) as usize);
                let entries = &mut resident.page.entries_mut()[first..first + count];
                entries.iter_mut().for_each(|entry| visit(entry, &mut resident.dirty));
            }
            at = end;
        }
    }

    /// Whether the page of a block is here, and says nothing against the checksum of what was read, which is only asked for
    /// where one is known: the way of most reads.
    pub(super) fn takes(&mut self, block: u64, sum: impl FnOnce() -> Checksum) -> bool {
        let Place::Here(resident) = &mut self.pages[Self::page_of(block)] else { return false };
        resident.used = true;
        let entry = resident.page.entries()[(block % PAGE_ENTRIES) as usize];
        entry.is_none_or(|expected| expected == sum())
    }

    /// The first of the blocks from `first` on that is not what its checksum says. `sums` are those of `data`, as far as
    /// somebody has taken them already.
    pub(super) fn first_wrong(&mut self, first: u64, data: &[u8], sums: &[u32], block_bytes: usize) -> Option<u64> {
        let sum = |number: usize, block: &[u8]| match sums.get(number) {
            Some(crc) => Checksum::from_crc(*crc),
            None => checksum(block),
        };
        let mut blocks = data.chunks_exact(block_bytes).enumerate();
        let mut at = first;
        let mut wrong = None;
        self.visit(first..first + (data.len() / block_bytes) as u64, |entry, _| {
            let (number, block) = blocks.next().expect("one for each entry");
            if wrong.is_none() && entry.is_some_and(|expected| expected != sum(number, block)) {
                wrong = Some(at);
            }
            at += 1;
        });
        wrong
    }

    /// Notes a write: its regions stay open until [`Self::end`].
    pub(super) fn begin(&mut self, blocks: &Range<u64>) {
        for region in self.regions_of(blocks) {
            self.regions[region as usize].under_way += 1;
        }
    }

    /// Whether the member says on stable storage that the regions of these blocks are open.
    pub(super) fn is_stable(&self, blocks: &Range<u64>) -> bool {
        self.regions_of(blocks).all(|region| self.stable.contains(region))
    }

    /// The regions of these blocks are to be open.
    pub(super) fn want_open(&mut self, blocks: &Range<u64>) {
        let regions = self.regions_of(blocks);
        self.open.insert(regions);
    }

    /// What the member is to say is open.
    pub(super) fn open(&self) -> Open {
        self.open.clone()
    }

    /// The member says so on stable storage.
    pub(super) fn opened(&mut self, open: Open) {
        self.stable = open;
    }

    /// What is known of these blocks is so no more: a write to them begins. Their pages are here.
    pub(super) fn forget(&mut self, blocks: &Range<u64>) {
        self.rewrites += 1;
        self.visit(blocks.clone(), |entry, dirty| {
            *entry = None;
            *dirty = true;
        });
    }

    /// A write that began is over; with what the blocks hold now, if that is known.
    pub(super) fn end(&mut self, blocks: &Range<u64>, checksums: Option<impl Iterator<Item = Checksum>>) {
        self.rewrites += 1;
        if let Some(mut checksums) = checksums {
            self.visit(blocks.clone(), |entry, dirty| {
                *entry = checksums.next();
                *dirty = true;
            });
        }
        for region in self.regions_of(blocks) {
            let region = &mut self.regions[region as usize];
            region.under_way -= 1;
            region.ended = self.period;
        }
    }

    /// Takes in what blocks hold that were found to be right; what is known already stays. How many were not known.
    /// The caller keeps writes off them, and their pages are here.
    pub(super) fn learn(&mut self, blocks: Range<u64>, checksum_of: impl Fn(u64) -> Checksum) -> u64 {
        let (mut block, mut learned) = (blocks.start, 0);
        self.visit(blocks, |entry, dirty| {
            if entry.is_none() {
                *entry = Some(checksum_of(block));
                *dirty = true;
                learned += 1;
            }
            block += 1;
        });
        learned
    }

    /// A period has passed.
    pub(super) fn next_period(&mut self) {
        self.period += 1;
    }

    fn is_idle(&self, region: u64, periods: u32) -> bool {
        let Region { under_way, ended } = self.regions[region as usize];
        under_way == 0 && self.period - ended >= periods
    }

    /// Picks the open regions that have been idle for so many periods: they are closed as soon as their
    /// pages are written, and all that was written to the member is on stable storage.
    pub(super) fn pick_to_close(&mut self, periods: u32) -> Vec<u64> {
        let is_open = |region: &u64| self.open.contains(*region) && self.is_idle(*region, periods);
        let picked: Vec<u64> = (0..self.layout.regions()).filter(is_open).collect();
        for &region in &picked {
            self.open.remove(region);
            self.stable.remove(region);
        }
        picked
    }

    /// They could not be closed.
    pub(super) fn reopen(&mut self, regions: &[u64]) {
        regions.iter().for_each(|&region| self.open.insert(region..region + 1));
    }

    /// The pages that have to be written for these regions to be closed.
    pub(super) fn pages_to_close(&self, regions: &[u64]) -> Vec<u64> {
        let unit = self.layout.pages_in_region();
        let pages = regions.iter().flat_map(|region| region * unit..((region + 1) * unit).min(self.layout.pages()));
        pages.filter(|&page| self.has_to_be_written(page as usize)).collect()
    }

    fn has_to_be_written(&self, page: usize) -> bool {
        match &self.pages[page] {
            Place::Stored => false,
            Place::Lost => true,
            Place::Here(resident) => resident.dirty || resident.lost,
        }
    }

    /// The pages with something new in them whose regions are closed: it was learned.
    pub(super) fn learned_pages(&self) -> Vec<u64> {
        let is_learned = |page: &usize| self.is_dirty(*page) && !self.open.contains(self.region_of(*page));
        (0..self.pages.len()).filter(is_learned).map(|page| page as u64).collect()
    }

    fn is_dirty(&self, page: usize) -> bool {
        matches!(&self.pages[page], Place::Here(resident) if resident.dirty)
    }

    /// The pages that may be written now, as nothing is being written to what they are of.
    pub(super) fn dirty_pages(&self) -> Vec<u64> {
        let is_at_rest = |page: &usize| self.regions[self.region_of(*page) as usize].under_way == 0;
        let may_be = |page: &usize| self.is_dirty(*page) && is_at_rest(page);
        (0..self.pages.len()).filter(may_be).map(|page| page as u64).collect()
    }

    /// Puts a page into `into`, to be written; from here on it is as the member will have it.
    pub(super) fn take_out(&mut self, number: u64, into: &mut [u8]) {
        let place = &mut self.pages[number as usize];
        match place {
            Place::Here(resident) => {
                (resident.dirty, resident.lost) = (false, false);
                resident.page.encode(&self.binding, number, into);
            }
            Place::Lost => {
                *place = Place::Stored;
                Page::unknown().encode(&self.binding, number, into);
            }
            Place::Stored => unreachable!("a page that is on the member need not be written"),
        }
    }

    /// A page that was taken out did not reach the member.
    pub(super) fn put_back(&mut self, number: u64) {
        match &mut self.pages[number as usize] {
            Place::Here(resident) => (resident.dirty, resident.lost) = (true, true),
            place => *place = Place::Lost,
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
