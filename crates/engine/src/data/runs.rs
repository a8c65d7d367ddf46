//! Long transfers of sweeps: each contiguous run of a member is one transfer.
//!
//! Positions are component positions. The caller handles a run that could not be read. A member that fails a write is
//! ejected here.

use crate::base::buffer::Block;
use crate::base::join::join_all;
use crate::core::authority::Authority;
use crate::data::plane::DataPlane;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use crate::seam::observe::Why;
use format::units::{ComponentByte, Slot};
use std::ops::Range;

/// A range of one member that is read as one transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) slot: Slot,
    pub(crate) range: Range<u64>,
}

/// What was read of each run. There is no error if the member was missing.
pub(crate) struct Runs(pub(crate) Vec<(Run, Result<Block, Option<MemberError>>)>);

impl Runs {
    /// The bytes of `range` on `slot`, if a run holds them and was read.
    pub(crate) fn get(&self, slot: Slot, range: &Range<u64>) -> Option<Block> {
        self.0.iter().find_map(|(run, read)| {
            let holds = run.slot == slot && run.range.start <= range.start && range.end <= run.range.end;
            let block = read.as_ref().ok().filter(|_| holds)?;
            Some(block.slice((range.start - run.range.start) as usize..(range.end - run.range.start) as usize))
        })
    }

    /// Whether any run is of that slot.
    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.0.iter().any(|(run, _)| run.slot == slot)
    }

    /// Why `range` on `slot` could not be read.
    pub(crate) fn error(&self, slot: Slot, range: &Range<u64>) -> Option<&MemberError> {
        let failed = self.0.iter().filter(|(run, _)| run.slot == slot);
        let mut failed = failed.filter(|(run, _)| run.range.start < range.end && range.start < run.range.end);
        failed.find_map(|(_, read)| read.as_ref().err()?.as_ref())
    }

    /// The slots of runs that failed, with their errors.
    pub(crate) fn failed(&self) -> impl Iterator<Item = (Slot, Option<&MemberError>)> {
        self.0.iter().filter_map(|(run, read)| Some((run.slot, read.as_ref().err()?.as_ref())))
    }
}

/// Joins ranges of one member that touch, so that each is one transfer.
pub(crate) fn merged(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| (run.slot, run.range.start));
    let mut merged: Vec<Run> = Vec::new();
    for run in runs {
        match merged.last_mut().filter(|last| last.slot == run.slot && last.range.end >= run.range.start) {
            Some(last) => last.range.end = last.range.end.max(run.range.end),
            None => merged.push(run),
        }
    }
    merged
}

/// What happens to a range that could not be read, or had a wrong checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnReadError {
    /// Read repair restores it beside the requests.
    Repair,
    /// Read repair restores errors of the medium. The caller repairs wrong checksums itself.
    RepairMedium,
    /// It stays as it is, and its errors do not eject the member.
    Leave,
}

impl<M: Member, C: Clock, A: Authority<M>> DataPlane<M, C, A> {
    /// Reads all runs at once, where they are current. Read repair restores what fails.
    pub(crate) async fn read_runs(&self, runs: Vec<Run>) -> Runs {
        self.read_runs_as(runs, OnReadError::Repair).await
    }

    /// As [`Self::read_runs`]; `on_error` says what happens to what fails.
    pub(crate) async fn read_runs_as(&self, runs: Vec<Run>, on_error: OnReadError) -> Runs {
        let reads = runs.iter().map(async |run| {
            let device =
                self.core.device(run.slot).filter(|device| device.is_readable(run.range.clone())).ok_or(None)?;
            let into = self.core.pool.take((run.range.end - run.range.start) as usize);
            let (at, bytes) = (ComponentByte(run.range.start), into.len() as u64);
            let (result, buffer) = device.read_verified_unqueued(at, into, Why::Sweep).await;
            let kind = result.as_ref().err().map(|error| error.kind);
            match on_error {
                OnReadError::Leave if kind == Some(MemberErrorKind::TimedOut) => {
                    device.faults.set_unanswered(at);
                    self.core.context.unanswered.raise();
                }
                OnReadError::Leave => {}
                OnReadError::RepairMedium if kind == Some(MemberErrorKind::Corrupt) => {}
                OnReadError::Repair | OnReadError::RepairMedium => device.note_unread(at, bytes, &result),
            }
            result.map(|()| buffer.freeze()).map_err(Some)
        });
        let reads = join_all(reads).await;
        Runs(runs.into_iter().zip(reads).collect())
    }

    /// Records checksums of blocks that have none yet, from contents that agree.
    pub(crate) async fn record_checksums(&self, runs: &Runs) {
        let read =
            runs.0.iter().filter_map(|(run, read)| Some((run.slot, run.range.start, read.as_ref().ok()?.clone())));
        self.record_checksums_of(&read.collect::<Vec<_>>()).await;
    }

    /// As [`Self::record_checksums`], for parts: slot, component byte and contents of each. Returns how many blocks
    /// had no checksum.
    pub(crate) async fn record_checksums_of(&self, parts: &[(Slot, u64, Block)]) -> u64 {
        let learning = parts.iter().filter_map(|(slot, at, block)| {
            let device = self.core.device(*slot)?;
            Some(async move { device.record_checksums(ComponentByte(*at), block).await })
        });
        join_all(learning).await.into_iter().sum()
    }

    /// How many blocks of the parts have no checksum, on members that keep checksums.
    pub(crate) async fn count_without_checksum(&self, parts: &[(Slot, u64, Block)]) -> u64 {
        let counts = parts.iter().filter_map(|(slot, at, block)| {
            let (device, bytes) = (self.core.device(*slot)?, block.len() as u64);
            Some(async move { device.unknown_blocks(ComponentByte(*at), bytes).await })
        });
        join_all(counts).await.into_iter().sum()
    }

    /// Writes all blocks at once, those that touch as one transfer. Failures are recorded; a slot without a member
    /// is skipped.
    pub(crate) async fn write_runs(&self, mut blocks: Vec<(Slot, u64, Block)>) -> Result<(), ArrayError> {
        blocks.sort_unstable_by_key(|&(slot, at, _)| (slot, at));
        let mut runs: Vec<(Run, Vec<Block>)> = Vec::new();
        for (slot, at, block) in blocks {
            let range = at..at + block.len() as u64;
            match runs.last_mut().filter(|(run, _)| run.slot == slot && run.range.end == at) {
                Some((run, blocks)) => {
                    run.range.end = range.end;
                    blocks.push(block);
                }
                None => runs.push((Run { slot, range }, vec![block])),
            }
        }
        let writes = runs.into_iter().filter_map(|(run, blocks)| {
            let device = self.core.device(run.slot)?;
            Some(async move {
                let result = device.write(ComponentByte(run.range.start), blocks.into(), Why::Sweep).await;
                (device, result)
            })
        });
        let writes: Vec<_> = writes.collect();
        let failed = |(device, result): (_, Result<(), MemberError>)| Some((device, result.err()?));
        let failures: Vec<_> = join_all(writes).await.into_iter().filter_map(failed).collect();
        self.record_write_failures(failures).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one_transfer_on_each_member() {
        let run = |slot, range| Run { slot: Slot(slot), range };
        let runs = vec![run(1, 8..12), run(0, 0..4), run(1, 0..4), run(0, 4..8), run(1, 0..4), run(0, 12..16)];
        assert_eq!(merged(runs), [run(0, 0..8), run(0, 12..16), run(1, 0..4), run(1, 8..12)]);
        assert_eq!(merged(Vec::new()), []);
    }
}
