//! What the superblocks say: dirty or clean, which members belong, which have failed.
//!
//! Every change goes through [`Metadata::publish`]. It writes the bitmap headers, then the superblocks of all
//! remaining members, and flushes them. Only then does the operation that caused the change go on, and only then is
//! any write answered that depends on it.
//!
//! Events advance by two when a member is ejected: md and `assemble` still accept a superblock that is one event
//! behind. They advance in two rounds, so that a power failure in between leaves no two of the other members more
//! than one event apart. Source: `super_1_validate` and `md_update_sb` in `drivers/md/md.c`.

use crate::base::join::join_all;
use crate::core::authority::Authority;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, DeviceState, Failures};
use crate::metadata::record::{ROUNDS_TO_EJECT, ROUNDS_TO_EJECT_ABSENT, SharedFields};
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind, Refusal};
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use crate::seam::observe::Why;
use crate::seam::report::ChangeKind;
use format::superblock::{DeviceFlags, DeviceRole, Resync, Superblock, Version};
use format::units::{Sectors, Slot};
use std::rc::Rc;

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Marks the array dirty on every member, before the first write.
    pub(crate) async fn mark_dirty(&self) -> Result<(), ArrayError> {
        if self.is_marked_dirty() || !self.core.is_redundant() {
            return Ok(());
        }
        // Boxed: it runs seldom, and every write's future would have to hold it.
        Box::pin(async {
            let change = self.begin().await?;
            if self.is_marked_dirty() {
                return Ok(());
            }
            self.record_mut(&change).dirty = true;
            if !mutant!("dirty-mark-untold") {
                self.marked_dirty.raise();
            }
            if mutant!("dirty-mark-skipped") {
                return Ok(());
            }
            self.publish(&change).await
        })
        .await
    }

    /// Whether the dirty mark, and everything else in the record, is on stable storage.
    fn is_marked_dirty(&self) -> bool {
        let record = self.record();
        record.dirty && record.rounds_pending == 0
    }

    /// Records an assembly by force, or after the replay of a stripe log, in the superblocks, whether or not the array is
    /// written to. md does the same when it starts an array by force.
    pub(crate) async fn record_assembly(&self) -> Result<(), ArrayError> {
        let is_pending = || self.record().is_assembly_pending;
        if !is_pending() {
            return Ok(());
        }
        let change = self.begin().await?;
        if is_pending() { self.publish(&change).await } else { Ok(()) }
    }

    /// Records the end of a resync: copies and parity agree.
    pub(crate) async fn record_agreement(&self) -> Result<(), ArrayError> {
        self.flush_devices().await?;
        let change = self.begin().await?;
        if self.record().rounds_pending > 0 && !mutant!("resynced-before-absent-recorded") {
            // Members that are absent lack the resync, and must not count any more once it counts.
            self.publish(&change).await?;
        }
        self.core.health.agreed.set(true);
        self.core.health.forget_doubt();
        if let Some(log) = self.core.context.stripe_log() {
            log.set_built(true);
        }
        self.core.roster.slots.borrow().iter().flatten().for_each(|device| device.state.forget_force());
        self.record_mut(&change).resync = Resync::Clean;
        if let Some(intent) = self.intent() {
            intent.clear_needed();
        }
        self.publish(&change).await
    }

    /// Marks the array clean, unless it was written to since. `at_rest` is asked after the flush whether there were
    /// no writes.
    pub(crate) async fn flush_and_mark_clean(&self, at_rest: impl Fn() -> bool) -> Result<(), ArrayError> {
        let agreed_below = self.core.health.agreed_below.get();
        if !mutant!("clean-without-flush") {
            self.flush_devices().await?;
        }
        let change = self.begin().await?;
        if self.core.owes_any() && self.record().dirty && !mutant!("clean-while-owing") {
            return Err(self.core.no_room());
        }
        if !self.record().dirty || !at_rest() {
            return Ok(());
        }
        if agreed_below > 0 && !self.core.health.agreed.get() {
            self.record_mut(&change).resync = self.core.resync_offset(agreed_below);
        }
        // From here on, a new write waits for the lock and marks the array dirty again.
        self.record_mut(&change).dirty = false;
        self.publish(&change).await
    }

    /// Ejects members that failed. The other members' superblocks say so before this returns.
    pub(crate) async fn eject(&self, guard: &MetadataGuard<'_>, failures: Failures<M>) -> Result<(), ArrayError> {
        self.take_out_all(guard, failures)?;
        self.core.check_not_failed()?;
        if self.record().rounds_pending > 0 { self.publish(guard).await } else { Ok(()) }
    }

    fn take_out_all(&self, guard: &MetadataGuard<'_>, failures: Failures<M>) -> Result<(), ArrayError> {
        for (device, error) in failures {
            match device.state.get() {
                DeviceState::Spare => {
                    self.set_faulty(guard, &device);
                    self.core.report_change(&device, None, ChangeKind::Left, Some(&error.to_string()));
                }
                DeviceState::Faulty => {}
                DeviceState::Journal => return Err(self.core.fail_without_journal(&device, &error)),
                DeviceState::InSync | DeviceState::Recovering { .. } => self.take_out(guard, &device, &error)?,
            }
        }
        Ok(())
    }

    /// Takes a device out of its slot, if the array survives that.
    fn take_out(
        &self,
        guard: &MetadataGuard<'_>,
        device: &Rc<Device<M>>,
        error: &MemberError,
    ) -> Result<(), ArrayError> {
        if !self.core.survives_without(device) {
            return Err(self.core.fail_without(device, error));
        }
        let slot = self.core.slot_of_device(device);
        self.set_faulty(guard, device);
        self.core.note_change(device, slot, ChangeKind::Left, Some(&error.to_string()));
        let (left, slots) = (self.core.roster.slots.borrow().iter().flatten().count(), self.core.geometry().slots());
        tracing::error!("{} leaves the array: {error}; it goes on with {left} of {slots} members", device.name);
        Ok(())
    }

    fn set_faulty(&self, guard: &MetadataGuard<'_>, device: &Rc<Device<M>>) {
        device.eject();
        self.core.listener().inspect(|listener| listener.slots_changed());
        self.drop_successor(guard, device);
        let mut slots = self.core.roster.slots.borrow_mut(guard);
        if let Some(slot) = slots.iter_mut().find(|slot| slot.as_ref().is_some_and(|d| Rc::ptr_eq(d, device))) {
            // The successor takes the slot, with what it has recovered so far.
            *slot = device.replacement.take_successor();
            if let Some(successor) = &*slot {
                successor.leave_member();
                self.core.roster.slot_changed.raise();
            }
            // A successor that failed a write does not take the slot.
            if let Some(successor) = slot.take_if(|successor| successor.replacement.has_failed()) {
                successor.retire();
                self.record_mut(guard)
                    .set_role(successor.superblock.borrow().device_number.0.into(), DeviceRole::Faulty);
                self.core.roster.others.borrow_mut(guard).push(successor);
            }
            if let Some(successor) = &*slot {
                let reason = format!("takes over from {}", device.name);
                self.core.report_change(successor, None, ChangeKind::Recovering, Some(&reason));
            }
            self.core.roster.others.borrow_mut(guard).push(device.clone());
        }
        drop(slots);
        self.core.update_whole();
        let number = usize::from(device.superblock.borrow().device_number.0);
        let mut record = self.record_mut(guard);
        if let Some(role) = record.roles.get_mut(number) {
            *role = DeviceRole::Faulty;
        }
        record.rounds_pending = mutant!("one-round" => 1, else ROUNDS_TO_EJECT);
    }

    /// Ejects absent devices for good, before a device number or slot is assigned. A device that left earlier is then
    /// two events behind. So is, after the next round, an absent device that an interrupted round told of its new
    /// slot.
    pub(crate) async fn eject_absent(&self, guard: &MetadataGuard<'_>) -> Result<(), ArrayError> {
        if mutant!("unknown-not-left-behind") {
            return Ok(());
        }
        let pending = {
            let mut record = self.record_mut(guard);
            let least = record.events_found + u64::from(ROUNDS_TO_EJECT_ABSENT - 1);
            record.rounds_pending = record.rounds_pending.max(least.saturating_sub(record.events) as u32);
            record.rounds_pending
        };
        if pending > 0 { self.publish(guard).await } else { Ok(()) }
    }

    /// Writes the record to every remaining device, with new events. A device that fails this is ejected, and another
    /// round tells the others.
    ///
    /// The future must run to its end. A round that is dropped halfway has reached some devices and not others; one
    /// more round would leave them two events apart. So after that the array takes no more changes.
    pub(crate) async fn publish(&self, guard: &MetadataGuard<'_>) -> Result<(), ArrayError> {
        self.core.to_the_end(self.write_rounds(guard)).await
    }

    /// Writes rounds until none is pending. If a member has no room for the bitmap or its superblock, the rounds stay
    /// pending, and [`Self::retry_rounds`] writes them later. Such a member is not ejected.
    async fn write_rounds(&self, guard: &MetadataGuard<'_>) -> Result<(), ArrayError> {
        {
            let mut record = self.record_mut(guard);
            record.rounds_pending = record.rounds_pending.max(1);
        }
        while self.record().rounds_pending > 0 {
            self.core.check_not_failed()?;
            self.take_out_all(guard, self.core.failed_successors(guard))?;
            let failures = self.write_round(guard).await?;
            if failures.is_empty() {
                self.record_mut(guard).rounds_pending -= 1;
            }
            let is_ahead = std::mem::take(&mut self.record_mut(guard).is_any_ahead);
            let (without_room, failed): (Failures<M>, Failures<M>) = failures.into_iter().partition(lacks_room);
            let has_failed = !failed.is_empty();
            self.take_out_all(guard, failed)?;
            if is_ahead && has_failed && !mutant!("failed-write-not-counted") {
                let mut record = self.record_mut(guard);
                record.rounds_pending = record.rounds_pending.max(ROUNDS_TO_EJECT_ABSENT);
            }
            if let Some((device, error)) = without_room.first() {
                return Err(self.note_without_room(guard, device, error));
            }
        }
        if let Some(buffer) = self.core.context.write_buffer.get() {
            buffer.superblocks_written();
        }
        let mut record = self.record_mut(guard);
        (record.is_assembly_pending, record.is_out_of_room) = (false, false);
        Ok(())
    }

    fn note_without_room(&self, guard: &MetadataGuard<'_>, device: &Device<M>, error: &MemberError) -> ArrayError {
        let reason = format!("{}: no room for its superblock: {error}", device.name);
        if !std::mem::replace(&mut self.record_mut(guard).is_out_of_room, true) {
            tracing::warn!("{reason}; until there is room, the array takes no writes that change superblocks");
            self.core.context.owed_changed.raise();
        }
        ArrayError::new(ArrayErrorKind::NoSpace, reason)
    }

    /// Whether rounds are pending because a member has no room for its superblock.
    pub(crate) fn lacks_room(&self) -> bool {
        self.record().is_out_of_room
    }

    /// Writes the rounds for which a member had no room.
    pub(crate) async fn retry_rounds(&self) -> Result<(), ArrayError> {
        if !self.lacks_room() {
            return Ok(());
        }
        let change = self.begin().await?;
        if self.lacks_room() { self.publish(&change).await } else { Ok(()) }
    }

    /// Writes one round: bitmap headers, then superblocks in this order.
    ///
    /// 1. Members whose own state changed; of these, first a successor that takes over, as the others call its member
    ///    faulty. A member that was given a slot records how far it has recovered before any other member lists it as
    ///    active. A member that became current says so before others rely on it.
    /// 2. Members that are not current, and successors.
    /// 3. The others; last of all a member whose successor failed while it took over. The successor's superblock may
    ///    claim the slot already, and this member must not be the only one to contradict it.
    ///
    /// In metadata 0.90 members whose own state changed come last, and only if no other write failed.
    ///
    /// The events advance only with the superblocks, which every member then has unless it fails.
    async fn write_round(&self, guard: &MetadataGuard<'_>) -> Result<Failures<M>, ArrayError> {
        let failures = self.flush_found(guard).await;
        if !failures.is_empty() {
            return Ok(failures);
        }
        let failures = self.catch_up(guard).await;
        if !failures.is_empty() {
            return Ok(failures);
        }
        let events = self.record().events + u64::from(!mutant!("events-not-bumped"));
        let failures = Self::refuse_without_room(self.write_bitmap_header(guard, events).await)?;
        if !failures.is_empty() {
            return Ok(failures);
        }
        self.record_mut(guard).events = events;
        let staying = self.core.devices().into_iter().filter(|device| !device.replacement.is_leaving());
        let (changed, others): (Vec<_>, Vec<_>) =
            staying.partition(|device| device.is_superblock_stale() && !mutant!("newcomer-told-last"));
        // In metadata 0.90 they come last (`numbers.rs`).
        let (changed, told_last) = match self.numbers_are_slots() && !mutant!("current-before-told") {
            true => (Vec::new(), changed),
            false => (changed, Vec::new()),
        };
        let is_seated = |device: &&Rc<Device<M>>| matches!(device.state.get(), DeviceState::Recovering { .. });
        debug_assert!(
            changed.iter().filter(is_seated).count() <= 1,
            "another member would list a recovering member as active before that one records its position"
        );
        let successors = self.core.successors();
        let is_first = |device: &Rc<Device<M>>| {
            matches!(device.state.get(), DeviceState::Recovering { .. })
                || successors.iter().any(|(_, successor)| Rc::ptr_eq(successor, device))
        };
        let (first, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(is_first);
        let (taking_over, changed): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|device| self.core.is_taking_over(device));
        let (last, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|device| device.replacement.is_contradicted());
        for devices in [taking_over, changed, first] {
            let failures = self.write_superblocks(guard, devices).await;
            if !failures.is_empty() {
                // The next round is then one event ahead of what the other members have. A write that failed may still
                // have brought these events to its member.
                let mut record = self.record_mut(guard);
                (record.events, record.is_any_ahead) = (events - 1, true);
                return Ok(failures);
            }
        }
        let mut failures = self.write_superblocks(guard, rest).await;
        failures.extend(self.write_superblocks(guard, last).await);
        if failures.is_empty() {
            failures = self.write_superblocks(guard, told_last).await;
        }
        let without_room = failures.iter().find(|failure| lacks_room(failure));
        if let Some((device, _)) = without_room.filter(|_| !mutant!("round-without-room-passed")) {
            // It gets this round before any later one, or it would be two events behind the others.
            let Superblock { resync, roles, bitmap, .. } = self.superblock_of(device);
            self.record_mut(guard).lagging = Some(SharedFields { resync, roles, bitmap });
        }
        Ok(failures)
    }

    async fn write_superblocks(&self, _guard: &MetadataGuard<'_>, devices: Vec<Rc<Device<M>>>) -> Failures<M> {
        // By the last round's superblock the member rejects those that are absent. Only then may its log forget them.
        let is_last = self.record().rounds_pending <= 1;
        let writes = devices.iter().map(|device| {
            let superblock = self.superblock_of(device);
            async move {
                self.write_superblock(device, superblock).await?;
                if is_last { device.empty_replayed_log(&self.core.pool).await } else { Ok(()) }
            }
        });
        let results = join_all(writes).await;
        let outcome = |(device, result): (Rc<Device<M>>, Result<(), MemberError>)| match result {
            Ok(()) => {
                device.superblock_written();
                None
            }
            Err(error) => Some((device, error)),
        };
        devices.into_iter().zip(results).filter_map(outcome).collect()
    }

    /// Writes one superblock. A device without room keeps the events and the time that its member has.
    pub(super) async fn write_superblock(&self, device: &Device<M>, superblock: Superblock) -> Result<(), MemberError> {
        let before = device.superblock.borrow().clone();
        let result = device.write_superblock(superblock, &self.core.pool).await;
        if result.as_ref().is_err_and(|error| error.kind == MemberErrorKind::NoSpace) {
            let mut superblock = device.superblock.borrow_mut();
            (superblock.events, superblock.updated) = (before.events, before.updated);
        }
        result
    }

    /// Flushes the superblocks and bits that assembly read: an earlier user may have been killed before it flushed
    /// them.
    async fn flush_found(&self, guard: &MetadataGuard<'_>) -> Failures<M> {
        if !std::mem::take(&mut self.record_mut(guard).is_flush_pending) {
            return Vec::new();
        }
        let devices = self.core.devices();
        let flushes = join_all(devices.iter().map(|device| device.flush(Why::Superblock))).await;
        let failed = devices.into_iter().zip(flushes).filter_map(|(device, result)| Some((device, result.err()?)));
        let failures: Failures<M> = failed.collect();
        self.record_mut(guard).is_flush_pending = failures.iter().any(lacks_room);
        failures
    }

    /// Brings members that an interrupted round left one event behind up to what the others say. Another interrupted
    /// round would otherwise leave them two events behind.
    async fn catch_up(&self, guard: &MetadataGuard<'_>) -> Failures<M> {
        let events = self.record().events;
        let Some(shared) = self.record_mut(guard).lagging.take() else { return Vec::new() };
        let is_behind = |device: &Rc<Device<M>>| {
            let own = device.superblock.borrow();
            // A spare that was becoming active must not be listed as active before it records how far it has
            // recovered.
            let role = shared.roles.get(usize::from(own.device_number.0));
            let is_told = role.is_none_or(|role| *role == own.own_role());
            // A member that changed since then gets its own change first, which the others do not know yet.
            own.events < events && is_told && (mutant!("level-before-told") || !device.is_superblock_stale())
        };
        let devices: Vec<_> = self.core.devices().into_iter().filter(is_behind).collect();
        let level = |device: &Rc<Device<M>>| {
            let mut superblock = device.superblock.borrow().clone();
            (superblock.events, superblock.resync) = (events, shared.resync);
            superblock.updated = self.record().updated(self.core.clock.wall());
            superblock.roles.clone_from(&shared.roles);
            superblock.bitmap = shared.bitmap;
            superblock
        };
        let writes = devices.iter().map(async |device| {
            let bitmap = device.superblock.borrow().bitmap;
            let result = self.write_superblock(device, level(device)).await;
            // A bitmap that is being added or removed right now is published with the next events.
            device.superblock.borrow_mut().bitmap = bitmap;
            result
        });
        let results = join_all(writes).await;
        let failed = devices.into_iter().zip(results).filter_map(|(device, result)| Some((device, result.err()?)));
        let failures: Failures<M> = failed.collect();
        if failures.iter().any(lacks_room) {
            self.record_mut(guard).lagging = Some(shared);
        }
        failures
    }

    /// The superblock that a device is to have with the record as it is now.
    pub(super) fn superblock_of(&self, device: &Device<M>) -> Superblock {
        let record = self.record();
        let mut superblock = device.superblock.borrow().clone();
        superblock.events = record.events;
        superblock.resync = match record.dirty {
            // A replay of the journal leaves nothing to resync.
            true if superblock.journal && record.resync == Resync::Clean => Resync::Clean,
            true => Resync::From(Sectors(0)),
            // An ejected member is rejected only after the last round, and the resync ran without that member.
            false if record.rounds_pending > 1 => superblock.resync,
            false => record.resync,
        };
        superblock.roles.clone_from(&record.roles);
        superblock.updated = record.updated(self.core.clock.wall());
        superblock
    }
}

