//! Requests of any position and length: rounded to the blocks that members take, and passed to the array's level.
//!
//! [`crate::Array::read`] and [`crate::Array::flush`] begin here. [`crate::Array::write`] begins in
//! [`super::personality`], which chooses between copies ([`super::mirror`]) and parity ([`super::coalesce`], then
//! [`super::stripe`]). Locks and marks of writes to copies are taken here.

use crate::base::buffer::{Block, Buffer};
use crate::base::write_set::{WriteExtent, WriteSet};
use crate::core::authority::{Authority, Marked};
use crate::data::plane::DataPlane;
use crate::data::read_ahead::stretches::FromMemory;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::Mapping;
use std::ops::Range;

/// Whether the caller already keeps writes off the stripes that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locked {
    No,
    Exclusively,
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Whether members accept this memory. A part of a longer buffer may begin at any byte.
    pub(crate) fn is_memory_of_members(&self, into: &Buffer) -> bool {
        self.core.is_aligned(into.as_ptr() as usize as u64, 0)
    }

    /// Reads into memory that members accept, and copies from there.
    pub(crate) async fn read_elsewhere(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let other = self.core.pool.take(into.len());
        let other = if self.coalescer.has_dirty() {
            self.read_with_dirty(at, other).await
        } else {
            self.read_any(at, other).await
        };
        into.copy_from_slice(&other?);
        Ok(into)
    }

    pub(crate) async fn read_any(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        if self.core.is_aligned(at, into.len() as u64) {
            return self.read_aligned(at, into, Locked::No).await;
        }
        let outer = self.core.widened(at, into.len() as u64);
        let wide = self.core.pool.take((outer.end - outer.start) as usize);
        let wide = self.read_aligned(outer.start, wide, Locked::No).await?;
        let skip = (at - outer.start) as usize;
        let length = into.len();
        into.copy_from_slice(&wide[skip..skip + length]);
        Ok(into)
    }

    /// Writes what [`DataPlane::write_now`] did not.
    pub(crate) async fn write_later(&self, mapping: &Mapping, at: u64, from: Block) -> Result<(), ArrayError> {
        match self.locate_alone(at, &from) {
            Some((device, position)) => self.write_alone(&device, position, at, from).await,
            None => self.write_copies(mapping, at, from).await,
        }
    }

    pub(crate) async fn write_copies(&self, mapping: &Mapping, at: u64, from: Block) -> Result<(), ArrayError> {
        let outer = self.core.widened(at, from.len() as u64);
        let _lock = match mutant!("copies-not-locked") {
            true => self.core.locks.shared(outer.clone()).await,
            false => self.core.locks.exclusive(outer.clone()).await,
        };
        let mut data = WriteSet::default();
        data.put(WriteExtent { at, block: from });
        let data = self.in_whole_blocks(data).await?;
        let write = async |marked: Marked<'_>| {
            for WriteExtent { at, block } in data.extents() {
                self.write_mapped(marked, mapping, *at, block.clone()).await?;
                self.core.health.unbuilt.built(&(*at..*at + block.len() as u64));
            }
            Ok(())
        };
        self.core.to_the_end(self.marked(&outer, write)).await
    }

    /// Runs a write between the marks that come before and after it. `write_marked` of [`super::coalesce`] does the same
    /// for writes to stripes.
    pub(crate) async fn marked(
        &self,
        range: &Range<u64>,
        write: impl AsyncFnOnce(Marked<'_>) -> Result<(), ArrayError>,
    ) -> Result<(), ArrayError> {
        self.core.check_not_failed()?;
        let mark = self.authority.mark_write(range).await?;
        write(Marked::by::<M, A>(&mark)).await?;
        self.authority.record_departed().await
    }

    /// The same data in whole blocks, in memory that members accept. Missing parts of blocks are read from the array.
    /// The caller keeps writes off the range.
    pub(crate) async fn in_whole_blocks(&self, data: WriteSet) -> Result<WriteSet, ArrayError> {
        if self.are_whole_blocks(&data) {
            return Ok(data);
        }
        let unit = self.core.info.block_bytes;
        let shares_block = |a: &WriteExtent, b: &WriteExtent| b.at / unit * unit < a.end().next_multiple_of(unit);
        let mut whole = WriteSet::default();
        for run in data.extents().chunk_by(shares_block) {
            match run {
                [patch] if self.is_whole_blocks(patch) => whole.put(patch.clone()),
                _ => whole.put(self.copied(run).await?),
            }
        }
        Ok(whole)
    }

    /// Whether members accept all of it as it is.
    pub(crate) fn are_whole_blocks(&self, data: &WriteSet) -> bool {
        data.extents().iter().all(|patch| self.is_whole_blocks(patch))
    }

    pub(crate) fn is_whole_blocks(&self, patch: &WriteExtent) -> bool {
        let place = patch.block.as_ptr() as usize as u64;
        self.core.is_aligned(patch.at | place, patch.block.len() as u64)
    }

    /// Combines patches in neighbouring blocks into one. Parts of blocks that they leave out are read.
    pub(crate) async fn copied(&self, run: &[WriteExtent]) -> Result<WriteExtent, ArrayError> {
        let unit = self.core.info.block_bytes;
        let outer = self.core.widened(run[0].at, run[run.len() - 1].end() - run[0].at);
        let mut wide = self.core.pool.take((outer.end - outer.start) as usize);
        let place = |at: u64| (at - outer.start) as usize;
        let starts = run.iter().map(|patch| patch.at).chain([outer.end]);
        let ends = [outer.start].into_iter().chain(run.iter().map(WriteExtent::end));
        let mut gaps: Vec<u64> =
            ends.zip(starts).filter(|(end, start)| end < start).map(|(end, _)| end / unit).collect();
        gaps.dedup();
        for gap in gaps {
            let at = gap * unit;
            let block = self.read_aligned(at, self.core.pool.take(unit as usize), Locked::Exclusively).await?;
            wide[place(at)..place(at + unit)].copy_from_slice(&block);
        }
        for patch in run {
            wide[place(patch.at)..place(patch.end())].copy_from_slice(&patch.block);
        }
        Ok(WriteExtent { at: outer.start, block: wide.freeze() })
    }

    /// Flushes every member, and records those that have left.
    pub(crate) async fn flush_members(&self) -> Result<(), ArrayError> {
        if self.core.info.read_only {
            return Ok(()); // nothing was written, and a failure could not be recorded
        }
        if !mutant!("flush-lost") {
            self.authority.flush_devices().await?;
        }
        self.authority.record_departed().await
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// [`crate::Array::read`].
    pub(crate) async fn read(&self, at: u64, mut into: Buffer) -> Result<Buffer, ArrayError> {
        let _inside = self.core.enter(at, into.len() as u64)?;
        if into.is_empty() {
            return Ok(into);
        }
        if let Some(elsewhere) = self.elsewhere.get() {
            return Box::pin(self.read_stitched(elsewhere, at, into)).await;
        }
        if !self.is_memory_of_members(&into) && !mutant!("memory-of-any-alignment") {
            return Box::pin(self.read_elsewhere(at, into)).await;
        }
        if !self.core.is_whole() {
            into = match self.read_degraded(at, into) {
                FromMemory::There(filled) => return Ok(filled),
                FromMemory::Nothing(buffer) => buffer,
                FromMemory::UnderWay(buffer) => return Box::pin(self.read_any(at, buffer)).await,
            };
        }
        if self.coalescer.has_dirty() && !mutant!("kept-not-read") {
            return Box::pin(self.read_with_dirty(at, into)).await;
        }
        let now = self.read_now(at, &mut into);
        if let Some(Ok(())) = now {
            return Ok(into);
        }
        if now.is_none()
            && let Some((device, position)) = self.locate(at, into.len() as u64)
        {
            let (result, buffer) = device.read_later(position, into, Why::Data).await;
            into = buffer;
            if result.is_ok() {
                return Ok(into);
            }
        }
        // Boxed, so that the fast path above stays small enough to be cheap.
        Box::pin(self.read_any(at, into)).await
    }

    /// [`crate::Array::flush`].
    pub(crate) async fn flush(&self) -> Result<(), ArrayError> {
        let _inside = self.core.enter(0, 0)?;
        // A later write over what was lost may be answered before the members have it, and this flush does not wait for it.
        let lost_before = self.check_nothing_lost();
        if !mutant!("writeback-not-written") {
            self.write_out_all().await?;
        }
        self.flush_members().await?;
        self.check_dirty_is_not_owed().await?;
        let lost_before = mutant!("loss-answered-over-amid-flush" => Ok(()), else lost_before);
        lost_before.and_then(|()| self.check_nothing_lost())
    }
}
