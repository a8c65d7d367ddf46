//! What the engine asks of its environment, and what it reports: members, clocks, observers, errors.
//!
//! Traits and plain values that other crates implement or read; no logic of a RAID level.

pub(crate) mod bytes;
pub mod clock;
pub(crate) mod error;
pub mod member;
pub mod observe;
pub(crate) mod report;
