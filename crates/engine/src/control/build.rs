//! Builds the rest of chunks that were written to for the first time in a part only: afterwards their copies and parity
//! agree in the whole chunk, which its bitmap may then call clean.
//!
//! A write builds what it touches itself ([`crate::data`]). What is built here no request waits for: it is done once the
//! array has been idle for a moment, once in each period of the bitmap, and before the array stops. Until then a chunk's
//! state on the members asks for a sync, so an interruption costs a resync of these chunks alone.
//!
//! Facts: `md_select_lazy_recover_rdev` in `drivers/md/md.c`, which does the same by a recovery.

use crate::control::state::Control;
use crate::core::authority::Marked;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use std::ops::Range;

impl<M: Member, C: Clock> Control<M, C> {
    /// Builds what is left of all chunks that were written to. Where a member fails, a part is left as it is.
    pub(super) async fn build_rest(&self) {
        if !self.core.health.unbuilt.is_any() || mutant!("rest-unbuilt") {
            return;
        }
        let Some(intent) = self.metadata.intent() else { return };
        let mut at = 0;
        while let Some(part) = intent.next_half_built(at) {
            at = part.end;
            if let Err(error) = self.build_part(&part).await {
                tracing::warn!("bytes {} to {} of the members' data stay unbuilt: {error}", part.start, part.end);
                return;
            }
        }
    }

    /// Builds what is left of a range of positions.
    async fn build_part(&self, range: &Range<u64>) -> Result<(), ArrayError> {
        let _lock = self.data.lock_positions(range).await;
        let covered = self.core.geometry().array_range(range);
        self.core
            .to_the_end(self.data.marked(&covered, async |marked: Marked<'_>| self.build_window(marked, range).await))
            .await
    }
}
