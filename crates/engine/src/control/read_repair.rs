//! Read errors put right: what a member could not be read at is worked out from
//! the others, written back and read again.
//!
//! Whoever meets the error goes round it and is answered; the member notes the
//! range, and this works through what was noted, beside the requests and sweeps
//! ([`crate::Array::keep_whole`]). Large ranges are halved until what fails is found.
//!
//! * Under the lock of the stripe, or of the array's bytes; so nobody writes there meanwhile.
//! * Never with bytes that may be wrong: not by parity that is not trusted. What
//!   nobody can give is left as it is.
//! * So are bad blocks restored that a long write left, where only a part of it failed.
//! * Never a member that became shorter or is gone: that leaves, if the array can do without it.
//! * What the member refuses becomes a bad block of it ([`crate::device::bad_blocks`]); where that cannot
//!   be, the member leaves, if the array can do without it.
//! * A member with too many errors of its medium leaves: more than md's `max_corr_read_errors`,
//!   each hour since the last one halving their number. A block that is not what its checksum says is no such error: the
//!   medium gave what it has.
//! * A check notes nothing: what it finds stays as it is ([`crate::control::sweep`]).
//!
//! Facts: `drivers/md/raid1.c` and `raid10.c` (`fix_read_error`,
//! `check_decay_read_errors`), `raid5.c` (`raid5_end_read_request`, which allows 256 and
//! does not forget; here all levels have level 10's rule); md(4).

use crate::base::buffer::Block;
use crate::base::range_lock::RangeGuard;
use crate::control::Control;
use crate::device::{Device, DeviceState, count};
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError, MemberErrorKind, MemberFault, Operation};
use crate::seam::observe::Why;
use crate::seam::report::ChangeKind;
use format::geometry::Geometry;
use format::units::{ComponentByte, MemberByte, SECTOR_BYTES, Slot};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// md's `max_corr_read_errors`, as long as nobody sets it.
const READ_ERRORS_MAX: u32 = 20;

/// How an array heals.
pub(crate) struct Healing {
    /// md's `max_corr_read_errors`.
    read_errors_max: Cell<u32>,
}

impl Default for Healing {
    fn default() -> Self {
        Self { read_errors_max: Cell::new(READ_ERRORS_MAX) }
    }
}

/// What became of a range that could not be read.
enum Mended {
    Corrected,
    /// A bad block, or a block that was not what its checksum says, is good again.
    Restored,
    /// It can be read after all, or does not matter any more.
    NotNeeded,
    /// The others cannot give it, at least not all of it.
    NotGiven,
    /// The member cannot be read there for good.
    Refused,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Puts right what could not be read, until the array is stopped.
    pub(crate) async fn repair_reads(&self) {
        while !self.core.gate.is_closed() && !self.core.info.read_only && self.core.is_redundant() {
            let seen = self.core.context.read_error_pending.seen();
            if self.heal_what_was_noted().await.is_err() {
                return; // the array takes no more changes
            }
            self.core.context.read_error_pending.changed_since(seen).await;
        }
    }

    /// [`crate::Array::set_read_errors_max`].
    pub(crate) fn set_read_errors_max(&self, count: u32) {
        self.healing.read_errors_max.set(count);
    }

