//! Settings of the write-intent bitmap.
//!
//! Values alone. [`crate::metadata::bitmap::clearing`] and [`crate::metadata::bitmap::sizing`] apply them.

use crate::metadata::bitmap::sizing::BitmapWrites;

/// How the write-intent bitmap is maintained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BitmapPolicy {
    /// How large its writes are.
    pub writes: BitmapWrites,
    /// When bits are cleared.
    pub clearing: BitmapClearing,
}

/// When bits of a write-intent bitmap are cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BitmapClearing {
    /// All idle bits while the array is idle. While it is busy, one bit for every 256 writes, the longest idle first.
    #[default]
    Sparing,
    /// All idle bits, always, as md does. After a crash less is resynced. Random writes run slower if they touch more
    /// chunks than are rewritten within a period.
    Eager,
}
