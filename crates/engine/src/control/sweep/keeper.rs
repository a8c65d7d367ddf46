//! Who starts sweeps: whoever serves an array runs [`Array::keep_whole`] beside
//! the requests, and everything that is due is done, one sweep after another.
//!
//! md's order: spares take empty slots, then recovery, then resync; then what
//! its user asked for. Last, checksums that are unknown are learned.

use crate::array::{Array, Inner};
use crate::control::sweep::{SweepStatus, SweepTransfers, SyncSpeed};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::Member;
use futures_util::future::{join, join4};

impl<M: Member, C: Clock> Array<M, C> {
    /// Keeps the array whole, as far as its members allow, until it is
    /// stopped: spares take over for members that fail, members that are not
    /// current are recovered, copies and parity brought into agreement, read errors put right, members that hang given up, what
    /// members had no room for written when there is. What
    /// cannot be done waits until something changes; [`Array::status`] says why.
    pub async fn keep_whole(&self) {
        let watch = join(self.0.give_up_in_time(), self.0.ask_the_silent());
        join4(self.keep_recovered(), self.heal(), watch, self.pay_now_and_then()).await;
    }

    async fn keep_recovered(&self) {
        let inner = &*self.0;
        // What fails here has broken the array, which says so.
        drop(inner.tell_forced().await);
        while !inner.gate.is_closed() {
            let seen = inner.sweeps.changed.seen();
            let done = self.do_what_is_due().await;
            let is_more = *done.as_ref().unwrap_or(&false);
            *inner.sweeps.failure.borrow_mut() = done.err().map(|error| error.reason);
            let failure = inner.sweeps.failure();
            if let Some(reason) = failure.filter(|_| inner.sweeps.changed.seen() == seen) {
                // Until something changes it would wait, and for ever where nothing does.
                inner.sweeps.give_up_scrub(&format!("what comes first cannot go on: {reason}"));
            }
            if !is_more {
                inner.sweeps.changed.changed_since(seen).await;
            }
        }
    }

    /// True when there may be more to do.
    async fn do_what_is_due(&self) -> Result<bool, ArrayError> {
        let inner = &*self.0;
        if inner.sweeps.frozen.get() {
            return Ok(false);
        }
        inner.check_unbroken()?;
        if inner.read_only {
            return if inner.is_scrub_due() { inner.scrub(&|_, _| {}).await } else { inner.learn_checksums().await };
        }
        inner.fill_slots().await?;
        if !inner.targets().is_empty() {
            inner.sweeps.learning.begin_anew(); // there is more to compare with
            return self.recover(&|_, _| {}).await.map(|_| true);
        }
        if !inner.agreed.get() {
            return self.resync(&|_, _| {}).await.map(|_| true);
        }
        if inner.is_scrub_due() { inner.scrub(&|_, _| {}).await } else { inner.learn_checksums().await }
    }

    /// Sets the bounds of every sweep's speed, from the next window on.
    ///
    /// # Errors
    /// A floor of zero; nothing changed.
    pub fn set_sync_speed(&self, speed: SyncSpeed) -> Result<(), Refusal> {
        if speed.min == 0 {
            return Err(Refusal::new("a sweep that may stand still never ends").field("sync-speed-min"));
        }
        self.0.sweeps.speed.set(speed);
        Ok(())
    }

    /// The bounds of every sweep's speed.
    pub fn sync_speed(&self) -> SyncSpeed {
        self.0.sweeps.speed.get()
    }

    /// Sets how sweeps move bytes, from the next sweep on.
    ///
    /// # Errors
    /// A size that is no power of two from 4 KiB to 64 MiB; nothing changed.
    pub fn set_sweep_transfers(&self, transfers: SweepTransfers) -> Result<(), Refusal> {
        self.0.sweeps.transfers.set(transfers.check()?);
        Ok(())
    }

    /// How sweeps move bytes.
    pub fn sweep_transfers(&self) -> SweepTransfers {
        self.0.sweeps.transfers.get()
    }

    /// Stops sweeps where they are, and starts no other (md's `frozen`); or
    /// lets them go on from there.
    pub fn freeze_sweeps(&self, frozen: bool) {
        self.0.sweeps.frozen.set(frozen);
        self.0.sweeps.changed.raise();
    }
}

impl<M: Member, C: Clock> Inner<M, C> {
    /// The sweep that is under way, or the scrub that stands still.
    pub(crate) fn sweep_status(&self) -> Option<SweepStatus> {
        self.sweeps.status(self.clock.now()).or_else(|| self.sweeps.paused())
    }
}
