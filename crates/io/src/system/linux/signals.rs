//! The signals that ask to stop as something to read: signalfd. No handler is installed. Source: signalfd(2).

use crate::signal::Signal;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// Blocks these signals for the calling thread, and makes them readable.
pub(crate) fn open() -> io::Result<OwnedFd> {
    let set = crate::signal::block()?;
    // SAFETY: the set is ours, and valid during the call. A descriptor from signalfd is new and ours.
    unsafe {
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Takes a signal that has arrived; `None` if none has.
pub(crate) fn take(from: BorrowedFd<'_>) -> io::Result<Option<Signal>> {
    let mut bytes = [0; mem::size_of::<libc::signalfd_siginfo>()];
    match rustix::io::retry_on_intr(|| rustix::io::read(from, &mut bytes)) {
        Ok(_) => {}
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // The signal's number is the structure's first field.
    let number = bytes.first_chunk().map(|number| u32::from_ne_bytes(*number).cast_signed());
    Ok(Some(Signal::of(number.unwrap_or_default())))
}