    /// [`crate::Array::read_errors_max`].
    pub(crate) fn read_errors_max(&self) -> u32 {
        self.healing.read_errors_max.get()
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    async fn heal_what_was_noted(&self) -> Result<(), ArrayError> {
        let mut is_any_corrected = false;
        while let Some((slot, device, range)) = self.next_unread() {
            let Some(_inside) = self.core.gate.enter_background() else { return Ok(()) };
            is_any_corrected |= self.heal_range(slot, &device, range).await?;
        }
        self.core.update_whole();
        let Some(_inside) = self.core.gate.enter_background() else { return Ok(()) };
        let is_news = || is_any_corrected || self.core.devices().iter().any(|device| device.bad.unsaved().is_some());
        if !is_news() {
            return Ok(());
        }
        let _lock = self.metadata.lock.exclusive(0..1).await;
        self.core.check_unbroken()?;
        if is_news() { self.metadata.publish().await } else { Ok(()) }
    }

    /// What a member with a slot could not be read at.
    fn next_unread(&self) -> Option<(Slot, Rc<Device<M>>, Range<u64>)> {
        let slots = self.core.roster.slots.borrow();
        slots.iter().zip(0..).find_map(|(device, slot)| {
            let device = device.as_ref().filter(|device| device.is_active())?;
            let range = device.unread.borrow_mut().take_first()?;
            Some((Slot(slot), device.clone(), range))
        })
    }

    /// True when something was put right.
    async fn heal_range(&self, slot: Slot, device: &Rc<Device<M>>, range: Range<u64>) -> Result<bool, ArrayError> {
        let is_bad_already = device.bad.touches(&range);
        let mut is_corrupt = false;
        if !is_bad_already {
            match self.try_again(device, &range).await {
                Ok(()) => return Ok(false), // an error that is gone, or was put right meanwhile, is none of the medium
                Err(error) if error.kind == MemberErrorKind::TimedOut => {
                    return self.leaves_for_silence(device, &range, error).await.map(|()| false);
                }
                Err(error) if matches!(error.kind, MemberErrorKind::Short | MemberErrorKind::Gone) => {
                    return self.leaves_as_another(device, error).await.map(|()| false);
                }
                Err(error) => is_corrupt = error.kind == MemberErrorKind::Corrupt,
            }
        }
        let errors = if is_bad_already || (is_corrupt && !mutant!("corruption-as-read-error")) {
            0
        } else {
            device.read_errors.add(self.core.clock.now())
        };
        if errors > self.healing.read_errors_max.get() && self.leaves_for_errors(device, &range).await? {
            return Ok(false);
        }
        let (mut is_any_corrected, mut parts) = (false, vec![range]);
        while let Some(part) = parts.pop() {
            if !device.is_active() || self.core.gate.is_closed() {
                break;
            }
            if part.start / ROW_BYTES != (part.end - 1) / ROW_BYTES {
                if device.bad.touches(&part) || self.is_unreadable(device, &part).await {
                    parts.extend(halves(&part, ROW_BYTES));
                }
                continue;
            }
            match self.mend(slot, device, &part).await? {
                Mended::Corrected => is_any_corrected = true,
                Mended::NotGiven if part.end - part.start > self.core.info.block_bytes => {
                    parts.extend(halves(&part, self.core.info.block_bytes));
                }
                Mended::NotGiven | Mended::NotNeeded | Mended::Restored | Mended::Refused => {}
            }
        }
        Ok(is_any_corrected)
    }

    /// Whether a member can be read there now. One that answers is not silent.
    pub(crate) async fn try_again(&self, device: &Device<M>, range: &Range<u64>) -> Result<(), MemberError> {
        let into = self.core.pool.take((range.end - range.start) as usize);
        let (result, _) = device.read_verified_unqueued(ComponentByte(range.start), into, Why::Sweep).await;
        let is_away = result.as_ref().is_err_and(|error| !error.is_medium_error());
        let was_away = device.is_away.replace(is_away) | device.is_silent.get();
        if !is_away {
            if device.is_silent.replace(false) {
                self.core.tell(device, self.core.slot_of_member(device), ChangeKind::Answers, None);
            }
            self.core.update_whole();
        }
        if was_away && !is_away {
            self.sweeps.changed.raise(); // what could not go on without it can
        }
        result
    }

    async fn is_unreadable(&self, device: &Device<M>, range: &Range<u64>) -> bool {
        self.try_again(device, range).await.is_err()
    }

    /// A member that gave no answer twice has failed; one that is needed is asked again.
    async fn leaves_for_silence(
        &self,
        device: &Rc<Device<M>>,
        range: &Range<u64>,
        error: MemberError,
    ) -> Result<(), ArrayError> {
        let _lock = self.metadata.lock.exclusive(0..1).await;
        self.core.check_unbroken()?;
        if device.is_active() && self.core.survives_without(device) {
            return self.metadata.leave_behind(vec![(device.clone(), error)]).await;
        }
        device.unread.borrow_mut().add(range.clone());
        Ok(())
    }

    /// A member that ends too soon is not what it was, and one that is gone may come back so. It is never written to be healed: a
    /// file would grow, and its holes would be read as data. One that is needed stays, and fails what is asked of it.
    async fn leaves_as_another(&self, device: &Rc<Device<M>>, error: MemberError) -> Result<(), ArrayError> {
        let _lock = self.metadata.lock.exclusive(0..1).await;
        self.core.check_unbroken()?;
        if device.is_active() && self.core.survives_without(device) {
            return self.metadata.leave_behind(vec![(device.clone(), error)]).await;
        }
        Ok(())
    }

    /// Too many read errors: true when the member had to leave, as the array can do without it.
    async fn leaves_for_errors(&self, device: &Rc<Device<M>>, range: &Range<u64>) -> Result<bool, ArrayError> {
        let _lock = self.metadata.lock.exclusive(0..1).await;
        let is_sound = |other: &Rc<Device<M>>| other.bad.is_empty() || Rc::ptr_eq(other, device);
        let are_others_sound = self.core.roster.slots.borrow().iter().flatten().all(is_sound);
        if !device.is_active() || !are_others_sound || !self.core.survives_without(device) {
            return Ok(false);
        }
        let reason = format!("more than {} read errors", self.healing.read_errors_max.get());
        let error = complaint(device, Operation::Read, range, reason);
        self.metadata.leave_behind(vec![(device.clone(), error)]).await.map(|()| true)
    }

    /// Puts one row right, or a part of it: one that cannot be read, or a bad block.
    async fn mend(&self, slot: Slot, device: &Rc<Device<M>>, range: &Range<u64>) -> Result<Mended, ArrayError> {
        let Some(_lock) = self.lock_component(slot, range).await else { return Ok(Mended::NotNeeded) };
        self.core.check_unbroken()?;
        let is_there = self.core.device(slot).is_some_and(|seated| Rc::ptr_eq(&seated, device));
        let is_bad = device.bad.touches(range) && device.state.get() == DeviceState::InSync;
        let found = match is_bad || !device.is_readable(range.clone()) {
            true => None,
            false => self.try_again(device, range).await.err(),
        };
        let is_wanted = is_bad || found.is_some();
        if !is_there || !is_wanted {
            return Ok(Mended::NotNeeded);
        }
        let Some(right) = self.given_by_others(slot, range).await else { return Ok(Mended::NotGiven) };
        match self.rewrite(device, range, right).await {
            Ok(()) if is_bad => Ok(Mended::Restored),
            // It may have been written, and not be there.
            Err(_) if is_bad && device.bad.add(range) => Ok(Mended::Refused),
            // It is owed, and read from memory until there is room.
            Err(error) if error.kind == MemberErrorKind::NoSpace => Ok(Mended::NotNeeded),
            Ok(()) => {
                count(&device.rewritten_bytes, range.end - range.start);
                if found.is_some_and(|error| error.kind == MemberErrorKind::Corrupt) {
                    return Ok(Mended::Restored);
                }
                let mut superblock = device.superblock.borrow_mut();
                let sectors = (range.end - range.start) / SECTOR_BYTES;
                superblock.corrected_reads = superblock.corrected_reads.saturating_add(sectors as u32);
                Ok(Mended::Corrected)
            }
            Err(error) => self.record_refusal(device, range, &error).await.map(|()| Mended::Refused),
        }
    }

    /// Keeps writes off what a range of one member, in one row, depends on.
    async fn lock_component(&self, slot: Slot, range: &Range<u64>) -> Option<RangeGuard<'_>> {
        match self.core.geometry() {
            Geometry::Parity(parity) => Some(self.data.lock_stripes(parity, range).await),
            Geometry::Mapping(mapping) => {
                let at = mapping.held(slot, ComponentByte(range.start))?;
                Some(self.core.locks.exclusive(at.0..at.0 + range.end - range.start).await)
            }
        }
    }

