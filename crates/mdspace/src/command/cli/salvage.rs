//! `read --salvage`: unreadable ranges of an array become zeros, and are reported.
//!
//! It only reads. A range that fails is read again in halves, down to single blocks, so that no readable block is lost.

use crate::command::text::failure::Failure;
use crate::command::text::output::tell;
use crate::layers::Bytes;
use engine::{ArrayErrorKind, Buffer, Pool};
use std::ops::Range;

/// The smallest range that is given up: md's unit of recovery.
const BLOCK_BYTES: u64 = 4096;

/// The unreadable ranges, in the order of the array.
#[derive(Default)]
pub(crate) struct Losses {
    /// Ranges of the array, each with the error at its beginning.
    lost: Vec<(Range<u64>, String)>,
}

impl Losses {
    /// Reads `range` of the volume, with zeros in unreadable blocks.
    ///
    /// # Errors
    /// When the array itself has failed and nothing can be read.
    pub(crate) async fn read_around(
        &mut self,
        pool: &Pool,
        volume: &Bytes,
        range: Range<u64>,
    ) -> Result<Buffer, Failure> {
        let mut whole = pool.take((range.end - range.start) as usize);
        let mut rest = vec![range.clone()];
        while let Some(part) = rest.pop() {
            let bytes = part.end - part.start;
            let place = (part.start - range.start) as usize..(part.end - range.start) as usize;
            match volume.read(part.start, pool.take(bytes as usize)).await {
                Ok(buffer) => whole[place].copy_from_slice(&buffer),
                Err(error) if error.kind != ArrayErrorKind::Io => return Err(error.into()),
                Err(error) if bytes <= BLOCK_BYTES => {
                    whole[place].fill(0);
                    self.add(part, error.reason);
                }
                Err(_) => {
                    let middle = part.start + (bytes / 2).next_multiple_of(BLOCK_BYTES);
                    rest.extend([middle..part.end, part.start..middle]);
                }
            }
        }
        Ok(whole)
    }

    fn add(&mut self, part: Range<u64>, reason: String) {
        match self.lost.last_mut() {
            Some((before, _)) if before.end == part.start => before.end = part.end,
            _ => self.lost.push((part, reason)),
        }
    }

    /// Prints every lost range on standard error.
    ///
    /// # Errors
    /// When a range was lost.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        for (range, reason) in &self.lost {
            tell!("lost: {} bytes at byte {} of the array are zeros: {reason}", range.end - range.start, range.start);
        }
        let bytes: u64 = self.lost.iter().map(|(range, _)| range.end - range.start).sum();
        match bytes {
            0 => Ok(()),
            _ => Err(Failure::unwell(format!("{bytes} bytes in {} ranges could not be read", self.lost.len()))),
        }
    }
}
