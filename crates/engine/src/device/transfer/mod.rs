//! The transfers of a device: what lies between a request and the member, as layers. Each layer is a file.
//!
//! A write passes the layers in this order, a read from the second on:
//!
//! 1. [`successor`]: repeats a change on the device that is to replace this one.
//! 2. [`notes`]: what the result means for the device. A failed read is queued for read repair. A written range has no
//!    bad blocks any more. Data that found no space is owed.
//! 3. [`checked`]: verifies what was read against the member's checksums, or updates them with what is written.
//! 4. [`bare`]: counts the transfer, abandons it at the timeout, and overlays owed data on what was read.
//! 5. [`Watched`](crate::seam::observe::Watched): shows the transfer to the array's observer, and calls the member.
//!
//! [`read`] and [`mod@write`] lead through the layers: one function for each, whatever the number of buffers
//! ([`memory`]). They are not decorators over `Member`, for two reasons. Each `async fn` around a transfer moves its
//! future once more, which the instructions of a small request show. And the calls that take no time ([`at_once`])
//! pass the same layers with borrowed buffers, which a member lends in place.
//!
//! [`zeros`] has discards and zeroing, through the same layers except the fourth, of which they have the timeout alone.
//! [`superblock`] writes the device's own superblock, past all layers but the timeout, [`parity_log`] its partial
//! parity log, and [`stripe_log`] its part of the stripe log.

pub(super) mod at_once;
pub(super) mod bare;
pub(super) mod checked;
pub(super) mod memory;
pub(super) mod notes;
pub(super) mod parity_log;
pub(super) mod read;
pub(super) mod stripe_log;
pub(super) mod successor;
pub(super) mod superblock;
pub(super) mod write;
pub(super) mod zeros;
