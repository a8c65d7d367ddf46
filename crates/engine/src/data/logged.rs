//! Writes to stripes of an array with a partial parity log: what the log must name before a write reaches any member.
//!
//! An entry names neighbouring chunks of one stripe, with the same rows of each. So a write is cut into *rounds*, and in
//! each round the changed chunks of a row are neighbours. Rounds follow each other, as a row has one parity.
//!
//! The partial parity of a row is its new parity without the new data. So it needs no contents beyond those that the
//! write needs anyway.
//!
//! Nothing here writes the log ([`crate::core::authority`]).
//!
//! Facts: `ppl_log_stripe` in `drivers/md/raid5-ppl.c`; `stripe_bio_overlaps` in `drivers/md/raid5.c`.

use crate::base::buffer::Block;
use crate::base::write_set::WriteExtent;
use crate::core::authority::{Authority, LogEntry, Marked};
use crate::data::plane::DataPlane;
use crate::data::stripe::{component, spans_and_contents};
use crate::plan::planner::{ChunkTransfer, Column, Plan};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::{Parity, Role, Stripe};
use format::partial_parity::{ENTRIES_MAX, Entry, Repair};
use std::ops::Range;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// As [`DataPlane::write_part`], round by round.
    pub(super) async fn write_part_logged(
        &self,
        marked: Marked<'_>,
        parity: &Parity,
        number: u64,
        patches: &[WriteExtent],
    ) -> Result<(), ArrayError> {
        for patches in rounds(parity, number, patches) {
            let seen = self.core.roster.slot_changed.seen();
            self.write_any_part(marked, parity, number, &patches, seen, None).await?;
        }
        Ok(())
    }

    /// Logs the write of a part of a stripe.
    pub(super) async fn log_part(
        &self,
        parity: &Parity,
        stripe: &Stripe,
        plan: &Plan,
        new: &[(ChunkTransfer, Block)],
        parities: &[(ChunkTransfer, Block)],
    ) -> Result<A::Logged, ArrayError> {
        let entry = |column: &Column| {
            let changed = changed(column)?;
            let partial = self.partial_parity(parity, column, new, part(parities, Role::P, &column.within)?);
            let at = |within: u32| component(stripe, within).0;
            let repair = Repair {
                stripe: parity.stripe(stripe.number()),
                changed,
                rows: at(column.within.start)..at(column.within.end),
            };
            let entry = Entry::of(parity, &repair, partial.as_deref().unwrap_or(&[]));
            Some(LogEntry { entry, partial })
        };
        self.authority.log_write(plan.columns.iter().filter_map(entry).collect()).await
    }

    /// The parity of the chunks that a write leaves as they are; `None` if there are none.
    fn partial_parity(
        &self,
        parity: &Parity,
        column: &Column,
        new: &[(ChunkTransfer, Block)],
        after: Block,
    ) -> Option<Block> {
        if u32::from(parity.data_chunks()) == column.asked.len() {
            return None;
        }
        let mut partial = self.core.pool.take(after.len());
        partial.copy_from_slice(&after);
        for role in column.asked.iter() {
            let data = part(new, role, &column.within).expect("what is asked is given");
            self.core.info.kernel.combine_assign(&mut partial, &[(1, &data)]);
        }
        Some(partial.freeze())
    }

    /// Logs the write of whole stripes, at most [`ENTRIES_MAX`].
    pub(super) async fn log_stripes(&self, parity: &Parity, stripes: Range<u64>) -> Result<A::Logged, ArrayError> {
        let entry = |number| {
            let stripe = parity.stripe(number);
            let start = stripe.component().0;
            let repair = Repair { stripe, changed: 0..parity.data_chunks(), rows: start..start + parity.chunk_bytes() };
            LogEntry { entry: Entry::of(parity, &repair, &[]), partial: None }
        };
        self.authority.log_write(stripes.map(entry).collect()).await
    }
}

/// The part of a chunk, if the contents have it.
fn part(contents: &[(ChunkTransfer, Block)], role: Role, within: &Range<u32>) -> Option<Block> {
    let (transfer, block) = contents.iter().find(|(transfer, _)| transfer.covers(role, within))?;
    let byte = |at: u32| (at - transfer.within.start) as usize;
    Some(block.slice(byte(within.start)..byte(within.end)))
}

/// The chunks that a column's write changes, which are neighbours; `None` if there are none.
fn changed(column: &Column) -> Option<Range<u16>> {
    let index = |role: Role| match role {
        Role::Data(index) => index,
        _ => unreachable!("only data is asked for"),
    };
    let first = column.asked.iter().map(index).min()?;
    let last = column.asked.iter().map(index).max()?;
    debug_assert_eq!(column.asked.len() as usize, usize::from(last - first) + 1, "a round's chunks are neighbours");
    Some(first..last + 1)
}

/// Cuts a write to one stripe so that in each round the changed chunks of a row are neighbours, and no round has more
/// than [`ENTRIES_MAX`] columns.
fn rounds(parity: &Parity, number: u64, patches: &[WriteExtent]) -> Vec<Vec<WriteExtent>> {
    let (share, _) = spans_and_contents(parity, number, patches);
    let mut edges: Vec<u32> = share.spans.iter().flat_map(|span| [span.within.start, span.within.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    if patches.len() == 1 && edges.len() <= ENTRIES_MAX {
        return vec![patches.to_vec()];
    }
    let mut rounds: Vec<Vec<WriteExtent>> = Vec::new();
    for columns in edges.windows(2).collect::<Vec<_>>().chunks(ENTRIES_MAX) {
        let first_round = rounds.len();
        for column in columns {
            let (mut round, mut before) = (first_round, None);
            for span in share.spans.iter().filter(|span| span.within.start <= column[0] && column[1] <= span.within.end)
            {
                round += usize::from(before.is_some_and(|before| before + 1 != span.data));
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
