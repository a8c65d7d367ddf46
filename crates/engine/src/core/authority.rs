//! What the data path needs from the metadata layer: marks before data is written, and the record of failed members.
//!
//! This file holds the trait alone. [`crate::metadata::Metadata`] implements it; [`crate::data`] reaches the metadata
//! through nothing else.

use crate::device::{Device, Failures};
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

/// Writes superblocks and bitmap on behalf of the data path, which never does so itself.
pub(crate) trait Authority<M: Member>: 'static {
    /// Keeps the bits of one marked range set in the bitmap until it is dropped.
    type Mark;

    /// Marks the array dirty and sets the bits of `range`, in bytes of the array, before data is written there. Both
    /// are on stable storage when this returns.
    async fn mark_write(&self, range: &Range<u64>) -> Result<Self::Mark, ArrayError>;

    /// Records that a member failed a write. The superblocks say so before this returns.
    async fn record_failure(&self, device: &Rc<Device<M>>, error: &MemberError) -> Result<(), ArrayError>;

    /// Records the failures of several members.
    async fn record_failures(&self, failures: Failures<M>) -> Result<(), ArrayError>;

    /// Called after data was written or flushed without members that have left the array. The superblocks say that
    /// they have left before this returns.
    async fn record_departed(&self) -> Result<(), ArrayError>;

    /// Flushes every device. A device that fails its flush is ejected.
    async fn flush_devices(&self) -> Result<(), ArrayError>;
}

/// Proof that a write is marked: what writes to members takes it as an argument. It takes no memory, and lives no
/// longer than the mark.
#[derive(Clone, Copy)]
pub(crate) struct Marked<'a>(PhantomData<&'a ()>);

impl<'a> Marked<'a> {
    pub(crate) fn by<M: Member, A: Authority<M>>(_mark: &'a A::Mark) -> Self {
        Self(PhantomData)
    }
}
