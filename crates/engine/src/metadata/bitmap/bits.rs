//! The write-intent bitmap in memory: which bits must be set, which of them are on stable storage, and which chunks
//! have writes under way.
//!
//! This file knows no member and performs no I/O. Invariants:
//! * A stable bit is set. A bit becomes stable only after every member has it and was flushed. When the bit is picked
//!   for clearing, it stops being both at once.
//! * The bit of a chunk with a write under way is set.
//! * While the array is in use, a bit is picked for clearing only if its last write ended before the previous period
//!   began. So a flush in between makes that write safe. After the last write, all bits may be cleared.
//!
//! A period is one `daemon_sleep`, as in md. A write reads no clock.

use crate::base::lazy_marks::MarkUse;
use crate::metadata::bitmap::sizing::PAGE_BYTES;
use format::bitmap;
use format::bitmap::{BitmapSuper, SUPER_BYTES, State};
use std::collections::BTreeSet;
use std::ops::Range;

/// Chunks whose state is allocated together, when the first of them is written to.
const LEAF_CHUNKS: usize = 512;

/// Ages are counted up to this many periods; older bits count as equally idle.
const AGE_MAX: usize = 63;

/// Pages of the bitmap, by number.
pub(super) type Pages = BTreeSet<usize>;

/// Pages that are being written to the members, with their contents when the round began.
#[derive(Default)]
pub(super) struct Round(Vec<(usize, Vec<u8>)>);

pub(super) struct Bits {
    pub(super) header: BitmapSuper,
    /// Superblock and bits, as every member should have them.
    image: Vec<u8>,
    /// The same, with only the bits that are on stable storage everywhere.
    stable: Vec<u8>,
    /// The bits that, at assembly, named chunks that may disagree.
    needed: Vec<u8>,
    /// Pages with bits that are set and not yet stable.
    pending: Pages,
    /// The writes to each chunk.
    chunks: Vec<Option<Box<[MarkUse; LEAF_CHUNKS]>>>,
    period: u32,
}

fn page_of(bit: u64) -> usize {
    (SUPER_BYTES + (bit / 8) as usize) / PAGE_BYTES
}

impl Bits {
    /// `image` is the superblock and every bit that any member has set. Unless `agreed`, the named chunks may
    /// disagree. No bit counts as stable yet: an interrupted round leaves bits on some members only, or in their
    /// volatile caches. So the first round writes all of them.
    pub(super) fn new(header: BitmapSuper, image: Vec<u8>, agreed: bool) -> Self {
        let leaves = header.bits().div_ceil(LEAF_CHUNKS as u64) as usize;
        Self {
            stable: mutant!("found-bits-stable" => image.clone(), else vec![0; image.len()]),
            needed: if agreed { Vec::new() } else { image.clone() },
            pending: (0..image.len().div_ceil(PAGE_BYTES)).collect(),
            image,
            chunks: (0..leaves).map(|_| None).collect(),
            period: 0,
            header,
        }
    }

    /// Sets all bits: the bits that were found cannot be trusted.
    pub(super) fn distrust(&mut self) {
        let bits = 0..self.header.bits();
        bitmap::set_range(&mut self.image[SUPER_BYTES..], bits.clone());
        if !self.needed.is_empty() {
            bitmap::set_range(&mut self.needed[SUPER_BYTES..], bits);
        }
    }

