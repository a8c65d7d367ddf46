//! Discard and write-zeroes.
//!
//! Whole stripes of parity levels, and whole blocks of the others, are zeroed on all members at once by each member's
//! best means. The parity of zeros is zeros, so nothing is read. The unaligned ends are written as data.
//!
//! A discard reaches members of a redundant level only if all of them promise that discarded ranges read as zeros.
//! Otherwise copies would differ and parity would be wrong. A member that breaks its promise is written zeros.
//! Without the promise nothing is done, as a discard is only a hint: writing zeros would turn the cheapest request
//! into the most expensive. md leaves this decision to its user (the module parameter `devices_handle_discard_safely`
//! in `drivers/md/raid5.c`).
//!
//! With a partial parity log of md's, zeros are written as data, as each write must be logged.

use crate::base::buffer::Block;
use crate::base::join::join_all;
use crate::base::range_lock::RangeGuard;
use crate::core::authority::{Authority, LOG_ENTRIES_MAX, Logging, Marked};
use crate::data::plane::DataPlane;
use crate::device::Device;
use crate::seam::bytes::zero_or_write;
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault};
use crate::seam::observe::Why;
use format::geometry::Geometry;
use format::units::{ComponentByte, Slot};
use std::ops::Range;
use std::rc::Rc;

/// About how much is locked and marked at a time, in bytes of the array.
const BATCH_BYTES: u64 = 64 << 20;

/// Zeros written at a time: enough for full stripes, and not too much to hold in memory.
const ZEROS_BYTES: u64 = 1 << 20;

/// How members are to produce zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// They may keep the space allocated.
    Zero,
    /// They may release the space.
    Discard,
}

/// A contiguous range of one member.
struct Extent<M> {
    device: Rc<Device<M>>,
    at: ComponentByte,
    bytes: u64,
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// [`crate::Array::write_zeroes`].
    pub(crate) async fn write_zeroes(
        self: &Rc<Self>,
        at: u64,
        bytes: u64,
        durability: Durability,
    ) -> Result<(), ArrayError> {
        self.zero(at, bytes, Means::Zero, durability).await
    }

    /// [`crate::Array::punch_hole`].
    pub(crate) async fn punch_hole(
        self: &Rc<Self>,
        at: u64,
        bytes: u64,
        durability: Durability,
    ) -> Result<(), ArrayError> {
        self.zero(at, bytes, Means::Discard, durability).await
    }

    /// [`crate::Array::discard`].
    pub(crate) async fn discard(self: &Rc<Self>, at: u64, bytes: u64) -> Result<(), ArrayError> {
        let inside = self.core.enter_to_write(at, bytes)?;
        if self.core.is_redundant() {
            drop(inside);
            let all_promise = self.core.roster.slots.borrow().iter().flatten().all(|device| device.discards_to_zeros());
            return if all_promise { self.punch_hole(at, bytes, Durability::Ordinary).await } else { Ok(()) };
        }
        let _writing = self.core.writers.begin();
        self.discard_alone(at, bytes).await
    }

    async fn zero(
        self: &Rc<Self>,
        at: u64,
        bytes: u64,
        means: Means,
        durability: Durability,
    ) -> Result<(), ArrayError> {
        drop(self.core.enter_to_write(at, bytes)?);
        self.check_room().await?;
        if self.authority.logging().names_zeros() {
            self.write_zeros(at..at + bytes).await?;
            return if durability == Durability::Stable { self.flush().await } else { Ok(()) };
        }
        let (unit, end) = (self.core.personality().zero_unit(self.core.info.block_bytes), at + bytes);
        let whole = at.next_multiple_of(unit).min(end)..(end / unit * unit).max(at.next_multiple_of(unit).min(end));
        self.write_zeros(at..whole.start).await?;
        let batch = BATCH_BYTES.next_multiple_of(unit);
        for start in whole.clone().step_by(batch as usize) {
            let _inside = self.core.enter_to_write(at, bytes)?;
            let _writing = self.core.writers.begin();
            self.zero_whole(start..(start + batch).min(whole.end), means).await?;
        }
        self.write_zeros(whole.end..end).await?;
        match durability {
            Durability::Ordinary => Ok(()),
            Durability::Stable => self.flush().await,
        }
    }

