//! The array's metadata on the members: superblocks and the write-intent bitmap, and the order in which they change.
//!
//! The data path reaches it only through [`crate::core::authority::Authority`]. It never reads or writes data.
//!
//! * [`state`]: the object. [`record`]: what the superblocks say.
//! * [`transaction`]: how a change begins. [`superblocks`]: the rounds that write it, and members that
//!   leave.
//! * [`numbers`]: the device numbers of metadata 0.90.
//! * [`authority`]: what the data path asks for. [`bitmap`]: the write-intent bitmap.
//! * [`parity_log`], [`journal`], [`stripe_log`]: the logs of the running array, md's and ours. [`batches`]: what they
//!   share.
//! * [`consistency`]: changes between bitmap, log and neither.
//! * [`partial_parity`], `journal/replay.rs`, `stripe_log/replay.rs`: replay logs, before the array runs. [`replay`]: what
//!   they share.

mod authority;
mod batches;
pub(crate) mod bitmap;
pub(crate) mod consistency;
pub(crate) mod journal;
mod numbers;
pub(crate) mod parity_log;
pub(crate) mod partial_parity;
pub(crate) mod record;
pub(crate) mod replay;
mod state;
pub(crate) mod stripe_log;
pub(crate) mod superblocks;
mod transaction;

pub(crate) use state::Metadata;
pub(crate) use transaction::Entered;
