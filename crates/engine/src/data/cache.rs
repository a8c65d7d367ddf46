//! The stripe cache: old contents of stripes that are likely to be written again. A partial write would otherwise
//! read them from the members.
//!
//! The unit is a *row*: the same 4 KiB of every chunk of a stripe, data and parity. A row holds whole pages of those
//! chunks whose contents are known. The cache never reads or writes a member, and nothing depends on it: without it
//! there are only more reads.
//!
//! No stale byte is ever served. Code that is about to change the members calls [`StripeCache::invalidate`] first,
//! under the stripe's exclusive lock. It calls [`StripeCache::insert`] when the change has succeeded. After a change
//! that was abandoned or failed, the contents are simply missing. Parity is dropped with any data of its row.
//!
//! What is cached, and for how long:
//!
//! * A row that is written once is not cached; its number is remembered for a while. So random writes cost no memory
//!   and evict nothing.
//! * A row that is written again meanwhile is *hot*, and goes into the main queue.
//! * A row whose write continues a remembered one belongs to a *stream*, and is cached on probation: a quarter of the
//!   memory, first in, first out. If it is used there it moves to the main queue.
//! * The main queue gives each row that was used since its last turn another turn, at most [`USES_MAX`] of them
//!   (S3-FIFO, Yang et al., SOSP 2023).

#[cfg(test)]
mod tests;

use crate::data::coalesce::WriteBack;
use crate::plan::planner::ChunkTransfer;
use format::geometry::Role;
use serde::Serialize;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// Memory that helps writes: old contents of stripes, and data that waits for the rest of its stripe.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CacheStatus {
    /// The most memory for old contents.
    pub bytes_max: u64,
    /// The memory for old contents that is in use.
    pub bytes: u64,
    /// Bytes that writes took from the cache instead of reading them from members.
    pub recalled_bytes: u64,
    /// Data that waits for the rest of its stripe, or was answered from memory and is not on the members yet.
    pub waiting_bytes: u64,
    /// Which writes are answered from memory, if any.
    pub write_back: Option<WriteBack>,
}

/// Bytes of a chunk in a row.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The most turns that uses can earn.
const USES_MAX: u8 = 3;

/// Rows that are remembered, a power of two.
const REMEMBERED: usize = 1 << 13;

type Page = Box<[u8; PAGE_BYTES]>;

/// The number of a row: its position on the members' components, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row(pub(crate) u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Probation,
    Main,
}

/// The cached pages of a row.
struct Line {
    pages: SmallVec<[(Role, Page); 3]>,
    uses: u8,
    queue: Queue,
}

impl Line {
    fn page(&self, role: Role) -> Option<&Page> {
        self.pages.iter().find(|(held, _)| *held == role).map(|(_, page)| page)
    }

    /// Moves pages to `free`. Returns how many.
    fn drop_pages(&mut self, free: &mut Vec<Page>, is_stale: impl Fn(Role) -> bool) -> usize {
        let before = self.pages.len();
        while let Some(index) = self.pages.iter().position(|(role, _)| is_stale(*role)) {
            free.push(self.pages.swap_remove(index).1);
        }
        before - self.pages.len()
    }
}

/// The cache of one array.
pub(crate) struct StripeCache {
    pages_max: usize,
    /// Pages in lines: in all, and on probation.
    held: usize,
    held_on_probation: usize,
    /// Bytes that were copied out.
    recalled: u64,
    free: Vec<Page>,
    lines: HashMap<Row, Line, BuildHasherDefault<RowHasher>>,
    /// Each line is in its queue exactly once.
    probation: VecDeque<Row>,
    main: VecDeque<Row>,
    /// The last row remembered in each place of the hash table.
    remembered: Box<[Option<Row>]>,
}

impl StripeCache {
    /// A cache of at most `bytes` of contents. Less than a page turns it off.
    pub(crate) fn new(bytes: usize) -> Self {
        let pages_max = bytes / PAGE_BYTES;
        let remembered = if pages_max == 0 { 0 } else { REMEMBERED };
        Self {
            pages_max,
            held: 0,
            held_on_probation: 0,
            recalled: 0,
            free: Vec::new(),
            lines: HashMap::default(),
            probation: VecDeque::new(),
            main: VecDeque::new(),
            remembered: vec![None; remembered].into(),
        }
    }

    /// The memory in use, and what it saved.
    pub(crate) fn status(&self) -> CacheStatus {
        let bytes = |pages: usize| (pages * PAGE_BYTES) as u64;
        let (bytes_max, held) = (bytes(self.pages_max), bytes(self.held));
        CacheStatus { bytes_max, bytes: held, recalled_bytes: self.recalled, waiting_bytes: 0, write_back: None }
    }

