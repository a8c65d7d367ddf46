//! A member's checksums in memory: the known ones, the resident pages of the table, the
//! changes to be written, and the open regions.
//!
//! Does no I/O and never waits. Invariants:
//! * A checksum is that of the last ended write to its block. While another write is in flight, the checksum that it
//!   will leave is kept beside it ([`Table::start`]). A reader may find either contents, and no others.
//! * After a failed write the checksum is unknown, unless the write would have left the same contents.
//! * A region with a write in flight is open, and is not picked for closing.
//! * A changed checksum stays in memory until it is written, with its page or without it.
//! * A lost page is never read: the member's copy of it is older than the data.
//!
//! [`Counts`] counts the unknown checksums of each page. The count is an upper bound, and exact once the page was
//! resident.
//!
//! An open region is [`Table::is_stable`] once the member's stable storage says that it is open. A region that is
//! picked for closing is neither open nor stable.
//!
//! Format: [`format::integrity`].

use crate::base::lazy_marks::{Earned, MarkUse};
use crate::device::checksums::counts::Counts;
use crate::device::checksums::written::{WrittenChecksums, checksum};
use format::Defect;
use format::integrity::{BLOCK_BYTES, Binding, Checksum, Layout, Open, PAGE_ENTRIES, Page};
use smallvec::SmallVec;
use std::ops::Range;

/// After this many rounds of opening regions without a rest, each round opens twice as many neighbours.
const ROUNDS_PER_DOUBLING: u32 = 32;

/// The largest group of regions opened at once is two to the power of this.
const DOUBLINGS_MAX: u32 = 6;

/// The most changes that are kept without their page.
const CHANGES_MAX: u32 = 128;

/// The overhead of a page's list of changes: the list itself and two heap allocations.
const LIST_BYTES: usize = 96;

/// The state of a page of the table.
#[derive(Debug)]
enum PageState {
    /// On the member.
    Stored,
    /// Nowhere: all its checksums are unknown.
    Lost,
    /// On the member, except for some changed checksums, which are in memory.
    Changed(Box<Changes>),
    /// In memory.
    Resident(Resident),
}

/// Changed checksums of a page that is not resident.
#[derive(Debug)]
struct Changes {
    /// In the order of their positions in the page.
    entries: Vec<Change>,
    /// The member's copy must not be read: the page's other checksums are unknown.
    lost: bool,
}

type Change = (u16, Option<Checksum>);

impl Changes {
    fn new(lost: bool) -> Box<Self> {
        Box::new(Self { entries: Vec::new(), lost })
    }

    fn put(&mut self, at: u16, entry: Option<Checksum>) {
        match self.entries.binary_search_by_key(&at, |(at, _)| *at) {
            Ok(index) => self.entries[index].1 = entry,
            Err(index) => self.entries.insert(index, (at, entry)),
        }
    }

    fn known(&self) -> usize {
        self.entries.iter().filter(|(_, entry)| entry.is_some()).count()
    }

    fn bytes(&self) -> usize {
        LIST_BYTES + self.entries.len() * size_of::<Change>()
    }
}

#[derive(Debug)]
struct Resident {
    page: Page,
    /// The positions that are newer than the member's copy, if any.
    changed: Option<Box<Marks>>,
    /// The member's copy must not be read.
    lost: bool,
    /// Used since the eviction hand passed.
    used: bool,
}

/// Positions in a page, one bit each.
#[derive(Debug, Default)]
struct Marks([u64; PAGE_ENTRIES.div_ceil(64) as usize]);

impl Marks {
    fn insert(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|bits| bits.count_ones()).sum()
    }

    fn contains(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }
}

impl Resident {
    fn new(page: Option<Page>) -> Self {
        let lost = page.is_none();
        Self { page: page.unwrap_or_else(Page::unknown), changed: None, lost, used: true }
    }

    /// Sets the checksums of a range of positions, in order.
    fn put(&mut self, range: Range<usize>, mut next: impl FnMut() -> Option<Checksum>) {
        self.used = true;
        let changed = self.changed.get_or_insert_default();
        for (place, entry) in range.clone().zip(&mut self.page.entries_mut()[range]) {
            changed.insert(place);
            *entry = next();
        }
    }

