//! What the superblocks say: dirty and clean, who belongs, who failed.
//!
//! Every change goes through [`Metadata::publish`]: bitmap header, then
//! superblocks, on all members that are left, flushed, before whoever caused
//! it goes on, and before any other write is answered that already reckons with it.
//! Events move by two when a member stays behind, because one behind is still
//! accepted (by md, and by `assemble`); in two rounds, so that a loss of power
//! in between leaves no two of the others more than one apart.

use crate::base::join::join_all;
use crate::core::authority::Authority;
use crate::device::{Device, DeviceState, Failures};
use crate::metadata::Metadata;
use crate::metadata::bitmap::Intended;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind, Refusal};
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use crate::seam::observe::Why;
use crate::seam::report::ChangeKind;
use format::superblock::{BitmapPlace, DeviceRole, Resync, Superblock, Timestamp};
use format::units::{Sectors, Slot};
use std::ops::Range;
use std::rc::Rc;

/// The fields that all superblocks of the array share and that change.
pub(crate) struct Record {
    pub(crate) events: u64,
    /// The events at assembly.
    pub(crate) found: u64,
    /// Whether the members are to be marked dirty; [`Self::owed`] says whether they are.
    pub(crate) dirty: bool,
    /// How far the array was in agreement when it was assembled; what it goes
    /// back to when it is stopped.
    pub(crate) resync: Resync,
    /// By device number.
    pub(crate) roles: Vec<DeviceRole>,
    /// Rounds of superblocks to be written, each with the next events, until
    /// they say on stable storage what this record says.
    pub(crate) owed: u32,
    /// What the freshest members say, while others are still one event behind them.
    pub(crate) uneven: Option<Said>,
    /// What members said when they were assembled may still be in their volatile caches alone: it is flushed before
    /// anything is written that builds on it, or a loss of power would leave one further behind than is accepted.
    pub(crate) is_flush_owed: bool,
    /// The array was assembled by force, and its superblocks do not say so yet: as they are, it would be refused again.
    pub(crate) is_force_owed: bool,
}

/// What superblocks of one age say.
pub(crate) struct Said {
    pub(crate) resync: Resync,
    pub(crate) roles: Vec<DeviceRole>,
    pub(crate) bitmap: Option<BitmapPlace>,
}

impl Record {
    /// Says what a device is. Numbers that were never listed are spares.
    pub(crate) fn set_role(&mut self, number: usize, role: DeviceRole) {
        if self.roles.len() <= number {
            self.roles.resize(number + 1, DeviceRole::Spare);
        }
        self.roles[number] = role;
    }
}

/// Rounds that leave a member behind for good.
pub(crate) const ROUNDS_TO_LEAVE_BEHIND: u32 = 2;

