//! Repairs what a scrub found, as far as its action allows.
//!
//! A row is repaired only under a lock that blocks reads and writes of its stripe. Under that lock it is read
//! and judged again, as a request may have written meanwhile. Repaired blocks are read back. An undecidable
//! row stays untouched, unless the user asked for md's choice.
//!
//! Facts: md's choice is that of `raid5.c` (`handle_parity_checks5`) and `raid1.c` (`process_checks`).

use crate::control::state::Control;
use crate::control::sweep::findings::{Findings, Outcome, ScrubAction};
use crate::control::sweep::rows::{ComparedRow, Fix, SuspectRow};
use crate::core::authority::Marked;
use crate::data::runs::Run;
use crate::plan::diagnose::{BlockEvidence, StripeRow, Verdict, truth};
use crate::seam::clock::Clock;
use crate::seam::error::ArrayError;
use crate::seam::member::Member;
use format::geometry::Role;
use parity::Symbol;
use std::ops::Range;

const _: () = assert!(Role::PARITIES.len() == 2, "this file knows the equations of P and Q alone");

impl<M: Member, C: Clock> Control<M, C> {
    /// Repairs rows as far as `action` allows, and adds the outcome of each to the findings.
    pub(super) async fn repair_rows(
        &self,
        suspects: Vec<SuspectRow>,
        action: ScrubAction,
        found: &mut Findings,
    ) -> Result<(), ArrayError> {
        let is_one_go = |a: &SuspectRow, b: &SuspectRow| {
            a.row.stripe == b.row.stripe && (a.row.stripe.is_some() || a.row.at + a.row.bytes == b.row.at)
        };
        for group in suspects.chunk_by(is_one_go) {
            if group.iter().all(|suspect| !is_curable(&suspect.verdict, action)) {
                group.iter().for_each(|suspect| found.add(self.finding(suspect, Outcome::Left)));
                continue;
            }
            self.repair_group(group, action, found).await?;
        }
        Ok(())
    }

    async fn repair_group(
        &self,
        group: &[SuspectRow],
        action: ScrubAction,
        found: &mut Findings,
    ) -> Result<(), ArrayError> {
        let (first, last) = (&group[0].row, &group[group.len() - 1].row);
        let range = first.at..last.at + last.bytes;
        let _lock = self.keep_all_off(&range).await;
        let again = self.compare(&range, action).await.suspects;
        for gone in group.iter().filter(|before| again.iter().all(|suspect| suspect.row != before.row)) {
            found.add(self.finding(gone, Outcome::Gone));
        }
        let fixes: Vec<Fix> = again.iter().flat_map(|suspect| suspect.fixes.iter().cloned()).collect();
        if !fixes.is_empty() {
            self.write_fixes(&range, fixes).await?;
        }
        for suspect in &again {
            let outcome = self.outcome(suspect).await;
            found.add(self.finding(suspect, outcome));
        }
        Ok(())
    }

