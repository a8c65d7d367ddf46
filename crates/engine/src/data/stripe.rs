//! Reads and writes of the parity levels: 4, 5 and 6.
//!
//! [`crate::plan::planner`] plans each stripe's part of a request. This file carries the plan out from top to bottom:
//! reads, arithmetic, writes. If a member fails a read, a new plan avoids it. If a member fails a write, it is
//! ejected before the write is answered. The caller locks and marks writes; [`Marked`] proves the second.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::{at_once, join_all};
use crate::base::notify::Seen;
use crate::base::write_set::WriteExtent;
use crate::core::authority::{Authority, Logging, Marked};
use crate::data::cached_stripes::{hull, in_units_where_lost, rest_of_units};
use crate::data::mirror::join_parts;
use crate::data::parity::{Known, compute};
use crate::data::plane::DataPlane;
use crate::data::reading::{Reading, UnreadChunk};
use crate::data::request::Locked;
use crate::device::{Device, Failures};
use crate::plan::ROW_BYTES;
use crate::plan::planner::{ChunkTransfer, Plan, Span, StripeHealth, Symbols, code, plan_read, plan_write};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};
use format::units::ComponentByte;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The part of a request that falls on one stripe.
pub(crate) struct Share {
    pub(crate) stripe: Stripe,
    pub(crate) spans: SmallVec<[Span; 4]>,
    pub(crate) bytes: usize,
}

impl Share {
    /// The first byte of the share in the array.
    fn at(&self, parity: &Parity) -> u64 {
        let Span { data, within } = &self.spans[0];
        self.stripe.number() * parity.stripe_bytes() + u64::from(*data) * parity.chunk_bytes() + u64::from(within.start)
    }
}

/// A write to a part of one stripe, in whole blocks.
#[derive(Clone, Copy)]
pub(crate) struct PartWrite<'a> {
    /// The stripe.
    pub(crate) number: u64,
    pub(crate) patches: &'a [WriteExtent],
    /// The fixed unit when its rows were locked. With a unit, the whole stripe is locked.
    pub(crate) unit: Option<u32>,
}

/// Cuts an array range, which is not empty, at the edges of stripes.
pub(crate) fn shares(parity: &Parity, at: u64, bytes: u64) -> impl Iterator<Item = Share> + '_ {
    let width = parity.stripe_bytes();
    let end = at + bytes;
    (at / width..end.div_ceil(width)).map(move |number| {
        let start = at.max(number * width) - number * width;
        let stop = end.min((number + 1) * width) - number * width;
        Share {
            stripe: parity.stripe(number),
            spans: spans(parity.chunk_bytes(), start..stop).collect(),
            bytes: (stop - start) as usize,
        }
    })
}

/// Cuts a range of a stripe's data at the edges of chunks.
fn spans(chunk_bytes: u64, range: Range<u64>) -> impl Iterator<Item = Span> {
    let shift = chunk_bytes.trailing_zeros(); // a power of two
    (range.start >> shift..range.end.div_ceil(chunk_bytes)).map(move |data| {
        let first = data << shift;
        Span {
            data: data as u16,
            within: (range.start.max(first) - first) as u32..(range.end.min(first + chunk_bytes) - first) as u32,
        }
    })
}

/// The range of chunk bytes that a request for `spans` reads, with a fixed unit or without.
fn touched(parity: &Parity, spans: &[Span], unit: Option<u32>) -> Range<u32> {
    match unit {
        Some(_) => 0..parity.chunk_bytes() as u32,
        None => hull(spans.iter().map(|span| &span.within)),
    }
}

