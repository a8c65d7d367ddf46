//! Interfaces of a served array: NBD, vhost-user-blk, FUSE, ublk, and control.
//!
//! Everything here serves a [`Volume`], never an array itself. Code without I/O decodes and checks the NBD protocol
//! ([`nbd`]). Sessions are straight-line `async` code on the volume's thread, independent of the executor. Only
//! `control` (a feature, on by default) runs elsewhere, on a management thread, and never touches data. The same
//! feature brings `measure`, which counts and times the array's requests and transfers. Each module names the
//! specification of its protocol.
#![forbid(unsafe_code)]

#[cfg(feature = "control")]
pub mod control;
#[cfg(feature = "tls")]
mod credentials;
#[cfg(all(feature = "fuse", target_os = "linux"))]
pub mod fuse;
mod handshaking;
#[cfg(feature = "control")]
pub mod measure;
pub mod memory;
pub mod nbd;
#[cfg(all(feature = "ublk", target_os = "linux"))]
pub mod ublk;
#[cfg(all(feature = "vhost-user", target_os = "linux"))]
pub mod vhost_user;
pub mod volume;

#[cfg(feature = "tls")]
pub use credentials::Credentials;
pub use memory::MemoryVolume;
pub use volume::{Durability, Extent, Volume, VolumeError, VolumeErrorKind};
