//! Writeback: writes answered from memory, as by a disk with a volatile cache.
//!
//! While [`crate::Array::write_back`] runs, an ordinary write is answered as soon as
//! its data is in entries, and these are *kept*: by the array, until the members
//! have the data. So a stream of one request at a time becomes full stripes too.
//!
//! Invariants:
//! * What was answered before a flush began is on stable storage when it ends.
//! * A read sees what was answered before it began, on the members or not.
//! * No more is kept than may be gathered, but for what is being answered;
//!   whoever writes beyond waits until the oldest of it is written.
//! * What a member has no room for is owed ([`crate::control::owed`]), and read; a flush fails until it is paid.
//! * What cannot be written otherwise is lost: no read of it succeeds, as the members hold what was there before, and no
//!   flush, until it was written over. All else goes on, as it does where a request is answered by its own failure.

use crate::base::buffer::Buffer;
use crate::base::range_set::Ranges;
use crate::base::write_set::WriteExtent;
use crate::core::authority::Authority;
use crate::data::DataPlane;
use crate::data::coalesce::entry::{Entry, RequestId};
use crate::data::coalesce::{Answer, Gathering};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
use format::geometry::Geometry;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long data may be kept that nobody adds to or asks to be flushed.
pub(super) const AGE_MAX: Duration = Duration::from_secs(1);

/// Entries that hold data which was answered and that the members may not have.
#[derive(Default)]
pub(super) struct Kept {
    /// Whether writes are answered from memory.
    is_on: Cell<bool>,
    /// In the order of their locks, each with the array's own request for it.
    entries: RefCell<Vec<(Rc<Entry>, RequestId)>>,
    /// Those that nobody drives yet.
    fresh: RefCell<Vec<(Rc<Entry>, RequestId)>>,
    bytes: Cell<u64>,
    /// What was answered and could not be written.
    lost: RefCell<Ranges>,
    /// Members had no room for some of it since they last owed nothing ([`crate::control::owed`]).
    is_owed: Cell<bool>,
    keeper: RefCell<Option<Waker>>,
}

impl Kept {
    pub(super) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Accounts for `more` bytes in a kept entry, and for `less` that they cover.
    pub(super) fn count(&self, more: u64, less: u64) {
        self.bytes.set(self.bytes.get() + more - less);
    }

    /// Bytes that were answered and that the members may not have.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    fn wake(&self) {
        if let Some(waker) = self.keeper.take() {
            waker.wake();
        }
    }
}

impl Gathering {
    /// The array waits for this entry, in place of those who were answered.
    pub(super) fn keep(&self, entry: &Rc<Entry>) {
        if entry.kept.replace(true) {
            return;
        }
        let request = self.new_request();
        entry.add_caller(request, None);
        self.kept.count(entry.patches.borrow().bytes(), 0);
        self.kept.entries.borrow_mut().push((entry.clone(), request));
        self.kept.fresh.borrow_mut().push((entry.clone(), request));
        self.kept.wake();
    }

    /// Whether a read may have to look at what is kept.
    pub(crate) fn keeps_any(&self) -> bool {
        !self.kept.entries.borrow().is_empty() || !self.kept.lost.borrow().is_empty()
    }

    /// Whether any of a range was answered and lost.
    fn has_lost(&self, at: u64, bytes: u64) -> bool {
        let is_here = |start: u64, end: u64| start < at + bytes && at < end;
        let has_failed = |entry: &Entry| {
            entry.has_failed() && entry.patches.borrow().extents().iter().any(|patch| is_here(patch.at, patch.end()))
        };
        self.kept.lost.borrow().touches(&(at..at + bytes))
            || self.kept.entries.borrow().iter().any(|(entry, _)| has_failed(entry))
    }

