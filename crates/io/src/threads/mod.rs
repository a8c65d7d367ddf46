//! The backend of an executor that needs no io_uring: system calls, by whichever way is quickest for each.
//!
//! - Sockets, events and pipes: calls that do not wait, and [`readiness`] for those that would.
//! - Direct transfers: [`asynchronous`](crate::system::asynchronous) (io_submit(2)), where the system has it.
//! - Reads of what the page cache holds: on the executor's thread, where the system can read without waiting.
//! - Everything else, and what of these would block: a [`pool`] of threads.
//!
//! Invariants:
//! - The executor's thread waits for readiness alone. (The driver has made [short transfers in memory](crate::at_once)
//!   before.) So a file system that hangs blocks threads of the pool, and a member's timeout still ends its requests.
//!   (Not where no thread can be made.) The process ends only after the file system has answered: the kernel does not
//!   end a thread inside such a call.
//! - A file that hangs leaves threads to the others: each has a share of the pool's.
//! - A cancelled operation completes like any other, at the next [`Threads::enter`] at the earliest. One that a thread
//!   or the kernel has begun runs to its end.
//!
//! Sources: the man pages that the files name.

mod call;
mod pool;
mod readiness;
#[cfg(test)]
mod tests;

use crate::driver::{Completion, Target, Wait};
use crate::operation::Call;
use crate::system::asynchronous::Asynchronous;
use crate::system::calls::read_without_waiting;
use crate::system::{disk, memory};
use call::{awaits_peer, is_transfer};
use pool::Pool;
use readiness::Readiness;
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

pub(crate) use call::Job;
pub(crate) use pool::Ended;

/// Rounds of a busy executor between two looks at its sockets.
const ROUNDS_BETWEEN_LOOKS: u32 = 8;

pub(crate) struct Threads(RefCell<Parts>);

struct Parts {
    readiness: Readiness,
    asynchronous: Option<Asynchronous>,
    pool: Pool,
    lanes: Slab<Lane>,
    /// Submitted since the last [`Threads::enter`].
    submitted: Vec<Job>,
    /// Ended, and not reaped.
    finished: Vec<Completion>,
    /// Rounds since the last look at the sockets.
    rounds: u32,
    /// Buffers kept for their capacity.
    transfers: Vec<Job>,
    blocking: Vec<Job>,
    ended: Vec<Ended>,
}

/// A member's file.
struct Lane {
    /// Whether the kernel takes its transfers without a thread.
    is_asynchronous: bool,
    /// Whether a read can be tried without waiting.
    may_try: bool,
    /// Jobs with the pool.
    running: usize,
    /// Jobs that would be too many.
    waiting: VecDeque<Job>,
}

impl Threads {
    /// `asynchronous`: whether to use the kernel's asynchronous interface, with buffers of the arena.
    pub(crate) fn new(arena: &engine::Pool, asynchronous: bool) -> io::Result<Self> {
        let pool = Pool::new()?;
        let readiness = Readiness::new(pool.bell())?;
        let asynchronous = if asynchronous { Asynchronous::new(pool.bell()) } else { None };
        if asynchronous.is_some() {
            let (base, bytes) = arena.arena();
            // A direct transfer pins its memory, page by page.
            // SAFETY: the pool's own memory.
            unsafe { memory::prefer_huge_pages(base, bytes) };
        }
        Ok(Self(RefCell::new(Parts {
            readiness,
            asynchronous,
            pool,
            lanes: Slab::new(),
            submitted: Vec::new(),
            finished: Vec::new(),
            rounds: 0,
            transfers: Vec::new(),
            blocking: Vec::new(),
            ended: Vec::new(),
        })))
    }