    /// Whether nothing is ever cached, because members answer at once.
    pub(crate) fn is_off(&self) -> bool {
        self.pages_max == 0
    }

    /// Whether nothing is held, so that nothing has to be dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// What is held of a stripe with first row `base`, in `within` of its chunks.
    pub(crate) fn lookup(&self, base: Row, within: &Range<u32>) -> SmallVec<[ChunkTransfer; 4]> {
        let mut known = SmallVec::<[ChunkTransfer; 4]>::new();
        if self.is_empty() {
            return known;
        }
        for row in rows_of(rows(base, within)) {
            let Some(line) = self.lines.get(&row) else { continue };
            let start = ((row.0 - base.0) as usize * PAGE_BYTES) as u32;
            let page = start..start + PAGE_BYTES as u32;
            for &(role, _) in &line.pages {
                match known.iter_mut().find(|t| t.role == role && t.within.end == page.start) {
                    Some(transfer) => transfer.within.end = page.end,
                    None => known.push(ChunkTransfer { role, within: page.clone() }),
                }
            }
        }
        known
    }

    /// Copies contents that [`StripeCache::lookup`] listed.
    ///
    /// # Panics
    /// If the contents are not held.
    pub(crate) fn get(&mut self, base: Row, transfer: &ChunkTransfer, into: &mut [u8]) {
        self.recalled += into.len() as u64;
        for part in page_parts(base, transfer.within.start, into.len()) {
            let line = self.lines.get_mut(&part.row).expect("a listed row has its line");
            line.uses = USES_MAX.min(line.uses + 1);
            let page = line.page(transfer.role).expect("a listed page is in its line");
            into[part.of_range].copy_from_slice(&page[part.of_page]);
        }
    }

