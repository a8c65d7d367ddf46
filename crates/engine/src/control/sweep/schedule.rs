//! Schedules sweeps: [`crate::Array::keep_whole`] runs beside the requests and does one due sweep after
//! another.
//!
//! The order is md's: spares take empty slots, then recovery, then resync, then the requested scrub. Last,
//! unknown checksums are learned.

use crate::control::state::Control;
use crate::control::sweep::state::SweepStatus;
use crate::control::sweep::throttle::SyncSpeed;
use crate::control::sweep::transfers::SweepTransfers;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, Refusal};
use crate::seam::member::Member;
use futures_util::future::{join, join4};

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::keep_whole`].
    pub(crate) async fn keep_whole(&self) {
        let watch = join(self.enforce_timeouts(), self.probe_silent_members());
        join4(self.keep_recovered(), self.repair_reads(), watch, self.retry_owed_writes()).await;
    }

    async fn keep_recovered(&self) {
        // A failure here has failed the array, and the status shows it.
        drop(self.metadata.record_assembly().await);
        while !self.core.gate.is_closed() {
            let seen = self.sweeps.changed.seen();
            let done = self.do_what_is_due().await;
            let is_more = *done.as_ref().unwrap_or(&false);
            *self.sweeps.failure.borrow_mut() = done.err().map(|error| error.reason);
            let failure = self.sweeps.failure();
            if let Some(reason) = failure.filter(|_| self.sweeps.changed.seen() == seen) {
                // The scrub would wait until something changes, possibly for ever.
                self.sweeps.give_up_scrub(&format!("more urgent work failed: {reason}"));
            }
            if !is_more {
                self.sweeps.changed.changed_since(seen).await;
            }
        }
    }

    /// Does the most urgent work. True when there may be more.
    async fn do_what_is_due(&self) -> Result<bool, ArrayError> {
        if self.are_sweeps_held() {
            return Ok(false);
        }
        self.core.check_not_failed()?;
        if self.core.info.read_only {
            return if self.is_scrub_due() {
                self.go_on_with_scrub(&|_, _| {}).await
            } else {
                self.learn_checksums().await
            };
        }
        self.fill_slots().await?;
        if !self.targets().is_empty() {
            self.sweeps.learning.begin_anew(); // a recovered member gives more to compare
            return self.recover(&|_, _| {}).await.map(|_| true);
        }
        if !self.core.health.agreed.get() {
            return self.resync(&|_, _| {}).await.map(|_| true);
        }
        if self.is_scrub_due() { self.go_on_with_scrub(&|_, _| {}).await } else { self.learn_checksums().await }
    }

    /// Whether no sweep may run: they are frozen, or the array is read-only for a while.
    pub(super) fn are_sweeps_held(&self) -> bool {
        self.sweeps.frozen.get() || self.core.gate.is_closed_to_writes()
    }

    /// [`crate::Array::set_sync_speed`].
    pub(crate) fn set_sync_speed(&self, speed: SyncSpeed) -> Result<(), Refusal> {
        if speed.min == 0 {
            return Err(Refusal::new("with a minimum speed of zero a sweep may never end").field("sync-speed-min"));
        }
        self.sweeps.speed.set(speed);
        Ok(())
    }

    /// [`crate::Array::sync_speed`].
    pub(crate) fn sync_speed(&self) -> SyncSpeed {
        self.sweeps.speed.get()
    }

    /// [`crate::Array::set_sweep_transfers`].
    pub(crate) fn set_sweep_transfers(&self, transfers: SweepTransfers) -> Result<(), Refusal> {
        self.sweeps.transfers.set(transfers.check()?);
        Ok(())
    }

    /// [`crate::Array::sweep_transfers`].
    pub(crate) fn sweep_transfers(&self) -> SweepTransfers {
        self.sweeps.transfers.get()
    }

    /// [`crate::Array::freeze_sweeps`].
    pub(crate) fn freeze_sweeps(&self, frozen: bool) {
        self.sweeps.frozen.set(frozen);
        self.sweeps.changed.raise();
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// The sweep under way, or the paused scrub.
    pub(crate) fn sweep_status(&self) -> Option<SweepStatus> {
        self.sweeps.status(self.core.clock.now()).or_else(|| self.sweeps.paused())
    }
}