    /// Writes zeros as data. They are cut where no block is.
    async fn write_zeros(self: &Rc<Self>, range: Range<u64>) -> Result<(), ArrayError> {
        let zeros = self.core.pool.zeroed((range.end - range.start).min(ZEROS_BYTES) as usize).freeze();
        let mut start = range.start;
        while start < range.end {
            let cut =
                mutant!("zeros-cut-in-a-block" => start + ZEROS_BYTES, else (start + 1).next_multiple_of(ZEROS_BYTES));
            let end = cut.min(range.end);
            self.write(start, zeros.slice(0..(end - start) as usize), Durability::Ordinary).await?;
            start = end;
        }
        Ok(())
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Zeroes whole units.
    async fn zero_whole(self: &Rc<Self>, range: Range<u64>, means: Means) -> Result<(), ArrayError> {
        let lock = self.lock_whole(&range).await;
        // The log was begun since the request, or what is lost here is written again: data ends that.
        if self.authority.logging().names_zeros() || self.is_lost_in(&range) {
            drop(lock);
            return self.write_zeros(range).await;
        }
        let _lock = lock;
        self.core.to_the_end(self.marked(&range, async |_: Marked<'_>| self.zero_extents(&range, means).await)).await?;
        self.core.health.unbuilt.built(&self.core.geometry().sync_range(&range));
        Ok(())
    }

    /// Keeps other requests off whole units, and off everything that shares their parity.
    async fn lock_whole(&self, range: &Range<u64>) -> RangeGuard<'_> {
        let locks = self.core.personality().locks_of_array(range);
        self.coalescer.close_within(&locks);
        self.core.locks.exclusive(locks).await
    }

    async fn zero_extents(&self, range: &Range<u64>, means: Means) -> Result<(), ArrayError> {
        let _logged = self.log_zeros(range).await?;
        self.invalidate_range(range);
        let extents = self.extents(range);
        let zeros = self.core.pool.zeroed(ZEROS_BYTES as usize).freeze();
        let results = join_all(extents.iter().map(|extent| extent.zero(means, &zeros))).await;
        let mut failures = Vec::new();
        for (extent, result) in extents.iter().zip(results) {
            let Err(error) = result else { continue };
            if !self.core.is_redundant() {
                return Err(self.core.io_error(range.start, range.end - range.start, Some(&error)));
            }
            // Nothing after the part that failed was tried.
            let whole = MemberFault { at: extent.device.absolute(extent.at), bytes: extent.bytes, ..(*error).clone() };
            extent.device.note_zeros_owed(extent.at, extent.bytes, &Err(error));
            failures.push((extent.device.clone(), whole.into()));
        }
        self.authority.record_failures(failures).await
    }

    /// Makes older entries of the log void.
    async fn log_zeros(&self, range: &Range<u64>) -> Result<Vec<A::Logged>, ArrayError> {
        let geometry = self.core.geometry();
        let Geometry::Parity(parity) = geometry else { return Ok(Vec::new()) };
        let mut logged = Vec::new();
        if self.authority.logging() != Logging::Nothing {
            let stripes = parity.stripes_of(range);
            for first in stripes.clone().step_by(LOG_ENTRIES_MAX) {
                logged.push(self.log_stripes(parity, first..stripes.end.min(first + LOG_ENTRIES_MAX as u64)).await?);
            }
        }
        Ok(logged)
    }

    /// Each member's part of whole units, in extents that are contiguous on it.
    fn extents(&self, range: &Range<u64>) -> Vec<Extent<M>> {
        let extent = |(slot, part): (Slot, Range<u64>)| {
            let device = self.core.device(slot)?;
            Some(Extent { device, at: ComponentByte(part.start), bytes: part.end - part.start })
        };
        self.core.personality().extents(range).into_iter().filter_map(extent).collect()
    }

    /// Discards on a level without redundancy: every member that supports it discards its part.
    async fn discard_alone(&self, at: u64, bytes: u64) -> Result<(), ArrayError> {
        let unit = self.core.info.block_bytes;
        let (start, end) = (at.next_multiple_of(unit), (at + bytes) / unit * unit);
        let batches = (start..end).step_by(BATCH_BYTES as usize);
        for range in batches.map(|start| start..(start + BATCH_BYTES).min(end)) {
            let _lock = self.core.locks.exclusive(range.clone()).await;
            self.core.check_not_failed()?;
            let extents = self.extents(&range);
            let able = extents.iter().filter(|extent| extent.device.member.limits().discards);
            for result in join_all(able.map(|extent| extent.device.discard(extent.at, extent.bytes))).await {
                match result {
                    Err(error) if error.kind != MemberErrorKind::Unsupported => {
                        return Err(self.core.io_error(range.start, range.end - range.start, Some(&error)));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl<M: Member> Extent<M> {
    /// Zeroes the extent by the best means that the member supports.
    async fn zero(&self, means: Means, zeros: &Block) -> Result<(), MemberError> {
        let Extent { device, at, bytes } = self;
        if means == Means::Discard && device.discards_to_zeros() {
            match device.discard(*at, *bytes).await {
                Err(error) if error.kind == MemberErrorKind::Unsupported => device.discard_refused(),
                done => return done,
            }
        }
        let write = async |start, zeros| device.write_one(ComponentByte(at.0 + start), zeros, Why::Data).await;
        zero_or_write(device.write_zeroes(*at, *bytes), *bytes, || zeros.clone(), write).await
    }
}
