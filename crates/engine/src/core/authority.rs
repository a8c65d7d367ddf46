//! What the data path needs from the metadata layer: marks and log entries before data is written, and the record of
//! failed members.
//!
//! This file holds the trait and its types alone. [`crate::metadata::Metadata`] implements it; [`crate::data`] reaches the metadata
//! through nothing else.

use crate::base::buffer::Block;
use crate::device::{Device, Failures};
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use format::partial_parity::Entry;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

/// An entry of the partial parity log, with its partial parity: `None` where the write changes all data chunks.
pub(crate) struct LogEntry {
    pub(crate) entry: Entry,
    pub(crate) partial: Option<Block>,
}

/// Writes superblocks, bitmap and logs on behalf of the data path, which never does so itself.
pub(crate) trait Authority<M: Member>: 'static {
    /// Keeps the bits of one marked range set in the bitmap until it is dropped.
    type Mark;

    /// Marks the array dirty and sets the bits of `range`, in bytes of the array, before data is written there. Both
    /// are on stable storage when this returns.
    async fn mark_write(&self, range: &Range<u64>) -> Result<Self::Mark, ArrayError>;

    /// Keeps entries in the log until it is dropped.
    type Logged;

    /// Whether writes to stripes are logged before.
    fn logs_writes(&self) -> bool;

    /// Logs a write to stripes, before it reaches any member. The entries are on stable storage when this returns. They
    /// are of different rows, at most [`format::partial_parity::ENTRIES_MAX`], with at most a chunk of partial parity for
    /// each stripe, of one stripe or without partial parity.
    async fn log_write(&self, entries: Vec<LogEntry>) -> Result<Self::Logged, ArrayError>;

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
