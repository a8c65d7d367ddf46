//! Files and disks for programs that look at them without an executor: calls that block. None of them changes a byte,
//! except [`punch_hole`]. Source: what the system says of its disks.

use crate::operation::Clear;
use crate::system::{calls, disk};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

/// Whether a disk, or a part of one, is at `path`: a block device, or what another system than Linux has in its place.
pub fn is_disk(path: &Path) -> bool {
    let kind = |status: rustix::fs::Stat| FileType::from_raw_mode(status.st_mode);
    if !rustix::fs::stat(path).is_ok_and(|status| disk::may_be_disk(kind(status))) {
        return false;
    }
    disk::TYPE_TELLS
        || rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
            .is_ok_and(|opened| disk::is_disk(&opened))
}

/// The major and the minor number of the block device at `path`.
pub fn device_numbers(path: &Path) -> Option<(u32, u32)> {
    let status = rustix::fs::stat(path).ok()?;
    let is_device = FileType::from_raw_mode(status.st_mode) == FileType::BlockDevice;
    is_device.then(|| (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev)))
}

/// The length of an open file or disk. It may move the descriptor's position.
///
/// # Errors
/// When it has no length, or the system does not tell.
pub fn length(file: &File) -> io::Result<u64> {
    disk::length(file)
}

/// Reads bytes of a file or disk, at any position.
///
/// # Errors
/// When they cannot be read, or the file or disk ends before.
pub fn read_exact_at(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    disk::read_exact_at(file, into, at)
}

/// Puts the data of a file or disk on stable storage.
///
/// # Errors
/// When the system cannot promise that.
pub fn sync_data(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open during the call.
    outcome(unsafe { calls::sync_data(file.as_raw_fd()) })
}

/// Makes a range of a file zeros that take no space. The file's length stays.
///
/// # Errors
/// When the system or the file system cannot; nothing was changed then.
pub fn punch_hole(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: the descriptor is open during the call.
    outcome(unsafe { calls::clear(file.as_raw_fd(), Clear::Hole, at, bytes) })
}

/// The outcome that a system call's result says.
fn outcome(result: i32) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Allocates space for a range of a file, whose bytes and length stay. False if the system or the file system cannot.
///
/// # Errors
/// When there is no such space.
pub fn reserve(file: &File, at: u64, bytes: u64) -> io::Result<bool> {
    disk::reserve(file, at, bytes)
}

/// Waits until a process has ended and closed its files, for at most `patience`. `false` if it does not end. A process
/// that does not exist has ended.
pub fn wait_for_end(process: rustix::process::Pid, patience: Duration) -> bool {
    crate::system::processes::wait_for_end(process, patience)
}
