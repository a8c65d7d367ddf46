//! Resync: brings copies and parity into agreement after an unclean stop.
//!
//! Data behind the sweep is trusted at once. With a reliable write-intent bitmap, only the chunks that it
//! names are visited.
//!
//! Facts: `drivers/md/md.c` (`md_do_sync`).

use crate::control::state::Control;
use crate::control::sweep::purpose::{Ending, Purpose, SweepRange, Tally};
use crate::core::personality::SweepWindows;
use crate::seam::clock::Clock;
use crate::seam::error::{ArrayError, ArrayErrorKind};
use crate::seam::member::Member;
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
        let SweepWindows { step, member_bytes } =
            self.core.personality().sweep_windows(self.window_bytes(), self.component_step());
        SweepRange { start: 0, from, end, step, member_bytes }
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
}
