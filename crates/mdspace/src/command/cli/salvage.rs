//! `read --salvage`: unreadable ranges of an array become zeros, and are reported.
//!
//! It only reads. A range that fails is read again in smaller units, down to single sectors, so that no readable sector
//! is lost.

use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use crate::layers::Bytes;
use engine::{ArrayErrorKind, Buffer, Pool};
use serde::Serialize;
use std::ops::Range;

/// The unit in which a piece is read again, and the one in which that is.
pub(super) const PART_BYTES: u64 = 64 << 10;
pub(super) const SECTOR_BYTES: u64 = 512;

/// Ranges that are printed; a disk with more has a map to look at.
const PRINTED_MAX: usize = 100;

/// A lost range. Its fields are a stable interface (docs/json.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Lost {
    /// Its first byte.
    pub(super) at: u64,
    /// Its length.
    pub(super) bytes: u64,
    /// The error at its beginning; only of the first ranges.
    pub(super) reason: Option<String>,
}

/// The unreadable ranges, in order.
#[derive(Default)]
pub(super) struct Losses(Vec<Lost>);

impl Losses {
    /// Reads `range` of the volume, with zeros in unreadable sectors.
    ///
    /// # Errors
    /// When the array itself has failed and nothing can be read.
    pub(super) async fn read_around(
        &mut self,
        pool: &Pool,
        volume: &Bytes,
        range: Range<u64>,
    ) -> Result<Buffer, Failure> {
        let mut whole = pool.take((range.end - range.start) as usize);
        let mut rest: Vec<Range<u64>> = finer(&range).collect();
        rest.reverse();
        while let Some(part) = rest.pop() {
            let place = (part.start - range.start) as usize..(part.end - range.start) as usize;
            match volume.read(part.start, pool.take(place.len())).await {
                Ok(buffer) => whole[place].copy_from_slice(&buffer),
                Err(error) if error.kind != ArrayErrorKind::Io => return Err(error.into()),
                Err(error) if place.len() as u64 <= SECTOR_BYTES => {
                    whole[place].fill(0);
                    self.add(&part, error.reason);
                }
                Err(_) => {
                    let before = rest.len();
                    rest.extend(finer(&part));
                    rest[before..].reverse();
                }
            }
        }
        Ok(whole)
    }

    /// Adds a range behind all others.
    pub(super) fn add(&mut self, range: &Range<u64>, reason: String) {
        match self.0.last_mut() {
            Some(before) if before.at + before.bytes == range.start => before.bytes += range.end - range.start,
            _ => {
                let reason = (self.0.len() < PRINTED_MAX).then_some(reason);
                self.0.push(Lost { at: range.start, bytes: range.end - range.start, reason });
            }
        }
    }

    /// Prints lost ranges of `whole` on standard error, and returns them all.
    pub(super) fn told(self, whole: &str) -> Vec<Lost> {
        for Lost { at, bytes, reason } in &self.0 {
            let Some(reason) = reason else { break };
            tell!("lost: {bytes} bytes at byte {at} of {whole} are zeros: {reason}");
        }
        if let Some(more) = self.0.len().checked_sub(PRINTED_MAX).filter(|more| *more > 0) {
            tell!("lost: and {more} more ranges, which --json and --map-out list");
        }
        self.0
    }
}

/// The failure to end with if anything was lost.
pub(super) fn verdict(lost: &[Lost]) -> Result<(), Failure> {
    let bytes: u64 = lost.iter().map(|lost| lost.bytes).sum();
    match lost.len() {
        0 => Ok(()),
        count => Err(Failure::unwell(format!("{bytes} bytes in {count} ranges could not be read"))),
    }
}

/// Cuts a range that could not be read into parts to be read alone.
fn finer(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let unit = if range.end - range.start > PART_BYTES { PART_BYTES } else { SECTOR_BYTES };
    in_units(range.clone(), unit)
}

/// Cuts a range at multiples of `unit`.
pub(super) fn in_units(range: Range<u64>, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let part = start..range.end.min((start / unit + 1) * unit);
        start = part.end;
        (!part.is_empty()).then_some(part)
    })
}
