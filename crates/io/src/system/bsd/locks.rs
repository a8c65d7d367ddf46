//! Byte ranges and holders of locks. Ranges of open files cannot be locked on FreeBSD (those of fcntl(2) belong to the
//! process, and end when it closes any descriptor of the file), so a member locks its whole file, on macOS too. A lock
//! of fcntl's that another program has on a part excludes that lock. Source: flock(2), fcntl(2).

use crate::file::lock::{Lock, Taken};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A process that has ended holds no lock any more.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::ZERO;

/// The lock of the whole file, which is taken next, finds locks of ranges.
pub(crate) fn others_lock(_: &OwnedFd, _: &Range<u64>) -> io::Result<bool> {
    Ok(false)
}

/// Readers share the lock of the whole file, which they take next. A writer needs it alone.
pub(crate) fn take(_: &OwnedFd, _: &Range<u64>, lock: Lock) -> io::Result<Taken> {
    Ok(if lock == Lock::Exclusive { Taken::Impossible } else { Taken::Yes })
}

/// Gives up the lock of the open file, of which other descriptors may stay open in a child. Without a lock the call fails,
/// which does no harm.
pub(crate) fn release(fd: &OwnedFd) {
    let _ = rustix::fs::flock(fd, rustix::fs::FlockOperation::Unlock);
}

/// The system does not tell which process holds a lock of flock(2).
pub(crate) fn holder(_: &OwnedFd) -> Option<u32> {
    None
}

/// Only a holder is asked for, and none is known.
pub(crate) fn has_ended(_pid: u32) -> bool {
    false
}

/// The same.
pub(crate) fn program(_pid: u32) -> Option<String> {
    None
}
