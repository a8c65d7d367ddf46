//! Scrub windows: all members' data is read once and compared.
//!
//! A window in which all members were read and agree is compared in long parts. Other windows are judged row
//! by row (4 KiB of each member), and each row gets a [`Verdict`]. Writes are blocked meanwhile; reads are
//! not. Repairs are in `repair`. A check writes no byte to any member, starts no read repair, learns no
//! checksum, and ejects no member, whatever it finds.
//!
//! Mismatches are counted as md counts them. At levels with parity: 8 sectors for a row that violates any of
//! the available equations. For copies: one unit for each copy that differs from the first, where a unit is
//! 64 KiB, or a chunk or a bitmap chunk when that is less.
//!
//! Facts: `drivers/md/raid5.c` (`handle_parity_checks5`, `handle_parity_checks6`), `raid1.c`
//! (`process_checks`), `raid10.c` (`sync_request_write`).

use crate::base::buffer::Block;
use crate::base::range_lock::RangeGuard;
use crate::control::state::Control;
use crate::control::sweep::doubt::is_zeros;
use crate::control::sweep::findings::{ArrayPart, Finding, FindingVerdict, Findings, MemberPart, Outcome, ScrubAction};
use crate::control::sweep::purpose::Tally;
use crate::control::sweep::rows::{ComparedRow, Comparison, SuspectRow};
use crate::control::sweep::scrub::COPIES_UNIT_BYTES;
use crate::data::runs::{OnReadError, Run, Runs, merged};
use crate::plan::ROW_BYTES;
use crate::plan::diagnose::{BlockEvidence, Indices, StripeRow, Verdict, judge_copies, truth};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use format::geometry::{Mapping, Parity, Role, Stripe};
use format::units::{ArrayByte, ComponentByte, SECTOR_BYTES, Slot};
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes compared at a time in the common case: they fit the processor's cache.
const PART_BYTES: u64 = 64 << 10;

/// Sizes of the parts in which a failed transfer is read again.
const RETRY_BYTES: [u64; 2] = [64 << 10, ROW_BYTES];

/// Reconstructs a block of a row, by its index, from the blocks that are not listed as wrong.
type Solver<'a> = dyn Fn(usize, &[usize]) -> Option<Vec<u8>> + 'a;

impl<M: Member, C: Clock> Control<M, C> {
    /// Compares a window of positions, and repairs what the scrub's action repairs.
    pub(super) async fn scrub_window(&self, range: &Range<u64>) -> Result<Tally, ArrayError> {
        let action = self.scrub_action();
        let mut found = Findings::default();
        let comparison = {
            let _lock = self.keep_writes_off(range).await;
            let comparison = self.compare(range, ScrubAction::Check).await;
            match action {
                ScrubAction::Check if !mutant!("check-learns") => {
                    found.counts.unknown = self.data.count_without_checksum(&comparison.sound).await
                }
                ScrubAction::Check => found.counts.learned = self.data.record_checksums_of(&comparison.sound).await,
                ScrubAction::Repair | ScrubAction::RepairParity => {
                    found.counts.learned = self.data.record_checksums_of(&comparison.sound).await;
                }
            }
            comparison
        };
        found.counts.mismatch_cnt = comparison.mismatch_cnt;
        match action {
            ScrubAction::Check => {
                comparison.suspects.iter().for_each(|suspect| found.add(self.finding(suspect, Outcome::Left)));
            }
            ScrubAction::Repair | ScrubAction::RepairParity => {
                self.repair_rows(comparison.suspects, action, &mut found).await?;
            }
        }
        Ok(Tally { compared: range.end - range.start, rewritten: 0, found })
    }

