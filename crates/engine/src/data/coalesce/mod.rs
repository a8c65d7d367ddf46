//! Coalescing: how writes to parity levels become full stripes without a hint from the caller.
//!
//! A write is cut at the edges of stripes. Whole stripes are written as they are. A part of a stripe joins the
//! *entry* of that stripe, if there is one that still accepts writes. So all that arrives before the members are
//! touched becomes one write. An entry is closed, and its data written, as soon as one of these holds:
//!
//! * Its stripe is full, or everything that can come is there.
//! * No write in it belongs to a stream that can bring more (see [`streams`]). An isolated write waits only for
//!   writes of the same instant.
//! * All that its stream has under way waits, and nothing has come for [`PATIENCE`].
//! * The stream has passed it or turned out not to be one, or a write of no stream has joined.
//! * Too much is waiting, a flush was requested, the array is stopped, or another request wants the stripe.
//!
//! Invariants:
//!
//! * A write is answered when all its parts are on the members; with [`writeback`], when the array holds them in
//!   memory.
//! * An entry requests its stripe's lock when it is made. It is closed before any other task requests that lock. So
//!   overlapping writes are carried out in the order requested. Within an entry, the later write covers the earlier
//!   one.
//! * Dropping one caller takes nothing from the others: the task is shared (see [`entry`]).
//! * Neighbouring full stripes are written together if their locks are held anyway. No task waits for a lock while it
//!   holds another that was requested later. So there is no deadlock.

mod entry;
mod front;
mod streams;
mod writeback;

use crate::base::buffer::Block;
use crate::base::range_lock::Asked;
use crate::base::write_set::{Patch, Patchwork};
use crate::core::authority::Authority;
use crate::data::DataPlane;
use crate::data::request::Durability;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
use entry::{Entry, Outcome, Phase, RequestId};
use format::geometry::{Geometry, Parity};
use futures_util::future::{Either, select};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use streams::{Arrival, StreamKey, Streams};
use writeback::{AGE_MAX, Kept};

/// How long a stream's writes wait once nothing else of it is under way: a few times what a client needs to send its
/// next request.
const PATIENCE: Duration = Duration::from_millis(3);

/// The longest that a write waits in an entry, whatever else is under way.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// The most bytes in one transfer of neighbouring stripes, unless the member prefers more.
const TRANSFER_BYTES: u64 = 1 << 20;

/// The writes of an array that are being coalesced. Empty for levels without parity.
pub(crate) struct Coalescer {
    /// Entries that are not started yet, in the order of their locks.
    entries: RefCell<Vec<Rc<Entry>>>,
    streams: RefCell<Streams>,
    requests: Cell<RequestId>,
    /// Bytes in entries that are not closed.
    open_bytes: Cell<u64>,
    /// The most bytes in entries that are not closed.
    bytes_max: u64,
    /// The most stripes written together.
    stripes_max: u64,
    kept: Kept,
}

