//! A world that does not exist, for the engine to run in: virtual time, members
//! in memory that fail as they are told, power that goes.
//!
//! The engine is the one that serves users; only what it stands on is replaced.
//! A whole run follows from one seed: nothing here reads a real clock, and
//! everything that is unordered is ordered by the seed.
#![forbid(unsafe_code)]

pub mod checksums;
#[cfg(feature = "lab")]
pub mod drive;
pub mod executor;
pub mod faults;
pub mod foreign;
// These have no tests of their own, and take long to compile: not once more for those of the others, nor for the laboratory,
// which is all that the command has of this; and which has members, and with them an engine, of its own.
#[cfg(all(feature = "histories", not(test)))]
pub mod history;
pub mod judge;
#[cfg(feature = "lab")]
pub mod lab;
pub mod member;
pub mod random;
pub mod rot;
pub mod rows;
#[cfg(all(feature = "histories", not(test)))]
pub mod swarm;
pub mod truth;

pub use executor::{Tracer, VirtualClock, World};
pub use faults::Faults;
pub use member::{SimMember, Zeroing};
pub use random::Random;
