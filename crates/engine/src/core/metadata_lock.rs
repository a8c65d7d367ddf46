//! The lock on what members say of the array. A function that changes superblocks or bitmap takes the guard as an argument,
//! so the compiler sees that its caller holds the lock.
//!
//! Order of locks: the gate, then ranges of data, then this one. A holder never waits for a range of data.

use crate::base::range_lock::{RangeGuard, RangeLocks};

/// Serializes rounds of superblocks and bitmap.
#[derive(Default)]
pub(crate) struct MetadataLock(RangeLocks);

/// The right to change superblocks and bitmap, until it is dropped.
pub(crate) struct MetadataGuard<'a> {
    _lock: RangeGuard<'a>,
}

impl MetadataLock {
    /// Waits for the lock, in the order of requests.
    pub(crate) async fn take(&self) -> MetadataGuard<'_> {
        MetadataGuard { _lock: self.0.exclusive(0..1).await }
    }
}
