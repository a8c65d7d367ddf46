//! The write-intent bitmap in memory: which bits must be set, which of them are on stable storage, and which chunks
//! have writes under way.
//!
//! On disk a chunk has a bit or, in a lockless bitmap, a byte of state. In memory it has a bit in both. The states
//! follow from the bits and from [`Unbuilt`]: [`Bits::state`].
//!
//! This file knows no member and performs no I/O. Invariants:
//! * A stable bit is set. A bit becomes stable only after every member has it and was flushed. When the bit is picked
//!   for clearing, it stops being both at once.
//! * The bit of a chunk with a write under way is set. So is that of a chunk that is built in part.
//! * While the array is in use, a bit is picked for clearing only if its last write ended before the previous period
//!   began. So a flush in between makes that write safe. After the last write, all bits may be cleared.
//!
//! A period is one `daemon_sleep`, as in md. A write reads no clock.

use crate::base::lazy_marks::MarkUse;
use crate::base::range_set::Ranges;
use crate::core::unbuilt::Unbuilt;
use crate::metadata::bitmap::sizing::PAGE_BYTES;
use format::bitmap;
use format::bitmap::{BitmapSuper, Kind, SUPER_BYTES, State};
use format::lockless::ChunkState;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// Chunks whose state is allocated together, when the first of them is written to.
const LEAF_CHUNKS: usize = 512;

/// Ages are counted up to this many periods; older bits count as equally idle.
const AGE_MAX: usize = 63;

/// Pages of the bitmap, by number.
pub(super) type Pages = BTreeSet<usize>;

/// Pages that are being written to the members, with their bits when the round began.
#[derive(Default)]
pub(super) struct Round(Vec<(usize, Vec<u8>)>);

pub(super) struct Bits {
    pub(super) header: BitmapSuper,
    /// The superblock, as every member should have it.
    head: [u8; SUPER_BYTES],
    /// The bits, as every member should have them.
    set: Vec<u8>,
    /// The bits that are on stable storage everywhere.
    stable: Vec<u8>,
    /// The bits that, at assembly, named chunks that may disagree. Empty if none did.
    needed: Vec<u8>,
    /// The parts of chunks that were not built yet.
    unbuilt: Rc<Unbuilt>,
    /// Pages with bits that are set and not yet stable.
    pending: Pages,
    /// The writes to each chunk.
    chunks: Vec<Option<Box<[MarkUse; LEAF_CHUNKS]>>>,
    period: u32,
}

impl Bits {
    /// `set` has every bit that any member has set. Unless `agreed`, the named chunks may disagree. No bit counts as
    /// stable yet: an interrupted round leaves bits on some members only, or in their volatile caches. So the first
    /// round writes all of them.
    pub(super) fn new(header: BitmapSuper, set: Vec<u8>, agreed: bool, unbuilt: Rc<Unbuilt>) -> Self {
        let leaves = header.bits().div_ceil(LEAF_CHUNKS as u64) as usize;
        let mut bits = Self {
            head: header.encode(),
            stable: mutant!("found-bits-stable" => set.clone(), else vec![0; set.len()]),
            needed: if agreed { Vec::new() } else { set.clone() },
            pending: Pages::new(),
            set,
            unbuilt,
            chunks: (0..leaves).map(|_| None).collect(),
            period: 0,
            header,
        };
        bits.pending = bits.all_pages();
        bits
    }

    fn all_pages(&self) -> Pages {
        (0..self.used_bytes().div_ceil(PAGE_BYTES as u64) as usize).collect()
    }

    fn page_of(&self, bit: u64) -> usize {
        let kind = self.header.kind;
        (kind.head_bytes() + kind.map_bytes(bit + 1) - 1) as usize / PAGE_BYTES
    }

