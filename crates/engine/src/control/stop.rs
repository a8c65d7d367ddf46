//! The end of a running array.

use crate::control::Control;
use crate::device::checksums::Closing;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;

impl<M: Member, C: Clock> Control<M, C> {
    /// Lets nobody in any more, and ends what is under way.
    pub(crate) async fn drain(&self) -> Result<(), ArrayError> {
        self.sweeps.changed.raise();
        self.core.context.read_error_pending.raise();
        self.core.context.unanswered.raise();
        self.core.context.owed_changed.raise();
        self.data.gathering.close_all();
        self.core.gate.close().await;
        self.sweeps.scrub_changed.raise();
        self.core.context.owed_changed.raise();
        self.data.read_ahead.clear();
        self.data.gathering.wake_keeper();
        self.data.write_out_all().await
    }

    /// After the last write: everything flushed, then the mark taken back, and the bits.
    pub(crate) async fn mark_clean(&self) -> Result<(), ArrayError> {
        if self.core.info.read_only {
            return Ok(());
        }
        self.close_checksums(Closing::All).await?;
        self.metadata.flush_and_mark_clean(|| true).await?;
        let _lock = self.metadata.lock.exclusive(0..1).await;
        self.metadata.clear_intent().await
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::stop`].
    pub(crate) async fn stop(&self) -> Result<(), ArrayError> {
        self.watched(self.finish()).await
    }

    async fn finish(&self) -> Result<(), ArrayError> {
        let drained = self.drain().await;
        if drained.is_err() {
            self.core.check_unbroken()?; // otherwise it is clean, without what was lost
        }
        if self.core.owes_any() {
            self.data.pay().await?;
        }
        if !self.core.info.read_only {
            self.checkpoint().await?;
        }
        self.metadata.tell_forced().await?;
        self.mark_clean().await?;
        drained.and_then(|()| self.data.check_nothing_lost())
    }
}
