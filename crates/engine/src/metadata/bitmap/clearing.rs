//! Clears bits of the write-intent bitmap, lazily, and only when they no longer name anything.
//!
//! A bit may be cleared when no write to its chunk is under way, the last write ended a whole period (`daemon_sleep`)
//! ago, all members were flushed since, and the array is whole and agrees. Before the first bit is cleared,
//! `events_cleared` on stable storage shuts out every absent member. Such a member can never be re-added by the
//! bitmap alone, which no longer names what it missed.
//!
//! A cleared bit costs the next write to its chunk a round of bitmap writes. On an array that is never idle this
//! would cost more than it saves. There, only as many bits are cleared as the writes pay for; md clears them all
//! (`bitmap_daemon_work` in `drivers/md/md-bitmap.c`). The count of both is [`crate::base::lazy_marks`].

use crate::base::lazy_marks::IDLE_PERIODS;
use crate::core::authority::Authority;
use crate::core::metadata_lock::MetadataGuard;
use crate::metadata::bitmap::intent::IntentBitmap;
use crate::metadata::bitmap::policy::BitmapClearing;
use crate::metadata::bitmap::rounds::Flush;
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use std::time::Duration;

/// An array without writes for this long is idle.
const REST: Duration = Duration::from_millis(10);

/// How often an array without a bitmap checks whether it has one by now.
pub(crate) const WITHOUT_BITMAP: Duration = Duration::from_secs(5);

impl<M> IntentBitmap<M> {
    /// Counts a write that has ended.
    pub(super) fn earn(&self, bytes: u64) {
        self.earned.earn(bytes);
    }

    /// How many bits may be cleared now.
    fn allowance(&self, at_rest: bool) -> u64 {
        self.earned.allowance(at_rest || self.policy.clearing == BitmapClearing::Eager)
    }

    /// The bitmap's `daemon_sleep`.
    pub(crate) fn period(&self) -> Duration {
        Duration::from_secs(self.bits.borrow().header.daemon_sleep_seconds.into())
    }
}

impl<M: Member, C: Clock> Metadata<M, C> {
    /// Whether set bits may be cleared at all.
    fn may_clear(&self) -> bool {
        self.core.is_whole()
            && (self.core.health.agreed.get() || mutant!("bits-of-disagreement-cleared"))
            && self.record().rounds_pending == 0
            && !self.core.owes_any()
    }

    /// Whether there are no writes for a moment; `None` when the array is stopped meanwhile.
    pub(crate) async fn is_at_rest(&self) -> Option<bool> {
        let before = self.core.writers.at_rest();
        if self.core.gate.closes_before(self.core.clock.sleep_until(self.core.clock.now() + REST)).await {
            return None;
        }
        Some(before.is_some() && self.core.writers.at_rest() == before)
    }

    /// Clears idle bits at the end of a period.
    pub(crate) async fn clear_idle_bits(&self) -> Result<(), ArrayError> {
        let Some(intent) = self.intent() else { return Ok(()) };
        intent.bits.borrow_mut().next_period();
        if !self.may_clear() || !intent.bits.borrow().has_idle(IDLE_PERIODS as usize) {
            intent.earned.reset();
            return Ok(());
        }
        let Some(at_rest) = self.is_at_rest().await else { return Ok(()) };
        // Every write to a chunk that is idle now ended before this flush, which makes it safe.
        if !mutant!("bit-cleared-unflushed") {
            self.flush_devices().await?;
        }
        let guard = self.lock().await;
        let most = intent.allowance(at_rest);
        self.clear(&guard, &intent, IDLE_PERIODS as usize, most, Flush::No).await
    }

    /// Clears all bits. No write is under way, and everything is flushed.
    pub(crate) async fn clear_intent(&self, guard: &MetadataGuard<'_>) -> Result<(), ArrayError> {
        match self.intent() {
            Some(intent) => self.clear(guard, &intent, 0, u64::MAX, Flush::Yes).await,
            None => Ok(()),
        }
    }

    async fn clear(
        &self,
        guard: &MetadataGuard<'_>,
        intent: &IntentBitmap<M>,
        periods: usize,
        most: u64,
        flush: Flush,
    ) -> Result<(), ArrayError> {
        self.core.check_not_failed()?;
        let is_written = intent.is_valid.get() && !intent.retired.get();
        if !self.may_clear() || !is_written || !intent.bits.borrow().has_idle(periods) {
            return Ok(());
        }
        if !self.are_absent_shut_out(intent) {
            self.shut_out_absent(guard, intent).await?;
            if !self.may_clear() || intent.retired.get() {
                return Ok(());
            }
        }
        // Nothing is awaited from here to the write. A bit that is set meanwhile is written by a later round.
        let round = {
            let mut bits = intent.bits.borrow_mut();
            let pages = bits.clear_idle(periods, most);
            bits.round(pages)
        };
        let failures = Self::refuse_without_room(self.write_pages(guard, intent, &round, flush).await)?;
        self.eject(guard, failures).await
    }

    /// An ejected member is at least two events behind: [`crate::metadata::superblocks`].
    fn are_absent_shut_out(&self, intent: &IntentBitmap<M>) -> bool {
        mutant!("absent-not-shut-out") || intent.cleared_everywhere.get().saturating_add(1) >= self.record().events
    }

    async fn shut_out_absent(&self, guard: &MetadataGuard<'_>, intent: &IntentBitmap<M>) -> Result<(), ArrayError> {
        let events = self.record().events;
        let round = {
            let mut bits = intent.bits.borrow_mut();
            let current = bits.header.events;
            bits.set_events(current, Some(events));
            bits.take_round(Some(0))
        };
        let failures = self.write_round_of_bits(guard, intent, round).await;
        if failures.is_empty() {
            intent.cleared_everywhere.set(events);
        }
        self.eject(guard, Self::refuse_without_room(failures)?).await
    }
}
