//! Gathering: how writes to parity levels become full stripes without a hint.
//!
//! A write is cut at the stripes' edges. Whole stripes go on as they are. A
//! part of a stripe joins the *entry* of that stripe, where there is one that
//! still takes in others; so all that comes before the members are touched
//! becomes one write. An entry is closed, and its data written, as soon as
//!
//! * its stripe is full, or all is there that can come; or
//! * nobody of a stream is in it who can expect more (see [`streams`]); an
//!   isolated write waits for nothing but those who come in the same instant; or
//! * all that its stream has under way waits, and nothing has come for [`PATIENCE`]; or
//!   the stream has gone past it, or is none after all; or a write that is of no stream has joined; or
//! * too much is being gathered, something is flushed, the array is stopped,
//!   or somebody else wants the stripe.
//!
//! Invariants:
//! * A write is answered when all its parts are on the members; with
//!   [`writeback`], when the array keeps them.
//! * An entry asks for its stripe's lock when it is made, and is closed before
//!   anybody else asks for it: so what overlaps is written in the order asked.
//!   Within an entry the later write covers the earlier one.
//! * A caller that is dropped takes nothing from others: the work is shared
//!   (see [`entry`]).
//! * Neighbouring full stripes are written together if their locks are held
//!   anyway: nobody waits for one lock while holding another that was asked for
//!   later. So there is no deadlock.

mod entry;
mod front;
mod streams;
mod writeback;

use crate::base::buffer::Block;
use crate::base::range_lock::OwnedLock;
use crate::base::write_set::{WriteExtent, WriteSet};
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

/// How long a stream's writes wait once nothing else of it is under way: some
/// times what a client takes to send its next request.
const PATIENCE: Duration = Duration::from_millis(3);

/// The longest that a write waits in an entry, whatever else is under way.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// The most bytes in one transfer of neighbouring stripes, unless the member
/// prefers more.
const TRANSFER_BYTES: u64 = 1 << 20;

/// What is being gathered in an array. Empty for levels without parity.
pub(crate) struct Gathering {
    /// Entries that are not started yet, in the order of their locks.
    entries: RefCell<Vec<Rc<Entry>>>,
    streams: RefCell<Streams>,
    requests: Cell<RequestId>,
    /// Bytes in entries that are not closed.
    open_bytes: Cell<u64>,
    /// The most of these.
    bytes_max: u64,
    /// The most stripes written together.
    stripes_max: u64,
    kept: Kept,
}

impl Gathering {
    /// For an array of this shape, whose members prefer transfers of up to
    /// `optimal_bytes`. At the most `bytes_max` wait.
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

