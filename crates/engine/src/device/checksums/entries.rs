//! The checksums of a member's blocks, as far as they are in memory: resident pages of the table, and changes of pages
//! that are not resident. Of every other page two bits say where its checksums are ([`Place`]).
//!
//! Does no I/O and knows no regions: [`super::table`] does. Its memory is that of the resident pages and of the
//! changes, however large the member is: two million pages of 8 TiB take half a megabyte beside them.
//!
//! Invariants:
//! * A changed checksum stays in memory until it is written, with its page or without it.
//! * A page is resident, or it has changes, or neither.
//! * The member's copy of a lost or blank page is never read. It may be of older data.

use crate::device::checksums::counts::Counts;
use crate::device::checksums::resident::{BitSet, Resident, Residents};
use format::Defect;
use format::integrity::{Binding, Checksum, Layout, PAGE_ENTRIES, Page};
use std::collections::BTreeMap;
use std::ops::Range;

/// The most changes that are kept without their page.
const CHANGES_MAX: usize = 128;

/// The memory of a change, with its part of the map's nodes.
const CHANGE_BYTES: usize = 24;

/// Where the checksums of a page are that are not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the member.
    Stored,
    /// Nowhere: they are unknown.
    Lost,
    /// Nowhere: they are those of zeros, as the header says.
    Blank,
}

#[derive(Debug)]
pub(super) struct Entries {
    binding: Binding,
    lost: BitSet,
    blank: BitSet,
    resident: Residents,
    /// The resident pages, in no order.
    order: Vec<u64>,
    /// The place in `order` at which the next eviction continues.
    hand: usize,
    /// By block: the changes of pages that are not resident.
    changes: BTreeMap<u64, Option<Checksum>>,
    /// The page at which the next search for changes continues.
    next_changed: u64,
    counts: Counts,
}

fn page_of(block: u64) -> u64 {
    block / PAGE_ENTRIES
}

/// The blocks of a page, with those that the last page has too many.
fn blocks_of(page: u64) -> Range<u64> {
    page * PAGE_ENTRIES..(page + 1) * PAGE_ENTRIES
}

/// The pages of blocks.
pub(super) fn pages_of(blocks: &Range<u64>) -> Range<u64> {
    page_of(blocks.start)..page_of(blocks.end - 1) + 1
}

/// Splits blocks by pages: the number of each page, and its part of them.
pub(super) fn parts(blocks: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
    let blocks = blocks.clone();
    pages_of(&blocks).map(move |page| {
        let all = blocks_of(page);
        (page, blocks.start.max(all.start)..blocks.end.min(all.end))
    })
}

/// The positions of blocks in their page.
fn within(page: u64, blocks: &Range<u64>) -> Range<usize> {
    let first = page * PAGE_ENTRIES;
    (blocks.start - first) as usize..(blocks.end - first) as usize
}

/// The number of known checksums.
fn known(entries: &[Option<Checksum>]) -> usize {
    entries.iter().filter(|entry| entry.is_some()).count()
}

impl Entries {
    /// The checksums as found at assembly: `place` says where those of each page are.
    pub(super) fn new(layout: &Layout, binding: Binding, place: impl Fn(u64) -> Place) -> Self {
        let pages = layout.pages() as usize;
        let mut entries = Self {
            binding,
            lost: BitSet::none(pages),
            blank: BitSet::none(pages),
            resident: Residents::default(),
            order: Vec::new(),
            hand: 0,
            changes: BTreeMap::new(),
            next_changed: 0,
            counts: Counts::new(layout),
        };
        for page in 0..layout.pages() {
            let place = place(page);
            entries.move_to(page, place);
            match place {
                Place::Stored => {}
                Place::Lost => entries.counts.know(page as usize, 0),
                Place::Blank => entries.counts.know(page as usize, PAGE_ENTRIES as usize),
            }
        }
        entries
    }

    pub(super) fn place(&self, page: u64) -> Place {
        match (self.blank.contains(page as usize), self.lost.contains(page as usize)) {
            (true, _) => Place::Blank,
            (false, true) => Place::Lost,
            (false, false) => Place::Stored,
        }
    }

    fn move_to(&mut self, page: u64, place: Place) {
        self.lost.set(page as usize, place == Place::Lost);
        self.blank.set(page as usize, place == Place::Blank);
    }

    /// The first page of these blocks that the member must be asked for.
    pub(super) fn missing(&self, blocks: &Range<u64>) -> Option<u64> {
        pages_of(blocks).find(|page| self.is_stored(*page))
    }

    /// The first page that must be resident before these blocks change, because it would have too many changes
    /// otherwise.
    pub(super) fn overgrown(&self, blocks: &Range<u64>) -> Option<u64> {
        let is_overgrown = |(page, part): &(u64, Range<u64>)| {
            let kept = || self.changes.range(blocks_of(*page)).take(CHANGES_MAX).count();
            !self.is_resident(*page) && kept() + (part.end - part.start) as usize > CHANGES_MAX
        };
        parts(blocks).find(is_overgrown).map(|(page, _)| page)
    }

    pub(super) fn is_resident(&self, page: u64) -> bool {
        self.resident.contains_key(&page)
    }

