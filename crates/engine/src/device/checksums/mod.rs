//! Checksums of a member's blocks: updated with every write, verified with every read.
//!
//! The layer lies between a [`Device`](crate::device::Device) and its member, so it covers requests
//! and sweeps alike ([`crate::device::transfer::checked`]). [`table`] holds the checksums in memory ([`entries`]), without I/O. The
//! other files transfer them from and to the member: [`found`] at assembly, [`marks`] what says which of them count,
//! [`pages`] the table. Format: [`format::integrity`].
//!
//! The order of writes on the member, which the simulator interrupts at every write:
//! * A region is marked as open, and its area as touched, and both flushed, before the first write to one of its
//!   blocks.
//! * A region is closed only after its pages of the table and its data are flushed.
//!   That happens lazily, and rarely while the array is busy: see [`table`].
//! * The header names a superblock, and is flushed, before that superblock is written.
//!
//! So after a power loss the checksums of open regions are unknown and all others
//! are right. After a write by other software, which the superblock shows, all
//! are unknown. Writes and sweeps fill in unknown checksums.

mod counts;
mod entries;
mod found;
mod kept;
mod marks;
mod of_device;
mod pages;
mod resident;
mod settings;
mod table;
mod written;

pub(crate) use found::{MemberContents, check_apart_from_bitmap};
pub(crate) use kept::Checksums;
pub(crate) use settings::Closing;
pub use settings::{ChecksumMemory, Verify};
pub(crate) use written::WrittenChecksums;
