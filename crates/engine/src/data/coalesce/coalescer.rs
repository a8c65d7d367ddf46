//! The writes of an array that are being coalesced: which write joins which stripe write, and when a stripe write is
//! closed.
//!
//! Bookkeeping, without I/O. [`super`] says what it is for, and carries the writes out.

use crate::base::range_lock::OwnedLock;
use crate::base::write_set::{WriteExtent, WriteSet};
use crate::core::personality::personality;
use crate::data::coalesce::dirty_set::{DirtySet, WriteBack};
use crate::data::coalesce::streams::{Arrival, StreamKey, Streams};
use crate::data::coalesce::stripe_write::{Phase, RequestId, StripeWrite, WriteResult};
use crate::device::write_buffer::Blocks;
use format::geometry::Geometry;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The most bytes in one transfer of neighbouring stripes, unless the member prefers more.
const TRANSFER_BYTES: u64 = 1 << 20;

/// The writes of an array that are being coalesced. Empty for levels without parity.
pub(crate) struct Coalescer {
    /// Stripe writes that are not started yet, in the order of their locks.
    pub(super) writes: RefCell<Vec<Rc<StripeWrite>>>,
    pub(super) streams: RefCell<Streams>,
    requests: Cell<RequestId>,
    /// Bytes in stripe writes that are not closed.
    open_bytes: Cell<u64>,
    /// The most bytes in stripe writes that are not closed.
    pub(super) bytes_max: u64,
    /// The most stripes written together.
    stripes_max: u64,
    pub(super) dirty: DirtySet,
}

/// Which write joins which stripe write, and when stripe writes are closed.
impl Coalescer {
    /// For an array of this geometry, whose members prefer transfers of up to `optimal_bytes`. At most `bytes_max`
    /// wait.
    pub(crate) fn new(geometry: &Geometry, optimal_bytes: u64, bytes_max: u64) -> Self {
        let (stripe, chunk) = match personality(geometry).stripe() {
            Some(stripe) => (stripe.bytes, stripe.chunk_bytes),
            None => (1, 1),
        };
        Self {
            writes: RefCell::default(),
            streams: RefCell::new(Streams::new(stripe)),
            requests: Cell::new(0),
            open_bytes: Cell::new(0),
            dirty: DirtySet::default(),
            bytes_max,
            stripes_max: (optimal_bytes.max(TRANSFER_BYTES) / chunk).max(1),
        }
    }

    /// The most neighbouring stripes whose chunks on a member are one transfer.
    pub(crate) fn stripes_max(&self) -> u64 {
        self.stripes_max
    }

