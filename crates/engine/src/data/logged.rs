//! Writes to stripes of an array with a log: what the log must name before a write reaches any member.
//!
//! An entry names rows of one stripe, and the chunks that change there. In md's partial parity log these are neighbours. So
//! a write is cut into *rounds*, and in each round the changed chunks of a row are neighbours. Rounds follow each other, as
//! a row has one parity.
//!
//! The partial parity of a row is its new parity without the new data. So it needs no contents beyond those that the
//! write needs anyway.
//!
//! A journal has the new contents of every write, whole stripes as well. There a round is bounded by its rows alone.
//!
//! Nothing here writes the log ([`crate::core::authority`]).
//!
//! Facts: `ppl_log_stripe` in `drivers/md/raid5-ppl.c`; `stripe_bio_overlaps` in `drivers/md/raid5.c`.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::join_all;
use crate::base::write_set::WriteExtent;
use crate::core::authority::{Authority, LOG_ENTRIES_MAX, LogEntry, Logging, Marked};
use crate::data::parity::weight;
use crate::data::plane::DataPlane;
use crate::data::stripe::{PartWrite, spans_and_contents};
use crate::plan::planner::{ChunkTransfer, Column, Plan, Span};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::{Parity, Role, Stripe};
use format::stripe_log::Chunks;
use smallvec::SmallVec;
use std::ops::Range;

/// Whole stripes that are written at a time, so that they share a batch of the journal.
const STRIPES_TOGETHER: usize = 8;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// As [`DataPlane::write_part`], round by round.
    pub(super) async fn write_part_logged(
        &self,
        marked: Marked<'_>,
        parity: &Parity,
        part: PartWrite<'_>,
    ) -> Result<(), ArrayError> {
        for patches in rounds(parity, part.number, part.patches, self.authority.logging()) {
            let seen = self.core.roster.slot_changed.seen();
            self.write_any_part(marked, parity, PartWrite { patches: &patches, ..part }, seen, None).await?;
        }
        Ok(())
    }

    /// Writes whole stripes, each of them logged by itself.
    pub(super) async fn write_stripes_logged(
        &self,
        marked: Marked<'_>,
        parity: &Parity,
        stripes: Range<u64>,
        patches: &[WriteExtent],
    ) -> Result<(), ArrayError> {
        for first in stripes.clone().step_by(STRIPES_TOGETHER) {
            let together = first..stripes.end.min(first + STRIPES_TOGETHER as u64);
            let writes = together.map(|number| {
                let range = number * parity.stripe_bytes()..(number + 1) * parity.stripe_bytes();
                let own: Vec<_> = patches.iter().filter_map(|patch| patch.within(range.clone())).collect();
                async move {
                    let part = PartWrite { number, patches: &own, unit: self.stripe_size_bytes() };
                    self.write_part_logged(marked, parity, part).await
                }
            });
            join_all(writes).await.into_iter().collect::<Result<(), ArrayError>>()?;
        }
        Ok(())
    }

    /// Logs the write of a part of a stripe.
    pub(super) async fn log_part(
        &self,
        stripe: &Stripe,
        plan: &Plan,
        new: &[(ChunkTransfer, Block)],
        parities: &[(ChunkTransfer, Block)],
    ) -> Result<A::Logged, ArrayError> {
        let has_contents = self.authority.logging().has_contents();
        let entry = |column: &Column| {
            let here = Role::PARITIES.into_iter();
            let after = here.filter_map(|role| Some((role, part(parities, role, &column.within)?)));
            let after: SmallVec<[(Role, Block); 2]> = after.collect();
            let changed: Chunks = column.asked.iter().filter_map(data_index).collect();
            if has_contents && changed != Chunks::default() {
                let data = column.asked.iter().filter_map(|role| Some((role, part(new, role, &column.within)?)));
                let contents = data.filter(|(role, _)| !role.is_parity()).chain(after).collect();
                let (rows, partial) = (column.within.clone(), SmallVec::new());
                return Some(LogEntry { stripe: *stripe, rows, changed, partial, contents });
            }
            if changed == Chunks::default() || after.is_empty() {
                return None; // without a parity there is nothing to repair
            }
            let is_whole = changed == Chunks::first(stripe.data_chunks());
            let partial = after.into_iter().filter(|_| !is_whole);
            let partial = partial.map(|(role, after)| (role, self.partial_parity(stripe, column, new, role, &after)));
            let (rows, contents) = (column.within.clone(), Vec::new());
            Some(LogEntry { stripe: *stripe, rows, changed, partial: partial.collect(), contents })
        };
        self.authority.log_write(plan.columns.iter().filter_map(entry).collect()).await
    }

    /// Logs the write of one piece of a chunk, in an array with all members. `after` are the new parities, in their order.
    pub(super) async fn log_piece(
        &self,
        stripe: &Stripe,
        span: &Span,
        new: &Block,
        after: &[Buffer],
    ) -> Result<A::Logged, ArrayError> {
        let changed: Chunks = std::iter::once(span.data).collect();
        let is_whole = changed == Chunks::first(stripe.data_chunks());
        let parities = stripe.parity_roles().zip(after).filter(|_| !is_whole);
        let partial = parities.map(|(role, after)| {
            let mut partial = self.core.pool.take(after.len());
            self.core.info.kernel.combine(&mut partial, &[(1, after), (weight(stripe, role, span.data), new)]);
            (role, partial.freeze())
        });
        let (stripe, rows, partial) = (*stripe, span.within.clone(), partial.collect());
        self.authority.log_write(vec![LogEntry { stripe, rows, changed, partial, contents: Vec::new() }]).await
    }

    /// The parity of the chunks that a write leaves as they are: the parity `after` the write without what is new.
    fn partial_parity(
        &self,
        stripe: &Stripe,
        column: &Column,
        new: &[(ChunkTransfer, Block)],
        parity: Role,
        after: &Block,
    ) -> Block {
        let mut partial = self.core.pool.take(after.len());
        partial.copy_from_slice(after);
        for role in column.asked.iter() {
            let (Some(data), Some(index)) = (part(new, role, &column.within), data_index(role)) else { continue };
            self.core.info.kernel.combine_assign(&mut partial, &[(weight(stripe, parity, index), &data)]);
        }
        partial.freeze()
    }

    /// Logs the write of whole stripes, at most [`LOG_ENTRIES_MAX`].
    pub(super) async fn log_stripes(&self, parity: &Parity, stripes: Range<u64>) -> Result<A::Logged, ArrayError> {
        let entry = |number| LogEntry {
            stripe: parity.stripe(number),
            rows: 0..parity.chunk_bytes() as u32,
            changed: Chunks::first(parity.data_chunks()),
            partial: SmallVec::new(),
            contents: Vec::new(),
        };
        self.authority.log_write(stripes.map(entry).collect()).await
    }
}

