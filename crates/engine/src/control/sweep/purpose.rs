//! What a sweep is for, what it covers, and what it reports: plain values.
//!
//! [`crate::control::sweep::run`] carries sweeps out.

use crate::control::sweep::findings::Findings;
use crate::device::Device;
use format::units::Slot;
use std::ops::AddAssign;
use std::rc::Rc;

/// What a sweep is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Copies and parity are brought into agreement after an unclean stop.
    Resync,
    /// Members that are not current get their data.
    Recovery,
    /// Everything is read and compared; nothing is written.
    Check,
    /// Everything is read and compared, and errors are corrected.
    Repair,
    /// Unknown checksums are learned, where the members agree.
    Learn,
}

impl Purpose {
    /// md's name in `sync_action`.
    pub(super) fn action(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Recovery => "recover",
            Self::Check => "check",
            Self::Repair => "repair",
            Self::Learn => "learn",
        }
    }

    /// The name in log lines.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Recovery => "recovery",
            _ => self.action(),
        }
    }
}

/// The positions that a sweep covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SweepRange {
    /// Start of the requested range.
    pub(super) start: u64,
    /// Positions before this were done by an earlier sweep.
    pub(super) from: u64,
    pub(super) end: u64,
    /// Windows end at multiples of this.
    pub(super) step: u64,
    /// Bytes of a window on each member, about.
    pub(super) member_bytes: u64,
}

impl SweepRange {
    /// The step of windows with only `member_bytes` on each member, and at least a block.
    pub(super) fn step_of(&self, member_bytes: u64, block_bytes: u64) -> u64 {
        match self.member_bytes / member_bytes.max(1) {
            0 | 1 => self.step,
            parts => (self.step / parts / block_bytes * block_bytes).max(block_bytes.min(self.step)),
        }
    }
}

/// A recovering member or a successor, with its slot.
pub(crate) struct Target<M> {
    pub(crate) slot: Slot,
    pub(crate) device: Rc<Device<M>>,
}

impl<M> Clone for Target<M> {
    fn clone(&self) -> Self {
        Self { slot: self.slot, device: self.device.clone() }
    }
}

/// Work done, in bytes of positions, and the findings of a scrub.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(super) compared: u64,
    pub(super) rewritten: u64,
    pub(super) found: Findings,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.compared += other.compared;
        self.rewritten += other.rewritten;
    }
}

/// How a sweep without a failure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Everything was covered.
    Complete,
    /// The array is stopping, or sweeps are frozen.
    Interrupted,
}
