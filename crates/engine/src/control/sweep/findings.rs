//! The report of a scrub: each mismatch explained, and counts of all of them.
//!
//! The report is a plain value. It is shown and printed as JSON (`docs/json.md`), and the server keeps it so
//! that a scrub continues after a restart.

use crate::plan::diagnose::Evidence;
use crate::seam::report::MemberChange;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The most findings that a report lists; others are only counted.
pub const FINDINGS_LISTED_MAX: usize = 1000;

/// What a scrub does about what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// Nothing: no byte is written, and no member is ejected for a finding.
    Check,
    /// Blocks that are certainly wrong are corrected.
    Repair,
    /// The same. Undecidable rows get md's choice: parity is recomputed from the data, and the first copy
    /// overwrites the others.
    RepairParity,
}

impl ScrubAction {
    /// The name in log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Repair => "repair",
            Self::RepairParity => "repair with md's choice",
        }
    }
}

/// The state of a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// Waiting to begin or to continue until nothing more urgent is due.
    Waiting,
    /// Under way.
    Running,
    /// Paused by its user.
    Paused,
    /// It covered the whole range.
    Complete,
    /// Cancelled by its user.
    Cancelled,
    /// Failed, as the array can no longer be scrubbed.
    Failed,
}

impl ScrubState {
    /// Whether the scrub has ended.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Cancelled | Self::Failed)
    }
}

/// The verdict on a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingVerdict {
    /// The members named are wrong.
    Decided(Evidence),
    /// One or several of the members named are wrong, and nothing says which.
    Undecidable,
    /// The members named cannot be read or are wrong, and the others cannot reconstruct their data.
    Lost,
}

/// What was done about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Nothing: the action was a check, or no repair is certain.
    Left,
    /// The blocks were written, and read back right.
    Healed,
    /// Parity, or all copies but the first, were overwritten, as md does.
    Rewritten,
    /// A request's write came first and corrected it.
    Gone,
    /// A repair was tried; the blocks still read wrong, or their member failed.
    Failed,
}

/// A part of one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPart {
    /// The member's name.
    pub name: String,
    /// Its slot.
    pub slot: u16,
    /// The role of these bytes: `data`, `p`, `q` or `copy`.
    pub role: String,
    /// The first byte, counted from the start of the member.
    pub member_at: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Of these, bytes in blocks of zeros: data, or a hole of an image that a copying program left. Of a member that
    /// could not be read, 0.
    #[serde(default)]
    pub zeros: u64,
}

/// A part of the array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPart {
    /// The first byte.
    pub at: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// One mismatch, or several adjacent ones that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The number of its stripe, at levels with parity.
    pub stripe: Option<u64>,
    /// The verdict.
    pub verdict: FindingVerdict,
    /// What was done.
    pub outcome: Outcome,
    /// The wrong members; for an undecidable finding, all that may be wrong.
    pub members: Vec<MemberPart>,
    /// The array bytes that are wrong or may be; none where parity is wrong.
    pub array: Vec<ArrayPart>,
    /// Rows of 4 KiB on each member.
    pub rows: u64,
}

impl Finding {
    /// Merges `next` into this finding, if it continues it.
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
            self.members.iter_mut().zip(&next.members).for_each(|(part, more)| {
                part.bytes += more.bytes;
                part.zeros += more.zeros;
            });
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
    /// Blocks of 4 KiB that are certainly wrong.
    pub blocks: u64,
}

/// Counts of findings. A row is 4 KiB on each member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScrubCounts {
    /// The value of md's `mismatch_cnt`: sectors, counted in md's units.
    pub mismatch_cnt: u64,
    /// Blocks whose unknown checksums a repair learned.
    #[serde(default)]
    pub learned: u64,
    /// Blocks that agree with the others and have no known checksum. A check counts them, and learns none.
    #[serde(default)]
    pub unknown: u64,
    /// Rows in which the wrong members are identified.
    pub decided: u64,
    /// Rows in which members disagree and nothing says which is wrong.
    pub undecidable: u64,
    /// Rows that the remaining members cannot correct.
    pub lost: u64,
    /// Of all these, rows that were repaired.
    pub healed: u64,
    /// Rows in which parity or copies were overwritten, as md does.
    pub rewritten: u64,
    /// Rows that a request's write corrected first.
    pub gone: u64,
    /// Rows whose repair failed.
    pub failed: u64,
    /// Wrong blocks by member.
    pub members: Vec<MemberCount>,
}

impl ScrubCounts {
    /// Rows with any finding.
    pub fn found(&self) -> u64 {
        self.decided + self.undecidable + self.lost
    }

    /// Rows that are still as they were found.
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
    /// Counts of all findings.
    pub counts: ScrubCounts,
    /// The first findings.
    pub findings: Vec<Finding>,
    /// Number of findings that are not listed.
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

    /// Appends findings of a later window.
    pub(crate) fn absorb(&mut self, more: Findings) {
        self.counts.absorb(&more.counts);
        self.findings_omitted += more.findings_omitted;
        more.findings.into_iter().for_each(|finding| self.list(finding));
    }
}

/// The report of a requested scrub: progress and findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// What the scrub does about findings.
    pub action: ScrubAction,
    /// The state of the scrub.
    pub state: ScrubState,
    /// Why it failed.
    pub failure: Option<String>,
    /// The array bytes that it covers.
    pub array: Range<u64>,
    /// The same as positions: bytes of each member; of the array for RAID-10.
    pub positions: Range<u64>,
    /// All below this is done.
    pub position: u64,
    /// The findings.
    #[serde(flatten)]
    pub found: Findings,
    /// Changes of members since the scrub began: the first ones, in order.
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
            zeros: if row.is_multiple_of(2) { 4096 } else { 0 },
        };
        let array = vec![ArrayPart { at: row << 12, bytes: 4096 }];
        Finding { stripe: Some(3), verdict, outcome: Outcome::Left, members: vec![part], array, rows: 1 }
    }

    #[test]
    fn adjacent_mismatches_are_one_finding_and_those_over_the_limit_are_counted() {
        const DECIDED: FindingVerdict = FindingVerdict::Decided(Evidence::Parity);
        let mut findings = Findings::default();
        [0, 1, 2, 5].into_iter().for_each(|row| findings.add(finding(row, DECIDED)));
        findings.add(finding(6, FindingVerdict::Undecidable));
        assert_eq!(findings.findings.iter().map(|finding| finding.rows).collect::<Vec<_>>(), [3, 1, 1]);
        assert_eq!((findings.counts.decided, findings.counts.undecidable), (4, 1));
        assert_eq!(findings.findings[0].members[0].zeros, 8192, "of rows 0 and 2");
        assert_eq!(findings.counts.members[0].blocks, 4);
        let mut all = Findings::default();
        (0..FINDINGS_LISTED_MAX as u64 + 7).for_each(|index| all.add(finding(index * 2, DECIDED)));
        assert_eq!((all.findings.len(), all.findings_omitted), (FINDINGS_LISTED_MAX, 7));
        let total = all.counts.found();
        findings.absorb(all);
        assert_eq!(findings.counts.found(), total + 5);
    }
}
