//! Locks of byte ranges that belong to open files, and the process that holds a lock. Nothing here waits, or reads what a
//! file holds. Sources: fcntl(2) for `F_OFD_SETLK`, proc(5) for `/proc/locks`.

use crate::file::lock::{Lock, Taken};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Maximum time to wait for the kernel to release a member whose process has ended. The kernel closes an io_uring, and
/// its files, some time after that.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether another open file holds a byte-range lock in `range`, as qemu does for an image in use.
pub(crate) fn others_lock(fd: &OwnedFd, bytes: &Range<u64>) -> io::Result<bool> {
    let mut range = span(bytes, Lock::Exclusive);
    // SAFETY: the descriptor is open, and the call gets a pointer to a flock of ours that is valid while it runs.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) } {
        0 => Ok(range.l_type != libc::F_UNLCK as libc::c_short),
        _ => missing_means(false),
    }
}

/// The result of a call for byte-range locks that failed: `otherwise` where the kernel has no such locks of open files
/// (before Linux 3.15), which then no other program has either.
fn missing_means<T>(otherwise: T) -> io::Result<T> {
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EINVAL) => Ok(otherwise),
        error => Err(error),
    }
}

/// Locks a range for the open file.
pub(crate) fn take(fd: &OwnedFd, bytes: &Range<u64>, lock: Lock) -> io::Result<Taken> {
    let range = span(bytes, lock);
    // SAFETY: the descriptor is open, and the call gets a pointer to a flock of ours that is valid while it runs.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } {
        0 => Ok(Taken::Yes),
        _ => match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(Taken::Held),
            // The descriptor is read-only.
            Some(libc::EBADF) => Ok(Taken::Impossible),
            _ => missing_means(Taken::Yes),
        },
    }
}

/// Gives up every lock of the open file. Other descriptors of it may stay open: in a ring, or in a child that was forked
/// and has not yet started its program.
pub(crate) fn release(fd: &OwnedFd) {
    // Without a lock the calls fail, which does no harm.
    let _ = rustix::fs::flock(fd, rustix::fs::FlockOperation::Unlock);
    let mut range = whole(Lock::None);
    range.l_type = libc::F_UNLCK as libc::c_short;
    // SAFETY: the descriptor is open, and the call gets a pointer to a flock of ours that is valid while it runs.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
}

/// A byte-range lock of `bytes`.
fn span(bytes: &Range<u64>, lock: Lock) -> libc::flock {
    let mut range = whole(lock);
    // A range beyond the largest offset extends to the end of the file, written as length 0.
    range.l_start = libc::off_t::try_from(bytes.start).unwrap_or(libc::off_t::MAX);
    range.l_len = libc::off_t::try_from(bytes.end.saturating_sub(bytes.start)).unwrap_or(0);
    range
}

/// A byte-range lock of a whole file.
fn whole(lock: Lock) -> libc::flock {
    // SAFETY: a flock is plain data, of which zeros are a valid value: the whole file, from its start.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    let kind = if lock == Lock::Exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    range.l_type = kind as libc::c_short;
    range
}

/// Whether the process does not exist any more, or is a zombie.
pub(crate) fn has_ended(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

/// The name of the process's program.
pub(crate) fn program(pid: u32) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

/// The process that locked the file, as far as `/proc/locks` tells.
pub(crate) fn holder(fd: &OwnedFd) -> Option<u32> {
    let status = rustix::fs::fstat(fd).ok()?;
    holder_of(rustix::fs::major(status.st_dev), rustix::fs::minor(status.st_dev), status.st_ino)
}

/// The same, by device and inode, for a file that is not open.
pub(crate) fn holder_of(major: u32, minor: u32, inode: u64) -> Option<u32> {
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, &format!("{major:02x}:{minor:02x}:{inode}"))
}

/// Lines look like `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`. A process that waits for the lock has `->` behind
/// the number.
fn holder_in(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, _, pid, of, ..] if of == file => pid.parse().ok().filter(|pid| *pid != 0),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_process_that_has_the_lock_and_not_one_that_waits() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:5 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:00:5 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 33 fe:00:6 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 0 fe:00:7 0 EOF\n\
                     4: garbage\n\n";
        assert!(!has_ended(std::process::id()));
        assert!(has_ended(u32::MAX), "beyond any process number");
        for (file, pid) in [("fe:00:5", Some(22)), ("fe:00:6", None), ("fe:00:7", None), ("fe:00:55", None)] {
            assert_eq!(holder_in(locks, file), pid, "{file}");
        }
    }
}