fn length(range: &Range<u32>) -> usize {
    (range.end - range.start) as usize
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    pub(crate) async fn read_striped(
        &self,
        parity: &Parity,
        at: u64,
        mut into: Buffer,
        locked: Locked,
    ) -> Result<Buffer, ArrayError> {
        let mut shares = shares(parity, at, into.len() as u64);
        let first = shares.next().expect("the range is not empty");
        if first.bytes == into.len() {
            return self.read_share(parity, first, into, locked).await;
        }
        let head = into.split_to(first.bytes);
        let parts = std::iter::once((first, head)).chain(shares.map(|share| {
            let part = into.split_to(share.bytes);
            (share, part)
        }));
        let reads: Vec<_> = parts.map(|(share, part)| self.read_share(parity, share, part, locked)).collect();
        join_parts(join_all(reads).await)
    }

    pub(crate) fn device_of(&self, stripe: &Stripe, role: Role) -> Option<Rc<Device<M>>> {
        self.core.device(stripe.slot_of(role)?)
    }

    /// What the members can supply of a stripe now, within the range `within` of its chunks. `failed` lists chunks
    /// whose reads just failed.
    pub(crate) fn health(&self, parity: &Parity, stripe: &Stripe, within: Range<u32>, failed: Symbols) -> StripeHealth {
        let range = component(stripe, within.start).0..component(stripe, within.end).0;
        let mut health = StripeHealth {
            unreadable: failed,
            absent: Symbols::EMPTY,
            parity_trusted: mutant!("untrusted-parity-used")
                || self.core.is_agreed((stripe.number() + 1) * parity.stripe_bytes(), &range),
        };
        if self.core.is_whole() {
            return health;
        }
        for (index, device) in self.core.roster.slots.borrow().iter().enumerate() {
            let role = stripe.role_of(format::units::Slot(index as u16));
            let active = device.as_ref().filter(|device| device.is_active());
            if active.is_none() {
                health.absent = health.absent.with(role);
            }
            if !active.is_some_and(|device| device.is_readable(range.clone())) {
                health.unreadable = health.unreadable.with(role);
            }
        }
        health
    }

    /// As [`DataPlane::health`], but for a read: if one of two parities is enough, the other is spared.
    pub(crate) fn read_health(
        &self,
        parity: &Parity,
        stripe: &Stripe,
        within: Range<u32>,
        failed: Symbols,
    ) -> StripeHealth {
        let mut health = self.health(parity, stripe, within, failed);
        if let Some(spared) = self.spared_parity(parity, stripe, health.unreadable) {
            health.unreadable = health.unreadable.with(spared);
        }
        health
    }

    /// Reads one stripe's share. Reconstruction needs data and parity of the same moment, so it keeps writes off the
    /// stripe. A direct read does not.
    async fn read_share(
        &self,
        parity: &Parity,
        share: Share,
        mut into: Buffer,
        locked: Locked,
    ) -> Result<Buffer, ArrayError> {
        let number = share.stripe.number();
        if locked == Locked::No {
            match self.read_from_memory(parity, share.at(parity), into).await {
                Ok(filled) => return Ok(filled),
                Err(buffer) => into = buffer,
            }
        }
        let mut lock = None;
        let mut failed = Symbols::EMPTY;
        let mut last_error = None;
        let mut slots_seen = self.core.roster.slot_changed.seen();
        loop {
            if slots_seen != self.core.roster.slot_changed.seen() {
                // Another device is in the slot now.
                (slots_seen, failed) = (self.core.roster.slot_changed.seen(), Symbols::EMPTY);
            }
            let touched = touched(parity, &share.spans, self.stripe_size_bytes());
            let health = self.read_health(parity, &share.stripe, touched, failed);
            let is_lost = |span: &Span| health.unreadable.contains(Role::Data(span.data));
            let (result, buffer) = if !share.spans.iter().any(is_lost) {
                self.read_directly(&share, into).await
            } else if locked == Locked::No && lock.is_none() {
                let locks = parity.component_of(&(number..number + 1));
                self.coalescer.close_within(&locks);
                lock = Some(self.core.locks.shared(locks).await);
                continue; // the array may have changed meanwhile
            } else {
                let known = self.cached(&share.stripe, &share.spans, &[]);
                let spans = in_units_where_lost(&share.spans, self.stripe_size_bytes(), health.unreadable);
                let Ok(plan) = plan_read(code(parity), &spans, &known, &health) else {
                    if self.core.health.unbuilt.is_any()
                        && failed.is_empty()
                        && Box::pin(self.read_unwritten(&share, &health, &mut into)).await.is_some()
                    {
                        return Ok(into);
                    }
                    if let Some(unit) = self.finer_unit(&share.spans) {
                        return Box::pin(self.read_in_rows(parity, &share, unit, into, Locked::Exclusively)).await;
                    }
                    let at = number * parity.stripe_bytes();
                    return Err(self.core.io_error(at, share.bytes as u64, last_error.as_ref()));
                };
                let reading = Reading::new(&self.core.pool, share.stripe, &share.spans, plan, into);
                self.read_and_solve(parity, reading).await
            };
            into = buffer;
            match result {
                Ok(()) => return Ok(into),
                Err((role, error)) if failed.contains(role) => {
                    // The member's contents and the result of reconstruction both differ from what was written.
                    let at = number * parity.stripe_bytes();
                    return Err(self.core.io_error(at, share.bytes as u64, error.as_ref()));
                }
                Err((role, error)) => {
                    failed = failed.with(role);
                    last_error = error.or(last_error);
                }
            }
        }
    }

    /// A unit smaller than the request. Reading it unit by unit may succeed where different members fail in different
    /// rows.
    fn finer_unit(&self, spans: &[Span]) -> Option<u32> {
        let touched = hull(spans.iter().map(|span| &span.within));
        let is_larger = |unit: &u32| touched.start / unit < (touched.end - 1) / unit;
        [ROW_BYTES as u32, self.core.info.block_bytes as u32].into_iter().find(is_larger)
    }

    async fn read_in_rows(
        &self,
        parity: &Parity,
        share: &Share,
        unit: u32,
        mut into: Buffer,
        locked: Locked,
    ) -> Result<Buffer, ArrayError> {
        let mut parts = Vec::new();
        for span in &share.spans {
            let mut start = span.within.start;
            while start < span.within.end {
                let end = span.within.end.min((start / unit + 1) * unit);
                let row = Span { within: start..end, ..*span };
                let part = into.split_to(length(&row.within));
                let stripe = parity.stripe(share.stripe.number());
                let row = Share { stripe, spans: SmallVec::from_iter([row]), bytes: part.len() };
                parts.push(self.read_share(parity, row, part, locked).await);
                start = end;
            }
        }
        join_parts(parts)
    }

    /// Writes one row after the other. Each row is consistent by itself.
    async fn write_in_rows(
        &self,
        marked: Marked<'_>,
        parity: &Parity,
        part: PartWrite<'_>,
        row_bytes: u32,
    ) -> Result<(), ArrayError> {
        let mut rows: BTreeMap<u64, Vec<WriteExtent>> = BTreeMap::new();
        for patch in part.patches {
            let mut rest = patch.clone();
            let unit = u64::from(row_bytes);
            while let Some(part) = rest.take_front((unit - rest.at % unit).min(rest.end() - rest.at)) {
                rows.entry(part.at % parity.chunk_bytes() / unit).or_default().push(part);
            }
        }
        let mut outcome = Ok(());
        for patches in rows.into_values() {
            match self.write_part(marked, parity, PartWrite { patches: &patches, ..part }).await {
                // A write that was answered from memory must be carried on to its end: written, or owed.
                Err(error) if error.kind == ArrayErrorKind::NoSpace => outcome = Err(error),
                other => other?,
            }
        }
        outcome
    }

    /// Reads each span straight into its place in the buffer.
    async fn read_directly(&self, share: &Share, mut into: Buffer) -> (Result<(), UnreadChunk>, Buffer) {
        let reads = share.spans.iter().map(|span| {
            let part = into.split_to(length(&span.within));
            self.read_chunk(&share.stripe, Role::Data(span.data), span.within.start, part, Why::Data)
        });
        let reads: Vec<_> = reads.collect();
        let mut result = Ok(());
        let mut whole: Option<Buffer> = None;
        for (outcome, part) in join_all(reads).await {
            result = result.and(outcome);
            match &mut whole {
                Some(whole) => whole.join(part),
                None => whole = Some(part),
            }
        }
        (result, whole.unwrap_or(into))
    }

    async fn read_chunk(
        &self,
        stripe: &Stripe,
        role: Role,
        at: u32,
        into: Buffer,
        why: Why,
    ) -> (Result<(), UnreadChunk>, Buffer) {
        let Some(device) = self.device_of(stripe, role) else { return (Err((role, None)), into) };
        let (result, into) = device.read(component(stripe, at), into, why).await;
        (result.map_err(|error| (role, Some(error))), into)
    }

    /// Compares reconstructed data with the checksum of what the member should hold.
    pub(crate) fn contradiction(
        &self,
        stripe: &Stripe,
        role: Role,
        within: &Range<u32>,
        solved: &[u8],
    ) -> Option<MemberError> {
        let at = component(stripe, within.start);
        let device = self.device_of(stripe, role)?;
        if device.is_readable(at.0..at.0 + solved.len() as u64) { device.contradicts(at, solved) } else { None }
    }

    /// Everything that a plan uses, from the cache and from the members.
    async fn old_contents(&self, stripe: &Stripe, plan: &Plan, why: Why) -> Result<ChunkContents, UnreadChunk> {
        let recalled = self.copy_cached(stripe, &plan.cached_reads);
        let mut old = self.read_transfers(stripe, &plan.reads, why).await?;
        old.extend(recalled);
        Ok(old)
    }

    /// Reads all transfers at once. Returns the first chunk that failed.
    async fn read_transfers(
        &self,
        stripe: &Stripe,
        transfers: &[ChunkTransfer],
        why: Why,
    ) -> Result<ChunkContents, UnreadChunk> {
        let reads = transfers.iter().map(|transfer| {
            let into = self.core.pool.take(length(&transfer.within));
            self.read_chunk(stripe, transfer.role, transfer.within.start, into, why)
        });
        let results = at_once(reads).await;
        let pair = |(transfer, (result, buffer)): (&ChunkTransfer, (Result<(), UnreadChunk>, Buffer))| {
            result.map(|()| (transfer.clone(), buffer.freeze()))
        };
        transfers.iter().zip(results).map(pair).collect()
    }

    /// Writes a part of one stripe. The caller keeps other writes off its rows.
    pub(crate) async fn write_part(
        &self,
        marked: Marked<'_>,
        parity: &Parity,
        part: PartWrite<'_>,
    ) -> Result<(), ArrayError> {
        let logging = self.authority.logging();
        let mut unread = None;
        let slots_seen = self.core.roster.slot_changed.seen();
        let change = if logging.has_contents() { None } else { self.piece_write(parity, &part) };
        if let Some(change) = change {
            match self.write_piece(parity, &change).await {
                Ok(written) => return written,
                Err(failed) => unread = Some(failed),
            }
        }
        if logging != Logging::Nothing {
            return Box::pin(self.write_part_logged(marked, parity, part)).await;
        }
        // Boxed: it is far larger than the code above, and seldom runs.
        Box::pin(self.write_any_part(marked, parity, part, slots_seen, unread)).await
    }

    /// As [`DataPlane::write_part`], for any part and with any members missing. `unread` is a read that failed since
    /// `slots_seen` was seen.
    pub(super) async fn write_any_part(
        &self,
        marked: Marked<'_>,
        parity: &Parity,
        part: PartWrite<'_>,
        mut slots_seen: Seen,
        unread: Option<UnreadChunk>,
    ) -> Result<(), ArrayError> {
        let (share, new) = spans_and_contents(parity, part.number, part.patches);
        let is_whole = share.bytes as u64 == parity.stripe_bytes();
        let kept = if is_whole { Default::default() } else { rest_of_units(&share.spans, part.unit) };
        let touched = touched(parity, &share.spans, part.unit);
        let mut failed = unread.iter().map(|(role, _)| *role).collect();
        let mut last_error = unread.and_then(|(_, error)| error);
        loop {
            if slots_seen != self.core.roster.slot_changed.seen() {
                // Another device is in the slot now.
                (slots_seen, failed) = (self.core.roster.slot_changed.seen(), Symbols::EMPTY);
            }
            let health = self.health(parity, &share.stripe, touched.clone(), failed);
            let known = if is_whole { Default::default() } else { self.cached(&share.stripe, &share.spans, &kept) };
            let Ok(plan) = plan_write(code(parity), &share.spans, &kept, &known, &health) else {
                if let Some(unit) = self.finer_unit(&share.spans) {
                    return Box::pin(self.write_in_rows(marked, parity, part, unit)).await;
                }
                let at = share.stripe.number() * parity.stripe_bytes();
                return Err(self.core.io_error(at, share.bytes as u64, last_error.as_ref()));
            };
            match self.old_contents(&share.stripe, &plan, Why::Rmw).await {
                Ok(old) => return self.write_planned(parity, &share, &plan, &old, &new).await,
                Err((role, error)) => {
                    failed = failed.with(role);
                    last_error = error.or(last_error);
                }
            }
        }
    }

    async fn write_planned(
        &self,
        parity: &Parity,
        share: &Share,
        plan: &Plan,
        old: &[(ChunkTransfer, Block)],
        new: &[(ChunkTransfer, Block)],
    ) -> Result<(), ArrayError> {
        let known = Known { old, new };
        let parities = compute(self.core.info.kernel, &self.core.pool, parity, &share.stripe, &known, plan);
        let kept = kept_contents(&known, plan);
        let blocks = |transfer: &ChunkTransfer| -> Blocks {
            let (source, kept) = match transfer.role.is_parity() {
                false => (new, &kept[..]),
                true => (&parities[..], &[][..]),
            };
            let parts = source.iter().chain(kept).filter(|(part, _)| {
                part.role == transfer.role
                    && transfer.within.start <= part.within.start
                    && part.within.end <= transfer.within.end
            });
            let mut parts: SmallVec<[&(ChunkTransfer, Block); 4]> = parts.collect();
            parts.sort_unstable_by_key(|(part, _)| part.within.start);
            parts.into_iter().map(|(_, block)| block.clone()).collect()
        };
        let _logged = match self.authority.logging() {
            Logging::Nothing => None,
            Logging::Neighbours | Logging::Parts | Logging::Contents { .. } => {
                Some(self.log_part(&share.stripe, plan, new, &parities).await?)
            }
        };
        self.write_transfers(&share.stripe, &plan.writes, blocks).await?;
        if (share.bytes as u64) < parity.stripe_bytes() {
            // Old parity is no longer valid, even where no new parity was computed. Nor is old data that was just
            // overwritten.
            let counts = |old: &ChunkTransfer| {
                !old.role.is_parity() && !new.iter().any(|(new, _)| new.covers(old.role, &old.within))
            };
            let data = old.iter().filter(|(transfer, _)| counts(transfer));
            self.cache_contents(parity, &share.stripe, &share.spans, data.chain(new).chain(&parities));
        }
        Ok(())
    }

    /// Writes to all chunks at once, and ejects members that fail. First the cache drops what it holds of these
    /// chunks.
    pub(super) async fn write_transfers(
        &self,
        stripe: &Stripe,
        transfers: &[ChunkTransfer],
        blocks: impl Fn(&ChunkTransfer) -> Blocks,
    ) -> Result<(), ArrayError> {
        self.invalidate(stripe, transfers.iter());
        let writes = transfers.iter().filter_map(|transfer| {
            let device = self.device_of(stripe, transfer.role)?;
            let (at, blocks) = (component(stripe, transfer.within.start), blocks(transfer));
            Some(async move {
                let result = device.write(at, blocks, reason(transfer.role)).await;
                result.err().map(|error| (device, error))
            })
        });
        let failures = at_once(writes).await.flatten().collect();
        self.record_write_failures(failures).await
    }

    /// Records failed writes: each becomes a bad block or owed data, ejects its member, or fails the array.
    pub(crate) async fn record_write_failures(&self, failures: Failures<M>) -> Result<(), ArrayError> {
        if failures.is_empty() || mutant!("write-error-ignored") {
            Ok(())
        } else {
            Box::pin(self.authority.record_failures(failures)).await
        }
    }
}