    /// Whether a page is not resident, and the member has a readable copy.
    pub(super) fn is_stored(&self, page: u64) -> bool {
        !self.is_resident(page) && self.place(page) == Place::Stored
    }

    /// Makes a page resident. `copy` is the member's copy of a stored page, if it was readable.
    pub(super) fn insert(&mut self, number: u64, copy: Option<Page>) {
        let page = match (self.place(number), copy) {
            (Place::Blank, _) => Page::zeros(),
            (Place::Stored, Some(copy)) => copy,
            (Place::Stored | Place::Lost, _) => {
                self.move_to(number, Place::Lost);
                Page::unknown()
            }
        };
        let mut resident = Resident::new(page);
        for (block, entry) in self.take_changes(number) {
            let at = (block % PAGE_ENTRIES) as usize;
            resident.put(at..at + 1, || entry);
        }
        self.counts.know(number as usize, known(resident.page.entries()));
        let before = self.resident.insert(number, resident);
        assert!(before.is_none(), "only a page that is not resident is read");
        self.order.push(number);
    }

    fn take_changes(&mut self, page: u64) -> Vec<(u64, Option<Checksum>)> {
        let taken: Vec<_> = self.changes.range(blocks_of(page)).map(|(block, entry)| (*block, *entry)).collect();
        taken.iter().for_each(|(block, _)| _ = self.changes.remove(block));
        taken
    }

    fn has_changes_of(&self, page: u64) -> bool {
        self.changes.range(blocks_of(page)).next().is_some()
    }

    /// The known checksums among the changes of a page.
    fn known_changes(&self, page: u64) -> usize {
        self.changes.range(blocks_of(page)).filter(|(_, entry)| entry.is_some()).count()
    }

    /// The counts of unknown checksums.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The counts of unknown checksums, to modify.
    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Counts a page that was not counted yet, from the member's copy.
    pub(super) fn count(&mut self, number: u64, copy: &[u8]) {
        if self.counts.is_counted(number as usize) {
            return;
        }
        let mut page = Page::decode(copy, &self.binding, number).unwrap_or_else(|_| Page::unknown());
        for (block, entry) in self.changes.range(blocks_of(number)) {
            page.entries_mut()[(block % PAGE_ENTRIES) as usize] = *entry;
        }
        self.counts.know(number as usize, known(page.entries()));
    }

    /// The number of resident pages.
    pub(super) fn resident_pages(&self) -> usize {
        self.order.len()
    }

    /// The memory of changes whose pages are not resident.
    pub(super) fn changes_bytes(&self) -> usize {
        self.changes.len() * CHANGE_BYTES
    }

    /// Evicts pages without changes or with few, until at most `most` are resident or no other page qualifies.
    pub(super) fn evict(&mut self, most: usize) {
        for _ in 0..2 * self.order.len() {
            if self.order.len() <= most {
                return;
            }
            self.hand = (self.hand + 1) % self.order.len();
            let number = self.order[self.hand];
            let resident = self.resident.get_mut(&number).expect("the order has the resident pages");
            if std::mem::take(&mut resident.used) {
                continue;
            }
            if let Some(changed) = &resident.changed {
                if changed.count() > CHANGES_MAX {
                    continue;
                }
                let entries = blocks_of(number).zip(resident.page.entries());
                let changes = entries.filter(|(block, _)| changed.contains((block % PAGE_ENTRIES) as usize));
                self.changes.extend(changes.map(|(block, entry)| (block, *entry)));
            }
            self.resident.remove(&number);
            self.order.swap_remove(self.hand);
        }
    }

    /// The checksum of a block as far as it is in memory, or known without the member: `None` means that the page must
    /// be read.
    fn look_up(&self, block: u64) -> Option<Option<Checksum>> {
        let page = page_of(block);
        if let Some(resident) = self.resident.get(&page) {
            return Some(resident.page.entries()[(block % PAGE_ENTRIES) as usize]);
        }
        match (self.changes.get(&block), self.place(page)) {
            (Some(change), _) => Some(*change),
            (None, Place::Blank) => Some(Some(Checksum::of_zeros())),
            (None, Place::Lost) => Some(None),
            (None, Place::Stored) => None,
        }
    }

    /// The checksum of a block, if it is known and in memory.
    pub(super) fn get(&self, block: u64) -> Option<Checksum> {
        self.look_up(block).flatten()
    }

    /// As [`Self::get`], and marks the page as used. The outer `None` means that the page must be read.
    #[inline]
    pub(super) fn find(&mut self, block: u64) -> Option<Option<Checksum>> {
        match self.resident.get_mut(&page_of(block)) {
            Some(resident) => {
                resident.used = true;
                Some(resident.page.entries()[(block % PAGE_ENTRIES) as usize])
            }
            None => self.look_up(block),
        }
    }

    /// Calls `visit` with the checksum of each of `blocks`, and marks their pages as used.
    pub(super) fn visit(&mut self, blocks: &Range<u64>, mut visit: impl FnMut(Option<Checksum>)) {
        for (page, part) in parts(blocks) {
            match self.resident.get_mut(&page) {
                Some(resident) => {
                    resident.used = true;
                    resident.page.entries()[within(page, &part)].iter().for_each(|entry| visit(*entry));
                }
                None => part.for_each(|block| visit(self.get(block))),
            }
        }
    }

