//! Changes the number of copies of a RAID-1, that is its number of slots.
//!
//! More copies: the new slots are empty, and filled as any empty slot is. Fewer copies: only empty slots are
//! removed, as in md. A member in a slot to be removed moves to an empty slot that stays, in a round of its
//! own, and its superblock is written first. So no two members are ever in one slot, and a member that is one
//! round behind still has a place in the array. The new number follows in the last round; members that missed
//! it take it from the others ([`crate::control::election`]).
//!
//! Writes are held back meanwhile, as when an array grows ([`crate::control::grow`]). Reads are not: a read
//! that looks for a copy in a removed slot takes another copy.
//!
//! Facts: `raid1_reshape` in `drivers/md/raid1.c`; `super_1_validate` for the slots by the members' own
//! superblocks.

use crate::control::grow::as_io_error;
use crate::control::state::Control;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, DeviceState, Outdated};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::Member;
use format::geometry::Geometry;
use format::superblock::{DeviceRole, MAX_DEVICES};
use format::units::Slot;
use std::rc::Rc;

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::check_copies`].
    pub(crate) fn check_copies(&self, wanted: u16) -> Result<bool, Refusal> {
        let field = "superblock.raid_disks";
        let devices = self.core.devices();
        let first = devices.first().expect("a running array has a member");
        let can_change = first.superblock.borrow().check_copies_change();
        can_change.map_err(|defect| {
            Refusal::defect(&first.name, defect).advice(format!(
                "of RAID-4, 5 and 6: stop it, then `mdspace grow --raid-devices {wanted} MEMBER... --add NEW`"
            ))
        })?;
        let most = if self.metadata.numbers_are_slots() { self.slots_of_0_90() } else { MAX_DEVICES };
        if wanted < 2 || usize::from(wanted) > most {
            return Err(Refusal::new(format!("{wanted} is not from 2 to {most}")).field(field));
        }
        if wanted == self.core.geometry().slots() {
            return Ok(false);
        }
        self.check_no_other_change()?;
        let is_recovering =
            |slot: &Slotted<M>| slot.as_ref().is_some_and(|device| device.state.get() != DeviceState::InSync);
        if !self.core.health.agreed.get() || self.core.roster.slots.borrow().iter().any(is_recovering) {
            return Err(Refusal::new("not all copies are in agreement").advice("`mdspace serve` resyncs them first"));
        }
        let used = self.core.roster.slots.borrow().iter().flatten().count();
        if usize::from(wanted) < used {
            let refusal = Refusal::new(format!("{used} copies are in use, more than {wanted}")).field(field);
            return Err(refusal.advice("`mdspace fail` and `mdspace remove` the others first"));
        }
        Ok(true)
    }

    /// [`crate::Array::set_copies`].
    pub(crate) async fn set_copies(&self, wanted: u16) -> Result<(), ArrayError> {
        let change = self.hold_writes().await?.lock().await;
        if !self.check_copies(wanted).map_err(as_io_error)? {
            return Ok(());
        }
        let geometry = self.geometry_of_copies(wanted).map_err(as_io_error)?;
        self.metadata.eject_absent(&change).await?; // an absent member must be stale before its slot is reused
        while let Some((from, to)) = self.next_move(wanted) {
            self.change_slot(&change, from, to);
            self.metadata.publish(&change).await?;
        }
        if self.metadata.has_numbers_below(wanted) {
            self.metadata.move_numbers_behind(&change, wanted);
            self.metadata.publish(&change).await?;
        }
        for device in self.core.devices() {
            device.superblock.borrow_mut().raid_disks = wanted;
        }
        self.metadata.change_slots(&change, self.core.geometry().slots(), wanted);
        self.metadata.publish(&change).await?;
        self.take_copies(&change, geometry);
        Ok(())
    }
}

type Slotted<M> = Option<Rc<Device<M>>>;

impl<M: Member, C: Clock> Control<M, C> {
    /// A member in a slot that will be removed, and an empty slot that stays.
    fn next_move(&self, wanted: u16) -> Option<(Slot, Slot)> {
        let slots = self.core.roster.slots.borrow();
        let from = (usize::from(wanted)..slots.len()).find(|&slot| slots[slot].is_some())?;
        let to = slots.iter().position(Option::is_none)?;
        Some((Slot(from as u16), Slot(to as u16)))
    }

    /// The most slots in metadata 0.90: spares and faulty members have numbers behind them.
    fn slots_of_0_90(&self) -> usize {
        let first = self.core.devices().first().map(|device| device.superblock.borrow().devices_max());
        first.unwrap_or(0).saturating_sub(self.core.roster.others.borrow().len())
    }

    fn geometry_of_copies(&self, wanted: u16) -> Result<Geometry, Refusal> {
        let devices = self.core.devices();
        let first = devices.first().expect("a running array has a member");
        let mut superblock = first.superblock.borrow().clone();
        superblock.raid_disks = wanted;
        Geometry::new(&superblock.shape(&[])).map_err(|defect| Refusal::defect(&first.name, defect))
    }

    /// Takes the new number of slots, once all members have it. New slots are empty, and so are removed ones.
    fn take_copies(&self, guard: &MetadataGuard<'_>, geometry: Geometry) {
        self.core.roster.slots.borrow_mut(guard).resize_with(geometry.slots().into(), || None);
        self.core.geometries.replace(geometry);
        self.core.update_whole();
        self.sweeps.changed.raise(); // a spare may fill a new slot
    }

    fn change_slot(&self, guard: &MetadataGuard<'_>, from: Slot, to: Slot) {
        let device = self.core.roster.slots.borrow()[from.index()].clone().expect("the slot has a member");
        device.superblock.outdate(Outdated::ByMove);
        let number = device.superblock.borrow().device_number.0;
        match self.metadata.numbers_are_slots() {
            true => self.metadata.take_number_of_slot(guard, &device, to),
            false => self.metadata.record_mut(guard).set_role(number.into(), DeviceRole::Active(to)),
        }
        self.core.roster.slots.borrow_mut(guard).swap(from.index(), to.index());
        self.core.roster.slot_changed.raise();
    }
}
