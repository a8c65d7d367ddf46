//! The signals that ask to stop as something to read: a kqueue of their own, which reports blocked signals too. No handler is
//! installed. Source: kqueue(2), `EVFILT_SIGNAL`.

use crate::signal::Signal;
use rustix::event::Timespec;
use rustix::event::kqueue::{Event, EventFilter, EventFlags, kevent_timespec, kqueue};
use rustix::io::FdFlags;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::null_mut;

/// Blocks these signals for the calling thread, and makes them readable.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let queue = kqueue()?;
    rustix::io::fcntl_setfd(&queue, FdFlags::CLOEXEC)?;
    let named = crate::signal::asking().filter_map(rustix::process::Signal::from_named_raw);
    let wanted: Vec<Event> = named
        .map(|signal| {
            Event::new(EventFilter::Signal { signal, times: 0 }, EventFlags::ADD | EventFlags::CLEAR, null_mut())
        })
        .collect();
    let mut none: [MaybeUninit<Event>; 0] = [];
    // SAFETY: no descriptor is added.
    unsafe { kevent_timespec(&queue, &wanted, &mut none, None)? };
    crate::signal::block()?;
    Ok(queue)
}

/// Takes a signal that has arrived; `None` if none has.
pub(crate) fn take(from: BorrowedFd<'_>) -> io::Result<Option<Signal>> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut one = [MaybeUninit::<Event>::uninit()];
    // SAFETY: no descriptor is added.
    let taken = rustix::io::retry_on_intr(|| {
        unsafe { kevent_timespec(from, &[], &mut one, Some(&at_once)) }
            .map(|(events, _)| events.first().map(Event::filter))
    })?;
    Ok(taken.map(|filter| match filter {
        EventFilter::Signal { signal, .. } => Signal::of(signal.as_raw()),
        _ => Signal::Terminate,
    }))
}