    /// What a member should hold, as the others have it, if they can give it for certain.
    pub(crate) async fn given_by_others(&self, slot: Slot, range: &Range<u64>) -> Option<Block> {
        match self.core.geometry() {
            Geometry::Parity(parity) => {
                let stripe = range.start / parity.chunk_bytes();
                let is_trusted = self.core.is_agreed((stripe + 1) * parity.stripe_bytes());
                if is_trusted { self.data.reconstructed(parity, range, slot).await } else { None }
            }
            Geometry::Mapping(mapping) => self.other_copy(mapping, range, slot).await,
        }
    }

    /// Writes it, and reads it again; a bad block is one until that has gone well.
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
            false => Err(complaint(device, Operation::Read, range, "other bytes than were written".to_owned())),
        }
    }

    /// A member cannot be read at `range`, and keeps nothing that is written there.
    async fn record_refusal(
        &self,
        device: &Rc<Device<M>>,
        range: &Range<u64>,
        error: &MemberError,
    ) -> Result<(), ArrayError> {
        let _lock = self.metadata.lock.exclusive(0..1).await;
        self.core.check_unbroken()?;
        if self.core.goes_on_without(device, range) && self.core.becomes_bad(device, range, error) {
            return self.metadata.publish().await;
        }
        match self.core.survives_without(device) {
            true => self.metadata.leave_behind(vec![(device.clone(), error.clone())]).await,
            false => Ok(()),
        }
    }
}

/// Both parts of a range that is longer than `unit`, the second first.
pub(crate) fn halves(range: &Range<u64>, unit: u64) -> [Range<u64>; 2] {
    let middle = range.start + (range.end - range.start) / 2;
    let middle = (middle / unit * unit).max((range.start / unit + 1) * unit);
    [middle.min(range.end)..range.end, range.start..middle.min(range.end)]
}

/// A member's failure that it did not say itself.
fn complaint<M: Member>(device: &Device<M>, operation: Operation, range: &Range<u64>, reason: String) -> MemberError {
    MemberFault {
        kind: MemberErrorKind::Io,
        operation,
        at: MemberByte(device.data_at + range.start),
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
