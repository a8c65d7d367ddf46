//! The members of an array: by slot and by name, spares and successors.
//!
//! This file holds the lists and searches them. It never decides that a member leaves.

use crate::core::metadata_lock::MetadataGuard;
use crate::core::state::Core;
use crate::device::{Device, DeviceState, Failures};
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use crate::seam::observe::Watched;
use format::units::Slot;
use std::rc::Rc;

/// The device in a slot. A slot that is past the end is empty: copies may have been removed while a request was
/// reading.
pub(crate) fn in_slot<T>(slots: &[Option<T>], slot: Slot) -> Option<&T> {
    slots.get(slot.index())?.as_ref()
}

impl<M: Member, C: Clock> Core<M, C> {
    /// The longest transfer that still speeds up any device, in bytes.
    pub(crate) fn window_bytes(&self) -> u64 {
        let devices = self.devices();
        let longest = devices.iter().map(|device| device.member.limits().window_bytes()).max();
        longest.expect("a running array has a member")
    }

    /// The active device in `slot`.
    pub(crate) fn device(&self, slot: Slot) -> Option<Rc<Device<M>>> {
        let slots = self.roster.slots.borrow();
        in_slot(&slots, slot).filter(|device| device.is_active()).cloned()
    }

    /// The devices that superblocks are written to: active devices, spares, the write journal, and successors.
    pub(crate) fn devices(&self) -> Vec<Rc<Device<M>>> {
        let slots = self.roster.slots.borrow();
        let others = self.roster.others.borrow();
        let is_used = |device: &&Rc<Device<M>>| matches!(device.state.get(), DeviceState::Spare | DeviceState::Journal);
        let successors = slots.iter().flatten().filter_map(|device| device.successor());
        slots.iter().flatten().chain(others.iter().filter(is_used)).cloned().chain(successors).collect()
    }

    /// The member of this name, or the only one whose path ends in it.
    pub(crate) fn find(&self, name: &str) -> Result<Rc<Device<M>>, Refusal> {
        let slots = self.roster.slots.borrow();
        let others = self.roster.others.borrow();
        let successors: Vec<_> = slots.iter().flatten().filter_map(|device| device.successor()).collect();
        let all = || slots.iter().flatten().chain(others.iter()).chain(&successors);
        if let Some(device) = all().find(|device| device.name == name) {
            return Ok(device.clone());
        }
        let last_part = |device: &&Rc<Device<M>>| device.name.rsplit('/').next() == Some(name);
        let mut matches = all().filter(last_part);
        match (matches.next(), matches.next()) {
            (Some(device), None) => Ok(device.clone()),
            (Some(_), Some(_)) => {
                Err(Refusal::new("several members have this name").of(name).advice("give the full path"))
            }
            (None, _) => Err(Refusal::new("not a member of this array").of(name)),
        }
    }

    /// All devices that the array knows, including faulty ones.
    pub(crate) fn members(&self) -> Vec<Rc<Device<M>>> {
        let slots = self.roster.slots.borrow();
        let successors = slots.iter().flatten().filter_map(|device| device.successor());
        slots.iter().flatten().chain(self.roster.others.borrow().iter()).cloned().chain(successors).collect()
    }

    /// Each successor, with the slot of the member that it will replace.
    pub(crate) fn successors(&self) -> Vec<(Slot, Rc<Device<M>>)> {
        let slots = self.roster.slots.borrow();
        let successor =
            |(device, slot): (&Option<Rc<Device<M>>>, u16)| Some((Slot(slot), device.as_ref()?.successor()?));
        slots.iter().zip(0..).filter_map(successor).collect()
    }

    /// Whether a device is the successor of a member, and is about to say that it has taken over.
    pub(crate) fn is_taking_over(&self, device: &Rc<Device<M>>) -> bool {
        let is_its = |old: &Rc<Device<M>>| old.successor().is_some_and(|successor| Rc::ptr_eq(&successor, device));
        self.roster.slots.borrow().iter().flatten().any(|old| old.replacement.is_leaving() && is_its(old))
    }

    /// Successors that failed a write and have not left the array yet.
    pub(crate) fn failed_successors(&self, _guard: &MetadataGuard<'_>) -> Failures<M> {
        if !self.context.is_successor_lost.take() {
            return Vec::new();
        }
        let failed = |(_, device): (Slot, Rc<Device<M>>)| {
            let error = device.replacement.take_failure()?;
            Some((device, error))
        };
        self.successors().into_iter().filter_map(failed).collect()
    }

    /// The slot that a device is in.
    pub(crate) fn slot_of_device(&self, device: &Device<M>) -> Option<Slot> {
        let slots = self.roster.slots.borrow();
        let is_it = |seated: &Rc<Device<M>>| std::ptr::eq(&**seated, device);
        let position = slots.iter().position(|seated| seated.as_ref().is_some_and(is_it));
        position.map(|slot| Slot(slot as u16))
    }

    /// Registers a member with the array's observer, if there is one.
    pub(crate) fn watch(&self, name: &str, member: &Watched<M>) {
        member.watch(self.context.observer.borrow().as_ref().map(|observer| observer.watch(name)));
    }
}
