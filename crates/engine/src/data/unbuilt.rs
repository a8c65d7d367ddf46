//! Stripes that were never written to, whose parity was never built: what builds it before the first write, and what a
//! read of such a stripe gives where a member is missing.
//!
//! What was never written has no defined contents. Data that is on a member stays as it is. What no member can give counts
//! as zeros from then on: parity is built for zeros there, and a member that is to take them is written zeros.
//!
//! The caller keeps other writes off the stripe, and has marked it. Then an interruption leaves a chunk that a resync
//! visits. Facts: `handle_stripe_dirtying` in `drivers/md/raid5.c`, which reads the whole row in such a case.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::join_all;
use crate::base::write_set::WriteExtent;
use crate::core::authority::{Authority, Marked};
use crate::data::parity::compute_all;
use crate::data::plane::DataPlane;
use crate::data::rebuild::{Slices, slot_of};
use crate::data::stripe::Share;
use crate::plan::planner::{ChunkTransfer, StripeHealth};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};
use format::units::ComponentByte;
use smallvec::SmallVec;
use std::ops::Range;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Builds what a write to a part of a stripe touches, in whole chunks of the bitmap as far as they lie in the
    /// stripe.
    pub(crate) async fn build_for(
        &self,
        marked: Marked<'_>,
        parity: &Parity,
        number: u64,
        patches: &[WriteExtent],
    ) -> Result<(), ArrayError> {
        if mutant!("first-write-unbuilt") {
            return Ok(());
        }
        let unbuilt = &self.core.health.unbuilt;
        let stripe = parity.stripe(number);
        let whole = stripe.component().0..stripe.component().0 + parity.chunk_bytes();
        let (chunk, mut touched) = (parity.chunk_bytes(), whole.end..whole.start);
        for patch in patches {
            let (first, last) = (patch.at % chunk, (patch.end() - 1) % chunk + 1);
            let is_in_one = patch.at / chunk == (patch.end() - 1) / chunk;
            let within = if is_in_one && self.stripe_size_bytes().is_none() { first..last } else { 0..chunk };
            touched = touched.start.min(whole.start + within.start)..touched.end.max(whole.start + within.end);
        }
        let wide = unbuilt.widened(&touched);
        for part in unbuilt.parts(&(wide.start.max(whole.start)..wide.end.min(whole.end))) {
            self.build(marked, parity, &stripe, part).await?;
        }
        Ok(())
    }

    /// Builds the parity of a part of a stripe, a range of its component, none of which was ever written to.
    pub(crate) async fn build(
        &self,
        _: Marked<'_>,
        parity: &Parity,
        stripe: &Stripe,
        part: Range<u64>,
    ) -> Result<(), ArrayError> {
        let reads = (0..parity.data_chunks()).map(|index| self.data_or_zeros(stripe, Role::Data(index), &part));
        let data: Vec<(Block, bool)> = join_all(reads.collect::<Vec<_>>()).await;
        let length = (part.end - part.start) as usize;
        let mut parities: SmallVec<[Buffer; Role::PARITIES.len()]> =
            parity.parity_roles().map(|_| self.core.pool.take(length)).collect();
        let contents: Slices<'_> = data.iter().map(|(block, _)| &block[..]).collect();
        compute_all(self.core.info.kernel, stripe, parities.iter_mut().map(|parity| &mut parity[..]), &contents);
        let start = (part.start - stripe.component().0) as u32;
        let transfer = |role| ChunkTransfer { role, within: start..start + length as u32 };
        let lost = data.iter().enumerate().filter(|(_, (_, is_lost))| *is_lost);
        let lost = lost.map(|(index, (zeros, _))| (transfer(Role::Data(index as u16)), zeros.clone()));
        let built = parity.parity_roles().zip(parities).map(|(role, block)| (transfer(role), block.freeze()));
        let writes: Vec<(ChunkTransfer, Block)> = lost.chain(built).collect();
        let transfers: Vec<ChunkTransfer> = writes.iter().map(|(transfer, _)| transfer.clone()).collect();
        let block = |wanted: &ChunkTransfer| {
            let mut found = writes.iter().filter(|(transfer, _)| transfer.role == wanted.role);
            found.by_ref().map(|(_, block)| block.clone()).collect()
        };
        self.write_transfers(stripe, &transfers, block).await?;
        self.core.health.unbuilt.built(&part);
        Ok(())
    }

    /// What a member has of a chunk that was never written to, or zeros, and whether it is zeros that it lacks.
    async fn data_or_zeros(&self, stripe: &Stripe, role: Role, part: &Range<u64>) -> (Block, bool) {
        let length = (part.end - part.start) as usize;
        let zeros = || (self.core.pool.zeroed(length).freeze(), true);
        let Some(device) = self.core.device(slot_of(stripe, role)) else { return zeros() };
        if !device.is_readable(part.clone()) {
            return zeros();
        }
        match device.read(ComponentByte(part.start), self.core.pool.take(length), Why::Rmw).await {
            (Ok(()), block) => (block.freeze(), false),
            (Err(_), _) => zeros(),
        }
    }

    /// Reads a share of a stripe that was never written to: what its members have, and zeros where there is none.
    /// `None` if any of it was written, or a member fails.
    pub(crate) async fn read_unwritten(&self, share: &Share, health: &StripeHealth, into: &mut Buffer) -> Option<()> {
        let mut at = 0;
        for span in &share.spans {
            let start = share.stripe.component().0 + u64::from(span.within.start);
            let length = (span.within.end - span.within.start) as usize;
            let role = Role::Data(span.data);
            if !self.core.health.unbuilt.covers(&(start..start + length as u64)) {
                return None;
            }
            let target = &mut into[at..at + length];
            match self.device_of(&share.stripe, role).filter(|_| !health.unreadable.contains(role)) {
                Some(device) => {
                    let (result, read) =
                        device.read(ComponentByte(start), self.core.pool.take(length), Why::Data).await;
                    result.ok()?;
                    target.copy_from_slice(&read);
                }
                None => target.fill(0),
            }
            at += length;
        }
        Some(())
    }
}
