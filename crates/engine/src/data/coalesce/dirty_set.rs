//! The dirty set: stripe writes whose data was answered from memory, and what became of it.
//!
//! Bookkeeping, without I/O. [`super::writeback`] says what it promises.

use crate::base::range_set::Ranges;
use crate::base::write_set::WriteSet;
use crate::data::coalesce::stripe_write::{RequestId, StripeWrite};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// Which writes are answered from memory ([`crate::Array::write_back`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteBack {
    /// Those of a stream that has too little under way to fill a stripe.
    Streams,
    /// All.
    All,
}

/// Stripe writes whose data was answered, and may not be on the members.
#[derive(Default)]
pub(super) struct DirtySet {
    /// Which writes are answered from memory, if any.
    pub(super) answers: Cell<Option<WriteBack>>,
    /// In the order of their locks, each with the array's own request for it.
    pub(super) writes: RefCell<Vec<(Rc<StripeWrite>, RequestId)>>,
    /// Stripe writes that the writeback task does not drive yet.
    pub(super) fresh: RefCell<Vec<(Rc<StripeWrite>, RequestId)>>,
    pub(super) bytes: Cell<u64>,
    /// What an earlier server had answered, of an array that is only read: the members may lack it.
    pub(super) found: RefCell<WriteSet>,
    /// Ranges that were answered and could not be written.
    pub(super) lost: RefCell<Ranges>,
    /// Members had no room for some of the data, and have not taken it since ([`crate::control::owed`]).
    pub(super) is_owed: Cell<bool>,
    pub(super) task_waker: RefCell<Option<Waker>>,
}

impl DirtySet {
    pub(super) fn is_on(&self) -> bool {
        self.answers.get().is_some()
    }

    /// Whether an ordinary write of any place is answered from memory.
    pub(super) fn answers_all(&self) -> bool {
        self.answers.get() == Some(WriteBack::All)
    }

    /// Counts `more` bytes in a dirty stripe write, and takes off the `less` bytes that they cover.
    pub(super) fn count(&self, more: u64, less: u64) {
        self.bytes.set(self.bytes.get() + more - less);
    }

    /// Bytes that were answered and may not be on the members.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.task_waker.take() {
            waker.wake();
        }
    }
}