    /// Bytes that wait in memory for more of their stripe, or that were answered and are not written yet.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let writes = self.writes.borrow();
        let waits = |write: &&Rc<StripeWrite>| write.phase.get() == Phase::Open && !write.dirty.get();
        writes.iter().filter(waits).map(|write| write.patches.borrow().bytes()).sum::<u64>() + self.dirty.bytes()
    }

    /// Which writes are answered from memory, if any.
    pub(crate) fn write_back(&self) -> Option<WriteBack> {
        self.dirty.answers.get()
    }

    pub(super) fn new_request(&self) -> RequestId {
        self.requests.replace(self.requests.get() + 1)
    }

    /// Closes the stripe writes that lock any of `locks`.
    pub(crate) fn close_within(&self, locks: &Range<u64>) {
        self.writes.borrow().iter().filter(|write| write.locks_any_of(locks)).for_each(|write| self.close(write));
    }

    /// Closes all stripe writes, so that nothing waits any longer.
    pub(crate) fn close_all(&self) {
        self.writes.borrow().iter().for_each(|write| self.close(write));
    }

    pub(super) fn close(&self, write: &StripeWrite) {
        if write.phase.get() == Phase::Open {
            self.open_bytes.set(self.open_bytes.get() - write.patches.borrow().bytes());
            write.close();
        }
    }

    /// The open stripe write that a part of `stripe` at `at` may join. It locks all of `locks`; or else it ends at `at`
    /// and holds its own lock, so that nothing is waited for.
    pub(super) fn open_write(&self, stripe: u64, at: u64, locks: Option<&Range<u64>>) -> Option<Rc<StripeWrite>> {
        let mut continued = None;
        let writes = self.writes.borrow();
        let is_open = |write: &&Rc<StripeWrite>| write.stripes.start == stripe && write.phase.get() == Phase::Open;
        for write in writes.iter().rev().filter(is_open) {
            if locks.is_some_and(|locks| write.locks_all_of(locks)) {
                return Some(write.clone());
            }
            if continued.is_none() && write.patches.borrow().range().end == at && write.is_lock_held() {
                continued = Some(write);
            }
        }
        continued.cloned()
    }

    /// Puts `patch` into an open stripe write, and closes the stripe write when it is complete.
    pub(super) fn add(&self, write: &StripeWrite, patch: WriteExtent) {
        let bytes = {
            let mut patches = write.patches.borrow_mut();
            let before = patches.bytes();
            patches.put(patch);
            self.open_bytes.set(self.open_bytes.get() + patches.bytes() - before);
            if write.dirty.get() {
                self.dirty.count(patches.bytes(), before);
            }
            patches.bytes()
        };
        let mut streams = self.streams.borrow_mut();
        if bytes >= streams.expected(write.stream.get(), write.stripes.start) {
            self.close(write);
            if let Some(stream) = write.stream.get().filter(|_| write.has_several_callers()) {
                streams.filled(stream, bytes);
            }
        }
    }

    /// Whether a stripe write waits for more of its stream.
    pub(super) fn is_waited_for(&self, write: &StripeWrite) -> bool {
        let may_bring_more = |stream| self.streams.borrow_mut().may_bring_more(stream);
        write.phase.get() == Phase::Open && write.stream.get().is_some_and(may_bring_more)
    }

    /// Closes the stripe writes that a stream has passed: it will bring no more of their stripes.
    pub(super) fn close_passed(&self, stream: StreamKey) {
        let writes = self.writes.borrow();
        let is_its = |write: &&Rc<StripeWrite>| write.stream.get() == Some(stream) && !write.dirty.get();
        for write in writes.iter().filter(is_its).filter(|write| write.phase.get() == Phase::Open) {
            if !self.streams.borrow_mut().is_to_come(stream, write.stripes.start) {
                self.close(write);
            }
        }
    }

    /// Closes the oldest stripe writes until the rest is within bounds.
    pub(super) fn limit_open(&self) {
        for write in &*self.writes.borrow() {
            if self.open_bytes.get() <= self.bytes_max {
                return;
            }
            self.close(write);
        }
    }

    /// Starts a stripe write, together with the full stripes that follow it and are ready. Returns their locks and
    /// data. `stripe_bytes` is the length of a stripe.
    pub(super) fn start(&self, write: &Rc<StripeWrite>, stripe_bytes: u64) -> WriteBatch {
        self.close(write);
        write.phase.set(Phase::Started);
        self.take_out(write);
        let mut writes = self.writes.borrow_mut();
        let is_full = |write: &StripeWrite| {
            write.patches.borrow().bytes() == (write.stripes.end - write.stripes.start) * stripe_bytes
        };
        let lock = |write: &StripeWrite| write.lock.take().expect("a stripe write keeps its lock until it is started");
        // Reads must see answered data until the members have it.
        let patches = |write: &StripeWrite| match write.dirty.get() {
            true => write.patches.borrow().clone(),
            false => write.patches.take(),
        };
        let answered = |write: &Rc<StripeWrite>| write.dirty.get().then(|| write.clone());
        let mut batch = WriteBatch {
            stripes: write.stripes.clone(),
            unit: write.unit,
            is_full: is_full(write),
            answered: answered(write).into_iter().collect(),
            patches: patches(write),
            locks: SmallVec::from_iter([lock(write)]),
            buffered: write.buffered.take(),
        };
        if let Some(stream) = write.stream.get().filter(|_| !batch.is_full) {
            self.streams.borrow_mut().part_goes(stream, write.stripes.start, batch.patches.bytes());
        }
        while batch.is_full {
            let follows = |next: &Rc<StripeWrite>| {
                next.stripes.start == batch.stripes.end
                    && next.stripes.end - batch.stripes.start <= self.stripes_max
                    && next.phase.get() == Phase::Closed
                    && is_full(next)
                    && next.is_lock_held()
            };
            let Some(place) = writes.iter().position(follows) else { break };
            let next = writes.remove(place);
            batch.stripes.end = next.stripes.end;
            batch.answered.extend(answered(&next));
            batch.patches.append(patches(&next));
            batch.locks.push(lock(&next));
            batch.buffered.extend(next.buffered.take());
            write.carry(&next);
        }
        batch
    }

    /// Removes the stripe write, so that no write finds it any more.
    fn take_out(&self, write: &Rc<StripeWrite>) {
        let mut writes = self.writes.borrow_mut();
        if let Some(place) = writes.iter().position(|other| Rc::ptr_eq(other, write)) {
            writes.remove(place);
        }
    }

    /// As [`Coalescer::start`], for a stripe write whose single caller is to write it. `None` if another caller has
    /// joined, the lock is not granted, or more can come.
    pub(super) fn start_alone(&self, write: &Rc<StripeWrite>, stripe_bytes: u64) -> Option<WriteBatch> {
        (write.is_lock_held() && !self.is_waited_for(write) && !write.has_task())
            .then(|| self.start(write, stripe_bytes))
    }

    /// Removes a caller. Returns true if it was the last; then the data is dropped.
    pub(super) fn leave(&self, write: &Rc<StripeWrite>, request: RequestId) -> bool {
        let is_over = write.leave(request);
        if is_over {
            self.close(write);
            self.take_out(write);
            write.lock.take();
        }
        is_over
    }

    /// Whether all unanswered requests of a stream wait in stripe writes, its own or those of other streams.
    pub(super) fn is_stuck(&self, stream: StreamKey, unanswered: u32) -> bool {
        let mut waiting = Vec::new();
        let (writes, streams) = (self.writes.borrow(), self.streams.borrow());
        let is_its = |arrival| streams.stream_of(arrival) == Some(stream);
        let is_open = |write: &&Rc<StripeWrite>| write.phase.get() == Phase::Open;
        writes.iter().filter(is_open).for_each(|write| write.list_requests(is_its, &mut waiting));
        waiting.sort_unstable();
        waiting.dedup();
        waiting.len() >= unanswered as usize
    }
}

