//! Resync: brings copies and parity into agreement after an unclean stop.
//!
//! Data behind the sweep is trusted at once. With a reliable write-intent bitmap, only the chunks that it
//! names are visited.
//!
//! Facts: `drivers/md/md.c` (`md_do_sync`).

use crate::control::state::Control;
use crate::control::sweep::purpose::{Ending, Purpose, SweepRange, Tally};
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
use format::geometry::{Geometry, Level};
use std::ops::Range;

/// Work done by a resync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resynced {
    /// Bytes of each member (of the array for RAID-10) that were compared.
    pub compared: u64,
    /// Bytes among them, in whole stripes or pieces, that were rewritten.
    pub mended: u64,
    /// Whether the whole array was covered; false when the resync was interrupted.
    pub complete: bool,
}

impl<M: Member, C: Clock> Control<M, C> {
    /// [`crate::Array::resync`].
    pub(crate) async fn resync(&self, progress: &dyn Fn(u64, u64)) -> Result<Resynced, ArrayError> {
        if self.core.info.read_only {
            return Err(ArrayError::new(ArrayErrorKind::ReadOnly, "the array is read-only"));
        }
        if self.core.health.agreed.get() {
            return Ok(Resynced { complete: true, ..Resynced::default() });
        }
        let (ending, Tally { compared, rewritten, .. }) = self.sweep(Purpose::Resync, progress).await?;
        let complete = ending == Ending::Complete;
        if complete {
            self.metadata.record_agreement().await?;
        }
        Ok(Resynced { compared, mended: rewritten, complete })
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    pub(super) fn resync_range(&self) -> SweepRange {
        let from = self.core.geometry().sync_position(self.core.health.agreed_below.get())
            + mutant!("resync-skips" => self.core.chunk_bytes(), else 0);
        let end = self.core.geometry().sync_position(self.core.geometry().array_bytes());
        let chunk = self.core.chunk_bytes();
        match self.core.geometry() {
            Geometry::Mapping(mapping) if mapping.level() == Level::Raid10 => {
                let array_bytes = |member: u64| member * u64::from(mapping.slots()) / u64::from(mapping.copies());
                let window = self.window_bytes();
                let step = (array_bytes(window) / chunk).max(1) * chunk;
                let step = if chunk > window { window } else { step };
                SweepRange { start: 0, from, end, step, member_bytes: window }
            }
            _ => {
                let step = self.component_step();
                SweepRange { start: 0, from, end, step, member_bytes: step }
            }
        }
    }

    pub(super) fn next_to_resync(&self, range: Range<u64>, most: u64) -> Option<Range<u64>> {
        match self.metadata.intent() {
            Some(intent) => intent.next_needed(range, most),
            None => Some(range),
        }
    }

    pub(super) fn resynced_to(&self, position: u64) {
        self.core
            .health
            .agreed_below
            .set(self.core.health.agreed_below.get().max(self.core.geometry().array_byte_at(position)));
    }

    pub(super) async fn resync_window(&self, range: &Range<u64>) -> Result<Tally, ArrayError> {
        match self.core.geometry() {
            Geometry::Parity(parity) => {
                let _lock = self.data.lock_stripes(parity, range).await;
                self.core.check_not_failed()?;
                self.resync_stripes(parity, range).await
            }
            Geometry::Mapping(mapping) => {
                let _lock = self.core.locks.exclusive(range.clone()).await;
                self.core.check_not_failed()?;
                self.resync_copies(mapping, range).await
            }
        }
    }
}
