//! The write buffer of a history's array: memory that a kill leaves and a loss of power takes.
//!
//! What was answered before a kill is on the members, or in the buffer, also if a fault kept it from the members. So
//! there are two truths until the next assembly: that of the members, by which they are judged, and that of an array
//! which has its buffer.

use super::run::Runner;
use super::step::Step;
use crate::kept_memory::KeptMemory;
use crate::truth::Truth;
use engine::FindWriteBuffer;
use std::cell::{Cell, RefCell};

/// So few blocks that writes find no room now and then.
const BLOCKS: u32 = 24;

/// The buffer, and what it promises.
#[derive(Default)]
pub(super) struct Buffer {
    memory: KeptMemory,
    /// What the next assembly has to show, since the last life was killed.
    promised: RefCell<Option<Truth>>,
    /// Whether the next assembly may write what is in doubt from it, as the last stop failed or the process was killed.
    pub(super) may_hold_doubts: Cell<bool>,
    /// Whether md has used the members since.
    pub(super) is_overtaken: Cell<bool>,
}

impl Buffer {
    /// What an assembly is given.
    pub(super) fn lend(&self) -> FindWriteBuffer {
        self.memory.lend(BLOCKS)
    }

    /// The memory and all that it promised are gone.
    pub(super) fn lose(&self) {
        self.memory.lose();
        self.promised.take();
        self.may_hold_doubts.set(false);
        self.is_overtaken.set(false);
    }

    /// The truth of an array that was assembled with the buffer, if it differs from that of its members.
    pub(super) fn fulfil(&self) -> Option<Truth> {
        self.is_overtaken.set(false);
        self.promised.take()
    }
}

impl Runner<'_> {
    /// The end of a life, for the truth. `followed_by_others` says that md uses the members next, to which the buffer is
    /// unknown.
    pub(super) fn end_of_truth(&self, end: &Step, followed_by_others: bool) {
        let mut truth = self.shared.truth.borrow_mut();
        let is_kill = matches!(end, Step::Kill);
        if is_kill && self.is_buffered() {
            self.buffer.may_hold_doubts.set(true);
        }
        match self.history.setup.writeback {
            _ if matches!(end, Step::Restart) => {}
            false if is_kill => truth.killed(),
            // A life that was not begun has left the buffer as it was.
            true if is_kill && self.buffer.promised.borrow().is_some() => truth.interrupted(),
            true if is_kill && self.is_buffered() && !followed_by_others => {
                let mut promised = truth.clone();
                promised.killed();
                self.buffer.promised.replace(Some(promised));
                truth.interrupted();
                self.tally.count("kills with a write buffer");
            }
            _ => truth.interrupted(),
        }
        if matches!(end, Step::PowerCut(_)) {
            self.buffer.lose();
        }
    }

    /// Whether writes that are answered from memory outlive a kill.
    pub(super) fn is_buffered(&self) -> bool {
        self.history.setup.is_buffered
    }
}
