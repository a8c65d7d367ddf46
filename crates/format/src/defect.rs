//! The one way in which bytes from a member can be wrong.

use std::fmt;

/// A field of an on-disk structure whose value cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// The field, by md's own name: `superblock.chunksize`, `bitmap.version`.
    pub field: &'static str,
    /// What it holds and what would be acceptable, for a person.
    pub reason: String,
}

impl Defect {
    /// A defect of `field`; `reason` says what it holds and what would do.
    pub fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for Defect {}