/// Which write joins which entry, and when entries are closed.
impl Coalescer {
    /// For an array of this geometry, whose members prefer transfers of up to `optimal_bytes`. At most `bytes_max`
    /// wait.
    pub(crate) fn new(geometry: &Geometry, optimal_bytes: u64, bytes_max: u64) -> Self {
        let (stripe, chunk) = match geometry {
            Geometry::Parity(parity) => (parity.stripe_bytes(), parity.chunk_bytes()),
            Geometry::Mapping(_) => (1, 1),
        };
        Self {
            entries: RefCell::default(),
            streams: RefCell::new(Streams::new(stripe)),
            requests: Cell::new(0),
            open_bytes: Cell::new(0),
            kept: Kept::default(),
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
        let entries = self.entries.borrow();
        let waits = |entry: &&Rc<Entry>| entry.phase.get() == Phase::Open && !entry.kept.get();
        entries.iter().filter(waits).map(|entry| entry.patches.borrow().bytes()).sum::<u64>() + self.kept.bytes()
    }

    fn new_request(&self) -> RequestId {
        self.requests.replace(self.requests.get() + 1)
    }

    /// Closes the entries that touch `stripes`.
    pub(crate) fn close_within(&self, stripes: &Range<u64>) {
        for entry in &*self.entries.borrow() {
            if entry.stripes.start < stripes.end && stripes.start < entry.stripes.end {
                self.close(entry);
            }
        }
    }

    /// Closes all entries, so that nothing waits any longer.
    pub(crate) fn close_all(&self) {
        self.entries.borrow().iter().for_each(|entry| self.close(entry));
    }

    fn close(&self, entry: &Entry) {
        if entry.phase.get() == Phase::Open {
            self.open_bytes.set(self.open_bytes.get() - entry.patches.borrow().bytes());
            entry.close();
        }
    }

    /// The entry that a part of `stripe` may join.
    fn open_entry(&self, stripe: u64) -> Option<Rc<Entry>> {
        let is_open = |entry: &&Rc<Entry>| entry.stripes.start == stripe && entry.phase.get() == Phase::Open;
        self.entries.borrow().iter().rev().find(is_open).cloned()
    }

    /// Puts `patch` into an open entry, and closes the entry when it is complete.
    fn add(&self, entry: &Entry, patch: Patch) {
        let bytes = {
            let mut patches = entry.patches.borrow_mut();
            let before = patches.bytes();
            patches.put(patch);
            self.open_bytes.set(self.open_bytes.get() + patches.bytes() - before);
            if entry.kept.get() {
                self.kept.count(patches.bytes(), before);
            }
            patches.bytes()
        };
        let mut streams = self.streams.borrow_mut();
        if bytes >= streams.expected(entry.stream.get(), entry.stripes.start) {
            self.close(entry);
            if let Some(stream) = entry.stream.get().filter(|_| entry.has_several_callers()) {
                streams.filled(stream, bytes);
            }
        }
    }

    /// Whether an entry waits for more of its stream.
    fn is_waited_for(&self, entry: &Entry) -> bool {
        let is_patient = |stream| self.streams.borrow_mut().is_patient(stream);
        entry.phase.get() == Phase::Open && entry.stream.get().is_some_and(is_patient)
    }

    /// Closes the entries that a stream has passed: it will bring no more of their stripes.
    fn close_passed(&self, stream: StreamKey) {
        let entries = self.entries.borrow();
        let is_its = |entry: &&Rc<Entry>| entry.stream.get() == Some(stream) && !entry.kept.get();
        for entry in entries.iter().filter(is_its).filter(|entry| entry.phase.get() == Phase::Open) {
            if !self.streams.borrow_mut().is_to_come(stream, entry.stripes.start) {
                self.close(entry);
            }
        }
    }

    /// Closes the oldest entries until the rest is within bounds.
    fn keep_within_budget(&self) {
        for entry in &*self.entries.borrow() {
            if self.open_bytes.get() <= self.bytes_max {
                return;
            }
            self.close(entry);
        }
    }

    /// Starts an entry, together with the full stripes that follow it and are ready. Returns their locks and data.
    /// `stripe_bytes` is the length of a stripe.
    fn start(&self, entry: &Rc<Entry>, stripe_bytes: u64) -> Batch {
        self.close(entry);
        entry.phase.set(Phase::Started);
        self.take_out(entry);
        let mut entries = self.entries.borrow_mut();
        let is_full =
            |entry: &Entry| entry.patches.borrow().bytes() == (entry.stripes.end - entry.stripes.start) * stripe_bytes;
        let lock = |entry: &Entry| entry.lock.take().expect("an entry keeps its lock until it is started");
        // Reads must see answered data until the members have it.
        let patches = |entry: &Entry| match entry.kept.get() {
            true => entry.patches.borrow().clone(),
            false => entry.patches.take(),
        };
        let mut batch = Batch {
            stripes: entry.stripes.clone(),
            is_full: is_full(entry),
            patches: patches(entry),
            locks: SmallVec::from_iter([lock(entry)]),
        };
        if let Some(stream) = entry.stream.get().filter(|_| !batch.is_full) {
            self.streams.borrow_mut().part_goes(stream, entry.stripes.start, batch.patches.bytes());
        }
        while batch.is_full {
            let follows = |next: &Rc<Entry>| {
                next.stripes.start == batch.stripes.end
                    && next.stripes.end - batch.stripes.start <= self.stripes_max
                    && next.phase.get() == Phase::Closed
                    && is_full(next)
                    && next.lock.borrow().as_ref().is_some_and(Asked::is_granted)
            };
            let Some(place) = entries.iter().position(follows) else { break };
            let next = entries.remove(place);
            batch.stripes.end = next.stripes.end;
            batch.patches.append(patches(&next));
            batch.locks.push(lock(&next));
            entry.carry(&next);
        }
        batch
    }

    /// Removes the entry, so that no write finds it any more.
    fn take_out(&self, entry: &Rc<Entry>) {
        let mut entries = self.entries.borrow_mut();
        if let Some(place) = entries.iter().position(|other| Rc::ptr_eq(other, entry)) {
            entries.remove(place);
        }
    }

    /// As [`Coalescer::start`], for an entry whose single caller is to write it. `None` if another caller has joined,
    /// the lock is not granted, or more can come.
    fn start_alone(&self, entry: &Rc<Entry>, stripe_bytes: u64) -> Option<Batch> {
        let is_held = entry.lock.borrow().as_ref().is_some_and(Asked::is_granted);
        (is_held && !self.is_waited_for(entry) && !entry.has_work()).then(|| self.start(entry, stripe_bytes))
    }

    /// Removes a caller. Returns true if it was the last; then the data is dropped.
    fn leave(&self, entry: &Rc<Entry>, request: RequestId) -> bool {
        let is_over = entry.leave(request);
        if is_over {
            self.close(entry);
            self.take_out(entry);
            entry.lock.take();
        }
        is_over
    }

    /// Whether all unanswered requests of a stream wait in entries, its own or those of other streams.
    fn is_stuck(&self, stream: StreamKey, unanswered: u32) -> bool {
        let mut waiting = Vec::new();
        let (entries, streams) = (self.entries.borrow(), self.streams.borrow());
        let is_its = |arrival| streams.stream_of(arrival) == Some(stream);
        let is_open = |entry: &&Rc<Entry>| entry.phase.get() == Phase::Open;
        entries.iter().filter(is_open).for_each(|entry| entry.list_requests(is_its, &mut waiting));
        waiting.sort_unstable();
        waiting.dedup();
        waiting.len() >= unanswered as usize
    }
}

/// What is written together, and the locks on it.
struct Batch {
    stripes: Range<u64>,
    /// All bytes of all its stripes are given.
    is_full: bool,
    patches: Patchwork,
    locks: SmallVec<[Asked; 1]>,
}

/// A request's wait for all its parts. If the request is dropped, the write goes on as long as another request has a
/// part in it.
pub(crate) struct Answer<'a> {
    coalescer: &'a Coalescer,
    request: RequestId,
    /// `None` if the request only waits for other writes.
    arrival: Option<Arrival>,
    bytes: u64,
    entries: SmallVec<[Rc<Entry>; 1]>,
    outcome: Outcome,
}

