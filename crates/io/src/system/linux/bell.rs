//! What wakes a thread that waits in the kernel: an eventfd. Nothing waits here. Source: eventfd(2).

use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Any thread may ring it.
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Makes the descriptor readable, until 8 bytes are read from it.
    pub(crate) fn ring(&self) {
        // Only a counter at its maximum could refuse, and it is at most 1 for each wait of the owner.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// What a ring makes readable.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The same, to read from.
    pub(crate) fn reader(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}
