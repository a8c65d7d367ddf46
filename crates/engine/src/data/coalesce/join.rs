//! How a write joins the stripe writes of its stripes, and waits for them.
//!
//! The lock of a stripe is requested here, when its stripe write is made. [`super::carry_out`] writes it.

use crate::base::buffer::Block;
use crate::base::write_set::WriteExtent;
use crate::base::yield_now::yield_now;
use crate::core::authority::Authority;
use crate::data::coalesce::carry_out::carry_out;
use crate::data::coalesce::coalescer::Answer;
use crate::data::coalesce::stripe_write::{Phase, StripeWrite, WriteResult};
use crate::data::plane::DataPlane;
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::member::Member;
use format::geometry::Parity;
use std::ops::Range;
use std::rc::Rc;

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