fn data_index(role: Role) -> Option<u16> {
    match role {
        Role::Data(index) => Some(index),
        Role::P | Role::Q => None,
    }
}

/// The part of a chunk, if the contents have it.
fn part(contents: &[(ChunkTransfer, Block)], role: Role, within: &Range<u32>) -> Option<Block> {
    let (transfer, block) = contents.iter().find(|(transfer, _)| transfer.covers(role, within))?;
    let byte = |at: u32| (at - transfer.within.start) as usize;
    Some(block.slice(byte(within.start)..byte(within.end)))
}

/// Cuts a write to one stripe so that no round has more than [`LOG_ENTRIES_MAX`] columns. With
/// [`Logging::Neighbours`], the changed chunks of a row are neighbours in each round.
fn rounds(parity: &Parity, number: u64, patches: &[WriteExtent], logging: Logging) -> Vec<Vec<WriteExtent>> {
    if let Logging::Contents { rows_bytes } = logging {
        return rounds_of_rows(parity, number, patches, rows_bytes);
    }
    let (share, _) = spans_and_contents(parity, number, patches);
    let mut edges: Vec<u32> = share.spans.iter().flat_map(|span| [span.within.start, span.within.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    if (patches.len() == 1 || logging == Logging::Parts) && edges.len() <= LOG_ENTRIES_MAX {
        return vec![patches.to_vec()];
    }
    let mut rounds: Vec<Vec<WriteExtent>> = Vec::new();
    for columns in edges.windows(2).collect::<Vec<_>>().chunks(LOG_ENTRIES_MAX) {
        let first_round = rounds.len();
        for column in columns {
            let (mut round, mut before) = (first_round, None);
            for span in share.spans.iter().filter(|span| span.within.start <= column[0] && column[1] <= span.within.end)
            {
                let is_apart = logging == Logging::Neighbours && before.is_some_and(|before| before + 1 != span.data);
                round += usize::from(is_apart);
                before = Some(span.data);
                if rounds.len() <= round {
                    rounds.resize_with(round + 1, Vec::new);
                }
                let chunk = number * parity.stripe_bytes() + u64::from(span.data) * parity.chunk_bytes();
                let range = chunk + u64::from(column[0])..chunk + u64::from(column[1]);
                rounds[round].extend(patches.iter().filter_map(|patch| patch.within(range.clone())));
            }
        }
    }
    rounds.iter_mut().for_each(|round| round.sort_by_key(|extent| extent.at));
    rounds
}

/// Cuts a write to one stripe into rounds of so many bytes of rows.
fn rounds_of_rows(parity: &Parity, number: u64, patches: &[WriteExtent], bytes: u32) -> Vec<Vec<WriteExtent>> {
    let chunk = parity.chunk_bytes();
    let round = |first: u64| {
        let of_chunk = |index: u16| {
            let start = number * parity.stripe_bytes() + u64::from(index) * chunk;
            let range = start + first..start + chunk.min(first + u64::from(bytes));
            patches.iter().filter_map(move |patch| patch.within(range.clone()))
        };
        (0..parity.data_chunks()).flat_map(of_chunk).collect::<Vec<_>>()
    };
    (0..chunk).step_by(bytes as usize).map(round).filter(|round| !round.is_empty()).collect()
}
