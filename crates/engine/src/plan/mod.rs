//! Decisions without I/O: what to read, compute and write for a request, and which member is wrong in a row.
//!
//! Pure functions over values; imports `format` and `parity` alone.

pub mod diagnose;
pub mod planner;

/// What is put right at a time: md's page.
pub(crate) const ROW_BYTES: u64 = 4096;
