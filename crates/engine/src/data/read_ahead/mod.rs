//! What streams of a degraded array are about to read.
//!
//! A read that is short of a stripe and meets a chunk that is lost needs the rest
//! of the stripe to work it out; and the stream that it belongs to will ask for
//! that rest next. So stripes with lost data that a stream comes to are read
//! whole, once, and handed out as they are asked for. Reads at random never are.
//!
//! Nothing here is ever needed: without it everything works as well, with more
//! reads. Never a stale byte:
//! * A stripe is read ahead only while nobody holds or waits for its exclusive
//!   lock, and whoever changes members [`ReadAhead::forget`]s it first, under that
//!   lock: what is under way then is given up, what is there goes.
//! * So what is there can be handed out without a lock: a write under way was
//!   not answered yet.
//!
//! The reads are begun by a request that needs some of the stripe, and driven by
//! it or by another that waits; when nobody waits any more they are given up. So
//! none is ever left alone: a member would count it as not answered, and
//! pages of checksums that it holds would stay held. Memory is bounded: a stripe
//! that was asked for in full goes at once, else the oldest has to make room.

mod streams;

use crate::base::buffer::{ALIGNMENT, Buffer};
use crate::core::authority::Authority;
use crate::data::DataPlane;
use crate::data::reconstruct::{Done, Reading};
use crate::data::stripe::{code, shares};
use crate::plan::planner::{Symbols, plan_read};
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::geometry::{Geometry, Parity, Role};
use futures_util::task::noop_waker_ref;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use streams::Streams;

/// Requests for at least this share of a stripe are given its memory instead of a copy.
const SHARE_TO_HAND_OVER: u64 = 64;

type Reads = Pin<Box<dyn Future<Output = Vec<Done>>>>;

/// Names one who waits.
type WaiterId = u64;

enum Phase {
    /// Members are being read.
    UnderWay {
        reading: Box<Reading>,
        reads: Reads,
        /// Who polls them.
        driver: Option<WaiterId>,
        /// All who are woken when they are over or given up, the driver too: nothing else wakes him then.
        waiting: Vec<(WaiterId, Waker)>,
    },
    /// What is left of it, in the array's order.
    There {
        data: Buffer,
        /// How much of it was copied to those who asked.
        served: u64,
    },
}

/// A stripe, or the rest of one.
struct Stretch {
    stripe: u64,
    /// The array's byte that it begins with.
    at: u64,
    /// Where the stripe ends.
    end: u64,
    /// Memory that it takes.
    bytes: usize,
    phase: Phase,
}

struct State {
    streams: Streams,
    /// Oldest first.
    stretches: Vec<Stretch>,
    /// Memory that they take.
    bytes: usize,
}

/// See the module.
pub(crate) struct ReadAhead {
    bytes_max: usize,
    state: RefCell<State>,
    next_waiter: Cell<WaiterId>,
}

/// What became of a request for what was read ahead; with its buffer.
pub(crate) enum Found {
    /// Here it is.
    There(Buffer),
    /// Members are being read for it, or have to be: the long way is what is left.
    UnderWay(Buffer),
    /// It has to be read.
    Nothing(Buffer),
}

impl ReadAhead {
    /// For an array of this geometry, with at most `bytes_max` of memory.
    pub(crate) fn new(geometry: &Geometry, bytes_max: usize) -> Self {
        let stripe_bytes = match geometry {
            Geometry::Parity(parity) => parity.stripe_bytes(),
            Geometry::Mapping(_) => u64::MAX,
        };
        let streams = Streams::new(stripe_bytes);
        let state = RefCell::new(State { streams, stretches: Vec::new(), bytes: 0 });
        Self { bytes_max, state, next_waiter: Cell::new(0) }
    }

    /// The array's bytes `at..at + into.len()`, if they were read ahead: copied,
    /// or in other memory of the pool where `into` is a buffer of its own.
    pub(crate) fn serve(&self, at: u64, into: Buffer) -> Found {
        self.state.borrow_mut().serve(at, into)
    }

    /// These stripes are about to change.
    pub(crate) fn forget(&self, stripes: Range<u64>) {
        if !self.state.borrow().stretches.is_empty() {
            self.drop_stretches(|stretch| stripes.contains(&stretch.stripe));
        }
    }

    /// Nothing that is there or under way counts any more.
    pub(crate) fn clear(&self) {
        self.drop_stretches(|_| true);
    }

    fn drop_stretches(&self, is_meant: impl Fn(&Stretch) -> bool) {
        let mut gone = Vec::new();
        {
            let state = &mut *self.state.borrow_mut();
            while let Some(index) = state.stretches.iter().position(&is_meant) {
                gone.push(state.remove(index));
            }
        }
        for Stretch { phase, .. } in gone {
            if let Phase::UnderWay { waiting, .. } = phase {
                waiting.into_iter().for_each(|(_, waker)| waker.wake());
            }
        }
    }
}

impl State {
    fn find(&mut self, stripe: u64) -> Option<(usize, &mut Stretch)> {
        self.stretches.iter_mut().enumerate().find(|(_, stretch)| stretch.stripe == stripe)
    }

    fn remove(&mut self, index: usize) -> Stretch {
        let stretch = self.stretches.remove(index);
        self.bytes -= stretch.bytes;
        stretch
    }

