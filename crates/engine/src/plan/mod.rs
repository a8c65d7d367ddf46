//! Decisions without I/O: what to read, compute and write for a request, and which member's block in a row is wrong.
//!
//! Pure functions over values. Imports nothing but `format` and `parity`.

pub mod diagnose;
pub(crate) mod equations;
pub mod planner;

/// The unit of read repair: md's page.
pub(crate) const ROW_BYTES: u64 = 4096;
