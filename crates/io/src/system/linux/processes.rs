//! The end of another process, by a descriptor of it. It never signals one. Source: pidfd_open(2).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::time::{Duration, Instant};

/// Waits until the process has ended and closed its files, for at most `patience`. `false` if it does not end.
pub(crate) fn wait_for_end(process: Pid, patience: Duration) -> bool {
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return true };
    let deadline = Instant::now() + patience;
    let mut events = [PollFd::new(&process, PollFlags::IN)];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut events, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ended => return ended != Ok(0),
        }
    }
}
