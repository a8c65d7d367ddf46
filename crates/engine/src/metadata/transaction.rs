//! How a change of superblocks, bitmap or roster begins. The order of its locks is in the types:
//!
//! 1. The gate, for changes that no request or sweep window makes: [`Entered`].
//! 2. Ranges of data, for changes that no write may see half done: [`Entered::quiesce`].
//! 3. The metadata lock: [`Transaction`]. After that no range can be taken any more.
//!
//! A change that a request or a sweep makes is inside the gate already, and begins with [`Metadata::begin`].

use crate::base::gate::Inside;
use crate::base::range_lock::RangeGuard;
use crate::core::metadata_lock::MetadataGuard;
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::Member;
use std::ops::Deref;

/// A change that is inside the gate, and has no metadata lock yet.
pub(crate) struct Entered<'a, M: Member, C: Clock> {
    metadata: &'a Metadata<M, C>,
    /// Ranges of data that stay as they are.
    quiesced: Option<RangeGuard<'a>>,
    inside: Inside<'a>,
}

/// A change under way, and its locks. It is the right to change superblocks, bitmap and roster.
pub(crate) struct Transaction<'a> {
    guard: MetadataGuard<'a>,
    _quiesced: Option<RangeGuard<'a>>,
    _inside: Option<Inside<'a>>,
}

impl<'a> Deref for Transaction<'a> {
    type Target = MetadataGuard<'a>;

    fn deref(&self) -> &MetadataGuard<'a> {
        &self.guard
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Begins a change of an array that has not failed. The caller is inside the gate.
    pub(crate) async fn begin(&self) -> Result<Transaction<'_>, ArrayError> {
        let guard = self.lock().await;
        self.core.check_not_failed()?;
        Ok(Transaction { guard, _quiesced: None, _inside: None })
    }

    /// Enters the gate for a change that does not count as load; `None` when the array is stopped.
    pub(crate) fn enter_background(&self) -> Option<Entered<'_, M, C>> {
        Some(self.entered(self.core.gate.enter_background()?))
    }

    /// Enters the gate for a change that a user asks for.
    ///
    /// # Errors
    /// When the array is read-only, has failed, or is stopped.
    pub(crate) fn enter_to_change(&self) -> Result<Entered<'_, M, C>, Refusal> {
        if self.core.is_read_only() {
            return Err(self.core.refuse_read_only());
        }
        self.core.check_not_failed().map_err(|error| Refusal::new(error.reason))?;
        let inside = self.core.gate.enter().ok_or_else(|| Refusal::new("the array is stopped"))?;
        Ok(self.entered(inside))
    }

    /// The beginning of a change that is inside the gate.
    pub(super) fn entered<'a>(&'a self, inside: Inside<'a>) -> Entered<'a, M, C> {
        Entered { metadata: self, quiesced: None, inside }
    }
}

impl<'a, M: Member, C: Clock> Entered<'a, M, C> {
    /// Waits for ranges of data, and keeps them.
    pub(crate) async fn quiesce(self, ranges: impl Future<Output = RangeGuard<'a>>) -> Self {
        Self { quiesced: Some(ranges.await), ..self }
    }

    /// Takes the metadata lock. The array may have failed meanwhile.
    pub(crate) async fn lock(self) -> Transaction<'a> {
        let Self { metadata, quiesced, inside } = self;
        Transaction { guard: metadata.lock().await, _quiesced: quiesced, _inside: Some(inside) }
    }

    /// Takes the metadata lock.
    ///
    /// # Errors
    /// When the array has failed.
    pub(crate) async fn begin(self) -> Result<Transaction<'a>, ArrayError> {
        let metadata = self.metadata;
        let transaction = self.lock().await;
        metadata.core.check_not_failed()?;
        Ok(transaction)
    }
}
