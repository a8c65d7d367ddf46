//! One member of an array in use.
//!
//! [`Device`] (`in_use.rs`) is made of parts. Each part is a type in a file of its own and keeps its own invariant. None
//! does I/O, except the last:
//!
//! * [`state`]: in sync, recovering, spare or faulty. [`superblock`]: what the member's superblock says, and is to say.
//! * [`reach`]: whether the member answers. [`timeout`]: the operations that may have to be abandoned.
//! * [`bad_blocks`], [`owed`], [`read_faults`]: ranges that must not be read, that are in memory only, that could not be
//!   read.
//! * [`replacement`]: the device that is to replace this one.
//! * [`activity`]: transfers under way, and sums of past ones.
//! * [`stripe_log`]: the ring of the member's part of the stripe log.
//! * [`write_buffer`]: writes that were answered from memory, for all members together.
//! * [`checksums`]: the checksums of the member's blocks. It reads and writes their table on the member.
//!
//! Three places have functions of `Device` and import `in_use.rs`: [`lifecycle`] changes state and superblock together,
//! `checksums/of_device.rs` finds the checksums, and [`transfer`] has all transfers, as layers over the member. Nothing
//! imports these, and no other file of a part imports `in_use.rs`. So no circle of imports is longer than a part and its
//! helper.

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
pub(crate) mod stripe_log;
mod superblock;
pub(crate) mod timeout;
mod transfer;
pub(crate) mod write_buffer;

pub(crate) use in_use::{Device, Failures};
pub(crate) use reach::Reach;
pub(crate) use state::{DeviceState, FormerSlot};
pub(crate) use superblock::{Outdated, place_bytes};
pub(crate) use transfer::stripe_log::LogPart;
