//! The changes of a device's state. Each is one function, which changes the state and what the superblock is to say of
//! it together, so that the two never contradict each other.
//!
//! It decides nothing and writes nothing: `control` and `metadata` call these functions, and publish the change with a
//! round of superblocks.
//!
//! Facts: `super_1_validate` and `super_1_sync` in `drivers/md/md.c`, for the fields that describe a recovery.

use crate::device::in_use::Device;
use crate::device::state::DeviceState;
use crate::device::superblock::Outdated;
use crate::plan::ROW_BYTES;
use crate::seam::member::Member;
use format::units::{SECTOR_BYTES, Sectors};

impl<M: Member> Device<M> {
    /// A spare takes a slot, and is recovered: of what the bitmap names if `by_bitmap`, otherwise whole.
    pub(crate) fn take_seat(&self, by_bitmap: bool) {
        self.state.begin_recovery();
        self.begin_stripe_log();
        let mut superblock = self.superblock.borrow_mut();
        superblock.recovery_offset = (!mutant!("spare-called-current")).then_some(Sectors(0));
        superblock.recovery_from_bitmap = by_bitmap;
    }

    /// A spare becomes the successor of a member, and is filled.
    pub(crate) fn become_successor(&self) {
        self.state.begin_recovery();
        self.begin_stripe_log();
        let mut superblock = self.superblock.borrow_mut();
        superblock.recovery_offset = Some(Sectors(0));
        superblock.recovery_from_bitmap = false;
        superblock.replacement = true;
    }

    /// Of a successor: from this byte of the component on, it may differ from its member.
    pub(crate) fn revert_to(&self, from: u64) {
        let DeviceState::Recovering { current } = self.state.get() else { return };
        let current = mutant!("successor-not-compared" => current, else current.min(from / ROW_BYTES * ROW_BYTES));
        self.state.revert_to(current);
        self.superblock.borrow_mut().recovery_offset = Some(Sectors(current / SECTOR_BYTES));
    }

    /// Assembly found a successor without its member: it has the slot, and goes on from where it is.
    pub(crate) fn found_without_member(&self) {
        self.leave_member();
        if self.superblock.borrow().recovery_offset.is_none() {
            self.state.end_recovery();
            self.superblock.says(self.state.get()); // as it was found
        }
    }

    /// A successor is no successor any more: its member has left, or it has.
    pub(crate) fn leave_member(&self) {
        self.superblock.borrow_mut().replacement = false;
    }

    /// A recovery is complete: the device is in sync, and no successor any more.
    pub(crate) fn become_current(&self) {
        self.state.end_recovery();
        let mut superblock = self.superblock.borrow_mut();
        superblock.recovery_offset = None;
        superblock.recovery_from_bitmap = false;
        superblock.replacement = false;
    }

    /// The member was stale, and assembly takes it by force.
    pub(crate) fn take_by_force(&self) {
        self.superblock.outdate(Outdated::ByForce);
        self.state.set_forced(true);
    }

    /// Its superblock was written with a round: it says the device's state, and has followed a successor's.
    pub(crate) fn superblock_written(&self) {
        self.superblock.says(self.state.get());
        self.replacement.settle();
    }

    /// The device leaves the array for a fault: its operations are abandoned, and what it owes is lost with it.
    pub(crate) fn eject(&self) {
        self.state.set_faulty();
        self.owed.clear();
        self.context.owed_changed.raise();
        self.pending.abandon();
    }

    /// The device is no member any more, but its operations go on: reads of a replaced member are right until their
    /// end.
    pub(crate) fn retire(&self) {
        self.state.set_faulty();
    }

    /// Abandons the operations that have timed out before `tick`; true when there was any.
    pub(crate) fn abandon_before(&self, tick: u64) -> bool {
        self.pending.abandon_before(tick)
    }
}
