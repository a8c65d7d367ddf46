//! Defects: the one error type for wrong bytes from a member. It carries no severity; the caller decides what to do.

use std::fmt;

/// A field of an on-disk structure with an unacceptable value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// The field, by md's own name: `superblock.chunksize`, `bitmap.version`.
    pub field: &'static str,
    /// What it holds and what would be acceptable, for the user.
    pub reason: String,
}

impl Defect {
    /// A defect of `field`. `reason` names its value and acceptable ones.
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
