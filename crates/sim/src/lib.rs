//! The simulator: histories of arrays in virtual time, on members with faults, under power cuts, and a judge of their
//! results. Only tests use it; it never ships.
//!
//! The engine is the one that serves users; only members and clock are simulated. A run follows from one seed. Nothing
//! here reads a real clock, and the seed orders whatever is unordered.
#![forbid(unsafe_code)]

pub mod checksums;
pub mod faults;
pub mod foreign;
// The histories have no tests of their own and take long to compile, so the other modules' tests go without them.
#[cfg(not(test))]
pub mod history;
mod journal;
pub mod judge;
mod kept_memory;
pub mod member;
mod parity_log;
pub mod reshaped;
pub mod rows;
#[cfg(not(test))]
pub mod swarm;
pub mod truth;

pub use faults::Faults;
pub use kept_memory::KeptMemory;
pub use member::{SimMember, Zeroing};
pub use world::{Random, VirtualClock, World};
