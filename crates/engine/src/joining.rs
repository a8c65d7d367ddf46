//! Members that join a running array: spares that take a slot.
//!
//! A device that takes a slot is active from then on, and written to
//! everywhere, but current nowhere: its recovery offset is 0. Its own
//! superblock says so, on stable storage, before any other calls it active;
//! so whatever a loss of power leaves, nobody takes it for current.
//!
//! Facts: `drivers/md/md.c` (`remove_and_add_spares`).

use crate::array::Inner;
use crate::clock::Clock;
use crate::device::{Device, DeviceState};
use crate::error::ArrayError;
use crate::member::Member;
use format::superblock::{DeviceRole, Version};
use format::units::{Sectors, Slot};
use std::rc::Rc;

impl<M: Member, C: Clock> Inner<M, C> {
    /// Gives every empty slot to a spare that fits, as far as there are any.
    pub(crate) async fn fill_slots(&self) -> Result<(), ArrayError> {
        let Some(_inside) = self.gate.enter_unseen() else { return Ok(()) };
        if !self.is_redundant() || self.next_to_seat().is_none() {
            return Ok(());
        }
        let _lock = self.metadata.exclusive(0..1).await;
        self.check_unbroken()?;
        while let Some((device, slot)) = self.next_to_seat() {
            match self.write_whole_bitmap(&device).await {
                Ok(()) => self.seat(device, slot),
                Err(error) => self.leave_behind(vec![(device, error)]).await?,
            }
        }
        self.publish().await
    }

    /// An empty slot and the spare for it: the one with the lowest number.
    fn next_to_seat(&self) -> Option<(Rc<Device<M>>, Slot)> {
        let slots = self.slots.borrow();
        let others = self.others.borrow();
        let number = |device: &Rc<Device<M>>| device.superblock.borrow().device_number;
        let mut spares: Vec<_> = others.iter().filter(|device| device.state.get() == DeviceState::Spare).collect();
        spares.sort_by_key(|device| number(device));
        let mut empty = (0..slots.len()).filter(|&slot| slots[slot].is_none()).map(|slot| Slot(slot as u16));
        empty.find_map(|slot| {
            let device = spares.iter().find(|device| self.fits(device, slot))?;
            Some(((*device).clone(), slot))
        })
    }

    /// Whether a spare can take a slot. 0.90 has no recovery offset: there a
    /// recovery is left to md.
    fn fits(&self, device: &Device<M>, slot: Slot) -> bool {
        let superblock = device.superblock.borrow();
        let room = device.member.limits().bytes.saturating_sub(device.data_at);
        superblock.version != Version::V0_90
            && self.geometry.used_bytes(slot) <= room
            && superblock.bitmap.is_some() == self.intent().is_some()
    }

    /// The caller holds the metadata lock, and publishes.
    fn seat(&self, device: Rc<Device<M>>, slot: Slot) {
        self.others.borrow_mut().retain(|other| !Rc::ptr_eq(other, &device));
        device.state.set(DeviceState::Recovering { current: 0 });
        let number = {
            let mut superblock = device.superblock.borrow_mut();
            superblock.recovery_offset = Some(Sectors(0));
            superblock.recovery_from_bitmap = false;
            usize::from(superblock.device_number.0)
        };
        self.record.borrow_mut().set_role(number, DeviceRole::Active(slot));
        self.slots.borrow_mut()[slot.index()] = Some(device);
    }
}
