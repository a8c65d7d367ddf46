//! FreeBSD and macOS: see [`crate::system`] for what each module does. What differs between these two is in one file for
//! each, [`own`].
//!
//! All of it was compiled, and none of it run: no such system was there. Facts come from the manual pages that the files
//! name.

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

#[cfg_attr(target_os = "freebsd", path = "freebsd.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
mod own;
