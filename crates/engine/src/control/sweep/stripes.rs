//! Sweep windows at the levels with parity: many stripes at once, one long transfer on each member.
//!
//! A window's position is a component position, the same on all members. A resync takes data as right and
//! recomputes parity from it (md's rule). The data of a recovering member follows from as many other members
//! as a stripe has data chunks. A window with a failed read is processed again by stripes, rows and blocks,
//! so that little depends on what is lost.
//!
//! Facts: `drivers/md/raid5.c` (`handle_parity_checks5`, `handle_parity_checks6`).

use crate::base::buffer::{Block, Buffer};
use crate::control::state::Control;
use crate::control::sweep::purpose::{Tally, Target};
use crate::core::ParityTrust;
use crate::data::parity::compute_all;
use crate::data::rebuild::{Slices, slot_of};
use crate::data::runs::{Run, Runs};
use crate::device::{Device, DeviceState};
use crate::plan::ROW_BYTES;
use crate::plan::planner::ChunkTransfer;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use format::geometry::{Parity, Role, Stripe};
use format::units::Slot;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

impl<M: Member, C: Clock> Control<M, C> {
    /// Recomputes the parity of `range` from its data, and rewrites it where it is wrong.
    pub(super) async fn resync_stripes(&self, parity: &Parity, range: &Range<u64>) -> Result<Tally, ArrayError> {
        let mut tally = Tally::default();
        for part in self.by_recovery(range) {
            tally += self.resync_evenly(parity, &part).await?;
        }
        Ok(tally)
    }

    /// Cuts a range where recovering members stop being current, at whole blocks: what they have below is data.
    pub(super) fn by_recovery(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let block_bytes = self.core.info.block_bytes;
        let slots = self.core.roster.slots.borrow();
        let reached = slots.iter().flatten().filter_map(|device| match device.state.get() {
            DeviceState::Recovering { current } => Some(current / block_bytes * block_bytes),
            _ => None,
        });
        let mut edges: Vec<u64> = reached.filter(|edge| range.start < *edge && *edge < range.end).collect();
        edges.extend([range.start, range.end]);
        edges.sort_unstable();
        edges.dedup();
        edges.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }

    /// As [`Self::resync_stripes`], of a range that each member has as a whole or not at all.
    async fn resync_evenly(&self, parity: &Parity, range: &Range<u64>) -> Result<Tally, ArrayError> {
        let has = |device: Rc<Device<M>>| device.is_active() && !device.is_recovering(range.end);
        let is_here = |slot: &Slot| self.core.device(*slot).is_some_and(has);
        let here = (0..parity.slots()).map(Slot).filter(is_here);
        let runs = self.data.read_runs(here.map(|slot| Run { slot, range: range.clone() }).collect()).await;
        if runs.failed().next().is_some() {
            let mut tally = Tally::default();
            for part in self.finer(parity, range) {
                tally += Box::pin(self.resync_evenly(parity, &part)).await?;
            }
            if tally.compared > 0 {
                return Ok(tally);
            }
        }
        let mut tally = Tally { compared: range.end - range.start, ..Tally::default() };
        let mut wrong = Vec::new();
        for (stripe, part) in parity.parts(range) {
            let before = wrong.len();
            self.find_wrong_parity(parity, &stripe, &part, &runs, &mut wrong)?;
            if wrong.len() > before {
                tally.rewritten += part.end - part.start;
            }
        }
        self.data.record_checksums(&runs).await; // before the rewrite: a failed write may be done in part
        self.data.write_runs(wrong).await?;
        Ok(tally)
    }

    /// Adds the right parity of one stripe to `wrong`, where it differs.
    fn find_wrong_parity(
        &self,
        parity: &Parity,
        stripe: &Stripe,
        part: &Range<u64>,
        runs: &Runs,
        wrong: &mut Vec<(Slot, u64, Block)>,
    ) -> Result<(), ArrayError> {
        let read = |role| runs.get(slot_of(stripe, role), part);
        let data: Option<SmallVec<[Block; 32]>> =
            (0..parity.data_chunks()).map(|index| read(Role::Data(index))).collect();
        let data = match data {
            None if !self.is_lost_for_good(parity, stripe, part, runs) => return Err(self.unreadable(part, runs)),
            None => self.data_by_p(parity, stripe, part, runs),
            whole => whole,
        };
        let Some(data) = data else { return Ok(()) };
        let right = self.parity_of(stripe, &data);
        for (role, right) in stripe.parity_roles().zip(right) {
            let is_here = runs.holds(slot_of(stripe, role));
            if is_here && read(role).is_none_or(|found| found[..] != right[..]) {
                let start = (part.start - stripe.component().0) as u32;
                let change = ChunkTransfer { role, within: start..start + right.len() as u32 };
                self.data.invalidate(stripe, std::iter::once(&change));
                wrong.push((slot_of(stripe, role), part.start, right));
            }
        }
        Ok(())
    }

