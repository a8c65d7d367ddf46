//! A world that does not exist, for the engine to run in: virtual time, members
//! in memory that fail as they are told, power that goes.
//!
//! The engine is the one that serves users; only what it stands on is replaced.
//! A whole run follows from one seed: nothing here reads a real clock, and
//! everything that is unordered is ordered by the seed.
#![forbid(unsafe_code)]

pub mod checksums;
pub mod faults;
pub mod foreign;
// These have no tests of their own, and take long to compile: not once more for those of the others.
#[cfg(not(test))]
pub mod history;
pub mod judge;
pub mod member;
pub mod rows;
#[cfg(not(test))]
pub mod swarm;
pub mod truth;

pub use faults::Faults;
pub use member::{SimMember, Zeroing};
pub use world::{Random, VirtualClock, World};
