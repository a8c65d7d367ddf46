//! The metadata as the data path sees it: marks before data is written, and the record of failed members.
//!
//! The rounds that these calls lead to are in [`crate::metadata::superblocks`] and [`crate::metadata::bitmap`].

use crate::base::join::join_all;
use crate::core::authority::{Authority, LogEntry, Logging};
use crate::device::{Device, DeviceState, Failures};
use crate::metadata::batches::Logged;
use crate::metadata::bitmap::intent::WriteMark;
use crate::metadata::state::Metadata;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::{Member, MemberError};
use crate::seam::observe::Why;
use format::superblock::Resync;
use std::ops::Range;
use std::rc::Rc;

impl<M: Member, C: Clock> Authority<M> for Metadata<M, C> {
    type Mark = WriteMark<M>;
    type Logged = Logged;

    fn logging(&self) -> Logging {
        match (self.has_parity_log(), self.has_stripe_log()) {
            (true, _) => Logging::Neighbours,
            (false, true) => Logging::Parts,
            (false, false) => self.journal().map_or(Logging::Nothing, |journal| journal.logging()),
        }
    }

    async fn log_write(&self, entries: Vec<LogEntry>) -> Result<Logged, ArrayError> {
        // A parity that has left must not count as current after a crash: it has neither the entry nor the write.
        self.mark_dirty().await?;
        if entries.is_empty() || mutant!("entry-not-written") {
            return Ok(Logged::NOTHING);
        }
        let logged = if let Some(log) = self.parity_log() {
            self.log_partial_parity(&log, entries).await?
        } else if let Some(log) = self.journal() {
            self.log_contents(&log, entries).await?
        } else if let Some(log) = self.stripe_log() {
            self.log_parts(&log, entries).await?
        } else {
            return Ok(Logged::NOTHING);
        };
        // It may have left while the batch waited for its turn.
        if !mutant!("leaving-during-a-batch-untold") {
            self.mark_dirty().await?;
        }
        Ok(logged)
    }

    /// Marks the array dirty and sets the bits of `range`, before data is written there. Both are then on stable
    /// storage on every member. The caller holds the result until every member has the data.
    async fn mark_write(&self, range: &Range<u64>) -> Result<WriteMark<M>, ArrayError> {
        // Recorded first, so that the round that marks the array dirty writes the bits as well.
        let mark = self.note(range);
        self.mark_dirty().await?;
        if !mutant!("intent-after-data") {
            self.record_intent(&mark).await?;
        }
        // Another write may have put the bits on the members that are left. The superblocks must then say which members
        // left without them: md takes the bitmap of any member that counts as current.
        if !mutant!("leaving-untold") {
            self.mark_dirty().await?;
        }
        Ok(mark)
    }

    /// Called after data was written or flushed without members that have left. The superblocks must say that those
    /// have left; after a power failure they would otherwise count as current.
    async fn record_departed(&self) -> Result<(), ArrayError> {
        if self.core.context.is_successor_lost.get() {
            let guard = self.lock().await;
            self.eject(&guard, self.core.failed_successors(&guard)).await?;
        }
        // What was written, or data that an earlier user left unflushed and this flush covers, members lack that are absent
        // now. An array that is marked clean meanwhile stays so.
        let is_pending = || self.record().rounds_pending > 0;
        let is_due = {
            let record = self.record();
            let is_written = record.dirty && !mutant!("answered-before-recorded");
            let is_covered = record.resync != Resync::Clean && !mutant!("flush-without-absent");
            is_written || is_covered
        };
        if !self.core.is_redundant() || !is_due || !is_pending() {
            return Ok(());
        }
        Box::pin(async {
            let change = self.begin().await?;
            if is_pending() { self.publish(&change).await } else { Ok(()) }
        })
        .await
    }

    /// Flushes every device and ejects those that fail.
    async fn flush_devices(&self) -> Result<(), ArrayError> {
        let log = self.stripe_log().map(|log| (log.ended(), log));
        let devices = self.core.devices();
        let flushes = join_all(devices.iter().map(|device| device.flush(Why::Data))).await;
        let failed = devices.into_iter().zip(flushes).filter_map(|(device, result)| Some((device, result.err()?)));
        self.record_failures(failed.collect()).await?;
        self.core.check_not_failed()?;
        if let Some((ended, log)) = log {
            log.flushed(ended);
        }
        Ok(())
    }

    /// Records a member's failed write. What the member lacks becomes a bad block, or the member is ejected; the
    /// superblocks say so before this returns. A member without room for data has not failed: it owes the data
    /// ([`crate::device::owed`]).
    ///
    /// # Errors
    /// `NoSpace`, with nothing recorded, when the member had no room. `Io` when the array cannot do without the
    /// member: then the array takes no more writes, and its superblocks stay as they are, dirty.
    async fn record_failure(&self, device: &Rc<Device<M>>, error: &MemberError) -> Result<(), ArrayError> {
        if self.core.is_redundant() && self.core.is_out_of_room(device, error) {
            return Err(ArrayError::new(ArrayErrorKind::NoSpace, format!("{}: no room: {error}", device.name)));
        }
        let guard = self.lock().await;
        if let Some(range) = self.core.data_of(device, error).filter(|_| device.state.get() == DeviceState::InSync) {
            self.core.check_not_failed()?;
            if !self.core.others_can_supply(device, &range) {
                return Err(self.core.fail_without(device, error));
            }
            if self.core.add_bad_blocks(&guard, device, &range, error) {
                return self.publish(&guard).await;
            }
        }
        self.eject(&guard, vec![(device.clone(), error.clone())]).await
    }

    /// Records each of these failures. Returns the gravest error: `NoSpace` only if there is no other.
    async fn record_failures(&self, failures: Failures<M>) -> Result<(), ArrayError> {
        let mut outcome = Ok(());
        for (device, error) in failures {
            match Box::pin(self.record_failure(&device, &error)).await {
                Err(error) if outcome.is_ok() || error.kind != ArrayErrorKind::NoSpace => outcome = Err(error),
                _ => {}
            }
        }
        outcome
    }
}
