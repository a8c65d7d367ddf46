//! A member's checksums in memory: which are known, which pages of the table
//! are here and which of them have to be written, and which regions are open.
//!
//! Knows no member and waits for nothing. Invariants:
//! * a checksum is that of the last write to its block that ended. While another is under way, what that one will leave
//!   stands beside it ([`Table::start`]): a reader may find either, and nothing else;
//! * after a write that failed it is unknown, unless the write would have left the same;
//! * a region with a write under way is open, and is not picked to be closed;
//! * what has changed stays here until it was written, with its page or, where that is not needed, without;
//! * a page that is lost is never read: the member's copy of it is older than the data.
//!
//! How much is unknown is counted for each page ([`Counts`]): never less than there is, and exactly that once the page was here.
//!
//! A region that is open is [`Table::is_stable`] once the member has said so
//! on stable storage; it is neither from the moment it is picked.

use crate::device::checksums::counts::Counts;
use crate::device::checksums::{WrittenChecksums, checksum};
use format::Defect;
use format::integrity::{Binding, Checksum, Layout, Open, PAGE_ENTRIES, Page};
use smallvec::SmallVec;
use std::ops::Range;

/// Periods without a write after which a region may be closed.
pub(super) const IDLE_PERIODS: u32 = 2;

/// While the array is busy a region is closed for so many units of writing: writing its pages, and noting it as open
/// again, then costs about a hundredth of them.
const UNITS_PER_REGION: u64 = 256;

/// A write is worth one unit, and one more for each so many blocks.
const UNIT_BLOCKS: u64 = 4;

/// After so many rounds of opening regions, without a rest, twice as many neighbours are opened in each.
const ROUNDS_PER_DOUBLING: u32 = 32;

/// Regions are opened in groups of two to the power of this at the most.
const DOUBLINGS_MAX: u32 = 6;

/// More changes of a page are not kept without it.
const CHANGES_MAX: u32 = 128;

/// What a page's changes take, besides the changes: their list, and what an allocator needs for two pieces.
const LIST_BYTES: usize = 96;

/// Where a page of the table is.
#[derive(Debug)]
enum Place {
    /// On the member.
    Stored,
    /// Nowhere: all that it would say is unknown.
    Lost,
    /// On the member, but for some checksums, which are here.
    Changed(Box<Changes>),
    /// Here.
    Here(Resident),
}

/// Checksums of a page that is not here.
#[derive(Debug)]
struct Changes {
    /// In the order of their places in the page.
    entries: Vec<Change>,
    /// The member's copy must not be read: of the others nothing is known.
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
    /// What is newer than the member's copy, if anything.
    changed: Option<Box<Marks>>,
    /// The member's copy must not be read.
    lost: bool,
    /// Looked at since the hand passed.
    used: bool,
}

