//! An open descriptor; that of a member registered with the ring when there is
//! room, so that the kernel need not look it up for each operation.
//!
//! Only members are: before Linux 6.13 the ring keeps a file that is taken back
//! until every operation on any registered file has ended. A member's end
//! soon; that of an accept may never come, and until then a block device that
//! was let go would stay claimed.
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
    /// Locks of the same bytes by other paths.
    _aliases: Vec<OwnedFd>,
    core: Rc<Core>,
}

impl Descriptor {
    /// On the current thread's executor.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub(crate) fn new(fd: OwnedFd) -> Rc<Self> {
        Rc::new(Self { fd, slot: None, _aliases: Vec::new(), core: Core::current() })
    }

    /// The same, registered: for what has no operations without an end. It holds `aliases` as long as itself.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub(crate) fn registered(fd: OwnedFd, aliases: Vec<OwnedFd>) -> Rc<Self> {
        let core = Core::current();
        let slot = core.ring.register_file(fd.as_raw_fd());
        Rc::new(Self { fd, slot, _aliases: aliases, core })
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
            // Others wait for the lock, which must not wait for other members' operations. Where there is none, this
            // fails, which is as good.
            let _ = rustix::fs::flock(&self.fd, rustix::fs::FlockOperation::Unlock);
            self.core.ring.unregister_file(slot);
        }
    }
}
