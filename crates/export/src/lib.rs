//! How others reach an array: NBD, vhost-user-blk, FUSE, ublk, and the control interface.
//!
//! Everything here serves a [`Volume`], never an array itself. The NBD
//! protocol is decoded and judged by code that does no I/O ([`nbd`]); sessions
//! are straight-line `async` code on the thread of the volume, whatever polls
//! it. Only the module `control` (a feature, on by default) runs elsewhere, on
//! a management thread of its own, and never touches data; with it comes `measure`, which counts and times
//! what the array's thread does.
#![forbid(unsafe_code)]

#[cfg(feature = "control")]
pub mod control;
#[cfg(feature = "fuse")]
pub mod fuse;
#[cfg(feature = "control")]
pub mod measure;
pub mod memory;
pub mod nbd;
#[cfg(feature = "ublk")]
pub mod ublk;
#[cfg(feature = "vhost-user")]
pub mod vhost_user;
pub mod volume;

pub use memory::MemoryVolume;
pub use volume::{Durability, Extent, Volume, VolumeError, VolumeErrorKind};