    /// Finds out how transfers of a member's file go.
    pub(crate) fn register_file(&self, fd: RawFd) -> u32 {
        let parts = &mut *self.0.borrow_mut();
        // SAFETY: an open descriptor of the caller's.
        let is_direct = disk::is_direct(unsafe { BorrowedFd::borrow_raw(fd) });
        let lane = Lane {
            is_asynchronous: is_direct && parts.asynchronous.is_some(),
            may_try: !is_direct,
            running: 0,
            waiting: VecDeque::new(),
        };
        let key = parts.lanes.insert(lane);
        parts.pool.allow_for(parts.lanes.len());
        key as u32
    }

    pub(crate) fn release(&self, target: Target) {
        let parts = &mut *self.0.borrow_mut();
        parts.readiness.release(target.fd);
        if let Some(lane) = target.slot {
            parts.lanes.remove(lane as usize);
        }
    }

    /// # Safety
    /// As of [`crate::driver::Driver::submit`]: the addresses in `call` stay valid, and the descriptor open, until the
    /// completion is reaped.
    pub(crate) unsafe fn submit(&self, index: u64, target: Target, call: Call) {
        let job = Job { index, fd: target.fd, lane: target.slot, call };
        self.0.borrow_mut().submitted.push(job);
    }

    pub(crate) fn cancel(&self, index: u64) {
        self.0.borrow_mut().cancel(index);
    }

    pub(crate) fn wants_enter(&self) -> bool {
        let parts = &mut *self.0.borrow_mut();
        parts.rounds += 1;
        !parts.submitted.is_empty()
            || !parts.finished.is_empty()
            || parts.has_ended()
            || parts.rounds >= ROUNDS_BETWEEN_LOOKS && !parts.readiness.is_empty()
    }

    /// Starts what was submitted, waits according to `wait`, and adds the completions to `reaped`.
    pub(crate) fn enter(&self, wait: Wait, reaped: &mut Vec<Completion>) {
        let parts = &mut *self.0.borrow_mut();
        parts.start_submitted();
        parts.collect();
        let is_idle = parts.finished.is_empty() && !matches!(wait, Wait::No);
        if is_idle {
            parts.wait(wait);
        } else if parts.rounds >= ROUNDS_BETWEEN_LOOKS {
            parts.rounds = 0;
            parts.readiness.wait(Wait::No, &mut parts.finished);
        }
        reaped.append(&mut parts.finished);
    }

    /// Ends the threads. No operation may be in flight.
    pub(crate) fn end(&self) {
        self.0.borrow_mut().pool.end();
    }
}

impl Parts {
    fn has_ended(&self) -> bool {
        self.pool.has_ended() || self.asynchronous.as_ref().is_some_and(Asynchronous::has_ended)
    }

    fn start_submitted(&mut self) {
        let mut submitted = std::mem::take(&mut self.submitted);
        for job in submitted.drain(..) {
            self.dispatch(job);
        }
        self.submitted = submitted;
        self.start_transfers();
        self.start_blocking();
    }

    /// Carries a job out at once, or decides which way it goes.
    fn dispatch(&mut self, job: Job) {
        if matches!(job.call, Call::DriverCommand { .. }) {
            return self.finished.push((job.index, -libc::EOPNOTSUPP));
        }
        if awaits_peer(job.call) {
            // SAFETY: promised to `Threads::submit`.
            return unsafe { self.readiness.start(job, &mut self.finished) };
        }
        let Some(lane) = job.lane else { return self.blocking.push(job) };
        let lane = &mut self.lanes[lane as usize];
        if lane.is_asynchronous && is_transfer(job.call) {
            return self.transfers.push(job);
        }
        if lane.may_try {
            // SAFETY: promised to `Threads::submit`.
            if let Some(result) = unsafe { lane.try_read(&job) } {
                return self.finished.push((job.index, result));
            }
        }
        self.block_on(job);
    }

    /// Has a thread do it, unless too many wait for its file.
    fn block_on(&mut self, job: Job) {
        let share = self.pool.share(self.lanes.len());
        match job.lane.map(|lane| &mut self.lanes[lane as usize]) {
            Some(lane) if lane.running >= share => lane.waiting.push_back(job),
            Some(lane) => {
                lane.running += 1;
                self.blocking.push(job);
            }
            None => self.blocking.push(job),
        }
    }

