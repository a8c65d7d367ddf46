//! What can be set about the checksums of a member: when they are verified, their memory, and which regions to close.
//!
//! Values only; it decides nothing.

/// The regions to close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Regions that have been idle for some periods.
    Idle,
    /// All regions: no writes are in flight.
    All,
}

/// How much may be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub regions: u64,
    /// Blank pages that are written. Further ones are left unwritten, and their checksums are unknown afterwards.
    pub blank_pages: usize,
}

/// Memory limits for a member's checksum table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChecksumMemory {
    /// Resident pages of 4 KiB, at least one. Each page covers 4 MiB of data.
    pub pages: usize,
    /// Bytes of changed checksums whose pages are not resident. Changes scattered over the table of a large
    /// member are collected here, and written in long transfers.
    pub changes_bytes: usize,
}

impl Default for ChecksumMemory {
    fn default() -> Self {
        // Of an array of four members, 50 MiB (docs/decisions/1209).
        Self { pages: 2048, changes_bytes: 4 << 20 }
    }
}

/// When checksums are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Verify {
    /// At every read.
    #[default]
    Always,
    /// At the reads of sweeps only.
    Scrub,
}

impl Verify {
    /// The setting's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Scrub => "scrub",
        }
    }

    /// The setting with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Always, Self::Scrub].into_iter().find(|verify| verify.name() == name)
    }
}
