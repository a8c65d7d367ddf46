//! The end of a running array.

use crate::array::Inner;
use crate::device::checksums::Closing;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;

impl<M: Member, C: Clock> Inner<M, C> {
    /// Lets nobody in any more, and ends what is under way.
    pub(crate) async fn drain(&self) -> Result<(), ArrayError> {
        self.sweeps.changed.raise();
        self.surroundings.hurt.raise();
        self.surroundings.unanswered.raise();
        self.surroundings.owing.raise();
        self.gathering.close_all();
        self.gate.close().await;
        self.sweeps.scrub_changed.raise();
        self.surroundings.owing.raise();
        self.read_ahead.clear();
        self.gathering.wake_keeper();
        self.write_out_all().await
    }

    /// After the last write: everything flushed, then the mark taken back, and the bits.
    pub(crate) async fn mark_clean(&self) -> Result<(), ArrayError> {
        if self.read_only {
            return Ok(());
        }
        self.close_checksums(Closing::All).await?;
        self.flush_and_mark_clean(|| true).await?;
        let _lock = self.metadata.exclusive(0..1).await;
        self.clear_intent().await
    }
}
