//! The array's health: whether every slot is current, whether copies and parity agree, and whether the array has
//! failed. Also what the loss of a member would cost.
//!
//! This file decides and records; it performs no I/O.

use crate::base::range_set::Ranges;
use crate::core::metadata_lock::MetadataGuard;
use crate::core::personality::Supply;
use crate::core::roster::in_slot;
use crate::core::state::{Core, ParityTrust};
use crate::device::{Device, DeviceState};
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError, Operation};
use format::units::Slot;
use std::ops::Range;
use std::rc::Rc;

impl<M: Member, C: Clock> Core<M, C> {
    /// Fails when the array takes no more writes.
    pub(crate) fn check_not_failed(&self) -> Result<(), ArrayError> {
        match &*self.health.failed.borrow() {
            None => Ok(()),
            Some(reason) => Err(ArrayError::new(ArrayErrorKind::Io, format!("the array takes no writes: {reason}"))),
        }
    }

    /// From now on the array takes no more writes.
    pub(crate) fn fail_array(&self, reason: impl FnOnce() -> String) {
        let reason = self.health.failed.borrow_mut().get_or_insert_with(reason).clone();
        if !mutant!("scrub-outlives-array") {
            self.listener().inspect(|listener| listener.array_failed(&reason));
        }
    }

    /// Whether parity and copies are known to agree in `positions`, which end before byte `end` of the array.
    pub(crate) fn is_settled(&self, end: u64, positions: &Range<u64>) -> bool {
        self.health.agreed.get() || end <= self.health.agreed_below.get() || self.health.is_beyond_doubt(positions)
    }

    /// Whether parity and copies agree in `positions`, which end before byte `end` of the array, or must be assumed to.
    /// Never where nothing was ever written, and never once the array has failed: a write may have reached only some
    /// members of a stripe.
    pub(crate) fn is_agreed(&self, end: u64, positions: &Range<u64>) -> bool {
        let is_known = self.is_settled(end, positions) || self.health.trust.get() != ParityTrust::Nothing;
        is_known && !self.health.unbuilt.touches(positions) && self.health.failed.borrow().is_none()
    }

    /// Fails the array, because a member that it needs has failed. From now on the array takes no more writes.
    pub(crate) fn fail_without(&self, device: &Device<M>, error: &MemberError) -> ArrayError {
        let reason = format!("{} failed, and too few members are left: {error}", device.name);
        if self.health.failed.borrow().is_none() {
            tracing::error!("{reason}; the array takes no more writes");
            self.fail_array(|| reason.clone());
        }
        ArrayError::new(ArrayErrorKind::Io, reason)
    }

    /// Fails the array, because its write journal has failed. md makes such an array read-only, too.
    pub(crate) fn fail_without_journal(&self, device: &Device<M>, error: &MemberError) -> ArrayError {
        let reason = format!("its write journal {} failed: {error}", device.name);
        if self.health.failed.borrow().is_none() {
            tracing::error!("{reason}; the array takes no more writes");
            self.fail_array(|| reason.clone());
        }
        ArrayError::new(ArrayErrorKind::Io, reason)
    }

    /// Whether every slot holds a device that is current everywhere, has no bad blocks and answers.
    pub(crate) fn is_whole(&self) -> bool {
        self.health.whole.get()
    }

    /// Recomputes [`Core::is_whole`] after a device changed.
    pub(crate) fn update_whole(&self) {
        let is_whole = |slot: &Option<Rc<Device<M>>>| slot.as_ref().is_some_and(|device| device.is_whole());
        self.health.whole.set(self.roster.slots.borrow().iter().all(is_whole));
    }

