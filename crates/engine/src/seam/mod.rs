//! The interface to other crates: members, clocks, observers, errors and reports.
//!
//! Traits that other crates implement and plain values that they read. Contains no RAID logic.

pub(crate) mod bytes;
pub mod clock;
pub(crate) mod durability;
pub(crate) mod error;
pub mod member;
pub mod observe;
pub(crate) mod report;