    /// The bytes of the bits in memory whose chunks have their bits or states in a page.
    fn bits_in(&self, page: usize) -> Range<usize> {
        let head = self.header.kind.head_bytes() as usize;
        let per_byte = if self.header.kind == Kind::Lockless { 8 } else { 1 };
        let end = ((page + 1) * PAGE_BYTES - head) / per_byte;
        (page * PAGE_BYTES).saturating_sub(head) / per_byte..end.min(self.set.len())
    }

    /// What the byte of a chunk says in a lockless bitmap.
    ///
    /// Where a write has built a part of a chunk, the rest needs a sync. md does the same when a chunk of a level with
    /// parity is written for the first time. With copies it calls the chunk dirty and leaves the rest as it is.
    fn state(&self, chunk: u64) -> ChunkState {
        let is_set = bitmap::is_set(&self.set, chunk);
        let is_needed = !self.needed.is_empty() && bitmap::is_set(&self.needed, chunk);
        match (is_set, self.is_unbuilt(chunk)) {
            (false, true) => ChunkState::Unwritten,
            (false, false) => ChunkState::Clean,
            (true, true) => ChunkState::NeedsSync,
            (true, false) if is_needed => ChunkState::NeedsSync,
            (true, false) => ChunkState::Dirty,
        }
    }

    /// Whether a part of a chunk was not built yet.
    fn is_unbuilt(&self, chunk: u64) -> bool {
        self.unbuilt.touches(&self.header.bytes_of(chunk))
    }

    /// Sets all bits: the bits that were found cannot be trusted.
    pub(super) fn distrust(&mut self) {
        let bits = 0..self.header.bits();
        bitmap::set_range(&mut self.set, bits.clone());
        if !self.needed.is_empty() {
            bitmap::set_range(&mut self.needed, bits);
        }
    }

    /// Records a write to a range of what the bitmap covers. Returns its bits, for [`Self::end`].
    pub(super) fn begin(&mut self, range: Range<u64>) -> Range<u64> {
        let bits = self.header.bits_of(range);
        for bit in bits.clone() {
            self.chunk(bit).begin();
            if !bitmap::is_set(&self.stable, bit) {
                bitmap::set_range(&mut self.set, bit..bit + 1);
                self.pending.insert(self.page_of(bit));
            }
        }
        bits
    }

    /// The write that [`Self::begin`] recorded has ended.
    pub(super) fn end(&mut self, bits: Range<u64>) {
        let period = self.period;
        for bit in bits {
            self.chunk(bit).end(period);
        }
    }

    fn chunk(&mut self, bit: u64) -> &mut MarkUse {
        let (leaf, index) = ((bit / LEAF_CHUNKS as u64) as usize, (bit % LEAF_CHUNKS as u64) as usize);
        &mut self.chunks[leaf].get_or_insert_with(|| Box::new([MarkUse::default(); LEAF_CHUNKS]))[index]
    }

    /// Whether all these bits are on stable storage on every member.
    pub(super) fn are_stable(&self, mut bits: Range<u64>) -> bool {
        bits.all(|bit| bitmap::is_set(&self.stable, bit))
    }

    /// The first part of a range that may disagree; the whole range if the bits do not tell.
    pub(super) fn next_needed(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        match self.needed.is_empty() {
            true => Some(range),
            false => self.header.first_set(&self.needed, range, most),
        }
    }

    /// All that may disagree; `None` if the bits do not tell.
    pub(super) fn needed(&self) -> Option<Ranges> {
        let end = self.header.sync_size.bytes();
        let next = |from: u64| self.header.first_set(&self.needed, from..end, u64::MAX).filter(|_| from < end);
        (!self.needed.is_empty()).then(|| Ranges::of(std::iter::successors(next(0), |range| next(range.end))))
    }

    /// The first part of a range whose bits are set.
    pub(super) fn next_set(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        self.header.first_set(&self.set, range, most)
    }

    /// The chunks that disagreed at assembly agree now.
    pub(super) fn clear_needed(&mut self) {
        self.needed = Vec::new();
    }

