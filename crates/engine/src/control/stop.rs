//! Stops a running array: drains requests and writeback, saves sweep positions, and marks the array clean.
//!
//! An array that failed stays marked dirty. Writes lost in writeback are reported, never hidden.

use crate::control::state::Control;
use crate::core::authority::Authority;
use crate::device::checksums::Closing;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;

/// What follows when an array has settled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It stops.
    Ends,
    /// It is read on.
    IsRead,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Refuses new requests, waits for those under way, and writes out what is held in memory.
    pub(crate) async fn drain(&self) -> Result<(), ArrayError> {
        self.sweeps.changed.raise();
        self.core.context.read_error_pending.raise();
        self.core.context.unanswered.raise();
        self.core.context.owed_changed.raise();
        self.data.coalescer.close_all();
        self.core.gate.close().await;
        self.sweeps.scrub_changed.raise();
        self.core.context.owed_changed.raise();
        self.data.read_ahead.clear();
        self.data.coalescer.wake_writeback();
        self.data.write_out_all().await
    }

    /// Marks the array clean: a flush first, then the superblocks, then the bitmap bits.
    async fn mark_clean(&self, at_rest: impl Fn() -> bool) -> Result<(), ArrayError> {
        if self.core.info.read_only {
            return Ok(());
        }
        self.build_rest().await;
        self.close_checksums(Closing::All).await?;
        self.metadata.flush_and_mark_clean(at_rest).await?;
        // The flush may have covered what an earlier user wrote. Absent members lack that.
        if !mutant!("stopped-without-absent") {
            self.metadata.record_departed().await?;
        }
        let guard = self.metadata.lock().await;
        self.metadata.clear_intent(&guard).await
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::stop`].
    pub(crate) async fn stop(&self) -> Result<(), ArrayError> {
        self.with_timeouts(self.finish()).await
    }

    async fn finish(&self) -> Result<(), ArrayError> {
        let drained = self.drain().await;
        if drained.is_err() {
            self.core.check_not_failed()?; // a healthy array is still marked clean, without the lost writes
        }
        self.log_unfinished_scrub();
        self.settle(Then::Ends).await?;
        let settled = drained.and_then(|()| self.data.check_nothing_lost());
        self.data.give_up_lost();
        settled
    }

    /// Writes what members owe, saves sweep positions, and marks the array clean. No write is under way, and all that was
    /// answered from memory is written.
    pub(super) async fn settle(&self, then: Then) -> Result<(), ArrayError> {
        if self.core.owes_any() {
            self.data.write_owed().await?;
        }
        if !self.core.info.read_only {
            self.checkpoint().await?;
        }
        self.metadata.record_assembly().await?;
        if then == Then::Ends {
            self.metadata.end_journal().await?;
        }
        self.mark_clean(|| then == Then::Ends || self.core.gate.is_closed_to_writes()).await
    }
}
