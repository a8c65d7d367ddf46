//! The two signals that ask a server to stop, and the one that would end it for a file that is too long.

use crate::descriptor::Descriptor;
use crate::transfer;
use std::io;
use std::mem;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// From the keyboard (SIGINT).
    Interrupt,
    /// From a service manager (SIGTERM).
    Terminate,
}

/// Completes when the process is asked to end.
///
/// The first call blocks both signals for the thread, and they stay blocked,
/// also for threads that it starts from then on; threads that exist already
/// must not take them instead, so the first call belongs before those. Child
/// processes inherit the block.
///
/// # Errors
/// When the system is out of descriptors.
///
/// # Panics
/// When the thread has no executor.
pub fn terminated() -> io::Result<impl Future<Output = io::Result<Signal>>> {
    let descriptor = Descriptor::new(signals()?);
    Ok(async move {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        // Waited for and then read: a read that waits does so, on Linux 6.1, in a thread of the kernel's own, and was
        // seen to stay there when the signal came.
        while let Err(error) = rustix::io::read(descriptor.as_fd(), &mut bytes) {
            match error {
                rustix::io::Errno::AGAIN => transfer::poll_readable(&descriptor).await.0.map(drop)?,
                rustix::io::Errno::INTR => {}
                error => return Err(error.into()),
            }
        }
        // The signal's number is the structure's first field.
        let number = bytes.first_chunk().map(|number| u32::from_ne_bytes(*number).cast_signed());
        Ok(if number == Some(libc::SIGINT) { Signal::Interrupt } else { Signal::Terminate })
    })
}

/// Blocks SIGINT and SIGTERM and makes them readable.
fn signals() -> io::Result<OwnedFd> {
    // SAFETY: a sigset_t is plain data, set up by sigemptyset before any use;
    // the calls get pointers to it that are valid while they run, and both
    // signal numbers exist. A descriptor from signalfd is new and ours.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Has a write beyond the limit on the length of files (`RLIMIT_FSIZE`) fail, where the system would end the process
/// without a word (SIGXFSZ). For the whole process, so only a program's `main` may want it; what it starts inherits it.
pub fn ignore_file_size_limit_signal() {
    // SAFETY: SIG_IGN runs no code of ours, and the signal exists. It cannot fail for a signal that can be ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
