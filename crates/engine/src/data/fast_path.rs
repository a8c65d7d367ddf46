//! Fast paths: reads of a whole array, where nothing is planned or locked, and writes that go to one member only.
//!
//! What is contiguous on a member becomes one transfer, however many chunks of the request it covers. When a member
//! fails, the caller falls back to the general path, which knows about copies and parity. So nothing here
//! reconstructs or records a failure.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::join_all;
use crate::core::authority::Authority;
use crate::core::roster::in_slot;
use crate::data::plane::DataPlane;
use crate::device::Device;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::geometry::Mapping;
use format::units::{ArrayByte, ComponentByte, Slot};
use std::ops::Range;
use std::rc::Rc;

/// The member that a run of array bytes is on.
struct Place<M> {
    device: Rc<Device<M>>,
    at: ComponentByte,
    /// How far the run continues there, at least.
    bytes: u64,
}

/// Parts of a request that form one transfer on a member.
struct MemberRead<M> {
    device: Rc<Device<M>>,
    at: ComponentByte,
    end: u64,
    /// The indices of the request's parts, in ascending order.
    parts: Vec<usize>,
    buffers: Vec<Buffer>,
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// [`DataPlane::slot_of`] at levels without parity. A separate function, since a piece holds a list. A caller that builds the
    /// list inline slows down the levels that need none (figures in docs/decisions/0406).
    #[inline(never)]
    pub(super) fn slot_of_copy(
        &self,
        mapping: &Mapping,
        at: u64,
        read: &Range<u64>,
    ) -> Option<(Slot, ComponentByte, u64)> {
        let piece = mapping.piece_at(ArrayByte(at));
        match piece.copies[..] {
            [(slot, at)] => Some((slot, at, piece.bytes)),
            _ => self.share_of_copy(&piece, read),
        }
    }

    /// The member to read `at` from, a part of `read`.
    fn place(&self, at: u64, read: &Range<u64>) -> Option<Place<M>> {
        let (slot, at, bytes) = self.slot_of(at, read)?;
        Some(Place { device: self.core.device(slot)?, at, bytes })
    }

    /// Whether a member's range can be read without a plan: anything in a whole array, otherwise what the member can
    /// read.
    fn can_read(&self, device: &Device<M>, at: ComponentByte, bytes: u64) -> bool {
        self.core.is_whole() || device.is_readable(at.0..at.0 + bytes)
    }

    /// The fast path of most reads: one active member holds the whole range. `None` means only that this path does
    /// not apply.
    pub(crate) fn locate(&self, at: u64, bytes: u64) -> Option<(Rc<Device<M>>, ComponentByte)> {
        if bytes == 0 || !self.core.is_aligned(at, bytes) {
            return None;
        }
        let place = self.place(at, &(at..at + bytes))?;
        let is_it = bytes <= place.bytes && self.can_read(&place.device, place.at, bytes);
        is_it.then_some((place.device, place.at))
    }

    /// Reads by [`DataPlane::locate`], if the member can read without waiting.
    pub(crate) fn read_now(&self, at: u64, into: &mut Buffer) -> Option<Result<(), MemberError>> {
        let bytes = into.len() as u64;
        if bytes == 0 || !self.core.is_aligned(at, bytes) {
            return None;
        }
        let (slot, place, length) = self.slot_of(at, &(at..at + bytes))?;
        let slots = self.core.roster.slots.borrow();
        let device = in_slot(&slots, slot).filter(|device| device.is_active())?;
        if bytes <= length && self.can_read(device, place, bytes) {
            device.read_now(place, into, Why::Data)
        } else {
            None
        }
    }

    /// Whether a write may go to one member only. This needs a level without redundancy, which has no marks to make
    /// and no copies to keep equal.
    fn is_alone(&self, at: u64, from: &Block) -> bool {
        let place = from.as_ptr() as usize as u64;
        !self.core.is_redundant() && self.core.is_whole() && self.core.is_aligned(at | place, from.len() as u64)
    }

    /// The member that takes such a write.
    pub(crate) fn locate_alone(&self, at: u64, from: &Block) -> Option<(Rc<Device<M>>, ComponentByte)> {
        if self.is_alone(at, from) { self.locate(at, from.len() as u64) } else { None }
    }

