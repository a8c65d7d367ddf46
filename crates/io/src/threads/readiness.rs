//! Sockets, events and pipes that operations wait for, by epoll.
//!
//! A descriptor joins at the first operation that would have to wait, and stays until it is closed. epoll then reports
//! each change once (`EPOLLET`), so a waiting operation costs no further system call. An operation that finds nothing is
//! tried again after each report for its direction.
//!
//! It never waits for a file on a disk, which is always ready. Source: epoll(7).

use super::call::{Job, attempt, bytes_asked, is_outgoing};
use crate::driver::{Completion, Wait};
use crate::operation::Call;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Reports taken from the kernel at a time.
const REPORTS_MAX: usize = 64;

/// epoll's own timeout is a whole number of milliseconds. Shorter waits than this go through ppoll(2).
const EXACT_BELOW: Duration = Duration::from_millis(20);

/// What is known of a descriptor.
#[derive(Default)]
struct Source {
    /// Whether something may have arrived since the last operation that found nothing; the same for room to send.
    is_filled: bool,
    has_room: bool,
    /// The peer has closed, which is reported once: there may be an end to read after all data.
    is_ended: bool,
    waiting: Vec<Job>,
}

pub(super) struct Readiness {
    epoll: OwnedFd,
    sources: HashMap<RawFd, Source>,
}

impl Readiness {
    /// Waits also end when `event` is signalled.
    pub(super) fn new(event: RawFd) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let readiness = Self { epoll, sources: HashMap::new() };
        readiness.join(event)?;
        Ok(readiness)
    }

    fn join(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: an open descriptor of the caller's.
        let source = unsafe { BorrowedFd::borrow_raw(fd) };
        let all = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(fd as u64), all)?)
    }

    /// Carries out an operation, or keeps it until that is possible.
    ///
    /// # Safety
    /// The job's addresses and descriptor are valid until its completion is reaped.
    pub(super) unsafe fn start(&mut self, job: Job, finished: &mut Vec<Completion>) {
        if let Some(source) = self.sources.get(&job.fd)
            && !may_succeed(source, job.call)
        {
            self.keep(job);
            return;
        }
        // SAFETY: promised by the caller.
        match unsafe { attempt(job.fd, job.call) } {
            Some(result) => {
                self.note_result(&job, result);
                finished.push((job.index, result));
            }
            None => match self.sources.contains_key(&job.fd) || self.add(job.fd) == 0 {
                true => {
                    self.note_nothing(&job);
                    self.keep(job);
                }
                // The kernel cannot wait for such a file.
                false => finished.push((job.index, -libc::EOPNOTSUPP)),
            },
        }
    }

    /// Returns the error number, or 0.
    fn add(&mut self, fd: RawFd) -> i32 {
        match self.join(fd) {
            Ok(()) => {
                self.sources.insert(fd, Source { is_filled: true, has_room: true, ..Source::default() });
                0
            }
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    fn keep(&mut self, job: Job) {
        self.sources.entry(job.fd).or_default().waiting.push(job);
    }

    /// After a transfer that was shorter than asked for, the next one would find nothing, until a report.
    fn note_result(&mut self, job: &Job, result: i32) {
        // SAFETY: the job has not been reaped.
        let is_short = result > 0 && (result as usize) < unsafe { bytes_asked(job.call) };
        if is_short && self.sources.get(&job.fd).is_some_and(|source| !source.is_ended) {
            self.note_nothing(job);
        }
    }

    fn note_nothing(&mut self, job: &Job) {
        let Some(source) = self.sources.get_mut(&job.fd) else { return };
        if is_outgoing(job.call) {
            source.has_room = false;
        } else {
            source.is_filled = false;
        }
    }

    /// Waits for reports, and carries out what they make possible.
    pub(super) fn wait(&mut self, wait: Wait, finished: &mut Vec<Completion>) {
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; REPORTS_MAX];
        let timeout = match wait {
            Wait::No => Some(Duration::ZERO),
            Wait::Forever => None,
            Wait::For(time) if time < EXACT_BELOW => {
                self.wait_exactly(time);
                Some(Duration::ZERO)
            }
            Wait::For(time) => Some(time),
        };
        let timeout = timeout.map(in_whole_millis);
        // Interrupted by a signal: the executor's loop repeats.
        let Ok((reports, _)) = epoll::wait(&self.epoll, &mut events, timeout.as_ref()) else { return };
        for report in reports {
            let (fd, flags) = (report.data.u64() as RawFd, report.flags);
            self.take_report(fd, flags, finished);
        }
    }

    fn wait_exactly(&self, time: Duration) {
        let mut one = [rustix::event::PollFd::new(&self.epoll, rustix::event::PollFlags::IN)];
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        // Interrupted by a signal: the executor's loop repeats.
        let _ = rustix::event::poll(&mut one, Some(&time));
    }

    fn take_report(&mut self, fd: RawFd, flags: EventFlags, finished: &mut Vec<Completion>) {
        let Some(source) = self.sources.get_mut(&fd) else { return };
        let closed = EventFlags::ERR | EventFlags::HUP;
        source.is_ended |= flags.intersects(EventFlags::RDHUP | closed);
        source.is_filled |= source.is_ended || flags.contains(EventFlags::IN);
        source.has_room |= flags.intersects(EventFlags::OUT | closed);
        let mut waiting = std::mem::take(&mut source.waiting);
        for job in waiting.drain(..) {
            // SAFETY: as when the job was started: what waits has not been reaped.
            unsafe { self.start(job, finished) };
        }
        // The vector is kept for its capacity.
        if let Some(source) = self.sources.get_mut(&fd)
            && source.waiting.is_empty()
        {
            source.waiting = waiting;
        }
    }

    /// Takes an operation back that waits.
    pub(super) fn take_back(&mut self, index: u64) -> Option<Job> {
        self.sources.values_mut().find_map(|source| {
            let at = source.waiting.iter().position(|job| job.index == index)?;
            Some(source.waiting.remove(at))
        })
    }

    /// Forgets a descriptor that is about to be closed.
    pub(super) fn release(&mut self, fd: RawFd) {
        if self.sources.remove(&fd).is_some() {
            // SAFETY: still open, as the caller is about to close it.
            let source = unsafe { BorrowedFd::borrow_raw(fd) };
            // It can only fail for a descriptor that is not there.
            let _ = epoll::delete(&self.epoll, source);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

/// Whether an attempt may find something.
fn may_succeed(source: &Source, call: Call) -> bool {
    match call {
        // Other code may have read meanwhile, or have left something there.
        Call::AwaitReadable | Call::WriteStream { .. } => true,
        call if is_outgoing(call) => source.has_room,
        _ => source.is_filled,
    }
}

fn in_whole_millis(time: Duration) -> Timespec {
    let millis = time.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
    Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
}
