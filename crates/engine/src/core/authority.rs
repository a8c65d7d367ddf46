//! What the data path asks of those that keep the array's metadata: marks before data, and members that fail.

use crate::device::{Device, Failures};
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use std::ops::Range;
use std::rc::Rc;

/// Writes superblocks and bitmap for the data path, which never does so itself.
pub(crate) trait Authority<M: Member>: 'static {
    /// Keeps the bits of a write set until it is dropped.
    type Mark;

    /// Before data of `range`, in bytes of the array, is written: the array is marked dirty and the bits of the range are
    /// set, on stable storage.
    async fn mark_write(&self, range: &Range<u64>) -> Result<Self::Mark, ArrayError>;

    /// A member failed a write: the superblocks say so before this returns.
    async fn record_failure(&self, device: &Rc<Device<M>>, error: &MemberError) -> Result<(), ArrayError>;

    /// The same of several members.
    async fn record_failures(&self, failures: Failures<M>) -> Result<(), ArrayError>;

    /// After data was written or flushed without members that have left: the superblocks say that they have.
    async fn settle(&self) -> Result<(), ArrayError>;

    /// Flushes every device; one that fails leaves.
    async fn flush_devices(&self) -> Result<(), ArrayError>;
}