    /// The changes, if they are few enough to be kept without the page.
    fn changes(&self) -> Option<Box<Changes>> {
        let changed = self.changed.as_ref().filter(|changed| changed.count() <= CHANGES_MAX)?;
        let entries = (0..).zip(self.page.entries()).filter(|(place, _)| changed.contains(usize::from(*place)));
        Some(Box::new(Changes { entries: entries.map(|(place, entry)| (place, *entry)).collect(), lost: self.lost }))
    }
}

/// A write that the member may be executing.
#[derive(Debug)]
struct WriteInFlight {
    number: u64,
    blocks: Range<u64>,
    leaves: WrittenChecksums,
}

pub(super) struct Table {
    layout: Layout,
    binding: Binding,
    /// The regions to be marked as open on the member.
    open: Open,
    /// The regions marked as open on the member's stable storage.
    stable: Open,
    /// The writes to each region.
    regions: Vec<MarkUse>,
    pages: Vec<PageState>,
    counts: Counts,
    resident_pages: usize,
    /// The memory of changes whose pages are not resident.
    changes_bytes: usize,
    /// The page at which the next eviction continues.
    hand: usize,
    /// The page at which the next search for changes continues.
    next_changed: usize,
    period: u32,
    /// What writes have paid for closing regions since the last call of [`Self::allowance`].
    earned: Earned,
    /// Rounds of opening regions since the array was at rest.
    rounds: u32,
    /// Ended writes; each may have changed checksums.
    rewrites: u64,
    in_flight: Vec<WriteInFlight>,
    /// Started writes.
    started: u64,
}

