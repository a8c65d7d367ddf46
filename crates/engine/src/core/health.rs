//! What the array can do without: whether it is whole, in agreement, broken, and what a loss would cost.

use crate::base::range_set::Ranges;
use crate::core::Core;
use crate::core::roster::in_slot;
use crate::device::{Device, DeviceState};
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError, Operation};
use format::geometry::Geometry;
use format::units::{ComponentByte, Slot};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// What the array can bear.
pub(crate) struct Health {
    /// Every slot is filled by a device that is current everywhere.
    pub(crate) whole: Cell<bool>,
    /// Parity and copies agree everywhere.
    pub(crate) agreed: Cell<bool>,
    /// They agree below this byte of the array, as far as a resync has come.
    pub(crate) agreed_below: Cell<u64>,
    /// Why the array takes no more writes, once more has failed than it bears.
    pub(crate) failed: RefCell<Option<String>>,
}

/// Whether all data can be had without the slots of which `missing` is true.
pub(crate) fn survives(geometry: &Geometry, missing: &dyn Fn(format::units::Slot) -> bool) -> bool {
    match geometry {
        Geometry::Mapping(mapping) => mapping.survives(missing),
        Geometry::Parity(parity) => {
            let lost = (0..parity.slots()).filter(|&slot| missing(format::units::Slot(slot))).count();
            parity.survives(lost as u16)
        }
    }
}

impl<M: Member, C: Clock> Core<M, C> {
    /// Fails when the array takes no more writes.
    pub(crate) fn check_unbroken(&self) -> Result<(), ArrayError> {
        match &*self.health.failed.borrow() {
            None => Ok(()),
            Some(reason) => Err(ArrayError::new(ArrayErrorKind::Io, format!("the array takes no writes: {reason}"))),
        }
    }

    /// The array takes no more writes from here on.
    pub(crate) fn give_out(&self, reason: impl FnOnce() -> String) {
        let reason = self.health.failed.borrow_mut().get_or_insert_with(reason).clone();
        if !mutant!("scrub-outlives-array") {
            self.listener().inspect(|listener| listener.array_failed(&reason));
        }
    }

    /// Whether parity and copies agree in all that lies below `end`, or have to be taken so. Never once the
    /// array has broken off: a write may have reached some of a stripe's members alone.
    pub(crate) fn is_agreed(&self, end: u64) -> bool {
        let is_known = self.health.agreed.get() || end <= self.health.agreed_below.get() || self.info.forced;
        is_known && self.health.failed.borrow().is_none()
    }

    /// The array cannot do without a member that failed: it takes no more writes.
    pub(crate) fn break_off(&self, device: &Device<M>, error: &MemberError) -> ArrayError {
        let reason = format!("{} failed, and too few members are left: {error}", device.name);
        if self.health.failed.borrow().is_none() {
            tracing::error!("{reason}; the array takes no more writes");
            self.give_out(|| reason.clone());
        }
        ArrayError::new(ArrayErrorKind::Io, reason)
    }

    /// After a device's state changed: whether every slot is filled by one that is current.
    pub(crate) fn update_whole(&self) {
        let is_whole = |slot: &Option<Rc<Device<M>>>| slot.as_ref().is_some_and(|device| device.is_whole());
        self.health.whole.set(self.roster.slots.borrow().iter().all(is_whole));
    }

    /// Whether all data can still be had without a device. As at assembly,
    /// parity that may be wrong stands in for nothing.
    pub(crate) fn survives_without(&self, lost: &Rc<Device<M>>) -> bool {
        let is_followed = lost.successor().is_some_and(|successor| successor.state.get() == DeviceState::InSync);
        if lost.state.get() != DeviceState::InSync || is_followed {
            return true;
        }
        if matches!(self.geometry(), Geometry::Parity(_)) && !self.health.agreed.get() {
            return false;
        }
        let slots = self.roster.slots.borrow();
        let current = |device: &Rc<Device<M>>| device.state.get() == DeviceState::InSync && !Rc::ptr_eq(device, lost);
        survives(self.geometry(), &|slot| !in_slot(&slots, slot).is_some_and(current))
    }

    /// Whether all that a member holds in `range` can be had from the others.
    pub(crate) fn goes_on_without(&self, device: &Rc<Device<M>>, range: &Range<u64>) -> bool {
        let Some(slot) = self.slot_of_device(device) else { return true };
        match self.geometry() {
            Geometry::Parity(parity) => {
                self.health.agreed.get()
                    && self.evenly_readable(range).iter().all(|part| {
                        let is_lost = |&other: &Slot| other == slot || !self.gives(other, part);
                        parity.survives((0..parity.slots()).map(Slot).filter(is_lost).count() as u16)
                    })
            }
            Geometry::Mapping(mapping) => {
                let mut at = range.start;
                while at < range.end {
                    let bytes = mapping.chunk_rest(ComponentByte(at)).min(range.end - at);
                    if let Some(held) = mapping.held(slot, ComponentByte(at)) {
                        let piece = mapping.piece_at(held);
                        // Copies that are in parts bad are asked a row at a time.
                        let rows = (0..bytes).step_by(ROW_BYTES as usize).map(|row| (row, ROW_BYTES.min(bytes - row)));
                        let is_given = |(row, bytes): (u64, u64)| {
                            let gives = |&(other, at): &(Slot, ComponentByte)| {
                                other != slot && self.gives(other, &(at.0 + row..at.0 + row + bytes))
                            };
                            piece.copies.iter().any(gives)
                        };
                        if !rows.into_iter().all(is_given) {
                            return false;
                        }
                    }
                    at += bytes.max(1);
                }
                true
            }
        }
    }

    pub(crate) fn gives(&self, slot: Slot, range: &Range<u64>) -> bool {
        self.device(slot).is_some_and(|device| device.is_readable(range.clone()))
    }

    /// Cuts a range where a bad block of any member begins or ends.
    pub(crate) fn evenly_readable(&self, range: &Range<u64>) -> Vec<Range<u64>> {
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

    /// Adds a range to a member's bad blocks, if what failed is a part of the medium and the log has room. The caller
    /// holds the metadata lock, and publishes.
    pub(crate) fn becomes_bad(&self, device: &Rc<Device<M>>, range: &Range<u64>, error: &MemberError) -> bool {
        let is_kept = error.is_medium_error() && device.state.get() == DeviceState::InSync;
        if !is_kept || !device.bad.add(range) {
            return false;
        }
        tracing::warn!("{}: bytes {} to {} of its data are bad blocks now", device.name, range.start, range.end);
        self.health.whole.set(false);
        if range.end - range.start > ROW_BYTES {
            // A long transfer failed for a part of it: the rest is restored when it is healed.
            device.unread.borrow_mut().add(range.clone());
            self.context.read_error_pending.raise();
        }
        true
    }

    /// The part of a member's data that a failed write was to change.
    pub(crate) fn data_of(&self, device: &Rc<Device<M>>, error: &MemberError) -> Option<Range<u64>> {
        let is_change = matches!(error.operation, Operation::Write | Operation::WriteZeroes | Operation::Discard);
        let slot = self.slot_of_device(device).filter(|_| is_change && error.bytes > 0)?;
        let start = error.at.0.checked_sub(device.data_at)?;
        let range = start..start + error.bytes;
        (range.end <= self.geometry().used_bytes(slot)).then_some(range)
    }
}