    /// Takes the pages that wait, and `more`. From here on they belong to the round.
    pub(super) fn take_round(&mut self, more: Option<usize>) -> Round {
        let mut pages = std::mem::take(&mut self.pending);
        pages.retain(|&index| self.has_unstable(index)); // an earlier round may have written its bits already
        pages.extend(more);
        if mutant!("bit-stable-too-early") {
            self.stable = self.set.clone();
        }
        self.round(pages)
    }

    fn has_unstable(&self, page: usize) -> bool {
        let bits = self.bits_in(page);
        self.set[bits.clone()].iter().zip(&self.stable[bits]).any(|(set, stable)| set & !stable != 0)
    }

    /// A round of all pages.
    pub(super) fn everything(&self) -> Round {
        self.round(self.all_pages())
    }

    /// A round of these pages only. Pages that wait go on waiting.
    pub(super) fn round(&self, pages: Pages) -> Round {
        Round(pages.into_iter().map(|page| (page, self.set[self.bits_in(page)].to_vec())).collect())
    }

    /// Every member has the round's pages, and was flushed.
    pub(super) fn landed(&mut self, round: Round) {
        for (page, bytes) in round.0 {
            let bits = self.bits_in(page);
            self.stable[bits].iter_mut().zip(bytes).for_each(|(stable, byte)| *stable |= byte);
        }
    }

    /// Some member does not have the pages: they wait again.
    pub(super) fn failed(&mut self, round: Round) {
        self.pending.extend(round.0.into_iter().map(|(index, _)| index));
    }

    /// Copies what a member should have from byte `start` of the bitmap on; zeros beyond its end.
    pub(super) fn copy_to(&self, start: usize, into: &mut [u8]) {
        into.fill(0);
        let map_at = self.header.kind.head_bytes() as usize;
        let map_end = self.used_bytes() as usize;
        overlay(start, into, 0, &self.head);
        if self.header.kind != Kind::Lockless {
            return overlay(start, into, map_at, &self.set);
        }
        for at in start.max(map_at)..map_end.min(start + into.len()) {
            into[at - start] = self.state((at - map_at) as u64).byte();
        }
    }

    /// Length of superblock and bits or states, in bytes.
    pub(super) fn used_bytes(&self) -> u64 {
        self.header.used_bytes()
    }

    /// Gives the header the events of the superblocks, and marks the bits as valid.
    pub(super) fn set_events(&mut self, events: u64, cleared: Option<u64>) {
        self.header.events = events;
        self.header.state = State(self.header.state.0 & !(State::STALE.0 | State::WRITE_ERROR.0));
        self.header.events_cleared = cleared.unwrap_or(self.header.events_cleared);
        self.encode_header();
    }

    /// Marks the bits as out of date, until [`Self::set_events`].
    pub(super) fn set_stale(&mut self) {
        self.header.state = State(self.header.state.0 | State::STALE.0);
        self.encode_header();
    }

    /// Changes the length of a period.
    pub(super) fn set_daemon_sleep(&mut self, seconds: u32) {
        self.header.daemon_sleep_seconds = seconds;
        self.encode_header();
    }

    fn encode_header(&mut self) {
        self.head = self.header.encode();
    }

    /// Begins the next period.
    pub(super) fn next_period(&mut self) {
        self.period += 1;
    }

    /// Periods since the last write to a chunk ended; `None` while one is under way, or a part of it is not built.
    fn age(&self, bit: u64) -> Option<usize> {
        if self.is_unbuilt(bit) {
            return None;
        }
        let leaf = self.chunks[(bit / LEAF_CHUNKS as u64) as usize].as_ref();
        let chunk = leaf.map_or_else(MarkUse::default, |leaf| leaf[(bit % LEAF_CHUNKS as u64) as usize]);
        (!chunk.is_in_flight() || mutant!("bit-cleared-under-write"))
            .then(|| (chunk.age(self.period) as usize).min(AGE_MAX))
    }