/// Rounds that leave behind who was not there at assembly: a round cut short may have told him alone of the next event.
pub(crate) const ROUNDS_TO_LEAVE_ABSENT: u32 = ROUNDS_TO_LEAVE_BEHIND + 1;

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Before the first write: every member says that the array is in use.
    pub(crate) async fn mark_dirty(&self) -> Result<(), ArrayError> {
        if self.is_marked_dirty() || !self.core.is_redundant() {
            return Ok(());
        }
        // Boxed: seldom, and every write's future would have to hold it.
        Box::pin(async {
            let _lock = self.lock.exclusive(0..1).await;
            self.core.check_unbroken()?;
            if self.is_marked_dirty() {
                return Ok(());
            }
            self.record.borrow_mut().dirty = true;
            if !mutant!("dirty-mark-untold") {
                self.marked_dirty.raise();
            }
            if mutant!("dirty-mark-skipped") {
                return Ok(());
            }
            self.publish().await
        })
        .await
    }

    /// On stable storage, with everything else that the record says.
    fn is_marked_dirty(&self) -> bool {
        let record = self.record.borrow();
        record.dirty && record.owed == 0
    }

    /// After data was written or flushed without the members that have left:
    /// the superblocks must say that they have, or these would be believed
    /// after a loss of power.
    pub(crate) async fn settle(&self) -> Result<(), ArrayError> {
        if self.core.context.is_successor_lost.get() {
            let _lock = self.lock.exclusive(0..1).await;
            self.leave_behind(self.core.failed_successors()).await?;
        }
        // What an earlier user wrote, and nobody flushed, is flushed without those who are absent now.
        let is_absent_owed = || {
            let record = self.record.borrow();
            record.owed > 0 && record.resync != Resync::Clean
        };
        if self.record.borrow().dirty {
            return self.mark_dirty().await;
        }
        if !self.core.is_redundant() || !is_absent_owed() || mutant!("flush-without-absent") {
            return Ok(());
        }
        Box::pin(async {
            let _lock = self.lock.exclusive(0..1).await;
            self.core.check_unbroken()?;
            if is_absent_owed() { self.publish().await } else { Ok(()) }
        })
        .await
    }

    /// After an assembly by force: the superblocks say what the array is from now on, whether or not it is written to. md
    /// does the same when it starts such an array.
    pub(crate) async fn tell_forced(&self) -> Result<(), ArrayError> {
        let is_owed = || self.record.borrow().is_force_owed;
        if !is_owed() {
            return Ok(());
        }
        let _lock = self.lock.exclusive(0..1).await;
        self.core.check_unbroken()?;
        if is_owed() { self.publish().await } else { Ok(()) }
    }

    /// After a resync: copies and parity agree, and the superblocks may say so.
    pub(crate) async fn record_agreement(&self) -> Result<(), ArrayError> {
        self.flush_devices().await?;
        let _lock = self.lock.exclusive(0..1).await;
        self.core.check_unbroken()?;
        self.core.health.agreed.set(true);
        self.core.roster.slots.borrow().iter().flatten().for_each(|device| device.is_forced.set(false));
        self.record.borrow_mut().resync = Resync::Clean;
        if let Some(intent) = self.intent() {
            intent.forget_found();
        }
        self.publish().await
    }

    /// `at_rest` is asked after the flush whether anything was written since.
    pub(crate) async fn flush_and_mark_clean(&self, at_rest: impl Fn() -> bool) -> Result<(), ArrayError> {
        let agreed_below = self.core.health.agreed_below.get();
        if !mutant!("clean-without-flush") {
            self.flush_devices().await?;
        }
        let _lock = self.lock.exclusive(0..1).await;
        self.core.check_unbroken()?;
        if self.core.owes_any() && self.record.borrow().dirty && !mutant!("clean-while-owing") {
            return Err(self.core.no_room());
        }
        if !self.record.borrow().dirty || !at_rest() {
            return Ok(());
        }
        if agreed_below > 0 && !self.core.health.agreed.get() {
            self.record.borrow_mut().resync = self.core.resync_offset(agreed_below);
        }
        // From here on a write that begins waits for the lock and marks the array dirty anew.
        self.record.borrow_mut().dirty = false;
        self.publish().await
    }

    pub(crate) async fn flush_devices(&self) -> Result<(), ArrayError> {
        let devices = self.core.devices();
        let flushes = join_all(devices.iter().map(|device| device.flush(Why::Data))).await;
        let failed = devices.into_iter().zip(flushes).filter_map(|(device, result)| Some((device, result.err()?)));
        self.record_failures(failed.collect()).await?;
        self.core.check_unbroken()
    }

    /// A member failed a write: what it lacks now is a bad block of it, or it leaves the array; the
    /// superblocks say so before this returns. One that had no room for data has not failed: it owes that ([`crate::control::owed`]).
    ///
    /// # Errors
    /// `NoSpace`, with nothing recorded, when a member had no room. When the array cannot do without it; then it takes no more writes, and
    /// the superblocks stay as they are, dirty.
    pub(crate) async fn record_failure(&self, device: &Rc<Device<M>>, error: &MemberError) -> Result<(), ArrayError> {
        if self.core.is_redundant() && self.core.is_owed(device, error) {
            return Err(ArrayError::new(ArrayErrorKind::NoSpace, format!("{}: no room: {error}", device.name)));
        }
        let _lock = self.lock.exclusive(0..1).await;
        if let Some(range) = self.core.data_of(device, error).filter(|_| device.state.get() == DeviceState::InSync) {
            self.core.check_unbroken()?;
            if !self.core.goes_on_without(device, &range) {
                return Err(self.core.break_off(device, error));
            }
            if self.core.becomes_bad(device, &range, error) {
                return self.publish().await;
            }
        }
        self.leave_behind(vec![(device.clone(), error.clone())]).await
    }

    /// Makes members that failed leave; the others say so before this returns.
    /// The caller holds the metadata lock.
    pub(crate) async fn leave_behind(&self, failures: Failures<M>) -> Result<(), ArrayError> {
        self.expel_all(failures)?;
        self.core.check_unbroken()?;
        if self.record.borrow().owed > 0 && !mutant!("answered-before-recorded") {
            self.publish().await
        } else {
            Ok(())
        }
    }

    fn expel_all(&self, failures: Failures<M>) -> Result<(), ArrayError> {
        for (device, error) in failures {
            match device.state.get() {
                DeviceState::Spare => {
                    self.set_faulty(&device);
                    self.core.tell(&device, None, ChangeKind::Left, Some(&error.to_string()));
                }
                DeviceState::Faulty => {}
                DeviceState::InSync | DeviceState::Recovering { .. } => self.expel(&device, &error)?,
            }
        }
        Ok(())
    }

    /// Takes a device out of its slot, if the array survives that.
    fn expel(&self, device: &Rc<Device<M>>, error: &MemberError) -> Result<(), ArrayError> {
        if !self.core.survives_without(device) {
            return Err(self.core.break_off(device, error));
        }
        let slot = self.core.slot_of_device(device);
        self.set_faulty(device);
        self.core.note_change(device, slot, ChangeKind::Left, Some(&error.to_string()));
        let (left, slots) = (self.core.roster.slots.borrow().iter().flatten().count(), self.core.geometry().slots());
        tracing::error!("{} leaves the array: {error}; it goes on with {left} of {slots} members", device.name);
        Ok(())
    }

    fn set_faulty(&self, device: &Rc<Device<M>>) {
        device.state.set(DeviceState::Faulty);
        device.owed.clear();
        self.core.context.owed_changed.raise();
        device.pending.abandon();
        self.core.listener().inspect(|listener| listener.slots_changed());
        self.dismiss(device);
        let mut slots = self.core.roster.slots.borrow_mut();
        if let Some(slot) = slots.iter_mut().find(|slot| slot.as_ref().is_some_and(|d| Rc::ptr_eq(d, device))) {
            device.is_leaving.set(false);
            // As far as it has come.
            *slot = device.successor.take();
            if let Some(successor) = &*slot {
                successor.superblock.borrow_mut().replacement = false;
                self.core.roster.slot_changed.raise();
            }
            // Unless it lacks what was written.
            if let Some(successor) = slot.take_if(|successor| successor.failure.borrow().is_some()) {
                successor.state.set(DeviceState::Faulty);
                self.record
                    .borrow_mut()
                    .set_role(successor.superblock.borrow().device_number.0.into(), DeviceRole::Faulty);
                self.core.roster.others.borrow_mut().push(successor);
            }
            if let Some(successor) = &*slot {
                let reason = format!("takes over from {}", device.name);
                self.core.tell(successor, None, ChangeKind::Recovering, Some(&reason));
            }
            self.core.roster.others.borrow_mut().push(device.clone());
            self.core.health.whole.set(false);
        }
        drop(slots);
        let number = usize::from(device.superblock.borrow().device_number.0);
        let mut record = self.record.borrow_mut();
        if let Some(role) = record.roles.get_mut(number) {
            *role = DeviceRole::Faulty;
        }
        record.owed = mutant!("one-round" => 1, else ROUNDS_TO_LEAVE_BEHIND);
    }

    /// Before a number or a slot is given to a device: whoever left before is two events behind by then,
    /// and so will be, with the next, who is unknown and was told alone that it is his. The caller holds the metadata lock.
    pub(crate) async fn leave_unknown_behind(&self) -> Result<(), ArrayError> {
        if mutant!("unknown-not-left-behind") {
            return Ok(());
        }
        let owed = {
            let mut record = self.record.borrow_mut();
            let least = record.found + u64::from(ROUNDS_TO_LEAVE_ABSENT - 1);
            record.owed = record.owed.max(least.saturating_sub(record.events) as u32);
            record.owed
        };
        if owed > 0 { self.publish().await } else { Ok(()) }
    }

    /// Writes the record to every device that is left, with new events. A
    /// device that fails this leaves as well, and the rest is told.
    /// The caller holds the metadata lock.
    ///
    /// To be driven to its end: a round dropped halfway has reached some of the
    /// devices and not others, and one more would leave them two events apart.
    /// So after that the array takes no more changes.
    pub(crate) async fn publish(&self) -> Result<(), ArrayError> {
        self.core.to_the_end(self.write_rounds()).await
    }

    /// A bitmap for which a member has no room is not written, and nothing that follows it; the rounds stay owed.
    async fn write_rounds(&self) -> Result<(), ArrayError> {
        {
            let mut record = self.record.borrow_mut();
            record.owed = record.owed.max(1);
        }
        while self.record.borrow().owed > 0 {
            self.expel_all(self.core.failed_successors())?;
            let failures = self.write_round().await?;
            if failures.is_empty() {
                self.record.borrow_mut().owed -= 1;
            }
            self.expel_all(failures)?;
        }
        self.record.borrow_mut().is_force_owed = false;
        Ok(())
    }

    /// One round: bitmap headers, then superblocks. First those of members that have changed: one that was given
    /// a slot knows how far it is before any other calls it active, and one that has become current says so
    /// before any other does without it, or without a member that it stands in for. Then those of other members that are not
    /// current, and of successors. Events move on only with the superblocks, which all that do not fail then have.
    async fn write_round(&self) -> Result<Failures<M>, ArrayError> {
        let failures = self.flush_what_was_found().await;
        if !failures.is_empty() {
            return Ok(failures);
        }
        let failures = self.bring_level().await;
        if !failures.is_empty() {
            return Ok(failures);
        }
        let events = self.record.borrow().events + u64::from(!mutant!("events-not-bumped"));
        let failures = Self::without_room(self.write_bitmap_header(events).await)?;
        if !failures.is_empty() {
            return Ok(failures);
        }
        self.record.borrow_mut().events = events;
        let staying = self.core.devices().into_iter().filter(|device| !device.is_leaving.get());
        let (changed, others): (Vec<_>, Vec<_>) =
            staying.partition(|device| device.is_superblock_stale.get() && !mutant!("newcomer-told-last"));
        let is_seated = |device: &&Rc<Device<M>>| matches!(device.state.get(), DeviceState::Recovering { .. });
        debug_assert!(
            changed.iter().filter(is_seated).count() <= 1,
            "one would be called active by another before it says how far it is"
        );
        let successors = self.core.successors();
        let is_first = |device: &Rc<Device<M>>| {
            matches!(device.state.get(), DeviceState::Recovering { .. })
                || successors.iter().any(|(_, successor)| Rc::ptr_eq(successor, device))
        };
        let (first, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(is_first);
        let (last, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|device| device.is_contradicted.get());
        for devices in [changed, first] {
            let failures = self.write_superblocks(devices).await;
            if !failures.is_empty() {
                self.record.borrow_mut().events = events - 1; // what the rest is told next comes right behind what it knows
                return Ok(failures);
            }
        }
        let mut failures = self.write_superblocks(rest).await;
        failures.extend(self.write_superblocks(last).await);
        Ok(failures)
    }

    async fn write_superblocks(&self, devices: Vec<Rc<Device<M>>>) -> Failures<M> {
        let writes = devices.iter().map(|device| device.write_superblock(self.superblock_of(device), &self.core.pool));
        let results = join_all(writes).await;
        let outcome = |(device, result): (Rc<Device<M>>, Result<(), MemberError>)| match result {
            Ok(()) => {
                device.is_superblock_stale.set(false);
                device.is_contradicted.set(false);
                None
            }
            Err(error) => Some((device, error)),
        };
        devices.into_iter().zip(results).filter_map(outcome).collect()
    }

    /// Superblocks and bits as they were read: written by an earlier user, perhaps, who was killed before the flush.
    async fn flush_what_was_found(&self) -> Failures<M> {
        if !std::mem::take(&mut self.record.borrow_mut().is_flush_owed) {
            return Vec::new();
        }
        let devices = self.core.devices();
        let flushes = join_all(devices.iter().map(|device| device.flush(Why::Superblock))).await;
        devices.into_iter().zip(flushes).filter_map(|(device, result)| Some((device, result.err()?))).collect()
    }

    /// Members that a round cut short left one event behind are told first what the others say already:
    /// another round, cut short as well, would leave them two behind.
    async fn bring_level(&self) -> Failures<M> {
        let events = self.record.borrow().events;
        let Some(said) = self.record.borrow_mut().uneven.take() else { return Vec::new() };
        let is_behind = |device: &Rc<Device<M>>| {
            let own = device.superblock.borrow();
            // A spare that was about to become active must not be called so before it says how far it is.
            let role = said.roles.get(usize::from(own.device_number.0));
            let is_told = role.is_none_or(|role| *role == own.own_role());
            // One that has changed since is told first of that, which the others do not know yet.
            own.events < events && is_told && (mutant!("level-before-told") || !device.is_superblock_stale.get())
        };
        let devices: Vec<_> = self.core.devices().into_iter().filter(is_behind).collect();
        let level = |device: &Rc<Device<M>>| {
            let mut superblock = device.superblock.borrow().clone();
            (superblock.events, superblock.resync) = (events, said.resync);
            superblock.roles.clone_from(&said.roles);
            superblock.bitmap = said.bitmap;
            superblock
        };
        let writes = devices.iter().map(async |device| {
            let bitmap = device.superblock.borrow().bitmap;
            let result = device.write_superblock(level(device), &self.core.pool).await;
            // One that is being added or removed just now is for the next events to tell of.
            device.superblock.borrow_mut().bitmap = bitmap;
            result
        });
        let results = join_all(writes).await;
        devices.into_iter().zip(results).filter_map(|(device, result)| Some((device, result.err()?))).collect()
    }

    fn superblock_of(&self, device: &Device<M>) -> Superblock {
        let record = self.record.borrow();
        let mut superblock = device.superblock.borrow().clone();
        superblock.events = record.events;
        superblock.resync = match record.dirty {
            true => Resync::From(Sectors(0)),
            // Who is to be left behind is so in the last round alone, and what was resynced was without him.
            false if record.owed > 1 && !mutant!("clean-before-left-behind") => superblock.resync,
            false => record.resync,
        };
        superblock.roles.clone_from(&record.roles);
        let wall = self.core.clock.wall();
        // The kernel writes no microseconds: by them a keeper of checksums knows its own superblocks.
        superblock.updated = Timestamp { seconds: wall.as_secs(), micros: wall.subsec_micros().max(1) };
        superblock
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// [`crate::Array::fail`].
    pub(crate) async fn fail(&self, member: &str) -> Result<(), Refusal> {
        if self.core.info.read_only {
            return Err(Refusal::new("the array is read-only"));
        }
        let device = self.core.find(member)?;
        let _inside = self.core.gate.enter().ok_or_else(|| Refusal::new("the array is stopped"))?;
        let _lock = self.lock.exclusive(0..1).await;
        self.core.check_unbroken().map_err(|error| Refusal::new(error.reason))?;
        if device.state.get() == DeviceState::Faulty {
            return Ok(());
        }
        if !self.core.survives_without(&device) {
            return Err(Refusal::new("the array cannot do without this member")
                .of(&device.name)
                .advice("`mdspace status` shows which members are left, and whether a resync must end first"));
        }
        let slot = self.core.slot_of_device(&device);
        self.set_faulty(&device);
        self.core.tell(&device, slot, ChangeKind::Left, Some("called faulty by request"));
        self.publish().await.map_err(|error| error.refusal().of(&device.name))
    }

    /// [`crate::Array::remove`].
    pub(crate) async fn remove(&self, member: &str) -> Result<(), Refusal> {
        let device = self.core.find(member)?;
        let _lock = self.lock.exclusive(0..1).await;
        if device.is_active() {
            return Err(Refusal::new("the member is active").of(&device.name).advice("fail it first"));
        }
        self.core.roster.others.borrow_mut().retain(|other| !Rc::ptr_eq(other, &device));
        self.core.tell(&device, None, ChangeKind::Removed, None);
        if device.state.get() != DeviceState::Spare
            || self.core.info.read_only
            || self.core.health.failed.borrow().is_some()
            || mutant!("removed-not-left-behind")
        {
            return Ok(());
        }
        self.record.borrow_mut().owed = ROUNDS_TO_LEAVE_BEHIND;
        self.publish().await.map_err(|error| error.refusal().of(&device.name))
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// A device leaves that is a successor: the member keeps its place.
    pub(crate) fn dismiss(&self, device: &Rc<Device<M>>) {
        let slots = self.core.roster.slots.borrow();
        let is_its = |old: &&Rc<Device<M>>| old.successor().is_some_and(|successor| Rc::ptr_eq(&successor, device));
        let place = slots.iter().zip(0..).find_map(|(old, slot)| Some((old.as_ref().filter(is_its)?, slot)));
        let Some((old, slot)) = place else { return };
        old.successor.take();
        old.is_contradicted.set(old.is_leaving.take());
        device.superblock.borrow_mut().replacement = false;
        self.record
            .borrow_mut()
            .set_role(old.superblock.borrow().device_number.0.into(), DeviceRole::Active(Slot(slot)));
        self.core.roster.others.borrow_mut().push(device.clone());
    }

    /// Failures to write bits, of which those for want of room alone are an error of whoever asked: they wait.
    pub(crate) fn without_room(failures: Failures<M>) -> Result<Failures<M>, ArrayError> {
        match &failures[..] {
            [(device, error), ..] if failures.iter().all(|(_, error)| error.kind == MemberErrorKind::NoSpace) => {
                let reason = format!("{}: no room for the bitmap: {error}", device.name);
                Err(ArrayError::new(ArrayErrorKind::NoSpace, reason))
            }
            _ => Ok(failures),
        }
    }

    /// Records every one of these failures. Whoever asked is told of the gravest: that there is no room only where nothing else is.
    pub(crate) async fn record_failures(&self, failures: Failures<M>) -> Result<(), ArrayError> {
        let mut outcome = Ok(());
        for (device, error) in failures {
            match Box::pin(self.record_failure(&device, &error)).await {
                Err(error) if outcome.is_ok() || error.kind != ArrayErrorKind::NoSpace => outcome = Err(error),
                _ => {}
            }
        }
        outcome
    }
}

impl<M: Member, C: Clock> Authority<M> for Metadata<M, C> {
    type Mark = Intended<M>;

    async fn mark_write(&self, range: &Range<u64>) -> Result<Intended<M>, ArrayError> {
        Self::mark_write(self, range).await
    }

    async fn record_failure(&self, device: &Rc<Device<M>>, error: &MemberError) -> Result<(), ArrayError> {
        Self::record_failure(self, device, error).await
    }

    async fn record_failures(&self, failures: Failures<M>) -> Result<(), ArrayError> {
        Self::record_failures(self, failures).await
    }

    async fn settle(&self) -> Result<(), ArrayError> {
        Self::settle(self).await
    }

    async fn flush_devices(&self) -> Result<(), ArrayError> {
        Self::flush_devices(self).await
    }
}
