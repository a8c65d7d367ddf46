//! Interfaces of a served array: NBD, vhost-user-blk, FUSE and ublk.
//!
//! Everything here serves a [`Volume`], never an array itself. Code without I/O decodes and checks the NBD protocol
//! ([`nbd`]). Sessions are straight-line `async` code on the volume's thread, independent of the executor. `measure` (a
//! feature, on by default) counts and times the array's requests and transfers. Each module names the specification of
//! its protocol.
//!
//! The control interface, which never touches data, is a crate of its own: `control`. It shares [`Credentials`] and
//! [`handshaking`] with NBD.
#![forbid(unsafe_code)]

#[cfg(feature = "tls")]
mod credentials;
#[cfg(all(feature = "fuse", target_os = "linux"))]
pub mod fuse;
pub mod handshaking;
#[cfg(feature = "measure")]
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