    /// Whether all data stays available without a device. As at assembly, parity that may be wrong cannot replace
    /// a member's data, unless it already does.
    pub(crate) fn survives_without(&self, lost: &Rc<Device<M>>) -> bool {
        if lost.state.get() == DeviceState::Journal {
            return false;
        }
        let is_followed = lost.successor().is_some_and(|successor| successor.state.get() == DeviceState::InSync);
        if lost.state.get() != DeviceState::InSync || is_followed {
            return true;
        }
        if self.personality().needs_agreement() && !self.stands_in() {
            return false;
        }
        let slots = self.roster.slots.borrow();
        let current = |device: &Rc<Device<M>>| device.state.get() == DeviceState::InSync && !Rc::ptr_eq(device, lost);
        self.geometry().survives(&|slot| !in_slot(&slots, slot).is_some_and(current))
    }

    /// How many current members may fail, whichever they are, with all data still available.
    pub(crate) fn may_fail(&self) -> u16 {
        let is_unsafe = self.personality().needs_agreement() && !self.stands_in();
        if is_unsafe || self.health.failed.borrow().is_some() {
            return 0;
        }
        let slots = self.roster.slots.borrow();
        let current = |device: &Rc<Device<M>>| device.state.get() == DeviceState::InSync;
        self.geometry().may_fail(&|slot| !in_slot(&slots, slot).is_some_and(current))
    }

    /// Whether parity can stand in for a member, everywhere that was ever written to.
    fn stands_in(&self) -> bool {
        self.health.agreed.get() || self.health.trust.get() == ParityTrust::Members
    }

    /// Whether the other members can supply all that a member holds in `range`.
    pub(crate) fn others_can_supply(&self, device: &Rc<Device<M>>, range: &Range<u64>) -> bool {
        let Some(slot) = self.slot_of_device(device) else { return true };
        self.personality().can_be_supplied(slot, range, self)
    }

    /// Adds a range to a member's bad blocks. Only errors of the medium become bad blocks, and only while the log has
    /// room. The caller publishes.
    pub(crate) fn add_bad_blocks(
        &self,
        _guard: &MetadataGuard<'_>,
        device: &Rc<Device<M>>,
        range: &Range<u64>,
        error: &MemberError,
    ) -> bool {
        let is_kept = error.is_medium_error() && device.state.get() == DeviceState::InSync;
        if !is_kept || !device.bad.add(range) {
            return false;
        }
        tracing::warn!("{}: bytes {} to {} of its data are bad blocks now", device.name, range.start, range.end);
        self.update_whole();
        if range.end - range.start > ROW_BYTES {
            // Only a part of this long transfer may have failed. Read repair restores the rest.
            device.queue_for_repair(range.clone());
        }
        true
    }

    /// The part of a member's data that a failed write was meant to change.
    pub(crate) fn data_of(&self, device: &Rc<Device<M>>, error: &MemberError) -> Option<Range<u64>> {
        let is_change = matches!(error.operation, Operation::Write | Operation::WriteZeroes | Operation::Discard);
        let slot = self.slot_of_device(device).filter(|_| is_change && error.bytes > 0)?;
        let start = error.at.0.checked_sub(device.data_at())?;
        let range = start..start + error.bytes;
        (range.end <= self.geometry().used_bytes(slot)).then_some(range)
    }
}

impl<M: Member, C: Clock> Supply for Core<M, C> {
    fn parity_stands_in(&self) -> bool {
        self.stands_in()
    }

    fn can_supply(&self, slot: Slot, range: &Range<u64>) -> bool {
        self.device(slot).is_some_and(|device| device.is_readable(range.clone()))
    }

    /// Cuts at the edges of bad blocks, and where recovering members stop being current.
    fn evenly_readable(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut edges = vec![range.start, range.end];
        for device in self.roster.slots.borrow().iter().flatten().filter(|device| !device.bad.is_empty()) {
            let bad: Ranges = device.bad.ranges();
            edges.extend(bad.iter().flat_map(|bad| [bad.start, bad.end]).filter(|edge| range.contains(edge)));
        }
        edges.extend(self.roster.slots.borrow().iter().flatten().filter_map(|device| match device.state.get() {
            DeviceState::Recovering { current } if range.contains(&current) => Some(current),
            _ => None,
        }));
        edges.sort_unstable();
        edges.dedup();
        edges.windows(2).map(|pair| pair[0]..pair[1]).collect()
    }
}