    /// Bytes that are in memory and that nobody writes yet, or that were answered.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let entries = self.entries.borrow();
        let waits = |entry: &&Rc<Entry>| entry.phase.get() == Phase::Gathering && !entry.kept.get();
        entries.iter().filter(waits).map(|entry| entry.patches.borrow().bytes()).sum::<u64>() + self.kept.bytes()
    }

    fn new_request(&self) -> RequestId {
        self.requests.replace(self.requests.get() + 1)
    }

    /// Lets nobody join an entry that touches `stripes`.
    pub(crate) fn close_within(&self, stripes: &Range<u64>) {
        for entry in &*self.entries.borrow() {
            if entry.stripes.start < stripes.end && stripes.start < entry.stripes.end {
                self.close(entry);
            }
        }
    }

    /// Lets nobody wait any longer.
    pub(crate) fn close_all(&self) {
        self.entries.borrow().iter().for_each(|entry| self.close(entry));
    }

    fn close(&self, entry: &Entry) {
        if entry.phase.get() == Phase::Gathering {
            self.open_bytes.set(self.open_bytes.get() - entry.patches.borrow().bytes());
            entry.close();
        }
    }

    /// The entry that a part of `stripe` may join.
    fn open_entry(&self, stripe: u64) -> Option<Rc<Entry>> {
        let is_open = |entry: &&Rc<Entry>| entry.stripes.start == stripe && entry.phase.get() == Phase::Gathering;
        self.entries.borrow().iter().rev().find(is_open).cloned()
    }

    /// Puts `patch` into an entry that is open; closes it when it is complete.
    fn add(&self, entry: &Entry, patch: WriteExtent) {
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
        entry.phase.get() == Phase::Gathering && entry.stream.get().is_some_and(is_patient)
    }

    /// Closes what a stream has left behind: it brings no more of that.
    fn close_passed(&self, stream: StreamKey) {
        let entries = self.entries.borrow();
        let is_its = |entry: &&Rc<Entry>| entry.stream.get() == Some(stream) && !entry.kept.get();
        for entry in entries.iter().filter(is_its).filter(|entry| entry.phase.get() == Phase::Gathering) {
            if !self.streams.borrow_mut().is_to_come(stream, entry.stripes.start) {
                self.close(entry);
            }
        }
    }

    /// Closes the oldest entries until what is left is within bounds.
    fn keep_within_budget(&self) {
        for entry in &*self.entries.borrow() {
            if self.open_bytes.get() <= self.bytes_max {
                return;
            }
            self.close(entry);
        }
    }

    /// Takes an entry out, with the full stripes that follow it and are ready:
    /// their locks and data. `stripe_bytes` is the length of one.
    fn start(&self, entry: &Rc<Entry>, stripe_bytes: u64) -> Batch {
        self.close(entry);
        entry.phase.set(Phase::Started);
        self.take_out(entry);
        let mut entries = self.entries.borrow_mut();
        let is_full =
            |entry: &Entry| entry.patches.borrow().bytes() == (entry.stripes.end - entry.stripes.start) * stripe_bytes;
        let lock = |entry: &Entry| entry.lock.take().expect("an entry keeps its lock until it is started");
        // What is kept has to be seen by reads until the members have it.
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
                    && next.lock.borrow().as_ref().is_some_and(OwnedLock::is_granted)
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

    /// Nobody is to find the entry any more.
    fn take_out(&self, entry: &Rc<Entry>) {
        let mut entries = self.entries.borrow_mut();
        if let Some(place) = entries.iter().position(|other| Rc::ptr_eq(other, entry)) {
            entries.remove(place);
        }
    }

    /// As [`Gathering::start`] for an entry with a single caller, who is to
    /// write it; unless somebody has joined, others hold the lock, or more can come.
    fn start_alone(&self, entry: &Rc<Entry>, stripe_bytes: u64) -> Option<Batch> {
        let is_held = entry.lock.borrow().as_ref().is_some_and(OwnedLock::is_granted);
        (is_held && !self.is_waited_for(entry) && !entry.has_work()).then(|| self.start(entry, stripe_bytes))
    }

    /// A caller is gone; true when it was the last, and its data goes nowhere.
    fn leave(&self, entry: &Rc<Entry>, request: RequestId) -> bool {
        let is_over = entry.leave(request);
        if is_over {
            self.close(entry);
            self.take_out(entry);
            entry.lock.take();
        }
        is_over
    }

    /// Whether all unanswered requests of a stream wait in entries: its own, or those of another stream.
    fn is_stuck(&self, stream: StreamKey, unanswered: u32) -> bool {
        let mut waiting = Vec::new();
        let (entries, streams) = (self.entries.borrow(), self.streams.borrow());
        let is_its = |arrival| streams.stream_of(arrival) == Some(stream);
        let gathers = |entry: &&Rc<Entry>| entry.phase.get() == Phase::Gathering;
        entries.iter().filter(gathers).for_each(|entry| entry.list_requests(is_its, &mut waiting));
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
    patches: WriteSet,
    locks: SmallVec<[OwnedLock; 1]>,
}

/// A request's wait for all its parts. The write goes on without it as long as
/// any other has a part in it.
pub(crate) struct Answer<'a> {
    gathering: &'a Gathering,
    request: RequestId,
    /// `None` when it only waits for others.
    arrival: Option<Arrival>,
    bytes: u64,
    entries: SmallVec<[Rc<Entry>; 1]>,
    outcome: Outcome,
}

