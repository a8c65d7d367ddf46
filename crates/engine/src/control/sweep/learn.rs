//! Checksums that are unknown are learned beside the requests: after a loss of power, after others have used the array, after
//! checksums were given to it.
//!
//! First the tables are gone over for what is unknown, which costs a thousandth of the data to read. Then what that is of is
//! compared as a check does, and where all members agree it is taken in; nothing else is done about what is found. Whoever keeps
//! the array whole does this when nothing else is due, once, and again when members were recovered.

use crate::base::notify::Seen;
use crate::control::Control;
use crate::control::sweep::{Course, Ending, Purpose, ScrubAction, Tally, others_first};
use crate::device::{Device, DeviceState};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::{Geometry, Level};
use format::units::{ArrayByte, Slot};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// Windows in which nothing is unknown that are passed over at a time.
const WINDOWS_PASSED: u64 = 1024;

/// How far checksums were learned.
#[derive(Default)]
pub(super) struct Learning {
    position: Cell<u64>,
    is_over: Cell<bool>,
    /// What had changed in the array when it last went on.
    seen: Cell<Option<Seen>>,
}

impl Learning {
    /// There may be more to learn.
    pub(super) fn begin_anew(&self) {
        self.position.set(0);
        self.is_over.set(false);
    }

    pub(super) fn learned_to(&self, position: u64) {
        self.position.set(position);
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Goes on learning, until all is or something else is to be looked at. True when there may be more to do.
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
            return Ok(false); // what is learned could not be kept, or nothing says that it is right
        }
        let is_complete = !self.keepers().iter().any(|(_, device)| unknown(device) > 0)
            || matches!(self.sweep(Purpose::Learn, &|_, _| {}).await?, (Ending::Complete, _));
        if is_complete {
            learning.is_over.set(true);
        }
        Ok(true)
    }

    /// Members that keep checksums.
    fn keepers(&self) -> Vec<(Slot, Rc<Device<M>>)> {
        let slots = self.core.roster.slots.borrow();
        let keeper = |(device, slot): (&Option<Rc<Device<M>>>, u16)| {
            let device = device.as_ref().filter(|device| device.is_active() && device.checksums.get().is_some())?;
            Some((Slot(slot), device.clone()))
        };
        slots.iter().zip(0..).filter_map(keeper).collect()
    }

    /// Looks through the tables for what is unknown; false when it was interrupted.
    async fn survey(&self) -> bool {
        for (slot, device) in self.keepers() {
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
                others_first().await;
            }
        }
        true
    }

    pub(super) fn is_learning_interrupted(&self) -> bool {
        self.sweeps.learning.seen.get() != Some(self.sweeps.changed.seen())
    }

    pub(super) fn learning_course(&self) -> Course {
        Course { start: 0, from: self.sweeps.learning.position.get(), ..self.resync_course() }
    }

    /// The first window of so many bytes in which something may be unknown, or one that is far enough on.
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

    /// Whether something may be unknown in a range of positions.
    fn is_any_unknown(&self, range: &Range<u64>) -> bool {
        let is_unknown = |slot: Slot, bytes: &Range<u64>| {
            let slots = self.core.roster.slots.borrow();
            let device = slots.get(slot.index()).and_then(Option::as_ref);
            device.and_then(|device| device.checksums.get()).is_some_and(|checksums| checksums.is_any_unknown(bytes))
        };
        match self.core.geometry() {
            Geometry::Mapping(mapping) if mapping.level() == Level::Raid10 => mapping
                .pieces(ArrayByte(range.start), range.end - range.start)
                .any(|piece| piece.copies.iter().any(|&(slot, at)| is_unknown(slot, &(at.0..at.0 + piece.bytes)))),
            geometry => (0..geometry.slots()).any(|slot| is_unknown(Slot(slot), range)),
        }
    }

    /// Takes in what all members of a window agree on.
    pub(super) async fn learn_window(&self, range: &Range<u64>) -> Tally {
        if !self.is_any_unknown(range) {
            return Tally::default();
        }
        let _lock = self.keep_writes_off(range).await;
        let look = self.look(range, ScrubAction::Check).await;
        self.data.learn_parts(look.sound()).await;
        Tally::default()
    }
}

fn unknown<M>(device: &Device<M>) -> u64 {
    device.checksums.get().map_or(0, |checksums| checksums.unknown().0)
}
