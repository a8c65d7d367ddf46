//! Idle work: marks the array clean when nothing was written for a while, clears bitmap bits, and closes idle
//! checksum regions.
//!
//! It never answers requests. Where writes go on, the array stays dirty and the bits stay set.
//!
//! Facts: md's safe mode (`safemode_delay` in md(4)) and `md_bitmap_daemon_work` in `drivers/md/md-bitmap.c`.

use crate::control::state::Control;
use crate::device::checksums::Closing;
use crate::metadata::bitmap::clearing::WITHOUT_BITMAP;
use crate::seam::clock::Clock;
use crate::seam::error::has_failed;
use crate::seam::member::Member;
use std::time::Duration;

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::mark_clean_when_idle`].
    pub(crate) async fn mark_clean_when_idle(&self, delay: Duration) {
        if self.core.info.read_only {
            return;
        }
        loop {
            let (before, seen) = (self.core.writers.at_rest(), self.metadata.marked_dirty.seen());
            let was_dirty = self.metadata.record().dirty;
            let is_over = match was_dirty {
                true => self.core.gate.closes_before(self.core.clock.sleep_until(self.core.clock.now() + delay)).await,
                // A clean array needs no timer: the next dirty mark wakes this task.
                false => self.core.gate.closes_before(self.metadata.marked_dirty.changed_since(seen)).await,
            };
            let is_idle = || {
                before.is_some()
                    && self.core.writers.at_rest() == before
                    && !self.core.gate.is_closed()
                    && !self.core.owes_any()
            };
            if was_dirty && !is_over && is_idle() {
                self.build_rest_when_idle().await;
            }
            if is_over || (was_dirty && is_idle() && has_failed(self.metadata.flush_and_mark_clean(is_idle).await)) {
                return; // a failed array stays dirty
            }
        }
    }

    /// [`crate::Array::clear_bitmap_lazily`].
    pub(crate) async fn clear_bitmap_lazily(&self) {
        if self.core.info.read_only {
            return;
        }
        loop {
            let period = self.metadata.intent().map_or(WITHOUT_BITMAP, |intent| intent.period());
            let time = self.core.clock.sleep_until(self.core.clock.now() + period);
            // Where a member has no room, the bits and regions wait for the next period.
            if self.core.gate.closes_before(time).await {
                return; // stopped: the bits stay
            }
            self.build_rest_when_idle().await;
            if has_failed(self.close_checksums(Closing::Idle).await)
                || has_failed(self.metadata.clear_idle_bits().await)
            {
                return; // failed: the bits stay
            }
        }
    }

    /// Builds what is half built, unless the array is read-only for a while.
    async fn build_rest_when_idle(&self) {
        let Some(_inside) = self.core.gate.enter_background_to_write() else { return };
        self.build_rest().await;
    }
}
