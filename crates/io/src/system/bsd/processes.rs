//! The end of another process, by kqueue. It never signals one. Source: kqueue(2), `EVFILT_PROC`.

use rustix::event::Timespec;
use rustix::event::kqueue::{Event, EventFilter, EventFlags, ProcessEvents, kevent_timespec, kqueue};
use rustix::process::Pid;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// Waits until the process has ended, for at most `patience`. `false` if it does not end.
pub(crate) fn wait_for_end(process: Pid, patience: Duration) -> bool {
    let Ok(queue) = kqueue() else { return false };
    let filter = EventFilter::Proc { pid: process, flags: ProcessEvents::EXIT };
    let wanted = [Event::new(filter, EventFlags::ADD, null_mut())];
    let mut one = [MaybeUninit::<Event>::uninit()];
    // SAFETY: no descriptor is added.
    if unsafe { kevent_timespec(&queue, &wanted, &mut one[..0], None) }.is_err() {
        return true; // there is no such process
    }
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        // SAFETY: the same.
        match unsafe { kevent_timespec(&queue, &[], &mut one, Some(&left)) } {
            Err(rustix::io::Errno::INTR) => {}
            ended => return ended.is_ok_and(|(events, _)| !events.is_empty()),
        }
    }
}
