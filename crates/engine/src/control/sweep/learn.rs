//! Learns unknown checksums in the background: after a power loss, after other software used the array, and
//! after checksums were added.
//!
//! First the tables are read for unknown blocks, which costs a thousandth of the data. Then the unknown
//! blocks are compared as in a check. Where all members agree, the checksum is taken; mismatches are left to
//! a scrub. The sweep runs when nothing else is due: once after the start, and again after a recovery.

use crate::base::yield_now::yield_now;
use crate::control::state::Control;
use crate::control::sweep::findings::ScrubAction;
use crate::control::sweep::purpose::{Ending, Purpose, SweepRange, Tally};
use crate::device::{Device, DeviceState};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::SyncSpace;
use format::units::Slot;
use std::ops::Range;
use std::rc::Rc;

/// Windows without unknown blocks that are skipped in one step.
const WINDOWS_PASSED: u64 = 1024;

impl<M: Member, C: Clock> Control<M, C> {
    /// Continues until all is learned or other work may be due. True when there may be more to do.
    pub(super) async fn learn_checksums(&self) -> Result<bool, ArrayError> {
        let learning = &self.sweeps.learning;
        if learning.is_over.get() || !self.has_checksums() {
            return Ok(false);
        }
        learning.seen.set(Some(self.sweeps.changed.seen()));
        if !self.survey().await {
            return Ok(true);
        }
        let are_all_there = self
            .core
            .roster
            .slots
            .borrow()
            .iter()
            .all(|device| device.as_ref().is_some_and(|device| device.state.get() == DeviceState::InSync));
        if self.core.info.read_only || !are_all_there || !self.core.health.agreed.get() {
            return Ok(false); // checksums could not be saved, or nothing proves them right
        }
        let is_complete = !self.with_checksums().iter().any(|(_, device)| unknown(device) > 0)
            || matches!(self.sweep(Purpose::Learn, &|_, _| {}).await?, (Ending::Complete, _));
        if is_complete {
            learning.is_over.set(true);
        }
        Ok(true)
    }

    /// Active members with checksums.
    fn with_checksums(&self) -> Vec<(Slot, Rc<Device<M>>)> {
        let slots = self.core.roster.slots.borrow();
        let member = |(device, slot): (&Option<Rc<Device<M>>>, u16)| {
            let device = device.as_ref().filter(|device| device.is_active() && device.checksums.get().is_some())?;
            Some((Slot(slot), device.clone()))
        };
        slots.iter().zip(0..).filter_map(member).collect()
    }

    /// Reads the tables for unknown blocks; false when interrupted.
    async fn survey(&self) -> bool {
        for (slot, device) in self.with_checksums() {
            let Some(checksums) = device.checksums.get() else { continue };
            checksums.use_bytes(self.core.geometry().used_bytes(slot));
            loop {
                if self.is_interrupted(Purpose::Learn) {
                    return false;
                }
                let Some(_inside) = self.core.gate.enter_background() else { return false };
                if !checksums.count_pages(&device.member).await {
                    break;
                }
                yield_now().await;
            }
        }
        true
    }

    pub(super) fn is_learning_interrupted(&self) -> bool {
        self.sweeps.learning.seen.get() != Some(self.sweeps.changed.seen())
    }

    pub(super) fn learning_range(&self) -> SweepRange {
        SweepRange { start: 0, from: self.sweeps.learning.position.get(), ..self.resync_range() }
    }

    /// The rest of the range from the first window of `step` bytes with unknown blocks, or from a window far
    /// enough on.
    pub(super) fn next_to_learn(&self, range: Range<u64>, step: u64) -> Option<Range<u64>> {
        let mut at = range.start;
        for _ in 0..WINDOWS_PASSED {
            if at >= range.end {
                return None;
            }
            let end = ((at / step + 1) * step).min(range.end);
            if self.is_any_unknown(&(at..end)) {
                break;
            }
            at = end;
        }
        (at < range.end).then_some(at..range.end)
    }

    /// Whether a range of positions may hold unknown blocks.
    fn is_any_unknown(&self, range: &Range<u64>) -> bool {
        let is_unknown = |slot: Slot, bytes: &Range<u64>| {
            let slots = self.core.roster.slots.borrow();
            let device = slots.get(slot.index()).and_then(Option::as_ref);
            device.and_then(|device| device.checksums.get()).is_some_and(|checksums| checksums.is_any_unknown(bytes))
        };
        match self.core.geometry().sync_space() {
            SyncSpace::Component => (0..self.core.geometry().slots()).any(|slot| is_unknown(Slot(slot), range)),
            SyncSpace::Array => {
                self.core.personality().extents(range).iter().any(|(slot, part)| is_unknown(*slot, part))
            }
        }
    }

    /// Learns the checksums of blocks on which all members of a window agree.
    pub(super) async fn learn_window(&self, range: &Range<u64>) -> Tally {
        if !self.is_any_unknown(range) {
            return Tally::default();
        }
        let _lock = self.keep_writes_off(range).await;
        let comparison = self.compare(range, ScrubAction::Check).await;
        self.data.record_checksums_of(&comparison.sound).await;
        Tally::default()
    }
}

fn unknown<M>(device: &Device<M>) -> u64 {
    device.checksums.get().map_or(0, |checksums| checksums.unknown().0)
}