impl<'a> Answer<'a> {
    fn new(coalescer: &'a Coalescer, arrival: Option<Arrival>, bytes: u64) -> Self {
        let request = coalescer.new_request();
        Self { coalescer, request, arrival, bytes, entries: SmallVec::new(), outcome: Ok(()) }
    }

    /// The one entry that waits for this request only and has no task yet.
    fn only_caller(&self) -> Option<Rc<Entry>> {
        self.entries.first().filter(|entry| !entry.has_work()).cloned()
    }
}

impl Future for Answer<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let answer = &mut *self;
        let mut index = 0;
        while index < answer.entries.len() {
            match answer.entries[index].poll(answer.request, context) {
                Poll::Ready(outcome) => {
                    answer.entries.remove(index);
                    answer.outcome = std::mem::replace(&mut answer.outcome, Ok(())).and(outcome);
                }
                Poll::Pending => index += 1,
            }
        }
        match answer.entries.is_empty() {
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
        for entry in &self.entries {
            self.coalescer.leave(entry, self.request);
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
    ) -> Outcome {
        if self.coalescer.kept.is_on() && !mutant!("broken-array-answers") {
            self.core.check_unbroken()?; // a write answered from memory would report the failure too late
        }
        let mut answer = self.join_entries(parity, at, from, durability);
        if let Some(entry) = answer.only_caller() {
            // The fast path of most small writes. If no other write has joined after this turn, the caller carries
            // out the write itself, and nothing is shared.
            let_others_go_first().await;
            if let Some(batch) = self.coalescer.start_alone(&entry, parity.stripe_bytes()) {
                answer.entries.clear();
                return self.write_batch(parity, batch).await;
            }
            self.share(&entry);
        }
        answer.await
    }

    /// Puts every part of a write into an entry. Each entry is given its task, except for a single part that begins
    /// an entry of its own.
    fn join_entries(self: &Rc<Self>, parity: &Parity, at: u64, from: Block, durability: Durability) -> Answer<'_> {
        let coalescer = &self.coalescer;
        let stripe_bytes = parity.stripe_bytes();
        let bytes = from.len() as u64;
        let waiting = coalescer.open_entry(at / stripe_bytes);
        let waiting_from = waiting.as_ref().map(|entry| entry.patches.borrow().range().start);
        let arrival = coalescer.streams.borrow_mut().arrive(at, bytes, waiting_from);
        let stream = arrival.stream();
        let is_answered = coalescer.kept.is_on() && durability == Durability::Ordinary;
        let mut answer = Answer::new(coalescer, Some(arrival), bytes);
        let mut rest = Patch { at, block: from };
        let mut found = Some(waiting);
        while let Some(part) = rest.take_front(front_bytes(&rest, stripe_bytes)) {
            let stripes = part.at / stripe_bytes..part.end().div_ceil(stripe_bytes);
            let is_part = (part.block.len() as u64) < stripe_bytes;
            // The entry for the first part was looked up above.
            let joined = found.take().unwrap_or_else(|| coalescer.open_entry(stripes.start)).filter(|_| is_part);
            let is_single = joined.is_none() && is_part && !is_answered && part.block.len() as u64 == bytes;
            let entry = joined.unwrap_or_else(|| self.new_entry(stripes));
            entry.stream.set(stream.or(entry.stream.get()));
            if !is_single {
                self.share(&entry);
            }
            if is_answered {
                coalescer.keep(&entry);
            } else {
                entry.add_caller(answer.request, Some(arrival));
            }
            // A write of no stream does not wait for one.
            let is_held_up = stream.is_none() && !is_answered && coalescer.is_waited_for(&entry);
            coalescer.add(&entry, part);
            if !is_part || durability == Durability::Stable || is_held_up {
                coalescer.close(&entry);
            }
            if !is_answered {
                answer.entries.push(entry);
            }
        }
        if let Some(stream) = stream {
            coalescer.close_passed(stream);
        }
        coalescer.keep_within_budget();
        answer
    }

    fn new_entry(&self, stripes: Range<u64>) -> Rc<Entry> {
        let coalescer = &self.coalescer;
        coalescer.close_within(&stripes);
        let entry = Rc::new(Entry::new(
            stripes.clone(),
            self.core.locks.ask(mutant!("stripe-not-locked" => stripes.start..stripes.start, else stripes)),
        ));
        coalescer.entries.borrow_mut().push(entry.clone());
        entry
    }

    /// Gives an entry its task, if it needs one: from now on any of its callers may drive it. An entry that another
    /// one has written meanwhile needs no task. The task would hold the entry, and with it the array, for ever.
    fn share(self: &Rc<Self>, entry: &Rc<Entry>) {
        let is_waiting = matches!(entry.phase.get(), Phase::Open | Phase::Closed);
        if (is_waiting || mutant!("done-and-given-work")) && !entry.has_work() {
            entry.set_work(carry_out(self.clone(), entry.clone()));
        }
    }
}