/// What is written together, and the locks on it.
pub(super) struct WriteBatch {
    pub(super) stripes: Range<u64>,
    /// The fixed unit when they were locked.
    pub(super) unit: Option<u32>,
    /// All bytes of all its stripes are given.
    pub(super) is_full: bool,
    /// Those of its stripe writes that were answered from memory.
    pub(super) answered: SmallVec<[Rc<StripeWrite>; 1]>,
    pub(super) patches: WriteSet,
    pub(super) locks: SmallVec<[OwnedLock; 1]>,
    /// Where the write buffer holds the data, the data of each stripe oldest first.
    pub(super) buffered: Blocks,
}

/// A request's wait for all its parts. If the request is dropped, the write goes on as long as another request has a
/// part in it.
pub(crate) struct Answer<'a> {
    coalescer: &'a Coalescer,
    pub(super) request: RequestId,
    /// `None` if the request only waits for other writes.
    pub(super) arrival: Option<Arrival>,
    bytes: u64,
    /// Some of it was answered from memory.
    pub(super) is_early: bool,
    pub(super) writes: SmallVec<[Rc<StripeWrite>; 1]>,
    outcome: WriteResult,
}

impl<'a> Answer<'a> {
    pub(super) fn new(coalescer: &'a Coalescer, arrival: Option<Arrival>, bytes: u64) -> Self {
        let request = coalescer.new_request();
        Self { coalescer, request, arrival, bytes, is_early: false, writes: SmallVec::new(), outcome: Ok(()) }
    }

    /// The stream that the request was known to belong to when it came.
    pub(super) fn stream(&self) -> Option<StreamKey> {
        self.arrival.and_then(Arrival::stream)
    }

    /// The one stripe write that waits for this request only and has no task yet.
    pub(super) fn only_caller(&self) -> Option<Rc<StripeWrite>> {
        self.writes.first().filter(|write| !write.has_task()).cloned()
    }
}

impl Future for Answer<'_> {
    type Output = WriteResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WriteResult> {
        let answer = &mut *self;
        let mut index = 0;
        while index < answer.writes.len() {
            match answer.writes[index].poll(answer.request, context) {
                Poll::Ready(outcome) => {
                    answer.writes.remove(index);
                    answer.outcome = std::mem::replace(&mut answer.outcome, Ok(())).and(outcome);
                }
                Poll::Pending => index += 1,
            }
        }
        match answer.writes.is_empty() {
            true => Poll::Ready(std::mem::replace(&mut answer.outcome, Ok(()))),
            false => Poll::Pending,
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if let Some(arrival) = self.arrival {
            self.coalescer.streams.borrow_mut().answer(arrival, self.bytes);
        }
        for write in &self.writes {
            self.coalescer.leave(write, self.request);
        }
    }
}
