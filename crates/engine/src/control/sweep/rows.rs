//! Rows of a window, and what comparing them gave: plain values.

use crate::base::buffer::Block;
use crate::plan::diagnose::Verdict;
use format::geometry::Stripe;
use format::units::Slot;
use smallvec::SmallVec;

/// Bytes of several members that belong together: at most [`crate::plan::ROW_BYTES`] of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ComparedRow {
    /// Its stripe, at levels with parity.
    pub(super) stripe: Option<Stripe>,
    /// Its first position.
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Slot and component byte of each block: data, P, Q in order; or the copies.
    pub(super) places: SmallVec<[(Slot, u64); 8]>,
}

/// A row with a mismatch or a failed read.
pub(super) struct SuspectRow {
    pub(super) row: ComparedRow,
    pub(super) verdict: Verdict,
    /// Which of its members were present.
    pub(super) present: SmallVec<[bool; 8]>,
    /// Which of its blocks were read and are zeros.
    pub(super) zeros: SmallVec<[bool; 8]>,
    /// The writes that would correct it.
    pub(super) fixes: Vec<Fix>,
}

/// A block to be rewritten.
#[derive(Clone)]
pub(super) struct Fix {
    pub(super) slot: Slot,
    /// Component byte.
    pub(super) at: u64,
    pub(super) block: Block,
}

/// The result of comparing a window.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) suspects: Vec<SuspectRow>,
    pub(super) mismatch_cnt: u64,
    /// Blocks that all members gave and agree on: slot, component byte and contents.
    pub(super) sound: Vec<(Slot, u64, Block)>,
}