    /// Writes to that member, if it can write without waiting. A write that takes no time needs no lock, as long as
    /// no task holds or wants one.
    pub(crate) fn write_now(&self, at: u64, from: &Block) -> Option<Result<(), ArrayError>> {
        let bytes = from.len() as u64;
        if !self.is_alone(at, from) || self.core.locks.is_wanted_exclusively(&(at..at + bytes)) {
            return None;
        }
        let (slot, place, length) = self.slot_of(at, &(at..at + bytes))?;
        let slots = self.core.roster.slots.borrow();
        let device = in_slot(&slots, slot).filter(|device| device.is_active() && bytes <= length)?;
        if let Err(failed) = self.core.check_not_failed() {
            return Some(Err(failed));
        }
        let result = device.write_now(place, from)?;
        Some(result.map_err(|error| self.core.io_error(at, bytes, Some(&error))))
    }

    /// Writes to one member. The lock orders this write with unaligned writes, which read first.
    pub(crate) async fn write_alone(
        &self,
        device: &Device<M>,
        position: ComponentByte,
        at: u64,
        from: Block,
    ) -> Result<(), ArrayError> {
        let bytes = from.len() as u64;
        let _lock = self.core.locks.exclusive(at..at + bytes).await;
        self.core.check_not_failed()?;
        device.write_one(position, from, Why::Data).await.map_err(|error| self.core.io_error(at, bytes, Some(&error)))
    }

    /// Reads a range of a whole array. Returns the buffer unfilled when the array is not whole or a member fails.
    pub(crate) async fn read_whole(&self, at: u64, into: Buffer) -> Result<Buffer, Buffer> {
        if !self.core.is_whole() {
            return Err(into);
        }
        let (transfers, count) = self.cut_into_transfers(at, into)?;
        let reads = transfers.into_iter().map(async |transfer| {
            let (result, buffers) = transfer.device.read_vectored(transfer.at, transfer.buffers, Why::Data).await;
            (result, transfer.parts, buffers)
        });
        let mut parts: Vec<Option<Buffer>> = (0..count).map(|_| None).collect();
        let mut all_well = true;
        for (result, indices, buffers) in join_all(reads).await {
            all_well &= result.is_ok();
            indices.into_iter().zip(buffers).for_each(|(index, buffer)| parts[index] = Some(buffer));
        }
        let whole = join(parts.into_iter().flatten());
        if all_well { Ok(whole) } else { Err(whole) }
    }

    fn cut_into_transfers(&self, at: u64, mut into: Buffer) -> Result<(Vec<MemberRead<M>>, usize), Buffer> {
        let mut transfers: Vec<MemberRead<M>> = Vec::new();
        let read = at..at + into.len() as u64;
        let mut position = at;
        let mut count = 0;
        while !into.is_empty() {
            let Some(place) = self.place(position, &read) else {
                return Err(put_together(transfers, into)); // the array stopped being whole
            };
            let bytes = place.bytes.min(into.len() as u64);
            let part = into.split_to(bytes as usize);
            let follows = |t: &&mut MemberRead<M>| Rc::ptr_eq(&t.device, &place.device) && t.end == place.at.0;
            match transfers.iter_mut().rev().find(follows) {
                Some(transfer) => {
                    transfer.end += bytes;
                    transfer.parts.push(count);
                    transfer.buffers.push(part);
                }
                None => transfers.push(MemberRead {
                    device: place.device,
                    at: place.at,
                    end: place.at.0 + bytes,
                    parts: vec![count],
                    buffers: vec![part],
                }),
            }
            position += bytes;
            count += 1;
        }
        Ok((transfers, count))
    }
}

/// Restores the request's buffer from transfers that were not carried out.
fn put_together<M>(transfers: Vec<MemberRead<M>>, rest: Buffer) -> Buffer {
    let pairs = transfers.into_iter().flat_map(|transfer| transfer.parts.into_iter().zip(transfer.buffers));
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable_by_key(|(index, _)| *index);
    join(pairs.into_iter().map(|(_, buffer)| buffer).chain([rest]))
}

fn join(mut parts: impl Iterator<Item = Buffer>) -> Buffer {
    let mut whole = parts.next().expect("a request has at least one part");
    parts.for_each(|part| whole.join(part));
    whole
}
