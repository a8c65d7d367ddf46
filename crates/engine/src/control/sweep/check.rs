//! A scrub's windows: everything of the members is read once and compared.
//!
//! A window in which all members were read and agree is compared in long parts.
//! What does not agree, or could not be read, is looked at row by row (4 KiB of
//! each member), and each row's [`Verdict`] explained. Writes are kept off meanwhile;
//! reads are not. Healing is `repair`'s part: a check writes no byte of any member, has nothing healed, learns no
//! checksum, and makes no member leave, whatever it finds.
//!
//! Counted as md counts: at levels with parity 8 sectors for a row that does not
//! obey the equations left; of copies a unit of 64 KiB (or a chunk, or a chunk of
//! the bitmap, when that is less) for each copy that differs from the first.
//!
//! Facts: `drivers/md/raid5.c` (`handle_parity_checks5`, `handle_parity_checks6`),
//! `raid1.c` (`process_checks`), `raid10.c` (`sync_request_write`).

use crate::base::buffer::Block;
use crate::base::range_lock::RangeGuard;
use crate::control::Control;
use crate::control::sweep::Tally;
use crate::control::sweep::findings::{ArrayPart, Finding, FindingVerdict, Findings, MemberPart, Outcome, ScrubAction};
use crate::control::sweep::repair::Fix;
use crate::control::sweep::scrub::COPIES_UNIT_BYTES;
use crate::data::rebuild::{by_stripe, exponents, roles, slot_of};
use crate::data::runs::{Run, Runs, Unread, merged};
use crate::plan::diagnose::{BlockEvidence, Indices, StripeRow, Verdict, judge_copies, truth};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::{Member, MemberError, MemberErrorKind};
use format::geometry::{Geometry, Mapping, Parity, Role, Stripe};
use format::units::{ArrayByte, ComponentByte, SECTOR_BYTES, Slot};
use smallvec::SmallVec;
use std::ops::Range;

/// What is judged at a time, of each member.
pub(super) const ROW_BYTES: u64 = 4096;

/// What is compared at a time while all is well: it stays in the processor's cache.
const PART_BYTES: u64 = 64 << 10;

/// What is read again of a transfer that failed, to find what can be had of it.
const RETRY_BYTES: [u64; 2] = [64 << 10, ROW_BYTES];

/// Bytes of several members that belong together: at most [`ROW_BYTES`] of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Its stripe, at levels with parity.
    pub(super) stripe: Option<Stripe>,
    /// Where it begins: a position of the sweep.
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Slot and component byte of each witness: data, P, Q in order; or the copies.
    pub(super) places: SmallVec<[(Slot, u64); 8]>,
}

/// A row in which something is wrong.
pub(super) struct Suspect {
    pub(super) row: Row,
    pub(super) verdict: Verdict,
    /// Who was there to be asked.
    pub(super) present: SmallVec<[bool; 8]>,
    /// What would make it right.
    pub(super) fixes: Vec<Fix>,
}

/// What a block of a row should be, by its index, from the others without those that are wrong.
type Solved<'a> = dyn Fn(usize, &[usize]) -> Option<Vec<u8>> + 'a;

/// What a look at a window found.
#[derive(Default)]
pub(super) struct Look {
    pub(super) suspects: Vec<Suspect>,
    pub(super) mismatch_cnt: u64,
    /// What all members gave and agree on: slot, component byte and contents.
    sound: Vec<(Slot, u64, Block)>,
}

impl Look {
    /// What all members gave and agree on: slot, component byte and contents.
    pub(super) fn sound(&self) -> &[(Slot, u64, Block)] {
        &self.sound
    }
}

impl<M: Member, C: Clock> Control<M, C> {
    /// Compares a window of positions, and heals what the scrub is to heal.
    pub(super) async fn scrub_window(&self, range: &Range<u64>) -> Result<Tally, ArrayError> {
        let action = self.scrub_action();
        let mut found = Findings::default();
        let look = {
            let _lock = self.keep_writes_off(range).await;
            let look = self.look(range, ScrubAction::Check).await;
            match action {
                ScrubAction::Check if !mutant!("check-learns") => {
                    found.counts.unknown = self.data.count_unknown(&look.sound).await
                }
                ScrubAction::Check => found.counts.learned = self.data.learn_parts(&look.sound).await,
                ScrubAction::Repair | ScrubAction::RepairParity => {
                    found.counts.learned = self.data.learn_parts(&look.sound).await;
                }
            }
            look
        };
        found.counts.mismatch_cnt = look.mismatch_cnt;
        match action {
            ScrubAction::Check => {
                look.suspects.iter().for_each(|suspect| found.add(self.finding(suspect, Outcome::Left)));
            }
            ScrubAction::Repair | ScrubAction::RepairParity => {
                self.heal(look.suspects, action, &mut found).await?;
            }
        }
        Ok(Tally { compared: range.end - range.start, mended: 0, found })
    }

