//! How reads and writes of stripes use the cache, and the units of a fixed stripe size. What the cache drops here,
//! [`crate::data::read_ahead`] drops as well.
//!
//! The caller holds the lock of the rows: shared to copy from the cache, exclusive to change it. The cache holds only
//! chunks of members that are present. A chunk without a member changes with its parity, unseen.

use crate::base::buffer::Block;
use crate::core::authority::Authority;
use crate::data::cache::{PAGE_BYTES, Row};
use crate::data::plane::DataPlane;
use crate::plan::planner::{ChunkTransfer, Span, Symbols};
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::{Parity, Role, Stripe};
use smallvec::SmallVec;
use std::ops::Range;

type Spans = SmallVec<[Span; 4]>;

/// The first row of a stripe.
fn base(stripe: &Stripe) -> Row {
    Row(stripe.component().0 / PAGE_BYTES as u64)
}

/// The row that ends where `span`, the first of a request, begins. It is in the same chunk, in the chunk before, or
/// in the stripe before.
fn row_before(stripe: &Stripe, chunk_bytes: u64, span: &Span) -> Option<Row> {
    let rows = chunk_bytes / PAGE_BYTES as u64;
    let Row(base) = base(stripe);
    match (span.within.start, span.data) {
        (0, 0) => base.checked_sub(1).map(Row),
        (0, _) => Some(Row(base + rows - 1)),
        (start, _) => Some(Row(base + u64::from(start - 1) / PAGE_BYTES as u64)),
    }
}

/// The chunk range from the first to the last byte of any of these ranges.
pub(crate) fn hull<'a>(ranges: impl Iterator<Item = &'a Range<u32>> + Clone) -> Range<u32> {
    let start = ranges.clone().map(|range| range.start).min().unwrap_or(0);
    start..ranges.map(|range| range.end).max().unwrap_or(0)
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// What the cache holds of a stripe, in the rows of `spans`.
    pub(crate) fn cached(&self, stripe: &Stripe, spans: &[Span], kept: &[Span]) -> SmallVec<[ChunkTransfer; 4]> {
        let cache = self.cache.borrow();
        if cache.is_empty() {
            return SmallVec::new();
        }
        cache.lookup(base(stripe), &hull(spans.iter().chain(kept).map(|span| &span.within)))
    }

    /// Copies what the cache holds.
    pub(crate) fn copy_cached(&self, stripe: &Stripe, transfers: &[ChunkTransfer]) -> Vec<(ChunkTransfer, Block)> {
        let copy = |transfer: &ChunkTransfer| {
            let mut into = self.core.pool.take((transfer.within.end - transfer.within.start) as usize);
            self.copy_cached_into(stripe, transfer, &mut into);
            (transfer.clone(), into.freeze())
        };
        transfers.iter().map(copy).collect()
    }

    /// Copies what the cache holds into its place.
    pub(crate) fn copy_cached_into(&self, stripe: &Stripe, transfer: &ChunkTransfer, into: &mut [u8]) {
        self.cache.borrow_mut().get(base(stripe), transfer, into);
    }

    /// Drops what is about to change on the members.
    pub(crate) fn invalidate<'a>(&self, stripe: &Stripe, changes: impl Iterator<Item = &'a ChunkTransfer> + Clone) {
        if !mutant!("ahead-not-forgotten") {
            self.read_ahead.invalidate(stripe.number()..stripe.number() + 1);
        }
        if !mutant!("cache-not-told") {
            self.cache.borrow_mut().invalidate(base(stripe), changes);
        }
    }

    /// Drops whole stripes that are about to change.
    pub(crate) fn invalidate_stripes(&self, parity: &Parity, stripes: Range<u64>) {
        self.read_ahead.invalidate(stripes.clone());
        let mut cache = self.cache.borrow_mut();
        if !cache.is_empty() && !mutant!("cache-not-told-of-stripes") {
            let rows = parity.chunk_bytes() / PAGE_BYTES as u64;
            cache.invalidate_rows(Row(stripes.start * rows)..Row(stripes.end * rows));
        }
    }

    /// Called when a request for `spans` succeeded. Caches what the stripe's members hold now, if that is likely to
    /// pay. Where contents overlap, the later ones count.
    pub(crate) fn cache_contents<'a>(
        &self,
        parity: &Parity,
        stripe: &Stripe,
        spans: &[Span],
        contents: impl Iterator<Item = &'a (ChunkTransfer, Block)>,
    ) {
        let Some(first) = spans.first() else { return };
        let cache = &mut *self.cache.borrow_mut();
        let before = row_before(stripe, parity.chunk_bytes(), first);
        if !cache.admit(base(stripe), &hull(spans.iter().map(|span| &span.within)), before) {
            return;
        }
        for (transfer, block) in contents {
            if stripe.slot_of(transfer.role).is_some_and(|slot| self.core.device(slot).is_some()) {
                cache.insert(base(stripe), transfer, block);
            }
        }
    }
}

/// With a fixed unit, the rest of each unit that a write of `spans` touches.
pub(crate) fn rest_of_units(spans: &[Span], unit: Option<u32>) -> Spans {
    let Some(unit) = unit else { return Spans::new() };
    let mut rest = Spans::new();
    for span in spans {
        let units = in_units(&span.within, unit);
        let mut from = units.start;
        // The spans of one chunk are separate and in ascending order.
        for other in spans.iter().filter(|other| other.data == span.data) {
            let end = other.within.start.min(units.end);
            if from < end {
                rest.push(Span { within: from..end, ..*span });
            }
            from = from.max(other.within.end);
        }
        if from < units.end {
            rest.push(Span { within: from..units.end, ..*span });
        }
    }
    rest.sort_unstable_by_key(|span| (span.data, span.within.start));
    rest.dedup();
    rest
}

/// The spans of a read, widened to whole fixed units where the data must be reconstructed.
pub(crate) fn in_units_where_lost(spans: &[Span], unit: Option<u32>, unreadable: Symbols) -> Spans {
    let widened = |span: &Span| match unit {
        Some(unit) if unreadable.contains(Role::Data(span.data)) => {
            Span { within: in_units(&span.within, unit), ..*span }
        }
        _ => span.clone(),
    };
    spans.iter().map(widened).collect()
}

/// The whole units that a range touches.
fn in_units(within: &Range<u32>, unit: u32) -> Range<u32> {
    within.start / unit * unit..within.end.next_multiple_of(unit)
}