    /// Sets the checksums of `blocks`, in order.
    pub(super) fn put(&mut self, blocks: &Range<u64>, mut next: impl FnMut() -> Option<Checksum>) {
        for (page, part) in parts(blocks) {
            if let Some(resident) = self.resident.get_mut(&page) {
                let range = within(page, &part);
                let before = known(&resident.page.entries()[range.clone()]);
                resident.put(range.clone(), &mut next);
                let after = known(&resident.page.entries()[range]);
                self.counts.change(page as usize, before, after);
                continue;
            }
            let (count, mut made_unknown) = ((part.end - part.start) as usize, 0);
            for block in part {
                let entry = next();
                made_unknown += usize::from(entry.is_none());
                self.changes.insert(block, entry);
            }
            match self.place(page) {
                Place::Lost => self.counts.know(page as usize, self.known_changes(page)),
                // All count as known before, so that the count stays an upper bound.
                Place::Stored | Place::Blank => self.counts.change(page as usize, count, count - made_unknown),
            }
        }
    }

    /// Whether a page has changes.
    pub(super) fn is_changed(&self, page: u64) -> bool {
        match self.resident.get(&page) {
            Some(resident) => resident.changed.is_some(),
            None => self.has_changes_of(page),
        }
    }

    /// Whether a page differs from the member's copy.
    pub(super) fn has_to_be_written(&self, page: u64) -> bool {
        self.place(page) != Place::Stored || self.is_changed(page)
    }

    /// Whether any page has changes.
    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty() || self.resident.values().any(|resident| resident.changed.is_some())
    }

    /// The resident pages with changes, in order.
    pub(super) fn dirty_pages(&self) -> Vec<u64> {
        let mut dirty: Vec<u64> = self.order.iter().copied().filter(|page| self.is_changed(*page)).collect();
        dirty.sort_unstable();
        dirty
    }

    /// The pages with changes, in order.
    pub(super) fn changed_pages(&self) -> Vec<u64> {
        let mut changed = self.dirty_pages();
        changed.extend(self.changes.keys().map(|block| page_of(*block)));
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// The changed pages among `row` adjacent ones. The row begins with a changed page that is not resident, and the
    /// search continues where the last one ended.
    pub(super) fn next_changed(&mut self, row: u64) -> Vec<u64> {
        let from = self.next_changed * PAGE_ENTRIES;
        let first = self.changes.range(from..).next().or_else(|| self.changes.first_key_value());
        let Some(first) = first.map(|(block, _)| page_of(*block)) else { return Vec::new() };
        self.next_changed = first + row;
        (first..first + row).filter(|page| self.is_changed(*page)).collect()
    }

    /// Turns `into`, the member's copy if [`Self::is_stored`], into the page to be written. The page counts as
    /// written from now on.
    ///
    /// # Errors
    /// When the copy is invalid. All checksums that are not in memory are unknown then.
    pub(super) fn take_out(&mut self, number: u64, into: &mut [u8]) -> Result<(), Defect> {
        let place = self.place(number);
        if let Some(resident) = self.resident.get_mut(&number) {
            resident.changed = None;
            resident.page.encode(&self.binding, number, into);
            self.move_to(number, Place::Stored);
            return Ok(());
        }
        let changes = self.take_changes(number);
        let copy = match place {
            Place::Stored if changes.is_empty() => return Ok(()),
            Place::Stored => Page::decode(into, &self.binding, number),
            Place::Lost => Ok(Page::unknown()),
            Place::Blank => Ok(Page::zeros()),
        };
        let defect = copy.as_ref().err().cloned();
        let mut page = copy.unwrap_or_else(|_| Page::unknown());
        for (block, entry) in changes {
            page.entries_mut()[(block % PAGE_ENTRIES) as usize] = entry;
        }
        self.move_to(number, Place::Stored);
        self.counts.know(number as usize, known(page.entries()));
        page.encode(&self.binding, number, into);
        defect.map_or(Ok(()), Err)
    }

    /// Gives up the checksums of a blank page without changes: its area is touched, and it is not written. No page was
    /// ever written at its place under this epoch, so that the member's copy says nothing.
    pub(super) fn leave_unwritten(&mut self, page: u64) {
        self.move_to(page, Place::Stored);
        self.counts.know(page as usize, 0);
    }

    /// Takes back a page whose write failed.
    pub(super) fn put_back(&mut self, number: u64) {
        self.move_to(number, Place::Lost);
        match self.resident.get_mut(&number) {
            Some(resident) => {
                let changed = resident.changed.get_or_insert_with(|| BitSet::none(PAGE_ENTRIES as usize));
                let entries = resident.page.entries().iter().enumerate();
                entries.filter(|(_, entry)| entry.is_some()).for_each(|(place, _)| changed.set(place, true));
            }
            None => self.counts.know(number as usize, self.known_changes(number)),
        }
    }
}
