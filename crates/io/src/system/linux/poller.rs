//! Which descriptors are ready: epoll, edge-triggered. It keeps nothing about them. Source: epoll(7).

use crate::driver::Wait;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Reports taken from the kernel at a time.
const REPORTS_MAX: usize = 64;

/// epoll's own timeout is a whole number of milliseconds. Shorter waits than this go through ppoll(2).
const EXACT_BELOW: Duration = Duration::from_millis(20);

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

pub(crate) struct Poller(OwnedFd);

/// Where the kernel puts its reports.
pub(crate) struct Reports([MaybeUninit<epoll::Event>; REPORTS_MAX]);

impl Reports {
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; REPORTS_MAX])
    }
}

impl Poller {
    /// Waits also end when the bell of this descriptor rings.
    pub(crate) fn new(bell: RawFd) -> io::Result<Self> {
        let poller = Self(epoll::create(CreateFlags::CLOEXEC)?);
        poller.add(bell)?;
        Ok(poller)
    }

    /// Reports each change of the descriptor from now on.
    pub(crate) fn add(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: an open descriptor of the caller's.
        let source = unsafe { BorrowedFd::borrow_raw(fd) };
        let all = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.0, source, EventData::new_u64(fd as u64), all)?)
    }

    /// Forgets a descriptor that is about to be closed.
    pub(crate) fn remove(&self, fd: RawFd) {
        // SAFETY: still open, as the caller is about to close it.
        let source = unsafe { BorrowedFd::borrow_raw(fd) };
        // It can only fail for a descriptor that is not there.
        let _ = epoll::delete(&self.0, source);
    }

    /// Waits for reports.
    pub(crate) fn wait<'a>(&self, wait: Wait, into: &'a mut Reports) -> impl Iterator<Item = Report> + use<'a> {
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
        let reports = match epoll::wait(&self.0, &mut into.0, timeout.as_ref()) {
            Ok((reports, _)) => reports,
            Err(_) => &mut [],
        };
        reports.iter().map(|report| Report::of(report.data.u64() as RawFd, report.flags))
    }

    fn wait_exactly(&self, time: Duration) {
        let mut one = [rustix::event::PollFd::new(&self.0, rustix::event::PollFlags::IN)];
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        // Interrupted by a signal: the executor's loop repeats.
        let _ = rustix::event::poll(&mut one, Some(&time));
    }
}

impl Report {
    fn of(fd: RawFd, flags: EventFlags) -> Self {
        let closed = EventFlags::ERR | EventFlags::HUP;
        Self {
            fd,
            is_filled: flags.contains(EventFlags::IN),
            has_room: flags.intersects(EventFlags::OUT | closed),
            is_ended: flags.intersects(EventFlags::RDHUP | closed),
        }
    }
}

fn in_whole_millis(time: Duration) -> Timespec {
    let millis = time.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
    Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 }
}