/// How much of it goes into one entry: up to the end of its first stripe, or all its whole stripes.
fn front_bytes(rest: &Patch, stripe_bytes: u64) -> u64 {
    let bytes = rest.block.len() as u64;
    if rest.at.is_multiple_of(stripe_bytes) && bytes >= stripe_bytes {
        return bytes / stripe_bytes * stripe_bytes;
    }
    bytes.min(stripe_bytes - rest.at % stripe_bytes)
}

/// Lets all other tasks that are ready run first.
pub(super) async fn let_others_go_first() {
    let mut have_gone = false;
    poll_fn(|context| {
        if std::mem::replace(&mut have_gone, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An entry's task, from its start to its end.
async fn carry_out<M: Member, C: Clock, A: Authority<M>>(data: Rc<DataPlane<M, C, A>>, entry: Rc<Entry>) -> Outcome {
    let Geometry::Parity(parity) = data.core.geometry() else {
        unreachable!("only levels with parity coalesce writes")
    };
    let _writing = data.core.writers.begin();
    let_others_go_first().await;
    entry.locked().await;
    data.wait_for_company(&entry).await;
    let batch = data.coalescer.start(&entry, parity.stripe_bytes());
    data.write_batch(parity, batch).await
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Waits until the entry is closed or no more writes can be expected.
    async fn wait_for_company(&self, entry: &Entry) {
        if entry.kept.get() {
            let (closed, old) =
                (pin!(entry.closed()), pin!(self.core.clock.sleep_until(self.core.clock.now() + AGE_MAX)));
            select(closed, old).await;
            return;
        }
        let is_patient = |stream| self.coalescer.streams.borrow_mut().is_patient(stream);
        let Some(stream) = entry.stream.get().filter(|stream| is_patient(*stream)) else { return };
        if entry.phase.get() != Phase::Open {
            return;
        }
        let activity = || self.coalescer.streams.borrow_mut().activity(stream);
        let (mut seen, _) = activity();
        let mut now = self.core.clock.now();
        let end = now + WAIT_MAX;
        loop {
            let (closed, enough) = (pin!(entry.closed()), pin!(self.core.clock.sleep_until(now + PATIENCE)));
            if let Either::Left(_) = select(closed, enough).await {
                return;
            }
            now = self.core.clock.now();
            let (events, unanswered) = activity();
            if !is_patient(stream) {
                return;
            }
            if events == seen && self.coalescer.is_stuck(stream, unanswered) || now >= end {
                return self.coalescer.streams.borrow_mut().waited_in_vain(stream);
            }
            seen = events;
        }
    }

    async fn write_batch(&self, parity: &Parity, batch: Batch) -> Outcome {
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
    async fn write_marked(&self, parity: &Parity, stripes: Range<u64>, is_full: bool, patches: &Patchwork) -> Outcome {
        self.core.check_unbroken()?;
        // Data that was answered is owed by no member before it is written to one.
        let is_answered = self.coalescer.kept.is_on();
        let lost = |error: ArrayError| match is_answered {
            true => ArrayError::new(ArrayErrorKind::Io, error.reason),
            false => error,
        };
        let _intended = self.authority.mark_write(&patches.range()).await.map_err(lost)?;
        match is_full {
            // Boxed: it holds a lot, and the futures of small writes would have to hold it as well.
            true => Box::pin(self.write_full_stripes(parity, stripes, patches.patches())).await?,
            false => self.write_part(parity, stripes.start, patches.patches()).await?,
        }
        self.authority.settle().await
    }
}
