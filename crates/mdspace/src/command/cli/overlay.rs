//! `overlay`: prints what an overlay would change on its members, discards it, or commits it to them.
//!
//! `show` takes no lock: of an overlay in use it prints what was flushed. `commit` locks all members and checks that they
//! are as they were before the first byte is written.

use crate::command::cli::arguments::{OverlayAction, OverlayArguments};
use crate::command::text::failure::Failure;
use crate::command::text::output::{columns, print, print_json, tell};
use crate::command::text::progress::Progress;
use crate::command::text::size::Size;
use crate::detect::examine;
use crate::machine::{Arena, Machine, Purpose};
use crate::names::name_of;
use crate::overlay::{Commit, OverlayDirectory};
use engine::examined::Examination;
use engine::{Candidate, Member};
use format::overlay::BLOCK_BYTES;
use io::AnyMember;
use parity::Kernel;
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
use std::path::Path;

/// Ranges of a member that are printed; JSON has all.
const RANGES_PRINTED: usize = 8;

/// An overlay. Its fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Shown {
    directory: String,
    /// Whether a commit was interrupted, so that the members have some of the changes.
    half_committed: bool,
    /// Whether a commit was interrupted when only the overlay was left to be removed.
    committed: bool,
    /// Why it cannot be committed, but only used or discarded; `null` if it can.
    only_discarded: Option<String>,
    members: Vec<Layered>,
}

/// What the overlay holds of a member.
#[derive(Serialize)]
struct Layered {
    name: String,
    /// Bytes that a commit writes.
    bytes: u64,
    ranges: Vec<Written>,
    /// The metadata of the member below, and what it would be.
    before: Option<Examination>,
    after: Option<Examination>,
    changes: Vec<Change>,
    /// Why the overlay of the member cannot be used.
    problem: Option<String>,
}

/// A range of a member.
#[derive(Serialize)]
struct Written {
    at: u64,
    bytes: u64,
}

/// A field of the superblock, bitmap or bad-block log that changes.
#[derive(Serialize)]
struct Change {
    field: String,
    before: Value,
    after: Value,
}

/// What was committed or discarded (docs/json.md).
#[derive(Serialize)]
struct Ended {
    directory: String,
    members: Vec<String>,
    /// Bytes written to the members.
    committed_bytes: u64,
}

/// Runs `mdspace overlay`.
pub(crate) fn run(arguments: &OverlayArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    match arguments.action {
        OverlayAction::Show => show(arguments, kernel),
        OverlayAction::Discard => discard(arguments),
        OverlayAction::Commit => commit(arguments, kernel),
    }
}

fn show(arguments: &OverlayArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let directory = OverlayDirectory::at(&arguments.directory)?;
    let machine = Machine::start(kernel, Arena::Small)?.over(Some(&arguments.directory))?;
    let committed = directory.is_committed();
    let shown = machine.run(async {
        let mut members = Vec::new();
        for path in if committed { Vec::new() } else { directory.members()? } {
            members.push(Layered::of(&machine, &path).await);
        }
        let half_committed = directory.is_half_committed();
        let only_discarded = directory.check_committable().err().filter(|_| !committed);
        let only_discarded = only_discarded.map(|refusal| refusal.to_string());
        let directory = name_of(&arguments.directory);
        Ok::<_, Failure>(Shown { directory, half_committed, committed, only_discarded, members })
    })?;
    if arguments.json {
        print_json(&shown)?
    } else {
        print(&shown.text())?
    }
    match shown.members.iter().find_map(|member| Some((&member.name, member.problem.as_ref()?))) {
        Some((name, problem)) => Err(Failure::unwell(format!("{name}: {problem}"))),
        None => Ok(()),
    }
}

fn discard(arguments: &OverlayArguments) -> Result<(), Failure> {
    let directory = OverlayDirectory::at(&arguments.directory)?;
    if directory.is_committed() {
        return remove_committed(arguments, &directory);
    }
    let members = directory.readable_members()?.iter().map(|path| name_of(path)).collect();
    note(directory.discard()?);
    let ended = Ended { directory: name_of(&arguments.directory), members, committed_bytes: 0 };
    match arguments.json {
        true => print_json(&ended),
        false => print(&format!("{}: discarded; the members are as they were\n", ended.directory)),
    }
}

/// Removes what is left of an overlay whose changes are all on the members.
fn remove_committed(arguments: &OverlayArguments, directory: &OverlayDirectory) -> Result<(), Failure> {
    let members = directory.readable_members()?.iter().map(|path| name_of(path)).collect();
    note(directory.discard()?);
    let ended = Ended { directory: name_of(&arguments.directory), members, committed_bytes: 0 };
    match arguments.json {
        true => print_json(&ended),
        false => print(&format!("{}: was committed to its members before, and is removed now\n", ended.directory)),
    }
}

/// Says why the overlay's directory stays.
fn note(stays: Option<String>) {
    if let Some(reason) = stays {
        tell!("note: {reason}");
    }
}