    fn serve(&mut self, at: u64, mut into: Buffer) -> Found {
        let bytes = into.len() as u64;
        let mut stretches = self.stretches.iter_mut().enumerate();
        let Some((index, stretch)) = stretches.find(|(_, stretch)| stretch.at <= at && at < stretch.end) else {
            return Found::Nothing(into);
        };
        let Phase::There { data, served } = &mut stretch.phase else { return Found::UnderWay(into) };
        let start = at - stretch.at;
        if start + bytes > data.len() as u64 {
            return Found::Nothing(into);
        }
        let is_aligned = (at | bytes).is_multiple_of(ALIGNMENT as u64);
        if start == 0 && is_aligned && bytes >= data.len() as u64 / SHARE_TO_HAND_OVER && into.is_alone() {
            stretch.at += bytes;
            into = data.split_to(bytes as usize);
        } else {
            into.copy_from_slice(&data[start as usize..(start + bytes) as usize]);
            *served += bytes;
        }
        let (is_over, left) = (*served >= data.len() as u64, data.len());
        self.bytes -= std::mem::replace(&mut stretch.bytes, left) - left;
        if is_over {
            self.remove(index);
        }
        Found::There(into)
    }

    /// Makes room for `bytes` more; what is under way is left alone.
    fn make_room(&mut self, bytes: usize, bytes_max: usize) -> bool {
        while self.bytes + bytes > bytes_max {
            let is_there = |stretch: &Stretch| matches!(stretch.phase, Phase::There { .. });
            let Some(oldest) = self.stretches.iter().position(is_there) else { return false };
            self.remove(oldest);
        }
        true
    }
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// A read of a degraded array is about to begin: begins to read the stripes that
    /// it needs in part, if its stream will want the rest.
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

    /// Begins to read the rest of a stripe, if there is lost data in it and nothing speaks against it.
    fn begin_stretch(&self, parity: &Parity, stripe: u64, range: Range<u64>) {
        let Some(share) = shares(parity, range.start, range.end - range.start).next() else { return };
        let health = self.read_health(parity, &share.stripe, 0..parity.chunk_bytes() as u32, Symbols::EMPTY);
        let is_lost = |index: u16| health.unreadable.contains(Role::Data(index));
        let is_known = || self.read_ahead.state.borrow_mut().find(stripe).is_some();
        if !share.spans.iter().any(|span| is_lost(span.data))
            || is_known()
            || (!mutant!("ahead-of-a-write") && self.core.locks.is_wanted_exclusively(&(stripe..stripe + 1)))
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
            Poll::Pending => Phase::UnderWay { reading: Box::new(reading), reads, driver: None, waiting: Vec::new() },
            Poll::Ready(done) => match reading.finish(self.core.info.kernel, parity, done) {
                Ok(()) => Phase::There { data: reading.into_buffer(), served: 0 },
                Err(_) => return, // whoever asks for it will find out
            },
        };
        let bytes = match &phase {
            Phase::UnderWay { reading, .. } => reading.bytes(),
            Phase::There { data, .. } => data.len(),
        };
        let state = &mut *self.read_ahead.state.borrow_mut();
        state.bytes += bytes;
        state.stretches.push(Stretch { stripe, at: range.start, end: range.end, bytes, phase });
    }

    /// Fills `into`, which lies in one stripe, with what was read ahead, or is
    /// being read; gives it back where that is nothing.
    pub(crate) async fn read_from_memory(&self, parity: &Parity, at: u64, mut into: Buffer) -> Result<Buffer, Buffer> {
        loop {
            match self.read_ahead.serve(at, into) {
                Found::There(filled) => return Ok(filled),
                Found::Nothing(buffer) => return Err(buffer),
                Found::UnderWay(buffer) => into = buffer,
            }
            let waiter = Waiter { ahead: &self.read_ahead, stripe: at / parity.stripe_bytes(), id: self.next_waiter() };
            poll_fn(|context| self.poll_stretch(parity, &waiter, context)).await;
        }
    }

    fn next_waiter(&self) -> WaiterId {
        let next = &self.read_ahead.next_waiter;
        next.replace(next.get() + 1)
    }

    /// Goes on with what is under way, or waits for whoever does.
    fn poll_stretch(&self, parity: &Parity, waiter: &Waiter<'_>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.read_ahead.state.borrow_mut();
        let Some((index, stretch)) = state.find(waiter.stripe) else { return Poll::Ready(()) };
        let Phase::UnderWay { reading, reads, driver, waiting } = &mut stretch.phase else { return Poll::Ready(()) };
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
        let is_well = reading.finish(self.core.info.kernel, parity, done).is_ok();
        let mut stretch = state.remove(index);
        let Phase::UnderWay { reading, waiting, .. } = stretch.phase else { unreachable!("it was under way") };
        if is_well {
            let data = reading.into_buffer();
            stretch.bytes = data.len();
            state.bytes += stretch.bytes;
            state.stretches.push(Stretch { phase: Phase::There { data, served: 0 }, ..stretch });
        }
        drop(state);
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
        Poll::Ready(())
    }
}

/// One who waits for a stripe.
struct Waiter<'a> {
    ahead: &'a ReadAhead,
    stripe: u64,
    id: WaiterId,
}

impl Drop for Waiter<'_> {
    /// Another drives the reads then; when there is none, they are given up.
    fn drop(&mut self) {
        let mut state = self.ahead.state.borrow_mut();
        let Some((index, stretch)) = state.find(self.stripe) else { return };
        let Phase::UnderWay { driver, waiting, .. } = &mut stretch.phase else { return };
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
