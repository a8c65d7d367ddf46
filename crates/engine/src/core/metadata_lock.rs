//! The lock on what members say of the array. A function that changes superblocks or bitmap takes the guard as an argument,
//! so the compiler sees that its caller holds the lock.
//!
//! Order of locks: the gate, then ranges of data, then this one. A holder never waits for a range of data.

use crate::base::range_lock::{RangeGuard, RangeLocks};
use std::cell::{Ref, RefCell, RefMut};

/// Serializes rounds of superblocks and bitmap.
#[derive(Default)]
pub(crate) struct MetadataLock(RangeLocks);

/// The right to change superblocks and bitmap, until it is dropped.
pub(crate) struct MetadataGuard<'a> {
    _lock: RangeGuard<'a>,
}

/// A value that all may read, and that changes only under the lock.
pub(crate) struct Guarded<T>(RefCell<T>);

impl MetadataLock {
    /// Waits for the lock, in the order of requests.
    pub(crate) async fn take(&self) -> MetadataGuard<'_> {
        MetadataGuard { _lock: self.0.exclusive(0..1).await }
    }
}

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    pub(crate) fn borrow_mut(&self, _guard: &MetadataGuard<'_>) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }
}
