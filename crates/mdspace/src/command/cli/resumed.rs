//! Whether a copy that `read --map-out` is to continue is still what its map says.
//!
//! The bytes decide, not names: a path may lead to another file or disk by now, and so may the members. At places spread
//! over all that the map calls finished, the copy must hold what the array reads. Where nothing is finished, all that the
//! copy holds is compared. This file only reads.

use crate::command::cli::sink::{Sink, check_unclaimed, check_unused, member_of_another, superblock_at};
use crate::command::text::failure::Failure;
use crate::layers::Bytes;
use crate::machine::Machine;
use crate::names::name_of;
use disk::map::{RescueMap, Status};
use engine::{ArrayErrorKind, Pool};
use format::superblock::Version;
use std::ops::Range;
use std::path::Path;

/// The number of places that are compared.
const SAMPLES: u64 = 128;

/// The length of each.
const SAMPLE_BYTES: u64 = 4096;

/// Bytes that are compared at a time where all are.
const COMPARED_BYTES: u64 = 64 << 10;

/// Bytes that a file system keeps or loses together.
const BLOCK_BYTES: usize = 4096;

/// The start or end of a disk, where superblocks and tables are.
const EDGE_BYTES: u64 = 128 << 10;

/// Advice about a copy that cannot be continued.
const ANEW: &str = "name the members and the copy of the earlier run, or remove the map to begin anew";

/// A copy of an earlier run.
pub(super) struct Resumed<'a> {
    pub(super) machine: &'a Machine,
    pub(super) volume: &'a Bytes,
    pub(super) pool: &'a Pool,
    /// Where the map begins in the volume.
    pub(super) at: u64,
    pub(super) output: &'a Path,
    pub(super) sink: &'a Sink,
    pub(super) map: &'a RescueMap,
}

impl Resumed<'_> {
    /// Refuses a copy of another length or with other bytes than the map says, and what belongs to an array. Without
    /// `overwrite` it also refuses other things that are known.
    pub(super) async fn check(&self, overwrite: bool) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", self.sink.name));
        let (there, bytes) = (self.sink.bytes().map_err(failed)?, self.map.end());
        // The length of a file was set when its map was begun.
        if self.sink.is_sparse() && there != bytes {
            let reason = format!("{}: has {there} bytes, and its map is of {bytes}: it was replaced", self.sink.name);
            return Err(Failure::refused(reason).advise(ANEW));
        }
        if self.map.finished_end() == 0 {
            // Killed before the map was saved again, the earlier run left bytes that the map does not know.
            return match self.sink.is_sparse() && self.holds_nothing_else().await? {
                true => Ok(()),
                false => check_unused(self.machine, self.output, overwrite).await,
            };
        }
        self.compare().await?;
        self.check_edges(overwrite).await
    }

    /// Whether the file holds no other bytes than zeros and what the array reads there.
    async fn holds_nothing_else(&self) -> Result<bool, Failure> {
        let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", self.sink.name));
        let bytes = self.map.end();
        let mut at = 0;
        while let Some(data) = self.sink.next_data(at).map_err(failed)?.filter(|data| *data < bytes) {
            at = bytes.min(data + COMPARED_BYTES);
            let there = self.sink.get(&(data..at)).map_err(failed)?;
            let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
            if is_zero(&there) {
                continue;
            }
            match self.volume.read(self.at + data, self.pool.take(there.len())).await {
                // A write that was cut off left blocks without their bytes.
                Ok(read) => {
                    let mut blocks = there.chunks(BLOCK_BYTES).zip(read.chunks(BLOCK_BYTES));
                    if !blocks.all(|(there, read)| is_zero(there) || there == read) {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind == ArrayErrorKind::Io => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Compares the copy with the array.
    async fn compare(&self) -> Result<(), Failure> {
        let mut compared = 0;
        for place in self.samples() {
            let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", self.sink.name));
            let there = self.sink.get(&place).map_err(failed)?;
            match self.volume.read(self.at + place.start, self.pool.take(there.len())).await {
                Ok(read) if read[..] == there[..] => compared += 1,
                Ok(_) => return Err(self.differs(place.start)),
                // The members that are here now need not be all that were.
                Err(error) if error.kind == ArrayErrorKind::Io => {}
                Err(error) => return Err(error.into()),
            }
        }
        match compared {
            0 => {
                let name = name_of(self.output);
                let reason = format!("{name}: nothing that its map calls finished can be read now, to compare it");
                Err(Failure::refused(reason).advise(ANEW))
            }
            _ => Ok(()),
        }
    }

    fn differs(&self, at: u64) -> Failure {
        let name = name_of(self.output);
        let reason = format!(
            "{name}: its map calls byte {at} finished, and the array reads other bytes there: it is not the copy of \
             this array, or these are other members, or one of them was written to since"
        );
        Failure::refused(reason).advise(ANEW)
    }

    /// The places to compare: about evenly spread over what is finished, and on data rather than on holes of the file.
    fn samples(&self) -> Vec<Range<u64>> {
        let regions = self.map.regions().filter(|region| region.status == Status::Finished);
        let finished: Vec<Range<u64>> = regions.map(|region| region.range).collect();
        let total: u64 = finished.iter().map(|range| range.end - range.start).sum();
        let interval = (total / SAMPLES).max(1);
        let starts = (0..SAMPLES).map(|index| {
            // A step of its own in each interval, so that the places do not all fall on one member. The first is the
            // start of all.
            let step = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % interval;
            (index * interval + step).min(total.saturating_sub(1))
        });
        let mut samples: Vec<Range<u64>> = starts.filter_map(|start| self.sample(&finished, start)).collect();
        samples.dedup();
        samples
    }

    /// The place `start` bytes into what is finished, or the first data behind it.
    fn sample(&self, finished: &[Range<u64>], mut start: u64) -> Option<Range<u64>> {
        let region = finished.iter().find(|range| {
            let bytes = range.end - range.start;
            let is_in = start < bytes;
            start -= if is_in { 0 } else { bytes };
            is_in
        })?;
        let at = region.start + start;
        let data = self.sink.data_at(at);
        let holding = finished.get(finished.partition_point(|range| range.end <= data));
        let (at, end) = match holding.filter(|range| range.contains(&data)) {
            Some(range) => (data, range.end),
            None => (at, region.end),
        };
        Some(at..end.min(at + SAMPLE_BYTES))
    }

    /// Refuses what belongs to an array, and without `overwrite` other things that are known, where the map does not say
    /// that they come from the array.
    async fn check_edges(&self, overwrite: bool) -> Result<(), Failure> {
        let bytes = self.map.end();
        let is_finished = |edge: Range<u64>| self.map.holes(&edge).is_empty();
        if !is_finished(0..bytes.min(EDGE_BYTES)) {
            return check_unclaimed(self.machine, self.output, overwrite).await;
        }
        if is_finished(bytes.saturating_sub(EDGE_BYTES)..bytes) {
            return Ok(());
        }
        let found = superblock_at(self.machine, self.output).await?;
        match found.filter(|found| matches!(found.version, Version::V0_90 | Version::V1_0)) {
            Some(found) => Err(member_of_another(self.output, &found)),
            None => Ok(()),
        }
    }
}