impl<'a> Answer<'a> {
    fn new(gathering: &'a Gathering, arrival: Option<Arrival>, bytes: u64) -> Self {
        let request = gathering.new_request();
        Self { gathering, request, arrival, bytes, entries: SmallVec::new(), outcome: Ok(()) }
    }

    /// The one entry that waits for this request alone and has no work yet.
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
            self.gathering.streams.borrow_mut().answer(arrival, self.bytes);
        }
        for entry in &self.entries {
            self.gathering.leave(entry, self.request);
        }
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Writes `from`, not empty, at `at` of an array with parity, along with
    /// others that fill its stripes.
    pub(crate) async fn gather(
        self: &Rc<Self>,
        parity: &Parity,
        at: u64,
        from: Block,
        durability: Durability,
    ) -> Outcome {
        if self.gathering.kept.is_on() && !mutant!("broken-array-answers") {
            self.core.check_unbroken()?; // what is answered from memory would be told of that too late
        }
        let mut answer = self.join_entries(parity, at, from, durability);
        if let Some(entry) = answer.only_caller() {
            // The short way of most small writes: when nobody has joined after
            // this turn, the caller does the work itself, and nothing is shared.
            let_others_go_first().await;
            if let Some(batch) = self.gathering.start_alone(&entry, parity.stripe_bytes()) {
                answer.entries.clear();
                return self.write_batch(parity, batch).await;
            }
            self.share(&entry);
        }
        answer.await
    }

    /// Puts every part of a write into an entry. All but a single part that
    /// begins an entry of its own are given their work.
    fn join_entries(self: &Rc<Self>, parity: &Parity, at: u64, from: Block, durability: Durability) -> Answer<'_> {
        let gathering = &self.gathering;
        let stripe_bytes = parity.stripe_bytes();
        let bytes = from.len() as u64;
        let gathered = gathering.open_entry(at / stripe_bytes);
        let gathered_from = gathered.as_ref().map(|entry| entry.patches.borrow().range().start);
        let arrival = gathering.streams.borrow_mut().arrive(at, bytes, gathered_from);
        let stream = arrival.stream();
        let is_answered = gathering.kept.is_on() && durability == Durability::Ordinary;
        let mut answer = Answer::new(gathering, Some(arrival), bytes);
        let mut rest = WriteExtent { at, block: from };
        let mut found = Some(gathered);
        while let Some(part) = rest.take_front(front_bytes(&rest, stripe_bytes)) {
            let stripes = part.at / stripe_bytes..part.end().div_ceil(stripe_bytes);
            let is_part = (part.block.len() as u64) < stripe_bytes;
            // For the first part it was looked up above.
            let joined = found.take().unwrap_or_else(|| gathering.open_entry(stripes.start)).filter(|_| is_part);
            let is_single = joined.is_none() && is_part && !is_answered && part.block.len() as u64 == bytes;
            let entry = joined.unwrap_or_else(|| self.new_entry(stripes));
            entry.stream.set(stream.or(entry.stream.get()));
            if !is_single {
                self.share(&entry);
            }
            if is_answered {
                gathering.keep(&entry);
            } else {
                entry.add_caller(answer.request, Some(arrival));
            }
            // Who is of no stream does not wait for one.
            let is_held_up = stream.is_none() && !is_answered && gathering.is_waited_for(&entry);
            gathering.add(&entry, part);
            if !is_part || durability == Durability::Stable || is_held_up {
                gathering.close(&entry);
            }
            if !is_answered {
                answer.entries.push(entry);
            }
        }
        if let Some(stream) = stream {
            gathering.close_passed(stream);
        }
        gathering.keep_within_budget();
        answer
    }

    fn new_entry(&self, stripes: Range<u64>) -> Rc<Entry> {
        let gathering = &self.gathering;
        gathering.close_within(&stripes);
        let entry = Rc::new(Entry::new(
            stripes.clone(),
            self.core
                .locks
                .request_exclusive(mutant!("stripe-not-locked" => stripes.start..stripes.start, else stripes)),
        ));
        gathering.entries.borrow_mut().push(entry.clone());
        entry
    }

    /// Gives an entry its work, if it has none yet: from now on any of its
    /// callers may drive it. One that another has carried out meanwhile needs none, and would hold it, and the
    /// array with it, for ever.
    fn share(self: &Rc<Self>, entry: &Rc<Entry>) {
        let is_waiting = matches!(entry.phase.get(), Phase::Gathering | Phase::Closed);
        if (is_waiting || mutant!("done-and-given-work")) && !entry.has_work() {
            entry.set_work(carry_out(self.clone(), entry.clone()));
        }
    }
}

