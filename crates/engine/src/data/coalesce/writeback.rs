//! Writeback: writes are answered from memory, as by a disk with a volatile cache.
//!
//! While [`crate::Array::write_back`] runs, an ordinary write is answered as soon as its data is in stripe writes: any
//! write, or one of a stream that would wait for company in vain ([`WriteBack`]). These stripe writes are *dirty* until
//! the members have the data; the array waits for them in place of the callers. So a stream with one request at a time
//! becomes full stripes as well.
//!
//! Invariants:
//!
//! * What was answered before a flush began is on stable storage when the flush ends.
//! * A read sees everything that was answered before it began, on the members or not.
//! * The memory for dirty data is bounded, apart from requests that are just being answered. A write beyond the bound
//!   waits until the oldest data is written.
//! * What a member has no room for is owed ([`crate::control::owed`]), and can be read. A flush fails until it is
//!   written.
//! * Data that cannot be written for another reason is lost. Reads of it and flushes fail until it is written again,
//!   as the members still hold what was there before. All else goes on. It stays in the write buffer, so the process
//!   after a kill tries once more, and does not take the members for right.
//! * A loss is noted, and cleared by a later write, while that write holds its rows' locks. So no older write clears it,
//!   whenever that one is answered.

use crate::base::buffer::Buffer;
use crate::base::write_set::{WriteExtent, WriteSet};
use crate::base::yield_now::yield_now;
use crate::core::authority::Authority;
use crate::data::coalesce::coalescer::{Answer, Coalescer, WriteBatch};
use crate::data::coalesce::dirty_set::WriteBack;
use crate::data::coalesce::stripe_write::{RequestId, StripeWrite, WriteResult};
use crate::data::plane::DataPlane;
use crate::device::write_buffer::BufferedWrites;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};

impl Coalescer {
    /// Which writes are answered from memory from now on.
    fn answer(&self, which: Option<WriteBack>) {
        self.dirty.answers.set(which);
        self.streams.borrow_mut().answer_impatient(which.is_some());
    }

    /// Has the array wait for this stripe write in place of the requests that were answered.
    pub(super) fn add_dirty(&self, write: &Rc<StripeWrite>) {
        if write.dirty.replace(true) {
            return;
        }
        let request = self.new_request();
        write.add_caller(request, None);
        self.dirty.count(write.patches.borrow().bytes(), 0);
        self.dirty.writes.borrow_mut().push((write.clone(), request));
        self.dirty.fresh.borrow_mut().push((write.clone(), request));
        self.dirty.wake();
    }

    /// Whether reads have to look at dirty data.
    pub(crate) fn has_dirty(&self) -> bool {
        let dirty = &self.dirty;
        let is_found = || !dirty.found.borrow().extents().is_empty();
        !dirty.writes.borrow().is_empty() || !dirty.lost.borrow().is_empty() || is_found()
    }

    /// Whether any of a range was answered and lost.
    pub(super) fn is_noted_lost(&self, range: &Range<u64>) -> bool {
        self.dirty.lost.borrow().touches(range)
    }

    /// The dirty stripe writes with data of a range, and where that data is. The ranges are whole
    /// blocks: a write that joins a stripe write later must not be seen in a part of a block.
    fn dirty_writes_in(&self, at: u64, bytes: u64, block_bytes: u64) -> Vec<(Rc<StripeWrite>, Vec<Range<u64>>)> {
        let writes = self.dirty.writes.borrow();
        let in_blocks = |patch: WriteExtent| {
            let (start, end) = (patch.at / block_bytes * block_bytes, patch.end().next_multiple_of(block_bytes));
            start.max(at)..end.min(at + bytes)
        };
        let in_range = |(write, _): &(Rc<StripeWrite>, RequestId)| {
            let patches = write.patches.borrow();
            let dirty = patches.extents().iter().filter_map(|patch| patch.within(at..at + bytes));
            let ranges: Vec<_> = dirty.map(in_blocks).collect();
            (!ranges.is_empty()).then(|| (write.clone(), ranges))
        };
        writes.iter().filter(|(write, _)| !write.is_done()).filter_map(in_range).collect()
    }

