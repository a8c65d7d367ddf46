//! System calls on files and sockets. Results are those of [`crate::system::repeat`]. Nothing here decides whether a call
//! may block. Sources: the man pages of the calls.

use super::own;
use crate::operation::Clear;
use crate::system::repeat;
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::net::sockopt;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

pub(crate) use own::sync_data;

/// No SIGPIPE.
pub(crate) const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL;

/// # Safety
/// The address is valid for so many bytes, and the descriptor is open.
pub(crate) unsafe fn read_at(fd: RawFd, address: *mut u8, bytes: usize, at: u64) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::pread(fd, address.cast(), bytes, at.cast_signed()) })
}

/// # Safety
/// As of [`read_at`].
pub(crate) unsafe fn write_at(fd: RawFd, address: *const u8, bytes: usize, at: u64) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::pwrite(fd, address.cast(), bytes, at.cast_signed()) })
}

/// # Safety
/// The vectors are valid, and the descriptor is open.
pub(crate) unsafe fn read_vectored_at(fd: RawFd, vectors: *const libc::iovec, count: u32, at: u64) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::preadv(fd, vectors, count.cast_signed(), at.cast_signed()) })
}

/// # Safety
/// As of [`read_vectored_at`].
pub(crate) unsafe fn write_vectored_at(fd: RawFd, vectors: *const libc::iovec, count: u32, at: u64) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::pwritev(fd, vectors, count.cast_signed(), at.cast_signed()) })
}

/// Makes a range of a file a hole, where the system can; zeros that keep their space are written by the caller.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn clear(fd: RawFd, how: Clear, at: u64, bytes: u64) -> i32 {
    match how {
        Clear::Zeros => -libc::EOPNOTSUPP,
        // SAFETY: promised by the caller.
        Clear::Hole => unsafe { own::punch_hole(fd, at, bytes) },
    }
}

/// No call here reads only what is in memory.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn read_without_waiting(
    _: RawFd,
    _vectors: *const libc::iovec,
    _count: u32,
    _at: u64,
) -> Result<i32, i32> {
    Err(libc::EOPNOTSUPP)
}

/// Accepts a connection, whose descriptor child processes do not get, and which waits and sends no SIGPIPE.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn accept(fd: RawFd) -> i32 {
    // SAFETY: promised by the caller; no addresses but null.
    let accepted = repeat(|| unsafe { libc::accept(fd, null_mut(), null_mut()) as isize });
    if accepted < 0 {
        return accepted;
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let connection = unsafe { OwnedFd::from_raw_fd(accepted) };
    match prepare(&connection) {
        Ok(()) => connection.into_raw_fd(),
        Err(error) => -error.raw_os_error(),
    }
}

/// A connection has its listener's flags, which may say that it does not wait.
fn prepare(connection: &OwnedFd) -> rustix::io::Result<()> {
    rustix::io::fcntl_setfd(connection, FdFlags::CLOEXEC)?;
    let flags = rustix::fs::fcntl_getfl(connection)?;
    rustix::fs::fcntl_setfl(connection, flags.difference(OFlags::NONBLOCK))?;
    // Refused only where the peer has closed already.
    let _ = sockopt::set_socket_nosigpipe(connection, true);
    Ok(())
}
