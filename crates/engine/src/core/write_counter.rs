//! Counts writes, so that others see whether any is under way, and whether any began since they last looked.

use std::cell::Cell;

/// Counts of the writes since the array was assembled.
#[derive(Default)]
pub(crate) struct WriteCounter {
    begun: Cell<u64>,
    ended: Cell<u64>,
}

/// A write that is under way, from its acceptance to its end.
pub(crate) struct ActiveWrite<'a>(&'a WriteCounter);

impl WriteCounter {
    pub(crate) fn begin(&self) -> ActiveWrite<'_> {
        self.begun.set(self.begun.get() + 1);
        ActiveWrite(self)
    }

    /// How many writes have begun, if none is under way.
    pub(crate) fn at_rest(&self) -> Option<u64> {
        (self.begun.get() == self.ended.get()).then(|| self.begun.get())
    }
}

impl Drop for ActiveWrite<'_> {
    fn drop(&mut self) {
        self.0.ended.set(self.0.ended.get() + 1);
    }
}