    /// How many bits that are set, without a write under way, have each age in periods. The last counts all older ones.
    fn ages(&self) -> [u64; AGE_MAX + 1] {
        let mut ages = [0; AGE_MAX + 1];
        self.set_bits().filter_map(|bit| self.age(bit)).for_each(|age| ages[age] += 1);
        ages
    }

    /// Whether any bit has been idle for `periods`.
    pub(super) fn has_idle(&self, periods: usize) -> bool {
        self.set_bits().any(|bit| self.age(bit).is_some_and(|age| age >= periods))
    }

    /// Clears up to `most` bits that have been idle for at least `periods`, the longest idle first. Returns their
    /// pages.
    pub(super) fn clear_idle(&mut self, periods: usize, most: u64) -> Pages {
        let ages = self.ages();
        let mut left = most;
        // All bits of at least age `whole` are cleared, and `left` of those that are one period younger.
        let mut whole = AGE_MAX + 1;
        while whole > periods && ages[whole - 1] <= left {
            whole -= 1;
            left -= ages[whole];
        }
        let mut pages = Pages::new();
        let idle: Vec<u64> = self
            .set_bits()
            .filter(|&bit| match self.age(bit) {
                Some(age) if age >= whole => true,
                Some(age) if age + 1 == whole && age >= periods && left > 0 => {
                    left -= 1;
                    true
                }
                _ => false,
            })
            .collect();
        for bit in idle {
            bitmap::clear_range(&mut self.set, bit..bit + 1);
            bitmap::clear_range(&mut self.stable, bit..bit + 1);
            pages.insert(self.page_of(bit));
        }
        pages
    }

    /// All bits that are set.
    fn set_bits(&self) -> impl Iterator<Item = u64> + '_ {
        let map = &self.set[..self.header.bits().div_ceil(8) as usize];
        let of_byte = |(index, byte): (usize, &u8)| {
            let byte = *byte;
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| index as u64 * 8 + bit)
        };
        let bits = self.header.bits();
        map.iter().enumerate().filter(|(_, byte)| **byte != 0).flat_map(of_byte).take_while(move |&bit| bit < bits)
    }

    /// Number of bits that are set.
    pub(super) fn set_count(&self) -> u64 {
        self.set_bits().count() as u64
    }

    /// Bytes of what the bitmap covers that were never written to.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.unbuilt.bytes()
    }

    /// The first part at or after byte `from` of what the bitmap covers that was not built, in a chunk that was
    /// written.
    pub(super) fn next_half_built(&self, from: u64) -> Option<Range<u64>> {
        let rest = from..self.header.sync_size.bytes();
        let part = self
            .unbuilt
            .parts(&rest)
            .into_iter()
            .find_map(|part| self.header.first_set(&self.set, part, self.header.chunk_bytes))?;
        Some(part)
    }

    /// The first run of set bits that ends after byte `from` of what the bitmap covers, as a range of those bytes.
    pub(super) fn set_range_from(&self, from: u64) -> Option<Range<u64>> {
        let map = &self.set;
        let bits = self.header.bits();
        let start = (from / self.header.chunk_bytes..bits).find(|&bit| bitmap::is_set(map, bit))?;
        let end = (start..bits).find(|&bit| !bitmap::is_set(map, bit)).unwrap_or(bits);
        Some(self.header.bytes_of(start).start.max(from)..self.header.bytes_of(end - 1).end)
    }
}

/// Copies the part of `bytes`, which begin at byte `at` of the bitmap, that lies in `into`, which begins at `start`.
fn overlay(start: usize, into: &mut [u8], at: usize, bytes: &[u8]) {
    let (from, to) = (start.max(at), (start + into.len()).min(at + bytes.len()));
    if from < to {
        into[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
    }
}

impl Round {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn pages(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|(index, _)| *index)
    }
}