    fn start_transfers(&mut self) {
        let Some(asynchronous) = &mut self.asynchronous else { return };
        if self.transfers.is_empty() && !asynchronous.wants_start() {
            return;
        }
        let mut refused = Vec::new();
        // SAFETY: promised to `Threads::submit`.
        unsafe { asynchronous.start(&mut self.transfers, &mut refused) };
        for (job, error) in refused {
            // The file cannot tell, or the kernel is too old. A thread finds out about any other error.
            if matches!(-error, libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)
                && let Some(lane) = job.lane
            {
                self.lanes[lane as usize].is_asynchronous = false;
            }
            self.block_on(job);
        }
    }

    fn start_blocking(&mut self) {
        if !self.blocking.is_empty() {
            self.pool.start(&mut self.blocking);
        }
    }

    /// Takes the results of the pool and of the kernel.
    fn collect(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        self.pool.collect(&mut ended);
        let of_pool = ended.len();
        if let Some(asynchronous) = &mut self.asynchronous {
            asynchronous.collect(&mut ended);
        }
        for (number, (job, result)) in ended.drain(..).enumerate() {
            if number < of_pool {
                self.free_lane(&job);
            } else if result == -libc::EAGAIN {
                self.block_on(job); // it would have blocked
                continue;
            }
            self.finished.push((job.index, result));
        }
        self.ended = ended;
        self.start_transfers();
        self.start_blocking();
    }

    /// After a thread's work on a file: the next job for it.
    fn free_lane(&mut self, job: &Job) {
        let Some(lane) = job.lane.map(|lane| &mut self.lanes[lane as usize]) else { return };
        match lane.waiting.pop_front() {
            Some(next) => self.blocking.push(next),
            None => lane.running -= 1,
        }
    }

    fn wait(&mut self, wait: Wait) {
        self.rounds = 0;
        let may_wait = self.pool.may_wait();
        self.readiness.wait(if may_wait { wait } else { Wait::No }, &mut self.finished);
        self.pool.is_awake();
        self.collect();
    }

    /// Ends an operation that has not begun.
    fn cancel(&mut self, index: u64) {
        let submitted = self.submitted.iter().position(|job| job.index == index);
        let job = submitted.map(|at| self.submitted.remove(at)).or_else(|| self.readiness.take_back(index));
        let job = job.or_else(|| self.asynchronous.as_mut()?.take_back(index)).or_else(|| {
            self.lanes.iter_mut().find_map(|(_, lane)| {
                let at = lane.waiting.iter().position(|job| job.index == index)?;
                lane.waiting.remove(at)
            })
        });
        let job = job.or_else(|| {
            let job = self.pool.take_back(index)?;
            self.free_lane(&job);
            Some(job)
        });
        if job.is_some() {
            self.finished.push((index, -libc::ECANCELED));
        }
    }
}

impl Lane {
    /// Reads what is in memory. `None` when the job must go another way.
    ///
    /// # Safety
    /// The job's addresses and descriptor are valid.
    unsafe fn try_read(&mut self, job: &Job) -> Option<i32> {
        let vector;
        let (vectors, count, at) = match job.call {
            Call::Read { address, bytes, at } => {
                vector = libc::iovec { iov_base: address.cast(), iov_len: bytes as usize };
                (&raw const vector, 1, at)
            }
            Call::ReadVectored { vectors, count, at } => (vectors, count, at),
            _ => return None,
        };
        // SAFETY: promised by the caller.
        match unsafe { read_without_waiting(job.fd, vectors, count, at) } {
            Ok(bytes) => Some(bytes),
            Err(libc::EAGAIN) => None,
            Err(_) => {
                self.may_try = false;
                None
            }
        }
    }
}