    /// The dirty data of a range, later data after earlier.
    fn dirty_in(&self, at: u64, bytes: u64) -> Vec<WriteExtent> {
        let range = at..at + bytes;
        let writes = self.dirty.writes.borrow();
        let found = self.dirty.found.borrow();
        let mut patches: Vec<_> = found.extents().iter().filter_map(|patch| patch.within(range.clone())).collect();
        for (write, _) in writes.iter().filter(|(write, _)| !write.is_done()) {
            patches.extend(write.patches.borrow().extents().iter().filter_map(|patch| patch.within(range.clone())));
        }
        patches
    }

    /// Whether a dirty stripe write has data of a range.
    pub(super) fn is_dirty_in(&self, range: &Range<u64>) -> bool {
        let touches = |patch: Range<u64>| patch.start < range.end && range.start < patch.end;
        let has_data = |write: &StripeWrite| {
            let patches = write.patches.borrow();
            touches(patches.range()) && patches.extents().iter().any(|patch| touches(patch.at..patch.end()))
        };
        self.dirty.writes.borrow().iter().any(|(write, _)| has_data(write))
    }

    /// Waits for the first `count` of the dirty stripe writes.
    fn dirty_is_written(&self, count: usize) -> Answer<'_> {
        let mut answer = Answer::new(self, None, 0);
        for (write, _) in self.dirty.writes.borrow().iter().take(count) {
            self.close(write);
            write.add_caller(answer.request, None);
            answer.writes.push(write.clone());
        }
        answer
    }

    /// Removes a stripe write from the dirty set.
    fn release(&self, write: &Rc<StripeWrite>) {
        self.dirty.count(0, write.patches.borrow().bytes());
        self.dirty.writes.borrow_mut().retain(|(other, _)| !Rc::ptr_eq(other, write));
    }

    /// A range is written again, or what is answered there will be: what was lost before does not matter any more.
    pub(super) fn written_over(&self, range: &Range<u64>) {
        if !self.dirty.lost.borrow().is_empty() {
            self.dirty.lost.borrow_mut().remove(range);
        }
    }

    /// The first range that was answered and lost, if any.
    fn first_lost(&self) -> Option<Range<u64>> {
        self.dirty.lost.borrow().iter().next().cloned()
    }

    /// Wakes the writeback task, so that it checks whether it can end.
    pub(crate) fn wake_writeback(&self) {
        self.dirty.wake();
    }
}

/// Turns writeback off when it is dropped.
struct WritebackGuard<'a, M: Member, C: Clock, A: Authority<M>>(&'a DataPlane<M, C, A>);

/// The error of a request to bytes that were answered from memory, and could not be written.
pub(super) fn lost() -> ArrayError {
    ArrayError::new(ArrayErrorKind::Io, "a write here was answered from memory and then lost")
}

