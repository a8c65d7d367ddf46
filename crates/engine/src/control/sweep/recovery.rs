//! Recovery: rebuilds members that have a slot but not its data from the others. One sweep rebuilds all such
//! members at once, and fills successors ([`crate::control::replace`]) with them.
//!
//! Requests write to a recovering member everywhere, and read from it what lies behind the sweep. A returning
//! member gets only what the write-intent bitmap names. The checkpoint is each member's own `recovery_offset`
//! in its superblock.
//!
//! Facts: `md_do_sync` and `super_1_sync` in `drivers/md/md.c`.

use crate::control::state::Control;
use crate::control::sweep::copies::array_range;
use crate::control::sweep::purpose::{Ending, Purpose, SweepRange, Target};
use crate::core::authority::Authority;
use crate::device::{Device, DeviceState, Reach};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
use crate::seam::report::ChangeKind;
use format::geometry::{Mapping, Parity, SyncSpace};
use format::units::{SECTOR_BYTES, Sectors, Slot};
use std::ops::Range;
use std::rc::Rc;

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::recover`].
    pub(crate) async fn recover(&self, progress: &dyn Fn(u64, u64)) -> Result<bool, ArrayError> {
        if self.core.info.read_only {
            return Err(ArrayError::new(ArrayErrorKind::ReadOnly, "the array is read-only"));
        }
        if self.targets().is_empty() {
            return Ok(true);
        }
        let (ending, _) = self.sweep(Purpose::Recovery, progress).await?;
        if ending == Ending::Complete {
            self.record_recovery().await?;
        }
        Ok(self.targets().is_empty())
    }
}

/// The byte up to which a recovering device is current; `None` in every other state.
fn current<M: Member>(device: &Device<M>) -> Option<u64> {
    match device.state.get() {
        DeviceState::Recovering { current } => Some(current),
        _ => None,
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// The members to recover, with successors.
    pub(super) fn targets(&self) -> Vec<Target<M>> {
        let slots = self.core.roster.slots.borrow();
        let recovering = slots.iter().enumerate().filter_map(|(slot, device)| {
            let device = device.as_ref().filter(|device| current(device).is_some())?;
            Some(Target { slot: Slot(slot as u16), device: device.clone() })
        });
        let successors = self.core.successors().into_iter().map(|(slot, device)| Target { slot, device });
        recovering.chain(successors).collect()
    }

    /// The targets that the sweep began with. A member seated during a window would be called current there
    /// without its data; it waits for the next sweep.
    pub(super) fn targets_of_sweep(&self) -> Vec<Target<M>> {
        self.targets().into_iter().filter(|target| target.device.state.in_recovery()).collect()
    }

    pub(super) fn recovery_range(&self) -> SweepRange {
        let step = self.component_step();
        let targets = self.targets();
        targets.iter().for_each(|target| target.device.state.enter_recovery());
        let from = targets.iter().filter_map(|target| current(&target.device)).min().unwrap_or(0);
        SweepRange { start: 0, from: from / step * step, end: self.core.component_bytes(), step, member_bytes: step }
    }

    pub(super) fn next_to_recover(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        let by_bitmap = self.targets_of_sweep().iter().all(|target| target.is_by_bitmap());
        // A bitmap of array bytes is checked by each window itself.
        let is_by_component = self.core.geometry().sync_space() == SyncSpace::Component;
        if !is_by_component {
            return Some(range);
        }
        // What was never written to has nothing to recover, as in md. Successors get what their members have.
        let range = match self.core.successors().is_empty() {
            true => self.core.health.unbuilt.first_built(range)?,
            false => range,
        };
        match self.metadata.intent() {
            Some(intent) if by_bitmap => intent.next_set(range, most),
            _ => Some(range),
        }
    }

    /// The targets that are not current up to `end`.
    pub(super) fn targets_behind(&self, end: u64) -> Vec<Target<M>> {
        Self::still_behind(&self.targets_of_sweep(), end)
    }

    /// Those of the targets that are not current up to `end`. Another recovery at the same time may have got further
    /// since the sweep chose them. A target that is current would be one of its own sources.
    pub(super) fn still_behind(targets: &[Target<M>], end: u64) -> Vec<Target<M>> {
        let is_behind = |target: &&Target<M>| current(&target.device).is_some_and(|current| current < end);
        targets.iter().filter(is_behind).cloned().collect()
    }

    pub(super) async fn recover_striped(
        &self,
        parity: &Parity,
        range: &Range<u64>,
        mut targets: Vec<Target<M>>,
    ) -> Result<(), ArrayError> {
        let _lock = self.data.lock_positions(range).await;
        self.core.check_not_failed()?;
        targets.retain(|target| self.is_due(target, range));
        let (successors, targets): (Vec<_>, Vec<_>) = targets.into_iter().partition(Target::is_successor);
        if !targets.is_empty() {
            for part in self.by_recovery(range) {
                self.recover_stripes(parity, &part, &targets).await?;
            }
        }
        self.copy_to_successors(range, &successors).await
    }

    pub(super) async fn recover_mapped(
        &self,
        mapping: &Mapping,
        range: &Range<u64>,
        mut targets: Vec<Target<M>>,
    ) -> Result<(), ArrayError> {
        let Some(covered) = array_range(&self.copies_held(mapping, range, &targets)) else { return Ok(()) };
        let _lock = self.core.locks.exclusive(covered.clone()).await;
        self.core.check_not_failed()?;
        targets.retain(|target| self.is_due(target, &covered));
        let (successors, targets): (Vec<_>, Vec<_>) = targets.into_iter().partition(Target::is_successor);
        self.copy_to_successors(range, &successors).await?;
        let mut copies = self.copies_held(mapping, range, &targets);
        copies.retain(|copy| !self.core.health.unbuilt.covers(&copy.held()));
        if targets.iter().all(Target::is_by_bitmap) {
            copies.retain(|copy| targets.iter().any(|target| self.is_due(target, &copy.held())));
        }
        let turn = range.start / self.window_bytes();
        self.recover_copies(&copies, &targets, turn).await
    }

    /// Whether a target lacks data in a range that the bitmap covers, and is still recovering. The range must
    /// be locked: a write sets its bit before it begins.
    fn is_due(&self, target: &Target<M>, covered: &Range<u64>) -> bool {
        if current(&target.device).is_none() {
            return false;
        }
        match self.metadata.intent() {
            Some(intent) if target.is_by_bitmap() => intent.next_set(covered.clone(), 0).is_some(),
            _ => true,
        }
    }

    /// Records that `range` of the targets cannot be reconstructed. The targets get bad blocks there (md's
    /// way to go on); their logs are written before their recovery offset passes the range.
    pub(crate) fn record_lost(&self, range: &Range<u64>, targets: &[Target<M>]) -> Result<(), ArrayError> {
        // A silent or absent member may still return with this data, so the recovery waits.
        let is_away = |device: &&Rc<Device<M>>| device.reach.get() != Reach::Answering;
        if let Some(device) = self.core.roster.slots.borrow().iter().flatten().find(is_away) {
            device.queue_for_repair(range.clone()); // to be read again
            return Err(self.component_error(range, None));
        }
        for Target { device, .. } in targets {
            if !device.bad.add(range) {
                return Err(self.component_error(range, None));
            }
            let Range { start, end } = range;
            tracing::warn!(
                "{}: bytes {start} to {end} of its data cannot be reconstructed, and become bad blocks",
                device.name
            );
        }
        Ok(())
    }

    /// Advances the members that are current up to the start of `range`. This is state in memory, which needs no
    /// metadata lock; the next checkpoint takes the lock and writes it.
    pub(super) fn recovered_in(&self, range: Range<u64>) {
        for Target { device, .. } in self.targets_of_sweep() {
            device.state.recovered(&range);
        }
    }

    /// After a recovery: makes the members current, and writes that to the superblocks.
    async fn record_recovery(&self) -> Result<(), ArrayError> {
        let Some(entered) = self.metadata.enter_background() else { return Ok(()) };
        if !mutant!("recovery-unflushed") {
            self.metadata.flush_devices().await?;
        }
        let change = entered.begin().await?;
        let is_done = |target: &Target<M>| current(&target.device) >= Some(self.core.component_bytes());
        let done = self.targets().into_iter().filter(is_done);
        let (successors, recovered): (Vec<_>, Vec<_>) = done.partition(Target::is_successor);
        for Target { slot, device } in recovered {
            self.core.report_change(&device, Some(slot), ChangeKind::Recovered, None);
            device.become_current();
            self.metadata.take_number_of_slot(&change, &device, slot);
        }
        self.core.update_whole();
        match successors.is_empty() {
            true => self.metadata.publish(&change).await,
            false => {
                self.complete_replacements(
                    &change,
                    successors.into_iter().map(|target| (target.slot, target.device)).collect(),
                )
                .await
            }
        }
    }

    /// Saves the positions of the sweeps, so that they continue from there.
    pub(crate) async fn checkpoint(&self) -> Result<(), ArrayError> {
        let reached: Vec<(Rc<Device<M>>, Option<u64>)> =
            self.targets().into_iter().map(|target| (target.device.clone(), current(&target.device))).collect();
        let agreed_below = self.core.health.agreed_below.get();
        if reached.is_empty() && self.core.health.agreed.get() {
            return Ok(());
        }
        if !mutant!("checkpoint-unflushed") {
            self.metadata.flush_devices().await?;
        }
        let change = self.metadata.begin().await?;
        let mut is_news = false;
        for (device, reached) in reached {
            let sectors = reached.filter(|_| current(&device).is_some()).map(|reached| Sectors(reached / SECTOR_BYTES));
            let mut superblock = device.superblock.borrow_mut();
            is_news |= sectors.is_some() && superblock.recovery_offset != sectors && !superblock.numbers_are_slots();
            superblock.recovery_offset = sectors;
        }
        {
            let mut record = self.metadata.record_mut(&change);
            let resync = self.core.resync_offset(agreed_below);
            if !record.dirty && !self.core.health.agreed.get() && record.resync != resync {
                record.resync = resync;
                is_news = true;
            }
        }
        if is_news { self.metadata.publish(&change).await } else { Ok(()) }
    }
}

impl<M: Member> Target<M> {
    fn is_successor(&self) -> bool {
        self.device.superblock.borrow().replacement
    }

    fn is_by_bitmap(&self) -> bool {
        self.device.superblock.borrow().recovery_from_bitmap
    }
}