/// Places in a page, a bit for each.
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

    /// Puts checksums in the places of a range, one after the other.
    fn put(&mut self, range: Range<usize>, mut next: impl FnMut() -> Option<Checksum>) {
        self.used = true;
        let changed = self.changed.get_or_insert_default();
        for (place, entry) in range.clone().zip(&mut self.page.entries_mut()[range]) {
            changed.insert(place);
            *entry = next();
        }
    }

    /// What has changed, if that can be kept without the page.
    fn changes(&self) -> Option<Box<Changes>> {
        let changed = self.changed.as_ref().filter(|changed| changed.count() <= CHANGES_MAX)?;
        let entries = (0..).zip(self.page.entries()).filter(|(place, _)| changed.contains(usize::from(*place)));
        Some(Box::new(Changes { entries: entries.map(|(place, entry)| (place, *entry)).collect(), lost: self.lost }))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Region {
    under_way: u32,
    /// The period in which its last write ended.
    ended: u32,
}

/// A write that the member may be carrying out.
#[derive(Debug)]
struct InFlight {
    number: u64,
    blocks: Range<u64>,
    leaves: WrittenChecksums,
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
    counts: Counts,
    here: usize,
    /// What changes without their pages take.
    changes_bytes: usize,
    /// Where the search for a page to let go of goes on.
    hand: usize,
    /// Where that for changes to be written does.
    next_changed: usize,
    period: u32,
    /// Units of writing since the last period ended.
    written: u64,
    /// How often regions were opened since the array was at rest.
    rounds: u32,
    /// Rises whenever a write ends, with which checksums may change.
    rewrites: u64,
    in_flight: Vec<InFlight>,
    /// As many writes were started.
    started: u64,
}

impl Table {
    /// As it was found: the pages of open regions are lost; all of them, when `trusted` is false.
    pub(super) fn new(layout: Layout, binding: Binding, open: Open, trusted: bool) -> Self {
        let is_lost = |page| !trusted || open.contains(page / layout.pages_in_region());
        let place = |page| if is_lost(page) { Place::Lost } else { Place::Stored };
        let mut counts = Counts::new(&layout);
        (0..layout.pages()).filter(|page| is_lost(*page)).for_each(|page| counts.know(page as usize, 0));
        Self {
            pages: (0..layout.pages()).map(place).collect(),
            counts,
            regions: vec![Region::default(); layout.regions() as usize],
            stable: open.clone(),
            open,
            layout,
            binding,
            here: 0,
            changes_bytes: 0,
            hand: 0,
            next_changed: 0,
            period: 0,
            written: 0,
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

    /// The parts of a range that are of one page each: its number, and the places in it.
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

    /// The first page that is not here and has to be, for these blocks.
    pub(super) fn missing(&self, blocks: &Range<u64>) -> Option<u64> {
        let mut pages = Self::pages_of(blocks);
        pages.find(|&page| !self.is_here(page as u64)).map(|page| page as u64)
    }

    /// The first page that has to be here before these blocks change: more of it would have changed than is kept without it.
    pub(super) fn outgrown(&self, blocks: &Range<u64>) -> Option<u64> {
        let is_outgrown = |(page, range): &(usize, Range<usize>)| {
            let kept = match &self.pages[*page] {
                Place::Here(_) => return false,
                Place::Changed(changes) => changes.entries.len(),
                Place::Stored | Place::Lost => 0,
            };
            kept + range.len() > CHANGES_MAX as usize
        };
        Self::parts(blocks).find(is_outgrown).map(|(page, _)| page as u64)
    }

    pub(super) fn is_here(&self, page: u64) -> bool {
        matches!(self.pages[page as usize], Place::Here(_))
    }

    /// Whether a page is not here, and the member has a copy that can be read.
    pub(super) fn is_stored(&self, page: u64) -> bool {
        match &self.pages[page as usize] {
            Place::Stored => true,
            Place::Changed(changes) => !changes.lost,
            Place::Lost | Place::Here(_) => false,
        }
    }

    /// Takes a page in that was not here: what was read, or `None` for one that knows nothing.
    pub(super) fn insert(&mut self, number: u64, page: Option<Page>) {
        let place = &mut self.pages[number as usize];
        let mut resident = Resident::new(page);
        match place {
            Place::Stored | Place::Lost => {}
            Place::Changed(changes) => {
                self.changes_bytes -= changes.bytes();
                for (at, entry) in &changes.entries {
                    let at = usize::from(*at);
                    resident.put(at..at + 1, || *entry);
                }
            }
            Place::Here(_) => unreachable!("it was not here"),
        }
        self.counts.know(number as usize, known(resident.page.entries()));
        *place = Place::Here(resident);
        self.here += 1;
    }

    /// What is unknown, of the pages that were counted.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Blocks from `blocks` on are not used, and so are not counted.
    pub(super) fn use_blocks(&mut self, blocks: u64) {
        self.counts.use_blocks(blocks);
    }

    /// Counts a page that was not counted yet, by the member's copy of it.
    pub(super) fn count(&mut self, number: u64, copy: &[u8]) {
        if self.counts.is_counted(number as usize) {
            return;
        }
        let mut page = Page::decode(copy, &self.binding, number).unwrap_or_else(|_| Page::unknown());
        if let Place::Changed(changes) = &self.pages[number as usize] {
            changes.entries.iter().for_each(|(at, entry)| page.entries_mut()[usize::from(*at)] = *entry);
        }
        self.counts.know(number as usize, known(page.entries()));
    }

    /// How many pages are here.
    pub(super) fn here(&self) -> usize {
        self.here
    }

    /// What changes without their pages take.
    pub(super) fn changes_bytes(&self) -> usize {
        self.changes_bytes
    }

    /// Lets go of pages that need not be written, or of which little has changed, until no more than `most` are here or
    /// none is left.
    pub(super) fn let_go(&mut self, most: usize) {
        for _ in 0..2 * self.pages.len() {
            if self.here <= most {
                return;
            }
            self.hand = (self.hand + 1) % self.pages.len();
            let place = &mut self.pages[self.hand];
            let Place::Here(resident) = place else { continue };
            if std::mem::take(&mut resident.used) {
                continue;
            }
            *place = match (resident.changes(), resident.lost) {
                (Some(changes), _) => {
                    self.changes_bytes += changes.bytes();
                    Place::Changed(changes)
                }
                (None, _) if resident.changed.is_some() => continue,
                (None, true) => Place::Lost,
                (None, false) => Place::Stored,
            };
            self.here -= 1;
        }
    }

    fn entry(&self, block: u64) -> Option<Checksum> {
        match &self.pages[Self::page_of(block)] {
            Place::Here(resident) => resident.page.entries()[(block % PAGE_ENTRIES) as usize],
            Place::Stored | Place::Lost | Place::Changed(_) => None,
        }
    }

    /// What is known of a block.
    pub(super) fn get(&self, block: u64) -> Option<Checksum> {
        self.entry(block)
    }

    /// Calls `visit` with the checksums of `blocks`, whose pages are here, and notes that they were used.
    fn visit(&mut self, blocks: &Range<u64>, mut visit: impl FnMut(Option<Checksum>)) {
        for (page, range) in Self::parts(blocks) {
            if let Place::Here(resident) = &mut self.pages[page] {
                resident.used = true;
                resident.page.entries()[range].iter().for_each(|entry| visit(*entry));
            }
        }
    }

    /// Puts checksums in the places of `blocks`, one after the other.
    fn put(&mut self, blocks: &Range<u64>, mut next: impl FnMut() -> Option<Checksum>) {
        for (page, range) in Self::parts(blocks) {
            let place = &mut self.pages[page];
            match place {
                Place::Here(resident) => {
                    let before = known(&resident.page.entries()[range.clone()]);
                    resident.put(range.clone(), &mut next);
                    let after = known(&resident.page.entries()[range]);
                    self.counts.change(page, before, after);
                    continue;
                }
                Place::Changed(changes) => self.changes_bytes -= changes.bytes(),
                Place::Stored => *place = Place::Changed(Changes::new(false)),
                Place::Lost => *place = Place::Changed(Changes::new(true)),
            }
            let Place::Changed(changes) = place else { unreachable!("it was made so") };
            let (count, mut forgotten) = (range.len(), 0);
            for at in range {
                let entry = next();
                forgotten += usize::from(entry.is_none());
                changes.put(at as u16, entry);
            }
            self.changes_bytes += changes.bytes();
            match changes.lost {
                true => self.counts.know(page, changes.known()),
                // What of these was known is on the member: as if all, so that nothing unknown is left out.
                false => self.counts.change(page, count, count - forgotten),
            }
        }
    }

    /// Whether the page of a block is here, and says nothing against the checksum of what was read, which is only asked for
    /// where one is known: the way of most reads.
    pub(super) fn takes(&mut self, block: u64, sum: impl FnOnce() -> Checksum) -> bool {
        let Place::Here(resident) = &mut self.pages[Self::page_of(block)] else { return false };
        resident.used = true;
        let Some(expected) = resident.page.entries()[(block % PAGE_ENTRIES) as usize] else { return true };
        let sum = sum();
        expected == sum || self.is_being_left(block, sum)
    }

    /// Whether a write is under way that leaves this in a block.
    fn is_being_left(&self, block: u64, sum: Checksum) -> bool {
        let leaves = |write: &InFlight| {
            write.blocks.contains(&block)
                && (mutant!("read-beside-heal") || write.leaves.at(block - write.blocks.start) == sum)
        };
        self.in_flight.iter().any(leaves)
    }

    /// Whether a write of a block is under way.
    pub(super) fn is_being_written(&self, block: u64) -> bool {
        self.in_flight.iter().any(|write| write.blocks.contains(&block))
    }

    /// The first of the blocks from `first` on that is not what its checksum says. `sums` are those of `data`, as far as
    /// somebody has taken them already.
    pub(super) fn first_wrong(&mut self, first: u64, data: &[u8], sums: &[u32], block_bytes: usize) -> Option<u64> {
        let sum = |number: usize, block: &[u8]| match sums.get(number) {
            Some(crc) => Checksum::from_crc(*crc),
            None => checksum(block),
        };
        let range = first..first + (data.len() / block_bytes) as u64;
        let mut blocks = data.chunks_exact(block_bytes).zip(range.clone());
        let mut unlike = SmallVec::<[(u64, Checksum); 2]>::new();
        self.visit(&range, |entry| {
            let (block, at) = blocks.next().expect("one for each entry");
            let Some(expected) = entry else { return };
            let found = sum((at - first) as usize, block);
            if expected != found {
                unlike.push((at, found));
            }
        });
        unlike.iter().find(|(block, found)| !self.is_being_left(*block, *found)).map(|(block, _)| *block)
    }

    /// Notes a write: its regions stay open until [`Self::end`].
    pub(super) fn begin(&mut self, blocks: &Range<u64>) {
        self.written += 1 + (blocks.end - blocks.start) / UNIT_BLOCKS;
        for region in self.regions_of(blocks) {
            self.regions[region as usize].under_way += 1;
        }
    }

    /// Whether the member says on stable storage that the regions of these blocks are open.
    pub(super) fn is_stable(&self, blocks: &Range<u64>) -> bool {
        self.regions_of(blocks).all(|region| self.stable.contains(region))
    }

    /// The regions of these blocks are to be open, and the more neighbours with them the more often that is wanted: a
    /// load that goes everywhere has all of them open after a few hundred rounds.
    pub(super) fn want_open(&mut self, blocks: &Range<u64>) {
        let regions = self.regions_of(blocks);
        let group = 1 << (self.rounds / ROUNDS_PER_DOUBLING).min(DOUBLINGS_MAX);
        let end = regions.end.next_multiple_of(group).min(self.layout.regions());
        for region in regions.start / group * group..end {
            if !self.open.contains(region) {
                self.open.insert(region..region + 1);
                self.regions[region as usize].ended = self.period;
            }
        }
    }

    /// What the member is to say is open.
    pub(super) fn open(&self) -> Open {
        self.open.clone()
    }

    /// The member says so on stable storage.
    pub(super) fn opened(&mut self, open: Open) {
        self.stable = open;
        self.rounds += 1;
    }

    /// From here on the member may be writing these blocks, with what that leaves in them. Gives the number to end it by.
    pub(super) fn start(&mut self, blocks: &Range<u64>, leaves: WrittenChecksums) -> u64 {
        self.started += 1;
        self.in_flight.push(InFlight { number: self.started, blocks: blocks.clone(), leaves });
        self.started
    }

    /// A write that began is over; `started`, if it came so far, is its number. One that was not done may be there in
    /// part.
    pub(super) fn end(&mut self, blocks: &Range<u64>, started: Option<u64>, is_done: bool) {
        self.rewrites += 1;
        if let Some(index) = self.in_flight.iter().position(|write| Some(write.number) == started) {
            let leaves = self.in_flight.swap_remove(index).leaves;
            match is_done {
                true => {
                    let mut left = (0..).map(|index| leaves.at(index));
                    self.put(blocks, || left.next());
                }
                false => self.forget_what_changed(blocks, &leaves),
            }
        }
        for region in self.regions_of(blocks) {
            let region = &mut self.regions[region as usize];
            region.under_way -= 1;
            region.ended = self.period;
        }
    }

    /// Of blocks that were to become what they were to be before, as when one is healed, that stays known.
    fn forget_what_changed(&mut self, blocks: &Range<u64>, leaves: &WrittenChecksums) {
        for block in blocks.clone() {
            if self.entry(block) != Some(leaves.at(block - blocks.start)) {
                self.put(&(block..block + 1), || None);
            }
        }
    }

    /// Takes in what blocks hold that were found to be right; what is known already stays. How many were not known.
    /// The caller keeps writes off them, and their pages are here.
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

    /// A period has passed.
    pub(super) fn next_period(&mut self) {
        self.period += 1;
    }

    fn is_idle(&self, region: u64, periods: u32) -> bool {
        let Region { under_way, ended } = self.regions[region as usize];
        under_way == 0 && self.period - ended >= periods
    }

    /// The open regions that have been idle for so many periods.
    fn idle(&self, periods: u32) -> impl Iterator<Item = u64> {
        let is_open = move |region: &u64| self.open.contains(*region) && self.is_idle(*region, periods);
        (0..self.layout.regions()).filter(is_open)
    }

    /// Whether there is one.
    pub(super) fn has_idle(&self, periods: u32) -> bool {
        self.idle(periods).next().is_some()
    }

    /// How many regions may be closed, for what was written since this was asked: while the array is busy, every one that
    /// is closed costs the writes that come later. At rest nothing does.
    pub(super) fn allowance(&mut self, at_rest: bool) -> u64 {
        let written = std::mem::take(&mut self.written);
        if at_rest {
            self.rounds = 0;
            return u64::MAX;
        }
        written / UNITS_PER_REGION
    }

    /// Picks open regions that have been idle for so many periods, `most` of them and those first that were for
    /// longest: they are closed as soon as their pages are written, and all that was written to the member is on stable
    /// storage.
    pub(super) fn pick_to_close(&mut self, periods: u32, most: usize) -> Vec<u64> {
        let mut picked: Vec<u64> = self.idle(periods).collect();
        if picked.len() > most {
            picked.sort_by_key(|&region| self.regions[region as usize].ended);
            picked.truncate(most);
        }
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
            Place::Lost | Place::Changed(_) => true,
            Place::Here(resident) => resident.changed.is_some() || resident.lost,
        }
    }

    /// The pages with something new in them whose regions are closed: it was learned.
    pub(super) fn learned_pages(&self) -> Vec<u64> {
        let is_learned = |page: &usize| self.is_changed(*page) && !self.open.contains(self.region_of(*page));
        (0..self.pages.len()).filter(is_learned).map(|page| page as u64).collect()
    }

    fn is_changed(&self, page: usize) -> bool {
        match &self.pages[page] {
            Place::Stored | Place::Lost => false,
            Place::Changed(_) => true,
            Place::Here(resident) => resident.changed.is_some(),
        }
    }

    /// Whether anything has changed.
    pub(super) fn has_changes(&self) -> bool {
        (0..self.pages.len()).any(|page| self.is_changed(page))
    }

    /// The pages that are here and have changed.
    pub(super) fn dirty_pages(&self) -> Vec<u64> {
        let is_dirty = |page: &usize| self.is_here(*page as u64) && self.is_changed(*page);
        (0..self.pages.len()).filter(is_dirty).map(|page| page as u64).collect()
    }

    /// Of so many pages in a row those that have changed, in turn: the first is one that is not here.
    pub(super) fn next_changed(&mut self, row: usize) -> Vec<u64> {
        let (count, from) = (self.pages.len(), self.next_changed);
        let mut places = (from..count).chain(0..from);
        let Some(first) = places.find(|page| matches!(self.pages[*page], Place::Changed(_))) else { return Vec::new() };
        let end = count.min(first + row);
        self.next_changed = end % count;
        (first..end).filter(|page| self.is_changed(*page)).map(|page| page as u64).collect()
    }

    /// Makes of `into`, which is the member's copy where [`Self::is_stored`], what is to be written; from here on the page
    /// is as the member will have it.
    ///
    /// # Errors
    /// When the copy is not sound. What is not here is unknown then.
    pub(super) fn take_out(&mut self, number: u64, into: &mut [u8]) -> Result<(), Defect> {
        let place = &mut self.pages[number as usize];
        let (changes, copy) = match place {
            Place::Stored => return Ok(()),
            Place::Here(resident) => {
                (resident.changed, resident.lost) = (None, false);
                resident.page.encode(&self.binding, number, into);
                return Ok(());
            }
            Place::Lost => (Vec::new(), Ok(Page::unknown())),
            Place::Changed(changes) => {
                self.changes_bytes -= changes.bytes();
                let copy = if changes.lost { Ok(Page::unknown()) } else { Page::decode(into, &self.binding, number) };
                (std::mem::take(&mut changes.entries), copy)
            }
        };
        *place = Place::Stored;
        let defect = copy.as_ref().err().cloned();
        let mut page = copy.unwrap_or_else(|_| Page::unknown());
        changes.iter().for_each(|(at, entry)| page.entries_mut()[usize::from(*at)] = *entry);
        self.counts.know(number as usize, known(page.entries()));
        page.encode(&self.binding, number, into);
        defect.map_or(Ok(()), Err)
    }

    /// The region of a page, once it is open, is not closed any more, as if there was always a write under way.
    pub(super) fn stay_open(&mut self, page: u64) {
        let region = self.region_of(page as usize);
        self.regions[region as usize].under_way += 1;
    }

    /// A page that was taken out did not reach the member.
    pub(super) fn put_back(&mut self, number: u64) {
        match &mut self.pages[number as usize] {
            Place::Here(resident) => {
                let entries = resident.page.entries();
                let known = (0..entries.len()).filter(|place| entries[*place].is_some());
                let changed = resident.changed.get_or_insert_default();
                known.for_each(|place| changed.insert(place));
                resident.lost = true;
            }
            Place::Changed(changes) => {
                changes.lost = true;
                self.counts.know(number as usize, changes.known());
            }
            place => {
                *place = Place::Lost;
                self.counts.know(number as usize, 0);
            }
        }
    }
}

/// How many checksums are known.
fn known(entries: &[Option<Checksum>]) -> usize {
    entries.iter().filter(|entry| entry.is_some()).count()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
