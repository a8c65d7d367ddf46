//! A scrub as text: its progress and its report.

use crate::command::text::output::tell;
use crate::command::text::progress::Progress;
use crate::command::text::size::Size;
use engine::diagnose::Evidence;
use engine::{Finding, FindingVerdict, MemberPart, Outcome, ScrubAction, ScrubReport, ScrubState, SweepStatus};
use std::time::{Duration, Instant};

/// Findings that are printed; JSON lists more.
const FINDINGS_SHOWN: usize = 20;

/// Time between two lines of JSON.
const INTERVAL: Duration = Duration::from_secs(1);

/// The progress of a scrub, on standard error.
pub(crate) enum Shown {
    /// A bar or lines, once the total is known, and the bytes shown so far.
    Text(Option<(Progress, u64)>),
    /// JSON lines; the time of the last one.
    Json(Option<Instant>),
}

impl Shown {
    pub(crate) fn start(as_json: bool) -> Self {
        if as_json { Self::Json(None) } else { Self::Text(None) }
    }

    pub(crate) fn show(&mut self, sweep: &SweepStatus) {
        match self {
            Self::Text(shown) => {
                let (total, done) = (sweep.total_bytes, sweep.done_bytes);
                let (progress, before) = shown.get_or_insert_with(|| (Progress::resume("scrub", total, done), done));
                progress.advance(done.saturating_sub(*before));
                *before = done.max(*before);
            }
            Self::Json(last) => {
                if last.is_none_or(|last| last.elapsed() >= INTERVAL) {
                    *last = Some(Instant::now());
                    tell!("{}", serde_json::to_string(sweep).expect("our own types have string keys"));
                }
            }
        }
    }
}

/// The whole report.
pub(super) fn text(report: &ScrubReport) -> String {
    let counts = &report.found.counts;
    let what = match report.action {
        ScrubAction::Check => "check",
        ScrubAction::Repair => "repair",
        ScrubAction::RepairParity => "repair, md's choice where redundancy does not decide",
    };
    let state = match report.state {
        ScrubState::Waiting => "waiting".to_owned(),
        ScrubState::Running => "running".to_owned(),
        ScrubState::Paused => "paused".to_owned(),
        ScrubState::Complete => "complete".to_owned(),
        ScrubState::Cancelled => "cancelled".to_owned(),
        ScrubState::Failed => "failed".to_owned(),
    };
    let (start, end) = (report.positions.start, report.positions.end);
    let mut text = format!("{what}: {state}, {} of {} done\n", Size(report.position - start), Size(end - start));
    if counts.learned > 0 {
        text += &format!("  {} blocks had no known checksum; it is stored now\n", counts.learned);
    }
    if counts.unknown > 0 {
        text += &format!("  {} blocks have no known checksum; `mdspace scrub --repair` stores it\n", counts.unknown);
    }
    for change in &report.changes {
        text += &format!("  meanwhile {change}\n");
    }
    if counts.found() == 0 {
        return text + "  all that was compared agrees\n";
    }
    text += &format!("  {} rows of 4 KiB are wrong (mismatch_cnt {}):\n", counts.found(), counts.mismatch_cnt);
    text +=
        &format!("    {} decided, {} undecidable, {} beyond repair\n", counts.decided, counts.undecidable, counts.lost);
    if report.action != ScrubAction::Check {
        text += &format!(
            "    {} healed, {} rewritten by md's choice, {} left",
            counts.healed,
            counts.rewritten,
            counts.left()
        );
        text += &if counts.failed > 0 {
            format!(", {} of them after a failed attempt\n", counts.failed)
        } else {
            "\n".to_owned()
        };
    }
    for member in &counts.members {
        text += &format!("  {} (slot {}): {} wrong blocks\n", member.name, member.slot, member.blocks);
    }
    for finding in report.found.findings.iter().take(FINDINGS_SHOWN) {
        text += &format!("  {}\n", line(finding));
    }
    let more = report.found.findings.len().saturating_sub(FINDINGS_SHOWN) as u64 + report.found.findings_omitted;
    if more > 0 {
        text += &format!("  and {more} more; --json lists the first {}\n", engine::FINDINGS_LISTED_MAX);
    }
    if report.found.findings.iter().any(|finding| !doubtful_zeros(finding).is_empty()) {
        text += "  zeros may be what a copying program wrote for sectors that it could not read. If a member is such a\n  \
                 copy, give its map (--map), or leave it out where the others have all data\n";
    }
    text
}

/// The shortest run of zeros that is named: a single block of zeros is common among data.
const ZEROS_MIN: u64 = 8 << 10;

/// The members that hold zeros where others do not, and nothing else tells which of them is wrong.
fn doubtful_zeros(finding: &Finding) -> Vec<&MemberPart> {
    let is_open = (finding.verdict, finding.outcome) == (FindingVerdict::Undecidable, Outcome::Left);
    let zeros: Vec<_> = finding.members.iter().filter(|part| is_open && part.zeros >= ZEROS_MIN).collect();
    if zeros.len() == finding.members.len() { Vec::new() } else { zeros }
}

/// Names the members with doubtful zeros, and the first byte of the finding on each.
fn zeros_text(finding: &Finding) -> String {
    let place =
        |part: &&MemberPart| format!("{} of zeros on {} at byte {}", Size(part.zeros), part.name, part.member_at);
    let places: Vec<String> = doubtful_zeros(finding).iter().map(place).collect();
    if places.is_empty() { String::new() } else { format!(" ({})", places.join("; ")) }
}

fn line(finding: &Finding) -> String {
    let stripe = finding.stripe.map(|stripe| format!("stripe {stripe}: ")).unwrap_or_default();
    let part = |part: &MemberPart| {
        let MemberPart { name, slot, role, member_at, bytes, .. } = part;
        format!("{name} (slot {slot}, {role}) at byte {member_at}, {}", Size(*bytes))
    };
    let members: Vec<String> = finding.members.iter().map(part).collect();
    let verdict = match finding.verdict {
        FindingVerdict::Decided(Evidence::Unreadable) => "cannot be read",
        FindingVerdict::Decided(Evidence::Checksum) => "wrong by its checksum",
        FindingVerdict::Decided(Evidence::Parity) => "wrong by P and Q",
        FindingVerdict::Decided(Evidence::Majority) => "wrong by the majority",
        FindingVerdict::Undecidable => "undecidable",
        FindingVerdict::Lost => "wrong or unreadable, and cannot be reconstructed",
    };
    let members_text = match finding.verdict {
        FindingVerdict::Undecidable => format!("{} members{}", members.len(), zeros_text(finding)),
        _ => members.join("; "),
    };
    let array: Vec<String> =
        finding.array.iter().map(|part| format!("{} at byte {}", Size(part.bytes), part.at)).collect();
    let array = match &array[..] {
        [] => "no data of the array".to_owned(),
        [first] => format!("of the array {first}"),
        [first, rest @ ..] => format!("of the array {first} and {} more ranges", rest.len()),
    };
    let outcome = match finding.outcome {
        Outcome::Left => "left",
        Outcome::Healed => "healed",
        Outcome::Rewritten => "rewritten",
        Outcome::Gone => "overwritten meanwhile",
        Outcome::Failed => "could not be healed",
    };
    format!("{stripe}{members_text}: {verdict}; {array}; {outcome}")
}
