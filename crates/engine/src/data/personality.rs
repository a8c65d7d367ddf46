//! What a RAID level decides in the data path: how a request is located, read and written, and what is locked and
//! dropped for it.
//!
//! This is the only file of the folder that asks which family a geometry is of. The decisions that need no I/O are
//! [`crate::core::personality`]. Each function here is a `match` in place of a trait: a request's future is then of one
//! level only, and is moved no more often than without it.
//!
//! [`crate::Array::write`] begins here; [`crate::Array::read`] and [`crate::Array::flush`] begin in [`super::request`].

use crate::base::buffer::{Block, Buffer};
use crate::base::range_lock::RangeGuard;
use crate::core::authority::Authority;
use crate::data::plane::DataPlane;
use crate::data::read_ahead::stretches::FromMemory;
use crate::data::request::Locked;
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::{Geometry, Parity};
use format::units::{ArrayByte, ComponentByte, Slot};
use std::ops::Range;
use std::rc::Rc;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// The stripes of a level with parity.
    pub(crate) fn stripes(&self) -> &Parity {
        match self.core.geometry() {
            Geometry::Parity(parity) => parity,
            Geometry::Mapping(_) => unreachable!("only levels with parity coalesce writes"),
        }
    }

    /// The slot to read `at` from, the component byte there, and how far the run continues at least. `at` is a part
    /// of `read`.
    pub(super) fn slot_of(&self, at: u64, read: &Range<u64>) -> Option<(Slot, ComponentByte, u64)> {
        match self.core.geometry() {
            Geometry::Parity(parity) => Some(parity.locate(ArrayByte(at))),
            Geometry::Mapping(mapping) => self.slot_of_copy(mapping, at, read),
        }
    }

    /// The fast path of a read from an array that is not whole: what needs no waiting, or was read ahead.
    #[inline(never)]
    pub(super) fn read_degraded(&self, at: u64, into: Buffer) -> FromMemory {
        match self.core.geometry() {
            Geometry::Parity(parity) => self.read_degraded_stripes(parity, at, into),
            Geometry::Mapping(_) => FromMemory::Nothing(into),
        }
    }

    /// Reads whole blocks into memory that members accept.
    pub(crate) async fn read_aligned(&self, at: u64, into: Buffer, locked: Locked) -> Result<Buffer, ArrayError> {
        let into = match self.read_whole(at, into).await {
            Ok(filled) => return Ok(filled),
            Err(into) => into,
        };
        match self.core.geometry() {
            Geometry::Mapping(mapping) => self.read_mapped(mapping, at, into).await,
            Geometry::Parity(parity) => self.read_striped(parity, at, into, locked).await,
        }
    }

    /// [`crate::Array::write`].
    pub(crate) async fn write(self: &Rc<Self>, at: u64, from: Block, durability: Durability) -> Result<(), ArrayError> {
        let _inside = self.core.enter_to_write(at, from.len() as u64)?;
        if from.is_empty() {
            return Ok(());
        }
        let _writing = self.core.writers.begin();
        self.check_room().await?;
        match self.core.geometry() {
            Geometry::Parity(parity) => {
                self.coalesce(parity, at, from, durability).await?;
            }
            Geometry::Mapping(mapping) => match self.write_now(at, &from) {
                Some(written) => written?,
                // Boxed, as in `read`.
                None => Box::pin(self.write_later(mapping, at, from)).await?,
            },
        }
        match durability {
            Durability::Ordinary => Ok(()),
            Durability::Stable if mutant!("stable-write-unflushed") => Ok(()),
            Durability::Stable => Box::pin(self.flush_members()).await,
        }
    }

    /// Drops what is in memory of a range of the array that is about to change on the members.
    pub(crate) fn invalidate_range(&self, array: &Range<u64>) {
        match self.core.geometry() {
            Geometry::Parity(parity) => self.invalidate_stripes(parity, parity.stripes_of(array)),
            Geometry::Mapping(_) => {} // copies are neither cached nor read ahead
        }
    }
}

/// Locks of what a level locks. Coalesced writes there are sent out first, as they hold or request the same lock.
impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Keeps writes, and reads that reconstruct, off a range of positions.
    pub(crate) async fn lock_positions(&self, positions: &Range<u64>) -> RangeGuard<'_> {
        self.lock(self.core.personality().locks(positions)).await
    }

    /// Keeps writes off a part of a member that one lock covers. `None` if no data lies there.
    pub(crate) async fn lock_part(&self, slot: Slot, part: &Range<u64>) -> Option<RangeGuard<'_>> {
        Some(self.lock(self.core.personality().locks_of_member(slot, part)?).await)
    }

    async fn lock(&self, locks: Range<u64>) -> RangeGuard<'_> {
        self.coalescer.close_within(&locks);
        self.core.locks.exclusive(mutant!("sweep-not-locked" => locks.start..locks.start, else locks)).await
    }
}
