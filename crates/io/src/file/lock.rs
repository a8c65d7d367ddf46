//! Locks that exclude other users of a member.
//!
//! The lock is advisory and covers the whole file (flock(2)). It belongs to the open file, not to the process: a second
//! open in the same process is refused too, and the lock ends with the last descriptor, however a process ends. On
//! block devices, udev and systemd respect it. Against the kernel (md, mounts, swap), the caller also opens a block
//! device with `O_EXCL`. Programs that lock byte ranges instead (qemu) are detected, but do not detect this lock.
//! [`super::aliases`] excludes programs that reach the same bytes through another device. A lock never blocks for
//! longer than `EXIT_TIMEOUT`.

use super::OpenError;
use rustix::fs::FlockOperation;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Which other users may hold a member while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// None. Needed to write.
    Exclusive,
    /// Readers only. A block device has only one kind of claim, so it allows no other user at all.
    Shared,
    /// Any: to inspect a member that may be in use. Data read may be in the middle of a change.
    None,
}

pub(super) fn lock(path: &Path, fd: &OwnedFd, lock: Lock) -> Result<(), OpenError> {
    let operation = match lock {
        Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
        Lock::Shared => FlockOperation::NonBlockingLockShared,
        Lock::None => return Ok(()),
    };
    // Readers take a byte-range lock too, because a program that writes to part of the file through a device has one.
    let is_free = match lock {
        Lock::Exclusive => has_locked_ranges(fd, whole(Lock::Exclusive)).map(|others| !others),
        _ => set_range(fd, &BEHIND_QEMU, lock),
    };
    if !is_free.map_err(|source| OpenError::system(path, "lock", source))? {
        return Err(OpenError::Locked { path: path.to_owned(), holder: holder(fd) });
    }
    flock(path, fd, operation)
}

/// Bytes that every device's range of the file overlaps, and qemu's locks (bytes 100 to 203) do not.
const BEHIND_QEMU: Range<u64> = 512..u64::MAX;

/// The bytes of qemu's locks.
const QEMU: Range<u64> = 100..204;

/// Locks a part of a file, which is a member. Other parts may be locked by others, but not the whole file.
pub(super) fn lock_part(path: &Path, fd: &OwnedFd, range: Range<u64>, lock: Lock) -> Result<(), OpenError> {
    match lock {
        Lock::None => return Ok(()),
        Lock::Shared => {}
        Lock::Exclusive => {
            let of_qemu = has_locked_ranges(fd, span(&QEMU, Lock::Exclusive));
            if of_qemu.map_err(|source| OpenError::system(path, "lock", source))? && range.start >= QEMU.end {
                return Err(OpenError::Locked { path: path.to_owned(), holder: holder(fd) });
            }
        }
    }
    lock_range(path, fd, range, lock)
}

/// Locks the range of a file that a device stands on. Another device may lock another range of it, but no program may
/// lock all of it.
pub(super) fn lock_range(path: &Path, fd: &OwnedFd, range: Range<u64>, lock: Lock) -> Result<(), OpenError> {
    let failed = |source| OpenError::system(path, "lock", source);
    match set_range(fd, &range, lock) {
        Ok(true) => flock(path, fd, FlockOperation::NonBlockingLockShared),
        Ok(false) => Err(OpenError::Locked { path: path.to_owned(), holder: holder(fd) }),
        // The descriptor is read-only; then no other user may hold any part of the file.
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
            flock(path, fd, FlockOperation::NonBlockingLockExclusive)
        }
        Err(error) => Err(failed(error)),
    }
}

fn flock(path: &Path, fd: &OwnedFd, operation: FlockOperation) -> Result<(), OpenError> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        match rustix::fs::flock(fd, operation) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                // A holder that is not listed has just unlocked, or its process has already ended.
                let holder = holder(fd);
                let is_alive = holder.is_some_and(|pid| !has_ended(pid));
                if is_alive || Instant::now() >= deadline {
                    return Err(OpenError::Locked { path: path.to_owned(), holder });
                }
                std::thread::sleep(EXIT_INTERVAL);
            }
            Err(source) => return Err(OpenError::system(path, "lock", source)),
        }
    }
}

/// Whether another open file holds a byte-range lock in `range`, as qemu does for an image in use.
fn has_locked_ranges(fd: &OwnedFd, mut range: libc::flock) -> std::io::Result<bool> {
    // SAFETY: the descriptor is open, and the call gets a pointer to a flock of ours that is valid while it runs.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) } {
        0 => Ok(range.l_type != libc::F_UNLCK as libc::c_short),
        _ => missing_means(false),
    }
}

/// The result of a call for byte-range locks that failed: `otherwise` where the kernel has no such locks of open files
/// (before Linux 3.15), which then no other program has either.
fn missing_means(otherwise: bool) -> std::io::Result<bool> {
    match std::io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EINVAL) => Ok(otherwise),
        error => Err(error),
    }
}

/// Locks a range for the open file. Returns false when another open file holds a part of it.
fn set_range(fd: &OwnedFd, bytes: &Range<u64>, lock: Lock) -> std::io::Result<bool> {
    let range = span(bytes, lock);
    // SAFETY: the descriptor is open, and the call gets a pointer to a flock of ours that is valid while it runs.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) } {
        0 => Ok(true),
        _ => match std::io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            _ => missing_means(true),
        },
    }
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

/// Maximum time to wait for the kernel to release a member whose process has ended. The kernel closes an io_uring, and
/// its files, some time after that.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const EXIT_INTERVAL: Duration = Duration::from_millis(10);

/// Whether the process does not exist any more, or is a zombie.
fn has_ended(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

/// The words after "in use".
pub(super) fn by(holder: &Option<u32>) -> String {
    match holder {
        Some(pid) if *pid == std::process::id() => " by this very process; is it given twice?".to_owned(),
        Some(pid) => match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!(" by process {pid} ({})", name.trim_end()),
            Err(_) => format!(" by process {pid}"),
        },
        None => " by another process".to_owned(),
    }
}

/// The process that locked the file, as far as `/proc/locks` tells.
fn holder(fd: &OwnedFd) -> Option<u32> {
    let status = rustix::fs::fstat(fd).ok()?;
    holder_of(rustix::fs::major(status.st_dev), rustix::fs::minor(status.st_dev), status.st_ino)
}

/// The same, by device and inode, for a file that is not open.
pub(super) fn holder_of(major: u32, minor: u32, inode: u64) -> Option<u32> {
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
