//! Device numbers of metadata 0.90, where the number of an active member is its slot.
//!
//! The table of 0.90 has no place for a recovery offset. So a member that recovers is a spare in every superblock, with a
//! number behind the slots. When its data is current, it takes the number of its slot. Then the *other* superblocks are
//! written first ([`Metadata::publish`]): after a power loss the member still calls itself a spare, which no superblock
//! contradicts, and is recovered again. If its own were written first, the others would call it missing, and seem to be
//! used apart from it ([`crate::control::split`]).
//!
//! Members of other formats keep their number for life. Every function here leaves them alone. Nothing is written here:
//! the next round does that.
//!
//! Facts: `super_90_sync` and `super_90_validate` in `drivers/md/md.c`.

use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, DeviceState};
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::member::Member;
use format::superblock::{DeviceRole, Superblock};
use format::units::{DeviceNumber, Slot};
use std::ops::Range;
use std::rc::Rc;

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Whether the number of an active member is its slot.
    pub(crate) fn numbers_are_slots(&self) -> bool {
        self.core.members().first().is_some_and(|device| device.superblock.borrow().numbers_are_slots())
    }

    /// The role of a member that begins to recover in `slot`, in all superblocks.
    pub(crate) fn role_in_recovery(&self, slot: Slot) -> DeviceRole {
        if self.numbers_are_slots() { DeviceRole::Spare } else { DeviceRole::Active(slot) }
    }

    /// A device number for a new member of an array with so many slots: an unused one or, when superblocks have no room
    /// for more, the number of a device that is gone, as md does. The caller makes the absent holder of that number stale
    /// before. Numbers below the slot count belong to the slots of the creation.
    pub(crate) fn free_number(&self, slots: u16) -> Option<DeviceNumber> {
        let members = self.core.members();
        let room = members.iter().map(|device| device.superblock.borrow().devices_max()).min()?;
        let is_held = |number: &u16| members.iter().any(|device| device.superblock.borrow().device_number.0 == *number);
        let record = self.record();
        let role = |number: &u16| record.roles.get(usize::from(*number)).copied().unwrap_or(DeviceRole::Spare);
        let free = || (slots..room as u16).filter(|number| !is_held(number));
        let is = |wanted: DeviceRole| free().find(|number| role(number) == wanted);
        let number = is(DeviceRole::Spare);
        number.or_else(|| is(DeviceRole::Faulty).filter(|_| !mutant!("numbers-of-the-gone-kept"))).map(DeviceNumber)
    }

    /// Lists a spare under its number.
    pub(crate) fn list_spare(&self, guard: &MetadataGuard<'_>, device: &Device<M>) {
        let number = device.superblock.borrow().device_number;
        self.record_mut(guard).set_role(number.0.into(), DeviceRole::Spare);
        self.in_every_table(|superblock| superblock.list(number));
    }

    /// A spare is no member any more.
    pub(crate) fn unlist_spare(&self, device: &Device<M>) {
        let number = device.superblock.borrow().device_number;
        self.in_every_table(|superblock| superblock.unlist(number));
    }

    /// A member that is current in `slot`, or that moves there, takes its number.
    pub(crate) fn take_number_of_slot(&self, guard: &MetadataGuard<'_>, device: &Rc<Device<M>>, slot: Slot) {
        let (own, wanted) = (device.superblock.borrow().device_number, DeviceNumber(slot.0));
        if !self.numbers_are_slots() || own == wanted {
            return;
        }
        // A faulty member that was not removed yet: nothing is written to it, and `remove` goes by its name.
        for other in self.core.members() {
            if !Rc::ptr_eq(&other, device) && other.superblock.borrow().device_number == wanted {
                other.superblock.borrow_mut().device_number = own;
            }
        }
        device.superblock.borrow_mut().device_number = wanted;
        self.in_every_table(|superblock| superblock.list(wanted));
        match own.0 < self.core.geometry().slots() {
            true => self.vacate(guard, own.0..own.0 + 1),
            false => self.unlist(guard, own.0..own.0 + 1),
        }
        self.record_mut(guard).set_role(wanted.0.into(), DeviceRole::Active(slot));
    }

    /// Whether spares and faulty members have numbers that are slots of an array with `slots`.
    pub(crate) fn has_numbers_below(&self, slots: u16) -> bool {
        self.numbers_are_slots() && self.core.roster.others.borrow().iter().any(|device| number_of(device).0 < slots)
    }

    /// Gives such devices other numbers.
    pub(crate) fn move_numbers_behind(&self, guard: &MetadataGuard<'_>, slots: u16) {
        let others: Vec<_> = self.core.roster.others.borrow().clone();
        for device in others.iter().filter(|device| self.numbers_are_slots() && number_of(device).0 < slots) {
            let Some(number) = self.free_number(slots) else { return };
            let own = number_of(device);
            device.superblock.borrow_mut().device_number = number;
            if device.state.get() == DeviceState::Spare {
                self.unlist(guard, own.0..own.0 + 1);
                self.list_spare(guard, device);
            }
        }
    }

    /// The number of slots changes from `old` to `new`: new ones have no member, and the numbers of others are free.
    pub(crate) fn change_slots(&self, guard: &MetadataGuard<'_>, old: u16, new: u16) {
        if self.numbers_are_slots() {
            self.vacate(guard, old..new);
            self.unlist(guard, new..old);
        }
    }

    fn vacate(&self, guard: &MetadataGuard<'_>, numbers: Range<u16>) {
        for number in numbers {
            self.record_mut(guard).set_role(number.into(), DeviceRole::Faulty);
            self.in_every_table(|superblock| superblock.vacate(DeviceNumber(number)));
        }
    }

    fn unlist(&self, guard: &MetadataGuard<'_>, numbers: Range<u16>) {
        for number in numbers {
            self.record_mut(guard).set_role(number.into(), DeviceRole::Spare);
            self.in_every_table(|superblock| superblock.unlist(DeviceNumber(number)));
        }
    }

    fn in_every_table(&self, change: impl Fn(&mut Superblock)) {
        self.core.members().iter().for_each(|device| change(&mut device.superblock.borrow_mut()));
    }
}

fn number_of<M: Member>(device: &Device<M>) -> DeviceNumber {
    device.superblock.borrow().device_number
}
