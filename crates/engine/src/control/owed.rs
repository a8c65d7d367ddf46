//! Retries the writes that a full member owes ([`crate::device::owed`] says what that means), and rounds of
//! superblocks for which a member had no room, until the member takes them.
//!
//! It runs beside the requests ([`crate::Array::keep_whole`]). While any data is owed the array stays marked
//! dirty and keeps its bitmap bits, so that a resync repairs those places after a crash. Reads are not its
//! concern: the device answers them from memory.

use crate::control::state::Control;
use crate::seam::clock::Clock;
use crate::seam::error::has_failed;
use crate::seam::member::Member;
use std::time::Duration;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

impl<M: Member, C: Clock> Control<M, C> {
    /// Retries the writes that members owe, until the array is stopped.
    pub(crate) async fn retry_owed_writes(&self) {
        let mut was_owing = false;
        while !self.core.gate.is_closed() {
            let seen = self.core.context.owed_changed.seen();
            let is_owing = self.core.owes_any() || self.metadata.lacks_room();
            if std::mem::replace(&mut was_owing, is_owing) != is_owing {
                self.sweeps.changed.raise(); // a sweep that met a full member may go on
            }
            if !is_owing {
                self.core.context.owed_changed.changed_since(seen).await;
                continue;
            }
            let pause = self.core.clock.sleep_until(self.core.clock.now() + PAUSE);
            if self.core.gate.closes_before(pause).await {
                return;
            }
            let Some(_inside) = self.core.gate.enter_background() else { return };
            drop(self.metadata.retry_rounds().await); // without room still, or the array has failed
            if has_failed(self.data.write_owed().await) {
                return;
            }
        }
    }
}
