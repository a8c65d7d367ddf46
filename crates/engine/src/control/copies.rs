//! More copies or fewer of a RAID-1: its number of slots.
//!
//! More: the new slots are empty, and filled as any empty slot is. Fewer: slots are given up that are empty, as in md; a
//! member that is in one moves to an empty one that stays, each in a round of its own and told first itself. So no two members
//! are ever in one slot, and whoever is one round behind has a place in the array. The number follows in the last round;
//! those that were not told take it from the others (`catch_up` in `assemble`).
//!
//! Writes are held back meanwhile, as they are where an array grows ([`crate::control::grow`]). Reads are not: who looks for a
//! copy in a slot that there is no more takes another.
//!
//! Facts: `raid1_reshape` in `drivers/md/raid1.c`; for where members are by their own superblocks, `super_1_validate`.

use crate::control::Control;
use crate::control::grow::unwell;
use crate::device::{Device, DeviceState};
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
        can_change.map_err(|defect| Refusal::defect(&first.name, defect))?;
        if wanted < 2 || usize::from(wanted) > MAX_DEVICES {
            return Err(Refusal::new(format!("{wanted} is not from 2 to {MAX_DEVICES}")).field(field));
        }
        if wanted == self.core.geometry().slots() {
            return Ok(false);
        }
        self.check_at_rest()?;
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
        let _held = self.hold_writes().await?;
        let _lock = self.metadata.lock.exclusive(0..1).await;
        if !self.check_copies(wanted).map_err(unwell)? {
            return Ok(());
        }
        let geometry = self.geometry_of_copies(wanted).map_err(unwell)?;
        self.metadata.leave_unknown_behind().await?; // whoever is absent, before his slot is another's
        while let Some((from, to)) = self.next_move(wanted) {
            self.change_slot(from, to);
            self.metadata.publish().await?;
        }
        for device in self.core.devices() {
            device.superblock.borrow_mut().raid_disks = wanted;
        }
        self.metadata.publish().await?;
        self.take_copies(geometry);
        Ok(())
    }
}

type Slotted<M> = Option<Rc<Device<M>>>;

impl<M: Member, C: Clock> Control<M, C> {
    /// A member in a slot that is given up, and an empty one that stays.
    fn next_move(&self, wanted: u16) -> Option<(Slot, Slot)> {
        let slots = self.core.roster.slots.borrow();
        let from = (usize::from(wanted)..slots.len()).find(|&slot| slots[slot].is_some())?;
        let to = slots.iter().position(Option::is_none)?;
        Some((Slot(from as u16), Slot(to as u16)))
    }

    fn geometry_of_copies(&self, wanted: u16) -> Result<Geometry, Refusal> {
        let devices = self.core.devices();
        let first = devices.first().expect("a running array has a member");
        let mut superblock = first.superblock.borrow().clone();
        superblock.raid_disks = wanted;
        Geometry::new(&superblock.shape(&[])).map_err(|defect| Refusal::defect(&first.name, defect))
    }

    /// The members know of it: slots that are new are empty, and so are those that go.
    fn take_copies(&self, geometry: Geometry) {
        self.core.roster.slots.borrow_mut().resize_with(geometry.slots().into(), || None);
        self.core.geometries.grow(geometry);
        self.core.update_whole();
        self.sweeps.changed.raise(); // a spare may fill one
    }

    fn change_slot(&self, from: Slot, to: Slot) {
        let mut slots = self.core.roster.slots.borrow_mut();
        let device = slots[from.index()].take().expect("a member is there");
        device.is_superblock_stale.set(true);
        let number = device.superblock.borrow().device_number.0;
        self.metadata.record.borrow_mut().set_role(number.into(), DeviceRole::Active(to));
        slots[to.index()] = Some(device);
        self.core.roster.slot_changed.raise();
    }
}
