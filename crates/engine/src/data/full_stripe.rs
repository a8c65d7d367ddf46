//! Full-stripe writes: parity is computed from the caller's own memory. Nothing is read or copied, and each member
//! gets one transfer however many neighbouring stripes there are.
//!
//! Neighbouring stripes are contiguous on every member. Where the data comes in several blocks, parity is computed
//! between the edges of blocks. The caller locks and marks; [`Marked`] proves the second.

use crate::base::buffer::{Block, Buffer, Pool};
use crate::base::join::join_all;
use crate::base::write_set::WriteExtent;
use crate::core::authority::{Authority, LOG_ENTRIES_MAX, Logging, Marked};
use crate::data::parity::compute_all;
use crate::data::plane::DataPlane;
use crate::device::Failures;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::geometry::{Parity, Role, Stripe};
use format::units::{ComponentByte, Slot};
use parity::Kernel;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// A chunk's contents, block after block.
type Blocks = SmallVec<[Block; 1]>;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Writes whole stripes. The patches are their data, without gaps. The caller keeps other writes off them.
    pub(crate) async fn write_full_stripes(
        &self,
        marked: Marked<'_>,
        parity: &Parity,
        stripes: Range<u64>,
        patches: &[WriteExtent],
    ) -> Result<(), ArrayError> {
        if let Logging::Contents { .. } = self.authority.logging() {
            return Box::pin(self.write_stripes_logged(marked, parity, stripes, patches)).await;
        }
        if self.authority.logging() == Logging::Nothing || mutant!("whole-stripes-not-logged") {
            return self.put_full_stripes(parity, stripes, patches).await;
        }
        for first in stripes.clone().step_by(LOG_ENTRIES_MAX) {
            let stripes = first..stripes.end.min(first + LOG_ENTRIES_MAX as u64);
            let range = stripes.start * parity.stripe_bytes()..stripes.end * parity.stripe_bytes();
            let patches: Vec<_> = patches.iter().filter_map(|patch| patch.within(range.clone())).collect();
            let _logged = self.log_stripes(parity, stripes.clone()).await?;
            self.put_full_stripes(parity, stripes, &patches).await?;
        }
        Ok(())
    }

    async fn put_full_stripes(
        &self,
        parity: &Parity,
        stripes: Range<u64>,
        patches: &[WriteExtent],
    ) -> Result<(), ArrayError> {
        let failures = self.put_stripes(parity, stripes, patches).await;
        self.record_write_failures(failures).await
    }

    /// Writes whole stripes without a mark, a log or a record of the devices that failed, which it returns.
    pub(crate) async fn put_stripes(
        &self,
        parity: &Parity,
        stripes: Range<u64>,
        patches: &[WriteExtent],
    ) -> Failures<M> {
        let together = self.coalescer.stripes_max();
        let mut data = Rope { blocks: patches.iter().map(|patch| &patch.block), rest: None };
        let mut writes = Vec::new();
        for first in stripes.clone().step_by(together as usize) {
            let group = first..stripes.end.min(first + together);
            let at = parity.stripe(first).component();
            for (slot, blocks) in self.member_blocks(parity, group, &mut data).into_iter().enumerate() {
                let Some(device) = self.core.device(Slot(slot as u16)) else { continue };
                for (at, blocks) in in_units(self.stripe_size_bytes(), at, blocks) {
                    let device = device.clone();
                    writes.push(async move {
                        let result = device.write(at, blocks.into(), Why::Stripe).await;
                        (device, result)
                    });
                }
            }
        }
        let failed = |(device, result): (_, Result<(), MemberError>)| Some((device, result.err()?));
        join_all(writes).await.into_iter().filter_map(failed).collect()
    }

    /// The blocks for the member in each slot.
    fn member_blocks<'a>(
        &self,
        parity: &Parity,
        stripes: Range<u64>,
        data: &mut Rope<'a, impl Iterator<Item = &'a Block>>,
    ) -> Vec<Vec<Block>> {
        self.invalidate_stripes(parity, stripes.clone());
        let mut members: Vec<_> = (0..parity.slots()).map(|_| Vec::new()).collect();
        for stripe in stripes.map(|number| parity.stripe(number)) {
            let mut add = |role, block| {
                let slot = stripe.slot_of(role).expect("the geometry has this chunk");
                members[slot.index()].push(block);
            };
            let chunks: SmallVec<[Blocks; 16]> =
                (0..parity.data_chunks()).map(|_| data.take(parity.chunk_bytes() as usize)).collect();
            let parities = compute(self.core.info.kernel, &self.core.pool, parity, &stripe, &chunks);
            parity.parity_roles().zip(parities).for_each(|(role, block)| add(role, block.freeze()));
            for (pieces, index) in chunks.into_iter().zip(0..) {
                pieces.into_iter().for_each(|piece| add(Role::Data(index), piece));
            }
        }
        members
    }
}