impl<M: Member, C: Clock, A: Authority<M>> Drop for WritebackGuard<'_, M, C, A> {
    fn drop(&mut self) {
        let coalescer = &self.0.coalescer;
        coalescer.answer(None);
        coalescer.dirty.fresh.take();
        for (write, request) in coalescer.dirty.writes.take() {
            if !write.is_done() && coalescer.leave(&write, request) {
                self.0.lose(&write, "writeback was abandoned");
                self.0.core.fail_array(|| "data that was answered was abandoned".to_owned());
            }
        }
        coalescer.dirty.bytes.set(0);
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// [`crate::Array::write_back`].
    pub(crate) async fn write_back(&self, answers: WriteBack) {
        if self.core.info.read_only || self.core.personality().stripe().is_none() {
            return;
        }
        let dirty = &self.coalescer.dirty;
        self.coalescer.answer(Some(answers));
        let _guard = WritebackGuard(self);
        let mut tasks = FuturesUnordered::new();
        let turn = |context: &mut Context<'_>| loop {
            dirty.task_waker.replace(Some(context.waker().clone()));
            tasks.extend(dirty.fresh.take().into_iter().map(|(write, request)| self.write_out(write, request)));
            match tasks.poll_next_unpin(context) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) if self.core.gate.is_closed() => return Poll::Ready(()),
                _ if dirty.fresh.borrow().is_empty() => return Poll::Pending,
                _ => {}
            }
        };
        poll_fn(turn).await;
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// [`crate::Array::write_through`].
    pub(crate) async fn write_through(&self) -> Result<(), ArrayError> {
        self.coalescer.answer(None);
        self.write_out_all().await
    }

    /// Whether a write of so many bytes may be answered from memory: what is answered outlives the process, if the array
    /// was given memory for that.
    pub(super) fn may_buffer(&self, bytes: u64) -> bool {
        /// The end of a stripe, whole stripes, and the beginning of one.
        const PARTS_MAX: u64 = 3;
        self.core.context.write_buffer.get().is_none_or(|buffer| buffer.has_room(bytes, PARTS_MAX))
    }

    /// Has reads show what an earlier server had answered: the array is only read, and its members may lack it.
    pub(crate) fn show(&self, found: Vec<(u64, Vec<u8>)>) {
        let mut all = self.coalescer.dirty.found.borrow_mut();
        for (at, data) in found {
            all.put(WriteExtent { at, block: self.core.pool.copy_of(&data) });
        }
    }

    /// Puts a part of a write that is about to be answered into the write buffer.
    pub(super) fn buffer(&self, write: &StripeWrite, part: &WriteExtent) {
        if let Some(buffer) = self.core.context.write_buffer.get().filter(|_| !mutant!("answered-and-not-buffered")) {
            buffer.keep(part.at, &part.block, &mut write.buffered.borrow_mut());
        }
    }

    /// What a batch with this data has to note about lost writes below it, once it is written. The data as its callers
    /// gave it: what is read to fill their blocks is older than what is lost.
    pub(super) fn over_lost(&self, data: &WriteSet) -> Option<Box<WriteSet>> {
        let has_lost = self.core.context.write_buffer.get().is_some_and(BufferedWrites::has_lost);
        (has_lost || self.coalescer.first_lost().is_some()).then(|| Box::new(data.clone()))
    }

    /// Notes what was answered and could not be written, or that what was lost below a batch is written again.
    pub(super) fn note_losses(&self, batch: &WriteBatch, written: &WriteResult, over_lost: Option<&WriteSet>) {
        match written {
            Ok(()) => over_lost.into_iter().flat_map(WriteSet::extents).for_each(|extent| {
                self.coalescer.written_over(&(extent.at..extent.end()));
            }),
            Err(error) if error.kind == ArrayErrorKind::NoSpace => {}
            Err(error) => batch.answered.iter().for_each(|write| self.lose(write, &error.reason)),
        }
    }

    /// The members have the data in these blocks, or it is lost. What is lost, or what a failed array has not written,
    /// stays for the next assembly.
    pub(super) fn end_buffering(&self, blocks: &[u32], written: &WriteResult, over_lost: Option<&WriteSet>) {
        let buffer = self.core.context.write_buffer.get();
        let Some(buffer) = buffer.filter(|_| self.core.check_not_failed().is_ok()) else { return };
        let is_lost = written.as_ref().is_err_and(|error| error.kind != ArrayErrorKind::NoSpace);
        if is_lost && !mutant!("lost-and-forgotten") {
            return buffer.keep_lost(blocks);
        }
        if let Some(over) = over_lost.filter(|_| !mutant!("lost-covers-a-later-write")) {
            over.extents().iter().for_each(|extent| buffer.written_over(extent));
        }
        if !mutant!("buffer-not-freed") {
            buffer.free(blocks);
        }
    }

    /// Whether the write buffer may hold an older write to a range, which is carried out after a kill.
    pub(super) fn is_buffered_below(&self, range: &Range<u64>) -> bool {
        let is_below = |buffer: &BufferedWrites| buffer.has_lost_in(range) || self.coalescer.is_dirty_in(range);
        self.core.context.write_buffer.get().is_some_and(is_below)
    }

    /// Whether any of a range was answered and could not be written, and is not written again.
    pub(crate) fn is_lost_in(&self, range: &Range<u64>) -> bool {
        let in_buffer = self.core.context.write_buffer.get().is_some_and(|buffer| buffer.has_lost_in(range));
        in_buffer || self.coalescer.is_noted_lost(range)
    }

    /// The stop of the array reports what is lost. With that the promise to keep it ends.
    pub(crate) fn give_up_lost(&self) {
        if let Some(buffer) = self.core.context.write_buffer.get() {
            buffer.free_lost();
        }
    }

    /// Drives one stripe write to its end.
    async fn write_out(&self, write: Rc<StripeWrite>, request: RequestId) {
        let outcome = poll_fn(|context| write.poll(request, context)).await;
        self.coalescer.release(&write);
        if outcome.is_err_and(|error| error.kind == ArrayErrorKind::NoSpace) {
            self.coalescer.dirty.is_owed.set(true);
        }
    }

    /// Fails while members owe data that was answered from memory: it is not durable.
    pub(crate) async fn check_dirty_is_not_owed(&self) -> Result<(), ArrayError> {
        if !self.coalescer.dirty.is_owed.get() || mutant!("owed-is-flushed") {
            return Ok(());
        }
        self.write_owed().await?;
        if self.core.owes_any() {
            return Err(self.core.no_room());
        }
        self.coalescer.dirty.is_owed.set(false);
        self.authority.flush_devices().await
    }

    /// Records that data which was answered could not be written.
    fn lose(&self, write: &StripeWrite, reason: &str) {
        for patch in write.patches.borrow().extents() {
            let range = patch.at..patch.end();
            tracing::error!("bytes {} to {} were answered and could not be written: {reason}", range.start, range.end);
            self.coalescer.dirty.lost.borrow_mut().add(range);
        }
    }

    /// Fails while any answered data is lost: a flush cannot claim that all of it is safe.
    pub(crate) fn check_nothing_lost(&self) -> Result<(), ArrayError> {
        match self.coalescer.first_lost() {
            None => Ok(()),
            Some(Range { start, end }) => {
                let reason = format!("bytes {start} to {end} were answered and could not be written; write them again");
                Err(ArrayError::new(ArrayErrorKind::Io, reason))
            }
        }
    }

    /// Returns when everything that was answered is on the members.
    pub(crate) async fn write_out_all(&self) -> Result<(), ArrayError> {
        self.coalescer.close_all();
        self.coalescer.dirty_is_written(usize::MAX).await
    }

    /// Waits until dirty data is within its bound.
    pub(super) async fn limit_dirty(&self) {
        let in_buffer = self.core.context.write_buffer.get().map_or(u64::MAX, |buffer| buffer.bytes() / 4 * 3);
        while self.coalescer.dirty.bytes.get() > self.coalescer.bytes_max.min(in_buffer) {
            // This request does not report the failure of another. Flushes and reads of that range do.
            let _ = self.coalescer.dirty_is_written(1).await;
            // The writeback task releases the stripe write when it runs next.
            yield_now().await;
        }
    }

    /// Reads from the members, and puts dirty data on top.
    pub(crate) async fn read_with_dirty(&self, at: u64, into: Buffer) -> Result<Buffer, ArrayError> {
        let bytes = into.len() as u64;
        let mut dirty_writes = self.coalescer.dirty_writes_in(at, bytes, self.core.info.block_bytes);
        let mut into = self.read_any(at, into).await?;
        // If a stripe write was written out meanwhile, the read may have missed its data on the members. So its
        // ranges are read again.
        while let Some(index) =
            dirty_writes.iter().position(|(write, _)| write.is_done() && !mutant!("read-of-what-is-written-out"))
        {
            for range in dirty_writes.swap_remove(index).1 {
                let again = self.core.pool.take((range.end - range.start) as usize);
                let again = Box::pin(self.read_with_dirty(range.start, again)).await?;
                into[(range.start - at) as usize..(range.end - at) as usize].copy_from_slice(&again);
            }
        }
        if self.coalescer.is_noted_lost(&(at..at + bytes)) {
            return Err(lost());
        }
        for patch in self.coalescer.dirty_in(at, bytes) {
            into[(patch.at - at) as usize..(patch.end() - at) as usize].copy_from_slice(&patch.block);
        }
        Ok(into)
    }
}