    /// Writes as a request does: the array is marked dirty first, and the cached stripes are dropped.
    async fn write_fixes(&self, range: &Range<u64>, fixes: Vec<Fix>) -> Result<(), ArrayError> {
        let covered = self.core.geometry().array_range(range);
        self.data.invalidate_range(&covered);
        let writes = fixes.into_iter().map(|fix| (fix.slot, fix.at, fix.block)).collect();
        self.data.marked(&covered, async |_: Marked<'_>| self.data.write_runs(writes).await).await
    }

    /// The outcome of a row; written blocks are read back.
    async fn outcome(&self, suspect: &SuspectRow) -> Outcome {
        if suspect.fixes.is_empty() {
            return Outcome::Left;
        }
        let run = |fix: &Fix| Run { slot: fix.slot, range: fix.at..fix.at + fix.block.len() as u64 };
        let read = self.data.read_runs(suspect.fixes.iter().map(run).collect()).await;
        let is_right = |fix: &Fix| read.get(fix.slot, &run(fix).range).is_some_and(|block| block[..] == fix.block[..]);
        match (suspect.fixes.iter().all(is_right), &suspect.verdict) {
            (false, _) => Outcome::Failed,
            (true, Verdict::Wrong { .. }) => Outcome::Healed,
            (true, _) => Outcome::Rewritten,
        }
    }

    /// The writes that correct a row of a stripe, as far as `action` allows.
    pub(super) fn fixes_of_stripe(
        &self,
        row: &ComparedRow,
        judged: &StripeRow<'_>,
        verdict: &Verdict,
        action: ScrubAction,
    ) -> Vec<Fix> {
        if !is_curable(verdict, action) {
            return Vec::new();
        }
        let data = judged.exponents.len();
        let (blocks, without): (Vec<usize>, Vec<usize>) = match verdict {
            Verdict::Wrong { blocks, .. } => (blocks.to_vec(), blocks.to_vec()),
            // md's choice: parity is recomputed from the data.
            _ if judged.evidence[..data].iter().all(|block| block.bytes().is_some()) => {
                let parities: Vec<usize> = (data..judged.evidence.len()).collect();
                let is_there = |index: &usize| judged.evidence[*index] != BlockEvidence::Absent;
                (parities.iter().copied().filter(is_there).collect(), parities)
            }
            _ => match missing_beside_both_parities(&judged.evidence, data) {
                // With a data member missing: its data follows from P, and Q from all the data.
                Some(missing) => {
                    let q = judged.index_of(Symbol::Q);
                    (vec![q], vec![missing, q])
                }
                None => return Vec::new(),
            },
        };
        let fix = |index: usize| {
            let (slot, at) = row.places[index];
            let solved = judged.solved(self.core.info.kernel, index, &without)?;
            Some(Fix { slot, at, block: self.core.pool.copy_of(&solved) })
        };
        blocks.into_iter().map(fix).collect::<Option<_>>().unwrap_or_default()
    }

    /// The writes that correct copies, as far as `action` allows.
    pub(super) fn fixes_of_copies(
        &self,
        row: &ComparedRow,
        evidence: &[BlockEvidence<'_>],
        verdict: &Verdict,
        action: ScrubAction,
    ) -> Vec<Fix> {
        if !is_curable(verdict, action) {
            return Vec::new();
        }
        let right = match verdict {
            Verdict::Wrong { .. } => truth(evidence).map(|(bytes, _)| bytes),
            _ => evidence.iter().find_map(|block| block.bytes()), // md's choice
        };
        let Some(right) = right else { return Vec::new() };
        let block = self.core.pool.copy_of(right);
        let is_wrong = |block: &BlockEvidence<'_>| *block != BlockEvidence::Absent && block.bytes() != Some(right);
        let wrong = row.places.iter().zip(evidence).filter(|(_, block)| is_wrong(block));
        wrong.map(|(&(slot, at), _)| Fix { slot, at, block: block.clone() }).collect()
    }
}

/// The only data chunk with a missing member, where all other chunks and both parities were read.
fn missing_beside_both_parities(evidence: &[BlockEvidence<'_>], data: usize) -> Option<usize> {
    let mut unread = (0..evidence.len()).filter(|&index| evidence[index].bytes().is_none());
    let missing = unread.next().filter(|&index| index < data && evidence[index] == BlockEvidence::Absent)?;
    (unread.next().is_none() && evidence.len() == data + Role::PARITIES.len()).then_some(missing)
}

/// Whether `action` repairs such a verdict.
fn is_curable(verdict: &Verdict, action: ScrubAction) -> bool {
    match (action, verdict) {
        (ScrubAction::Check, _) | (_, Verdict::Sound | Verdict::Lost { .. }) => false,
        (_, Verdict::Wrong { .. }) => true,
        (_, Verdict::Undecidable) => action == ScrubAction::RepairParity,
    }
}