/// One transfer; with a fixed unit, one for each unit, as in md.
fn in_units(unit: Option<u32>, at: ComponentByte, blocks: Vec<Block>) -> SmallVec<[(ComponentByte, Vec<Block>); 1]> {
    let Some(unit) = unit else { return smallvec![(at, blocks)] };
    let end = at.0 + blocks.iter().map(|block| block.len() as u64).sum::<u64>();
    let mut rope = Rope { blocks: blocks.iter(), rest: None };
    let units = (at.0..end).step_by(unit as usize);
    units.map(|at| (ComponentByte(at), rope.take(unit as usize).into_vec())).collect()
}

/// Consecutive blocks, from which data is taken at the front.
struct Rope<'a, I: Iterator<Item = &'a Block>> {
    blocks: I,
    rest: Option<Block>,
}

impl<'a, I: Iterator<Item = &'a Block>> Rope<'a, I> {
    fn take(&mut self, mut bytes: usize) -> Blocks {
        let mut pieces = Blocks::new();
        while bytes > 0 {
            let next = self.rest.take().or_else(|| self.blocks.next().cloned());
            let block = next.expect("the data fills its stripes");
            let length = block.len();
            if length <= bytes {
                bytes -= length;
                pieces.push(block);
            } else {
                pieces.push(block.slice(0..bytes));
                self.rest = Some(block.slice(bytes..length));
                bytes = 0;
            }
        }
        pieces
    }
}

/// The parities, in order.
fn compute(kernel: &Kernel, pool: &Pool, parity: &Parity, stripe: &Stripe, chunks: &[Blocks]) -> SmallVec<[Buffer; 2]> {
    let chunk_bytes = parity.chunk_bytes() as usize;
    let mut parities: SmallVec<[Buffer; 2]> = parity.parity_roles().map(|_| pool.take(chunk_bytes)).collect();
    let mut columns = Columns::new(chunks);
    let mut at = 0;
    while let Some(column) = columns.next() {
        let part = at..at + column[0].len();
        at = part.end;
        let into = parities.iter_mut().map(|parity| &mut parity[part.clone()]);
        compute_all(kernel, stripe, into, &column);
    }
    parities
}

/// Goes through chunks of equal length side by side, from one block edge to the next.
struct Columns<'a> {
    /// For each chunk: the rest of its current block, and the blocks after it.
    cursors: SmallVec<[(&'a [u8], std::slice::Iter<'a, Block>); 16]>,
}

impl<'a> Columns<'a> {
    fn new(chunks: &'a [Blocks]) -> Self {
        Self { cursors: chunks.iter().map(|pieces| (&[][..], pieces.iter())).collect() }
    }

    fn next(&mut self) -> Option<SmallVec<[&'a [u8]; 16]>> {
        for (rest, behind) in &mut self.cursors {
            if rest.is_empty() {
                *rest = behind.next()?;
            }
        }
        let length = self.cursors.iter().map(|(rest, _)| rest.len()).min()?;
        let front = |(rest, _): &mut (&'a [u8], _)| {
            let (front, left) = rest.split_at(length);
            *rest = left;
            front
        };
        Some(self.cursors.iter_mut().map(front).collect())
    }
}
