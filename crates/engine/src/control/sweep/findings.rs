//! What a scrub found: each mismatch explained, and counts of all of them.
//!
//! The report is a plain value: it is shown, printed as JSON (`docs/json.md`),
//! and kept by whoever serves the array so that a scrub goes on after a restart.

use crate::plan::diagnose::Evidence;
use crate::seam::report::MemberChange;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Findings that a report lists; the others are counted.
pub const FINDINGS_LISTED_MAX: usize = 1000;

/// What a scrub does about what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Nothing: no byte is written, and no member leaves for what is found.
    Check,
    /// Blocks that are wrong for certain are made what they should be.
    Repair,
    /// The same; and where nobody can say who is wrong, md's choice: parity is made anew
    /// from the data, the first copy is put over the others.
    RepairParity,
}

impl ScrubAction {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Repair => "repair",
            Self::RepairParity => "repair with md's choice",
        }
    }
}

/// How a scrub is getting on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// To be begun, or gone on with, as soon as nothing more urgent is due.
    Waiting,
    /// Under way.
    Running,
    /// Until its user lets it go on.
    Paused,
    /// It went over everything.
    Complete,
    /// Given up by its user.
    Cancelled,
    /// Given up, because the array is no longer fit for it.
    Failed,
}

impl ScrubState {
    /// Whether there is nothing left to do.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Cancelled | Self::Failed)
    }
}

/// Why a finding is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingVerdict {
    /// The members named are wrong.
    Decided(Evidence),
    /// One of the members named is wrong, or several, and nothing says which.
    Undecidable,
    /// The members named cannot be read or are wrong, and the others cannot make that good.
    Lost,
}

/// What was done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing: it was looked for only, or nothing can be done for certain.
    Left,
    /// The blocks were written, and read back right.
    Healed,
    /// Parity, or all copies but the first, were written over, as md does.
    Rewritten,
    /// A write of somebody else's came first, and made it good.
    Gone,
    /// It was tried, and the blocks still read wrong or their member failed.
    Failed,
}

/// A part of one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPart {
    /// The member's name.
    pub name: String,
    /// Its slot.
    pub slot: u16,
    /// What it holds there: `data`, `p`, `q` or `copy`.
    pub role: String,
    /// The first byte, counted from the start of the member.
    pub member_at: u64,
    /// How many.
    pub bytes: u64,
}

/// A part of the array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPart {
    /// The first byte.
    pub at: u64,
    /// How many.
    pub bytes: u64,
}

/// One mismatch, or several that follow each other and have all in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The number of its stripe, at levels with parity.
    pub stripe: Option<u64>,
    /// Who is wrong.
    pub verdict: FindingVerdict,
    /// What was done.
    pub outcome: Outcome,
    /// The members that are wrong; of what is undecidable, all that may be.
    pub members: Vec<MemberPart>,
    /// The bytes of the array that are wrong, or may be: none where parity is.
    pub array: Vec<ArrayPart>,
    /// Rows of 4 KiB on each member.
    pub rows: u64,
}

impl Finding {
    /// Takes `next` in, if it is the same thing going on.
    fn joins(&mut self, next: &Finding) -> bool {
        let is_same = (self.stripe, self.verdict, self.outcome) == (next.stripe, next.verdict, next.outcome)
            && self.members.len() == next.members.len()
            && self.array.len() == next.array.len();
        let goes_on = |(a, b): (&MemberPart, &MemberPart)| {
            a.slot == b.slot && a.role == b.role && a.member_at + a.bytes == b.member_at
        };
        let is_next = is_same
            && self.members.iter().zip(&next.members).all(goes_on)
            && self.array.iter().zip(&next.array).all(|(a, b)| a.at + a.bytes == b.at);
        if is_next {
            self.members.iter_mut().zip(&next.members).for_each(|(part, more)| part.bytes += more.bytes);
            self.array.iter_mut().zip(&next.array).for_each(|(part, more)| part.bytes += more.bytes);
            self.rows += next.rows;
        }
        is_next
    }
}

/// Wrong blocks of one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCount {
    /// The member's name.
    pub name: String,
    /// Its slot.
    pub slot: u16,
    /// Blocks of 4 KiB that are wrong for certain.
    pub blocks: u64,
}

/// Findings in all. Rows are 4 KiB on each member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScrubCounts {
    /// What md's file of that name would say: sectors, in md's units.
    pub mismatch_cnt: u64,
    /// Blocks whose checksums were not known, and are now: of a repair.
    #[serde(default)]
    pub learned: u64,
    /// Blocks that agree with the others and whose checksums are not known: of a check, which learns none.
    #[serde(default)]
    pub unknown: u64,
    /// Rows in which somebody is wrong and known.
    pub decided: u64,
    /// Rows in which somebody is wrong, and nobody can say who.
    pub undecidable: u64,
    /// Rows in which the members left cannot make good what is wrong.
    pub lost: u64,
    /// Of all these, rows that were healed.
    pub healed: u64,
    /// Rows in which parity, or copies, were written over, as md does.
    pub rewritten: u64,
    /// Rows that were wrong and are not any more, by somebody else's write.
    pub gone: u64,
    /// Rows where healing was tried in vain.
    pub failed: u64,
    /// Wrong blocks by member.
    pub members: Vec<MemberCount>,
}