/// Parts of a stripe and their contents.
pub(crate) type ChunkContents = SmallVec<[(ChunkTransfer, Block); 3]>;

/// The blocks that go to one member, in order.
type Blocks = SmallVec<[Block; 1]>;

/// The reason that the observer sees for a write to a chunk of a partly changed stripe.
pub(crate) fn reason(role: Role) -> Why {
    if role.is_parity() { Why::Parity } else { Why::Data }
}

/// The component byte at `within` of a stripe's chunks.
pub(crate) fn component(stripe: &Stripe, within: u32) -> ComponentByte {
    ComponentByte(stripe.component().0 + u64::from(within))
}

/// The contents that are written back unchanged, a block for each column.
fn kept_contents(known: &Known<'_>, plan: &Plan) -> ChunkContents {
    let columns = plan.columns.iter().filter(|column| !column.kept.is_empty());
    let pieces = columns.flat_map(|column| column.kept.iter().map(move |role| (role, column.within.clone())));
    pieces
        .map(|(role, within)| {
            let block = known.old_block(role, &within).expect("what is kept is read");
            (ChunkTransfer { role, within }, block)
        })
        .collect()
}

/// The spans that patches cover in one stripe, and their data, a block for each span.
pub(super) fn spans_and_contents(parity: &Parity, number: u64, patches: &[WriteExtent]) -> (Share, ChunkContents) {
    let mut share = Share { stripe: parity.stripe(number), spans: SmallVec::new(), bytes: 0 };
    let mut new = ChunkContents::new();
    let first = number * parity.stripe_bytes();
    for patch in patches {
        let mut start = 0;
        for span in spans(parity.chunk_bytes(), patch.at - first..patch.end() - first) {
            let end = start + length(&span.within);
            let transfer = ChunkTransfer { role: Role::Data(span.data), within: span.within.clone() };
            new.push((transfer, patch.block.slice(start..end)));
            share.spans.push(span);
            start = end;
        }
        share.bytes += start;
    }
    (share, new)
}
