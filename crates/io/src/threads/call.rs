//! Operations as system calls: one function that may block its thread, and one that never does.
//!
//! Nothing here waits for a socket: [`attempt`] says that a call would have to. Source: the man pages of the calls.

use crate::operation::Call;
use crate::system::calls::{self, read_without_waiting};
use crate::system::{once, repeat};
use std::os::fd::RawFd;

/// An operation to carry out: its number, descriptor and call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) index: u64,
    pub(crate) fd: RawFd,
    /// The lane of a member's file ([`super::Lane`]).
    pub(super) lane: Option<u32>,
    pub(crate) call: Call,
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
                Call::Read { address, bytes, at } => calls::read_at(fd, address, bytes as usize, at),
                Call::Write { address, bytes, at } => calls::write_at(fd, address, bytes as usize, at),
                Call::ReadVectored { vectors, count, at } => calls::read_vectored_at(fd, vectors, count, at),
                Call::WriteVectored { vectors, count, at } => calls::write_vectored_at(fd, vectors, count, at),
                Call::SyncData => calls::sync_data(fd),
                Call::Clear { how, at, bytes } => calls::clear(fd, how, at, bytes),
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
        | Call::Clear { .. }
        | Call::Connect { .. }
        | Call::DriverCommand { .. } => false,
    }
}

/// Whether it moves bytes of a file.
pub(super) fn is_transfer(call: Call) -> bool {
    matches!(call, Call::Read { .. } | Call::Write { .. } | Call::ReadVectored { .. } | Call::WriteVectored { .. })
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
        let accepted = calls::accept(fd);
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
