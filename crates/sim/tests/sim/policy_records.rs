//! Lines for `cargo xtask policies`, which makes docs/policies.md of them: what starts after a loss of power lose under each
//! consistency policy, and what a policy costs. The tests print them; `--nocapture` shows them.

use engine::ConsistencyPolicy;
use engine::status::level_name;
use format::geometry::Level;
use std::collections::BTreeMap;
use std::fmt;

/// What every line begins with.
const MARK: &str = "record";

/// The lines of the last run of the command.
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/src/policies/records.tsv");

/// Starts of arrays after a loss of power.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Starts {
    pub(super) all: usize,
    /// Those that need `--force`.
    pub(super) refused: usize,
    /// Those in which a sector that was not being written reads wrong or not at all; by force, where that is needed.
    pub(super) lossy: usize,
    /// Such sectors.
    pub(super) sectors: usize,
}

impl fmt::Display for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}\t{}", self.all, self.refused, self.lossy, self.sectors)
    }
}

/// Histories of arrays with one policy at one level.
#[derive(Debug, Default)]
pub(super) struct Histories {
    pub(super) all: usize,
    /// With every member, and with members missing before the power went, while it went or afterwards.
    pub(super) whole: Starts,
    pub(super) lacking: Starts,
}

/// By the policy's name and the level's.
pub(super) type ByPolicy = BTreeMap<(&'static str, &'static str), Histories>;

pub(super) fn key(policy: ConsistencyPolicy, level: Level) -> (&'static str, &'static str) {
    (name(policy), level_name(level))
}

/// The policy's name in `set consistency-policy`.
pub(super) fn name(policy: ConsistencyPolicy) -> &'static str {
    match policy {
        ConsistencyPolicy::Resync => "resync",
        ConsistencyPolicy::Bitmap => "bitmap",
        ConsistencyPolicy::PartialParity => "ppl",
        ConsistencyPolicy::Journal => "journal",
        ConsistencyPolicy::StripeLog => "log",
    }
}

/// Prints a line for each policy and level.
pub(super) fn print(histories: &ByPolicy) {
    for ((policy, level), Histories { all, whole, lacking }) in histories {
        println!("{MARK}\tstarts\t{policy}\t{level}\t{all}\t{whole}\t{lacking}");
    }
}

/// Prints what a policy costs each request, which the page must say already: the figures are exact.
pub(super) fn print_cost(policy: ConsistencyPolicy, level: Level, figures: &[String]) -> Result<(), String> {
    let line = format!("cost\t{}\t{}\t{}", name(policy), level_name(level), figures.join("\t"));
    println!("{MARK}\t{line}");
    let records = std::fs::read_to_string(RECORDS).map_err(|error| format!("{RECORDS}: {error}"))?;
    let is_known = records.lines().any(|known| known == line);
    is_known.then_some(()).ok_or(format!("docs/policies.md does not have {line:?}: `cargo xtask policies --only cost`"))
}
