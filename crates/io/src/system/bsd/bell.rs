//! What wakes a thread that waits in the kernel: a pipe, neither end of which ever blocks. Nothing waits here. Source:
//! pipe(2).

use rustix::fs::OFlags;
use rustix::io::FdFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Any thread may ring it.
pub(crate) struct Bell {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe()?;
        for end in [&reader, &writer] {
            rustix::io::fcntl_setfd(end, FdFlags::CLOEXEC)?;
            rustix::fs::fcntl_setfl(end, rustix::fs::fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        Ok(Self { reader, writer })
    }

    /// Makes the descriptor readable, until it is read empty.
    pub(crate) fn ring(&self) {
        // A full pipe is readable anyway.
        let _ = rustix::io::write(&self.writer, &[1]);
    }

    /// What a ring makes readable.
    pub(crate) fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// The same, to read from.
    pub(crate) fn reader(&self) -> io::Result<OwnedFd> {
        self.reader.try_clone()
    }
}
