//! A pool of threads for system calls that may block. The executor's thread puts jobs in and takes results out.
//!
//! Invariants:
//! - Threads have every signal blocked from their first moment. Otherwise one of them would receive, and die of, the
//!   SIGTERM that the executor's thread reads from a descriptor.
//! - A batch of jobs costs the executor's thread at most one wake-up: a woken thread wakes the next ones. Results cost a
//!   thread one wake-up if the executor waits, and none otherwise.
//! - A job whose call hangs occupies its thread. The pool never waits for such a thread.
//! - Each file has a share of the threads, so files that hang leave theirs to every other. Where the system refuses
//!   further threads, the shares are smaller.
//!
//! Where no thread can be made (`RLIMIT_NPROC`), jobs run on the executor's thread.

use super::call::Job;
use crate::signal::AllBlocked;
use crate::system::bell::Bell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads that may wait for one file, and those for work on no file.
const SHARE: usize = 16;

/// Bytes of a thread's stack: system calls need next to none.
const STACK_BYTES: usize = 128 << 10;

/// How many sleeping threads a woken one wakes, while there are jobs.
const WOKEN_BY_ONE: usize = 2;

/// A result, and the job that it is of.
pub(crate) type Ended = (Job, i32);

pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
    /// A thread could not be made, which was reported.
    was_refused: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Signalled once for each token in the queue.
    available: Condvar,
    ended: Mutex<Vec<Ended>>,
    /// There may be something in `ended`.
    has_ended: AtomicBool,
    /// The executor waits, or is about to: the next result must ring the bell.
    is_awaited: AtomicBool,
    bell: Bell,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that wait and were not woken.
    idle: usize,
    /// Threads that were woken or made, and have not looked at the jobs since.
    coming: usize,
    /// Of these, the woken ones that have not woken up yet.
    tokens: usize,
    is_closed: bool,
}

impl Queue {
    /// Takes note of a thread that the caller must wake. False if none sleeps.
    fn wake_one(&mut self) -> bool {
        let is_one = self.idle > 0;
        if is_one {
            self.idle -= 1;
            self.tokens += 1;
            self.coming += 1;
        }
        is_one
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(super) fn new() -> io::Result<Self> {
        let bell = Bell::new()?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            available: Condvar::new(),
            ended: Mutex::default(),
            has_ended: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            bell,
        });
        Ok(Self { shared, threads: Vec::new(), threads_max: SHARE, was_refused: false })
    }

    /// Allows for the shares of so many files.
    pub(super) fn allow_for(&mut self, files: usize) {
        if !self.was_refused {
            self.threads_max = self.threads_max.max(SHARE * (files + 1));
        }
    }

    /// The share of each of so many files.
    pub(super) fn share(&self, files: usize) -> usize {
        if self.was_refused { (self.threads_max / files.max(1)).clamp(1, SHARE) } else { SHARE }
    }

    /// The descriptor of the bell that rings when a result arrives while the executor waits.
    pub(super) fn bell(&self) -> RawFd {
        self.shared.bell.fd()
    }

    /// Starts the jobs, and leaves `jobs` empty.
    pub(super) fn start(&mut self, jobs: &mut Vec<Job>) {
        let mut queue = lock(&self.shared.queue);
        queue.jobs.extend(jobs.drain(..));
        let wakes = queue.jobs.len() > queue.coming && queue.wake_one();
        let missing = queue.jobs.len().saturating_sub(queue.coming + queue.idle);
        let new = missing.min(self.threads_max - self.threads.len());
        queue.coming += new;
        drop(queue);
        if wakes {
            self.shared.available.notify_one();
        }
        for made in 0..new {
            if let Err(error) = self.spawn() {
                self.give_up_on(new - made, &error);
                break;
            }
        }
        if self.threads.is_empty() {
            self.run_here();
        }
    }

    fn spawn(&mut self) -> io::Result<()> {
        let shared = self.shared.clone();
        let _blocked = AllBlocked::new();
        let builder = std::thread::Builder::new().name("io".to_owned()).stack_size(STACK_BYTES);
        self.threads.push(builder.spawn(move || shared.work())?);
        Ok(())
    }

    /// Does without threads that the system refuses. Those there are take over.
    fn give_up_on(&mut self, threads: usize, error: &io::Error) {
        lock(&self.shared.queue).coming -= threads;
        self.threads_max = self.threads.len();
        if !mem::replace(&mut self.was_refused, true) {
            let count = self.threads.len();
            tracing::warn!("no more than {count} threads for transfers: {error}; raise `ulimit -u`, or transfers wait");
        }
    }

    /// Without any thread: carries the jobs out on the executor's.
    fn run_here(&self) {
        loop {
            let job = lock(&self.shared.queue).jobs.pop_front();
            let Some(job) = job else { return };
            // SAFETY: as in `Shared::work`.
            let result = unsafe { job.perform() };
            lock(&self.shared.ended).push((job, result));
            self.shared.has_ended.store(true, Ordering::SeqCst);
        }
    }

    /// Takes a job back that no thread has begun.
    pub(super) fn take_back(&mut self, index: u64) -> Option<Job> {
        let mut queue = lock(&self.shared.queue);
        let at = queue.jobs.iter().position(|job| job.index == index)?;
        queue.jobs.remove(at)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Relaxed)
    }

    /// Adds the results since the last call.
    pub(super) fn collect(&mut self, into: &mut Vec<Ended>) {
        if self.has_ended() {
            // Before the results are taken, so that a later one is seen by the next call.
            self.shared.has_ended.store(false, Ordering::SeqCst);
            into.append(&mut lock(&self.shared.ended));
        }
    }

    /// Whether the executor may wait. If so, the next result rings the bell, until [`Pool::is_awake`].
    pub(super) fn may_wait(&self) -> bool {
        // Both sides store before they load, so one of them sees the other.
        self.shared.is_awaited.store(true, Ordering::SeqCst);
        let may = !self.shared.has_ended.load(Ordering::SeqCst);
        if !may {
            self.is_awake();
        }
        may
    }

    pub(super) fn is_awake(&self) {
        self.shared.is_awaited.store(false, Ordering::SeqCst);
    }

    /// Ends the threads. None of them may have a job.
    pub(super) fn end(&mut self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.available.notify_all();
        for thread in self.threads.drain(..) {
            // A thread runs nothing that panics.
            let _ = thread.join();
        }
        self.threads_max = 0;
    }
}

impl Shared {
    /// A thread of the pool.
    fn work(&self) {
        let mut queue = lock(&self.queue);
        queue.coming -= 1;
        loop {
            while let Some(job) = queue.jobs.pop_front() {
                let left = queue.jobs.len().saturating_sub(queue.coming);
                let wakes = (0..left.min(WOKEN_BY_ONE)).filter(|_| queue.wake_one()).count();
                drop(queue);
                (0..wakes).for_each(|_| self.available.notify_one());
                // SAFETY: the job's memory and descriptor are kept until its result is reaped.
                let result = unsafe { job.perform() };
                self.end(job, result);
                queue = lock(&self.queue);
            }
            if queue.is_closed {
                return;
            }
            queue.idle += 1;
            while queue.tokens == 0 && !queue.is_closed {
                queue = self.available.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.tokens > 0 {
                queue.tokens -= 1;
                queue.coming -= 1;
            }
        }
    }

    fn end(&self, job: Job, result: i32) {
        lock(&self.ended).push((job, result));
        self.has_ended.store(true, Ordering::SeqCst);
        if self.is_awaited.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }
}
