//! What a RAID level decides in sweeps and repairs: how a window is resynced, recovered and compared, and what the other
//! members give in place of one.
//!
//! This is the only file of `control` that asks which family a geometry is of. The decisions that need no I/O are
//! [`crate::core::personality`].

use crate::base::buffer::Block;
use crate::control::state::Control;
use crate::control::sweep::findings::ScrubAction;
use crate::control::sweep::purpose::Tally;
use crate::control::sweep::rows::Comparison;
use crate::core::authority::Marked;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::Geometry;
use format::units::Slot;
use std::ops::Range;

impl<M: Member, C: Clock> Control<M, C> {
    /// Brings copies or parity into agreement in a range of positions.
    pub(super) async fn resync_window(&self, range: &Range<u64>) -> Result<Tally, ArrayError> {
        let _lock = self.data.lock_positions(range).await;
        self.core.check_not_failed()?;
        let resynced = match self.core.geometry() {
            Geometry::Parity(parity) => self.resync_stripes(parity, range).await,
            Geometry::Mapping(mapping) => self.resync_copies(mapping, range).await,
        }?;
        self.core.health.unbuilt.built(range);
        Ok(resynced)
    }

    /// Brings copies or parity into agreement in the part of a range of positions that was never written to. The caller
    /// keeps writes off, and has marked it.
    pub(in crate::control) async fn build_window(
        &self,
        marked: Marked<'_>,
        range: &Range<u64>,
    ) -> Result<(), ArrayError> {
        for part in self.core.health.unbuilt.parts(range) {
            match self.core.geometry() {
                Geometry::Parity(parity) => {
                    for (stripe, part) in parity.parts(&part) {
                        self.data.build(marked, parity, &stripe, part).await?;
                    }
                }
                Geometry::Mapping(mapping) => {
                    self.resync_copies(mapping, &part).await?;
                    self.core.health.unbuilt.built(&part);
                }
            }
        }
        Ok(())
    }

    /// Rebuilds what the sweep's targets lack in a range of their components.
    pub(super) async fn recover_window(&self, range: &Range<u64>) -> Result<Tally, ArrayError> {
        let targets = self.targets_behind(range.end);
        match self.core.geometry() {
            Geometry::Parity(parity) => self.recover_striped(parity, range, targets).await?,
            Geometry::Mapping(mapping) => self.recover_mapped(mapping, range, targets).await?,
        }
        Ok(Tally { rewritten: range.end - range.start, ..Tally::default() })
    }

    /// Reads and judges a range of positions. When `action` repairs, the result includes the writes for that.
    /// The caller keeps writes off.
    pub(super) async fn compare(&self, range: &Range<u64>, action: ScrubAction) -> Comparison {
        match self.core.geometry() {
            Geometry::Parity(parity) => self.compare_stripes(parity, range, action).await,
            Geometry::Mapping(mapping) => self.compare_copies(mapping, range, action).await,
        }
    }

    /// What a member should hold, reconstructed from the others, if that is certain.
    pub(crate) async fn given_by_others(&self, slot: Slot, range: &Range<u64>) -> Option<Block> {
        match self.core.geometry() {
            Geometry::Parity(parity) => {
                let stripe = range.start / parity.chunk_bytes();
                let is_trusted = self.core.is_agreed((stripe + 1) * parity.stripe_bytes(), range);
                if is_trusted { self.data.reconstructed(parity, range, slot).await } else { None }
            }
            Geometry::Mapping(mapping) => self.other_copy(mapping, range, slot).await,
        }
    }
}
