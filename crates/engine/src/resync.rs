//! Resync: copies and parity brought into agreement after an unclean stop.
//!
//! Goes over the array once, in order, a bounded number of bytes under way.
//! Each unit is kept from writers while it is compared and mended; requests
//! elsewhere go on. What lies behind the sweep is trusted from then on. With a
//! write-intent bitmap that can be relied on, only what it names is visited.
//!
//! md's rules: data is taken to be right and parity is remade from it; of
//! copies the first is taken. A checkpoint is the superblock's resync offset,
//! written when the array is stopped.

use crate::array::{Array, Inner};
use crate::clock::Clock;
use crate::error::{ArrayError, ArrayErrorKind};
use crate::member::Member;
use format::geometry::{Geometry, Mapping};
use format::superblock::Resync;
use format::units::{ArrayByte, SECTOR_BYTES, Sectors};
use futures_util::StreamExt;
use futures_util::stream;
use std::ops::Range;

/// Bytes read from each member that may be under way at a time.
const BYTES_IN_FLIGHT: u64 = 8 << 20;

/// How much of an array of copies is compared at a time.
const MAPPED_UNIT_BYTES: u64 = 512 << 10;

/// What a resync found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resynced {
    /// Units (stripes, or 512 KiB of copies) that were compared.
    pub compared: u64,
    /// Units among them that had to be mended.
    pub mended: u64,
    /// Whether the whole array was gone over; false when it was stopped before.
    pub complete: bool,
}

impl<M: Member, C: Clock> Array<M, C> {
    /// Brings copies and parity into agreement, if they may not be, and then
    /// says so in the superblocks. `progress` is told array bytes done and in all.
    ///
    /// # Errors
    /// `ReadOnly`; `Io` when a member is missing or fails whose data the
    /// comparison needs. What was not reached stays as it was.
    pub async fn resync(&self, progress: &dyn Fn(u64, u64)) -> Result<Resynced, ArrayError> {
        let inner = &*self.0;
        if inner.read_only {
            return Err(ArrayError::new(ArrayErrorKind::ReadOnly, "the array is read-only"));
        }
        let mut resynced = Resynced::default();
        if inner.agreed.get() {
            return Ok(Resynced { complete: true, ..resynced });
        }
        let (unit, end) = inner.sweep();
        let depth = (BYTES_IN_FLIGHT / inner.member_bytes_of(unit)).max(1) as usize;
        let start = inner.agreed_below.get() / unit * unit;
        let units = (start..end).step_by(unit as usize).map(|at| at..(at + unit).min(end));
        let mut done = stream::iter(units).map(|range| inner.resync_unit(range)).buffered(depth);
        while let Some((range, outcome)) = done.next().await {
            match outcome? {
                Outcome::Stopped => return Ok(resynced),
                Outcome::Skipped => {}
                Outcome::Agreed => resynced.compared += 1,
                Outcome::Mended => {
                    resynced.compared += 1;
                    resynced.mended += 1;
                }
            }
            inner.agreed_below.set(range.end);
            progress(range.end, end);
        }
        inner.record_agreement().await?;
        Ok(Resynced { complete: true, ..resynced })
    }
}

enum Outcome {
    Agreed,
    Mended,
    /// The bitmap says that nothing was under way here.
    Skipped,
    /// The array is being stopped.
    Stopped,
}

impl<M: Member, C: Clock> Inner<M, C> {
    /// Bytes of the array in a unit, and where the sweep ends.
    fn sweep(&self) -> (u64, u64) {
        match &self.geometry {
            Geometry::Parity(parity) => (parity.stripe_bytes(), parity.array_bytes()),
            Geometry::Mapping(mapping) => (MAPPED_UNIT_BYTES, mapping.array_bytes()),
        }
    }

    /// Bytes on each member, about, of `unit` bytes of the array.
    fn member_bytes_of(&self, unit: u64) -> u64 {
        match &self.geometry {
            Geometry::Parity(parity) => parity.chunk_bytes(),
            Geometry::Mapping(_) => unit,
        }
    }

    /// md's number for "in agreement below this byte of the array".
    pub(crate) fn resync_offset(&self, below: u64) -> Resync {
        let sectors = match &self.geometry {
            Geometry::Parity(parity) => below / parity.stripe_bytes() * parity.chunk_bytes() / SECTOR_BYTES,
            Geometry::Mapping(_) => below / SECTOR_BYTES,
        };
        Resync::From(Sectors(sectors))
    }

    async fn resync_unit(&self, range: Range<u64>) -> (Range<u64>, Result<Outcome, ArrayError>) {
        let outcome = self.resync_range(&range).await;
        (range, outcome)
    }

    async fn resync_range(&self, range: &Range<u64>) -> Result<Outcome, ArrayError> {
        let Some(_inside) = self.gate.enter() else { return Ok(Outcome::Stopped) };
        if self.intent().is_some_and(|intent| intent.rules_out(self.covered(range))) {
            return Ok(Outcome::Skipped);
        }
        let _lock = self.lock_to_write(range).await;
        self.check_unbroken()?;
        match &self.geometry {
            Geometry::Parity(parity) => self.resync_stripe(parity, range.start / parity.stripe_bytes()).await,
            Geometry::Mapping(mapping) => self.resync_copies(mapping, range).await,
        }
        .map(|mended| if mended { Outcome::Mended } else { Outcome::Agreed })
    }

    async fn resync_copies(&self, mapping: &Mapping, range: &Range<u64>) -> Result<bool, ArrayError> {
        let mut mended = false;
        for piece in mapping.pieces(ArrayByte(range.start), range.end - range.start) {
            let into = self.pool.take(piece.bytes as usize);
            let first = self.read_mapped(mapping, piece.at.0, into).await?.freeze();
            for &(slot, at) in &piece.copies {
                let Some(device) = self.device(slot) else { continue };
                let (result, copy) = device.read(at, self.pool.take(piece.bytes as usize)).await;
                if result.is_ok() && copy[..] == first[..] {
                    continue;
                }
                mended = true;
                if let Err(error) = device.write(at, vec![first.clone()]).await {
                    self.record_failure(&device, &error).await?;
                }
            }
        }
        Ok(mended)
    }
}
