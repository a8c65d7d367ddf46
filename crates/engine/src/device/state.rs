//! The state of a device: one value, with what only that state remembers.
//!
//! [`DeviceState`] is what the rest of the engine reads. [`StateCell`] holds it together with the facts that make sense
//! in one state only: the former slot of a spare, a member that was taken by force. So a change of state drops the
//! facts of the state before. Only this folder changes one state into another: [`crate::device::lifecycle`] has a
//! function for each change, which also changes the superblock.
//!
//! Facts: md(4) and mdadm, for the names of the states.

use format::units::Slot;
use std::cell::Cell;
use std::ops::Range;

/// The state of a device, by the names of md(4) and mdadm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceState {
    /// Active, and all its data is current.
    InSync,
    /// Active: written everywhere, but current only up to its recovery offset.
    Recovering {
        /// Component bytes below this are current.
        current: u64,
    },
    /// Without a slot, ready to take one.
    Spare,
    /// Holds the write journal, and no data of its own.
    Journal,
    /// Ejected, by an error or by request.
    Faulty,
}

/// A slot that a device had before, and its event count then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormerSlot {
    pub(crate) slot: Slot,
    pub(crate) events: u64,
}

/// A state, with what only this state remembers.
#[derive(Debug, Clone, Copy)]
enum FullState {
    /// `is_forced`: the member was stale and was assembled by force. `in_recovery`: as below.
    InSync {
        is_forced: bool,
        in_recovery: bool,
    },
    /// `in_recovery`: the last recovery began with this member as a target.
    Recovering {
        current: u64,
        in_recovery: bool,
    },
    /// `former_slot`: the slot that a returning spare had before it was missing.
    Spare {
        former_slot: Option<FormerSlot>,
    },
    Journal,
    Faulty,
}

/// The state of one device.
pub(crate) struct StateCell(Cell<FullState>);

impl StateCell {
    pub(super) fn new(state: DeviceState) -> Self {
        Self(Cell::new(match state {
            DeviceState::InSync => FullState::InSync { is_forced: false, in_recovery: false },
            DeviceState::Recovering { current } => FullState::Recovering { current, in_recovery: false },
            DeviceState::Spare => FullState::Spare { former_slot: None },
            DeviceState::Journal => FullState::Journal,
            DeviceState::Faulty => FullState::Faulty,
        }))
    }

    pub(crate) fn get(&self) -> DeviceState {
        match self.0.get() {
            FullState::InSync { .. } => DeviceState::InSync,
            FullState::Recovering { current, .. } => DeviceState::Recovering { current },
            FullState::Spare { .. } => DeviceState::Spare,
            FullState::Journal => DeviceState::Journal,
            FullState::Faulty => DeviceState::Faulty,
        }
    }

    /// The slot that a returning spare had before it was missing.
    pub(crate) fn former_slot(&self) -> Option<FormerSlot> {
        match self.0.get() {
            FullState::Spare { former_slot } => former_slot,
            _ => None,
        }
    }

    /// A spare returns, and had this slot before.
    pub(crate) fn set_former_slot(&self, former_slot: FormerSlot) {
        debug_assert_eq!(self.get(), DeviceState::Spare);
        self.0.set(FullState::Spare { former_slot: Some(former_slot) });
    }

    /// Whether the member was stale and was assembled by force. Until the resync it is read only where no other copy
    /// exists.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(self.0.get(), FullState::InSync { is_forced: true, .. })
    }

    pub(super) fn set_forced(&self, is_forced: bool) {
        if let FullState::InSync { in_recovery, .. } = self.0.get() {
            self.0.set(FullState::InSync { is_forced, in_recovery });
        }
    }

    /// The resync has ended: copies and parity agree, so members taken by force are as good as the others.
    pub(crate) fn forget_force(&self) {
        self.set_forced(false);
    }

    /// Whether the last recovery began with this member as a target.
    pub(crate) fn in_recovery(&self) -> bool {
        matches!(
            self.0.get(),
            FullState::Recovering { in_recovery: true, .. } | FullState::InSync { in_recovery: true, .. }
        )
    }

    /// A recovery begins with this member as a target.
    pub(crate) fn enter_recovery(&self) {
        self.0.set(match self.0.get() {
            FullState::InSync { is_forced, .. } => FullState::InSync { is_forced, in_recovery: true },
            FullState::Recovering { current, .. } => FullState::Recovering { current, in_recovery: true },
            other => other,
        });
    }

    /// A recovery sweep has passed `range`: a member that is current up to its start is current up to its end.
    pub(crate) fn recovered(&self, range: &Range<u64>) {
        match self.0.get() {
            FullState::Recovering { current, in_recovery } if current >= range.start => {
                self.0.set(FullState::Recovering { current: current.max(range.end), in_recovery });
            }
            _ => {}
        }
    }

    /// A spare begins to recover.
    pub(super) fn begin_recovery(&self) {
        self.0.set(FullState::Recovering { current: 0, in_recovery: false });
    }

    /// A recovering member is current only below `current`.
    pub(super) fn revert_to(&self, current: u64) {
        if let FullState::Recovering { in_recovery, .. } = self.0.get() {
            self.0.set(FullState::Recovering { current, in_recovery });
        }
    }

    /// A recovering member has all its data.
    pub(super) fn end_recovery(&self) {
        self.0.set(FullState::InSync { is_forced: false, in_recovery: self.in_recovery() });
    }

    pub(super) fn set_faulty(&self) {
        self.0.set(FullState::Faulty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_state_drops_what_only_the_state_before_remembers() {
        let state = StateCell::new(DeviceState::Spare);
        let former = FormerSlot { slot: Slot(1), events: 7 };
        state.set_former_slot(former);
        assert_eq!(state.former_slot(), Some(former));
        state.begin_recovery();
        assert!(state.former_slot().is_none() && !state.in_recovery());
        state.enter_recovery();
        state.recovered(&(4096..8192));
        assert_eq!(state.get(), DeviceState::Recovering { current: 0 }, "the sweep began behind a gap");
        state.recovered(&(0..8192));
        assert_eq!(state.get(), DeviceState::Recovering { current: 8192 });
        state.end_recovery();
        assert!(state.get() == DeviceState::InSync && state.in_recovery());
        state.set_forced(true);
        assert!(state.is_forced() && state.in_recovery());
        state.set_faulty();
        state.set_forced(true);
        state.enter_recovery();
        assert!(state.get() == DeviceState::Faulty && !state.is_forced() && !state.in_recovery());
    }
}