    /// Keeps writes, not reads, off what a range of positions covers.
    pub(super) async fn keep_writes_off(&self, range: &Range<u64>) -> RangeGuard<'_> {
        let covered = self.locked_by(range);
        self.core.locks.shared(covered).await
    }

    /// Keeps everybody else off it.
    pub(super) async fn keep_all_off(&self, range: &Range<u64>) -> RangeGuard<'_> {
        let covered = self.locked_by(range);
        self.core.locks.exclusive(covered).await
    }

    /// What to lock for a range of positions; writes that are gathered there are let go.
    fn locked_by(&self, range: &Range<u64>) -> Range<u64> {
        match self.core.geometry() {
            Geometry::Parity(parity) => {
                let chunk = parity.chunk_bytes();
                let stripes = range.start / chunk..range.end.div_ceil(chunk);
                self.data.gathering.close_within(&stripes);
                stripes
            }
            Geometry::Mapping(_) => range.clone(),
        }
    }

    /// Reads a range of positions and judges it; for an action that heals, with what would heal it.
    /// The caller keeps writes off.
    pub(super) async fn look(&self, range: &Range<u64>, action: ScrubAction) -> Look {
        let mut look = Look::default();
        match self.core.geometry() {
            Geometry::Parity(parity) => {
                let run = |slot| Run { slot: Slot(slot), range: range.clone() };
                let runs = self.read_thoroughly((0..parity.slots()).map(run).collect()).await;
                for (stripe, part) in by_stripe(parity, range) {
                    match self.sound_stripe(parity, &stripe, &part, &runs) {
                        Some(blocks) if self.has_checksums() => {
                            let slots = roles(parity).map(|role| slot_of(&stripe, role));
                            look.sound.extend(slots.zip(blocks).map(|(slot, block)| (slot, part.start, block)));
                        }
                        Some(_) => {}
                        None => self.look_at_stripe(parity, &stripe, &part, &runs, action, &mut look),
                    }
                }
            }
            Geometry::Mapping(mapping) => self.look_at_copies(mapping, range, action, &mut look).await,
        }
        look
    }

    /// Reads what can be read: of a transfer that fails, smaller and smaller parts. No byte
    /// that was read is read again.
    async fn read_thoroughly(&self, runs: Vec<Run>) -> Runs {
        let unread = if self.scrub_action() == ScrubAction::Check && !mutant!("check-heals") {
            Unread::Left
        } else {
            Unread::HealedOfMedium
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

    /// The parts of `runs` that can be asked for, in parts of at most so many bytes.
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

    /// All of one stripe's part, in the order of the roles, if it was read and agrees; else it is looked at closely.
    fn sound_stripe(
        &self,
        parity: &Parity,
        stripe: &Stripe,
        part: &Range<u64>,
        runs: &Runs,
    ) -> Option<SmallVec<[Block; 32]>> {
        let blocks: SmallVec<[Block; 32]> =
            roles(parity).map(|role| runs.get(slot_of(stripe, role), part)).collect::<Option<_>>()?;
        let length = blocks[0].len();
        let is_sound = (0..length).step_by(PART_BYTES as usize).all(|start| {
            let slice = |block: &Block| block.slice(start..length.min(start + PART_BYTES as usize));
            let (data, parities) = blocks.split_at(usize::from(parity.data_chunks()));
            let data: SmallVec<[Block; 32]> = data.iter().map(slice).collect();
            let right = self.parity_of(parity, stripe, &data);
            right.iter().zip(parities).all(|(right, found)| right[..] == slice(found)[..])
        });
        is_sound.then_some(blocks)
    }

    fn look_at_stripe(
        &self,
        parity: &Parity,
        stripe: &Stripe,
        part: &Range<u64>,
        runs: &Runs,
        action: ScrubAction,
        look: &mut Look,
    ) {
        for at in (part.start..part.end).step_by(ROW_BYTES as usize) {
            let bytes = ROW_BYTES.min(part.end - at);
            let places = roles(parity).map(|role| (slot_of(stripe, role), at)).collect();
            let row = Row { stripe: Some(*stripe), at, bytes, places };
            if !self.judge(row, runs, action, look) {
                look.mismatch_cnt += ROW_BYTES / SECTOR_BYTES;
            }
        }
    }

    async fn look_at_copies(&self, mapping: &Mapping, range: &Range<u64>, action: ScrubAction, look: &mut Look) {
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
                let row = |at: u64, end: u64| Row {
                    stripe: None,
                    at,
                    bytes: end - at,
                    places: piece.copies.iter().map(|&(slot, start)| (slot, start.0 + (at - piece.at.0))).collect(),
                };
                let end = ends(at);
                look.mismatch_cnt += self.look_at_unit(&row, at..end, &runs, action, look);
                at = end;
            }
        }
    }

    /// What md compares at a time.
    fn copies_unit(&self, mapping: &Mapping) -> u64 {
        let of_bitmap = self.metadata.intent().map_or(u64::MAX, |intent| intent.status().chunk_bytes);
        let chunk = if mapping.chunk_bytes() == 0 { u64::MAX } else { mapping.chunk_bytes() };
        COPIES_UNIT_BYTES.min(chunk).min(of_bitmap)
    }

    /// Looks at one unit of copies; what it adds to md's count.
    fn look_at_unit(
        &self,
        row: &dyn Fn(u64, u64) -> Row,
        range: Range<u64>,
        runs: &Runs,
        action: ScrubAction,
        look: &mut Look,
    ) -> u64 {
        let whole = row(range.start, range.end);
        let blocks = self.hear(&whole, runs);
        let mut read = blocks.iter().flatten();
        let first = read.next();
        let different = read.filter(|block| first.is_none_or(|first| first[..] != block[..])).count() as u64;
        // What is not what its checksum says is another than the rest: md, which reads it, finds that.
        let is_refuted = |&(&(slot, at), block): &(&(Slot, u64), &Option<Block>)| {
            let error = || runs.error(slot, &(at..at + whole.bytes)).map(|error| error.kind);
            block.is_none() && error() == Some(MemberErrorKind::Corrupt)
        };
        let refuted = whole.places.iter().zip(&blocks).filter(is_refuted).count() as u64;
        let unlike = different + refuted.saturating_sub(u64::from(first.is_none()));
        if different == 0 && blocks.len() > 1 && blocks.iter().all(Option::is_some) && self.has_checksums() {
            let places = whole.places.iter().zip(blocks.into_iter().flatten());
            look.sound.extend(places.map(|(&(slot, at), block)| (slot, at, block)));
        } else if different > 0 || blocks.iter().any(Option::is_none) {
            for at in (range.start..range.end).step_by(ROW_BYTES as usize) {
                self.judge(row(at, range.end.min(at + ROW_BYTES)), runs, action, look);
            }
        }
        unlike * (whole.bytes / SECTOR_BYTES)
    }

    /// What was read of each place of a row.
    fn hear(&self, row: &Row, runs: &Runs) -> SmallVec<[Option<Block>; 8]> {
        row.places.iter().map(|&(slot, at)| runs.get(slot, &(at..at + row.bytes))).collect()
    }

    /// What a block is as a witness. The one place that knows more of a block than its bytes.
    fn witness<'a>(&self, slot: Slot, range: &Range<u64>, block: Option<&'a Block>, runs: &Runs) -> BlockEvidence<'a> {
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

    /// Judges a row; whether what is there agrees, as far as md would see: a block that is not what its checksum says does not.
    fn judge(&self, row: Row, runs: &Runs, action: ScrubAction, look: &mut Look) -> bool {
        let blocks = self.hear(&row, runs);
        let evidence: SmallVec<[BlockEvidence<'_>; 32]> = row
            .places
            .iter()
            .zip(&blocks)
            .map(|(&(slot, at), block)| self.witness(slot, &(at..at + row.bytes), block.as_ref(), runs))
            .collect();
        let present = evidence.iter().map(|witness| *witness != BlockEvidence::Absent).collect();
        // Where nothing is left to compare with, md compares nothing.
        let absent = evidence.iter().filter(|witness| **witness == BlockEvidence::Absent).count();
        let is_compared = |parity: &Parity| absent < usize::from(parity.slots() - parity.data_chunks());
        let is_refuted = evidence.contains(&BlockEvidence::Mismatched(None));
        let (verdict, agrees, fixes) = match (&row.stripe, self.core.geometry()) {
            (Some(stripe), Geometry::Parity(parity)) => {
                let judged = StripeRow { exponents: exponents(parity, stripe), evidence };
                let solved = |index, blocks: &[usize]| judged.solved(self.core.info.kernel, index, blocks);
                let verdict = self.unless_contradicted(&row, judged.judge(self.core.info.kernel), &solved);
                let fixes = self.fixes_of_stripe(&row, &judged, &verdict, action);
                (verdict, !(is_refuted && is_compared(parity)) && judged.agrees(self.core.info.kernel), fixes)
            }
            _ => {
                let right = truth(&evidence).map(|(bytes, _)| bytes);
                let solved = |_: usize, _: &[usize]| right.map(<[u8]>::to_vec);
                let verdict = self.unless_contradicted(&row, judge_copies(&evidence), &solved);
                let fixes = self.fixes_of_copies(&row, &evidence, &verdict, action);
                (verdict, true, fixes)
            }
        };
        if verdict != Verdict::Sound {
            look.suspects.push(Suspect { row, verdict, present, fixes });
        }
        agrees
    }

    /// Where the others make of a wrong block what its own checksum contradicts, one of them is wrong too, and
    /// nothing says what it should be.
    fn unless_contradicted(&self, row: &Row, verdict: Verdict, solved: &Solved<'_>) -> Verdict {
        let Verdict::Wrong { blocks, .. } = &verdict else { return verdict };
        let is_contradicted = |&index: &usize| {
            let ((slot, at), Some(right)) = (row.places[index], solved(index, blocks)) else { return false };
            self.core.device(slot).is_some_and(|device| !device.takes(ComponentByte(at), &right))
        };
        let contradicted: Indices = blocks.iter().copied().filter(is_contradicted).collect();
        if contradicted.is_empty() { verdict } else { Verdict::Lost { blocks: contradicted } }
    }

    /// A row's finding, for a person.
    pub(super) fn finding(&self, suspect: &Suspect, outcome: Outcome) -> Finding {
        let Suspect { row, verdict, present, .. } = suspect;
        let (verdict, blocks) = match verdict {
            Verdict::Wrong { blocks, by } => (FindingVerdict::Decided(*by), blocks.clone()),
            Verdict::Lost { blocks } => (FindingVerdict::Lost, blocks.clone()),
            Verdict::Sound | Verdict::Undecidable => {
                let present = (0..row.places.len()).filter(|index| present[*index]);
                (FindingVerdict::Undecidable, present.collect())
            }
        };
        let members = blocks.iter().map(|&index| self.member_part(row, index)).collect();
        let doubtful = |index: &usize| verdict == FindingVerdict::Undecidable || blocks.contains(index);
        let array = self.array_parts(row, &doubtful);
        Finding { stripe: row.stripe.map(|stripe| stripe.number()), verdict, outcome, members, array, rows: 1 }
    }

    fn member_part(&self, row: &Row, index: usize) -> MemberPart {
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
            member_at: device.map_or(0, |device| device.data_at) + at,
            bytes: row.bytes,
        }
    }

    /// The bytes of the array that the evidence of a row hold of which `is_meant` is true.
    fn array_parts(&self, row: &Row, is_meant: &dyn Fn(&usize) -> bool) -> Vec<ArrayPart> {
        match (&row.stripe, self.core.geometry()) {
            (Some(stripe), Geometry::Parity(parity)) => {
                let start = stripe.number() * parity.stripe_bytes() + (row.at - stripe.component().0);
                let data = (0..usize::from(parity.data_chunks())).filter(is_meant);
                let at = |index: usize| start + index as u64 * parity.chunk_bytes();
                data.map(|index| ArrayPart { at: at(index), bytes: row.bytes }).collect()
            }
            _ => vec![ArrayPart { at: row.at, bytes: row.bytes }],
        }
    }
}

impl Runs {
    /// Takes out what failed and is longer than `bytes`, to be tried in parts.
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
