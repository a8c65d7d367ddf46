//! Decisions without I/O: what to read, compute and write for a request, and which member is wrong in a row.
//!
//! Pure functions over values; imports `format` and `parity` alone.

pub mod diagnose;
pub(crate) mod parity;
pub mod planner;
pub(crate) mod stripe_size;
