//! One member of an array in use.
//!
//! [`Device`] (`in_use.rs`) is made of parts. Each part is a type in a file of its own, keeps its own invariant, and does
//! no I/O:
//!
//! * [`state`]: in sync, recovering, spare or faulty. [`superblock`]: what the member's superblock says, and is to say.
//!   [`lifecycle`] changes the two together.
//! * [`reach`]: whether the member answers. [`timeout`]: the operations that may have to be abandoned.
//! * [`bad_blocks`], [`owed`], [`read_faults`]: ranges that must not be read, that are in memory only, that could not be
//!   read.
//! * [`replacement`]: the device that is to replace this one.
//! * [`activity`]: transfers under way, and sums of past ones.
//! * [`checksums`]: the checksums of the member's blocks.
//!
//! [`transfer`] has all transfers of a device, as layers over the member. Files of parts never import `in_use.rs`, and
//! nothing imports files with functions of `Device`; so no circle of imports is longer than a part and its helper.

mod activity;
pub(crate) mod bad_blocks;
pub(crate) mod checksums;
pub(crate) mod context;
mod counted;
mod in_use;
mod lifecycle;
pub(crate) mod owed;
mod reach;
mod read_errors;
mod read_faults;
mod replacement;
mod state;
mod superblock;
pub(crate) mod timeout;
mod transfer;

pub(crate) use in_use::{Device, Failures};
pub(crate) use reach::Reach;
pub(crate) use state::{DeviceState, FormerSlot};
pub(crate) use superblock::{Outdated, place_bytes};
