//! The dirty set: stripe writes whose data was answered from memory, and what became of it.
//!
//! Bookkeeping, without I/O. [`super::writeback`] says what it promises.

use crate::base::range_set::Ranges;
use crate::data::coalesce::stripe_write::{RequestId, StripeWrite};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// Stripe writes whose data was answered, and may not be on the members.
#[derive(Default)]
pub(super) struct DirtySet {
    /// Whether writes are answered from memory.
    pub(super) is_on: Cell<bool>,
    /// In the order of their locks, each with the array's own request for it.
    pub(super) writes: RefCell<Vec<(Rc<StripeWrite>, RequestId)>>,
    /// Stripe writes that the writeback task does not drive yet.
    pub(super) fresh: RefCell<Vec<(Rc<StripeWrite>, RequestId)>>,
    pub(super) bytes: Cell<u64>,
    /// Ranges that were answered and could not be written.
    pub(super) lost: RefCell<Ranges>,
    /// Members had no room for some of the data, and have not taken it since ([`crate::control::owed`]).
    pub(super) is_owed: Cell<bool>,
    pub(super) task_waker: RefCell<Option<Waker>>,
}

impl DirtySet {
    pub(super) fn is_on(&self) -> bool {
        self.is_on.get()
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
