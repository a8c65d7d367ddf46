//! `examine`: the metadata of each member, and whether the members agree.
//!
//! It only reads, also members in use. To check agreement, it assembles each array by the rules of `serve`, once for
//! reading and once for writing.

use crate::command::cli::arguments::ExamineArguments;
use crate::command::cli::examination::{behind, examination};
use crate::command::opening::mdadm_conf::array_lines;
use crate::command::opening::members::expand_with_directories;
use crate::command::text::failure::Failure;
use crate::command::text::output::{print, print_json, tell};
use crate::command::text::wording::describe;
use crate::detect::examine as look;
use crate::machine::{Arena, Machine, Purpose};
use crate::maps::HIDDEN;
use crate::names::name_of;
use crate::whole_disks::members_on;
use engine::examined::{Behind, Examination};
use engine::status::Status;
use engine::{Candidate, Refusal};
use io::AnyMember;
use parity::Kernel;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The findings. Their fields are a stable interface (docs/json.md).
#[derive(Serialize)]
struct Report {
    members: Vec<Examination>,
    unusable: Vec<Unusable>,
    arrays: Vec<ArrayFound>,
}

/// A file or device that is not a usable member.
#[derive(Serialize)]
struct Unusable {
    name: String,
    reason: String,
    /// Whether it was opened, so that it is known to be no member.
    #[serde(skip)]
    is_open: bool,
}

/// Advice about what is unusable.
const NO_MEMBER: &str = "name only members of arrays";
const NOT_OPENED: &str = "correct what cannot be opened, or leave it out";

/// An array of the members.
#[derive(Serialize)]
struct ArrayFound {
    uuid: String,
    members: Vec<String>,
    /// Its status if it were assembled now.
    status: Option<Status>,
    /// Why it cannot be assembled.
    refusal: Option<String>,
    /// Why it can be read, but not written to.
    write_refusal: Option<String>,
    /// Advice about the refusal.
    advice: Option<String>,
    /// Members with fewer events than others: how many, and what may differ.
    behind: Vec<Behind>,
    /// Whether writing is refused because metadata is damaged.
    #[serde(skip)]
    is_damaged: bool,
}

/// Runs `mdspace examine`.
pub(crate) fn run(arguments: &ExamineArguments, kernel: Option<&'static Kernel>) -> Result<(), Failure> {
    let machine = Machine::start(kernel, Arena::Small)?;
    let machine = machine.with_maps(arguments.maps.read()?).over(arguments.overlay.directory())?;
    let report = machine.run(examine(&machine, arguments))?;
    if arguments.scan {
        print(&array_lines(&report.members))?;
    } else if arguments.json {
        print_json(&report)?;
    } else {
        print(&report.text())?;
    }
    report.verdict()
}

async fn examine(machine: &Machine, arguments: &ExamineArguments) -> Result<Report, Failure> {
    let mut report = Report { members: Vec::new(), unusable: Vec::new(), arrays: Vec::new() };
    let mut arrays: Vec<(String, Vec<Candidate<AnyMember>>)> = Vec::new();
    let (mut paths, disks) = members_on(paths(machine, arguments).await?);
    for disk in &disks {
        let is_named = !is_in_a_directory(&arguments.members.members, &disk.path);
        if disk.members.is_empty()
            && is_named
            && let Some(refusal) = disk.without_members()
        {
            report.unusable.push(Unusable {
                name: name_of(&disk.path),
                reason: Failure::from(refusal).reason(),
                is_open: true,
            });
        }
        disk.notes().iter().for_each(|note| tell!("note: {note}"));
        paths.extend(disk.damaged().map(|(path, _)| path.to_owned()));
    }
    for path in paths {
        let candidate = match machine.open(&path, Purpose::Look) {
            Ok(candidate) => candidate,
            Err(refusal) => {
                let reason = Failure::from(refusal).reason();
                report.unusable.push(Unusable { name: name_of(&path), reason, is_open: false });
                continue;
            }
        };
        match look(machine, &candidate.name, &candidate.member).await {
            // Other files of a directory are not an error: the user did not name them.
            Err(refusal) if is_no_member(&refusal) && is_in_a_directory(&arguments.members.members, &path) => {}
            Err(refusal) => {
                report.unusable.push(Unusable {
                    name: candidate.name,
                    reason: Failure::from(refusal).reason(),
                    is_open: true,
                });
            }
            Ok(member) => {
                match arrays.iter_mut().find(|(uuid, _)| *uuid == member.array_uuid) {
                    Some((_, candidates)) => candidates.push(candidate),
                    None => arrays.push((member.array_uuid.clone(), vec![candidate])),
                }
                report.members.push(member);
            }
        }
    }
    for (uuid, candidates) in arrays {
        let members: Vec<&Examination> = report.members.iter().filter(|member| member.array_uuid == uuid).collect();
        let behind = Behind::among(&members);
        report.arrays.push(ArrayFound { behind, ..try_array(machine, uuid, candidates).await });
    }
    Ok(report)
}

