//! How a write joins the stripe writes of its stripes, and waits for them.
//!
//! The lock of its rows is requested here, when a stripe write is made or widened. [`super::carry_out`] writes it.

use crate::base::buffer::Block;
use crate::base::range_lock::OwnedLock;
use crate::base::write_set::{WriteExtent, WriteSet};
use crate::base::yield_now::yield_now;
use crate::core::authority::{Authority, Logging};
use crate::data::coalesce::carry_out::carry_out;
use crate::data::coalesce::coalescer::{Answer, WriteBatch};
use crate::data::coalesce::stripe_write::{Phase, StripeWrite, WriteResult};
use crate::data::coalesce::writeback::lost;
use crate::data::plane::DataPlane;
use crate::device::write_buffer::Blocks;
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::durability::Durability;
use crate::seam::member::Member;
use format::geometry::Parity;
use smallvec::SmallVec;
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
        let (coalescer, bytes) = (&self.coalescer, from.len() as u64);
        let range = at..at + bytes;
        let waiting_from = || coalescer.open_write(at / parity.stripe_bytes(), at, None).map(|write| write.start());
        let arrival = coalescer.streams.borrow_mut().arrive(at, bytes, waiting_from);
        let answer = Answer::new(coalescer, Some(arrival), bytes);
        let from = WriteExtent { at, block: from };
        if let Some(batch) = self.start_at_once(parity, &answer, &from) {
            return self.write_batch(parity, batch).await;
        }
        let mut answer = self.join_writes(parity, from, durability, answer);
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
        let is_early = answer.is_early;
        answer.await?;
        if !is_early {
            if mutant!("older-write-clears-a-loss") {
                self.coalescer.written_over(&range);
            }
            return Ok(());
        }
        self.limit_dirty().await;
        if mutant!("loss-written-over") {
            self.coalescer.written_over(&range);
        }
        match self.coalescer.is_noted_lost(&range) {
            true => Err(lost()),
            false => Ok(()),
        }
    }

    /// Starts a write that continues no other, to rows of one chunk that no other task has locked, if members answer at
    /// once. No company can come while such a write is under way, and it is not worth a stripe write. `None` means only
    /// that the write is none of these.
    fn start_at_once(&self, parity: &Parity, answer: &Answer<'_>, from: &WriteExtent) -> Option<WriteBatch> {
        if !self.cache.borrow().is_off() || self.coalescer.dirty.answers_all() || answer.stream().is_some() {
            return None;
        }
        let number = from.at / parity.stripe_bytes();
        let is_part = from.end() <= (number + 1) * parity.stripe_bytes();
        if !is_part || from.block.len() as u64 == parity.stripe_bytes() || self.is_lost_in(&(from.at..from.end())) {
            return None;
        }
        let locked = self.rows_of(parity, from);
        let lock = self.request_lock(locked);
        let mut patches = WriteSet::default();
        patches.put(from.clone());
        lock.is_granted().then(|| WriteBatch {
            stripes: number..number + 1,
            unit: self.stripe_size_bytes(),
            is_full: false,
            answered: SmallVec::new(),
            patches,
            locks: SmallVec::from_iter([lock]),
            buffered: Blocks::new(),
        })
    }

    /// Puts every part of a write into a stripe write. Each stripe write is given its task, except for a single part
    /// that begins a stripe write of its own.
    fn join_writes<'a>(
        self: &'a Rc<Self>,
        parity: &Parity,
        from: WriteExtent,
        durability: Durability,
        mut answer: Answer<'a>,
    ) -> Answer<'a> {
        let coalescer = &self.coalescer;
        let stripe_bytes = parity.stripe_bytes();
        let bytes = from.block.len() as u64;
        let stream = answer.stream();
        let is_stream = stream.is_some_and(|stream| coalescer.streams.borrow_mut().is_proven(stream));
        let has_room = coalescer.dirty.is_on() && self.may_buffer(bytes);
        let may_answer = durability == Durability::Ordinary && has_room;
        let answers_all = may_answer && coalescer.dirty.answers_all();
        let waits_in_vain =
            is_stream && !stream.is_some_and(|stream| coalescer.streams.borrow_mut().may_bring_more(stream));
        let is_covering = StripeWrite::is_buffered;
        let mut rest = from;
        while let Some(part) = rest.take_front(front_bytes(&rest, stripe_bytes)) {
            let stripes = part.at / stripe_bytes..part.end().div_ceil(stripe_bytes);
            let is_part = (part.block.len() as u64) < stripe_bytes;
            let locks = match is_part && !is_stream && !answers_all {
                true => self.rows_of(parity, &part),
                false => parity.component_of(&stripes),
            };
            let joined = if is_part { coalescer.open_write(stripes.start, part.at, Some(&locks)) } else { None };
            // A write of no stream makes no other wait for its rows.
            let joined = joined
                .filter(|write| is_stream || self.is_free_beside(write, &locks))
                .filter(|write| has_room || !is_covering(write));
            let is_dirty = joined.as_ref().is_some_and(|write| write.dirty.get());
            let is_answered = answers_all || may_answer && is_stream && (waits_in_vain || is_dirty);
            let is_single = joined.is_none() && is_part && !is_answered && part.block.len() as u64 == bytes;
            let write = match joined {
                Some(write) => {
                    self.widen(&write, &locks);
                    write
                }
                None => self.new_write(stripes, locks),
            };
            write.stream.set(stream.or(write.stream.get()));
            if !is_single {
                self.share(&write);
            }
            // After a kill, what was answered before is written once more, and would tear a block that this part wrote.
            let is_above = is_covering(&write) || has_room && self.is_buffered_below(&(part.at..part.end()));
            if is_answered || is_above && !mutant!("buffered-write-covers-a-later-one") {
                self.buffer(&write, &part);
            }
            answer.is_early |= is_answered;
            // Those that joined it before wait for no more than its own write.
            let holds_up = is_answered && write.has_waiting_callers();
            if is_answered {
                coalescer.add_dirty(&write);
            } else {
                write.add_caller(answer.request, answer.arrival);
            }
            // A write of no stream does not wait for one, and none for what was answered already.
            let is_held_up = !is_answered && (is_dirty || stream.is_none() && coalescer.is_waited_for(&write));
            let range = part.at..part.end();
            coalescer.add(&write, part);
            if is_answered {
                // What was lost here before is written again. If that fails, it is lost once more, perhaps before it is
                // answered.
                coalescer.written_over(&range);
            }
            if !is_part || durability == Durability::Stable || is_held_up || holds_up {
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

    /// The rows of a part of one stripe, in component bytes: writes to other rows share no parity with it. The whole
    /// stripe where a write changes more than it was asked for, or a log has one entry for a stripe. What is unbuilt
    /// becomes built for good, so a write that locked less never builds.
    fn rows_of(&self, parity: &Parity, part: &WriteExtent) -> Range<u64> {
        let (stripe_bytes, chunk_bytes) = (parity.stripe_bytes(), parity.chunk_bytes());
        let number = part.at / stripe_bytes;
        let stripe = parity.component_of(&(number..number + 1));
        let (start, end) = (part.at - number * stripe_bytes, part.end() - number * stripe_bytes);
        let has_unit = self.stripe_size_bytes().is_some() || self.authority.logging() != Logging::Nothing;
        let is_wide = start >> chunk_bytes.trailing_zeros() != (end - 1) >> chunk_bytes.trailing_zeros();
        if is_wide || has_unit || self.core.health.unbuilt.touches(&stripe) {
            return stripe;
        }
        // All of these are powers of two.
        let (unit, in_chunk) = (ROW_BYTES.max(self.core.info.block_bytes), chunk_bytes - 1);
        let (first, last) = (start & in_chunk & !(unit - 1), (end - 1) & in_chunk | (unit - 1));
        stripe.start + first..(stripe.start + last + 1).min(stripe.end)
    }

    /// Whether no other task has locked what a stripe write would lock besides its own rows.
    fn is_free_beside(&self, write: &StripeWrite, locks: &Range<u64>) -> bool {
        let locked = write.locked_rows();
        let beside = [locks.start..locked.start, locked.end..locks.end];
        beside.into_iter().all(|range| range.is_empty() || !self.core.locks.is_wanted(&range))
    }

    /// Has an open stripe write lock more rows of its stripe. No other request wants those that it has locked, or it
    /// would be closed. So it may request all of them again, behind other requests.
    fn widen(&self, write: &StripeWrite, locks: &Range<u64>) {
        if write.locks_all_of(locks) {
            return;
        }
        let locked = write.locked_rows();
        let wide = locked.start.min(locks.start)..locked.end.max(locks.end);
        // Beside its own rows, so that it stays open.
        self.coalescer.close_within(&(wide.start..locked.start));
        self.coalescer.close_within(&(locked.end..wide.end));
        write.lock.replace(Some(self.request_lock(wide)));
    }

    fn new_write(&self, stripes: Range<u64>, locks: Range<u64>) -> Rc<StripeWrite> {
        let coalescer = &self.coalescer;
        coalescer.close_within(&locks);
        let lock = self.request_lock(locks);
        let write = Rc::new(StripeWrite::new(stripes, self.stripe_size_bytes(), lock));
        coalescer.writes.borrow_mut().push(write.clone());
        write
    }

    pub(super) fn request_lock(&self, locks: Range<u64>) -> OwnedLock {
        self.core.locks.request_exclusive(mutant!("stripe-not-locked" => locks.start..locks.start, else locks))
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
