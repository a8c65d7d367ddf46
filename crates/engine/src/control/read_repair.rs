//! Read repair: what a member could not read is reconstructed from the others, written back and read again.
//!
//! The request that met the error is answered from the other members, and the member notes the range. Read
//! repair works through the noted ranges beside requests and sweeps ([`crate::Array::keep_whole`]). It halves
//! large ranges until it finds what fails.
//!
//! * It holds the lock of the stripe, or of the array's bytes, so no request writes there meanwhile.
//! * It never writes bytes that may be wrong, for instance from parity that is not trusted. What the others
//!   cannot give stays as it is.
//! * It also restores bad blocks that a long write left, where only a part of that write failed.
//! * It never writes to a member that became shorter or is gone. Such a member is ejected, if the array can
//!   do without it.
//! * What the member refuses to keep becomes a bad block ([`crate::device::bad_blocks`]). Where that is not
//!   possible, the member is ejected, if the array can do without it.
//! * A member with too many medium errors is ejected: more than md's `max_corr_read_errors`, a count that
//!   halves with each hour since the last error. A checksum mismatch is no medium error, as the medium gave
//!   what it has.
//! * A check notes nothing: what it finds stays as it is ([`crate::control::sweep`]).
//!
//! Facts: `drivers/md/raid1.c` and `raid10.c` (`fix_read_error`, `check_decay_read_errors`), `raid5.c`
//! (`raid5_end_read_request`, which allows 256 errors without decay; here all levels have the rule of
//! RAID-10); md(4).

use crate::base::buffer::Block;
use crate::control::state::Control;
use crate::device::{Device, DeviceState, Reach};
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, has_failed};
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault, Operation};
use crate::seam::observe::Why;
use crate::seam::report::ChangeKind;
use format::units::{ComponentByte, SECTOR_BYTES, Slot};
use std::ops::Range;
use std::rc::Rc;

/// The result of the repair of one range.
enum RepairResult {
    Corrected,
    /// A bad block, or a block with a wrong checksum, is good again.
    Restored,
    /// The range can be read now, or no longer matters.
    NotNeeded,
    /// The others cannot give the range, or not all of it.
    NotGiven,
    /// The member cannot be read there, and does not keep what is written.
    Refused,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Repairs what could not be read, until the array is stopped.
    pub(crate) async fn repair_reads(&self) {
        while !self.core.gate.is_closed() && self.repairs_reads() {
            let seen = self.core.context.read_error_pending.seen();
            if !self.core.gate.is_closed_to_writes() && has_failed(self.repair_noted().await) {
                return;
            }
            self.core.context.read_error_pending.changed_since(seen).await;
        }
    }

    /// Whether ranges that could not be read are read again and rewritten.
    pub(super) fn repairs_reads(&self) -> bool {
        !self.core.info.read_only && self.core.is_redundant()
    }

    /// [`crate::Array::set_read_errors_max`].
    pub(crate) fn set_read_errors_max(&self, count: u32) {
        self.read_repair.read_errors_max.set(count);
    }