impl ScrubCounts {
    /// Rows in which anything was found.
    pub fn found(&self) -> u64 {
        self.decided + self.undecidable + self.lost
    }

    /// Rows that are as they were found: not well.
    pub fn left(&self) -> u64 {
        self.found() - self.healed - self.rewritten - self.gone
    }

    fn count(&mut self, finding: &Finding) {
        let rows = finding.rows;
        match finding.verdict {
            FindingVerdict::Decided(_) => self.decided += rows,
            FindingVerdict::Undecidable => self.undecidable += rows,
            FindingVerdict::Lost => self.lost += rows,
        }
        match finding.outcome {
            Outcome::Left => {}
            Outcome::Healed => self.healed += rows,
            Outcome::Rewritten => self.rewritten += rows,
            Outcome::Gone => self.gone += rows,
            Outcome::Failed => self.failed += rows,
        }
        if finding.verdict == FindingVerdict::Undecidable {
            return;
        }
        for part in &finding.members {
            self.count_of(&MemberCount { name: part.name.clone(), slot: part.slot, blocks: rows });
        }
    }

    fn count_of(&mut self, more: &MemberCount) {
        match self.members.iter_mut().find(|count| count.slot == more.slot) {
            Some(count) => count.blocks += more.blocks,
            None => self.members.push(more.clone()),
        }
        self.members.sort_by_key(|count| count.slot);
    }

    fn absorb(&mut self, more: &Self) {
        self.mismatch_cnt += more.mismatch_cnt;
        self.learned += more.learned;
        self.unknown += more.unknown;
        self.decided += more.decided;
        self.undecidable += more.undecidable;
        self.lost += more.lost;
        self.healed += more.healed;
        self.rewritten += more.rewritten;
        self.gone += more.gone;
        self.failed += more.failed;
        more.members.iter().for_each(|count| self.count_of(count));
    }
}

/// Findings, in the order of the sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Findings {
    /// Of all.
    pub counts: ScrubCounts,
    /// The first of them.
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub findings_omitted: u64,
}

impl Findings {
    pub(crate) fn add(&mut self, finding: Finding) {
        self.counts.count(&finding);
        self.list(finding);
    }

    fn list(&mut self, finding: Finding) {
        if self.findings.last_mut().is_some_and(|last| last.joins(&finding)) {
            return;
        }
        match self.findings.len() < FINDINGS_LISTED_MAX {
            true => self.findings.push(finding),
            false => self.findings_omitted += 1,
        }
    }

    /// Takes in what was found behind.
    pub(crate) fn absorb(&mut self, more: Findings) {
        self.counts.absorb(&more.counts);
        self.findings_omitted += more.findings_omitted;
        more.findings.into_iter().for_each(|finding| self.list(finding));
    }
}

/// A scrub that was asked for: how far it is, and what it found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// What it does about what it finds.
    pub action: ScrubAction,
    /// Whether it is over.
    pub state: ScrubState,
    /// Why it failed.
    pub failure: Option<String>,
    /// The bytes of the array that it goes over.
    pub array: Range<u64>,
    /// The same as positions: bytes of each member; of the array for RAID-10.
    pub positions: Range<u64>,
    /// All below this is done.
    pub position: u64,
    /// What it found.
    #[serde(flatten)]
    pub found: Findings,
    /// What became of members since it began: the first of these changes, in their order.
    #[serde(default)]
    pub changes: Vec<MemberChange>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(row: u64, verdict: FindingVerdict) -> Finding {
        let part = MemberPart {
            name: "a".to_owned(),
            slot: 1,
            role: "data".to_owned(),
            member_at: 1 << 20 | row << 12,
            bytes: 4096,
        };
        let array = vec![ArrayPart { at: row << 12, bytes: 4096 }];
        Finding { stripe: Some(3), verdict, outcome: Outcome::Left, members: vec![part], array, rows: 1 }
    }

    #[test]
    fn what_goes_on_is_one_finding_and_what_is_too_much_is_counted() {
        const DECIDED: FindingVerdict = FindingVerdict::Decided(Evidence::Parity);
        let mut findings = Findings::default();
        [0, 1, 2, 5].into_iter().for_each(|row| findings.add(finding(row, DECIDED)));
        findings.add(finding(6, FindingVerdict::Undecidable));
        assert_eq!(findings.findings.iter().map(|finding| finding.rows).collect::<Vec<_>>(), [3, 1, 1]);
        assert_eq!((findings.counts.decided, findings.counts.undecidable), (4, 1));
        assert_eq!(findings.counts.members[0].blocks, 4);
        let mut all = Findings::default();
        (0..FINDINGS_LISTED_MAX as u64 + 7).for_each(|index| all.add(finding(index * 2, DECIDED)));
        assert_eq!((all.findings.len(), all.findings_omitted), (FINDINGS_LISTED_MAX, 7));
        let total = all.counts.found();
        findings.absorb(all);
        assert_eq!(findings.counts.found(), total + 5);
    }
}
