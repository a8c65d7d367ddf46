//! What a request does with reading ahead: it begins the reads of stripes, drives them, waits for them, and is served.
//!
//! The rules are those of [`super`]; the stripes that were or are being read ahead are [`super::stretches`].

use crate::base::buffer::Buffer;
use crate::core::authority::Authority;
use crate::data::plane::DataPlane;
use crate::data::read_ahead::stretches::{FromMemory, ReadAhead, Reads, Stretch, StretchPhase, WaiterId};
use crate::data::reading::Reading;
use crate::data::stripe::shares;
use crate::plan::planner::{Symbols, code, plan_read};
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::{Parity, Role};
use futures_util::task::noop_waker_ref;
use std::future::poll_fn;
use std::ops::Range;
use std::task::{Context, Poll};

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Called before a read of a degraded array. Begins to read stripes that the request needs in part, if its stream
    /// will request the rest.
    pub(crate) fn look_ahead(&self, parity: &Parity, at: u64, bytes: u64) {
        if self.read_ahead.bytes_max == 0 {
            return;
        }
        let wanted = self.read_ahead.state.borrow_mut().streams.arrive(at, bytes);
        for stripe in wanted.start..wanted.end.min(parity.stripes()) {
            let whole = stripe * parity.stripe_bytes()..(stripe + 1) * parity.stripe_bytes();
            let is_asked_for_whole = at <= whole.start && whole.end <= at + bytes;
            if !is_asked_for_whole {
                self.begin_stretch(
                    parity,
                    stripe,
                    whole.start.max(at / self.core.info.block_bytes * self.core.info.block_bytes)..whole.end,
                );
            }
        }
    }

    /// Begins to read the rest of a stripe, if it has lost data and no write wants the stripe.
    fn begin_stretch(&self, parity: &Parity, stripe: u64, range: Range<u64>) {
        let Some(share) = shares(parity, range.start, range.end - range.start).next() else { return };
        let health = self.read_health(parity, &share.stripe, 0..parity.chunk_bytes() as u32, Symbols::EMPTY);
        let is_lost = |index: u16| health.unreadable.contains(Role::Data(index));
        let is_wanted = || self.core.locks.is_wanted_exclusively(&parity.component_of(&(stripe..stripe + 1)));
        let is_known = || self.read_ahead.state.borrow_mut().find(stripe).is_some();
        if !share.spans.iter().any(|span| is_lost(span.data))
            || is_known()
            || (!mutant!("ahead-of-a-write") && is_wanted())
        {
            return;
        }
        let Ok(plan) = plan_read(code(parity), &share.spans, &[], &health) else { return };
        let bytes = share.bytes * (usize::from(parity.data_chunks()) + 1) / usize::from(parity.data_chunks());
        if !self.read_ahead.state.borrow_mut().make_room(bytes, self.read_ahead.bytes_max) {
            return;
        }
        let mut reading =
            Reading::new(&self.core.pool, share.stripe, &share.spans, plan, self.core.pool.take(share.bytes));
        let mut reads: Reads = Box::pin(self.member_reads(&mut reading));
        let phase = match reads.as_mut().poll(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Pending => {
                StretchPhase::UnderWay { reading: Box::new(reading), reads, driver: None, waiting: Vec::new() }
            }
            Poll::Ready(done) => match reading.finish(self.core.info.kernel, done) {
                Ok(()) => StretchPhase::There { data: reading.into_buffer(), served: 0 },
                Err(_) => return, // the request that reads this range meets the error itself
            },
        };
        let bytes = match &phase {
            StretchPhase::UnderWay { reading, .. } => reading.bytes(),
            StretchPhase::There { data, .. } => data.len(),
        };
        let state = &mut *self.read_ahead.state.borrow_mut();
        state.bytes += bytes;
        state.stretches.push(Stretch { stripe, at: range.start, end: range.end, bytes, phase });
    }

    /// Fills `into`, which lies in one stripe, with what was or is being read ahead. Returns it unfilled if there is
    /// nothing.
    pub(crate) async fn read_from_memory(&self, parity: &Parity, at: u64, mut into: Buffer) -> Result<Buffer, Buffer> {
        loop {
            match self.read_ahead.serve(at, into) {
                FromMemory::There(filled) => return Ok(filled),
                FromMemory::Nothing(buffer) => return Err(buffer),
                FromMemory::UnderWay(buffer) => into = buffer,
            }
            let waiter = Waiter { ahead: &self.read_ahead, stripe: at / parity.stripe_bytes(), id: self.next_waiter() };
            poll_fn(|context| self.poll_stretch(&waiter, context)).await;
        }
    }

    fn next_waiter(&self) -> WaiterId {
        let next = &self.read_ahead.next_waiter;
        next.replace(next.get() + 1)
    }

    /// Polls the reads, or waits for the request that does.
    fn poll_stretch(&self, waiter: &Waiter<'_>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.read_ahead.state.borrow_mut();
        let Some((index, stretch)) = state.find(waiter.stripe) else { return Poll::Ready(()) };
        let StretchPhase::UnderWay { reading, reads, driver, waiting } = &mut stretch.phase else {
            return Poll::Ready(());
        };
        waiting.retain(|(id, _)| *id != waiter.id);
        let done = match *driver.get_or_insert(waiter.id) == waiter.id {
            true => reads.as_mut().poll(context),
            false => Poll::Pending,
        };
        let Poll::Ready(done) = done else {
            if !mutant!("driver-not-woken") || *driver != Some(waiter.id) {
                waiting.push((waiter.id, context.waker().clone()));
            }
            return Poll::Pending;
        };
        let is_well = reading.finish(self.core.info.kernel, done).is_ok();
        let mut stretch = state.remove(index);
        let StretchPhase::UnderWay { reading, waiting, .. } = stretch.phase else { unreachable!("checked above") };
        if is_well {
            let data = reading.into_buffer();
            stretch.bytes = data.len();
            state.bytes += stretch.bytes;
            state.stretches.push(Stretch { phase: StretchPhase::There { data, served: 0 }, ..stretch });
        }
        drop(state);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
        Poll::Ready(())
    }
}

/// A request that waits for a stripe.
struct Waiter<'a> {
    ahead: &'a ReadAhead,
    stripe: u64,
    id: WaiterId,
}

impl Drop for Waiter<'_> {
    /// Another request drives the reads from now on. If there is none, they are abandoned.
    fn drop(&mut self) {
        let mut state = self.ahead.state.borrow_mut();
        let Some((index, stretch)) = state.find(self.stripe) else { return };
        let StretchPhase::UnderWay { driver, waiting, .. } = &mut stretch.phase else { return };
        waiting.retain(|(id, _)| *id != self.id);
        if driver.is_some_and(|driver| driver != self.id) {
            return;
        }
        *driver = None;
        match waiting.pop() {
            Some((_, next)) => {
                drop(state);
                next.wake();
            }
            None => {
                let gone = state.remove(index);
                drop(state);
                drop(gone);
            }
        }
    }
}
