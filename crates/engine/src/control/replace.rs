//! Hot replacement: a working member is replaced by another, with no loss of redundancy meanwhile. The new
//! member is the *successor*. It gets every write of its member, the recovery sweep fills it, and then it
//! takes over the slot.
//!
//! * The sweep reads the successor's data from the member itself. It reads the others only for what that
//!   member cannot give.
//! * The successor's superblock says that it is a replacement, and how far it is current (md's feature bits
//!   16 and 2), before any other superblock names it.
//! * One write decides the takeover: the successor's superblock calls itself current and the old member
//!   faulty. It is on stable storage before any other superblock is written. Until all others have followed,
//!   both members get all writes.
//! * After an unclean stop the successor is refilled from where writes may have been under way, as only one
//!   of the two may have them.
//! * When the old member fails, the successor takes its slot as far as it is current, and is recovered from
//!   the others. When the successor fails, nothing is lost.
//!
//! Facts: md(4), `drivers/md/md.c` (`super_1_sync`), `raid5.c` (`raid5_spare_active`, `raid5_remove_disk`).

use crate::base::buffer::Block;
use crate::control::joining::Overwrite;
use crate::control::state::Control;
use crate::control::sweep::purpose::Target;
use crate::core::authority::Authority;
use crate::core::metadata_lock::MetadataGuard;
use crate::device::{Device, DeviceState};
use crate::metadata::record::ROUNDS_TO_EJECT;
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::{Candidate, Member};
use crate::seam::observe::Why;
use crate::seam::report::ChangeKind;
use format::superblock::DeviceRole;
use format::units::{ComponentByte, Slot};
use std::ops::Range;
use std::rc::Rc;

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::replace`].
    pub(crate) async fn replace(
        &self,
        old: &str,
        new: Candidate<M>,
        device_uuid: [u8; 16],
        overwrite: bool,
    ) -> Result<(), Refusal> {
        let entered = self.enter_to_join(&new.name)?;
        self.replaceable(old)?;
        self.check_unused(&new, Overwrite::all(overwrite)).await?;
        let change = entered.lock().await;
        let (slot, old) = self.replaceable(old)?;
        let spare = self.prepare_spare(&change, new, device_uuid).await?;
        let begun = self.begin_replacement(&change, slot, &old, spare).await;
        begun.map_err(|refusal| refusal.after("the new member was written to, and is a spare at most"))
    }

    /// [`crate::Array::replace_with_spare`].
    pub(crate) async fn replace_with_spare(&self, old: &str, spare: &str) -> Result<(), Refusal> {
        let entered = self.metadata.enter_background().ok_or_else(|| Refusal::new("the array is stopped"))?;
        let change = entered.begin().await.map_err(|error| Refusal::new(error.reason))?;
        let (slot, old) = self.replaceable(old)?;
        let spare = self.core.find(spare)?;
        if spare.state.get() != DeviceState::Spare {
            return Err(Refusal::new("not a spare").of(&spare.name).advice("`mdspace status` shows what it is"));
        }
        self.begin_replacement(&change, slot, &old, spare).await
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Finds a member that can be replaced now.
    fn replaceable(&self, name: &str) -> Result<(Slot, Rc<Device<M>>), Refusal> {
        let old = self.core.find(name)?;
        let refuse = |reason: &str, advice: &str| Err(Refusal::new(reason).of(&old.name).advice(advice));
        if old.state.get() != DeviceState::InSync {
            return refuse("only a member that is in sync is replaced", "`mdspace status` shows what it is");
        }
        if old.successor().is_some() {
            return refuse("is being replaced already", "fail the member that replaces it, to begin anew");
        }
        if old.superblock.borrow().numbers_are_slots() {
            return refuse("metadata 0.90 has no field for a replacement", "fail it, and add another member");
        }
        let slot = self.core.slot_of_device(&old).expect("a member in sync has a slot");
        Ok((slot, old))
    }

    /// Makes a spare the successor.
    async fn begin_replacement(
        &self,
        guard: &MetadataGuard<'_>,
        slot: Slot,
        old: &Rc<Device<M>>,
        spare: Rc<Device<M>>,
    ) -> Result<(), Refusal> {
        let refused = |error: ArrayError| error.refusal().of(&spare.name);
        self.check_replacement(slot, old, &spare)?;
        self.metadata.eject_absent(guard).await.map_err(refused)?;
        let still = self.check_replacement(slot, old, &spare); // either may have failed meanwhile
        still.map_err(|refusal| refusal.after("superblocks were rewritten without a change"))?;
        if let Err(error) = self.metadata.write_whole_bitmap(guard, &spare).await {
            let failed = Refusal::member_error(&spare.name, &error);
            self.metadata.eject(guard, vec![(spare.clone(), error)]).await.map_err(refused)?;
            return Err(failed.after("the array goes on without this spare").advice("give another"));
        }
        self.core.watch(&spare.name, &spare.member);
        spare.become_successor();
        let number = usize::from(spare.superblock.borrow().device_number.0);
        self.core.roster.others.borrow_mut(guard).retain(|other| !Rc::ptr_eq(other, &spare));
        self.metadata.record_mut(guard).set_role(number, DeviceRole::Active(slot));
        old.replacement.begin(spare.clone());
        let published = self.metadata.publish(guard).await;
        self.sweeps.changed.raise();
        published.map_err(refused)?;
        spare.check_joined()?;
        self.core.report_change(&spare, Some(slot), ChangeKind::Replacing, Some(&old.name));
        Ok(())
    }

    fn check_replacement(&self, slot: Slot, old: &Rc<Device<M>>, spare: &Device<M>) -> Result<(), Refusal> {
        self.replaceable(&old.name)?;
        match self.fits(spare, slot) {
            true => Ok(()),
            false => Err(Refusal::new("does not fit the slot of the member that it is to replace").of(&spare.name)),
        }
    }

    /// Copies `range` of the members to their successors. The caller keeps writes off.
    pub(crate) async fn copy_to_successors(&self, range: &Range<u64>, targets: &[Target<M>]) -> Result<(), ArrayError> {
        for target in targets {
            let Some(old) = self.core.device(target.slot) else { continue };
            if !old.successor().is_some_and(|successor| Rc::ptr_eq(&successor, &target.device)) {
                continue;
            }
            let blocks = self.contents_of(target, &old, range).await?;
            for run in blocks.chunk_by(|(at, block), (next, _)| at + block.len() as u64 == *next) {
                let parts = run.iter().map(|(_, block)| block.clone()).collect();
                if let Err(error) = target.device.write_own(ComponentByte(run[0].0), parts, Why::Sweep).await {
                    self.metadata.record_failure(&target.device, &error).await?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads `range` of a member: from the member itself or, where that fails, from the others. What neither
    /// can give is left out, and becomes a bad block of the target.
    async fn contents_of(
        &self,
        target: &Target<M>,
        old: &Rc<Device<M>>,
        range: &Range<u64>,
    ) -> Result<Vec<(u64, Block)>, ArrayError> {
        let (mut blocks, mut parts) = (Vec::new(), vec![range.clone()]);
        let chunk = match self.core.chunk_bytes() {
            0 => ROW_BYTES,
            chunk => chunk,
        };
        while let Some(part) = parts.pop() {
            if old.is_readable(part.clone()) {
                let into = self.core.pool.take((part.end - part.start) as usize);
                let (result, read) = old.read_verified(ComponentByte(part.start), into, Why::Sweep).await;
                if result.is_ok() {
                    blocks.push((part.start, read.freeze()));
                    continue;
                }
            }
            let is_in_one = |unit: u64| part.start / unit == (part.end - 1) / unit;
            if is_in_one(chunk)
                && let Some(block) = self.given_by_others(target.slot, &part).await
            {
                blocks.push((part.start, block));
                continue;
            }
            match [chunk, ROW_BYTES, self.core.info.block_bytes].into_iter().find(|unit| !is_in_one(*unit)) {
                Some(unit) => {
                    let numbers = (part.start / unit..part.end.div_ceil(unit)).rev();
                    parts.extend(numbers.map(|n| part.start.max(n * unit)..part.end.min((n + 1) * unit)));
                }
                None if !self.holds_anything(target.slot, &part) => {}
                None => self.record_lost(&part, std::slice::from_ref(target))?,
            }
        }
        Ok(blocks)
    }

    /// Whether data lies there: RAID-10 leaves some places unused.
    fn holds_anything(&self, slot: Slot, range: &Range<u64>) -> bool {
        self.core.personality().position_of(slot, ComponentByte(range.start)).is_some()
    }

    /// Completes replacements one after the other: of two at once, each could be called current by the other
    /// alone. The caller has flushed.
    pub(crate) async fn complete_replacements(
        &self,
        guard: &MetadataGuard<'_>,
        ready: Vec<(Slot, Rc<Device<M>>)>,
    ) -> Result<(), ArrayError> {
        for (slot, successor) in ready {
            let is_its = |old: &Rc<Device<M>>| old.successor().is_some_and(|own| Rc::ptr_eq(&own, &successor));
            if let Some(old) = self.core.device(slot).filter(is_its) {
                self.complete_replacement(guard, slot, old, successor).await?;
            }
        }
        Ok(())
    }

    /// Reads of the old member go on: until this moment all its data is right.
    async fn complete_replacement(
        &self,
        guard: &MetadataGuard<'_>,
        slot: Slot,
        old: Rc<Device<M>>,
        successor: Rc<Device<M>>,
    ) -> Result<(), ArrayError> {
        successor.become_current();
        old.replacement.begin_takeover();
        {
            let mut record = self.metadata.record_mut(guard);
            record.set_role(old.superblock.borrow().device_number.0.into(), DeviceRole::Faulty);
            record.rounds_pending = record.rounds_pending.max(ROUNDS_TO_EJECT);
        }
        let published = self.metadata.publish(guard).await;
        // Neither the successor nor the member must have failed meanwhile.
        if old.replacement.end_takeover() && successor.state.get() == DeviceState::InSync {
            old.replacement.take_successor();
            old.retire();
            self.core.roster.slots.borrow_mut(guard)[slot.index()] = Some(successor.clone());
            self.core.roster.slot_changed.raise();
            self.core.report_change(&successor, Some(slot), ChangeKind::Replaced, Some(&old.name));
            self.core.roster.others.borrow_mut(guard).push(old);
        }
        self.core.update_whole();
        published
    }
}