    /// [`crate::Array::read_errors_max`].
    pub(crate) fn read_errors_max(&self) -> u32 {
        self.read_repair.read_errors_max.get()
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    async fn repair_noted(&self) -> Result<(), ArrayError> {
        let mut is_any_corrected = false;
        loop {
            let Some(_inside) = self.core.gate.enter_background_to_write() else { return Ok(()) };
            let Some((slot, device, range)) = self.next_unread() else { break };
            is_any_corrected |= self.repair_range(slot, &device, range).await?;
        }
        self.core.update_whole();
        let Some(entered) = self.metadata.enter_background() else { return Ok(()) };
        let is_news = || is_any_corrected || self.core.devices().iter().any(|device| device.bad.unsaved().is_some());
        if !is_news() {
            return Ok(());
        }
        let change = entered.begin().await?;
        if is_news() { self.metadata.publish(&change).await } else { Ok(()) }
    }

    /// Takes a noted range from an active member. A silent member comes last: each attempt takes the whole timeout.
    fn next_unread(&self) -> Option<(Slot, Rc<Device<M>>, Range<u64>)> {
        let slots = self.core.roster.slots.borrow();
        let next = |is_silent: bool| {
            slots.iter().zip(0..).find_map(|(device, slot)| {
                let is_meant = |device: &&Rc<Device<M>>| device.is_active() && device.reach.is_silent() == is_silent;
                let device = device.as_ref().filter(is_meant)?;
                let range = device.faults.take_queued()?;
                Some((Slot(slot), device.clone(), range))
            })
        };
        next(false).or_else(|| next(true))
    }

    /// Repairs one noted range. True when a read error was corrected.
    async fn repair_range(&self, slot: Slot, device: &Rc<Device<M>>, range: Range<u64>) -> Result<bool, ArrayError> {
        let is_bad_already = device.bad.touches(&range);
        let mut is_corrupt = false;
        if !is_bad_already {
            match self.reread(device, &range).await {
                Ok(()) => return Ok(false), // a transient error is no medium error
                Err(error) if error.kind == MemberErrorKind::TimedOut => {
                    return self.eject_silent(device, &range, error).await.map(|()| false);
                }
                Err(error) if matches!(error.kind, MemberErrorKind::Short | MemberErrorKind::Gone) => {
                    return self.eject_gone(device, error).await.map(|()| false);
                }
                Err(error) => is_corrupt = error.kind == MemberErrorKind::Corrupt,
            }
        }
        let errors = if is_bad_already || (is_corrupt && !mutant!("corruption-as-read-error")) {
            0
        } else {
            device.faults.add_error(self.core.clock.now())
        };
        if errors > self.read_repair.read_errors_max.get() && self.eject_for_errors(device, &range).await? {
            return Ok(false);
        }
        let (mut is_any_corrected, mut parts) = (false, vec![range]);
        while let Some(part) = parts.pop() {
            if !device.is_active() || self.core.gate.is_closed() {
                break;
            }
            if part.start / ROW_BYTES != (part.end - 1) / ROW_BYTES {
                if device.bad.touches(&part) || self.reread(device, &part).await.is_err() {
                    parts.extend(halves(&part, ROW_BYTES));
                }
                continue;
            }
            match self.repair_row(slot, device, &part).await? {
                RepairResult::Corrected => is_any_corrected = true,
                RepairResult::NotGiven if part.end - part.start > self.core.info.block_bytes => {
                    parts.extend(halves(&part, self.core.info.block_bytes));
                }
                RepairResult::NotGiven | RepairResult::NotNeeded | RepairResult::Restored | RepairResult::Refused => {}
            }
        }
        Ok(is_any_corrected)
    }

    /// Reads the range again. A member that answers is no longer silent.
    pub(crate) async fn reread(&self, device: &Device<M>, range: &Range<u64>) -> Result<(), MemberError> {
        let into = self.core.pool.take((range.end - range.start) as usize);
        let (result, _) = device.read_verified_unqueued(ComponentByte(range.start), into, Why::Sweep).await;
        let is_away = result.as_ref().is_err_and(|error| !error.is_medium_error());
        if is_away {
            device.reach.read_failed(true);
            return result;
        }
        let before = device.reach.answered();
        if before == Reach::Silent {
            self.core.report_change(device, self.core.slot_of_device(device), ChangeKind::Answers, None);
        }
        self.core.update_whole();
        if before != Reach::Answering {
            self.sweeps.changed.raise(); // a sweep that needs this member can go on
        }
        result
    }

    /// Ejects a member that gave no answer twice. A member that the array needs is asked again.
    async fn eject_silent(
        &self,
        device: &Rc<Device<M>>,
        range: &Range<u64>,
        error: MemberError,
    ) -> Result<(), ArrayError> {
        let change = self.metadata.begin().await?;
        if device.is_active() && self.core.survives_without(device) {
            return self.metadata.eject(&change, vec![(device.clone(), error)]).await;
        }
        device.faults.queue(range.clone());
        Ok(())
    }

    /// Ejects a member that became shorter or is gone: it may return as another device. It is never written
    /// for repair: a file would grow, and its holes would be read as data. A member that the array needs
    /// stays, and fails what is asked of it.
    async fn eject_gone(&self, device: &Rc<Device<M>>, error: MemberError) -> Result<(), ArrayError> {
        let change = self.metadata.begin().await?;
        if device.is_active() && self.core.survives_without(device) {
            return self.metadata.eject(&change, vec![(device.clone(), error)]).await;
        }
        Ok(())
    }

    /// Ejects a member with too many read errors, if the array can do without it. True when it was ejected.
    async fn eject_for_errors(&self, device: &Rc<Device<M>>, range: &Range<u64>) -> Result<bool, ArrayError> {
        let guard = self.metadata.lock().await;
        let is_sound = |other: &Rc<Device<M>>| other.bad.is_empty() || Rc::ptr_eq(other, device);
        let are_others_sound = self.core.roster.slots.borrow().iter().flatten().all(is_sound);
        if !device.is_active() || !are_others_sound || !self.core.survives_without(device) {
            return Ok(false);
        }
        let reason = format!("more than {} read errors", self.read_repair.read_errors_max.get());
        let error = detected_error(device, Operation::Read, range, reason);
        self.metadata.eject(&guard, vec![(device.clone(), error)]).await.map(|()| true)
    }

    /// Repairs one row or a part of it: an unreadable range, or a bad block.
    async fn repair_row(
        &self,
        slot: Slot,
        device: &Rc<Device<M>>,
        range: &Range<u64>,
    ) -> Result<RepairResult, ArrayError> {
        let Some(_lock) = self.data.lock_part(slot, range).await else { return Ok(RepairResult::NotNeeded) };
        self.core.check_not_failed()?;
        let is_there = self.core.device(slot).is_some_and(|seated| Rc::ptr_eq(&seated, device));
        let is_bad = device.bad.touches(range) && device.state.get() == DeviceState::InSync;
        let found = match is_bad || !device.is_readable(range.clone()) {
            true => None,
            false => self.reread(device, range).await.err(),
        };
        let is_wanted = is_bad || found.is_some();
        if !is_there || !is_wanted {
            return Ok(RepairResult::NotNeeded);
        }
        let Some(right) = self.given_by_others(slot, range).await else { return Ok(RepairResult::NotGiven) };
        match self.rewrite(device, range, right).await {
            Ok(()) if is_bad => Ok(RepairResult::Restored),
            // The write may have succeeded partly, so the block stays bad.
            Err(_) if is_bad && device.bad.add(range) => Ok(RepairResult::Refused),
            // The member owes the write; reads come from memory until there is room.
            Err(error) if error.kind == MemberErrorKind::NoSpace => Ok(RepairResult::NotNeeded),
            Ok(()) => {
                device.activity.rewritten(range.end - range.start);
                if found.is_some_and(|error| error.kind == MemberErrorKind::Corrupt) {
                    return Ok(RepairResult::Restored);
                }
                // The next round writes this count. No other field depends on it, so no metadata lock is needed.
                let mut superblock = device.superblock.borrow_mut();
                let sectors = (range.end - range.start) / SECTOR_BYTES;
                superblock.corrected_reads = superblock.corrected_reads.saturating_add(sectors as u32);
                Ok(RepairResult::Corrected)
            }
            Err(error) => self.record_refusal(device, range, &error).await.map(|()| RepairResult::Refused),
        }
    }

    /// Writes the range, and reads it back. A bad block stays bad until both have succeeded.
    async fn rewrite(&self, device: &Device<M>, range: &Range<u64>, right: Block) -> Result<(), MemberError> {
        let at = ComponentByte(range.start);
        device.write_on_trial(at, right.clone(), Why::Sweep).await?;
        let (read, found) = device.read_verified_unqueued(at, self.core.pool.take(right.len()), Why::Sweep).await;
        read?;
        match found[..] == right[..] {
            true => {
                device.note_written(at, right.len() as u64, &Ok(()));
                Ok(())
            }
            false => Err(detected_error(device, Operation::Read, range, "other bytes than were written".to_owned())),
        }
    }

    /// Records that a member cannot be read at `range` and does not keep what is written there.
    async fn record_refusal(
        &self,
        device: &Rc<Device<M>>,
        range: &Range<u64>,
        error: &MemberError,
    ) -> Result<(), ArrayError> {
        let change = self.metadata.begin().await?;
        if self.core.others_can_supply(device, range) && self.core.add_bad_blocks(&change, device, range, error) {
            return self.metadata.publish(&change).await;
        }
        match self.core.survives_without(device) {
            true => self.metadata.eject(&change, vec![(device.clone(), error.clone())]).await,
            false => Ok(()),
        }
    }
}

/// Both parts of a range that is longer than `unit`, the second part first.
pub(crate) fn halves(range: &Range<u64>, unit: u64) -> [Range<u64>; 2] {
    let middle = range.start + (range.end - range.start) / 2;
    let middle = (middle / unit * unit).max((range.start / unit + 1) * unit);
    [middle.min(range.end)..range.end, range.start..middle.min(range.end)]
}

/// A failure that the engine detected, not the member.
fn detected_error<M: Member>(
    device: &Device<M>,
    operation: Operation,
    range: &Range<u64>,
    reason: String,
) -> MemberError {
    MemberFault {
        kind: MemberErrorKind::Io,
        operation,
        at: device.absolute(ComponentByte(range.start)),
        bytes: range.end - range.start,
        source: Rc::new(std::io::Error::other(reason)),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_meet_at_a_multiple_of_the_unit_and_are_not_empty() {
        for (range, expected) in [
            (0..8192, [4096..8192, 0..4096]),
            (512..8192, [4096..8192, 512..4096]),
            (3584..9216, [4096..9216, 3584..4096]),
            (4096..16384, [8192..16384, 4096..8192]),
        ] {
            assert_eq!(halves(&range, 4096), expected, "{range:?}");
        }
    }
}
