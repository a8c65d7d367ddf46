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

pub(crate) mod coalescer;
mod dirty_set;
mod front;
mod streams;
mod stripe_write;
mod writeback;

use crate::base::buffer::Block;
use crate::base::write_set::{WriteExtent, WriteSet};
use crate::base::yield_now::yield_now;
use crate::core::authority::Authority;
use crate::data::coalesce::coalescer::{Answer, WriteBatch};
use crate::data::coalesce::stripe_write::{Phase, StripeWrite, WriteResult};
use crate::data::plane::DataPlane;
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
use format::geometry::Parity;
use futures_util::future::{Either, select};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// How long a stream's writes wait once nothing else of it is under way: a few times what a client needs to send its
/// next request.
const STREAM_WAIT: Duration = Duration::from_millis(3);

/// The longest that a write waits in a stripe write, whatever else is under way.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// How long data is kept that no write adds to and no flush asks for.
const AGE_MAX: Duration = Duration::from_secs(1);

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
    let parity = data.stripes();
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