    /// The entries that keep data of a range which the members may not have, and where: in whole
    /// blocks, as a write that joins one later is not to be seen in a part of a block.
    fn keepers_of(&self, at: u64, bytes: u64, block_bytes: u64) -> Vec<(Rc<Entry>, Vec<Range<u64>>)> {
        let entries = self.kept.entries.borrow();
        let in_blocks = |patch: WriteExtent| {
            let (start, end) = (patch.at / block_bytes * block_bytes, patch.end().next_multiple_of(block_bytes));
            start.max(at)..end.min(at + bytes)
        };
        let keeper = |(entry, _): &(Rc<Entry>, RequestId)| {
            let patches = entry.patches.borrow();
            let kept = patches.extents().iter().filter_map(|patch| patch.within(at..at + bytes));
            let ranges: Vec<_> = kept.map(in_blocks).collect();
            (!ranges.is_empty()).then(|| (entry.clone(), ranges))
        };
        entries.iter().filter(|(entry, _)| !entry.is_done()).filter_map(keeper).collect()
    }

    /// What is kept of a range, the later behind the earlier.
    fn kept_of(&self, at: u64, bytes: u64) -> Vec<WriteExtent> {
        let range = at..at + bytes;
        let entries = self.kept.entries.borrow();
        let mut patches = Vec::new();
        for (entry, _) in entries.iter().filter(|(entry, _)| !entry.is_done()) {
            patches.extend(entry.patches.borrow().extents().iter().filter_map(|patch| patch.within(range.clone())));
        }
        patches
    }

    /// Waits for the first `count` of the kept entries.
    fn kept_are_written(&self, count: usize) -> Answer<'_> {
        let mut answer = Answer::new(self, None, 0);
        for (entry, _) in self.kept.entries.borrow().iter().take(count) {
            self.close(entry);
            entry.add_caller(answer.request, None);
            answer.entries.push(entry.clone());
        }
        answer
    }

    fn let_go(&self, entry: &Rc<Entry>) {
        self.kept.count(0, entry.patches.borrow().bytes());
        self.kept.entries.borrow_mut().retain(|(other, _)| !Rc::ptr_eq(other, entry));
    }

    /// A range holds what was answered last: what was lost there does not matter any more.
    pub(crate) fn written_over(&self, range: &Range<u64>) {
        if !self.kept.lost.borrow().is_empty() {
            self.kept.lost.borrow_mut().remove(range);
        }
    }

    /// What was answered and lost, if that is so of anything.
    fn first_lost(&self) -> Option<Range<u64>> {
        self.kept.lost.borrow().iter().next().cloned()
    }

    /// The keeper looks whether it can end.
    pub(crate) fn wake_keeper(&self) {
        self.kept.wake();
    }
}

/// Turns writeback off when it is dropped.
struct Keeping<'a, M: Member, C: Clock, A: Authority<M>>(&'a DataPlane<M, C, A>);

