//! Old contents of stripes that are likely to be written again: what a write of
//! a part would otherwise read from the members.
//!
//! The unit is a *row*: the same 4 KiB of every chunk of a stripe, data and
//! parity. A row holds whole pages of those chunks whose contents are known.
//! It never reads or writes a member, and is never needed: without it everything
//! works as well, with more reads.
//!
//! Never a stale byte: whoever is about to change the members calls
//! [`StripeCache::forget`] first, under the stripe's exclusive lock, and
//! [`StripeCache::learn`]s when it has succeeded. What was abandoned or failed in
//! between is simply not there. Parity is forgotten with any data of its row.
//!
//! What is kept, and for how long:
//! * A row that is written once is not kept; its number is remembered for a
//!   while. So writes at random cost no memory and push nothing out.
//! * A row that is written again meanwhile is *hot*, and kept in the main queue.
//! * A row whose write continues one that is remembered belongs to a *stream*,
//!   and is kept on probation: a quarter of the memory, first in, first out. If it
//!   is used there it moves to the main queue.
//! * The main queue gives each row that was used since its last turn another
//!   turn, at most [`USES_MAX`] of them (S3-FIFO's, Yang et al., SOSP 2023).

#[cfg(test)]
mod tests;

use crate::plan::planner::ChunkTransfer;
use format::geometry::Role;
use serde::Serialize;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// Memory that helps writes: old contents of stripes, and data that waits for more of its stripe.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CacheStatus {
    /// The most that is held of old contents.
    pub bytes_max: u64,
    /// What is held now.
    pub bytes: u64,
    /// What writes took from there, and so did not read from members.
    pub recalled_bytes: u64,
    /// Data that waits for more of its stripe, or was answered from memory and is not on the members yet.
    pub waiting_bytes: u64,
}

/// Bytes of a chunk in a row.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The most turns that uses earn.
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

struct Line {
    pages: SmallVec<[(Role, Page); 3]>,
    uses: u8,
    queue: Queue,
}

impl Line {
    fn page(&self, role: Role) -> Option<&Page> {
        self.pages.iter().find(|(held, _)| *held == role).map(|(_, page)| page)
    }

    /// Gives pages back; tells how many.
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
    /// Pages in lines, in all and on probation.
    held: usize,
    held_on_probation: usize,
    /// Bytes that were copied out.
    recalled: u64,
    free: Vec<Page>,
    lines: HashMap<Row, Line, BuildHasherDefault<RowHasher>>,
    /// Each line is in its queue once.
    probation: VecDeque<Row>,
    main: VecDeque<Row>,
    /// The last row that each place was for.
    remembered: Box<[Option<Row>]>,
}

impl StripeCache {
    /// A cache of at most `bytes` of contents; too few for a page turn it off.
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

    /// What it holds.
    pub(crate) fn status(&self) -> CacheStatus {
        let bytes = |pages: usize| (pages * PAGE_BYTES) as u64;
        let (bytes_max, held) = (bytes(self.pages_max), bytes(self.held));
        CacheStatus { bytes_max, bytes: held, recalled_bytes: self.recalled, waiting_bytes: 0 }
    }

