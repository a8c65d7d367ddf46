//! `update --write-journal`: gives an array that is not served a write journal, or takes it away, as mdadm's
//! `--add-journal` and md's sysfs do.
//!
//! The array is opened for writing, changed and stopped. A journal that is given is replayed first, so nothing is lost
//! with it. One that is not given is lost, and `--force` accepts that.

use crate::command::cli::arguments::{NewJournal, UpdateArguments};
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json, tell};
use crate::machine::{Array, Consent, Machine, Purpose, random};
use engine::inspect::find_superblock;
use engine::{BitmapPolicy, Candidate, ConsistencyPolicy, JournalPlan, Offer};
use serde_json::json;
use std::path::Path;

/// Carries it out.
pub(super) async fn change(machine: &Machine, arguments: &UpdateArguments, new: &NewJournal) -> Result<(), Failure> {
    let paths = machine.members_to_change(&arguments.members, None).await?;
    let candidates = machine.open_all(&paths, Purpose::Write)?;
    let mut has_journal = false;
    for Candidate { name, member } in &candidates {
        has_journal |= find_superblock(name, member, &machine.pool).await?.superblock.journal;
    }
    let (journal, is_lost_accepted) = match new {
        NewJournal::None if !has_journal => return Err(Failure::refused("--write-journal none: the array has none")),
        NewJournal::None => (JournalPlan::GivenUp, arguments.force),
        NewJournal::Device(_) => (JournalPlan::ToCome, false),
    };
    let consent = Consent { force: is_lost_accepted, journal, ..Consent::default() };
    let assembled = machine.assemble_offer(Offer::of(candidates), consent, Purpose::Write, BitmapPolicy::default());
    let array = assembled.await?;
    let status = array.status();
    if let Some(left_out) = status.left_out.first() {
        return Err(Failure::refused(format!("{}: not used: {}", left_out.name, left_out.reason))
            .advise("give the current members alone"));
    }
    status.warnings.iter().for_each(|warning| tell!("warning: {warning}"));
    let device = match new {
        NewJournal::None => {
            array.set_consistency(ConsistencyPolicy::Resync).await?;
            None
        }
        NewJournal::Device(path) => Some(add(machine, &array, path, arguments.force).await?),
    };
    array.stop().await?;
    let members: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    match (arguments.json, device) {
        (true, device) => print_json(&json!({"members": members, "write_journal": device})),
        (false, Some(device)) => print(&format!("{device}: the array's write journal; give it with the members\n")),
        (false, None) => print("the array has no write journal any more\n"),
    }
}

/// Gives the array the device at `path`, and returns its name.
async fn add(machine: &Machine, array: &Array, path: &Path, overwrite: bool) -> Result<String, Failure> {
    let candidate = machine.open(path, Purpose::Write)?;
    let name = candidate.name.clone();
    array.add_journal(candidate, random()?, overwrite).await?;
    Ok(name)
}
