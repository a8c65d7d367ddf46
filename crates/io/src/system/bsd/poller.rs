//! Which descriptors are ready: kqueue, edge-triggered. It keeps nothing about them. Source: kqueue(2).

use crate::driver::Wait;
use rustix::event::Timespec;
use rustix::event::kqueue::{Event, EventFilter, EventFlags, kevent_timespec, kqueue};
use rustix::io::FdFlags;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::time::Duration;

/// Reports taken from the kernel at a time.
const REPORTS_MAX: usize = 64;

/// The longest wait asked for at once, as macOS refuses very long ones. The executor's loop repeats.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What has changed about a descriptor.
pub(crate) struct Report {
    pub(crate) fd: RawFd,
    /// There is something to read.
    pub(crate) is_filled: bool,
    /// There is room to send.
    pub(crate) has_room: bool,
    /// The peer has closed.
    pub(crate) is_ended: bool,
}

pub(crate) struct Poller {
    queue: OwnedFd,
    bell: RawFd,
}

/// Where the kernel puts its reports.
pub(crate) struct Reports([MaybeUninit<Event>; REPORTS_MAX]);

impl Reports {
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; REPORTS_MAX])
    }
}

impl Poller {
    /// Waits also end when the bell of this descriptor rings.
    pub(crate) fn new(bell: RawFd) -> io::Result<Self> {
        let queue = kqueue()?;
        rustix::io::fcntl_setfd(&queue, FdFlags::CLOEXEC)?;
        let poller = Self { queue, bell };
        poller.change(EventFilter::Read(bell), EventFlags::ADD | EventFlags::CLEAR)?;
        Ok(poller)
    }

    /// Reports each change of the descriptor from now on. Some can only be read.
    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        let flags = EventFlags::ADD | EventFlags::CLEAR;
        self.change(EventFilter::Read(fd), flags)?;
        let _ = self.change(EventFilter::Write(fd), flags);
        Ok(())
    }

    /// Forgets a descriptor that is about to be closed.
    pub(crate) fn remove(&self, fd: RawFd) {
        // They can only fail for what is not there.
        let _ = self.change(EventFilter::Read(fd), EventFlags::DELETE);
        let _ = self.change(EventFilter::Write(fd), EventFlags::DELETE);
    }

    fn change(&self, filter: EventFilter, flags: EventFlags) -> rustix::io::Result<()> {
        let change = [Event::new(filter, flags, null_mut())];
        let mut none: [MaybeUninit<Event>; 0] = [];
        // SAFETY: the descriptor in the filter is an open one of the caller's.
        unsafe { kevent_timespec(&self.queue, &change, &mut none, None) }.map(drop)
    }

    /// Waits for reports.
    pub(crate) fn wait<'a>(&self, wait: Wait, into: &'a mut Reports) -> impl Iterator<Item = Report> + use<'a> {
        let timeout = match wait {
            Wait::No => Some(Duration::ZERO),
            Wait::Forever => None,
            Wait::For(time) => Some(time.min(LONGEST)),
        };
        let timeout =
            timeout.map(|time| Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() });
        // SAFETY: no descriptor is added.
        let reports = match unsafe { kevent_timespec(&self.queue, &[], &mut into.0, timeout.as_ref()) } {
            Ok((reports, _)) => reports,
            // Interrupted by a signal: the executor's loop repeats.
            Err(_) => &mut [],
        };
        let reports: &[Event] = reports;
        let bell = self.bell;
        reports.iter().filter_map(Report::of).filter(move |report| {
            if report.fd == bell {
                empty(bell);
            }
            report.fd != bell
        })
    }
}

impl Report {
    fn of(event: &Event) -> Option<Self> {
        let is_ended = event.flags().contains(EventFlags::EOF);
        match event.filter() {
            EventFilter::Read(fd) => Some(Self { fd, is_filled: true, has_room: false, is_ended }),
            EventFilter::Write(fd) => Some(Self { fd, is_filled: false, has_room: true, is_ended }),
            _ => None,
        }
    }
}

/// Reads a bell's pipe empty, so that it has room for the next ring.
fn empty(bell: RawFd) {
    // SAFETY: the bell lives as long as the poller, and its pipe does not block.
    let bell = unsafe { BorrowedFd::borrow_raw(bell) };
    let mut bytes = [0; 64];
    while rustix::io::read(bell, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
}