    /// Nothing is held, and nothing needs to be forgotten.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// What is held of a stripe whose first row is `base`, in `within` of its chunks.
    pub(crate) fn known(&self, base: Row, within: &Range<u32>) -> SmallVec<[ChunkTransfer; 4]> {
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

    /// Copies what [`StripeCache::known`] said is held.
    ///
    /// # Panics
    /// When it is not held.
    pub(crate) fn recall(&mut self, base: Row, transfer: &ChunkTransfer, into: &mut [u8]) {
        self.recalled += into.len() as u64;
        for piece in pieces(base, transfer.within.start, into.len()) {
            let line = self.lines.get_mut(&piece.row).expect("what is known is held");
            line.uses = USES_MAX.min(line.uses + 1);
            let page = line.page(transfer.role).expect("what is known is held");
            into[piece.part].copy_from_slice(&page[piece.within]);
        }
    }

    /// The members' `changes` of a stripe are about to begin; they change parity too.
    pub(crate) fn forget<'a>(&mut self, base: Row, changes: impl Iterator<Item = &'a ChunkTransfer> + Clone) {
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
            let is_stale = |role: Role| is_parity(role) || changed.clone().any(|transfer| transfer.role == role);
            let gone = line.drop_pages(&mut self.free, is_stale);
            self.held -= gone;
            self.held_on_probation -= if line.queue == Queue::Probation { gone } else { 0 };
        }
    }

    /// All of these rows is about to change.
    pub(crate) fn forget_rows(&mut self, rows: Range<Row>) {
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

    /// Nothing that is held counts any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.pages_max * PAGE_BYTES);
    }

    /// A stripe's `within` was just used. Says whether its contents are worth
    /// [`StripeCache::learn`]ing. `before` is the row that ends where the request begins.
    pub(crate) fn admits(&mut self, base: Row, within: &Range<u32>, before: Option<Row>) -> bool {
        if self.pages_max == 0 {
            return false;
        }
        let continues = before.is_some_and(|before| self.is_remembered(before));
        let mut any = false;
        for row in rows_of(rows(base, within)) {
            any |= self.admit(row, continues);
            self.remember(row);
        }
        any
    }

    /// Takes in what a stripe's members hold now, as far as it was admitted.
    pub(crate) fn learn(&mut self, base: Row, transfer: &ChunkTransfer, contents: &[u8]) {
        for piece in pieces(base, transfer.within.start, contents.len()) {
            self.put(transfer.role, &piece, &contents[piece.part.clone()]);
        }
    }

    fn is_remembered(&self, row: Row) -> bool {
        self.remembered[place_of(row)] == Some(row)
    }

    fn remember(&mut self, row: Row) {
        self.remembered[place_of(row)] = Some(row);
    }

    /// Makes an empty line of a row that is worth keeping; true when there is a line.
    fn admit(&mut self, row: Row, continues: bool) -> bool {
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

    /// Puts contents into a line that is there: whole pages, or parts of pages that are.
    fn put(&mut self, role: Role, piece: &Piece, bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&piece.row) else { return };
        if let Some((_, page)) = line.pages.iter_mut().find(|(held, _)| *held == role) {
            page[piece.within.clone()].copy_from_slice(bytes);
            return;
        }
        let Ok(whole) = <&[u8; PAGE_BYTES]>::try_from(bytes) else { return };
        let Some(mut page) = self.take_page() else { return };
        page.copy_from_slice(whole);
        // Room for it may have cost the line itself its place.
        match self.lines.get_mut(&piece.row) {
            Some(line) => {
                line.pages.push((role, page));
                self.held += 1;
                self.held_on_probation += usize::from(line.queue == Queue::Probation);
            }
            None => self.free.push(page),
        }
    }

    /// A page, of a line that has to go for it when there is no room.
    fn take_page(&mut self) -> Option<Page> {
        while self.held >= self.pages_max || self.lines.len() > self.pages_max {
            self.evict()?;
        }
        Some(self.free.pop().unwrap_or_else(|| Box::new([0; PAGE_BYTES])))
    }

    /// Takes the next line's turn away, or gives it another.
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
        let line = self.lines.remove(&row).expect("it was just there");
        self.held -= line.pages.len();
        if queue == Queue::Probation {
            self.held_on_probation -= line.pages.len();
        }
        self.free.extend(line.pages.into_iter().map(|(_, page)| page));
        Some(())
    }
}

fn is_parity(role: Role) -> bool {
    !matches!(role, Role::Data(_))
}

/// Fibonacci's hash, so that strides do not meet. The highest bits are the best.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where a row is remembered.
fn place_of(row: Row) -> usize {
    (scattered(row.0) >> (64 - REMEMBERED.trailing_zeros())) as usize
}

/// For the numbers of rows, which nobody chooses to do harm.
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
        self.0.rotate_left(32) // the table takes its place from the lowest bits
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

/// The part of a range of a chunk that lies in one row.
struct Piece {
    row: Row,
    /// Of the row's page.
    within: Range<usize>,
    /// Of the range.
    part: Range<usize>,
}

fn pieces(base: Row, at: u32, bytes: usize) -> impl Iterator<Item = Piece> {
    let (start, end) = (at as usize, at as usize + bytes);
    (start / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(move |page| {
        let first = start.max(page * PAGE_BYTES);
        let last = end.min((page + 1) * PAGE_BYTES);
        Piece {
            row: Row(base.0 + page as u64),
            within: first - page * PAGE_BYTES..last - page * PAGE_BYTES,
            part: first - start..last - start,
        }
    })
}
