//! The status of an open file, by fstat(2). It reads no data.

use crate::system::wide;
use std::os::fd::AsFd;

/// The status of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    /// Its length; 0 for a disk.
    pub(crate) bytes: u64,
    /// Its names.
    pub(crate) links: u64,
    /// The unit in which its file system writes.
    pub(crate) block_bytes: u64,
}

/// The status, as the file system knows it.
pub(crate) fn status(fd: impl AsFd) -> rustix::io::Result<Status> {
    let status = rustix::fs::fstat(fd)?;
    Ok(Status { bytes: wide(status.st_size), links: wide(status.st_nlink), block_bytes: wide(status.st_blksize) })
}

/// Length and names. It waits for a file system that hangs: no call here does without.
pub(crate) fn cached_status(fd: impl AsFd) -> rustix::io::Result<Status> {
    status(fd)
}