    /// Drops what is about to change in a stripe. Parity changes with any data.
    pub(crate) fn invalidate<'a>(&mut self, base: Row, changes: impl Iterator<Item = &'a ChunkTransfer> + Clone) {
        if self.is_empty() {
            return;
        }
        let start = changes.clone().map(|transfer| transfer.within.start).min().unwrap_or(0);
        let end = changes.clone().map(|transfer| transfer.within.end).max().unwrap_or(0);
        for row in rows_of(rows(base, &(start..end))) {
            let Some(line) = self.lines.get_mut(&row) else { continue };
            let touches = |within: &Range<u32>| rows(base, within).contains(&row);
            let mut changed = changes.clone().filter(|transfer| touches(&transfer.within)).peekable();
            if changed.peek().is_none() {
                continue;
            }
            let is_stale = |role: Role| role.is_parity() || changed.clone().any(|transfer| transfer.role == role);
            let gone = line.drop_pages(&mut self.free, is_stale);
            self.held -= gone;
            self.held_on_probation -= if line.queue == Queue::Probation { gone } else { 0 };
        }
    }

    /// Drops whole rows that are about to change.
    pub(crate) fn invalidate_rows(&mut self, rows: Range<Row>) {
        let mut drop_all = |line: &mut Line| {
            let gone = line.drop_pages(&mut self.free, |_| true);
            self.held -= gone;
            self.held_on_probation -= if line.queue == Queue::Probation { gone } else { 0 };
        };
        if rows.end.0 - rows.start.0 > self.lines.len() as u64 {
            self.lines.iter_mut().filter(|(row, _)| rows.contains(row)).for_each(|(_, line)| drop_all(line));
        } else {
            rows_of(rows).for_each(|row| _ = self.lines.get_mut(&row).map(&mut drop_all));
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.pages_max * PAGE_BYTES);
    }

    /// Records that a stripe's `within` was just used. Returns whether its contents are worth caching
    /// ([`StripeCache::insert`]). `before` is the row that ends where the request begins.
    pub(crate) fn admit(&mut self, base: Row, within: &Range<u32>, before: Option<Row>) -> bool {
        if self.pages_max == 0 {
            return false;
        }
        let continues = before.is_some_and(|before| self.is_remembered(before));
        let mut any = false;
        for row in rows_of(rows(base, within)) {
            any |= self.admit_row(row, continues);
            self.remember(row);
        }
        any
    }

    /// Caches what a stripe's members hold now, as far as it was admitted.
    pub(crate) fn insert(&mut self, base: Row, transfer: &ChunkTransfer, contents: &[u8]) {
        for part in page_parts(base, transfer.within.start, contents.len()) {
            self.put(transfer.role, &part, &contents[part.of_range.clone()]);
        }
    }

    fn is_remembered(&self, row: Row) -> bool {
        self.remembered[place_of(row)] == Some(row)
    }

    fn remember(&mut self, row: Row) {
        self.remembered[place_of(row)] = Some(row);
    }

    /// Makes an empty line for a row that is worth caching. Returns whether the row has a line.
    fn admit_row(&mut self, row: Row, continues: bool) -> bool {
        if self.lines.contains_key(&row) {
            return true;
        }
        let queue = match (self.is_remembered(row), continues) {
            (true, _) => Queue::Main,
            (false, true) => Queue::Probation,
            (false, false) => return false,
        };
        self.lines.insert(row, Line { pages: SmallVec::new(), uses: 0, queue });
        self.queue(queue).push_back(row);
        true
    }

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<Row> {
        match queue {
            Queue::Probation => &mut self.probation,
            Queue::Main => &mut self.main,
        }
    }

    /// Puts contents into an existing line: whole pages, or parts of pages that are there.
    fn put(&mut self, role: Role, part: &PagePart, bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&part.row) else { return };
        if let Some((_, page)) = line.pages.iter_mut().find(|(held, _)| *held == role) {
            page[part.of_page.clone()].copy_from_slice(bytes);
            return;
        }
        let Ok(whole) = <&[u8; PAGE_BYTES]>::try_from(bytes) else { return };
        let Some(mut page) = self.take_page() else { return };
        page.copy_from_slice(whole);
        // Making room may have evicted this line itself.
        match self.lines.get_mut(&part.row) {
            Some(line) => {
                line.pages.push((role, page));
                self.held += 1;
                self.held_on_probation += usize::from(line.queue == Queue::Probation);
            }
            None => self.free.push(page),
        }
    }

    /// A free page. If there is no room, a line is evicted for it.
    fn take_page(&mut self) -> Option<Page> {
        while self.held >= self.pages_max || self.lines.len() > self.pages_max {
            self.evict()?;
        }
        Some(self.free.pop().unwrap_or_else(|| Box::new([0; PAGE_BYTES])))
    }

    /// Evicts the next line, or gives it another turn.
    fn evict(&mut self) -> Option<()> {
        let on_probation = self.held_on_probation > self.pages_max / 4 || self.main.is_empty();
        let queue = if on_probation && !self.probation.is_empty() { Queue::Probation } else { Queue::Main };
        let row = self.queue(queue).pop_front()?;
        let line = self.lines.get_mut(&row).expect("a row in a queue has its line");
        if line.uses > 0 {
            line.uses = if queue == Queue::Probation { 0 } else { line.uses - 1 };
            if queue == Queue::Probation {
                line.queue = Queue::Main;
                self.held_on_probation -= line.pages.len();
            }
            self.main.push_back(row);
            return Some(());
        }
        let line = self.lines.remove(&row).expect("the line was found above");
        self.held -= line.pages.len();
        if queue == Queue::Probation {
            self.held_on_probation -= line.pages.len();
        }
        self.free.extend(line.pages.into_iter().map(|(_, page)| page));
        Some(())
    }
}

/// Fibonacci hashing, so that strides do not collide. The highest bits are the best.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where a row is remembered.
fn place_of(row: Row) -> usize {
    (scattered(row.0) >> (64 - REMEMBERED.trailing_zeros())) as usize
}

/// A hasher for row numbers, which no adversary chooses.
#[derive(Default)]
struct RowHasher(u64);

impl Hasher for RowHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a row is a number");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = scattered(number);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(32) // the hash table uses the lowest bits
    }
}

/// The rows that bytes of a stripe's chunks touch.
fn rows(base: Row, within: &Range<u32>) -> Range<Row> {
    let page = PAGE_BYTES as u64;
    Row(base.0 + u64::from(within.start) / page)..Row(base.0 + u64::from(within.end).div_ceil(page))
}

fn rows_of(rows: Range<Row>) -> impl Iterator<Item = Row> {
    (rows.start.0..rows.end.0).map(Row)
}

/// The part of a chunk's range that lies in one row.
struct PagePart {
    row: Row,
    /// Its range in the row's page.
    of_page: Range<usize>,
    /// Its range in the given range.
    of_range: Range<usize>,
}

fn page_parts(base: Row, at: u32, bytes: usize) -> impl Iterator<Item = PagePart> {
    let (start, end) = (at as usize, at as usize + bytes);
    (start / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |page| {
        let first = start.max(page * PAGE_BYTES);
        let last = end.min((page + 1) * PAGE_BYTES);
        PagePart {
            row: Row(base.0 + page as u64),
            of_page: first - page * PAGE_BYTES..last - page * PAGE_BYTES,
            of_range: first - start..last - start,
        }
    })
}
