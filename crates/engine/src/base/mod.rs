//! Containers and synchronisation that know no RAID: memory for I/O, range locks, gates, signals, sets of ranges.
//!
//! Imports nothing of the engine but itself.

pub mod buffer;
pub(crate) mod gate;
pub(crate) mod join;
pub(crate) mod notify;
pub(crate) mod range_lock;
pub(crate) mod range_set;
pub(crate) mod versioned;
pub(crate) mod write_set;
