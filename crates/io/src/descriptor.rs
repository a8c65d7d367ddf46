//! Open descriptors. A member's descriptor is registered with the backend. A ring then spares the kernel the look-up for
//! each operation; threads know what the file can do, and limit how many of them wait for it.
//!
//! Only members' descriptors are registered. Before Linux 6.13, the ring keeps a file after its unregistration,
//! until every operation on any registered file has ended. A member's operations end soon. An accept may never end, and
//! would keep a removed block device claimed.
//!
//! Every operation holds its descriptor. So neither the number nor the registered slot is reused before the last
//! operation has completed. Source: io_uring_register(2).

use crate::driver::Target;
use crate::executor::Core;
use crate::system::locks;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

pub(crate) struct Descriptor {
    fd: OwnedFd,
    slot: Option<u32>,
    /// Whether the file is of a file system in memory.
    is_in_memory: bool,
    /// Locks of the same bytes through other paths.
    aliases: Vec<OwnedFd>,
    core: Rc<Core>,
}

impl Descriptor {
    /// A descriptor on the current thread's executor.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub(crate) fn new(fd: OwnedFd) -> Rc<Self> {
        Rc::new(Self { fd, slot: None, is_in_memory: false, aliases: Vec::new(), core: Core::current() })
    }

    /// A registered descriptor, for a file whose operations all end. It keeps `aliases` as long as itself.
    /// `is_in_memory`: whether the file's system is in memory.
    ///
    /// # Panics
    /// When the thread has no executor.
    pub(crate) fn registered(fd: OwnedFd, aliases: Vec<OwnedFd>, is_in_memory: bool) -> Rc<Self> {
        let core = Core::current();
        let slot = core.driver.register_file(fd.as_raw_fd());
        Rc::new(Self { fd, slot, is_in_memory, aliases, core })
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn target(&self) -> Target {
        Target { fd: self.fd.as_raw_fd(), slot: self.slot, is_in_memory: self.is_in_memory }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.slot.is_some() {
            // A ring may close the file only after other members' operations.
            [&self.fd].into_iter().chain(&self.aliases).for_each(locks::release);
        }
        self.core.driver.release(self.target());
    }
}
