//! What the data path needs from the metadata layer: marks and log entries before data is written, and the record of
//! failed members.
//!
//! This file holds the trait and its types alone. [`crate::metadata::Metadata`] implements it; [`crate::data`] reaches the metadata
//! through nothing else.

use crate::base::buffer::Block;
use crate::device::{Device, Failures};
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError};
use format::geometry::{Role, Stripe};
use format::stripe_log::{Chunks, ENTRIES_MAX};
use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

/// The most entries of one write: each kind of log has room for them in one header.
pub(crate) const LOG_ENTRIES_MAX: usize = ENTRIES_MAX;

const _: () = assert!(LOG_ENTRIES_MAX <= format::partial_parity::ENTRIES_MAX);

/// A write to rows of one stripe, as a log must name it.
pub(crate) struct LogEntry {
    pub(crate) stripe: Stripe,
    /// Bytes of the chunk.
    pub(crate) rows: Range<u32>,
    /// The data chunks that the write changes.
    pub(crate) changed: Chunks,
    /// For each parity that is here: the parity of the chunks that the write leaves as they are. Empty if there are none.
    pub(crate) partial: SmallVec<[(Role, Block); 2]>,
    /// With [`Logging::Contents`]: the new data, and each parity that is here.
    pub(crate) contents: Vec<(Role, Block)>,
}

impl LogEntry {
    /// Bytes of all its partial parity.
    pub(crate) fn partial_bytes(&self) -> u64 {
        self.partial.iter().map(|(_, block)| block.len() as u64).sum()
    }
}

/// What must be logged before a write to stripes reaches any member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logging {
    /// Nothing.
    Nothing,
    /// Every write; the changed chunks of a row are neighbours (md's partial parity log).
    Neighbours,
    /// Writes to parts of stripes. A write to whole stripes only makes older entries void
    /// ([`crate::metadata::stripe_log`]).
    Parts,
    /// The new data and parity of every write, in whole blocks of md's journal ([`crate::metadata::journal`]).
    Contents {
        /// At most so much of a stripe's rows at a time.
        rows_bytes: u32,
    },
}

impl Logging {
    /// Whether the log has what is written, and not partial parity.
    pub(crate) fn has_contents(self) -> bool {
        matches!(self, Self::Contents { .. })
    }

    /// Whether zeros are written as data, as each write must be named.
    pub(crate) fn names_zeros(self) -> bool {
        matches!(self, Self::Neighbours | Self::Contents { .. })
    }
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

    /// What must be logged.
    fn logging(&self) -> Logging;

    /// Logs a write to stripes, before it reaches any member. The entries are on stable storage when this returns. They
    /// are of different rows, at most [`LOG_ENTRIES_MAX`], with at most a chunk of partial parity for each stripe, of one
    /// stripe or without partial parity. With [`Logging::Contents`], they are of one stripe, and of any number.
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