    /// Blocks writes, but not reads, of what a range of positions covers.
    pub(super) async fn keep_writes_off(&self, range: &Range<u64>) -> RangeGuard<'_> {
        let covered = self.locked_by(range);
        self.core.locks.shared(covered).await
    }

    /// Blocks all writes and other locked reads of a range of positions. Direct reads take no lock.
    pub(super) async fn keep_all_off(&self, range: &Range<u64>) -> RangeGuard<'_> {
        let covered = self.locked_by(range);
        self.core.locks.exclusive(covered).await
    }

    /// The range to lock for a range of positions. Coalesced writes there are sent out.
    fn locked_by(&self, range: &Range<u64>) -> Range<u64> {
        let locks = self.core.personality().locks(range);
        self.data.coalescer.close_within(&locks);
        locks
    }

    /// [`Control::compare`] at levels with parity.
    pub(super) async fn compare_stripes(&self, parity: &Parity, range: &Range<u64>, action: ScrubAction) -> Comparison {
        let mut comparison = Comparison::default();
        let run = |slot| Run { slot: Slot(slot), range: range.clone() };
        let runs = self.read_thoroughly((0..parity.slots()).map(run).collect()).await;
        for (stripe, part) in parity.parts(range) {
            match self.sound_stripe(&stripe, &part, &runs) {
                Some(blocks) if self.has_checksums() => {
                    let sound = stripe.slots().zip(blocks).map(|(slot, block)| (slot, part.start, block));
                    comparison.sound.extend(sound);
                }
                Some(_) => {}
                None => self.judge_stripe(&stripe, &part, &runs, action, &mut comparison),
            }
        }
        comparison
    }

    /// Reads all that can be read: of a failed transfer, smaller and smaller parts. No byte is read twice.
    async fn read_thoroughly(&self, runs: Vec<Run>) -> Runs {
        let unread = if self.scrub_action() == ScrubAction::Check && !mutant!("check-heals") {
            OnReadError::Leave
        } else {
            OnReadError::RepairMedium
        };
        let mut read = self.data.read_runs_as(self.readable(runs, None), unread).await;
        for bytes in RETRY_BYTES {
            let failed = read.take_failed(bytes);
            if !failed.is_empty() {
                read.extend(self.data.read_runs_as(self.readable(failed, Some(bytes)), unread).await);
            }
        }
        read
    }

    /// The readable parts of `runs`, in parts of at most `bytes_max` bytes.
    fn readable(&self, runs: Vec<Run>, bytes_max: Option<u64>) -> Vec<Run> {
        let mut parts = Vec::new();
        for Run { slot, range } in runs {
            let Some(device) = self.core.device(slot) else { continue };
            let is_whole = device.is_readable(range.clone());
            let step = bytes_max.unwrap_or(if is_whole { range.end - range.start } else { ROW_BYTES });
            let starts = (range.start..range.end).step_by(step as usize);
            let pieces = starts.map(|start| start..range.end.min(start + step));
            let pieces = pieces.filter(|piece| is_whole || device.is_readable(piece.clone()));
            let pieces = pieces.map(|range| Run { slot, range });
            match bytes_max {
                Some(_) => parts.extend(pieces),
                None => parts.extend(merged(pieces.collect())),
            }
        }
        parts
    }

    /// All blocks of a part of one stripe, in the order of the roles, if all were read and agree.
    fn sound_stripe(&self, stripe: &Stripe, part: &Range<u64>, runs: &Runs) -> Option<SmallVec<[Block; 32]>> {
        let blocks: SmallVec<[Block; 32]> = stripe.slots().map(|slot| runs.get(slot, part)).collect::<Option<_>>()?;
        let length = blocks[0].len();
        let is_sound = (0..length).step_by(PART_BYTES as usize).all(|start| {
            let slice = |block: &Block| block.slice(start..length.min(start + PART_BYTES as usize));
            let (data, parities) = blocks.split_at(usize::from(stripe.data_chunks()));
            let data: SmallVec<[Block; 32]> = data.iter().map(slice).collect();
            let right = self.parity_of(stripe, &data);
            right.iter().zip(parities).all(|(right, found)| right[..] == slice(found)[..])
        });
        is_sound.then_some(blocks)
    }

    fn judge_stripe(
        &self,
        stripe: &Stripe,
        part: &Range<u64>,
        runs: &Runs,
        action: ScrubAction,
        comparison: &mut Comparison,
    ) {
        for at in (part.start..part.end).step_by(ROW_BYTES as usize) {
            let bytes = ROW_BYTES.min(part.end - at);
            let places = stripe.slots().map(|slot| (slot, at)).collect();
            let row = ComparedRow { stripe: Some(*stripe), at, bytes, places };
            if !self.judge(row, runs, action, comparison) {
                comparison.mismatch_cnt += ROW_BYTES / SECTOR_BYTES;
            }
        }
    }

    /// [`Control::compare`] at levels without parity.
    pub(super) async fn compare_copies(
        &self,
        mapping: &Mapping,
        range: &Range<u64>,
        action: ScrubAction,
    ) -> Comparison {
        let mut comparison = Comparison::default();
        let pieces: Vec<_> = mapping.pieces(ArrayByte(range.start), range.end - range.start).collect();
        let run = |(slot, at): (Slot, u64), bytes| Run { slot, range: at..at + bytes };
        let copies =
            pieces.iter().flat_map(|piece| piece.copies.iter().map(|&(slot, at)| run((slot, at.0), piece.bytes)));
        let runs = self.read_thoroughly(merged(copies.collect())).await;
        let unit = self.copies_unit(mapping);
        for piece in &pieces {
            let ends = |at: u64| ((at / unit + 1) * unit).min(piece.at.0 + piece.bytes);
            let mut at = piece.at.0;
            while at < piece.at.0 + piece.bytes {
                let row = |at: u64, end: u64| ComparedRow {
                    stripe: None,
                    at,
                    bytes: end - at,
                    places: piece.copies.iter().map(|&(slot, start)| (slot, start.0 + (at - piece.at.0))).collect(),
                };
                let end = ends(at);
                let unlike = self.compare_unit(&row, at..end, &runs, action, &mut comparison);
                comparison.mismatch_cnt += unlike;
                at = end;
            }
        }
        comparison
    }

    /// The unit in which md compares copies.
    fn copies_unit(&self, mapping: &Mapping) -> u64 {
        let of_bitmap = self.metadata.intent().map_or(u64::MAX, |intent| intent.status().chunk_bytes);
        let chunk = if mapping.chunk_bytes() == 0 { u64::MAX } else { mapping.chunk_bytes() };
        COPIES_UNIT_BYTES.min(chunk).min(of_bitmap)
    }

    /// Compares one unit of copies; returns what it adds to md's count.
    fn compare_unit(
        &self,
        row: &dyn Fn(u64, u64) -> ComparedRow,
        range: Range<u64>,
        runs: &Runs,
        action: ScrubAction,
        comparison: &mut Comparison,
    ) -> u64 {
        let whole = row(range.start, range.end);
        let blocks = self.blocks_of(&whole, runs);
        let mut read = blocks.iter().flatten();
        let first = read.next();
        let different = read.filter(|block| first.is_none_or(|first| first[..] != block[..])).count() as u64;
        // A checksum mismatch counts as a differing copy: md, which can read the block, finds it.
        let is_refuted = |&(&(slot, at), block): &(&(Slot, u64), &Option<Block>)| {
            let error = || runs.error(slot, &(at..at + whole.bytes)).map(|error| error.kind);
            block.is_none() && error() == Some(MemberErrorKind::Corrupt)
        };
        let refuted = whole.places.iter().zip(&blocks).filter(is_refuted).count() as u64;
        let unlike = different + refuted.saturating_sub(u64::from(first.is_none()));
        if different == 0 && blocks.len() > 1 && blocks.iter().all(Option::is_some) && self.has_checksums() {
            let places = whole.places.iter().zip(blocks.into_iter().flatten());
            comparison.sound.extend(places.map(|(&(slot, at), block)| (slot, at, block)));
        } else if different > 0 || blocks.iter().any(Option::is_none) {
            for at in (range.start..range.end).step_by(ROW_BYTES as usize) {
                self.judge(row(at, range.end.min(at + ROW_BYTES)), runs, action, comparison);
            }
        }
        unlike * (whole.bytes / SECTOR_BYTES)
    }

    /// The blocks read of each place of a row.
    fn blocks_of(&self, row: &ComparedRow, runs: &Runs) -> SmallVec<[Option<Block>; 8]> {
        row.places.iter().map(|&(slot, at)| runs.get(slot, &(at..at + row.bytes))).collect()
    }

    /// The evidence that a block gives. This is the only place that adds to a block's bytes what else is
    /// known of it.
    fn evidence_of<'a>(
        &self,
        slot: Slot,
        range: &Range<u64>,
        block: Option<&'a Block>,
        runs: &Runs,
    ) -> BlockEvidence<'a> {
        let device = self.core.device(slot);
        if let Some(block) = block {
            let is_whole = (range.start | range.end).is_multiple_of(ROW_BYTES);
            let at = ComponentByte(range.start);
            return match device.is_some_and(|device| is_whole && device.vouches_for(at, ROW_BYTES)) {
                true => BlockEvidence::Verified(block),
                false => BlockEvidence::Unverified(block),
            };
        }
        let is_expected = device.is_some_and(|device| device.is_readable(range.clone()));
        match runs.error(slot, range).map(|error| error.kind) {
            _ if !is_expected => BlockEvidence::Absent,
            Some(MemberErrorKind::Corrupt) => BlockEvidence::Mismatched(None),
            _ => BlockEvidence::Unreadable,
        }
    }

    /// Judges a row. Returns whether it agrees as far as md would see; a block with a checksum mismatch does
    /// not.
    fn judge(&self, row: ComparedRow, runs: &Runs, action: ScrubAction, comparison: &mut Comparison) -> bool {
        let blocks = self.blocks_of(&row, runs);
        let evidence: SmallVec<[BlockEvidence<'_>; 32]> = row
            .places
            .iter()
            .zip(&blocks)
            .map(|(&(slot, at), block)| self.evidence_of(slot, &(at..at + row.bytes), block.as_ref(), runs))
            .collect();
        let present = evidence.iter().map(|block| *block != BlockEvidence::Absent).collect();
        // With nothing left to compare, md compares nothing.
        let absent = evidence.iter().filter(|block| **block == BlockEvidence::Absent).count();
        let is_compared = |stripe: &Stripe| absent < stripe.parity_roles().count();
        let is_refuted = evidence.contains(&BlockEvidence::Mismatched(None));
        let (verdict, agrees, fixes) = match &row.stripe {
            Some(stripe) => {
                let judged = StripeRow { exponents: stripe.exponents().collect(), evidence };
                let solved = |index, blocks: &[usize]| judged.solved(self.core.info.kernel, index, blocks);
                let verdict = self.unless_contradicted(&row, judged.judge(self.core.info.kernel), &solved);
                let fixes = self.fixes_of_stripe(&row, &judged, &verdict, action);
                (verdict, !(is_refuted && is_compared(stripe)) && judged.agrees(self.core.info.kernel), fixes)
            }
            None => {
                let right = truth(&evidence).map(|(bytes, _)| bytes);
                let solved = |_: usize, _: &[usize]| right.map(<[u8]>::to_vec);
                let verdict = self.unless_contradicted(&row, judge_copies(&evidence), &solved);
                let fixes = self.fixes_of_copies(&row, &evidence, &verdict, action);
                (verdict, true, fixes)
            }
        };
        if verdict != Verdict::Sound {
            let zeros = blocks.iter().map(|block| block.as_ref().is_some_and(is_zeros)).collect();
            comparison.suspects.push(SuspectRow { row, verdict, present, zeros, fixes });
        }
        agrees
    }

    /// Changes a verdict when the reconstructed block does not match its own checksum. Then another block is
    /// wrong too, and the row is lost.
    fn unless_contradicted(&self, row: &ComparedRow, verdict: Verdict, solved: &Solver<'_>) -> Verdict {
        let Verdict::Wrong { blocks, .. } = &verdict else { return verdict };
        let is_contradicted = |&index: &usize| {
            let ((slot, at), Some(right)) = (row.places[index], solved(index, blocks)) else { return false };
            self.core.device(slot).is_some_and(|device| !device.takes(ComponentByte(at), &right))
        };
        let contradicted: Indices = blocks.iter().copied().filter(is_contradicted).collect();
        if contradicted.is_empty() { verdict } else { Verdict::Lost { blocks: contradicted } }
    }

    /// The finding that describes a row.
    pub(super) fn finding(&self, suspect: &SuspectRow, outcome: Outcome) -> Finding {
        let SuspectRow { row, verdict, present, zeros, .. } = suspect;
        let (verdict, blocks) = match verdict {
            Verdict::Wrong { blocks, by } => (FindingVerdict::Decided(*by), blocks.clone()),
            Verdict::Lost { blocks } => (FindingVerdict::Lost, blocks.clone()),
            Verdict::Sound | Verdict::Undecidable => {
                let present = (0..row.places.len()).filter(|index| present[*index]);
                (FindingVerdict::Undecidable, present.collect())
            }
        };
        let members = blocks.iter().map(|&index| self.member_part(row, index, zeros[index])).collect();
        let doubtful = |index: &usize| verdict == FindingVerdict::Undecidable || blocks.contains(index);
        let array = self.array_parts(row, &doubtful);
        Finding { stripe: row.stripe.map(|stripe| stripe.number()), verdict, outcome, members, array, rows: 1 }
    }

    fn member_part(&self, row: &ComparedRow, index: usize, is_zeros: bool) -> MemberPart {
        let (slot, at) = row.places[index];
        let device = self.core.device(slot);
        let role = match row.stripe.map(|stripe| stripe.role_of(slot)) {
            None => "copy",
            Some(Role::Data(_)) => "data",
            Some(Role::P) => "p",
            Some(Role::Q) => "q",
        };
        MemberPart {
            name: device.as_ref().map(|device| device.name.clone()).unwrap_or_default(),
            slot: slot.0,
            role: role.to_owned(),
            member_at: device.map_or(0, |device| device.data_at()) + at,
            bytes: row.bytes,
            zeros: if is_zeros { row.bytes } else { 0 },
        }
    }

    /// The array bytes of the data blocks of a row for which `is_meant` is true.
    fn array_parts(&self, row: &ComparedRow, is_meant: &dyn Fn(&usize) -> bool) -> Vec<ArrayPart> {
        let data = self.core.personality().data_of_row(row.at, row.bytes).into_iter().enumerate();
        let is_wanted = |index: &usize| match row.stripe {
            Some(_) => is_meant(index),
            None => true, // the data is the same on all copies
        };
        let wanted = data.filter(|(index, _)| is_wanted(index));
        wanted.map(|(_, part)| ArrayPart { at: part.start, bytes: part.end - part.start }).collect()
    }
}

impl Runs {
    /// Removes failed transfers that are longer than `bytes`, to be tried in parts.
    fn take_failed(&mut self, bytes: u64) -> Vec<Run> {
        let is_to_retry = |(run, read): &mut (Run, Result<Block, Option<MemberError>>)| {
            matches!(read, Err(Some(_))) && run.range.end - run.range.start > bytes
        };
        self.0.extract_if(.., is_to_retry).map(|(run, _)| run).collect()
    }

    fn extend(&mut self, more: Runs) {
        self.0.extend(more.0);
    }
}
