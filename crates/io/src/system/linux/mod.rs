//! Linux: see [`crate::system`] for what each module does. Nothing here is compiled for another system.

pub(crate) mod aliases;
pub(crate) mod asynchronous;
pub(crate) mod bell;
pub(crate) mod calls;
pub(crate) mod disk;
pub(crate) mod locks;
pub(crate) mod memory;
pub(crate) mod poller;
pub(crate) mod processes;
pub(crate) mod ring;
pub(crate) mod signals;
pub(crate) mod sockets;
pub(crate) mod status;
pub mod ublk;
