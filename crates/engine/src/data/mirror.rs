//! Reads and writes of the levels without parity: linear, 0, 1 and 10.
//!
//! A read takes the current copy on the least loaded member, and of these the one nearest to the member's last
//! position. If that fails, it takes the next. A long read is shared among copies whose members are idle. A write
//! goes to all copies; a member that fails it is ejected. The caller locks and marks; [`Marked`] proves the second.

use crate::base::buffer::{Block, Buffer};
use crate::base::join::join_all;
use crate::core::authority::{Authority, Marked};
use crate::core::roster::in_slot;
use crate::data::plane::DataPlane;
use crate::device::Device;
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::geometry::{Mapping, Piece};
use format::units::{ArrayByte, ComponentByte, Slot};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::rc::Rc;

/// The least that a long read takes from each copy.
const SHARE_MIN: u64 = 256 << 10;

/// Shares begin at multiples of this.
const SHARE_UNIT: u64 = 4096;

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    pub(crate) async fn read_mapped(&self, mapping: &Mapping, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let first = mapping.piece_at(ArrayByte(at));
        if first.bytes >= into.len() as u64 {
            return self.read_piece(&first, into).await;
        }
        let reads = mapping.pieces(ArrayByte(at), into.len() as u64).map(|piece| {
            let part = into.split_to(piece.bytes as usize);
            async move { self.read_piece(&piece, part).await }
        });
        let reads: Vec<_> = reads.collect();
        join_parts(join_all(reads).await)
    }

    /// Reads the front of a piece, as much as `into` takes.
    async fn read_piece(&self, piece: &Piece, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let bytes = into.len() as u64;
        let mut tried = SmallVec::<[(Slot, ComponentByte); 4]>::new();
        let mut last_error = None;
        while let Some((slot, at)) = self.best_copy(piece, bytes, &tried) {
            let slots_seen = self.core.roster.slot_changed.seen();
            let Some(device) = self.core.device(slot) else { break };
            let (result, buffer) = device.read(at, into, Why::Data).await;
            into = buffer;
            match result {
                Ok(()) => return Ok(into),
                Err(error) => last_error = Some(error),
            }
            match slots_seen == self.core.roster.slot_changed.seen() {
                true => tried.push((slot, at)),
                false => tried.clear(), // another device is in the slot now
            }
        }
        // No single copy supplied all of it. Together the copies may.
        let unit =
            [ROW_BYTES, self.core.info.block_bytes].into_iter().find(|&unit| unit < bytes && piece.copies.len() > 1);
        if let Some(unit) = unit {
            return Box::pin(self.read_in_parts(piece, unit, into)).await;
        }
        Err(self.core.io_error(piece.at.0, bytes, last_error.as_ref()))
    }

    async fn read_in_parts(&self, piece: &Piece, unit: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let mut parts = Vec::new();
        for skip in (0..into.len() as u64).step_by(unit as usize) {
            let part = into.split_to((unit as usize).min(into.len()));
            let copies = piece.copies.iter().map(|&(slot, at)| (slot, ComponentByte(at.0 + skip))).collect();
            let piece = Piece { at: ArrayByte(piece.at.0 + skip), bytes: part.len() as u64, copies };
            parts.push(self.read_piece(&piece, part).await);
        }
        join_parts(parts)
    }

    /// The best copy to read a part of `read` from: its slot, its place there, and how much of it.
    pub(crate) fn share_of_copy(&self, piece: &Piece, read: &Range<u64>) -> Option<(Slot, ComponentByte, u64)> {
        let (at, length) = (piece.at.0, read.end - read.start);
        let bytes = piece.bytes.min(read.end - at);
        let shares = (length / SHARE_MIN).min(piece.copies.len() as u64);
        if shares > 1 && self.core.is_agreed(at + bytes, &(at..at + bytes)) && self.are_idle(piece, bytes) {
            let begin = |share: u64| match share {
                _ if share == shares => read.end,
                _ => read.start + length * share / shares / SHARE_UNIT * SHARE_UNIT,
            };
            let share = (0..shares).rev().find(|&share| begin(share) <= at)?;
            let (slot, place) = piece.copies[share as usize];
            return Some((slot, place, bytes.min(begin(share + 1) - at)));
        }
        self.best_copy(piece, bytes, &[]).map(|(slot, place)| (slot, place, bytes))
    }

    /// Whether every copy can be read, and each of their members is idle and not write-mostly.
    fn are_idle(&self, piece: &Piece, bytes: u64) -> bool {
        let slots = self.core.roster.slots.borrow();
        piece.copies.iter().all(|&(slot, at)| {
            in_slot(&slots, slot).is_some_and(|device| {
                let is_idle = device.activity.in_flight() == 0 && !device.is_write_mostly();
                is_idle && device.is_readable(at.0..at.0 + bytes)
            })
        })
    }

    /// The current copy with the fewest transfers under way, and of these the nearest. While copies may differ it is
    /// the first, as in md, so that all readers see the same copy. A member that is write-mostly, or was accepted by
    /// force while stale, comes last.
    pub(crate) fn best_copy(
        &self,
        piece: &Piece,
        bytes: u64,
        tried: &[(Slot, ComponentByte)],
    ) -> Option<(Slot, ComponentByte)> {
        let slots = self.core.roster.slots.borrow();
        let load = |slot: Slot, at: ComponentByte| {
            let device = in_slot(&slots, slot)?;
            let distance = device.activity.head().abs_diff(at.0);
            let is_readable = device.is_readable(at.0..at.0 + bytes);
            is_readable
                .then(|| (device.state.is_forced() || device.is_write_mostly(), device.activity.in_flight(), distance))
        };
        let positions = piece.at.0..piece.at.0 + bytes;
        let is_agreed = || self.core.is_agreed(positions.end, &positions);
        piece
            .copies
            .iter()
            .filter(|copy| !tried.contains(copy))
            .filter_map(|&(slot, at)| Some(((slot, at), load(slot, at)?)))
            .min_by_key(|&(_, load)| if is_agreed() { load } else { (load.0, 0, 0) })
            .map(|(copy, _)| copy)
    }

    /// Writes all copies of a range. A redundant array records failures and goes on.
    pub(crate) async fn write_mapped(
        &self,
        _: Marked<'_>,
        mapping: &Mapping,
        at: u64,
        from: Block,
    ) -> Result<(), ArrayError> {
        let bytes = from.len() as u64;
        let runs = self.cut_into_runs(mapping, at, from)?;
        let writes = runs.iter().map(|run| run.device.write(run.at, run.blocks.clone(), Why::Data));
        let results = join_all(writes).await;
        let failed = |(run, result): (&CopyRun<M>, Result<(), MemberError>)| Some((run.device.clone(), result.err()?));
        let failures: Vec<_> = runs.iter().zip(results).filter_map(failed).collect();
        match failures.first() {
            Some((_, error)) if !self.core.is_redundant() => Err(self.core.io_error(at, bytes, Some(error))),
            _ if mutant!("copy-error-ignored") => Ok(()),
            _ => self.record_write_failures(failures).await,
        }
    }

    /// The copies of a write, in runs that are contiguous on a member.
    fn cut_into_runs(&self, mapping: &Mapping, at: u64, from: Block) -> Result<Vec<CopyRun<M>>, ArrayError> {
        let mut runs: Vec<CopyRun<M>> = Vec::new();
        for piece in mapping.pieces(ArrayByte(at), from.len() as u64) {
            let start = (piece.at.0 - at) as usize;
            let part = from.slice(start..start + piece.bytes as usize);
            let mut copies = 0;
            for &(slot, at) in &piece.copies {
                let Some(device) = self.core.device(slot) else { continue };
                copies += 1;
                match runs.iter_mut().rev().find(|run| run.end == at.0 && Rc::ptr_eq(&run.device, &device)) {
                    Some(run) => {
                        run.end += piece.bytes;
                        run.blocks.push(part.clone());
                    }
                    None => runs.push(CopyRun { device, at, end: at.0 + piece.bytes, blocks: smallvec![part.clone()] }),
                }
            }
            if copies == 0 {
                return Err(self.core.io_error(piece.at.0, piece.bytes, None));
            }
        }
        Ok(runs)
    }
}

/// Blocks that are written to one contiguous range of a member.
struct CopyRun<M> {
    device: Rc<Device<M>>,
    at: ComponentByte,
    /// One past its last byte.
    end: u64,
    blocks: SmallVec<[Block; 1]>,
}

/// Joins the parts of one buffer, in order.
pub(crate) fn join_parts(parts: Vec<Result<Buffer, ArrayError>>) -> Result<Buffer, ArrayError> {
    let mut parts = parts.into_iter();
    let mut whole = parts.next().expect("a request has at least one part")?;
    for part in parts {
        whole.join(part?);
    }
    Ok(whole)
}
