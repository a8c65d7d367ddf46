//! Writes that are logged together: they wait in the open *batch*, and the first of them that gets its turn writes the log
//! for all.
//!
//! Nothing here knows what a log looks like, or when a batch's turn comes.

use crate::base::notify::Signal;
use crate::core::authority::LogEntry;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};

/// The open batch of a log.
#[derive(Default)]
pub(crate) struct Batches {
    open: RefCell<Option<Rc<Batch>>>,
    /// Raised when a batch is written, or has ended.
    pub(super) changed: Rc<Signal>,
}

/// Writes that are logged together. Each of them holds it until its data is written ([`Logged`]).
pub(crate) struct Batch {
    entries: RefCell<Vec<LogEntry>>,
    outcome: OnceCell<Result<(), ArrayError>>,
    changed: Rc<Signal>,
}

/// A write's part in a batch. The log keeps the batch's entries until all parts are dropped.
pub(crate) struct Logged(Option<Rc<Batch>>);

impl Logged {
    /// Nothing was to be logged.
    pub(crate) const NOTHING: Self = Self(None);
}

impl Drop for Logged {
    fn drop(&mut self) {
        let Some(batch) = self.0.take() else { return };
        let changed = batch.changed.clone();
        drop(batch);
        changed.raise();
    }
}

impl Batches {
    /// Adds a write to the next batch with room for it, and waits until that batch is in the log.
    ///
    /// `has_room` says whether entries fit beside those that are here; an empty batch has room for every write.
    /// `take_turn` says whether a batch may be written now, and from then on counts it as written. `write` writes it.
    pub(super) async fn submit(
        &self,
        entries: Vec<LogEntry>,
        has_room: impl Fn(&[LogEntry], &[LogEntry]) -> bool,
        take_turn: impl Fn(&Rc<Batch>) -> bool,
        write: impl AsyncFn(Vec<LogEntry>) -> Result<(), ArrayError>,
    ) -> Result<Logged, ArrayError> {
        let batch = self.join(entries, has_room).await;
        let logged = Logged(Some(batch.clone()));
        loop {
            let seen = self.changed.seen();
            if let Some(outcome) = batch.outcome.get() {
                outcome.clone()?;
                return Ok(logged);
            }
            if self.is_open(&batch) && take_turn(&batch) {
                self.open.take();
                let leading = Leading(&batch);
                let entries = batch.entries.take();
                leading.0.end(write(entries).await);
                continue;
            }
            self.changed.changed_since(seen).await;
        }
    }

    async fn join(&self, entries: Vec<LogEntry>, has_room: impl Fn(&[LogEntry], &[LogEntry]) -> bool) -> Rc<Batch> {
        loop {
            let seen = self.changed.seen();
            let batch = self.open_batch();
            let is_joinable = {
                let own = batch.entries.borrow();
                own.is_empty() || has_room(&own, &entries)
            };
            if is_joinable {
                batch.entries.borrow_mut().extend(entries);
                return batch;
            }
            self.changed.changed_since(seen).await;
        }
    }

    /// The batch that writes may join. One whose writes were all abandoned would never get its turn.
    fn open_batch(&self) -> Rc<Batch> {
        let mut open = self.open.borrow_mut();
        if open.as_ref().is_none_or(|batch| Rc::strong_count(batch) == 1) {
            *open = Some(Rc::new(Batch {
                entries: RefCell::default(),
                outcome: OnceCell::new(),
                changed: self.changed.clone(),
            }));
        }
        open.clone().expect("there is one now")
    }

    fn is_open(&self, batch: &Rc<Batch>) -> bool {
        self.open.borrow().as_ref().is_some_and(|open| Rc::ptr_eq(open, batch))
    }
}

/// Batches of which one is written at a time.
#[derive(Default)]
pub(super) struct Turns {
    is_taken: Cell<bool>,
    /// The batch whose turn it is.
    batch: RefCell<Weak<Batch>>,
}

/// Lets the next batch have its turn.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Whether no batch is being written; from now on this one is.
    pub(super) fn take(&self, batch: &Rc<Batch>) -> bool {
        if self.is_taken.replace(true) {
            return false;
        }
        self.batch.replace(Rc::downgrade(batch));
        true
    }

    /// The turn that was taken, and its batch.
    pub(super) fn begin(&self) -> (Turn<'_>, Weak<Batch>) {
        (Turn(self), self.batch.take())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
    }
}

impl Batch {
    fn end(&self, outcome: Result<(), ArrayError>) {
        let _ = self.outcome.set(outcome);
        self.changed.raise();
    }
}

/// Ends a batch whose leader was dropped.
struct Leading<'a>(&'a Batch);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if self.0.outcome.get().is_none() {
            self.0.end(Err(ArrayError::new(ArrayErrorKind::Io, "a write was abandoned while it was logged")));
        }
    }
}