/// How much of it goes into one entry: up to its first stripe's end, or all its whole stripes.
fn front_bytes(rest: &WriteExtent, stripe_bytes: u64) -> u64 {
    let bytes = rest.block.len() as u64;
    if rest.at.is_multiple_of(stripe_bytes) && bytes >= stripe_bytes {
        return bytes / stripe_bytes * stripe_bytes;
    }
    bytes.min(stripe_bytes - rest.at % stripe_bytes)
}

/// Lets everybody else run who can.
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

/// An entry's work, from its making to its end.
async fn carry_out<M: Member, C: Clock, A: Authority<M>>(data: Rc<DataPlane<M, C, A>>, entry: Rc<Entry>) -> Outcome {
    let Geometry::Parity(parity) = data.core.geometry() else { unreachable!("only parity is gathered for") };
    let _writing = data.core.writers.begin();
    let_others_go_first().await;
    entry.locked().await;
    data.wait_for_company(&entry).await;
    let batch = data.gathering.start(&entry, parity.stripe_bytes());
    data.write_batch(parity, batch).await
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Waits until the entry is closed or nothing more is to be expected.
    async fn wait_for_company(&self, entry: &Entry) {
        if entry.kept.get() {
            let (closed, old) =
                (pin!(entry.closed()), pin!(self.core.clock.sleep_until(self.core.clock.now() + AGE_MAX)));
            select(closed, old).await;
            return;
        }
        let is_patient = |stream| self.gathering.streams.borrow_mut().is_patient(stream);
        let Some(stream) = entry.stream.get().filter(|stream| is_patient(*stream)) else { return };
        if entry.phase.get() != Phase::Gathering {
            return;
        }
        let activity = || self.gathering.streams.borrow_mut().activity(stream);
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
            if events == seen && self.gathering.is_stuck(stream, unanswered) || now >= end {
                return self.gathering.streams.borrow_mut().waited_in_vain(stream);
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

    /// The marks that come before and after, and what is written between them.
    async fn write_marked(&self, parity: &Parity, stripes: Range<u64>, is_full: bool, patches: &WriteSet) -> Outcome {
        self.core.check_unbroken()?;
        // What was answered is not owed by any member before it is written to one.
        let is_answered = self.gathering.kept.is_on();
        let lost = |error: ArrayError| match is_answered {
            true => ArrayError::new(ArrayErrorKind::Io, error.reason),
            false => error,
        };
        let _intended = self.authority.mark_write(&patches.range()).await.map_err(lost)?;
        match is_full {
            // Boxed: it moves a lot, and small writes' futures would have to hold it.
            true => Box::pin(self.write_full_stripes(parity, stripes, patches.extents())).await?,
            false => self.write_part(parity, stripes.start, patches.extents()).await?,
        }
        self.authority.settle().await
    }
}