impl<M: Member, C: Clock, A: Authority<M>> Drop for Keeping<'_, M, C, A> {
    fn drop(&mut self) {
        let gathering = &self.0.gathering;
        gathering.kept.is_on.set(false);
        gathering.kept.fresh.take();
        for (entry, request) in gathering.kept.entries.take() {
            if !entry.is_done() && gathering.leave(&entry, request) {
                self.0.lose(&entry, "writeback was abandoned");
                self.0.core.give_out(|| "data that was answered was abandoned".to_owned());
            }
        }
        gathering.kept.bytes.set(0);
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// [`crate::Array::write_back`].
    pub(crate) async fn write_back(&self) {
        if self.core.info.read_only || matches!(self.core.geometry(), Geometry::Mapping(_)) {
            return;
        }
        let kept = &self.gathering.kept;
        kept.is_on.set(true);
        let _keeping = Keeping(self);
        let mut writes = FuturesUnordered::new();
        let turn = |context: &mut Context<'_>| loop {
            kept.keeper.replace(Some(context.waker().clone()));
            writes.extend(kept.fresh.take().into_iter().map(|(entry, request)| self.write_out(entry, request)));
            match writes.poll_next_unpin(context) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) if self.core.gate.is_closed() => return Poll::Ready(()),
                _ if kept.fresh.borrow().is_empty() => return Poll::Pending,
                _ => {}
            }
        };
        poll_fn(turn).await;
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Drives one entry to its end.
    async fn write_out(&self, entry: Rc<Entry>, request: RequestId) {
        let outcome = poll_fn(|context| entry.poll(request, context)).await;
        self.gathering.let_go(&entry);
        match outcome {
            Err(error) if error.kind == ArrayErrorKind::NoSpace => self.gathering.kept.is_owed.set(true),
            Err(error) => self.lose(&entry, &error.reason),
            Ok(()) => entry.patches.borrow().extents().iter().for_each(|patch| {
                self.gathering.written_over(&(patch.at..patch.end()));
            }),
        }
    }

    /// Fails while members owe what was answered from memory: it is not durable.
    pub(crate) async fn check_kept_are_paid(&self) -> Result<(), ArrayError> {
        if !self.gathering.kept.is_owed.get() || mutant!("owed-is-flushed") {
            return Ok(());
        }
        self.pay().await?;
        if self.core.owes_any() {
            return Err(self.core.no_room());
        }
        self.gathering.kept.is_owed.set(false);
        self.authority.flush_devices().await
    }

    /// Data that was answered is not on the members.
    fn lose(&self, entry: &Entry, reason: &str) {
        for patch in entry.patches.borrow().extents() {
            let range = patch.at..patch.end();
            tracing::error!("bytes {} to {} were answered and could not be written: {reason}", range.start, range.end);
            self.gathering.kept.lost.borrow_mut().add(range);
        }
    }

    /// Fails while something is lost that was answered: no flush can say that all of that is safe.
    pub(crate) fn check_nothing_lost(&self) -> Result<(), ArrayError> {
        match self.gathering.first_lost() {
            None => Ok(()),
            Some(Range { start, end }) => {
                let reason = format!("bytes {start} to {end} were answered and could not be written; write them again");
                Err(ArrayError::new(ArrayErrorKind::Io, reason))
            }
        }
    }

    /// Returns when all that was answered is on the members.
    pub(crate) async fn write_out_all(&self) -> Result<(), ArrayError> {
        self.gathering.close_all();
        self.gathering.kept_are_written(usize::MAX).await
    }

    /// Returns when no more is kept than may be.
    pub(crate) async fn keep_within_memory(&self) {
        while self.gathering.kept.bytes.get() > self.gathering.bytes_max {
            // Another's failure is not this one's: who flushes and who reads there are told.
            let _ = self.gathering.kept_are_written(1).await;
            // Its keeper lets it go when it is run.
            super::let_others_go_first().await;
        }
    }

    /// Reads what the members have, and puts on top what is kept.
    pub(crate) async fn read_with_kept(&self, at: u64, into: Buffer) -> Result<Buffer, ArrayError> {
        let bytes = into.len() as u64;
        let mut keepers = self.gathering.keepers_of(at, bytes, self.core.info.block_bytes);
        let mut into = self.read_any(at, into).await?;
        // What was written out meanwhile, and perhaps over, the members had in time for this read or not.
        while let Some(index) =
            keepers.iter().position(|(entry, _)| entry.is_done() && !mutant!("read-of-what-is-written-out"))
        {
            for range in keepers.swap_remove(index).1 {
                let again = self.core.pool.take((range.end - range.start) as usize);
                let again = Box::pin(self.read_with_kept(range.start, again)).await?;
                into[(range.start - at) as usize..(range.end - at) as usize].copy_from_slice(&again);
            }
        }
        if self.gathering.has_lost(at, bytes) {
            return Err(ArrayError::new(ArrayErrorKind::Io, "what was written here was answered and then lost"));
        }
        for patch in self.gathering.kept_of(at, bytes) {
            into[(patch.at - at) as usize..(patch.end() - at) as usize].copy_from_slice(&patch.block);
        }
        Ok(into)
    }
}
