//! Members that join a running array: new members, returning members, and spares that take a slot.
//!
//! A device that takes a slot is active from then on. All writes reach it, but none of its data is current:
//! its recovery offset is 0. Its own superblock says so, on stable storage, before any other superblock calls
//! it active. So after a power loss at any moment no assembly takes it for current. Metadata 0.90 has no
//! recovery offset: there it is a spare until it is current ([`crate::metadata`], `numbers.rs`).
//!
//! A returning member may take its old slot again and lack only what the write-intent bitmap names. The
//! condition is that it left no earlier than at `events_cleared`, before which bits may have been cleared.
//! That is md's whole rule; this engine is stricter. It refuses a member that was used without the others
//! ([`crate::control::split`]), and also recovers what the member's own bitmap names.
//!
//! Facts: `drivers/md/md.c` (`super_1_validate`, `remove_and_add_spares`), mdadm's `Manage.c` for the checks
//! before.

use crate::control::blocks::check_blocks;
use crate::control::create::erase_superblocks;
use crate::control::difference::difference;
use crate::control::inspect::{Found, find_claim, find_superblock, read_bad_blocks};
use crate::control::split::used_without;
use crate::control::state::Control;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, DeviceState, FormerSlot, place_bytes};
use crate::metadata::Entered;
use crate::metadata::bitmap::named::Named;
use crate::seam::bytes::write_bytes;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Candidate, Member, MemberError};
use crate::seam::report::ChangeKind;
use format::Defect;
use format::integrity::Layout;
use format::stripe_log::Place;
use format::superblock::{DeviceRole, Superblock};
use format::units::{DeviceNumber, SECTOR_BYTES, Slot};
use std::rc::Rc;

/// What a new member may hold and lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overwrite {
    /// Nothing that is known.
    Nothing,
    /// The superblock of a spare of the array that has this UUID.
    SpareOf([u8; 16]),
    /// Anything.
    Anything,
}

impl Overwrite {
    /// By a switch for everything.
    pub(crate) fn all(is_on: bool) -> Self {
        if is_on { Self::Anything } else { Self::Nothing }
    }

