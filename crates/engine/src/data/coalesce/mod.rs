//! Coalescing: how writes to parity levels become full stripes without a hint from the caller.
//!
//! A write is cut at the edges of stripes. Whole stripes are written as they are. A part of a stripe joins the
//! *stripe write* of that stripe, if there is one that still accepts writes. So all that arrives before the members are
//! touched becomes one write. A stripe write is closed, and its data written, as soon as one of these holds:
//!
//! * Its stripe is full, or everything that can come is there.
//! * No write in it belongs to a stream that can bring more (see [`streams`]). An isolated write waits only for
//!   writes of the same instant.
//! * All that its stream has under way waits, and nothing has come for [`STREAM_WAIT`].
//! * The stream has passed it or turned out not to be one, or a write of no stream has joined.
//! * Too much is waiting, a flush was requested, the array is stopped, or another request wants the stripe.
//!
//! Invariants:
//!
//! * A write is answered when all its parts are on the members; with [`writeback`], when the array holds them in
//!   memory.
//! * A stripe write requests its stripe's lock when it is made. It is closed before any other task requests that
//!   lock. So overlapping writes are carried out in the order requested. Within a stripe write, the later write
//!   covers the earlier one.
//! * Dropping one caller takes nothing from the others: the task is shared (see [`stripe_write`]).
//! * Neighbouring full stripes are written together if their locks are held anyway. No task waits for a lock while it
//!   holds another that was requested later. So there is no deadlock.

mod front;
mod streams;
mod stripe_write;
mod writeback;

use crate::base::buffer::Block;
use crate::base::range_lock::OwnedLock;
use crate::base::write_set::{WriteExtent, WriteSet};
use crate::base::yield_now::yield_now;
use crate::core::authority::Authority;
use crate::data::DataPlane;
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
use format::geometry::{Geometry, Parity};
use futures_util::future::{Either, select};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use streams::{Arrival, StreamKey, Streams};
use stripe_write::{Phase, RequestId, StripeWrite, WriteResult};
use writeback::{AGE_MAX, DirtySet};

/// How long a stream's writes wait once nothing else of it is under way: a few times what a client needs to send its
/// next request.
const STREAM_WAIT: Duration = Duration::from_millis(3);

/// The longest that a write waits in a stripe write, whatever else is under way.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// The most bytes in one transfer of neighbouring stripes, unless the member prefers more.
const TRANSFER_BYTES: u64 = 1 << 20;

/// The writes of an array that are being coalesced. Empty for levels without parity.
pub(crate) struct Coalescer {
    /// Stripe writes that are not started yet, in the order of their locks.
    writes: RefCell<Vec<Rc<StripeWrite>>>,
    streams: RefCell<Streams>,
    requests: Cell<RequestId>,
    /// Bytes in stripe writes that are not closed.
    open_bytes: Cell<u64>,
    /// The most bytes in stripe writes that are not closed.
    bytes_max: u64,
    /// The most stripes written together.
    stripes_max: u64,
    dirty: DirtySet,
}

