//! The ground that simulations of the engine stand on: a deterministic executor in virtual time, its clock, and chance that
//! follows from a seed.
//!
//! Nothing here reads a real clock, starts a thread or touches a file. What is unordered in a world is ordered by its seed, so
//! the same seed gives the same run on any machine. Members are not here: the laboratory (`lab`) puts its modelled drives on
//! this ground, the simulator of histories (`sim`) its faulty members.
#![forbid(unsafe_code)]

mod executor;
mod limits;
mod random;

pub use executor::{Tracer, VirtualClock, World};
pub use limits::member_limits;
pub use random::Random;
