//! Marks that are cleared lazily: what the bits of the write-intent bitmap and the open regions of a member's checksums
//! have in common.
//!
//! A mark is on stable storage before a write begins, and stays there after the write has ended: the next write to the
//! same place needs it again. It is cleared after [`IDLE_PERIODS`] without a write. On an array that is never at rest,
//! only as many marks are cleared as its writes have paid for ([`Earned`]).
//!
//! Pure. Which marks are set, and how they are written, is the callers' part: `metadata/bitmap/clearing.rs` and
//! `device/checksums/table.rs`. They pick idle marks in different ways, since a bitmap may have millions of bits.

use std::cell::Cell;

/// Whole periods without a write after which a mark may be cleared. The same as in md, which counts a bitmap's chunk
/// down twice.
pub(crate) const IDLE_PERIODS: u32 = 2;

/// Units of writing that pay for a cleared mark. Setting the mark again then costs about a hundredth of them.
const UNITS_PER_MARK: u64 = 256;

/// A write is worth one unit, and one more for each this many bytes.
const UNIT_BYTES: u64 = 16 << 10;

/// The writes to the place of one mark.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MarkUse {
    in_flight: u32,
    /// The period in which the last write ended, or the mark was set.
    ended: u32,
}

impl MarkUse {
    pub(crate) fn begin(&mut self) {
        self.in_flight += 1;
    }

    pub(crate) fn end(&mut self, period: u32) {
        self.in_flight -= 1;
        self.ended = period;
    }

    /// The mark was set without a write: it counts as just used.
    pub(crate) fn touch(&mut self, period: u32) {
        self.ended = period;
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// The period in which the last write ended.
    pub(crate) fn ended(&self) -> u32 {
        self.ended
    }

    /// Periods since the last write ended.
    pub(crate) fn age(&self, period: u32) -> u32 {
        period - self.ended
    }
}

/// What writes have paid since marks were last cleared.
#[derive(Debug, Default)]
pub(crate) struct Earned(Cell<u64>);

impl Earned {
    /// Counts a write.
    pub(crate) fn earn(&self, bytes: u64) {
        self.0.set(self.0.get() + 1 + bytes / UNIT_BYTES);
    }

    /// Forgets what was paid.
    pub(crate) fn reset(&self) {
        self.0.set(0);
    }

    /// How many marks may be cleared now. Takes what was paid. Without a limit if `is_free`.
    pub(crate) fn allowance(&self, is_free: bool) -> u64 {
        let paid = self.0.take();
        if is_free { u64::MAX } else { paid / UNITS_PER_MARK }
    }
}