/// Which write joins which stripe write, and when stripe writes are closed.
impl Coalescer {
    /// For an array of this geometry, whose members prefer transfers of up to `optimal_bytes`. At most `bytes_max`
    /// wait.
    pub(crate) fn new(geometry: &Geometry, optimal_bytes: u64, bytes_max: u64) -> Self {
        let (stripe, chunk) = match geometry {
            Geometry::Parity(parity) => (parity.stripe_bytes(), parity.chunk_bytes()),
            Geometry::Mapping(_) => (1, 1),
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

    fn new_request(&self) -> RequestId {
        self.requests.replace(self.requests.get() + 1)
    }

    /// Closes the stripe writes that touch `stripes`.
    pub(crate) fn close_within(&self, stripes: &Range<u64>) {
        for write in &*self.writes.borrow() {
            if write.stripes.start < stripes.end && stripes.start < write.stripes.end {
                self.close(write);
            }
        }
    }

    /// Closes all stripe writes, so that nothing waits any longer.
    pub(crate) fn close_all(&self) {
        self.writes.borrow().iter().for_each(|write| self.close(write));
    }

    fn close(&self, write: &StripeWrite) {
        if write.phase.get() == Phase::Open {
            self.open_bytes.set(self.open_bytes.get() - write.patches.borrow().bytes());
            write.close();
        }
    }

    /// The stripe write that a part of `stripe` may join.
    fn open_write(&self, stripe: u64) -> Option<Rc<StripeWrite>> {
        let is_open = |write: &&Rc<StripeWrite>| write.stripes.start == stripe && write.phase.get() == Phase::Open;
        self.writes.borrow().iter().rev().find(is_open).cloned()
    }

    /// Puts `patch` into an open stripe write, and closes the stripe write when it is complete.
    fn add(&self, write: &StripeWrite, patch: WriteExtent) {
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
    fn is_waited_for(&self, write: &StripeWrite) -> bool {
        let may_bring_more = |stream| self.streams.borrow_mut().may_bring_more(stream);
        write.phase.get() == Phase::Open && write.stream.get().is_some_and(may_bring_more)
    }

    /// Closes the stripe writes that a stream has passed: it will bring no more of their stripes.
    fn close_passed(&self, stream: StreamKey) {
        let writes = self.writes.borrow();
        let is_its = |write: &&Rc<StripeWrite>| write.stream.get() == Some(stream) && !write.dirty.get();
        for write in writes.iter().filter(is_its).filter(|write| write.phase.get() == Phase::Open) {
            if !self.streams.borrow_mut().is_to_come(stream, write.stripes.start) {
                self.close(write);
            }
        }
    }

    /// Closes the oldest stripe writes until the rest is within bounds.
    fn limit_open(&self) {
        for write in &*self.writes.borrow() {
            if self.open_bytes.get() <= self.bytes_max {
                return;
            }
            self.close(write);
        }
    }

    /// Starts a stripe write, together with the full stripes that follow it and are ready. Returns their locks and
    /// data. `stripe_bytes` is the length of a stripe.
    fn start(&self, write: &Rc<StripeWrite>, stripe_bytes: u64) -> WriteBatch {
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
        let mut batch = WriteBatch {
            stripes: write.stripes.clone(),
            is_full: is_full(write),
            patches: patches(write),
            locks: SmallVec::from_iter([lock(write)]),
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
                    && next.lock.borrow().as_ref().is_some_and(OwnedLock::is_granted)
            };
            let Some(place) = writes.iter().position(follows) else { break };
            let next = writes.remove(place);
            batch.stripes.end = next.stripes.end;
            batch.patches.append(patches(&next));
            batch.locks.push(lock(&next));
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
    fn start_alone(&self, write: &Rc<StripeWrite>, stripe_bytes: u64) -> Option<WriteBatch> {
        let is_held = write.lock.borrow().as_ref().is_some_and(OwnedLock::is_granted);
        (is_held && !self.is_waited_for(write) && !write.has_task()).then(|| self.start(write, stripe_bytes))
    }

    /// Removes a caller. Returns true if it was the last; then the data is dropped.
    fn leave(&self, write: &Rc<StripeWrite>, request: RequestId) -> bool {
        let is_over = write.leave(request);
        if is_over {
            self.close(write);
            self.take_out(write);
            write.lock.take();
        }
        is_over
    }

    /// Whether all unanswered requests of a stream wait in stripe writes, its own or those of other streams.
    fn is_stuck(&self, stream: StreamKey, unanswered: u32) -> bool {
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
struct WriteBatch {
    stripes: Range<u64>,
    /// All bytes of all its stripes are given.
    is_full: bool,
    patches: WriteSet,
    locks: SmallVec<[OwnedLock; 1]>,
}

/// A request's wait for all its parts. If the request is dropped, the write goes on as long as another request has a
/// part in it.
pub(crate) struct Answer<'a> {
    coalescer: &'a Coalescer,
    request: RequestId,
    /// `None` if the request only waits for other writes.
    arrival: Option<Arrival>,
    bytes: u64,
    writes: SmallVec<[Rc<StripeWrite>; 1]>,
    outcome: WriteResult,
}

impl<'a> Answer<'a> {
    fn new(coalescer: &'a Coalescer, arrival: Option<Arrival>, bytes: u64) -> Self {
        let request = coalescer.new_request();
        Self { coalescer, request, arrival, bytes, writes: SmallVec::new(), outcome: Ok(()) }
    }

    /// The one stripe write that waits for this request only and has no task yet.
    fn only_caller(&self) -> Option<Rc<StripeWrite>> {
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

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Writes `from`, not empty, at `at` of an array with parity, together with other writes that fill its stripes.
    pub(crate) async fn coalesce(
        self: &Rc<Self>,
        parity: &Parity,
        at: u64,
        from: Block,
        durability: Durability,
    ) -> WriteResult {
        if self.coalescer.dirty.is_on() && !mutant!("broken-array-answers") {
            self.core.check_not_failed()?; // a write answered from memory would report the failure too late
        }
        let mut answer = self.join_writes(parity, at, from, durability);
        if let Some(write) = answer.only_caller() {
            // The fast path of most small writes. If no other write has joined after this turn, the caller carries
            // out the write itself, and nothing is shared.
            yield_now().await;
            if let Some(batch) = self.coalescer.start_alone(&write, parity.stripe_bytes()) {
                answer.writes.clear();
                return self.write_batch(parity, batch).await;
            }
            self.share(&write);
        }
        answer.await
    }

    /// Puts every part of a write into a stripe write. Each stripe write is given its task, except for a single part
    /// that begins a stripe write of its own.
    fn join_writes(self: &Rc<Self>, parity: &Parity, at: u64, from: Block, durability: Durability) -> Answer<'_> {
        let coalescer = &self.coalescer;
        let stripe_bytes = parity.stripe_bytes();
        let bytes = from.len() as u64;
        let waiting = coalescer.open_write(at / stripe_bytes);
        let waiting_from = waiting.as_ref().map(|write| write.patches.borrow().range().start);
        let arrival = coalescer.streams.borrow_mut().arrive(at, bytes, waiting_from);
        let stream = arrival.stream();
        let is_answered = coalescer.dirty.is_on() && durability == Durability::Ordinary;
        let mut answer = Answer::new(coalescer, Some(arrival), bytes);
        let mut rest = WriteExtent { at, block: from };
        let mut found = Some(waiting);
        while let Some(part) = rest.take_front(front_bytes(&rest, stripe_bytes)) {
            let stripes = part.at / stripe_bytes..part.end().div_ceil(stripe_bytes);
            let is_part = (part.block.len() as u64) < stripe_bytes;
            // The stripe write for the first part was looked up above.
            let joined = found.take().unwrap_or_else(|| coalescer.open_write(stripes.start)).filter(|_| is_part);
            let is_single = joined.is_none() && is_part && !is_answered && part.block.len() as u64 == bytes;
            let write = joined.unwrap_or_else(|| self.new_write(stripes));
            write.stream.set(stream.or(write.stream.get()));
            if !is_single {
                self.share(&write);
            }
            if is_answered {
                coalescer.add_dirty(&write);
            } else {
                write.add_caller(answer.request, Some(arrival));
            }
            // A write of no stream does not wait for one.
            let is_held_up = stream.is_none() && !is_answered && coalescer.is_waited_for(&write);
            coalescer.add(&write, part);
            if !is_part || durability == Durability::Stable || is_held_up {
                coalescer.close(&write);
            }
            if !is_answered {
                answer.writes.push(write);
            }
        }
        if let Some(stream) = stream {
            coalescer.close_passed(stream);
        }
        coalescer.limit_open();
        answer
    }

    fn new_write(&self, stripes: Range<u64>) -> Rc<StripeWrite> {
        let coalescer = &self.coalescer;
        coalescer.close_within(&stripes);
        let write = Rc::new(StripeWrite::new(
            stripes.clone(),
            self.core
                .locks
                .request_exclusive(mutant!("stripe-not-locked" => stripes.start..stripes.start, else stripes)),
        ));
        coalescer.writes.borrow_mut().push(write.clone());
        write
    }

    /// Gives a stripe write its task, if it needs one: from now on any of its callers may drive it. A stripe write
    /// that another one has written meanwhile needs no task. The task would hold the stripe write, and with it the
    /// array, for ever.
    fn share(self: &Rc<Self>, write: &Rc<StripeWrite>) {
        let is_waiting = matches!(write.phase.get(), Phase::Open | Phase::Closed);
        if (is_waiting || mutant!("done-and-given-work")) && !write.has_task() {
            write.set_task(carry_out(self.clone(), write.clone()));
        }
    }
}

/// How much of it goes into one stripe write: up to the end of its first stripe, or all its whole stripes.
fn front_bytes(rest: &WriteExtent, stripe_bytes: u64) -> u64 {
    let bytes = rest.block.len() as u64;
    if rest.at.is_multiple_of(stripe_bytes) && bytes >= stripe_bytes {
        return bytes / stripe_bytes * stripe_bytes;
    }
    bytes.min(stripe_bytes - rest.at % stripe_bytes)
}

/// A stripe write's task, from its start to its end.
async fn carry_out<M: Member, C: Clock, A: Authority<M>>(
    data: Rc<DataPlane<M, C, A>>,
    write: Rc<StripeWrite>,
) -> WriteResult {
    let Geometry::Parity(parity) = data.core.geometry() else {
        unreachable!("only levels with parity coalesce writes")
    };
    let _writing = data.core.writers.begin();
    yield_now().await;
    write.locked().await;
    data.wait_for_company(&write).await;
    let batch = data.coalescer.start(&write, parity.stripe_bytes());
    data.write_batch(parity, batch).await
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Waits until the stripe write is closed or no more writes can be expected.
    async fn wait_for_company(&self, write: &StripeWrite) {
        if write.dirty.get() {
            let (closed, old) =
                (pin!(write.closed()), pin!(self.core.clock.sleep_until(self.core.clock.now() + AGE_MAX)));
            select(closed, old).await;
            return;
        }
        let may_bring_more = |stream| self.coalescer.streams.borrow_mut().may_bring_more(stream);
        let Some(stream) = write.stream.get().filter(|stream| may_bring_more(*stream)) else { return };
        if write.phase.get() != Phase::Open {
            return;
        }
        let activity = || self.coalescer.streams.borrow_mut().activity(stream);
        let (mut seen, _) = activity();
        let mut now = self.core.clock.now();
        let end = now + WAIT_MAX;
        loop {
            let (closed, enough) = (pin!(write.closed()), pin!(self.core.clock.sleep_until(now + STREAM_WAIT)));
            if let Either::Left(_) = select(closed, enough).await {
                return;
            }
            now = self.core.clock.now();
            let (events, unanswered) = activity();
            if !may_bring_more(stream) {
                return;
            }
            if events == seen && self.coalescer.is_stuck(stream, unanswered) || now >= end {
                return self.coalescer.streams.borrow_mut().waited_in_vain(stream);
            }
            seen = events;
        }
    }

    async fn write_batch(&self, parity: &Parity, batch: WriteBatch) -> WriteResult {
        let patches = match self.are_whole_blocks(&batch.patches) {
            true => batch.patches,
            false => Box::pin(self.in_whole_blocks(batch.patches)).await?,
        };
        let change = self.core.begin_change();
        let written = self.write_marked(parity, batch.stripes.clone(), batch.is_full, &patches).await;
        change.end();
        drop(batch.locks);
        written
    }

    /// Writes stripes, between the marks that come before and after.
    async fn write_marked(
        &self,
        parity: &Parity,
        stripes: Range<u64>,
        is_full: bool,
        patches: &WriteSet,
    ) -> WriteResult {
        self.core.check_not_failed()?;
        // Data that was answered is owed by no member before it is written to one.
        let is_answered = self.coalescer.dirty.is_on();
        let lost = |error: ArrayError| match is_answered {
            true => ArrayError::new(ArrayErrorKind::Io, error.reason),
            false => error,
        };
        let _mark = self.authority.mark_write(&patches.range()).await.map_err(lost)?;
        match is_full {
            // Boxed: it holds a lot, and the futures of small writes would have to hold it as well.
            true => Box::pin(self.write_full_stripes(parity, stripes, patches.extents())).await?,
            false => self.write_part(parity, stripes.start, patches.extents()).await?,
        }
        self.authority.record_departed().await
    }
}