async fn try_array(machine: &Machine, uuid: String, candidates: Vec<Candidate<AnyMember>>) -> ArrayFound {
    let members: Vec<String> = candidates.iter().map(|candidate| candidate.name.clone()).collect();
    let mut found = ArrayFound {
        uuid,
        status: None,
        refusal: None,
        write_refusal: None,
        advice: None,
        behind: Vec::new(),
        is_damaged: false,
        members: members.clone(),
    };
    let refused = match machine.assemble_candidates(candidates, false, Purpose::Look).await {
        Ok(array) => {
            found.status = Some(array.status());
            machine.check_writable(members).await.err()
        }
        Err(refusal) => Some(refusal),
    };
    let Some(refusal) = refused else { return found };
    // The bitmap is the only metadata that assembly reads for writing alone.
    found.is_damaged = refusal.field.as_ref().is_some_and(|field| field.starts_with("bitmap."));
    let failure = Failure::from(refusal);
    found.advice = failure.advice();
    *if found.status.is_some() { &mut found.write_refusal } else { &mut found.refusal } = Some(failure.reason());
    found
}

/// The paths to examine. A directory stands for the files and block devices in it.
async fn paths(machine: &Machine, arguments: &ExamineArguments) -> Result<Vec<PathBuf>, Failure> {
    if arguments.members.choice().is_none() {
        let paths = expand_with_directories(&arguments.members.members)?;
        machine.maps.check_used(&paths)?;
        return match paths.is_empty() {
            false => Ok(paths),
            true => Err(Failure::refused("the directory has no file and no block device")
                .advise("name members, or their directory")),
        };
    }
    let found = machine.find(&arguments.members).await?;
    found.note_unknown();
    Ok(found.own)
}

/// Whether `path` comes from a directory among the words, and is not itself a word.
fn is_in_a_directory(words: &[OsString], path: &Path) -> bool {
    path.parent().is_some_and(|parent| words.iter().any(|word| Path::new(word).is_dir() && Path::new(word) == parent))
}

/// Whether the refusal means that there is no superblock, and not that one is damaged.
fn is_no_member(refusal: &Refusal) -> bool {
    refusal.field.as_deref() == Some("superblock.magic")
}

impl Report {
    fn text(&self) -> String {
        let mut text: String = self.members.iter().map(|member| examination(member) + "\n").collect();
        for array in &self.arrays {
            match (&array.status, &array.refusal) {
                (Some(status), _) => {
                    text += &describe(&status.name, status.level, status.array_bytes, &status.state);
                    text.push('\n');
                    if let Some(checksums) = &status.checksums {
                        let (current, members) = (checksums.current, checksums.members);
                        text += &format!("  checksums: on {members} members, current on {current}\n");
                    }
                    for left_out in &status.left_out {
                        text += &format!("  would not be used: {}: {}\n", left_out.name, left_out.reason);
                    }
                    for slot in &status.missing {
                        text += &format!("  missing: slot {slot}\n");
                    }
                    if let Some(reason) = &array.write_refusal {
                        text += &format!("  cannot be written to: {reason}\n");
                    }
                }
                (None, refusal) => {
                    let refusal = refusal.as_deref().unwrap_or_default();
                    text += &format!("array {} cannot be started: {refusal}\n", array.uuid);
                }
            }
            text.extend(array.behind.iter().map(behind));
        }
        text
    }

    /// The result for the exit status: unusable members are a refusal; an array that cannot start, or has a damaged
    /// bitmap, a failure.
    fn verdict(&self) -> Result<(), Failure> {
        if !self.unusable.is_empty() {
            let reasons: Vec<&str> = self.unusable.iter().map(|member| &*member.reason).collect();
            let failure = Failure::refused(reasons.join("\n  and: "));
            let is_hidden = reasons.iter().any(|reason| reason.contains(io::NOT_IN_IMAGE));
            // What cannot be opened may well be a member: its reason says what to do.
            let advice = match self.unusable.iter().any(|member| !member.is_open) {
                true => NOT_OPENED,
                false if is_hidden => HIDDEN,
                false => NO_MEMBER,
            };
            return Err(failure.advise(advice));
        }
        let is_unwell = |array: &&ArrayFound| array.status.is_none() || array.is_damaged;
        let Some(array) = self.arrays.iter().find(is_unwell) else { return Ok(()) };
        let failure =
            Failure::unwell(array.refusal.as_ref().or(array.write_refusal.as_ref()).map_or("", |reason| reason));
        Err(match &array.advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        })
    }
}