    /// Records a write to a range of what the bitmap covers. Returns its bits, for [`Self::end`].
    pub(super) fn begin(&mut self, range: Range<u64>) -> Range<u64> {
        let bits = self.header.bits_of(range);
        for bit in bits.clone() {
            self.chunk(bit).begin();
            if !bitmap::is_set(&self.stable[SUPER_BYTES..], bit) {
                bitmap::set_range(&mut self.image[SUPER_BYTES..], bit..bit + 1);
                self.pending.insert(page_of(bit));
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
        bits.all(|bit| bitmap::is_set(&self.stable[SUPER_BYTES..], bit))
    }

    /// The first part of a range that may disagree; the whole range if the bits do not tell.
    pub(super) fn next_needed(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        match self.needed.is_empty() {
            true => Some(range),
            false => self.header.first_set(&self.needed[SUPER_BYTES..], range, most),
        }
    }

    /// The first part of a range whose bits are set.
    pub(super) fn next_set(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        self.header.first_set(&self.image[SUPER_BYTES..], range, most)
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
            self.stable = self.image.clone();
        }
        self.round(pages)
    }

    fn has_unstable(&self, page: usize) -> bool {
        let start = (page * PAGE_BYTES).max(SUPER_BYTES);
        let end = self.image.len().min((page + 1) * PAGE_BYTES);
        self.image[start..end].iter().zip(&self.stable[start..end]).any(|(image, stable)| image & !stable != 0)
    }

    /// A round of all pages.
    pub(super) fn everything(&self) -> Round {
        self.round((0..self.image.len().div_ceil(PAGE_BYTES)).collect())
    }

    /// A round of these pages only. Pages that wait go on waiting.
    pub(super) fn round(&self, pages: Pages) -> Round {
        let page = |index: usize| {
            let start = index * PAGE_BYTES;
            (index, self.image[start..self.image.len().min(start + PAGE_BYTES)].to_vec())
        };
        Round(pages.into_iter().map(page).collect())
    }

    /// Every member has the round's pages, and was flushed.
    pub(super) fn landed(&mut self, round: Round) {
        for (index, bytes) in round.0 {
            let start = index * PAGE_BYTES;
            self.stable[start..].iter_mut().zip(bytes).for_each(|(stable, byte)| *stable |= byte);
        }
    }

    /// Some member does not have the pages: they wait again.
    pub(super) fn failed(&mut self, round: Round) {
        self.pending.extend(round.0.into_iter().map(|(index, _)| index));
    }

    /// Copies the image's bytes from `start` on; zeros beyond its end.
    pub(super) fn copy_to(&self, start: usize, into: &mut [u8]) {
        let there = into.len().min(self.image.len().saturating_sub(start));
        into[..there].copy_from_slice(&self.image[start..start + there]);
        into[there..].fill(0);
    }

    /// Length of superblock and bits, in bytes.
    pub(super) fn used_bytes(&self) -> u64 {
        SUPER_BYTES as u64 + self.header.bits().div_ceil(8)
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

    fn encode_header(&mut self) {
        let header = self.header.encode();
        self.image[..SUPER_BYTES].copy_from_slice(&header);
    }

    /// Begins the next period.
    pub(super) fn next_period(&mut self) {
        self.period += 1;
    }

    /// Periods since the last write to a chunk ended; `None` while one is under way.
    fn age(&self, bit: u64) -> Option<usize> {
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
            bitmap::clear_range(&mut self.image[SUPER_BYTES..], bit..bit + 1);
            bitmap::clear_range(&mut self.stable[SUPER_BYTES..], bit..bit + 1);
            pages.insert(page_of(bit));
        }
        pages
    }

    /// All bits that are set.
    fn set_bits(&self) -> impl Iterator<Item = u64> + '_ {
        let map = &self.image[SUPER_BYTES..self.used_bytes() as usize];
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

    /// The first run of set bits that ends after byte `from` of what the bitmap covers, as a range of those bytes.
    pub(super) fn set_range_from(&self, from: u64) -> Option<Range<u64>> {
        let map = &self.image[SUPER_BYTES..];
        let bits = self.header.bits();
        let start = (from / self.header.chunk_bytes..bits).find(|&bit| bitmap::is_set(map, bit))?;
        let end = (start..bits).find(|&bit| !bitmap::is_set(map, bit)).unwrap_or(bits);
        Some(self.header.bytes_of(start).start.max(from)..self.header.bytes_of(end - 1).end)
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
