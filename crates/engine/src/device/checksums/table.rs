//! A member's checksums while it is used: what reads are compared with, what writes change, and the open regions.
//!
//! Does no I/O and never waits. [`Entries`] holds the checksums. Invariants:
//! * A checksum is that of the last ended write to its block. While another write is in flight, the checksum that it
//!   will leave is kept beside it ([`Table::start`]). A reader may find either contents, and no others.
//! * After a failed write the checksum is unknown, unless the write would have left the same contents.
//! * A region with a write in flight is open, and is not picked for closing.
//! * An open region is in a touched area. The header says so before, or together with, the record of open regions.
//!
//! An open region is [`Table::is_stable`] once the member's stable storage says that it is open. A region that is
//! picked for closing is neither open nor stable.
//!
//! Format: [`format::integrity`].

use crate::base::lazy_marks::{Earned, MarkUse};
use crate::device::checksums::entries::{Entries, Place, pages_of};
use crate::device::checksums::written::{WrittenChecksums, checksum};
use format::integrity::{BLOCK_BYTES, Binding, Checksum, Layout, Open, REGIONS_IN_AREA, Touched};
use smallvec::SmallVec;
use std::ops::Range;

/// After this many rounds of opening regions without a rest, each round opens twice as many neighbours.
const ROUNDS_PER_DOUBLING: u32 = 32;

/// The largest group of regions opened at once is two to the power of this.
const DOUBLINGS_MAX: u32 = 6;

/// A write that the member may be executing.
#[derive(Debug)]
struct WriteInFlight {
    number: u64,
    blocks: Range<u64>,
    leaves: WrittenChecksums,
}

pub(super) struct Table {
    layout: Layout,
    entries: Entries,
    /// The regions to be marked as open on the member.
    open: Open,
    /// The regions marked as open on the member's stable storage.
    stable: Open,
    /// The areas to be marked as touched on the member.
    touched: Touched,
    /// The writes to each region.
    regions: Vec<MarkUse>,
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
    /// The table as found at assembly. The pages of open regions are lost; all pages are, when `trusted` is false. The
    /// pages of areas that are not touched are blank.
    pub(super) fn new(layout: Layout, binding: Binding, open: Open, mut touched: Touched, trusted: bool) -> Self {
        let opened =
            (0..layout.regions()).filter(|region| open.contains(*region)).map(|region| region / REGIONS_IN_AREA);
        opened.for_each(|area| touched.insert(area..area + 1));
        let place = |page: u64| {
            let region = page / layout.pages_in_region();
            match touched.contains(region / REGIONS_IN_AREA) {
                _ if !trusted || open.contains(region) => Place::Lost,
                true => Place::Stored,
                false => Place::Blank,
            }
        };
        Self {
            entries: Entries::new(&layout, binding, place),
            regions: vec![MarkUse::default(); layout.regions() as usize],
            stable: open.clone(),
            open,
            touched,
            layout,
            period: 0,
            earned: Earned::default(),
            rounds: 0,
            rewrites: 0,
            in_flight: Vec::new(),
            started: 0,
        }
    }

    /// The checksums.
    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The checksums, to modify.
    pub(super) fn entries_mut(&mut self) -> &mut Entries {
        &mut self.entries
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn rewrites(&self) -> u64 {
        self.rewrites
    }

    fn regions_of(&self, blocks: &Range<u64>) -> Range<u64> {
        let (pages, unit) = (pages_of(blocks), self.layout.pages_in_region());
        pages.start / unit..(pages.end - 1) / unit + 1
    }

    fn region_of(&self, page: u64) -> u64 {
        page / self.layout.pages_in_region()
    }

    /// Whether a block's checksum is in memory, or known to be unknown, and does not contradict that of the data read. `sum` is called
    /// only if the block's checksum is known. Most reads take this path.
    pub(super) fn takes(&mut self, block: u64, sum: impl FnOnce() -> Checksum) -> bool {
        match self.entries.find(block) {
            None => false,
            Some(None) => true,
            Some(Some(expected)) => {
                let sum = sum();
                expected == sum || self.is_being_left(block, sum)
            }
        }
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
        self.entries.visit(&range, |entry| {
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
            self.want_open_one(region);
            let area = region / REGIONS_IN_AREA;
            if !self.touched.contains(area) {
                self.touched.insert(area..area + 1);
                // Its other regions are written when they close. Otherwise their checksums would be unknown then.
                let whole = area * REGIONS_IN_AREA..((area + 1) * REGIONS_IN_AREA).min(self.layout.regions());
                whole.for_each(|region| self.want_open_one(region));
            }
        }
    }

    fn want_open_one(&mut self, region: u64) {
        if !self.open.contains(region) {
            self.open.insert(region..region + 1);
            self.regions[region as usize].touch(self.period);
        }
    }

    /// The areas to be marked as touched on the member.
    pub(super) fn touched(&self) -> &Touched {
        &self.touched
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
                    self.entries.put(blocks, || left.next());
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
            if self.entries.get(block) != Some(leaves.at(block - blocks.start)) {
                self.entries.put(&(block..block + 1), || None);
            }
        }
    }

    /// A page that must be read before the unknown checksums of these blocks, all of one page, are filled in.
    pub(super) fn page_to_fill(&self, blocks: &Range<u64>) -> Option<u64> {
        let is_any_unknown = || blocks.clone().any(|block| self.entries.get(block).is_none());
        let overgrown = || is_any_unknown().then(|| self.entries.overgrown(blocks)).flatten();
        self.entries.missing(blocks).or_else(overgrown)
    }

    /// Fills in the unknown checksums of blocks whose data is right, and returns how many were unknown.
    /// The caller locks the blocks against writes, and their pages are resident.
    pub(super) fn fill_unknown(&mut self, blocks: Range<u64>, checksum_of: impl Fn(u64) -> Checksum) -> u64 {
        let mut unknown = Vec::new();
        let mut block = blocks.start;
        self.entries.visit(&blocks, |entry| {
            unknown.extend(entry.is_none().then_some(block));
            block += 1;
        });
        for &block in &unknown {
            self.entries.put(&(block..block + 1), || Some(checksum_of(block)));
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

    /// The pages that must be written before these regions can be closed. Beyond `blank_left`, blank pages are not
    /// written, and their checksums become unknown.
    pub(super) fn pages_to_close(&mut self, regions: &[u64], blank_left: &mut usize) -> Vec<u64> {
        let (unit, pages) = (self.layout.pages_in_region(), self.layout.pages());
        let mut to_write = Vec::new();
        for page in regions.iter().flat_map(|region| region * unit..((region + 1) * unit).min(pages)) {
            let is_blank = self.entries.place(page) == Place::Blank && !self.entries.is_changed(page);
            match is_blank {
                true if *blank_left == 0 => self.entries.leave_unwritten(page),
                true => *blank_left -= 1,
                false if !self.entries.has_to_be_written(page) => continue,
                false => {}
            }
            to_write.extend(self.entries.has_to_be_written(page).then_some(page));
        }
        to_write
    }

    /// The changed pages of closed regions: sweeps have filled in their checksums.
    pub(super) fn filled_pages(&self) -> Vec<u64> {
        let mut filled = self.entries.changed_pages();
        filled.retain(|page| !self.open.contains(self.region_of(*page)));
        filled
    }

    /// Keeps the region of a page open for good, as if it always had a write in flight.
    pub(super) fn pin_open(&mut self, page: u64) {
        let region = self.region_of(page);
        self.regions[region as usize].begin();
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
