//! Locks that exclude other users of a member.
//!
//! The lock is advisory and covers the whole file (flock(2)). It belongs to the open file, not to the process: a second
//! open in the same process is refused too, and the lock ends with the last descriptor, however a process ends. On
//! block devices, udev and systemd respect it. Against the kernel (md, mounts, swap), the caller also opens a block
//! device with `O_EXCL`. Programs that lock byte ranges instead (qemu) are detected, but do not detect this lock.
//! The system's `aliases` exclude programs that reach the same bytes through another device. A lock never blocks for
//! longer than the system's `EXIT_TIMEOUT`.
//!
//! Where no byte ranges of open files can be locked, a part of a file takes the lock of the whole file.

use super::OpenError;
use crate::system::locks::{self, EXIT_TIMEOUT, has_ended, holder};
use rustix::fs::FlockOperation;
use std::ops::Range;
use std::os::fd::OwnedFd;
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

pub(crate) fn lock(path: &Path, fd: &OwnedFd, lock: Lock) -> Result<(), OpenError> {
    let operation = match lock {
        Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
        Lock::Shared => FlockOperation::NonBlockingLockShared,
        Lock::None => return Ok(()),
    };
    // Readers take a byte-range lock too, because a program that writes to part of the file through a device has one.
    let is_free = match lock {
        Lock::Exclusive => locks::others_lock(fd, &WHOLE).map(|others| !others),
        _ => locks::take(fd, &BEHIND_QEMU, lock).map(|taken| taken != Taken::Held),
    };
    if !is_free.map_err(|source| OpenError::system(path, "lock", source))? {
        return Err(OpenError::Locked { path: path.to_owned(), holder: holder(fd) });
    }
    flock(path, fd, operation)
}

/// Whether a range of a file could be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// Another open file holds a part of it.
    Held,
    /// The system, or the descriptor, has no such locks.
    Impossible,
}

const WHOLE: Range<u64> = 0..u64::MAX;

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
            let of_qemu = locks::others_lock(fd, &QEMU);
            if of_qemu.map_err(|source| OpenError::system(path, "lock", source))? && range.start >= QEMU.end {
                return Err(OpenError::Locked { path: path.to_owned(), holder: holder(fd) });
            }
        }
    }
    lock_range(path, fd, range, lock)
}

/// Locks the range of a file that a device stands on. Another device may lock another range of it, but no program may
/// lock all of it.
pub(crate) fn lock_range(path: &Path, fd: &OwnedFd, range: Range<u64>, lock: Lock) -> Result<(), OpenError> {
    match locks::take(fd, &range, lock).map_err(|source| OpenError::system(path, "lock", source))? {
        Taken::Yes => flock(path, fd, FlockOperation::NonBlockingLockShared),
        Taken::Held => Err(OpenError::Locked { path: path.to_owned(), holder: holder(fd) }),
        // Then no other user may hold any part of the file.
        Taken::Impossible => flock(path, fd, FlockOperation::NonBlockingLockExclusive),
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

const EXIT_INTERVAL: Duration = Duration::from_millis(10);

/// The words after "in use".
pub(super) fn by(holder: &Option<u32>) -> String {
    match holder {
        Some(pid) if *pid == std::process::id() => " by this very process; is it given twice?".to_owned(),
        Some(pid) => match locks::program(*pid) {
            Some(name) => format!(" by process {pid} ({name})"),
            None => format!(" by process {pid}"),
        },
        None => " by another process".to_owned(),
    }
}