fn commit(arguments: &OverlayArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let directory = OverlayDirectory::at(&arguments.directory)?;
    if directory.is_committed() {
        return remove_committed(arguments, &directory);
    }
    let machine = Machine::start(kernel, Arena::Medium)?;
    let ended = machine.run(async {
        let members = directory.members()?.iter().map(|path| name_of(path)).collect();
        let commit = Commit::open(&machine, &directory)?;
        let committed_bytes = commit.bytes();
        let progress = RefCell::new(Progress::start("commit", Some(committed_bytes)));
        let stays = commit.run(&|bytes| progress.borrow_mut().advance(bytes)).await?;
        drop(progress);
        note(stays);
        Ok::<_, Failure>(Ended { directory: name_of(&arguments.directory), members, committed_bytes })
    })?;
    let Ended { directory, members, committed_bytes } = &ended;
    match arguments.json {
        true => print_json(&ended),
        false => {
            let bytes = Size(*committed_bytes);
            print(&format!("{directory}: {bytes} committed to {} members, and removed\n", members.len()))
        }
    }
}

impl Layered {
    async fn of(machine: &Machine, path: &Path) -> Self {
        let name = name_of(path);
        let mut layered =
            Self { name, bytes: 0, ranges: Vec::new(), before: None, after: None, changes: Vec::new(), problem: None };
        match machine.try_open(path, Purpose::Look) {
            Err(error) => layered.problem = Some(error.reason()),
            Ok(Candidate { name, member: AnyMember::Stored(overlay) }) => {
                let end = overlay.limits().bytes;
                let written = overlay.blocks();
                layered.ranges.extend(written.runs().map(|run| {
                    let at = run.start * BLOCK_BYTES;
                    Written { at, bytes: (run.end * BLOCK_BYTES).min(end) - at }
                }));
                layered.bytes = layered.ranges.iter().map(|range| range.bytes).sum();
                layered.before = examine(machine, &name, overlay.under()).await.ok();
                layered.after = examine(machine, &name, &AnyMember::Stored(overlay)).await.ok();
                layered.changes = changes(layered.before.as_ref(), layered.after.as_ref());
            }
            Ok(_) => layered.problem = Some("its entry was removed meanwhile".to_owned()),
        }
        layered
    }

    fn text(&self) -> String {
        let Self { name, bytes, ranges, changes, problem, .. } = self;
        let mut text = format!("{name}: {} in {} ranges\n", Size(*bytes), ranges.len());
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut row = |key: &str, value: String| rows.push(vec![format!("  {key}"), value]);
        if let Some(problem) = problem {
            row("problem", problem.clone());
        }
        for Change { field, before, after } in changes {
            row(&field.replace('_', " "), format!("{} -> {}", words(before), words(after)));
        }
        let listed: Vec<String> =
            ranges.iter().take(RANGES_PRINTED).map(|Written { at, bytes }| format!("{at}+{bytes}")).collect();
        let more = ranges.len().saturating_sub(RANGES_PRINTED);
        let more = if more > 0 { format!(", and {more} more (--json lists all)") } else { String::new() };
        if !listed.is_empty() {
            row("bytes", format!("{}{more}", listed.join(", ")));
        }
        text += &columns(&rows);
        text
    }
}

impl Shown {
    fn text(&self) -> String {
        let mut text: String = self.members.iter().map(Layered::text).collect();
        let directory = &self.directory;
        if let Some(reason) = &self.only_discarded {
            return text + &format!("cannot be committed: {reason}\nnext: mdspace overlay discard {directory}\n");
        }
        text += &match (self.half_committed, self.members.is_empty()) {
            _ if self.committed => {
                format!("it was committed to its members: mdspace overlay discard {directory} removes it\n")
            }
            (true, _) => format!("its commit was interrupted: mdspace overlay commit {directory}\n"),
            (false, true) => "it holds nothing\n".to_owned(),
            (false, false) => {
                format!("next: mdspace overlay commit {directory}, or mdspace overlay discard {directory}\n")
            }
        };
        text
    }
}

/// The fields that differ. A member without a superblock has one field, which says so.
fn changes(before: Option<&Examination>, after: Option<&Examination>) -> Vec<Change> {
    let fields = |examination: &Examination| serde_json::to_value(examination).expect("plain values");
    match (before, after) {
        (None, None) => Vec::new(),
        (Some(before), Some(after)) => {
            let (before, after) = (fields(before), fields(after));
            let all = after.as_object().expect("a struct").iter();
            all.filter(|(field, value)| before[*field] != **value)
                .map(|(field, value)| Change {
                    field: field.clone(),
                    before: before[field].clone(),
                    after: value.clone(),
                })
                .collect()
        }
        (before, after) => {
            let whose = |examination: Option<&Examination>| {
                examination.map_or(Value::Null, |found| format!("{} of {}", found.role, found.array_uuid).into())
            };
            vec![Change { field: "superblock".to_owned(), before: whose(before), after: whose(after) }]
        }
    }
}

/// A value in words.
fn words(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(field, value)| format!("{} {}", field.replace('_', " "), words(value)));
            fields.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
