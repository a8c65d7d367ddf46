//! What every simulation of the engine stands on: a deterministic executor in virtual time, its clock, and random numbers
//! that follow from a seed.
//!
//! Nothing here reads a real clock, starts a thread or touches a file. The seed orders whatever is unordered, so the same
//! seed gives the same run on any machine. Members are not here: the laboratory (`lab`) adds members on modelled drives, the
//! simulator (`sim`) members with faults.
#![forbid(unsafe_code)]

mod executor;
mod limits;
mod random;

pub use executor::{Tracer, VirtualClock, World};
pub use limits::member_limits;
pub use random::Random;
