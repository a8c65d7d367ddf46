//! Operations as system calls: one function that may block its thread, and one that never does.
//!
//! Nothing here waits for a socket: [`attempt`] says that a call would have to. Source: the man pages of the calls;
//! preadv2(2) for `RWF_NOWAIT`.

use crate::operation::Call;
use std::io;
use std::os::fd::RawFd;
use std::ptr::null_mut;

/// An operation to carry out: its number, descriptor and call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) index: u64,
    pub(super) fd: RawFd,
    /// The lane of a member's file ([`super::Lane`]).
    pub(super) lane: Option<u32>,
    pub(super) call: Call,
}

// SAFETY: the driver's slot owns the memory to which a call points and the descriptor, and keeps both until the result
// is reaped. Only the thread that has the job uses them meanwhile.
unsafe impl Send for Job {}

impl Job {
    /// Carries it out; may block. The result is the kernel's: not negative, or a negated error number.
    ///
    /// # Safety
    /// The addresses in the call are valid, and the descriptor is open.
    pub(super) unsafe fn perform(self) -> i32 {
        let fd = self.fd;
        // SAFETY: promised by the caller; the kernel checks everything else.
        unsafe {
            match self.call {
                Call::Read { address, bytes, at } => {
                    repeat(|| libc::pread64(fd, address.cast(), bytes as usize, at.cast_signed()))
                }
                Call::Write { address, bytes, at } => {
                    repeat(|| libc::pwrite64(fd, address.cast(), bytes as usize, at.cast_signed()))
                }
                Call::ReadVectored { vectors, count, at } => {
                    repeat(|| libc::preadv64(fd, vectors, count.cast_signed(), at.cast_signed()))
                }
                Call::WriteVectored { vectors, count, at } => {
                    repeat(|| libc::pwritev64(fd, vectors, count.cast_signed(), at.cast_signed()))
                }
                Call::SyncData => repeat(|| libc::fdatasync(fd) as isize),
                Call::Allocate { mode, at, bytes } => {
                    match repeat(|| libc::fallocate64(fd, mode, at.cast_signed(), bytes.cast_signed()) as isize) {
                        // A kernel or file system without it.
                        refused if refused == -libc::ENOSYS => -libc::EOPNOTSUPP,
                        result => result,
                    }
                }
                // Not repeated: an interrupted connect goes on, and a second call would fail.
                Call::Connect { address, bytes } => once(libc::connect(fd, address, bytes) as isize),
                _ => -libc::EINVAL,
            }
        }
    }
}

/// Whether the operation waits for a socket, an event or a pipe, and never for a disk.
pub(super) fn awaits_peer(call: Call) -> bool {
    match call {
        Call::ReadStream { .. }
        | Call::WriteStream { .. }
        | Call::AwaitReadable
        | Call::Receive { .. }
        | Call::Send { .. }
        | Call::SendMessage { .. }
        | Call::Accept => true,
        Call::Read { .. }
        | Call::Write { .. }
        | Call::ReadVectored { .. }
        | Call::WriteVectored { .. }
        | Call::SyncData
        | Call::Allocate { .. }
        | Call::Connect { .. }
        | Call::DriverCommand { .. } => false,
    }
}

/// Whether the operation waits for room to send, not for something to arrive.
pub(super) fn is_outgoing(call: Call) -> bool {
    matches!(call, Call::Send { .. } | Call::SendMessage { .. })
}

/// The most bytes that a call on a socket may move; 0 for other calls.
///
/// # Safety
/// The addresses in `call` are valid.
pub(super) unsafe fn bytes_asked(call: Call) -> usize {
    match call {
        Call::Receive { bytes, .. } | Call::Send { bytes, .. } => bytes as usize,
        Call::SendMessage { header, .. } => {
            // SAFETY: the caller's header and vectors, which are valid.
            let vectors = unsafe { std::slice::from_raw_parts((*header).msg_iov, (*header).msg_iovlen as _) };
            vectors.iter().map(|vector| vector.iov_len).sum()
        }
        _ => 0,
    }
}

/// Carries out an operation on a socket, event or pipe if that is possible without waiting. `None` if not.
///
/// # Safety
/// The addresses in `call` are valid, and the descriptor is open.
pub(super) unsafe fn attempt(fd: RawFd, call: Call) -> Option<i32> {
    // SAFETY: promised by the caller.
    let result = unsafe {
        match call {
            Call::Receive { address, bytes, flags } => {
                repeat(|| libc::recv(fd, address.cast(), bytes as usize, flags | libc::MSG_DONTWAIT))
            }
            Call::Send { address, bytes, flags } => {
                repeat(|| libc::send(fd, address.cast(), bytes as usize, flags | libc::MSG_DONTWAIT))
            }
            Call::SendMessage { header, flags } => repeat(|| libc::sendmsg(fd, header, flags | libc::MSG_DONTWAIT)),
            Call::Accept => accept(fd),
            Call::AwaitReadable => return is_ready(fd, libc::POLLIN).then_some(libc::POLLIN.into()),
            Call::ReadStream { address, bytes } => {
                let vector = libc::iovec { iov_base: address.cast(), iov_len: bytes as usize };
                match read_without_waiting(fd, &raw const vector, 1, u64::MAX) {
                    // An event of a kernel before 5.8, or a pipe. Another reader may be faster, and then this waits.
                    Err(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM) => {
                        if !is_ready(fd, libc::POLLIN) {
                            return None;
                        }
                        repeat(|| libc::read(fd, address.cast(), bytes as usize))
                    }
                    Err(error) => -error,
                    Ok(bytes) => bytes,
                }
            }
            // An event without room is an event that was signalled.
            Call::WriteStream { .. } if !is_ready(fd, libc::POLLOUT) => return Some(-libc::EAGAIN),
            Call::WriteStream { address, bytes } => repeat(|| libc::write(fd, address.cast(), bytes as usize)),
            _ => -libc::EINVAL,
        }
    };
    (result != -libc::EAGAIN).then_some(result)
}

/// Reads only what is in memory (`RWF_NOWAIT`). The error is `EAGAIN` when the read would wait, and `EOPNOTSUPP` or
/// `ENOSYS` when the file or the kernel cannot tell.
///
/// # Safety
/// The vectors are valid, and the descriptor is open.
pub(super) unsafe fn read_without_waiting(
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

/// Accepts a connection if there is one. The listener is blocking, as its other owners want it, except during the call.
///
/// # Safety
/// The descriptor is open.
unsafe fn accept(fd: RawFd) -> i32 {
    if !is_ready(fd, libc::POLLIN) {
        return -libc::EAGAIN;
    }
    // SAFETY: calls without addresses but null.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        let accepted = repeat(|| libc::accept4(fd, null_mut(), null_mut(), libc::SOCK_CLOEXEC) as isize);
        libc::fcntl(fd, libc::F_SETFL, flags);
        accepted
    }
}

fn is_ready(fd: RawFd, events: i16) -> bool {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one structure of ours, valid during the call.
    let ready = repeat(|| unsafe { libc::poll(&raw mut one, 1, 0) } as isize);
    ready > 0
}

/// The result of a system call, repeated while a signal interrupts it.
fn repeat(mut call: impl FnMut() -> isize) -> i32 {
    loop {
        match once(call()) {
            interrupted if interrupted == -libc::EINTR => {}
            result => return result,
        }
    }
}

fn once(result: isize) -> i32 {
    match result {
        // Lengths are at most 1 GiB.
        0.. => result as i32,
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}