impl Table {
    /// The table as found at assembly. The pages of open regions are lost; all pages are, when `trusted` is false.
    pub(super) fn new(layout: Layout, binding: Binding, open: Open, trusted: bool) -> Self {
        let is_lost = |page| !trusted || open.contains(page / layout.pages_in_region());
        let place = |page| if is_lost(page) { PageState::Lost } else { PageState::Stored };
        let mut counts = Counts::new(&layout);
        (0..layout.pages()).filter(|page| is_lost(*page)).for_each(|page| counts.know(page as usize, 0));
        Self {
            pages: (0..layout.pages()).map(place).collect(),
            counts,
            regions: vec![MarkUse::default(); layout.regions() as usize],
            stable: open.clone(),
            open,
            layout,
            binding,
            resident_pages: 0,
            changes_bytes: 0,
            hand: 0,
            next_changed: 0,
            period: 0,
            earned: Earned::default(),
            rounds: 0,
            rewrites: 0,
            in_flight: Vec::new(),
            started: 0,
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

    /// Splits a range by pages: the number of each page, and the positions in it.
    pub(crate) fn parts(blocks: &Range<u64>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let blocks = blocks.clone();
        Self::pages_of(&blocks).map(move |page| {
            let first = page as u64 * PAGE_ENTRIES;
            let end = blocks.end.min(first + PAGE_ENTRIES) - first;
            (page, (blocks.start.max(first) - first) as usize..end as usize)
        })
    }

    fn regions_of(&self, blocks: &Range<u64>) -> Range<u64> {
        let (pages, unit) = (Self::pages_of(blocks), self.layout.pages_in_region());
        pages.start as u64 / unit..(pages.end as u64 - 1) / unit + 1
    }

    fn region_of(&self, page: usize) -> u64 {
        page as u64 / self.layout.pages_in_region()
    }

    /// The first page of these blocks that is not resident.
    pub(super) fn missing(&self, blocks: &Range<u64>) -> Option<u64> {
        let mut pages = Self::pages_of(blocks);
        pages.find(|&page| !self.is_resident(page as u64)).map(|page| page as u64)
    }

    /// The first page that must be resident before these blocks change, because it would have too many changes
    /// otherwise.
    pub(super) fn overgrown(&self, blocks: &Range<u64>) -> Option<u64> {
        let is_overgrown = |(page, range): &(usize, Range<usize>)| {
            let kept = match &self.pages[*page] {
                PageState::Resident(_) => return false,
                PageState::Changed(changes) => changes.entries.len(),
                PageState::Stored | PageState::Lost => 0,
            };
            kept + range.len() > CHANGES_MAX as usize
        };
        Self::parts(blocks).find(is_overgrown).map(|(page, _)| page as u64)
    }

    pub(super) fn is_resident(&self, page: u64) -> bool {
        matches!(self.pages[page as usize], PageState::Resident(_))
    }

    /// Whether a page is not resident, and the member has a readable copy.
    pub(super) fn is_stored(&self, page: u64) -> bool {
        match &self.pages[page as usize] {
            PageState::Stored => true,
            PageState::Changed(changes) => !changes.lost,
            PageState::Lost | PageState::Resident(_) => false,
        }
    }

    /// Makes a page resident: the page read, or `None` for one whose checksums are unknown.
    pub(super) fn insert(&mut self, number: u64, page: Option<Page>) {
        let place = &mut self.pages[number as usize];
        let mut resident = Resident::new(page);
        match place {
            PageState::Stored | PageState::Lost => {}
            PageState::Changed(changes) => {
                self.changes_bytes -= changes.bytes();
                for (at, entry) in &changes.entries {
                    let at = usize::from(*at);
                    resident.put(at..at + 1, || *entry);
                }
            }
            PageState::Resident(_) => unreachable!("only a page that is not resident is read"),
        }
        self.counts.know(number as usize, known(resident.page.entries()));
        *place = PageState::Resident(resident);
        self.resident_pages += 1;
    }

    /// The counts of unknown checksums.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Limits the counts to the first `blocks`, which are the used ones.
    pub(super) fn use_blocks(&mut self, blocks: u64) {
        self.counts.use_blocks(blocks);
    }

    /// Counts a page that was not counted yet, from the member's copy.
    pub(super) fn count(&mut self, number: u64, copy: &[u8]) {
        if self.counts.is_counted(number as usize) {
            return;
        }
        let mut page = Page::decode(copy, &self.binding, number).unwrap_or_else(|_| Page::unknown());
        if let PageState::Changed(changes) = &self.pages[number as usize] {
            changes.entries.iter().for_each(|(at, entry)| page.entries_mut()[usize::from(*at)] = *entry);
        }
        self.counts.know(number as usize, known(page.entries()));
    }

    /// The number of resident pages.
    pub(super) fn resident_pages(&self) -> usize {
        self.resident_pages
    }

    /// The memory of changes whose pages are not resident.
    pub(super) fn changes_bytes(&self) -> usize {
        self.changes_bytes
    }

    /// Evicts pages without changes or with few, until at most `most` are resident or no other page qualifies.
    pub(super) fn evict(&mut self, most: usize) {
        for _ in 0..2 * self.pages.len() {
            if self.resident_pages <= most {
                return;
            }
            self.hand = (self.hand + 1) % self.pages.len();
            let place = &mut self.pages[self.hand];
            let PageState::Resident(resident) = place else { continue };
            if std::mem::take(&mut resident.used) {
                continue;
            }
            *place = match (resident.changes(), resident.lost) {
                (Some(changes), _) => {
                    self.changes_bytes += changes.bytes();
                    PageState::Changed(changes)
                }
                (None, _) if resident.changed.is_some() => continue,
                (None, true) => PageState::Lost,
                (None, false) => PageState::Stored,
            };
            self.resident_pages -= 1;
        }
    }

    /// The checksum of a block, if it is known and its page is resident.
    pub(super) fn get(&self, block: u64) -> Option<Checksum> {
        match &self.pages[Self::page_of(block)] {
            PageState::Resident(resident) => resident.page.entries()[(block % PAGE_ENTRIES) as usize],
            PageState::Stored | PageState::Lost | PageState::Changed(_) => None,
        }
    }

    /// Calls `visit` with the checksums of `blocks`, whose pages are resident, and marks the pages as used.
    fn visit(&mut self, blocks: &Range<u64>, mut visit: impl FnMut(Option<Checksum>)) {
        for (page, range) in Self::parts(blocks) {
            if let PageState::Resident(resident) = &mut self.pages[page] {
                resident.used = true;
                resident.page.entries()[range].iter().for_each(|entry| visit(*entry));
            }
        }
    }

    /// Sets the checksums of `blocks`, in order.
    fn put(&mut self, blocks: &Range<u64>, mut next: impl FnMut() -> Option<Checksum>) {
        for (page, range) in Self::parts(blocks) {
            let place = &mut self.pages[page];
            match place {
                PageState::Resident(resident) => {
                    let before = known(&resident.page.entries()[range.clone()]);
                    resident.put(range.clone(), &mut next);
                    let after = known(&resident.page.entries()[range]);
                    self.counts.change(page, before, after);
                    continue;
                }
                PageState::Changed(changes) => self.changes_bytes -= changes.bytes(),
                PageState::Stored => *place = PageState::Changed(Changes::new(false)),
                PageState::Lost => *place = PageState::Changed(Changes::new(true)),
            }
            let PageState::Changed(changes) = place else { unreachable!("the match above makes it so") };
            let (count, mut made_unknown) = (range.len(), 0);
            for at in range {
                let entry = next();
                made_unknown += usize::from(entry.is_none());
                changes.put(at as u16, entry);
            }
            self.changes_bytes += changes.bytes();
            match changes.lost {
                true => self.counts.know(page, changes.known()),
                // The member's page has their former checksums. All count as known before, so that the count stays
                // an upper bound.
                false => self.counts.change(page, count, count - made_unknown),
            }
        }
    }

    /// Whether the page of a block is resident and does not contradict the checksum of the data read. `sum` is called
    /// only if the block's checksum is known. Most reads take this path.
    pub(super) fn takes(&mut self, block: u64, sum: impl FnOnce() -> Checksum) -> bool {
        let PageState::Resident(resident) = &mut self.pages[Self::page_of(block)] else { return false };
        resident.used = true;
        let Some(expected) = resident.page.entries()[(block % PAGE_ENTRIES) as usize] else { return true };
        let sum = sum();
        expected == sum || self.is_being_left(block, sum)
    }

    /// Whether a write in flight will leave the checksum `sum` in a block.
    fn is_being_left(&self, block: u64, sum: Checksum) -> bool {
        let leaves = |write: &WriteInFlight| {
            write.blocks.contains(&block)
                && (mutant!("read-beside-heal") || write.leaves.at(block - write.blocks.start) == sum)
        };
        self.in_flight.iter().any(leaves)
    }

    /// Whether a write of a block is in flight.
    pub(super) fn is_being_written(&self, block: u64) -> bool {
        self.in_flight.iter().any(|write| write.blocks.contains(&block))
    }

    /// The first of the blocks from `first` on that does not match its checksum. `sums` are the checksums of `data`,
    /// as far as the read has computed them.
    pub(super) fn first_wrong(&mut self, first: u64, data: &[u8], sums: &[u32], block_bytes: usize) -> Option<u64> {
        let sum = |number: usize, block: &[u8]| match sums.get(number) {
            Some(crc) => Checksum::from_crc(*crc),
            None => checksum(block),
        };
        let range = first..first + (data.len() / block_bytes) as u64;
        let mut blocks = data.chunks_exact(block_bytes).zip(range.clone());
        let mut unlike = SmallVec::<[(u64, Checksum); 2]>::new();
        self.visit(&range, |entry| {
            let (block, at) = blocks.next().expect("there is a block for each entry");
            let Some(expected) = entry else { return };
            let found = sum((at - first) as usize, block);
            if expected != found {
                unlike.push((at, found));
            }
        });
        unlike.iter().find(|(block, found)| !self.is_being_left(*block, *found)).map(|(block, _)| *block)
    }

    /// Begins a write: its regions stay open until [`Self::end`].
    pub(super) fn begin(&mut self, blocks: &Range<u64>) {
        self.earned.earn((blocks.end - blocks.start) * BLOCK_BYTES);
        for region in self.regions_of(blocks) {
            self.regions[region as usize].begin();
        }
    }

    /// Whether the regions of these blocks are marked as open on stable storage.
    pub(super) fn is_stable(&self, blocks: &Range<u64>) -> bool {
        self.regions_of(blocks).all(|region| self.stable.contains(region))
    }

    /// Opens the regions of these blocks, with more neighbours the more rounds there were. A load that is spread over
    /// the member has all regions open after a few hundred rounds.
    pub(super) fn want_open(&mut self, blocks: &Range<u64>) {
        let regions = self.regions_of(blocks);
        let group = 1 << (self.rounds / ROUNDS_PER_DOUBLING).min(DOUBLINGS_MAX);
        let end = regions.end.next_multiple_of(group).min(self.layout.regions());
        for region in regions.start / group * group..end {
            if !self.open.contains(region) {
                self.open.insert(region..region + 1);
                self.regions[region as usize].touch(self.period);
            }
        }
    }

    /// The regions to be marked as open on the member.
    pub(super) fn open(&self) -> Open {
        self.open.clone()
    }

    /// `open` is on the member's stable storage.
    pub(super) fn opened(&mut self, open: Open) {
        self.stable = open;
        self.rounds += 1;
    }

    /// From now on the member may be executing the write, which leaves the checksums `leaves`. Returns the write's
    /// number.
    pub(super) fn start(&mut self, blocks: &Range<u64>, leaves: WrittenChecksums) -> u64 {
        self.started += 1;
        self.in_flight.push(WriteInFlight { number: self.started, blocks: blocks.clone(), leaves });
        self.started
    }

    /// Ends a begun write; `started` is its number, if it was started. If it is not done, any part of it may be on the
    /// member.
    pub(super) fn end(&mut self, blocks: &Range<u64>, started: Option<u64>, is_done: bool) {
        self.rewrites += 1;
        if let Some(index) = self.in_flight.iter().position(|write| Some(write.number) == started) {
            let leaves = self.in_flight.swap_remove(index).leaves;
            match is_done {
                true => {
                    let mut left = (0..).map(|index| leaves.at(index));
                    self.put(blocks, || left.next());
                }
                false => self.make_changed_unknown(blocks, &leaves),
            }
        }
        for region in self.regions_of(blocks) {
            self.regions[region as usize].end(self.period);
        }
    }

    /// After a failed write, makes the changed checksums unknown. A checksum that the write would not have changed
    /// stays known, as in read repair.
    fn make_changed_unknown(&mut self, blocks: &Range<u64>, leaves: &WrittenChecksums) {
        for block in blocks.clone() {
            if self.get(block) != Some(leaves.at(block - blocks.start)) {
                self.put(&(block..block + 1), || None);
            }
        }
    }

    /// Fills in the unknown checksums of blocks whose data is right, and returns how many were unknown.
    /// The caller locks the blocks against writes, and their pages are resident.
    pub(super) fn fill_unknown(&mut self, blocks: Range<u64>, checksum_of: impl Fn(u64) -> Checksum) -> u64 {
        let mut unknown = Vec::new();
        let mut block = blocks.start;
        self.visit(&blocks, |entry| {
            unknown.extend(entry.is_none().then_some(block));
            block += 1;
        });
        for &block in &unknown {
            self.put(&(block..block + 1), || Some(checksum_of(block)));
        }
        unknown.len() as u64
    }

    /// Begins the next period.
    pub(super) fn next_period(&mut self) {
        self.period += 1;
    }

    fn is_idle(&self, region: u64, periods: u32) -> bool {
        let writes = &self.regions[region as usize];
        !writes.is_in_flight() && writes.age(self.period) >= periods
    }

    /// The open regions that have been idle for `periods`.
    fn idle(&self, periods: u32) -> impl Iterator<Item = u64> {
        let is_open = move |region: &u64| self.open.contains(*region) && self.is_idle(*region, periods);
        (0..self.layout.regions()).filter(is_open)
    }

    /// Whether an open region has been idle for `periods`.
    pub(super) fn has_idle(&self, periods: u32) -> bool {
        self.idle(periods).next().is_some()
    }

    /// The number of regions that may be closed, by the writes since the last call. While the array is busy, each
    /// closed region slows later writes. At rest there is no limit.
    pub(super) fn allowance(&mut self, at_rest: bool) -> u64 {
        if at_rest {
            self.rounds = 0;
        }
        self.earned.allowance(at_rest)
    }

    /// Picks at most `most` open regions that have been idle for `periods`, the longest idle ones first. They are
    /// closed as soon as their pages are written and the member is flushed.
    pub(super) fn pick_to_close(&mut self, periods: u32, most: usize) -> Vec<u64> {
        let mut picked: Vec<u64> = self.idle(periods).collect();
        if picked.len() > most {
            picked.sort_by_key(|&region| self.regions[region as usize].ended());
            picked.truncate(most);
        }
        for &region in &picked {
            self.open.remove(region);
            self.stable.remove(region);
        }
        picked
    }

    /// Reopens picked regions that could not be closed.
    pub(super) fn reopen(&mut self, regions: &[u64]) {
        regions.iter().for_each(|&region| self.open.insert(region..region + 1));
    }

    /// The pages that must be written before these regions can be closed.
    pub(super) fn pages_to_close(&self, regions: &[u64]) -> Vec<u64> {
        let unit = self.layout.pages_in_region();
        let pages = regions.iter().flat_map(|region| region * unit..((region + 1) * unit).min(self.layout.pages()));
        pages.filter(|&page| self.has_to_be_written(page as usize)).collect()
    }

    fn has_to_be_written(&self, page: usize) -> bool {
        match &self.pages[page] {
            PageState::Stored => false,
            PageState::Lost | PageState::Changed(_) => true,
            PageState::Resident(resident) => resident.changed.is_some() || resident.lost,
        }
    }

    /// The changed pages of closed regions: sweeps have filled in their checksums.
    pub(super) fn filled_pages(&self) -> Vec<u64> {
        let is_filled = |page: &usize| self.is_changed(*page) && !self.open.contains(self.region_of(*page));
        (0..self.pages.len()).filter(is_filled).map(|page| page as u64).collect()
    }

    fn is_changed(&self, page: usize) -> bool {
        match &self.pages[page] {
            PageState::Stored | PageState::Lost => false,
            PageState::Changed(_) => true,
            PageState::Resident(resident) => resident.changed.is_some(),
        }
    }

    /// Whether any page has changes.
    pub(super) fn has_changes(&self) -> bool {
        (0..self.pages.len()).any(|page| self.is_changed(page))
    }

    /// The resident pages with changes.
    pub(super) fn dirty_pages(&self) -> Vec<u64> {
        let is_dirty = |page: &usize| self.is_resident(*page as u64) && self.is_changed(*page);
        (0..self.pages.len()).filter(is_dirty).map(|page| page as u64).collect()
    }

    /// The changed pages among `row` adjacent ones. The row begins with a changed page that is not resident, and the
    /// search continues where the last one ended.
    pub(super) fn next_changed(&mut self, row: usize) -> Vec<u64> {
        let (count, from) = (self.pages.len(), self.next_changed);
        let mut places = (from..count).chain(0..from);
        let Some(first) = places.find(|page| matches!(self.pages[*page], PageState::Changed(_))) else {
            return Vec::new();
        };
        let end = count.min(first + row);
        self.next_changed = end % count;
        (first..end).filter(|page| self.is_changed(*page)).map(|page| page as u64).collect()
    }

    /// Turns `into`, the member's copy if [`Self::is_stored`], into the page to be written. The page counts as
    /// written from now on.
    ///
    /// # Errors
    /// When the copy is invalid. All checksums that are not in memory are unknown then.
    pub(super) fn take_out(&mut self, number: u64, into: &mut [u8]) -> Result<(), Defect> {
        let place = &mut self.pages[number as usize];
        let (changes, copy) = match place {
            PageState::Stored => return Ok(()),
            PageState::Resident(resident) => {
                (resident.changed, resident.lost) = (None, false);
                resident.page.encode(&self.binding, number, into);
                return Ok(());
            }
            PageState::Lost => (Vec::new(), Ok(Page::unknown())),
            PageState::Changed(changes) => {
                self.changes_bytes -= changes.bytes();
                let copy = if changes.lost { Ok(Page::unknown()) } else { Page::decode(into, &self.binding, number) };
                (std::mem::take(&mut changes.entries), copy)
            }
        };
        *place = PageState::Stored;
        let defect = copy.as_ref().err().cloned();
        let mut page = copy.unwrap_or_else(|_| Page::unknown());
        changes.iter().for_each(|(at, entry)| page.entries_mut()[usize::from(*at)] = *entry);
        self.counts.know(number as usize, known(page.entries()));
        page.encode(&self.binding, number, into);
        defect.map_or(Ok(()), Err)
    }

    /// Keeps the region of a page open for good, as if it always had a write in flight.
    pub(super) fn pin_open(&mut self, page: u64) {
        let region = self.region_of(page as usize);
        self.regions[region as usize].begin();
    }

    /// Takes back a page whose write failed.
    pub(super) fn put_back(&mut self, number: u64) {
        match &mut self.pages[number as usize] {
            PageState::Resident(resident) => {
                let entries = resident.page.entries();
                let known = (0..entries.len()).filter(|place| entries[*place].is_some());
                let changed = resident.changed.get_or_insert_default();
                known.for_each(|place| changed.insert(place));
                resident.lost = true;
            }
            PageState::Changed(changes) => {
                changes.lost = true;
                self.counts.know(number as usize, changes.known());
            }
            place => {
                *place = PageState::Lost;
                self.counts.know(number as usize, 0);
            }
        }
    }
}

/// The number of known checksums.
fn known(entries: &[Option<Checksum>]) -> usize {
    entries.iter().filter(|entry| entry.is_some()).count()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
