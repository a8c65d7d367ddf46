//! System calls on files and sockets, as Linux has them. Results are those of [`crate::system::repeat`]. Nothing here
//! decides whether a call may block. Sources: the man pages of the calls; preadv2(2) for `RWF_NOWAIT`.

use crate::operation::Clear;
use crate::system::repeat;
use std::os::fd::RawFd;
use std::ptr::null_mut;

/// No SIGPIPE; the kernel continues after a partial transfer.
pub(crate) const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

/// # Safety
/// The address is valid for so many bytes, and the descriptor is open.
pub(crate) unsafe fn read_at(fd: RawFd, address: *mut u8, bytes: usize, at: u64) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::pread64(fd, address.cast(), bytes, at.cast_signed()) })
}

/// # Safety
/// As of [`read_at`].
pub(crate) unsafe fn write_at(fd: RawFd, address: *const u8, bytes: usize, at: u64) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::pwrite64(fd, address.cast(), bytes, at.cast_signed()) })
}

/// # Safety
/// The vectors are valid, and the descriptor is open.
pub(crate) unsafe fn read_vectored_at(fd: RawFd, vectors: *const libc::iovec, count: u32, at: u64) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::preadv64(fd, vectors, count.cast_signed(), at.cast_signed()) })
}

/// # Safety
/// As of [`read_vectored_at`].
pub(crate) unsafe fn write_vectored_at(fd: RawFd, vectors: *const libc::iovec, count: u32, at: u64) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::pwritev64(fd, vectors, count.cast_signed(), at.cast_signed()) })
}

/// Puts data, and the metadata needed to read it, on stable storage.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn sync_data(fd: RawFd) -> i32 {
    // SAFETY: promised by the caller.
    repeat(|| unsafe { libc::fdatasync(fd) as isize })
}

/// The mode of fallocate(2).
pub(crate) fn mode_of(how: Clear) -> i32 {
    let mode = match how {
        Clear::Zeros => libc::FALLOC_FL_ZERO_RANGE,
        Clear::Hole => libc::FALLOC_FL_PUNCH_HOLE,
    };
    mode | libc::FALLOC_FL_KEEP_SIZE
}

/// Makes a range of a file zeros, or a hole.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn clear(fd: RawFd, how: Clear, at: u64, bytes: u64) -> i32 {
    // SAFETY: promised by the caller.
    match repeat(|| unsafe { libc::fallocate64(fd, mode_of(how), at.cast_signed(), bytes.cast_signed()) as isize }) {
        // A kernel or file system without it.
        refused if refused == -libc::ENOSYS => -libc::EOPNOTSUPP,
        result => result,
    }
}

/// Reads only what is in memory (`RWF_NOWAIT`). The error is `EAGAIN` when the read would wait, and `EOPNOTSUPP` or
/// `ENOSYS` when the file or the kernel cannot tell. A position of `u64::MAX` is that of a stream.
///
/// # Safety
/// The vectors are valid, and the descriptor is open.
pub(crate) unsafe fn read_without_waiting(
    fd: RawFd,
    vectors: *const libc::iovec,
    count: u32,
    at: u64,
) -> Result<i32, i32> {
    // SAFETY: promised by the caller. The call's number and the order of its arguments are those of 64-bit systems, on
    // which the position is one argument and the next is not used.
    let result =
        unsafe { repeat(|| libc::syscall(libc::SYS_preadv2, fd, vectors, count, at, 0, libc::RWF_NOWAIT) as isize) };
    if result < 0 { Err(-result) } else { Ok(result) }
}

/// Accepts a connection, whose descriptor child processes do not get.
///
/// # Safety
/// The descriptor is open.
pub(crate) unsafe fn accept(fd: RawFd) -> i32 {
    // SAFETY: no addresses but null.
    repeat(|| unsafe { libc::accept4(fd, null_mut(), null_mut(), libc::SOCK_CLOEXEC) as isize })
}
