//! An open descriptor, registered with the ring when there is room, so that
//! the kernel need not look it up for each operation.
//!
//! Every operation holds its descriptor, so neither the number nor the
//! registered place is given to another file before the last one completed.

use crate::executor::Core;
use io_uring::{squeue, types};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

pub(crate) struct Descriptor {
    fd: OwnedFd,
    slot: Option<u32>,
    core: Rc<Core>,
}

impl Descriptor {
    /// On the current thread's executor.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub(crate) fn new(fd: OwnedFd) -> Rc<Self> {
        let core = Core::current();
        let slot = core.ring.register_file(fd.as_raw_fd());
        Rc::new(Self { fd, slot, core })
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// What goes into an entry's descriptor field, together with [`Descriptor::flags`].
    pub(crate) fn target(&self) -> types::Fd {
        types::Fd(self.slot.map_or(self.fd.as_raw_fd(), u32::cast_signed))
    }

    pub(crate) fn flags(&self) -> squeue::Flags {
        if self.slot.is_some() { squeue::Flags::FIXED_FILE } else { squeue::Flags::empty() }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            // Before Linux 6.13 the ring keeps a file that is taken back until every operation on any registered file
            // has ended, an accept for instance. What others wait for, the end of a connection and a lock that is
            // free, must not wait for that. Each call fails on the other kind of file, which is as good.
            let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
            let _ = rustix::fs::flock(&self.fd, rustix::fs::FlockOperation::Unlock);
            self.core.ring.unregister_file(slot);
        }
    }
}
