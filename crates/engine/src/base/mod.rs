//! Containers and synchronisation: memory for I/O, range locks, gates, signals, sets of ranges, marks that are cleared
//! lazily.
//!
//! Contains no RAID logic, and imports nothing from the engine's other folders.

pub mod buffer;
pub(crate) mod gate;
pub(crate) mod join;
pub(crate) mod lazy_marks;
pub(crate) mod notify;
pub(crate) mod range_lock;
pub(crate) mod range_set;
pub(crate) mod served;
pub(crate) mod versioned;
pub(crate) mod write_set;
pub(crate) mod yield_now;