    /// Whether it permits to overwrite a member with that superblock.
    fn permits(self, superblock: &Superblock) -> bool {
        match self {
            Self::Nothing => false,
            Self::SpareOf(array) => superblock.set_uuid == array && superblock.own_role() == DeviceRole::Spare,
            Self::Anything => true,
        }
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::add`] and [`crate::Array::add_spare_of`].
    pub(crate) async fn add(
        &self,
        candidate: Candidate<M>,
        device_uuid: [u8; 16],
        overwrite: Overwrite,
    ) -> Result<(), Refusal> {
        let entered = self.enter_to_join(&candidate.name)?;
        self.check_unused(&candidate, overwrite).await?;
        let change = entered.lock().await;
        let device = self.prepare_spare(&change, candidate, device_uuid).await?;
        self.join(&change, device).await
    }

    /// [`crate::Array::re_add`].
    pub(crate) async fn re_add(&self, candidate: Candidate<M>) -> Result<(), Refusal> {
        let entered = self.enter_to_join(&candidate.name)?;
        let Candidate { name, member } = candidate;
        let look = async || {
            let found = find_superblock(&name, &member, &self.core.pool).await?;
            let bad = read_bad_blocks(&name, &member, &found.superblock, &self.core.pool).await?;
            Ok((found, bad))
        };
        // A disk that first has to spin up holds no lock. A request that has the lock may be making a spare of it: what
        // counts is found with the lock.
        let before = self.within_timeout(&name, look()).await?;
        let change = entered.lock().await;
        self.check_absent(&name)?;
        let (Found { superblock, place }, bad) = match mutant!("returning-member-looked-at-once") {
            true => before,
            false => self.within_timeout(&name, look()).await?,
        };
        let place_to_return = self.check_return(&name, &superblock)?;
        let named = Named::by(&name, &member, &superblock, &self.core.pool).await;
        let superblock = self.with_number_of_a_spare(&name, &member, superblock)?;
        // A member that left in the round that added the bitmap does not know where it is. One that returns needs a
        // bitmap, so the array has no log.
        let superblock = superblock
            .without_parity_log()
            .with_bitmap(self.any_superblock().bitmap, member.limits().bytes)
            .map_err(|defect| Refusal::defect(&name, defect))?;
        self.check_newcomer(&name, &member, &superblock)?;
        let context = self.core.context.clone();
        let device = Rc::new(Device::new(name, member, superblock, place, DeviceState::Spare, bad, context));
        device.state.set_former_slot(place_to_return);
        let known = async {
            device.find_checksums(&self.core.pool, self.core.clock.wall(), self.verify.get()).await;
            Ok(())
        };
        self.within_timeout(&device.name, known).await?;
        self.metadata.eject_absent(&change).await.map_err(|error| error.refusal().of(&device.name))?;
        self.metadata.note_named(&change, &named);
        self.core.roster.others.borrow_mut(&change).push(device.clone());
        self.join(&change, device).await
    }
}

impl<M: Member> Device<M> {
    /// Checks that the device still belongs to the array after its superblock was written.
    pub(crate) fn check_joined(&self) -> Result<(), Refusal> {
        match self.state.get() {
            DeviceState::Faulty => Err(Refusal::new("failed while its superblock was written")
                .of(&self.name)
                .after("the array goes on without it, and calls it faulty")
                .advice("`mdspace remove` it, and give another")),
            _ => Ok(()),
        }
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Enters the gate for a member that is to join.
    pub(crate) fn enter_to_join(&self, name: &str) -> Result<Entered<'_, M, C>, Refusal> {
        let refuse = |reason: &str, advice: &str| Err(Refusal::new(reason).of(name).advice(advice));
        if self.core.is_read_only() {
            return Err(self.core.refuse_read_only());
        }
        if !self.core.is_redundant() {
            return refuse("this level has no redundancy to recover a member from", "make a larger array, and copy");
        }
        self.check_absent(name)?;
        self.core.check_not_failed().map_err(|error| Refusal::new(error.reason).of(name))?;
        self.metadata.enter_background().ok_or_else(|| Refusal::new("the array is stopped"))
    }

    pub(crate) async fn check_unused(&self, candidate: &Candidate<M>, overwrite: Overwrite) -> Result<(), Refusal> {
        let Candidate { name, member } = candidate;
        let look = async { Ok(find_claim(name, member, &self.core.pool).await) };
        match self.within_timeout(name, look).await? {
            _ if overwrite == Overwrite::Anything => Ok(()),
            Ok(None) => Ok(()),
            Ok(Some(superblock)) if overwrite.permits(&superblock) => Ok(()),
            Ok(Some(superblock)) => Err(self.used(name, &superblock)),
            Err(refusal) => Err(refusal),
        }
    }

    /// Prepares a new spare that no superblock names yet.
    pub(crate) async fn prepare_spare(
        &self,
        guard: &MetadataGuard<'_>,
        candidate: Candidate<M>,
        device_uuid: [u8; 16],
    ) -> Result<Rc<Device<M>>, Refusal> {
        let Candidate { name, member } = candidate;
        self.check_absent(&name)?;
        let superblock = self.superblock_of_newcomer(&name, &member, device_uuid)?;
        self.check_newcomer(&name, &member, &superblock)?;
        let called = name.clone();
        let begun = self.within_timeout(&called, self.overwrite(guard, Candidate { name, member }, superblock)).await;
        let device = begun.map_err(|refusal| {
            refusal
                .after("it is not a member; its old superblocks may be erased")
                .or_advice("give another one, or this one again with --force")
        })?;
        self.metadata.eject_absent(guard).await.map_err(|error| error.refusal().of(&device.name))?;
        self.core.roster.others.borrow_mut(guard).push(device.clone());
        Ok(device)
    }

    /// Writes everything but the superblock to a new member.
    async fn overwrite(
        &self,
        guard: &MetadataGuard<'_>,
        candidate: Candidate<M>,
        superblock: Superblock,
    ) -> Result<Rc<Device<M>>, Refusal> {
        let Candidate { name, member } = candidate;
        let failed = |error: MemberError| Refusal::member_error(&name, &error);
        self.check_own_areas(&superblock).map_err(|defect| Refusal::defect(&name, defect))?;
        erase_superblocks(&name, &member, &self.core.pool).await?;
        write_empty_log(&member, &self.core.pool, &superblock).await.map_err(failed)?;
        let place = vec![0; place_bytes(superblock.super_at(), member.limits().bytes)].into();
        let (context, state) = (self.core.context.clone(), DeviceState::Spare);
        let device = Rc::new(Device::new(name.clone(), member, superblock, place, state, Vec::new(), context));
        device.erase_old_stripe_log(&self.core.pool).await.map_err(failed)?;
        self.metadata.write_whole_bitmap(guard, &device).await.map_err(failed)?;
        self.give_checksums(&device).await?;
        Ok(device)
    }

    /// Checks that a new member has room for a stripe log and for checksums, where the array has them.
    fn check_own_areas(&self, superblock: &Superblock) -> Result<(), Defect> {
        match (self.metadata.has_stripe_log(), self.has_checksums()) {
            (true, true) => Place::of(superblock)?.check_apart(&Layout::of(superblock)?),
            (true, false) => Place::of(superblock).map(drop),
            (false, _) => Ok(()),
        }
    }

    /// Checked again under the metadata lock: two requests may add the same member.
    pub(super) fn check_absent(&self, name: &str) -> Result<(), Refusal> {
        match self.core.members().iter().any(|device| device.name == name) {
            true => {
                let refusal = Refusal::new("a member of this array already").of(name);
                Err(refusal.advice("if it is faulty, remove it first"))
            }
            false => Ok(()),
        }
    }

    /// Some member's superblock, for the fields in which all agree.
    pub(super) fn any_superblock(&self) -> Superblock {
        let slots = self.core.roster.slots.borrow();
        let device = slots.iter().flatten().next().expect("a running array has a member");
        device.superblock.borrow().clone()
    }

    fn used(&self, name: &str, superblock: &Superblock) -> Refusal {
        let is_own = superblock.set_uuid == self.any_superblock().set_uuid;
        let (reason, advice) = match is_own {
            true if self.check_return(name, superblock).is_ok() => {
                ("was a member of this array", "`mdspace re-add` takes it back; --force makes a new spare of it")
            }
            true => ("was a member of this array", "--force makes a new spare of it, which is recovered whole"),
            false => ("belongs to an array already", "`mdspace examine` shows which; --force makes a spare of it"),
        };
        Refusal::new(reason).of(name).field("superblock.magic").advice(advice)
    }

    /// A number for a new device.
    pub(super) fn free_number(&self, name: &str) -> Result<DeviceNumber, Refusal> {
        let number = self.metadata.free_number(self.core.geometry().slots());
        number.ok_or_else(|| Refusal::new("the array has too many devices").of(name))
    }

    fn superblock_of_newcomer(&self, name: &str, member: &M, device_uuid: [u8; 16]) -> Result<Superblock, Refusal> {
        let bytes = member.limits().bytes;
        let superblock = self.any_superblock().for_newcomer(self.free_number(name)?, device_uuid, bytes);
        superblock.map_err(|defect| {
            Refusal::defect(name, defect).advice("a member needs at least the length of the array's smallest")
        })
    }

    /// In metadata 0.90 a returning member is a spare until it is current, and has a number behind the slots.
    fn with_number_of_a_spare(&self, name: &str, member: &M, own: Superblock) -> Result<Superblock, Refusal> {
        if !own.numbers_are_slots() {
            return Ok(own);
        }
        let mut spare = self.superblock_of_newcomer(name, member, [0; 16])?;
        (spare.device_flags, spare.events) = (own.device_flags, own.events);
        Ok(spare)
    }

    /// Checks that a member without data has the length and the blocks that the array needs.
    pub(super) fn check_could_join(&self, name: &str, member: &M) -> Result<(), Refusal> {
        let superblock = self.superblock_of_newcomer(name, member, [0; 16])?;
        self.check_newcomer(name, member, &superblock)
    }

    /// Checks that the new member's parts fall on its blocks, and that the array's data fits.
    fn check_newcomer(&self, name: &str, member: &M, superblock: &Superblock) -> Result<(), Refusal> {
        let limits = member.limits();
        let room = limits.bytes.saturating_sub(superblock.data_at().0);
        let used = (0..self.core.geometry().slots())
            .map(|slot| self.core.geometry().used_bytes(Slot(slot)))
            .max()
            .unwrap_or(0);
        if room < used {
            let reason = format!("{used} bytes of data do not fit the {room} bytes behind the data offset");
            return Err(Refusal::new(reason).of(name).field("superblock.size"));
        }
        self.check_blocks_of_newcomer(name, member, superblock)
    }

    /// Checks that the parts of a new member fall on its blocks.
    pub(super) fn check_blocks_of_newcomer(
        &self,
        name: &str,
        member: &M,
        superblock: &Superblock,
    ) -> Result<(), Refusal> {
        let limits = member.limits();
        if u64::from(limits.logical_block_bytes) > self.core.info.block_bytes {
            let reason = format!("its blocks of {} bytes are larger than the array's", limits.logical_block_bytes);
            return Err(Refusal::new(reason)
                .of(name)
                .advice("start the array with this member to serve it in larger blocks"));
        }
        let party = (name, limits, superblock.clone());
        check_blocks(self.core.geometry(), self.core.info.block_bytes, std::iter::once(party), true)
    }

    /// Checks whether a returning member may take its slot again and lack only what the bitmap names.
    fn check_return(&self, name: &str, own: &Superblock) -> Result<FormerSlot, Refusal> {
        let refuse = |field: &str, reason: String| {
            let advice = "`mdspace add --force` makes a new member of it, which is recovered whole";
            Err(Refusal::new(reason).of(name).field(field).advice(advice))
        };
        let array = self.any_superblock();
        if own.set_uuid != array.set_uuid {
            return Err(Refusal::new("belongs to another array").of(name).field("superblock.set_uuid"));
        }
        if let Some(field) = difference(own, &array) {
            return refuse(field, "differs from the array's members".to_owned());
        }
        let DeviceRole::Active(slot) = own.own_role() else {
            return refuse("superblock.dev_roles", "was not active when it left".to_owned());
        };
        if own.replacement || (own.recovery_offset.is_some() && !own.recovery_from_bitmap) {
            return refuse("superblock.recovery_offset", "was not current when it left".to_owned());
        }
        let members = self.core.members();
        if members.iter().any(|device| device.superblock.borrow().device_number == own.device_number)
            || self.core.roster.slots.borrow().get(slot.index()).is_none_or(Option::is_some)
        {
            return refuse(
                "superblock.dev_roles",
                format!("its slot {slot} or its number was given to another member"),
            );
        }
        let in_use = members.iter().filter(|device| device.is_active());
        let in_use: Vec<_> = in_use.map(|device| (&*device.name, device.superblock.borrow())).collect();
        if let Some(other) = used_without(own, in_use.iter().map(|(name, superblock)| (*name, &**superblock))) {
            let reason = format!(
                "was used without the array's other members: it does not know {other} as one. Its \
                 writes since then are on it alone, and the array's bitmap does not name them"
            );
            return refuse("superblock.dev_roles", reason);
        }
        let events = self.metadata.record().events;
        if own.events > events {
            return refuse("superblock.events", "was used without the array's other members".to_owned());
        }
        match self.metadata.intent() {
            None => refuse("superblock.feature_map", "the array has no bitmap to say what it lacks".to_owned()),
            Some(intent) if own.events < intent.events_cleared() => {
                let reason =
                    format!("left at events {}, before bits were cleared at {}", own.events, intent.events_cleared());
                refuse("superblock.events", reason)
            }
            Some(_) => Ok(FormerSlot { slot, events: own.events }),
        }
    }

    /// Adds a spare to the array.
    async fn join(&self, guard: &MetadataGuard<'_>, device: Rc<Device<M>>) -> Result<(), Refusal> {
        self.core.watch(&device.name, &device.member);
        self.metadata.list_spare(guard, &device);
        // A sweep under way keeps the targets that it began with.
        let joined =
            if self.sweeps.is_idle() { self.seat_spares(guard).await } else { self.metadata.publish(guard).await };
        self.sweeps.changed.raise();
        joined.map_err(|error| error.refusal().of(&device.name))?;
        device.check_joined()?;
        if device.state.get() == DeviceState::Spare {
            self.core.report_change(&device, None, ChangeKind::Added, Some("as a spare"));
        }
        Ok(())
    }

    /// Gives every empty slot to a spare that fits.
    pub(crate) async fn fill_slots(&self) -> Result<(), ArrayError> {
        let Some(entered) = self.metadata.enter_background() else { return Ok(()) };
        if !self.core.is_redundant() || self.next_to_seat().is_none() {
            return Ok(());
        }
        let change = entered.begin().await?;
        self.seat_spares(&change).await
    }

    /// Seats spares one after the other: of two in one round, each could be called active by the other before
    /// it says how far it is current.
    async fn seat_spares(&self, guard: &MetadataGuard<'_>) -> Result<(), ArrayError> {
        self.metadata.eject_absent(guard).await?;
        let mut is_published = false;
        while let Some((device, slot)) = self.next_to_seat() {
            match mutant!("bitmap-not-carried" => Ok(()), else self.metadata.write_whole_bitmap(guard, &device).await) {
                Ok(()) => {
                    self.seat(guard, device, slot);
                    self.metadata.publish(guard).await?;
                    is_published = true;
                }
                Err(error) => self.metadata.eject(guard, vec![(device, error)]).await?,
            }
        }
        if is_published { Ok(()) } else { self.metadata.publish(guard).await }
    }

    /// An empty slot, and a spare for it: the returning member that had it, or the spare with the lowest
    /// number.
    fn next_to_seat(&self) -> Option<(Rc<Device<M>>, Slot)> {
        let slots = self.core.roster.slots.borrow();
        let others = self.core.roster.others.borrow();
        let mut empty = (0..slots.len()).filter(|&slot| slots[slot].is_none()).map(|slot| Slot(slot as u16));
        empty.find_map(|slot| {
            let fitting = others.iter().filter(|device| self.fits(device, slot));
            let rank = |device: &&Rc<Device<M>>| {
                let returns_here = device.state.former_slot().is_some_and(|place| place.slot == slot);
                (!returns_here, device.superblock.borrow().device_number)
            };
            Some((fitting.min_by_key(rank)?.clone(), slot))
        })
    }

    /// Whether a device is a spare that can take the slot.
    pub(crate) fn fits(&self, device: &Device<M>, slot: Slot) -> bool {
        let superblock = device.superblock.borrow();
        let room = device.member.limits().bytes.saturating_sub(device.data_at());
        device.state.get() == DeviceState::Spare
            && self.core.geometry().used_bytes(slot) <= room
            && superblock.bitmap.is_some() == self.metadata.intent().is_some_and(|intent| intent.is_on_members())
    }

    /// Puts a spare into a slot. The caller publishes.
    fn seat(&self, guard: &MetadataGuard<'_>, device: Rc<Device<M>>, slot: Slot) {
        let cleared = self.metadata.intent().map(|intent| intent.events_cleared());
        let by_bitmap = device.state.former_slot().is_some_and(|place| {
            // Checked again: bits may have been cleared while the spare waited for other recoveries.
            place.slot == slot && cleared.is_some_and(|cleared| place.events >= cleared)
        });
        self.core.roster.others.borrow_mut(guard).retain(|other| !Rc::ptr_eq(other, &device));
        device.take_seat(by_bitmap);
        let number = usize::from(device.superblock.borrow().device_number.0);
        self.metadata.record_mut(guard).set_role(number, self.metadata.role_in_recovery(slot));
        let reason = if by_bitmap { Some("of what the bitmap names") } else { None };
        self.core.report_change(&device, Some(slot), ChangeKind::Recovering, reason);
        self.core.roster.slots.borrow_mut(guard)[slot.index()] = Some(device);
    }
}

/// Writes an empty bad-block log, where there is room for one.
pub(super) async fn write_empty_log<M: Member>(
    member: &M,
    pool: &crate::base::buffer::Pool,
    superblock: &Superblock,
) -> Result<(), MemberError> {
    let (Some(log), Some(at)) = (superblock.bad_blocks, superblock.bad_blocks_at()) else { return Ok(()) };
    let empty = vec![0xff; usize::from(log.sectors) * SECTOR_BYTES as usize];
    write_bytes(member, pool, at, &empty).await
}