    /// Whether what could not be read of data and P will not be there later either, and was accepted: its member is
    /// absent or recovering, or its bad-block log names it. Another member may answer again, with what it has.
    fn is_lost_for_good(&self, parity: &Parity, stripe: &Stripe, part: &Range<u64>, runs: &Runs) -> bool {
        let unread = (0..parity.data_chunks()).map(Role::Data).chain([Role::P]).map(|role| slot_of(stripe, role));
        let mut unread = unread.filter(|slot| runs.get(*slot, part).is_none());
        let is_lost = |slot: Slot| match self.core.device(slot).filter(|device| device.is_active()) {
            Some(device) => device.bad.touches(part) || device.is_recovering(part.end),
            None => true,
        };
        self.core.health.trust.get() != ParityTrust::Nothing
            && (unread.all(is_lost) || mutant!("silent-member-passed-over"))
    }

    /// The data of a stripe of which one chunk cannot be read, as P gives it: Q has to say the same.
    fn data_by_p(
        &self,
        parity: &Parity,
        stripe: &Stripe,
        part: &Range<u64>,
        runs: &Runs,
    ) -> Option<SmallVec<[Block; 32]>> {
        let read = |role| runs.get(slot_of(stripe, role), part);
        let mut lost = (0..parity.data_chunks()).filter(|index| read(Role::Data(*index)).is_none());
        let (Some(lost), None) = (lost.next(), lost.next()) else { return None };
        let mut solved = self.core.pool.take((part.end - part.start) as usize);
        solved.copy_from_slice(&read(Role::P)?);
        for role in (0..parity.data_chunks()).filter(|index| *index != lost).map(Role::Data) {
            self.core.info.kernel.combine_assign(&mut solved, &[(1, &read(role)?)]);
        }
        let solved = solved.freeze();
        (0..parity.data_chunks())
            .map(|index| if index == lost { Some(solved.clone()) } else { read(Role::Data(index)) })
            .collect()
    }

    /// The parities of a stripe's data, both in order.
    pub(super) fn parity_of(&self, stripe: &Stripe, data: &[Block]) -> SmallVec<[Block; 2]> {
        let data: Slices<'_> = data.iter().map(|block| &block[..]).collect();
        let taken = stripe.parity_roles().map(|_| self.core.pool.take(data[0].len()));
        let mut parities: SmallVec<[Buffer; 2]> = taken.collect();
        compute_all(self.core.info.kernel, stripe, parities.iter_mut().map(|parity| &mut parity[..]), &data);
        parities.into_iter().map(Buffer::freeze).collect()
    }

    /// Reconstructs `range` of `targets` and writes it. Blocks that the others cannot give become bad blocks
    /// of the targets.
    pub(super) async fn recover_stripes(
        &self,
        parity: &Parity,
        range: &Range<u64>,
        targets: &[Target<M>],
    ) -> Result<(), ArrayError> {
        let mut failed = SmallVec::<[Slot; 2]>::new();
        loop {
            let behind = Self::still_behind(targets, range.end);
            if behind.is_empty() {
                return Ok(());
            }
            let Some(sources) = self.data.sources(parity, range, &failed) else { break };
            let runs = sources.iter().map(|&slot| Run { slot, range: range.clone() }).collect();
            let runs = self.data.read_runs(runs).await;
            let before = failed.len();
            failed.extend(runs.failed().map(|(slot, _)| slot));
            if failed.len() == before {
                let solve = |target: &Target<M>| self.data.solve_run(parity, range, target.slot, &runs);
                return self.data.write_runs(behind.iter().map(solve).collect()).await;
            }
            if range.end - range.start > parity.chunk_bytes() {
                break; // smaller parts depend less on what failed
            }
        }
        let parts = self.finer(parity, range);
        if parts.is_empty() {
            return self.record_lost(range, &Self::still_behind(targets, range.end));
        }
        for part in parts {
            Box::pin(self.recover_stripes(parity, &part, targets)).await?;
        }
        Ok(())
    }

    /// The parts in which a failed range is tried again: stripes, then rows, then blocks.
    fn finer(&self, parity: &Parity, range: &Range<u64>) -> Vec<Range<u64>> {
        let units = [parity.chunk_bytes(), ROW_BYTES, self.core.info.block_bytes];
        match units.into_iter().find(|unit| range.end - range.start > *unit) {
            None => Vec::new(),
            Some(unit) => (range.start / unit..range.end.div_ceil(unit))
                .map(|number| range.start.max(number * unit)..range.end.min((number + 1) * unit))
                .collect(),
        }
    }

    /// The error when the members cannot give what `range` needs.
    fn unreadable(&self, range: &Range<u64>, runs: &Runs) -> ArrayError {
        let error: Option<&MemberError> = runs.failed().find_map(|(_, error)| error);
        self.component_error(range, error)
    }
}
