//! Sweep windows at the levels with copies, 1 and 10: bytes that are contiguous on a member are one transfer.
//!
//! Where copies differ, the first readable copy counts, in md's order. A copy on a member that was forced
//! while stale counts only where there is no other.
//!
//! As in md, a resync runs over array bytes, and a recovery over the component of the recovered members.
//!
//! Facts: `raid1_sync_request` in `raid1.c`, `raid10_sync_request` in `raid10.c`.

use crate::base::buffer::Block;
use crate::control::state::Control;
use crate::control::sweep::purpose::{Tally, Target};
use crate::data::runs::{Run, Runs, merged};
use crate::plan::ROW_BYTES;
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use crate::seam::observe::Why;
use format::geometry::{Copies, Mapping, Piece};
use format::units::{ArrayByte, ComponentByte, Slot};
use std::collections::BTreeMap;
use std::ops::Range;

/// A piece to recover, and where it is written.
pub(super) struct RecoveredPiece {
    piece: Piece,
    targets: Vec<(Slot, ComponentByte)>,
}

impl RecoveredPiece {
    /// The array bytes of this piece.
    pub(super) fn held(&self) -> Range<u64> {
        self.piece.at.0..self.piece.at.0 + self.piece.bytes
    }
}

fn run((slot, at): (Slot, ComponentByte), bytes: u64) -> Run {
    Run { slot, range: at.0..at.0 + bytes }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Rewrites all copies of an array range that differ from the first.
    pub(super) async fn resync_copies(&self, mapping: &Mapping, range: &Range<u64>) -> Result<Tally, ArrayError> {
        let pieces: Vec<Piece> = mapping.pieces(ArrayByte(range.start), range.end - range.start).collect();
        let runs = pieces.iter().flat_map(|piece| piece.copies.iter().map(|&copy| run(copy, piece.bytes)));
        let runs = self.data.read_runs(merged(runs.filter(|run| self.is_current(run)).collect())).await;
        let mut tally = Tally { compared: range.end - range.start, ..Tally::default() };
        let mut wrong = Vec::new();
        for piece in &pieces {
            let first = self.first_copy(mapping, piece, &runs).await?;
            let before = wrong.len();
            for &(slot, at) in &piece.copies {
                let is_right =
                    runs.get(slot, &run((slot, at), piece.bytes).range).is_some_and(|copy| copy[..] == first[..]);
                if !is_right && !self.is_yet_to_recover(slot, at, piece.bytes) {
                    wrong.push((slot, at.0, first.clone()));
                }
            }
            if wrong.len() > before {
                tally.rewritten += piece.bytes;
            }
        }
        self.data.record_checksums(&runs).await; // before the rewrite: a failed write may be done in part
        self.data.write_runs(wrong).await?;
        if mutant!("learned-too-late") {
            self.data.record_checksums(&runs).await;
        }
        Ok(tally)
    }

    /// The first copy that was read; when all transfers failed, the piece as the data path can read it.
    async fn first_copy(&self, mapping: &Mapping, piece: &Piece, runs: &Runs) -> Result<Block, ArrayError> {
        let read = |&(slot, at): &(Slot, ComponentByte)| runs.get(slot, &run((slot, at), piece.bytes).range);
        match self.forced_last(&piece.copies).iter().find_map(read) {
            Some(block) => Ok(block),
            None => {
                let into = self.core.pool.take(piece.bytes as usize);
                Ok(self.data.read_mapped(mapping, piece.at.0, into).await?.freeze())
            }
        }
    }

    fn is_forced(&self, slot: Slot) -> bool {
        self.core.device(slot).is_some_and(|device| device.state.is_forced())
    }

    fn is_current(&self, run: &Run) -> bool {
        self.core.device(run.slot).is_some_and(|device| device.is_readable(run.range.clone()))
    }

    /// Whether a recovery has not reached the range yet.
    fn is_yet_to_recover(&self, slot: Slot, at: ComponentByte, bytes: u64) -> bool {
        self.core.device(slot).is_some_and(|device| device.is_recovering(at.0 + bytes))
    }

    /// The pieces that `targets` hold in `range` of their components.
    pub(super) fn copies_held(
        &self,
        mapping: &Mapping,
        range: &Range<u64>,
        targets: &[Target<M>],
    ) -> Vec<RecoveredPiece> {
        let mut copies: BTreeMap<u64, RecoveredPiece> = BTreeMap::new();
        for target in targets {
            let mut at = range.start;
            while at < range.end {
                let bytes = mapping.chunk_rest(ComponentByte(at)).min(range.end - at);
                if let Some(held) = mapping.held(target.slot, ComponentByte(at)) {
                    let copy = copies.entry(held.0).or_insert_with(|| {
                        let mut piece = mapping.piece_at(held);
                        piece.bytes = bytes;
                        RecoveredPiece { piece, targets: Vec::new() }
                    });
                    debug_assert_eq!(copy.piece.bytes, bytes, "windows end where chunks end, or all in one chunk");
                    copy.targets.push((target.slot, ComponentByte(at)));
                }
                at += bytes;
            }
        }
        copies.into_values().collect()
    }

    /// Copies pieces to the targets. `turn` selects the source copy. What no copy gives becomes bad blocks of
    /// the targets. The caller keeps writes off.
    pub(super) async fn recover_copies(
        &self,
        copies: &[RecoveredPiece],
        targets: &[Target<M>],
        turn: u64,
    ) -> Result<(), ArrayError> {
        let source = |copy: &RecoveredPiece| Some(run(self.source(&copy.piece, turn)?, copy.piece.bytes));
        let sources: Vec<Option<Run>> = copies.iter().map(source).collect();
        let runs = self.data.read_runs(merged(sources.iter().flatten().cloned().collect())).await;
        let mut blocks = Vec::new();
        for (copy, source) in copies.iter().zip(&sources) {
            match source.as_ref().and_then(|source| runs.get(source.slot, &source.range)) {
                Some(block) => blocks.extend(copy.targets.iter().map(|&(slot, at)| (slot, at.0, block.clone()))),
                None => self.recover_in_parts(copy, targets, 0..copy.piece.bytes, &mut blocks).await?,
            }
        }
        self.data.write_runs(blocks).await
    }

    /// Adds the readable blocks of `part` of a piece to `blocks`, row by row and block by block where it
    /// cannot be read as a whole.
    async fn recover_in_parts(
        &self,
        copy: &RecoveredPiece,
        targets: &[Target<M>],
        part: Range<u64>,
        blocks: &mut Vec<(Slot, u64, Block)>,
    ) -> Result<(), ArrayError> {
        let (start, bytes) = (part.start, part.end - part.start);
        let copies = copy.piece.copies.iter().map(|&(slot, at)| (slot, ComponentByte(at.0 + start))).collect();
        let piece = Piece { at: ArrayByte(copy.piece.at.0 + start), bytes, copies };
        if let Some(block) = self.sure_copy(&piece, Copies::new(), &|_| true).await {
            blocks.extend(copy.targets.iter().map(|&(slot, at)| (slot, at.0 + start, block.clone())));
            return Ok(());
        }
        if let Some(unit) = [ROW_BYTES, self.core.info.block_bytes].into_iter().find(|unit| bytes > *unit) {
            for at in part.clone().step_by(unit as usize) {
                let row = at..part.end.min(at + unit);
                Box::pin(self.recover_in_parts(copy, targets, row, blocks)).await?;
            }
            return Ok(());
        }
        for &(slot, at) in &copy.targets {
            let target = targets.iter().filter(|target| target.slot == slot).cloned().collect::<Vec<_>>();
            self.record_lost(&(at.0 + start..at.0 + part.end), &target)?;
        }
        Ok(())
    }

    /// What `slot` should hold in `range`, which lies in one piece, read from another copy.
    pub(crate) async fn other_copy(&self, mapping: &Mapping, range: &Range<u64>, slot: Slot) -> Option<Block> {
        let mut piece = mapping.piece_at(mapping.held(slot, ComponentByte(range.start))?);
        piece.bytes = piece.bytes.min(range.end - range.start);
        let own = piece.copies.iter().filter(|(other, _)| *other == slot).copied().collect();
        let is_taken =
            |block: &[u8]| self.core.device(slot).is_none_or(|device| device.takes(ComponentByte(range.start), block));
        self.sure_copy(&piece, own, &is_taken).await
    }

    /// Reads a piece from a copy whose checksums match, whatever the verify setting, and which `is_taken`
    /// accepts.
    async fn sure_copy(&self, piece: &Piece, mut tried: Copies, is_taken: &dyn Fn(&[u8]) -> bool) -> Option<Block> {
        let mut into = self.core.pool.take(piece.bytes as usize);
        while let Some((slot, at)) = self.data.best_copy(piece, piece.bytes, &tried) {
            let (result, buffer) = self.core.device(slot)?.read_verified(at, into, Why::Sweep).await;
            into = buffer;
            if result.is_ok() && is_taken(&into[..]) {
                return Some(into.freeze());
            }
            tried.push((slot, at));
        }
        None
    }

    /// The copies, those of members that were taken by force at the end.
    fn forced_last(&self, copies: &[(Slot, ComponentByte)]) -> Copies {
        let (forced, others): (Copies, Copies) = copies.iter().copied().partition(|(slot, _)| self.is_forced(*slot));
        others.into_iter().chain(forced).collect()
    }

    /// The copy to read a piece from: the current copies in turn, or the first while copies may differ.
    fn source(&self, piece: &Piece, turn: u64) -> Option<(Slot, ComponentByte)> {
        let is_current = |&&copy: &&(Slot, ComponentByte)| self.is_current(&run(copy, piece.bytes));
        let current: Copies = self.forced_last(&piece.copies).iter().filter(is_current).copied().collect();
        let positions = piece.at.0..piece.at.0 + piece.bytes;
        let turn = if self.core.is_agreed(positions.end, &positions) { turn } else { 0 };
        current.get((turn % current.len().max(1) as u64) as usize).copied()
    }
}

/// The array range that covers `copies`; `None` when there are none.
pub(super) fn array_range(copies: &[RecoveredPiece]) -> Option<Range<u64>> {
    let start = copies.first()?.piece.at.0;
    let end = copies.iter().map(|copy| copy.held().end).max()?;
    Some(start..end)
}
