//! Sockets, events and pipes that operations wait for.
//!
//! A descriptor joins at the first operation that would have to wait, and stays until it is closed. The system then
//! reports each change once, so a waiting operation costs no further system call. An operation that finds nothing is
//! tried again after each report for its direction.
//!
//! It never waits for a file on a disk, which is always ready. Source: the system's [`Poller`].

use super::call::{Job, attempt, bytes_asked, is_outgoing};
use crate::driver::{Completion, Wait};
use crate::operation::Call;
use crate::system::poller::{Poller, Report, Reports};
use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;

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
    poller: Poller,
    sources: HashMap<RawFd, Source>,
}

impl Readiness {
    /// Waits also end when the bell of this descriptor rings.
    pub(super) fn new(bell: RawFd) -> io::Result<Self> {
        Ok(Self { poller: Poller::new(bell)?, sources: HashMap::new() })
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
        match self.poller.add(fd) {
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
        let mut reports = Reports::new();
        for report in self.poller.wait(wait, &mut reports) {
            self.take_report(&report, finished);
        }
    }

    fn take_report(&mut self, report: &Report, finished: &mut Vec<Completion>) {
        let Some(source) = self.sources.get_mut(&report.fd) else { return };
        source.is_ended |= report.is_ended;
        source.is_filled |= source.is_ended || report.is_filled;
        source.has_room |= report.has_room;
        let mut waiting = std::mem::take(&mut source.waiting);
        for job in waiting.drain(..) {
            // SAFETY: as when the job was started: what waits has not been reaped.
            unsafe { self.start(job, finished) };
        }
        // The vector is kept for its capacity.
        if let Some(source) = self.sources.get_mut(&report.fd)
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
            self.poller.remove(fd);
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