/// Whether a device could not be written for want of room, as on a full file system that writes nothing in place.
fn lacks_room<M>((_, error): &(Rc<Device<M>>, MemberError)) -> bool {
    error.kind == MemberErrorKind::NoSpace && !mutant!("superblock-room-is-a-failure")
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`crate::Array::fail`].
    pub(crate) async fn fail(&self, member: &str) -> Result<(), Refusal> {
        if self.core.info.read_only {
            return Err(Refusal::new("the array is read-only"));
        }
        let device = self.core.find(member)?;
        let inside = self.core.gate.enter().ok_or_else(|| Refusal::new("the array is stopped"))?;
        let change = self.entered(inside).begin().await.map_err(|error| Refusal::new(error.reason))?;
        if device.state.get() == DeviceState::Faulty {
            return Ok(());
        }
        if !self.core.survives_without(&device) {
            return Err(Refusal::new("the array cannot do without this member")
                .of(&device.name)
                .advice("`mdspace status` shows which members are left, and whether a resync must end first"));
        }
        let slot = self.core.slot_of_device(&device);
        self.set_faulty(&change, &device);
        self.core.report_change(&device, slot, ChangeKind::Left, Some("marked faulty by request"));
        self.publish(&change).await.map_err(|error| error.refusal().of(&device.name))
    }

    /// [`crate::Array::change_flags`].
    pub(crate) async fn change_flags(&self, member: &str, set: DeviceFlags, clear: DeviceFlags) -> Result<(), Refusal> {
        let change = self.enter_to_change()?.begin().await.map_err(|error| Refusal::new(error.reason))?;
        let device = self.core.find(member)?;
        let refuse = |reason: &str| Err(Refusal::new(reason).of(&device.name));
        if device.state.get() == DeviceState::Faulty {
            return refuse("is faulty, and its superblock is not written any more");
        }
        let flags = device.superblock.borrow().device_flags;
        let wanted = DeviceFlags((flags.0 | set.0) & !clear.0);
        if wanted == flags {
            return Ok(());
        }
        if device.superblock.borrow().version == Version::V0_90 {
            return refuse("mdadm takes a flag in metadata 0.90 for a member's wrong state");
        }
        device.superblock.borrow_mut().device_flags = wanted;
        self.publish(&change).await.map_err(|error| error.refusal().of(&device.name))
    }

    /// [`crate::Array::remove`].
    pub(crate) async fn remove(&self, member: &str) -> Result<(), Refusal> {
        let device = self.core.find(member)?;
        let entered = self.enter_background().ok_or_else(|| Refusal::new("the array is stopped"))?;
        let guard = entered.lock().await;
        if device.is_active() {
            return Err(Refusal::new("the member is active").of(&device.name).advice("fail it first"));
        }
        if device.state.get() == DeviceState::Journal {
            return Err(Refusal::new("the array's write journal, without which it takes no writes").of(&device.name));
        }
        self.core.roster.others.borrow_mut(&guard).retain(|other| !Rc::ptr_eq(other, &device));
        self.core.report_change(&device, None, ChangeKind::Removed, None);
        if device.state.get() != DeviceState::Spare
            || self.core.info.read_only
            || self.core.health.failed.borrow().is_some()
            || mutant!("removed-not-left-behind")
        {
            return Ok(());
        }
        self.unlist_spare(&device);
        self.record_mut(&guard).rounds_pending = ROUNDS_TO_EJECT;
        self.publish(&guard).await.map_err(|error| error.refusal().of(&device.name))
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Drops the successor of a member, if `device` is one. The member keeps its slot.
    fn drop_successor(&self, guard: &MetadataGuard<'_>, device: &Rc<Device<M>>) {
        let slots = self.core.roster.slots.borrow();
        let is_its = |old: &&Rc<Device<M>>| old.successor().is_some_and(|successor| Rc::ptr_eq(&successor, device));
        let place = slots.iter().zip(0..).find_map(|(old, slot)| Some((old.as_ref().filter(is_its)?, slot)));
        let Some((old, slot)) = place else { return };
        old.replacement.drop_successor();
        device.leave_member();
        self.record_mut(guard).set_role(old.superblock.borrow().device_number.0.into(), DeviceRole::Active(Slot(slot)));
        self.core.roster.others.borrow_mut(guard).push(device.clone());
    }

    /// Separates failures for want of room from others. If a member only lacks room for the bitmap, the request fails
    /// and can be tried again; no member is ejected.
    pub(crate) fn refuse_without_room(failures: Failures<M>) -> Result<Failures<M>, ArrayError> {
        match &failures[..] {
            [(device, error), ..] if failures.iter().all(|(_, error)| error.kind == MemberErrorKind::NoSpace) => {
                let reason = format!("{}: no room for the bitmap: {error}", device.name);
                Err(ArrayError::new(ArrayErrorKind::NoSpace, reason))
            }
            _ => Ok(failures),
        }
    }
}
