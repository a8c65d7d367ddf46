//! A running array gets a write journal, or gives it up. No write is under way, and all data and parity are on stable
//! storage, so the journal holds nothing that the members lack.
//!
//! A new journal says what it is before any member names it. md refuses an array whose members name a journal that is not
//! there. One that was given up is left two events behind: md and assembly then reject it, should it be given again.
//!
//! Facts: `raid5_add_disk`, `raid5_remove_disk` and `raid5_change_consistency_policy` in `drivers/md/raid5.c`;
//! `super_1_validate` in `drivers/md/md.c`.

use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, place_bytes};
use crate::metadata::journal::log::JournalLog;
use crate::metadata::record::ROUNDS_TO_EJECT;
use crate::metadata::state::Metadata;
use crate::seam::bytes::write_bytes;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use crate::seam::report::ChangeKind;
use format::superblock::DeviceRole;
use std::rc::Rc;

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Makes `device` the array's write journal. It holds an empty meta block of the number `sequence`, and no superblock.
    pub(crate) async fn add_journal(
        &self,
        guard: &MetadataGuard<'_>,
        device: Rc<Device<M>>,
        sequence: u64,
    ) -> Result<(), Refusal> {
        let log = JournalLog::new(&device, sequence, self.parity())?;
        self.core.to_the_end(self.name_journal(guard, device, log)).await
    }

    async fn name_journal(
        &self,
        guard: &MetadataGuard<'_>,
        device: Rc<Device<M>>,
        log: JournalLog<M>,
    ) -> Result<(), Refusal> {
        self.set_named(true);
        self.set_role_of(guard, &device, DeviceRole::Journal);
        if mutant!("journal-named-first") {
            self.publish(guard).await.map_err(ArrayError::refusal)?;
        }
        if let Err(error) = self.write_superblock(&device, self.superblock_of(&device)).await {
            // Its superblock may have been written.
            self.leave_behind(guard, &device);
            self.publish(guard).await.map_err(ArrayError::refusal)?;
            return Err(Refusal::member_error(&device.name, &error).after("the array has no write journal"));
        }
        self.core.roster.others.borrow_mut(guard).push(device.clone());
        self.set_journal(guard, Some(log));
        self.publish(guard).await.map_err(ArrayError::refusal)?;
        self.core.report_change(&device, None, ChangeKind::Added, Some("as the write journal"));
        Ok(())
    }

    /// Gives up the write journal, if there is one. Its superblock is erased at the end.
    pub(crate) async fn drop_journal(&self, guard: &MetadataGuard<'_>) -> Result<(), Refusal> {
        let Some(log) = self.journal() else { return Ok(()) };
        let device = &log.device;
        self.set_journal(guard, None);
        self.core.roster.others.borrow_mut(guard).retain(|other| !Rc::ptr_eq(other, device));
        self.leave_behind(guard, device);
        self.publish(guard).await.map_err(ArrayError::refusal)?;
        self.core.report_change(device, None, ChangeKind::Removed, Some("the array has no write journal any more"));
        if let Err(error) = self.erase_superblock(device).await {
            tracing::warn!("{}: its superblock still names a write journal that was given up: {error}", device.name);
        }
        Ok(())
    }

    /// The superblocks are to name no journal from the next round on, and to be two events ahead of it.
    fn leave_behind(&self, guard: &MetadataGuard<'_>, journal: &Device<M>) {
        self.set_named(false);
        self.set_role_of(guard, journal, DeviceRole::Spare);
        self.record_mut(guard).rounds_pending = mutant!("journal-not-left-behind" => 1, else ROUNDS_TO_EJECT);
    }

    fn set_named(&self, is_named: bool) {
        self.core.members().iter().for_each(|device| device.superblock.borrow_mut().journal = is_named);
    }

    fn set_role_of(&self, guard: &MetadataGuard<'_>, journal: &Device<M>, role: DeviceRole) {
        self.record_mut(guard).set_role(journal.superblock.borrow().device_number.0.into(), role);
    }

    async fn erase_superblock(&self, device: &Device<M>) -> Result<(), MemberError> {
        let at = device.superblock.borrow().super_at();
        let zeros = vec![0; place_bytes(at, device.member.limits().bytes)];
        write_bytes(&device.member, &self.core.pool, at, &zeros).await?;
        device.member.flush(Why::Superblock).await
    }
}
