//! Open descriptors. A member's descriptor is registered with the ring when a slot is free, so that the kernel need not
//! look it up for each operation.
//!
//! Only members' descriptors are registered. Before Linux 6.13, the ring keeps a file after its unregistration,
//! until every operation on any registered file has ended. A member's operations end soon. An accept may never end, and
//! would keep a removed block device claimed.
//!
//! Every operation holds its descriptor. So neither the number nor the registered slot is reused before the last
//! operation has completed. Source: io_uring_register(2).

use crate::executor::Core;
use io_uring::{squeue, types};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

pub(crate) struct Descriptor {
    fd: OwnedFd,
    slot: Option<u32>,
    /// Locks of the same bytes through other paths.
    _aliases: Vec<OwnedFd>,
    core: Rc<Core>,
}

impl Descriptor {
    /// A descriptor on the current thread's executor.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub(crate) fn new(fd: OwnedFd) -> Rc<Self> {
        Rc::new(Self { fd, slot: None, _aliases: Vec::new(), core: Core::current() })
    }

    /// A registered descriptor, for a file whose operations all end. It keeps `aliases` as long as itself.
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

    /// The value of an entry's descriptor field. [`Descriptor::flags`] must go with it.
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
            // Unlocks early, because the ring may close the file only after other members' operations. Without a lock
            // the call fails, which does no harm.
            let _ = rustix::fs::flock(&self.fd, rustix::fs::FlockOperation::Unlock);
            self.core.ring.unregister_file(slot);
        }
    }
}
